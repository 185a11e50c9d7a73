//! Edits of ingest jobs (RFC 0035, rules N9 to N13): any process requests a job, the writer
//! installs or refuses it, the collector forgets it.

use super::compaction::add_to_run;
use super::hold::keep_ingest;
use super::writer::{check_epoch, push_layers};
use super::{Conflict, Refusal};
use crate::features::{INGEST, INGEST_APPS};
use crate::ingest::{
    JobApp, JobStatus, deadline, deepest_run, is_passed, pending, run_behind, standing,
};
use crate::rules::{Rule, Rules};
use crate::state::{
    HISTORY_BEGINS, IngestApp, IngestOutcome, MOST_APPS, MOST_PENDING, MOST_REMEMBERED, Manifest,
    PendingIngest, RememberedIngest,
};
use bytes::Bytes;
use siltstone_base::{DatabaseId, Epoch, JobId, Seq, SstDescriptor, TimelineId, UnixMillis};
use std::collections::{BTreeMap, HashSet};
use std::fmt;

/// The version of Siltstone that introduced ingest jobs.
const SINCE: &str = "0.1.0";
/// The reason recorded for a job whose predecessor was refused.
const FELL: &str = "an earlier version of its application was refused";

/// One change of the state of ingest jobs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum IngestEdit {
    /// Jobs are staged from now on: recorded before the first one is staged (RFC 0024).
    Begin,
    /// Requests a job (rule N9).
    Request(RequestIngest),
    /// Withdraws a job, as long as it was not requested.
    Withdraw {
        /// The job.
        job: JobId,
        /// The application and version of the job.
        app: Option<JobApp>,
    },
    /// The writer refuses a pending job; later versions of its application are refused with it.
    Refuse {
        /// The writer's epoch.
        epoch: Epoch,
        /// The job.
        job: JobId,
        /// The reason.
        reason: String,
    },
    /// Jobs with a deadline before this time are refused, and ended jobs are forgotten (rule N10).
    /// It only grows.
    Horizon {
        /// The new horizon.
        to: UnixMillis,
    },
    /// Forgets the last version of an application (rule N11).
    ForgetApp {
        /// Its name.
        app: String,
        /// Number of applications that had been forgotten at the time of this call.
        count: u64,
    },
}

/// A request to install a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestIngest {
    /// The job.
    pub job: JobId,
    /// The database that it was staged for.
    pub database: DatabaseId,
    /// The timeline that it was staged for; `None`: the first one.
    pub timeline: Option<TimelineId>,
    /// Digest of its content.
    pub digest: Bytes,
    /// The application and version of the job.
    pub app: Option<JobApp>,
    /// When it is requested.
    pub requested_at: UnixMillis,
}

/// A job that a flush installs (rule N13).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InstallIngest {
    /// Number of layers of the flush that are older than the job.
    pub after: usize,
    /// The job.
    pub job: JobId,
    /// Digest of its content.
    pub digest: Bytes,
    /// Its layers, oldest first, each with its sequence number.
    pub layers: Vec<Vec<SstDescriptor>>,
}

/// A job that is installed behind all other data (rule P6).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InstallBehind {
    /// The job.
    pub job: JobId,
    /// Digest of its content.
    pub digest: Bytes,
    /// Its layers, oldest first; the commit assigns their sequence numbers.
    pub layers: Vec<Vec<SstDescriptor>>,
}

/// The reason why an edit of a job does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IngestConflict {
    /// It was staged for another database.
    OtherDatabase {
        /// The database at this location.
        here: DatabaseId,
    },
    /// It was staged before the database was restored.
    OtherTimeline,
    /// A request with other content is pending under its id.
    OtherContent,
    /// Its deadline has passed.
    Forgotten {
        /// Jobs with a deadline before this are forgotten.
        horizon: UnixMillis,
    },
    /// It was refused or withdrawn.
    Ended,
    /// It is requested or installed.
    Requested,
    /// The version of the application was installed by another job, or is pending.
    AppHas {
        /// That job.
        job: JobId,
    },
    /// A later version of the application was installed, or is pending.
    AppIsAhead {
        /// That version.
        version: u64,
    },
    /// A job of the application is pending.
    AppPending,
    /// The job began before its application was forgotten.
    AppForgotten,
    /// A later version of its application was installed, or the application was forgotten.
    Passed,
    /// The maximum number of jobs is pending.
    Full,
}

