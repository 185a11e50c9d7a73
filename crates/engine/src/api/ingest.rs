//! Ingest jobs from any process (RFC 0035): staged into a folder of their own, closed by one
//! create, asked for by one commit.

use crate::api::db::Database;
use crate::io::env::Env;
use crate::io::store::conditional;
use crate::io::store::retry::{limit_of, with_retries};
use crate::manifests::client::{commit_alone, look, newest, try_commit_alone};
use crate::manifests::missing::{check_lives, no_database};
use crate::manifests::objects::{Objects, is_damage};
use crate::tables::restack::restack;
use crate::tables::{LoadOptions, LoadPhases, Loader, PartOptions, PartWriter, ReplacedRange};
use crate::writer::behind::not_made_for_it;
use crate::writer::commit::Commit;
use crate::writer::ingest::not_taken_in;
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
    ClosedJob, JobApp, JobStatus, bringing, deadline, layered, standing, standing_as,
    standing_since,
};
use siltstone_manifest::{Conflict, Edit, IngestConflict, IngestEdit, Refusal, RequestIngest};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// For so long a job may be asked for, where nobody says otherwise.
pub const JOB_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);
/// How far above the horizon a job's deadline is at least, where it lives so long: the horizon
/// passes that deadline once 4,096 jobs with an earlier one have ended, and each of them moves it
/// by no more than this.
const LEAST_ABOVE_HORIZON: Duration = Duration::from_secs(3600);
/// How often whoever waits for the writer looks.
const LOOK: Duration = Duration::from_millis(250);

/// A job: what tasks stage their parts by, in any process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngestJob {
    /// Its identity; the time in it is its deadline.
    pub id: JobId,
    /// The database that it is for.
    pub database: DatabaseId,
    /// The timeline that it is for; `None`: the first one.
    pub timeline: Option<TimelineId>,
    /// The application whose version it is, and the version: taken in once for good.
    pub app: Option<(String, u64)>,
    /// How many applications had been forgotten when it began.
    pub forgotten: u64,
    /// Keys of which it leaves nothing that was there before (rule P5).
    pub replace: Option<ReplacedRange>,
    /// Whether it comes behind all that is there (rule P6): of equal keys the others' count.
    pub behind: bool,
}

/// A part that is staged: its tables, in key order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedPart(Vec<SstDescriptor>);

/// A job that is closed: whoever has this may ask for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngestRequest {
    /// The job.
    pub job: IngestJob,
    /// The attempt that closed it, which names its content.
    pub attempt: AttemptId,
    /// Tables, rows and bytes that it brings.
    pub tables: u64,
    /// Rows, deletes and rows of equal keys in several parts included.
    pub rows: u64,
    /// Bytes of the tables.
    pub bytes: u64,
}

impl StagedPart {
    /// Rows of its tables.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.0.iter().map(|table| table.entries).sum()
    }

    /// Bytes of its tables.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|table| table.object_bytes).sum()
    }

    /// How many tables it has.
    #[must_use]
    pub fn tables(&self) -> u64 {
        self.0.len() as u64
    }

    /// What travels to whoever closes the job.
    ///
    /// # Errors
    /// Invalid where it has too many tables.
    pub fn to_bytes(&self, job: &IngestJob) -> Result<Bytes> {
        job.closed(AttemptId::NONE, layered(self.0.clone())).encode()
    }

    /// Reads it back.
    ///
    /// # Errors
    /// Corruption, Unsupported.
    pub fn from_bytes(bytes: &[u8]) -> Result<StagedPart> {
        Ok(StagedPart(ClosedJob::decode(bytes)?.layers.into_iter().flatten().collect()))
    }
}

