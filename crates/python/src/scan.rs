//! `Scan`: a one-shot iteration over a range, refilled in batches of growing size.

use crate::bytes::{BytesArg, to_python};
use crate::error::{self, Raise};
use crate::held::Held;
use crate::process::Process;
use crate::range::count;
use crate::reached::ScanPosition;
use crate::shown;
use crate::source::Source;
use crate::stream::{ArrowStream, DEFAULT_BATCH_ROWS, row_field};
use crate::wait::wait;
use futures::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyType};
use pyo3_arrow::ffi::to_schema_pycapsule;
use siltstone::tables::Merged;
use siltstone::{Answer, Error, FillOutcome, Result, Rows, ScanRange};
use std::collections::VecDeque;

/// Rows of the first refill, unless a higher limit is given: most interactive scans are short.
const FIRST_ROWS: usize = 16;
/// Maximum rows of a refill: enough to make the cost of a refill per row negligible.
const MAX_ROWS: usize = 1024;
/// Maximum bytes of a refill.
const MAX_BYTES: usize = 1 << 20;
/// Refills up to this many rows keep the interpreter lock.
const ROWS_WITH_LOCK: usize = 64;

/// The error text for `seek` on a scan with a limit. Rows read ahead count towards the limit, and
/// once its last rows are buffered the scan has released its source.
pub(crate) const NO_SEEK: &str =
    "a scan with a limit cannot seek: begin one without, and take as many rows as are wanted";

/// The items that a scan yields.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScanItems {
    Items,
    Keys,
    Values,
}

impl ScanItems {
    /// The name for error texts.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ScanItems::Items => "keys and values",
            ScanItems::Keys => "keys",
            ScanItems::Values => "values",
        }
    }
}

/// The source of the rows.
#[expect(clippy::large_enum_variant, reason = "nearly all are scans, and each row asks one")]
pub(crate) enum Pull {
    /// A scan of a database or a part.
    Scan(siltstone::Scan),
    /// A merge of parts.
    Merged(Box<Merged>),
}

impl Pull {
    /// The maximum number of rows that it gives; 2^64 - 1 if there is no limit.
    fn rows_left(&self) -> u64 {
        match self {
            Pull::Scan(scan) => scan.rows_left(),
            Pull::Merged(merged) => merged.rows_left(),
        }
    }

    /// Whether reads are recorded for the conflict check of a transaction: then little is read
    /// ahead.
    fn is_noted(&self) -> bool {
        matches!(self, Pull::Scan(scan) if scan.is_noted())
    }

    /// Appends rows that are in memory.
    pub(crate) fn fill(
        &mut self,
        rows: &mut Rows,
        max_rows: usize,
        max_bytes: usize,
    ) -> Result<FillOutcome> {
        match self {
            Pull::Scan(scan) => scan.fill(rows, max_rows, max_bytes),
            Pull::Merged(merged) => merged.fill(rows, max_rows, max_bytes),
        }
    }

    /// Fetches the blocks that the last fill needed.
    pub(crate) fn fetch(&mut self) -> BoxFuture<'_, Result<()>> {
        match self {
            Pull::Scan(scan) => scan.fetch(),
            Pull::Merged(merged) => merged.fetch(),
        }
    }

    /// For each row filled since the last call, whether it has no value. Empty if every row has
    /// one.
    pub(crate) fn take_deleted(&mut self) -> Vec<bool> {
        match self {
            Pull::Scan(_) => Vec::new(),
            Pull::Merged(merged) => merged.take_deleted(),
        }
    }
}

/// An iterator that can be used once, over the state at the time of its creation. Use it in one
/// thread at a time.
#[pyclass(frozen, module = "siltstone")]
pub(crate) struct Scan {
    yields: ScanItems,
    state: Mutex<ScanState>,
}

/// Why a scan has no rows left.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ScanEnd {
    /// They were iterated.
    Iterated,
    /// They were handed to Arrow.
    Arrow,
    /// It was closed.
    Closed,
}

impl ScanEnd {
    /// The error for Arrow data of a scan that has ended. The caller would take the missing rows
    /// for an empty range.
    #[cold]
    fn refused(self, py: Python<'_>) -> PyErr {
        let was = match self {
            ScanEnd::Iterated => "was iterated to its end",
            ScanEnd::Arrow => "was read as Arrow data",
            ScanEnd::Closed => "was closed",
        };
        error::invalid(py, format!("this scan {was}, and a scan is read once: begin another scan"))
    }
}

