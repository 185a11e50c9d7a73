//! Ingest jobs: staged by any process, requested, and installed by the writer (RFC 0035).

use crate::aio::commit::AsyncCommit;
use crate::aio::pending::Pending;
use crate::bytes::BytesArg;
use crate::checkpoint::place;
use crate::commit::Commit;
use crate::database::Database;
use crate::duration::duration;
use crate::error::{self, Raise, closed};
use crate::expiry::expires_at;
use crate::held::{Held, stale};
use crate::load;
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
use siltstone::ingest::{self, IngestJob, IngestRequest, StagedPart};
use siltstone::tables::{PartOptions, PartWriter, PushResult, ReplacedRange};
use siltstone::{AttemptId, DatabaseId, JobId, JobStatus, Kind, StagedJob, TimelineId, UnixMillis};

/// A range to replace: its first key, and the key before which it ends.
pub(crate) type PlainRange = (Option<Vec<u8>>, Option<Vec<u8>>);
/// A job in Python's form: id, database, timeline, application with version, replaced range,
/// whether its rows go behind all others, number of applications forgotten so far.
pub(crate) type PlainJob =
    (String, String, Option<String>, Option<(String, u64)>, Option<PlainRange>, bool, u64);
/// A request: the job, the attempt that closed it, tables, rows, bytes.
type PlainRequest = (PlainJob, String, u64, u64, u64);
/// The status of a job: the word, the sequence number, the reason.
type PlainStanding = (&'static str, Option<u64>, Option<String>);

/// The refusal of another text than the id of a job.
const JOB_ID: &str = "that is no id of an ingest job: 32 hexadecimal digits, as `siltstone ingest \
                      --list` and `Job.id` show it";

pub(crate) fn job_of(py: Python<'_>, plain: PlainJob) -> PyResult<IngestJob> {
    let (id, database, timeline, app, replace, behind, forgotten) = plain;
    let timeline = timeline.map(|text| TimelineId::parse(&text).ok_or(text)).transpose();
    let replace = replace.map(range_of).transpose().raise(py)?;
    match (JobId::parse(&id), DatabaseId::parse(&database), timeline) {
        (Some(id), Some(database), Ok(timeline)) => {
            Ok(IngestJob { id, database, timeline, app, forgotten, replace, behind })
        }
        _ => Err(error::invalid(py, JOB_ID)),
    }
}

fn range_of((start, end): PlainRange) -> siltstone::Result<ReplacedRange> {
    ReplacedRange::new(start.as_deref(), end.as_deref())
}

fn plain_job(job: &IngestJob) -> PlainJob {
    let timeline = job.timeline.map(|timeline| timeline.to_string());
    let plain =
        |range: &ReplacedRange| (Some(range.start().to_vec()), range.end().map(<[u8]>::to_vec));
    let replace = job.replace.as_ref().map(plain);
    let (id, database, app) = (job.id.to_string(), job.database.to_string(), job.app.clone());
    (id, database, timeline, app, replace, job.behind, job.forgotten)
}

fn request_of(py: Python<'_>, plain: PlainRequest) -> PyResult<IngestRequest> {
    let (job, attempt, tables, rows, bytes) = plain;
    let job = job_of(py, job)?;
    let attempt = AttemptId::parse(&attempt);
    let attempt = attempt.ok_or_else(|| error::invalid(py, "no ingest request reads like that"))?;
    Ok(IngestRequest { job, attempt, tables, rows, bytes })
}

/// The request inside a `siltstone.ingest.IngestRequest`.
///
/// # Errors
/// TypeError for other types.
fn asked(request: &Bound<'_, PyAny>) -> PyResult<IngestRequest> {
    let plain = request.py().import("siltstone.ingest")?.getattr("_plain")?.call1((request,))?;
    request_of(request.py(), plain.extract()?)
}

fn plain_standing(standing: JobStatus) -> PlainStanding {
    match standing {
        JobStatus::Open => ("open", None, None),
        JobStatus::Pending => ("pending", None, None),
        JobStatus::Adopted(seq) => ("adopted", Some(seq.get()), None),
        JobStatus::AdoptedBefore(_) => ("adopted", None, None),
        JobStatus::Refused(reason) => ("refused", None, Some(reason)),
        JobStatus::Withdrawn => ("aborted", None, None),
        JobStatus::Ended => ("ended", None, None),
        JobStatus::Forgotten => ("forgotten", None, None),
    }
}

/// Begins a job; returns it and its deadline as Unix time in milliseconds.
#[pyfunction]
pub(crate) fn ingest_begin(
    py: Python<'_>,
    url: &str,
    store_options: &Bound<'_, PyDict>,
    lifetime: &Bound<'_, PyAny>,
    app: Option<(String, u64)>,
    replace: Option<(Option<BytesArg<'_>>, Option<BytesArg<'_>>)>,
    behind: bool,
) -> PyResult<(PlainJob, u64)> {
    let lifetime = duration(lifetime, "lifetime")?;
    let bytes = |bound: Option<BytesArg<'_>>| bound.map(|bound| bound.as_ref().to_vec());
    let replace = replace.map(|(start, end)| range_of((bytes(start), bytes(end))));
    let replace = replace.transpose().raise(py)?;
    let (process, env, deadline) = place(py, url, store_options)?;
    let begun = async {
        match behind {
            true => IngestJob::begin_behind(&env, lifetime, app, deadline).await,
            false => IngestJob::begin(&env, lifetime, app, deadline).await,
        }
    };
    let job = wait(py, process, begun)?;
    let job = IngestJob { replace, ..job };
    Ok((plain_job(&job), job.deadline().0))
}

/// Closes a job with the given parts.
#[pyfunction]
pub(crate) fn ingest_commit(
    py: Python<'_>,
    url: &str,
    store_options: &Bound<'_, PyDict>,
    job: PlainJob,
    parts: Vec<Bound<'_, PyBytes>>,
) -> PyResult<PlainRequest> {
    let job = job_of(py, job)?;
    let parts = parts.iter().map(|part| StagedPart::from_bytes(part.as_bytes()));
    let parts = parts.collect::<siltstone::Result<Vec<_>>>().raise(py)?;
    let (process, env, deadline) = place(py, url, store_options)?;
    let request = wait(py, process, job.commit(&env, &parts, deadline))?;
    let IngestRequest { job, attempt, tables, rows, bytes } = request;
    Ok((plain_job(&job), attempt.to_string(), tables, rows, bytes))
}

/// Aborts a job; returns its status.
#[pyfunction]
pub(crate) fn ingest_abort(
    py: Python<'_>,
    url: &str,
    store_options: &Bound<'_, PyDict>,
    job: PlainJob,
) -> PyResult<PlainStanding> {
    let job = job_of(py, job)?;
    let (process, env, deadline) = place(py, url, store_options)?;
    Ok(plain_standing(wait(py, process, job.abort(&env, deadline))?))
}

/// Requests a job; with a timeout, waits until it is installed or refused.
#[pyfunction]
pub(crate) fn ingest_submit(
    py: Python<'_>,
    url: &str,
    store_options: &Bound<'_, PyDict>,
    request: PlainRequest,
    waits: Option<&Bound<'_, PyAny>>,
) -> PyResult<PlainStanding> {
    let request = request_of(py, request)?;
    let limit = waits.map(|waits| duration(waits, "timeout")).transpose()?;
    let (process, env, deadline) = place(py, url, store_options)?;
    let submit = request.submit(&env, limit.is_some(), limit.unwrap_or(deadline));
    Ok(plain_standing(wait(py, process, submit)?))
}

/// The status of a job.
#[pyfunction]
pub(crate) fn ingest_status(
    py: Python<'_>,
    url: &str,
    store_options: &Bound<'_, PyDict>,
    job: &str,
) -> PyResult<PlainStanding> {
    let job = job_named(py, job)?;
    let (process, env, deadline) = place(py, url, store_options)?;
    Ok(plain_standing(wait(py, process, ingest::status(&env, job, deadline))?))
}

/// A job with staged objects: id, deadline, number of objects, bytes, time of the newest object,
/// and status. Times are Unix time in milliseconds.
type PlainStagedJob = (String, u64, u64, u64, Option<u64>, PlainStanding);

/// Lists all jobs with objects in their folder.
#[pyfunction]
pub(crate) fn ingest_jobs(
    py: Python<'_>,
    url: &str,
    store_options: &Bound<'_, PyDict>,
) -> PyResult<Vec<PlainStagedJob>> {
    let (process, env, deadline) = place(py, url, store_options)?;
    let jobs = wait(py, process, siltstone::staged_jobs(&env, deadline))?;
    let plain = |job: StagedJob| {
        let (id, last) = (job.id.to_string(), job.last_stored.map(|at| at.0));
        (id, job.deadline.0, job.objects, job.bytes, last, plain_standing(job.stands))
    };
    Ok(jobs.into_iter().map(plain).collect())
}

/// Withdraws a job by its id.
#[pyfunction]
pub(crate) fn ingest_withdraw(
    py: Python<'_>,
    url: &str,
    store_options: &Bound<'_, PyDict>,
    job: &str,
) -> PyResult<PlainStanding> {
    let job = job_named(py, job)?;
    let (process, env, deadline) = place(py, url, store_options)?;
    Ok(plain_standing(wait(py, process, siltstone::withdraw(&env, job, deadline))?))
}

fn job_named(py: Python<'_>, job: &str) -> PyResult<JobId> {
    JobId::parse(job).ok_or_else(|| error::invalid(py, "no ingest job reads like that"))
}

/// The status of a job, by its id.
#[pyfunction]
pub(crate) fn ingest_status_of(
    py: Python<'_>,
    url: &str,
    store_options: &Bound<'_, PyDict>,
    job: PlainJob,
) -> PyResult<PlainStanding> {
    let job = job_of(py, job)?;
    let (process, env, deadline) = place(py, url, store_options)?;
    Ok(plain_standing(wait(py, process, ingest::status_of(&env, &job, deadline))?))
}

/// Forgets the last version of an application.
#[pyfunction]
pub(crate) fn ingest_forget(
    py: Python<'_>,
    url: &str,
    store_options: &Bound<'_, PyDict>,
    app: &str,
) -> PyResult<()> {
    let (process, env, deadline) = place(py, url, store_options)?;
    wait(py, process, ingest::forget_app(&env, app, deadline))
}

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
    let writer = Held::new(process, Box::new(job.writer(&env, how)));
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
        let bytes = staged.to_bytes(&self.job).raise(py)?;
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
        self.with_writer(py, |process, writer| push_pairs(py, process, writer, &pairs, expires_at))
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
        self.with_writer(py, |process, writer| push_pairs(py, process, writer, &pairs, None))
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
        let staged = wait(py, process, IngestJob::finish(*writer))?;
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

#[pymethods]
impl Database {
    /// Adopts an ingest job: all of its rows in one commit, at one position in the history. The
    /// rows are visible to this handle when the call returns, and durable with the Commit. Repeated
    /// calls for the same job return the same result.
    ///
    /// :param request: the result of `siltstone.ingest.Job.commit`, from any process.
    /// :raises Conflict: if the job is for another database or for a state that a restore has
    ///     undone, if its deadline has passed, if it was aborted, or if a later version of its
    ///     application was adopted.
    /// :raises Invalid: if tables of the job are missing.
    /// :raises Timeout: if the adoption did not end in time. The job remains submitted, and this
    ///     writer, or the next, adopts it.
    /// :raises Closed, Fenced, Denied, Unavailable: see `siltstone.exceptions`.
    fn ingest(&self, py: Python<'_>, request: &Bound<'_, PyAny>) -> PyResult<Commit> {
        let request = asked(request)?;
        let held = self.held();
        let engine = held.get(py)?.clone();
        let process = held.process();
        let commit = wait(py, process, async move { engine.ingest(&request).await })?;
        Ok(Commit::new(process, commit))
    }

    /// `ingest` for `siltstone.aio`.
    fn _begin_ingest(&self, py: Python<'_>, request: &Bound<'_, PyAny>) -> PyResult<Pending> {
        let request = asked(request)?;
        let (process, engine) = (self.held().process(), self.held().get(py)?.clone());
        let work = async move { engine.ingest(&request).await };
        Ok(Pending::going_on(process, work, move |py, commit| {
            Ok(Py::new(py, AsyncCommit::new(process, commit))?.into_any())
        }))
    }
}

/// Adds the items of this file and of `load` to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(ingest_abort, module)?)?;
    module.add_function(wrap_pyfunction!(ingest_begin, module)?)?;
    module.add_function(wrap_pyfunction!(ingest_commit, module)?)?;
    module.add_function(wrap_pyfunction!(ingest_forget, module)?)?;
    module.add_function(wrap_pyfunction!(ingest_jobs, module)?)?;
    module.add_function(wrap_pyfunction!(load::ingest_load, module)?)?;
    module.add_function(wrap_pyfunction!(ingest_status, module)?)?;
    module.add_function(wrap_pyfunction!(ingest_status_of, module)?)?;
    module.add_function(wrap_pyfunction!(ingest_submit, module)?)?;
    module.add_function(wrap_pyfunction!(ingest_withdraw, module)?)?;
    module.add_function(wrap_pyfunction!(ingest_writer, module)?)
}
