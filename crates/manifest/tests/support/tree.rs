//! A tree of tables without contents: sizes, spans and numbers of different keys. Plans are
//! executed on it through the real edits.

use super::{empty, table};
use bytes::Bytes;
use siltstone_base::{AttemptId, Epoch, JobId, ManifestId, Seq, SstDescriptor, SstId, UnixMillis};
use siltstone_manifest::compaction::{CompactionScheduler, Group, Plan, TableSizing, View, Work};
use siltstone_manifest::{Edit, L0Entry, Manifest};

/// Bytes of one row: 16 of key, 100 of value, 12 of overhead.
pub(crate) const ROW: u64 = 128;

/// The tree, and the bytes that were written to create it.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    pub(crate) state: Manifest,
    pub(crate) shaping: TableSizing,
    /// Number of different keys; tables are even samples of the keys in their span.
    pub(crate) universe: f64,
    /// Bytes of flushes.
    pub(crate) flushed: u64,
    /// Bytes of outputs.
    pub(crate) compacted: u64,
    pub(crate) now: UnixMillis,
    names: u128,
}

/// A key as a number, first bytes first.
pub(crate) fn key(number: u64) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

fn number(key: &Bytes) -> u64 {
    let mut eight = [0; 8];
    let length = key.len().min(8);
    eight[..length].copy_from_slice(&key[..length]);
    u64::from_be_bytes(eight)
}

fn width(first: &Bytes, last: &Bytes) -> f64 {
    number(last).saturating_sub(number(first)) as f64 + 1.0
}

impl Tree {
    pub(crate) fn new(universe: f64) -> Tree {
        let mut state = empty();
        state.compactor_epoch = Epoch(1);
        state.compactor_claim = AttemptId(1);
        let shaping = TableSizing::default();
        let now = UnixMillis(0);
        Tree { state, shaping, universe, flushed: 0, compacted: 0, now, names: 0 }
    }

    pub(crate) fn name(&mut self) -> SstId {
        self.names += 1;
        SstId(self.names)
    }

    /// A new layer of L0 over the keys from `first` to `last`.
    pub(crate) fn flush(&mut self, rows: u64, first: u64, last: u64) -> &mut SstDescriptor {
        let order = self.state.last_l0_order + 1;
        let id = self.name();
        let made = SstDescriptor {
            object_bytes: rows * ROW,
            tail_offset: 0,
            entries: rows,
            tombstones: 0,
            ..table(id.0, [&key(first), &key(last)], [order, order])
        };
        self.flushed += made.object_bytes;
        self.state.last_l0_order = order;
        self.state.flushed_seq = Seq(order);
        self.state.floor = Seq(order);
        self.state.l0.insert(0, L0Entry { order, tables: vec![made] });
        &mut self.state.l0[0].tables[0]
    }

    /// Number of keys of the universe from `first` to `last`.
    fn keys_between(&self, first: &Bytes, last: &Bytes) -> f64 {
        (self.universe * width(first, last) / u64::MAX as f64).max(1.0)
    }

    /// Number of different keys in `tables`, if merged.
    fn distinct<'a>(&self, tables: impl Iterator<Item = &'a SstDescriptor> + Clone) -> f64 {
        let first = tables.clone().map(|table| &table.first_key).min().unwrap();
        let last = tables.clone().map(|table| &table.last_key).max().unwrap();
        let all = self.keys_between(first, last);
        let missing = tables.map(|table| (1.0 - table.entries as f64 / all).max(0.0));
        all * (1.0 - missing.product::<f64>())
    }

    /// Bytes of the newest versions of all keys, for tables that all span the same keys.
    pub(crate) fn live_bytes(&self) -> f64 {
        let layers = self.state.layers().map(|(_, tables)| {
            tables.iter().map(|table| table.entries as f64 / self.universe).sum::<f64>()
        });
        self.universe
            * (1.0 - layers.map(|share| (1.0 - share).max(0.0)).product::<f64>())
            * ROW as f64
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.state.tables().map(|table| table.object_bytes).sum()
    }

    /// The result of merging a group: tables of the target size, without overlaps.
    fn merge(&mut self, group: &Group) -> Vec<SstDescriptor> {
        let rows = self.distinct(group.tables.iter());
        let pieces = (rows * ROW as f64 / self.shaping.target_sst_bytes as f64).ceil().max(1.0);
        let first = number(&group.start);
        let last = group.tables.iter().map(|table| number(&table.last_key)).max().unwrap();
        let step = (last - first) / pieces as u64;
        let seqs = [
            group.tables.iter().map(|table| table.min_seq.get()).min().unwrap(),
            group.tables.iter().map(|table| table.max_seq.get()).max().unwrap(),
        ];
        let expiry = group.tables.iter().map(|table| table.max_expiry);
        let max_expiry = expiry.clone().all(|at| at.is_some()).then(|| expiry.max()).flatten();
        (0..pieces as u64)
            .map(|piece| {
                let start = first + piece * step;
                let end = if piece + 1 == pieces as u64 { last } else { start + step - 1 };
                let id = self.name().0;
                let entries = ((rows / pieces) as u64).max(1);
                SstDescriptor {
                    object_bytes: entries * ROW,
                    tail_offset: 0,
                    entries,
                    tombstones: 0,
                    max_expiry: max_expiry.flatten(),
                    min_expiry: group.tables.iter().filter_map(|table| table.min_expiry).min(),
                    ..table(id, [&key(start), &key(end)], seqs)
                }
            })
            .collect()
    }

    /// The work of a plan and the commit that would end it.
    pub(crate) fn work(
        &mut self,
        scheduler: &dyn CompactionScheduler,
        plan: &Plan,
    ) -> (Work, Edit) {
        let facts = scheduler.facts(&self.view(&[]));
        let work = Work::of(&self.state, &[], plan, &facts, self.shaping).unwrap();
        let mut outputs = Vec::new();
        for group in &work.groups {
            outputs.extend(self.merge(group));
        }
        self.compacted += outputs.iter().map(|table| table.object_bytes).sum::<u64>();
        let job = JobId(self.name().0);
        let edit = Edit::FinishCompaction(work.finish(
            Epoch(1),
            (job, ManifestId::FIRST),
            outputs,
            Vec::new(),
        ));
        (work, edit)
    }

    pub(crate) fn view<'a>(
        &'a self,
        running: &'a [siltstone_manifest::compaction::Running],
    ) -> View<'a> {
        View { state: &self.state, running, now: self.now, max_compactions: 4 }
    }

    /// Executes the scheduler's plans until it has none; returns their number.
    pub(crate) fn settle(&mut self, scheduler: &dyn CompactionScheduler) -> usize {
        for done in 0..1000 {
            let plans = scheduler.plans(&self.view(&[]));
            let Some(plan) = plans.first() else { return done };
            let (work, edit) = self.work(scheduler, plan);
            assert!(!work.is_nothing(), "{plan} ({}) has no effect", plan.reason.name());
            let mut next = edit.apply(&self.state).unwrap_or_else(|why| panic!("{plan}: {why:?}"));
            next.finished_jobs.clear();
            self.state = next;
        }
        panic!("{} has no end: {:?}", scheduler.name(), scheduler.plans(&self.view(&[])));
    }
}
