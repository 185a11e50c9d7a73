use super::fate::{Alive, DeadReason};
use super::*;
use crate::rules::Rule;
use crate::testing::{checkpoint, manifest, table};
use crate::{
    FedIngest, FedSource, Hold, IngestApp, IngestOutcome, Lease, LeasedVersion, RememberedIngest,
};
use siltstone_base::id::{NUMBERS_A_MILLI, ulid_bits};
use siltstone_base::{AttemptId, JobId, Seq, SstId};

fn object(name: ObjectName, modified: u64) -> ListedObject {
    ListedObject { name, modified: UnixMillis(modified), bytes: 1 }
}

fn numbered(ids: std::ops::RangeInclusive<u64>) -> Vec<ListedObject> {
    ids.map(|id| object(ObjectName::Manifest(ManifestId(id)), id * 10)).collect()
}

/// `manifest()` is number 5, replay from 6, fence 2, checkpoints on manifest 3 with WAL 4 to 5.
fn evidence(listed: Vec<ListedObject>, cutoff: u64) -> Evidence {
    let pinned = Manifest { id: ManifestId(3), l0: vec![], runs: vec![], ..manifest() };
    let found = Evidence {
        listed,
        pinned: noted(&[pinned]),
        cutoff: UnixMillis(cutoff),
        ..Evidence::default()
    };
    with_newest(found, manifest())
}

fn noted(manifests: &[Manifest]) -> PinnedNames {
    let mut pinned = PinnedNames::default();
    manifests.iter().for_each(|manifest| pinned.note(manifest));
    pinned
}

fn with_newest(mut found: Evidence, newest: Manifest) -> Evidence {
    found.note(&newest);
    found.newest = Some(Arc::new(newest));
    found
}

fn records(numbers: &[(u64, u64)]) -> Vec<ListedObject> {
    let record = |(number, at): &(u64, u64)| object(ObjectName::Compactions(*number), *at);
    numbers.iter().map(record).collect()
}

fn table_names(ids: &[u128]) -> Vec<ListedObject> {
    ids.iter().map(|id| object(ObjectName::Compacted(SstId(*id)), 1)).collect()
}

#[test]
fn a_manifest_goes_by_the_age_of_its_successor() {
    // 3 was superseded at 40, 4 at 50.
    assert_eq!(manifest_boundary(&numbered(1..=5), UnixMillis(40), None), Some(ManifestId(3)));
    assert_eq!(manifest_boundary(&numbered(1..=5), UnixMillis(39), None), Some(ManifestId(2)));
    assert_eq!(manifest_boundary(&numbered(1..=5), UnixMillis(19), None), None);
}

#[test]
fn the_newest_manifest_stays_however_old() {
    assert_eq!(manifest_boundary(&numbered(1..=5), UnixMillis(9999), None), Some(ManifestId(4)));
    assert_eq!(manifest_boundary(&numbered(5..=5), UnixMillis(9999), None), None);
}

#[test]
fn the_boundary_never_goes_back() {
    let mut listed = numbered(6..=7);
    listed.push(object(ObjectName::ManifestBoundary(ManifestId(6)), 1));
    assert_eq!(manifest_boundary(&listed, UnixMillis(9999), None), None);
}

#[test]
fn a_present_checkpoint_keeps_its_manifest_behind_the_boundary() {
    let verdict = dead(&evidence(numbered(1..=5), 9999), Rules::ALL);
    let gone = [1, 2].map(|id| ObjectName::Manifest(ManifestId(id))).to_vec();
    assert_eq!((verdict.manifest_boundary, verdict.deletes), (Some(ManifestId(4)), gone));
}

/// The manifest before the newest stays behind the boundary, at any age and under every other rule:
/// a repair continues from it if the newest is damaged (RFC 0034). Tables that only it references
/// are deleted.
#[test]
fn the_manifest_before_the_newest_stays() {
    let mut found = evidence(numbered(1..=5), 9999);
    for boundary in [None, Some(4)] {
        let stands = boundary.map(|id| object(ObjectName::ManifestBoundary(ManifestId(id)), 1));
        found.listed.extend(stands);
        let fates = fate::of_all(&found, Rules::ALL);
        let of = |id| {
            let mut fates = fates.iter();
            fates.find(|(one, _)| one.name == ObjectName::Manifest(ManifestId(id))).unwrap().1
        };
        assert_eq!(of(4), CollectDecision::Alive(Alive::Spare));
        assert!(matches!(of(2), CollectDecision::Dead(_)));
        let dropped = dead(&found, Rules::ALL.without(Rule::KeepManifestBefore));
        assert!(dropped.deletes.contains(&ObjectName::Manifest(ManifestId(4))));
    }
    // The first manifest of a database that counts from another number.
    let counts_from = NUMBERS_A_MILLI * 7;
    let newest = Manifest {
        id: ManifestId(counts_from),
        replay_from: WalId(counts_from),
        ..crate::testing::empty()
    };
    assert!(newest.follows(ManifestId::FIRST));
    assert!(!newest.follows(ManifestId(2)));
}

