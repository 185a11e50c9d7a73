//! The compactor's edits.
//!
//! A finished job takes tables away and adds others to one run. Layers are ranked by age: run 0
//! lowest, then the runs by id, then L0 by order. Moving rows from one rank to another is right
//! only when no row that stays is passed on the way: no table that stays at a rank from the lowest
//! to the highest one touched may share keys with what moves. For tables that span the key space
//! it follows that sources are consecutive and that L0 goes oldest first; disjoint ones, such as a
//! table slotted into a run by an ingest meanwhile (rule N3), stay where they are.

use super::{Conflict, Refusal};
use crate::state::{FinishedJob, Manifest, SortedRun};
use bytes::Bytes;
use siltstone_base::{AttemptId, Epoch, JobId, SstDescriptor, SstId};
use std::collections::HashSet;

/// The end of a compaction job (rule R2).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FinishCompaction {
    /// The compactor's epoch.
    pub epoch: Epoch,
    /// The job that ends.
    pub job: JobId,
    /// Tables that go. All must be there (rule N3).
    pub remove: Vec<SstId>,
    /// Tables that come, disjoint, key ascending. One that is also removed moves as it is.
    pub add: Vec<SstDescriptor>,
    /// The run they come to.
    pub destination: u32,
    /// Finished jobs whose records have been deleted: their entries go.
    pub retire: Vec<JobId>,
}

/// Age of a layer: runs by id, then L0 by order above all runs.
fn run_rank(id: u32) -> u64 {
    u64::from(id)
}

fn l0_rank(order: u64) -> u64 {
    (u64::from(u32::MAX) + 1).saturating_add(order)
}

impl FinishCompaction {
    pub(super) fn apply(&self, next: &mut Manifest) -> Result<(), Refusal> {
        if next.compactor_epoch != self.epoch {
            return Err(Refusal::Fenced { by: next.compactor_epoch });
        }
        if next.finished_jobs.iter().any(|done| done.job == self.job) {
            return Err(Refusal::Invalid("a finished job is never finished again"));
        }
        let going: HashSet<SstId> = self.remove.iter().copied().collect();
        let (removed, ranks) = take_out(next, &going);
        if let Some(gone) = going.iter().find(|id| !removed.iter().any(|table| table.id == **id)) {
            return Err(Conflict::TableGone { table: *gone }.into());
        }
        let destination = run_rank(self.destination);
        let lowest = ranks.iter().copied().min().unwrap_or(destination).min(destination);
        let highest = ranks.iter().copied().max().unwrap_or(destination).max(destination);
        let moving = Spans::of(removed.iter().chain(&self.add));
        if let Some(table) = first_passed(next, lowest, highest, &moving) {
            return Err(Conflict::Overlap { table }.into());
        }
        if !self.add.is_empty() {
            add_to_run(next, self.destination, &self.add);
        }
        next.finished_jobs.retain(|done| !self.retire.contains(&done.job));
        next.finished_jobs.push(FinishedJob { job: self.job, epoch: self.epoch });
        Ok(())
    }
}

/// Removes the tables in `going`; gives them and the ranks of the layers they were in.
fn take_out(next: &mut Manifest, going: &HashSet<SstId>) -> (Vec<SstDescriptor>, Vec<u64>) {
    let (mut removed, mut ranks) = (Vec::new(), Vec::new());
    let mut take = |tables: &mut Vec<SstDescriptor>, rank: u64| {
        let before = removed.len();
        removed.extend(tables.extract_if(.., |table| going.contains(&table.id)));
        let some = removed.len() > before;
        if some {
            ranks.push(rank);
        }
        some
    };
    // Newest first, so the first table that leaves is the newest of them.
    let mut newest = None;
    for entry in &mut next.l0 {
        let first = entry.tables.iter().find(|table| going.contains(&table.id)).map(|one| one.id);
        if take(&mut entry.tables, l0_rank(entry.order)) {
            newest = newest.or(first);
        }
    }
    for run in &mut next.runs {
        take(&mut run.tables, run_rank(run.id));
    }
    if newest.is_some() {
        next.l0_last_compacted = newest;
    }
    next.l0.retain(|entry| !entry.tables.is_empty());
    next.runs.retain(|run| !run.tables.is_empty());
    (removed, ranks)
}

/// A table that stays at a rank in `lowest..=highest` and shares keys with what moves.
fn first_passed(state: &Manifest, lowest: u64, highest: u64, moving: &Spans) -> Option<SstId> {
    let l0 = state.l0.iter().map(|entry| (l0_rank(entry.order), &entry.tables));
    let runs = state.runs.iter().map(|run| (run_rank(run.id), &run.tables));
    let between = l0.chain(runs).filter(|(rank, _)| (lowest..=highest).contains(rank));
    let mut staying = between.flat_map(|(_, tables)| tables);
    staying.find(|table| moving.meets(table)).map(|table| table.id)
}

fn add_to_run(next: &mut Manifest, destination: u32, add: &[SstDescriptor]) {
    let place = next.runs.partition_point(|run| run.id > destination);
    if next.runs.get(place).is_none_or(|run| run.id != destination) {
        next.runs.insert(place, SortedRun { id: destination, tables: Vec::new() });
    }
    if let Some(run) = next.runs.get_mut(place) {
        run.tables.extend_from_slice(add);
        run.tables.sort_by(|left, right| left.first_key.cmp(&right.first_key));
    }
}

/// The union of tables' key ranges: closed intervals, ascending, disjoint.
struct Spans(Vec<(Bytes, Bytes)>);

impl Spans {
    fn of<'a>(tables: impl Iterator<Item = &'a SstDescriptor>) -> Spans {
        let mut spans: Vec<(Bytes, Bytes)> =
            tables.map(|table| (table.first_key.clone(), table.last_key.clone())).collect();
        spans.sort();
        let mut union: Vec<(Bytes, Bytes)> = Vec::with_capacity(spans.len());
        for (first, last) in spans {
            match union.last_mut() {
                Some(open) if first <= open.1 => open.1 = last.max(open.1.clone()),
                _ => union.push((first, last)),
            }
        }
        Spans(union)
    }

    fn meets(&self, table: &SstDescriptor) -> bool {
        let place = self.0.partition_point(|(_, last)| *last < table.first_key);
        self.0.get(place).is_some_and(|(first, _)| *first <= table.last_key)
    }
}

/// A new compactor takes the next epoch.
pub(super) fn claim(next: &mut Manifest, expected: Epoch, claim: AttemptId) -> Result<(), Refusal> {
    if next.compactor_epoch != expected {
        return Err(Conflict::EpochMoved { now: next.compactor_epoch }.into());
    }
    if claim.is_none() {
        return Err(Refusal::Invalid("a claim needs an identity"));
    }
    next.compactor_epoch = expected.next();
    next.compactor_claim = claim;
    Ok(())
}
