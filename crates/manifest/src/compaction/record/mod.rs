//! The record of compaction jobs: all jobs that have not ended, in one immutable object.
//!
//! Version n + 1 is made from version n by a [`Change`] and created under the next number if that
//! number is free. A process that loses this race reads the new record and applies its change to
//! it, so all changes are serialised. The effect of jobs on the database depends on the manifest
//! alone. The record preserves the progress of jobs when a process ends, offers work to workers,
//! and tells the collector which names are reserved (rules R1, R2; RFC 0018).

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
use crate::state::Manifest;
use bytes::Bytes;
use siltstone_base::{
    AttemptId, DatabaseId, Epoch, JobId, ManifestId, Seq, SstDescriptor, SstId, TablePart,
    UnixMillis,
};
use std::collections::HashSet;

/// The names reserved by the record of a compaction job (rule R1).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JobReservation {
    /// The job.
    pub job: JobId,
    /// Tables that it has uploaded or may upload.
    pub outputs: Vec<SstId>,
}

/// All jobs that have not ended, as stored in one object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Compactions {
    /// Its own number; counts from [`DatabaseId::counts_from`].
    pub number: u64,
    /// Identity of the database.
    pub database: DatabaseId,
    /// Unknown data that every change preserves.
    pub carried: Carried,
    /// The compactor epoch under which it was written.
    pub epoch: Epoch,
    /// The jobs, oldest first.
    pub jobs: Vec<Job>,
}

/// A plan that is being executed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Job {
    /// Its identity.
    pub id: JobId,
    /// The reason for the plan.
    pub reason: PlanReason,
    /// The manifest on which it was planned.
    pub planned_on: ManifestId,
    /// When it was started; for information.
    pub started_at: UnixMillis,
    /// The input tables, newest layer first. All other lists of inputs are subsets of this one. A
    /// table id in a layer means all parts of the table there; no other job may take one of them
    /// meanwhile (rule K6).
    pub inputs: Vec<(Layer, Vec<SstId>)>,
    /// The run that receives the result.
    pub destination: u32,
    /// Inputs that are dropped unread.
    pub drops: Vec<SstId>,
    /// Inputs that are moved to the destination unchanged.
    pub moves: Vec<SstId>,
    /// The parameters that determine its outputs.
    pub parameters: JobParameters,
    /// Its key ranges, in order.
    pub ranges: Vec<JobRange>,
    /// Whether it was cancelled and ends without effect.
    pub cancelled: bool,
}

/// All parameters that determine the outputs of a job, besides its inputs. They are fixed at its
/// start, so that another process can continue the job with the same result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct JobParameters {
    /// Entries that expire at or before this time have expired.
    pub now: UnixMillis,
    /// The oldest sequence number at which a reader may read.
    pub floor: Seq,
    /// The sequence numbers at which snapshots read, ascending; `None`: every number from the floor
    /// on. The merge uses either these as its snapshots without a floor, or the floor alone.
    pub snapshots: Option<Vec<Seq>>,
    /// Name of the block codec.
    pub codec: String,
    /// Filter bits per key.
    pub filter_bits_per_key: u32,
    /// Size at which a block ends, in bytes.
    pub block_bytes: u64,
    /// Size at which a table ends, in bytes.
    pub target_sst_bytes: u64,
    /// Whether values that every reader sees get sequence number 0 at the bottom.
    pub zero_seqs: bool,
    /// A table ends where this many first bytes of the key change; 0: no such limit.
    pub cut_prefix_bytes: u16,
}

/// One key range of a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JobRange {
    /// The keys of the range.
    pub keys: KeyRange,
    /// The claim of the worker that merges it.
    pub claim: Option<Claim>,
    /// Names that its worker may give to tables that it will upload; void without a claim.
    pub reserved: Vec<SstId>,
    /// Finished tables, in ascending key order.
    pub outputs: Vec<SstDescriptor>,
    /// Whether the range is finished.
    pub done: bool,
}

/// The claim of a worker on a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    /// Identity of the claim, random.
    pub worker: AttemptId,
    /// Number of heartbeats so far. An observer that sees the same number for longer than the
    /// time-out of workers, by its own clock, may claim the range.
    pub heartbeats: u64,
}

