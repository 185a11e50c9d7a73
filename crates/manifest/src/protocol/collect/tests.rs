use super::*;
use crate::compaction::record::{JobParameters, JobRange, RecordListing};
use crate::compaction::{Compactions, Job, KeyRange, PlanReason};
use crate::edit::{
    AdvanceHold, FinishCompaction, FlushL0, HoldFrom, InstallIngest, NewCheckpoint, RequestIngest,
    TakeHold,
};
use crate::protocol::testing::{TinyStore, opener};
use crate::state::LogPlace;
use crate::testing::table;
use bytes::Bytes;
use siltstone_base::id::ulid_bits;
use siltstone_base::{AttemptId, CheckpointId, Epoch, JobId, Seq, SstDescriptor, SstId, WalId};

const LATE: UnixMillis = UnixMillis(1000);

/// The store of this folder with tables and job records, every object old.
struct World {
    store: TinyStore,
    tables: Vec<SstId>,
    /// The chain of job records, and its boundary.
    records: BTreeMap<u64, Arc<Compactions>>,
    record_boundary: u64,
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
        World { store, tables: vec![], records: BTreeMap::new(), record_boundary: 0 }
    }

    /// The next record: one job that reserves these names, or none.
    fn record(&mut self, reserved: &[u128]) {
        let number = self.records.keys().next_back().copied().unwrap_or_default() + 1;
        let keys = KeyRange { start: Bytes::new(), end: None, bottom: false };
        let range = JobRange {
            reserved: reserved.iter().copied().map(SstId).collect(),
            ..JobRange::open(keys)
        };
        let job = Job {
            id: JobId(1),
            reason: PlanReason::Manual,
            planned_on: ManifestId(1),
            started_at: UnixMillis(1),
            inputs: vec![],
            destination: 0,
            drops: vec![],
            moves: vec![],
            parameters: JobParameters::default(),
            ranges: vec![range],
            cancelled: false,
        };
        let jobs = if reserved.is_empty() { vec![] } else { vec![job] };
        let database = self.store.newest().database;
        let record = Compactions { number, epoch: Epoch(1), jobs, ..Compactions::none(database) };
        self.records.insert(number, Arc::new(record));
    }

    fn serve_record(&self, request: RecordRequest) -> RecordAnswer {
        match request {
            RecordRequest::Create(_) => panic!("a look creates nothing"),
            RecordRequest::List => {
                let newest = self.records.keys().next_back().copied().unwrap_or_default();
                RecordAnswer::Listed(RecordListing { newest, boundary: self.record_boundary })
            }
            RecordRequest::Read(number) => RecordAnswer::Read(self.records.get(&number).cloned()),
        }
    }

    fn listed(&self) -> Vec<ListedObject> {
        let manifests = self.store.manifests.keys().map(|id| ObjectName::Manifest(*id));
        let wal = self.store.wal.keys().map(|id| ObjectName::Wal(*id));
        let tables = self.tables.iter().map(|id| ObjectName::Compacted(*id));
        let records = self.records.keys().map(|number| ObjectName::Compactions(*number));
        let boundaries = [
            ObjectName::ManifestBoundary(self.store.manifest_boundary),
            ObjectName::WalBoundary(self.store.wal_boundary),
            ObjectName::CompactionsBoundary(self.record_boundary),
        ];
        let real = |name: &ObjectName| {
            *name != ObjectName::ManifestBoundary(ManifestId::NONE)
                && *name != ObjectName::WalBoundary(WalId::NONE)
                && *name != ObjectName::CompactionsBoundary(0)
        };
        let names = manifests.chain(wal).chain(tables).chain(records);
        let names = names.chain(boundaries.into_iter().filter(real));
        names.map(|name| ListedObject { name, modified: UnixMillis(1), bytes: 1 }).collect()
    }

    fn collect(&self, rules: Rules) -> Collect {
        Collect::new(self.store.newest(), LATE, LATE, rules)
    }

    fn step(&mut self, collect: &mut Collect) {
        match collect.action() {
            CollectAction::Request(request) => collect.on_answer(self.store.serve(request)),
            CollectAction::ListObjects => collect.on_objects(self.listed()),
            CollectAction::Record(request) => collect.on_record(self.serve_record(request)),
            CollectAction::ReadJobs(_) => panic!("no application brings anything here"),
            CollectAction::CreateBoundary(name) => {
                match name {
                    ObjectName::ManifestBoundary(id) => self.store.manifest_boundary = id,
                    ObjectName::WalBoundary(id) => self.store.wal_boundary = id,
                    ObjectName::CompactionsBoundary(number) => self.record_boundary = number,
                    other => panic!("not a boundary: {other}"),
                }
                collect.on_boundary(PutOutcome::Committed);
            }
            CollectAction::Delete(names) => {
                names.iter().for_each(|name| self.delete(*name));
                collect.on_deleted(&vec![true; names.len()]);
            }
            CollectAction::Done(_) => panic!("the round is over"),
        }
    }

    fn delete(&mut self, name: ObjectName) {
        match name {
            ObjectName::Manifest(id) => drop(self.store.manifests.remove(&id)),
            ObjectName::Wal(id) => drop(self.store.wal.remove(&id)),
            ObjectName::Compacted(id) => self.tables.retain(|table| *table != id),
            ObjectName::Compactions(number) => drop(self.records.remove(&number)),
            _ => {}
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

    /// Steps until `reached` holds for the collector's next action.
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
            planned_on: ManifestId::FIRST,
            remove: vec![SstId(remove).into()],
            add: vec![table(SstId(add), b"a", b"z", 1, 1)],
            destination: 0,
            retire: vec![],
        };
        self.store.commit(Edit::FinishCompaction(finish)).unwrap();
    }
}

