//! Ingest jobs from any process (RFC 0035). A job stages tables into its own folder, is closed by
//! one create of an object, and is submitted by one commit.
//!
//! A job must never be ingested in part: its closing object lists all its parts, and the writer
//! ingests all of them or none.

use crate::api::db::Database;
use crate::manifests::client::{commit_alone, look, newest, try_commit_alone};
use crate::manifests::gate::check_encryption;
use crate::manifests::missing::{check_lives, no_database};
use crate::manifests::objects::Objects;
use crate::tables::restack::restack;
use crate::tables::{
    LoadOptions, Loader, Operands, PartOptions, PartWriter, ReplacedRange, StagedPart,
};
use crate::writer::behind::not_made_for_it;
use crate::writer::commit::Commit;
use crate::writer::ingest::not_adopted;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use siltstone_base::id::ulid_bits;
use siltstone_base::{
    AttemptId, DatabaseId, Error, ErrorKind, JobId, ObjectName, PutOutcome, Result, SstDescriptor,
    TimelineId, UnixMillis,
};
use siltstone_manifest::features::INGEST;
use siltstone_manifest::ingest::{
    ClosedJob, JobApp, JobStatus, bringing, deadline, layered, pending, standing, standing_as,
    standing_since,
};
use siltstone_manifest::state::MOST_PENDING;
use siltstone_manifest::{
    Conflict, Edit, IngestConflict, IngestEdit, Manifest, Refusal, RequestIngest,
};
use siltstone_store::conditional;
use siltstone_store::counting::count;
use siltstone_store::env::Env;
use siltstone_store::retry::{limit_of, with_retries};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// Default lifetime of a job: how long it may be submitted.
pub const JOB_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);
/// Minimum distance of a job's deadline above the horizon, if the job's lifetime is that long. The
/// horizon passes the deadline once 4,096 jobs with an earlier deadline have ended, and each of
/// them moves the horizon by no more than this.
const LEAST_ABOVE_HORIZON: Duration = Duration::from_secs(3600);
/// Interval at which a waiting caller looks for the writer's result.
const LOOK: Duration = Duration::from_millis(250);

/// An ingest job. Tasks in any process stage their parts with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngestJob {
    /// Its id, which contains its deadline.
    pub id: JobId,
    /// The database into which it is ingested.
    pub database: DatabaseId,
    /// The timeline on which it is ingested; `None`: the first timeline.
    pub timeline: Option<TimelineId>,
    /// The application and version of the job. Each version is ingested at most once.
    pub app: Option<(String, u64)>,
    /// The number of applications that had been forgotten when the job began.
    pub forgotten: u64,
    /// The key range whose previous contents the job deletes (rule P5).
    pub replace: Option<ReplacedRange>,
    /// Whether its rows are older than all rows in the database (rule P6): for equal keys the rows
    /// in the database win.
    pub behind: bool,
    /// The name of the database's merge operator when the job began; `None`: the job takes no merge
    /// operands.
    pub operator: Option<String>,
    /// Whether the objects of the database are encrypted, and so those of the job must be.
    pub encrypted: bool,
}

/// A closed job, which can be submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngestRequest {
    /// The job.
    pub job: IngestJob,
    /// The attempt that closed the job. It identifies the list of parts.
    pub attempt: AttemptId,
    /// Number of its tables.
    pub tables: u64,
    /// Number of its rows, including deletes, and including rows with equal keys in several parts.
    pub rows: u64,
    /// Size of its tables in bytes.
    pub bytes: u64,
}

