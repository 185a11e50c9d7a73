//! Who chooses: schedulers as pure functions from a view to plans.

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

/// What a scheduler looks at.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The newest state.
    pub state: &'a Manifest,
    /// Jobs under way.
    pub running: &'a [Running],
    /// The time; nothing but expiry depends on it.
    pub now: UnixMillis,
    /// Jobs that may be under way at once.
    pub max_compactions: usize,
}

/// Chooses what to compact next. The same view gives the same plans.
pub trait CompactionScheduler: fmt::Debug + Send + Sync {
    /// The name by which it is chosen.
    fn name(&self) -> &'static str;

    /// Plans to start now, the most urgent first; each is valid beside the jobs under way and the
    /// plans before it, and all of them together fit `max_compactions`.
    fn plans(&self, view: &View<'_>) -> Vec<Plan>;

    /// What lies above the last layer, where the scheduler bounds that; a function of the state.
    fn above(&self, _state: &Manifest) -> Option<SpaceAmplification> {
        None
    }

    /// What it says about tables that need not be read.
    fn facts(&self, view: &View<'_>) -> Facts {
        Facts { now: view.now, ..Facts::default() }
    }
}

/// What lies above the last layer, and how much may: space that is taken beyond what is live.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpaceAmplification {
    /// Bytes of all layers but the last.
    pub bytes: u64,
    /// Bytes of the next layer, as far as one can tell: of the newest of L0.
    pub coming: u64,
    /// Bytes from which on whoever writes is to slow down, for merges to keep up.
    pub slow_from: u64,
    /// Bytes that there are to be at most.
    pub most: u64,
}

/// One layer in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerShape {
    /// The layer.
    pub layer: Layer,
    /// Bytes of its tables.
    pub bytes: u64,
    /// Whether a job under way takes something of it or writes to it.
    pub busy: bool,
}

/// Plans while they are made: each that is taken counts as a job under way for the next.
#[derive(Debug)]
pub struct Draft<'a> {
    view: View<'a>,
    running: Vec<Running>,
    plans: Vec<Plan>,
}

impl<'a> Draft<'a> {
    /// Nothing yet.
    #[must_use]
    pub fn new(view: &View<'a>) -> Draft<'a> {
        Draft { view: *view, running: view.running.to_vec(), plans: Vec::new() }
    }

    /// The state.
    #[must_use]
    pub fn state(&self) -> &'a Manifest {
        self.view.state
    }

    /// The plans.
    #[must_use]
    pub fn finish(self) -> Vec<Plan> {
        self.plans
    }

    /// Jobs that may still be started.
    #[must_use]
    pub fn free(&self) -> usize {
        self.view.max_compactions.saturating_sub(self.running.len())
    }

    /// Jobs that may still be started by what can wait: one place is kept for L0, unless there is
    /// only one.
    #[must_use]
    pub fn free_beside_l0(&self) -> usize {
        let l0 = |job: &Running| job.inputs.iter().any(|(layer, _)| layer.is_l0());
        let kept = usize::from(self.view.max_compactions > 1 && !self.running.iter().any(l0));
        self.free().saturating_sub(kept)
    }

    /// Takes the plan when it may run beside all others and a place is free.
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

    /// Every layer, newest first.
    #[must_use]
    pub fn layers(&self) -> Vec<LayerShape> {
        let shape = |(layer, tables): (Layer, &[SstDescriptor])| LayerShape {
            layer,
            bytes: bytes_of(tables),
            busy: self.is_busy(layer),
        };
        self.view.state.layers().map(shape).collect()
    }

    /// Whether a job takes something of `layer` or writes to it.
    #[must_use]
    pub fn is_busy(&self, layer: Layer) -> bool {
        let busy = |job: &Running| job.takes_from(layer) || Layer::Run(job.destination) == layer;
        self.running.iter().any(busy)
    }

    /// An id above every run and every destination: in an empty tree the first that is not left for
    /// what comes behind.
    #[must_use]
    pub fn new_run(&self) -> u32 {
        let runs = self.view.state.runs.iter().map(|run| run.id);
        let coming = self.running.iter().map(|job| job.destination);
        let above = runs.chain(coming).max().map_or(0, |id| id.saturating_add(1));
        above.max(self.view.state.first_run())
    }

    /// Where whole `layers` of L0 go: to the oldest run that can be reached without meeting a
    /// shared key, or to a new run above all. Loads in key order so end up in one run.
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

/// The sources of a plan that takes `seeds` and brings them to `destination`: the seeds and, below
/// them, every table that they would pass. One walk from the newest layer down, since a table that
/// is added can only meet tables below it that the seeds do not.
#[must_use]
pub fn closed_over(state: &Manifest, seeds: &HashSet<SstId>, destination: u32) -> Vec<Source> {
    let mut sinking = Spans::default();
    let mut sources = Vec::new();
    let above = |layer: Layer| layer >= Layer::Run(destination);
    for (layer, tables) in state.layers().filter(|(layer, _)| above(*layer)) {
        let goes = |table: &&SstDescriptor| seeds.contains(&table.id) || sinking.meets_table(table);
        // A table is named with all its parts in the layer.
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

/// Takes a plan for tables that can go unread. It spans layers: what a gone table leaves below it
/// shares no key with it, so nothing is passed on the way to the oldest of them.
pub fn drop_what_is_gone(draft: &mut Draft<'_>, facts: &Facts) {
    let state = draft.state();
    let taken = draft.running.iter().flat_map(|job| &job.inputs);
    let taken: HashSet<SstId> = taken.flat_map(|(_, tables)| tables.iter().copied()).collect();
    // A record could not say which part goes.
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

/// Fewer tombstones than this in a table are stepped over in no time.
const TOMBSTONES_WORTH_CLEARING: u64 = 4096;

/// Takes a plan for a table of a run of which so many in a hundred entries are tombstones, once no
/// snapshot needs them: the table and what it would pass down to the bottom are merged there, and
/// nothing of the tombstones is left. A table at the bottom with range deletes is read alone. Where
/// jobs may come behind there is no bottom.
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
            // The oldest layer that holds a key of it: below that there is none.
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

/// Takes a plan that merges neighbouring runs while there are more than `most`: of all stretches
/// that bring the number down to it, the one with the fewest bytes.
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
