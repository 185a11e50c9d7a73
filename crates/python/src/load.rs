//! `load`: bulk load of Arrow data into a database, or into a part of an ingest job.

use crate::argument::{flag, text};
use crate::checkpoint::place;
use crate::column::{check_type, needs_columns, null};
use crate::database::Database;
use crate::duration::size;
use crate::error;
use crate::frames::{as_bytes, batches_of, chunks_of, ended, is_arrow};
use crate::ingest::{PlainJob, job_of};
use crate::lsm::target;
use crate::lsm::writer;
use crate::process::Process;
use crate::table::{TableBatches, TableStream};
use crate::wait::{PacedSignals, wait, wait_watched};
use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, FixedSizeBinaryArray, LargeBinaryArray,
    RecordBatch, RecordBatchReader,
};
use arrow_schema::{ArrowError, DataType};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyIterator, PyTuple};
use siltstone::tables::{LEAST_LOAD_BYTES, LoadOptions, LoadPhases, Loader, PartOptions, RowBatch};
use std::sync::Arc;
use std::time::Duration;

/// Default memory of a load.
const DEFAULT_MEMORY_BYTES: u64 = 1 << 30;
/// Bytes of rows at which a table ends and the next one begins.
const TABLE_BYTES: u64 = 64 << 20;
/// Maximum rows and bytes of a piece: signals are checked between two pieces.
const PIECE_ROWS: usize = 1 << 16;
const PIECE_BYTES: usize = 8 << 20;

/// A column of byte strings, read in place.
enum Cells {
    Binary(BinaryArray),
    Large(LargeBinaryArray),
    Fixed(FixedSizeBinaryArray),
    View(BinaryViewArray),
}

impl Cells {
    /// The type was checked before; a column of any other type has no rows.
    fn of(array: &ArrayRef) -> Cells {
        match array.data_type() {
            DataType::LargeBinary => Cells::Large(array.as_binary::<i64>().clone()),
            DataType::FixedSizeBinary(_) => Cells::Fixed(array.as_fixed_size_binary().clone()),
            DataType::BinaryView => Cells::View(array.as_binary_view().clone()),
            DataType::Utf8 => Cells::Binary(array.as_string::<i32>().clone().into()),
            DataType::LargeUtf8 => Cells::Large(array.as_string::<i64>().clone().into()),
            DataType::Utf8View => Cells::View(array.as_string_view().clone().to_binary_view()),
            _ => Cells::Binary(array.as_binary::<i32>().clone()),
        }
    }

    fn get(&self, row: usize) -> &[u8] {
        match self {
            Cells::Binary(array) => array.value(row),
            Cells::Large(array) => array.value(row),
            Cells::Fixed(array) => array.value(row),
            Cells::View(array) => array.value(row),
        }
    }

    fn bytes(&self) -> usize {
        let span = |first: Option<i64>, last: Option<i64>| {
            usize::try_from(last.unwrap_or(0) - first.unwrap_or(0)).unwrap_or(0)
        };
        match self {
            Cells::Binary(array) => {
                let offsets = array.value_offsets();
                span(offsets.first().map(|at| (*at).into()), offsets.last().map(|at| (*at).into()))
            }
            Cells::Large(array) => {
                let offsets = array.value_offsets();
                span(offsets.first().copied(), offsets.last().copied())
            }
            Cells::Fixed(array) => usize::try_from(array.value_length()).unwrap_or(0) * array.len(),
            Cells::View(array) => array.lengths().map(|length| length as usize).sum(),
        }
    }
}

/// Rows of two columns.
struct ArrowRows {
    keys: Cells,
    values: Cells,
    rows: usize,
    bytes: usize,
}

impl RowBatch for ArrowRows {
    fn rows(&self) -> usize {
        self.rows
    }

    fn row(&self, row: usize) -> (&[u8], &[u8]) {
        (self.keys.get(row), self.values.get(row))
    }

