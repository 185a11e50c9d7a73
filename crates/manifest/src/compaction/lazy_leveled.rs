//! Lazy leveling: tiered layers above a single last run (Dayan and Idreos, Dostoevsky, SIGMOD 2018,
//! section 4.1).
//!
//! The last layer contains almost all of the database. The layers above it are merged level by
//! level. All of them are merged into the last layer when the total bytes exceed
//! `max_space_amplification` times the bytes of the last layer. So a read finds one large run and a
//! few small ones, and the space used stays within that factor of the live data. The merge into the
//! last layer reads only those of its tables that share keys with the tables above.
//!
//! Flushes continue while that merge runs. So the merge begins when one more layer, as large as the
//! newest layer of L0, would exceed the factor. A last run of a few flushes is then merged with
//! every flush; a last run of hundreds of flushes is merged a hundredth earlier than necessary. If
//! writes arrive faster than merges, writers are slowed down ([`LazyLeveled::above`]): the layers
//! above the last one may exceed the factor by a fifth, so 1.25 permits 1.3 times the last layer in
//! total.

use super::plan::{Plan, PlanReason};
use super::scheduler::{
    CompactionScheduler, Draft, LayerShape, SpaceAmplification, View, bound_runs, clear_tombstones,
    closed_over, drop_what_is_gone,
};
use super::tiered::{Tiered, amplified_with, of_runs};
use crate::layer::Layer;
use crate::state::Manifest;
use siltstone_base::SstDescriptor;
use std::collections::HashSet;

/// Maximum bytes above the last layer, relative to the bytes that the factor permits there.
const SLACK: f64 = 1.2;
/// Number of layers above the last one that never slow writers down: one that is being merged, and
/// one that was flushed meanwhile. They exceed the factor if the last layer is less than eight
/// times as large.
const LAYERS_AT_EASE: u64 = 2;

/// The lazy-leveled scheduler.
#[derive(Clone, Debug, PartialEq)]
pub struct LazyLeveled {
    /// The tiered policy for the layers above the last one.
    pub upper: Tiered,
    /// Limit of total bytes, plus one flush, relative to the bytes of the last layer.
    pub max_space_amplification: f64,
    /// Maximum number of runs, including the last one.
    pub max_total_runs: usize,
}

impl Default for LazyLeveled {
    fn default() -> LazyLeveled {
        LazyLeveled { upper: Tiered::default(), max_space_amplification: 1.25, max_total_runs: 12 }
    }
}

impl LazyLeveled {
    /// Adds a plan that merges the layers above the last one into it.
    fn merge_down(&self, draft: &mut Draft<'_>) {
        let layers = draft.layers();
        let newest = layers.first().filter(|shape| shape.layer.is_l0());
        let coming = newest.map_or(0, |shape| shape.bytes);
        if !amplified_with(coming, &layers, self.max_space_amplification) {
            return;
        }
        let last = draft.state().last_run();
        // Layers of L0 that another job takes are left out. A plan that would pass such a layer is
        // refused; then only the runs are merged.
        let down = |shapes: &[LayerShape]| {
            let above = shapes.iter().map(|shape| shape.layer);
            let above: HashSet<Layer> = above.filter(|layer| *layer != Layer::Run(last)).collect();
            let tables = draft.state().layers().filter(|(layer, _)| above.contains(layer));
            let seeds = tables.flat_map(|(_, tables)| tables.iter().map(|table| table.id));
            Plan {
                sources: closed_over(draft.state(), &seeds.collect(), last),
                ..Plan::whole([], last, PlanReason::SpaceAmplification)
            }
        };
        let runs = of_runs(draft);
        let (all, runs_only) = (down(&layers), down(&runs));
        if !draft.take(all) && !runs_only.sources.is_empty() {
            draft.take(runs_only);
        }
    }
}

impl CompactionScheduler for LazyLeveled {
    fn name(&self) -> &'static str {
        "lazy_leveled"
    }

    fn above(&self, state: &Manifest) -> Option<SpaceAmplification> {
        let bytes = |tables: &[SstDescriptor]| tables.iter().map(|table| table.object_bytes).sum();
        let layers: Vec<u64> = state.layers().map(|(_, tables)| bytes(tables)).collect();
        let (last, above) = layers.split_last()?;
        let coming = *above.first().filter(|_| !state.l0.is_empty())?;
        let factor = (self.max_space_amplification - 1.0).max(0.0) * *last as f64;
        let slow_from = (factor as u64).max(LAYERS_AT_EASE.saturating_mul(coming));
        let most = (slow_from as f64 * SLACK) as u64;
        Some(SpaceAmplification { bytes: above.iter().sum(), coming, slow_from, most })
    }

    fn plans(&self, view: &View<'_>) -> Vec<Plan> {
        let mut draft = Draft::new(view);
        drop_what_is_gone(&mut draft, &self.facts(view));
        self.merge_down(&mut draft);
        let mut upper = of_runs(&draft);
        upper.pop();
        let levels = self.upper.levels(&upper);
        self.upper.compact_l0(&mut draft, &levels);
        self.upper.compact_levels(&mut draft, &levels);
        bound_runs(&mut draft, self.max_total_runs);
        clear_tombstones(&mut draft, self.upper.tombstone_percent);
        draft.finish()
    }
}

#[cfg(test)]
mod tests;
