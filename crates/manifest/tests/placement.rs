//! The placement of ingested tables (RFC 0035, rules N2, N3, P1, P2): random jobs beside flushes,
//! and compactions that were planned before them, against a model of every key. A read takes the
//! newest layer that has the key, a scan the largest number; both must find the newest version.
//! Tables may be given up in between (RFC 0034, rule Y4): then no older version of their keys is
//! found.

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
use siltstone_base::{DatabaseId, JobId, ManifestId, Seq, SstDescriptor, SstId, TablePart};
use siltstone_manifest::ingest::layered;
use siltstone_manifest::{
    Conflict, Edit, FinishCompaction, FlushL0, GiveUpTable, GivenUpPart, IngestEdit, InstallIngest,
    Manifest, RequestIngest, Rule, Rules, Settings,
};
use std::collections::{BTreeMap, BTreeSet};

const STEPS: usize = 60;

type Rows = BTreeMap<u8, Seq>;

/// A planned compaction: its inputs, and its outputs.
struct Planned {
    on: ManifestId,
    remove: Vec<TablePart>,
    destination: u32,
}

struct Place {
    rules: Rules,
    chance: Chance,
    state: Manifest,
    /// The content of every table.
    rows: BTreeMap<SstId, Rows>,
    newest: Rows,
    planned: Option<Planned>,
    names: u128,
    slotted: usize,
    finished: usize,
    replaced: usize,
    cut: usize,
    /// Whether tables are given up.
    gives_up: bool,
    given_up: usize,
    /// Number of them that had several parts.
    in_parts: usize,
    covered: usize,
    /// Tables that could not be given up.
    refused: usize,
}

impl Place {
    fn new(seed: u64, rules: Rules) -> Place {
        let empty = Manifest::new_database(DatabaseId(7), Settings::default());
        Place {
            rules,
            chance: Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            state: claimed(&empty),
            rows: BTreeMap::new(),
            newest: Rows::new(),
            planned: None,
            names: 0,
            slotted: 0,
            finished: 0,
            replaced: 0,
            cut: 0,
            gives_up: false,
            given_up: 0,
            in_parts: 0,
            covered: 0,
            refused: 0,
        }
    }

    fn name(&mut self) -> SstId {
        self.names += 1;
        SstId(self.names)
    }

    fn table(&mut self, rows: Rows, job: Option<JobId>) -> SstDescriptor {
        let id = self.name();
        let key = |key: Option<&u8>| Bytes::copy_from_slice(&[*key.expect("rows")]);
        let (first_key, last_key) = (key(rows.keys().next()), key(rows.keys().last()));
        let seqs = || rows.values().copied();
        let (min_seq, max_seq) = (seqs().min(), seqs().max());
        self.rows.insert(id, rows.clone());
        SstDescriptor {
            id,
            location: SstLocation::Own,
            job,
            object_bytes: 100,
            checksum: 7,
            tail_offset: 50,
            first_key,
            last_key,
            visible_start: None,
            visible_end: None,
            seq_override: None,
            entries: rows.len() as u64,
            tombstones: 0,
            min_seq: min_seq.unwrap_or_default(),
            max_seq: max_seq.unwrap_or_default(),
            min_expiry: None,
            max_expiry: None,
            range_deletes: None,
            sum: None,
        }
    }

    fn commit(&mut self, edit: &Edit) -> Result<(), siltstone_manifest::Refusal> {
        self.state = edit.apply_with(&self.state, self.rules)?;
        Ok(())
    }