    fn key(&self, row: usize) -> &[u8] {
        self.keys.get(row)
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The columns `key` and `value` of some rows.
type Columns = (ArrayRef, ArrayRef);

/// The source of the rows.
enum IncomingRows<'py> {
    /// One stream.
    Stream(Box<dyn RecordBatchReader + Send>),
    /// Rows of a table, encoded.
    Own(TableBatches),
    /// An iterable of batches, tables, or pairs of columns, and its current item.
    Items(Bound<'py, PyIterator>, Item),
}

/// The current item of an iterable.
enum Item {
    Stream(Box<dyn RecordBatchReader + Send>),
    /// Encoded rows of a table.
    Own(TableBatches),
    /// The remaining parts of a pair, in reverse order.
    Pair(Vec<Columns>),
}

fn reader(data: &Bound<'_, PyAny>) -> PyResult<Box<dyn RecordBatchReader + Send>> {
    let reader = batches_of(data)?;
    needs_columns(data.py(), &reader.schema())?;
    Ok(reader)
}

/// The next batch. The interpreter lock is released meanwhile, because the producer may take long.
fn next_batch(
    py: Python<'_>,
    reader: &mut (dyn RecordBatchReader + Send),
) -> PyResult<Option<Columns>> {
    let columns = |batch: RecordBatch| {
        let missing = || ArrowError::SchemaError("a batch has other columns".to_owned());
        let column = |name| {
            let bytes = as_bytes(batch.column_by_name(name).ok_or_else(missing)?);
            let named = |error: siltstone::Error| error.with("column", name);
            bytes.map_err(|error| ArrowError::ExternalError(Box::new(named(error))))
        };
        Ok((column("key")?, column("value")?))
    };
    let next = py.detach(|| reader.next().map(|batch| batch.and_then(columns)));
    next.transpose().map_err(|error| ended(py, error))
}

/// As [`next_batch`], for encoded rows of a table.
fn next_encoded(py: Python<'_>, batches: &mut TableBatches) -> PyResult<Option<Columns>> {
    let next = py.detach(|| batches.next().transpose()).map_err(|error| ended(py, error))?;
    let Some(rows) = next else { return Ok(None) };
    match rows.as_struct().columns() {
        [keys, values] => Ok(Some((Arc::clone(keys), Arc::clone(values)))),
        _ => {
            let text = "rows of a table are no keys and values";
            Err(error::exception(py, &siltstone::Error::internal(text)))
        }
    }
}

impl<'py> IncomingRows<'py> {
    /// # Errors
    /// TypeError if `data` is neither Arrow data nor iterable; Invalid for missing columns.
    fn of(data: &Bound<'py, PyAny>) -> PyResult<IncomingRows<'py>> {
        if let Some(own) = TableStream::encoded(data) {
            return Ok(IncomingRows::Own(own?));
        }
        if is_arrow(data)? {
            return Ok(IncomingRows::Stream(reader(data)?));
        }
        if data.is_instance_of::<PyDict>()
            || !(data.hasattr(intern!(data.py(), "__iter__"))?
                || data.hasattr(intern!(data.py(), "__getitem__"))?)
        {
            return Err(not_rows(data));
        }
        // An exception of the data's own `__iter__` is the caller's.
        let items = data.try_iter()?;
        Ok(IncomingRows::Items(items, Item::Pair(Vec::new())))
    }

    fn next(&mut self, py: Python<'py>) -> PyResult<Option<Columns>> {
        let (items, open) = match self {
            IncomingRows::Stream(reader) => return next_batch(py, &mut **reader),
            IncomingRows::Own(batches) => return next_encoded(py, batches),
            IncomingRows::Items(items, open) => (items, open),
        };
        loop {
            let columns = match open {
                Item::Stream(reader) => next_batch(py, &mut **reader)?,
                Item::Own(batches) => next_encoded(py, batches)?,
                Item::Pair(parts) => parts.pop(),
            };
            if columns.is_some() {
                return Ok(columns);
            }
            let Some(item) = items.next().transpose()? else { return Ok(None) };
            if let Some(own) = TableStream::encoded(&item) {
                *open = Item::Own(own?);
                continue;
            }
            *open = match item.cast::<PyTuple>() {
                Ok(pair) => Item::Pair(parts_of(pair)?),
                Err(_) if is_arrow(&item)? => Item::Stream(reader(&item)?),
                Err(_) => return Err(not_rows(&item)),
            };
        }
    }
}

/// Two Arrow arrays, split at the chunk boundaries of both, in reverse order.
///
/// # Errors
/// TypeError for other types; Invalid if the lengths differ.
fn parts_of(pair: &Bound<'_, PyTuple>) -> PyResult<Vec<Columns>> {
    let (Ok(keys), Ok(values), 2) = (pair.get_item(0), pair.get_item(1), pair.len()) else {
        return Err(not_rows(pair));
    };
    if !(is_arrow(&keys)? && is_arrow(&values)?) {
        return Err(not_rows(pair));
    }
    let (mut keys, mut values, mut parts) = (chunks_of(&keys)?, chunks_of(&values)?, Vec::new());
    let rows = |chunks: &[ArrayRef]| chunks.iter().map(|chunk| chunk.len()).sum::<usize>();
    if rows(&keys) != rows(&values) {
        let text = format!("there are {} keys and {} values", rows(&keys), rows(&values));
        return Err(error::invalid(pair.py(), text));
    }
    // From the end: the rest of a chunk is pushed back.
    while let (Some(key), Some(value)) = (keys.pop(), values.pop()) {
        let rows = key.len().min(value.len());
        let end = |chunk: ArrayRef, chunks: &mut Vec<ArrayRef>| {
            let before = chunk.len() - rows;
            if before > 0 {
                chunks.push(chunk.slice(0, before));
            }
            chunk.slice(before, rows)
        };
        let columns = (end(key, &mut keys), end(value, &mut values));
        if rows > 0 {
            parts.push(columns);
        }
    }
    Ok(parts)
}

fn not_rows(data: &Bound<'_, PyAny>) -> PyErr {
    let name = data.get_type().name().map(|name| name.to_string()).unwrap_or_default();
    PyTypeError::new_err(format!(
        "data: expected Arrow data with the columns key and value, or an iterable of such data or \
         of pairs of Arrow arrays, not {name}; put_many writes keys and values of Python, such as \
         those of a dict, and pyarrow.table makes Arrow data of a dict of columns"
    ))
}

/// The rows of two columns in pieces; `first` is the number of the first row.
fn pieces(
    py: Python<'_>,
    (keys, values): &Columns,
    first: u64,
) -> PyResult<impl Iterator<Item = Arc<ArrowRows>> + use<>> {
    let rows = keys.len();
    for (name, column) in [("key", keys), ("value", values)] {
        check_type(column.data_type(), name)?;
        if column.null_count() > 0
            && let Some(at) = (0..rows).find(|at| column.is_null(*at))
        {
            let at = usize::try_from(first).unwrap_or(usize::MAX).saturating_add(at);
            return Err(null(py, name, at));
        }
    }
    let bytes = Cells::of(keys).bytes() + Cells::of(values).bytes();
    let some = (PIECE_BYTES / (bytes / rows.max(1) + 1)).clamp(1, PIECE_ROWS);
    let (keys, values) = (Arc::clone(keys), Arc::clone(values));
    Ok((0..rows).step_by(some).map(move |at| {
        let rows = some.min(rows - at);
        let (keys, values) = (Cells::of(&keys.slice(at, rows)), Cells::of(&values.slice(at, rows)));
        let bytes = keys.bytes() + values.bytes();
        Arc::new(ArrowRows { keys, values, rows, bytes })
    }))
}

/// The progress callback.
type Told<'a, 'py> = Option<&'a Bound<'py, PyAny>>;

/// Passes all rows to the load.
fn pump<'py>(
    py: Python<'py>,
    process: &'static Process,
    mut feed: IncomingRows<'py>,
    (loader, told): (&mut Loader, Told<'_, 'py>),
) -> PyResult<()> {
    let (mut rows, mut paced) = (0, PacedSignals::new());
    let progress = Arc::clone(loader.progress());
    while let Some(columns) = feed.next(py)? {
        for piece in pieces(py, &columns, rows)? {
            rows += piece.rows as u64;
            wait_watched(py, process, loader.push(piece), (&progress, told))?;
            if paced.is_due() {
                py.check_signals()?;
                told.map_or(Ok(()), |told| told.call1(progress.so_far()).map(drop))?;
            }
        }
    }
    // Once before the commit, however short the load is: an exception can still end it.
    told.map_or(Ok(()), |told| told.call1(progress.so_far()).map(drop))
}

/// Reports completion once. An exception raised by this call is ignored.
fn tell_the_end(py: Python<'_>, progress: &siltstone::Progress, told: Told<'_, '_>) {
    let (_, all) = progress.so_far();
    if let Some(told) = told
        && let Err(raised) = told.call1((all, all))
    {
        raised.write_unraisable(py, Some(told));
    }
}

/// The options of a load, from the arguments of the caller.
fn load_options(
    py: Python<'_>,
    (sorted, duplicates): (bool, &str),
    memory_bytes: Option<Bound<'_, PyAny>>,
    scratch: Option<Bound<'_, PyAny>>,
) -> PyResult<LoadOptions> {
    let bytes = match memory_bytes {
        None => DEFAULT_MEMORY_BYTES,
        Some(given) => size(&given, "memory_bytes", LEAST_LOAD_BYTES as u64)?,
    };
    Ok(LoadOptions {
        sorted,
        duplicates: writer::duplicates(py, duplicates)?,
        memory_bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
        scratch: writer::scratch(py, scratch)?,
        table_bytes: TABLE_BYTES,
    })
}

/// Seconds of each phase.
fn seconds<'py>(
    py: Python<'py>,
    phases: LoadPhases,
    commit: Option<Duration>,
) -> PyResult<Bound<'py, PyDict>> {
    let seconds = PyDict::new(py);
    seconds.set_item("read", phases.read.as_secs_f64())?;
    seconds.set_item("build", phases.build.as_secs_f64())?;
    if let Some(commit) = commit {
        seconds.set_item("commit", commit.as_secs_f64())?;
    }
    Ok(seconds)
}

