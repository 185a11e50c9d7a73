use super::*;
use crate::state::{Checkpoint, KeptFence};
use siltstone_base::DatabaseId;

fn destroy(soft: bool) -> Destroy {
    let fence = KeptFence { id: WalId(8), epoch: Epoch(2), next_id: WalId(10) };
    let (at, now) = (UnixMillis(1_000), UnixMillis(1_000));
    Destroy { epoch: Some(Epoch(2)), at, now, soft, fences: vec![fence] }
}

fn owned(id: u128, owner: CheckpointOwner, expires_at: Option<u64>) -> Checkpoint {
    Checkpoint { owner, ..crate::testing::checkpoint(id, expires_at) }
}

fn apply(edit: Destroy, base: &Manifest) -> Result<Manifest, Refusal> {
    Edit::Destroy(edit).apply(base)
}

#[test]
fn it_ends_the_writer_and_says_so() {
    let base = Manifest { checkpoints: Vec::new(), ..manifest() };
    let next = apply(destroy(false), &base).unwrap();
    assert_eq!(next.destroyed_at, Some(UnixMillis(1_000)));
    assert!(next.kept_fences.contains(&destroy(false).fences[0]));
    assert_eq!((next.replay_from, next.wal_id_last_seen), (WalId(10), WalId(9)));
    assert!(next.reserved.is_empty() && next.closed_cleanly() && is_let_go(&next));
    assert!(Edit::Destroy(destroy(false)).in_effect(&next));
    assert!(!Edit::Destroy(destroy(false)).in_effect(&base));
}

/// D1: a process that was overtaken since its fence destroys nothing.
#[test]
fn another_epoch_is_fenced() {
    let base = Manifest { checkpoints: Vec::new(), ..manifest() };
    let older = Destroy { epoch: Some(Epoch(1)), ..destroy(false) };
    let none = Destroy { epoch: None, ..destroy(false) };
    for edit in [older, none] {
        assert_eq!(apply(edit.clone(), &base), Err(Refusal::Fenced { by: Epoch(2) }));
        let without = Rules::ALL.without(Rule::FenceBeforeDestroy);
        assert!(Edit::Destroy(edit).apply_with(&base, without).is_ok());
    }
}

#[test]
fn a_hard_one_names_who_needs_it() {
    let owners = [
        (CheckpointOwner::User, None, true),
        (CheckpointOwner::User, Some(2_000), true),
        (CheckpointOwner::User, Some(1_000), false),
        (CheckpointOwner::Clone(DatabaseId(9)), None, true),
        (CheckpointOwner::Clone(DatabaseId(9)), Some(1), false),
        (CheckpointOwner::Other { kind: 9, epoch: None, database: None }, None, true),
        (CheckpointOwner::Reader, Some(2_000), false),
        (CheckpointOwner::Writer(Epoch(2)), None, false),
    ];
    for (owner, expires_at, bars) in owners {
        let checkpoints = vec![owned(7, owner, expires_at)];
        let base = Manifest { checkpoints, ..manifest() };
        let done = apply(destroy(false), &base);
        let pinned = Conflict::Pinned { checkpoint: CheckpointId(7), more: 0 };
        match bars {
            true => assert_eq!(done, Err(pinned.into()), "{owner:?}"),
            false => assert!(is_let_go(&done.unwrap()), "{owner:?}"),
        }
    }
}

/// D3: a destroyed state without pins accepts no edit. Otherwise a clone's collector that was about
/// to detach would commit, and the remover would take that commit for a sign that another process
/// has finished.
#[test]
fn a_late_detach_does_not_fit_the_last_manifest() {
    let entry = crate::state::Ancestor {
        number: 3,
        database: DatabaseId(9),
        location: "memory://parent".to_owned(),
        checkpoint: CheckpointId(77),
    };
    let ancestors = vec![entry];
    let base = Manifest { checkpoints: Vec::new(), ancestors, last_ancestor: 3, ..manifest() };
    let detach = Edit::Clone(CloneEdit::Detach { number: 3 });
    assert!(detach.apply(&base).is_ok());
    for soft in [false, true] {
        let ended = apply(destroy(soft), &base).unwrap();
        assert_eq!(ended.ancestors, base.ancestors, "a removal needs them");
        assert_eq!(detach.apply(&ended), Err(Conflict::Destroyed.into()));
    }
}

/// D2: a soft destroy waits for all pins; the remaining state is that of a hard one.
#[test]
fn a_soft_one_keeps_what_is_pinned() {
    let checkpoints = vec![
        owned(7, CheckpointOwner::User, None),
        owned(8, CheckpointOwner::Writer(Epoch(2)), None),
    ];
    let base = Manifest { checkpoints, ..manifest() };
    let soft = apply(destroy(true), &base).unwrap();
    assert_eq!(soft.checkpoints.len(), 1, "the writer's has gone with it");
    assert!(Edit::Destroy(destroy(true)).in_effect(&soft));
    let hard = Destroy { epoch: None, fences: Vec::new(), ..destroy(false) };
    assert!(matches!(apply(hard.clone(), &soft), Err(Refusal::Conflict(Conflict::Pinned { .. }))));
    let let_go = Edit::RemoveCheckpoint { id: CheckpointId(7) }.apply(&soft).unwrap();
    let gone = apply(Destroy { at: UnixMillis(9_000), ..hard.clone() }, &let_go).unwrap();
    assert_eq!(gone.destroyed_at, Some(UnixMillis(1_000)), "the first one counts");
    assert!(is_let_go(&gone) && Edit::Destroy(hard).in_effect(&gone));
}

/// D1: there is no writer to fence.
#[test]
fn one_that_was_never_initialised_ends_by_that_commit_alone() {
    let base = Manifest { initialized: false, ..empty() };
    let edit = Destroy { epoch: None, fences: Vec::new(), ..destroy(false) };
    assert!(apply(edit, &base).unwrap().destroyed_at.is_some());
    let other = Edit::RemoveCheckpoint { id: CheckpointId(7) }.apply(&base);
    assert_eq!(other, Err(Conflict::NotInitialized.into()));
}

/// D3: nothing is pinned, so the number of the last state stays the last one.
#[test]
fn no_edit_fits_an_unpinned_destroyed_database() {
    let base = Manifest { checkpoints: Vec::new(), ..manifest() };
    let last = apply(destroy(false), &base).unwrap();
    let edits = [
        Edit::ClaimWriter(claim(2, 9)),
        Edit::close_without_log(Epoch(2)),
        Edit::RemoveCheckpoint { id: CheckpointId(7) },
        Edit::RevokeExpired { ids: vec![CheckpointId(7)], now: UnixMillis(9_000) },
        Edit::UpdateCheckpoints(UpdateCheckpoints {
            release: vec![Release { checkpoint: CheckpointId(7), needed: Vec::new() }],
            ..UpdateCheckpoints::default()
        }),
        Edit::Destroy(destroy(true)),
        Edit::Destroy(destroy(false)),
    ];
    for edit in edits {
        assert!(edit.in_effect(&last) || edit.apply(&last).is_err(), "{edit:?}");
    }
}
