//! The changes from one job record to the next.

use super::{Claim, Compactions, FinishedUnit, Job, JobRange};
use crate::rules::{Rule, Rules};
use siltstone_base::{AttemptId, Epoch, Error, ErrorKind, JobId, SstDescriptor, SstId};
use std::collections::HashSet;
use std::fmt;

/// One change, made by the process that creates the next record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// A new compactor takes over the jobs after its epoch is in the manifest. All claims end and
    /// reserved names become void; finished tables stay.
    TakeOver {
        /// Its epoch.
        epoch: Epoch,
    },
    /// The compactor starts a job, and may remove finished jobs.
    Start {
        /// Its epoch.
        epoch: Epoch,
        /// The job; the compactor may have claimed ranges of it already.
        job: Box<Job>,
        /// Jobs that are finished according to the manifest.
        forget: Vec<JobId>,
    },
    /// A worker claims a range.
    Claim {
        /// The job.
        job: JobId,
        /// Index of the range.
        range: usize,
        /// Identity of the claim, random.
        worker: AttemptId,
        /// The claim that it replaces, which has sent no heartbeat for too long; `None`: the range
        /// was unclaimed.
        instead_of: Option<Claim>,
        /// New names for tables that it will upload.
        names: Vec<SstId>,
    },
    /// A worker reports its progress; without progress the report is a heartbeat.
    Progress {
        /// The job.
        job: JobId,
        /// Index of the range.
        range: usize,
        /// Its claim.
        worker: AttemptId,
        /// Finished tables that were not reported before, in ascending key order.
        outputs: Vec<SstDescriptor>,
        /// More new names for tables that it will upload.
        names: Vec<SstId>,
        /// Whether the range is finished.
        done: bool,
    },
    /// The compactor records the results of units (RFC 0046), and claims every unfinished range,
    /// replacing other claims. Without results this is a heartbeat.
    Units {
        /// Its epoch.
        epoch: Epoch,
        /// The job.
        job: JobId,
        /// The identity of its claims.
        worker: AttemptId,
        /// The finished units.
        finished: Vec<FinishedUnit>,
    },
    /// The compactor cancels a job, which ends without effect. The workers notice it with their
    /// next change.
    Cancel {
        /// Its epoch.
        epoch: Epoch,
        /// The job.
        job: JobId,
    },
    /// The compactor removes jobs that are finished according to the manifest.
    Forget {
        /// Its epoch.
        epoch: Epoch,
        /// The jobs.
        jobs: Vec<JobId>,
    },
}

/// The reason why a change does not fit a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChangeRefusal {
    /// A newer compactor has taken over.
    Fenced {
        /// Its epoch.
        by: Epoch,
    },
    /// The job has ended, is cancelled, or never existed.
    NoSuchJob {
        /// The job.
        job: JobId,
    },
    /// Another worker has claimed the range, or the range is finished.
    Taken {
        /// The job.
        job: JobId,
        /// Index of the range.
        range: usize,
    },
    /// The change itself is not valid.
    Invalid(&'static str),
    /// The next record would break the named invariant.
    Broken(&'static str),
}

impl fmt::Display for ChangeRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChangeRefusal::Fenced { by } => write!(f, "compactor epoch {by} has taken over"),
            ChangeRefusal::NoSuchJob { job } => write!(f, "job {job} has ended or is to end"),
            ChangeRefusal::Taken { job, range } => {
                write!(f, "range {range} of job {job} is another worker's, or finished")
            }
            ChangeRefusal::Invalid(why) | ChangeRefusal::Broken(why) => f.write_str(why),
        }
    }
}

impl From<ChangeRefusal> for Error {
    fn from(refusal: ChangeRefusal) -> Error {
        let kind = match refusal {
            ChangeRefusal::Fenced { .. } => ErrorKind::Fenced,
            ChangeRefusal::NoSuchJob { .. } | ChangeRefusal::Taken { .. } => ErrorKind::Conflict,
            ChangeRefusal::Invalid(_) => ErrorKind::Invalid,
            ChangeRefusal::Broken(_) => ErrorKind::Internal,
        };
        Error::new(kind, refusal.to_string())
    }
}

type Answer = Result<(), ChangeRefusal>;

impl Change {
    /// The record after this change.
    ///
    /// # Errors
    /// The reason why it does not fit `base`. `Broken` means a bug in the caller.
    pub fn apply(&self, base: &Compactions) -> Result<Compactions, ChangeRefusal> {
        self.apply_with(base, Rules::ALL)
    }

