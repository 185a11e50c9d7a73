//! `ArrowStream`: a scan as a stream of Arrow record batches. The columns filled by a scan have
//! Arrow's layout, so their buffers move into arrays without a copy.

use crate::error;
use crate::held::Held;
use crate::parts::{self, BatchSize, PART_BYTES, Parts, RowWait};
use crate::process::Process;
use crate::scan::Pull;
use crate::wait::{PacedSignals, PollOutcome, SIGNAL_INTERVAL, poll_for};
use arrow_array::{ArrayRef, BinaryArray, StructArray};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields};
use parking_lot::Mutex;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use pyo3_arrow::ffi::{ArrayIterator, to_schema_pycapsule, to_stream_pycapsule};
use siltstone::{Column, FillOutcome, Rows};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::thread::ThreadId;

/// Default rows of a record batch.
pub(crate) const DEFAULT_BATCH_ROWS: u64 = 65_536;
/// Bytes at which a record batch ends: far below the 2 GiB reachable by 32-bit offsets, and small
/// enough to keep several batches in memory.
pub(crate) const BATCH_BYTES: usize = 64 << 20;

/// The rows of a scan as a stream of Arrow record batches. It can be read once, by any library
/// with the Arrow PyCapsule interface: pyarrow, polars, duckdb, pandas, arro3.
#[pyclass(frozen, module = "siltstone")]
pub(crate) struct ArrowStream {
    batches: Mutex<Option<Batches>>,
}

impl ArrowStream {
    /// A stream of the remaining rows of `scan`; an empty stream for `None`.
    pub(crate) fn new(scan: Option<Held<Pull>>, batch_rows: usize) -> Self {
        let maker = std::thread::current().id();
        let input = scan.map(Input::Whole);
        let batches = Batches { input, batch_rows, size: BatchSize::default(), maker };
        ArrowStream { batches: Mutex::new(Some(batches)) }
    }

    /// Takes the batches, for conversion to other batches. They can be taken once.
    pub(crate) fn take(
        &self,
        py: Python<'_>,
    ) -> PyResult<impl Iterator<Item = Result<ArrayRef, ArrowError>> + Send + use<>> {
        let batches = self.batches.lock().take();
        batches.ok_or_else(|| error::invalid(py, "an Arrow stream of a scan can be read once"))
    }

    /// Takes the capsule of the stream. It can be taken once.
    pub(crate) fn capsule<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let reader = Box::new(ArrayIterator::new(self.take(py)?, row_field()));
        Ok(to_stream_pycapsule(py, reader, requested_schema)?)
    }
}

#[pymethods]
impl ArrowStream {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        self.capsule(py, requested_schema)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        Ok(to_schema_pycapsule(py, row_field().as_ref())?)
    }

    fn __repr__(&self) -> &'static str {
        "<siltstone.ArrowStream key: binary, value: binary>"
    }
}

fn row_fields() -> Fields {
    let column = |name| Field::new(name, DataType::Binary, true);
    Fields::from(vec![column("key"), column("value")])
}

/// A record batch crosses the interface as an array of structs.
pub(crate) fn row_field() -> FieldRef {
    Arc::new(Field::new("", DataType::Struct(row_fields()), false))
}

/// The scan as record batches. A foreign library pulls them, on any thread, with or without the
/// interpreter lock.
struct Batches {
    /// `None` once the stream is over.
    input: Option<Input>,
    batch_rows: usize,
    size: BatchSize,
    /// The thread that created the stream. Only on this thread is it certain that acquiring the
    /// interpreter lock does not wait for a thread that waits for this one.
    maker: ThreadId,
}

/// The source of the rows.
enum Input {
    /// A scan that was not read yet.
    Whole(Held<Pull>),
    /// A short scan or a merge, read on this thread.
    Here(Held<Pull>),
    /// A long scan, read by several threads.
    Threads(Held<Parts>),
}

/// Rows, and which of them have no value; empty if all have one.
type Batch = (Rows, Vec<bool>);

impl Batches {
    /// The next batch; `None` at the end.
    fn fill(&mut self) -> Result<Option<Batch>, ArrowError> {
        check_signals(self.maker)?;
        if let Some(Input::Whole(_)) = &self.input
            && let Some(Input::Whole(scan)) = self.input.take()
        {
            self.input = Some(self.begin(scan)?);
        }
        match &mut self.input {
            Some(Input::Here(scan)) => fill_here(scan, self.batch_rows, &mut self.size, self.maker),
            Some(Input::Threads(parts)) => {
                let parts = parts.peek_mut().ok_or_else(forked)?;
                loop {
                    match parts.next().map_err(external)? {
                        RowWait::Rows(rows) => return Ok(Some((rows, Vec::new()))),
                        RowWait::End => return Ok(None),
                        RowWait::Later => check_signals(self.maker)?,
                    }
                }
            }
            Some(Input::Whole(_)) | None => Ok(None),
        }
    }

