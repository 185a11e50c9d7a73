//! `siltstone.table`: rows with typed columns (RFC 0040). Converts between Python objects and
//! batches; the encoding belongs to the crate `siltstone-schema`.

mod cells;
mod handles;
mod stream;

use crate::array::ArrowArray;
use crate::batch::WriteBatch;
use crate::column::Column;
use crate::database::Database;
use crate::error::{Raise, exception, invalid};
use crate::frames::{batches_of, ended, is_arrow};
use crate::nesting;
use crate::open::{Arguments, OpenMode};
use crate::sliced::guarded;
use crate::wait::wait;
use arrow_array::{ArrayRef, RecordBatch, StructArray, UInt8Array};
use arrow_schema::{ArrowError, Schema};
use cells::{batch_of_dicts, dict_of_row, key_column_of};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple, PyType};
use pyo3_arrow::PySchema;
use pyo3_arrow::ffi::to_schema_pycapsule;
use siltstone::{Error, Occupancy, OpenSchema, Result};
use siltstone_schema::{ColumnType, Rows, TableSchema};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

pub(crate) use stream::{TableBatches, TableStream};

/// The error for a stored schema that is not text.
const SCHEMA_NOT_TEXT: &str = "the stored schema is not UTF-8; restore the manifest or a backup";

/// The start and the end of a range of keys.
type PyRange<'py> = (Option<Bound<'py, PyBytes>>, Option<Bound<'py, PyBytes>>);

/// The columns of a table: first the key columns in key order, then the value columns. It encodes
/// and decodes rows without a database. It can be pickled, so that tasks in other processes can use
/// it.
#[pyclass(frozen, module = "siltstone.table", name = "TableSchema")]
pub(crate) struct TableColumns {
    schema: Arc<TableSchema>,
}

impl TableColumns {
    fn new(schema: TableSchema) -> Self {
        TableColumns { schema: Arc::new(schema) }
    }

    /// The positions of the named columns; of all columns without names.
    fn places(&self, py: Python<'_>, columns: Option<Vec<String>>) -> PyResult<Vec<usize>> {
        match columns {
            None => Ok((0..self.schema.width()).collect()),
            Some(names) => self.schema.places(&names).raise(py),
        }
    }

    /// Rows as record batches, from Arrow data or dicts.
    fn batches(&self, rows: &Bound<'_, PyAny>, keys: bool) -> PyResult<Vec<RecordBatch>> {
        if is_arrow(rows)? {
            let (py, reader) = (rows.py(), batches_of(rows)?);
            let all = || reader.collect::<std::result::Result<Vec<_>, ArrowError>>();
            return py.detach(all).map_err(|error| ended(py, error));
        }
        let all = self.schema.arrow();
        let key_columns = self.schema.keys().columns().len();
        let needed = if keys { key_columns } else { all.fields().len() };
        Ok(vec![batch_of_dicts(rows, &all, (key_columns, needed))?])
    }

    fn encoded_keys(&self, rows: &Bound<'_, PyAny>) -> PyResult<Rows> {
        let (py, batches) = (rows.py(), self.batches(rows, true)?);
        let schema = &self.schema;
        let work = || {
            let mut all = Rows::default();
            for batch in &batches {
                all.append(&schema.encode_keys(batch)?);
            }
            Ok(all)
        };
        py.detach(work).raise(py)
    }
}

#[pymethods]
impl TableColumns {
    /// Makes a table schema from `schema` (of pyarrow, or any object with the Arrow schema
    /// interface). `key` lists the key columns.
    ///
    /// :param key: column names, each optionally followed by its order: ``"day desc nulls last"``.
    ///     A nullable column takes one more byte in each key; declare it not nullable in `schema`
    ///     if it has no nulls.
    /// :raises Invalid: `key` is empty, a column is unknown or listed twice, or an order is not
    ///     valid.
    /// :raises Unsupported: a column has an unsupported type; the message says what to cast it to.
    #[new]
    #[pyo3(signature = (schema, *, key))]
    fn from_arrow(schema: &Bound<'_, PyAny>, key: Vec<String>) -> PyResult<Self> {
        nesting::check(schema)?;
        let py = schema.py();
        let schema = schema.extract::<PySchema>()?.into_inner();
        Ok(TableColumns::new(TableSchema::of(schema.fields(), &key).raise(py)?))
    }

