//! What the log brings to the tables: rows that were written as tables, and ingest jobs and large
//! batches among them. A flush installs that, and whoever takes a log over does so likewise: a
//! restore, a clone, a cut (rule N14).

use super::writer::push_layers;
use super::{InstallBatch, InstallIngest, Refusal};
use crate::rules::Rules;
use crate::state::Manifest;
use siltstone_base::{Seq, SstDescriptor, SstId};

/// Rows of a log as tables, and what else it brings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LogTables {
    /// Its rows, the oldest layer first, each of disjoint tables.
    pub layers: Vec<Vec<SstDescriptor>>,
    /// Its ingest jobs, the oldest first.
    pub ingests: Vec<InstallIngest>,
    /// Its large batches, the oldest first.
    pub batches: Vec<InstallBatch>,
}

impl LogTables {
    /// Names of the tables of its rows.
    pub(super) fn names(&self) -> impl Iterator<Item = SstId> {
        self.layers.iter().flatten().map(|table| table.id)
    }

    /// Whether it brings nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty() && self.ingests.is_empty() && self.batches.is_empty()
    }

    /// The largest number of its jobs and batches.
    pub(super) fn last_brought(&self) -> Option<Seq> {
        let jobs = self.ingests.iter().filter_map(InstallIngest::last_seq);
        jobs.chain(self.batches.iter().filter_map(InstallBatch::seq)).max()
    }

    /// Adds all of it, the oldest first, so that each is placed on all that is below it.
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
    // Those that say they come after more layers than there are.
    ingests.try_for_each(|job| job.apply(next, rules))?;
    batches.try_for_each(|batch| batch.apply(next, rules))
}
