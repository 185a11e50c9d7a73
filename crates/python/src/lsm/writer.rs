//! `SstWriter`: writes a single table file.

use super::info::info;
use super::pairs::{Pairs, each_of_sequences};
use super::target::{FileObject, FileRaised, TableSource, access, effects, options, path_of};
use crate::bytes::BytesArg;
use crate::column::{Column, needs_columns};
use crate::duration::size;
use crate::error::{self, Raise, closed};
use crate::expiry::expires_at;
use crate::frames::{batches_of, ended, is_arrow};
use crate::held::{Held, stale};
use crate::process::Process;
use crate::shown::quoted;
use crate::wait::wait;
use arrow_array::RecordBatchReader;
use futures::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use siltstone::store::Upload;
use siltstone::tables::{Duplicates, PushResult, TableInfo, TableWriter, TableWriterOptions};
use siltstone::{Kind, UnixMillis};
use std::path::PathBuf;

/// Default memory for sorting.
const DEFAULT_SORT_MEMORY_BYTES: u64 = 128 << 20;
/// Minimum memory for sorting: with less there would be too many sorted runs.
const MIN_SORT_MEMORY_BYTES: u64 = 1 << 20;
/// Maximum memory for sorting.
const MAX_SORT_MEMORY_BYTES: u64 = 64 << 30;
/// Number of rows of a sequence between two checks for signals.
const ROWS_BETWEEN_SIGNALS: u64 = 1 << 16;

/// Writes a sorted table to a file. Use it in one thread at a time.
///
/// As a context manager it completes the table at the end of the block, and discards it if the
/// block raises. The target is replaced atomically when the table is complete; until then it is
/// unchanged.
///
/// :param target: a path, a URL whose path is the object (`s3://bucket/rows.sst`), or a binary file
///     object. A file object stays open, and keeps the bytes of a discarded table.
/// :param options: `block_bytes`, `compression` and `filter_bits_per_key`, as `siltstone.Options`
///     or a dict. Other options have no effect.
/// :param store_options: options of the object store.
/// :param sort: accept rows in any order. Otherwise they must be in ascending order, and take no
///     memory.
/// :param duplicates: "error": raise Invalid for rows with equal keys. "last": keep the last of
///     them.
/// :param sort_memory_bytes: memory for sorting, in bytes or as text such as "1GiB" (1 MiB to
///     64 GiB; 128 MiB by default). Larger data is sorted through files in `scratch`, which take
///     the size of the data once more.
/// :param scratch: an existing local folder (by default that of `tempfile`).
/// :raises NotFound: if the folder of the file does not exist.
/// :raises Invalid: if the target or an option is not valid.
/// :raises Denied, Unavailable: see `siltstone.exceptions`.
#[pyclass(frozen, weakref, module = "siltstone.lsm")]
pub(crate) struct SstWriter {
    url: Option<String>,
    /// The exception raised by the file object, if the target is one.
    raised: Option<FileRaised>,
    state: Mutex<WriterState>,
}

enum WriterState {
    /// Boxed: a table under construction is aligned to cache lines, but Python objects are not.
    Writing(Held<Box<TableWriter>>),
    Finished(TableInfo),
    Discarded,
}

impl SstWriter {
    fn lock(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, WriterState>> {
        self.state
            .try_lock()
            .ok_or_else(|| error::invalid(py, "a table's writer is used by one thread at a time"))
    }

    /// The exception of the file object, if it caused `error`.
    fn explain(&self, error: PyErr) -> PyErr {
        self.raised.as_ref().and_then(|raised| raised.lock().take()).unwrap_or(error)
    }

    /// Calls `work` with the writer; `work` may wait.
    fn with_writer<T>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&'static Process, &mut TableWriter) -> PyResult<T>,
    ) -> PyResult<T> {
        let mut state = self.lock(py)?;
        let WriterState::Writing(held) = &mut *state else {
            let text = match &*state {
                WriterState::Finished(_) => "the table is finished; make another writer",
                _ => "the table was discarded; make another writer",
            };
            return Err(closed(py, text));
        };
        let process = held.process();
        work(process, held.get_mut(py)?).map_err(|error| self.explain(error))
    }

    fn push(
        &self,
        py: Python<'_>,
        kind: Kind,
        key: &[u8],
        value: &[u8],
        expires_at: Option<UnixMillis>,
    ) -> PyResult<()> {
        self.with_writer(py, |process, writer| {
            push_row(py, process, writer, (kind, key, value), expires_at)
        })
    }
}

