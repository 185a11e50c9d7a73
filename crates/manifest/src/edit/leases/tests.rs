use super::*;
use crate::edit::{Edit, FlushL0};
use crate::testing::{manifest, table};
use proptest::prelude::*;
use siltstone_base::{Epoch, ManifestId, Seq, SstId};
use std::collections::{BTreeMap, BTreeSet};

fn cover(newest: bool, versions: &[u64], enough: u64, until: u64) -> Edit {
    let versions = versions.iter().map(|id| version(*id)).collect();
    let (enough, until) = (UnixMillis(enough), UnixMillis(until));
    Edit::CoverVersions(CoverVersions { since: None, newest, versions, enough, until })
}

/// A since-lease on the version that the commit makes, and point leases.
fn since(since: u64, versions: &[u64], enough: u64, until: u64) -> Edit {
    match cover(false, versions, enough, until) {
        Edit::CoverVersions(cover) => {
            Edit::CoverVersions(CoverVersions { since: Some(UnixMillis(since)), ..cover })
        }
        other => other,
    }
}

fn version(id: u64) -> LeasedVersion {
    LeasedVersion { manifest_id: ManifestId(id), manifest_attempt: AttemptId(1) }
}

fn newest_leased(state: &Manifest) -> Option<ManifestId> {
    state.leased_as(state, Rules::ALL).map(|(version, _)| version.manifest_id)
}

/// The expiry and the versions of each record.
fn records(state: &Manifest) -> Vec<(u64, Vec<u64>)> {
    let versions = |lease: &Lease| lease.versions.iter().map(|one| one.manifest_id.get()).collect();
    state.leases.iter().map(|lease| (lease.expires_at.0, versions(lease))).collect()
}

fn bare() -> Manifest {
    Manifest { leases: Vec::new(), ..manifest() }
}

/// The next layer of L0.
fn flushed(base: &Manifest) -> Manifest {
    let seq = base.flushed_seq.next();
    let name = SstId(1000 + u128::from(seq.0));
    let reserve = Edit::ReserveNames { epoch: Epoch(2), names: vec![name] };
    let base = reserve.apply(base).unwrap();
    let flush = FlushL0 {
        layers: vec![vec![table(name, b"a", b"z", seq.0, seq.0)]],
        flushed_seq: seq,
        ..FlushL0::nothing(Epoch(2), &base)
    };
    Edit::FlushL0(flush).apply(&base).unwrap()
}

#[test]
fn a_version_enters_with_the_commit_that_creates_it() {
    let base = bare();
    let edit = cover(true, &[], 500, 1000);
    assert!(!edit.in_effect(&base));
    let state = edit.apply(&base).unwrap();
    assert_eq!(records(&state), vec![(1000, vec![state.id.get()])]);
    assert_eq!(state.clone().written_as(AttemptId(5)).leases[0].versions[0].manifest_attempt, {
        AttemptId(5)
    });
    assert!(edit.in_effect(&state));
    // A later request for the same or a slightly longer time is in effect already.
    assert!(cover(true, &[], 700, 1125).in_effect(&state));
    assert!(!cover(true, &[], 1001, 1125).in_effect(&state));
}

/// L2: while no table changes, the same version is sufficient; after a change it is not.
#[test]
fn the_newest_tables_are_told_by_the_commit_that_changed_them() {
    let first = cover(true, &[], 500, 1000).apply(&bare()).unwrap();
    let idle = Edit::KeepFences { epoch: Epoch(2), fences: vec![] }.apply(&first).unwrap();
    assert_eq!(newest_leased(&idle), Some(first.id));
    let renewed = cover(true, &[], 1500, 2000).apply(&idle).unwrap();
    assert_eq!(records(&renewed), vec![(2000, vec![first.id.get()])]);

    let changed = flushed(&renewed);
    assert_eq!(newest_leased(&changed), None);
    let state = cover(true, &[], 1500, 2000).apply(&changed).unwrap();
    assert_eq!(records(&state), vec![(2000, vec![first.id.get(), state.id.get()])]);
}