    /// Parses a schema from its `text`.
    ///
    /// :raises Corruption: if the text is not a schema.
    /// :raises Unsupported: if the schema is of a later version.
    #[classmethod]
    fn parse(_class: &Bound<'_, PyType>, py: Python<'_>, text: &str) -> PyResult<Self> {
        Ok(TableColumns::new(TableSchema::parse(text).raise(py)?))
    }

    /// The schema as two lines of text, as the manifest stores it.
    #[getter]
    fn text(&self) -> String {
        self.schema.to_string()
    }

    /// The names of the key columns, in order.
    #[getter]
    fn key(&self) -> Vec<String> {
        self.schema.keys().columns().iter().map(|column| column.name.clone()).collect()
    }

    /// The order of each key column: whether it is descending, and whether nulls come last.
    #[getter]
    fn directions(&self) -> Vec<(bool, bool)> {
        let columns = self.schema.keys().columns().iter();
        columns.map(|column| (column.descending, column.nulls_last)).collect()
    }

    /// The names of all columns: the key columns, then the value columns.
    #[getter]
    fn names(&self) -> Vec<String> {
        self.schema.arrow().fields().iter().map(|field| field.name().clone()).collect()
    }

    /// The generation of the value columns: 1, plus the number of changes to them.
    #[getter]
    fn generation(&self) -> u16 {
        self.schema.values().generation()
    }

