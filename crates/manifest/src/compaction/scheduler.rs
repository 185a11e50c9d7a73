//! Compaction schedulers: pure functions from a view of the database to plans.

use super::plan::{Pick, Plan, PlanReason, Source};
use super::valid::{Input, Running, validate};
use super::work::{Facts, droppable, ids_of, repeated};
use crate::invariant::effective_seqs;
use crate::layer::Layer;
use crate::span::Spans;
use crate::state::Manifest;
use siltstone_base::{JobId, SstDescriptor, SstId, UnixMillis};
use std::collections::HashSet;
use std::fmt;

/// The input of a scheduler.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The newest state.
    pub state: &'a Manifest,
    /// The running jobs.
    pub running: &'a [Running],
    /// The time; only expiry depends on it.
    pub now: UnixMillis,
    /// Maximum number of running jobs.
    pub max_compactions: usize,
}

/// Chooses the next compactions. The same view gives the same plans.
pub trait CompactionScheduler: fmt::Debug + Send + Sync {
    /// The name by which the scheduler is selected.
    fn name(&self) -> &'static str;

    /// Plans to start now, the most urgent first. Each plan is valid beside the running jobs and
    /// the plans before it, and together they respect `max_compactions`.
    fn plans(&self, view: &View<'_>) -> Vec<Plan>;

    /// The bytes above the last layer and their limits, if the scheduler has such a limit; depends
    /// only on the state.
    fn above(&self, _state: &Manifest) -> Option<SpaceAmplification> {
        None
    }

    /// The facts that decide which tables need not be read.
    fn facts(&self, view: &View<'_>) -> Facts {
        Facts { now: view.now, ..Facts::default() }
    }
}

/// The bytes above the last layer and their limits: an estimate of the space used beyond live data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpaceAmplification {
    /// Bytes of all layers but the last.
    pub bytes: u64,
    /// Estimated bytes of the next layer: the bytes of the newest layer of L0.
    pub coming: u64,
    /// Bytes at which writers are slowed down so that merges keep up.
    pub slow_from: u64,
    /// Maximum bytes.
    pub most: u64,
}

/// The size and state of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerShape {
    /// The layer.
    pub layer: Layer,
    /// Bytes of its tables.
    pub bytes: u64,
    /// Whether a running job takes tables from it or writes to it.
    pub busy: bool,
}

/// Collects plans: each added plan counts as a running job for the next one.
#[derive(Debug)]
pub struct Draft<'a> {
    view: View<'a>,
    running: Vec<Running>,
    plans: Vec<Plan>,
}

impl<'a> Draft<'a> {
    /// An empty draft.
    #[must_use]
    pub fn new(view: &View<'a>) -> Draft<'a> {
        Draft { view: *view, running: view.running.to_vec(), plans: Vec::new() }
    }

    /// The state.
    #[must_use]
    pub fn state(&self) -> &'a Manifest {
        self.view.state
    }

    /// The collected plans.
    #[must_use]
    pub fn finish(self) -> Vec<Plan> {
        self.plans
    }

    /// Number of jobs that may still be started.
    #[must_use]
    pub fn free(&self) -> usize {
        self.view.max_compactions.saturating_sub(self.running.len())
    }

    /// Number of jobs that may still be started for low-priority work: one job is reserved for L0,
    /// unless only one job is allowed.
    #[must_use]
    pub fn free_beside_l0(&self) -> usize {
        let l0 = |job: &Running| job.inputs.iter().any(|(layer, _)| layer.is_l0());
        let kept = usize::from(self.view.max_compactions > 1 && !self.running.iter().any(l0));
        self.free().saturating_sub(kept)
    }

    /// Adds the plan if it may run beside all other jobs and the limit of jobs is not reached.
    /// Returns whether it was added.
    pub fn take(&mut self, plan: Plan) -> bool {
        if self.free() == 0 {
            return false;
        }
        let Ok(inputs) = validate(self.view.state, &self.running, &plan) else { return false };
        let names = |input: Input| (input.layer, ids_of(&input.tables));
        self.running.push(Running {
            job: JobId::NONE,
            inputs: inputs.into_iter().map(names).collect(),
            destination: plan.destination,
        });
        self.plans.push(plan);
        true
    }

