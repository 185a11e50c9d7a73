//! Carries out compaction plans (RFC 0019, RFC 0021). `siltstone_manifest::compaction` decides the
//! work of a plan, which plans may run, and the content of each commit; this module reads and
//! writes tables.
//!
//! | module | holds |
//! | --- | --- |
//! | [`host`] | what a compactor needs from its process |
//! | [`schedule`] | the scheduling loop, until the compactor is stopped |
//! | [`start`] | makes jobs of the record from plans |
//! | [`job`] | one job up to its commit; replaces stalled workers |
//! | [`deleted`] | range deletes, which make it unnecessary to read some tables |
//! | [`cut`] | splits the keys of a job into ranges that are merged in parallel |
//! | [`opening`] | opens the rest of a range as cursors over its inputs |
//! | [`range`] | one key range of a job: merges inputs into tables and records each |
//! | [`merging`] | the synchronous inner loop |
//! | [`sending`] | uploads the chunks of a table |
//! | [`limit`] | the rate limit of compactions |
//! | [`records`] | the chain of job records |
//! | [`take_back`] | when a compactor that was stopped takes the epoch back |
//! | [`process`], [`worker`] | a compactor in its own process; a worker that only merges ranges |
//! | [`units`], [`unit`] | a plan whose ranges other processes merge; one such range |
//! | [`compaction_log`] | totals and log lines of compactions |
//! | [`event`] | events of a compactor in its own process |
//! | [`pending`] | the amount of work that is due |

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
use siltstone_store::buffers::Buffers;
use siltstone_store::supervise::caught;
use start::{PlanStart, Starter};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The requested compaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CompactionRequest {
    /// The plan that the scheduler finds most urgent.
    Scheduled,
    /// All tables, into run 0.
    Major,
    /// A plan of the caller.
    Plan(Plan),
}

/// The compactor of one process.
#[derive(Default)]
pub(crate) struct Compactor {
    chain: Chain,
    /// Running jobs share it. A manual compaction holds it exclusively, so that no job blocks its
    /// plan.
    turn: Arc<tokio::sync::RwLock<()>>,
    held: Mutex<CompactorState>,
    /// Observations of the compactor that stopped this one.
    watch: Mutex<take_back::CompactorWatch>,
    pub(crate) log: CompactionLog,
    limit: Limit,
    memory: MergeMemory,
    /// Whether brief jobs go on although the handle was closed.
    finishes: AtomicBool,
}

/// Memory that jobs and ranges reuse. It is freed when no job runs.
pub(crate) struct MergeMemory {
    /// Buffers of reads.
    waves: Buffers,
    /// Buffers of writes.
    chunks: Buffers,
    /// Scratch memory of tables under construction.
    scratch: Mutex<Vec<TableScratch>>,
}

impl Default for MergeMemory {
    fn default() -> MergeMemory {
        let chunks = Buffers::keeping(CHUNKS, 2 * SLICE_BYTES);
        MergeMemory { waves: inputs::buffers(), chunks, scratch: Mutex::default() }
    }
}

impl MergeMemory {
    /// Frees the memory, because no job runs.
    fn clear(&self) {
        self.waves.clear();
        self.chunks.clear();
        *self.scratch.lock() = Vec::new();
    }

    /// Keeps the scratch memory of a finished table for the next one. There are as many as tables
    /// were built at once.
    fn keep(&self, scratch: TableScratch) {
        self.scratch.lock().push(scratch);
    }
}

/// Number of chunks that are kept: those of three ranges on a remote store.
const CHUNKS: usize = 16;

/// The state that the compactor keeps between plans.
#[derive(Default)]
struct CompactorState {
    /// Its epoch; `NONE` until it has something to do.
    epoch: Epoch,
    /// Set once another compactor has taken over.
    fenced: Option<Error>,
    /// Jobs that run here.
    active: HashSet<JobId>,
    /// Those of them that read at most [`BRIEF_JOB_BYTES`].
    brief: HashSet<JobId>,
    /// Identities under which this process has claimed ranges of a job, including those of earlier
    /// runs.
    workers: HashMap<JobId, Vec<AttemptId>>,
    /// Why the last job failed.
    failed: Option<Error>,
}

/// Bytes of the tables that a brief job reads. It takes a second on a store with usual latency.
/// Without it, short-lived writers would give up each job, and L0 would grow until writes stop.
const BRIEF_JOB_BYTES: u64 = 8 << 20;

impl Compactor {
    /// Waits until no job runs. The caller must have closed the handle, so that no job begins.
    pub(crate) async fn at_rest(&self) {
        let _leaving = self.chain.leaves();
        drop(self.turn.write().await);
    }

