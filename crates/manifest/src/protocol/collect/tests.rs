use super::*;
use crate::edit::{FinishCompaction, FlushL0, NewCheckpoint};
use crate::protocol::testing::{TinyStore, opener};
use crate::testing::table;
use siltstone_base::{AttemptId, CheckpointId, Epoch, JobId, Seq, WalId};

const LATE: UnixMillis = UnixMillis(1000);

/// The store of this folder with tables, job records, and every object old.
struct World {
    store: TinyStore,
    tables: Vec<SstId>,
    jobs: Vec<JobReservation>,
}

impl World {
    /// A writer of epoch 1 with names 50 and 51, and a compactor of epoch 1.
    fn new() -> World {
        let mut store = TinyStore::new();
        let mut open = opener(&store, 1, 1, Rules::ALL);
        store.finish(&mut open).unwrap();
        let names = vec![SstId(50), SstId(51)];
        store.commit(Edit::ReserveNames { epoch: Epoch(1), names }).unwrap();
        let claim = AttemptId(7);
        store.commit(Edit::ClaimCompactor { writer: None, expected: Epoch::NONE, claim }).unwrap();
        World { store, tables: vec![], jobs: vec![] }
    }

    fn listed(&self) -> Vec<ListedObject> {
        let manifests = self.store.manifests.keys().map(|id| ObjectName::Manifest(*id));
        let wal = self.store.wal.keys().map(|id| ObjectName::Wal(*id));
        let tables = self.tables.iter().map(|id| ObjectName::Compacted(*id));
        let boundaries = [
            ObjectName::ManifestBoundary(self.store.manifest_boundary),
            ObjectName::WalBoundary(self.store.wal_boundary),
        ];
        let real = |name: &ObjectName| {
            *name != ObjectName::ManifestBoundary(ManifestId::NONE)
                && *name != ObjectName::WalBoundary(WalId::NONE)
        };
        let names = manifests.chain(wal).chain(tables).chain(boundaries.into_iter().filter(real));
        names.map(|name| ListedObject { name, modified: UnixMillis(1) }).collect()
    }

    fn collect(&self, rules: Rules) -> Collect {
        Collect::new(self.store.newest(), LATE, LATE, rules)
    }

    fn step(&mut self, collect: &mut Collect) {
        match collect.action() {
            CollectAction::Request(request) => collect.on_answer(self.store.serve(request)),
            CollectAction::ListObjects => collect.on_objects(self.listed()),
            CollectAction::ReadJobs => collect.on_jobs(self.jobs.clone(), vec![]),
            CollectAction::CreateBoundary(name) => {
                match name {
                    ObjectName::ManifestBoundary(id) => self.store.manifest_boundary = id,
                    ObjectName::WalBoundary(id) => self.store.wal_boundary = id,
                    other => panic!("not a boundary: {other}"),
                }
                collect.on_boundary(PutOutcome::Committed);
            }
            CollectAction::Delete(name) => {
                match name {
                    ObjectName::Manifest(id) => drop(self.store.manifests.remove(&id)),
                    ObjectName::Wal(id) => drop(self.store.wal.remove(&id)),
                    ObjectName::Compacted(id) => self.tables.retain(|table| *table != id),
                    _ => {}
                }
                collect.on_deleted(true);
            }
            CollectAction::Done(_) => panic!("the round is over"),
        }
    }

    fn finish(&mut self, collect: &mut Collect) -> CollectReport {
        loop {
            match collect.action() {
                CollectAction::Done(report) => return report,
                _ => self.step(collect),
            }
        }
    }

    /// Steps until the collector wants something for which `reached` holds.
    fn step_to(&mut self, collect: &mut Collect, reached: fn(&CollectAction) -> bool) {
        while !reached(&collect.action()) {
            self.step(collect);
        }
    }

    fn flush(&mut self, name: u128, seq: u64) {
        let newest = self.store.newest();
        let flush = FlushL0 {
            layers: vec![vec![table(SstId(name), b"a", b"z", seq, seq)]],
            flushed_seq: Seq(seq),
            ..FlushL0::nothing(Epoch(1), &newest)
        };
        self.store.commit(Edit::FlushL0(flush)).unwrap();
    }

    fn compact(&mut self, remove: u128, add: u128) {
        let finish = FinishCompaction {
            epoch: Epoch(1),
            job: JobId(1),
            remove: vec![SstId(remove)],
            add: vec![table(SstId(add), b"a", b"z", 1, 1)],
            destination: 0,
            retire: vec![],
        };
        self.store.commit(Edit::FinishCompaction(finish)).unwrap();
    }
}

