//! Tiered compaction: runs are grouped into levels by size, and a level with too many runs is
//! merged.
//!
//! The algorithm follows the design document on compaction of SlateDB, with its defaults (8, 16, 4)
//! and four additions. L0 sinks to the oldest run that it can reach without passing a shared key,
//! so that data loaded in key order ends up in one run without being read. A merge includes the
//! next level if its result would give that level one run too many. One job is reserved for L0. The
//! number of runs, space amplification and tombstones can also trigger a compaction.

use super::plan::{Plan, PlanReason};
use super::scheduler::{
    CompactionScheduler, Draft, LayerShape, View, bound_runs, clear_tombstones, drop_what_is_gone,
};
use crate::layer::Layer;

/// Maximum number of levels: with 64 MiB tables and a factor of 2 they reach past 2^63 bytes.
const MAX_LEVELS: usize = 48;

/// The tiered scheduler.
#[derive(Clone, Debug, PartialEq)]
pub struct Tiered {
    /// Size of an L0 table in bytes, from which the sizes of levels are computed.
    pub l0_sst_size_bytes: u64,
    /// L0 is compacted when it has more layers than this.
    pub l0_compaction_threshold_ssts: usize,
    /// A level is compacted when it has more runs than this; also the factor between the sizes of
    /// two levels.
    pub level_compaction_threshold_runs: usize,
    /// A level with this many runs receives no further runs.
    pub level_max_runs: usize,
    /// Maximum number of runs; `None`: limited only by the levels.
    pub max_total_runs: Option<usize>,
    /// Everything is merged when the total bytes exceed this many times the bytes of the last
    /// layer; `None`: never.
    pub max_space_amplification: Option<f64>,
    /// Bytes that may always be above the last layer: limiting the space of a small database is not
    /// worth merging it again and again.
    pub slack_bytes: u64,
    /// Percentage of tombstones from which on a table is merged to the bottom.
    pub tombstone_percent: u64,
}

impl Default for Tiered {
    fn default() -> Tiered {
        Tiered {
            l0_sst_size_bytes: 64 << 20,
            l0_compaction_threshold_ssts: 8,
            level_compaction_threshold_runs: 8,
            level_max_runs: 16,
            max_total_runs: None,
            max_space_amplification: None,
            slack_bytes: 0,
            tombstone_percent: 50,
        }
    }
}

/// The runs of one level, newest first.
type Level = Vec<LayerShape>;

impl Tiered {
    /// The level of a run of `bytes`: the smallest N, at least 1, with `bytes <= l0_sst_size_bytes
    /// * l0_compaction_threshold_ssts * factor^N`.
    fn level_of(&self, bytes: u64) -> usize {
        let base = u128::from(self.l0_sst_size_bytes)
            .saturating_mul(self.l0_compaction_threshold_ssts as u128)
            .max(1);
        let factor = self.level_compaction_threshold_runs.max(2) as u128;
        let mut most = base.saturating_mul(factor);
        let mut level = 1;
        while u128::from(bytes) > most && level < MAX_LEVELS {
            most = most.saturating_mul(factor);
            level += 1;
        }
        level
    }

    /// Groups `runs`, newest first, into levels; index 0 is level 1. A run is never in a smaller
    /// level than a newer run, so that the runs of a level are neighbours.
    pub(crate) fn levels(&self, runs: &[LayerShape]) -> Vec<Level> {
        let mut levels: Vec<Level> = Vec::new();
        for run in runs {
            let level = self.level_of(run.bytes).max(levels.len());
            levels.resize_with(level, Vec::new);
            if let Some(last) = levels.last_mut() {
                last.push(*run);
            }
        }
        levels
    }

    /// Adds a plan for L0 if it has too many layers and level 1 has room.
    pub(crate) fn compact_l0(&self, draft: &mut Draft<'_>, levels: &[Level]) {
        let l0: Vec<LayerShape> = of_l0(draft);
        let room = levels.first().is_none_or(|level| level.len() < self.level_max_runs);
        if l0.len() <= self.l0_compaction_threshold_ssts || !room || l0.iter().any(|l| l.busy) {
            return;
        }
        let layers: Vec<Layer> = l0.iter().map(|shape| shape.layer).collect();
        let destination = draft.sink(&layers);
        draft.take(Plan::whole(layers, destination, PlanReason::L0Count));
    }