impl IngestJob {
    /// Begins a job for the database in the store of `env`. The job may be submitted for
    /// `lifetime` from now on. The first job of a database commits to the manifest that the
    /// database has jobs.
    ///
    /// # Errors
    /// NotFound if there is no database; Invalid for a lifetime whose end has passed or is out of
    /// range; errors of the store.
    pub fn begin(
        env: &Env,
        lifetime: Duration,
        app: Option<(String, u64)>,
        limit: Duration,
    ) -> BoxFuture<'_, Result<IngestJob>> {
        async move { IngestJob::begin_as(env, lifetime, app, false, limit).await }.boxed()
    }

    /// Begins a job whose rows are older than all rows in the database, including deletes and
    /// expired values. Its rows are visible only for keys that were never written.
    ///
    /// # Errors
    /// As [`IngestJob::begin`]; Unsupported if the database was not created for such jobs.
    pub fn begin_behind(
        env: &Env,
        lifetime: Duration,
        app: Option<(String, u64)>,
        limit: Duration,
    ) -> BoxFuture<'_, Result<IngestJob>> {
        async move { IngestJob::begin_as(env, lifetime, app, true, limit).await }.boxed()
    }

    async fn begin_as(
        env: &Env,
        lifetime: Duration,
        app: Option<(String, u64)>,
        behind: bool,
        limit: Duration,
    ) -> Result<IngestJob> {
        let (env, requests) = &count(env.clone());
        let objects = Objects { env: env.clone(), limit };
        let work = async {
            let mut newest = newest(&objects).await?;
            check_lives(&newest)?;
            if behind && newest.behind.is_none() {
                return Err(not_made_for_it());
            }
            if !newest.features.names(INGEST) {
                let edit = Edit::Ingest(IngestEdit::Begin);
                newest = commit_alone(&objects, edit, newest).await?;
            }
            let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            let until = env.clock.now().0.saturating_add(millis(lifetime));
            // The horizon is ahead of the clock if thousands of jobs ended before their deadlines.
            // This job gets a later deadline than all of them.
            let least = millis(lifetime.min(LEAST_ABOVE_HORIZON));
            let until = until.max(newest.ingest_horizon.0.saturating_add(least));
            let id = JobId(ulid_bits(until, env.random_u128()));
            if lifetime.is_zero() || until >= 1 << 48 {
                return Err(Error::invalid(
                    "the job's deadline has passed or is out of range; check this machine's clock \
                     and the lifetime",
                ));
            }
            Ok(IngestJob {
                id,
                database: newest.database,
                timeline: newest.timelines.last().map(|one| one.id),
                app,
                forgotten: newest.forgotten_apps.count,
                replace: None,
                behind,
                operator: newest.settings.merge_operator.clone(),
                encrypted: env.store.profile().is_encrypted,
            })
        };
        requests.within(env, limit, "begin ingest job", work).await
    }

    /// Returns the job with a range to replace: ingesting it deletes the previous contents of
    /// `range`.
    #[must_use]
    pub fn replacing(self, range: ReplacedRange) -> IngestJob {
        IngestJob { replace: Some(range), ..self }
    }

    /// Returns the job as a version of an application.
    pub(super) fn version(&self) -> Option<JobApp> {
        let forgotten = self.forgotten;
        let of = |(name, version)| JobApp { name, version, forgotten };
        self.app.clone().map(of)
    }

    /// The time until which the job may be submitted.
    #[must_use]
    pub fn deadline(&self) -> UnixMillis {
        deadline(self.id)
    }

    /// A writer that stages one part.
    ///
    /// # Errors
    /// Unsupported if `env` has no encryption key and the database has one, or the reverse.
    pub fn writer(&self, env: &Env, how: PartOptions) -> Result<PartWriter> {
        check_encryption(self.encrypted, &*env.store)?;
        let operands = Operands::of(self.operator.as_deref(), self.behind, how.duplicates);
        Ok(PartWriter::new(env.clone(), (self.id, self.database), how, operands))
    }

    /// A loader that stages a part of any number of rows, on all cores.
    ///
    /// # Errors
    /// As [`IngestJob::writer`].
    pub fn loader(&self, env: &Env, how: PartOptions, load: LoadOptions) -> Result<Loader> {
        check_encryption(self.encrypted, &*env.store)?;
        Ok(Loader::new(env.clone(), (self.id, self.database), (how, load)))
    }

    fn closed(
        &self,
        attempt: AttemptId,
        layers: Vec<Vec<SstDescriptor>>,
        operands: bool,
    ) -> ClosedJob {
        let (database, timeline) = (self.database, self.timeline);
        let behind = self.behind && !layers.is_empty();
        let app = self.version();
        ClosedJob { job: self.id, database, attempt, timeline, app, layers, behind, operands }
    }

    /// Closes the job with exactly these parts. For equal keys the row of the last part wins. If
    /// the job is closed already, its first list of parts stays.
    ///
    /// # Errors
    /// Invalid without rows, unless the job replaces a range; for rows outside that range; for
    /// merge operands in parts whose key ranges overlap; for a part that occurs twice or belongs to
    /// another job. Conflict if the job was aborted; errors of the store.
    pub fn commit<'a>(
        &'a self,
        env: &'a Env,
        parts: &'a [StagedPart],
        limit: Duration,
    ) -> BoxFuture<'a, Result<IngestRequest>> {
        async move {
            check_encryption(self.encrypted, &*env.store)?;
            let (env, requests) = &count(env.clone());
            let operands = parts.iter().any(|part| part.operands);
            let tables: Vec<SstDescriptor> =
                parts.iter().flat_map(|part| part.tables.clone()).collect();
            let mut names = HashSet::new();
            if self.behind && self.replace.is_some() {
                return Err(Error::invalid(
                    "a job whose rows are older than the database cannot replace a range; use two \
                     jobs",
                ));
            }
            if tables.is_empty() && self.replace.is_none() {
                return Err(Error::invalid("the job has no rows: nothing was staged"));
            }
            if tables.iter().any(|table| table.job != Some(self.id) || !names.insert(table.id)) {
                return Err(Error::invalid(
                    "a part belongs to another job or occurs twice; pass each part of this job \
                     once",
                ));
            }
            if let Some(range) = &self.replace {
                range.check_inside(&tables)?;
            }
            let of = (self.id, self.database);
            // The time depends on the size of the parts, so the limit is one of each request.
            let layers = layered(tables);
            if operands && layers.len() > 1 {
                return Err(Error::invalid(
                    "the key ranges of the parts overlap, and merge operands of one key in several \
                     parts have no order: split the rows by ranges of keys",
                ));
            }
            let mut layers = restack(env, of, layers, limit).await?;
            let work = async {
                if let Some(range) = &self.replace {
                    // The range delete is the job's oldest layer and all staged rows lie in its
                    // range, so it deletes none of them.
                    layers.insert(0, vec![range.stage(env, of, limit).await?]);
                }
                let closed = self.close(env, layers, operands, limit).await?;
                if closed.is_aborted() {
                    let text = "the job was aborted; begin another job";
                    return Err(Error::new(ErrorKind::Conflict, text).with("job", self.id));
                }
                if closed.app != self.version() {
                    return Err(self.closed_otherwise(&closed));
                }
                let brought = || closed.tables().filter(|table| !ReplacedRange::is_of_one(table));
                let sum = |of: fn(&SstDescriptor) -> u64| brought().map(of).sum();
                Ok(IngestRequest {
                    job: self.clone(),
                    attempt: closed.attempt,
                    tables: brought().count() as u64,
                    rows: sum(|table| table.entries),
                    bytes: sum(|table| table.object_bytes),
                })
            };
            requests.within(env, limit, "commit ingest job", work).await
        }
        .boxed()
    }

    fn closed_otherwise(&self, closed: &ClosedJob) -> Error {
        let version = |app: &JobApp| format!("version {} of {:?}", app.version, app.name);
        let version = |app: Option<&JobApp>| app.map_or("no application's".to_owned(), version);
        let text = "the job was closed as another version of an application; submit it as that";
        Error::new(ErrorKind::Conflict, text)
            .with("job", self.id)
            .with("closed as", version(closed.app.as_ref()))
            .with("now as", version(self.version().as_ref()))
    }

    /// Creates the object that closes the job, or reads the one that is there.
    async fn close(
        &self,
        env: &Env,
        layers: Vec<Vec<SstDescriptor>>,
        operands: bool,
        limit: Duration,
    ) -> Result<ClosedJob> {
        let closed = self.closed(AttemptId(env.random_u128()), layers, operands);
        let (name, bytes) = (ObjectName::IngestManifest(self.id), closed.encode()?);
        let objects = Objects { env: env.clone(), limit };
        let create = async || {
            let created = conditional::create(env, name, bytes.clone(), closed.attempt).await;
            match (created.outcome, created.error) {
                (PutOutcome::Committed, _) => Ok(None),
                (PutOutcome::Lost(there), _) => match ClosedJob::decode(&there) {
                    // The object may be damaged in the store or only in transfer: read it again to
                    // find out.
                    Err(error) if error.kind() == ErrorKind::Corruption => {
                        let there = objects.closed_job(self.id).await?;
                        there.map(Some).ok_or_else(collected_meanwhile)
                    }
                    there => there.map(Some),
                },
                (_, Some(error)) => Err(error),
                (_, None) => Err(Error::unavailable("the store does not settle a create")),
            }
        };
        let limit = limit_of(limit, bytes.len() as u64);
        let there = with_retries(env, limit, "create", create).await;
        Ok(there.map_err(|error| error.with("object", name))?.unwrap_or(closed))
    }

    /// Aborts the job unless it was submitted, and returns its status. A commit records the abort,
    /// so that the collector deletes the staged tables in its next round.
    ///
    /// # Errors
    /// NotFound if there is no database; errors of the store.
    pub fn abort<'a>(&'a self, env: &'a Env, limit: Duration) -> BoxFuture<'a, Result<JobStatus>> {
        async move {
            let (env, requests) = &count(env.clone());
            let objects = Objects { env: env.clone(), limit };
            let work = async {
                let closed = self.close(env, Vec::new(), false, limit).await?;
                // A successful create does not prove that the job was open: the job may be
                // ingested and its folder collected (rule N8).
                let newest = newest(&objects).await?;
                // The version as which the job was closed. An object that closed the job as
                // aborted records no version: use that of this handle.
                let app = if closed.is_aborted() { self.version() } else { closed.app.clone() };
                let stands = match standing_as(&newest, self.id, app.as_ref()) {
                    JobStatus::Open => {
                        let edit = IngestEdit::Withdraw { job: self.id, app };
                        let edit = Edit::Ingest(edit);
                        match try_commit_alone(&objects, edit, newest).await? {
                            Ok(state) => standing(&state, self.id),
                            // The job was submitted meanwhile, or the manifest can record no
                            // further aborts.
                            Err(Refusal::Conflict(Conflict::Ingest(_))) => {
                                status_of(env, self, limit).await?
                            }
                            Err(refusal) => return Err(refusal.into()),
                        }
                    }
                    stands => stands,
                };
                match stands {
                    // The job can no longer be submitted. Its tables stay until its deadline.
                    JobStatus::Open if closed.is_aborted() => Ok(JobStatus::Withdrawn),
                    stands => Ok(stands),
                }
            };
            requests.within(env, limit, "abort ingest job", work).await
        }
        .boxed()
    }
}