#[test]
fn a_version_moves_to_a_later_record_and_nobodys_time_is_cut() {
    let first = cover(true, &[], 500, 1000).apply(&bare()).unwrap();
    let second = cover(true, &[], 500, 1000).apply(&flushed(&first)).unwrap();
    let (old, new) = (first.id.get(), second.id.get());
    assert_eq!(records(&second), vec![(1000, vec![old, new])]);
    let renewed = cover(false, &[old], 1001, 1500).apply(&second).unwrap();
    assert_eq!(records(&renewed), vec![(1000, vec![new]), (1500, vec![old])]);
    // A request for a shorter time shortens nothing.
    let less = cover(false, &[old, new], 1001, 1200).apply(&renewed).unwrap();
    assert_eq!(records(&less), vec![(1200, vec![new]), (1500, vec![old])]);
}

/// L1, G3: a present lease is alive; a dropped one stays dropped.
#[test]
fn a_revoked_lease_does_not_come_back() {
    let first = cover(true, &[], 500, 1000).apply(&bare()).unwrap();
    let old = first.id.get();
    // Expired but present: it is renewed nevertheless. The collector comes too late.
    let renewed = cover(false, &[old], 1001, 3000).apply(&first).unwrap();
    let revoke = Edit::RevokeExpired { ids: vec![], now: UnixMillis(2000) };
    assert!(!revoke.in_effect(&first) && revoke.in_effect(&renewed));
    assert_eq!(records(&revoke.apply(&renewed).unwrap()), vec![(3000, vec![old])]);
    // In the other order.
    let revoked = revoke.apply(&first).unwrap();
    assert_eq!(records(&revoked), vec![]);
    let late = cover(false, &[old], 1001, 3000);
    assert!(late.in_effect(&revoked));
    assert_eq!(records(&late.apply(&revoked).unwrap()), vec![]);
}

#[test]
fn a_33rd_record_joins_a_later_one_or_prolongs_the_last() {
    let mut state = bare();
    for n in 1..=MOST_LEASES as u64 {
        state = cover(true, &[], n * 100, n * 100).apply(&flushed(&state)).unwrap();
    }
    assert_eq!(state.leases.len(), MOST_LEASES);
    let between = cover(true, &[], 250, 250).apply(&flushed(&state)).unwrap();
    assert_eq!(between.leases.len(), MOST_LEASES);
    assert_eq!(between.lease_of(between.id).unwrap().expires_at, UnixMillis(300));
    let last = cover(true, &[], 9000, 9000).apply(&flushed(&state)).unwrap();
    assert_eq!(last.leases.len(), MOST_LEASES);
    assert_eq!(last.leases.last().unwrap().versions.len(), 2);
    assert_eq!(last.leases.last().unwrap().expires_at, UnixMillis(9000));
}

#[test]
fn versions_are_bounded_and_renewals_are_not_refused() {
    let mut state = bare();
    state.id = ManifestId(5000);
    state.tables_since = state.id;
    let versions = (1..=MOST_LEASED as u64).map(version).collect();
    state.leases = vec![Lease { expires_at: UnixMillis(100), versions }];
    let refused = cover(true, &[], 200, 200).apply(&state).unwrap_err();
    assert!(matches!(refused, Refusal::Invalid(why) if why.contains("let the collector run")));
    assert!(cover(false, &[1, 2], 200, 200).apply(&state).is_ok());
}

/// L9: the smallest covered version never falls. The run of RFC 0048: a reader that slept covers a
/// version that was dropped and collected meanwhile.
#[test]
fn a_since_lease_begins_with_the_commit_that_makes_it() {
    let first = since(1000, &[], 500, 500).apply(&bare()).unwrap();
    assert_eq!(first.kept_from(), Some(first.id));
    let moved = flushed(&flushed(&first));
    assert!(since(1000, &[], 500, 500).in_effect(&moved), "later versions are covered");
    let later = since(2000, &[], 1001, 1001).apply(&moved).unwrap();
    assert_eq!((later.kept_from(), later.since_leases.len()), (Some(first.id), 2));
    let revoke = Edit::RevokeExpired { ids: vec![], now: UnixMillis(1500) };
    assert!(!revoke.in_effect(&later));
    let revoked = revoke.apply(&later).unwrap();
    assert_eq!(revoked.kept_from(), Some(later.id));
    let old = since(3000, &[first.id.get()], 2001, 3000).apply(&revoked).unwrap();
    assert_eq!((old.kept_from(), records(&old)), (Some(later.id), vec![]));
}

