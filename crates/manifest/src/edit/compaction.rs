//! The compactor's edits.
//!
//! A finished job removes tables and adds others to one run. Rows may sink from their layer to that
//! run only if no table that stays in between, including the run, may hold their keys (RFC 0018).
//! The plan was checked when the job started; the state has changed since, so the commit checks it
//! again. Tables that stay and share no keys with the removed ones, for example a table that an
//! ingest has added to the run meanwhile (rule N3), stay where they are, and the added tables are
//! split around them (rule P3).

use super::restore::check_plan;
use super::{Conflict, Refusal};
use crate::features::UNITS;
use crate::layer::Layer;
use crate::rules::{Rule, Rules};
use crate::span::{Span, Spans, first_passed};
use crate::state::RELEASED;
use crate::state::{FinishedJob, Manifest, SortedRun};
use siltstone_base::limits::MAX_KEY_BYTES;
use siltstone_base::{AttemptId, Epoch, JobId, ManifestId, SstDescriptor, TablePart};
use std::collections::HashSet;

/// The version of Siltstone that introduced units.
const SINCE: &str = "0.1.0";

/// The end of a compaction job (rule R2). With nothing to remove and nothing to add the job is
/// aborted: its names are void, and the tables that it uploaded are garbage.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FinishCompaction {
    /// The compactor's epoch.
    pub epoch: Epoch,
    /// The job that ends.
    pub job: JobId,
    /// The manifest on which it was planned.
    pub planned_on: ManifestId,
    /// Tables to remove. All must exist (rule N3). If an object occurs several times, only the
    /// named parts are removed (rule K6): if two clones share table t, "remove t" would remove both
    /// halves.
    pub remove: Vec<TablePart>,
    /// Tables to add, disjoint, in ascending key order. A table that is also removed is moved
    /// unchanged.
    pub add: Vec<SstDescriptor>,
    /// The destination run; no newer than any layer from which a table is removed.
    pub destination: u32,
    /// Finished jobs whose records were deleted: their entries are removed.
    pub retire: Vec<JobId>,
}

impl FinishCompaction {
    pub(super) fn apply(&self, next: &mut Manifest, rules: Rules) -> Result<(), Refusal> {
        if rules.has(Rule::FinishByEpoch) && next.compactor_epoch != self.epoch {
            return Err(Refusal::CompactorFenced { by: next.compactor_epoch });
        }
        if next.finished_jobs.iter().any(|done| done.job == self.job) {
            return Err(Refusal::Invalid("a finished job is never finished again"));
        }
        if !self.gives_up() {
            check_plan(next, self.planned_on, rules)?;
        }
        let going: HashSet<TablePart> = self.remove.iter().cloned().collect();
        if let Some((_, table)) = first_passed(next, &going, Layer::Run(self.destination)) {
            return Err(Conflict::Overlap { table }.into());
        }
        let (removed, oldest) = take_out(next, &going);
        let taken: HashSet<TablePart> = removed.iter().map(SstDescriptor::part).collect();
        if let Some(gone) = going.difference(&taken).min() {
            return Err(Conflict::TableGone { table: gone.id }.into());
        }
        if oldest.is_some_and(|oldest| oldest < Layer::Run(self.destination)) {
            return Err(Refusal::Invalid("rows sink: the destination is newer than an input"));
        }
        let add = self.around_what_stays(next, rules);
        self.check_added(next, &add, &removed)?;
        if !removed.is_empty() {
            next.tables_since = next.id;
        }
        if !add.is_empty() {
            add_to_run(next, self.destination, &add);
        }
        next.finished_jobs.retain(|done| !self.retire.contains(&done.job));
        next.finished_jobs.push(FinishedJob { job: self.job, epoch: self.epoch });
        Ok(())
    }

    /// Whether the edit only ends the job.
    fn gives_up(&self) -> bool {
        self.remove.is_empty() && self.add.is_empty()
    }

    /// The tables to add, without the keys of tables that were added to gaps of the destination
    /// meanwhile (rule P3). The removed tables share no key with those tables, or they could not
    /// sink, so no row is hidden: one object becomes two visible parts on both sides.
    fn around_what_stays(&self, state: &Manifest, rules: Rules) -> Vec<SstDescriptor> {
        let staying = state.layer(Layer::Run(self.destination)).unwrap_or_default();
        if !rules.has(Rule::CutAroundSlotted) {
            return self.add.clone();
        }
        let mut parts = Vec::with_capacity(self.add.len());
        for table in &self.add {
            let mut rest = table.clone();
            // In key order, as the run is. No key can be named after the longest keys.
            let slotted = staying.iter().map(Span::of).filter(|span| span.meets(&Span::of(table)));
            for span in slotted.filter(|span| span.behind().len() <= MAX_KEY_BYTES) {
                let left =
                    SstDescriptor { visible_end: Some(span.first().clone()), ..rest.clone() };
                parts.extend(Some(left).filter(|left| !Span::of(left).is_empty()));
                rest.visible_start = Some(span.behind());
            }
            parts.extend(Some(rest).filter(|rest| !Span::of(rest).is_empty()));
        }
        parts
    }