#[test]
fn a_round_frees_what_nobody_names_and_nothing_else() {
    let mut world = World::new();
    world.tables = vec![SstId(50), SstId(51), SstId(99)];
    world.flush(50, 1);
    let mut collect = world.collect(Rules::ALL);
    let report = world.finish(&mut collect);
    assert!(!report.overtaken);
    // 51 is reserved.
    assert_eq!(world.tables, vec![SstId(50), SstId(51)]);
    let newest = world.store.newest().id;
    assert_eq!(world.store.manifests.keys().copied().collect::<Vec<_>>(), vec![newest]);
    assert_eq!(world.store.manifest_boundary, newest.minus(1));
}

#[test]
fn a_second_round_at_rest_deletes_nothing() {
    let mut world = World::new();
    let mut collect = world.collect(Rules::ALL);
    world.finish(&mut collect);
    let mut again = world.collect(Rules::ALL);
    assert_eq!(world.finish(&mut again), CollectReport::default());
}

/// G1: gc lists x, reads the manifest (no x yet), the compactor commits x and ends its job, gc
/// finds no job either, and deletes x.
#[test]
fn a_table_committed_during_a_round_survives() {
    for (rules, survives) in [(Rules::ALL, true), (Rules::ALL.without(Rule::CollectorOrder), false)]
    {
        let mut world = World::new();
        world.flush(50, 1);
        world.tables = vec![SstId(50), SstId(70)];
        world.jobs = vec![JobReservation { job: JobId(1), outputs: vec![SstId(70)] }];
        // One manifest alone, so that a round in the wrong order reads it first.
        let first = world.store.newest().id.get() - 1;
        world.store.free_manifests(first);
        let mut newest = Manifest::clone(&world.store.newest());
        newest.id = ManifestId(1);
        world.store.manifests = [(newest.id, Arc::new(newest))].into();
        world.store.manifest_boundary = ManifestId::NONE;
        let mut collect = world.collect(rules);
        world.step_to(&mut collect, |action| *action == CollectAction::ReadJobs);
        world.compact(50, 70);
        world.jobs.clear();
        world.finish(&mut collect);
        assert_eq!(world.tables.contains(&SstId(70)), survives);
    }
}

/// M5: a table that only an older manifest above the boundary names.
#[test]
fn a_manifest_above_the_boundary_keeps_its_tables() {
    for (rules, survives) in
        [(Rules::ALL, true), (Rules::ALL.without(Rule::ManifestsKeepTables), false)]
    {
        let mut world = World::new();
        world.flush(50, 1);
        world.tables = vec![SstId(50), SstId(70)];
        world.compact(50, 70);
        let mut collect = world.collect(rules);
        // The listing was made before the compaction's manifest was stored.
        let newest = world.store.newest().id;
        let mut listed = world.listed();
        listed.retain(|object| object.name != ObjectName::Manifest(newest));
        collect.on_objects(listed);
        world.finish(&mut collect);
        assert!(world.store.manifests.contains_key(&newest.minus(1)));
        assert_eq!(world.tables.contains(&SstId(50)), survives);
    }
}

fn with_expired_checkpoint() -> World {
    let mut world = World::new();
    let expired = NewCheckpoint {
        id: CheckpointId(5),
        expires_at: Some(UnixMillis(10)),
        wal_id_last_seen: Some(WalId(3)),
        ..NewCheckpoint::default()
    };
    world.store.commit(Edit::AddCheckpoint(expired)).unwrap();
    world.store.data(2, 1);
    world.store.data(3, 1);
    let newest = world.store.newest();
    let flush = FlushL0 { replay_from: WalId(4), ..FlushL0::nothing(Epoch(1), &newest) };
    world.store.commit(Edit::FlushL0(flush)).unwrap();
    world
}

/// G3: gc decides "expired" on V; the refresh lands in V+1.
#[test]
fn a_checkpoint_refreshed_in_time_keeps_its_wal() {
    for (rules, survives) in [(Rules::ALL, true), (Rules::ALL.without(Rule::RevokeFirst), false)] {
        let mut world = with_expired_checkpoint();
        let mut collect = world.collect(rules);
        if rules == Rules::ALL {
            // Planned on V, as yet not created.
            assert!(matches!(collect.action(), CollectAction::Request(ManifestRequest::Create(_))));
        } else {
            world
                .step_to(&mut collect, |action| matches!(action, CollectAction::CreateBoundary(_)));
        }
        let id = CheckpointId(5);
        let refresh = Edit::RefreshCheckpoint { id, expires_at: Some(UnixMillis(5000)) };
        world.store.commit(refresh).unwrap();
        world.finish(&mut collect);
        let present = world.store.newest().checkpoint(id).is_some();
        assert!(present);
        assert_eq!(world.store.wal.contains_key(&WalId(3)), survives);
    }
}

