//! `Reader`: a read-only handle that follows a database while another process may write it.

use crate::checkpoint::{self, settled, travelling, words};
use crate::error::closed;
use crate::held::Held;
use crate::open::{env, shown};
use crate::process::Process;
use crate::shown::quoted;
use crate::source::{Source, reads};
use crate::stats::{self, StatsExtras};
use crate::wait::wait;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use siltstone::store::options::StoreOptions;
use siltstone::{Answer, MergeOperator, Options, ReadAt, ReaderOptions, Result, ScanRange};
use std::sync::Arc;

/// Everything needed to open the reader again in another process.
pub(crate) struct Place {
    pub(crate) url: String,
    pub(crate) options: Options,
    pub(crate) store_options: StoreOptions,
    /// Name of the function that returned the store options, if a function did.
    pub(crate) provider: Option<String>,
    /// The fixed version that the reader stays at, if it does not follow.
    pub(crate) at: Option<ReadAt>,
    /// The merge operator, and the description of it that the caller passed.
    pub(crate) merge_operator: Option<Arc<dyn MergeOperator>>,
    pub(crate) described: Option<Py<PyAny>>,
}

impl Place {
    /// The options with which the engine opens the reader.
    pub(crate) fn how(&self) -> ReaderOptions {
        ReaderOptions {
            options: self.options.clone(),
            at: self.at.clone(),
            merge_operator: self.merge_operator.clone(),
        }
    }
}

/// A reader, from `siltstone.open_reader`. It sees whole writes in commit order, as soon as they
/// are durable.
///
/// A reader can be pickled, and reopens itself after a fork. The pickle carries the URL and the
/// options. Store options come from the environment where it is unpickled, or from the provider
/// that the reader was opened with.
#[pyclass(frozen, weakref, module = "siltstone")]
pub(crate) struct Reader {
    place: Place,
    /// The options as the caller passed them, for pickling.
    named: Py<PyDict>,
    /// Replaced after a fork; `None` once closed. The lock is taken only while the interpreter lock
    /// is held, and is released before the interpreter lock is released, so a forked child finds it
    /// unlocked.
    held: Mutex<Option<Arc<Held<siltstone::Reader>>>>,
}

impl Reader {
    pub(crate) fn open(
        py: Python<'_>,
        mut place: Place,
        named: &Bound<'_, PyDict>,
    ) -> PyResult<Reader> {
        let held = connect(py, &place)?;
        place.at = settled(place.at.take(), held.get(py)?);
        Ok(Reader::new(place, named.copy()?.unbind(), held))
    }

    pub(crate) fn new(place: Place, named: Py<PyDict>, held: Held<siltstone::Reader>) -> Reader {
        Reader { place, named, held: Mutex::new(Some(Arc::new(held))) }
    }

    /// Takes the handle out for closing.
    pub(crate) fn take(&self) -> Option<Arc<Held<siltstone::Reader>>> {
        self.held.lock().take()
    }
}

fn connect(py: Python<'_>, place: &Place) -> PyResult<Held<siltstone::Reader>> {
    let process = Process::current(py)?;
    let env = env(py, process, &place.url, &place.store_options)?;
    Ok(Held::new(process, wait(py, process, siltstone::Reader::open(env, place.how()))?))
}

impl Source for Reader {
    type Engine = siltstone::Reader;
    type Guard<'a> = Arc<Held<siltstone::Reader>>;

    fn held(&self, py: Python<'_>) -> PyResult<Self::Guard<'_>> {
        let held = self.held.lock().clone();
        let held = held.ok_or_else(|| closed(py, "the reader was closed"))?;
        if !held.is_stale() {
            return Ok(held);
        }
        let fresh = Arc::new(connect(py, &self.place)?);
        if let Some(current) = &mut *self.held.lock() {
            *current = Arc::clone(&fresh);
        }
        Ok(fresh)
    }

    fn fresh(engine: &siltstone::Reader) -> Result<Answer<()>> {
        engine.fresh()
    }

    fn open_scan(engine: &siltstone::Reader, range: ScanRange) -> Result<siltstone::Scan> {
        engine.scan(range)
    }

    fn open_fresh_scan(engine: &siltstone::Reader, range: ScanRange) -> Result<siltstone::Scan> {
        engine.scan_as_it_is(range)
    }
}

reads!(Reader);

#[pymethods]
impl Reader {
    /// Looks for newer data now, without waiting for the next `manifest_poll_interval`.
    fn refresh(&self, py: Python<'_>) -> PyResult<()> {
        let held = self.held(py)?;
        wait(py, held.process(), held.get(py)?.refresh())
    }

    /// The checkpoint that the reader was opened at; None for a following reader and for a
    /// reader at a version.
    #[getter]
    fn checkpoint<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        match &self.place.at {
            Some(ReadAt::Known(known)) => Ok(Some(checkpoint::shown(py, &known.checkpoint)?)),
            _ => Ok(None),
        }
    }

    /// Returns `Stats`: the state of the handle, and counts since it was opened. The call makes
    /// no request to the store, and is cheap enough for once a second.
    ///
    /// :raises Closed: in a forked child, and from a reader after it was closed.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let held = self.held(py)?;
        let engine = held.get(py)?;
        let (refresh_error, ended) = (engine.refresh_error(), engine.ended());
        let beside = StatsExtras { refresh_error, ended, ..StatsExtras::default() };
        stats::stats(py, &engine.stats(), &engine.latencies(), &beside)
    }

    /// Returns the figures of `stats` by name, as floats, for monitoring systems. `Stats`
    /// documents the units; the name endings `_bytes`, `_seconds`, `_requests` and `_rows` name
    /// them too.
    fn metrics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        stats::metrics(py, &self.held(py)?.get(py)?.stats())
    }

    /// Closes the handle. `close()` is idempotent.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        match self.take() {
            // After the exit hook no request can be sent; an unreleased lease expires by itself.
            Some(held) if !held.is_stale() && !held.process().is_over() => {
                wait(py, held.process(), held.get(py)?.close())
            }
            _ => Ok(()),
        }
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().held(slf.py())?;
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
        let is_closed = self.held.lock().is_none();
        let state = if is_closed { "closed".to_owned() } else { words(self.place.at.as_ref()) };
        Ok(format!("<siltstone.Reader {}, {state}>", quoted(py, &shown(&self.place.url))?))
    }

    /// Pickles the URL, the options, the checkpoint and the name of the provider. Store options are
    /// not pickled: they come from the environment of the process that reopens the reader, or from
    /// the provider there.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let reduced = py.import("siltstone._open")?.getattr("reduced_reader")?;
        let Place { url, provider, at, described, .. } = &self.place;
        let at = travelling(py, at.as_ref())?;
        reduced.call1((shown(url), self.named.bind(py), provider, at, described))
    }
}