impl IngestEdit {
    pub(super) fn apply(&self, next: &mut Manifest, rules: Rules) -> Result<(), Refusal> {
        match self {
            IngestEdit::Begin => next.features.name(INGEST, SINCE),
            IngestEdit::Request(request) => request.apply(next, rules)?,
            IngestEdit::Withdraw { job, app } => withdraw(next, *job, app.as_ref(), rules)?,
            IngestEdit::Refuse { epoch, job, reason } => {
                check_epoch(next, *epoch)?;
                refuse(next, *job, reason, rules);
            }
            IngestEdit::Horizon { to } => {
                next.ingest_horizon = next.ingest_horizon.max(*to);
                let horizon = next.ingest_horizon;
                next.remembered_ingests.retain(|one| deadline(one.job) >= horizon);
            }
            IngestEdit::ForgetApp { app, count } if !next.forgotten_apps.has(app, *count) => {
                if waits(next, app) {
                    return Err(IngestConflict::AppPending.into());
                }
                forget_app(next, app, rules)?;
            }
            IngestEdit::ForgetApp { .. } => {}
        }
        Ok(())
    }

    /// A request is visible as long as the job is, however the job ends.
    pub(super) fn in_effect(&self, state: &Manifest) -> bool {
        match self {
            IngestEdit::Begin => state.features.names(INGEST),
            IngestEdit::Request(RequestIngest { job, digest, .. }) => match standing(state, *job) {
                JobStatus::Pending => pending(state, *job).is_some_and(|one| one.digest == *digest),
                JobStatus::Adopted(seq) => !is_undone(state, seq),
                JobStatus::AdoptedBefore(_) | JobStatus::Refused(_) => true,
                _ => false,
            },
            IngestEdit::Withdraw { job, .. } => standing(state, *job) == JobStatus::Withdrawn,
            IngestEdit::Refuse { epoch, job, .. } => {
                state.writer_epoch == *epoch && pending(state, *job).is_none()
            }
            IngestEdit::Horizon { to } => state.ingest_horizon >= *to,
            // A missing record proves nothing once a later record of the application exists, or
            // while its first job is pending.
            IngestEdit::ForgetApp { app, count } => {
                let unknown = state.ingest_apps.iter().all(|one| one.app != *app);
                state.forgotten_apps.has(app, *count) || unknown && !waits(state, app)
            }
        }
    }
}

impl RequestIngest {
    fn apply(&self, next: &mut Manifest, rules: Rules) -> Result<(), Refusal> {
        if self.database != next.database {
            return Err(IngestConflict::OtherDatabase { here: next.database }.into());
        }
        if pending(next, self.job).is_some_and(|one| one.digest != self.digest) {
            return Err(IngestConflict::OtherContent.into());
        }
        match standing(next, self.job) {
            JobStatus::Adopted(seq) if is_undone(next, seq) => {
                return Err(IngestConflict::OtherTimeline.into());
            }
            JobStatus::Pending | JobStatus::Adopted(_) | JobStatus::AdoptedBefore(_) => {
                return Ok(());
            }
            JobStatus::Refused(_) | JobStatus::Withdrawn | JobStatus::Ended => {
                return Err(IngestConflict::Ended.into());
            }
            JobStatus::Forgotten if rules.has(Rule::RequestAboveHorizon) => {
                return Err(IngestConflict::Forgotten { horizon: next.ingest_horizon }.into());
            }
            JobStatus::Open | JobStatus::Forgotten => {}
        }
        if self.timeline != next.timelines.last().map(|one| one.id) {
            return Err(IngestConflict::OtherTimeline.into());
        }
        if let Some(app) = &self.app {
            check_app(next, app, rules)?;
            next.features.name_for_committers(INGEST_APPS, SINCE);
        }
        if next.pending_ingests.len() >= MOST_PENDING {
            return Err(IngestConflict::Full.into());
        }
        next.features.name(INGEST, SINCE);
        // A process that finds its INGEST in the log reads it by a version that shows the job (rule
        // Q5); a lease on the previous version does not.
        next.tables_since = next.id;
        next.pending_ingests.push(PendingIngest {
            job: self.job,
            requested_at: self.requested_at,
            digest: self.digest.clone(),
            app: self.app.as_ref().map(|app| (app.name.clone(), app.version)),
            timeline: self.timeline,
        });
        Ok(())
    }
}