    fn __arrow_c_schema__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Bound<'py, pyo3::types::PyCapsule>> {
        Ok(to_schema_pycapsule(py, self.schema.arrow())?)
    }

    /// Encodes rows to keys and values, two Arrow arrays of binary. Columns are found by name. A
    /// nullable value column may be missing.
    ///
    /// :param rows: Arrow data (a table, a batch, a data frame), or a list of dicts.
    /// :raises Invalid: if a column is missing, unknown, or of another type, if a column that is
    ///     not nullable has a null, or if a row is larger than 2 GiB.
    fn encode(&self, rows: &Bound<'_, PyAny>) -> PyResult<(ArrowArray, ArrowArray)> {
        let (py, batches) = (rows.py(), self.batches(rows, false)?);
        let schema = &self.schema;
        let work = || -> Result<(ArrayRef, ArrayRef)> {
            let (mut keys, mut values) = (Rows::default(), Rows::default());
            for batch in &batches {
                let (key, value) = schema.encode(batch)?;
                keys.append(&key);
                values.append(&value);
            }
            Ok((Arc::new(keys.into_array()?), Arc::new(values.into_array()?)))
        };
        let (keys, values) = py.detach(work).raise(py)?;
        Ok((ArrowArray::new(keys), ArrowArray::new(values)))
    }

    /// Encodes the keys of rows to an Arrow array of binary. Columns other than the key columns
    /// are ignored.
    ///
    /// :raises Invalid: as for `encode`.
    fn encode_key(&self, rows: &Bound<'_, PyAny>) -> PyResult<ArrowArray> {
        let keys = self.encoded_keys(rows)?.into_array().raise(rows.py())?;
        Ok(ArrowArray::new(Arc::new(keys)))
    }

    /// Decodes keys and values to rows, an Arrow record batch. A null value means an absent row:
    /// it is null in every column.
    ///
    /// :param columns: names of the columns to decode, in this order; None: all columns.
    /// :raises Corruption: if the bytes were not made by `encode`.
    /// :raises Unsupported: if the values are of a later generation than this schema.
    #[pyo3(signature = (keys, values, *, columns=None))]
    fn decode(
        &self,
        py: Python<'_>,
        keys: &Bound<'_, PyAny>,
        values: &Bound<'_, PyAny>,
        columns: Option<Vec<String>>,
    ) -> PyResult<ArrowArray> {
        let wanted = self.places(py, columns)?;
        let keys = Column::from_python(keys, "keys")?;
        let values = Column::from_python(values, "values")?;
        if keys.len() != values.len() {
            let text = format!("there are {} keys and {} values", keys.len(), values.len());
            return Err(invalid(py, text));
        }
        let work = || {
            let keys: Vec<&[u8]> = keys.rows().map(Option::unwrap_or_default).collect();
            let found: Vec<Option<&[u8]>> = values.rows().collect();
            let all: Option<Vec<&[u8]>> = found.iter().copied().collect();
            match all {
                Some(values) => self.schema.decode(&keys, &values, &wanted),
                None => self.schema.decode_found(&keys, &found, &wanted),
            }
        };
        Ok(array_of(py.detach(work).raise(py)?))
    }

    /// As `decode`, for a record batch with the columns `key` and `value`.
    #[pyo3(signature = (batch, *, columns=None))]
    fn decode_batch(
        &self,
        py: Python<'_>,
        batch: &Bound<'_, PyAny>,
        columns: Option<Vec<String>>,
    ) -> PyResult<ArrowArray> {
        let wanted = self.places(py, columns)?;
        nesting::check(batch)?;
        let import = || batch.extract::<pyo3_arrow::PyRecordBatch>();
        let batch = guarded(py, import)??.into_inner();
        let rows: ArrayRef = Arc::new(StructArray::from(batch));
        py.detach(|| stream::decoded_rows(&self.schema, &rows, &wanted)).raise(py).map(array_of)
    }

    /// Returns a batch that deletes the rows with these keys.
    ///
    /// :param rows: Arrow data, or a list of dicts; columns other than the key columns are ignored.
    /// :raises Invalid: as for `encode`.
    fn deletes(&self, rows: &Bound<'_, PyAny>) -> PyResult<WriteBatch> {
        let (py, keys) = (rows.py(), self.encoded_keys(rows)?);
        let batch = WriteBatch::new();
        keys.iter().try_for_each(|key| batch.add(py, |batch| batch.delete(key)))?;
        Ok(batch)
    }

    /// Whether a column has the name and the type of an Arrow field.
    fn has(&self, field: &Bound<'_, PyAny>) -> PyResult<bool> {
        let (py, field) = (field.py(), field_of(field)?);
        let wanted = ColumnType::of(field.data_type()).raise(py)?.arrow();
        let arrow = self.schema.arrow();
        let found = arrow.column_with_name(field.name());
        Ok(found.is_some_and(|(_, found)| *found.data_type() == wanted))
    }

    /// Whether a column is nullable.
    ///
    /// :raises Invalid: if there is no such column.
    fn nullable(&self, py: Python<'_>, column: &str) -> PyResult<bool> {
        let places = self.schema.places(&[column]).raise(py)?;
        let arrow = self.schema.arrow();
        Ok(places.iter().all(|place| arrow.field(*place).is_nullable()))
    }

    /// Decodes keys to the key columns, an Arrow record batch.
    ///
    /// :raises Corruption: if the bytes were not made by `encode_key`.
    fn decode_key(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<ArrowArray> {
        let wanted: Vec<usize> = (0..self.schema.keys().columns().len()).collect();
        let keys = Column::from_python(keys, "keys")?;
        let work = || {
            let keys: Vec<&[u8]> = keys.rows().map(Option::unwrap_or_default).collect();
            self.schema.decode(&keys, &[], &wanted)
        };
        Ok(array_of(py.detach(work).raise(py)?))
    }

    /// Decodes a key and its value to a row, a dict.
    ///
    /// :raises Corruption, Unsupported: as for `decode`.
    fn row<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyBytes>,
        value: &Bound<'py, PyBytes>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let wanted: Vec<usize> = (0..self.schema.width()).collect();
        let row = self.schema.decode(&[key.as_bytes()], &[value.as_bytes()], &wanted);
        dict_of_row(py, &row.raise(py)?)
    }

    /// Encodes the key of one row, a dict.
    ///
    /// :raises Invalid: as for `encode`.
    fn key_of<'py>(
        &self,
        py: Python<'py>,
        row: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let rows = pyo3::types::PyList::new(py, [row])?;
        let keys = self.encoded_keys(rows.as_any())?;
        Ok(PyBytes::new(py, keys.iter().next().unwrap_or_default()))
    }

    /// Returns the first key of a range and its exclusive end, for `start` and `end` of `scan`.
    ///
    /// :param equal: values of the first key columns.
    /// :param start: lower bound of the next key column, inclusive, in the order of the key.
    /// :param end: upper bound of the next key column, exclusive, in the order of the key.
    /// :raises Invalid: if the columns are not the first key columns, or a bound follows the last
    ///     one.
    #[pyo3(signature = (equal=None, start=None, end=None))]
    fn range<'py>(
        &self,
        py: Python<'py>,
        equal: Option<&Bound<'py, PyDict>>,
        start: Option<Bound<'py, PyAny>>,
        end: Option<Bound<'py, PyAny>>,
    ) -> PyResult<PyRange<'py>> {
        let equal = self.leading(py, equal)?;
        let next = self.schema.keys().columns().get(equal.len());
        let bound = |value: Option<Bound<'py, PyAny>>| match (value, next) {
            (None, _) => Ok(None),
            (Some(value), Some(column)) => {
                key_column_of(&column.column_type, &column.name, &[Some(value)]).map(Some)
            }
            // The schema reports what is wrong with this value.
            (Some(_), None) => Ok(Some(Arc::new(UInt8Array::from(vec![0])) as ArrayRef)),
        };
        let (start, end) = self.schema.range(&equal, bound(start)?, bound(end)?).raise(py)?;
        let bytes = |bytes: Option<Vec<u8>>| bytes.map(|bytes| PyBytes::new(py, &bytes));
        Ok((bytes(start), bytes(end)))
    }

    /// Decodes a stream of Arrow data with the columns `key` and `value`, such as a scan, to
    /// record batches of the table, one batch at a time. The result can be read once.
    ///
    /// :param columns: as for `decode`.
    #[pyo3(signature = (stream, *, columns=None))]
    fn decode_stream(
        &self,
        py: Python<'_>,
        stream: &Bound<'_, PyAny>,
        columns: Option<Vec<String>>,
    ) -> PyResult<TableStream> {
        TableStream::decoding(py, &self.schema, stream, self.places(py, columns)?)
    }

    /// Encodes rows to a stream of record batches with the columns `key` and `value`. The stream
    /// can be read once.
    ///
    /// :param data: Arrow data, including a stream, or a list of dicts.
    fn encode_stream(&self, data: &Bound<'_, PyAny>) -> PyResult<TableStream> {
        if is_arrow(data)? {
            return Ok(TableStream::encoding(&self.schema, batches_of(data)?));
        }
        let all = self.schema.arrow();
        let keys = self.schema.keys().columns().len();
        let batch = batch_of_dicts(data, &all, (keys, all.fields().len()))?;
        let schema = batch.schema();
        let batches = arrow_array::RecordBatchIterator::new([Ok(batch)], schema);
        Ok(TableStream::encoding(&self.schema, Box::new(batches)))
    }

    /// Returns the schema with a new nullable column at the end of the value columns. Existing
    /// rows have null in it.
    ///
    /// :param field: an Arrow field.
    /// :raises Invalid: if a column with the name exists, or the field is not nullable.
    fn with_column(&self, field: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (py, field) = (field.py(), field_of(field)?);
        if !field.is_nullable() {
            let text = "a column that is added may hold nulls: the rows that are there have none";
            return Err(exception(py, &Error::invalid(text).with("column", field.name())));
        }
        self.evolved(py, |schema| {
            let column_type = ColumnType::of(field.data_type())?;
            schema.values().with_column(field.name(), column_type)
        })
    }

    /// Returns the schema with a value column changed to a type that holds all of its values.
    ///
    /// :param field: an Arrow field with the name of the column.
    /// :raises Invalid: if there is no such column, it belongs to the key, or the type does not
    ///     hold all of its values.
    fn with_wider(&self, field: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (py, field) = (field.py(), field_of(field)?);
        self.evolved(py, |schema| {
            let column_type = ColumnType::of(field.data_type())?;
            schema.check_changeable(field.name())?;
            schema.values().with_wider(field.name(), column_type)
        })
    }

    /// Returns the schema with a value column made nullable.
    ///
    /// :raises Invalid: if there is no such column, it belongs to the key, or it is nullable
    ///     already.
    fn with_nulls(&self, py: Python<'_>, column: &str) -> PyResult<Self> {
        self.evolved(py, |schema| {
            schema.check_changeable(column)?;
            schema.values().with_nulls(column)
        })
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<TableColumns>().is_ok_and(|other| other.get().schema == self.schema)
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.schema.to_string().hash(&mut hasher);
        hasher.finish()
    }

    fn __reduce__<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let text = slf.get().schema.to_string();
        Ok((slf.get_type().getattr("parse")?, PyTuple::new(slf.py(), [text])?))
    }

    fn __repr__(&self) -> String {
        format!("<siltstone.table.TableSchema {}>", self.text().replace('\n', ", "))
    }
}