    /// Adds a plan for each level with too many runs, the deepest level first.
    pub(crate) fn compact_levels(&self, draft: &mut Draft<'_>, levels: &[Level]) {
        for (at, level) in levels.iter().enumerate().rev() {
            let next = levels.get(at + 1).map_or(0, Vec::len);
            if level.len() <= self.level_compaction_threshold_runs
                || next >= self.level_max_runs
                || draft.free_beside_l0() == 0
            {
                continue;
            }
            let sources = self.with_what_follows(at, levels);
            if sources.iter().any(|run| run.busy || draft.is_busy(run.layer)) {
                continue;
            }
            if let Some(Layer::Run(destination)) = sources.last().map(|run| run.layer) {
                let layers = sources.iter().map(|run| run.layer);
                draft.take(Plan::whole(layers, destination, PlanReason::LevelRuns));
            }
        }
    }

    /// The runs of level `at`, and those of the following levels as long as the merged run would be
    /// one too many there, because it would be read again immediately.
    fn with_what_follows(&self, at: usize, levels: &[Level]) -> Level {
        let mut sources: Level = levels.get(at).cloned().unwrap_or_default();
        for (below, level) in levels.iter().enumerate().skip(at + 1) {
            let bytes = sources.iter().fold(0u64, |sum, run| sum.saturating_add(run.bytes));
            let lands_there = self.level_of(bytes) > below;
            let too_many = level.len() + 1 > self.level_compaction_threshold_runs;
            if !(lands_there && too_many) || level.iter().any(|run| run.busy) {
                break;
            }
            sources.extend_from_slice(level);
        }
        sources
    }
}

/// The layers of L0, newest first.
pub(crate) fn of_l0(draft: &Draft<'_>) -> Vec<LayerShape> {
    draft.layers().into_iter().filter(|shape| shape.layer.is_l0()).collect()
}

/// The runs, newest first.
pub(crate) fn of_runs(draft: &Draft<'_>) -> Vec<LayerShape> {
    draft.layers().into_iter().filter(|shape| !shape.layer.is_l0()).collect()
}

/// Whether the bytes of all layers, plus the bytes that are `coming`, exceed `most` times the bytes
/// of the oldest layer. In the worst case the layers above contain only newer versions of the
/// entries below, so this limits the bytes of the database relative to its live bytes.
pub(crate) fn amplified_with(coming: u64, layers: &[LayerShape], most: f64) -> bool {
    let total: u64 = layers.iter().fold(coming, |sum, layer| sum.saturating_add(layer.bytes));
    let last = layers.last().map_or(0, |layer| layer.bytes);
    layers.len() > 1 && total as f64 > most * last as f64
}

impl CompactionScheduler for Tiered {
    fn name(&self) -> &'static str {
        "tiered"
    }

    fn plans(&self, view: &View<'_>) -> Vec<Plan> {
        let mut draft = Draft::new(view);
        drop_what_is_gone(&mut draft, &self.facts(view));
        let layers = draft.layers();
        let above = layers.iter().rev().skip(1).map(|layer| layer.bytes);
        let above = above.fold(0, u64::saturating_add);
        let amplified = above > self.slack_bytes
            && self.max_space_amplification.is_some_and(|most| amplified_with(0, &layers, most));
        if amplified && !layers.iter().any(|layer| layer.busy) {
            let all = layers.iter().map(|shape| shape.layer);
            let last = view.state.last_run();
            draft.take(Plan::whole(all, last, PlanReason::SpaceAmplification));
        }
        let levels = self.levels(&of_runs(&draft));
        self.compact_l0(&mut draft, &levels);
        self.compact_levels(&mut draft, &levels);
        if let Some(most) = self.max_total_runs {
            bound_runs(&mut draft, most);
        }
        clear_tombstones(&mut draft, self.tombstone_percent);
        draft.finish()
    }
}

#[cfg(test)]
mod tests;
