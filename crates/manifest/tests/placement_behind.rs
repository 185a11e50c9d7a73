//! The placement of tables that are installed behind all other data (RFC 0043, rule P6): random
//! jobs behind, beside flushes, jobs on top, and compactions that were planned before them, against
//! a model of every key. A job behind fills keys that were never written; deleted keys stay
//! deleted, and expired values stay gone.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test stops at what it did not expect"
)]

#[path = "support/chance.rs"]
mod chance;
#[path = "support/claimed.rs"]
mod claimed;

use bytes::Bytes;
use chance::{Chance, KEYS};
use claimed::claimed;
use siltstone_base::sst::SstLocation;
use siltstone_base::{DatabaseId, JobId, ManifestId, Seq, SstDescriptor, SstId, UnixMillis};
use siltstone_manifest::compaction::{Facts, Plan, PlanReason, TableSizing, Work};
use siltstone_manifest::ingest::layered;
use siltstone_manifest::layer::Layer;
use siltstone_manifest::{
    Edit, FinishCompaction, FlushL0, HISTORY_BEGINS, IngestEdit, InstallBehind, InstallIngest,
    Manifest, RESERVED_RUNS, RequestIngest, Rule, Rules, Settings,
};
use std::collections::BTreeMap;

const STEPS: usize = 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Value(u64),
    Deleted,
    /// An expired value.
    Expired,
}

/// For each key of a table: its value, and the number under which it was written.
type Rows = BTreeMap<u8, (Seq, What)>;

/// A planned compaction.
struct Planned {
    on: ManifestId,
    work: Work,
    remove: Vec<SstDescriptor>,
}

struct Place {
    rules: Rules,
    chance: Chance,
    state: Manifest,
    rows: BTreeMap<SstId, Rows>,
    /// The expected result of a read, for every key that was ever written.
    newest: BTreeMap<u8, What>,
    planned: Option<Planned>,
    names: u128,
    values: u64,
    filled: usize,
    shadowed: usize,
    finished: usize,
}

impl Place {
    fn new(seed: u64, rules: Rules) -> Place {
        let empty = Manifest::new_database(DatabaseId(7), Settings::default()).allowing_behind();
        Place {
            rules,
            chance: Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            state: claimed(&empty),
            rows: BTreeMap::new(),
            newest: BTreeMap::new(),
            planned: None,
            names: 0,
            values: 0,
            filled: 0,
            shadowed: 0,
            finished: 0,
        }
    }

    fn table(&mut self, rows: Rows, job: Option<JobId>) -> SstDescriptor {
        self.names += 1;
        let id = SstId(self.names);
        let key = |key: Option<&u8>| Bytes::copy_from_slice(&[*key.expect("rows")]);
        let count = |is: What| rows.values().filter(|row| row.1 == is).count() as u64;
        let (expired, deleted) = (count(What::Expired), count(What::Deleted));
        let all = expired == rows.len() as u64;
        let table = SstDescriptor {
            id,
            location: SstLocation::Own,
            job,
            object_bytes: 100 + 2_000 * self.chance.below(2),
            checksum: 7,
            tail_offset: 50,
            first_key: key(rows.keys().next()),
            last_key: key(rows.keys().last()),
            visible_start: None,
            visible_end: None,
            seq_override: None,
            entries: rows.len() as u64,
            tombstones: deleted,
            min_seq: rows.values().map(|row| row.0).min().unwrap_or_default(),
            max_seq: rows.values().map(|row| row.0).max().unwrap_or_default(),
            min_expiry: (expired > 0).then_some(UnixMillis(1)),
            max_expiry: all.then_some(UnixMillis(1)),
            range_deletes: None,
            sum: None,
        };
        self.rows.insert(id, rows);
        table
    }

    fn commit(&mut self, edit: &Edit) -> Result<(), siltstone_manifest::Refusal> {
        self.state = edit.apply_with(&self.state, self.rules)?;
        Ok(())
    }

    fn value(&mut self) -> What {
        self.values += 1;
        What::Value(self.values)
    }

    fn flush(&mut self) {
        let seq = self.state.flushed_seq.next();
        let mut rows = Rows::new();
        for key in self.chance.keys() {
            let what = match self.chance.below(4) {
                0 => What::Deleted,
                1 => What::Expired,
                _ => self.value(),
            };
            rows.insert(key, (seq, what));
            self.newest.insert(key, what);
        }
        let table = self.table(rows, None);
        let (epoch, names) = (self.state.writer_epoch, vec![table.id]);
        self.commit(&Edit::ReserveNames { epoch, names }).expect("a fresh name");
        let nothing = FlushL0::nothing(epoch, &self.state);
        let layers = vec![vec![table]];
        let edit = Edit::FlushL0(FlushL0 { layers, flushed_seq: seq, ..nothing });
        self.commit(&edit).expect("a flush fits");
    }

