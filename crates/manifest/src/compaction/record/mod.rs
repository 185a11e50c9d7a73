//! The record of compaction jobs: every job that has not ended, in one immutable object.
//!
//! Version n + 1 is made from version n by a [`Change`] and created if absent under the next
//! number. Whoever loses that race reads what is there and applies its change to it, so that all
//! changes stand in one line. What jobs may do to the database hangs on the manifest alone; this
//! record is where a job's progress outlives the process, where workers find work, and where the
//! collector reads which names are reserved (rules R1, R2; RFC 0018).

mod append;
mod change;
mod decode;
mod encode;
mod invariant;
mod unit;
mod watch;

pub use append::{Append, AppendAction, RecordAnswer, RecordListing, RecordRequest};
pub use change::{Change, ChangeRefusal};
pub use unit::FinishedUnit;
pub use watch::ClaimWatch;

use super::plan::PlanReason;
use super::valid::Running;
use super::work::{KeyRange, Work};
use crate::edit::{Conflict, FinishCompaction, Refusal};
use crate::features::Carried;
use crate::layer::Layer;
use crate::span::Span;
use crate::state::Manifest;
use bytes::Bytes;
use siltstone_base::{
    AttemptId, DatabaseId, Epoch, JobId, ManifestId, Seq, SstDescriptor, SstId, TablePart,
    UnixMillis,
};
use std::collections::HashSet;

/// Names that a compaction job's record reserves (rule R1).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JobReservation {
    /// The job.
    pub job: JobId,
    /// Tables it has uploaded or may upload.
    pub outputs: Vec<SstId>,
}

/// Every job that has not ended, as one object holds it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Compactions {
    /// Its own number; counts from [`DatabaseId::counts_from`].
    pub number: u64,
    /// Identity of the database.
    pub database: DatabaseId,
    /// What every change carries on.
    pub carried: Carried,
    /// The compactor epoch that it was written under.
    pub epoch: Epoch,
    /// The jobs, the oldest first.
    pub jobs: Vec<Job>,
}

/// A plan at work.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Job {
    /// Its identity.
    pub id: JobId,
    /// Why it was planned.
    pub why: PlanReason,
    /// The manifest it was planned on.
    pub planned_on: ManifestId,
    /// When it was started; for people.
    pub started_at: UnixMillis,
    /// What it takes, newest layer first. All other lists of inputs are parts of this. A table of a
    /// layer means all its parts there; no other job may take one meanwhile (rule K6).
    pub inputs: Vec<(Layer, Vec<SstId>)>,
    /// The run that the result comes to.
    pub destination: u32,
    /// Inputs that go unread.
    pub drops: Vec<SstId>,
    /// Inputs that come to the destination as they are.
    pub moves: Vec<SstId>,
    /// What a worker must know.
    pub facts: JobFacts,
    /// Its parts, by key.
    pub ranges: Vec<JobRange>,
    /// Whether it is to end without effect.
    pub cancelled: bool,
}

/// Everything that decides what the outputs of a job are, besides its inputs: fixed at its start,
/// so that whoever goes on with it does what was begun.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct JobFacts {
    /// What expires at or before this has expired.
    pub now: UnixMillis,
    /// The oldest sequence number that somebody may read at.
    pub floor: Seq,
    /// Those that somebody reads at, ascending; `None`: every one from the floor on. The merge
    /// takes one or the other: these as its snapshots and no floor, or the floor alone.
    pub snapshots: Option<Vec<Seq>>,
    /// Name of the block codec.
    pub codec: String,
    /// Bits of filter a key.
    pub filter_bits_per_key: u32,
    /// Size at which a block ends, in bytes.
    pub block_bytes: u64,
    /// Size at which a table ends, in bytes.
    pub target_sst_bytes: u64,
    /// Whether values that every reader sees get sequence number 0 at the bottom.
    pub zero_seqs: bool,
    /// A table ends where so many first bytes of the key change; 0: nowhere.
    pub cut_prefix_bytes: u16,
}

/// One part of a job's keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JobRange {
    /// Its keys.
    pub keys: KeyRange,
    /// Who works on it.
    pub claim: Option<Claim>,
    /// Names that its worker may give to tables it will upload; void without a claim.
    pub reserved: Vec<SstId>,
    /// Tables that are finished, key ascending.
    pub outputs: Vec<SstDescriptor>,
    /// Whether it is finished.
    pub done: bool,
}

/// Who works on a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    /// Identity of the worker's claim, random.
    pub worker: AttemptId,
    /// Signs of life so far. An observer that sees the same number for longer than the workers'
    /// time-out by its own clock may claim the range.
    pub heartbeats: u64,
}