/// Rows, bytes and tables of a part, its pickled form, and the seconds of each phase.
type LoadedPart<'py> = (u64, u64, u64, Bound<'py, PyBytes>, Bound<'py, PyDict>);

/// Loads Arrow data into a part of a job.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "what the Python function has checked")]
pub(crate) fn ingest_load<'py>(
    py: Python<'py>,
    url: &str,
    store_options: &Bound<'py, PyDict>,
    job: PlainJob,
    data: &Bound<'py, PyAny>,
    options: Option<Bound<'py, PyAny>>,
    order: (Bound<'py, PyAny>, Bound<'py, PyAny>),
    memory_bytes: Option<Bound<'py, PyAny>>,
    scratch: Option<Bound<'py, PyAny>>,
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<LoadedPart<'py>> {
    let job = job_of(py, job)?;
    let (sorted, duplicates) = (flag(&order.0, "sorted")?, text(&order.1, "duplicates")?);
    let load = load_options(py, (sorted, &duplicates), memory_bytes, scratch)?;
    let (options, _) = target::options(py, options)?;
    let how = PartOptions {
        options,
        duplicates: load.duplicates,
        sort_memory_bytes: load.memory_bytes,
        scratch: load.scratch.clone(),
        table_bytes: load.table_bytes,
    };
    let (process, env, _) = place(py, url, store_options)?;
    let feed = IncomingRows::of(data)?;
    let mut loader = error::Raise::raise(job.loader(&env, how, load), py)?;
    pump(py, process, feed, (&mut loader, progress))?;
    let done = Arc::clone(loader.progress());
    let finish = loader.finish();
    let (staged, phases) = wait_watched(py, process, finish, (&done, progress))?;
    tell_the_end(py, &done, progress);
    let bytes = PyBytes::new(py, &error::Raise::raise(staged.to_bytes(), py)?);
    Ok((staged.rows(), staged.bytes(), staged.tables(), bytes, seconds(py, phases, None)?))
}