/// F5 and G2: 2 is a kept fence, 4 and 5 are pinned, 6 is the replay point.
#[test]
fn the_wal_keeps_fences_and_pinned_ranges() {
    let listed = (1..=7).map(|id| object(ObjectName::Wal(WalId(id)), 1)).collect();
    let verdict = dead(&evidence(listed, 10), Rules::ALL);
    let gone = [1, 3].map(|id| ObjectName::Wal(WalId(id))).to_vec();
    assert_eq!((verdict.wal_boundary, verdict.deletes), (Some(WalId(3)), gone));
}

#[test]
fn the_wal_is_freed_up_to_the_first_young_one() {
    let mut listed = vec![object(ObjectName::Wal(WalId(3)), 11)];
    listed.push(object(ObjectName::Wal(WalId(1)), 1));
    let verdict = dead(&evidence(listed, 10), Rules::ALL);
    assert_eq!(verdict.wal_boundary, Some(WalId(1)));
}

/// G3: an expired checkpoint that is present is alive.
#[test]
fn an_expired_checkpoint_that_is_present_keeps_its_wal() {
    let mut state = manifest();
    state.checkpoints = vec![checkpoint(1, Some(5))];
    let listed = vec![object(ObjectName::Wal(WalId(4)), 1)];
    let found = with_newest(evidence(listed, 10), state);
    assert_eq!(dead(&found, Rules::ALL).deletes, vec![]);
    let without = Rules::ALL.without(Rule::RevokeFirst);
    assert_eq!(dead(&found, without).deletes, vec![ObjectName::Wal(WalId(4))]);
}

/// U1: the folder of a job's units stays as long as the job does, independent of the horizon.
/// Objects that land there later are dead.
#[test]
fn tables_of_units_live_as_long_as_their_job() {
    let staged = |job, id| {
        let name = ObjectName::IngestSst(JobId::of_units(JobId(job)), SstId(id));
        ListedObject { name, modified: UnixMillis(0), bytes: 1 }
    };
    // 300 is finished, 301 runs, 302 is unknown.
    let listed = vec![staged(300, 60), staged(301, 61), staged(301, 62), staged(302, 63)];
    let job = |job| JobReservation { job: JobId(job), outputs: vec![SstId(61)] };
    let mut found = evidence(listed, 10);
    found.jobs = vec![job(300), job(301)];
    let gone = vec![staged(300, 60).name, staged(302, 63).name];
    assert_eq!(dead(&found, Rules::ALL).deletes, gone);
    let without = Rules::ALL.without(Rule::HonourUnits);
    assert_eq!(dead(&found, without).deletes.len(), 4);
}

#[test]
fn tables_live_by_state_reservation_job_and_older_manifests() {
    let older = Manifest {
        id: ManifestId(4),
        l0: vec![],
        runs: vec![crate::SortedRun { id: 0, tables: vec![table(SstId(30), b"a", b"b", 1, 1)] }],
        ..manifest()
    };
    let pinned = Manifest {
        runs: vec![crate::SortedRun { id: 0, tables: vec![table(SstId(31), b"a", b"b", 1, 1)] }],
        id: ManifestId(3),
        l0: vec![],
        ..manifest()
    };
    let job = |job, output| JobReservation { job: JobId(job), outputs: vec![SstId(output)] };
    let mut found = Evidence {
        pinned: noted(&[pinned]),
        // 300 is finished: its uncommitted tables are dead.
        jobs: vec![job(300, 60), job(301, 61)],
        ..evidence(table_names(&[14, 9, 50, 30, 31, 60, 61, 99]), 10)
    };
    found.note(&older);
    let gone = [60, 99].map(|id| ObjectName::Compacted(SstId(id))).to_vec();
    assert_eq!(dead(&found, Rules::ALL).deletes, gone);
    let why = |id| {
        let fates = fate::of_all(&found, Rules::ALL);
        let at =
            |one: &&(ListedObject, CollectDecision)| one.0.name == ObjectName::Compacted(SstId(id));
        fates.iter().find(at).unwrap().1
    };
    assert_eq!(why(9), CollectDecision::Alive(Alive::Tree));
    assert_eq!(why(50), CollectDecision::Alive(Alive::Reserved));
    assert_eq!(why(30), CollectDecision::Young);
    assert_eq!(why(31), CollectDecision::Alive(Alive::Checkpoint));
    assert_eq!(why(61), CollectDecision::Alive(Alive::Job));
    assert_eq!(why(99), CollectDecision::Dead(DeadReason::Unnamed));
}

