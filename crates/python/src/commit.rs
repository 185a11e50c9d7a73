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

#[pymethods]
impl Commit {
    /// Its place in the database's one history.
    #[getter]
    fn seq(&self) -> u64 {
        self.seq
    }

    /// Whether the write is durable by now.
    #[getter]
    fn durable(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.held.get(py)?.is_durable())
    }

    /// Returns once the write is durable, or raises.
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
        format!("<siltstone.Commit {}{}>", self.seq, if durable { " durable" } else { "" })
    }
}
