//! `get`: answered while the interpreter lock is held if the value is in memory.

use crate::bytes::to_python;
use crate::error::Raise;
use crate::source::{Readable, Source};
use crate::wait::wait;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use siltstone::{Answer, Value};

/// The value of `key`, without a copy.
pub(crate) fn find<S: Source>(py: Python<'_>, source: &S, key: &[u8]) -> PyResult<Option<Value>> {
    let held = source.held(py)?;
    match held.get(py)?.get(key).raise(py)? {
        Answer::Ready(value) => Ok(value),
        Answer::Pending(answer) => wait(py, held.process(), answer),
    }
}

/// The value of `key` as `bytes`.
pub(crate) fn get<'py, S: Source>(
    py: Python<'py>,
    source: &S,
    key: &[u8],
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let value = find(py, source, key)?;
    value.map(|value| Ok(to_python(py, &value)?.into_any())).transpose()
}

/// The KeyError of `db[key]`.
pub(crate) fn absent(py: Python<'_>, key: &[u8]) -> PyErr {
    PyKeyError::new_err(PyBytes::new(py, key).unbind())
}
