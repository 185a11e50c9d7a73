//! `Snapshot`: a fixed view of a writer's database.

use crate::error::closed;
use crate::held::Held;
use crate::process::Process;
use crate::source::{Source, reads};
use parking_lot::Mutex;
use pyo3::prelude::*;
use siltstone::{Result, ScanRange};
use std::sync::Arc;

/// A fixed view of a writer's database. It keeps the data that it reads until it or the database
/// is closed. After the database was closed, reads raise Expired once a collector has deleted a
/// table that they need.
#[pyclass(frozen, weakref, module = "siltstone")]
pub(crate) struct Snapshot {
    seq: u64,
    /// `None` once closed. The lock is never held across a wait.
    held: Mutex<Option<Arc<Held<siltstone::Snapshot>>>>,
}

impl Snapshot {
    pub(crate) fn new(process: &'static Process, snapshot: siltstone::Snapshot) -> Self {
        let seq = snapshot.seq().get();
        Snapshot { seq, held: Mutex::new(Some(Arc::new(Held::new(process, snapshot)))) }
    }
}

impl Source for Snapshot {
    type Engine = siltstone::Snapshot;
    type Guard<'a> = Arc<Held<siltstone::Snapshot>>;

    fn held(&self, py: Python<'_>) -> PyResult<Self::Guard<'_>> {
        self.held.lock().clone().ok_or_else(|| closed(py, "the snapshot was closed"))
    }

    fn open_scan(engine: &siltstone::Snapshot, range: ScanRange) -> Result<siltstone::Scan> {
        Ok(engine.scan(range))
    }
}

reads!(Snapshot);

#[pymethods]
impl Snapshot {
    /// The last sequence number that the snapshot sees.
    #[getter]
    fn seq(&self) -> u64 {
        self.seq
    }

    /// Releases the data that the snapshot keeps. Open scans of the snapshot continue.
    fn close(&self) {
        let held = self.held.lock().take();
        drop(held);
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().held(slf.py())?;
        Ok(slf)
    }

    fn __exit__(
        &self,
        _kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) {
        self.close();
    }

    fn __repr__(&self) -> String {
        let closed = if self.held.lock().is_none() { ", closed" } else { "" };
        format!("<siltstone.Snapshot seq={}{closed}>", self.seq)
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(pyo3::exceptions::PyTypeError::new_err(
            "a Snapshot cannot be pickled: it holds memory of this process; open a reader in the \
             other process",
        ))
    }
}
