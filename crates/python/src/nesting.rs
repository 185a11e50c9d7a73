//! The bound on how deep the types of Arrow data may be nested, checked before they are imported.
//!
//! The import calls itself for each level of a type, and some thousand levels would overflow the
//! stack, which ends the process. The check walks the types of pyarrow and polars by their own
//! attributes, without recursion. Other libraries have no common way to show a type before it is
//! imported.

use crate::error::exception;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use siltstone::Error;

/// Levels that a type may have. Columns of tables have fewer (`siltstone_schema`); this bound is
/// that of the import, as in pyarrow.
const MOST_LEVELS: usize = 64;

/// The library of a type, which decides how to walk it.
#[derive(Clone, Copy)]
enum Library {
    Pyarrow,
    Polars,
}

/// Checks how deep the types of `object` are nested: a schema, a field, a type, or data. Returns
/// whether they are known to be flat: types of pyarrow that have no parts.
///
/// # Errors
/// Invalid above [`MOST_LEVELS`].
pub(crate) fn check(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let Some(library) = library(object)? else { return Ok(false) };
    let mut found: Vec<(Bound<'_, PyAny>, usize)> = Vec::new();
    for of_column in columns(object, library)? {
        if !is_flat(&of_column, library)? {
            found.push((of_column, 1));
        }
    }
    let are_flat = found.is_empty() && matches!(library, Library::Pyarrow);
    while let Some((of_column, level)) = found.pop() {
        if level > MOST_LEVELS {
            let text = "the types of a column are nested too deep: flatten the column, or store \
                        the value as JSON in a column of text";
            let error = Error::invalid(text).with("levels", format!("at most {MOST_LEVELS}"));
            return Err(exception(object.py(), &error));
        }
        for part in parts(&of_column, library)? {
            found.push((part, level + 1));
        }
    }
    Ok(are_flat)
}

/// Whether a type of pyarrow is of the base class, which types without parts have. To look for
/// parts takes longer than the import of such a column.
fn is_flat(of_column: &Bound<'_, PyAny>, library: Library) -> PyResult<bool> {
    static BASE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    if !matches!(library, Library::Pyarrow) {
        return Ok(false);
    }
    Ok(of_column.get_type().is(BASE.import(of_column.py(), "pyarrow", "DataType")?))
}

/// `None` for an object of another library.
fn library(object: &Bound<'_, PyAny>) -> PyResult<Option<Library>> {
    let module = object.get_type().module()?;
    let module = module.to_cow()?;
    Ok(match module.split('.').next() {
        Some("pyarrow") => Some(Library::Pyarrow),
        Some("polars") => Some(Library::Polars),
        _ => None,
    })
}

/// The types of the columns, or the one type.
fn columns<'py>(object: &Bound<'py, PyAny>, library: Library) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let py = object.py();
    match library {
        Library::Pyarrow => {
            // A table, a batch and a reader have a schema; an array and a field have a type; a
            // schema has types.
            if let Some(schema) = object.getattr_opt(intern!(py, "schema"))? {
                return schema.getattr(intern!(py, "types"))?.try_iter()?.collect();
            }
            if let Some(one) = object.getattr_opt(intern!(py, "type"))? {
                return Ok(vec![one]);
            }
            match object.getattr_opt(intern!(py, "types"))? {
                Some(types) => types.try_iter()?.collect(),
                None => Ok(vec![object.clone()]),
            }
        }
        Library::Polars => match object.getattr_opt(intern!(py, "dtypes"))? {
            Some(types) => types.try_iter()?.collect(),
            None => Ok(object.getattr_opt(intern!(py, "dtype"))?.into_iter().collect()),
        },
    }
}

/// The types that a type contains.
fn parts<'py>(of: &Bound<'py, PyAny>, library: Library) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let py = of.py();
    let mut parts = Vec::new();
    match library {
        Library::Pyarrow => {
            let fields = of.getattr_opt(intern!(py, "num_fields"))?;
            let fields: usize = fields.map_or(Ok(0), |number| number.extract())?;
            for place in 0..fields {
                let field = of.call_method1(intern!(py, "field"), (place,))?;
                parts.push(field.getattr(intern!(py, "type"))?);
            }
            // A dictionary and an extension type have no fields.
            if fields == 0 {
                for name in [intern!(py, "value_type"), intern!(py, "storage_type")] {
                    parts.extend(of.getattr_opt(name)?);
                }
            }
        }
        Library::Polars => {
            if let Some(fields) = of.getattr_opt(intern!(py, "fields"))? {
                for field in fields.try_iter()? {
                    parts.push(field?.getattr(intern!(py, "dtype"))?);
                }
            }
            parts.extend(of.getattr_opt(intern!(py, "inner"))?.filter(|inner| !inner.is_none()));
        }
    }
    Ok(parts)
}
