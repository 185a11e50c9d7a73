//! Keys and values as arguments: two Arrow columns, or two sequences.

use crate::bytes::{self, refuse_unpaired};
use crate::column::{Column, null};
use crate::error;
use crate::frames::is_arrow_column;
use arrow_array::RecordBatch;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

/// Keys and the values at the same positions.
pub(crate) enum Pairs<'py> {
    /// Arrow columns of the same length.
    Columns(Column, Column),
    /// Two iterables.
    Sequences(Bound<'py, PyAny>, Bound<'py, PyAny>),
}

impl<'py> Pairs<'py> {
    /// # Errors
    /// TypeError if an Arrow column is combined with a sequence, for columns of other types, and
    /// for sets and mappings;
    /// Invalid if the lengths differ, and for nulls.
    pub(crate) fn of(keys: Bound<'py, PyAny>, values: Bound<'py, PyAny>) -> PyResult<Pairs<'py>> {
        let py = keys.py();
        match (is_arrow_column(&keys)?, is_arrow_column(&values)?) {
            (false, false) => {
                refuse_unpaired(&keys, "keys")?;
                refuse_unpaired(&values, "values")?;
                Ok(Pairs::Sequences(keys, values))
            }
            (true, true) => {
                let keys = Column::from_python(&keys, "keys")?;
                let values = Column::from_python(&values, "values")?;
                if keys.len() != values.len() {
                    return Err(lengths_differ(py, Some((keys.len(), values.len()))));
                }
                no_nulls(py, "key", &keys)?;
                no_nulls(py, "value", &values)?;
                Ok(Pairs::Columns(keys, values))
            }
            _ => Err(PyTypeError::new_err(
                "keys and values must both be Arrow arrays, or both be sequences of bytes",
            )),
        }
    }

    /// The columns `key` and `value` of a batch.
    ///
    /// # Errors
    /// TypeError for columns of other types; Invalid for nulls.
    pub(crate) fn of_batch(py: Python<'_>, batch: &RecordBatch) -> PyResult<Pairs<'py>> {
        let (keys, values) =
            (Column::of_batch(py, batch, "key")?, Column::of_batch(py, batch, "value")?);
        no_nulls(py, "key", &keys)?;
        no_nulls(py, "value", &values)?;
        Ok(Pairs::Columns(keys, values))
    }

    /// Columns in which a null value stands for a deletion.
    ///
    /// # Errors
    /// TypeError if a column does not hold byte strings; Invalid if the lengths differ, and for
    /// null keys.
    pub(crate) fn with_deletes(
        keys: &Bound<'py, PyAny>,
        values: &Bound<'py, PyAny>,
    ) -> PyResult<Pairs<'py>> {
        let py = keys.py();
        let (keys, values) =
            (Column::from_python(keys, "keys")?, Column::from_python(values, "values")?);
        if keys.len() != values.len() {
            return Err(lengths_differ(py, Some((keys.len(), values.len()))));
        }
        no_nulls(py, "key", &keys)?;
        Ok(Pairs::Columns(keys, values))
    }
}

fn no_nulls(py: Python<'_>, name: &str, column: &Column) -> PyResult<()> {
    match column.rows().position(|row| row.is_none()) {
        Some(position) => Err(null(py, name, position)),
        None => Ok(()),
    }
}

/// Calls `row` with every pair of two iterables.
///
/// # Errors
/// Invalid if one ends before the other; TypeError if an element is not a buffer; the errors of
/// `row`.
pub(super) fn each_of_sequences(
    keys: &Bound<'_, PyAny>,
    values: &Bound<'_, PyAny>,
    mut row: impl FnMut(&[u8], &[u8]) -> PyResult<()>,
) -> PyResult<()> {
    let py = keys.py();
    if let (Ok(keys), Ok(values)) = (keys.len(), values.len())
        && keys != values
    {
        return Err(lengths_differ(py, Some((keys, values))));
    }
    let (mut keys, mut values) = (keys.try_iter()?, values.try_iter()?);
    let mut rows = 0;
    loop {
        let (key, value) = match (keys.next().transpose()?, values.next().transpose()?) {
            (Some(key), Some(value)) => (key, value),
            (None, None) => return Ok(()),
            _ => return Err(lengths_differ(py, None)),
        };
        let (key, value) = (bytes::row(&key, "keys", rows)?, bytes::row(&value, "values", rows)?);
        row(key.as_ref(), value.as_ref())?;
        rows += 1;
    }
}

fn lengths_differ(py: Python<'_>, lengths: Option<(usize, usize)>) -> PyErr {
    let text = match lengths {
        Some((keys, values)) => format!("there are {keys} keys and {values} values"),
        None => "there are not as many keys as values".to_owned(),
    };
    error::invalid(py, text)
}
