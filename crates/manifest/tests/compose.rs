//! Splits databases by ranges, compacts the parts and combines them again, in a model of their rows
//! (rules K6 and K7, RFC 0031): every key must keep the value that a plain map has for it.
//!
//! Tables have contents here, stored beside the states; all decisions about tables are made by the
//! crate: composition, plans, work, records of jobs, edits, invariants.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at what it did not expect"
)]

mod support;

use bytes::Bytes;
use proptest::prelude::*;
use siltstone_base::sst::SstLocation;
use siltstone_base::{
    AttemptId, CheckpointId, Cover, DatabaseId, Epoch, JobId, RangeDelete, Seq, SstDescriptor,
    SstId, UnixMillis,
};
use siltstone_manifest::compaction::{
    Compactions, Facts, Job, JobParameters, JobRange, KeyRange, Layer, Plan, PlanReason, Running,
    TableSizing, Work, manual, seen_output,
};
use siltstone_manifest::compose::{Composition, Part, VisibleRange, project, unite};
use siltstone_manifest::invariant::broken;
use siltstone_manifest::{Ancestor, Edit, L0Entry, Manifest};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use support::{empty, table};

const KEYS: u8 = 16;

fn key(n: u8) -> Bytes {
    Bytes::copy_from_slice(&[b'a' + n])
}

/// One version of a key.
#[derive(Clone, Copy, Debug)]
struct Version {
    seq: u64,
    value: Option<u32>,
}

/// The content of a table or a memtable: one version of each key.
#[derive(Clone, Debug, Default)]
struct Content {
    rows: BTreeMap<Bytes, Version>,
    deletes: Vec<RangeDelete>,
}

impl Content {
    fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.deletes.is_empty()
    }

    /// The part of it within a range.
    fn within(&self, start: Option<&[u8]>, end: Option<&[u8]>) -> Content {
        let inside = |key: &Bytes| {
            start.is_none_or(|start| start <= key.as_ref())
                && end.is_none_or(|end| key.as_ref() < end)
        };
        let rows = self.rows.iter().filter(|(key, _)| inside(key));
        Content {
            rows: rows.map(|(key, version)| (key.clone(), *version)).collect(),
            deletes: self.deletes.iter().filter_map(|one| one.within(start, end)).collect(),
        }
    }

    /// The part of it that `table` shows.
    fn seen(&self, table: &SstDescriptor) -> Content {
        let (start, end) = table.in_sight(None, None);
        self.within(start, end)
    }

    fn delete(&self, key: &[u8]) -> u64 {
        let covering = self.deletes.iter().filter(|one| one.covers(key));
        covering.map(|one| one.seq.get()).max().unwrap_or(0)
    }
}

/// One database.
struct Database {
    state: Manifest,
    memory: Content,
    seq: u64,
    start: Option<Bytes>,
    end: Option<Bytes>,
}

struct World {
    contents: HashMap<SstId, Content>,
    /// In key order.
    databases: Vec<Database>,
    truth: BTreeMap<Bytes, u32>,
    made: u128,
}

#[derive(Clone, Debug)]
enum Event {
    Put(u8),
    Delete(u8),
    DeleteRange(u8, u8),
    Flush(u8),
    Merge { at: u8, newest: u8, layers: u8, thorough: bool, parts: u8, beside: bool },
    Major(u8),
    Split(u8),
    Join(u8),
}

fn describe(id: SstId, content: &Content) -> SstDescriptor {
    let rows = content.rows.keys();
    let first = rows.clone().next().into_iter().chain(content.deletes.iter().map(|one| &one.start));
    let last = rows.last().cloned().into_iter();
    let last = last.chain(content.deletes.iter().map(RangeDelete::last_key));
    let rows = content.rows.values().map(|version| version.seq);
    let seqs: BTreeSet<u64> = rows.chain(content.deletes.iter().map(|one| one.seq.get())).collect();
    SstDescriptor {
        id,
        first_key: first.min().unwrap().clone(),
        last_key: last.max().unwrap(),
        entries: content.rows.len() as u64 + 1,
        tombstones: content.rows.values().filter(|version| version.value.is_none()).count() as u64,
        min_seq: Seq(*seqs.first().unwrap()),
        max_seq: Seq(*seqs.last().unwrap()),
        range_deletes: (!content.deletes.is_empty()).then_some((60, 20)),
        object_bytes: 100 + 10 * content.rows.len() as u64,
        tail_offset: 50,
        ..table(1, [b"a", b"b"], [1, 1])
    }
}

