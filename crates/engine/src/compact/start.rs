//! From what is wanted to jobs under way: plans, what they come to, and their record.

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
    Change, Claim, Compactions, Facts, Job, JobFacts, Plan, Running, View, Work, manual,
};
use siltstone_manifest::{Edit, FinishCompaction, Manifest, Refusal};
use std::sync::Arc;

/// What is wanted, as plans on the newest known state, the most urgent first.
pub(super) struct DuePlans {
    state: Arc<Manifest>,
    pub(super) plans: Vec<Plan>,
    facts: Facts,
    running: Vec<Running>,
}

impl DuePlans {
    /// Beside the jobs of `record`.
    ///
    /// # Errors
    /// Invalid for options of the scheduler that do not fit.
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

/// What became of a plan.
pub(super) enum PlanStart {
    /// Nothing is to gain.
    Nothing,
    /// A commit was all that was left to do.
    Committed,
    /// Its job is in the record, its ranges claimed by this worker.
    Job(JobId, AttemptId),
    /// A restore has taken tables of it away: what is wanted is to be asked anew.
    Restored,
}

/// Starts plans under one epoch.
pub(super) struct Starter<'h> {
    host: &'h dyn Host,
    epoch: Epoch,
    /// About how many bytes a range has whose job is for units elsewhere.
    unit_bytes: Option<u64>,
}

impl<'h> Starter<'h> {
    pub(super) fn new(host: &'h dyn Host, epoch: Epoch) -> Starter<'h> {
        Starter { host, epoch, unit_bytes: None }
    }

    /// One whose jobs are for units of about so many bytes.
    pub(super) fn for_units(host: &'h dyn Host, epoch: Epoch, bytes: u64) -> Starter<'h> {
        Starter { unit_bytes: Some(bytes), ..Starter::new(host, epoch) }
    }

    /// Starts `plan`, one of `wishes`, beside those that were started before it.
    ///
    /// # Errors
    /// Conflict for a plan that may not run; Fenced; Corruption; the store's.
    pub(super) async fn start(&self, wishes: &mut DuePlans, plan: &Plan) -> Result<PlanStart> {
        match self.begin(wishes, plan).await {
            Err(error)
                if error.kind() == ErrorKind::NotFound
                    && !cfg!(mutation = "gone_plans_end_all") =>
            {
                let newest = self.host.manifests().probe(true).await?;
                let restored = newest.restored_at() > wishes.state.id;
                if restored { Ok(PlanStart::Restored) } else { Err(error) }
            }
            started => started,
        }
    }

    /// Starts what is most urgent of what is wanted, as of now.
    ///
    /// # Errors
    /// As [`Starter::start`]; Invalid for options of the scheduler that do not fit.
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
            let mut entry = CompactionEntry::of(layers, work.destination, plan.why);
            entry.moved = work.moves.len() as u64;
            entry.dropped = work.drops.len() as u64;
            let begun = host.compactor().log.begin(&env.clock, entry);
            let edit = work.finish(epoch, (job, state.id), Vec::new(), retire(&record, state));
            let ended = commit(host, edit).await.and_then(|done| done.map_err(Error::from));
            if let Some(entry) = begun.end(&ended) {
                host.tell(CompactorEvent::Compacted(entry));
            }
            return ended.map(|()| PlanStart::Committed);
        }
        let worker = AttemptId(env.random_u128());
        let ranges = cut::ranges(host, &work, self.unit_bytes).await?;
        let started = (job, plan.why, facts.now);
        let job = Job::of(&work, started, state, self.facts(state, &work, facts.now), ranges);
        let job = Box::new(self.claimed(job, worker));
        let (running, id) = (job.running(), job.id);
        let forget = record.finished(state);
        chain.append(host.manifests(), Change::Start { epoch, job, forget }).await??;
        wishes.running.push(running);
        Ok(PlanStart::Job(id, worker))
    }

    /// The job with the ranges claimed that this process works on first: all of them where nobody
    /// else is expected. Units have names of their own.
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

    /// What decides the bytes of the job's tables, as it is at the start.
    fn facts(&self, state: &Manifest, work: &Work, now: UnixMillis) -> JobFacts {
        let options = self.host.options();
        let (floor, snapshots) = self.host.retention(state);
        JobFacts {
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

    /// The record of jobs, taken over from an earlier compactor unless that is done.
    ///
    /// # Errors
    /// Fenced; the store's.
    pub(super) async fn take_over(&self) -> Result<Arc<Compactions>> {
        let (chain, manifests) = (&self.host.compactor().chain, self.host.manifests());
        let record = chain.newest(manifests).await?;
        if record.epoch == self.epoch {
            return Ok(record);
        }
        Ok(chain.append(manifests, Change::TakeOver { epoch: self.epoch }).await??)
    }
}

/// Jobs that the manifest has as finished and the record has forgotten.
pub(super) fn retire(record: &Compactions, state: &Manifest) -> Vec<JobId> {
    let done = state.finished_jobs.iter().map(|done| done.job);
    done.filter(|job| record.job(*job).is_none()).collect()
}

/// Commits the end of a job.
///
/// # Errors
/// The store's. Within: why it is refused.
pub(super) async fn commit(host: &dyn Host, edit: FinishCompaction) -> Result<Result<(), Refusal>> {
    let committed = host.manifests().try_commit(Edit::FinishCompaction(edit)).await?;
    Ok(committed.map(|_| ()))
}