/// G2, L1: the manifests that a present lease covers, and their tables, are alive; WAL is not.
#[test]
fn a_present_lease_keeps_its_manifests_and_their_tables() {
    let leased = Manifest {
        id: ManifestId(2),
        l0: vec![],
        runs: vec![crate::SortedRun { id: 0, tables: vec![table(SstId(40), b"a", b"b", 1, 1)] }],
        ..manifest()
    };
    let version = LeasedVersion { manifest_id: ManifestId(2), manifest_attempt: AttemptId(1) };
    let lease = Lease { expires_at: UnixMillis(5), versions: vec![version] };
    let state = Manifest { leases: vec![lease], checkpoints: vec![], ..manifest() };
    let mut listed = numbered(1..=5);
    listed.extend(table_names(&[40, 41]));
    listed.push(object(ObjectName::Wal(WalId(4)), 1));
    let found = Evidence { pinned: noted(&[leased]), ..evidence(listed, 9999) };
    let found = with_newest(found, state);
    // Expired by any clock, but present: alive.
    let fates = fate::of_all(&found, Rules::ALL);
    let of = |name| fates.iter().find(|(object, _)| object.name == name).unwrap().1;
    assert_eq!(of(ObjectName::Manifest(ManifestId(2))), CollectDecision::Alive(Alive::Lease));
    assert_eq!(of(ObjectName::Compacted(SstId(40))), CollectDecision::Alive(Alive::Lease));
    assert_eq!(of(ObjectName::Compacted(SstId(41))), CollectDecision::Dead(DeadReason::Unnamed));
    assert_eq!(of(ObjectName::Wal(WalId(4))), CollectDecision::Dead(DeadReason::Flushed));
    for rules in [Rule::HonourLeases, Rule::RevokeFirst] {
        let gone = dead(&found, Rules::ALL.without(rules)).deletes;
        assert!(gone.contains(&ObjectName::Compacted(SstId(40))), "{rules:?}");
    }
}

/// No process can reference it later: it would have reserved the name before the listing.
#[test]
fn unreferenced_objects_go_at_any_age() {
    let young = vec![object(ObjectName::Compacted(SstId(99)), 11)];
    let verdict = dead(&evidence(young, 10), Rules::ALL);
    let gone = vec![ObjectName::Compacted(SstId(99))];
    assert_eq!(verdict, Verdict { deletes: gone, ..Verdict::default() });

    // An existing boundary, and objects behind it, need no age, not even a cut-off.
    let mut listed = numbered(4..=5);
    listed.push(object(ObjectName::ManifestBoundary(ManifestId(2)), 11));
    listed.push(object(ObjectName::ManifestBoundary(ManifestId(1)), 11));
    listed.push(object(ObjectName::Manifest(ManifestId(2)), 11));
    listed.push(object(ObjectName::WalBoundary(WalId(3)), 11));
    listed.push(object(ObjectName::Wal(WalId(1)), 11));
    let verdict = dead(&evidence(listed, 0), Rules::ALL);
    let gone = vec![
        ObjectName::Manifest(ManifestId(2)),
        ObjectName::Wal(WalId(1)),
        ObjectName::ManifestBoundary(ManifestId(1)),
    ];
    assert_eq!(verdict, Verdict { deletes: gone, ..Verdict::default() });
}

fn sized(name: ObjectName, modified: u64, bytes: u64) -> ListedObject {
    ListedObject { bytes, ..object(name, modified) }
}

/// Manifests 1 to 5, superseded at 20, 30, 40 and 50. Tables 21, 22 and 23, of 100 bytes each, were
/// last referenced by 1, 2 and 4. The newest references 9 and 14, of 100 bytes in all. Nothing is
/// old.
fn piled_up() -> Evidence {
    let mut listed = numbered(1..=5);
    for id in [21, 22, 23, 9, 14] {
        let bytes = if id < 20 { 50 } else { 100 };
        listed.push(sized(ObjectName::Compacted(SstId(id)), 1, bytes));
    }
    let mut found = evidence(listed, 0);
    for (table, last) in [(21, 1), (22, 2), (23, 4)] {
        found.named.insert(ObjectName::Compacted(SstId(table)), ManifestId(last));
    }
    found.pinned = PinnedNames::default();
    let mut newest = manifest();
    newest.checkpoints = vec![];
    newest.leases = vec![];
    found.newest = Some(Arc::new(newest));
    found
}

