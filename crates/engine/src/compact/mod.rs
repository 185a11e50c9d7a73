//! Carries out compaction plans (RFC 0019, RFC 0021): what a plan comes to, who may run and what
//! every commit says is decided by `siltstone_manifest::compaction`; here tables are read and
//! written.
//!
//! | module | holds |
//! | --- | --- |
//! | [`host`] | what a compactor needs of the process it lives in |
//! | [`schedule`] | the scheduler at work, until it is stopped |
//! | [`start`] | plans to jobs in the record |
//! | [`job`] | one job to its commit; who stalls is replaced |
//! | [`deleted`] | what range deletes say of tables that need not be read |
//! | [`cut`] | a job's keys cut into ranges that are merged at once |
//! | [`opening`] | what a range still has to merge, as cursors over its inputs |
//! | [`range`] | one key range of a job: inputs to tables, streamed, each recorded |
//! | [`merging`] | the synchronous inner loop |
//! | [`sending`] | chunks of a table on their way to the store |
//! | [`limit`] | how fast compactions go at most |
//! | [`records`] | the chain of job records |
//! | [`take_back`] | when a compactor that was stopped takes the epoch back |
//! | [`process`], [`worker`] | a compactor in a process of its own; one that only works on ranges |
//! | [`units`], [`unit`] | a plan whose ranges other processes merge; such a range there |
//! | [`compaction_log`] | what was merged into what: totals, lines |
//! | [`event`] | what a process of its own tells |
//! | [`pending`] | how much there is to do |
//! | [`named`] | its options among the engine's |

pub(crate) mod compaction_log;
mod cut;
mod deleted;
pub(crate) mod event;
pub(crate) mod host;
pub(crate) mod job;
mod limit;
mod merging;
mod opening;
pub(crate) mod pending;
mod process;
mod range;
mod records;
pub(crate) mod schedule;
mod sending;
mod start;
pub(crate) mod take_back;
mod unit;
mod units;
mod worker;

pub use event::{CompactorEvent, RangeMerged};
pub use process::{CompactorOptions, CompactorProcess};
pub use unit::{CompactionUnit, UnitResult};
pub use units::CompactionPlan;

use crate::io::buffers::Buffers;
use crate::io::supervise::caught;
use crate::manifests::client::ManifestClient;
use crate::readahead::inputs;
use compaction_log::CompactionLog;
use host::Host;
use job::JobEnd;
use limit::Limit;
use parking_lot::Mutex;
use range::SLICE_BYTES;
use records::Chain;
use siltstone_base::{AttemptId, Epoch, Error, ErrorKind, JobId, Result};
use siltstone_manifest::compaction::Plan;
use siltstone_manifest::{Conflict, Edit, Refusal};
use siltstone_sst::TableScratch;
use start::{PlanStart, Starter};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// What is to be compacted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CompactionRequest {
    /// What the scheduler finds most urgent.
    Scheduled,
    /// Everything, into run 0.
    Major,
    /// A plan made by hand.
    Plan(Plan),
}

/// The compactor of one process.
#[derive(Default)]
pub(crate) struct Compactor {
    chain: Chain,
    /// Shared by jobs at work; alone for who plans by hand, so that nothing stands in its way.
    turn: Arc<tokio::sync::RwLock<()>>,
    held: Mutex<CompactorState>,
    /// What it saw of the compactor that stopped it.
    watch: Mutex<take_back::CompactorWatch>,
    pub(crate) log: CompactionLog,
    limit: Limit,
    memory: MergeMemory,
}

/// Memory that goes round between jobs and ranges; freed when none is at work.
pub(crate) struct MergeMemory {
    /// Of what is read.
    waves: Buffers,
    /// Of what is written.
    chunks: Buffers,
    /// Of tables under construction.
    scratch: Mutex<Vec<TableScratch>>,
}