struct ScanState {
    /// `None` once the scan is over: exhausted, closed, or handed to Arrow.
    scan: Option<Held<Pull>>,
    /// The range, once the scan is over.
    was: Option<ScanRange>,
    /// The next rows as Python objects: a short refill makes the objects directly from the blocks.
    made: VecDeque<Py<PyAny>>,
    /// The rows after `made`. Long refills fill columns without the interpreter lock; `None` until
    /// the first such refill.
    rows: Option<Box<Rows>>,
    /// Which of `rows` have no value; empty if all have one.
    deleted: Vec<bool>,
    next: usize,
    refill_rows: usize,
    reached: ScanPosition,
    /// Whether the scan has a limit.
    limited: bool,
    /// Whether a row was iterated. An empty range stays one however often it is read.
    gave_rows: bool,
    /// Set by the first use after which the scan has no rows left.
    ended: Option<ScanEnd>,
}

/// Begins a scan of `source`.
pub(crate) fn open<S: Source>(
    py: Python<'_>,
    source: &S,
    range: ScanRange,
    yields: ScanItems,
) -> PyResult<Scan> {
    let held = source.held(py)?;
    if let Answer::Pending(looks) = S::fresh(held.get(py)?).raise(py)? {
        wait(py, held.process(), looks)?;
    }
    let scan = S::open_fresh_scan(held.get(py)?, range).raise(py)?;
    Ok(Scan::new(held.process(), Pull::Scan(scan), yields))
}

impl Scan {
    pub(crate) fn new(process: &'static Process, scan: Pull, yields: ScanItems) -> Self {
        let reverse = matches!(&scan, Pull::Scan(scan) if scan.range().reverse);
        let reached = ScanPosition::new(reverse);
        let limited = scan.rows_left() != u64::MAX;
        let refill_rows = match scan.rows_left() {
            _ if scan.is_noted() => 1,
            u64::MAX => FIRST_ROWS,
            limit => (limit as usize).clamp(FIRST_ROWS, ROWS_WITH_LOCK),
        };
        let scan = Some(Held::new(process, scan));
        let (made, rows, deleted) = (VecDeque::new(), None, Vec::new());
        let state = ScanState {
            scan,
            was: None,
            made,
            rows,
            deleted,
            next: 0,
            refill_rows,
            reached,
            limited,
            gave_rows: false,
            ended: None,
        };
        Scan { yields, state: Mutex::new(state) }
    }

    /// Every row asks, so only the refusal is a call.
    #[inline]
    fn lock(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, ScanState>> {
        self.state.try_lock().ok_or_else(|| in_use(py))
    }

    fn stream(&self, py: Python<'_>, batch_rows: usize) -> PyResult<ArrowStream> {
        let mut state = self.lock(py)?;
        if state.has_rows() {
            let text = "rows of this scan were iterated already; begin another scan for Arrow";
            return Err(error::invalid(py, text));
        }
        if let Some(end) = state.ended {
            return Err(end.refused(py));
        }
        state.ended = Some(ScanEnd::Arrow);
        if let Some(Pull::Scan(scan)) = state.scan.as_ref().and_then(Held::peek) {
            state.was = Some(scan.range().clone());
        }
        Ok(ArrowStream::new(state.scan.take(), batch_rows))
    }
}

#[cold]
fn in_use(py: Python<'_>) -> PyErr {
    error::invalid(py, "a scan is used by one thread at a time")
}

impl ScanState {
    /// Releases the source.
    fn let_go(&mut self) {
        if let Some(mut held) = self.scan.take()
            && let Some(Pull::Scan(scan)) = held.take()
        {
            self.was = Some(scan.into_range());
        }
    }

    /// The range in words.
    fn range(&self) -> String {
        match (self.scan.as_ref().and_then(Held::peek), &self.was) {
            (Some(Pull::Scan(scan)), _) => shown::range(scan.range()),
            (_, Some(range)) => shown::range(range),
            _ => "a merge".to_owned(),
        }
    }

    /// Releases the source and the buffered rows.
    fn end(&mut self) {
        self.let_go();
        self.made = VecDeque::new();
        self.rows = None;
        self.next = 0;
    }

    /// Whether a row is buffered.
    fn has_rows(&self) -> bool {
        !self.made.is_empty() || self.rows.as_ref().is_some_and(|rows| self.next < rows.len())
    }

