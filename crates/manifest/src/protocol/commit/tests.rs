use super::*;
use crate::edit::NewCheckpoint;
use crate::protocol::testing::TinyStore;
use crate::testing::{empty, table};
use crate::{FinishCompaction, FlushL0};
use siltstone_base::{AttemptId, CheckpointId, DatabaseId, Epoch, JobId, Seq, SstId};

fn add_checkpoint(id: u128) -> Edit {
    Edit::AddCheckpoint(NewCheckpoint { id: CheckpointId(id), ..NewCheckpoint::default() })
}

fn created(outcome: PutOutcome<()>) -> ManifestAnswer {
    ManifestAnswer::Created(outcome, AttemptId(0xa7))
}

/// The manifest that the commit wants to create.
fn planned(commit: &Commit) -> Arc<Manifest> {
    match commit.action() {
        CommitAction::Request(ManifestRequest::Create(planned)) => planned,
        other => panic!("not creating: {other:?}"),
    }
}

#[test]
fn a_commit_alone_costs_a_create_and_a_listing() {
    let mut store = TinyStore::new();
    let state = store.commit(add_checkpoint(1)).unwrap();
    assert_eq!((state.id, store.requests), (ManifestId(2), 2));
}

#[test]
fn a_lost_commit_is_planned_again_on_the_newest() {
    let mut store = TinyStore::new();
    let commit = Commit::new(add_checkpoint(1), store.newest(), Rules::ALL);
    store.commit(add_checkpoint(2)).unwrap();
    let state = store.run(commit).unwrap();
    assert_eq!(state.id, ManifestId(3));
    assert_eq!(state.checkpoints.len(), 2);
    // Planned again: it names the version with which it is committed.
    assert_eq!(state.checkpoint(CheckpointId(1)).unwrap().manifest_id, ManifestId(3));
}

/// M3: A sleeps before it creates V+1; others reach V+100, the collector frees V+1; A's create
/// succeeds in the empty slot.
#[test]
fn a_create_in_a_freed_slot_is_not_committed() {
    let mut store = TinyStore::new();
    let sleeper = Commit::new(add_checkpoint(1), store.newest(), Rules::ALL);
    store.grow(100);
    store.free_manifests(90);
    let mut believed = store.clone();
    let state = store.run(sleeper.clone()).unwrap();
    assert_eq!(state.id, ManifestId(102));
    assert!(store.newest().checkpoint(CheckpointId(1)).is_some());

    let without = Commit { rules: Rules::ALL.without(Rule::CheckSlot), ..sleeper };
    believed.run(without).unwrap();
    assert!(believed.newest().checkpoint(CheckpointId(1)).is_none());
}

/// M3: a destroyed database is gone but for its boundary; A creates its last number in the freed
/// slot; B had listed that number before, and reads A's object.
#[test]
fn nothing_is_planned_on_what_was_read_in_a_freed_slot() {
    for rules in [Rules::ALL, Rules::ALL.without(Rule::VerifyBeforeBelieving)] {
        let mut store = TinyStore::new();
        let before = store.newest();
        store.commit(add_checkpoint(1)).unwrap();
        let mut commit = Commit::new(add_checkpoint(2), Arc::clone(&before), rules);
        commit.on_answer(created(PutOutcome::Lost(())));
        let listed = Listing { newest: Some(ManifestId(2)), boundary: ManifestId(1), stands: true };
        commit.on_answer(ManifestAnswer::Listed(listed));
        let late = Commit::new(add_checkpoint(3), before, rules);
        commit.on_answer(ManifestAnswer::Read(Some(planned(&late))));
        let CommitAction::Request(ManifestRequest::List { .. }) = commit.action() else {
            assert!(!rules.has(Rule::VerifyBeforeBelieving));
            assert_eq!(planned(&commit).id, ManifestId(3));
            continue;
        };
        let freed = Listing { newest: None, boundary: ManifestId(2), stands: true };
        commit.on_answer(ManifestAnswer::Listed(freed));
        assert!(matches!(commit.action(), CommitAction::Request(ManifestRequest::List { .. })));
        let gone = Listing { newest: None, boundary: ManifestId(2), stands: false };
        commit.on_answer(ManifestAnswer::Listed(gone));
        assert_eq!(commit.action(), CommitAction::Failed(Conflict::OtherDatabase.into()));
    }
}

/// M1: an unknown outcome is settled only by the same bytes in the same slot.
#[test]
fn an_unknown_create_is_sent_again_and_finds_itself() {
    let mut store = TinyStore::new();
    let mut commit = Commit::new(add_checkpoint(1), store.newest(), Rules::ALL);
    let first = planned(&commit);
    commit.on_answer(created(PutOutcome::Unknown));
    assert_eq!(planned(&commit), first);
    // It lands late, and others continue.
    store.serve(ManifestRequest::Create(first.clone()));
    store.grow(3);
    assert_eq!(store.run(commit), Ok(first));
}

#[test]
fn a_create_that_was_not_applied_is_sent_again() {
    let mut store = TinyStore::new();
    let mut commit = Commit::new(add_checkpoint(1), store.newest(), Rules::ALL);
    commit.on_answer(created(PutOutcome::NotApplied));
    assert_eq!(store.run(commit).unwrap().id, ManifestId(2));
}

/// The database of the next two tests: writer 1, with names 50 and 51 reserved.
fn with_writer() -> (TinyStore, Edit) {
    let mut store = TinyStore::new();
    let claim = crate::ClaimWriter {
        expected: Epoch::NONE,
        claim: AttemptId(9),
        max_parallel_writes: 1,
        take_over: false,
        transient: false,
        ends_transient: false,
        reserve: vec![SstId(50), SstId(51)],
        checkpoint: None,
        merge_operator: None,
    };
    let state = store.commit(Edit::ClaimWriter(claim)).unwrap();
    let flush = FlushL0 {
        layers: vec![vec![table(SstId(50), b"a", b"z", 1, 9)]],
        flushed_seq: Seq(9),
        ..FlushL0::nothing(Epoch(1), &state)
    };
    (store, Edit::FlushL0(flush))
}

