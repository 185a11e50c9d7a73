//! Checks that reads stay correct: plans are executed on trees of real entries.
//!
//! An entry is a key and a sequence number; the tree is correct if a look-up that stops at the
//! first layer with the key finds the newest entry of the history.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at what it did not expect"
)]

mod support;

use bytes::Bytes;
use proptest::prelude::*;
use siltstone_base::{AttemptId, Epoch, JobId, ManifestId, Seq, SstDescriptor, SstId, UnixMillis};
use siltstone_manifest::compaction::{
    Change, Compactions, Facts, Job, JobParameters, KeyRange, Layer, Pick, Plan, PlanReason,
    PlanRefusal, Source, TableSizing, Work,
};
use siltstone_manifest::{Edit, L0Entry, Manifest, Rule, Rules, SortedRun};
use std::collections::BTreeMap;
use support::{DATABASE, empty, table};

/// Key and sequence number; the last field is true for a tombstone.
type Row = (u8, u64, bool);

#[derive(Clone, Debug)]
struct Store {
    state: Manifest,
    rows: BTreeMap<SstId, Vec<Row>>,
    history: Vec<Row>,
    names: u128,
}

impl Store {
    fn new() -> Store {
        let mut state = empty();
        state.compactor_epoch = Epoch(1);
        state.compactor_claim = AttemptId(1);
        Store { state, rows: BTreeMap::new(), history: Vec::new(), names: 0 }
    }

    /// A table of `rows`, which are sorted.
    fn made(&mut self, rows: Vec<Row>) -> SstDescriptor {
        self.names += 1;
        let seqs = rows.iter().map(|row| row.1);
        let seqs = [seqs.clone().min().unwrap(), seqs.max().unwrap()];
        let [first, last] = [rows[0].0, rows[rows.len() - 1].0];
        let made = SstDescriptor {
            entries: rows.len() as u64,
            tombstones: rows.iter().filter(|row| row.2).count() as u64,
            ..table(self.names, [&[first], &[last]], seqs)
        };
        self.rows.insert(made.id, rows);
        made
    }

    /// Writes these keys and flushes them: one layer, split into tables of at most `most` rows.
    fn flush(&mut self, keys: &[(u8, bool)], most: usize) {
        let mut newest: BTreeMap<u8, Row> = BTreeMap::new();
        for (key, gone) in keys {
            let row = (*key, self.history.len() as u64 + 1, *gone);
            self.history.push(row);
            newest.insert(*key, row);
        }
        let rows: Vec<Row> = newest.into_values().collect();
        let tables: Vec<_> = rows.chunks(most).map(|rows| self.made(rows.to_vec())).collect();
        self.state.last_l0_order += 1;
        let order = self.state.last_l0_order;
        self.state.flushed_seq = Seq(self.history.len() as u64);
        self.state.l0.insert(0, L0Entry { order, tables });
    }

    /// The newest row of `key`, by the order of layers.
    fn get(&self, key: u8) -> Option<Row> {
        let found = self.state.layers().find_map(|(_, tables)| {
            let table = tables.iter().find(|table| table.covers(&[key]))?;
            self.rows[&table.id].iter().find(|row| row.0 == key).copied()
        });
        found.filter(|row| !row.2)
    }

    /// The newest row of `key`, by the history.
    fn expected(&self, key: u8) -> Option<Row> {
        let newest = self.history.iter().rev().find(|row| row.0 == key).copied();
        newest.filter(|row| !row.2)
    }

    fn wrong(&self) -> Option<u8> {
        (0..=KEYS).find(|key| self.get(*key) != self.expected(*key))
    }

    /// The newest row of each key in `tables`, newest layer first; tombstones are dropped at the
    /// bottom.
    fn merge(&self, tables: &[SstDescriptor], bottom: bool) -> Vec<Row> {
        let mut newest: BTreeMap<u8, Row> = BTreeMap::new();
        for table in tables {
            for row in &self.rows[&table.id] {
                newest.entry(row.0).or_insert(*row);
            }
        }
        newest.into_values().filter(|row| !(bottom && row.2)).collect()
    }

