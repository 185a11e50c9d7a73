//! `AsyncScan`: batches of the rows of a scan, filled at once if the data is in memory.
//!
//! A refill that must wait fills the rows on the runtime and leaves them in the scan; the awaiting
//! task takes them from there. A cancelled refill loses no rows: the next refill finds them.

use crate::aio::pending::{First, Pending, Waits};
use crate::array::ArrowArray;
use crate::bytes::{BytesArg, to_python};
use crate::error::{self, Raise};
use crate::held::Held;
use crate::process::Process;
use crate::range::count;
use crate::scan::{NO_SEEK, ScanItems};
use crate::shown::range;
use crate::stream::{BATCH_BYTES, DEFAULT_BATCH_ROWS, into_array};
use futures::lock::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple, PyType};
use siltstone::{Column, Error, FillOutcome, Result, Rows};
use std::sync::Arc;

/// Rows of the first refill, and maximum rows of a refill: as for the blocking scan
/// (`crate::scan`).
const FIRST_ROWS: usize = 16;
const MAX_ROWS: usize = 1024;
/// Maximum bytes of a refill.
const MAX_BYTES: usize = 1 << 20;
/// Refills up to this many rows keep the interpreter lock.
const ROWS_WITH_LOCK: usize = 64;

/// A scan that returns its rows in batches.
#[pyclass(frozen, module = "siltstone.aio")]
pub(crate) struct AsyncScan {
    process: &'static Process,
    yields: ScanItems,
    /// Whether the scan has a limit.
    limited: bool,
    shared: Held<Arc<Mutex<Shared>>>,
}

struct Shared {
    reverse: bool,
    /// `None` once the scan is over.
    scan: Option<siltstone::Scan>,
    /// Rows that were filled but not taken yet.
    rows: Rows,
    refill_rows: usize,
    /// Keys of the rows returned last, which the caller may not have read yet.
    given: Column,
    /// The key of the last row returned.
    last: Option<Vec<u8>>,
}

/// The maximum size of a batch.
#[derive(Clone, Copy)]
struct Size {
    rows: usize,
    bytes: usize,
    /// Whether to wait for a full batch rather than return a smaller one.
    whole: bool,
}

impl Shared {
    /// Fills rows from memory; `false` if blocks must be fetched first.
    fn fill(&mut self, size: Size) -> Result<bool> {
        let Some(scan) = &mut self.scan else { return Ok(true) };
        let filled = scan.fill(&mut self.rows, size.rows, size.bytes);
        match filled {
            Ok(FillOutcome::Full) => Ok(true),
            // Filled rows are returned before waiting for blocks.
            Ok(FillOutcome::NeedsBlocks) => Ok(!size.whole && !self.rows.is_empty()),
            Ok(FillOutcome::End) => {
                self.scan = None;
                Ok(true)
            }
            // Filled rows are returned before the error, which the next fill returns again.
            Err(_) if !self.rows.is_empty() => Ok(true),
            Err(error) => Err(error),
        }
    }

    async fn fetch(&mut self) -> Result<()> {
        let Some(scan) = &mut self.scan else { return Ok(()) };
        scan.fetch().await
    }

    /// The size of the next refill.
    fn next_size(&mut self) -> Size {
        let rows = self.refill_rows;
        self.refill_rows = (rows * 2).min(MAX_ROWS);
        Size { rows, bytes: MAX_BYTES, whole: false }
    }

    fn take_list(&mut self, py: Python<'_>, yields: ScanItems) -> PyResult<Py<PyAny>> {
        let rows = self.take_rows();
        let made: PyResult<Vec<_>> = (0..rows.len())
            .filter_map(|row| rows.row(row))
            .map(|(key, value)| {
                Ok(match yields {
                    ScanItems::Keys => to_python(py, key)?.into_any(),
                    ScanItems::Values => to_python(py, value)?.into_any(),
                    ScanItems::Items => {
                        let row = [to_python(py, key)?, to_python(py, value)?];
                        PyTuple::new(py, row)?.into_any()
                    }
                })
            })
            .collect();
        let list = PyList::new(py, made?)?.into_any().unbind();
        self.given = rows.keys;
        Ok(list)
    }

    /// Takes the filled rows.
    fn take_rows(&mut self) -> Rows {
        self.given = Column::default();
        let rows = std::mem::take(&mut self.rows);
        if let Some((key, _)) = rows.len().checked_sub(1).and_then(|last| rows.row(last)) {
            self.last = Some(key.to_vec());
        }
        rows
    }

