//! Byte strings as arguments.

use crate::error::exception;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{
    PyByteArray, PyBytes, PyFrozenSet, PyList, PyMapping, PyMemoryView, PySet, PyString, PyTuple,
};
use siltstone::Error;

/// A key or a value passed by the caller: `bytes` is borrowed for the call; any other C-contiguous
/// buffer is copied, because its owner may change it during the call.
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

/// Sizes from which a failed allocation of the interpreter is an error. Below it costs less to
/// copy the bytes into memory that is not cleared first, and a process that cannot allocate so
/// little cannot go on.
const LARGE: usize = 1 << 20;

/// A copy of `bytes` as a Python object.
///
/// # Errors
/// Unavailable if there is no memory for it.
#[inline]
pub(crate) fn to_python<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    if bytes.len() < LARGE { Ok(PyBytes::new(py, bytes)) } else { large_to_python(py, bytes) }
}

#[cold]
fn large_to_python<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    let made = PyBytes::new_with(py, bytes.len(), |copy| {
        copy.copy_from_slice(bytes);
        Ok(())
    });
    made.map_err(|_| {
        exception(py, &Error::no_memory("a value as an object").with("bytes", bytes.len()))
    })
}

/// Makes and releases an object of `bytes` bytes, so that [`to_python`] will find memory for it.
///
/// # Errors
/// Unavailable if there is none.
pub(crate) fn reserve(bytes: usize) -> siltstone::Result<()> {
    if bytes < LARGE {
        return Ok(());
    }
    let made = Python::attach(|py| PyBytes::new_with(py, bytes, |_| Ok(())).map(drop));
    made.map_err(|_| {
        Error::no_memory("a value as an object, so the key stays").with("bytes", bytes)
    })
}

/// Bytes that [`to_python`] converts.
pub(crate) struct Object<'a>(pub &'a [u8]);

impl<'py> IntoPyObject<'py> for Object<'_> {
    type Target = PyBytes;
    type Output = Bound<'py, PyBytes>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        to_python(py, self.0)
    }
}

/// The byte string at `position` of the sequence in the argument `name`.
///
/// # Errors
/// TypeError and BufferError, with the name and the position.
pub(crate) fn row<'a>(
    object: &'a Bound<'_, PyAny>,
    name: &str,
    position: usize,
) -> PyResult<BytesArg<'a>> {
    object
        .extract::<BytesArg<'_>>()
        .map_err(|error| placed(object.py(), error, &format!("{name}[{position}]")))
}

/// `error` with the argument in front of its text. An exception raised by the code of a buffer is
/// not changed.
#[cold]
pub(crate) fn placed(py: Python<'_>, error: PyErr, argument: &str) -> PyErr {
    let text = format!("{argument}: {}", error.value(py));
    if error.get_type(py).is(py.get_type::<PyTypeError>()) {
        PyTypeError::new_err(text)
    } else if error.get_type(py).is(py.get_type::<PyBufferError>()) {
        PyBufferError::new_err(text)
    } else {
        error
    }
}

/// Refuses a single byte string or string where a sequence of them is expected: iterating over it
/// would give numbers or letters.
///
/// # Errors
/// TypeError with the name of the argument and the correct form.
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

/// Refuses an object without an order where keys and values are paired by their positions. A set
/// iterates in the order of its hashes, and a mapping over its keys.
///
/// # Errors
/// TypeError with the name of the argument and the correct form; as for [`refuse_one`].
pub(crate) fn refuse_unpaired(object: &Bound<'_, PyAny>, name: &str) -> PyResult<()> {
    if object.is_exact_instance_of::<PyList>() || object.is_exact_instance_of::<PyTuple>() {
        return Ok(());
    }
    refuse_one(object, name)?;
    let text = if object.is_instance_of::<PySet>() || object.is_instance_of::<PyFrozenSet>() {
        "a set has no order, and keys and values are paired by their positions: pass two lists"
    } else if object.cast::<PyMapping>().is_ok() {
        "a mapping is not a sequence: pass its keys() as keys and its values() as values"
    } else {
        return Ok(());
    };
    let kind = object.get_type().name()?;
    Err(PyTypeError::new_err(format!("{name}: expected a sequence, not {kind}; {text}")))
}

/// Number of elements to reference before their bytes are read. The elements lie anywhere in
/// memory, and taking a reference touches the object. Nothing between two of these accesses depends
/// on them, so their cache misses overlap.
pub(crate) const HOLD: usize = 32;

/// An iterator over the elements of a sequence.
pub(crate) type Elements<'py> = Box<dyn Iterator<Item = PyResult<Bound<'py, PyAny>>> + 'py>;

/// The elements of `sequence`.
///
/// # Errors
/// TypeError if it is not iterable.
pub(crate) fn elements<'py>(sequence: &Bound<'py, PyAny>) -> PyResult<Elements<'py>> {
    // Indexing a list costs a third of its iterator.
    Ok(match sequence.cast_exact::<PyList>() {
        Ok(list) => Box::new(list.iter().map(Ok)),
        Err(_) => Box::new(sequence.try_iter()?),
    })
}

/// Takes references to the next [`HOLD`] elements, replacing the content of `held`; fewer at the
/// end.
/// # Errors
/// The exceptions of the sequence.
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

/// Whether the object is a scalar of NumPy that holds a number or a time: it is a buffer, of the
/// number's bytes in memory.
fn is_numpy_number(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let class = object.get_type();
    if class.module()?.to_cow()? != "numpy" || class.name()?.to_cow()? == "void" {
        return Ok(false);
    }
    let dimensions = object.getattr_opt(intern!(object.py(), "ndim"))?;
    Ok(dimensions.is_some_and(|number| number.extract::<usize>().is_ok_and(|number| number == 0)))
}

fn copy(object: &Bound<'_, PyAny>) -> PyResult<PyBackedBytes> {
    if object.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err(
            "expected bytes, not str: encode it, for example with .encode()",
        ));
    }
    if is_numpy_number(object)? {
        let name = object.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "expected bytes, not a number of NumPy ({name}), whose bytes do not sort as the \
             numbers do: encode it, for example with siltstone.keys.pack"
        )));
    }
    let Ok(view) = PyMemoryView::from(object) else {
        let name = object.get_type().name()?;
        return Err(PyTypeError::new_err(format!("expected bytes or a buffer, not {name}")));
    };
    if !view.getattr("c_contiguous")?.is_truthy()? {
        return Err(PyBufferError::new_err("the buffer is not C-contiguous: copy it first"));
    }
    if view.getattr("format")?.cast::<PyString>()?.to_cow()?.contains('O') {
        return Err(PyTypeError::new_err(
            "the buffer has references to Python objects: encode them as bytes",
        ));
    }
    let bytes = view.call_method0("tobytes")?;
    Ok(PyBackedBytes::from(bytes.cast_into::<PyBytes>()?))
}
