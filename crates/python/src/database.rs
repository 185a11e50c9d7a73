//! `Database`: the handle of the single writer.

use crate::batch::WriteBatch;
use crate::error::{Raise, closed, exception};
use crate::held::Held;
use crate::operator::refuse_within_operator;
use crate::process::Process;
use crate::shared::Share;
use crate::shown::quoted;
use crate::snapshot::Snapshot;
use crate::source::{Source, reads};
use crate::stats::{self, StatsExtras};
use crate::wait::wait;
use futures::FutureExt;
use futures::future::BoxFuture;
use log::Level;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use siltstone::{Error, ErrorKind, Result, ScanRange};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The logger target for failed closes that the caller did not request.
const TARGET: &str = "siltstone.close";

/// Why the binding closes a handle that the caller did not close.
#[derive(Clone, Copy)]
pub(crate) enum CloseReason {
    /// The interpreter exits.
    AtExit,
    /// The last reference to the handle was dropped.
    Forgotten,
}

/// An open database, whether its close has begun, and whether a caller has received the result of
/// the close.
pub(crate) struct Opened {
    database: Held<siltstone::Database>,
    pub(crate) place: OpenPlace,
    closing: AtomicBool,
    told: Arc<AtomicBool>,
}

/// The place of a handle.
#[derive(Clone, Debug)]
pub(crate) struct OpenPlace {
    /// For texts: without secrets.
    pub(crate) shown: String,
    /// The same for all handles of this process on one database.
    pub(crate) key: String,
}

impl Opened {
    /// Registers the handle, so that the exit hook of the interpreter closes it.
    pub(crate) fn new(
        process: &'static Process,
        engine: siltstone::Database,
        place: OpenPlace,
    ) -> Arc<Opened> {
        let database = Held::new(process, engine);
        let closing = AtomicBool::new(false);
        let opened = Arc::new(Opened { database, place, closing, told: Arc::default() });
        process.note_open(Arc::downgrade(&opened));
        opened
    }

    /// The engine's handle.
    ///
    /// # Errors
    /// Closed in a forked child.
    pub(crate) fn held(&self) -> &Held<siltstone::Database> {
        &self.database
    }

    /// The result of the close; `None` while the close has not ended. This does not need the
    /// runtime, so after the exit hook a handle that was closed successfully still reports success.
    pub(crate) fn closed(&self) -> Option<Result<()>> {
        let ended = self.database.peek()?.close_result()?;
        self.told.store(true, Ordering::Relaxed);
        Some(ended)
    }

    /// Begins to close for a caller that waits: the future completes when the close ends. The close
    /// continues if the future is dropped, because a half-finished close is of no use.
    pub(crate) fn close(&self) -> impl Future<Output = Result<()>> + Send + use<> {
        let (close, told) = (self.begin(), Arc::clone(&self.told));
        async move {
            let ended = close.await;
            told.store(true, Ordering::Relaxed);
            ended
        }
    }

    /// Begins to close when no caller waits for the result. If the close fails and no caller has
    /// received the error, the error is logged.
    pub(crate) fn close_unasked(
        &self,
        when: CloseReason,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (close, told) = (self.begin(), Arc::clone(&self.told));
        let (place, engine) = (self.place.shown.clone(), self.database.peek().cloned());
        async move {
            let ended = close.await;
            if let (Err(error), Some(engine)) = (ended, engine)
                && !told.swap(true, Ordering::Relaxed)
            {
                tell(&place, when, &engine, &error);
            }
        }
    }