/// Checks that this version of an application may be requested: only above all earlier versions,
/// and only by a job that began after the application was last forgotten (rule N11).
fn check_app(state: &Manifest, job: &JobApp, rules: Rules) -> Result<(), Refusal> {
    let JobApp { name: app, version, forgotten } = job;
    // Checked first: the same version of an earlier record of the application is a different one.
    if *forgotten < state.forgotten_apps.begins(app) && rules.has(Rule::RefuseForgotten) {
        return Err(IngestConflict::AppForgotten.into());
    }
    let waiting = state.pending_ingests.iter().filter_map(|one| {
        let (name, version) = one.app.as_ref()?;
        (name == app).then_some((*version, one.job))
    });
    let known = state.ingest_apps.iter().filter(|one| one.app == *app);
    let last = known.map(|one| (one.version, one.job)).chain(waiting).max();
    match last {
        Some((last, job)) if last == *version => Err(IngestConflict::AppHas { job }.into()),
        Some((last, _)) if last > *version => {
            Err(IngestConflict::AppIsAhead { version: last }.into())
        }
        Some(_) => Ok(()),
        None => {
            let waiting = state.pending_ingests.iter().filter_map(|one| one.app.as_ref());
            let apps = state.ingest_apps.iter().map(|one| one.app.as_str());
            let all: HashSet<&str> = apps.chain(waiting.map(|(app, _)| app.as_str())).collect();
            if all.len() < MOST_APPS {
                return Ok(());
            }
            Err(Refusal::Invalid("4,096 applications are recorded; forget some that have ended"))
        }
    }
}

fn withdraw(
    next: &mut Manifest,
    job: JobId,
    app: Option<&JobApp>,
    rules: Rules,
) -> Result<(), Refusal> {
    match standing(next, job) {
        JobStatus::Pending | JobStatus::Adopted(_) | JobStatus::AdoptedBefore(_)
            if rules.has(Rule::WithdrawUnrequested) =>
        {
            Err(IngestConflict::Requested.into())
        }
        JobStatus::Withdrawn | JobStatus::Refused(_) | JobStatus::Ended => Ok(()),
        JobStatus::Forgotten => {
            Err(IngestConflict::Forgotten { horizon: next.ingest_horizon }.into())
        }
        _ if rules.has(Rule::WithdrawUnpassed) && app.is_some_and(|app| is_passed(next, app)) => {
            Err(IngestConflict::Passed.into())
        }
        _ => {
            next.pending_ingests.retain(|one| one.job != job);
            remember(next, job, IngestOutcome::Withdrawn, None, rules);
            Ok(())
        }
    }
}

