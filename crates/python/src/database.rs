//! `Database`: the one writer's handle.

use crate::batch::WriteBatch;
use crate::error::{Raise, closed};
use crate::held::Held;
use crate::process::Process;
use crate::shown::quoted;
use crate::snapshot::Snapshot;
use crate::source::{Source, reads};
use crate::stats::{self, Compacted};
use crate::unbuilt::unbuilt;
use crate::wait::wait;
use pyo3::prelude::*;
use siltstone::{Error, ErrorKind, Result, ScanRange};
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
        let close = self.close();
        let task = process.handle().spawn(async move {
            if let Err(error) = close.await {
                process.note_failure(error);
            }
        });
        process.note_closing(task);
    }
}

/// The one writer of a database, from `siltstone.open`.
///
/// Its own reads see what it has accepted, durable or not. As a context manager it closes at the
/// end; an interpreter that exits normally closes what is open. It does not pickle; in a forked
/// child every call raises Closed.
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

    /// In a word: whether it can be used.
    fn state(&self) -> &'static str {
        let Some(engine) = self.held().peek() else { return "of the process before a fork" };
        match engine.ended().map(|why| why.kind()) {
            None => "open",
            Some(ErrorKind::Closed) => "closed",
            Some(ErrorKind::Fenced) => "fenced",
            Some(_) => "failed",
        }
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

    /// Merges everything into one sorted run, and returns when that is done: a major compaction.
    /// What was overwritten, deleted or has expired is gone from the new tables, unless a snapshot
    /// still needs it. Interrupting it loses nothing: the next compaction goes on where it was.
    ///
    /// :raises Fenced: another compactor has taken over; this handle goes on reading and writing.
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

    /// A batch for a `with` block: committed when the block ends well, discarded on an
    /// exception. Then `batch.commit` is the Commit.
    fn batch(slf: Bound<'_, Self>) -> PyResult<WriteBatch> {
        slf.get().held().get(slf.py())?;
        Ok(WriteBatch::bound_to(slf.unbind()))
    }

    /// What the handle holds and has done since it was opened: `Stats`. Asks nothing of the
    /// store; cheap enough for every second.
    ///
    /// :raises Closed: in a forked child (a reader: when it was closed).
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let engine = self.held().get(py)?;
        let (entries, error) = (engine.compaction_log(), engine.compaction_error());
        stats::stats(py, &engine.stats(), &Compacted { entries, error })
    }

    /// The figures of `stats` by name, as floats: what a monitoring system takes. Units stand in
    /// `Stats`; names with `_bytes`, `_seconds`, `_requests`, `_rows` carry them.
    fn metrics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        stats::metrics(py, &self.held().get(py)?.stats())
    }

    /// Makes everything durable, records a clean close, and ends the handle. Doing it twice is
    /// fine.
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

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<siltstone.Database {}, {}>", quoted(py, &self.place)?, self.state()))
    }

    /// What a notebook shows: where it is, in which state, and its first figures.
    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let (py, database) = (slf.py(), slf.get());
        let figures = match database.held().peek() {
            Some(_) => database.stats(py)?,
            None => py.None().into_bound(py),
        };
        let shown = py.import("siltstone.showing")?.getattr("database")?;
        shown.call1((&database.place, database.state(), figures))
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
