//! Makes running jobs from requests: plans, their work, and their record.

use super::CompactionRequest;
use super::compaction_log::CompactionEntry;
use super::cut;
use super::deleted::with_deleted;
use super::event::CompactorEvent;
use super::host::Host;
use super::range::names_ahead;
use siltstone_base::{AttemptId, Epoch, Error, ErrorKind, JobId, Result, UnixMillis};
use siltstone_manifest::compaction::filter_bits;
use siltstone_manifest::compaction::{
    Change, Claim, Compactions, Facts, Job, JobParameters, Plan, Running, View, Work, manual,
};
use siltstone_manifest::{Edit, FinishCompaction, Manifest, Refusal};
use std::sync::Arc;

/// The requested plans for the newest known manifest, most urgent first.
pub(super) struct DuePlans {
    state: Arc<Manifest>,
    pub(super) plans: Vec<Plan>,
    facts: Facts,
    running: Vec<Running>,
}

impl DuePlans {
    /// Plans next to the jobs of `record`.
    ///
    /// # Errors
    /// Invalid for invalid scheduler options.
    pub(super) fn of(
        host: &dyn Host,
        wanted: &CompactionRequest,
        record: Option<&Compactions>,
    ) -> Result<DuePlans> {
        let options = host.options();
        let scheduler = options.compaction.scheduler(options.l0_sst_size_bytes as u64)?;
        let state = host.manifests().newest_known();
        let running = record.map(|record| record.running(&state)).unwrap_or_default();
        let max_compactions = options.compaction.max_compactions as usize;
        let now = host.env().clock.now();
        let view = View { state: &state, running: &running, now, max_compactions };
        let plans = match wanted {
            CompactionRequest::Scheduled => scheduler.plans(&view),
            CompactionRequest::Major => manual::major(&state, now).into_iter().collect(),
            CompactionRequest::Plan(plan) => vec![plan.clone()],
        };
        let facts = scheduler.facts(&view);
        Ok(DuePlans { state, plans, facts, running })
    }
}

/// The result of starting a plan.
pub(super) enum PlanStart {
    /// There is nothing to gain.
    Nothing,
    /// A commit sufficed and was made.
    Committed,
    /// The job is in the record, and this worker has claimed its ranges.
    Job(JobId, AttemptId),
    /// A restore has removed tables of the plan: plan again.
    Restored,
}

/// Starts plans under one epoch.
pub(super) struct Starter<'h> {
    host: &'h dyn Host,
    epoch: Epoch,
    /// Approximate bytes per range, for jobs whose ranges are units of other processes.
    unit_bytes: Option<u64>,
}

