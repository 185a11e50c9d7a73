//! `Pending`: a call that waits, as an awaitable. It has the interface of a coroutine, so that
//! `asyncio.create_task` accepts it too.

use crate::aio::port::{Port, WaitStart};
use crate::error::Raise;
use crate::held::Held;
use crate::process::Process;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use pyo3::exceptions::{PyRuntimeError, PyStopIteration};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyType;
use siltstone::Result;
use std::future::Future;

/// Makes the Python object of a result. Runs in the task that awaits.
pub(crate) type Finish = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// A wait and what it waits for.
pub(crate) struct Waits {
    /// Polled on the thread of the loop. It must wake once, when it is complete: work of several
    /// steps runs on the runtime through [`Process::run`].
    pub(crate) work: BoxFuture<'static, Result<Finish>>,
    /// Set if the wait is for this commit to become durable.
    pub(crate) commit: Option<siltstone::Commit>,
}

impl Waits {
    /// Waits for `work` and converts its output to an object.
    pub(crate) fn new<T: Send + 'static>(
        work: impl Future<Output = Result<T>> + Send + 'static,
        finish: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> Waits {
        let work = work.map(|output| {
            output.map(|output| -> Finish { Box::new(move |py| finish(py, output)) })
        });
        Waits { work: work.boxed(), commit: None }
    }
}

/// The state of a pending call when it is first awaited.
pub(crate) enum First {
    /// The result is available.
    Ready(Finish),
    Waits(Waits),
}

type Begin = Box<dyn FnOnce() -> First + Send>;

enum PendingState {
    New(Held<Begin>),
    Waiting(Py<Port>, u64),
    Over,
}

/// A call of `siltstone.aio` that waits. It can be awaited once; `asyncio.create_task` accepts
/// it too. Dropping it, as a cancelled task does, ends the wait.
#[pyclass(frozen, module = "siltstone.aio")]
pub(crate) struct Pending {
    process: &'static Process,
    state: Mutex<PendingState>,
    /// Called if the wait ends before its result was taken.
    given_up: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Pending {
    /// A call that begins when it is first awaited.
    pub(crate) fn later(
        process: &'static Process,
        begin: impl FnOnce() -> First + Send + 'static,
    ) -> Pending {
        let begin: Begin = Box::new(begin);
        let state = Mutex::new(PendingState::New(Held::new(process, begin)));
        Pending { process, state, given_up: Mutex::default() }
    }

    /// Sets a callback for a wait that ends without its result being taken. It runs before the end
    /// of the wait returns.
    pub(crate) fn or_given_up(self, given_up: impl FnOnce() + Send + 'static) -> Pending {
        *self.given_up.lock() = Some(Box::new(given_up));
        self
    }

    /// A call that must wait; its work already runs on the runtime.
    pub(crate) fn running<T: Send + 'static>(
        process: &'static Process,
        work: impl Future<Output = Result<T>> + Send + 'static,
        finish: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> Pending {
        let waits = Waits::new(process.run(work), finish);
        Pending::later(process, move || First::Waits(waits))
    }

    /// As [`Pending::running`], but the work continues if the wait is cancelled.
    pub(crate) fn going_on<T: Send + 'static>(
        process: &'static Process,
        work: impl Future<Output = Result<T>> + Send + 'static,
        finish: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> Pending {
        let waits = Waits::new(process.run_to_its_end(work), finish);
        Pending::later(process, move || First::Waits(waits))
    }

    /// One step: returns the asyncio future to wait for, or the result. A step that fails ends the
    /// wait.
    fn step(&self, py: Python<'_>) -> PyResult<Step> {
        let stepped = self.try_step(py);
        if !matches!(stepped, Ok(Step::Wait(_))) {
            let given_up = self.given_up.lock().take();
            if let Some(given_up) = given_up.filter(|_| stepped.is_err()) {
                given_up();
            }
        }
        stepped
    }

    fn try_step(&self, py: Python<'_>) -> PyResult<Step> {
        let state = std::mem::replace(&mut *self.state.lock(), PendingState::Over);
        let outcome = match state {
            PendingState::New(begin) => match (begin.into_inner(py)?)() {
                First::Ready(finish) => Ok(finish),
                First::Waits(waits) => {
                    let (running, port) = Port::of_running_loop(py, self.process)?;
                    match port.get().begin(py, &running, waits)? {
                        WaitStart::Done(outcome) => outcome,
                        WaitStart::Waiting(id, future) => {
                            *self.state.lock() = PendingState::Waiting(port.unbind(), id);
                            return Ok(Step::Wait(future));
                        }
                    }
                }
            },
            PendingState::Waiting(port, id) => match port.get().take(py, id)? {
                Some(outcome) => outcome,
                None => return Err(PyRuntimeError::new_err("resumed before it was complete")),
            },
            PendingState::Over => {
                return Err(PyRuntimeError::new_err("a pending call can be awaited once"));
            }
        };
        (outcome.raise(py)?)(py).map(Step::Done)
    }

    /// Ends the wait. The work continues, unless it depends on the wait.
    fn stop(&self) {
        let state = std::mem::replace(&mut *self.state.lock(), PendingState::Over);
        if let PendingState::Waiting(port, id) = state {
            port.get().forget(id);
        }
        let given_up = self.given_up.lock().take();
        if let Some(given_up) = given_up {
            given_up();
        }
    }
}

enum Step {
    Wait(Py<PyAny>),
    Done(Py<PyAny>),
}

impl Drop for Pending {
    /// The task was cancelled or dropped, so the wait ends.
    fn drop(&mut self) {
        self.stop();
    }
}

#[pymethods]
impl Pending {
    fn __await__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self.step(py)? {
            Step::Done(value) => Err(PyStopIteration::new_err((value,))),
            Step::Wait(future) => {
                // The attribute by which an asyncio task recognises that it awaits this future.
                future.setattr(py, intern!(py, "_asyncio_future_blocking"), true)?;
                Ok(future)
            }
        }
    }

    /// Runs one step of the wait.
    fn send(&self, py: Python<'_>, _value: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.__next__(py)
    }

    /// Ends the wait with an exception.
    #[pyo3(signature = (kind, value=None, _trace=None))]
    fn throw(
        &self,
        kind: Bound<'_, PyAny>,
        value: Option<Bound<'_, PyAny>>,
        _trace: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        self.stop();
        let error = match (value, kind.is_instance_of::<PyType>()) {
            (Some(value), _) if !value.is_none() => value,
            (_, true) => kind.call0()?,
            (_, false) => kind,
        };
        Err(PyErr::from_value(error))
    }

    /// Ends the wait.
    fn close(&self) {
        self.stop();
    }

    fn __repr__(&self) -> &'static str {
        match self.state.try_lock().as_deref() {
            Some(PendingState::Over) => "<siltstone.aio.Pending over>",
            Some(PendingState::New(_)) => "<siltstone.aio.Pending not begun>",
            _ => "<siltstone.aio.Pending>",
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        if let Some(state) = self.state.try_lock()
            && let PendingState::Waiting(port, _) = &*state
        {
            visit.call(port)?;
        }
        Ok(())
    }

    fn __clear__(&self) {
        self.stop();
    }
}