impl IngestJob {
    /// A new job for the database in the store of `env`, which may be asked for until `lifetime`
    /// from now on. The first one of a database commits that it has jobs.
    ///
    /// # Errors
    /// NotFound without a database; Invalid for a lifetime that is over already; those of the
    /// store.
    pub fn begin(
        env: &Env,
        lifetime: Duration,
        app: Option<(String, u64)>,
        limit: Duration,
    ) -> BoxFuture<'_, Result<IngestJob>> {
        async move { IngestJob::begin_as(env, lifetime, app, false, limit).await }.boxed()
    }

    /// As [`IngestJob::begin`], of a job that comes behind all that is there, deletes and what has
    /// expired included: its rows fill keys that nobody has written.
    ///
    /// # Errors
    /// As [`IngestJob::begin`]; Unsupported where the database was not made for it.
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
            // The horizon is ahead of the clock where thousands of jobs ended whose time was not
            // over. This one begins later than all of them.
            let least = millis(lifetime.min(LEAST_ABOVE_HORIZON));
            let until = until.max(newest.ingest_horizon.0.saturating_add(least));
            let id = JobId(ulid_bits(until, env.random_u128()));
            if lifetime.is_zero() || until >= 1 << 48 {
                return Err(Error::invalid(
                    "the job's deadline is over, or beyond all time; check this machine's clock \
                     and the lifetime",
                ));
            }
            let timeline = newest.timelines.last().map(|one| one.id);
            let (database, forgotten) = (newest.database, newest.forgotten_apps.count);
            Ok(IngestJob { id, database, timeline, app, forgotten, replace: None, behind })
        };
        env.deadline(limit, "begin ingest job", work).await
    }

    /// The same job, which replaces what lies in `range` by its rows: an overwrite.
    #[must_use]
    pub fn replacing(self, range: ReplacedRange) -> IngestJob {
        IngestJob { replace: Some(range), ..self }
    }

    /// The same job, as a version of an application.
    pub(super) fn version(&self) -> Option<JobApp> {
        let forgotten = self.forgotten;
        let of = |(name, version)| JobApp { name, version, forgotten };
        self.app.clone().map(of)
    }

    /// The moment until which it may be asked for.
    #[must_use]
    pub fn deadline(&self) -> UnixMillis {
        deadline(self.id)
    }

    /// Stages a part.
    #[must_use]
    pub fn writer(&self, env: &Env, how: PartOptions) -> PartWriter {
        PartWriter::new(env.clone(), (self.id, self.database), how)
    }

    /// Stages a part of any amount of rows, on all cores.
    #[must_use]
    pub fn loader(&self, env: &Env, how: PartOptions, load: LoadOptions) -> Loader {
        Loader::new(env.clone(), (self.id, self.database), (how, load))
    }

    /// What a [`Loader`] of it has staged, and how long that took.
    ///
    /// # Errors
    /// Invalid for equal keys that are refused; those of the store.
    pub fn finish_load(loader: Loader) -> BoxFuture<'static, Result<(StagedPart, LoadPhases)>> {
        async move {
            let (tables, phases) = loader.finish().await?;
            Ok((StagedPart(tables), phases))
        }
        .boxed()
    }

    /// What a [`PartWriter`] of it has staged.
    ///
    /// # Errors
    /// As [`PartWriter::finish`].
    pub fn finish(writer: PartWriter) -> BoxFuture<'static, Result<StagedPart>> {
        async move { writer.finish().await.map(StagedPart) }.boxed()
    }

    fn closed(&self, attempt: AttemptId, layers: Vec<Vec<SstDescriptor>>) -> ClosedJob {
        let (database, timeline) = (self.database, self.timeline);
        let behind = self.behind && !layers.is_empty();
        let app = self.version();
        ClosedJob { job: self.id, database, attempt, timeline, app, layers, behind }
    }

    /// Closes the job: these parts and no others, of equal keys the last part's. Where somebody has
    /// closed it before, their parts count.
    ///
    /// # Errors
    /// Invalid without rows, unless it replaces a range; for rows outside of that; for a part that
    /// is given twice or is another job's; Conflict where the job was aborted; those of the store.
    pub fn commit<'a>(
        &'a self,
        env: &'a Env,
        parts: &'a [StagedPart],
        limit: Duration,
    ) -> BoxFuture<'a, Result<IngestRequest>> {
        async move {
            let tables: Vec<SstDescriptor> = parts.iter().flat_map(|part| part.0.clone()).collect();
            let mut names = HashSet::new();
            if self.behind && self.replace.is_some() {
                return Err(Error::invalid(
                    "a job that comes behind all that is there replaces nothing; make two jobs",
                ));
            }
            if tables.is_empty() && self.replace.is_none() {
                return Err(Error::invalid("the job has no rows: nothing was staged"));
            }
            if tables.iter().any(|table| table.job != Some(self.id) || !names.insert(table.id)) {
                return Err(Error::invalid("a part is another job's, or is given twice"));
            }
            self.check_inside(&tables)?;
            let of = (self.id, self.database);
            // Takes as long as the parts are large: each request of it has the limit, not all.
            let mut layers = restack(env, of, layered(tables), limit).await?;
            let work = async {
                if let Some(range) = &self.replace {
                    // Below every other layer, and what is staged lies in the range: nothing of
                    // the job is deleted.
                    layers.insert(0, vec![range.stage(env, of, limit).await?]);
                }
                let closed = self.close(env, layers, limit).await?;
                if closed.is_aborted() {
                    let text = "the job was aborted; make another one";
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
            env.deadline(limit, "commit ingest job", work).await
        }
        .boxed()
    }

    fn closed_otherwise(&self, closed: &ClosedJob) -> Error {
        let version = |app: &JobApp| format!("version {} of {:?}", app.version, app.name);
        let version = |app: Option<&JobApp>| app.map_or("no application's".to_owned(), version);
        let text = "the job was closed as another version of an application; ask for it as that";
        Error::new(ErrorKind::Conflict, text)
            .with("job", self.id)
            .with("closed as", version(closed.app.as_ref()))
            .with("now as", version(self.version().as_ref()))
    }

    /// A row outside of what is replaced would be kept beside rows that nobody replaced: a mistake
    /// of whoever split the rows, more often than not.
    fn check_inside(&self, tables: &[SstDescriptor]) -> Result<()> {
        let Some(range) = &self.replace else { return Ok(()) };
        let Some(outside) = tables.iter().find(|table| !range.holds(table)) else { return Ok(()) };
        let text = "rows lie outside of the range that the job replaces; a job that replaces \
                    nothing brings them";
        let none = "the last key".to_owned();
        let end = range.end().map_or(none, |end| end.escape_ascii().to_string());
        Err(Error::invalid(text)
            .with("first key", outside.first_key.escape_ascii())
            .with("last key", outside.last_key.escape_ascii())
            .with("replaced from", range.start().escape_ascii())
            .with("up to", end))
    }

    /// Creates the object that closes the job, or reads the one that is there.
    async fn close(
        &self,
        env: &Env,
        layers: Vec<Vec<SstDescriptor>>,
        limit: Duration,
    ) -> Result<ClosedJob> {
        let closed = self.closed(AttemptId(env.random_u128()), layers);
        let (name, bytes) = (ObjectName::IngestManifest(self.id), closed.encode()?);
        let objects = Objects { env: env.clone(), limit };
        let create = async || {
            let created = conditional::create(env, name, bytes.clone(), closed.attempt).await;
            match (created.outcome, created.error) {
                (PutOutcome::Committed, _) => Ok(None),
                (PutOutcome::Lost(there), _) => match ClosedJob::decode(&there) {
                    // Damaged on the way, or for good: a read of its own tells.
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

    /// Gives the job up, unless it was asked for; what became of it. That it is given up is
    /// remembered by a commit, so that the collector takes what it staged with its next round.
    ///
    /// # Errors
    /// NotFound without a database; those of the store.
    pub fn abort<'a>(&'a self, env: &'a Env, limit: Duration) -> BoxFuture<'a, Result<JobStatus>> {
        async move {
            let objects = Objects { env: env.clone(), limit };
            let work = async {
                let closed = self.close(env, Vec::new(), limit).await?;
                // What was created says nothing yet: the job may be part of the database, and its
                // folder collected (rule N8).
                let newest = newest(&objects).await?;
                // As which version it was closed, unless it was as aborted, by whomever.
                let app = if closed.is_aborted() { self.version() } else { closed.app.clone() };
                let stands = match standing_as(&newest, self.id, app.as_ref()) {
                    JobStatus::Open => {
                        let edit = IngestEdit::Withdraw { job: self.id, app };
                        let edit = Edit::Ingest(edit);
                        match try_commit_alone(&objects, edit, newest).await? {
                            Ok(state) => standing(&state, self.id),
                            // Asked for meanwhile, or as much is remembered as can be.
                            Err(Refusal::Conflict(Conflict::Ingest(_))) => {
                                status_of(env, self, limit).await?
                            }
                            Err(refusal) => return Err(refusal.into()),
                        }
                    }
                    stands => stands,
                };
                match stands {
                    // Nobody can ask for it; its tables stay until its deadline is over.
                    JobStatus::Open if closed.is_aborted() => Ok(JobStatus::Withdrawn),
                    stands => Ok(stands),
                }
            };
            env.deadline(limit, "abort ingest job", work).await
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

    /// Asks for the job, and leaves it to the writer, wherever that is. With `wait`: until it is
    /// taken in or refused, and before that until there is room for another request.
    ///
    /// # Errors
    /// Conflict where the request does not fit; NotFound without a database; those of the store;
    /// without `wait` Unavailable where no more jobs may wait; with `wait` Timeout too: the job
    /// stays asked for.
    pub fn submit<'a>(
        &'a self,
        env: &'a Env,
        wait: bool,
        limit: Duration,
    ) -> BoxFuture<'a, Result<JobStatus>> {
        async move {
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
                    // The same version of its application: answered with the job that brought it.
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
                // That which is waited for, its own or another's, is the same version.
                let app = self.job.version();
                Ok(standing_since(&state, (job, app.as_ref()), self.job.timeline))
            };
            env.deadline(limit, "submit ingest job", work).await
        }
        .boxed()
    }
}

/// How a job stands. Of one that a later version of its application has passed, and whose object is
/// collected, only [`status_of`] knows that it is not open any more.
///
/// # Errors
/// NotFound without a database; those of the store.
pub fn status(env: &Env, job: JobId, limit: Duration) -> BoxFuture<'_, Result<JobStatus>> {
    stands(env, job, None, limit)
}

/// As [`status`], by whoever has the job, and so knows whose version it is: where another job
/// brings the same version, it stands as that one does.
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
        let objects = Objects { env: env.clone(), limit };
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
            // Whose version it is, and so whether a later one has passed it, its object says.
            let app = match objects.closed_job(job).await {
                Err(error) if is_damage(error.kind()) => None,
                closed => closed?.and_then(|closed| closed.app),
            };
            Ok(standing_as(&state, job, app.as_ref()))
        };
        env.deadline(limit, "ingest status", work).await
    }
    .boxed()
}

