//! `SstReader`: reads a single table file.

use super::info::info;
use super::target::{TableSource, access, effects, options};
use crate::error::{closed, exception};
use crate::held::Held;
use crate::process::Process;
use crate::scan::{self, ScanItems};
use crate::shown::quoted;
use crate::source::{Source, lookups};
use crate::stream::ArrowStream;
use crate::wait::wait;
use parking_lot::Mutex;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyDict};
use siltstone::tables::{TableFile, TableInfo};
use siltstone::{Error, Options, Result, ScanRange};
use std::sync::Arc;

/// Reads a table in a file, made by `SstWriter` or by a database. It can be used from any
/// thread. Opening it reads its length, its filter and its index.
///
/// It can be pickled, and reopens itself after a fork. The pickle carries the URL and the options.
/// Store options come from the environment where it is unpickled, or from the provider.
///
/// :param source: a path, a URL whose path is the object, or the bytes of the file.
/// :param options: `block_cache_bytes` and `deadline`. Other options have no effect.
/// :param store_options: options of the object store.
/// :raises NotFound: if the file does not exist.
/// :raises Corruption: if the file is not a table, or is damaged.
/// :raises Unsupported, Denied, Unavailable, Timeout: see `siltstone.exceptions`.
#[pyclass(frozen, weakref, module = "siltstone.lsm")]
pub(crate) struct SstReader {
    place: TableSource,
    options: Options,
    /// The options as the caller passed them, for pickling.
    named: Py<PyDict>,
    /// Replaced after a fork; `None` once closed. The lock is taken only while the interpreter lock
    /// is held, and is released before the interpreter lock is released, so a forked child finds it
    /// unlocked.
    held: Mutex<Option<Arc<Held<TableFile>>>>,
}

fn connect(py: Python<'_>, place: &TableSource, options: &Options) -> PyResult<Held<TableFile>> {
    let process = Process::current(py)?;
    let effects = effects(process);
    let object = place.object(py, &effects)?;
    let opened = async {
        let opened = TableFile::open(effects, &object, options).await;
        opened.map_err(|error| match place.shown() {
            Some(url) => error.with("url", url),
            None => error,
        })
    };
    Ok(Held::new(process, wait(py, process, opened)?))
}

impl Source for SstReader {
    type Engine = TableFile;
    type Guard<'a> = Arc<Held<TableFile>>;

    fn held(&self, py: Python<'_>) -> PyResult<Self::Guard<'_>> {
        let held = self.held.lock().clone();
        let held = held.ok_or_else(|| closed(py, "the table's reader was closed"))?;
        if !held.is_stale() {
            return Ok(held);
        }
        let fresh = Arc::new(connect(py, &self.place, &self.options)?);
        if let Some(current) = &mut *self.held.lock() {
            *current = Arc::clone(&fresh);
        }
        Ok(fresh)
    }

    fn open_scan(engine: &TableFile, range: ScanRange) -> Result<siltstone::Scan> {
        Ok(engine.scan(range))
    }
}

lookups!(SstReader);

impl SstReader {
    /// The engine handle, to be shared with a merge.
    pub(super) fn file(&self, py: Python<'_>) -> PyResult<TableFile> {
        self.held(py)?.get(py).cloned()
    }

    fn table_info(&self, py: Python<'_>) -> PyResult<TableInfo> {
        Ok(self.held(py)?.get(py)?.info())
    }
}

#[pymethods]
impl SstReader {
    /// Opens the table at a path or URL, or in bytes.
    #[new]
    #[pyo3(signature = (source, *, options=None, store_options=None))]
    fn new<'py>(
        py: Python<'py>,
        source: &Bound<'py, PyAny>,
        options: Option<Bound<'py, PyAny>>,
        store_options: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Self> {
        let (options, named) = self::options(py, options)?;
        let place = TableSource::of(source, access(py, store_options)?)?;
        let held = Mutex::new(Some(Arc::new(connect(py, &place, &options)?)));
        Ok(SstReader { place, options, named: named.copy()?.unbind(), held })
    }

    /// The description of the table.
    #[getter]
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        info(py, self.place.shown().as_deref(), &self.table_info(py)?)
    }

    /// Number of entries of all kinds and versions, including tombstones.
    #[getter]
    fn rows(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.table_info(py)?.entries)
    }

    /// The smallest key.
    #[getter]
    fn first_key<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.table_info(py)?.first_key))
    }

    /// The largest key.
    #[getter]
    fn last_key<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.table_info(py)?.last_key))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let table = self.table_info(py)?;
        // All entries have the same sequence number: no key has a second version.
        if table.min_seq == table.max_seq && table.min_expiry.is_none() {
            return Ok(usize::try_from(table.entries - table.tombstones).unwrap_or(usize::MAX));
        }
        Err(PyTypeError::new_err(
            "this table has no len(): its keys have several versions or expire, so counting means \
             reading; use sum(1 for _ in reader), or reader.rows, which counts all versions",
        ))
    }

    /// Reads and checks every byte. Returns the number of bytes.
    ///
    /// :raises Corruption: if the table is damaged; the text describes the damage.
    fn verify(&self, py: Python<'_>) -> PyResult<u64> {
        let held = self.held(py)?;
        let table = held.get(py)?;
        let verified = async {
            table.verify().await.map_err(|error| match self.place.shown() {
                Some(url) => error.with("url", url),
                None => error,
            })
        };
        wait(py, held.process(), verified)
    }

    /// All rows as Arrow record batches, like `Scan.to_arrow`.
    #[pyo3(signature = (batch_rows=None))]
    fn to_arrow(
        &self,
        py: Python<'_>,
        batch_rows: Option<Bound<'_, PyAny>>,
    ) -> PyResult<ArrowStream> {
        scan::open(py, self, ScanRange::default(), ScanItems::Items)?.to_arrow(py, batch_rows)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        self.to_arrow(py, None)?.capsule(py, requested_schema)
    }

    /// Closes the table. Open scans of the table continue.
    fn close(&self) {
        drop(self.held.lock().take());
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

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let place = match self.place.shown() {
            Some(url) => quoted(py, &url)?,
            None => "of bytes".to_owned(),
        };
        let closed = if self.held.lock().is_none() { ", closed" } else { "" };
        Ok(format!("<siltstone.lsm.SstReader {place}{closed}>"))
    }

    /// Pickles the URL or the bytes, the options and the name of the provider. Store options are
    /// not pickled: they come from the environment of the process that reopens the reader, or from
    /// the provider there.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let reduced = py.import("siltstone.lsm")?.getattr("_reduced_sst_reader")?;
        let source = match &self.place {
            TableSource::Url(url, _) if url.starts_with("memory://") => {
                let text = "a table in this process's memory cannot be opened in another process";
                return Err(exception(py, &Error::unsupported(text)));
            }
            TableSource::Url(..) => self.place.shown().into_pyobject(py)?.into_any(),
            TableSource::Bytes(bytes) => PyBytes::new(py, bytes).into_any(),
        };
        reduced.call1((source, self.named.bind(py), self.place.provider()))
    }
}