impl IngestRequest {
    fn edit(&self, env: &Env) -> RequestIngest {
        let IngestJob { id, database, timeline, .. } = self.job.clone();
        let app = self.job.version();
        let digest = Bytes::copy_from_slice(&self.attempt.to_bytes());
        RequestIngest { job: id, database, timeline, digest, app, requested_at: env.clock.now() }
    }

    /// Submits the job to the database's writer, which may run in any process. With `wait` the call
    /// waits for a free place in the queue of submitted jobs, and then until the writer has
    /// ingested or refused the job.
    ///
    /// # Errors
    /// Conflict if the job does not fit the database; NotFound if there is no database; errors of
    /// the store. Without `wait` Unavailable if the queue is full. With `wait` also Timeout; the
    /// job stays submitted.
    pub fn submit<'a>(
        &'a self,
        env: &'a Env,
        wait: bool,
        limit: Duration,
    ) -> BoxFuture<'a, Result<JobStatus>> {
        async move {
            let (env, requests) = &count(env.clone());
            let objects = Objects { env: env.clone(), limit };
            let work = async {
                let edit = Edit::Ingest(IngestEdit::Request(self.edit(env)));
                let full = Refusal::Conflict(Conflict::Ingest(IngestConflict::Full));
                let asked = loop {
                    let newest = newest(&objects).await?;
                    check_lives(&newest)?;
                    let asked = try_commit_alone(&objects, edit.clone(), newest).await?;
                    if !wait || asked != Err(full) {
                        break asked;
                    }
                    env.clock.sleep(env.jittered(LOOK)).await;
                };
                let mut job = self.job.id;
                let mut state = match asked {
                    Ok(state) => state,
                    // Another job has ingested the same version of the application: return that
                    // job's result.
                    Err(Refusal::Conflict(Conflict::Ingest(IngestConflict::AppHas {
                        job: other,
                    }))) => {
                        job = other;
                        newest(&objects).await?
                    }
                    Err(refusal) => return Err(refusal.into()),
                };
                while wait && standing(&state, job) == JobStatus::Pending {
                    env.clock.sleep(env.jittered(LOOK)).await;
                    let look = look(&objects, Some(Arc::clone(&state))).await?;
                    state = look.ok_or_else(|| no_database(env))?;
                }
                // The awaited job, this one or another, has the same version of the application.
                let app = self.job.version();
                Ok(standing_since(&state, (job, app.as_ref()), self.job.timeline))
            };
            requests.within(env, limit, "submit ingest job", work).await
        }
        .boxed()
    }
}