impl Default for MergeMemory {
    fn default() -> MergeMemory {
        let chunks = Buffers::keeping(CHUNKS, 2 * SLICE_BYTES);
        MergeMemory { waves: inputs::buffers(), chunks, scratch: Mutex::default() }
    }
}

impl MergeMemory {
    /// Nothing is at work.
    fn clear(&self) {
        self.waves.clear();
        self.chunks.clear();
        *self.scratch.lock() = Vec::new();
    }

    /// Keeps what a table was built in for the next: as many as tables were built at once.
    fn keep(&self, scratch: TableScratch) {
        self.scratch.lock().push(scratch);
    }
}

/// Chunks that are kept for the next: those of three ranges on a store that is far.
const CHUNKS: usize = 16;

/// What it keeps from one plan to the next.
#[derive(Default)]
struct CompactorState {
    /// Its epoch; `NONE` until it has something to do.
    epoch: Epoch,
    /// Another compactor has taken over.
    fenced: Option<Error>,
    /// Jobs at work here.
    active: HashSet<JobId>,
    /// Identities that claimed ranges of a job here; of an earlier run of it, too.
    workers: HashMap<JobId, Vec<AttemptId>>,
    /// Why the last job failed.
    failed: Option<Error>,
}

impl Compactor {
    /// Waits until nothing is at work. Who waits has closed the handle before.
    pub(crate) async fn at_rest(&self) {
        let _leaving = self.chain.leaves();
        drop(self.turn.write().await);
    }

    /// Whether `worker` is an identity of this process.
    fn is_own(&self, worker: AttemptId) -> bool {
        self.held.lock().workers.values().flatten().any(|own| *own == worker)
    }

    /// The identity of the run of a job that began last.
    fn worker_of(&self, job: JobId) -> AttemptId {
        let held = self.held.lock();
        held.workers.get(&job).and_then(|own| own.last()).copied().unwrap_or_default()
    }

    /// A job begins to run here, under claims of `worker`.
    fn begins(&self, job: JobId, worker: AttemptId) {
        let mut held = self.held.lock();
        held.active.insert(job);
        held.workers.entry(job).or_default().push(worker);
    }

    /// A job runs here no longer. What it claimed in vain is still known as this process's own.
    fn ends(&self, job: JobId, is_done: bool) {
        let mut held = self.held.lock();
        held.active.remove(&job);
        if held.active.is_empty() {
            self.memory.clear();
        }
        if is_done {
            held.workers.remove(&job);
        }
    }

    /// Whether a job runs here, of whatever epoch.
    fn is_at_work(&self) -> bool {
        !self.held.lock().active.is_empty()
    }

    /// What stopped it is over; `NONE`: the next epoch is to be claimed.
    fn starts_anew(&self, epoch: Epoch) {
        let mut held = self.held.lock();
        (held.fenced, held.epoch) = (None, epoch);
        drop(held);
        self.watch.lock().forget();
    }

    /// The task that schedules has died.
    pub(crate) fn died(&self, died: &Error) {
        self.log.ran::<()>(&Err(died.clone()));
    }

    /// Notes why a job failed, or a look.
    fn fails(&self, error: Error) {
        self.held.lock().failed = Some(error);
    }

    /// Why something failed since the last time.
    fn take_failure(&self) -> Option<Error> {
        self.held.lock().failed.take()
    }

    /// The epoch, claimed when this process has none. One that another compactor has taken over
    /// stays stopped, unless it is embedded and that other one has given the epoch up. What it had
    /// begun ends first: it would end the new epoch with the old one's error.
    ///
    /// # Errors
    /// Fenced; the store's.
    async fn claimed(&self, host: &dyn Host) -> Result<Epoch> {
        let fenced = self.held.lock().fenced.clone();
        if let Some(fenced) = fenced {
            let newest = host.manifests().newest_known();
            let free = newest.compactor_is_released() && newest.compactor_epoch > self.epoch();
            if host.writer().is_none() || !free || self.is_at_work() {
                return Err(fenced);
            }
            self.chain.look(host.manifests()).await?;
            self.starts_anew(Epoch::NONE);
        }
        if self.epoch() == Epoch::NONE {
            let epoch = claim(host.manifests(), host).await?;
            self.held.lock().epoch = epoch;
        }
        Ok(self.epoch())
    }

