//! A plan whose ranges are merged by units in other processes (RFC 0046). This process holds the
//! epoch and all claims, records the results of the units, and commits. Meanwhile it compacts new
//! tables as every compactor does, so that writes do not wait for the units.

use super::event::CompactorEvent;
use super::host::Host;
use super::job::{self, JobEnd, JobWork, commit_done};
use super::process::CompactorProcess;
use super::start::{PlanStart, Starter};
use super::unit::{CompactionUnit, UnitResult};
use super::{CompactionRequest, Compactor, leftovers, schedule};
use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::{BoxFuture, Either, select};
use parking_lot::Mutex;
use siltstone_base::{AttemptId, Epoch, Error, ErrorKind, JobId, Result, SstId};
use siltstone_manifest::compaction::{Change, ChangeRefusal, Compactions, FinishedUnit, Job};
use siltstone_manifest::features::UNITS;
use siltstone_manifest::{Edit, Refusal};
use siltstone_store::supervise::caught;
use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// Heartbeats within the time after which a stalled worker counts as dead. Two may be lost.
const HEARTBEATS_A_TIMEOUT: u32 = 3;
/// After this number of timeouts without a result the plan rests (rule U3), so that another
/// compactor may take the epoch.
const TIMEOUTS_IN_VAIN: u32 = 10;

/// A compaction whose ranges other processes merge. Dropping it stops it; the next compactor
/// continues after the recorded progress.
pub struct CompactionPlan {
    compactor: CompactorProcess,
    host: Arc<dyn Host>,
    /// `None` if there is nothing to gain.
    work: Option<Arc<PlanWork>>,
    /// Held by the call that runs, so that there is one at a time.
    turn: tokio::sync::Mutex<PlanEnd>,
    /// Completes when the background task has ended.
    beside: tokio::sync::Mutex<Option<oneshot::Receiver<()>>>,
}

/// The state of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlanEnd {
    Open,
    /// Its job has ended.
    Ended,
}

/// The job of a plan.
struct PlanWork {
    epoch: Epoch,
    id: JobId,
    worker: AttemptId,
    /// When it was planned, by the monotonic clock.
    since: Duration,
    /// Tables that the job had then.
    counted: HashSet<SstId>,
    /// Whether another compactor had begun the job.
    resumed: bool,
    progress: Mutex<PlanProgress>,
}

struct PlanProgress {
    /// Time of the last record.
    recorded: Duration,
    /// Whether there was no record for too long.
    rests: bool,
}

impl CompactorProcess {
    /// Plans to merge all tables into one sorted run, in units of about `unit_bytes` each. Jobs
    /// that an earlier compactor left come first: a job smaller than a unit is merged here
    /// immediately; a larger one becomes the plan. This process has the compactor's epoch until
    /// [`CompactionPlan::close`].
    ///
    /// # Errors
    /// As [`CompactorProcess::compact`].
    pub fn plan(&self, unit_bytes: u64) -> BoxFuture<'_, Result<CompactionPlan>> {
        async move {
            let (answer, answered) = oneshot::channel();
            let (this, spawn) = (self.clone(), Arc::clone(&self.process.env.spawn));
            let task = async move {
                let planned = this.begin_plan(unit_bytes).await;
                drop(answer.send(planned.map(|work| UnclaimedPlan { of: this, work })));
            };
            spawn.spawn("plan compaction", Box::pin(task));
            let gone = || Err(Error::internal("a plan was dropped before its end"));
            let work = answered.await.unwrap_or_else(|_| gone());
            let work = work.map_err(|error| error.during("plan a compaction"))?.heard();
            let work = work.map(Arc::new);
            let host: Arc<dyn Host> = Arc::clone(&self.process) as Arc<dyn Host>;
            let beside = work.as_ref().map(|work| self.tend(&host, work));
            let (beside, turn) = (tokio::sync::Mutex::new(beside), PlanEnd::Open.into());
            Ok(CompactionPlan { compactor: self.clone(), host, work, turn, beside })
        }
        .boxed()
    }

    /// The job of a plan. Without one, releases the epoch.
    async fn begin_plan(&self, unit_bytes: u64) -> Result<Option<PlanWork>> {
        let host: Arc<dyn Host> = Arc::clone(&self.process) as Arc<dyn Host>;
        let planned = caught("plan compaction", begin(&host, unit_bytes)).await.flatten();
        let planned = host.compactor().told(&*host, planned).await;
        if !matches!(planned, Ok(Some(_))) {
            self.release().await;
        }
        planned
    }

    /// Sends heartbeats and compacts new tables, until the process is stopped, another compactor
    /// has taken over, or no result came for too long.
    fn tend(&self, host: &Arc<dyn Host>, work: &Arc<PlanWork>) -> oneshot::Receiver<()> {
        let (ends, ended) = oneshot::channel();
        let (this, host, work) = (self.clone(), Arc::clone(host), Arc::clone(work));
        let spawn = Arc::clone(&host.env().spawn);
        let task = async move {
            let lives = pin!(caught("compaction plan", lives(&host, &work)));
            let compacts = pin!(schedule::run(&host));
            if let Either::Left((lived, compacts)) = select(lives, compacts).await {
                // Calls of the plan return this error.
                let _ = host.compactor().told(&*host, lived.flatten()).await;
                this.stop();
                let _ = compacts.await;
            }
            let _ = ends.send(());
        };
        spawn.spawn("compaction plan", Box::pin(task));
        ended
    }
}

