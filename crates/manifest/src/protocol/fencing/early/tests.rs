use super::*;
use crate::edit::{Edit, FlushL0};
use crate::protocol::Recovered;
use crate::protocol::fencing::Failure;
use crate::protocol::testing::{TinyStore, ids, opener};
use crate::rules::Rules;
use siltstone_base::Epoch;

/// Performs what may be performed beside the current action, if there is any.
fn perform_beside(store: &mut TinyStore, open: &mut OpenWriter) -> bool {
    let actions = open.beside();
    for action in actions.clone() {
        match action {
            OpenAction::ReadWal(id) => {
                store.requests += 1;
                open.on_early(EarlyAnswer::Wal(id, store.read_wal(id)));
            }
            OpenAction::ListWal(after) => {
                store.requests += 1;
                open.on_early(EarlyAnswer::WalListed(after, store.list_wal(after)));
            }
            OpenAction::Request(request) => {
                let answer = store.serve(request.clone());
                open.on_early(EarlyAnswer::Manifests(request, answer));
            }
            other => panic!("{other:?} beside another action"),
        }
    }
    !actions.is_empty()
}

/// Opens with early answers. Returns the result, and how often the opener had to wait.
fn open_early(store: &mut TinyStore, claim: u128) -> (Recovered, usize) {
    let mut open = opener(store, claim, 2, Rules::ALL);
    let mut waits = 0;
    loop {
        if let OpenAction::Done(recovered) = open.action() {
            return (recovered, waits);
        }
        perform_beside(store, &mut open);
        store.step(&mut open);
        waits += 1;
    }
}

/// A database with two objects in its log.
fn two_in_the_log() -> TinyStore {
    let mut store = TinyStore::new();
    store.open(1, 2).unwrap();
    (3..=4).for_each(|id| store.data(id, 1));
    store
}

#[test]
fn early_answers_replace_the_next_requests() {
    let mut one_by_one = two_in_the_log();
    let (mut early, before) = (one_by_one.clone(), one_by_one.requests);
    let expected = one_by_one.open(2, 2).unwrap();
    let (recovered, waits) = open_early(&mut early, 2);
    assert_eq!(recovered, expected);
    assert_eq!(ids(&recovered.replay), vec![3, 4]);
    assert_eq!(early.requests, one_by_one.requests, "no request is sent in vain");
    assert_eq!(waits, one_by_one.requests - before - 4);
}

/// Claim, its check, fence, confirmation: the walk and the look before the fence cost no wait.
#[test]
fn a_writer_that_closed_leaves_four_waits() {
    let mut flushed = two_in_the_log();
    let writer = flushed.open(2, 2).unwrap();
    flushed.flush_seen(&writer, 7, 4);
    let mut idle = TinyStore::new();
    let writer = idle.open(1, 2).unwrap();
    idle.commit(Edit::FlushL0(FlushL0 {
        wal_id_last_seen: WalId(2),
        ..FlushL0::nothing(writer.epoch, &idle.newest())
    }))
    .unwrap();
    for (mut store, fence) in [(flushed, 7), (idle, 3)] {
        let mut one_by_one = store.clone();
        let (recovered, waits) = open_early(&mut store, 9);
        assert_eq!(recovered, one_by_one.open(9, 2).unwrap());
        assert_eq!((recovered.fence.id, waits), (WalId(fence), 4));
        assert!(store.requests <= one_by_one.requests, "a read for a listing");
    }
}

/// An object that lands after the early reads takes the id of the fence, and is recovered.
#[test]
fn an_object_behind_the_early_reads_is_met() {
    let mut store = two_in_the_log();
    let writer = store.open(2, 2).unwrap();
    store.flush_seen(&writer, 7, 4);
    let mut open = opener(&store, 3, 2, Rules::ALL);
    assert!(perform_beside(&mut store, &mut open));
    store.data(7, 2);
    while !matches!(open.action(), OpenAction::CreateFence(_)) {
        perform_beside(&mut store, &mut open);
        store.step(&mut open);
    }
    store.step(&mut open);
    let recovered = store.finish(&mut open).unwrap();
    assert_eq!((ids(&recovered.replay), recovered.fence.id), (vec![7], WalId(8)));
}

/// An id that the manifest knows to be taken is a hole only after the claim.
#[test]
fn an_early_read_that_misses_a_known_id_is_made_again() {
    let mut store = two_in_the_log();
    let writer = store.open(2, 2).unwrap();
    store.flush_seen(&writer, 3, 4);
    let lost = store.wal.remove(&WalId(3)).unwrap();
    let mut open = opener(&store, 3, 2, Rules::ALL);
    assert!(perform_beside(&mut store, &mut open));
    store.wal.insert(WalId(3), lost);
    assert_eq!(ids(&store.finish(&mut open).unwrap().replay), vec![3, 4]);
}

/// Another process commits first: what was read before is dropped.
#[test]
fn early_reads_end_with_a_claim_that_is_lost() {
    let mut store = two_in_the_log();
    let mut open = opener(&store, 2, 2, Rules::ALL);
    assert!(perform_beside(&mut store, &mut open));
    let rival = store.open(3, 2).unwrap();
    store.flush_seen(&rival, 7, 4);
    store.free_wal();
    let recovered = store.finish(&mut open).unwrap();
    assert_eq!((ids(&recovered.replay), recovered.epoch), (vec![], Epoch(3)));
}

/// F2: another writer claims after the early look, which therefore finds nothing.
#[test]
fn an_early_look_does_not_replace_the_confirmation() {
    let mut store = two_in_the_log();
    let mut open = opener(&store, 2, 2, Rules::ALL);
    while !matches!(open.action(), OpenAction::ListWal(_)) {
        store.step(&mut open);
    }
    assert!(perform_beside(&mut store, &mut open));
    let mut other = opener(&store, 3, 2, Rules::ALL);
    store.finish(&mut other).unwrap();
    let ended = store.finish(&mut open);
    assert_eq!(ended, Err(Failure::Fenced { by: Some(Epoch(3)) }));
}

/// An object that lands after the early look is read first, and the look is made again.
#[test]
fn an_early_look_is_dropped_if_the_walk_goes_on() {
    let mut store = two_in_the_log();
    let mut open = opener(&store, 2, 2, Rules::ALL);
    while !matches!(open.action(), OpenAction::ListWal(_)) {
        store.step(&mut open);
    }
    assert!(perform_beside(&mut store, &mut open));
    store.data(5, 1);
    store.data(6, 1);
    store.step(&mut open);
    assert!(matches!(open.action(), OpenAction::ReadWal(_)));
    assert_eq!(open.beside(), vec![]);
    assert_eq!(ids(&store.finish(&mut open).unwrap().replay), vec![3, 4, 5, 6]);
}

/// The slot of the claim had been freed: what was read beside its check is not used.
#[test]
fn an_early_read_is_dropped_with_a_claim_in_a_freed_slot() {
    let mut store = two_in_the_log();
    let mut open = opener(&store, 2, 2, Rules::ALL);
    let slot = store.newest().id.next();
    store.grow(8);
    let last = store.newest().id.get();
    store.free_manifests(last - 2);
    store.step(&mut open);
    assert!(store.manifests.contains_key(&slot));
    // The late object is no part of the run above the boundary.
    assert!(perform_beside(&mut store, &mut open));
    store.step(&mut open);
    assert!(matches!(open.action(), OpenAction::Request(ManifestRequest::List { .. })));
    assert_eq!(open.beside(), vec![]);
    assert_eq!(ids(&store.finish(&mut open).unwrap().replay), vec![3, 4]);
}