fn compact_away(store: &mut TinyStore) {
    let claim = AttemptId(70);
    store.commit(Edit::ClaimCompactor { writer: None, expected: Epoch::NONE, claim }).unwrap();
    let finish = FinishCompaction {
        epoch: Epoch(1),
        job: JobId(1),
        planned_on: ManifestId::FIRST,
        remove: vec![SstId(50).into()],
        add: vec![table(SstId(80), b"a", b"z", 1, 9)],
        destination: 0,
        retire: vec![],
    };
    store.commit(Edit::FinishCompaction(finish)).unwrap();
}

/// M2 (model): a flush with an unknown outcome landed, compaction removed its table, the collector
/// freed the slot. It is settled by the reservation of its name, not by the presence of the table.
#[test]
fn an_ambiguous_flush_is_not_added_twice_after_compaction() {
    for rules in [Rules::ALL, Rules::ALL.without(Rule::SettleByReservation)] {
        let (mut store, flush) = with_writer();
        let mut commit = Commit::new(flush, store.newest(), rules);
        store.serve(ManifestRequest::Create(planned(&commit)));
        commit.on_answer(created(PutOutcome::Unknown));
        compact_away(&mut store);
        store.grow(1);
        store.free_manifests(store.newest().id.get() - 1);
        let settled = store.run(commit);
        if rules == Rules::ALL {
            assert_eq!(settled, Ok(store.newest()));
            assert!(store.newest().l0.is_empty());
        } else {
            // Now only flushed_seq, which did not grow, prevents the table from being added again.
            assert!(matches!(settled, Err(Refusal::Invalid(_))), "{settled:?}");
        }
    }
}

/// The same with a late object of another process in the freed slot: Lost does not mean that ours
/// never existed.
#[test]
fn lost_after_unknown_is_settled_on_the_newest_state() {
    let (mut store, flush) = with_writer();
    let mut commit = Commit::new(flush, store.newest(), Rules::ALL);
    store.serve(ManifestRequest::Create(planned(&commit)));
    commit.on_answer(created(PutOutcome::Unknown));
    compact_away(&mut store);
    store.free_manifests(4);
    let zombie = Manifest { id: ManifestId(3), ..empty() };
    store.manifests.insert(ManifestId(3), Arc::new(zombie));
    assert_eq!(store.run(commit), Ok(store.newest()));
    assert!(store.newest().l0.is_empty());
}

/// A committer lists V+1 and sleeps; V+1 is freed, and its own late create lands there.
#[test]
fn ones_own_late_landing_is_not_taken_for_the_newest_state() {
    for rules in [Rules::ALL, Rules::ALL.without(Rule::VerifyBeforeBelieving)] {
        let mut store = TinyStore::new();
        let mut commit = Commit::new(add_checkpoint(1), store.newest(), rules);
        let late = planned(&commit);
        store.grow(1);
        commit.on_answer(created(PutOutcome::Lost(())));
        let CommitAction::Request(list) = commit.action() else { panic!("ended") };
        commit.on_answer(store.serve(list));
        store.grow(9);
        store.free_manifests(8);
        store.serve(ManifestRequest::Create(late));
        store.run(commit).unwrap();
        let really = store.newest().checkpoint(CheckpointId(1)).is_some();
        assert_eq!(really, rules == Rules::ALL);
    }
}

/// A refusal counts only from the newest state: here the checkpoint was added after the state that
/// was read.
#[test]
fn a_refusal_by_an_old_state_is_not_final() {
    let mut store = TinyStore::new();
    let old = store.newest();
    store.commit(add_checkpoint(1)).unwrap();
    let refresh = Edit::RefreshCheckpoint { id: CheckpointId(1), expires_at: None };
    assert!(store.run(Commit::new(refresh, old, Rules::ALL)).is_ok());
    let gone = Edit::RefreshCheckpoint { id: CheckpointId(2), expires_at: None };
    let refused = Err(Refusal::Expired { checkpoint: CheckpointId(2) });
    assert_eq!(store.commit(gone), refused);
}

#[test]
fn an_edit_in_effect_already_creates_nothing() {
    let mut store = TinyStore::new();
    let state = store.commit(Edit::RemoveCheckpoint { id: CheckpointId(4) }).unwrap();
    assert_eq!((state.id, store.manifests.len()), (ManifestId(1), 1));
}

/// F8: the database was destroyed and created again at the same place.
#[test]
fn another_database_at_the_same_place_is_refused() {
    let mut store = TinyStore::new();
    let commit = Commit::new(add_checkpoint(1), store.newest(), Rules::ALL);
    let other = |id| Arc::new(Manifest { database: DatabaseId(5), id, ..empty() });
    store.manifests = [1, 2].map(|id| (ManifestId(id), other(ManifestId(id)))).into();
    assert_eq!(store.run(commit), Err(Conflict::OtherDatabase.into()));
}

#[test]
fn the_second_of_two_creators_gets_the_firsts_database() {
    let mut store = TinyStore::new();
    let first = store.newest();
    let second = Manifest { database: DatabaseId(5), ..empty() };
    assert_eq!(store.run(Commit::found(second.clone(), Rules::ALL)), Ok(first));
    // And a committer whose base was freed long ago.
    store.grow(5);
    store.free_manifests(3);
    assert_eq!(store.run(Commit::found(second, Rules::ALL)), Ok(store.newest()));
}