    /// Decides how to read the scan: a long one is read in parts by several threads.
    fn begin(&self, mut scan: Held<Pull>) -> Result<Input, ArrowError> {
        let process = scan.process();
        if parts::threads() == 1 {
            return Ok(Input::Here(scan));
        }
        let scan = match scan.take().ok_or_else(forked)? {
            Pull::Scan(scan) => scan,
            merged @ Pull::Merged(_) => return Ok(Input::Here(Held::new(process, merged))),
        };
        let rows = scan.rows_left();
        let mut cutting = pin!(scan.partition(PART_BYTES));
        let mut parts = wait_here(process, cutting.as_mut(), self.maker)?;
        Ok(match parts.pop() {
            Some(only) if parts.is_empty() => Input::Here(Held::new(process, Pull::Scan(only))),
            last => {
                parts.extend(last);
                let parts =
                    Parts::start(process, parts, rows, self.batch_rows).map_err(external)?;
                Input::Threads(Held::new(process, parts))
            }
        })
    }
}

/// The next batch of a scan that is read on this thread.
fn fill_here(
    held: &mut Held<Pull>,
    batch_rows: usize,
    size: &mut BatchSize,
    maker: ThreadId,
) -> Result<Option<Batch>, ArrowError> {
    let process = held.process();
    let scan = held.peek_mut().ok_or_else(forked)?;
    let (mut rows, mut signals) = (size.empty_rows(), PacedSignals::new());
    loop {
        match scan.fill(&mut rows, batch_rows, BATCH_BYTES).map_err(external)? {
            FillOutcome::Full | FillOutcome::End => break,
            FillOutcome::NeedsBlocks => wait_here(process, scan.fetch().as_mut(), maker)?,
        }
        // Nothing is fetched after many entries without a row, and nothing waits.
        if signals.is_due() {
            check_signals(maker)?;
        }
    }
    size.note(&rows);
    let deleted = scan.take_deleted();
    Ok((!rows.is_empty()).then_some((rows, deleted)))
}

/// Waits on this thread, which may or may not hold the interpreter lock.
fn wait_here<T>(
    process: &'static Process,
    mut work: Pin<&mut (impl Future<Output = siltstone::Result<T>> + ?Sized)>,
    maker: ThreadId,
) -> Result<T, ArrowError> {
    loop {
        match poll_for(process, work.as_mut(), SIGNAL_INTERVAL) {
            PollOutcome::Done(done) => return done.map_err(external),
            PollOutcome::Later => check_signals(maker)?,
            PollOutcome::Over => return Err(refused("the interpreter is exiting")),
        }
    }
}

impl Iterator for Batches {
    type Item = Result<ArrayRef, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let filled = self.fill().transpose();
        if !matches!(filled, Some(Ok(_))) {
            self.input = None;
        }
        filled.map(|batch| batch.and_then(into_array))
    }
}

fn forked() -> ArrowError {
    refused("this scan was opened before a fork, in the parent process")
}

/// Moves rows into an array of structs.
pub(crate) fn into_array((rows, deleted): Batch) -> Result<ArrayRef, ArrowError> {
    let keys = into_binary(rows.keys, None)?;
    let any_deleted = deleted.contains(&true);
    let valid = any_deleted.then(|| deleted.iter().map(|deleted| !deleted).collect());
    let values = into_binary(rows.values, valid)?;
    Ok(Arc::new(StructArray::try_new(row_fields(), vec![keys, values], None)?))
}

/// Moves the buffers of a column into an array.
fn into_binary(column: Column, valid: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
    let offsets = OffsetBuffer::new(ScalarBuffer::from(column.offsets));
    Ok(Arc::new(BinaryArray::try_new(offsets, Buffer::from_vec(column.bytes), valid)?))
}

fn external(error: siltstone::Error) -> ArrowError {
    ArrowError::ExternalError(Box::new(error))
}

fn refused(text: &'static str) -> ArrowError {
    ArrowError::ExternalError(text.into())
}

/// An error if a signal handler has raised. The exception cannot pass through the foreign library;
/// for Ctrl-C the interpreter is asked to raise it again afterwards.
fn check_signals(maker: ThreadId) -> Result<(), ArrowError> {
    if std::thread::current().id() != maker {
        return Ok(());
    }
    Python::attach(|py| {
        let Err(interrupt) = py.check_signals() else { return Ok(()) };
        let text = interrupt.to_string();
        if interrupt.is_instance_of::<PyKeyboardInterrupt>(py) {
            drop(interrupt);
            let again = py.import("_thread").and_then(|module| module.getattr("interrupt_main"));
            let again = again.and_then(|interrupt_main| interrupt_main.call0());
            again.map_err(|error| ArrowError::ExternalError(Box::new(error)))?;
        }
        Err(ArrowError::ExternalError(text.into()))
    })
}