    /// Sets whether brief jobs go on although the handle was closed. The others stop.
    pub(crate) fn finish_brief_jobs(&self, finishes: bool) {
        self.finishes.store(finishes, Ordering::Release);
    }

    /// Records the number of bytes that a job reads, at most `rate` a second.
    fn weighs(&self, job: JobId, bytes: u64, rate: Option<u64>) {
        if bytes <= rate.unwrap_or(u64::MAX).min(BRIEF_JOB_BYTES) {
            self.held.lock().brief.insert(job);
        }
    }

    /// An error if the handle has ended, unless `job` is finished before the end.
    fn check_open(&self, host: &dyn Host, job: JobId) -> Result<()> {
        let is_finished =
            || self.finishes.load(Ordering::Acquire) && self.held.lock().brief.contains(&job);
        match host.check_open() {
            Err(error) if error.kind() == ErrorKind::Closed && is_finished() => Ok(()),
            checked => checked,
        }
    }

    /// Whether `worker` is an identity of this process.
    fn is_own(&self, worker: AttemptId) -> bool {
        self.held.lock().workers.values().flatten().any(|own| *own == worker)
    }

    /// The identity of the latest run of a job.
    fn worker_of(&self, job: JobId) -> AttemptId {
        let held = self.held.lock();
        held.workers.get(&job).and_then(|own| own.last()).copied().unwrap_or_default()
    }

    /// Records that a job begins to run here, with claims of `worker`.
    fn begins(&self, job: JobId, worker: AttemptId) {
        let mut held = self.held.lock();
        held.active.insert(job);
        held.workers.entry(job).or_default().push(worker);
    }

    /// Records that a job no longer runs here. Its unused claims are still known as this process's
    /// own.
    fn ends(&self, job: JobId, is_done: bool) {
        let mut held = self.held.lock();
        held.active.remove(&job);
        held.brief.remove(&job);
        if held.active.is_empty() {
            self.memory.clear();
        }
        if is_done {
            held.workers.remove(&job);
        }
    }

    /// Whether a job of any epoch runs here.
    fn is_at_work(&self) -> bool {
        !self.held.lock().active.is_empty()
    }

    /// Clears the fencing. `NONE` means that the next epoch has to be claimed.
    fn starts_anew(&self, epoch: Epoch) {
        let mut held = self.held.lock();
        (held.fenced, held.epoch) = (None, epoch);
        drop(held);
        self.watch.lock().forget();
    }

    /// Records that the scheduling task has died.
    pub(crate) fn died(&self, died: &Error) {
        self.log.ran::<()>(&Err(died.clone()));
    }

    /// Records why a job or a look failed.
    fn fails(&self, error: Error) {
        self.held.lock().failed = Some(error);
    }

    /// Takes the failure since the last call, if there was one.
    fn take_failure(&self) -> Option<Error> {
        self.held.lock().failed.take()
    }

    /// Returns the epoch, and claims one if this process has none. After another compactor has
    /// taken over, this one stays stopped, unless it is embedded and the other has released the
    /// epoch. Jobs of the old epoch must end first: their error would otherwise end the new epoch.
    ///
    /// # Errors
    /// Fenced; errors of the store.
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

    /// The epoch; `NONE` if none is claimed.
    fn epoch(&self) -> Epoch {
        self.held.lock().epoch
    }

    /// Gives up the epoch and returns it; `NONE` if there was none or another compactor has taken
    /// over.
    fn give_up_epoch(&self) -> Epoch {
        let mut held = self.held.lock();
        let epoch = std::mem::take(&mut held.epoch);
        if held.fenced.is_some() { Epoch::NONE } else { epoch }
    }

