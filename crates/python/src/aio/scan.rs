//! `AsyncScan`: batches of a scan's rows, filled inline as long as memory has them.
//!
//! A refill that must wait fills the rows on the runtime and leaves them in the scan; whoever
//! awaits takes them from there. One that is cancelled loses none: the next refill finds them.

use crate::aio::pending::{First, Pending, Waits};
use crate::array::ArrowArray;
use crate::error::Raise;
use crate::held::Held;
use crate::process::Process;
use crate::range::count;
use crate::scan::Yields;
use crate::shown::range;
use crate::stream::{BATCH_BYTES, DEFAULT_BATCH_ROWS, into_array};
use futures::lock::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple, PyType};
use siltstone::{Error, Fill, Result, Rows};
use std::sync::Arc;

/// Rows of the first refill, and of any: as for the scan that waits (`crate::scan`).
const FIRST_ROWS: usize = 16;
const MAX_ROWS: usize = 1024;
/// Bytes of a refill at most.
const MAX_BYTES: usize = 1 << 20;
/// Refills up to this many rows keep the interpreter lock.
const ROWS_WITH_LOCK: usize = 64;

/// A scan whose rows come in batches.
#[pyclass(frozen, module = "siltstone.aio")]
pub(crate) struct AsyncScan {
    process: &'static Process,
    yields: Yields,
    shared: Held<Arc<Mutex<Shared>>>,
}

struct Shared {
    /// `None` once it is over.
    scan: Option<siltstone::Scan>,
    /// Filled and not yet taken.
    rows: Rows,
    refill_rows: usize,
}

/// How large a batch may be.
#[derive(Clone, Copy)]
struct Size {
    rows: usize,
    bytes: usize,
    /// Whether to wait for more rather than give a smaller batch.
    whole: bool,
}

impl Shared {
    /// Fills from memory; `false` when blocks must be fetched first.
    fn fill(&mut self, size: Size) -> Result<bool> {
        let Some(scan) = &mut self.scan else { return Ok(true) };
        let filled = scan.fill(&mut self.rows, size.rows, size.bytes);
        match filled {
            Ok(Fill::Full) => Ok(true),
            // Rows that are there are given before more is waited for.
            Ok(Fill::NeedsBlocks) => Ok(!size.whole && !self.rows.is_empty()),
            Ok(Fill::End) => {
                self.scan = None;
                Ok(true)
            }
            Err(error) => {
                self.scan = None;
                Err(error)
            }
        }
    }

    async fn fetch(&mut self) -> Result<()> {
        let Some(scan) = &mut self.scan else { return Ok(()) };
        let fetched = scan.fetch().await;
        if fetched.is_err() {
            self.scan = None;
        }
        fetched
    }

    /// The size of the next refill.
    fn next_size(&mut self) -> Size {
        let rows = self.refill_rows;
        self.refill_rows = (rows * 2).min(MAX_ROWS);
        Size { rows, bytes: MAX_BYTES, whole: false }
    }

    fn take_list(&mut self, py: Python<'_>, yields: Yields) -> PyResult<Py<PyAny>> {
        let rows = std::mem::take(&mut self.rows);
        let made: PyResult<Vec<_>> = (0..rows.len())
            .filter_map(|row| rows.row(row))
            .map(|(key, value)| {
                Ok(match yields {
                    Yields::Keys => PyBytes::new(py, key).into_any(),
                    Yields::Values => PyBytes::new(py, value).into_any(),
                    Yields::Items => {
                        let row = [PyBytes::new(py, key), PyBytes::new(py, value)];
                        PyTuple::new(py, row)?.into_any()
                    }
                })
            })
            .collect();
        Ok(PyList::new(py, made?)?.into_any().unbind())
    }

    fn end(&mut self) {
        self.scan = None;
        self.rows = Rows::new();
    }
}

/// Fills on the runtime, waiting for blocks.
async fn fill(shared: Arc<Mutex<Shared>>, size: Size) -> Result<()> {
    let mut shared = shared.lock().await;
    while !shared.fill(size)? {
        shared.fetch().await?;
    }
    Ok(())
}