impl TableColumns {
    fn evolved(
        &self,
        py: Python<'_>,
        change: impl FnOnce(&TableSchema) -> Result<siltstone_schema::ValueSchema>,
    ) -> PyResult<Self> {
        let values = change(&self.schema).raise(py)?;
        Ok(TableColumns::new(self.schema.with_values(values).raise(py)?))
    }

    /// The values of the first key columns, one row for each.
    fn leading(
        &self,
        py: Python<'_>,
        equal: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Vec<ArrayRef>> {
        let Some(equal) = equal else { return Ok(Vec::new()) };
        let columns = self.schema.keys().columns();
        let mut values = Vec::with_capacity(equal.len());
        for column in columns.iter().take(equal.len()) {
            let Some(value) = equal.get_item(&column.name)? else {
                let names: Vec<_> = columns.iter().map(|column| column.name.as_str()).collect();
                let error = Error::invalid(
                    "where says what the key's first columns are equal to, without a gap; filter \
                     the rest of the rows yourself",
                );
                let error = error.with("missing", &column.name).with("key", names.join(", "));
                return Err(exception(py, &error));
            };
            let value = (!value.is_none()).then_some(value);
            values.push(key_column_of(&column.column_type, &column.name, &[value])?);
        }
        if equal.len() > columns.len() {
            return Err(invalid(py, "where has more columns than the key"));
        }
        Ok(values)
    }
}

impl TableColumns {
    /// The schema as the options of an open take it.
    pub(crate) fn brought(&self) -> OpenSchema {
        fn parsed(text: &[u8]) -> Result<TableSchema> {
            let text = std::str::from_utf8(text)
                .map_err(|error| Error::corruption(SCHEMA_NOT_TEXT).caused_by(error))?;
            TableSchema::parse(text)
        }
        OpenSchema {
            keys: self.schema.keys().to_string(),
            text: self.schema.to_string().into(),
            agrees: |recorded, brought| parsed(recorded)?.agrees_with(&parsed(brought)?),
        }
    }
}

/// An Arrow field.
///
/// # Errors
/// TypeError for another object; Invalid for a type that is nested too deep.
fn field_of(field: &Bound<'_, PyAny>) -> PyResult<arrow_schema::FieldRef> {
    nesting::check(field)?;
    Ok(field.extract::<pyo3_arrow::PyField>()?.into_inner())
}

/// Adds the items of this module to the compiled module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<TableColumns>()?;
    module.add_class::<TableStream>()?;
    module.add_function(wrap_pyfunction!(open_table, module)?)
}