impl World {
    fn new() -> World {
        let mut state = empty();
        state.initialized = true;
        state.compactor_epoch = Epoch(1);
        state.compactor_claim = AttemptId(5);
        let all = Database { state, memory: Content::default(), seq: 0, start: None, end: None };
        World { contents: HashMap::new(), databases: vec![all], truth: BTreeMap::new(), made: 1000 }
    }

    fn name(&mut self) -> u128 {
        self.made += 1;
        self.made
    }

    fn of(&mut self, key: &Bytes) -> &mut Database {
        let at = self.databases.iter().position(|one| one.end.as_ref().is_none_or(|end| key < end));
        &mut self.databases[at.unwrap()]
    }

    fn read(&self, key: &Bytes) -> Option<u32> {
        let of = |one: &&Database| one.end.as_ref().is_none_or(|end| key < end);
        let database = self.databases.iter().find(of).unwrap();
        let tables = database.state.layers().filter_map(|(_, tables)| {
            let mut covering = tables.iter().filter(|table| table.covers(key));
            let table = covering.next()?;
            assert!(covering.next().is_none(), "two tables of a layer have {key:?}");
            Some(self.contents[&table.id].seen(table))
        });
        let mut deleted = 0;
        for content in std::iter::once(database.memory.clone()).chain(tables) {
            deleted = deleted.max(content.delete(key));
            if let Some(version) = content.rows.get(key) {
                return version.value.filter(|_| version.seq > deleted);
            }
        }
        None
    }

    fn check(&self) {
        for database in &self.databases {
            assert_eq!(broken(&database.state), None, "{:#?}", database.state);
        }
        for n in 0..KEYS {
            let key = key(n);
            assert_eq!(self.read(&key), self.truth.get(&key).copied(), "{key:?}");
        }
    }

    fn write(&mut self, n: u8, value: Option<u32>) {
        let key = key(n);
        let database = self.of(&key);
        database.seq += 1;
        let version = Version { seq: database.seq, value };
        database.memory.rows.insert(key.clone(), version);
        match value {
            Some(value) => self.truth.insert(key, value),
            None => self.truth.remove(&key),
        };
    }

    fn delete_range(&mut self, from: u8, to: u8) {
        let (start, end) = (key(from), key(to));
        for database in &mut self.databases {
            let one = RangeDelete::new(&start, &end, Seq(database.seq + 1));
            // The user writes only within the range of the database.
            let one = one.within(database.start.as_deref(), database.end.as_deref());
            if let Some(one) = one {
                database.seq += 1;
                database.memory.deletes.push(one);
            }
        }
        self.truth.retain(|key, _| !(start <= *key && *key < end));
    }

    fn flush(&mut self, at: usize) {
        let id = SstId(self.name());
        let database = &mut self.databases[at];
        let content = std::mem::take(&mut database.memory);
        if content.is_empty() {
            return;
        }
        let state = &mut database.state;
        state.id = state.next_id();
        state.last_l0_order += 1;
        let tables = vec![describe(id, &content)];
        state.l0.insert(0, L0Entry { order: state.last_l0_order, tables });
        state.flushed_seq = Seq(database.seq);
        self.contents.insert(id, content);
    }

    fn facts(&self, state: &Manifest) -> Facts {
        let seen = state.tables().map(|table| self.contents[&table.id].seen(table));
        let deleted = Cover::of(seen.flat_map(|content| content.deletes).collect());
        Facts { deleted, ..Facts::default() }
    }

    /// Begins `plan`: returns its job, merged, as in its record; `None` if there is nothing to
    /// merge.
    fn begin(&mut self, at: usize, plan: &Plan, running: &[Running], parts: usize) -> Option<Job> {
        let state = self.databases[at].state.clone();
        let shaping = TableSizing { target_sst_bytes: 1000, min_move_bytes: 110 };
        let facts = self.facts(&state);
        let work = Work::of(&state, running, plan, &facts, shaping).ok()?;
        if work.is_nothing() {
            return None;
        }
        let id = JobId(self.name());
        if work.is_metadata_only() {
            let finish = work.finish(Epoch(1), (id, state.id), Vec::new(), Vec::new());
            let next = Edit::FinishCompaction(finish).apply(&state);
            self.databases[at].state = next.unwrap_or_else(|why| panic!("{plan}: {why:?}"));
            return None;
        }
        let ranges = work.ranges(&[], parts, 1);
        let named = (id, PlanReason::Manual, UnixMillis(1));
        let mut job = Job::of(&work, named, &state, JobParameters::default(), ranges);
        let layers = job.merged(&state).unwrap();
        for range in &mut job.ranges {
            self.merge(range, &layers);
        }
        let record = Compactions {
            number: 1,
            epoch: Epoch(1),
            jobs: vec![job.clone()],
            ..Compactions::none(state.database)
        };
        assert_eq!(record.broken(), None, "{job:#?}");
        Some(job)
    }