#[pymethods]
impl Database {
    /// Loads any amount of Arrow data: sorts it, builds tables on all cores, and makes all rows
    /// visible and durable in one commit, at one position in the history.
    ///
    /// :param data: an object with `__arrow_c_stream__` or `__arrow_c_array__` and the columns
    ///     `key` and `value` of binary or text, such as a pyarrow table or reader, a data frame of
    ///     polars or pandas, or a relation of duckdb; or an iterable of such data, or of pairs of
    ///     Arrow arrays.
    /// :param sorted: the rows are in ascending order of their keys. Otherwise they are sorted.
    /// :param duplicates: "error": raise Invalid for rows with equal keys. "last": keep the last of
    ///     them.
    /// :param memory_bytes: memory for rows, in bytes or as text such as "2GiB" (at least 64 MiB,
    ///     1 GiB by default), in addition to the memory of `data` itself. Larger data is sorted
    ///     through files in `scratch`.
    /// :param scratch: an existing local folder (by default that of `tempfile`).
    /// :param on_progress: called a few times a second, when all rows are read, and at the end,
    ///     with the bytes done and the bytes to do, as far as known. Each row counts twice: when it
    ///     is read, and when it is in a table. An exception that it raises before the last call,
    ///     which follows the commit, ends the load.
    /// :return: `LoadResult`. Existing rows with other keys are kept.
    /// :raises Invalid: if a column is missing, a value is null, a row is out of order (the text
    ///     names the row, counted from 0), or rows have equal keys (the text names the key and both
    ///     rows). No row is loaded.
    /// :raises TypeError: if the data or a column has an unsupported type.
    /// :raises Timeout: if all tables are uploaded but the commit did not end in time. The text
    ///     says whether this writer, or the next, completes it.
    /// :raises Closed, Fenced, Denied, Unavailable: see `siltstone.exceptions`.
    #[pyo3(signature = (data, *, sorted=false, duplicates="error", memory_bytes=None,
        scratch=None, on_progress=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords of a Python method")]
    fn load<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'py, PyAny>,
        sorted: bool,
        duplicates: &str,
        memory_bytes: Option<Bound<'py, PyAny>>,
        scratch: Option<Bound<'py, PyAny>>,
        on_progress: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let held = self.held();
        let engine = held.get(py)?.clone();
        let process = held.process();
        let how = load_options(py, (sorted, duplicates), memory_bytes, scratch)?;
        let feed = IncomingRows::of(data)?;
        let mut load = wait(py, process, async move { engine.begin_load(how).await })?;
        let loader = error::Raise::raise(load.loader(), py)?;
        let done = Arc::clone(loader.progress());
        pump(py, process, feed, (loader, on_progress))?;
        let report = wait_watched(py, process, load.finish(), (&done, on_progress))?;
        tell_the_end(py, &done, on_progress);
        let seconds = seconds(py, report.phases, Some(report.commit))?;
        let seq = report.seq.map(siltstone::Seq::get);
        let class = py.import("siltstone._load_result")?.getattr("LoadResult")?;
        class.call1((report.rows, report.bytes, report.tables, seq, seconds))
    }
}