    /// Makes sure that a row is buffered; `false` at the end.
    fn refill(&mut self, py: Python<'_>, yields: ScanItems) -> PyResult<bool> {
        if self.has_rows() {
            return Ok(true);
        }
        // A loop in C, such as `list(scan)`, never checks for signals between two rows.
        py.check_signals()?;
        let refilled = self.read(py, yields);
        // After an error the next call continues, or returns the same error: a caller that asked
        // again must not take the rows so far for all.
        if matches!(refilled, Ok(false)) {
            self.end();
        }
        refilled
    }

    fn read(&mut self, py: Python<'_>, yields: ScanItems) -> PyResult<bool> {
        let Some(held) = &mut self.scan else { return Ok(false) };
        let process = held.process();
        let pull = held.get_mut(py)?;
        let (made, wanted) = (&mut self.made, self.refill_rows);
        // Rows that a seek has passed: a short refill goes to `made`, and they would come after it.
        if let Some(rows) = &mut self.rows {
            rows.clear();
        }
        self.next = 0;
        self.refill_rows = (wanted * 2).min(MAX_ROWS);
        // A scan that has paused may pass millions of entries. Threads that wait for the lock get
        // it only if it is released for longer than they take to wake.
        let mut keeps_lock = wanted <= ROWS_WITH_LOCK;
        let filled = loop {
            let (filled, none) = match pull {
                Pull::Scan(scan) if keeps_lock => {
                    let reached = &mut self.reached;
                    (make(py, scan, made, (wanted, yields), reached), made.is_empty())
                }
                Pull::Scan(_) | Pull::Merged(_) => {
                    let rows = self.rows.get_or_insert_default();
                    rows.clear();
                    let filled = py.detach(|| pull.fill(rows, wanted, MAX_BYTES)).raise(py);
                    (filled, rows.is_empty())
                }
            };
            // Buffered rows are returned before waiting for blocks, and before an error, which the
            // next fill returns again.
            match filled {
                Ok(FillOutcome::NeedsBlocks) if none => {
                    keeps_lock = false;
                    wait(py, process, pull.fetch())?;
                    // Nothing is fetched after many entries without a row, and nothing waits.
                    py.check_signals()?;
                }
                Err(error) if none => return Err(error),
                Err(_) => break FillOutcome::Full,
                Ok(filled) => break filled,
            }
        };
        self.deleted = pull.take_deleted();
        match (self.made.back(), &self.rows) {
            (Some(last), _) => self.reached.come_to_made(last.bind(py), yields),
            (None, Some(rows)) => self.reached.come_to_row(rows),
            (None, None) => {}
        }
        if filled == FillOutcome::End {
            // The source is released; the buffered rows are copies.
            self.let_go();
        }
        Ok(self.has_rows())
    }

    /// Skips the rows before `key`.
    fn seek(&mut self, py: Python<'_>, yields: ScanItems, key: &[u8]) -> PyResult<()> {
        if self.limited {
            return Err(error::invalid(py, NO_SEEK));
        }
        loop {
            self.pass(py, yields, key);
            if self.has_rows() || !self.reached.has_not_reached(key) {
                return Ok(());
            }
            let Some(held) = &mut self.scan else { return Ok(()) };
            if let Pull::Scan(scan) = held.get_mut(py)? {
                scan.seek(key);
                // A caller that seeks is likely to seek again, so the next refill is short.
                self.refill_rows = FIRST_ROWS;
                return Ok(());
            }
            // The inputs of a merge can only be read forward.
            if !self.refill(py, yields)? {
                return Ok(());
            }
        }
    }

    /// Skips the buffered rows before `key`.
    fn pass(&mut self, py: Python<'_>, yields: ScanItems, key: &[u8]) {
        let (reached, made) = (&self.reached, &self.made);
        let passed = made.iter().enumerate().take_while(|(at, row)| {
            let row = reached.key_of(row.bind(py), yields, made.len() - at - 1);
            row.is_some_and(|row| reached.is_before(row, key))
        });
        let passed = passed.count();
        self.made.drain(..passed);
        let Some(rows) = &self.rows else { return };
        while rows.row(self.next).is_some_and(|(row, _)| self.reached.is_before(row, key)) {
            self.next += 1;
        }
    }

    /// Takes the next buffered row.
    fn take<'py>(
        &mut self,
        py: Python<'py>,
        yields: ScanItems,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        if let Some(made) = self.made.pop_front() {
            return Ok(Some(made.into_bound(py)));
        }
        let row = self.rows.as_ref().and_then(|rows| rows.row(self.next));
        let Some((key, value)) = row else { return Ok(None) };
        let gone = self.deleted.get(self.next).is_some_and(|deleted| *deleted);
        self.next += 1;
        object(py, key, (!gone).then_some(value), yields).map(Some)
    }
}