    fn begin(&self) -> impl Future<Output = Result<()>> + Send + use<> {
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

/// Logs that a close failed. If the handle was dropped and only fenced, and every write was
/// acknowledged before, no data is lost: running a notebook cell a second time causes this, so it
/// is logged as info, not as a warning.
fn tell(place: &str, when: CloseReason, engine: &siltstone::Database, error: &Error) {
    let figures = engine.stats();
    let unacknowledged = figures.visible_seq.saturating_sub(figures.durable_seq);
    let (level, when) = match (when, error.kind()) {
        (CloseReason::Forgotten, ErrorKind::Fenced) if unacknowledged == 0 => {
            (Level::Info, "after its last user had gone")
        }
        (CloseReason::Forgotten, _) => (Level::Warn, "after its last user had gone"),
        (CloseReason::AtExit, _) => (Level::Warn, "when the interpreter ended"),
    };
    let lost = match unacknowledged {
        0 => "every write had been acknowledged".to_owned(),
        some => format!("{some} operations were not acknowledged, and may be lost"),
    };
    let kind = error.kind().name();
    log::log!(target: TARGET, level, "closing {place} {when} failed: {lost}: {kind}: {error}");
}

impl Drop for Opened {
    /// A handle that is dropped while open is closed in the background, so that its writes become
    /// durable. The next open of this process waits for it ([`Process::await_closing`]).
    fn drop(&mut self) {
        if self.closing.load(Ordering::Relaxed) || self.database.is_stale() {
            return;
        }
        let process = self.database.process();
        // The caller has no handle left to close before it opens the next one.
        if let Some(database) = self.database.peek() {
            database.allow_takeover();
        }
        let close = self.close_unasked(CloseReason::Forgotten);
        let close = process.handle().spawn(close).map(drop).boxed().shared();
        process.note_closing(self.place.key.clone(), close);
    }
}

/// The writer of a database, from `siltstone.open`. A database has one writer.
///
/// Its own reads see every accepted write, durable or not. As a context manager it closes at the
/// end of the block. An interpreter that exits normally closes open handles. A Database cannot be
/// pickled. In a forked child every call raises Closed.
#[pyclass(frozen, weakref, module = "siltstone")]
pub(crate) struct Database {
    opened: Arc<Opened>,
    /// Set if several openers share the engine handle.
    share: Option<Share>,
}

impl Database {
    pub(crate) fn new(
        process: &'static Process,
        engine: siltstone::Database,
        place: OpenPlace,
    ) -> Self {
        Database { opened: Opened::new(process, engine, place), share: None }
    }

    /// A handle that shares the engine handle with other openers.
    pub(crate) fn shared(opened: Arc<Opened>, share: Share) -> Self {
        Database { opened, share: Some(share) }
    }

    pub(crate) fn held(&self) -> &Held<siltstone::Database> {
        match &self.share {
            None => self.opened.held(),
            Some(share) => share.held(),
        }
    }

    /// As [`Opened::closed`]; for a share, the result of returning the share.
    pub(crate) fn closed(&self) -> Option<Result<()>> {
        match &self.share {
            None => self.opened.closed(),
            Some(share) => share.closed(),
        }
    }

    /// The state of the handle in one or a few words, for `repr`.
    fn state(&self) -> &'static str {
        if self.share.as_ref().is_some_and(Share::is_over) {
            return "closed";
        }
        let Some(engine) = self.held().peek() else { return "of the process before a fork" };
        match engine.refusal().map(|why| why.kind()) {
            None => "open",
            Some(ErrorKind::Closed) => "closed",
            Some(ErrorKind::Fenced) => "fenced",
            Some(_) => "failed",
        }
    }

    /// Begins to close, as [`Opened::close`]; a share is returned instead.
    pub(crate) fn close_begun(&self) -> BoxFuture<'static, Result<()>> {
        match &self.share {
            None => self.opened.close().boxed(),
            Some(share) => share.close().boxed(),
        }
    }
}

impl Source for Database {
    type Engine = siltstone::Database;
    type Guard<'a> = &'a Held<siltstone::Database>;

    fn held(&self, _py: Python<'_>) -> PyResult<Self::Guard<'_>> {
        Ok(Database::held(self))
    }

    fn open_scan(engine: &siltstone::Database, range: ScanRange) -> Result<siltstone::Scan> {
        engine.scan(range)
    }
}

reads!(Database);

#[pymethods]
impl Database {
    /// Returns when every earlier write is durable. With `writes.wal_enabled` off this flushes
    /// the memtable.
    ///
    /// :param memtable: also write the memtable to tables, so that the next opening has nothing to
    ///     replay.
    #[pyo3(signature = (*, memtable=false))]
    fn flush(&self, py: Python<'_>, memtable: bool) -> PyResult<()> {
        refuse_within_operator(py, "flush")?;
        let held = self.held();
        let engine = held.get(py)?;
        if memtable {
            return wait(py, held.process(), engine.flush_memtable());
        }
        wait(py, held.process(), engine.flush())
    }

    /// The exception that calls of a closed handle raise. None while the handle is open.
    #[getter]
    fn closed_by(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let held = self.held();
        let why = match held.get(py) {
            Ok(engine) => engine.refusal().map(|why| exception(py, &why)),
            Err(stale) => Some(stale),
        };
        why.map(|why| why.into_value(py).into_any())
    }

    /// Runs a major compaction: merges all tables into one sorted run, and returns when that is
    /// done. The new tables contain no overwritten, deleted or expired rows, except those that a
    /// snapshot needs. An interrupted compaction loses no work: the next compaction resumes it.
    ///
    /// :raises Fenced: if another compactor has taken over. This handle can still read and write.
    fn compact(&self, py: Python<'_>) -> PyResult<()> {
        refuse_within_operator(py, "compact")?;
        let held = self.held();
        let engine = held.get(py)?.clone();
        wait(py, held.process(), async move { engine.compact().await.map(|_| ()) })
    }

