//! What units of a job made (RFC 0046): how it travels, and where it fits.

use super::{Compactions, Job, JobFacts, JobRange};
use crate::compaction::plan::PlanReason;
use crate::compaction::work::KeyRange;
use crate::layer::Layer;
use bytes::Bytes;
use siltstone_base::{
    AttemptId, DatabaseId, Epoch, Error, JobId, ManifestId, ObjectId, Result, SstDescriptor, SstId,
    UnixMillis,
};
use std::collections::HashSet;

/// The rest of a range, finished by a unit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FinishedUnit {
    /// Place of the range.
    pub range: usize,
    /// The last table that the range had when the unit began; `None`: it had none.
    pub after: Option<SstId>,
    /// Its tables, key ascending, in the folder of the job's units: that is what reserves their
    /// names (rule U1).
    pub tables: Vec<SstDescriptor>,
}

impl JobRange {
    /// Whether it is as it was when the unit began, which goes on behind what there was then
    /// (rule U2).
    #[must_use]
    pub fn stands_for(&self, unit: &FinishedUnit) -> bool {
        !self.done && self.last_output() == unit.after
    }

    /// The last table that is finished: where a unit begins.
    #[must_use]
    pub fn last_output(&self) -> Option<SstId> {
        self.outputs.last().map(|table| table.id)
    }
}

impl Job {
    /// Those of `units` that can be recorded, the first of each range: others are duplicates, or
    /// too late.
    #[must_use]
    pub fn fitting(&self, units: &[FinishedUnit]) -> Vec<FinishedUnit> {
        let mut ranges = HashSet::new();
        let stands = |unit: &&FinishedUnit| {
            let range = self.ranges.get(unit.range);
            range.is_some_and(|range| range.stands_for(unit)) && ranges.insert(unit.range)
        };
        units.iter().filter(stands).cloned().collect()
    }
}

impl FinishedUnit {
    /// Its tables as they travel: a record of one job, whose only range has them. What a record
    /// must satisfy, they satisfy.
    ///
    /// # Errors
    /// Invalid where there are too many of them.
    pub fn to_bytes(&self, job: JobId, database: DatabaseId) -> Result<Bytes> {
        let whole = KeyRange { start: Bytes::new(), end: None, bottom: false };
        let range = JobRange { outputs: self.tables.clone(), done: true, ..JobRange::open(whole) };
        let job = Job {
            id: job,
            why: PlanReason::Manual,
            planned_on: ManifestId::NONE,
            started_at: UnixMillis(0),
            // A job has inputs; which, its record says.
            inputs: vec![(Layer::Run(0), vec![SstId(1)])],
            destination: 0,
            drops: Vec::new(),
            moves: Vec::new(),
            facts: JobFacts::default(),
            ranges: vec![range],
            cancelled: false,
        };
        let (number, epoch) = (1, Epoch(1));
        let record = Compactions { number, epoch, jobs: vec![job], ..Compactions::none(database) };
        record.encode(ObjectId(1), AttemptId(1))
    }

    /// Tables that came from a unit of `job`.
    ///
    /// # Errors
    /// Corruption; Unsupported for what a newer version wrote; Invalid for those of another job.
    pub fn tables_of(bytes: &[u8], job: JobId) -> Result<Vec<SstDescriptor>> {
        let (_, record) = Compactions::decode(bytes)?;
        let range = record.job(job).and_then(|job| job.ranges.first());
        let range = range.ok_or_else(|| {
            Error::invalid("a result of another compaction's unit; give it to that one's plan")
                .with("compaction", job)
        })?;
        Ok(range.outputs.clone())
    }
}