/// Opens a table for writing, and creates it if it does not exist.
#[pyfunction]
#[pyo3(signature = (url, schema, mode, named, store_options, merge_operator))]
fn open_table(
    py: Python<'_>,
    url: &str,
    schema: &TableColumns,
    mode: OpenMode<'_>,
    named: &Bound<'_, PyDict>,
    store_options: &Bound<'_, PyDict>,
    merge_operator: Option<&Bound<'_, PyAny>>,
) -> PyResult<Database> {
    let arguments = Arguments::new(py, url, mode, named, store_options, merge_operator)?;
    let arguments = arguments.of_table(schema.brought());
    wait(py, arguments.process, arguments.open(Occupancy::default()))
}

/// A record batch in the form in which it crosses the interface: an array of structs.
fn array_of(batch: RecordBatch) -> ArrowArray {
    ArrowArray::new(Arc::new(StructArray::from(batch)))
}

/// # Errors
/// TypeError if the row is not a dict.
fn as_dict<'a, 'py>(row: &'a Bound<'py, PyAny>, at: usize) -> PyResult<&'a Bound<'py, PyDict>> {
    row.cast::<PyDict>().map_err(|_| {
        let kind = row.get_type().qualname().map(|name| name.to_string()).unwrap_or_default();
        PyTypeError::new_err(format!("rows[{at}]: a row is a dict, or Arrow data, not {kind}"))
    })
}

/// The type of a field of a schema.
fn type_of(schema: &Schema, place: usize) -> Result<ColumnType> {
    ColumnType::of(schema.field(place).data_type())
}