    /// As [`Change::apply`], under `rules`.
    ///
    /// # Errors
    /// As [`Change::apply`].
    pub fn apply_with(
        &self,
        base: &Compactions,
        rules: Rules,
    ) -> Result<Compactions, ChangeRefusal> {
        let mut next = base.clone();
        next.number = base.number.saturating_add(1);
        self.change(&mut next, rules)?;
        match next.broken() {
            None => Ok(next),
            Some(name) => Err(ChangeRefusal::Broken(name)),
        }
    }

    fn change(&self, next: &mut Compactions, rules: Rules) -> Answer {
        if let Some(epoch) = self.epoch() {
            next.check_epoch(epoch, matches!(self, Change::TakeOver { .. }), rules)?;
        }
        match self {
            Change::TakeOver { .. } => next.take_over(),
            Change::Start { job, forget, .. } => {
                next.forget(forget);
                if next.job(job.id).is_some() {
                    return Err(ChangeRefusal::Invalid("the job was started already"));
                }
                next.jobs.push(Job::clone(job));
                Ok(())
            }
            Change::Claim { job, range, worker, instead_of, names } => {
                next.claim((*job, *range), *worker, *instead_of, names)
            }
            Change::Progress { job, range, worker, outputs, names, done } => {
                let mine = next.range(*job, *range)?;
                let anyones = !rules.has(Rule::ProgressByClaim);
                let claim = mine.claim.as_mut();
                let claim = claim.filter(|claim| anyones || claim.worker == *worker);
                match claim {
                    Some(claim) => claim.heartbeats = claim.heartbeats.saturating_add(1),
                    None if anyones => {}
                    None => return Err(ChangeRefusal::Taken { job: *job, range: *range }),
                }
                mine.add(outputs, rules)?;
                mine.reserved.extend(names);
                if *done {
                    (mine.done, mine.claim) = (true, None);
                    mine.reserved.clear();
                }
                Ok(())
            }
            Change::Units { job, worker, finished, .. } => {
                next.units(*job, *worker, finished, rules)
            }
            Change::Cancel { job, .. } => {
                let job = next.job_mut(*job)?;
                job.cancelled = true;
                job.ranges.iter_mut().for_each(JobRange::release);
                Ok(())
            }
            Change::Forget { jobs, .. } => {
                next.forget(jobs);
                Ok(())
            }
        }
    }

    /// The epoch in the change, if only a compactor may make it.
    fn epoch(&self) -> Option<Epoch> {
        match self {
            Change::TakeOver { epoch }
            | Change::Start { epoch, .. }
            | Change::Units { epoch, .. }
            | Change::Cancel { epoch, .. }
            | Change::Forget { epoch, .. } => Some(*epoch),
            Change::Claim { .. } | Change::Progress { .. } => None,
        }
    }

    /// Whether only the newest record can show that the change was made: a record from before a job
    /// was started lacks the job too.
    pub(super) fn shows_in_newest_only(&self) -> bool {
        matches!(self, Change::Forget { .. })
    }

    /// Whether `record` shows that this change was made. Settles an unknown outcome.
    #[must_use]
    pub fn in_effect(&self, record: &Compactions) -> bool {
        let gone = |jobs: &[JobId]| jobs.iter().all(|job| record.job(*job).is_none());
        let range = |job: JobId, range: usize| record.job(job)?.ranges.get(range);
        let has = |one: &JobRange, tables: &[SstDescriptor]| {
            tables.iter().all(|table| one.outputs.contains(table))
        };
        match self {
            Change::TakeOver { epoch } => record.epoch == *epoch,
            Change::Start { job, forget, .. } => record.job(job.id).is_some() && gone(forget),
            Change::Claim { job, range: at, worker, .. } => range(*job, *at)
                .is_some_and(|one| one.claim.is_some_and(|claim| claim.worker == *worker)),
            Change::Progress { job, range: at, outputs, names, done, .. } => range(*job, *at)
                .is_some_and(|one| {
                    let known = |name: &SstId| {
                        one.reserved.contains(name) || one.outputs.iter().any(|t| t.id == *name)
                    };
                    // A heartbeat may be applied twice.
                    let says = !outputs.is_empty() || !names.is_empty() || *done;
                    let named = one.done || names.iter().all(known);
                    says && has(one, outputs) && named && (one.done || !*done)
                }),
            // A heartbeat may be applied twice.
            Change::Units { job, finished, .. } => {
                let recorded = |unit: &FinishedUnit| {
                    let one = range(*job, unit.range);
                    one.is_some_and(|one| one.done && has(one, &unit.tables))
                };
                !finished.is_empty() && finished.iter().all(recorded)
            }
            Change::Cancel { job, .. } => record.job(*job).is_some_and(|job| job.cancelled),
            Change::Forget { jobs, .. } => gone(jobs),
        }
    }
}