    /// A memtable becomes a table, and the same commit may install a job before or after it.
    fn flush(&mut self, with_table: bool, with_job: bool) {
        let job_first = self.chance.below(2) == 0;
        let mut seq = self.state.flushed_seq;
        let (mut layers, mut ingests) = (Vec::new(), Vec::new());
        for turn in [true, false] {
            if turn == job_first && with_job {
                let install = self.job(seq.next(), layers.len());
                seq = seq.plus(install.layers.len() as u64);
                ingests.push(install);
            }
            if turn != job_first && with_table {
                seq = seq.next();
                let rows: Rows = self.chance.keys().into_iter().map(|key| (key, seq)).collect();
                self.newest.extend(&rows);
                let table = self.table(rows, None);
                let (epoch, names) = (self.state.writer_epoch, vec![table.id]);
                self.commit(&Edit::ReserveNames { epoch, names }).expect("a fresh name");
                layers.push(vec![table]);
            }
        }
        let nothing = FlushL0::nothing(self.state.writer_epoch, &self.state);
        let edit = Edit::FlushL0(FlushL0 { layers, ingests, flushed_seq: seq, ..nothing });
        let runs = |state: &Manifest| state.runs.iter().map(|run| run.tables.len()).sum::<usize>();
        let before = runs(&self.state);
        self.commit(&edit).expect("a flush fits");
        self.slotted += runs(&self.state) - before;
    }

    /// Requests a job with some tables that may share keys.
    fn job(&mut self, first: Seq, after: usize) -> InstallIngest {
        let job = JobId(u128::from(1_000_000u64) << 80 | self.names);
        let count = 1 + self.chance.below(4);
        let mut tables: Vec<SstDescriptor> = Vec::new();
        let mut within = 0..=KEYS;
        if self.chance.below(3) == 0 {
            // It replaces a range (rule P5): the first table has an entry for every key of the
            // range, and later tables lie in it.
            let first = self.chance.below(u64::from(KEYS)) as u8;
            within = first..=(first + self.chance.below(12) as u8).min(KEYS);
            let rows = within.clone().map(|key| (key, Seq::NONE)).collect();
            tables.push(self.table(rows, Some(job)));
            self.replaced += 1;
        }
        for _ in 0..count {
            let keys = self.chance.keys().into_iter();
            let inside = keys.map(|key| key.clamp(*within.start(), *within.end()));
            let rows = inside.map(|key| (key, Seq::NONE)).collect();
            tables.push(self.table(rows, Some(job)));
        }
        let mut layers = layered(tables);
        for (at, tables) in layers.iter_mut().enumerate() {
            let seq = first.plus(at as u64);
            for table in tables {
                table.seq_override = Some(seq);
                let rows = self.rows.get_mut(&table.id).expect("it was made");
                rows.values_mut().for_each(|row| *row = seq);
                self.newest.extend(rows.iter().map(|(key, seq)| (*key, *seq)));
            }
        }
        let digest = Bytes::from_static(b"digest");
        let request = RequestIngest {
            job,
            database: DatabaseId(7),
            timeline: None,
            digest: digest.clone(),
            app: None,
            requested_at: siltstone_base::UnixMillis(0),
        };
        self.commit(&Edit::Ingest(IngestEdit::Request(request))).expect("it fits");
        InstallIngest { after, job, digest, layers }
    }

    fn plan(&mut self) {
        let parts: Vec<TablePart> = self.state.tables().map(SstDescriptor::part).collect();
        let remove = parts.into_iter().filter(|_| self.chance.below(3) == 0).collect();
        let destination = self.chance.below(4) as u32;
        self.planned = Some(Planned { on: self.state.id, remove, destination });
    }

    /// The planned compaction ends, if the state still permits it.
    fn finish(&mut self) {
        let Some(planned) = self.planned.take() else { return };
        let mut merged = Rows::new();
        let going: Vec<SstDescriptor> = self.state.tables().cloned().collect();
        for table in going.iter().filter(|table| planned.remove.contains(&table.part())) {
            for (key, seq) in &self.rows[&table.id] {
                if !table.covers(&[*key]) {
                    continue;
                }
                let there = merged.entry(*key).or_default();
                *there = (*there).max(*seq);
            }
        }
        if merged.is_empty() {
            return;
        }
        // Cut at a point that is likely to be in a table placed in between.
        let cut = self.chance.below(u64::from(KEYS)) as u8;
        let right = merged.split_off(&cut);
        let add = [merged, right].into_iter().filter(|rows| !rows.is_empty());
        let add = add.map(|rows| self.table(rows, None)).collect();
        self.names += 1;
        let edit = Edit::FinishCompaction(FinishCompaction {
            epoch: self.state.compactor_epoch,
            job: JobId(self.names),
            planned_on: planned.on,
            remove: planned.remove.clone(),
            add,
            destination: planned.destination,
            retire: Vec::new(),
        });
        let cut = |state: &Manifest| state.tables().filter(|table| table.is_cut()).count();
        let before = cut(&self.state);
        if self.commit(&edit).is_ok() {
            self.finished += 1;
            self.cut += usize::from(cut(&self.state) > before);
        }
    }

