//! `Commit`: a write that was accepted.

use crate::duration::duration;
use crate::held::Held;
use crate::process::Process;
use crate::wait::wait;
use pyo3::prelude::*;

/// A write that was accepted. Dropping it cancels nothing.
#[pyclass(frozen, module = "siltstone")]
pub(crate) struct Commit {
    held: Held<siltstone::Commit>,
    seq: u64,
}

impl Commit {
    pub(crate) fn new(process: &'static Process, commit: siltstone::Commit) -> Self {
        Commit { seq: commit.seq().get(), held: Held::new(process, commit) }
    }
}

/// Whether a commit is durable, in words.
pub(crate) fn durability(durable: bool) -> &'static str {
    if durable { "durable" } else { "not durable yet" }
}

#[pymethods]
impl Commit {
    /// Sequence number of the write's last operation: its place in the one history.
    #[getter]
    fn seq(&self) -> u64 {
        self.seq
    }

    /// Whether the write is durable by now.
    #[getter]
    fn durable(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.held.get(py)?.is_durable())
    }

    /// Returns once the write is durable; has it sent at once if it was not.
    ///
    /// :param timeout: None: the handle's deadline.
    /// :raises Timeout: the write goes on, and may still become durable.
    /// :raises Fenced, Closed: it will not be acknowledged.
    /// :raises Denied: the store refuses the credentials; the write is tried again.
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
