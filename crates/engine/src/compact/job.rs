//! One job from its record to its commit. This process or workers elsewhere merge its ranges, and
//! stalled workers are replaced.

use super::compaction_log::CompactionEntry;
use super::cut;
use super::event::CompactorEvent;
use super::host::Host;
use super::range::{Layers, RangeEnding, RangeWorker};
use super::start::{commit, retire};
use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::{BoxFuture, Either, select};
use futures::stream::{FuturesUnordered, StreamExt};
use siltstone_base::{AttemptId, Epoch, Error, ErrorKind, JobId, Result, SstId};
use siltstone_manifest::compaction::{Change, ChangeRefusal, Claim, ClaimWatch, Compactions, Job};
use siltstone_manifest::{Conflict, Refusal};
use siltstone_store::supervise::caught;
use std::collections::HashSet;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A running job.
pub(super) struct JobWork<'h> {
    pub(super) host: &'h Arc<dyn Host>,
    pub(super) epoch: Epoch,
    pub(super) id: JobId,
    /// Identity of this process's claims.
    pub(super) worker: AttemptId,
}

/// The ranges of a job that run here.
#[derive(Default)]
struct JobRanges {
    /// Ranges until they are recorded: their indexes and results.
    ranges: FuturesUnordered<BoxFuture<'static, (usize, Result<RangeEnding>)>>,
    /// Those that are still merging. Each occupies a core.
    merging: FuturesUnordered<oneshot::Receiver<()>>,
}

impl JobRanges {
    /// Whether a core is free. Also bounds the number of tables that wait to be recorded by the
    /// number of cores.
    fn has_room(&self, cores: usize) -> bool {
        self.merging.len() < cores && self.ranges.len() < 2 * cores
    }
}

/// How a job ended without an error.
#[derive(Clone, Debug)]
pub(super) enum JobEnd {
    /// Its tables are in the tree.
    Committed,
    /// It was given up without effect, because the tree had changed. The error says how.
    GivenUp(Error),
}

impl JobEnd {
    /// The result for the caller that requested the job: a job without effect is a failure.
    ///
    /// # Errors
    /// Why it was given up: Conflict.
    pub(super) fn committed(self) -> Result<()> {
        match self {
            JobEnd::Committed => Ok(()),
            JobEnd::GivenUp(why) => Err(why),
        }
    }
}

/// An event that a job waits for.
enum JobEvent {
    /// A range has ended.
    Ended(usize, Result<RangeEnding>),
    /// A range no longer occupies a core.
    Merged,
    /// It is time to look at the progress of other processes.
    Time,
}