impl JobRange {
    /// A range nobody works on yet.
    #[must_use]
    pub fn open(keys: KeyRange) -> JobRange {
        JobRange { keys, claim: None, reserved: Vec::new(), outputs: Vec::new(), done: false }
    }

    /// Where a worker goes on: strictly behind this key; `None`: from the range's start.
    #[must_use]
    pub fn resume_after(&self) -> Option<&Bytes> {
        self.outputs.last().map(|table| &table.last_key)
    }

    /// Whether every visible key of `table` belongs to it.
    fn holds(&self, table: &SstDescriptor) -> bool {
        let from = self.keys.start <= *table.first_visible();
        from && self.keys.end.as_ref().is_none_or(|end| table.ends_below(end))
    }
}

impl Job {
    /// The tables that are recorded.
    pub fn outputs(&self) -> impl Iterator<Item = &SstDescriptor> {
        self.ranges.iter().flat_map(|range| &range.outputs)
    }

    /// The job of a plan that was worked out on `state`, cut into `ranges`.
    #[must_use]
    pub fn of(
        work: &Work,
        (id, why, started_at): (JobId, PlanReason, UnixMillis),
        state: &Manifest,
        facts: JobFacts,
        ranges: Vec<KeyRange>,
    ) -> Job {
        let Running { inputs, destination, .. } = work.running(id);
        Job {
            id,
            why,
            planned_on: state.id,
            started_at,
            inputs,
            destination,
            drops: work.drops.clone(),
            moves: work.moves.iter().map(|table| table.id).collect(),
            facts: JobFacts { cut_prefix_bytes: work.cut_prefix_bytes, ..facts },
            ranges: ranges.into_iter().map(JobRange::open).collect(),
            cancelled: false,
        }
    }

    /// Whether nothing is left but the commit.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.ranges.iter().all(|range| range.done)
    }

    /// The job as other plans must mind it.
    #[must_use]
    pub fn running(&self) -> Running {
        Running { job: self.id, inputs: self.inputs.clone(), destination: self.destination }
    }

    /// Every input, once a layer.
    pub fn input_ids(&self) -> impl Iterator<Item = SstId> {
        self.inputs.iter().flat_map(|(_, tables)| tables.iter().copied())
    }

    /// The inputs to merge, as `state` describes them, newest layer first: all but drops and moves.
    ///
    /// # Errors
    /// `TableGone` when one is not there any more; then the job is to be given up.
    pub fn merged(&self, state: &Manifest) -> Result<Vec<Vec<SstDescriptor>>, Refusal> {
        let unread: HashSet<SstId> = self.drops.iter().chain(&self.moves).copied().collect();
        let mut layers = Vec::with_capacity(self.inputs.len());
        for (layer, names) in &self.inputs {
            let read: Vec<SstId> =
                names.iter().filter(|id| !unread.contains(id)).copied().collect();
            if !read.is_empty() {
                layers.push(parts_of(state, *layer, &read)?.into_iter().cloned().collect());
            }
        }
        Ok(layers)
    }

    /// The commit that ends it on `state` under compactor `epoch`: with its outputs when it is
    /// done, without effect otherwise.
    ///
    /// # Errors
    /// `TableGone` when a table that moves is not there any more.
    pub fn finish(
        &self,
        state: &Manifest,
        epoch: Epoch,
        retire: Vec<JobId>,
    ) -> Result<FinishCompaction, Refusal> {
        let (job, planned_on, destination) = (self.id, self.planned_on, self.destination);
        if self.cancelled || !self.is_done() {
            let (remove, add) = (Vec::new(), Vec::new());
            return Ok(FinishCompaction {
                epoch,
                job,
                planned_on,
                remove,
                add,
                destination,
                retire,
            });
        }
        let moved: HashSet<SstId> = self.moves.iter().copied().collect();
        let mut add: Vec<SstDescriptor> = Vec::new();
        let mut remove: Vec<TablePart> = Vec::new();
        for (layer, names) in &self.inputs {
            let moves: Vec<SstId> = names.iter().filter(|id| moved.contains(id)).copied().collect();
            add.extend(parts_of(state, *layer, &moves)?.into_iter().cloned());
            match parts_of(state, *layer, names) {
                Ok(parts) => remove.extend(parts.into_iter().map(SstDescriptor::part)),
                // The edit says which is gone, once it has looked at the epoch.
                Err(_) => remove.extend(names.iter().copied().map(TablePart::from)),
            }
        }
        add.extend(self.outputs().cloned());
        add.sort_by(|left, right| left.first_visible().cmp(right.first_visible()));
        Ok(FinishCompaction { epoch, job, planned_on, remove, add, destination, retire })
    }

    /// Outputs over which a table lies that came to the destination meanwhile, and the keys to cut
    /// them at: rows below the key go to one table, rows from it on to another (rule N3). Nothing
    /// has to be cut when the commit was not refused.
    #[must_use]
    pub fn recuts(&self, state: &Manifest) -> Vec<(SstId, Vec<Bytes>)> {
        let destination = Layer::Run(self.destination);
        let inputs = self.inputs.iter().filter(|(layer, _)| *layer == destination);
        let inputs: HashSet<SstId> = inputs.flat_map(|(_, names)| names.iter().copied()).collect();
        let staying = state.layer(destination).unwrap_or_default();
        let staying: Vec<&SstDescriptor> =
            staying.iter().filter(|table| !inputs.contains(&table.id)).collect();
        let outputs = self.ranges.iter().flat_map(|range| &range.outputs);
        let over = outputs.filter_map(|output| {
            let mine = Span::of(output);
            let others = staying.iter().map(|table| Span::of(table));
            let meets = others.filter(|span| span.meets(&mine));
            let cuts: Vec<Bytes> = meets.map(|span| span.first().clone()).collect();
            (!cuts.is_empty()).then_some((output.id, cuts))
        });
        over.collect()
    }
}