    /// All layers, newest first.
    #[must_use]
    pub fn layers(&self) -> Vec<LayerShape> {
        let shape = |(layer, tables): (Layer, &[SstDescriptor])| LayerShape {
            layer,
            bytes: bytes_of(tables),
            busy: self.is_busy(layer),
        };
        self.view.state.layers().map(shape).collect()
    }

    /// Whether a job takes tables from `layer` or writes to it.
    #[must_use]
    pub fn is_busy(&self, layer: Layer) -> bool {
        let busy = |job: &Running| job.takes_from(layer) || Layer::Run(job.destination) == layer;
        self.running.iter().any(busy)
    }

    /// An id above all runs and destinations; in an empty tree, the first id that is not reserved
    /// for ingest jobs behind all other data.
    #[must_use]
    pub fn new_run(&self) -> u32 {
        let runs = self.view.state.runs.iter().map(|run| run.id);
        let coming = self.running.iter().map(|job| job.destination);
        let above = runs.chain(coming).max().map_or(0, |id| id.saturating_add(1));
        above.max(self.view.state.first_run())
    }

    /// The destination for whole `layers` of L0: the oldest run that they can reach without passing
    /// a shared key, or a new run above all others. So data loaded in key order ends up in one run.
    #[must_use]
    pub fn sink(&self, layers: &[Layer]) -> u32 {
        let state = self.view.state;
        let tables = state.layers().filter(|(layer, _)| layers.contains(layer));
        let sinking = Spans::of(tables.flat_map(|(_, tables)| tables));
        let mut reached = self.new_run();
        for run in state.runs.iter().filter(|run| run.id >= state.first_run()) {
            let meets = run.tables.iter().any(|table| sinking.meets_table(table));
            if meets || self.is_busy(Layer::Run(run.id)) {
                break;
            }
            reached = run.id;
        }
        reached
    }
}

/// Bytes of tables.
#[must_use]
pub fn bytes_of(tables: &[SstDescriptor]) -> u64 {
    tables.iter().fold(0, |sum, table| sum.saturating_add(table.object_bytes))
}

/// The sources of a plan that takes the tables `seeds` to `destination`: the seeds, and every table
/// below them that they would pass. One walk from the newest layer down is enough, because an added
/// table can only overlap tables below it, and those that overlap a seed are found by the seed.
#[must_use]
pub fn closed_over(state: &Manifest, seeds: &HashSet<SstId>, destination: u32) -> Vec<Source> {
    let mut sinking = Spans::default();
    let mut sources = Vec::new();
    let above = |layer: Layer| layer >= Layer::Run(destination);
    for (layer, tables) in state.layers().filter(|(layer, _)| above(*layer)) {
        let goes = |table: &&SstDescriptor| seeds.contains(&table.id) || sinking.meets_table(table);
        // A plan names a table by id, which means all its parts in the layer.
        let names: HashSet<SstId> = tables.iter().filter(goes).map(|table| table.id).collect();
        let of_names = |table: &&SstDescriptor| names.contains(&table.id);
        let going: Vec<SstDescriptor> = tables.iter().filter(of_names).cloned().collect();
        if going.is_empty() {
            continue;
        }
        let pick = match going.len() == tables.len() {
            true => Pick::Whole,
            false => Pick::Tables(ids_of(&going)),
        };
        sources.push(Source { layer, pick });
        sinking.add(&going);
    }
    sources
}

