//! Plans requested by a user.

use super::plan::{Plan, PlanReason};
use super::scheduler::closed_over;
use crate::layer::Layer;
use crate::state::Manifest;
use siltstone_base::{SstId, UnixMillis};
use std::collections::HashSet;

/// A plan that merges everything into the last run and reads a table if that may free space. `None`
/// if the plan would have no effect: there is at most one layer, a run, without removable
/// tombstones, range deletes or expired entries, and without hidden parts of tables.
#[must_use]
pub fn major(state: &Manifest, now: UnixMillis) -> Option<Plan> {
    let garbage = state.tables().any(|table| {
        let expired = table.min_expiry.is_some_and(|at| at <= now);
        let garbage = table.tombstones > 0 || table.range_deletes.is_some() || expired;
        (garbage && state.behind.is_none()) || table.is_cut()
    });
    let layers: Vec<Layer> = state.layers().map(|(layer, _)| layer).collect();
    // The ids of runs start at this run again.
    let last = state.last_run().min(state.first_run());
    let one_run = matches!(layers.as_slice(), [] | [Layer::Run(_)]);
    (!one_run || (garbage && !layers.is_empty()))
        .then(|| Plan { thorough: true, ..Plan::whole(layers, last, PlanReason::Major) })
}

/// A plan that merges all tables that may hold a key of `[start, end)`, and the tables below them,
/// into the last run; `None` if it would have no effect, as for [`major`].
#[must_use]
pub fn range(
    state: &Manifest,
    start: Option<&[u8]>,
    end: Option<&[u8]>,
    now: UnixMillis,
) -> Option<Plan> {
    let seeds: HashSet<SstId> =
        state.tables().filter(|table| table.overlaps(start, end)).map(|table| table.id).collect();
    // Layers of L0 that are disjoint from the range may stay above it; the merged rows do not pass
    // them.
    let last = state.last_run();
    let mut within = state.clone();
    within.l0.iter_mut().for_each(|entry| entry.tables.retain(|one| seeds.contains(&one.id)));
    within.runs.iter_mut().for_each(|run| run.tables.retain(|one| seeds.contains(&one.id)));
    within.l0.retain(|entry| !entry.tables.is_empty());
    within.runs.retain(|run| !run.tables.is_empty());
    major(&within, now)?;
    let sources = closed_over(state, &seeds, last);
    Some(Plan { sources, thorough: true, ..Plan::whole([], last, PlanReason::Manual) })
}