    /// The epoch; `NONE` where it has claimed none.
    fn epoch(&self) -> Epoch {
        self.held.lock().epoch
    }

    /// The epoch, which it has no longer; `NONE` when it had none, or another has taken over.
    fn give_up_epoch(&self) -> Epoch {
        let mut held = self.held.lock();
        let epoch = std::mem::take(&mut held.epoch);
        if held.fenced.is_some() { Epoch::NONE } else { epoch }
    }

    /// How something of this compactor ended, noted. Inputs that are gone, a job that ended under
    /// it: when a newer compactor is there, that is why.
    async fn told<T>(&self, host: &dyn Host, ended: Result<T>) -> Result<T> {
        if self.held.lock().fenced.is_some() {
            // That was told when it was found.
            return ended;
        }
        let epoch = self.epoch();
        let ended = match ended {
            Err(error) if epoch != Epoch::NONE && may_come_of_fencing(error.kind()) => {
                match host.manifests().probe(true).await {
                    Ok(newest) if newest.compactor_epoch > epoch => {
                        Err(fenced(newest.compactor_epoch))
                    }
                    _ => Err(error),
                }
            }
            ended => ended,
        };
        if let Err(error) = &ended
            && error.kind() == ErrorKind::Fenced
        {
            let mut held = self.held.lock();
            // Another epoch may have been claimed since: it has not ended.
            if held.epoch == epoch {
                held.fenced = Some(error.clone());
            }
        }
        self.log.ran(&ended);
        ended
    }
}

fn may_come_of_fencing(kind: ErrorKind) -> bool {
    use ErrorKind as Kind;
    matches!(
        kind,
        Kind::NotFound | Kind::Corruption | Kind::Expired | Kind::Conflict | Kind::Fenced
    )
}

fn fenced(by: Epoch) -> Error {
    Error::new(ErrorKind::Fenced, "a newer compactor has taken over; this one is stopped")
        .with("by compactor epoch", by)
}

/// Carries out what is wanted, as a task of its own: a caller that gives up leaves nothing half
/// done. Jobs that an earlier process left come first. `false` when nothing was to gain.
///
/// # Errors
/// Conflict for a plan that may not run, and for one that the tree moved away from; Fenced once
/// another compactor has taken over; Closed; Corruption; the store's. What was recorded is where
/// the next compactor goes on.
pub(crate) async fn compact(host: Arc<dyn Host>, wanted: CompactionRequest) -> Result<bool> {
    let (answer, answered) = futures::channel::oneshot::channel();
    let spawn = Arc::clone(&host.env().spawn);
    let asked = Arc::clone(&host);
    let task = async move {
        let worked = caught("compact", by_hand(&host, &wanted)).await;
        drop(answer.send(worked.flatten()));
    };
    spawn.spawn("compact", Box::pin(task));
    answered.await.unwrap_or_else(|_| {
        // The runtime has ended, and with it the handle.
        asked.check_open()?;
        Err(Error::internal("a compaction was dropped before its end"))
    })
}

/// As [`once_by_hand`]; again where another compactor had taken over and has given the epoch up
/// since, of which nobody here had heard.
async fn by_hand(host: &Arc<dyn Host>, wanted: &CompactionRequest) -> Result<bool> {
    match once_by_hand(host, wanted).await {
        Err(error) if error.kind() == ErrorKind::Fenced && host.writer().is_some() => {
            let newest = host.manifests().probe(true).await?;
            match newest.compactor_is_released() && !cfg!(mutation = "release_unseen") {
                true => once_by_hand(host, wanted).await,
                false => Err(error),
            }
        }
        ended => ended,
    }
}

