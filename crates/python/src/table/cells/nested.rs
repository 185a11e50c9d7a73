//! Lists, dicts of fields and dicts of keys as nested columns, and back.

use super::{Cell, CellPlace, cell_of, column_of as column_of_part};
use crate::bytes::BytesArg;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, ListArray, MapArray, StructArray};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{ArrowError, DataType};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyList, PySet, PyString};
use siltstone_schema::{ColumnType, NestedField};
use std::sync::Arc;

/// The values as a nested column. A list is any iterable but text, bytes and dicts; a struct is a
/// dict of its fields, of which a missing one is None; a map is a dict.
///
/// # Errors
/// As [`super::column_of`].
pub(super) fn column_of(place: &CellPlace<'_>, cells: &[Cell<'_>]) -> PyResult<ArrayRef> {
    let nulls = NullBuffer::from_iter(cells.iter().map(Option::is_some));
    let nulls = (nulls.null_count() > 0).then_some(nulls);
    match place.column_type {
        ColumnType::List(items) => {
            let (ends, parts) = flat(place.each(cells, items_of)?);
            let values = part(place, &items.name, &items.column_type, &parts)?;
            let DataType::List(field) = place.column_type.arrow() else { return Err(no_type()) };
            // The encoder checks for nulls and has better error messages.
            let field = field.as_ref().clone().with_nullable(true);
            let field = Arc::new(field.with_data_type(values.data_type().clone()));
            Ok(Arc::new(ListArray::try_new(field, ends, values, nulls).map_err(broken)?))
        }
        ColumnType::Struct(fields) => {
            let found = place.each(cells, |cell| fields_of(cell, fields))?;
            let parts = fields.iter().enumerate().map(|(at, field)| {
                let cells = found.iter().map(|cell| cell.as_ref()?.get(at)?.clone());
                part(place, &field.name, &field.column_type, &cells.collect::<Vec<_>>())
            });
            let parts = parts.collect::<PyResult<Vec<_>>>()?;
            let names = fields.iter().zip(&parts).map(|(field, part)| {
                arrow_schema::Field::new(&field.name, part.data_type().clone(), true)
            });
            Ok(Arc::new(StructArray::try_new(names.collect(), parts, nulls).map_err(broken)?))
        }
        ColumnType::Map { key, value } => {
            let found = place.each(cells, pairs_of)?;
            let pairs = found.into_iter().map(|cell| cell.map(|pairs| pairs.into_iter().unzip()));
            let (keys, values): (Vec<_>, Vec<_>) = pairs
                .map(|pair: Option<(Vec<Cell<'_>>, Vec<Cell<'_>>)>| match pair {
                    Some((keys, values)) => (Some(keys), Some(values)),
                    None => (None, None),
                })
                .unzip();
            let ((ends, keys), (_, values)) = (flat(keys), flat(values));
            let keys = part(place, "key", key, &keys)?;
            let values = part(place, &value.name, &value.column_type, &values)?;
            let pair =
                [("key", &keys, false), ("value", &values, true)].map(|(name, part, nullable)| {
                    arrow_schema::Field::new(name, part.data_type().clone(), nullable)
                });
            let pairs = StructArray::try_new(pair.into_iter().collect(), vec![keys, values], None);
            let pairs = pairs.map_err(broken)?;
            let entries =
                Arc::new(arrow_schema::Field::new("entries", pairs.data_type().clone(), false));
            let map = MapArray::try_new(entries, ends, pairs, nulls, false).map_err(broken)?;
            Ok(Arc::new(map))
        }
        _ => Err(no_type()),
    }
}

fn part(
    place: &CellPlace<'_>,
    name: &str,
    column_type: &ColumnType,
    cells: &[Cell<'_>],
) -> PyResult<ArrayRef> {
    column_of_part(column_type, &format!("{}.{name}", place.name), cells)
}

/// The ends of the lists, and their items.
fn flat<'py>(lists: Vec<Option<Vec<Cell<'py>>>>) -> (OffsetBuffer<i32>, Vec<Cell<'py>>) {
    let lengths = lists.iter().map(|list| list.as_ref().map_or(0, Vec::len));
    let ends = OffsetBuffer::from_lengths(lengths);
    (ends, lists.into_iter().flatten().flatten().collect())
}

