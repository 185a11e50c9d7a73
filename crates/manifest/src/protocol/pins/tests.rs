use super::*;
use crate::edit::{Edit, FinishCompaction, FlushL0, NewCheckpoint};
use crate::testing::{manifest, table};
use proptest::prelude::*;
use siltstone_base::{Epoch, JobId, Seq};
use std::collections::BTreeMap;

/// A writer of epoch 2 on `manifest()`, a compactor of epoch 1, and the versions that the writer
/// reads.
struct World {
    chain: BTreeMap<ManifestId, Arc<Manifest>>,
    tip: Arc<Manifest>,
    pins: Pins,
    read: Vec<ManifestId>,
    made: u128,
}

impl World {
    fn new() -> World {
        let base = Arc::new(manifest());
        let chain = BTreeMap::from([(base.id, base.clone())]);
        let pins = Pins::new(CheckpointId(500), base.clone());
        let mut world = World { chain, tip: base, pins, read: vec![], made: 500 };
        let first = world.new_checkpoint();
        let claim = FlushL0 { checkpoint: Some(first), ..world.nothing() };
        world.commit(&Edit::FlushL0(claim));
        world.pins = Pins::new(CheckpointId(world.made), world.tip.clone());
        world
    }

    fn nothing(&self) -> FlushL0 {
        FlushL0::nothing(Epoch(2), &self.tip)
    }

    fn new_checkpoint(&mut self) -> NewCheckpoint {
        self.made += 1;
        NewCheckpoint { id: CheckpointId(self.made), ..NewCheckpoint::default() }
    }

    fn commit(&mut self, edit: &Edit) {
        let next = Arc::new(edit.apply(&self.tip).unwrap());
        assert!(edit.in_effect(&next), "{edit:?}");
        self.chain.insert(next.id, next.clone());
        self.tip = next;
    }

    /// A flush that was planned before `meanwhile` compactions were committed.
    fn flush(&mut self, meanwhile: usize) {
        let (new, release) = (self.new_checkpoint(), self.pins.releases(true));
        let checkpoint = new.id;
        for _ in 0..meanwhile {
            self.compact();
        }
        let (seq, name) = (self.tip.flushed_seq.0 + 1, SstId(10_000 + self.made));
        let reserve = Edit::ReserveNames { epoch: Epoch(2), names: vec![name] };
        self.commit(&reserve);
        let flush = FlushL0 {
            layers: vec![vec![table(name, b"a", b"z", seq, seq)]],
            flushed_seq: Seq(seq),
            checkpoint: Some(new),
            release,
            ..self.nothing()
        };
        self.commit(&Edit::FlushL0(flush));
        let (state, version) = (self.tip.clone(), self.tip.clone());
        self.pins.committed(&state, Some((checkpoint, version)));
        self.forget();
    }

    /// Merges everything into one table.
    fn compact(&mut self) {
        self.made += 1;
        let (min, max) = (1, self.tip.flushed_seq.0);
        let finish = FinishCompaction {
            epoch: Epoch(1),
            job: JobId(self.made),
            planned_on: ManifestId::FIRST,
            remove: self.tip.tables().map(|table| table.part()).collect(),
            add: vec![table(SstId(20_000 + self.made), b"a", b"z", min, max)],
            destination: 0,
            retire: vec![],
        };
        self.commit(&Edit::FinishCompaction(finish));
    }

    fn let_go(&mut self) {
        let release = self.pins.releases(false);
        let edit = FlushL0 { release, ..self.nothing() };
        self.commit(&Edit::FlushL0(edit));
        let state = self.tip.clone();
        self.pins.committed(&state, None);
    }

    fn begin_scan(&mut self) {
        self.read.extend(self.pins.newest().map(|version| version.id));
    }

    fn end_scan(&mut self, which: usize) {
        if !self.read.is_empty() {
            self.read.remove(which % self.read.len());
        }
        self.forget();
    }

    fn forget(&mut self) {
        let read = self.read.clone();
        self.pins.forget_unread(|id| read.contains(&id));
    }

    /// Tables that a collector without grace period keeps.
    fn alive(&self) -> BTreeSet<SstId> {
        let pinned = self.tip.checkpoints.iter().filter_map(|one| self.chain.get(&one.manifest_id));
        let tables = pinned.flat_map(|one| one.tables()).chain(self.tip.tables());
        tables.map(|table| table.id).collect()
    }

    fn own_checkpoints(&self) -> usize {
        let own = crate::state::CheckpointOwner::Writer(Epoch(2));
        self.tip.checkpoints.iter().filter(|one| one.owner == own).count()
    }

    fn check(&self) {
        let alive = self.alive();
        let newest = self.pins.newest().map(|version| version.id);
        for id in self.read.iter().chain(&newest) {
            let missing = self.chain[id].tables().find(|table| !alive.contains(&table.id));
            assert!(missing.is_none(), "version {id} lacks {missing:?}");
        }
    }
}

#[test]
fn a_flush_alone_keeps_one_checkpoint() {
    let mut world = World::new();
    for _ in 0..5 {
        world.begin_scan();
        world.flush(0);
        assert_eq!(world.own_checkpoints(), 1);
        assert!(!world.pins.has_unread());
        world.check();
    }
}

#[test]
fn compacted_tables_stay_until_their_last_scan_ends() {
    let mut world = World::new();
    world.begin_scan();
    world.flush(1);
    assert_eq!(world.own_checkpoints(), 2);
    world.check();
    assert!(!world.pins.has_unread());
    world.end_scan(0);
    assert!(world.pins.has_unread());
    world.let_go();
    assert_eq!(world.own_checkpoints(), 1);
    assert!(!world.pins.has_unread());
}

#[test]
fn an_overtaken_plan_lets_nothing_go_that_a_scan_begun_meanwhile_reads() {
    let mut world = World::new();
    // The plan is made while no scan runs; the compaction and the scan come before its commit.
    world.flush(1);
    world.check();
    assert_eq!(world.own_checkpoints(), 2, "the version that was the newest then may be read");
    assert!(world.pins.has_unread());
}

proptest! {
    /// For every order of events: every version that is read has all its tables, and once no old
    /// version is read, one commit leaves one checkpoint.
    #[test]
    fn nothing_that_is_read_goes(steps in prop::collection::vec((0..6u8, 0..4usize), 1..40)) {
        let mut world = World::new();
        for (step, n) in steps {
            match step {
                0 => world.begin_scan(),
                1 => world.end_scan(n),
                2 => world.compact(),
                3 => world.let_go(),
                _ => world.flush(n % 3),
            }
            world.check();
        }
        world.read.clear();
        world.forget();
        world.let_go();
        prop_assert_eq!(world.own_checkpoints(), 1);
        prop_assert_eq!(world.pins.checkpoints().count(), 1);
    }
}