impl JobRange {
    /// An unclaimed range.
    #[must_use]
    pub fn open(keys: KeyRange) -> JobRange {
        JobRange { keys, claim: None, reserved: Vec::new(), outputs: Vec::new(), done: false }
    }

    /// A worker continues strictly after this key; `None`: from the start of the range.
    #[must_use]
    pub fn resume_after(&self) -> Option<&Bytes> {
        self.outputs.last().map(|table| &table.last_key)
    }

    /// Whether all visible keys of `table` are in the range.
    fn holds(&self, table: &SstDescriptor) -> bool {
        let from = self.keys.start <= *table.first_visible();
        from && self.keys.end.as_ref().is_none_or(|end| table.ends_below(end))
    }
}

impl Job {
    /// All recorded output tables.
    pub fn outputs(&self) -> impl Iterator<Item = &SstDescriptor> {
        self.ranges.iter().flat_map(|range| &range.outputs)
    }

    /// The job for the steps `work` of a plan on `state`, split into `ranges`.
    #[must_use]
    pub fn of(
        work: &Work,
        (id, reason, started_at): (JobId, PlanReason, UnixMillis),
        state: &Manifest,
        parameters: JobParameters,
        ranges: Vec<KeyRange>,
    ) -> Job {
        let Running { inputs, destination, .. } = work.running(id);
        Job {
            id,
            reason,
            planned_on: state.id,
            started_at,
            inputs,
            destination,
            drops: work.drops.clone(),
            moves: work.moves.iter().map(|table| table.id).collect(),
            parameters: JobParameters { cut_prefix_bytes: work.cut_prefix_bytes, ..parameters },
            ranges: ranges.into_iter().map(JobRange::open).collect(),
            cancelled: false,
        }
    }

    /// Whether only the commit is left.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.ranges.iter().all(|range| range.done)
    }

    /// The job as it restricts other plans.
    #[must_use]
    pub fn running(&self) -> Running {
        Running { job: self.id, inputs: self.inputs.clone(), destination: self.destination }
    }

    /// The ids of all inputs, once per layer.
    pub fn input_ids(&self) -> impl Iterator<Item = SstId> {
        self.inputs.iter().flat_map(|(_, tables)| tables.iter().copied())
    }

    /// The inputs to merge as described by `state`, newest layer first: all except drops and moves.
    ///
    /// # Errors
    /// `TableGone` if one no longer exists; then the job must be cancelled.
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

    /// The commit that ends the job on `state` under compactor `epoch`: with its outputs if it is
    /// done, otherwise without effect.
    ///
    /// # Errors
    /// `TableGone` if a table to be moved no longer exists.
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
                // The edit reports which table is gone, after it has checked the epoch.
                Err(_) => remove.extend(names.iter().copied().map(TablePart::from)),
            }
        }
        add.extend(self.outputs().cloned());
        add.sort_by(|left, right| left.first_visible().cmp(right.first_visible()));
        Ok(FinishCompaction { epoch, job, planned_on, remove, add, destination, retire })
    }
}

/// All parts of the tables `names` in `layer`, in ascending key order.
///
/// # Errors
/// `TableGone` if a table has no part there.
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
    /// The record before the first one; it is never written.
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

    /// All jobs as they restrict plans, except those that are finished according to `state`.
    #[must_use]
    pub fn running(&self, state: &Manifest) -> Vec<Running> {
        let finished = |job: &&Job| state.finished_jobs.iter().any(|done| done.job == job.id);
        self.jobs.iter().filter(|job| !finished(job)).map(Job::running).collect()
    }

    /// Jobs that are finished according to `state`, for [`Change::Forget`].
    #[must_use]
    pub fn finished(&self, state: &Manifest) -> Vec<JobId> {
        let done = state.finished_jobs.iter().map(|done| done.job);
        done.filter(|job| self.job(*job).is_some()).collect()
    }

    /// The names that the collector must treat as alive (rule R1).
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

    /// Unclaimed ranges, by job and index. Jobs over L0 come first, then older jobs first.
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
            reason: PlanReason::Manual,
            planned_on: ManifestId(1),
            started_at: UnixMillis(1),
            inputs: vec![(Layer::Run(3), tables.clone())],
            destination: 0,
            drops: Vec::new(),
            moves: tables,
            parameters: JobParameters::default(),
            ranges: Vec::new(),
            cancelled: false,
        }
    }
}