/// Garbage is limited by bytes as well as by age: the oldest is deleted first, and no more than
/// necessary.
#[test]
fn more_than_may_stay_goes_oldest_first() {
    let table = |id| ObjectName::Compacted(SstId(id));
    let tables = |allowance: Allowance| {
        let mut found = piled_up();
        found.press(allowance, Rules::ALL);
        let verdict = dead(&found, Rules::ALL);
        (verdict.manifest_boundary, verdict.deletes)
    };
    let least = |least| Allowance { least, percent: 0 };
    assert_eq!(tables(least(300)), (None, vec![]));
    assert_eq!(tables(least(299)), (Some(ManifestId(1)), vec![table(21)]));
    assert_eq!(tables(least(200)), (Some(ManifestId(1)), vec![table(21)]));
    assert_eq!(tables(least(199)), (Some(ManifestId(2)), vec![table(21), table(22)]));
    let all = vec![table(21), table(22), table(23)];
    assert_eq!(tables(Allowance::NONE), (Some(ManifestId(4)), all));
    // Relative to the live bytes: 100.
    assert_eq!(tables(Allowance { least: 0, percent: 300 }), (None, vec![]));
    let (boundary, _) = tables(Allowance { least: 0, percent: 250 });
    assert_eq!(boundary, Some(ManifestId(1)));
}

/// A limit on bytes puts manifests behind the boundary, and keeps them there until they are old: a
/// reader that probes for the next number finds it, and learns from the boundary that it fell
/// behind.
#[test]
fn manifests_that_a_bound_passed_stay_for_their_age() {
    let mut found = piled_up();
    found.press(Allowance::NONE, Rules::ALL);
    found.listed.push(object(ObjectName::ManifestBoundary(ManifestId(3)), 1));
    for (cutoff, gone) in [(19, vec![]), (20, vec![1]), (39, vec![1, 2]), (50, vec![1, 2, 3])] {
        found.cutoff = UnixMillis(cutoff);
        let manifest = |name: &ObjectName| matches!(name, ObjectName::Manifest(_));
        let deletes: Vec<ObjectName> =
            dead(&found, Rules::ALL).deletes.into_iter().filter(manifest).collect();
        let gone: Vec<_> =
            gone.into_iter().map(|id| ObjectName::Manifest(ManifestId(id))).collect();
        assert_eq!(deletes, gone, "{cutoff}");
    }
}

/// The WAL counts with the tables. It is deleted in the order of its ids, even if a later object
/// was stored earlier.
#[test]
fn the_wal_counts_as_garbage_too() {
    let mut found = piled_up();
    for (id, at) in [(1, 31), (2, 33), (3, 32), (4, 60), (5, 61), (6, 62)] {
        found.listed.push(sized(ObjectName::Wal(WalId(id)), at, 100));
    }
    // 2 is a kept fence and 6 is the replay point: 1, 3, 4 and 5 are garbage, 700 bytes with the
    // tables.
    let wal = |least| {
        let mut found = found.clone();
        found.press(Allowance { least, percent: 0 }, Rules::ALL);
        let verdict = dead(&found, Rules::ALL);
        (verdict.manifest_boundary, verdict.wal_boundary)
    };
    assert_eq!(wal(700), (None, None));
    assert_eq!(wal(500), (Some(ManifestId(2)), None));
    assert_eq!(wal(400), (Some(ManifestId(2)), Some(WalId(1))));
    assert_eq!(wal(300), (Some(ManifestId(2)), Some(WalId(3))));
    assert_eq!(wal(0), (Some(ManifestId(4)), Some(WalId(5))));
}

/// The boundary passes a checkpoint's manifest, which stays, as do the objects that it references.
#[test]
fn a_bound_on_bytes_frees_nothing_that_is_pinned() {
    let mut found = piled_up();
    let one = |id| crate::SortedRun { id: 0, tables: vec![table(SstId(id), b"a", b"b", 1, 1)] };
    let pinned = Manifest { id: ManifestId(1), l0: vec![], runs: vec![one(21)], ..manifest() };
    let mut newest = Manifest { leases: vec![], ..manifest() };
    newest.checkpoints =
        vec![crate::Checkpoint { manifest_id: ManifestId(1), ..checkpoint(1, None) }];
    found.newest = Some(Arc::new(newest));
    found.pinned = noted(&[pinned]);
    found.cutoff = UnixMillis(9999);
    found.press(Allowance::NONE, Rules::ALL);
    let verdict = dead(&found, Rules::ALL);
    assert_eq!(verdict.manifest_boundary, Some(ManifestId(4)));
    let gone = [2, 3].map(|id| ObjectName::Manifest(ManifestId(id)));
    let tables = [22, 23].map(|id| ObjectName::Compacted(SstId(id)));
    assert_eq!(verdict.deletes, gone.into_iter().chain(tables).collect::<Vec<_>>());
}

#[test]
fn without_a_manifest_nothing_is_dead() {
    let mut listed = table_names(&[99]);
    listed.extend(numbered(1..=4));
    listed.extend(records(&[(1, 1), (2, 1)]));
    let nothing = Evidence { newest: None, ..evidence(listed, 10) };
    assert_eq!(dead(&nothing, Rules::ALL), Verdict::default());
}

