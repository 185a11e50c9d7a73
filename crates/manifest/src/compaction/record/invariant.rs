//! The invariants of a job record, as named predicates: checked before a record is created and
//! after it was read.

use super::{Compactions, Job, JobRange};
use crate::layer::Layer;
use siltstone_base::SstId;
use std::collections::{HashMap, HashSet};

type Predicate = (&'static str, fn(&Compactions) -> bool);

const INVARIANTS: [Predicate; 6] = [
    ("records count from 1, under an epoch", |record| {
        record.number > 0 && !record.database.is_none() && !record.epoch.is_none()
    }),
    ("jobs have identities of their own", |record| {
        let mut seen = HashSet::new();
        record.jobs.iter().all(|job| !job.id.is_none() && seen.insert(job.id))
    }),
    ("inputs are named newest first, each once a layer", |record| record.jobs.iter().all(inputs)),
    ("ranges ascend", |record| record.jobs.iter().all(ranges)),
    ("outputs ascend within their range", |record| {
        record.jobs.iter().flat_map(|job| &job.ranges).all(outputs)
    }),
    ("no name stands twice", names_unique),
];

impl Compactions {
    /// The name of the first predicate that the record breaks.
    #[must_use]
    pub fn broken(&self) -> Option<&'static str> {
        INVARIANTS.iter().find(|(_, holds)| !holds(self)).map(|(name, _)| *name)
    }
}

fn inputs(job: &Job) -> bool {
    let newest_first = job.inputs.is_sorted_by(|(newer, _), (older, _)| newer > older);
    let sinks = job.inputs.last().is_some_and(|(oldest, _)| *oldest >= Layer::Run(job.destination));
    let once = job.inputs.iter().all(|(_, tables)| {
        let mut seen = HashSet::new();
        !tables.is_empty() && tables.iter().all(|id| !id.is_none() && seen.insert(*id))
    });
    let mut layers_of: HashMap<SstId, usize> = HashMap::new();
    job.input_ids().for_each(|id| *layers_of.entry(id).or_default() += 1);
    // Drops and moves are inputs. Each is one or the other and occurs in one layer only, because
    // they are recorded by id alone.
    let mut unread = job.drops.iter().chain(&job.moves);
    newest_first && sinks && once && unread.all(|id| layers_of.remove(id) == Some(1))
}

fn ranges(job: &Job) -> bool {
    let forward =
        |range: &JobRange| range.keys.end.as_ref().is_none_or(|end| range.keys.start < *end);
    let pairs = job.ranges.iter().zip(job.ranges.iter().skip(1));
    let claims = job.ranges.iter().filter_map(|range| range.claim);
    job.ranges.iter().all(forward)
        && pairs
            .into_iter()
            .all(|(left, right)| left.keys.end.as_ref().is_some_and(|end| *end <= right.keys.start))
        && claims.into_iter().all(|claim| !claim.worker.is_none())
        && job.ranges.iter().all(|range| !(range.done && range.claim.is_some()))
}

fn outputs(range: &JobRange) -> bool {
    let within = range.outputs.iter().all(|table| {
        table.first_key <= table.last_key
            && range.holds(table)
            && table.tail_offset < table.object_bytes
    });
    within && range.outputs.is_sorted_by(|left, right| left.last_key < right.first_key)
}

fn names_unique(record: &Compactions) -> bool {
    let mut seen: HashSet<SstId> = HashSet::new();
    let mut names = record.jobs.iter().flat_map(|job| &job.ranges).flat_map(|range| {
        let finished = range.outputs.iter().map(|table| table.id);
        range.reserved.iter().copied().chain(finished)
    });
    names.all(|name| !name.is_none() && seen.insert(name))
}