/// Refuses a pending job, and the later pending versions of its application.
fn refuse(next: &mut Manifest, job: JobId, reason: &str, rules: Rules) {
    let Some(refused) = pending(next, job).cloned() else { return };
    let falls = |one: &PendingIngest| match (&refused.app, &one.app) {
        (Some((app, version)), Some((other, later))) => app == other && version < later,
        _ => false,
    };
    let fall: Vec<JobId> =
        next.pending_ingests.iter().filter(|one| falls(one)).map(|one| one.job).collect();
    next.pending_ingests.retain(|one| one.job != job && !fall.contains(&one.job));
    remember(next, job, IngestOutcome::Refused, Some(reason), rules);
    for job in fall {
        remember(next, job, IngestOutcome::Refused, Some(FELL), rules);
    }
}

fn remember(
    next: &mut Manifest,
    job: JobId,
    outcome: IngestOutcome,
    reason: Option<&str>,
    rules: Rules,
) {
    if rules.has(Rule::RememberIngests) {
        make_room(next, rules);
        let reason = reason.map(str::to_owned);
        next.remembered_ingests.push(RememberedIngest { job, outcome, reason });
    }
}

/// If the maximum number of jobs is remembered, forgets those with the earliest deadline and moves
/// the horizon past it: these jobs can no longer be requested, nor can a job with the same or an
/// earlier deadline that was not requested yet (rule N10). *The run that breaks without the
/// horizon:* job 1 is installed; 4,096 others end, and job 1 is forgotten; its driver, which
/// received no answer, requests it again, and it is installed twice.
fn make_room(next: &mut Manifest, rules: Rules) {
    while next.remembered_ingests.len() >= MOST_REMEMBERED {
        let Some(earliest) = next.remembered_ingests.iter().map(|one| deadline(one.job)).min()
        else {
            return;
        };
        next.remembered_ingests.retain(|one| deadline(one.job) > earliest);
        if rules.has(Rule::ForgetBelowHorizon) {
            next.ingest_horizon = next.ingest_horizon.max(UnixMillis(earliest.0 + 1));
        }
    }
}

impl InstallIngest {
    /// Its last sequence number.
    pub(super) fn last_seq(&self) -> Option<Seq> {
        self.layers.last().and_then(|tables| tables.first()).and_then(|table| table.seq_override)
    }

    /// Places its tables, and removes its request.
    pub(super) fn apply(&self, next: &mut Manifest, rules: Rules) -> Result<(), Refusal> {
        let asked = pending(next, self.job).filter(|one| one.digest == self.digest).cloned();
        let Some(last) = self.last_seq() else {
            return Err(Refusal::Invalid("an installed job needs tables with numbers"));
        };
        let Some(asked) = asked else {
            return Err(Refusal::Invalid("an installed job must be pending"));
        };
        self.layers.iter().for_each(|tables| place(next, tables, rules));
        keep_ingest(next, self.job, last, rules);
        end_request(next, asked, last, rules);
        Ok(())
    }
}

impl InstallBehind {
    /// Places its tables below all tables that share keys with them, and removes its request.
    pub(super) fn apply(&self, next: &mut Manifest, rules: Rules) -> Result<(), Refusal> {
        let asked = pending(next, self.job).filter(|one| one.digest == self.digest).cloned();
        let Some(asked) = asked.filter(|_| !self.layers.is_empty()) else {
            return Err(Refusal::Invalid("an installed job must be pending and have tables"));
        };
        let mut last = None;
        for tables in self.layers.iter().rev() {
            let (Some(given), Some(taken)) = (next.next_behind(), next.behind) else {
                return Err(Refusal::Invalid("the database does not accept jobs behind all data"));
            };
            let seq = if rules.has(Rule::BehindCountsDown) { given } else { Seq::NONE };
            place_behind(next, tables, seq, rules)?;
            next.behind = Some(taken + 1);
            last = last.or(Some(seq));
        }
        next.tables_since = next.id;
        end_request(next, asked, last.unwrap_or_default(), rules);
        Ok(())
    }

    /// Only this edit, a refusal or a restore removes a request.
    pub(super) fn in_effect(&self, state: &Manifest) -> bool {
        pending(state, self.job).is_none()
    }
}