#[test]
fn passed_boundaries_go_and_the_highest_stays() {
    let listed = [1, 2]
        .into_iter()
        .flat_map(|id| {
            [
                object(ObjectName::ManifestBoundary(ManifestId(id)), 1),
                object(ObjectName::WalBoundary(WalId(id)), 1),
            ]
        })
        .collect();
    let verdict = dead(&evidence(listed, 10), Rules::ALL);
    let gone = vec![ObjectName::ManifestBoundary(ManifestId(1)), ObjectName::WalBoundary(WalId(1))];
    assert_eq!(verdict, Verdict { deletes: gone, ..Verdict::default() });
}

/// An object that lands late in a freed slot is unreferenced, and is deleted.
#[test]
fn a_zombie_below_the_boundary_is_dead_at_once() {
    let mut listed = numbered(5..=5);
    listed.push(object(ObjectName::ManifestBoundary(ManifestId(4)), 1));
    listed.push(object(ObjectName::Manifest(ManifestId(2)), 9999));
    let verdict = dead(&evidence(listed, 10), Rules::ALL);
    assert_eq!(verdict.deletes, vec![ObjectName::Manifest(ManifestId(2))]);
}

/// R1: without the rule a table is deleted between its upload and its commit.
#[test]
fn reserved_names_live_by_the_rule_alone() {
    let found = evidence(table_names(&[50]), 10);
    assert_eq!(dead(&found, Rules::ALL).deletes, vec![]);
    let without = Rules::ALL.without(Rule::HonourReservations);
    assert_eq!(dead(&found, without).deletes, vec![ObjectName::Compacted(SstId(50))]);
}

/// Records have their own boundary, as manifests do: the newest stays.
#[test]
fn superseded_records_go_behind_their_boundary() {
    let listed = records(&[(3, 1), (1, 1), (2, 1), (4, 11)]);
    let verdict = dead(&evidence(listed, 10), Rules::ALL);
    let gone = [1, 2].map(ObjectName::Compactions).to_vec();
    assert_eq!((verdict.record_boundary, verdict.deletes), (Some(2), gone));

    let all = records(&[(3, 1), (4, 1)]);
    let verdict = dead(&evidence(all, 9999), Rules::ALL);
    assert_eq!(verdict.record_boundary, Some(3));
    assert_eq!(verdict.deletes, vec![ObjectName::Compactions(3)]);
}

/// Leftovers of a killed collector, and a record that lands late in a freed slot, are deleted, and
/// the older boundary with them.
#[test]
fn records_behind_the_boundary_go_at_once() {
    let mut listed = records(&[(2, 9999), (3, 1), (5, 9999)]);
    listed.push(object(ObjectName::CompactionsBoundary(3), 1));
    listed.push(object(ObjectName::CompactionsBoundary(1), 1));
    let verdict = dead(&evidence(listed, 10), Rules::ALL);
    let gone = vec![
        ObjectName::Compactions(2),
        ObjectName::Compactions(3),
        ObjectName::CompactionsBoundary(1),
    ];
    assert_eq!((verdict.record_boundary, verdict.deletes), (None, gone));
}

/// Scratch for measuring the store's clock: that of a dead process is deleted by age alone.
#[test]
fn old_scratch_goes_and_strangers_stay() {
    let listed = vec![
        object(ObjectName::ProbeScratch(JobId(1)), 10),
        object(ObjectName::ProbeScratch(JobId(2)), 11),
        object(ObjectName::ProbeRecord, 1),
    ];
    let evidence = evidence(listed, 10);
    let verdict = dead(&evidence, Rules::ALL);
    assert_eq!(verdict.deletes, vec![ObjectName::ProbeScratch(JobId(1))]);
    let fates = fate::of_all(&evidence, Rules::ALL);
    let record = fates.iter().find(|(object, _)| object.name == ObjectName::ProbeRecord);
    assert_eq!(record.map(|(_, fate)| fate.as_str()), Some("kept permanently"));
}

fn staged(job: JobId) -> Vec<ListedObject> {
    let names = [ObjectName::IngestManifest(job), ObjectName::IngestSst(job, SstId(500))];
    names.map(|name| object(name, 1)).to_vec()
}

