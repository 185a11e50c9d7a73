use super::super::testing::{TinyStore, opener};
use super::super::{Failure, OpenAction, OpenWriter, Recovered, WriterOptions};
use super::*;
use siltstone_base::{AttemptId, PutOutcome};

/// An opener that cuts the log at `at`.
fn cutter(store: &TinyStore, claim: u128, at: u64, rules: Rules) -> OpenWriter {
    let options = WriterOptions {
        claim: AttemptId(claim),
        max_parallel_writes: 1,
        take_over: true,
        cut: Some(WalId(at)),
        ..WriterOptions::default()
    };
    OpenWriter::new(options, store.newest(), rules)
}

fn run(store: &mut TinyStore, claim: u128, at: u64) -> Recovered {
    let mut open = cutter(store, claim, at, Rules::ALL);
    store.finish(&mut open).unwrap()
}

fn places(fences: &[KeptFence]) -> Vec<(u64, u64)> {
    fences.iter().map(|fence| (fence.id.get(), fence.next_id.get())).collect()
}

/// A writer of window 3 with five objects, the third of which is unreadable.
fn damaged() -> TinyStore {
    let mut store = TinyStore::new();
    let writer = store.open(1, 3).unwrap();
    let first = writer.fence.next_id.get();
    for id in first..first + 5 {
        store.data(id, writer.epoch.get());
    }
    store.wal.insert(WalId(first + 2), WalSeen::Foreign);
    store
}

#[test]
fn rows_before_the_cut_are_kept_and_all_behind_is_cut_off() {
    let mut store = damaged();
    let first = 4;
    let recovered = run(&mut store, 9, first + 2);
    let kept: Vec<u64> = recovered.replay.iter().map(|(id, _)| id.get()).collect();
    assert_eq!(kept, vec![first, first + 1]);
    let off = recovered.cut_off.unwrap();
    assert_eq!((off.at, off.last), (WalId(first + 2), WalId(first + 4)));
    assert_eq!(off.readable, BTreeSet::from([WalId(first + 3), WalId(first + 4)]));
    assert_eq!(off.unreadable, BTreeSet::from([WalId(first + 2)]));
    // Three in a row behind the last; the last of them points past all ids in flight.
    let own = places(&recovered.keep[1..]);
    assert_eq!(own, vec![(9, 10), (10, 11), (11, 14)]);
    assert_eq!(recovered.fence.next_id, WalId(14));
}

/// Without a cut, or at another id, the same log stops every opener.
#[test]
fn the_cut_bars_until_the_commit() {
    let mut store = damaged();
    run(&mut store, 9, 6);
    let mut next = opener(&store, 7, 1, Rules::ALL);
    assert_eq!(store.finish(&mut next), Err(Failure::Foreign(WalId(6))));
    // A repair after a crash continues behind the fences of the first one.
    let again = run(&mut store, 10, 6);
    assert_eq!(again.fence.id.get(), 16);
}

/// The unreadable object was the fence of a writer that is alive: its first id is behind it, and
/// every id that it may send is taken.
fn lives_behind_a_damaged_fence(rules: Rules) -> bool {
    let mut store = TinyStore::new();
    store.open(1, 3).unwrap();
    let living = store.open(2, 3).unwrap();
    store.wal.insert(living.fence.id, WalSeen::Foreign);
    let mut open = cutter(&store, 9, living.fence.id.get(), rules);
    let recovered = store.finish(&mut open).unwrap();
    // It sends its first ids now, and ids up to three behind the committed ones.
    let (mut id, mut committed) = (living.fence.next_id, false);
    while id < recovered.fence.next_id {
        let data = WalSeen::Data { epoch: living.epoch, durable: id.minus(3) };
        match store.create_wal(id, data) {
            PutOutcome::Committed => committed = true,
            _ => break,
        }
        id = id.next();
    }
    committed
}

#[test]
fn no_live_writer_acknowledges_behind_the_cut() {
    assert!(!lives_behind_a_damaged_fence(Rules::ALL));
    assert!(lives_behind_a_damaged_fence(Rules::ALL.without(Rule::FencesInARow)));
}

/// Objects that land while the log is being fenced are cut off too, and the fences begin again
/// behind them.
#[test]
fn objects_that_land_meanwhile_are_cut_off() {
    for lands in 9..12 {
        let mut store = damaged();
        let mut open = cutter(&store, 9, 6, Rules::ALL);
        loop {
            match open.action() {
                OpenAction::CreateFence(fence) if fence.id.get() == lands => break,
                _ => store.step(&mut open),
            }
        }
        store.data(lands, 1);
        let recovered = store.finish(&mut open).unwrap();
        assert!(recovered.cut_off.unwrap().readable.contains(&WalId(lands)));
        let own: Vec<u64> = recovered.keep.iter().map(|fence| fence.id.get()).collect();
        assert!(own.ends_with(&[lands + 1, lands + 2, lands + 3]), "{own:?}");
    }
}

/// Free ids among the last W may still be in flight: they are fenced as well.
#[test]
fn a_late_object_in_front_of_the_last_finds_its_place_taken() {
    let mut store = damaged();
    store.wal.remove(&WalId(7));
    let recovered = run(&mut store, 9, 6);
    let own = places(&recovered.keep);
    assert!(own.contains(&(7, 8)), "{own:?}");
    let ends = &own[own.len() - 3..];
    assert_eq!(ends, [(9, 10), (10, 11), (11, 14)]);
}

/// A newer writer ends it, wherever it appears.
#[test]
fn a_newer_writer_ends_it() {
    let mut store = damaged();
    let mut open = cutter(&store, 9, 6, Rules::ALL);
    while !matches!(open.action(), OpenAction::ReadCutOff(_)) {
        store.step(&mut open);
    }
    store.wal.insert(WalId(8), WalSeen::Data { epoch: Epoch(9), durable: WalId(5) });
    assert_eq!(store.finish(&mut open), Err(Failure::Fenced { by: Some(Epoch(9)) }));
}

/// An intact fence behind the cut is followed as usual, and kept.
#[test]
fn a_fence_behind_the_cut_is_kept() {
    let mut store = damaged();
    let fence = KeptFence { id: WalId(9), epoch: Epoch(2), next_id: WalId(12) };
    store.create_fence(fence);
    store.open(2, 3).unwrap_err();
    let recovered = run(&mut store, 9, 6);
    assert!(recovered.keep.contains(&fence));
    let ends: Vec<u64> = recovered.keep.iter().map(|one| one.id.get()).collect();
    assert!(ends.ends_with(&[9, 12, 13, 14]), "{ends:?}");
}
