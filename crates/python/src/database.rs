//! `Database`: the one writer's handle.

use crate::batch::WriteBatch;
use crate::error::{Raise, closed};
use crate::held::Held;
use crate::process::Process;
use crate::snapshot::Snapshot;
use crate::source::{Source, reads};
use crate::stats::{self, Compacted};
use crate::unbuilt::unbuilt;
use crate::wait::wait;
use pyo3::prelude::*;
use siltstone::{Error, Result, ScanRange};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An open database and whether anybody has begun to close it.
pub(crate) struct Opened {
    database: Held<siltstone::Database>,
    closing: AtomicBool,
}

impl Opened {
    /// The engine's handle.
    ///
    /// # Errors
    /// Closed in a forked child.
    pub(crate) fn held(&self) -> &Held<siltstone::Database> {
        &self.database
    }

    /// Begins to close; the future ends with it. It goes on when the future is dropped, since half
    /// a close helps nobody.
    pub(crate) fn close(&self) -> impl Future<Output = Result<()>> + Send + use<> {
        self.closing.store(true, Ordering::Relaxed);
        let process = self.database.process();
        let task = self
            .database
            .peek()
            .cloned()
            .map(|database| process.handle().spawn(async move { database.close().await }));
        async move {
            match task {
                Some(task) => task.await.unwrap_or_else(|died| {
                    Err(Error::internal("closing ended without an answer").caused_by(died))
                }),
                None => Ok(()),
            }
        }
    }
}

impl Drop for Opened {
    /// Forgotten open: closed in the background, so that what was written becomes durable.
    fn drop(&mut self) {
        if self.closing.load(Ordering::Relaxed) || self.database.is_stale() {
            return;
        }
        let process = self.database.process();
        // Nobody can close it before opening the next one.
        if let Some(database) = self.database.peek() {
            database.make_way();
        }
        let close = self.close();
        let task = process.handle().spawn(async move {
            if let Err(error) = close.await {
                process.note_failure(error);
            }
        });
        process.note_closing(task);
    }
}

/// The one writer of a database.
#[pyclass(frozen, weakref, module = "siltstone")]
pub(crate) struct Database {
    opened: Arc<Opened>,
    /// Where it is, without what may be secret.
    place: String,
}

impl Database {
    pub(crate) fn new(
        process: &'static Process,
        engine: siltstone::Database,
        place: String,
    ) -> Self {
        let database = Held::new(process, engine);
        let opened = Arc::new(Opened { database, closing: AtomicBool::new(false) });
        process.note_open(Arc::downgrade(&opened));
        Database { opened, place }
    }

    pub(crate) fn held(&self) -> &Held<siltstone::Database> {
        self.opened.held()
    }

    /// Begins to close, as [`Opened::close`].
    pub(crate) fn close_begun(&self) -> impl Future<Output = Result<()>> + Send + use<> {
        self.opened.close()
    }
}

impl Source for Database {
    type Engine = siltstone::Database;
    type Guard<'a> = &'a Held<siltstone::Database>;

    fn held(&self, _py: Python<'_>) -> PyResult<Self::Guard<'_>> {
        Ok(self.opened.held())
    }

    fn open_scan(engine: &siltstone::Database, range: ScanRange) -> Result<siltstone::Scan> {
        engine.scan(range)
    }
}

reads!(Database);

#[pymethods]
impl Database {
    /// Returns when every write issued before it is durable.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let held = self.held();
        wait(py, held.process(), held.get(py)?.flush())
    }

    /// Merges everything into one sorted run, and waits for it.
    fn compact(&self, py: Python<'_>) -> PyResult<()> {
        let held = self.held();
        let engine = held.get(py)?.clone();
        wait(py, held.process(), async move { engine.compact().await.map(|_| ()) })
    }

    /// A fixed view of the database as it is now.
    fn snapshot(&self, py: Python<'_>) -> PyResult<Snapshot> {
        let held = self.held();
        let snapshot = held.get(py)?.snapshot().raise(py)?;
        Ok(Snapshot::new(held.process(), snapshot))
    }

    /// A batch that is committed when its `with` block ends well.
    fn batch(slf: Bound<'_, Self>) -> PyResult<WriteBatch> {
        slf.get().held().get(slf.py())?;
        Ok(WriteBatch::bound_to(slf.unbind()))
    }

    /// What the handle holds and has done.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let engine = self.held().get(py)?;
        let (entries, error) = (engine.compaction_log(), engine.compaction_error());
        stats::stats(py, &engine.stats(), &Compacted { entries, error })
    }

    /// The figures of `stats` by name, as floats.
    fn metrics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        stats::metrics(py, &self.held().get(py)?.stats())
    }

    /// Makes everything durable, records a clean close, and ends the handle. Twice is fine.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.held().is_stale() {
            return Err(closed(py, "only the process that opened the database can close it"));
        }
        wait(py, self.held().process(), self.opened.close())
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().held().get(slf.py())?;
        Ok(slf)
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        format!("<siltstone.Database {:?}>", self.place)
    }

    fn __reduce__(&self, py: Python<'_>) -> PyResult<()> {
        Err(unpicklable(py, "Database"))
    }
}

unbuilt!(Database: transaction, checkpoint, load, ingest);

/// Why a handle of the one writer cannot travel.
fn unpicklable(_py: Python<'_>, name: &str) -> PyErr {
    pyo3::exceptions::PyTypeError::new_err(format!(
        "a {name} cannot be pickled: a database has one writer, and this is it; open a reader in \
         the other process"
    ))
}