#[test]
fn a_round_frees_exactly_the_unreferenced_objects() {
    let mut world = World::new();
    world.tables = vec![SstId(50), SstId(51), SstId(99)];
    world.flush(50, 1);
    let mut collect = world.collect(Rules::ALL);
    let report = world.finish(&mut collect);
    assert!(!report.overtaken);
    // 51 is reserved.
    assert_eq!(world.tables, vec![SstId(50), SstId(51)]);
    let newest = world.store.newest().id;
    let left: Vec<_> = world.store.manifests.keys().copied().collect();
    assert_eq!(left, vec![newest.minus(1), newest], "the newest, and the one before it");
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

/// G1: the collector lists x, reads the manifest (no x yet), the compactor commits x and ends its
/// job, the collector finds no job either, and deletes x.
#[test]
fn a_table_committed_during_a_round_survives() {
    for (rules, survives) in [(Rules::ALL, true), (Rules::ALL.without(Rule::CollectorOrder), false)]
    {
        let mut world = World::new();
        world.flush(50, 1);
        world.tables = vec![SstId(50), SstId(70)];
        world.record(&[70]);
        // Only one manifest, so that a round in the wrong order reads it first.
        let first = world.store.newest().id.get() - 1;
        world.store.free_manifests(first);
        let mut newest = Manifest::clone(&world.store.newest());
        newest.id = ManifestId(1);
        world.store.manifests = [(newest.id, Arc::new(newest))].into();
        world.store.manifest_boundary = ManifestId::NONE;
        let mut collect = world.collect(rules);
        world.step_to(&mut collect, |action| matches!(action, CollectAction::Record(_)));
        world.compact(50, 70);
        world.record(&[]);
        world.finish(&mut collect);
        assert_eq!(world.tables.contains(&SstId(70)), survives);
    }
}

/// M5: a table that only an older manifest above the boundary references.
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

/// G3: the collector decides "expired" on V; the refresh lands in V+1.
#[test]
fn a_checkpoint_refreshed_in_time_keeps_its_wal() {
    for (rules, survives) in [(Rules::ALL, true), (Rules::ALL.without(Rule::RevokeFirst), false)] {
        let mut world = with_expired_checkpoint();
        let mut collect = world.collect(rules);
        if rules == Rules::ALL {
            // Planned on V, not created yet.
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

/// Nothing is deleted before its boundary is known to exist.
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

/// Another collector freed the manifest that this one was reading.
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

/// The newest manifest was proven; then the manifests before it were freed.
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
        // Read and proven; the following events happen before the last listing.
        world.step(&mut collect);
        world.step(&mut collect);
        world.store.grow(5);
        world.store.free_manifests(world.store.newest().id.get() - 1);
        assert_eq!(world.finish(&mut collect).overtaken, overtaken);
    }
}

/// G4: a failed delete stops neither tables nor the other numbered folder, only objects with higher
/// numbers in the same folder.
#[test]
fn a_failed_delete_keeps_numbered_names_ascending() {
    let mut world = with_expired_checkpoint();
    world.tables = vec![SstId(99)];
    let mut collect = world.collect(Rules::ALL);
    world.step_to(&mut collect, |action| matches!(action, CollectAction::Delete(_)));
    let CollectAction::Delete(names) = collect.action() else { panic!("not a delete") };
    assert!(names.is_sorted() && names.iter().all(|name| matches!(name, ObjectName::Manifest(_))));
    world.delete(names[1]);
    collect.on_deleted(&[false, true]);
    let report = world.finish(&mut collect);
    assert_eq!(report.failed, 1);
    assert_eq!(world.tables, vec![]);
    assert_eq!(world.store.wal.len(), 0);
    let left: Vec<u64> = world.store.manifests.keys().map(|id| id.get()).collect();
    assert_eq!(left.first(), Some(&1));
    // One of them was deleted; the newest and the one before it were not included.
    assert_eq!(left.len(), names.len() + 1);

    // The next round deletes the rest, behind the present boundary.
    let mut again = world.collect(Rules::ALL);
    world.finish(&mut again);
    assert_eq!(world.store.manifests.len(), 2);
}

/// The driver may process any number of the first names of a batch.
#[test]
fn batches_are_of_one_kind() {
    let mut world = with_expired_checkpoint();
    world.tables = [97, 98, 99].map(SstId).to_vec();
    world.record(&[]);
    world.record(&[]);
    let mut collect = world.collect(Rules::ALL);
    world.step_to(&mut collect, |action| matches!(action, CollectAction::Delete(_)));
    let mut kinds = vec![];
    while let CollectAction::Delete(names) = collect.action() {
        assert!(names.iter().all(|name| class(*name) == class(names[0])));
        kinds.push((class(names[0]), names.len()));
        collect.on_deleted(&[true]);
    }
    assert!(kinds.is_sorted_by_key(|(kind, left)| (*kind, usize::MAX - left)), "{kinds:?}");
    assert_eq!(kinds.iter().map(|(kind, _)| *kind).max(), Some(4));
    assert!(matches!(collect.action(), CollectAction::Done(_)));
}

/// R1, with the record that compaction writes: names that a job reserves stay. They are deleted
/// once the newest record has no such job and the manifest does not reference them.
#[test]
fn reserved_names_stay_until_their_job_is_gone() {
    let mut world = World::new();
    world.tables = vec![SstId(70), SstId(71)];
    world.record(&[70]);
    let mut collect = world.collect(Rules::ALL);
    world.finish(&mut collect);
    assert_eq!(world.tables, vec![SstId(70)]);
    world.record(&[]);
    let mut collect = world.collect(Rules::ALL);
    world.finish(&mut collect);
    assert_eq!(world.tables, vec![]);
    // The chain's last record stays; behind the boundary nothing is left.
    assert_eq!(world.records.keys().copied().collect::<Vec<_>>(), vec![2]);
    assert_eq!(world.record_boundary, 1);
}

/// Planted bug 3 for records: the boundary exists before the first record is deleted.
#[test]
fn records_wait_for_their_boundary() {
    for (rules, first) in [(Rules::ALL, true), (Rules::ALL.without(Rule::BoundaryFirst), false)] {
        let mut world = World::new();
        (0..3).for_each(|_| world.record(&[]));
        let mut collect = world.collect(rules);
        while world.records.contains_key(&1) {
            world.step(&mut collect);
        }
        assert_eq!(world.record_boundary == 2, first);
    }
}

/// A record in a freed slot is not trusted: names that the real newest record reserves stay.
#[test]
fn a_zombie_record_hides_no_reservation() {
    let mut world = World::new();
    (0..4).for_each(|_| world.record(&[70]));
    world.tables = vec![SstId(70)];
    // The collector lists, and everything up to 4 is freed during its look.
    let mut collect = world.collect(Rules::ALL);
    world.step_to(&mut collect, |action| *action == CollectAction::Record(RecordRequest::Read(4)));
    world.record(&[70]);
    world.record_boundary = 4;
    let zombie = Compactions::clone(&world.records[&4]);
    world.records.retain(|number, _| *number > 4);
    world.records.insert(4, Arc::new(Compactions { jobs: vec![], ..zombie }));
    world.finish(&mut collect);
    assert_eq!(world.tables, vec![SstId(70)]);
}

/// A limit on bytes moves the boundary past young manifests, by a boundary object first, and frees
/// tables that only these referenced. The manifests themselves stay.
#[test]
fn more_than_may_stay_moves_the_boundary() {
    let mut world = World::new();
    world.flush(50, 1);
    world.tables = vec![SstId(50), SstId(51)];
    world.compact(50, 70);
    let newest = world.store.newest().id;
    let young = |world: &World| {
        let listed = world.listed().into_iter();
        let modified = UnixMillis(5000);
        listed.map(|object| ListedObject { modified, ..object }).collect::<Vec<_>>()
    };
    let mut kept = world.collect(Rules::ALL).leaving(Some(Allowance { least: 99, percent: 0 }));
    kept.on_objects(young(&world));
    assert_eq!(world.finish(&mut kept), CollectReport::default());
    let (manifests, before) = (world.store.manifests.len(), world.store.manifest_boundary);
    let mut pressed = world.collect(Rules::ALL).leaving(Some(Allowance::NONE));
    pressed.on_objects(young(&world));
    world.step_to(&mut pressed, |action| matches!(action, CollectAction::Delete(_)));
    assert_eq!((before, world.store.manifest_boundary), (ManifestId::NONE, newest.minus(1)));
    world.finish(&mut pressed);
    assert!(!world.tables.contains(&SstId(50)) && world.tables.contains(&SstId(51)));
    assert_eq!(world.store.manifests.len(), manifests);

    // Another collector went further meanwhile: the manifests that were read may have been freed.
    let mut late = world.collect(Rules::ALL).leaving(Some(Allowance::NONE));
    late.on_objects(young(&world));
    world.store.grow(3);
    world.store.manifest_boundary = world.store.newest().id.minus(1);
    assert!(world.finish(&mut late).overtaken);
}

/// Manifests are read once: a second round reuses the facts that the first has proven.
#[test]
fn proven_manifests_are_not_read_again() {
    let mut world = World::new();
    world.flush(50, 1);
    world.tables = vec![SstId(50), SstId(51)];
    world.compact(50, 70);
    world.store.grow(3);
    let young = |world: &World| {
        let listed = world.listed().into_iter();
        let modified = UnixMillis(5000);
        listed.map(|object| ListedObject { modified, ..object }).collect::<Vec<_>>()
    };
    // Everything is young: every manifest is above the boundary.
    let mut first = world.collect(Rules::ALL);
    first.on_objects(young(&world));
    world.finish(&mut first);
    let known = first.into_known();
    let before = world.store.requests;
    let mut second = world.collect(Rules::ALL).knowing(known);
    second.on_objects(young(&world));
    world.finish(&mut second);
    // A look, and the listing that verifies: one list, one read, two lists.
    assert_eq!(world.store.requests - before, 4);
    let known = second.into_known();

    // The table that only older manifests reference is deleted with them.
    let mut third = world.collect(Rules::ALL).knowing(known);
    world.finish(&mut third);
    assert!(!world.tables.contains(&SstId(50)));
}

/// A dry run reports what a real round would do after revoking expired checkpoints, and changes
/// nothing.
#[test]
fn a_dry_round_tells_and_does_nothing() {
    let mut world = with_expired_checkpoint();
    world.tables = vec![SstId(99)];
    let before = (world.store.manifests.clone(), world.store.wal.clone());
    let database = world.store.newest().database;
    let mut dry = Collect::dry(database, LATE, LATE, Rules::ALL);
    assert_eq!(world.finish(&mut dry), CollectReport::default());
    assert_eq!((world.store.manifests.clone(), world.store.wal.clone()), before);
    let told: Vec<ObjectName> = dry
        .fates()
        .into_iter()
        .filter(|(_, fate)| matches!(fate, CollectDecision::Dead(_)))
        .map(|(object, _)| object.name)
        .collect();
    let mut real = world.collect(Rules::ALL);
    let report = world.finish(&mut real);
    // The real round supersedes one manifest more, by its commit.
    assert_eq!(report.deleted, told.len() as u64 + 1);
    assert!(told.contains(&ObjectName::Wal(WalId(3))));
}

/// N10: if a folder's deadline has passed, the horizon moves before the newest manifest is read,
/// and unrequested objects are deleted in the same round.
#[test]
fn the_horizon_moves_before_what_was_abandoned_goes() {
    let job = JobId(ulid_bits(500, 1));
    let staged = ListedObject {
        name: ObjectName::IngestSst(job, SstId(9)),
        modified: UnixMillis(1),
        bytes: 1,
    };
    for (cutoff, goes) in [(500, false), (501, true)] {
        let mut world = World::new();
        let mut collect = world.collect(Rules::ALL);
        collect.age_by(UnixMillis(cutoff));
        world.step_to(&mut collect, |action| matches!(action, CollectAction::ListObjects));
        collect.on_objects(vec![staged]);
        assert_eq!(world.finish(&mut collect).deleted, u64::from(goes));
        let horizon = world.store.newest().ingest_horizon;
        assert_eq!(horizon, UnixMillis(if goes { cutoff } else { 0 }));
        // A second round has nothing to move.
        let before = world.store.newest().id;
        let mut again = world.collect(Rules::ALL);
        again.age_by(UnixMillis(cutoff + 10));
        world.finish(&mut again);
        assert_eq!(world.store.newest().id, before);
    }
}

/// N11: the applications of jobs are read once, if an application has installed anything. The
/// closing object of a folder stays if its table could not be deleted.
#[test]
fn the_object_that_closed_a_job_is_read_once_and_goes_last() {
    let [passed, last] = [1, 2].map(|number| JobId(ulid_bits(500, number)));
    let app = |version| JobApp { name: "stream".to_owned(), version, forgotten: 0 };
    let object = |name| ListedObject { name, modified: UnixMillis(1), bytes: 1 };
    let names = [ObjectName::IngestManifest(passed), ObjectName::IngestSst(passed, SstId(9))];
    let mut world = World::new();
    let mut collect = world.collect(Rules::ALL);
    world.step_to(&mut collect, |action| matches!(action, CollectAction::ListObjects));
    collect.on_objects(names.map(object).to_vec());
    // Nothing is read if no application ever installed anything.
    assert_eq!(world.finish(&mut collect).deleted, 0);

    let database = world.store.newest().database;
    let request = RequestIngest {
        job: last,
        database,
        timeline: None,
        digest: Bytes::from_static(b"parts"),
        app: Some(app(2)),
        requested_at: UnixMillis(1),
    };
    world.store.commit(Edit::Ingest(IngestEdit::Request(request))).unwrap();
    let table = table(SstId(10), b"a", b"b", 0, 0);
    let table = SstDescriptor { job: Some(last), seq_override: Some(Seq(1)), ..table };
    let (job, digest) = (last, Bytes::from_static(b"parts"));
    let install = InstallIngest { after: 0, job, digest, layers: vec![vec![table]] };
    let newest = world.store.newest();
    let flush = FlushL0 {
        ingests: vec![install],
        flushed_seq: Seq(1),
        ..FlushL0::nothing(Epoch(1), &newest)
    };
    world.store.commit(Edit::FlushL0(flush)).unwrap();

    let mut known = ProvenManifests::default();
    for (round, fails) in [(0, true), (1, false)] {
        let mut collect = world.collect(Rules::ALL).knowing(known);
        world.step_to(&mut collect, |action| matches!(action, CollectAction::ListObjects));
        collect.on_objects(names.map(object).to_vec());
        let mut reads = 0;
        loop {
            match collect.action() {
                CollectAction::ReadJobs(jobs) => {
                    reads += 1;
                    assert_eq!(jobs, [passed]);
                    collect.on_jobs(BTreeMap::from([(passed, Some(app(1)))]));
                }
                CollectAction::Delete(deletes) => {
                    let of_job = deletes.iter().any(|name| names.contains(name));
                    collect.on_deleted(&vec![!(fails && of_job); deletes.len()]);
                }
                CollectAction::Done(report) => {
                    let gone = if fails { (0, 1) } else { (2, 0) };
                    assert_eq!((report.deleted, report.failed), gone, "round {round}");
                    break;
                }
                _ => world.step(&mut collect),
            }
        }
        assert_eq!(reads, usize::from(round == 0), "what closed a job never changes");
        known = collect.into_known();
    }
}

/// W5, G3: a hold that retains more of the log than its limit is removed by a commit, before the
/// objects that it retains; one that moved meanwhile stays.
#[test]
fn a_hold_that_keeps_too_much_is_revoked_by_a_commit() {
    for moves in [false, true] {
        let mut world = World::new();
        let from = world.store.newest().replay_from;
        let take = TakeHold {
            name: "slow".to_owned(),
            generation: 1,
            from: HoldFrom::At(LogPlace { seq: Seq::NONE, wal: from }),
            timeline: None,
            expires_at: None,
            most_bytes: Some(0),
            checkpoint: None,
            unretained: None,
        };
        world.store.commit(Edit::Hold(HoldEdit::Take(Box::new(take)))).unwrap();
        // A flush passes the objects that the hold retains.
        world.flush(50, 1);
        let base = world.store.newest();
        assert!(world.store.wal.keys().any(|id| *id >= from));
        let mut collect = world.collect(Rules::ALL);
        if moves {
            let to = LogPlace { seq: base.flushed_seq, wal: base.replay_from.next() };
            let (name, generation) = ("slow".to_owned(), 1);
            let (timeline, expires_at) = (None, None);
            let advance = AdvanceHold { name, generation, to, timeline, expires_at };
            world.store.commit(Edit::Hold(HoldEdit::Advance(advance))).unwrap();
        }
        let report = world.finish(&mut collect);
        assert!(!report.overtaken);
        assert_eq!(world.store.newest().holds.len(), usize::from(moves));
    }
}
