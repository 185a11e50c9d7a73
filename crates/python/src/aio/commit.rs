//! `siltstone.aio.Commit`: an accepted write; awaiting it waits until it is durable.

use crate::aio::pending::{Finish, First, Pending, Waits};
use crate::commit::durability;
use crate::duration::duration;
use crate::error::Raise;
use crate::held::Held;
use crate::process::Process;
use futures::FutureExt;
use pyo3::prelude::*;
use siltstone::CommitPlace;
use std::time::Duration;

/// An accepted write. Awaiting it waits until the write is durable. Dropping it cancels
/// nothing.
#[pyclass(frozen, module = "siltstone.aio")]
pub(crate) struct AsyncCommit {
    held: Held<siltstone::Commit>,
    seq: u64,
}

impl AsyncCommit {
    pub(crate) fn new(process: &'static Process, commit: siltstone::Commit) -> Self {
        AsyncCommit { seq: commit.seq().get(), held: Held::new(process, commit) }
    }

    /// Its position, from which a change feed can begin.
    ///
    /// # Errors
    /// The error of the ended handle if the write is not known to be durable; Closed in a forked
    /// child.
    pub(crate) fn place(&self, py: Python<'_>) -> PyResult<CommitPlace> {
        self.held.get(py)?.place().raise(py)
    }

    fn pending(&self, py: Python<'_>, limit: Option<Duration>) -> PyResult<Pending> {
        let commit = self.held.get(py)?.clone();
        Ok(Pending::later(self.held.process(), move || {
            let nothing: Finish = Box::new(|py| Ok(py.None()));
            if commit.is_durable() {
                return First::Ready(nothing);
            }
            let wait = commit.wait(limit).map(|ended| ended.map(|()| nothing));
            First::Waits(Waits { work: wait.boxed(), commit: Some(commit) })
        }))
    }
}

#[pymethods]
impl AsyncCommit {
    /// Sequence number of the last operation of the write: its position in the history.
    #[getter]
    fn seq(&self) -> u64 {
        self.seq
    }

    /// Whether the write is durable.
    #[getter]
    fn durable(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.held.get(py)?.is_durable())
    }

    /// When awaited, returns once the write is durable. If it is not durable yet, the writer
    /// sends it at once.
    ///
    /// :param timeout: maximum wait; None: the deadline of the handle.
    /// :raises Timeout: if the write is not durable in time. It continues, and may still become
    ///     durable.
    /// :raises Fenced, Closed: if the write will not be acknowledged.
    /// :raises Denied: if the store refuses the credentials. The write is tried again.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<Bound<'_, PyAny>>) -> PyResult<Pending> {
        let limit = timeout.map(|timeout| duration(&timeout, "timeout")).transpose()?;
        self.pending(py, limit)
    }

    fn __await__(&self, py: Python<'_>) -> PyResult<Pending> {
        self.pending(py, None)
    }

    fn __repr__(&self) -> String {
        let durable = self.held.peek().is_some_and(siltstone::Commit::is_durable);
        format!("<siltstone.aio.Commit seq={}, {}>", self.seq, durability(durable))
    }
}