/// The last versions of applications after `jobs`, which are pending in `state`, are installed,
/// oldest first (rule N11).
pub(crate) fn apps_with(state: &Manifest, jobs: &[InstallIngest]) -> Vec<IngestApp> {
    let mut apps = state.ingest_apps.clone();
    for job in jobs {
        let asked = pending(state, job.job).and_then(|asked| asked.app.clone());
        if let (Some((app, version)), Some(seq)) = (asked, job.last_seq()) {
            record_app(&mut apps, IngestApp { app, version, job: job.job, seq });
        }
    }
    apps
}

/// An application has one record: of its last version.
fn record_app(apps: &mut Vec<IngestApp>, last: IngestApp) {
    apps.retain(|one| one.app != last.app);
    apps.push(last);
}

/// Whether a restore has undone the job that was adopted at `seq`: its rows are gone.
fn is_undone(state: &Manifest, seq: Seq) -> bool {
    state.timelines.iter().any(|one| one.lacks(seq))
}

/// Whether a job of the application is pending.
fn waits(state: &Manifest, app: &str) -> bool {
    let is_it = |one: &PendingIngest| one.app.as_ref().is_some_and(|(name, _)| name == app);
    state.pending_ingests.iter().any(is_it)
}

/// After this, any version may be installed by a job that begins later. Jobs that began before are
/// refused: some of them are installed, and their records are gone (rule N11). The job of the last
/// version is remembered until its deadline, so that a repeated request gets its result (rule N10).
fn forget_app(next: &mut Manifest, app: &str, rules: Rules) -> Result<(), Refusal> {
    let Some(at) = next.ingest_apps.iter().position(|one| one.app == app) else { return Ok(()) };
    let IngestApp { job, seq, .. } = next.ingest_apps.remove(at);
    next.features.name_for_committers(INGEST_APPS, SINCE);
    next.forgotten_apps.add(app);
    if deadline(job) < next.ingest_horizon {
        return Ok(());
    }
    next.remembered_ingests.retain(|one| one.job != job);
    remember(next, job, IngestOutcome::Adopted(seq), None, rules);
    Ok(())
}

/// Removes these jobs from the remembered ones: they become part of a restored state again.
pub(super) fn forget_ended(next: &mut Manifest, jobs: &[InstallIngest]) {
    next.remembered_ingests.retain(|one| jobs.iter().all(|job| job.job != one.job));
}

/// Gives jobs that came behind all data the outcomes of `version`, whose tables a restore takes.
///
/// Their numbers are below those of all histories, so no cut undoes them. *The run that breaks
/// without this:* job 1 comes behind after a checkpoint; the checkpoint is restored; its driver
/// repeats job 1, and is answered "adopted", but the rows are missing.
pub(super) fn take_back_behind(next: &mut Manifest, version: &Manifest, rules: Rules) {
    if next.behind.is_none() {
        return;
    }
    let number = |one: &RememberedIngest| match one.outcome {
        IngestOutcome::Adopted(seq) if seq < HISTORY_BEGINS => Some(seq),
        _ => None,
    };
    next.remembered_ingests.retain(|one| number(one).is_none());
    for one in &version.remembered_ingests {
        let is_forgotten = deadline(one.job) < next.ingest_horizon;
        if let Some(seq) = number(one).filter(|_| !is_forgotten) {
            remember(next, one.job, IngestOutcome::Adopted(seq), None, rules);
        }
    }
}

/// Ends a request whose job is installed.
fn end_request(next: &mut Manifest, asked: PendingIngest, last: Seq, rules: Rules) {
    let job = asked.job;
    next.pending_ingests.retain(|one| one.job != job);
    match asked.app {
        Some((app, version)) => {
            record_app(&mut next.ingest_apps, IngestApp { app, version, job, seq: last });
        }
        None => remember(next, job, IngestOutcome::Adopted(last), None, rules),
    }
}

