//! The writer of one part of an ingest job, in any process (RFC 0035).

use crate::bytes::BytesArg;
use crate::checkpoint::place;
use crate::error::{self, Raise, closed};
use crate::expiry::expires_at;
use crate::held::{Held, stale};
use crate::ingest::{PlainJob, job_of};
use crate::lsm::pairs::Pairs;
use crate::lsm::target;
use crate::lsm::writer::{self, RowSink, push_pairs, push_row, push_table};
use crate::process::Process;
use crate::wait::wait;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use siltstone::ingest::IngestJob;
use siltstone::tables::{PartOptions, PartWriter, PushResult, StagedPart};
use siltstone::{Kind, UnixMillis};

impl RowSink for PartWriter {
    fn push(
        &mut self,
        kind: Kind,
        key: &[u8],
        value: &[u8],
        expires_at: Option<UnixMillis>,
    ) -> siltstone::Result<PushResult> {
        PartWriter::push(self, kind, key, value, expires_at)
    }

    fn relieve(&mut self) -> BoxFuture<'_, siltstone::Result<()>> {
        PartWriter::relieve(self).boxed()
    }

    fn rows(&self) -> u64 {
        PartWriter::rows(self)
    }

    fn give_up(&mut self) {
        PartWriter::give_up(self);
    }
}

/// Stages one part of an ingest job, in any process; from `Job.writer`. Use it in one thread at
/// a time.
///
/// As a context manager it completes the part at the end of the block, and discards it if the block
/// raises.
#[pyclass(frozen, weakref, name = "PartWriter", module = "siltstone.ingest")]
pub(crate) struct JobPartWriter {
    job: IngestJob,
    part: Py<PyAny>,
    state: Mutex<PartState>,
}

enum PartState {
    Writing(Held<Box<PartWriter>>),
    Staged(StagedPart),
    Discarded,
}

/// Makes a writer of a part.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "what the Python function has checked")]
pub(crate) fn ingest_writer<'py>(
    py: Python<'py>,
    url: &str,
    store_options: &Bound<'py, PyDict>,
    job: PlainJob,
    part: Py<PyAny>,
    options: Option<Bound<'py, PyAny>>,
    duplicates: &str,
    sort_memory_bytes: Option<Bound<'py, PyAny>>,
    scratch: Option<Bound<'py, PyAny>>,
    table_bytes: u64,
) -> PyResult<JobPartWriter> {
    let job = job_of(py, job)?;
    let (options, _) = target::options(py, options)?;
    let how = PartOptions {
        options,
        duplicates: writer::duplicates(py, duplicates)?,
        sort_memory_bytes: writer::sort_memory_bytes(py, sort_memory_bytes)?,
        scratch: writer::scratch(py, scratch)?,
        table_bytes,
    };
    let (process, env, _) = place(py, url, store_options)?;
    let writer = Held::new(process, Box::new(job.writer(&env, how).raise(py)?));
    Ok(JobPartWriter { job, part, state: Mutex::new(PartState::Writing(writer)) })
}

impl JobPartWriter {
    fn with_writer<T>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&'static Process, &mut PartWriter) -> PyResult<T>,
    ) -> PyResult<T> {
        let Some(mut state) = self.state.try_lock() else {
            return Err(error::invalid(py, "a part's writer is used by one thread at a time"));
        };
        let PartState::Writing(held) = &mut *state else {
            return Err(closed(py, "the part is finished, or was discarded; make another writer"));
        };
        let process = held.process();
        work(process, held.get_mut(py)?)
    }

    /// Makes a `siltstone.ingest.Part`.
    fn told<'py>(&self, py: Python<'py>, staged: &StagedPart) -> PyResult<Bound<'py, PyAny>> {
        let class = py.import("siltstone.ingest")?.getattr("Part")?;
        let bytes = staged.to_bytes().raise(py)?;
        let job = self.job.id.to_string();
        let figures = (staged.rows(), staged.bytes(), staged.tables());
        let (rows, size, tables) = figures;
        let data = PyBytes::new(py, &bytes);
        class.call1((job, self.part.bind(py), rows, size, tables, data))
    }
}

