//! One plan, from its choice to its commit.

use super::Held;
use super::cut;
use super::log::CompactionEntry;
use super::range::RangeWorker;
use super::records::Records;
use crate::write::commit::closed;
use crate::writer::Writer;
use futures::StreamExt;
use futures::stream;
use parking_lot::Mutex;
use siltstone_base::{
    AttemptId, Epoch, Error, ErrorKind, JobId, Result, SstDescriptor, SstId, UnixMillis,
};
use siltstone_manifest::compaction::manual;
use siltstone_manifest::compaction::{
    Change, Claim, Compactions, Facts, Job, JobFacts, Plan, Running, View, Work,
};
use siltstone_manifest::{Conflict, Edit, FinishCompaction, Manifest, Refusal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What is to be compacted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// What the scheduler finds most urgent.
    Scheduled,
    /// Everything, into run 0.
    Major,
    /// A plan made by hand.
    Plan(Plan),
}

/// What is wanted, as a plan on the newest known state and what decides which tables go unread;
/// `None` when nothing is to gain.
///
/// # Errors
/// Invalid for options of the scheduler that do not fit.
pub(super) fn next_plan(
    writer: &Writer,
    wanted: &Wanted,
    running: &[Running],
) -> Result<Option<(Arc<Manifest>, Plan, Facts)>> {
    let options = &writer.options;
    let scheduler = options.compaction.scheduler(options.l0_sst_size_bytes as u64)?;
    let state = writer.manifests.newest_known();
    let now = writer.env.clock.now();
    let max_compactions = options.compaction.max_compactions as usize;
    let view = View { state: &state, running, now, max_compactions };
    let plan = match wanted {
        Wanted::Scheduled => scheduler.plans(&view).into_iter().next(),
        Wanted::Major => manual::major(&state, now),
        Wanted::Plan(plan) => Some(plan.clone()),
    };
    let facts = scheduler.facts(&view);
    Ok(plan.map(|plan| (state, plan, facts)))
}

/// The compactor at work; nobody else of this process is.
pub(super) struct Run<'w> {
    pub(super) writer: &'w Arc<Writer>,
    epoch: Epoch,
    /// Ranges take turns with their changes.
    records: tokio::sync::Mutex<Records<'w>>,
    record: Mutex<Arc<Compactions>>,
    /// A range has failed: the others end at their next slice.
    failed: AtomicBool,
}