    /// Executes the plan as workers do, with only the record and the tables as input.
    fn carry_out(&mut self, plan: &Plan, cut: usize) -> Result<(), PlanRefusal> {
        let shaping = TableSizing { target_sst_bytes: 1 << 20, min_move_bytes: 2000 };
        let work = Work::of(&self.state, &[], plan, &Facts::default(), shaping)?;
        self.names += 1;
        let (id, ranges) = (JobId(self.names), work.ranges(&[], 3, 1));
        let why = (id, plan.reason, UnixMillis(1));
        let mut record = Compactions { epoch: Epoch(1), ..Compactions::none(DATABASE) };
        if !work.is_nothing() {
            let job = Box::new(Job::of(&work, why, &self.state, JobParameters::default(), ranges));
            record = change(&record, Change::Start { epoch: Epoch(1), job, forget: vec![] });
        }
        for (job, range) in record.open_ranges() {
            record = self.merge_range(&record, (job, range), cut);
        }
        let Some(job) = record.job(id) else { return Ok(()) };
        let finish = job.finish(&self.state, Epoch(1), Vec::new()).unwrap();
        let next = Edit::FinishCompaction(finish).apply(&self.state);
        self.state = next.unwrap_or_else(|why| panic!("{plan} on {:#?}: {why:?}", self.state));
        Ok(())
    }

    /// A worker claims one range and finishes it.
    fn merge_range(
        &mut self,
        record: &Compactions,
        (job, range): (JobId, usize),
        cut: usize,
    ) -> Compactions {
        let worker = AttemptId(9);
        let claim = Change::Claim { job, range, worker, instead_of: None, names: vec![] };
        let record = change(record, claim);
        let mine = record.job(job).unwrap();
        let KeyRange { start, end, bottom } = mine.ranges[range].keys.clone();
        let tables: Vec<SstDescriptor> =
            mine.merged(&self.state).unwrap().into_iter().flatten().collect();
        let mut rows = self.merge(&tables, bottom);
        rows.retain(|row| start[0] <= row.0 && end.as_ref().is_none_or(|end| row.0 < end[0]));
        let outputs: Vec<SstDescriptor> =
            rows.chunks(cut).map(|rows| self.made(rows.to_vec())).collect();
        let names = outputs.iter().map(|table| table.id).collect();
        let progress =
            |outputs, names, done| Change::Progress { job, range, worker, outputs, names, done };
        let record = change(&record, progress(vec![], names, false));
        change(&record, progress(outputs, vec![], true))
    }

    /// The behaviour of a compactor without checks: everything in the sources is merged, newest
    /// first, and put into the destination.
    fn carry_out_blindly(&mut self, plan: &Plan) {
        let going: Vec<SstDescriptor> =
            plan.sources.iter().flat_map(|source| picked(&self.state, source)).collect();
        let rows = self.merge(&going, false);
        let gone = |table: &SstDescriptor| going.iter().any(|one| one.id == table.id);
        self.state.l0.iter_mut().for_each(|entry| entry.tables.retain(|table| !gone(table)));
        self.state.runs.iter_mut().for_each(|run| run.tables.retain(|table| !gone(table)));
        self.state.l0.retain(|entry| !entry.tables.is_empty());
        self.state.runs.retain(|run| !run.tables.is_empty());
        // One table per row, so that they fit between the tables that stay. If a table of the
        // destination with the same key stays, the new one is found first.
        let added: Vec<SstDescriptor> = rows.into_iter().map(|row| self.made(vec![row])).collect();
        let place = self.state.runs.partition_point(|run| run.id > plan.destination);
        if self.state.runs.get(place).is_none_or(|run| run.id != plan.destination) {
            let run = SortedRun { id: plan.destination, tables: Vec::new() };
            self.state.runs.insert(place, run);
        }
        self.state.runs[place].tables.splice(0..0, added);
    }
}

fn picked(state: &Manifest, source: &Source) -> Vec<SstDescriptor> {
    let tables = state.layer(source.layer).unwrap_or_default().iter();
    let wanted = |table: &&SstDescriptor| match &source.pick {
        Pick::Whole => true,
        Pick::Tables(names) => names.contains(&table.id),
    };
    tables.filter(wanted).cloned().collect()
}