/// The status of a job. A job is not found by its id alone before it has staged an object. If a
/// later version of its application was ingested and its objects were collected, it is not found
/// either; use [`status_of`] for such jobs.
///
/// # Errors
/// NotFound if there is no database, or no trace of such a job; errors of the store.
pub fn status(env: &Env, job: JobId, limit: Duration) -> BoxFuture<'_, Result<JobStatus>> {
    stands(env, job, None, limit)
}

/// The status of `job`, whose application and version are known. If another job has the same
/// version of the application, the status is that of the other job.
///
/// # Errors
/// As [`status`]; Conflict for a job of another database.
pub fn status_of<'a>(
    env: &'a Env,
    job: &IngestJob,
    limit: Duration,
) -> BoxFuture<'a, Result<JobStatus>> {
    stands(env, job.id, Some((job.database, job.version())), limit)
}

fn stands(
    env: &Env,
    job: JobId,
    of: Option<(DatabaseId, Option<JobApp>)>,
    limit: Duration,
) -> BoxFuture<'_, Result<JobStatus>> {
    async move {
        let (env, requests) = &count(env.clone());
        let objects = Objects { env: env.clone(), limit };
        let by_id = of.is_none();
        let work = async {
            let state = newest(&objects).await?;
            let app = match of {
                Some((database, _)) if database != state.database => {
                    return Err(of_another_database());
                }
                of => of.and_then(|(_, app)| app),
            };
            let stands = standing_as(&state, job, app.as_ref());
            if let Some(other) = app.as_ref().and_then(|app| bringing(&state, app))
                && matches!(stands, JobStatus::Open | JobStatus::Forgotten)
            {
                return Ok(standing(&state, other));
            }
            if stands != JobStatus::Open {
                return Ok(stands);
            }
            let stands = objects.standing_of_closed(&state, job).await?;
            if stands != JobStatus::Open || !by_id || !objects.list_job(job).await?.is_empty() {
                return Ok(stands);
            }
            // The job may have ended, and its objects been collected, after the manifest was read.
            let newest = newest(&objects).await?;
            match standing(&newest, job) {
                JobStatus::Open => Err(no_such_job(job)),
                stands => Ok(stands),
            }
        };
        requests.within(env, limit, "ingest status", work).await
    }
    .boxed()
}

