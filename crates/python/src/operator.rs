//! Merge operators: built-in ones by name, and functions written in Python.

use crate::bytes::Object;
use crate::error::{CallerException, Raise};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};
use siltstone::{Error, ErrorKind, MergeOperator, Result, built_in_operator, built_in_operators};
use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

/// The result of `siltstone.merging.described` for the argument: nothing, a name, or a name with
/// one or two functions.
type Described = (String, Py<PyAny>, Option<Py<PyAny>>);

/// The operator that the argument describes.
///
/// # Errors
/// Invalid if no built-in operator has the name; TypeError if the argument does not describe an
/// operator.
pub(crate) fn operator(
    described: Option<&Bound<'_, PyAny>>,
) -> PyResult<Option<Arc<dyn MergeOperator>>> {
    let Some(described) = described.filter(|described| !described.is_none()) else {
        return Ok(None);
    };
    if let Ok(name) = described.cast::<PyString>() {
        let name = name.to_cow()?;
        let found = built_in_operator(&name).ok_or_else(|| {
            let names = built_in_operators().collect::<Vec<_>>().join(", ");
            Error::invalid(format!("no merge operator of that name; built in are {names}"))
                .with("merge_operator", name)
        });
        return found.raise(described.py()).map(Some);
    }
    let (name, fold, fold_operands): Described = described.extract()?;
    Ok(Some(Arc::new(Functions { name, fold, fold_operands })))
}

/// The names of the built-in operators.
#[pyfunction]
pub(crate) fn operator_names() -> Vec<&'static str> {
    built_in_operators().collect()
}

/// A merge operator made of Python functions. The threads that read or compact call them, with the
/// interpreter lock taken for the call.
struct Functions {
    name: String,
    fold: Py<PyAny>,
    fold_operands: Option<Py<PyAny>>,
}

impl fmt::Debug for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Functions").field("name", &self.name).finish_non_exhaustive()
    }
}

thread_local! {
    /// The operators whose functions run on this thread, by address.
    static RUNNING: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// A function of an operator that runs on this thread.
struct RunningCall;

impl RunningCall {
    /// Begins a call, unless the operator's functions run on this thread already: each level would
    /// call the next one until the stack is full.
    fn begin(operator: &Functions) -> Option<RunningCall> {
        let address = std::ptr::from_ref(operator).addr();
        RUNNING.with_borrow_mut(|running| {
            let is_first = !running.contains(&address);
            running.extend(is_first.then_some(address));
            is_first.then(|| RunningCall)
        })
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        RUNNING.with_borrow_mut(Vec::pop);
    }
}

/// Refuses `call` from within a merge operator: it waits for flushes or compactions, and they may
/// wait for the operator.
///
/// # Errors
/// Invalid within a merge operator.
pub(crate) fn refuse_within_operator(py: Python<'_>, call: &str) -> PyResult<()> {
    if RUNNING.with_borrow(Vec::is_empty) {
        return Ok(());
    }
    let text = "a merge operator cannot make this call, which may wait for the operator itself: \
                it computes the value from its arguments alone";
    Err(Error::invalid(text).with("call", call)).raise(py)
}

impl Functions {
    /// Calls the function with the interpreter lock, unless the interpreter has exited.
    fn call<T>(&self, work: impl FnOnce(Python<'_>) -> PyResult<T>) -> Result<T> {
        let Some(_running) = RunningCall::begin(self) else {
            let text = "the merge operator reads a key that needs the merge operator: it computes \
                        the value from its arguments alone";
            return Err(Error::invalid(text).with("merge_operator", &self.name));
        };
        let called = Python::try_attach(|py| {
            let called = work(py);
            // Converted before other code sees the exception: an exception of a signal handler
            // belongs to the main thread.
            called.map_err(|raised| (raised.to_string(), raised))
        });
        match called {
            Some(Ok(value)) => Ok(value),
            Some(Err((text, raised))) => {
                Err(Error::invalid(format!("the merge operator failed with {text}"))
                    .with("merge_operator", &self.name)
                    .caused_by(CallerException::new(raised)))
            }
            None => Err(Error::new(ErrorKind::Closed, "the interpreter is exiting")),
        }
    }
}

fn operands_list<'py>(py: Python<'py>, operands: &[&[u8]]) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, operands.iter().map(|operand| Object(operand)))
}

fn bytes_of(answer: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    match answer.cast::<PyBytes>() {
        Ok(bytes) => Ok(bytes.as_bytes().to_vec()),
        Err(_) => {
            let kind = answer.get_type().name()?;
            let text = format!("a merge operator gives bytes, not {kind}");
            Err(pyo3::exceptions::PyTypeError::new_err(text))
        }
    }
}

impl MergeOperator for Functions {
    fn name(&self) -> &str {
        &self.name
    }

    fn fold(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>> {
        self.call(|py| {
            let base = base.map(Object);
            let arguments = (PyBytes::new(py, key), base, operands_list(py, operands)?);
            bytes_of(&self.fold.bind(py).call1(arguments)?)
        })
    }

    fn fold_operands(&self, key: &[u8], operands: &[&[u8]]) -> Result<Option<Vec<u8>>> {
        let Some(fold_operands) = &self.fold_operands else { return Ok(None) };
        self.call(|py| {
            let arguments = (PyBytes::new(py, key), operands_list(py, operands)?);
            let answer = fold_operands.bind(py).call1(arguments)?;
            if answer.is_none() { Ok(None) } else { bytes_of(&answer).map(Some) }
        })
    }
}