/// A receiver of rows: one table, or a part of an ingest job.
pub(crate) trait RowSink: Send {
    /// Adds a row.
    ///
    /// # Errors
    /// Invalid if the row cannot be added.
    fn push(
        &mut self,
        kind: Kind,
        key: &[u8],
        value: &[u8],
        expires_at: Option<UnixMillis>,
    ) -> siltstone::Result<PushResult>;
    /// Moves rows from memory to the store or to disk.
    fn relieve(&mut self) -> BoxFuture<'_, siltstone::Result<()>>;
    /// Number of added rows.
    fn rows(&self) -> u64;
    /// Makes every later call fail.
    fn give_up(&mut self);
}

impl RowSink for TableWriter {
    fn push(
        &mut self,
        kind: Kind,
        key: &[u8],
        value: &[u8],
        expires_at: Option<UnixMillis>,
    ) -> siltstone::Result<PushResult> {
        TableWriter::push(self, kind, key, value, expires_at)
    }

    fn relieve(&mut self) -> BoxFuture<'_, siltstone::Result<()>> {
        TableWriter::relieve(self)
    }

    fn rows(&self) -> u64 {
        TableWriter::rows(self)
    }

    fn give_up(&mut self) {
        TableWriter::give_up(self);
    }
}

/// Adds one row.
pub(crate) fn push_row(
    py: Python<'_>,
    process: &'static Process,
    writer: &mut impl RowSink,
    (kind, key, value): (Kind, &[u8], &[u8]),
    expires_at: Option<UnixMillis>,
) -> PyResult<()> {
    match writer.push(kind, key, value, expires_at).raise(py)? {
        PushResult::Room => Ok(()),
        PushResult::Full => wait(py, process, writer.relieve()),
    }
}

/// Adds every key with the value at the same position, as rows of `kind`. If this fails after some
/// rows were added, the writer is given up.
pub(crate) fn push_pairs(
    py: Python<'_>,
    process: &'static Process,
    writer: &mut impl RowSink,
    (kind, pairs): (Kind, &Pairs<'_>),
    expires_at: Option<UnixMillis>,
) -> PyResult<()> {
    let before = writer.rows();
    let added = match pairs {
        Pairs::Columns(keys, values) => {
            push_columns(py, process, writer, (kind, keys, values), expires_at)
        }
        Pairs::Sequences(keys, values) => each_of_sequences(keys, values, |key, value| {
            if writer.rows().is_multiple_of(ROWS_BETWEEN_SIGNALS) {
                py.check_signals()?;
            }
            push_row(py, process, writer, (kind, key, value), expires_at)
        }),
    };
    whole(writer, before, added)
}

/// Checks the result of adding rows to a writer that had `before` rows: if only some of the rows
/// were added, the writer is given up, so that no table is made of them.
fn whole(writer: &mut impl RowSink, before: u64, added: PyResult<()>) -> PyResult<()> {
    added.inspect_err(|_| {
        if writer.rows() > before {
            writer.give_up();
        }
    })
}

/// Adds every row of a table, record batch or stream that has the columns `key` and `value`.
///
/// # Errors
/// Invalid for missing columns, and no row was added; otherwise as [`push_pairs`].
pub(crate) fn push_table(
    py: Python<'_>,
    process: &'static Process,
    writer: &mut impl RowSink,
    data: &Bound<'_, PyAny>,
) -> PyResult<()> {
    if !is_arrow(data)? {
        let name = data.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "data: expected Arrow data with the columns key and value, not {name}; add_many takes \
             keys and values"
        )));
    }
    let reader = batches_of(data)?;
    needs_columns(py, &reader.schema())?;
    let before = writer.rows();
    let added = push_batches(py, process, writer, reader);
    whole(writer, before, added)
}

fn push_batches(
    py: Python<'_>,
    process: &'static Process,
    writer: &mut impl RowSink,
    mut reader: Box<dyn RecordBatchReader + Send>,
) -> PyResult<()> {
    // The producer of the batches may need the interpreter lock on another thread.
    while let Some(batch) = py.detach(|| reader.next()) {
        let batch = batch.map_err(|error| ended(py, error))?;
        let pairs = Pairs::of_batch(py, &batch)?;
        push_pairs(py, process, writer, (Kind::Put, &pairs), None)?;
    }
    Ok(())
}

/// The reason why a stretch of rows ended.
enum Stretch {
    /// [`RowSink::relieve`] is due.
    Full,
    /// There are more rows.
    More,
    /// There are no more rows.
    End,
}