    /// Checks that the added tables contain only rows of the removed ones, and that they do not
    /// overlap other tables of the destination.
    fn check_added(
        &self,
        state: &Manifest,
        add: &[SstDescriptor],
        removed: &[SstDescriptor],
    ) -> Result<(), Refusal> {
        let spans = removed.iter().map(Span::of).filter(|span| !span.is_empty());
        let hull = Span::hull(spans);
        let within = |table| hull.as_ref().is_some_and(|hull| hull.contains(&Span::of(table)));
        if !add.iter().all(within) {
            return Err(Refusal::Invalid("an added table spans keys outside the removed ones"));
        }
        let added = Spans::of(add);
        let staying = state.layer(Layer::Run(self.destination)).unwrap_or_default();
        match staying.iter().find(|table| added.meets_table(table)) {
            Some(table) => Err(Conflict::Overlap { table: table.id }.into()),
            None => Ok(()),
        }
    }
}

/// Removes the tables in `going`; returns them and the oldest layer that contained one.
fn take_out(
    next: &mut Manifest,
    going: &HashSet<TablePart>,
) -> (Vec<SstDescriptor>, Option<Layer>) {
    let mut removed = Vec::new();
    let mut oldest = None;
    let mut take = |tables: &mut Vec<SstDescriptor>, layer: Layer| {
        let before = removed.len();
        removed.extend(tables.extract_if(.., |table| going.contains(&table.part())));
        let taken = removed.get(before).map(|table| table.id);
        if taken.is_some() {
            // Layers come newest first.
            oldest = Some(layer);
        }
        taken
    };
    let mut newest_of_l0 = None;
    for entry in &mut next.l0 {
        let taken = take(&mut entry.tables, Layer::L0(entry.order));
        newest_of_l0 = newest_of_l0.or(taken);
    }
    for run in &mut next.runs {
        take(&mut run.tables, Layer::Run(run.id));
    }
    if newest_of_l0.is_some() {
        next.l0_last_compacted = newest_of_l0;
    }
    next.l0.retain(|entry| !entry.tables.is_empty());
    next.runs.retain(|run| !run.tables.is_empty());
    (removed, oldest)
}

pub(super) fn add_to_run(next: &mut Manifest, destination: u32, add: &[SstDescriptor]) {
    let place = next.runs.partition_point(|run| run.id > destination);
    if next.runs.get(place).is_none_or(|run| run.id != destination) {
        next.runs.insert(place, SortedRun { id: destination, tables: Vec::new() });
    }
    if let Some(run) = next.runs.get_mut(place) {
        run.tables.extend_from_slice(add);
        run.tables.sort_by(|left, right| left.first_visible().cmp(right.first_visible()));
    }
}

/// The compactor ends in order: the epoch is free, and an embedded compactor that it had stopped
/// may claim the next one.
pub(super) fn release(next: &mut Manifest, epoch: Epoch) -> Result<(), Refusal> {
    if next.compactor_epoch != epoch {
        return Err(Refusal::CompactorFenced { by: next.compactor_epoch });
    }
    next.compactor_claim = RELEASED;
    Ok(())
}

/// Units upload from now on (RFC 0046): every committer must know their folders.
pub(super) fn begin_units(next: &mut Manifest, epoch: Epoch) -> Result<(), Refusal> {
    if next.compactor_epoch != epoch {
        return Err(Refusal::CompactorFenced { by: next.compactor_epoch });
    }
    next.features.name_for_committers(UNITS, SINCE);
    Ok(())
}

/// A new compactor takes the next epoch.
pub(super) fn claim(next: &mut Manifest, expected: Epoch, claim: AttemptId) -> Result<(), Refusal> {
    if next.compactor_epoch != expected {
        return Err(Conflict::EpochMoved { now: next.compactor_epoch }.into());
    }
    if claim.is_none() || claim == RELEASED {
        return Err(Refusal::Invalid("a claim needs an identity"));
    }
    next.compactor_epoch = expected.next();
    next.compactor_claim = claim;
    Ok(())
}
