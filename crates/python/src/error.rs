//! Converts engine errors to Python exceptions. The class is looked up in `siltstone.exceptions` by
//! the name of the error kind, so the mapping is complete if every kind has a class there; a test
//! checks all kinds. All classes are looked up when this module is imported: late in the exit of
//! the interpreter (`__del__` of a global) nothing can be imported any more, and errors must keep
//! their types.

use pyo3::exceptions::{PyException, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyModule};
use siltstone::{Error, ErrorKind};
use std::error::Error as _;
use std::fmt;

/// Conversion of an engine result to a Python result.
pub(crate) trait Raise<T> {
    /// The value, or the exception for the kind of the error.
    fn raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> Raise<T> for siltstone::Result<T> {
    fn raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| exception(py, &error))
    }
}

/// The exception for an engine error.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    make(py, error).unwrap_or_else(|failure| failure)
}

/// The class of every kind.
type Classes = Vec<(ErrorKind, Py<PyAny>)>;

/// Imports the classes, so that they are available at the exit of the interpreter.
///
/// # Errors
/// The errors of the import.
pub(crate) fn import_classes(py: Python<'_>) -> PyResult<()> {
    classes(py).map(drop)
}

fn classes(py: Python<'_>) -> PyResult<&'static Classes> {
    static CLASSES: PyOnceLock<Classes> = PyOnceLock::new();
    CLASSES.get_or_try_init(py, || {
        let module = PyModule::import(py, "siltstone.exceptions")?;
        let class = |kind: ErrorKind| Ok((kind, module.getattr(kind.name())?.unbind()));
        ErrorKind::ALL.into_iter().map(class).collect()
    })
}

fn make(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let kind = error.kind();
    let class = classes(py)?.iter().find(|(of, _)| *of == kind).map(|(_, class)| class.bind(py));
    let class = class.ok_or_else(|| PyRuntimeError::new_err(error.to_string()))?;
    let context = PyDict::new(py);
    for (name, value) in error.context() {
        context.set_item(name, value)?;
    }
    let facts = PyDict::new(py);
    facts.set_item("operation", error.operation())?;
    facts.set_item("context", context)?;
    let made = PyErr::from_value(class.call((error.to_string(),), Some(&facts))?);
    if let Some(raised) = error.source().and_then(|cause| cause.downcast_ref::<CallerException>()) {
        let raised = raised.exception(py);
        if !raised.is_instance_of::<PyException>(py) {
            // `KeyboardInterrupt` and `SystemExit` are not errors of the call.
            return Ok(raised);
        }
        made.set_cause(py, Some(raised));
    }
    Ok(made)
}

/// An exception raised by a function or a stream of the caller, as the cause of an error.
pub(crate) struct CallerException(PyErr);

impl CallerException {
    pub(crate) fn new(raised: PyErr) -> CallerException {
        CallerException(raised)
    }

    /// The exception.
    fn exception(&self, py: Python<'_>) -> PyErr {
        self.0.clone_ref(py)
    }
}

impl fmt::Debug for CallerException {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an exception of Python")
    }
}

impl fmt::Display for CallerException {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("see the exception that caused it")
    }
}

impl std::error::Error for CallerException {}

/// An `Invalid` that names the argument.
pub(crate) fn invalid(py: Python<'_>, text: impl Into<String>) -> PyErr {
    exception(py, &Error::invalid(text))
}

/// A `Closed`.
pub(crate) fn closed(py: Python<'_>, text: &str) -> PyErr {
    exception(py, &Error::new(ErrorKind::Closed, text))
}

/// The names of all error kinds. Each is a class of `siltstone.exceptions`.
#[pyfunction]
pub(crate) fn error_kinds() -> Vec<&'static str> {
    ErrorKind::ALL.iter().map(|kind| kind.name()).collect()
}

/// The exception that an engine error of this kind becomes, with one fact in its context.
#[pyfunction]
pub(crate) fn error_of_kind(py: Python<'_>, kind: &str, text: &str) -> PyResult<Py<PyAny>> {
    let found = ErrorKind::ALL.into_iter().find(|candidate| candidate.name() == kind);
    let kind = found.ok_or_else(|| PyValueError::new_err(format!("no error kind '{kind}'")))?;
    let error = Error::new(kind, text).during("example").with("kind", kind.name());
    Ok(exception(py, &error).into_value(py).into_any())
}