/// A plan on its way to the caller that requested it. If the caller has given up, dropping this
/// ends the plan's job and releases the epoch.
struct UnclaimedPlan {
    of: CompactorProcess,
    work: Option<PlanWork>,
}

impl UnclaimedPlan {
    fn heard(mut self) -> Option<PlanWork> {
        self.work.take()
    }
}

impl Drop for UnclaimedPlan {
    fn drop(&mut self) {
        let Some(work) = self.work.take() else { return };
        let process = &self.of.process;
        process.compactor.ends(work.id, false);
        let (of, spawn) = (self.of.clone(), Arc::clone(&process.env.spawn));
        spawn.spawn("release compactor", Box::pin(async move { of.release().await }));
    }
}

/// A job that runs here until this is dropped, unless it `stays`.
struct ActiveJob<'c> {
    compactor: &'c Compactor,
    job: JobId,
    is_done: bool,
    stays: bool,
}

impl ActiveJob<'_> {
    fn begin(compactor: &Compactor, job: JobId, worker: AttemptId) -> ActiveJob<'_> {
        compactor.begins(job, worker);
        ActiveJob { compactor, job, is_done: false, stays: false }
    }

    fn ends(mut self, worked: &Result<JobEnd>) {
        self.is_done = worked.is_ok();
    }

    fn stays(mut self) {
        self.stays = true;
    }
}

impl Drop for ActiveJob<'_> {
    fn drop(&mut self) {
        if !self.stays {
            self.compactor.ends(self.job, self.is_done);
        }
    }
}

/// Claims the job of the plan; `None` if there is nothing to gain.
async fn begin(host: &Arc<dyn Host>, unit_bytes: u64) -> Result<Option<PlanWork>> {
    let compactor = host.compactor();
    let _alone = Arc::clone(&compactor.turn).write_owned().await;
    let epoch = compactor.claimed(&**host).await?;
    host.check_open()?;
    name_units(&**host, epoch).await?;
    let manifests = host.manifests();
    while let Some(id) = leftovers(&**host, epoch).await?.first().copied() {
        let worker = AttemptId(host.env().random_u128());
        let active = ActiveJob::begin(compactor, id, worker);
        let left = compactor.chain.job(manifests, id).await?;
        if let Some(job) = left.filter(|job| is_worth_units(&**host, job, unit_bytes)) {
            let change = Change::Units { epoch, job: id, worker, finished: Vec::new() };
            compactor.chain.append(manifests, change).await??;
            active.stays();
            return Ok(Some(PlanWork::new(&**host, (epoch, id, worker), &job, true)));
        }
        let worked = job::run(host, epoch, id).await;
        active.ends(&worked);
        worked?;
    }
    let starter = Starter::for_units(&**host, epoch, unit_bytes);
    let PlanStart::Job(id, worker) = starter.first_of(&CompactionRequest::Major).await? else {
        return Ok(None);
    };
    let active = ActiveJob::begin(compactor, id, worker);
    let job = compactor.chain.job(manifests, id).await?;
    let job = job.ok_or_else(|| Error::internal("a job that was started is not in the record"))?;
    active.stays();
    Ok(Some(PlanWork::new(&**host, (epoch, id, worker), &job, false)))
}