/// Makes the objects of the next `wanted` rows, up to [`MAX_BYTES`], from rows that are in memory.
fn make(
    py: Python<'_>,
    scan: &mut siltstone::Scan,
    made: &mut VecDeque<Py<PyAny>>,
    (wanted, yields): (usize, ScanItems),
    reached: &mut ScanPosition,
) -> PyResult<FillOutcome> {
    let (mut bytes, mut failed) = (0, None);
    made.reserve(wanted);
    reached.forget_keys();
    let filled = scan.each(|key, value| match object(py, key, Some(value), yields) {
        Ok(object) => {
            made.push_back(object.unbind());
            if yields == ScanItems::Values {
                reached.note_key(key);
            }
            bytes += key.len() + value.len();
            Ok(made.len() < wanted && bytes < MAX_BYTES)
        }
        Err(error) => {
            failed = Some(error);
            // The row is lost, so the scan must not go on.
            Err(Error::internal("the Python object for a row of this scan could not be made"))
        }
    });
    match failed {
        Some(error) => Err(error),
        None => filled.raise(py),
    }
}

/// The Python object for a row; the value is `None` if the row has none.
fn object<'py>(
    py: Python<'py>,
    key: &[u8],
    value: Option<&[u8]>,
    yields: ScanItems,
) -> PyResult<Bound<'py, PyAny>> {
    Ok(match (yields, value) {
        (ScanItems::Items, None) => (to_python(py, key)?, py.None()).into_pyobject(py)?.into_any(),
        (ScanItems::Items, Some(value)) => {
            (to_python(py, key)?, to_python(py, value)?).into_pyobject(py)?.into_any()
        }
        (ScanItems::Keys, _) => to_python(py, key)?.into_any(),
        (ScanItems::Values, value) => to_python(py, value.unwrap_or_default())?.into_any(),
    })
}

#[pymethods]
impl Scan {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut state = self.lock(py)?;
        if let Some(made) = state.made.pop_front() {
            return Ok(Some(made.into_bound(py)));
        }
        if !state.refill(py, self.yields)? {
            // An iterator that has ended stays at its end.
            let iterated = state.gave_rows.then_some(ScanEnd::Iterated);
            state.ended = state.ended.or(iterated);
            return Ok(None);
        }
        state.gave_rows = true;
        state.take(py, self.yields)
    }

    /// Skips the rows before `key` in the direction of the scan: the next row is the first
    /// remaining row at or after it. A scan never goes back: a key that it has passed has no
    /// effect, and a key beyond its range ends the scan. Skipped rows are not read, except those
    /// that were read ahead.
    ///
    /// :raises Invalid: if the scan has a limit.
    fn seek(&self, py: Python<'_>, key: BytesArg<'_>) -> PyResult<()> {
        self.lock(py)?.seek(py, self.yields, key.as_ref())
    }

    /// Returns the remaining rows as Arrow record batches with the columns `key` and `value`.
    ///
    /// :param batch_rows: maximum number of rows in a batch, 65,536 by default. A batch also ends
    ///     at 64 MiB.
    /// :raises Invalid: if rows were read but not yet iterated, if the scan was iterated to its
    ///     end, read as Arrow data or closed, or if `batch_rows` is below 1.
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

    /// Lets a library look at the columns, as duckdb does, without reading the scan.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        Ok(to_schema_pycapsule(py, row_field().as_ref())?)
    }

    /// Releases the data that the scan keeps. The scan yields no more rows.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let mut state = self.lock(py)?;
        state.end();
        state.ended = Some(ScanEnd::Closed);
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

    /// Supports `Scan[bytes]` in annotations.
    #[classmethod]
    fn __class_getitem__<'py>(
        class: &Bound<'py, PyType>,
        _item: &Bound<'py, PyAny>,
    ) -> Bound<'py, PyType> {
        class.clone()
    }

    fn __repr__(&self) -> String {
        let yields = self.yields.name();
        let Some(state) = self.state.try_lock() else {
            return format!("<siltstone.Scan of {yields}, in use>");
        };
        let over = state.scan.is_none() && !state.has_rows();
        let closed = if over { ", closed" } else { "" };
        format!("<siltstone.Scan of {yields}, {}{closed}>", state.range())
    }
}