    /// The layers of a requested job: of equal keys the later table's counts.
    fn staged(&mut self) -> (JobId, Bytes, Vec<Vec<SstDescriptor>>) {
        self.names += 1;
        let job = JobId(u128::from(1_000_000u64) << 80 | self.names);
        let mut tables = Vec::new();
        for _ in 0..=self.chance.below(4) {
            let mut rows = Rows::new();
            for key in self.chance.keys() {
                rows.insert(key, (Seq::NONE, self.value()));
            }
            tables.push(self.table(rows, Some(job)));
        }
        let digest = Bytes::from_static(b"digest");
        let request = RequestIngest {
            job,
            database: DatabaseId(7),
            timeline: None,
            digest: digest.clone(),
            app: None,
            requested_at: UnixMillis(0),
        };
        self.commit(&Edit::Ingest(IngestEdit::Request(request))).expect("it fits");
        (job, digest, layered(tables))
    }

    /// The values that a job has for its keys.
    fn says(&self, layers: &[Vec<SstDescriptor>]) -> BTreeMap<u8, What> {
        let tables = layers.iter().flatten();
        let rows = tables.flat_map(|table| &self.rows[&table.id]);
        rows.map(|(key, row)| (*key, row.1)).collect()
    }

    fn on_top(&mut self) {
        let (job, digest, mut layers) = self.staged();
        self.newest.extend(self.says(&layers));
        let mut seq = self.state.flushed_seq;
        for tables in &mut layers {
            seq = seq.next();
            tables.iter_mut().for_each(|table| table.seq_override = Some(seq));
        }
        let nothing = FlushL0::nothing(self.state.writer_epoch, &self.state);
        let ingests = vec![InstallIngest { after: 0, job, digest, layers }];
        let edit = Edit::FlushL0(FlushL0 { ingests, flushed_seq: seq, ..nothing });
        self.commit(&edit).expect("a job fits");
    }

    fn behind(&mut self) {
        let (job, digest, layers) = self.staged();
        for (key, what) in self.says(&layers) {
            match self.newest.entry(key) {
                std::collections::btree_map::Entry::Vacant(free) => {
                    free.insert(what);
                    self.filled += 1;
                }
                std::collections::btree_map::Entry::Occupied(_) => self.shadowed += 1,
            }
        }
        let nothing = FlushL0::nothing(self.state.writer_epoch, &self.state);
        let behind = Some(InstallBehind { job, digest, layers });
        let edit = Edit::FlushL0(FlushL0 { behind, ..nothing });
        assert!(!edit.in_effect(&self.state));
        self.commit(&edit).expect("a job behind fits");
        assert!(edit.in_effect(&self.state));
    }

    /// Some neighbouring layers into the oldest of them, or into a new run.
    fn plan(&mut self) {
        let layers: Vec<Layer> = self.state.layers().map(|(layer, _)| layer).collect();
        if layers.is_empty() {
            return;
        }
        let first = self.chance.below(layers.len() as u64) as usize;
        let count = 1 + self.chance.below((layers.len() - first) as u64) as usize;
        let taken = &layers[first..first + count];
        let destination = match taken.last() {
            Some(Layer::Run(id)) => *id,
            _ => layers
                .iter()
                .find_map(|layer| match layer {
                    Layer::Run(id) => Some(id.saturating_add(1)),
                    Layer::L0(_) => None,
                })
                .unwrap_or(RESERVED_RUNS)
                .max(RESERVED_RUNS),
        };
        let thorough = self.chance.below(2) == 0;
        let plan = Plan::whole(taken.iter().copied(), destination, PlanReason::Manual);
        let plan = Plan { thorough, ..plan };
        // Without the rule the planner takes the oldest layer for the bottom.
        let mut seen = self.state.clone();
        if !self.rules.has(Rule::BehindNoBottom) {
            seen.behind = None;
        }
        let facts = Facts { now: UnixMillis(10), ..Facts::default() };
        let shaping = TableSizing { target_sst_bytes: 1 << 20, min_move_bytes: 1_000 };
        let Ok(work) = Work::of(&seen, &[], &plan, &facts, shaping) else { return };
        let remove = work.inputs.iter().flat_map(|input| input.tables.clone()).collect();
        self.planned = Some(Planned { on: self.state.id, work, remove });
    }