fn change(record: &Compactions, change: Change) -> Compactions {
    change.apply(record).unwrap_or_else(|why| panic!("{change:?} on {record:#?}: {why:?}"))
}

/// Keys are 0 to this.
const KEYS: u8 = 15;

/// The parts of a plan: layers, tables of each, and destination.
type Choice = (Vec<(usize, u8)>, u32, usize);

fn choices() -> impl Strategy<Value = Vec<Choice>> {
    let sources = prop::collection::vec((0..10usize, any::<u8>()), 1..5);
    prop::collection::vec((sources, 0..12u32, 1..4usize), 1..12)
}

/// The start of its keys, its keys and whether they are deleted, and the maximum rows of a table.
type Flush = (u8, Vec<(u8, bool)>, usize);

fn flushes() -> impl Strategy<Value = Vec<Flush>> {
    let keys = prop::collection::vec((0..=KEYS, prop::bool::weighted(0.3)), 1..8);
    // Half the flushes stay in a narrow range, so that some layers do not overlap.
    prop::collection::vec((0..16u8, keys, 1..5usize), 1..10)
}

fn store(flushes: Vec<Flush>) -> Store {
    let mut store = Store::new();
    for (base, mut keys, most) in flushes {
        if base < 8 {
            keys.iter_mut().for_each(|(key, _)| *key = (base * 2 + *key % 3).min(KEYS));
        }
        store.flush(&keys, most);
    }
    store
}

/// The plan for a choice: each bit of the mask takes a table.
fn plan(state: &Manifest, (sources, destination, _): &Choice) -> Option<Plan> {
    let layers: Vec<(Layer, Vec<SstId>)> = state
        .layers()
        .map(|(layer, tables)| (layer, tables.iter().map(|table| table.id).collect()))
        .collect();
    let mut picked: BTreeMap<usize, u8> = BTreeMap::new();
    for (at, mask) in sources {
        picked.insert(at % layers.len().max(1), *mask);
    }
    let sources = picked.into_iter().filter_map(|(at, mask)| {
        let (layer, tables) = layers.get(at)?;
        let some = tables.iter().enumerate().filter(|(bit, _)| mask >> (bit % 8) & 1 == 1);
        let some: Vec<SstId> = some.map(|(_, id)| *id).collect();
        let whole = mask >= 128 || some.is_empty();
        let pick = if whole { Pick::Whole } else { Pick::Tables(some) };
        Some(Source { layer: *layer, pick })
    });
    let sources: Vec<Source> = sources.collect();
    let plan = Plan::whole([], *destination, PlanReason::Manual);
    (!sources.is_empty()).then_some(Plan { sources, ..plan })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None,
        ..ProptestConfig::default() })]

    /// After any sequence of valid plans every key is found as it was written.
    #[test]
    fn valid_plans_keep_reads_right(flushes in flushes(), choices in choices()) {
        let mut store = store(flushes);
        prop_assert_eq!(store.wrong(), None);
        for choice in choices {
            let Some(plan) = plan(&store.state, &choice) else { continue };
            let before = store.clone();
            if store.carry_out(&plan, choice.2).is_ok() {
                prop_assert_eq!(store.wrong(), None, "{} on {:#?}", plan, before);
            }
        }
    }

    /// A refusal because of a passed table is justified: if a row of that table and a row of a
    /// source had the same key, as their spans permit, a look-up would be wrong.
    #[test]
    fn refused_plans_would_break_a_read(flushes in flushes(), choices in choices()) {
        let mut store = store(flushes);
        for choice in choices {
            let Some(plan) = plan(&store.state, &choice) else { continue };
            let refusal = store.clone().carry_out(&plan, choice.2);
            let Err(PlanRefusal::Passed { layer, table }) = refusal else {
                let _ = store.carry_out(&plan, choice.2);
                continue;
            };
            prop_assert!(worst_case(&store, &plan, layer, table), "{}", plan);
        }
    }
}