    /// Returns a fixed view of the current state of the database.
    fn snapshot(&self, py: Python<'_>) -> PyResult<Snapshot> {
        let held = self.held();
        let snapshot = held.get(py)?.snapshot().raise(py)?;
        Ok(Snapshot::new(held.process(), snapshot))
    }

    /// Returns a batch for a `with` block. The batch is committed at the end of the block, and
    /// discarded if the block raises. Afterwards `batch.commit` is the Commit.
    fn batch(slf: Bound<'_, Self>) -> PyResult<WriteBatch> {
        slf.get().held().get(slf.py())?;
        Ok(WriteBatch::bound_to(slf.unbind()))
    }

    /// Returns the database as a `MutableMapping`, for code that takes a `dict`, like
    /// `shelve.Shelf`. Its `len` scans and counts all keys.
    ///
    /// :param key: codec of the keys: `bytes`, `str` (UTF-8), or a pair of functions (encode to
    ///     bytes, decode from bytes). The order of iteration is the order of the bytes.
    /// :param value: codec of the values, likewise.
    /// :raises TypeError: if a codec is none of these.
    #[pyo3(signature = (*, key=None, value=None))]
    fn mapping<'py>(
        slf: Bound<'py, Self>,
        key: Option<Bound<'py, PyAny>>,
        value: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        slf.get().held().get(py)?;
        let plain = py.get_type::<PyBytes>().into_any();
        let (key, value) = (key.unwrap_or_else(|| plain.clone()), value.unwrap_or(plain));
        py.import("siltstone.mapping")?.getattr("Mapping")?.call1((slf, key, value))
    }

    /// Returns `Stats`: the state of the handle, and counts since it was opened. The call makes
    /// no request to the store, and is cheap enough for once a second.
    ///
    /// :raises Closed: in a forked child, and from a reader after it was closed.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let engine = self.held().get(py)?;
        let (entries, error) = (engine.compaction_log(), engine.compaction_error());
        let (gc_error, ended) = (engine.gc_error(), engine.failure());
        let beside = StatsExtras { entries, error, gc_error, refresh_error: None, ended };
        stats::stats(py, &engine.stats(), &engine.latencies(), &beside)
    }

    /// Returns the figures of `stats` by name, as floats, for monitoring systems. `Stats`
    /// documents the units; the name endings `_bytes`, `_seconds`, `_requests` and `_rows` name
    /// them too.
    fn metrics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        stats::metrics(py, &self.held().get(py)?.stats())
    }

    /// Makes all writes durable, records a clean close, and ends the handle. A close that has
    /// begun continues even if the wait is interrupted. `close()` is idempotent: repeated calls
    /// wait for the same close, and return or raise the same result.
    ///
    /// :raises Fenced, Timeout, Denied, Unavailable: if the close failed. The handle is closed
    ///     anyway. Acknowledged writes are durable, and the next opening recovers as many of the
    ///     other writes as possible.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        refuse_within_operator(py, "close")?;
        if self.held().is_stale() {
            return Err(closed(py, "only the process that opened the database can close it"));
        }
        if let Some(ended) = self.closed() {
            return ended.raise(py);
        }
        wait(py, self.held().process(), self.close_begun())
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
        // A forked child that leaves the block, for instance by sys.exit, has nothing to close.
        if self.held().is_stale() {
            return Ok(());
        }
        self.close(py)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!(
            "<siltstone.Database {}, {}>",
            quoted(py, &self.opened.place.shown)?,
            self.state()
        ))
    }

    /// HTML for notebooks: the place, the state, and the key figures.
    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let (py, database) = (slf.py(), slf.get());
        let figures = match database.held().peek() {
            Some(_) => database.stats(py)?,
            None => py.None().into_bound(py),
        };
        let shown = py.import("siltstone._display")?.getattr("database")?;
        shown.call1((&database.opened.place.shown, database.state(), figures))
    }

    fn __reduce__(&self, py: Python<'_>) -> PyResult<()> {
        Err(unpicklable(py, "Database"))
    }
}

/// The error for pickling a handle of the single writer.
fn unpicklable(_py: Python<'_>, name: &str) -> PyErr {
    pyo3::exceptions::PyTypeError::new_err(format!(
        "a {name} cannot be pickled: a database has one writer, and this is it; open a reader in \
         the other process"
    ))
}