/// Whether at least a unit's bytes of the job are left to merge.
fn is_worth_units(host: &dyn Host, job: &Job, unit_bytes: u64) -> bool {
    let state = host.manifests().newest_known();
    let layers = if job.cancelled || job.is_done() { None } else { job.merged(&state).ok() };
    let bytes = |layers: Vec<Vec<_>>| {
        let tables = layers.iter().flatten();
        tables.map(|table: &siltstone_base::SstDescriptor| table.object_bytes).sum::<u64>()
    };
    layers.is_some_and(|layers| bytes(layers) >= unit_bytes)
}

/// Records the feature before the first unit uploads (RFC 0024).
async fn name_units(host: &dyn Host, epoch: Epoch) -> Result<()> {
    let manifests = host.manifests();
    if manifests.newest_known().features.names(UNITS) {
        return Ok(());
    }
    let named: Result<_, Refusal> = manifests.try_commit(Edit::BeginUnits { epoch }).await?;
    named.map(drop).map_err(Error::from)
}

/// Sends heartbeats of this process, as long as results are recorded now and then.
async fn lives(host: &Arc<dyn Host>, work: &PlanWork) -> Result<()> {
    let env = host.env();
    let timeout = host.options().compactors.worker_timeout;
    loop {
        env.clock.sleep(timeout / HEARTBEATS_A_TIMEOUT).await;
        host.check_open()?;
        {
            let mut progress = work.progress.lock();
            let since = env.clock.monotonic().saturating_sub(progress.recorded);
            progress.rests = since > timeout * TIMEOUTS_IN_VAIN;
            if progress.rests {
                return Ok(());
            }
        }
        match host.compactor().chain.append(host.manifests(), work.units(Vec::new())).await {
            Ok(Ok(_)) => {}
            // The job has ended.
            Ok(Err(ChangeRefusal::NoSuchJob { .. })) => return Ok(()),
            Ok(Err(refusal)) => return Err(refusal.into()),
            Err(error) => host.emit(CompactorEvent::Trouble(error)),
        }
    }
}

impl PlanWork {
    fn new(
        host: &dyn Host,
        (epoch, id, worker): (Epoch, JobId, AttemptId),
        job: &Job,
        resumed: bool,
    ) -> PlanWork {
        let since = host.env().clock.monotonic();
        let counted = job.outputs().map(|table| table.id).collect();
        let progress = Mutex::new(PlanProgress { recorded: since, rests: false });
        PlanWork { epoch, id, worker, since, counted, resumed, progress }
    }

    fn units(&self, finished: Vec<FinishedUnit>) -> Change {
        Change::Units { epoch: self.epoch, job: self.id, worker: self.worker, finished }
    }

    /// The job in a record of this compactor's epoch.
    fn job<'r>(&self, record: &'r Compactions) -> Result<&'r Job> {
        if record.epoch > self.epoch {
            return Err(ChangeRefusal::Fenced { by: record.epoch }.into());
        }
        let job = record.job(self.id);
        job.ok_or_else(|| Error::internal("the job of a plan is not in the record"))
    }

    /// Records the matching results of `units`. Returns whether the whole job is recorded.
    async fn record(&self, host: &dyn Host, units: &[FinishedUnit]) -> Result<bool> {
        let (chain, manifests) = (&host.compactor().chain, host.manifests());
        loop {
            let record = chain.newest(manifests).await?;
            let job = self.job(&record)?;
            let fitting = job.fitting(units);
            if fitting.is_empty() && job.is_done() {
                return Ok(true);
            }
            if fitting.is_empty() {
                // No result matches, so this process may have been fenced; look at the newest
                // record.
                let newest = chain.look(manifests).await?;
                return Ok(self.job(&newest)?.is_done());
            }
            match chain.append(manifests, self.units(fitting)).await? {
                Ok(_) => self.progress.lock().recorded = host.env().clock.monotonic(),
                // A worker that had claimed the range before was faster.
                Err(ChangeRefusal::Taken { .. }) => {}
                Err(refusal) => return Err(refusal.into()),
            }
        }
    }
}