impl<'h> Starter<'h> {
    pub(super) fn new(host: &'h dyn Host, epoch: Epoch) -> Starter<'h> {
        Starter { host, epoch, unit_bytes: None }
    }

    /// A starter for jobs with units of about `bytes` each.
    pub(super) fn for_units(host: &'h dyn Host, epoch: Epoch, bytes: u64) -> Starter<'h> {
        Starter { unit_bytes: Some(bytes), ..Starter::new(host, epoch) }
    }

    /// Starts `plan`, one of `wishes`, next to the plans that were started before it.
    ///
    /// # Errors
    /// Conflict for a plan that may not run; Fenced; Corruption; errors of the store.
    pub(super) async fn start(&self, wishes: &mut DuePlans, plan: &Plan) -> Result<PlanStart> {
        match self.begin(wishes, plan).await {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let newest = self.host.manifests().probe(true).await?;
                let restored = newest.restored_at() > wishes.state.id;
                if restored { Ok(PlanStart::Restored) } else { Err(error) }
            }
            started => started,
        }
    }

    /// Starts the most urgent plan of the request, as of now.
    ///
    /// # Errors
    /// As [`Starter::start`]; Invalid for invalid scheduler options.
    pub(super) async fn first_of(&self, wanted: &CompactionRequest) -> Result<PlanStart> {
        loop {
            let record = self.host.compactor().chain.newest(self.host.manifests()).await?;
            let mut wishes = DuePlans::of(self.host, wanted, Some(&record))?;
            let Some(plan) = wishes.plans.first().cloned() else { return Ok(PlanStart::Nothing) };
            match self.start(&mut wishes, &plan).await? {
                PlanStart::Restored => {}
                started => return Ok(started),
            }
        }
    }

    async fn begin(&self, wishes: &mut DuePlans, plan: &Plan) -> Result<PlanStart> {
        let (host, epoch) = (self.host, self.epoch);
        let env = host.env();
        let state = &wishes.state;
        let facts = with_deleted(host, &wishes.facts, state).await?;
        let shaping = host.options().compaction.shaping();
        let work = Work::of(state, &wishes.running, plan, &facts, shaping)?;
        if work.is_nothing() {
            return Ok(PlanStart::Nothing);
        }
        let chain = &host.compactor().chain;
        let record = chain.newest(host.manifests()).await?;
        let job = JobId(env.random_u128());
        if work.is_metadata_only() {
            let layers = work.inputs.iter().map(|input| input.layer);
            let mut entry = CompactionEntry::of(layers, work.destination, plan.reason);
            entry.moved = work.moves.len() as u64;
            entry.dropped = work.drops.len() as u64;
            let begun = host.compactor().log.begin(&env.clock, entry);
            let edit = work.finish(epoch, (job, state.id), Vec::new(), retire(&record, state));
            let ended = commit(host, edit).await.and_then(|done| done.map_err(Error::from));
            if let Some(entry) = begun.end(&ended) {
                host.emit(CompactorEvent::Compacted(entry));
            }
            return ended.map(|()| PlanStart::Committed);
        }
        let worker = AttemptId(env.random_u128());
        let ranges = cut::ranges(host, &work, self.unit_bytes).await?;
        let started = (job, plan.reason, facts.now);
        let job = Job::of(&work, started, state, self.facts(state, &work, facts.now), ranges);
        let job = Box::new(self.claimed(job, worker));
        let (running, id) = (job.running(), job.id);
        let forget = record.finished(state);
        chain.append(host.manifests(), Change::Start { epoch, job, forget }).await??;
        wishes.running.push(running);
        Ok(PlanStart::Job(id, worker))
    }

    /// Claims the ranges that this process merges first: all of them if no other worker is
    /// expected. Units choose their own names, so none are reserved for them.
    fn claimed(&self, mut job: Job, worker: AttemptId) -> Job {
        let host = self.host;
        let own = match host.parts().workers {
            _ if self.unit_bytes.is_some() => job.ranges.len(),
            0 => job.ranges.len(),
            _ => cut::parallelism(host),
        };
        for range in job.ranges.iter_mut().take(own) {
            range.claim = Some(Claim { worker, heartbeats: 0 });
            if self.unit_bytes.is_none() {
                range.reserved = names_ahead(host.env());
            }
        }
        job
    }

    /// The parameters that determine the bytes of the job's tables, as of its start.
    fn facts(&self, state: &Manifest, work: &Work, now: UnixMillis) -> JobParameters {
        let options = self.host.options();
        let (floor, snapshots) = self.host.retention(state);
        JobParameters {
            now,
            floor,
            snapshots,
            codec: self.host.codec(state),
            filter_bits_per_key: filter_bits(state, work, options.filter_bits_per_key),
            block_bytes: options.block_bytes as u64,
            target_sst_bytes: options.compaction.target_sst_bytes,
            zero_seqs: true,
            cut_prefix_bytes: 0,
        }
    }

    /// The record of jobs, taken over from an earlier compactor if necessary.
    ///
    /// # Errors
    /// Fenced; errors of the store.
    pub(super) async fn take_over(&self) -> Result<Arc<Compactions>> {
        let (chain, manifests) = (&self.host.compactor().chain, self.host.manifests());
        let record = chain.newest(manifests).await?;
        if record.epoch == self.epoch {
            return Ok(record);
        }
        Ok(chain.append(manifests, Change::TakeOver { epoch: self.epoch }).await??)
    }
}

/// Jobs that are finished in the manifest and no longer in the record.
pub(super) fn retire(record: &Compactions, state: &Manifest) -> Vec<JobId> {
    let done = state.finished_jobs.iter().map(|done| done.job);
    done.filter(|job| record.job(*job).is_none()).collect()
}

/// Commits the end of a job.
///
/// # Errors
/// Errors of the store. The inner result tells why it is refused.
pub(super) async fn commit(host: &dyn Host, edit: FinishCompaction) -> Result<Result<(), Refusal>> {
    let committed = host.manifests().try_commit(Edit::FinishCompaction(edit)).await?;
    Ok(committed.map(|_| ()))
}
