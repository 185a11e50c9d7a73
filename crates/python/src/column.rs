//! Arrow columns of byte strings as arguments: binary, large binary, fixed-size binary, text, the
//! view types of both, and dictionaries of all of these.

use crate::error::{self, Raise};
use crate::frames::{as_bytes, batches_of, chunks_of, ended};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, Schema};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use siltstone::{Keys, Value};

/// One column in one or more chunks.
pub(crate) struct Column {
    chunks: Vec<ArrayRef>,
}

impl Column {
    /// Converts the argument `name` to a column.
    ///
    /// # Errors
    /// TypeError if the column does not hold byte strings.
    pub(crate) fn from_python(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Column> {
        let chunks = chunks_of(object)?;
        for chunk in &chunks {
            check_type(chunk.data_type(), name)?;
        }
        Ok(Column { chunks })
    }

    /// The column `name` of a batch.
    ///
    /// # Errors
    /// TypeError if the column is missing or does not hold byte strings.
    pub(crate) fn of_batch(py: Python<'_>, batch: &RecordBatch, name: &str) -> PyResult<Column> {
        Ok(Column { chunks: vec![column(py, batch, name)?] })
    }

    /// Number of rows.
    pub(crate) fn len(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.len()).sum()
    }

    /// All rows; `None` for a null.
    pub(crate) fn rows(&self) -> impl Iterator<Item = Option<&[u8]>> + Send {
        self.chunks.iter().flat_map(rows)
    }

    /// The rows that are not null, packed into one buffer.
    pub(crate) fn packed_keys(&self) -> Keys {
        self.rows().flatten().collect()
    }

    /// `values` of the rows that are not null, with `None` at the positions where this column has a
    /// null.
    pub(crate) fn nulls_kept(&self, values: Vec<Option<Value>>) -> Vec<Option<Value>> {
        if self.len() == values.len() {
            return values;
        }
        let mut values = values.into_iter();
        self.rows().map(|row| row.and_then(|_| values.next().flatten())).collect()
    }
}

/// Calls `row` with the position, the key and the value of every row of a table, record batch or
/// stream with the columns `key` and `value`.
///
/// # Errors
/// Invalid for missing columns and nulls; TypeError for other types; the errors of `row`.
pub(crate) fn each_row(
    table: &Bound<'_, PyAny>,
    mut row: impl FnMut(usize, (&[u8], &[u8])) -> PyResult<()>,
) -> PyResult<()> {
    let py = table.py();
    let mut reader = batches_of(table)?;
    needs_columns(py, &reader.schema())?;
    let mut position = 0;
    // The producer of the batches may need the interpreter lock on another thread.
    while let Some(batch) = py.detach(|| reader.next()) {
        let batch = batch.map_err(|error| ended(py, error))?;
        let (keys, values) = (column(py, &batch, "key")?, column(py, &batch, "value")?);
        for (key, value) in rows(&keys).zip(rows(&values)) {
            let key = key.ok_or_else(|| null(py, "key", position))?;
            let value = value.ok_or_else(|| null(py, "value", position))?;
            row(position, (key, value))?;
            position += 1;
        }
    }
    Ok(())
}

/// # Errors
/// Invalid if the column `key` or `value` is missing or there twice; the message lists the columns
/// that exist.
pub(crate) fn needs_columns(py: Python<'_>, schema: &Schema) -> PyResult<()> {
    let known: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    for name in ["key", "value"] {
        let text = match known.iter().filter(|known| **known == name).count() {
            0 => format!("the column {name} is missing"),
            1 => continue,
            _ => format!("two columns have the name {name}"),
        };
        let known = known.join(", ");
        return Err(error::invalid(py, format!("{text}; the columns are: {known}")));
    }
    Ok(())
}

/// The exception for a null in place of a byte string.
pub(crate) fn null(py: Python<'_>, column: &str, position: usize) -> PyErr {
    error::invalid(py, format!("{column} {position} is null: a null is neither a key nor a value"))
}

fn column(py: Python<'_>, batch: &RecordBatch, name: &str) -> PyResult<ArrayRef> {
    let found = batch.column_by_name(name);
    let column = found.ok_or_else(|| PyTypeError::new_err(format!("no column {name}")))?;
    let column = as_bytes(column).map_err(|error| error.with("column", name)).raise(py)?;
    check_type(column.data_type(), name)?;
    Ok(column)
}

/// # Errors
/// TypeError if the type does not hold byte strings.
pub(crate) fn check_type(data_type: &DataType, name: &str) -> PyResult<()> {
    match data_type {
        DataType::Binary
        | DataType::LargeBinary
        | DataType::FixedSizeBinary(_)
        | DataType::BinaryView
        | DataType::Utf8
        | DataType::LargeUtf8
        | DataType::Utf8View => Ok(()),
        DataType::Struct(_) => Err(PyTypeError::new_err(format!(
            "{name}: expected one column of binary or text, not a table of columns: pass one of \
             them, as in frame[\"key\"]"
        ))),
        other => Err(PyTypeError::new_err(format!(
            "{name}: an Arrow column of keys or values holds binary or text, not {other}: cast it"
        ))),
    }
}

/// The rows of one chunk. The type was checked before; a chunk of any other type gives no rows.
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