    /// The result of a merge, which decides by numbers alone.
    fn merged(&self, tables: &[SstDescriptor], bottom: bool) -> Rows {
        let mut merged = Rows::new();
        for table in tables.iter().rev() {
            for (key, (seq, what)) in &self.rows[&table.id] {
                let seq = table.seq_override.unwrap_or(*seq);
                // Either of two entries with one number may be kept: here the older layer's.
                if merged.get(key).is_none_or(|there| there.0 < seq) {
                    merged.insert(*key, (seq, *what));
                }
            }
        }
        if bottom {
            merged.retain(|_, row| matches!(row.1, What::Value(_)));
        }
        merged
    }

    /// The planned compaction ends, if the state still permits it.
    fn finish(&mut self) {
        let Some(Planned { on, work, remove }) = self.planned.take() else { return };
        let mut add = work.moves.clone();
        for group in &work.groups {
            let mut left = self.merged(&group.tables, group.bottom);
            let cut = self.chance.below(u64::from(KEYS)) as u8;
            let right = left.split_off(&cut);
            for rows in [left, right] {
                if !rows.is_empty() {
                    add.push(self.table(rows, None));
                }
            }
        }
        add.sort_by(|left, right| left.first_key.cmp(&right.first_key));
        self.names += 1;
        let edit = Edit::FinishCompaction(FinishCompaction {
            epoch: self.state.compactor_epoch,
            job: JobId(self.names),
            planned_on: on,
            remove: remove.iter().map(SstDescriptor::part).collect(),
            add,
            destination: work.destination,
            retire: Vec::new(),
        });
        self.finished += usize::from(self.commit(&edit).is_ok());
    }

    /// The result of a read, newest layer first.
    fn read(&self, key: u8) -> Option<What> {
        let mut layers = self.state.layers();
        let found = layers
            .find_map(|(_, tables)| tables.iter().find_map(|table| self.rows[&table.id].get(&key)));
        found.map(|row| row.1).filter(|what| matches!(what, What::Value(_)))
    }

    fn wrong(&self) -> Option<u8> {
        let should =
            |key: u8| self.newest.get(&key).copied().filter(|what| matches!(what, What::Value(_)));
        (0..=KEYS).find(|key| self.read(*key) != should(*key))
    }

    /// Steps until a read is wrong.
    fn run(&mut self) -> Option<u8> {
        for _ in 0..STEPS {
            match self.chance.below(8) {
                0 | 1 => self.flush(),
                2 => self.on_top(),
                3 | 4 => self.behind(),
                5 if self.planned.is_none() => self.plan(),
                _ => self.finish(),
            }
            if let Some(key) = self.wrong() {
                return Some(key);
            }
        }
        None
    }
}

#[test]
fn rows_behind_fill_unwritten_keys() {
    let (mut filled, mut shadowed, mut finished) = (0, 0, 0);
    for seed in 1..=2_000 {
        let mut place = Place::new(seed, Rules::ALL);
        let wrong = place.run();
        let layers = || place.state.layers().collect::<Vec<_>>();
        assert_eq!(wrong, None, "seed {seed}: {:#?}", layers());
        let numbers = place.state.tables().filter_map(|table| table.seq_override);
        assert!(numbers.into_iter().all(|seq| seq != HISTORY_BEGINS && seq > Seq(1 << 39)));
        filled += place.filled;
        shadowed += place.shadowed;
        finished += place.finished;
    }
    // The run was meaningful: keys were filled, others stayed, and compactions ended beside that.
    assert!(filled > 10_000 && shadowed > 10_000, "{filled} filled, {shadowed} shadowed");
    assert!(finished > 5_000, "{finished} compactions");
}

fn found_without(rule: Rule) -> bool {
    let rules = Rules::ALL.without(rule);
    (1..=200).any(|seed| Place::new(seed, rules).run().is_some())
}

#[test]
fn two_jobs_under_one_number_are_found_out() {
    assert!(found_without(Rule::BehindCountsDown), "a tie was always settled rightly");
}

#[test]
fn a_look_at_each_run_alone_is_found_out() {
    assert!(found_without(Rule::BehindBelowAll), "nothing ever landed above older rows");
}

#[test]
fn a_bottom_is_found_out() {
    assert!(found_without(Rule::BehindNoBottom), "no key was ever revived");
}