/// The error for the id of a job that left no trace in the database.
pub(super) fn no_such_job(job: JobId) -> Error {
    let text = "there is no trace of such a job: it has staged no object here, or it has ended and \
                its objects were collected";
    Error::new(ErrorKind::NotFound, text).with("job", job)
}

fn of_another_database() -> Error {
    let text = "the ingest job belongs to another database, or to an earlier database in this \
                location; begin a new job";
    Error::new(ErrorKind::Conflict, text)
}

/// Forgets the last ingested version of an application, so that its versions may begin again.
///
/// # Errors
/// NotFound if there is no database; Conflict while a job of the application is submitted; errors
/// of the store.
pub fn forget_app<'a>(env: &'a Env, app: &'a str, limit: Duration) -> BoxFuture<'a, Result<()>> {
    async move {
        let (env, requests) = &count(env.clone());
        let objects = Objects { env: env.clone(), limit };
        let work = async {
            let newest = newest(&objects).await?;
            let count = newest.forgotten_apps.count;
            let edit = Edit::Ingest(IngestEdit::ForgetApp { app: app.to_owned(), count });
            commit_alone(&objects, edit, newest).await.map(drop)
        };
        requests.within(env, limit, "forget application", work).await
    }
    .boxed()
}

/// The error of a closing object that was deleted during the call. A retry creates the object
/// again, and the manifest then shows that the job is too late.
fn collected_meanwhile() -> Error {
    Error::unavailable("the object that closed the job was deleted while it was read; try again")
}