impl<'w> Run<'w> {
    /// Claims the compactor's epoch unless this process has it, and finds the newest record.
    ///
    /// # Errors
    /// Fenced once another compactor has taken over; the store's.
    pub(super) async fn begin(writer: &'w Arc<Writer>, held: &mut Held) -> Result<Run<'w>> {
        if held.epoch == Epoch::NONE {
            held.epoch = claim(writer).await?;
        }
        let manifests = &writer.manifests;
        let mut records = Records::new(manifests.objects(), manifests.database());
        let record = match held.record.take() {
            Some(record) => record,
            None => records.newest().await?,
        };
        let records = tokio::sync::Mutex::new(records);
        let (record, failed) = (Mutex::new(record), AtomicBool::new(false));
        Ok(Run { writer, epoch: held.epoch, records, record, failed })
    }

    /// What it knows when it ends well.
    pub(super) fn end(self) -> Arc<Compactions> {
        self.record.into_inner()
    }

    fn record(&self) -> Arc<Compactions> {
        Arc::clone(&self.record.lock())
    }

    /// Ends what a compactor before left unfinished: what is recorded is not done again.
    ///
    /// # Errors
    /// As [`Run::carry_out`].
    pub(super) async fn resume(&self) -> Result<()> {
        if self.record().jobs.is_empty() {
            return Ok(());
        }
        self.take_over().await?;
        loop {
            let state = self.writer.manifests.newest_known();
            let record = self.record();
            let finished = record.finished(&state);
            let left = record.jobs.iter().find(|job| !finished.contains(&job.id));
            let Some(job) = left.map(|job| job.id) else { return Ok(()) };
            self.work(job, AttemptId(self.writer.env.random_u128())).await?;
        }
    }

    /// Carries out what is wanted; `false` when nothing is to gain.
    ///
    /// # Errors
    /// Conflict for a plan that may not run; Fenced; Closed; Corruption; the store's.
    pub(super) async fn carry_out(&self, wanted: &Wanted) -> Result<bool> {
        let running = self.record().running(&self.writer.manifests.newest_known());
        let Some((state, plan, facts)) = next_plan(self.writer, wanted, &running)? else {
            return Ok(false);
        };
        let now = facts.now;
        let shaping = self.writer.options.compaction.shaping();
        let work = Work::of(&state, &running, &plan, &facts, shaping)?;
        if work.is_nothing() {
            return Ok(false);
        }
        let job = JobId(self.writer.env.random_u128());
        if work.is_metadata_only() {
            let layers = work.inputs.iter().map(|input| input.layer);
            let mut entry = CompactionEntry::of(layers, work.destination, plan.why);
            entry.moved = work.moves.len() as u64;
            entry.dropped = work.drops.len() as u64;
            let begun = self.writer.compactor.log.begin(&self.writer.env.clock, entry);
            let retire = self.retire(&state);
            let edit = work.finish(self.epoch, job, Vec::new(), retire);
            let ended = self.commit(edit).await.and_then(|done| done.map_err(Error::from));
            begun.end(&ended);
            return ended.map(|()| true);
        }
        self.take_over().await?;
        let worker = AttemptId(self.writer.env.random_u128());
        let ranges = cut::ranges(self.writer, &work).await?;
        let mut started = Job::of(&work, (job, plan.why, now), &state, self.job_facts(now), ranges);
        for range in &mut started.ranges {
            // This process's own: claimed as they begin.
            range.claim = Some(Claim { worker, beats: 0 });
            range.reserved = vec![self.new_name()];
        }
        let forget = self.record().finished(&state);
        let epoch = self.epoch;
        self.append(Change::Start { epoch, job: Box::new(started), forget }).await?;
        self.work(job, worker).await?;
        Ok(true)
    }

    /// Whether the handle is open and no range has failed: between two slices a compaction stops
    /// where it is.
    ///
    /// # Errors
    /// Closed; Fenced and others that ended the handle.
    pub(super) fn check_open(&self) -> Result<()> {
        if !self.writer.is_open() {
            return Err(self.writer.dead().unwrap_or_else(closed));
        }
        if self.failed.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Closed, "another range of the job has failed"));
        }
        Ok(())
    }

    /// A fresh name for a table.
    pub(super) fn new_name(&self) -> SstId {
        SstId(self.writer.env.new_ulid())
    }

    /// A job of the record.
    pub(super) fn job(&self, id: JobId) -> Result<Job> {
        let job = self.record().job(id).cloned();
        job.ok_or_else(|| Error::internal("a job under way is not in the record"))
    }

    /// Brings a change into the record.
    ///
    /// # Errors
    /// Why it does not fit; the store's.
    pub(super) async fn append(&self, change: Change) -> Result<()> {
        let mut records = self.records.lock().await;
        let newest = self.record();
        let record = records.append(change, &newest).await??;
        *self.record.lock() = record;
        Ok(())
    }

    async fn take_over(&self) -> Result<()> {
        if self.record().epoch == self.epoch {
            return Ok(());
        }
        self.append(Change::TakeOver { epoch: self.epoch }).await
    }

    /// What decides the bytes of the job's tables, as it is at the start.
    ///
    /// The snapshots of this process are all that may read the new tables below their newest entry:
    /// they were flushed, so whoever begins to read later, here or in another process, reads at or
    /// above everything in them; and whoever began earlier elsewhere reads the old tables.
    fn job_facts(&self, now: UnixMillis) -> JobFacts {
        let options = &self.writer.options;
        JobFacts {
            now,
            floor: self.writer.floor(),
            snapshots: Some(self.writer.held_seqs()),
            codec: options.compression.as_str().to_owned(),
            filter_bits_per_key: options.filter_bits_per_key,
            block_bytes: options.block_bytes as u64,
            target_sst_bytes: options.compaction.target_sst_bytes,
            zero_seqs: true,
            cut_prefix_bytes: 0,
        }
    }

    /// Merges what is left of a job, and commits it.
    async fn work(&self, job: JobId, worker: AttemptId) -> Result<()> {
        let started = self.job(job)?;
        let layers = started.inputs.iter().map(|(layer, _)| *layer);
        let mut entry = CompactionEntry::of(layers, started.destination, started.why);
        entry.moved = started.moves.len() as u64;
        entry.dropped = started.drops.len() as u64;
        if let Ok(layers) = started.merged(&self.writer.manifests.newest_known()) {
            entry = entry.reading(layers.iter().flatten());
        }
        let mut begun = self.writer.compactor.log.begin(&self.writer.env.clock, entry);
        let ended = self.merge_and_commit(started, worker).await;
        if let Ok(done) = self.job(job) {
            let outputs = done.ranges.iter().flat_map(|range| &range.outputs);
            begun.entry = std::mem::take(&mut begun.entry).writing(outputs);
        }
        begun.end(&ended);
        ended
    }

    async fn merge_and_commit(&self, started: Job, worker: AttemptId) -> Result<()> {
        let job = started.id;
        let state = self.writer.manifests.newest_known();
        if !started.cancelled {
            match started.merged(&state) {
                Ok(layers) => self.merge(&started, worker, &layers).await?,
                Err(refusal) => return self.give_up(job, refusal).await,
            }
        }
        self.check_open()?;
        let state = self.writer.manifests.newest_known();
        let retire = self.retire(&state);
        let refusal = match self.job(job)?.finish(&state, self.epoch, retire) {
            Ok(edit) => match self.commit(edit).await? {
                Ok(()) => return Ok(()),
                Err(refusal) => refusal,
            },
            Err(refusal) => refusal,
        };
        match refusal {
            Refusal::Conflict(Conflict::TableGone { .. } | Conflict::Overlap { .. }) => {
                self.give_up(job, refusal).await
            }
            refusal => Err(refusal.into()),
        }
    }

    /// Merges the ranges of a job, several at once. When one fails the others end as well, each in
    /// its own time: what they upload is given up in order.
    async fn merge(
        &self,
        job: &Job,
        worker: AttemptId,
        layers: &[Vec<SstDescriptor>],
    ) -> Result<()> {
        let first = Mutex::new(None);
        let ranges = stream::iter(0..job.ranges.len()).map(|at| {
            let first = &first;
            async move {
                let worked = match self.check_open() {
                    Ok(()) => RangeWorker::new(self, job.id, at, worker).work(layers).await,
                    closed => closed,
                };
                if let Err(error) = worked {
                    self.failed.store(true, Ordering::Relaxed);
                    first.lock().get_or_insert(error);
                }
            }
        });
        ranges.buffer_unordered(cut::parallelism(self.writer)).collect::<()>().await;
        self.failed.store(false, Ordering::Relaxed);
        first.into_inner().map_or(Ok(()), Err)
    }

    /// Ends a job without effect, and says why.
    async fn give_up(&self, job: JobId, refusal: Refusal) -> Result<()> {
        self.append(Change::Cancel { epoch: self.epoch, job }).await?;
        let state = self.writer.manifests.newest_known();
        let retire = self.retire(&state);
        let edit = self.job(job)?.finish(&state, self.epoch, retire).map_err(Error::from)?;
        self.commit(edit).await?.map_err(Error::from)?;
        Err(Error::from(refusal).during("compaction"))
    }

    /// Jobs that the manifest has as finished and the record has forgotten.
    fn retire(&self, state: &Manifest) -> Vec<JobId> {
        let done = state.finished_jobs.iter().map(|done| done.job);
        let record = self.record();
        done.filter(|job| record.job(*job).is_none()).collect()
    }

    async fn commit(&self, edit: FinishCompaction) -> Result<Result<(), Refusal>> {
        let committed = self.writer.manifests.try_commit(Edit::FinishCompaction(edit)).await?;
        Ok(committed.map(|_| ()))
    }
}

/// Takes the next compactor epoch: the compactor before is stopped, its writer is not.
async fn claim(writer: &Arc<Writer>) -> Result<Epoch> {
    let mut expected = writer.manifests.newest_known().compactor_epoch;
    let claim = AttemptId(writer.env.random_u128());
    loop {
        let edit = Edit::ClaimCompactor { writer: Some(writer.epoch), expected, claim };
        match writer.manifests.try_commit(edit).await? {
            Ok(_) => return Ok(expected.next()),
            Err(Refusal::Conflict(Conflict::EpochMoved { now })) => expected = now,
            Err(refusal) => return Err(refusal.into()),
        }
    }
}
