//! Results of the units of a job (RFC 0046): their encoding, and where they fit.

use super::{Compactions, Job, JobParameters, JobRange};
use crate::compaction::plan::PlanReason;
use crate::compaction::work::KeyRange;
use crate::layer::Layer;
use bytes::Bytes;
use siltstone_base::{
    AttemptId, DatabaseId, Epoch, Error, JobId, ManifestId, ObjectId, Result, SstDescriptor, SstId,
    UnixMillis,
};
use std::collections::HashSet;

/// The rest of a range, merged by a unit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FinishedUnit {
    /// Index of the range.
    pub range: usize,
    /// The last table of the range when the unit began; `None`: the range had no table.
    pub after: Option<SstId>,
    /// Its tables, in ascending key order, in the folder of the units of the job: the folder
    /// reserves their names (rule U1).
    pub tables: Vec<SstDescriptor>,
}

impl JobRange {
    /// Whether the range is unchanged since the unit began: the unit continues after the tables of
    /// that time (rule U2).
    #[must_use]
    pub fn stands_for(&self, unit: &FinishedUnit) -> bool {
        !self.done && self.last_output() == unit.after
    }

    /// The last finished table, after which a unit begins.
    #[must_use]
    pub fn last_output(&self) -> Option<SstId> {
        self.outputs.last().map(|table| table.id)
    }
}

impl Job {
    /// The results among `units` that can be recorded, the first one of each range. The others are
    /// duplicates or too late.
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
    /// Encodes the tables as a record with one job, whose only range contains them. They must
    /// satisfy the invariants of a record.
    ///
    /// # Errors
    /// Invalid if there are too many tables.
    pub fn to_bytes(&self, job: JobId, database: DatabaseId) -> Result<Bytes> {
        let whole = KeyRange { start: Bytes::new(), end: None, bottom: false };
        let range = JobRange { outputs: self.tables.clone(), done: true, ..JobRange::open(whole) };
        let job = Job {
            id: job,
            reason: PlanReason::Manual,
            planned_on: ManifestId::NONE,
            started_at: UnixMillis(0),
            // The invariants require an input; the real inputs are in the record of the job.
            inputs: vec![(Layer::Run(0), vec![SstId(1)])],
            destination: 0,
            drops: Vec::new(),
            moves: Vec::new(),
            parameters: JobParameters::default(),
            ranges: vec![range],
            cancelled: false,
        };
        let (number, epoch) = (1, Epoch(1));
        let record = Compactions { number, epoch, jobs: vec![job], ..Compactions::none(database) };
        record.encode(ObjectId(1), AttemptId(1))
    }

    /// Decodes the tables of a unit of `job`.
    ///
    /// # Errors
    /// Corruption; Unsupported for data of a newer version; Invalid for tables of another job.
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