/// All parts of the tables `names` in `layer`, key ascending.
///
/// # Errors
/// `TableGone` where there is none of one.
fn parts_of<'s>(
    state: &'s Manifest,
    layer: Layer,
    names: &[SstId],
) -> Result<Vec<&'s SstDescriptor>, Refusal> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let mut gone: HashSet<SstId> = names.iter().copied().collect();
    let wanted = gone.clone();
    let tables = state.layer(layer).unwrap_or_default().iter();
    let parts: Vec<&SstDescriptor> = tables
        .filter(|table| wanted.contains(&table.id))
        .inspect(|table| {
            gone.remove(&table.id);
        })
        .collect();
    match gone.into_iter().min() {
        None => Ok(parts),
        Some(table) => Err(Conflict::TableGone { table }.into()),
    }
}

impl Compactions {
    /// The record before the first: nobody writes it.
    #[must_use]
    pub fn none(database: DatabaseId) -> Compactions {
        let number = database.counts_from() - 1;
        let (carried, epoch, jobs) = (Carried::default(), Epoch::NONE, Vec::new());
        Compactions { number, database, carried, epoch, jobs }
    }

    /// The job `id`.
    #[must_use]
    pub fn job(&self, id: JobId) -> Option<&Job> {
        self.jobs.iter().find(|job| job.id == id)
    }

    /// All jobs as plans must mind them, but for those that `state` knows as finished.
    #[must_use]
    pub fn running(&self, state: &Manifest) -> Vec<Running> {
        let finished = |job: &&Job| state.finished_jobs.iter().any(|done| done.job == job.id);
        self.jobs.iter().filter(|job| !finished(job)).map(Job::running).collect()
    }

    /// Jobs that `state` knows as finished: to [`Change::Forget`].
    #[must_use]
    pub fn finished(&self, state: &Manifest) -> Vec<JobId> {
        let done = state.finished_jobs.iter().map(|done| done.job);
        done.filter(|job| self.job(*job).is_some()).collect()
    }

    /// What the collector must take as alive (rule R1).
    #[must_use]
    pub fn reservations(&self) -> Vec<JobReservation> {
        let outputs = |job: &Job| {
            let ranges = job.ranges.iter();
            let names = ranges.flat_map(|range| {
                let finished = range.outputs.iter().map(|table| table.id);
                range.reserved.iter().copied().chain(finished)
            });
            JobReservation { job: job.id, outputs: names.collect() }
        };
        self.jobs.iter().map(outputs).collect()
    }

    /// Ranges that nobody works on: by job and place. Jobs over L0 come first, then the older.
    #[must_use]
    pub fn open_ranges(&self) -> Vec<(JobId, usize)> {
        let mut jobs: Vec<&Job> = self.jobs.iter().filter(|job| !job.cancelled).collect();
        jobs.sort_by_key(|job| !job.inputs.iter().any(|(layer, _)| layer.is_l0()));
        let open = |job: &&Job| {
            let id = job.id;
            let ranges = job.ranges.iter().enumerate();
            let open = ranges.filter(|(_, range)| range.claim.is_none() && !range.done);
            open.map(move |(at, _)| (id, at)).collect::<Vec<_>>()
        };
        jobs.iter().flat_map(open).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Moves one table, and reads none.
    pub(super) fn job(id: u128) -> Job {
        let tables = vec![SstId(5)];
        Job {
            id: JobId(id),
            why: PlanReason::Manual,
            planned_on: ManifestId(1),
            started_at: UnixMillis(1),
            inputs: vec![(Layer::Run(3), tables.clone())],
            destination: 0,
            drops: Vec::new(),
            moves: tables,
            facts: JobFacts::default(),
            ranges: Vec::new(),
            cancelled: false,
        }
    }
}