    /// An unreadable table is given up; `false` if that would break an invariant.
    fn give_up(&mut self) -> bool {
        let tables = self.state.tables().count() as u64;
        if tables == 0 {
            return true;
        }
        // Parts and wide tables are the most likely to show errors.
        let drawn = [(); 3].map(|()| self.chance.below(tables) as usize);
        let of = |nth: usize| self.state.tables().nth(nth).expect("so many");
        let width = |table: &SstDescriptor| table.last_key[0] - table.first_key[0];
        let lost = drawn.map(of).into_iter().max_by_key(|table| (table.is_cut(), width(table)));
        let lost = lost.expect("three").clone();
        let parts = match GivenUpPart::all(&self.state, lost.id, self.rules) {
            Ok(parts) => parts,
            Err(refusal) => {
                let no_room = Conflict::NoRoomForCover { table: lost.id };
                assert_eq!(refusal, no_room.into());
                self.refused += 1;
                return true;
            }
        };
        let mut covers = Vec::new();
        for part in &parts {
            covers.push((part.table.part(), self.cover(part)));
        }
        let edit = Edit::GiveUpTable(GiveUpTable {
            epoch: self.state.writer_epoch,
            table: lost.id,
            covers,
            checkpoints: Vec::new(),
        });
        self.given_up += 1;
        self.in_parts += usize::from(parts.len() > 1);
        self.commit(&edit).is_ok()
    }

    /// The replacement of a part; the model includes it.
    fn cover(&mut self, part: &GivenUpPart) -> Option<SstDescriptor> {
        let span: Vec<u8> = (0..=KEYS).filter(|key| part.table.covers(&[*key])).collect();
        let hides = |table: &SstDescriptor, key: u8| {
            table.covers(&[key]) && self.rows[&table.id].contains_key(&key)
        };
        let newer: BTreeSet<u8> = (self.state.layers())
            .take_while(|(layer, _)| *layer != part.layer)
            .flat_map(|(_, tables)| tables)
            .flat_map(|table| span.iter().copied().filter(move |key| hides(table, *key)))
            .collect();
        for key in span.iter().filter(|key| !newer.contains(key)) {
            match part.cover {
                Some(seq) => self.newest.insert(*key, seq),
                None => self.newest.remove(key),
            };
        }
        let seq = part.cover?;
        let table = self.table(span.into_iter().map(|key| (key, seq)).collect(), None);
        let (epoch, names) = (self.state.writer_epoch, vec![table.id]);
        self.commit(&Edit::ReserveNames { epoch, names }).expect("a fresh name");
        self.covered += 1;
        Some(table)
    }

    /// The result of a scan: the largest number in any layer.
    fn scan(&self, key: u8) -> Option<Seq> {
        let tables = self.state.tables().filter(|table| table.covers(&[key]));
        tables.filter_map(|table| self.rows[&table.id].get(&key).copied()).max()
    }

    /// The result of a read, newest layer first.
    fn read(&self, key: u8) -> Option<Seq> {
        let mut layers = self.state.layers();
        layers.find_map(|(_, tables)| {
            let mut tables = tables.iter().filter(|table| table.covers(&[key]));
            tables.find_map(|table| self.rows[&table.id].get(&key).copied())
        })
    }

    fn wrong(&self) -> Option<u8> {
        (0..=KEYS).find(|key| {
            let newest = self.newest.get(key).copied();
            self.read(*key) != newest || self.scan(*key) != newest
        })
    }

