use super::*;
use crate::protocol::fencing::Failure;
use crate::protocol::testing::{TinyStore, ids, opener};
use crate::rules::Rules;
use siltstone_base::Epoch;

/// Performs what may be performed beside the current action, if there is any.
fn perform_beside(store: &mut TinyStore, open: &mut OpenWriter) -> bool {
    match open.beside() {
        Some(OpenAction::ReadWal(id)) => {
            store.requests += 1;
            open.on_early(EarlyAnswer::Wal(id, store.read_wal(id)));
            true
        }
        Some(OpenAction::Request(request)) => {
            let answer = store.serve(request.clone());
            open.on_early(EarlyAnswer::Manifests(request, answer));
            true
        }
        _ => false,
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
    let mut open = opener(&early, 2, 2, Rules::ALL);
    let mut waits = 0;
    let recovered = loop {
        if let OpenAction::Done(recovered) = open.action() {
            break recovered;
        }
        perform_beside(&mut early, &mut open);
        early.step(&mut open);
        waits += 1;
    };
    assert_eq!(recovered, expected);
    assert_eq!(ids(&recovered.replay), vec![3, 4]);
    assert_eq!(early.requests, one_by_one.requests, "no request is sent in vain");
    assert_eq!(waits, one_by_one.requests - before - 2);
}

/// Nothing is read beside the create of the claim: it has not taken effect.
#[test]
fn the_log_is_read_after_the_claim() {
    let mut store = two_in_the_log();
    let mut open = opener(&store, 2, 2, Rules::ALL);
    assert!(matches!(open.action(), OpenAction::Request(ManifestRequest::Create(_))));
    assert_eq!(open.beside(), None);
    store.step(&mut open);
    assert!(matches!(open.action(), OpenAction::Request(ManifestRequest::List { .. })));
    assert_eq!(open.beside(), Some(OpenAction::ReadWal(WalId(1))));
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
    assert_eq!(open.beside(), None);
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
    assert_eq!(open.beside(), None);
    assert_eq!(ids(&store.finish(&mut open).unwrap().replay), vec![3, 4]);
}