/// N10: `manifest()` shows job 400 as pending.
#[test]
fn staged_tables_go_once_their_job_has_ended_for_good() {
    let open = JobId(ulid_bits(9_000, 1));
    let goes = |newest: Manifest, job: JobId, rules: Rules| {
        dead(&with_newest(evidence(staged(job), 9_999), newest), rules).deletes.len()
    };
    // Requested; or still allowed to be requested, however late it is by a clock.
    assert_eq!(
        (goes(manifest(), JobId(400), Rules::ALL), goes(manifest(), open, Rules::ALL)),
        (0, 0)
    );
    assert_eq!(goes(manifest(), JobId(400), Rules::ALL.without(Rule::HonourPending)), 0);
    assert_eq!(goes(manifest(), open, Rules::ALL.without(Rule::HorizonFirst)), 2);
    let horizon = |at| Manifest { ingest_horizon: UnixMillis(at), ..manifest() };
    assert_eq!(
        (goes(horizon(9_000), open, Rules::ALL), goes(horizon(9_001), open, Rules::ALL)),
        (0, 2)
    );
    // The job is pending at any horizon; only that keeps it.
    assert_eq!(goes(horizon(9_001), JobId(400), Rules::ALL), 0);
    assert_eq!(goes(horizon(9_001), JobId(400), Rules::ALL.without(Rule::HonourPending)), 2);
    let outcome = IngestOutcome::Adopted(Seq(60));
    let ended = RememberedIngest { job: open, outcome, reason: None };
    let adopted = || Manifest { remembered_ingests: vec![ended.clone()], ..manifest() };
    assert_eq!(goes(adopted(), open, Rules::ALL), 2);
    // A table that the tree references stays; the closing object of the job is deleted.
    let mut named = adopted();
    let table = &mut named.l0[0].tables[0];
    (table.id, table.job) = (SstId(500), Some(open));
    assert_eq!(goes(named, open, Rules::ALL), 1);
}

/// M5: a version above the boundary shows the job as pending, so its log may name it.
#[test]
fn the_log_of_a_manifest_above_the_boundary_keeps_what_it_names() {
    let open = JobId(ulid_bits(9_000, 1));
    let ended =
        RememberedIngest { job: open, outcome: IngestOutcome::Adopted(Seq(60)), reason: None };
    let newest = || Manifest { remembered_ingests: vec![ended.clone()], ..manifest() };
    let batch = ObjectName::Compacted(SstId(900));
    let goes = |last: u64, rules: Rules| {
        let listed = [staged(open), vec![object(batch, 1)], numbered(3..=5)].concat();
        let mut found = with_newest(evidence(listed, 45), newest());
        for name in [PinnedName::Job(open), PinnedName::Object(batch)] {
            found.kept.insert(name, ManifestId(last));
        }
        let all = dead(&found, rules).deletes;
        let not_manifest = |name: &&ObjectName| !matches!(name, ObjectName::Manifest(_));
        all.iter().filter(not_manifest).count()
    };
    assert_eq!((goes(3, Rules::ALL), goes(4, Rules::ALL)), (3, 0));
    assert_eq!(goes(4, Rules::ALL.without(Rule::ManifestsKeepPending)), 3);
}

/// N11: a job ends when a later version replaced its record, or its application was forgotten. Its
/// closing object records its application and stays as long as a table of the job does.
#[test]
fn staged_tables_of_a_passed_version_go_like_others() {
    let open = JobId(ulid_bits(9_000, 1));
    let app = |version, forgotten| JobApp { name: "stream".to_owned(), version, forgotten };
    let brought = |version, job| IngestApp { app: "stream".to_owned(), version, job, seq: Seq(60) };
    let newest = |version| Manifest {
        ingest_apps: vec![brought(version, JobId(ulid_bits(9_000, 2)))],
        ..manifest()
    };
    let goes = |newest: Manifest, app: Option<JobApp>, rules: Rules| {
        let apps = app.map(|app| (open, app)).into_iter().collect();
        let found = Evidence { apps, ..evidence(staged(open), 9_999) };
        dead(&with_newest(found, newest), rules).deletes
    };
    let all = vec![ObjectName::IngestSst(open, SstId(500)), ObjectName::IngestManifest(open)];
    assert_eq!(goes(newest(2), Some(app(1, 0)), Rules::ALL), all);
    assert_eq!(goes(newest(2), Some(app(2, 0)), Rules::ALL), all, "another brought it");
    assert_eq!(goes(newest(2), Some(app(3, 0)), Rules::ALL), []);
    assert_eq!(goes(newest(2), None, Rules::ALL), []);
    let mut forgotten = manifest();
    forgotten.forgotten_apps.add("stream");
    assert_eq!(goes(forgotten.clone(), Some(app(1, 0)), Rules::ALL), all);
    assert_eq!(goes(forgotten, Some(app(1, 1)), Rules::ALL), []);
    // Its table is part of the tree: the closing object is deleted after the table.
    let mut named = newest(2);
    let table = &mut named.l0[0].tables[0];
    (table.id, table.job) = (SstId(500), Some(open));
    assert_eq!(goes(named.clone(), Some(app(1, 0)), Rules::ALL), []);
    let dropped = Rules::ALL.without(Rule::OriginStays);
    assert_eq!(goes(named.clone(), Some(app(1, 0)), dropped), [ObjectName::IngestManifest(open)]);
    // The same if the record is still the job's own.
    named.ingest_apps = vec![brought(1, open)];
    assert_eq!(goes(named, Some(app(1, 0)), Rules::ALL), []);
}