impl Compactions {
    fn check_epoch(&mut self, epoch: Epoch, take_over: bool, rules: Rules) -> Answer {
        if !rules.has(Rule::RecordByEpoch) {
            self.epoch = self.epoch.max(epoch);
            return Ok(());
        }
        let newer = if take_over { epoch > self.epoch } else { epoch >= self.epoch };
        match (newer, take_over || epoch == self.epoch) {
            (false, _) => Err(ChangeRefusal::Fenced { by: self.epoch }),
            (true, false) => Err(ChangeRefusal::Invalid("the jobs were not taken over yet")),
            (true, true) => {
                self.epoch = epoch;
                Ok(())
            }
        }
    }

    fn take_over(&mut self) -> Answer {
        self.jobs.iter_mut().flat_map(|job| &mut job.ranges).for_each(JobRange::release);
        Ok(())
    }

    fn forget(&mut self, jobs: &[JobId]) {
        self.jobs.retain(|job| !jobs.contains(&job.id));
    }

    fn job_mut(&mut self, id: JobId) -> Result<&mut Job, ChangeRefusal> {
        let job = self.jobs.iter_mut().find(|job| job.id == id);
        job.ok_or(ChangeRefusal::NoSuchJob { job: id })
    }

    /// A range of a job that was not cancelled.
    fn range(&mut self, id: JobId, range: usize) -> Result<&mut JobRange, ChangeRefusal> {
        let job = self.job_mut(id)?;
        if job.cancelled {
            return Err(ChangeRefusal::NoSuchJob { job: id });
        }
        job.ranges.get_mut(range).ok_or(ChangeRefusal::Invalid("the job has no such range"))
    }

    fn claim(
        &mut self,
        (job, range): (JobId, usize),
        worker: AttemptId,
        instead_of: Option<Claim>,
        names: &[SstId],
    ) -> Answer {
        if worker.is_none() {
            return Err(ChangeRefusal::Invalid("a claim needs an identity"));
        }
        let mine = self.range(job, range)?;
        // Compared with the claim that the worker observed: a heartbeat meanwhile shows that the
        // other worker is alive.
        if mine.done || mine.claim != instead_of {
            return Err(ChangeRefusal::Taken { job, range });
        }
        mine.claim = Some(Claim { worker, heartbeats: 0 });
        mine.reserved = names.to_vec();
        Ok(())
    }

    fn units(
        &mut self,
        id: JobId,
        worker: AttemptId,
        finished: &[FinishedUnit],
        rules: Rules,
    ) -> Answer {
        let folder = JobId::of_units(id);
        for unit in finished {
            let range = self.range(id, unit.range)?;
            if !range.stands_for(unit) && rules.has(Rule::UnitsAsTheyStand) {
                return Err(ChangeRefusal::Taken { job: id, range: unit.range });
            }
            if unit.tables.iter().any(|table| table.job != Some(folder)) {
                return Err(ChangeRefusal::Invalid("a table outside of the folder of its units"));
            }
            range.outputs.extend_from_slice(&unit.tables);
            range.release();
            range.done = true;
        }
        let job = self.job_mut(id)?;
        if job.cancelled || worker.is_none() {
            return Err(ChangeRefusal::NoSuchJob { job: id });
        }
        for range in job.ranges.iter_mut().filter(|range| !range.done) {
            let own = range.claim.filter(|claim| claim.worker == worker);
            let heartbeats = own.map_or(0, |claim| claim.heartbeats.saturating_add(1));
            if own.is_none() {
                range.release();
            }
            range.claim = Some(Claim { worker, heartbeats });
        }
        Ok(())
    }
}

impl JobRange {
    /// Removes the claim; its reserved names become void.
    fn release(&mut self) {
        self.claim = None;
        self.reserved.clear();
    }

    /// Removes the names of finished tables from the reserved names (rule R1).
    fn use_names(&mut self, tables: &[SstDescriptor], rules: Rules) -> Answer {
        let used: HashSet<SstId> = tables.iter().map(|table| table.id).collect();
        let before = self.reserved.len();
        self.reserved.retain(|name| !used.contains(name));
        if before - self.reserved.len() == tables.len() || !rules.has(Rule::RecordReserved) {
            Ok(())
        } else {
            Err(ChangeRefusal::Invalid("a table whose name is not reserved"))
        }
    }

    fn add(&mut self, tables: &[SstDescriptor], rules: Rules) -> Answer {
        self.use_names(tables, rules)?;
        self.outputs.extend_from_slice(tables);
        Ok(())
    }
}