async fn once_by_hand(host: &Arc<dyn Host>, wanted: &CompactionRequest) -> Result<bool> {
    let compactor = host.compactor();
    // What is under way might stand in the plan's way: it ends first, and nothing new begins.
    let alone = Arc::clone(&compactor.turn).write_owned().await;
    let begun = async {
        let epoch = compactor.claimed(&**host).await?;
        host.check_open()?;
        resume(host, epoch).await?;
        Ok((epoch, Starter::new(&**host, epoch).first_of(wanted).await?))
    };
    let begun: Result<(Epoch, PlanStart)> = caught("compact", begun).await.flatten();
    let ended = match begun {
        Ok((epoch, PlanStart::Job(job, worker))) => {
            compactor.begins(job, worker);
            // From here on others may run beside it.
            let _shared = alone.downgrade();
            // Whoever came meanwhile was sent away.
            host.nudge();
            let worked = job::run(host, epoch, job).await;
            let told = compactor.told(&**host, worked.clone().and_then(JobEnd::committed)).await;
            // No sooner: another epoch, which may be claimed from now on, would end by its error.
            compactor.ends(job, worked.is_ok());
            told.map(|()| true)
        }
        begun => {
            let began = begun.map(|(_, started)| matches!(started, PlanStart::Committed));
            let told = compactor.told(&**host, began).await;
            // Before the nudge: who is woken by it asks for the turn.
            drop(alone);
            told
        }
    };
    host.nudge();
    if ended.is_ok() {
        host.take_up().await?;
    }
    ended
}

/// Ends what a compactor before left unfinished, one after another: what is recorded is not done
/// again. One whose tables have gone meanwhile, by a restore, is given up, which is an end as good
/// as another: nobody here asked for it.
async fn resume(host: &Arc<dyn Host>, epoch: Epoch) -> Result<()> {
    while let Some(job) = leftovers(&**host, epoch).await?.first().copied() {
        host.compactor().begins(job, AttemptId(host.env().random_u128()));
        let worked = job::run(host, epoch, job).await;
        host.compactor().ends(job, worked.is_ok());
        worked?;
    }
    Ok(())
}

/// Jobs that the manifest does not know as finished and nobody works on here. The record is taken
/// over first, whatever it holds: from then on nobody who was overtaken brings a job into it, whose
/// tables the plans of this epoch, moves above all, would take away from it.
async fn leftovers(host: &dyn Host, epoch: Epoch) -> Result<Vec<JobId>> {
    let compactor = host.compactor();
    let record = Starter::new(host, epoch).take_over().await?;
    // Who is at work comes before the state: a job's work ends once a state is known that has its
    // end. A step of the simulation is not interrupted between the two; a thread is.
    let active = compactor.held.lock().active.clone();
    let finished = match cfg!(mutation = "finished_jobs_forgotten") {
        true => Vec::new(),
        false => record.finished(&host.manifests().newest_known()),
    };
    let jobs = record.jobs.iter().map(|job| job.id);
    let nobodys = |job: &JobId| !finished.contains(job) && !active.contains(job);
    let left = |job: &JobId| nobodys(job) && !cfg!(mutation = "leftovers_stay");
    Ok(jobs.filter(left).collect())
}

/// Takes the next compactor epoch: the compactor before is stopped, its writer is not.
async fn claim(manifests: &ManifestClient, host: &dyn Host) -> Result<Epoch> {
    let mut expected = manifests.newest_known().compactor_epoch;
    let claim = AttemptId(host.env().random_u128());
    loop {
        let edit = Edit::ClaimCompactor { writer: host.writer(), expected, claim };
        match manifests.try_commit(edit).await? {
            Ok(_) => return Ok(expected.next()),
            Err(Refusal::Conflict(Conflict::EpochMoved { now }))
                if !cfg!(mutation = "claim_conflict_is_final") =>
            {
                expected = now;
            }
            Err(refusal) => return Err(refusal.into()),
        }
    }
}