impl Database {
    /// Ingests a job atomically. When the future ends, reads of this handle see all its rows; the
    /// job becomes durable later. A repeated call for the same job returns the same result.
    ///
    /// # Errors
    /// Conflict if the job belongs to another database, its deadline has passed, it was aborted, or
    /// its version is below the last version of its application; Invalid if tables are missing;
    /// Closed, Fenced; Timeout, which says whether the job is submitted.
    pub fn ingest<'a>(&'a self, request: &'a IngestRequest) -> BoxFuture<'a, Result<Commit>> {
        async move {
            let writer = self.writer()?;
            let limit = writer.options.deadline;
            let asked = writer.ingest(request.edit(&writer.env));
            let taken = writer.context.deadline(limit, "ingest", asked).await;
            taken.map_err(|error| match error.kind() {
                ErrorKind::Timeout => {
                    let awaited = awaited(&writer.manifests.newest_known(), request.job.id);
                    error.with("waited for", awaited).during("ingest")
                }
                _ => error.during("ingest"),
            })
        }
        .boxed()
    }
}

/// The reason why an ingest reached its deadline, and whether the job is submitted.
fn awaited(newest: &Manifest, job: JobId) -> &'static str {
    if pending(newest, job).is_some() {
        return "its adoption; the job is submitted, and this writer or the next adopts it";
    }
    if newest.pending_ingests.len() >= MOST_PENDING {
        return "room, because the maximum number of jobs waits for this writer; the job is not \
                submitted: ingest it again";
    }
    "the store; whether the job is submitted is unknown: ingest it again"
}

/// The error of a job that was not ingested, as [`IngestRequest::submit`] returns it and
/// [`status`] describes it.
#[must_use]
pub fn refusal(job: JobId, standing: &JobStatus) -> Error {
    not_adopted(job, standing)
}