impl CompactionPlan {
    /// The units that are left to merge, by the record as this process knows it. Empty once the
    /// plan is carried out, or if there is nothing to gain.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn units(&self) -> BoxFuture<'_, Result<Vec<CompactionUnit>>> {
        async move {
            let Some(work) = &self.work else { return Ok(Vec::new()) };
            if *self.turn.lock().await == PlanEnd::Ended {
                return Ok(Vec::new());
            }
            let job = self.host.compactor().chain.job(self.host.manifests(), work.id).await?;
            let ranges = job.iter().flat_map(|job| job.ranges.iter().enumerate());
            let open = ranges.filter(|(_, range)| !range.done).map(|(at, range)| CompactionUnit {
                job: work.id,
                range: at,
                after: range.last_output(),
                start: range.keys.start.clone(),
                end: range.keys.end.clone(),
            });
            Ok(open.collect())
        }
        .boxed()
    }

    /// Whether the plan continues a job that another compactor had begun. Newer tables need another
    /// plan.
    #[must_use]
    pub fn is_resumed(&self) -> bool {
        self.work.as_ref().is_some_and(|work| work.resumed)
    }

    /// Records results of units, in any order and any number of times. The last one commits the
    /// compaction. Returns whether it is committed. Results that are not needed are ignored.
    ///
    /// # Errors
    /// Fenced: another compactor has taken over and continues after the recorded progress.
    /// Conflict: a restore has changed the database, and the plan ends without effect. Timeout:
    /// nothing was recorded for ten times `worker_timeout`, and the plan rests; plan again, and
    /// pass the results to that plan. Closed, and errors of the store: try again.
    pub fn commit<'a>(&'a self, results: &'a [UnitResult]) -> BoxFuture<'a, Result<bool>> {
        async move {
            let Some(work) = &self.work else { return Ok(true) };
            let mut turn = self.turn.lock().await;
            if *turn == PlanEnd::Ended {
                return Ok(true);
            }
            let host = &self.host;
            let ended = caught("commit units", self.carry_out(work, results)).await.flatten();
            let ended = match ended {
                Err(error) if error.kind() == ErrorKind::Closed => {
                    Err(self.why_stopped(work, error))
                }
                ended => host.compactor().told(&**host, ended).await,
            };
            match &ended {
                Ok(true) => *turn = PlanEnd::Ended,
                Err(error) if error.kind() == ErrorKind::Conflict => *turn = PlanEnd::Ended,
                _ => {}
            }
            ended.map_err(|error| error.during("commit units of a compaction"))
        }
        .boxed()
    }

    async fn carry_out(&self, work: &PlanWork, results: &[UnitResult]) -> Result<bool> {
        let host = &self.host;
        host.check_open()?;
        let own = results.iter().filter(|result| result.job() == work.id);
        let units: Vec<FinishedUnit> = own.filter_map(UnitResult::finished).cloned().collect();
        if !work.record(&**host, &units).await? {
            return Ok(false);
        }
        let (epoch, id, worker) = (work.epoch, work.id, work.worker);
        let job = JobWork { host, epoch, id, worker };
        let committed = commit_done(job, work.since, &work.counted).await;
        if committed.is_ok() {
            host.compactor().ends(id, true);
        }
        committed?.committed().map(|()| true)
    }

    /// Why it was stopped, if its user did not close it.
    fn why_stopped(&self, work: &PlanWork, closed: Error) -> Error {
        let fenced = self.host.compactor().held.lock().fenced.clone();
        let rests = work.progress.lock().rests.then(in_vain);
        fenced.or(rests).unwrap_or(closed)
    }

    /// Closes the plan: releases the compactor's epoch. The next compactor continues after the
    /// recorded progress.
    pub fn close(&self) -> BoxFuture<'_, ()> {
        async move {
            self.compactor.stop();
            if let Some(beside) = self.beside.lock().await.take() {
                // The task has ended, or was dropped with its runtime.
                let _ = beside.await;
            }
            self.host.compactor().at_rest().await;
            self.compactor.release().await;
        }
        .boxed()
    }
}

impl Drop for CompactionPlan {
    fn drop(&mut self) {
        self.compactor.stop();
    }
}

fn in_vain() -> Error {
    Error::new(
        ErrorKind::Timeout,
        "no result of a unit came for ten times worker_timeout, so the plan rests and another \
         compactor may continue; plan again, and pass the results to that plan",
    )
}
