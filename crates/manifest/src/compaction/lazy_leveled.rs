//! Lazy leveling: tiered above, one run below (Dayan and Idreos, Dostoevsky, SIGMOD 2018, section
//! 4.1).
//!
//! The last layer holds almost all of the database. What lies above it is merged tier by tier, and
//! all of it into the last one when the bytes of everything come to more than
//! `max_space_amplification` times those of the last: reads meet one large run and few small ones,
//! and the space taken stays within that factor of what is live. The merge into the last layer
//! takes only those tables of it that share keys with what comes.
//!
//! While that merge is under way, flushes go on. So it begins when the factor would be passed with
//! one more layer as large as the newest of L0: a last run of a few flushes is merged with each of
//! them, one of hundreds a hundredth earlier than it had to be. Where more comes than that, whoever
//! writes is told to slow down ([`LazyLeveled::above`]): what lies above may come to a fifth more
//! than the factor says, 1.3 of the last layer for 1.25.

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

/// What lies above the last layer at most, by what lies there where the factor is met.
const SLACK: f64 = 1.2;
/// Layers that may always lie above the last one before anybody is slowed: one that is merged, and
/// one that came meanwhile. They pass the factor where the last layer is not eight times as large.
const LAYERS_AT_EASE: u64 = 2;

/// The lazy-leveled scheduler.
#[derive(Clone, Debug, PartialEq)]
pub struct LazyLeveled {
    /// How the layers above the last one are merged.
    pub upper: Tiered,
    /// All bytes, and one flush more, may come to this many times those of the last layer.
    pub max_space_amplification: f64,
    /// Runs there may be in all, the last one included.
    pub max_total_runs: usize,
}

impl Default for LazyLeveled {
    fn default() -> LazyLeveled {
        LazyLeveled { upper: Tiered::default(), max_space_amplification: 1.25, max_total_runs: 12 }
    }
}

impl LazyLeveled {
    /// Takes a plan that merges what lies above the last layer into it.
    fn merge_down(&self, draft: &mut Draft<'_>) {
        let layers = draft.layers();
        let newest = layers.first().filter(|shape| shape.layer.is_l0());
        let coming = newest.map_or(0, |shape| shape.bytes);
        if !amplified_with(coming, &layers, self.max_space_amplification) {
            return;
        }
        let last = draft.state().last_run();
        // L0 that a job takes already is left; a plan that would pass it is refused, so then only
        // the runs go.
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