impl JobWork<'_> {
    /// Merges the rest of the job and commits it, or gives it up if the tree has changed.
    ///
    /// # Errors
    /// Fenced; Closed; Corruption; errors of the store.
    pub(super) async fn work(&self) -> Result<JobEnd> {
        let started = self.job().await?;
        // Earlier runs of the job have counted their tables.
        let counted = started.outputs().map(|table| table.id).collect();
        let since = self.host.env().clock.monotonic();
        self.work_since(&started, since, &counted).await
    }

    /// As [`JobWork::work`], for a run that began at `since`. The tables of `counted` are not
    /// counted again.
    async fn work_since(
        &self,
        started: &Job,
        since: Duration,
        counted: &HashSet<SstId>,
    ) -> Result<JobEnd> {
        let layers = started.inputs.iter().map(|(layer, _)| *layer);
        let mut entry = CompactionEntry::of(layers, started.destination, started.reason);
        entry.moved = started.moves.len() as u64;
        entry.dropped = started.drops.len() as u64;
        let host = self.host;
        if let Ok(layers) = started.merged(&host.manifests().newest_known()) {
            entry = entry.reading(layers.iter().flatten());
        }
        let mut begun = host.compactor().log.begin(&host.env().clock, entry).since(since);
        let ended = self.merge_and_commit(started).await;
        let known = host.compactor().chain.known();
        if let Some(done) = known.as_ref().and_then(|record| record.job(self.id)) {
            let outputs = done.outputs().filter(|table| !counted.contains(&table.id));
            begun.entry = std::mem::take(&mut begun.entry).writing(outputs);
        }
        if let Some(entry) = begun.end(&ended.clone().and_then(JobEnd::committed)) {
            host.emit(CompactorEvent::Compacted(entry));
        }
        ended
    }

    async fn merge_and_commit(&self, started: &Job) -> Result<JobEnd> {
        let host = self.host;
        let state = host.manifests().newest_known();
        if !started.cancelled {
            // A commit whose answer was lost has succeeded; the inputs are gone because of it.
            if state.finished_jobs.iter().any(|done| done.job == self.id) {
                return Ok(JobEnd::Committed);
            }
            match started.merged(&state) {
                Ok(layers) => {
                    let bytes = layers.iter().flatten().map(|table| table.object_bytes).sum();
                    let rate = host.options().compaction.compaction_bytes_per_second;
                    host.compactor().weighs(self.id, bytes, rate);
                    if let Err(error) = self.merge(&Arc::new(layers)).await {
                        return self.ends_by(started, error).await;
                    }
                }
                Err(refusal) => return self.give_up(refusal).await,
            }
        }
        host.compactor().check_open(&**host, self.id)?;
        let state = host.manifests().newest_known();
        let record = host.compactor().chain.newest(host.manifests()).await?;
        let finish = self.job().await?.finish(&state, self.epoch, retire(&record, &state));
        let refusal = match finish {
            Ok(edit) => match commit(&**host, edit).await? {
                Ok(()) => return Ok(JobEnd::Committed),
                Err(refusal) => refusal,
            },
            Err(refusal) => refusal,
        };
        match refusal {
            Refusal::Conflict(
                Conflict::TableGone { .. }
                | Conflict::Overlap { .. }
                | Conflict::RestoredSince { .. },
            ) => self.give_up(refusal).await,
            refusal => Err(refusal.into()),
        }
    }

    /// Handles a failed merge. If inputs are missing, a restore that this process does not know yet
    /// may have removed them: the job is given up then. Otherwise the error is returned.
    async fn ends_by(&self, started: &Job, error: Error) -> Result<JobEnd> {
        if error.kind() != ErrorKind::NotFound {
            return Err(error);
        }
        let state = self.host.manifests().probe(true).await?;
        match started.merged(&state) {
            Err(refusal) => self.give_up(refusal).await,
            Ok(_) if started.planned_on < state.restored_at() => {
                self.give_up(Conflict::RestoredSince { at: state.restored_at() }.into()).await
            }
            Ok(_) => Err(error),
        }
    }

    /// The job in the newest known record.
    async fn job(&self) -> Result<Job> {
        let record = self.host.compactor().chain.newest(self.host.manifests()).await?;
        self.job_of(&record).cloned()
    }

    /// The job in a record of this compactor's epoch.
    fn job_of<'r>(&self, record: &'r Compactions) -> Result<&'r Job> {
        if record.epoch > self.epoch {
            return Err(ChangeRefusal::Fenced { by: record.epoch }.into());
        }
        let job = record.job(self.id);
        job.ok_or_else(|| Error::internal("a running job is not in the record"))
    }

    /// Runs until every range is finished, here or elsewhere.
    async fn merge(&self, layers: &Layers) -> Result<()> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut working = JobRanges::default();
        let merged = caught("compact", self.direct(layers, &stop, &mut working)).await.flatten();
        // The ranges stop at their next slice and give up their uploads.
        stop.store(true, Ordering::Release);
        while working.ranges.next().await.is_some() {}
        merged
    }

    async fn direct(
        &self,
        layers: &Layers,
        stop: &Arc<AtomicBool>,
        working: &mut JobRanges,
    ) -> Result<()> {
        let (host, mut watch, mut here) = (self.host, ClaimWatch::default(), HashSet::new());
        let chain = &host.compactor().chain;
        loop {
            let record = chain.newest(host.manifests()).await?;
            let job = self.job_of(&record)?;
            if job.cancelled || job.is_done() {
                return Ok(());
            }
            let limit = host.options().compactors.worker_timeout;
            let still = watch.look(&record, host.env().clock.monotonic(), limit);
            let still = |at: usize, claim: Claim| still.contains(&(self.id, at, claim));
            let mut elsewhere = false;
            for (at, range) in job.ranges.iter().enumerate().filter(|(_, range)| !range.done) {
                let free = |claim: Claim| host.compactor().is_own(claim.worker) || still(at, claim);
                if here.contains(&at) {
                    continue;
                }
                elsewhere |= range.claim.is_some_and(|one| !host.compactor().is_own(one.worker));
                if working.has_room(cut::parallelism(&**host)) && range.claim.is_none_or(free) {
                    here.insert(at);
                    let worker = RangeWorker::new(host, (self.id, at), self.worker, stop);
                    let (worker, merged) = worker.telling();
                    let work = worker.work(Arc::clone(layers), range.claim);
                    working.merging.push(merged);
                    working.ranges.push(work.map(move |ended| (at, ended)).boxed());
                }
            }
            match self.next(working, elsewhere).await {
                JobEvent::Ended(at, ended) => {
                    here.remove(&at);
                    ended?;
                }
                JobEvent::Merged => {}
                JobEvent::Time => {
                    host.compactor().check_open(&**host, self.id)?;
                    chain.look(host.manifests()).await?;
                }
            }
        }
    }

    /// The next event. The timer only runs if there is something to `look` for.
    async fn next(&self, working: &mut JobRanges, look: bool) -> JobEvent {
        let env = self.host.env();
        let poll = self.host.options().compactors.worker_timeout / LOOKS_A_TIMEOUT;
        let JobRanges { ranges, merging } = working;
        let ended = async {
            match ranges.next().await {
                Some((at, ended)) => JobEvent::Ended(at, ended),
                None => std::future::pending().await,
            }
        };
        let merged = async {
            match merging.next().await {
                Some(_) => JobEvent::Merged,
                None => std::future::pending().await,
            }
        };
        let came = async { select(pin!(ended), pin!(merged)).await.factor_first().0 };
        if !look {
            return came.await;
        }
        either(came, env.clock.sleep(env.jittered(poll))).await.unwrap_or(JobEvent::Time)
    }

    /// Ends the job without effect because of `refusal`.
    async fn give_up(&self, refusal: Refusal) -> Result<JobEnd> {
        let (host, epoch, job) = (self.host, self.epoch, self.id);
        let chain = &host.compactor().chain;
        chain.append(host.manifests(), Change::Cancel { epoch, job }).await??;
        let state = host.manifests().newest_known();
        let record = chain.newest(host.manifests()).await?;
        let finish = self.job().await?.finish(&state, epoch, retire(&record, &state));
        commit(&**host, finish.map_err(Error::from)?).await?.map_err(Error::from)?;
        Ok(JobEnd::GivenUp(Error::from(refusal).during("compaction")))
    }
}

/// Looks at the record within the time after which a stalled worker counts as dead.
pub(super) const LOOKS_A_TIMEOUT: u32 = 15;

/// The output of `work`, or `None` if `limit` ends first.
pub(crate) async fn either<T>(
    work: impl Future<Output = T>,
    limit: impl Future<Output = ()>,
) -> Option<T> {
    match select(pin!(work), pin!(limit)).await {
        Either::Left((done, _)) => Some(done),
        Either::Right(((), _)) => None,
    }
}

/// Commits a job whose ranges are all recorded. It began at `since` with the tables of `counted`.
pub(super) async fn commit_done(
    work: JobWork<'_>,
    since: Duration,
    counted: &HashSet<SstId>,
) -> Result<JobEnd> {
    let started = work.job().await?;
    caught("compact", work.work_since(&started, since, counted)).await.flatten()
}

/// Runs a job. A panic becomes its error, so that the caller can remove it from the running jobs.
pub(super) async fn run(host: &Arc<dyn Host>, epoch: Epoch, id: JobId) -> Result<JobEnd> {
    let worker = host.compactor().worker_of(id);
    caught("compact", JobWork { host, epoch, id, worker }.work()).await.flatten()
}