/// N14: the log that a checkpoint pins may contain the INGEST of a job that its manifest shows as
/// pending.
#[test]
fn a_pinned_manifest_keeps_what_it_shows_as_pending() {
    let newest =
        || Manifest { pending_ingests: vec![], ingest_horizon: UnixMillis(9), ..manifest() };
    let found = with_newest(evidence(staged(JobId(400)), 9_999), newest());
    assert_eq!(dead(&found, Rules::ALL).deletes, vec![]);
    let alone = Evidence { pinned: PinnedNames::default(), ..found };
    assert_eq!(dead(&alone, Rules::ALL).deletes.len(), 2);
}

#[test]
fn only_what_was_superseded_long_ago_is_freed() {
    let object = |name, at| ListedObject { name, modified: UnixMillis(at), bytes: 1 };
    let record = |number, at| object(ObjectName::Compactions(number), at);
    let listed = [
        object(ObjectName::CompactionsBoundary(2), 5),
        record(1, 1),
        record(5, 50),
        record(3, 10),
        record(4, 20),
        record(7, 51),
    ];
    let present = record_boundary_now(&listed, DatabaseId(1));
    let freed = |cutoff| superseded(&listed, present, UnixMillis(cutoff));
    assert_eq!((present, freed(19)), (2, None));
    assert_eq!(freed(20), Some(3));
    assert_eq!(freed(50), Some(4));
    // 6 is missing: the time at which it was superseded is unknown.
    assert_eq!(freed(99), Some(4));
    assert_eq!(superseded(&[record(9, 1)], 0, UnixMillis(99)), None);
}

#[test]
fn objects_of_an_earlier_database_neither_count_nor_keep_the_boundary() {
    let first = 3 * NUMBERS_A_MILLI;
    let database = DatabaseId::counting_from(first, 9);
    let record = |number, at| object(ObjectName::Compactions(number), at);
    let stray = object(ObjectName::CompactionsBoundary(8), 5);
    let listed = [record(7, 1), stray, record(9, 3), record(first, 4), record(first + 1, 5)];
    let present = record_boundary_now(&listed, database);
    assert_eq!(present, first - 1);
    assert_eq!(superseded(&listed, present, UnixMillis(9)), Some(first));
}

fn held(from: u64, expires_at: Option<u64>) -> Manifest {
    let hold = Hold {
        name: "a".to_owned(),
        generation: 1,
        wal_from: WalId(from),
        seq: Seq(10),
        expires_at: expires_at.map(UnixMillis),
        most_bytes: None,
        unretained: None,
    };
    Manifest { holds: vec![hold], ..manifest() }
}

/// G2, W3: the log from a present hold on; a hold that expired but is present is alive (rule G3).
#[test]
fn a_present_hold_keeps_the_log_from_it_on() {
    let log = || (1..=7).map(|id| object(ObjectName::Wal(WalId(id)), 1)).collect();
    let goes = |state, rules| dead(&with_newest(evidence(log(), 10), state), rules).deletes;
    let gone = |ids: &[u64]| ids.iter().map(|id| ObjectName::Wal(WalId(*id))).collect::<Vec<_>>();
    assert_eq!(goes(held(3, None), Rules::ALL), gone(&[1]));
    assert_eq!(goes(held(3, Some(5)), Rules::ALL), gone(&[1]));
    assert_eq!(goes(held(3, Some(5)), Rules::ALL.without(Rule::RevokeFirst)), gone(&[1, 3]));
    assert_eq!(goes(held(3, None), Rules::ALL.without(Rule::HonourHolds)), gone(&[1, 3]));
}

/// W4: original tables of an ingest that a feed still reads, although no version contains them any
/// more.
#[test]
fn originals_that_a_feed_reads_stay() {
    let job = JobId(ulid_bits(9_000, 1));
    let outcome = IngestOutcome::Adopted(Seq(60));
    let remembered_ingests = vec![RememberedIngest { job, outcome, reason: None }];
    let fed = vec![FedIngest { seq: Seq(60), source: FedSource::Job(job) }];
    let goes = |state| dead(&with_newest(evidence(staged(job), 9_999), state), Rules::ALL).deletes;
    let passed = Manifest { remembered_ingests, ..manifest() };
    assert_eq!(goes(Manifest { fed, ..passed.clone() }), vec![]);
    assert_eq!(goes(passed).len(), 2);
}