/// Places the tables of one layer as the oldest data (rule P6).
fn place_behind(
    next: &mut Manifest,
    tables: &[SstDescriptor],
    seq: Seq,
    rules: Rules,
) -> Result<(), Refusal> {
    // Tables of one layer share no key, so they do not affect each other.
    let mut runs: BTreeMap<u32, Vec<SstDescriptor>> = BTreeMap::new();
    for table in tables {
        let Some(run) = run_behind(next, table, rules) else {
            return Err(Refusal::Invalid(
                "the runs that are left for jobs behind the database are used up; export it into \
                 a new one",
            ));
        };
        let placed = SstDescriptor { seq_override: Some(seq), ..table.clone() };
        runs.entry(run).or_default().push(placed);
    }
    runs.iter().for_each(|(run, tables)| add_to_run(next, *run, tables));
    Ok(())
}

/// The tables of `state` with these layers on top, oldest first, to estimate their cost.
#[must_use]
pub fn with_layers<'a>(
    state: &Manifest,
    layers: impl IntoIterator<Item = &'a Vec<SstDescriptor>>,
) -> Manifest {
    let mut next = state.clone();
    layers.into_iter().for_each(|tables| place(&mut next, tables, Rules::ALL));
    next
}

/// Places the tables of one layer as the newest data (rules N2, P2).
pub(super) fn place(next: &mut Manifest, tables: &[SstDescriptor], rules: Rules) {
    // Tables of one layer share no key, so they do not affect each other.
    let mut runs: BTreeMap<u32, Vec<SstDescriptor>> = BTreeMap::new();
    let mut rest = Vec::new();
    for table in tables {
        match deepest_run(next, table, rules) {
            Some(run) => runs.entry(run).or_default().push(table.clone()),
            None => rest.push(table.clone()),
        }
    }
    runs.iter().for_each(|(run, tables)| add_to_run(next, *run, tables));
    if !rest.is_empty() {
        push_layers(next, &[rest]);
    }
}

impl From<IngestConflict> for Refusal {
    fn from(conflict: IngestConflict) -> Refusal {
        Refusal::Conflict(Conflict::Ingest(conflict))
    }
}

impl fmt::Display for IngestConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IngestConflict::OtherDatabase { here } => write!(
                f,
                "the job was staged for another database than {here}, which is at this \
                 place; stage it again"
            ),
            IngestConflict::OtherTimeline => f.write_str(
                "the job was staged before the database was restored to a checkpoint; stage it \
                 again",
            ),
            IngestConflict::OtherContent => {
                f.write_str("the job is pending with other content; create another job")
            }
            IngestConflict::Forgotten { horizon } => write!(
                f,
                "the job's deadline has passed, and its outcome is forgotten (as all before \
                 {} ms of Unix time); stage it again unless its rows are in the database",
                horizon.0
            ),
            IngestConflict::Ended => {
                f.write_str("the job was refused or withdrawn; create another job")
            }
            IngestConflict::Requested => {
                f.write_str("the job is pending or installed, and cannot be withdrawn")
            }
            IngestConflict::AppHas { job } => {
                write!(f, "that version of the application was installed by job {job}")
            }
            IngestConflict::AppIsAhead { version } => write!(
                f,
                "version {version} of the application is installed or pending; a lower one \
                 is refused: to install it, forget the application first"
            ),
            IngestConflict::AppForgotten => f.write_str(
                "the job began before its application was forgotten; stage it again unless its \
                 rows are in the database",
            ),
            IngestConflict::Passed => f.write_str(
                "a later version of the job's application was installed, or the application was \
                 forgotten: the job may be installed, and can no longer be requested",
            ),
            IngestConflict::AppPending => {
                f.write_str("a job of the application is pending; forget the application later")
            }
            IngestConflict::Full => f.write_str(
                "the maximum number of ingest jobs is pending; ask again later, when a writer has \
                 installed some, and create larger jobs",
            ),
        }
    }
}