    /// Records the result of an operation of this compactor. If an input is missing, or a job has
    /// ended elsewhere, and a newer compactor exists, the result is Fenced. If the store does not
    /// tell whether one exists, the result is its error: a missing input alone proves nothing.
    async fn told<T>(&self, host: &dyn Host, ended: Result<T>) -> Result<T> {
        if let Some(fenced) = self.held.lock().fenced.clone() {
            // Another operation has found the newer compactor, and recorded it.
            return ended.map_err(
                |error| {
                    if may_come_of_fencing(error.kind()) { fenced } else { error }
                },
            );
        }
        let epoch = self.epoch();
        let ended = match ended {
            Err(error) if epoch != Epoch::NONE && may_come_of_fencing(error.kind()) => {
                match host.manifests().probe(true).await {
                    Ok(newest) if newest.compactor_epoch > epoch => {
                        Err(fenced(newest.compactor_epoch))
                    }
                    Err(unknown)
                        if error.kind() == ErrorKind::NotFound && unknown.kind().is_transient() =>
                    {
                        Err(unknown)
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
            // An epoch that was claimed since is not fenced.
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

/// Runs the requested compaction as a separate task, so that a caller that gives up leaves no
/// half-done work. Jobs that an earlier process left come first. Returns `false` if there is
/// nothing to gain.
///
/// # Errors
/// Conflict if the plan may not run, or if the tree has changed so that it no longer applies;
/// Fenced once another compactor has taken over; Closed; Corruption; errors of the store. The next
/// compactor continues after the recorded progress.
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
        // The runtime has ended, and the handle with it.
        asked.check_open()?;
        Err(Error::internal("a compaction was dropped before its end"))
    })
}

/// As [`once_by_hand`]. Tries again if another compactor had taken over and has released the epoch
/// since, without this process having noticed.
async fn by_hand(host: &Arc<dyn Host>, wanted: &CompactionRequest) -> Result<bool> {
    match once_by_hand(host, wanted).await {
        Err(error) if error.kind() == ErrorKind::Fenced && host.writer().is_some() => {
            let newest = host.manifests().probe(true).await?;
            if newest.compactor_is_released() {
                once_by_hand(host, wanted).await
            } else {
                Err(error)
            }
        }
        ended => ended,
    }
}

async fn once_by_hand(host: &Arc<dyn Host>, wanted: &CompactionRequest) -> Result<bool> {
    let compactor = host.compactor();
    // Running jobs could conflict with the plan, so they end first, and no new job begins.
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
            // From here on other jobs may run.
            let _shared = alone.downgrade();
            // Jobs that became due meanwhile were not started.
            host.nudge();
            let worked = job::run(host, epoch, job).await;
            let told = compactor.told(&**host, worked.clone().and_then(JobEnd::committed)).await;
            // Not before `told`: the next claim of an epoch must not be ended by the error of this
            // job.
            compactor.ends(job, worked.is_ok());
            told.map(|()| true)
        }
        begun => {
            let began = begun.map(|(_, started)| matches!(started, PlanStart::Committed));
            let told = compactor.told(&**host, began).await;
            // Release it before the nudge, because the scheduling task asks for the turn when it
            // wakes up.
            drop(alone);
            told
        }
    };
    host.nudge();
    if ended.is_ok() {
        host.adopt_outputs().await?;
    }
    ended
}

/// Finishes the jobs that an earlier compactor left, one after another; recorded progress is not
/// repeated. A job whose tables a restore has removed is given up, which counts as finished,
/// because no caller here requested it.
async fn resume(host: &Arc<dyn Host>, epoch: Epoch) -> Result<()> {
    while let Some(job) = leftovers(&**host, epoch).await?.first().copied() {
        host.compactor().begins(job, AttemptId(host.env().random_u128()));
        let worked = job::run(host, epoch, job).await;
        host.compactor().ends(job, worked.is_ok());
        worked?;
    }
    Ok(())
}

/// Jobs that the manifest does not know as finished and that do not run here. The record is taken
/// over first, even if it is empty: from then on no fenced compactor can add a job to it. Plans of
/// this epoch, above all moves, would take the tables of such a job.
async fn leftovers(host: &dyn Host, epoch: Epoch) -> Result<Vec<JobId>> {
    let compactor = host.compactor();
    let record = Starter::new(host, epoch).take_over().await?;
    // Read the running jobs before the manifest: the work of a job ends once a manifest with its
    // end is known. The simulation does not interrupt a step between the two reads; threads do.
    let active = compactor.held.lock().active.clone();
    let finished = record.finished(&host.manifests().newest_known());
    let jobs = record.jobs.iter().map(|job| job.id);
    let is_left = |job: &JobId| !finished.contains(job) && !active.contains(job);
    Ok(jobs.filter(is_left).collect())
}

/// Claims the next compactor epoch. This stops the earlier compactor, but not its writer.
async fn claim(manifests: &ManifestClient, host: &dyn Host) -> Result<Epoch> {
    let mut expected = manifests.newest_known().compactor_epoch;
    let claim = AttemptId(host.env().random_u128());
    loop {
        let edit = Edit::ClaimCompactor { writer: host.writer(), expected, claim };
        match manifests.try_commit(edit).await? {
            Ok(_) => return Ok(expected.next()),
            Err(Refusal::Conflict(Conflict::EpochMoved { now })) => expected = now,
            Err(refusal) => return Err(refusal.into()),
        }
    }
}