#[test]
fn an_expired_checkpoint_goes_by_a_commit_and_then_its_wal() {
    let mut world = with_expired_checkpoint();
    let mut collect = world.collect(Rules::ALL);
    world.finish(&mut collect);
    assert!(world.store.newest().checkpoint(CheckpointId(5)).is_none());
    assert_eq!(world.store.wal.len(), 0);
    assert_eq!(world.store.wal_boundary, WalId(3));
}

/// Nothing is deleted before its boundary is known to be there.
#[test]
fn deletes_wait_for_the_boundary() {
    let mut world = with_expired_checkpoint();
    let mut collect = world.collect(Rules::ALL);
    world.step_to(&mut collect, |action| matches!(action, CollectAction::CreateBoundary(_)));
    let asked = collect.action();
    assert!(matches!(asked, CollectAction::CreateBoundary(ObjectName::ManifestBoundary(_))));
    collect.on_boundary(PutOutcome::Unknown);
    collect.on_boundary(PutOutcome::NotApplied);
    assert_eq!(collect.action(), asked);
    let before = world.store.manifests.len();
    world.finish(&mut collect);
    assert!(world.store.manifests.len() < before);
    assert!(world.store.manifest_boundary > ManifestId::NONE);

    let mut world = with_expired_checkpoint();
    let mut hasty = world.collect(Rules::ALL.without(Rule::BoundaryFirst));
    world.finish(&mut hasty);
    assert_eq!(world.store.manifest_boundary, ManifestId::NONE);
    assert!(world.store.manifests.len() < before);
}

/// Another collector freed what this one was reading.
#[test]
fn an_overtaken_round_deletes_nothing() {
    let mut world = World::new();
    world.tables = vec![SstId(99)];
    let mut collect = world.collect(Rules::ALL);
    collect.on_objects(world.listed());
    world.store.grow(5);
    world.store.free_manifests(world.store.newest().id.get() - 1);
    let report = world.finish(&mut collect);
    assert_eq!(report, CollectReport { overtaken: true, ..CollectReport::default() });
    assert_eq!(world.tables, vec![SstId(99)]);
}

/// The newest manifest was proven, and then everything it stands on was freed.
#[test]
fn a_round_verifies_that_nothing_it_read_was_freed() {
    for (rules, overtaken) in
        [(Rules::ALL, true), (Rules::ALL.without(Rule::CollectorVerifies), false)]
    {
        let mut world = World::new();
        world.tables = vec![SstId(99)];
        let mut collect = world.collect(rules);
        collect.on_objects(world.listed());
        world.step_to(&mut collect, |action| {
            matches!(action, CollectAction::Request(ManifestRequest::Read(_)))
        });
        // Read and proven; what follows happens before the last listing.
        world.step(&mut collect);
        world.step(&mut collect);
        world.store.grow(5);
        world.store.free_manifests(world.store.newest().id.get() - 1);
        assert_eq!(world.finish(&mut collect).overtaken, overtaken);
    }
}

/// G4: a failed delete stops neither tables nor the other numbered folder, but what is numbered
/// above it.
#[test]
fn a_failed_delete_keeps_numbered_names_ascending() {
    let mut world = with_expired_checkpoint();
    world.tables = vec![SstId(99)];
    let mut collect = world.collect(Rules::ALL);
    world.step_to(&mut collect, |action| matches!(action, CollectAction::Delete(_)));
    assert!(matches!(collect.action(), CollectAction::Delete(ObjectName::Manifest(_))));
    collect.on_deleted(false);
    let report = world.finish(&mut collect);
    assert_eq!(report.failed, 1);
    assert_eq!(world.tables, vec![]);
    assert_eq!(world.store.wal.len(), 0);
    assert!(world.store.manifests.contains_key(&ManifestId(1)));
}

#[test]
fn tables_may_go_at_once_and_numbered_names_may_not() {
    let mut world = World::new();
    world.tables = [97, 98, 99].map(SstId).to_vec();
    let mut collect = world.collect(Rules::ALL);
    world.step_to(&mut collect, |action| matches!(action, CollectAction::Delete(_)));
    assert_eq!(collect.deletable_at_once(9), vec![]);
    world.step_to(&mut collect, |action| {
        matches!(action, CollectAction::Delete(ObjectName::Compacted(_)))
    });
    let both = [97, 98].map(|id| ObjectName::Compacted(SstId(id))).to_vec();
    assert_eq!(collect.deletable_at_once(2), both);
    (0..3).for_each(|_| collect.on_deleted(true));
    assert!(matches!(collect.action(), CollectAction::Done(_)));
}
