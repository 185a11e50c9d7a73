//! Byte strings as arguments.

use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyByteArray, PyBytes, PyList, PyMemoryView, PyString};

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

/// The byte string at `position` of the sequence that the argument `name` is.
///
/// # Errors
/// TypeError and BufferError, naming both.
pub(crate) fn row<'a>(
    object: &'a Bound<'_, PyAny>,
    name: &str,
    position: usize,
) -> PyResult<BytesArg<'a>> {
    object.extract::<BytesArg<'_>>().map_err(|error| placed(object.py(), error, name, position))
}

/// `error` with the place that it is about in front of its text; what a buffer's own code raised
/// stays as it is.
#[cold]
fn placed(py: Python<'_>, error: PyErr, name: &str, position: usize) -> PyErr {
    let text = format!("{name}[{position}]: {}", error.value(py));
    if error.get_type(py).is(py.get_type::<PyTypeError>()) {
        PyTypeError::new_err(text)
    } else if error.get_type(py).is(py.get_type::<PyBufferError>()) {
        PyBufferError::new_err(text)
    } else {
        error
    }
}

/// Refuses one byte string, or one text, where a sequence of them is expected: taken as a sequence
/// it would give numbers, or letters.
///
/// # Errors
/// TypeError that names the argument and what was meant.
pub(crate) fn refuse_one(object: &Bound<'_, PyAny>, name: &str) -> PyResult<()> {
    let one = object.is_instance_of::<PyBytes>()
        || object.is_instance_of::<PyString>()
        || object.is_instance_of::<PyByteArray>()
        || object.is_instance_of::<PyMemoryView>();
    if !one {
        return Ok(());
    }
    let (given, kind) = (name.strip_suffix('s').unwrap_or(name), object.get_type().name()?);
    Err(PyTypeError::new_err(format!(
        "{name}: this is one {given}, of type {kind}; pass a list of {name}, as in [{given}]"
    )))
}

/// Elements that are taken hold of before their bytes are read. Each lies anywhere in memory;
/// taking hold of an object touches it, and nothing between two of them waits for that, so that
/// they wait for memory side by side.
pub(crate) const HOLD: usize = 32;

/// What a sequence holds, one after the other.
pub(crate) type Elements<'py> = Box<dyn Iterator<Item = PyResult<Bound<'py, PyAny>>> + 'py>;

/// The elements of `sequence`.
///
/// # Errors
/// TypeError for what cannot be iterated over.
pub(crate) fn elements<'py>(sequence: &Bound<'py, PyAny>) -> PyResult<Elements<'py>> {
    // A list is asked for its places: that is a third of what its iterator does.
    Ok(match sequence.cast_exact::<PyList>() {
        Ok(list) => Box::new(list.iter().map(Ok)),
        Err(_) => Box::new(sequence.try_iter()?),
    })
}

/// Takes hold of the next [`HOLD`] elements, in place of what `held` has; fewer at the end.
///
/// # Errors
/// What the sequence raises.
pub(crate) fn hold<'py>(
    elements: &mut impl Iterator<Item = PyResult<Bound<'py, PyAny>>>,
    held: &mut Vec<Bound<'py, PyAny>>,
) -> PyResult<()> {
    held.clear();
    for element in elements.by_ref().take(HOLD) {
        held.push(element?);
    }
    Ok(())
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