    fn merge(&mut self, range: &mut JobRange, layers: &[Vec<SstDescriptor>]) {
        let KeyRange { start, end, bottom } = range.keys.clone();
        let (start, end) = (Some(start.as_ref()), end.as_deref());
        let tables = || layers.iter().flatten().filter(|table| table.overlaps(start, end));
        let inputs: Vec<Content> =
            tables().map(|table| self.contents[&table.id].seen(table).within(start, end)).collect();
        let mut merged = Content::default();
        let deletes = inputs.iter().flat_map(|input| input.deletes.iter().cloned());
        merged.deletes = deletes.collect();
        let keys: BTreeSet<&Bytes> = inputs.iter().flat_map(|input| input.rows.keys()).collect();
        for key in keys {
            let newest = inputs.iter().find_map(|input| input.rows.get(key)).unwrap();
            let hidden = newest.seq < merged.delete(key);
            if !(hidden || bottom && newest.value.is_none()) {
                merged.rows.insert(key.clone(), *newest);
            }
        }
        if bottom {
            merged.deletes.clear();
        }
        range.done = true;
        if !merged.is_empty() {
            let id = SstId(self.name());
            let last = merged.rows.keys().next_back().cloned().unwrap_or_default();
            let to = merged.deletes.iter().map(|one| &one.end).max();
            range.outputs = vec![seen_output(describe(id, &merged), &last, to, tables())];
            self.contents.insert(id, merged);
        }
    }

    fn end(&mut self, at: usize, job: &Job) {
        let state = &self.databases[at].state;
        let finish = job.finish(state, Epoch(1), Vec::new()).unwrap();
        self.databases[at].state = Edit::FinishCompaction(finish).apply(state).unwrap();
    }

    /// Merges some layers into the oldest of them, and perhaps at the same time the one below it,
    /// which ends first.
    fn compact(&mut self, at: usize, event: &Event) {
        let Event::Merge { newest, layers, thorough, parts, beside, .. } = *event else { return };
        let all: Vec<Layer> = self.databases[at].state.layers().map(|(layer, _)| layer).collect();
        if all.is_empty() {
            return;
        }
        let from = usize::from(newest) % all.len();
        let to = (from + usize::from(layers)).min(all.len() - 1);
        let run = |at: usize| match all.get(at) {
            Some(Layer::Run(id)) => Some(*id),
            _ => None,
        };
        let free = |ids: &[Layer]| ids.iter().filter(|layer| !layer.is_l0()).count() as u32 * 4;
        let destination = run(to).unwrap_or_else(|| free(&all));
        let plan = Plan::whole(all[from..=to].iter().copied(), destination, PlanReason::Manual);
        let plan = Plan { thorough, ..plan };
        let Some(job) = self.begin(at, &plan, &[], usize::from(parts)) else { return };
        if beside && let Some(below) = run(to + 1) {
            let plan = Plan::whole([Layer::Run(below)], below, PlanReason::Manual);
            let plan = Plan { thorough: true, ..plan };
            if let Some(other) = self.begin(at, &plan, &[job.running()], 1) {
                self.end(at, &other);
            }
        }
        self.end(at, &job);
    }

    fn major(&mut self, at: usize) {
        let state = &self.databases[at].state;
        if let Some(plan) = manual::major(state, UnixMillis(0))
            && let Some(job) = self.begin(at, &plan, &[], 2)
        {
            self.end(at, &job);
        }
    }

    /// A new database of `tables`, all of which are in ancestor 1.
    fn database(tables: Composition, start: Option<Bytes>, end: Option<Bytes>) -> Database {
        let mut state = World::new().databases.remove(0).state;
        state.last_ancestor = 1;
        state.ancestors = vec![Ancestor {
            number: 1,
            database: DatabaseId(9),
            location: "memory:///parent".to_owned(),
            checkpoint: CheckpointId(1),
        }];
        let tables = tables.located(|_| Some(1)).unwrap();
        tables.fill(&mut state);
        let seq = state.flushed_seq.get();
        Database { state, memory: Content::default(), seq, start, end }
    }