fn cell_or_none<'py>(cell: Bound<'py, PyAny>) -> Cell<'py> {
    (!cell.is_none()).then_some(cell)
}

fn items_of<'py>(cell: &Bound<'py, PyAny>) -> PyResult<Vec<Cell<'py>>> {
    if cell.is_instance_of::<PyString>()
        || cell.is_instance_of::<PyBytes>()
        || cell.is_instance_of::<PyDict>()
    {
        return Err(PyTypeError::new_err("it takes a list"));
    }
    cell.try_iter()?.map(|item| item.map(cell_or_none)).collect()
}

fn fields_of<'py>(cell: &Bound<'py, PyAny>, fields: &[NestedField]) -> PyResult<Vec<Cell<'py>>> {
    let Ok(dict) = cell.cast::<PyDict>() else {
        return Err(PyTypeError::new_err("it takes a dict of its fields"));
    };
    for name in dict.keys() {
        let known = name.extract::<String>();
        if !known.is_ok_and(|name| fields.iter().any(|field| field.name == name)) {
            let name = name.repr()?;
            return Err(PyValueError::new_err(format!("it has no field {name}")));
        }
    }
    let found = |field: &NestedField| Ok(dict.get_item(&field.name)?.and_then(cell_or_none));
    fields.iter().map(found).collect()
}

/// The keys and values of a dict, or of pairs, as PyArrow shows maps. Pairs must have different
/// keys, because a row as a dict could show only one of two values.
fn pairs_of<'py>(cell: &Bound<'py, PyAny>) -> PyResult<Vec<(Cell<'py>, Cell<'py>)>> {
    let (pairs, known) = match cell.cast::<PyDict>() {
        Ok(dict) => (dict.items().into_any(), None),
        Err(_) => (cell.clone(), Some(PySet::empty(cell.py())?)),
    };
    let pair = |pair: PyResult<Bound<'py, PyAny>>| {
        let (key, value): (Bound<'py, PyAny>, Bound<'py, PyAny>) = pair?
            .extract()
            .map_err(|_| PyTypeError::new_err("it takes a dict, or pairs of key and value"))?;
        if key.is_none() {
            return Err(PyValueError::new_err("a key of a map is None"));
        }
        if let Some(known) = &known {
            // A bytearray has no hash.
            let hashed = match key.is_instance_of::<PyByteArray>() {
                true => PyBytes::new(key.py(), key.extract::<BytesArg<'_>>()?.as_ref()).into_any(),
                false => key.clone(),
            };
            if known.contains(&hashed)? {
                let text = format!("two pairs of a map have the key {}: keep one", key.repr()?);
                return Err(PyValueError::new_err(text));
            }
            known.add(hashed)?;
        }
        Ok((Some(key), cell_or_none(value)))
    };
    pairs.try_iter()?.map(pair).collect()
}

fn broken(error: ArrowError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn no_type() -> PyErr {
    PyTypeError::new_err("the column is not nested")
}

/// The first value of a nested column; the value is not null. A map is a dict; of a key that comes
/// twice, the last value counts.
pub(super) fn value_of<'py>(
    py: Python<'py>,
    column_type: &ColumnType,
    array: &ArrayRef,
) -> PyResult<Bound<'py, PyAny>> {
    Ok(match column_type {
        ColumnType::List(items) => {
            let found = array.as_list::<i32>().value(0);
            let cells =
                (0..found.len()).map(|at| cell_of(py, &items.column_type, &found.slice(at, 1)));
            PyList::new(py, cells.collect::<PyResult<Vec<_>>>()?)?.into_any()
        }
        ColumnType::Struct(fields) => {
            let dict = PyDict::new(py);
            for (field, part) in fields.iter().zip(array.as_struct().columns()) {
                dict.set_item(&field.name, cell_of(py, &field.column_type, part)?)?;
            }
            dict.into_any()
        }
        ColumnType::Map { key, value } => {
            let pairs = array.as_map().value(0);
            let dict = PyDict::new(py);
            for at in 0..pairs.len() {
                let pair = [(0, key.as_ref()), (1, &value.column_type)];
                let [key, value] =
                    pair.map(|(place, part)| cell_of(py, part, &pairs.column(place).slice(at, 1)));
                dict.set_item(key?, value?)?;
            }
            dict.into_any()
        }
        _ => return Err(no_type()),
    })
}
