//! The tables that come from the log: rows written as tables, ingest jobs and large batches. A
//! flush installs them, and so does every process that takes over a log: a restore, a clone, a cut
//! (rule N14).

use super::writer::push_layers;
use super::{InstallBatch, InstallIngest, Refusal};
use crate::rules::Rules;
use crate::state::Manifest;
use siltstone_base::{Seq, SstDescriptor, SstId};

/// The rows of a log as tables, with its ingest jobs and large batches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LogTables {
    /// Its rows, oldest layer first, each of disjoint tables.
    pub layers: Vec<Vec<SstDescriptor>>,
    /// Its ingest jobs, oldest first.
    pub ingests: Vec<InstallIngest>,
    /// Its large batches, oldest first.
    pub batches: Vec<InstallBatch>,
}

impl LogTables {
    /// Names of the tables of its rows.
    pub(super) fn names(&self) -> impl Iterator<Item = SstId> {
        self.layers.iter().flatten().map(|table| table.id)
    }

    /// Whether it contains nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty() && self.ingests.is_empty() && self.batches.is_empty()
    }

    /// The largest sequence number of its jobs and batches.
    pub(super) fn last_brought(&self) -> Option<Seq> {
        let jobs = self.ingests.iter().filter_map(InstallIngest::last_seq);
        jobs.chain(self.batches.iter().filter_map(InstallBatch::seq)).max()
    }

    /// Adds everything, oldest first, so that each table is placed above all older data.
    pub(super) fn add_to(&self, next: &mut Manifest, rules: Rules) -> Result<(), Refusal> {
        add(next, (&self.layers, &self.ingests, &self.batches), rules)
    }
}

/// Layers, jobs and batches, the oldest first.
pub(super) fn add(
    next: &mut Manifest,
    (layers, ingests, batches): (&[Vec<SstDescriptor>], &[InstallIngest], &[InstallBatch]),
    rules: Rules,
) -> Result<(), Refusal> {
    let mut ingests = ingests.iter().peekable();
    let mut batches = batches.iter().peekable();
    for at in 0..=layers.len() {
        loop {
            let before = batches.peek().and_then(|batch| batch.seq());
            let is_next = |job: &&InstallIngest| {
                job.after <= at && before.is_none_or(|batch| job.last_seq() < Some(batch))
            };
            if let Some(job) = ingests.next_if(is_next) {
                job.apply(next, rules)?;
            } else if let Some(batch) = batches.next_if(|batch| batch.after <= at) {
                batch.apply(next, rules)?;
            } else {
                break;
            }
        }
        push_layers(next, layers.get(at..=at).unwrap_or_default());
    }
    // Jobs and batches that come after all layers.
    ingests.try_for_each(|job| job.apply(next, rules))?;
    batches.try_for_each(|batch| batch.apply(next, rules))
}