/// Adds two columns; the interpreter lock is released meanwhile.
fn push_columns(
    py: Python<'_>,
    process: &'static Process,
    writer: &mut impl RowSink,
    (kind, keys, values): (Kind, &Column, &Column),
    expires_at: Option<UnixMillis>,
) -> PyResult<()> {
    let mut pairs = keys.rows().zip(values.rows());
    loop {
        let stretch = py.detach(|| {
            for _ in 0..ROWS_BETWEEN_SIGNALS {
                let Some((key, value)) = pairs.next() else { return Ok(Stretch::End) };
                // Nulls were refused before, except for null values that stand for deletions.
                let (kind, expires_at) =
                    if value.is_some() { (kind, expires_at) } else { (Kind::Delete, None) };
                let (key, value) = (key.unwrap_or_default(), value.unwrap_or_default());
                if writer.push(kind, key, value, expires_at)? == PushResult::Full {
                    return Ok(Stretch::Full);
                }
            }
            Ok(Stretch::More)
        });
        match stretch.raise(py)? {
            Stretch::Full => wait(py, process, writer.relieve())?,
            Stretch::More => py.check_signals()?,
            Stretch::End => return Ok(()),
        }
    }
}

#[pymethods]
impl SstWriter {
    /// Creates a writer of the table at `target`.
    #[new]
    #[pyo3(signature = (target, *, options=None, store_options=None, sort=true,
        duplicates="error", sort_memory_bytes=None, scratch=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords of a Python constructor")]
    fn new<'py>(
        py: Python<'py>,
        target: &Bound<'py, PyAny>,
        options: Option<Bound<'py, PyAny>>,
        store_options: Option<Bound<'py, PyAny>>,
        sort: bool,
        duplicates: &str,
        sort_memory_bytes: Option<Bound<'py, PyAny>>,
        scratch: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Self> {
        let (options, _) = self::options(py, options)?;
        let how = TableWriterOptions {
            options,
            sort,
            duplicates: self::duplicates(py, duplicates)?,
            sort_memory_bytes: self::sort_memory_bytes(py, sort_memory_bytes)?,
            scratch: self::scratch(py, scratch)?,
        };
        let process = Process::current(py)?;
        let effects = effects(process);
        let (upload, url, raised): (Box<dyn Upload>, _, _) = match path_of(target)? {
            Some(path) => {
                let place = TableSource::Url(path, access(py, store_options)?);
                let object = place.object(py, &effects)?;
                (wait(py, process, object.upload())?, place.shown(), None)
            }
            None => {
                let (file, raised) = FileObject::of(target)?;
                (Box::new(file), None, Some(raised))
            }
        };
        let writer = Held::new(process, Box::new(TableWriter::new(effects, upload, how)));
        Ok(SstWriter { url, raised, state: Mutex::new(WriterState::Writing(writer)) })
    }

    /// Adds a row.
    ///
    /// :param ttl: time to live, counted from now; the row expires after it.
    /// :param expire_at: an aware datetime, instead of `ttl`: the row expires at this time. A time
    ///     in the past hides the previous value.
    /// :raises Invalid: if the key is empty, or either is too long, or if `sort` is off and the row
    ///     is out of order (the text names both rows, counted from 0). The writer is unchanged.
    /// :raises Denied, Unavailable: see `siltstone.exceptions`. The writer cannot be used any more.
    #[pyo3(signature = (key, value, *, ttl=None, expire_at=None))]
    fn add(
        &self,
        py: Python<'_>,
        key: BytesArg<'_>,
        value: BytesArg<'_>,
        ttl: Option<Bound<'_, PyAny>>,
        expire_at: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let expires_at = expires_at(py, ttl, expire_at)?;
        self.push(py, Kind::Put, key.as_ref(), value.as_ref(), expires_at)
    }

    /// Adds a tombstone: the table deletes `key` wherever it is merged.
    fn delete(&self, py: Python<'_>, key: BytesArg<'_>) -> PyResult<()> {
        self.push(py, Kind::Delete, key.as_ref(), &[], None)
    }

