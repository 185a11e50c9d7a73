//! `Scan`: a one-shot iteration over a range, refilled in batches of growing size.

use crate::error::{self, Raise};
use crate::held::Held;
use crate::process::Process;
use crate::range::count;
use crate::source::Source;
use crate::stream::{ArrowStream, DEFAULT_BATCH_ROWS};
use crate::wait::wait;
use futures::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyType};
use siltstone::parts::Merged;
use siltstone::{Fill, Result, Rows, ScanRange};

/// Rows of the first refill, where no limit says more: most scans by hand are short.
const FIRST_ROWS: usize = 16;
/// Bytes of a key and of a value that the first refill has room for; more only costs growing.
const KEY_ROOM: usize = 32;
const VALUE_ROOM: usize = 128;
/// Rows of a refill at most: enough that refilling costs a row nothing.
const MAX_ROWS: usize = 1024;
/// Bytes of a refill at most.
const MAX_BYTES: usize = 1 << 20;
/// Refills up to this many rows keep the interpreter lock.
const ROWS_WITH_LOCK: usize = 64;

/// What iterating gives.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Yields {
    Items,
    Keys,
    Values,
}

/// Where rows come from.
pub(crate) enum Pull {
    /// A scan of a database or a part.
    Scan(siltstone::Scan),
    /// A merge of parts.
    Merged(Merged),
}

impl Pull {
    /// How many rows it gives at most; 2^64 - 1 where nothing bounds them.
    fn rows_left(&self) -> u64 {
        match self {
            Pull::Scan(scan) => scan.rows_left(),
            Pull::Merged(_) => u64::MAX,
        }
    }

    /// Appends rows, as far as memory has them.
    pub(crate) fn fill(
        &mut self,
        rows: &mut Rows,
        max_rows: usize,
        max_bytes: usize,
    ) -> Result<Fill> {
        match self {
            Pull::Scan(scan) => scan.fill(rows, max_rows, max_bytes),
            Pull::Merged(merged) => merged.fill(rows, max_rows, max_bytes),
        }
    }

    /// Brings what the last fill lacked.
    pub(crate) fn fetch(&mut self) -> BoxFuture<'_, Result<()>> {
        match self {
            Pull::Scan(scan) => scan.fetch(),
            Pull::Merged(merged) => merged.fetch(),
        }
    }

    /// Of the rows filled since the last call, one by one: whether it has no value. Empty where
    /// every row has one.
    pub(crate) fn take_deleted(&mut self) -> Vec<bool> {
        match self {
            Pull::Scan(_) => Vec::new(),
            Pull::Merged(merged) => merged.take_deleted(),
        }
    }
}

/// A one-shot iteration, pinned when it was made.
#[pyclass(frozen, module = "siltstone")]
pub(crate) struct Scan {
    yields: Yields,
    state: Mutex<State>,
}

struct State {
    /// `None` once it is over: ended, closed, or handed to Arrow.
    scan: Option<Held<Pull>>,
    rows: Rows,
    /// Which of the rows have no value; empty where all have one.
    deleted: Vec<bool>,
    next: usize,
    refill_rows: usize,
}

/// Begins a scan of `source`.
pub(crate) fn open<S: Source>(
    py: Python<'_>,
    source: &S,
    range: ScanRange,
    yields: Yields,
) -> PyResult<Scan> {
    let held = source.held(py)?;
    let scan = S::open_scan(held.get(py)?, range).raise(py)?;
    Ok(Scan::new(held.process(), Pull::Scan(scan), yields))
}

impl Scan {
    pub(crate) fn new(process: &'static Process, scan: Pull, yields: Yields) -> Self {
        let refill_rows = match scan.rows_left() {
            u64::MAX => FIRST_ROWS,
            limit => (limit as usize).clamp(FIRST_ROWS, ROWS_WITH_LOCK),
        };
        let rows =
            Rows::with_capacity(refill_rows, refill_rows * KEY_ROOM, refill_rows * VALUE_ROOM);
        let deleted = Vec::new();
        let scan = Some(Held::new(process, scan));
        let state = State { scan, rows, deleted, next: 0, refill_rows };
        Scan { yields, state: Mutex::new(state) }
    }

