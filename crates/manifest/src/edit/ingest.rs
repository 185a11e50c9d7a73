//! Edits of ingest jobs (RFC 0035, rules N9 to N13): asked for by anybody, installed or refused by
//! the writer, forgotten by the collector.

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
    IngestApp, IngestOutcome, MOST_APPS, MOST_PENDING, MOST_REMEMBERED, Manifest, PendingIngest,
    RememberedIngest,
};
use bytes::Bytes;
use siltstone_base::{DatabaseId, Epoch, JobId, Seq, SstDescriptor, TimelineId, UnixMillis};
use std::collections::{BTreeMap, HashSet};
use std::fmt;

/// The version of Siltstone that brought ingest jobs.
const SINCE: &str = "0.1.0";
/// What the writer says of a job whose predecessor it refused.
const FELL: &str = "an earlier version of its application was refused";

/// One change of what is known of ingest jobs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum IngestEdit {
    /// Jobs are staged from now on: named before the first one is (RFC 0024).
    Begin,
    /// A job is asked for (rule N9).
    Request(RequestIngest),
    /// Whoever staged a job takes it back, as long as nobody asked for it.
    Withdraw {
        /// The job.
        job: JobId,
        /// The application whose version it is.
        app: Option<JobApp>,
    },
    /// The writer refuses a pending job; later versions of its application fall with it.
    Refuse {
        /// The writer's epoch.
        epoch: Epoch,
        /// The job.
        job: JobId,
        /// Why.
        reason: String,
    },
    /// Jobs whose deadline is before this are refused, and those that ended are forgotten (rule
    /// N10). It only grows.
    Horizon {
        /// The moment.
        to: UnixMillis,
    },
    /// The last version of an application is forgotten (rule N11).
    ForgetApp {
        /// Its name.
        app: String,
        /// How many applications had been forgotten when this was asked for.
        count: u64,
    },
}

/// A request: this job is to become part of the database.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestIngest {
    /// The job.
    pub job: JobId,
    /// The database that it was staged for.
    pub database: DatabaseId,
    /// The timeline that it was staged for; `None`: the first one.
    pub timeline: Option<TimelineId>,
    /// What it brings.
    pub digest: Bytes,
    /// The application whose version it is.
    pub app: Option<JobApp>,
    /// When it is asked for.
    pub requested_at: UnixMillis,
}

/// A job that a flush makes part of the database (rule N13).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InstallIngest {
    /// How many of the flush's layers are older than it.
    pub after: usize,
    /// The job.
    pub job: JobId,
    /// What it brings.
    pub digest: Bytes,
    /// Its layers, the oldest first, each at its number.
    pub layers: Vec<Vec<SstDescriptor>>,
}

/// A job that becomes part of the database behind all that is there (rule P6).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InstallBehind {
    /// The job.
    pub job: JobId,
    /// What it brings.
    pub digest: Bytes,
    /// Its layers, the oldest first; the commit gives them numbers.
    pub layers: Vec<Vec<SstDescriptor>>,
}

