//! Streams of record batches: decoded as a scan returns them, or encoded before a load.

use crate::error;
use crate::nesting;
use crate::sliced::{GuardedReader, guarded};
use crate::stream::{ArrowStream, row_field};
use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchReader, StructArray};
use arrow_schema::{ArrowError, DataType, Field, FieldRef};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use pyo3_arrow::ffi::{ArrayIterator, to_schema_pycapsule, to_stream_pycapsule};
use pyo3_arrow::input::AnyRecordBatch;
use siltstone_schema::TableSchema;
use std::sync::Arc;

/// The encoded or decoded batches, produced one at a time.
pub(crate) type TableBatches = Box<dyn Iterator<Item = Result<ArrayRef, ArrowError>> + Send>;

/// Record batches that can be read once, by any library with the Arrow PyCapsule interface:
/// pyarrow, polars, duckdb, pandas, arro3.
#[pyclass(frozen, module = "siltstone.table", name = "TableStream")]
pub(crate) struct TableStream {
    batches: Mutex<Option<TableBatches>>,
    field: FieldRef,
    /// Whether the batches are keys and values, to be loaded into a database.
    encodes: bool,
}

impl TableStream {
    /// The columns at `wanted` of the rows in a stream of keys and values.
    pub(super) fn decoding(
        py: Python<'_>,
        schema: &Arc<TableSchema>,
        stream: &Bound<'_, PyAny>,
        wanted: Vec<usize>,
    ) -> PyResult<TableStream> {
        let arrow = error::Raise::raise(schema.arrow_of(&wanted), py)?;
        let field = Field::new("", DataType::Struct(arrow.fields().clone()), false);
        // A stream of this package is read directly, so that its errors keep their types.
        let rows: TableBatches = match stream.cast::<ArrowStream>() {
            Ok(own) => Box::new(own.get().take(py)?),
            Err(_) => {
                nesting::check(stream)?;
                let import = || stream.extract::<AnyRecordBatch>()?.into_reader();
                let reader = GuardedReader(guarded(py, import)??);
                Box::new(reader.map(|batch| batch.map(rows_of)))
            }
        };
        let schema = Arc::clone(schema);
        let batches = rows.map(move |rows| decoded(&schema, &rows?, &wanted));
        let batches: TableBatches = Box::new(batches);
        Ok(TableStream {
            batches: Mutex::new(Some(batches)),
            field: Arc::new(field),
            encodes: false,
        })
    }

    /// The keys and values of `stream`, if it is an encoding stream of this package. It is read
    /// directly, because Arrow's interface would convert errors to text.
    pub(crate) fn encoded(stream: &Bound<'_, PyAny>) -> Option<PyResult<TableBatches>> {
        let own = stream.cast::<TableStream>().ok().filter(|own| own.get().encodes)?;
        Some(own.get().take(stream.py()))
    }

    fn take(&self, py: Python<'_>) -> PyResult<TableBatches> {
        let batches = self.batches.lock().take();
        batches.ok_or_else(|| error::invalid(py, "a stream of a table can be read once"))
    }

    /// The keys and values of the rows of `reader`.
    pub(super) fn encoding(
        schema: &Arc<TableSchema>,
        reader: Box<dyn RecordBatchReader + Send>,
    ) -> TableStream {
        let schema = Arc::clone(schema);
        let batches = reader.map(move |batch| encoded(&schema, &batch?));
        let batches: TableBatches = Box::new(batches);
        TableStream { batches: Mutex::new(Some(batches)), field: row_field(), encodes: true }
    }
}

#[pymethods]
impl TableStream {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let batches = self.take(py)?;
        let reader = Box::new(ArrayIterator::new(batches, Arc::clone(&self.field)));
        Ok(to_stream_pycapsule(py, reader, requested_schema)?)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        Ok(to_schema_pycapsule(py, self.field.as_ref())?)
    }

    fn __repr__(&self) -> String {
        let DataType::Struct(fields) = self.field.data_type() else { return String::new() };
        let names: Vec<_> = fields.iter().map(|field| field.name().as_str()).collect();
        format!("<siltstone.table.TableStream {}>", names.join(", "))
    }
}

fn rows_of(batch: RecordBatch) -> ArrayRef {
    Arc::new(StructArray::from(batch))
}

fn external(error: siltstone::Error) -> ArrowError {
    ArrowError::ExternalError(Box::new(error))
}

fn decoded(
    schema: &TableSchema,
    rows: &ArrayRef,
    wanted: &[usize],
) -> Result<ArrayRef, ArrowError> {
    let batch = decoded_rows(schema, rows, wanted).map_err(external)?;
    Ok(Arc::new(StructArray::from(batch)))
}

/// Decodes keys and values to columns.
///
/// # Errors
/// Invalid without the columns `key` and `value`; the errors of decoding.
pub(super) fn decoded_rows(
    schema: &TableSchema,
    rows: &ArrayRef,
    wanted: &[usize],
) -> siltstone::Result<RecordBatch> {
    let rows = rows.as_struct_opt();
    let column = |name| rows.and_then(|rows| binary(rows, name));
    let (Some(keys), Some(values)) = (column("key"), column("value")) else {
        let text =
            "these are no rows of a database: they have the columns key and value, of binary";
        return Err(siltstone::Error::invalid(text));
    };
    schema.decode(&keys, &values, wanted)
}

fn binary<'a>(rows: &'a StructArray, name: &str) -> Option<Vec<&'a [u8]>> {
    let column = rows.column_by_name(name)?;
    if let Some(column) = column.as_binary_opt::<i32>() {
        return Some(column.iter().map(Option::unwrap_or_default).collect());
    }
    let column = column.as_binary_opt::<i64>()?;
    Some(column.iter().map(Option::unwrap_or_default).collect())
}

/// Encodes columns to keys and values.
fn encoded(schema: &TableSchema, batch: &RecordBatch) -> Result<ArrayRef, ArrowError> {
    let (keys, values) = schema.encode(batch).map_err(external)?;
    let keys: ArrayRef = Arc::new(keys.into_array().map_err(external)?);
    let values: ArrayRef = Arc::new(values.into_array().map_err(external)?);
    let DataType::Struct(fields) = row_field().data_type().clone() else {
        return Err(wrong("has no columns"));
    };
    Ok(Arc::new(StructArray::try_new(fields, vec![keys, values], None)?))
}

fn wrong(text: &'static str) -> ArrowError {
    ArrowError::InvalidArgumentError(format!("the stream {text}"))
}