#[pymethods]
impl JobPartWriter {
    /// Adds a row. Rows can be added in any order.
    ///
    /// :param ttl: time to live, counted from now; the row expires after it.
    /// :param expire_at: an aware datetime, instead of `ttl`: the row expires at this time.
    /// :raises Invalid: if the key is empty, or either is too long. The writer is unchanged.
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
        self.with_writer(py, |process, writer| {
            let row = (Kind::Put, key.as_ref(), value.as_ref());
            push_row(py, process, writer, row, expires_at)
        })
    }

    /// Adds a merge operand: the ingest merges it into the value of `key`. Combine the operands of
    /// each key first: a part takes one row for each key, and the parts of a job with operands may
    /// not overlap.
    ///
    /// :param ttl, expire_at: as for `add`. The operand expires together with the value that it
    ///     was merged into.
    /// :raises Invalid: if the database had no merge operator when the job began, or the operator
    ///     does not accept the operand; if `duplicates` is "last" or the job is `behind`; as for
    ///     `add`. The writer is unchanged.
    /// :raises Denied, Unavailable: as for `add`.
    #[pyo3(signature = (key, operand, *, ttl=None, expire_at=None))]
    fn merge(
        &self,
        py: Python<'_>,
        key: BytesArg<'_>,
        operand: BytesArg<'_>,
        ttl: Option<Bound<'_, PyAny>>,
        expire_at: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let expires_at = expires_at(py, ttl, expire_at)?;
        self.with_writer(py, |process, writer| {
            let row = (Kind::Merge, key.as_ref(), operand.as_ref());
            push_row(py, process, writer, row, expires_at)
        })
    }

    /// Adds each merge operand to the key at the same position. Keys and operands are iterables,
    /// or two Arrow arrays of binary or text.
    ///
    /// :raises Invalid: if the lengths differ or an array has nulls; as for `merge`. After an error
    ///     that was raised when some rows were added, the part can only be discarded.
    #[pyo3(signature = (keys, operands, *, ttl=None, expire_at=None))]
    fn merge_many<'py>(
        &self,
        py: Python<'py>,
        keys: Bound<'py, PyAny>,
        operands: Bound<'py, PyAny>,
        ttl: Option<Bound<'py, PyAny>>,
        expire_at: Option<Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        let expires_at = expires_at(py, ttl, expire_at)?;
        let pairs = Pairs::of(keys, operands)?;
        self.with_writer(py, |process, writer| {
            push_pairs(py, process, writer, (Kind::Merge, &pairs), expires_at)
        })
    }

    /// Adds a tombstone: the ingest deletes `key`.
    fn delete(&self, py: Python<'_>, key: BytesArg<'_>) -> PyResult<()> {
        self.with_writer(py, |process, writer| {
            push_row(py, process, writer, (Kind::Delete, key.as_ref(), &[]), None)
        })
    }

    /// Adds each key with the value at the same position. Keys and values are iterables, or two
    /// Arrow arrays of binary or text.
    ///
    /// :raises Invalid: if the lengths differ or an array has nulls; as for `add`. After an error
    ///     that was raised when some rows were added, the part can only be discarded.
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

    /// Adds each key with the value at the same position, and a tombstone for a null value. Keys
    /// and values are two Arrow arrays of binary or text.
    ///
    /// :raises Invalid: if the lengths differ or a key is null; as for `add`. After an error that
    ///     was raised when some rows were added, the part can only be discarded.
    fn put_or_delete_many<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        values: &Bound<'py, PyAny>,
    ) -> PyResult<()> {
        let pairs = Pairs::with_deletes(keys, values)?;
        self.with_writer(py, |process, writer| {
            push_pairs(py, process, writer, (Kind::Put, &pairs), None)
        })
    }

    /// Adds all rows of an Arrow table, record batch or stream with the columns `key` and
    /// `value`.
    ///
    /// :raises Invalid: if a column is missing, in which case no row is added; if a column has
    ///     nulls; as for `add`. After an error that was raised when some rows were added, the part
    ///     can only be discarded.
    /// :raises TypeError: if `data` is not Arrow data.
    fn write(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<()> {
        self.with_writer(py, |process, writer| push_table(py, process, writer, data))
    }

    /// Completes the part: its tables are sorted, complete and durable. The result is small and
    /// can be pickled; `Job.commit` needs it. Repeated calls return the same result.
    ///
    /// :raises Invalid: if rows have equal keys and `duplicates` is not "last"; the text names both
    ///     rows, counted from 0.
    /// :raises Denied, Unavailable: see `siltstone.exceptions`. There is no part.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let Some(mut state) = self.state.try_lock() else {
            return Err(error::invalid(py, "a part's writer is used by one thread at a time"));
        };
        if let PartState::Staged(staged) = &*state {
            return self.told(py, staged);
        }
        let PartState::Writing(mut held) = std::mem::replace(&mut *state, PartState::Discarded)
        else {
            return Err(closed(py, "the part was discarded; make another writer"));
        };
        let process = held.process();
        let writer = held.take().ok_or_else(|| stale(py))?;
        let staged = wait(py, process, writer.finish())?;
        let told = self.told(py, &staged);
        *state = PartState::Staged(staged);
        told
    }

    /// Discards the part, unless it is finished. Uploaded tables are collected with the job.
    fn discard(&self) {
        if let Some(mut state) = self.state.try_lock()
            && matches!(*state, PartState::Writing(_))
        {
            *state = PartState::Discarded;
        }
    }

    /// Number of added rows.
    #[getter]
    fn rows(&self, py: Python<'_>) -> PyResult<u64> {
        match self.state.try_lock().as_deref() {
            Some(PartState::Writing(held)) => Ok(held.get(py)?.rows()),
            Some(PartState::Staged(staged)) => Ok(staged.rows()),
            Some(PartState::Discarded) | None => Ok(0),
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
        if !kind.is_none() {
            self.discard();
            return Ok(());
        }
        let open = matches!(self.state.try_lock().as_deref(), Some(PartState::Writing(_)));
        if open { self.finish(py).map(drop) } else { Ok(()) }
    }

    fn __repr__(&self) -> String {
        let state = match self.state.try_lock().as_deref() {
            Some(PartState::Writing(held)) => match held.peek() {
                Some(writer) => format!("{} rows", writer.rows()),
                None => "of the process before a fork".to_owned(),
            },
            Some(PartState::Staged(staged)) => format!("finished, {} rows", staged.rows()),
            Some(PartState::Discarded) => "discarded".to_owned(),
            None => "in use".to_owned(),
        };
        format!("<siltstone.ingest.PartWriter of job {}, {state}>", self.job.id)
    }
}
