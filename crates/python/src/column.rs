//! Arrow columns of byte strings as arguments: binary, large binary, fixed-size binary, text, and
//! the views of both.

use crate::error;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, DataType, Schema};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyList;
use pyo3_arrow::error::PyArrowError;
use pyo3_arrow::input::{AnyArray, AnyRecordBatch};
use siltstone::{Keys, Value};

/// Whether the object speaks the Arrow PyCapsule interface.
pub(crate) fn is_arrow(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    // What it lacks costs it an exception to say; a list lacks both.
    if object.is_exact_instance_of::<PyList>() {
        return Ok(false);
    }
    Ok(object.hasattr("__arrow_c_array__")? || object.hasattr("__arrow_c_stream__")?)
}

/// Arrow data as record batches.
///
/// # Errors
/// TypeError for what has no columns, such as a lone array: what Arrow says of it.
pub(crate) fn batches_of(data: &Bound<'_, PyAny>) -> PyResult<Box<dyn RecordBatchReader + Send>> {
    let batches = data.extract::<AnyRecordBatch>().map_err(|error| error.to_string());
    let reader = batches.and_then(|all| all.into_reader().map_err(|error| error.to_string()));
    reader.map_err(|why| {
        let kind = data.get_type().qualname().map(|kind| kind.to_string()).unwrap_or_default();
        PyTypeError::new_err(format!(
            "{kind}: expected a table, a record batch, or a stream of them, which have columns by \
             name: {why}"
        ))
    })
}

/// What a stream of batches ends with: an error of this package as it is.
pub(crate) fn ended(py: Python<'_>, error: ArrowError) -> PyErr {
    match error {
        ArrowError::ExternalError(cause) => match cause.downcast::<siltstone::Error>() {
            Ok(own) => error::exception(py, &own),
            Err(cause) => PyArrowError::from(ArrowError::ExternalError(cause)).into(),
        },
        other => PyArrowError::from(other).into(),
    }
}

/// One column, in one or more chunks.
pub(crate) struct Column {
    chunks: Vec<ArrayRef>,
}

impl Column {
    /// The column that the argument `name` is.
    ///
    /// # Errors
    /// TypeError for a column that holds no byte strings.
    pub(crate) fn from_python(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Column> {
        let (chunks, _) = object.extract::<AnyArray>()?.into_chunked_array()?.into_inner();
        for chunk in &chunks {
            check_type(chunk.data_type(), name)?;
        }
        Ok(Column { chunks })
    }

    /// A column of a batch.
    ///
    /// # Errors
    /// TypeError for one that is not there, or holds no byte strings.
    pub(crate) fn of_batch(batch: &RecordBatch, name: &str) -> PyResult<Column> {
        Ok(Column { chunks: vec![ArrayRef::clone(column(batch, name)?)] })
    }

    /// Rows.
    pub(crate) fn len(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.len()).sum()
    }

    /// Every row; `None` for a null.
    pub(crate) fn rows(&self) -> impl Iterator<Item = Option<&[u8]>> + Send {
        self.chunks.iter().flat_map(rows)
    }

    /// The rows that are not null, in one buffer.
    pub(crate) fn packed_keys(&self) -> Keys {
        self.rows().flatten().collect()
    }

    /// `values` of the rows that are not null, with `None` where this column has a null.
    pub(crate) fn nulls_kept(&self, values: Vec<Option<Value>>) -> Vec<Option<Value>> {
        if self.len() == values.len() {
            return values;
        }
        let mut values = values.into_iter();
        self.rows().map(|row| row.and_then(|_| values.next().flatten())).collect()
    }
}

/// Calls `row` with the position, the key and the value of every row of a table, record batch or
/// stream that has the columns `key` and `value`.
///
/// # Errors
/// Invalid for missing columns and nulls; TypeError for other types; those of `row`.
pub(crate) fn each_row(
    table: &Bound<'_, PyAny>,
    mut row: impl FnMut(usize, (&[u8], &[u8])) -> PyResult<()>,
) -> PyResult<()> {
    let py = table.py();
    let mut reader = batches_of(table)?;
    needs_columns(py, &reader.schema())?;
    let mut position = 0;
    // Whoever brings it may need the interpreter for that, on another thread.
    while let Some(batch) = py.detach(|| reader.next()) {
        let batch = batch.map_err(|error| ended(py, error))?;
        let (keys, values) = (column(&batch, "key")?, column(&batch, "value")?);
        for (key, value) in rows(keys).zip(rows(values)) {
            let key = key.ok_or_else(|| null(py, "key", position))?;
            let value = value.ok_or_else(|| null(py, "value", position))?;
            row(position, (key, value))?;
            position += 1;
        }
    }
    Ok(())
}

/// # Errors
/// Invalid where the columns `key` and `value` are not there, naming those that are.
pub(crate) fn needs_columns(py: Python<'_>, schema: &Schema) -> PyResult<()> {
    for name in ["key", "value"] {
        if schema.column_with_name(name).is_none() {
            let known: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
            let known = known.join(", ");
            let text = format!("the column {name} is missing; the columns are: {known}");
            return Err(error::invalid(py, text));
        }
    }
    Ok(())
}

/// The exception for a null where there must be a byte string.
pub(crate) fn null(py: Python<'_>, column: &str, position: usize) -> PyErr {
    error::invalid(py, format!("{column} {position} is null: a null is neither a key nor a value"))
}

fn column<'a>(batch: &'a RecordBatch, name: &str) -> PyResult<&'a ArrayRef> {
    let found = batch.column_by_name(name);
    let column = found.ok_or_else(|| PyTypeError::new_err(format!("no column {name}")))?;
    check_type(column.data_type(), name)?;
    Ok(column)
}

/// # Errors
/// TypeError for a type that holds no byte strings.
pub(crate) fn check_type(data_type: &DataType, name: &str) -> PyResult<()> {
    match data_type {
        DataType::Binary
        | DataType::LargeBinary
        | DataType::FixedSizeBinary(_)
        | DataType::BinaryView
        | DataType::Utf8
        | DataType::LargeUtf8
        | DataType::Utf8View => Ok(()),
        other => Err(PyTypeError::new_err(format!(
            "{name}: an Arrow column of keys or values holds binary or text, not {other}: cast it"
        ))),
    }
}

/// Rows of one chunk. Types were checked; any other has no rows.
fn rows(chunk: &ArrayRef) -> Box<dyn Iterator<Item = Option<&[u8]>> + Send + '_> {
    match chunk.data_type() {
        DataType::Binary => Box::new(chunk.as_binary::<i32>().iter()),
        DataType::LargeBinary => Box::new(chunk.as_binary::<i64>().iter()),
        DataType::FixedSizeBinary(_) => Box::new(chunk.as_fixed_size_binary().iter()),
        DataType::BinaryView => Box::new(chunk.as_binary_view().iter()),
        DataType::Utf8 => text(chunk.as_string::<i32>().iter()),
        DataType::LargeUtf8 => text(chunk.as_string::<i64>().iter()),
        DataType::Utf8View => text(chunk.as_string_view().iter()),
        _ => Box::new(std::iter::empty()),
    }
}

fn text<'a>(
    rows: impl Iterator<Item = Option<&'a str>> + Send + 'a,
) -> Box<dyn Iterator<Item = Option<&'a [u8]>> + Send + 'a> {
    Box::new(rows.map(|row| row.map(str::as_bytes)))
}