    fn split(&mut self, n: u8) {
        let cut = key(n);
        let inside = |one: &Database| {
            one.start.as_ref().is_none_or(|start| *start < cut)
                && one.end.as_ref().is_none_or(|end| cut < *end)
        };
        let Some(at) = self.databases.iter().position(inside) else { return };
        self.flush(at);
        let whole = self.databases.remove(at);
        let (start, end) = (whole.start, whole.end);
        for (start, end) in [(Some(cut.clone()), end), (start, Some(cut))] {
            let range = VisibleRange { start: start.clone(), end: end.clone() };
            range.check().unwrap();
            let half = World::database(project(&whole.state, &range), start, end);
            self.databases.insert(at, half);
        }
    }

    fn join(&mut self, at: usize) {
        if at + 1 >= self.databases.len() {
            return;
        }
        self.flush(at);
        self.flush(at + 1);
        let (left, right) = (self.databases.remove(at), self.databases.remove(at));
        let ends = (left.start.clone(), right.end.clone());
        let part = |name: &str, one: Database, end: Option<Bytes>| Part {
            name: name.to_owned(),
            // The last range delete of its user may end where the next database begins.
            tables: project(&one.state, &VisibleRange { start: None, end }),
        };
        let end = left.end.clone();
        let parts = vec![part("right", right, None), part("left", left, end)];
        let lies_in = |_: SstLocation| Some(DatabaseId(9));
        let united = unite(parts, lies_in).unwrap();
        self.databases.insert(at, World::database(united, ends.0, ends.1));
    }

    fn happen(&mut self, event: &Event, value: u32) {
        let count = self.databases.len();
        let place = |at: u8| usize::from(at) % count;
        match event {
            Event::Put(n) => self.write(*n, Some(value)),
            Event::Delete(n) => self.write(*n, None),
            Event::DeleteRange(from, length) => {
                self.delete_range(*from, (*from + *length).min(KEYS + 1));
            }
            Event::Flush(at) => self.flush(place(*at)),
            Event::Merge { at, .. } => self.compact(place(*at), event),
            Event::Major(at) => self.major(place(*at)),
            Event::Split(n) => self.split(*n),
            Event::Join(at) => self.join(place(*at)),
        }
    }
}

fn event() -> impl Strategy<Value = Event> {
    let merge = (any::<u8>(), any::<u8>(), 0u8..4, any::<bool>(), 1u8..4, any::<bool>());
    prop_oneof![
        8 => (0..KEYS).prop_map(Event::Put),
        2 => (0..KEYS).prop_map(Event::Delete),
        2 => (0..KEYS, 1u8..9).prop_map(|(from, length)| Event::DeleteRange(from, length)),
        5 => any::<u8>().prop_map(Event::Flush),
        4 => merge.prop_map(|(at, newest, layers, thorough, parts, beside)| {
            Event::Merge { at, newest, layers, thorough, parts, beside }
        }),
        1 => any::<u8>().prop_map(Event::Major),
        2 => (1..KEYS).prop_map(Event::Split),
        2 => any::<u8>().prop_map(Event::Join),
    ]
}

/// An output was cut where one input ended, and with it a range delete of another input that
/// reached one key further: that key came back.
#[test]
fn a_range_delete_past_a_cut_deletes_the_key_there() {
    let merge = |newest, layers, parts| Event::Merge {
        at: 0,
        newest,
        layers,
        thorough: false,
        parts,
        beside: false,
    };
    let events = [
        Event::Put(0),
        Event::Flush(0),
        Event::Put(11),
        Event::Split(11),
        Event::DeleteRange(6, 6),
        Event::Flush(0),
        Event::Put(0),
        Event::Flush(1),
        Event::Put(12),
        Event::Join(0),
        merge(2, 1, 1),
        Event::Put(0),
        Event::Flush(0),
        merge(2, 0, 2),
    ];
    let mut world = World::new();
    for (value, event) in (1..).zip(&events) {
        world.happen(event, value);
        world.check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn every_key_has_its_value_however_databases_are_split_and_joined(
        events in prop::collection::vec(event(), 1..90),
    ) {
        let mut world = World::new();
        for (value, event) in (1..).zip(&events) {
            world.happen(event, value);
            world.check();
        }
        // Combined again, and in one run.
        while world.databases.len() > 1 {
            world.join(0);
            world.check();
        }
        world.flush(0);
        world.major(0);
        world.check();
        prop_assert!(world.databases[0].state.tables().all(|table| !table.is_cut()));
    }
}