/// A scan that outlasts the since-lease: its version continues under its own point lease.
#[test]
fn versions_of_a_since_lease_may_have_a_point_lease() {
    let first = since(1000, &[], 500, 500).apply(&bare()).unwrap();
    let held = first.id.get();
    let moved = flushed(&first);
    let edit = since(2000, &[held], 1001, 2000);
    assert!(!edit.in_effect(&moved));
    let both = edit.apply(&moved).unwrap();
    assert_eq!(records(&both), vec![(2000, vec![held])]);
    assert_eq!(both.lease_of(first.id).unwrap().versions, [version(held)]);
    assert!(edit.in_effect(&both));
}

/// If there is no room for point leases, a version stays under its present lease, and no commit is
/// refused.
#[test]
fn without_room_for_points_nothing_is_refused() {
    let mut state = since(1000, &[], 500, 500).apply(&bare()).unwrap();
    let held = state.id.get();
    state.id = ManifestId(5000);
    let versions = (1000..1000 + MOST_LEASED as u64).map(version).collect();
    state.leases = vec![Lease { expires_at: UnixMillis(100), versions }];
    let edit = since(2000, &[held], 1001, 2000);
    let covered = edit.apply(&state).unwrap();
    assert!(covered.lease_of(ManifestId(held)).is_none() && edit.in_effect(&covered));
}

#[derive(Clone, Debug)]
enum Happens {
    Flush,
    Cover { newest: bool, named: Vec<usize>, until: u64 },
    Revoke { now: u64 },
}

fn any_happening() -> impl Strategy<Value = Happens> {
    prop_oneof![
        Just(Happens::Flush),
        (any::<bool>(), prop::collection::vec(0..40usize, 0..3), 1..400u64)
            .prop_map(|(newest, named, until)| Happens::Cover { newest, named, until }),
        (1..300u64).prop_map(|now| Happens::Revoke { now }),
    ]
}

proptest! {
    /// Never more than 32 records, each version in one. A covered version stays covered until its
    /// expiry, and a dropped one does not return.
    #[test]
    fn leases_are_bounded_and_nobodys_time_is_cut(
        story in prop::collection::vec(any_happening(), 1..150)
    ) {
        let mut state = bare();
        let mut covered: BTreeMap<ManifestId, UnixMillis> = BTreeMap::new();
        let (mut all, mut gone) = (Vec::new(), Vec::new());
        for happens in story {
            let mut revoked = UnixMillis(0);
            let edit = match happens {
                Happens::Flush => {
                    state = flushed(&state);
                    continue;
                }
                Happens::Cover { newest, named, until } => {
                    let named = named.iter().filter_map(|n| all.get(*n));
                    let named: Vec<u64> = named.map(|id| ManifestId::get(*id)).collect();
                    cover(newest, &named, until, until)
                }
                Happens::Revoke { now } => {
                    revoked = UnixMillis(now);
                    Edit::RevokeExpired { ids: vec![], now: revoked }
                }
            };
            if edit.in_effect(&state) {
                continue;
            }
            state = edit.apply(&state).unwrap();
            prop_assert!(edit.in_effect(&state));
            prop_assert!(state.leases.len() <= MOST_LEASES);
            let each: Vec<_> = state.leases.iter().flat_map(|lease| &lease.versions).collect();
            let ids: BTreeSet<_> = each.iter().map(|one| one.manifest_id).collect();
            prop_assert_eq!(ids.len(), each.len());
            for (id, until) in &covered {
                match state.lease_of(*id) {
                    Some(lease) => prop_assert!(lease.expires_at >= *until),
                    None => prop_assert!(*until <= revoked),
                }
            }
            prop_assert!(gone.iter().all(|id| !ids.contains(id)));
            gone.extend(covered.keys().filter(|id| !ids.contains(id)));
            all.extend(ids.iter().filter(|id| !covered.contains_key(id)));
            covered = ids.iter().map(|id| (*id, state.lease_of(*id).unwrap().expires_at)).collect();
        }
        prop_assert_eq!(state.flushed_seq, state.flushed_seq.max(Seq(60)));
    }
}
