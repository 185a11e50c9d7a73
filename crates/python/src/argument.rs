//! Arguments that reach this module inside a tuple or a dict. PyO3 names only the parameters of a
//! function in its errors, so these conversions name the argument themselves.

use crate::bytes::{BytesArg, placed};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// The TypeError for an argument that is not a `wanted`.
#[cold]
fn wrong_type(object: &Bound<'_, PyAny>, name: &str, wanted: &str) -> PyErr {
    match object.get_type().name() {
        Ok(given) => PyTypeError::new_err(format!("{name} must be {wanted}, not {given}")),
        Err(error) => error,
    }
}

/// The argument `name` as a bool, which NumPy's is too.
///
/// # Errors
/// TypeError with the name.
pub(crate) fn flag(object: &Bound<'_, PyAny>, name: &str) -> PyResult<bool> {
    object.extract().map_err(|_| wrong_type(object, name, "a bool"))
}

/// As [`flag`]; None is `None`.
///
/// # Errors
/// TypeError with the name.
pub(crate) fn optional_flag(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Option<bool>> {
    object.extract().map_err(|_| wrong_type(object, name, "a bool or None"))
}

/// The argument `name` as text.
///
/// # Errors
/// TypeError with the name; UnicodeEncodeError for text with lone surrogates.
pub(crate) fn text(object: &Bound<'_, PyAny>, name: &str) -> PyResult<String> {
    match object.cast::<PyString>() {
        Ok(text) => Ok(text.to_str()?.to_owned()),
        Err(_) => Err(wrong_type(object, name, "a str")),
    }
}

/// As [`text`]; None is `None`.
///
/// # Errors
/// As [`text`].
pub(crate) fn optional_text(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Option<String>> {
    if object.is_none() {
        return Ok(None);
    }
    match object.is_instance_of::<PyString>() {
        true => text(object, name).map(Some),
        false => Err(wrong_type(object, name, "a str or None")),
    }
}

/// The argument `name` as bytes; None is `None`.
///
/// # Errors
/// TypeError and BufferError, with the name.
pub(crate) fn optional_bytes(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Option<Vec<u8>>> {
    if object.is_none() {
        return Ok(None);
    }
    let bytes = object.extract::<BytesArg<'_>>().map(|bytes| bytes.as_ref().to_vec());
    bytes.map(Some).map_err(|error| placed(object.py(), error, name))
}