    /// Skips the rows before `key`. The caller has not read the last `unread` rows that were
    /// returned; returns how many of these remain.
    fn seek(&mut self, key: &[u8], unread: usize) -> usize {
        let reverse = self.reverse;
        let before = |row: &[u8]| if reverse { row > key } else { row < key };
        let given = self.given.offsets.len() - 1;
        let at_hand = given.saturating_sub(unread)..given;
        let passed = at_hand.take_while(|row| self.given.get(*row).is_some_and(before)).count();
        let left = unread - passed;
        if left > 0 {
            return left;
        }
        let rows = &self.rows;
        let key_at = |row: usize| rows.row(row).map(|row| row.0);
        let passed = (0..rows.len()).take_while(|row| key_at(*row).is_some_and(before)).count();
        let last = rows.len().checked_sub(1).and_then(key_at).or(self.last.as_deref());
        let onward = last.is_none_or(before);
        self.rows.pass(passed);
        if let Some(scan) = self.scan.as_mut().filter(|_| onward) {
            scan.seek(key);
            // A caller that seeks is likely to seek again, so the next refill is short.
            self.refill_rows = FIRST_ROWS;
        }
        left
    }

    fn end(&mut self) {
        self.scan = None;
        self.rows = Rows::new();
        self.given = Column::default();
    }
}

/// Fills rows on the runtime, waiting for blocks.
async fn fill(shared: Arc<Mutex<Shared>>, size: Size) -> Result<()> {
    let mut shared = shared.lock().await;
    while !shared.fill(size)? {
        shared.fetch().await?;
    }
    Ok(())
}

impl AsyncScan {
    pub(crate) fn new(process: &'static Process, scan: siltstone::Scan, yields: ScanItems) -> Self {
        // Reads of a transaction are recorded for its conflict check, so little is read ahead.
        let refill_rows = if scan.is_noted() { 1 } else { FIRST_ROWS };
        let limited = scan.rows_left() != u64::MAX;
        let shared = Shared {
            reverse: scan.range().reverse,
            scan: Some(scan),
            rows: Rows::new(),
            refill_rows,
            given: Column::default(),
            last: None,
        };
        let shared = Held::new(process, Arc::new(Mutex::new(shared)));
        AsyncScan { process, yields, limited, shared }
    }

    /// Fills rows on the runtime, then makes the object from them.
    fn pending(
        &self,
        shared: &Arc<Mutex<Shared>>,
        size: Size,
        finish: impl FnOnce(Python<'_>, &mut Shared) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> Pending {
        let (filling, filled) = (Arc::clone(shared), Arc::clone(shared));
        Pending::running(self.process, fill(filling, size), move |py, ()| match filled.try_lock() {
            Some(mut shared) => finish(py, &mut shared),
            None => {
                Err(Error::invalid("another task uses this scan; open one for each task")).raise(py)
            }
        })
    }
}

#[pymethods]
impl AsyncScan {
    /// The next rows as a list, empty at the end; or a Pending.
    fn begin_rows(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let shared = self.shared.get(py)?;
        let yields = self.yields;
        let mut size = Size { rows: FIRST_ROWS, bytes: MAX_BYTES, whole: false };
        // If the lock is taken, a refill that was just cancelled has not released it yet.
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

    /// Skips the rows before `key`. Returns how many of the last `unread` rows returned remain, or
    /// a Pending.
    fn begin_seek(&self, py: Python<'_>, key: BytesArg<'_>, unread: usize) -> PyResult<Py<PyAny>> {
        let shared = self.shared.get(py)?;
        if self.limited {
            return Err(error::invalid(py, NO_SEEK));
        }
        let key = key.as_ref();
        // If the lock is taken, a refill that was just cancelled has not released it yet.
        if let Some(mut state) = shared.try_lock() {
            return Ok(state.seek(key, unread).into_pyobject(py)?.into_any().unbind());
        }
        let (shared, key) = (Arc::clone(shared), key.to_vec());
        let seek = async move { Ok(shared.lock().await.seek(&key, unread)) };
        let left = |py: Python<'_>, left: usize| Ok(left.into_pyobject(py)?.into_any().unbind());
        Ok(Py::new(py, Pending::running(self.process, seek, left))?.into_any())
    }

    /// Number of rows in a record batch, if the caller asks for `wanted`.
    #[pyo3(signature = (wanted))]
    fn batch_rows(&self, wanted: Option<Bound<'_, PyAny>>) -> PyResult<u64> {
        wanted.map_or(Ok(DEFAULT_BATCH_ROWS), |rows| count(&rows, "batch_rows", 1))
    }

    /// A Pending for the next rows as an Arrow array of structs, or None at the end.
    fn begin_batch(&self, py: Python<'_>, rows: u64) -> PyResult<Pending> {
        let rows = usize::try_from(rows).unwrap_or(usize::MAX);
        let size = Size { rows, bytes: BATCH_BYTES, whole: true };
        Ok(self.pending(self.shared.get(py)?, size, |py, state| {
            let rows = state.take_rows();
            if rows.is_empty() {
                return Ok(py.None());
            }
            let array =
                into_array((rows, Vec::new())).map_err(pyo3_arrow::error::PyArrowError::from)?;
            Ok(Py::new(py, ArrowArray::new(array))?.into_any())
        }))
    }

    /// Releases the resources of the scan; `None` if there is nothing to wait for.
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

    /// Supports `AsyncScan[bytes]` in annotations.
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
