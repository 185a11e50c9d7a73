//! Ingest jobs: staged by any process, requested, and installed by the writer (RFC 0035).

use crate::aio::commit::AsyncCommit;
use crate::aio::pending::Pending;
use crate::bytes::BytesArg;
use crate::checkpoint::place;
use crate::commit::Commit;
use crate::database::Database;
use crate::duration::duration;
use crate::error::{self, Raise};
use crate::load;
use crate::part_writer;
use crate::wait::wait;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use siltstone::ingest::{self, IngestJob, IngestRequest};
use siltstone::tables::{ReplacedRange, StagedPart};
use siltstone::{AttemptId, DatabaseId, JobId, JobStatus, StagedJob, TimelineId};

/// A range to replace: its first key, and the key before which it ends.
pub(crate) type PlainRange = (Option<Vec<u8>>, Option<Vec<u8>>);
/// A job in Python's form: id, database, timeline, application with version, replaced range,
/// whether its rows go behind all others, number of applications forgotten so far, merge operator,
/// whether the database is encrypted.
pub(crate) type PlainJob = (
    String,
    String,
    Option<String>,
    Option<(String, u64)>,
    Option<PlainRange>,
    bool,
    u64,
    Option<String>,
    bool,
);
/// A request: the job, the attempt that closed it, tables, rows, bytes.
type PlainRequest = (PlainJob, String, u64, u64, u64);
/// The status of a job: the word, the sequence number, the reason.
type PlainStanding = (&'static str, Option<u64>, Option<String>);

/// The refusal of another text than the id of a job.
const JOB_ID: &str = "no ingest job has such an id: it has 26 digits and letters, as `siltstone \
                      ingest --list` and `Job.id` show it";

pub(crate) fn job_of(py: Python<'_>, plain: PlainJob) -> PyResult<IngestJob> {
    let (id, database, timeline, app, replace, behind, forgotten, operator, encrypted) = plain;
    let timeline = timeline.map(|text| TimelineId::parse(&text).ok_or(text)).transpose();
    let replace = replace.map(range_of).transpose().raise(py)?;
    match (JobId::parse(&id), DatabaseId::parse(&database), timeline) {
        (Some(id), Some(database), Ok(timeline)) => Ok(IngestJob {
            id,
            database,
            timeline,
            app,
            forgotten,
            replace,
            behind,
            operator,
            encrypted,
        }),
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
    let operator = job.operator.clone();
    (id, database, timeline, app, replace, job.behind, job.forgotten, operator, job.encrypted)
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
    txn: Option<(String, u64)>,
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
            true => IngestJob::begin_behind(&env, lifetime, txn, deadline).await,
            false => IngestJob::begin(&env, lifetime, txn, deadline).await,
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

/// Requests a job within `limit`; with `waits`, waits in it until the job is installed or refused.
#[pyfunction]
pub(crate) fn ingest_submit(
    py: Python<'_>,
    url: &str,
    store_options: &Bound<'_, PyDict>,
    request: PlainRequest,
    limit: &Bound<'_, PyAny>,
    waits: bool,
) -> PyResult<PlainStanding> {
    let request = request_of(py, request)?;
    let limit = duration(limit, "timeout")?;
    let (process, env, _) = place(py, url, store_options)?;
    let submit = request.submit(&env, waits, limit);
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
    JobId::parse(job).ok_or_else(|| error::invalid(py, JOB_ID))
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

#[pymethods]
impl Database {
    /// Adopts an ingest job: all of its rows in one commit, at one position in the history. The
    /// rows are visible to this handle when the call returns, and durable with the Commit. Repeated
    /// calls for the same job return the same result.
    ///
    /// :param request: the result of `siltstone.ingest.Job.commit`, from any process.
    /// :raises Conflict: if the job is for another database or for a state that a restore has
    ///     undone, if a collector has seen that its deadline has passed, if it was aborted, or if a
    ///     later version of its application was adopted.
    /// :raises Invalid: if tables of the job are missing.
    /// :raises Timeout: if the adoption did not end in time. The text says whether the job is
    ///     submitted: then this writer, or the next, adopts it.
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

/// Adds the items of this file, of `load` and of `part_writer` to the module.
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
    module.add_function(wrap_pyfunction!(part_writer::ingest_writer, module)?)
}
