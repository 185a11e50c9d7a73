//! Byte strings as arguments.

use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyMemoryView, PyString};

/// A key or a value that the caller gave: `bytes` borrowed for the call, any other C-contiguous
/// buffer copied, since its owner may change it meanwhile.
pub(crate) enum BytesArg<'a> {
    Borrowed(&'a [u8]),
    Copied(PyBackedBytes),
}

impl AsRef<[u8]> for BytesArg<'_> {
    fn as_ref(&self) -> &[u8] {
        match self {
            BytesArg::Borrowed(bytes) => bytes,
            BytesArg::Copied(bytes) => bytes,
        }
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for BytesArg<'a> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        match object.cast::<PyBytes>() {
            Ok(_) => Ok(BytesArg::Borrowed(object.extract()?)),
            Err(_) => copy(&object).map(BytesArg::Copied),
        }
    }
}

fn copy(object: &Bound<'_, PyAny>) -> PyResult<PyBackedBytes> {
    if object.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err(
            "expected bytes, not str: encode it, for example with .encode()",
        ));
    }
    let Ok(view) = PyMemoryView::from(object) else {
        let name = object.get_type().name()?;
        return Err(PyTypeError::new_err(format!("expected bytes or a buffer, not {name}")));
    };
    if !view.getattr("c_contiguous")?.is_truthy()? {
        return Err(PyBufferError::new_err("the buffer is not C-contiguous: copy it first"));
    }
    let bytes = view.call_method0("tobytes")?;
    Ok(PyBackedBytes::from(bytes.cast_into::<PyBytes>()?))
}