fn of_another_database() -> Error {
    let text = "the ingest job is of another database, or of one that stood here before";
    Error::new(ErrorKind::Conflict, text)
}

/// Forgets the last version of an application, which may begin anew then.
///
/// # Errors
/// NotFound without a database; Conflict while a job of it waits; those of the store.
pub fn forget_app<'a>(env: &'a Env, app: &'a str, limit: Duration) -> BoxFuture<'a, Result<()>> {
    async move {
        let objects = Objects { env: env.clone(), limit };
        let work = async {
            let newest = newest(&objects).await?;
            let count = newest.forgotten_apps.count;
            let edit = Edit::Ingest(IngestEdit::ForgetApp { app: app.to_owned(), count });
            commit_alone(&objects, edit, newest).await.map(drop)
        };
        env.deadline(limit, "forget application", work).await
    }
    .boxed()
}

/// Whoever asks again creates the object anew, which the manifest knows to be too late.
fn collected_meanwhile() -> Error {
    Error::unavailable("the object that closed the job was collected while it was read")
}

impl Database {
    /// Makes a job part of the database: visible to this handle's reads when this ends, all of it
    /// or nothing, and durable later. Made again it answers the same.
    ///
    /// # Errors
    /// Conflict where the request does not fit: another database's, its deadline over, aborted, a
    /// version of its application that is below the last; Invalid where tables are missing; Closed,
    /// Fenced; Timeout: it stays asked for.
    pub fn ingest<'a>(&'a self, request: &'a IngestRequest) -> BoxFuture<'a, Result<Commit>> {
        async move {
            let writer = self.writer()?;
            let limit = writer.options.deadline;
            let asked = writer.ingest(request.edit(&writer.env));
            let taken = writer.context.deadline(limit, "ingest", asked).await;
            taken.map_err(|error| error.during("ingest"))
        }
        .boxed()
    }
}

/// The error of a job that did not become part of the database, as `submit` and `status` have it.
#[must_use]
pub fn refusal(job: JobId, standing: &JobStatus) -> Error {
    not_taken_in(job, standing)
}