impl AsyncScan {
    pub(crate) fn new(process: &'static Process, scan: siltstone::Scan, yields: Yields) -> Self {
        // What a transaction reads counts: little is read ahead.
        let refill_rows = if scan.is_noted() { 1 } else { FIRST_ROWS };
        let shared = Shared { scan: Some(scan), rows: Rows::new(), refill_rows };
        let shared = Held::new(process, Arc::new(Mutex::new(shared)));
        AsyncScan { process, yields, shared }
    }

    /// Fills on the runtime, then makes the object from what was filled.
    fn pending(
        &self,
        shared: &Arc<Mutex<Shared>>,
        size: Size,
        finish: impl FnOnce(Python<'_>, &mut Shared) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> Pending {
        let (filling, filled) = (Arc::clone(shared), Arc::clone(shared));
        Pending::running(self.process, fill(filling, size), move |py, ()| match filled.try_lock() {
            Some(mut shared) => finish(py, &mut shared),
            None => Err(Error::invalid("a scan is used by one task at a time")).raise(py),
        })
    }
}

#[pymethods]
impl AsyncScan {
    /// The next rows as a list, empty at the end; or a Pending for them.
    fn begin_rows(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let shared = self.shared.get(py)?;
        let yields = self.yields;
        let mut size = Size { rows: FIRST_ROWS, bytes: MAX_BYTES, whole: false };
        // Taken: a refill that was cancelled a moment ago has not let go of it yet.
        if let Some(mut state) = shared.try_lock() {
            size = state.next_size();
            let filled = if !state.rows.is_empty() {
                Ok(true)
            } else if size.rows <= ROWS_WITH_LOCK {
                state.fill(size)
            } else {
                py.detach(|| state.fill(size))
            };
            if filled.raise(py)? {
                return state.take_list(py, yields);
            }
        }
        let pending = self.pending(shared, size, move |py, state| state.take_list(py, yields));
        Ok(Py::new(py, pending)?.into_any())
    }

    /// Rows of a record batch, where the caller asks for `wanted`.
    #[pyo3(signature = (wanted))]
    fn batch_rows(&self, wanted: Option<Bound<'_, PyAny>>) -> PyResult<u64> {
        wanted.map_or(Ok(DEFAULT_BATCH_ROWS), |rows| count(&rows, "batch_rows", 1))
    }

    /// A Pending for the next rows as an Arrow array of structs, or None at the end.
    fn begin_batch(&self, py: Python<'_>, rows: u64) -> PyResult<Pending> {
        let rows = usize::try_from(rows).unwrap_or(usize::MAX);
        let size = Size { rows, bytes: BATCH_BYTES, whole: true };
        Ok(self.pending(self.shared.get(py)?, size, |py, state| {
            let rows = std::mem::take(&mut state.rows);
            if rows.is_empty() {
                return Ok(py.None());
            }
            let array =
                into_array((rows, Vec::new())).map_err(pyo3_arrow::error::PyArrowError::from)?;
            Ok(Py::new(py, ArrowArray::new(array))?.into_any())
        }))
    }

    /// Lets go of what the scan holds; `None` where there is nothing to wait for.
    fn begin_close(&self, py: Python<'_>) -> PyResult<Option<Pending>> {
        let shared = self.shared.get(py)?;
        if let Some(mut state) = shared.try_lock() {
            state.end();
            return Ok(None);
        }
        let (process, shared) = (self.process, Arc::clone(shared));
        let end = process.run(async move {
            shared.lock().await.end();
            Ok(())
        });
        let waits = Waits::new(end, |py, ()| Ok(py.None()));
        Ok(Some(Pending::later(process, move || First::Waits(waits))))
    }

    /// `AsyncScan[bytes]` in annotations.
    #[classmethod]
    fn __class_getitem__<'py>(
        class: &Bound<'py, PyType>,
        _item: &Bound<'py, PyAny>,
    ) -> Bound<'py, PyType> {
        class.clone()
    }

    fn __repr__(&self) -> String {
        let yields = self.yields.name();
        let Some(state) = self.shared.peek().and_then(|shared| shared.try_lock()) else {
            return format!("<siltstone.aio.Scan of {yields}, in use>");
        };
        match &state.scan {
            Some(scan) => format!("<siltstone.aio.Scan of {yields}, {}>", range(scan.range())),
            None => format!("<siltstone.aio.Scan of {yields}, closed>"),
        }
    }
}