/// Puts one key into the passed table and into an overlapping source above it, newer in the source,
/// and executes the plan. Returns whether that key is read wrongly.
fn worst_case(store: &Store, plan: &Plan, layer: Layer, table: SstId) -> bool {
    let staying = store.state.tables().find(|one| one.id == table).unwrap();
    let mut above = plan.sources.iter().filter(|source| source.layer > layer);
    let both = above.find_map(|source| {
        let of = picked(&store.state, source);
        let meets = of
            .into_iter()
            .find(|one| one.first_key <= staying.last_key && staying.first_key <= one.last_key)?;
        Some((meets.id, meets.first_key.clone().max(staying.first_key.clone())))
    });
    let Some((source, key)) = both else { return false };
    let key = key[0];
    let mut worst = store.clone();
    worst.history.retain(|row| row.0 != key);
    worst.rows.values_mut().for_each(|rows| rows.retain(|row| row.0 != key));
    for (id, seq) in [(table, 1000), (source, 2000)] {
        worst.history.push((key, seq, false));
        worst.rows.get_mut(&id).unwrap().push((key, seq, false));
        worst.rows.get_mut(&id).unwrap().sort_unstable();
    }
    if worst.get(key) != Some((key, 2000, false)) {
        return false;
    }
    worst.carry_out_blindly(plan);
    // In the destination itself two tables contain the key: either may be found.
    worst.get(key) != Some((key, 2000, false)) || layer == Layer::Run(plan.destination)
}

/// The run behind the rule: k=2 in layer 1, k=3 in layer 2; only layer 2 is moved to a run.
#[test]
fn a_plan_that_skips_a_neighbour_breaks_a_read() {
    let mut store = Store::new();
    store.flush(&[(5, false)], 1);
    store.flush(&[(5, false)], 1);
    let plan: Plan = "L0:2 -> 0".parse().unwrap();
    let refused = store.clone().carry_out(&plan, 1);
    assert!(matches!(refused, Err(PlanRefusal::Passed { layer: Layer::L0(1), .. })), "{refused:?}");
    store.carry_out_blindly(&plan);
    assert_eq!((store.wrong(), store.get(5)), (Some(5), Some((5, 1, false))));
}

/// N3: the commit of a job that was valid at its start neither removes nor passes data that was
/// added meanwhile.
#[test]
fn a_table_that_came_meanwhile_survives() {
    let mut store = Store::new();
    store.flush(&[(1, false), (9, false)], 1);
    store.carry_out(&"L0:1 -> 0".parse().unwrap(), 1).unwrap();
    store.flush(&[(1, false), (9, false)], 1);
    let plan: Plan = "L0:2, 0 -> 0".parse().unwrap();
    let shaping = TableSizing::default();
    let work = Work::of(&store.state, &[], &plan, &Facts::default(), shaping).unwrap();
    // A load of key 5 is placed into run 0.
    store.history.push((5, 5, false));
    store.state.flushed_seq = Seq(5);
    let slotted = store.made(vec![(5, 5, false)]);
    store.state.runs[0].tables.insert(1, slotted);
    let rows = store.merge(&work.groups[0].tables, true);
    let one = store.made(rows.clone());
    let commit = |outputs| {
        Edit::FinishCompaction(work.finish(
            Epoch(1),
            (JobId(7), ManifestId::FIRST),
            outputs,
            Vec::new(),
        ))
    };
    let uncut = Rules::ALL.without(Rule::CutAroundSlotted);
    let refused = commit(vec![one.clone()]).apply_with(&store.state, uncut);
    assert!(refused.is_err(), "bounds of two tables of a run would overlap");
    // Cut around it, the one output is visible on both sides (rule P3).
    let mut cut = store.clone();
    cut.state = commit(vec![one]).apply(&store.state).unwrap();
    assert_eq!((cut.wrong(), cut.state.runs[0].tables.len()), (None, 3));
    assert_eq!(cut.get(5), Some((5, 5, false)));
    let parts = [vec![rows[0]], vec![rows[1]]].map(|rows| store.made(rows));
    let finish = commit(parts.to_vec());
    store.state = finish.apply(&store.state).unwrap();
    assert_eq!((store.wrong(), store.state.runs[0].tables.len()), (None, 3));
    assert_eq!(store.get(5), Some((5, 5, false)));
    assert_eq!(Bytes::from_static(&[5]), store.state.runs[0].tables[1].first_key);
}
