//! Tiered compaction: runs in levels by size, a level is merged when it has too many.
//!
//! The algorithm of the design document on compaction of SlateDB, with its defaults (8, 16, 4), and
//! with four additions. L0 sinks to the oldest run that it can reach without meeting a shared key,
//! so that loads in key order end up in one run unread. A merge takes the next level along when its
//! result would be one run too many there. One place among the jobs is kept for L0. And total runs,
//! space amplification and tombstones can trigger as well.

use super::plan::{Plan, PlanReason};
use super::scheduler::{
    CompactionScheduler, Draft, LayerShape, View, bound_runs, clear_tombstones, drop_what_is_gone,
};
use crate::layer::Layer;

/// Levels that are told apart: 64 MiB tables and a factor of 2 reach past 2^63 bytes.
const MAX_LEVELS: usize = 48;

/// The tiered scheduler.
#[derive(Clone, Debug, PartialEq)]
pub struct Tiered {
    /// Size of a table in L0, in bytes: what levels are measured by.
    pub l0_sst_size_bytes: u64,
    /// L0 is compacted when it has more layers than this.
    pub l0_compaction_threshold_ssts: usize,
    /// A level is compacted when it has more runs than this; also the factor between the sizes of
    /// two levels.
    pub level_compaction_threshold_runs: usize,
    /// Nothing is compacted into a level that has this many runs.
    pub level_max_runs: usize,
    /// Runs there may be in all; `None`: as many as the levels permit.
    pub max_total_runs: Option<usize>,
    /// Everything is merged when all bytes come to more than this many times those of the last
    /// layer; `None`: never.
    pub max_space_amplification: Option<f64>,
    /// Above the last layer so many bytes may always lie: no bound on space is worth merging a
    /// small database again and again.
    pub slack_bytes: u64,
    /// Share of tombstones, in percent, from which on a table is merged to the bottom.
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

/// Runs of one level, newest first.
type Level = Vec<LayerShape>;

impl Tiered {
    /// The level of a run of `bytes`: the smallest N from 1 on with
    /// `bytes <= l0_sst_size_bytes * l0_compaction_threshold_ssts * factor^N`.
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

    /// `runs`, newest first, in levels; index 0 is level 1. A run is in no smaller level than a
    /// newer one, so that the runs of a level are neighbours.
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

    /// Takes a plan for L0 when it has too many layers and level 1 has room.
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

    /// Takes a plan for each level that has too many runs, the deepest first.
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

    /// The runs of level `at`, and those of the levels below for as long as the merge so far would
    /// be one run too many there: it would be read again at once.
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

/// Whether the bytes of all layers, and of what is `coming`, come to more than `most` times those
/// of the oldest. What lies above may be nothing but newer versions of what lies below, so this
/// bounds the bytes of the database by its live bytes.
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