    /// Adds each key with the value at the same position. Keys and values are iterables, or two
    /// Arrow arrays of binary or text.
    ///
    /// :raises Invalid: if the lengths differ or an array has nulls; as for `add`. After an error
    ///     that was raised when some rows were added, the table can only be discarded.
    #[pyo3(signature = (keys, values, *, ttl=None, expire_at=None))]
    fn add_many<'py>(
        &self,
        py: Python<'py>,
        keys: Bound<'py, PyAny>,
        values: Bound<'py, PyAny>,
        ttl: Option<Bound<'py, PyAny>>,
        expire_at: Option<Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        let expires_at = expires_at(py, ttl, expire_at)?;
        let pairs = Pairs::of(keys, values)?;
        self.with_writer(py, |process, writer| {
            push_pairs(py, process, writer, (Kind::Put, &pairs), expires_at)
        })
    }

    /// Adds all rows of an Arrow table, record batch or stream with the columns `key` and
    /// `value`.
    ///
    /// :raises Invalid: if a column is missing, in which case no row is added; if a column has
    ///     nulls; as for `add`. After an error that was raised when some rows were added, the table
    ///     can only be discarded.
    /// :raises TypeError: if `data` is not Arrow data.
    fn write(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<()> {
        self.with_writer(py, |process, writer| push_table(py, process, writer, data))
    }

    /// Completes the table and returns its description. Repeated calls return the same result.
    ///
    /// :raises Invalid: if there are no rows, or rows have equal keys; the text names both rows,
    ///     counted from 0.
    /// :raises Denied, Unavailable: see `siltstone.exceptions`. There is no table.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let mut state = self.lock(py)?;
        if let WriterState::Finished(table) = &*state {
            return info(py, self.url.as_deref(), table);
        }
        let WriterState::Writing(mut held) = std::mem::replace(&mut *state, WriterState::Discarded)
        else {
            return Err(closed(py, "the table was discarded; make another writer"));
        };
        let process = held.process();
        let writer = held.take().ok_or_else(|| stale(py))?;
        let finished = wait(py, process, writer.finish());
        let table = finished.map_err(|error| self.explain(error))?;
        let told = info(py, self.url.as_deref(), &table);
        *state = WriterState::Finished(table);
        told
    }

    /// Discards the table, unless it is finished.
    fn discard(&self, py: Python<'_>) -> PyResult<()> {
        let mut state = self.lock(py)?;
        if matches!(*state, WriterState::Finished(_)) {
            return Ok(());
        }
        match std::mem::replace(&mut *state, WriterState::Discarded) {
            WriterState::Writing(mut held) if !held.is_stale() => {
                let process = held.process();
                let writer = held.take().ok_or_else(|| stale(py))?;
                wait(py, process, writer.abort())
            }
            _ => Ok(()),
        }
    }

    /// Number of added rows; after `finish`, number of rows in the table.
    #[getter]
    fn rows(&self, py: Python<'_>) -> PyResult<u64> {
        match &*self.lock(py)? {
            WriterState::Writing(held) => Ok(held.get(py)?.rows()),
            WriterState::Finished(table) => Ok(table.entries),
            WriterState::Discarded => Ok(0),
        }
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let is_open = matches!(*self.lock(py)?, WriterState::Writing(_));
        if !kind.is_none() {
            return self.discard(py);
        }
        if is_open { self.finish(py).map(drop) } else { Ok(()) }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let place = match &self.url {
            Some(url) => quoted(py, url)?,
            None => "into a file object".to_owned(),
        };
        let state = match self.state.try_lock().as_deref() {
            Some(WriterState::Writing(held)) => match held.peek() {
                Some(writer) => format!("{} rows", writer.rows()),
                None => "of the process before a fork".to_owned(),
            },
            Some(WriterState::Finished(table)) => format!("finished, {} rows", table.entries),
            Some(WriterState::Discarded) => "discarded".to_owned(),
            None => "in use".to_owned(),
        };
        Ok(format!("<siltstone.lsm.SstWriter {place}, {state}>"))
    }
}

pub(crate) fn duplicates(py: Python<'_>, name: &str) -> PyResult<Duplicates> {
    match name {
        "error" => Ok(Duplicates::Refuse),
        "last" => Ok(Duplicates::KeepLast),
        _ => Err(error::invalid(py, format!("duplicates is 'error' or 'last', not '{name}'"))),
    }
}

pub(crate) fn sort_memory_bytes(
    py: Python<'_>,
    given: Option<Bound<'_, PyAny>>,
) -> PyResult<usize> {
    let bytes = match given {
        None => DEFAULT_SORT_MEMORY_BYTES,
        Some(given) => size(&given, "sort_memory_bytes", MIN_SORT_MEMORY_BYTES)?,
    };
    match usize::try_from(bytes) {
        Ok(fitting) if bytes <= MAX_SORT_MEMORY_BYTES => Ok(fitting),
        _ => {
            let text = format!("sort_memory_bytes is at most {MAX_SORT_MEMORY_BYTES}, not {bytes}");
            Err(error::invalid(py, text))
        }
    }
}

/// The folder for sorted runs: the given one, or Python's folder for temporary files.
pub(crate) fn scratch(py: Python<'_>, given: Option<Bound<'_, PyAny>>) -> PyResult<PathBuf> {
    match given {
        Some(given) => {
            let folder: PathBuf = given.extract()?;
            if !folder.is_dir() {
                let text = format!("scratch is no folder that exists: {}", folder.display());
                return Err(error::invalid(py, text));
            }
            Ok(folder)
        }
        None => py.import("tempfile")?.call_method0("gettempdir")?.extract(),
    }
}