    /// Steps until a read is wrong.
    fn run(&mut self) -> Option<u8> {
        for _ in 0..STEPS {
            match self.chance.below(6) {
                0 => self.flush(true, false),
                1 | 2 => self.flush(false, true),
                3 => self.flush(true, true),
                4 if self.planned.is_none() => self.plan(),
                _ => self.finish(),
            }
            if self.gives_up && self.chance.below(8) == 0 && !self.give_up() {
                return Some(0);
            }
            if let Some(key) = self.wrong() {
                return Some(key);
            }
        }
        None
    }
}

#[test]
fn every_key_reads_as_its_newest_version() {
    let (mut slotted, mut finished, mut replaced, mut cut) = (0, 0, 0, 0);
    for seed in 1..=3_000 {
        let mut place = Place::new(seed, Rules::ALL);
        let wrong = place.run();
        assert_eq!(wrong, None, "seed {seed}: {:#?}", place.state.layers().collect::<Vec<_>>());
        slotted += place.slotted;
        finished += place.finished;
        replaced += place.replaced;
        cut += place.cut;
    }
    // The run was meaningful: tables were placed into runs, compactions ended beside them, and
    // ranges were replaced.
    assert!(slotted > 10_000 && finished > 400, "{slotted} slotted, {finished} finished");
    assert!(replaced > 10_000, "{replaced} ranges");
    assert!(cut > 50, "{cut} compactions were cut around what was slotted in");
}

#[test]
fn a_look_at_the_run_alone_is_found_out() {
    let rules = Rules::ALL.without(Rule::PlaceBelowNothingNewer);
    let found = (1..=50).find(|seed| Place::new(*seed, rules).run().is_some());
    assert!(found.is_some(), "older values never won");
}

/// P3: a table placed into a gap does not cost a compaction its work.
#[test]
fn a_compaction_that_is_not_cut_is_given_up() {
    let finished = |rules: Rules| {
        let run = |seed| {
            let mut place = Place::new(seed, rules);
            assert_eq!(place.run(), None, "seed {seed}");
            place.finished
        };
        (1..=300).map(run).sum::<usize>()
    };
    let (cut, given_up) =
        (finished(Rules::ALL), finished(Rules::ALL.without(Rule::CutAroundSlotted)));
    assert!(cut > given_up, "{cut} ended with the rule, {given_up} without");
}

fn giving_up(seed: u64, rules: Rules) -> Place {
    Place { gives_up: true, ..Place::new(seed, rules) }
}

#[test]
fn nothing_returns_that_a_table_given_up_had_hidden() {
    let (mut given_up, mut in_parts, mut covered, mut refused) = (0, 0, 0, 0);
    for seed in 1..=1_000 {
        let mut place = giving_up(seed, Rules::ALL);
        let wrong = place.run();
        assert_eq!(wrong, None, "seed {seed}: {:#?}", place.state.layers().collect::<Vec<_>>());
        given_up += place.given_up;
        in_parts += place.in_parts;
        covered += place.covered;
        refused += place.refused;
    }
    println!("{given_up} given up, {in_parts} in parts; {covered} covers, {refused} refused");
    assert!(given_up > 3_000 && covered > 700, "{given_up} given up, {covered} covered");
    assert!(in_parts > 5, "{in_parts} were there in parts");
    // Equal neighbouring numbers above and below a table, without a number in between, are rare.
    assert!(refused * 20 < given_up, "{refused} refused of {given_up}");
}

#[test]
fn each_rule_of_giving_up_dropped_is_found_out() {
    for rule in [Rule::CoverWhatIsGivenUp, Rule::CoverBetween] {
        let rules = Rules::ALL.without(rule);
        let found = (1..=3_000).find(|seed| giving_up(*seed, rules).run().is_some());
        println!("without {rule:?}: found by seed {found:?}");
        assert!(found.is_some(), "nothing was wrong without {rule:?}");
    }
}
