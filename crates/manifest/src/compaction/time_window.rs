//! Time windows: rows that expire together are stored together, and are dropped together without
//! being read.
//!
//! *By key*: keys begin with their time (or another value that grows with it), and a window is all
//! keys with the same first bytes. A table ends where a window ends, so it belongs to one window.
//! Windows share no keys. So the tables of a window can be merged with each other even if their
//! runs are not neighbours: the tables in between belong to other windows, and no row passes
//! another version of its key. A complete window ends up in the last run, where only late rows
//! change it again. With `windows.keep` the oldest windows are dropped.
//!
//! *By expiry*: every row has a time to live, and a layer belongs to the window in which the last
//! of its rows expires. Only neighbouring layers of one window are merged, so that layers stay
//! separated by age. A layer is dropped when all its rows have expired and no older layer below it
//! shares keys with it.

use super::plan::{Plan, PlanReason};
use super::scheduler::{
    CompactionScheduler, Draft, LayerShape, View, bound_runs, closed_over, drop_what_is_gone,
};
use super::tiered::{Tiered, of_l0, of_runs};
use super::work::{Facts, prefix};
use crate::layer::Layer;
use bytes::Bytes;
use siltstone_base::{SstDescriptor, SstId};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// How rows are assigned to windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowBy {
    /// The first bytes of the key.
    Key {
        /// Number of bytes.
        prefix_bytes: u16,
        /// Number of windows to keep, the newest ones; `None`: all.
        keep_windows: Option<usize>,
    },
    /// The expiry of the rows.
    Expiry {
        /// Length of a window, in milliseconds.
        window_millis: u64,
    },
}

/// The time window scheduler.
#[derive(Clone, Debug, PartialEq)]
pub struct TimeWindow {
    /// The policy for L0, and the number of runs that it may leave.
    pub upper: Tiered,
    /// How rows are assigned to windows.
    pub by: WindowBy,
    /// Maximum number of runs for the rows of one window.
    pub window_max_runs: usize,
    /// Maximum number of runs.
    pub max_total_runs: usize,
}

impl Default for TimeWindow {
    fn default() -> TimeWindow {
        TimeWindow {
            upper: Tiered::default(),
            by: WindowBy::Expiry { window_millis: 24 * 3600 * 1000 },
            window_max_runs: 4,
            max_total_runs: 32,
        }
    }
}

/// Late rows are merged into a complete window when their bytes are at least one part in this many
/// of the bytes of the window.
const LATE_SHARE: u64 = 4;

impl CompactionScheduler for TimeWindow {
    fn name(&self) -> &'static str {
        "time_window"
    }

    fn plans(&self, view: &View<'_>) -> Vec<Plan> {
        let mut draft = Draft::new(view);
        drop_what_is_gone(&mut draft, &self.facts(view));
        match self.by {
            WindowBy::Key { prefix_bytes, .. } => self.by_key(&mut draft, prefix_bytes),
            WindowBy::Expiry { window_millis } => self.by_expiry(&mut draft, window_millis.max(1)),
        }
        bound_runs(&mut draft, self.max_total_runs);
        draft.finish()
    }

    fn facts(&self, view: &View<'_>) -> Facts {
        let keep_from = match self.by {
            WindowBy::Key { prefix_bytes, keep_windows: Some(keep) } => {
                oldest_kept(view, usize::from(prefix_bytes), keep.max(1))
            }
            _ => None,
        };
        Facts { now: view.now, keep_from, ..Facts::default() }
    }
}

/// The start of the newest `keep` windows. Windows that begin and end inside a table are not
/// counted, nor are hidden windows, so at least `keep` windows are kept.
fn oldest_kept(view: &View<'_>, prefix_bytes: usize, keep: usize) -> Option<Bytes> {
    let tables = view.state.tables();
    let windows: BTreeSet<&[u8]> = tables
        .flat_map(|table| {
            // If the end of the table is hidden, the last key before it is unknown.
            let last = Some(&table.last_key).filter(|last| table.covers(last));
            last.into_iter().chain([table.first_visible()])
        })
        .map(|key| prefix(key, prefix_bytes))
        .collect();
    windows.iter().rev().nth(keep - 1).map(|window| Bytes::copy_from_slice(window))
}

impl TimeWindow {
    fn by_key(&self, draft: &mut Draft<'_>, prefix_bytes: u16) {
        let l0 = of_l0(draft);
        if l0.len() > self.upper.l0_compaction_threshold_ssts && !l0.iter().any(|one| one.busy) {
            let layers: Vec<Layer> = l0.iter().map(|shape| shape.layer).collect();
            let destination = draft.sink(&layers);
            let plan = Plan::whole(layers, destination, PlanReason::L0Count);
            draft.take(Plan { cut_prefix_bytes: prefix_bytes, ..plan });
        }
        let seeds = self.windows_to_merge(draft, usize::from(prefix_bytes));
        let last = draft.state().last_run();
        if seeds.is_empty() || draft.free_beside_l0() == 0 {
            return;
        }
        let sources = closed_over(draft.state(), &seeds, last);
        let plan = Plan::whole([], last, PlanReason::Window);
        draft.take(Plan { sources, cut_prefix_bytes: prefix_bytes, ..plan });
    }