/// Adds a plan that drops tables without reading them. The plan may span layers: tables below a
/// dropped table that stay share no key with it, so no row passes another on the way to the oldest
/// of these layers.
pub fn drop_what_is_gone(draft: &mut Draft<'_>, facts: &Facts) {
    let state = draft.state();
    let taken = draft.running.iter().flat_map(|job| &job.inputs);
    let taken: HashSet<SstId> = taken.flat_map(|(_, tables)| tables.iter().copied()).collect();
    // A record of jobs names tables by id, and could not say which part of a table is dropped.
    let repeated = repeated(state.tables());
    let may_go =
        |table: &SstDescriptor| !taken.contains(&table.id) && !repeated.contains(&table.id);
    let gone = droppable(state, may_go, facts);
    let mut sources = Vec::new();
    for (layer, tables) in state.layers() {
        let going = tables.iter().filter(|table| gone.contains(&table.part()));
        let names: Vec<SstId> = going.map(|table| table.id).collect();
        if !names.is_empty() {
            sources.push(Source { layer, pick: Pick::Tables(names) });
        }
    }
    let destination = match sources.last().map(|source| source.layer) {
        None => return,
        Some(Layer::Run(id)) => id,
        Some(Layer::L0(_)) => state.last_run(),
    };
    draft.take(Plan { sources, ..Plan::whole([], destination, PlanReason::Expired) });
}

/// A table with fewer tombstones than this is not worth a merge: skipping them takes no time.
const TOMBSTONES_WORTH_CLEARING: u64 = 4096;

/// Adds a plan for a table of a run in which at least `percent` of the entries are tombstones, if
/// no snapshot needs them. The table and the tables that it would pass on the way to the bottom are
/// merged there, which removes the tombstones. A table at the bottom with range deletes is read
/// alone. A database that accepts ingest jobs behind all other data has no bottom.
pub fn clear_tombstones(draft: &mut Draft<'_>, percent: u64) {
    let state = draft.state();
    if draft.free_beside_l0() == 0 || state.behind.is_some() {
        return;
    }
    for run in state.runs.iter().rev() {
        for table in &run.tables {
            let many = table.tombstones >= TOMBSTONES_WORTH_CLEARING
                && u128::from(table.tombstones) * 100
                    >= u128::from(table.entries) * u128::from(percent);
            if !many && table.range_deletes.is_none() {
                continue;
            }
            let sources = closed_over(state, &HashSet::from([table.id]), 0);
            let needless = |table: &SstDescriptor| effective_seqs(table).1 <= state.floor;
            if (!many && sources.len() > 1) || !all_of(state, &sources, needless) {
                continue;
            }
            // The oldest layer that holds a key of the table: no layer below it does.
            let Some(Layer::Run(destination)) = sources.last().map(|source| source.layer) else {
                continue;
            };
            let plan = Plan::whole([], destination, PlanReason::Tombstones);
            if draft.take(Plan { sources, thorough: true, ..plan }) {
                return;
            }
        }
    }
}

fn all_of(
    state: &Manifest,
    sources: &[Source],
    mut holds: impl FnMut(&SstDescriptor) -> bool,
) -> bool {
    sources.iter().all(|source| {
        let mut tables = state.layer(source.layer).unwrap_or_default().iter();
        match &source.pick {
            Pick::Whole => tables.all(&mut holds),
            Pick::Tables(names) => {
                let names: HashSet<&SstId> = names.iter().collect();
                tables.all(|table| !names.contains(&table.id) || holds(table))
            }
        }
    })
}

/// Adds plans that merge neighbouring runs while there are more than `most` runs: of all groups of
/// neighbours that reduce the number to the limit, the one with the fewest bytes.
pub fn bound_runs(draft: &mut Draft<'_>, most: usize) {
    let runs: Vec<LayerShape> =
        draft.layers().into_iter().filter(|layer| !layer.layer.is_l0()).collect();
    if runs.len() <= most || draft.free_beside_l0() == 0 {
        return;
    }
    let length = runs.len() - most + 1;
    let mut stretches: Vec<&[LayerShape]> =
        runs.windows(length).filter(|stretch| !stretch.iter().any(|run| run.busy)).collect();
    let cost = |stretch: &&[LayerShape]| {
        stretch.iter().fold(0u64, |sum, run| sum.saturating_add(run.bytes))
    };
    stretches.sort_by_key(cost);
    for stretch in stretches {
        if let Some(Layer::Run(destination)) = stretch.last().map(|run| run.layer) {
            let layers = stretch.iter().map(|run| run.layer);
            if draft.take(Plan::whole(layers, destination, PlanReason::TotalRuns)) {
                return;
            }
        }
    }
}