    fn lock(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, State>> {
        self.state
            .try_lock()
            .ok_or_else(|| error::invalid(py, "a scan is used by one thread at a time"))
    }

    fn stream(&self, py: Python<'_>, batch_rows: usize) -> PyResult<ArrowStream> {
        let mut state = self.lock(py)?;
        if state.next < state.rows.len() {
            let text = "rows of this scan were iterated already; begin another scan for Arrow";
            return Err(error::invalid(py, text));
        }
        Ok(ArrowStream::new(state.scan.take(), batch_rows))
    }
}

impl State {
    /// Makes sure that a row stands at `next`; `false` at the end.
    fn refill(&mut self, py: Python<'_>) -> PyResult<bool> {
        if self.next < self.rows.len() {
            return Ok(true);
        }
        // Loops in C never look for signals between two rows.
        py.check_signals()?;
        let refilled = self.read(py);
        if !matches!(refilled, Ok(true)) {
            self.scan = None;
        }
        refilled
    }

    fn read(&mut self, py: Python<'_>) -> PyResult<bool> {
        let Some(held) = &mut self.scan else { return Ok(false) };
        let process = held.process();
        let scan = held.get_mut(py)?;
        let (rows, wanted) = (&mut self.rows, self.refill_rows);
        rows.clear();
        self.next = 0;
        self.refill_rows = (wanted * 2).min(MAX_ROWS);
        loop {
            let filled = if wanted <= ROWS_WITH_LOCK {
                scan.fill(rows, wanted, MAX_BYTES)
            } else {
                py.detach(|| scan.fill(rows, wanted, MAX_BYTES))
            };
            // Rows that are there are given before more is waited for.
            match filled.raise(py)? {
                Fill::NeedsBlocks if rows.is_empty() => wait(py, process, scan.fetch())?,
                Fill::NeedsBlocks | Fill::Full | Fill::End => {
                    self.deleted = scan.take_deleted();
                    return Ok(!rows.is_empty());
                }
            }
        }
    }

    fn row<'py>(&self, py: Python<'py>, yields: Yields) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some((key, value)) = self.rows.row(self.next) else { return Ok(None) };
        let gone = self.deleted.get(self.next).is_some_and(|deleted| *deleted);
        Ok(Some(match yields {
            Yields::Items if gone => {
                (PyBytes::new(py, key), py.None()).into_pyobject(py)?.into_any()
            }
            Yields::Keys => PyBytes::new(py, key).into_any(),
            Yields::Values => PyBytes::new(py, value).into_any(),
            Yields::Items => {
                (PyBytes::new(py, key), PyBytes::new(py, value)).into_pyobject(py)?.into_any()
            }
        }))
    }
}

#[pymethods]
impl Scan {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut state = self.lock(py)?;
        if !state.refill(py)? {
            return Ok(None);
        }
        let row = state.row(py, self.yields)?;
        state.next += 1;
        Ok(row)
    }

    /// The rows as a stream of Arrow record batches with the columns `key` and `value`.
    #[pyo3(signature = (batch_rows=None))]
    pub(crate) fn to_arrow(
        &self,
        py: Python<'_>,
        batch_rows: Option<Bound<'_, PyAny>>,
    ) -> PyResult<ArrowStream> {
        let rows = match batch_rows {
            Some(rows) => count(&rows, "batch_rows", 1)?,
            None => DEFAULT_BATCH_ROWS,
        };
        self.stream(py, usize::try_from(rows).unwrap_or(usize::MAX))
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        self.to_arrow(py, None)?.capsule(py, requested_schema)
    }

    /// Lets go of what the scan pins; iterating after it ends at once.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let mut state = self.lock(py)?;
        state.scan = None;
        state.rows = Rows::new();
        state.next = 0;
        Ok(())
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
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

    /// `Scan[bytes]` in annotations.
    #[classmethod]
    fn __class_getitem__<'py>(
        class: &Bound<'py, PyType>,
        _item: &Bound<'py, PyAny>,
    ) -> Bound<'py, PyType> {
        class.clone()
    }

    fn __repr__(&self) -> String {
        let yields = match self.yields {
            Yields::Items => "keys and values",
            Yields::Keys => "keys",
            Yields::Values => "values",
        };
        format!("<siltstone.Scan of {yields}>")
    }
}