    /// The tables of windows that are complete but not in one run yet, or that are in too many
    /// runs.
    fn windows_to_merge(&self, draft: &Draft<'_>, prefix_bytes: usize) -> HashSet<SstId> {
        let state = draft.state();
        let Some(last) = state.runs.last().map(|run| Layer::Run(run.id)) else {
            return HashSet::new();
        };
        // The tables of each window in the runs, by layer.
        let mut windows: BTreeMap<&[u8], Vec<(Layer, Vec<&SstDescriptor>)>> = BTreeMap::new();
        for (layer, tables) in state.layers().filter(|(layer, _)| !layer.is_l0()) {
            for table in tables {
                let window = windows.entry(prefix(table.last_visible(), prefix_bytes)).or_default();
                match window.last_mut() {
                    Some((open, tables)) if *open == layer => tables.push(table),
                    _ => window.push((layer, vec![table])),
                }
            }
        }
        let newest = state.tables().map(|table| prefix(table.last_visible(), prefix_bytes)).max();
        let bytes = |tables: &[&SstDescriptor]| -> u64 {
            tables.iter().fold(0, |sum, table| sum.saturating_add(table.object_bytes))
        };
        let mut seeds = HashSet::new();
        for (window, layers) in windows {
            let above = layers.iter().filter(|(layer, _)| *layer != last);
            let late: u64 = above.map(|(_, tables)| bytes(tables)).sum();
            let there = layers.iter().find(|(layer, _)| *layer == last);
            let there = there.map_or(0, |(_, tables)| bytes(tables));
            let complete = newest.is_some_and(|newest| window < newest);
            let worth = late > 0 && late.saturating_mul(LATE_SHARE) >= there;
            if (complete && worth) || layers.len() > self.window_max_runs {
                let tables = layers.iter().filter(|(layer, _)| *layer != last);
                seeds.extend(tables.flat_map(|(_, tables)| tables).map(|table| table.id));
            }
        }
        seeds
    }

    fn by_expiry(&self, draft: &mut Draft<'_>, window_millis: u64) {
        let state = draft.state();
        let window =
            |layer: Layer| window_of(state.layer(layer).unwrap_or_default(), window_millis);
        let l0 = of_l0(draft);
        if l0.len() > self.upper.l0_compaction_threshold_ssts && !l0.iter().any(|one| one.busy) {
            // The oldest layers, as long as they belong to one window.
            let oldest = l0.last().map(|shape| window(shape.layer));
            let count = l0.iter().rev().take_while(|one| Some(window(one.layer)) == oldest);
            let first = l0.len() - count.count();
            let layers: Vec<Layer> = l0.iter().skip(first).map(|one| one.layer).collect();
            let destination = draft.sink(&layers);
            draft.take(Plan::whole(layers, destination, PlanReason::L0Count));
        }
        let runs = of_runs(draft);
        let windows: Vec<u64> = runs.iter().map(|run| window(run.layer)).collect();
        let newest = state.layers().map(|(_, tables)| window_of(tables, window_millis));
        let newest = newest.filter(|window| *window != u64::MAX).max();
        let both: Vec<(LayerShape, u64)> = runs.into_iter().zip(windows).collect();
        let stretches = both.chunk_by(|left, right| left.1 == right.1);
        for stretch in stretches.collect::<Vec<_>>().into_iter().rev() {
            let window = stretch.first().map(|(_, window)| *window);
            let complete = window < newest;
            let most = if complete { 1 } else { self.window_max_runs };
            let busy = stretch.iter().any(|(run, _)| run.busy || draft.is_busy(run.layer));
            if stretch.len() <= most || busy || draft.free_beside_l0() == 0 {
                continue;
            }
            if let Some((LayerShape { layer: Layer::Run(destination), .. }, _)) = stretch.last() {
                let layers = stretch.iter().map(|(run, _)| run.layer);
                draft.take(Plan::whole(layers, *destination, PlanReason::Window));
            }
        }
    }
}

/// The window in which the last row of `tables` expires; `u64::MAX` if a row never expires.
fn window_of(tables: &[SstDescriptor], window_millis: u64) -> u64 {
    let expiries = tables.iter().map(|table| table.max_expiry);
    let last = expiries.map(|at| at.map_or(u64::MAX, |at| at.0)).max().unwrap_or(u64::MAX);
    if last == u64::MAX { last } else { last / window_millis }
}