/// L7: neither age nor bytes nor a full store move the boundary onto a version that a since-lease
/// covers.
#[test]
fn no_boundary_reaches_a_since_lease() {
    let listed = numbered(1..=9);
    let boundary = |from| manifest_boundary(&listed, UnixMillis(9999), from);
    assert_eq!(boundary(Some(ManifestId(4))), Some(ManifestId(3)));
    assert_eq!(boundary(Some(ManifestId(1))), None);
    assert_eq!([boundary(None), boundary(Some(ManifestId(9)))], [Some(ManifestId(8)); 2]);
}

/// L8: pending jobs and left names of a covered version stay, even if the newest version lacks
/// them.
#[test]
fn versions_of_a_since_lease_keep_pending_jobs_and_names() {
    let (name, job) = (SstId(95), JobId(77));
    let staged = ObjectName::IngestSst(job, SstId(96));
    let objects = vec![object(ObjectName::Compacted(name), 1), object(staged, 1)];
    let listed = [objects, numbered(3..=5)].concat();
    let before = Manifest {
        id: ManifestId(4),
        left: vec![name],
        pending_ingests: vec![crate::PendingIngest {
            job,
            ..manifest().pending_ingests[0].clone()
        }],
        ..manifest()
    };
    let newest = Manifest { ingest_horizon: UnixMillis(u64::MAX), ..manifest() };
    let goes = |from: Option<u64>, rules: Rules| {
        let mut found = evidence(listed.clone(), 9_999);
        found.kept_from = from.map(ManifestId);
        found.note(&before);
        let mut all = dead(&with_newest(found, newest.clone()), rules).deletes;
        all.retain(|name| !matches!(name, ObjectName::Manifest(_)));
        all
    };
    assert_eq!(goes(Some(4), Rules::ALL), []);
    let both = vec![ObjectName::Compacted(name), staged];
    assert_eq!(goes(Some(4), Rules::ALL.without(Rule::ManifestsKeepPending)), both);
    assert_eq!([goes(Some(5), Rules::ALL), goes(None, Rules::ALL)], [both.clone(), both]);
}

/// L10: spans of names replace the manifests of pins, also if one pin was removed and another
/// added.
#[test]
fn names_of_pinned_versions_are_kept_without_their_manifests() {
    let of = |id: u64, table_id: u128| Manifest {
        id: ManifestId(id),
        l0: vec![],
        runs: vec![crate::SortedRun {
            id: 0,
            tables: vec![table(SstId(table_id), b"a", b"b", 1, 1)],
        }],
        left: vec![],
        pending_ingests: vec![],
        ..manifest()
    };
    let mut names = noted(&[of(4, 31), of(9, 31), of(17, 32)]);
    let needed = |names: &PinnedNames, ids: &[u64]| {
        let present = ids.iter().copied().map(ManifestId).collect();
        names.needed(&present).filter(|name| matches!(name, PinnedName::Object(_))).count()
    };
    assert_eq!([needed(&names, &[4]), needed(&names, &[17]), needed(&names, &[9, 17])], [1, 1, 2]);
    assert_eq!([needed(&names, &[6]), needed(&names, &[12])], [1, 0], "a restore may come between");
    names.retain(&[ManifestId(17)].into());
    assert!(names.has_noted(ManifestId(17)) && !names.has_noted(ManifestId(9)));
    assert_eq!([needed(&names, &[9]), needed(&names, &[17])], [0, 1]);
}

/// N14, N15: names that the log may contain, of the newest state and of a pinned one.
#[test]
fn tables_of_large_batches_stay() {
    let name = ObjectName::Compacted(SstId(95));
    let listed = || vec![object(name, 1)];
    let goes = |found: Evidence, rules| dead(&found, rules).deletes;
    let left = |state: Manifest| Manifest { left: vec![SstId(95)], ..state };
    let newest = || with_newest(evidence(listed(), 10), left(manifest()));
    assert_eq!(goes(newest(), Rules::ALL), []);
    assert_eq!(goes(newest(), Rules::ALL.without(Rule::HonourLeft)), [name]);
    // A checkpoint of the state in which it was reserved; its log may contain the name.
    let pinned = manifest().checkpoints[0].manifest_id;
    let older = Manifest { id: pinned, ..left(manifest()) };
    let by = |pinned| Evidence { pinned, ..with_newest(evidence(listed(), 10), manifest()) };
    assert_eq!(goes(by(noted(&[older])), Rules::ALL), []);
    assert_eq!(goes(by(noted(&[])), Rules::ALL), [name]);
    // A feed that has not read it yet.
    let fed = vec![FedIngest { seq: Seq(60), source: FedSource::Table(SstId(95)) }];
    let found = with_newest(evidence(listed(), 10), Manifest { fed, ..manifest() });
    assert_eq!(goes(found, Rules::ALL), []);
}