/// Why an edit of a job does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IngestConflict {
    /// It was staged for another database.
    OtherDatabase {
        /// Which stands here.
        here: DatabaseId,
    },
    /// It was staged before the database was restored.
    OtherTimeline,
    /// Another content is pending under its id.
    OtherContent,
    /// Its deadline is over.
    Forgotten {
        /// What lies before this is forgotten.
        horizon: UnixMillis,
    },
    /// It was refused, or taken back.
    Ended,
    /// It is asked for, or adopted.
    Requested,
    /// The application's version was brought by another job, or is pending.
    AppHas {
        /// By which.
        job: JobId,
    },
    /// A later version of the application was brought, or is pending.
    AppIsAhead {
        /// Which.
        version: u64,
    },
    /// A job of the application is pending.
    AppPending,
    /// The job began before its application was forgotten.
    AppForgotten,
    /// A later version of its application was brought, or that was forgotten.
    Passed,
    /// As many jobs wait as may.
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

    /// A request shows as long as the job does, whatever became of it.
    pub(super) fn in_effect(&self, state: &Manifest) -> bool {
        match self {
            IngestEdit::Begin => state.features.names(INGEST),
            IngestEdit::Request(RequestIngest { job, digest, .. }) => match standing(state, *job) {
                JobStatus::Pending => pending(state, *job).is_some_and(|one| one.digest == *digest),
                JobStatus::Adopted(_) | JobStatus::AdoptedBefore(_) | JobStatus::Refused(_) => true,
                _ => false,
            },
            IngestEdit::Withdraw { job, .. } => standing(state, *job) == JobStatus::Withdrawn,
            IngestEdit::Refuse { epoch, job, .. } => {
                state.writer_epoch == *epoch && pending(state, *job).is_none()
            }
            IngestEdit::Horizon { to } => state.ingest_horizon >= *to,
            // That there is no record says nothing where the next life has begun, or the first one
            // waits.
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
        // Whoever meets its INGEST in the log reads it by a version that shows it (rule Q5): a
        // lease of the version before is none.
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

/// Whether this version of an application may be asked for: only above all that were, by a job of
/// its present life (rule N11).
fn check_app(state: &Manifest, job: &JobApp, rules: Rules) -> Result<(), Refusal> {
    let JobApp { name: app, version, forgotten } = job;
    // First: the same version of another life is another one.
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

/// Refuses a pending job, and the later versions of its application that wait behind it.
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

/// Where as many are remembered as may be, those with the earliest deadline are forgotten, and the
/// horizon passes it: nobody can ask for them again, nor for a job that was begun no later and is
/// not asked for yet (rule N10). *The run that breaks without the horizon:* job 1 is taken in;
/// 4,096 others end, and it is forgotten; its driver, which heard nothing, asks again, and it is
/// taken in twice.
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
    /// The last of its numbers.
    pub(super) fn last_seq(&self) -> Option<Seq> {
        self.layers.last().and_then(|tables| tables.first()).and_then(|table| table.seq_override)
    }

    /// Places its tables, and ends its request.
    pub(super) fn apply(&self, next: &mut Manifest, rules: Rules) -> Result<(), Refusal> {
        let asked = pending(next, self.job).filter(|one| one.digest == self.digest).cloned();
        let Some(last) = self.last_seq() else {
            return Err(Refusal::Invalid("a job that is installed has tables, with numbers"));
        };
        let Some(asked) = asked else {
            return Err(Refusal::Invalid("a job that is installed is pending"));
        };
        self.layers.iter().for_each(|tables| place(next, tables, rules));
        keep_ingest(next, self.job, last, rules);
        end_request(next, asked, last, rules);
        Ok(())
    }
}

impl InstallBehind {
    /// Puts its tables below all that they share keys with, and ends its request.
    pub(super) fn apply(&self, next: &mut Manifest, rules: Rules) -> Result<(), Refusal> {
        let asked = pending(next, self.job).filter(|one| one.digest == self.digest).cloned();
        let Some(asked) = asked.filter(|_| !self.layers.is_empty()) else {
            return Err(Refusal::Invalid("a job that is installed is pending, and has tables"));
        };
        let mut last = None;
        for tables in self.layers.iter().rev() {
            let (Some(given), Some(taken)) = (next.next_behind(), next.behind) else {
                return Err(Refusal::Invalid("the database was not made for jobs behind it"));
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

    /// Only this, a refusal or a restore ends a request.
    pub(super) fn in_effect(&self, state: &Manifest) -> bool {
        pending(state, self.job).is_none()
    }
}

/// What applications have brought once `jobs`, which `state` shows as pending, are installed, the
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

/// Whether a job of the application is pending.
fn waits(state: &Manifest, app: &str) -> bool {
    let is_it = |one: &PendingIngest| one.app.as_ref().is_some_and(|(name, _)| name == app);
    state.pending_ingests.iter().any(is_it)
}

/// Any version may come from now on, by a job that begins now: of those that began before, some are
/// part of the database, and their records are gone (rule N11). That which brought the last one
/// stays known until its deadline, so that whoever asks for it is told (rule N10).
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

/// Whatever is remembered of these jobs is not so any more: they become part of a restored state,
/// of which they were part before.
pub(super) fn forget_ended(next: &mut Manifest, jobs: &[InstallIngest]) {
    next.remembered_ingests.retain(|one| jobs.iter().all(|job| job.job != one.job));
}

/// What was asked for is part of the database.
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

/// Puts the tables of one layer where they go as the oldest of all (rule P6).
fn place_behind(
    next: &mut Manifest,
    tables: &[SstDescriptor],
    seq: Seq,
    rules: Rules,
) -> Result<(), Refusal> {
    // Tables of one layer share no key, so none of them is in another's way.
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

/// What the tables of `state` were with these layers on top, the oldest first: for whoever asks
/// what they would cost.
#[must_use]
pub fn with_layers<'a>(
    state: &Manifest,
    layers: impl IntoIterator<Item = &'a Vec<SstDescriptor>>,
) -> Manifest {
    let mut next = state.clone();
    layers.into_iter().for_each(|tables| place(&mut next, tables, Rules::ALL));
    next
}

/// Puts the tables of one layer where they go as the newest of all (rule P2).
pub(super) fn place(next: &mut Manifest, tables: &[SstDescriptor], rules: Rules) {
    // Tables of one layer share no key, so none of them is in another's way.
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
                "the job was staged for another database than {here}, which stands here; stage it \
                 anew"
            ),
            IngestConflict::OtherTimeline => f.write_str(
                "the job was staged before the database was restored to a checkpoint; stage it \
                 anew",
            ),
            IngestConflict::OtherContent => {
                f.write_str("the job is asked for with another content; make another job")
            }
            IngestConflict::Forgotten { horizon } => write!(
                f,
                "the job's deadline is over, and whatever became of it is forgotten (all before \
                 {} ms of Unix time is); stage it anew, unless the data shows it",
                horizon.0
            ),
            IngestConflict::Ended => {
                f.write_str("the job was refused, or taken back; make another job")
            }
            IngestConflict::Requested => {
                f.write_str("the job is asked for, or part of the database, and stays")
            }
            IngestConflict::AppHas { job } => {
                write!(f, "that version of the application was brought by job {job}")
            }
            IngestConflict::AppIsAhead { version } => write!(
                f,
                "the application has brought version {version} already, or it waits; a lower one \
                 is never taken in: if that is meant, forget the application first"
            ),
            IngestConflict::AppForgotten => f.write_str(
                "the job began before its application was forgotten; stage it anew, unless the \
                 data shows it",
            ),
            IngestConflict::Passed => f.write_str(
                "a later version of the job's application was taken in, or that was forgotten: it \
                 may be part of the database, and nobody can ask for it any more",
            ),
            IngestConflict::AppPending => {
                f.write_str("a job of the application waits for the writer; forget it afterwards")
            }
            IngestConflict::Full => f.write_str(
                "as many ingest jobs wait as may; ask again later (a writer takes them in), and \
                 make larger jobs",
            ),
        }
    }
}
