//! `Commit`: an accepted write.

use crate::duration::duration;
use crate::error::Raise;
use crate::held::Held;
use crate::process::Process;
use crate::wait::wait;
use pyo3::prelude::*;
use siltstone::CommitPlace;

/// An accepted write. Dropping a Commit cancels nothing.
#[pyclass(frozen, module = "siltstone")]
pub(crate) struct Commit {
    held: Held<siltstone::Commit>,
    seq: u64,
}

impl Commit {
    pub(crate) fn new(process: &'static Process, commit: siltstone::Commit) -> Self {
        Commit { seq: commit.seq().get(), held: Held::new(process, commit) }
    }

    /// Its position, from which a change feed can begin.
    ///
    /// # Errors
    /// The error of the ended handle if the write is not known to be durable; Closed in a forked
    /// child.
    pub(crate) fn place(&self, py: Python<'_>) -> PyResult<CommitPlace> {
        self.held.get(py)?.place().raise(py)
    }
}

/// The durability of a commit in words.
pub(crate) fn durability(durable: bool) -> &'static str {
    if durable { "durable" } else { "not durable yet" }
}

#[pymethods]
impl Commit {
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

    /// Returns once the write is durable. If it is not durable yet, the writer sends it at once;
    /// with `writes.wal_enabled` off it flushes the memtable.
    ///
    /// :param timeout: maximum wait; None: the deadline of the handle.
    /// :raises Timeout: if the write is not durable in time. It continues, and may still become
    ///     durable.
    /// :raises Fenced, Closed: if the write will not be acknowledged.
    /// :raises Denied: if the store refuses the credentials. The write is tried again.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<Bound<'_, PyAny>>) -> PyResult<()> {
        let limit = timeout.map(|timeout| duration(&timeout, "timeout")).transpose()?;
        let commit = self.held.get(py)?;
        if commit.is_durable() {
            return Ok(());
        }
        wait(py, self.held.process(), commit.wait(limit))
    }

    fn __repr__(&self) -> String {
        let durable = self.held.peek().is_some_and(siltstone::Commit::is_durable);
        format!("<siltstone.Commit seq={}, {}>", self.seq, durability(durable))
    }
}
