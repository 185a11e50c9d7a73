//! Checkpoints of writers and readers: which processes may change them, and how edits are
//! recognised.

use super::*;

/// `manifest()`, with a checkpoint of its writer and one of a reader.
fn kept() -> Manifest {
    let mut base = manifest();
    let own = |id, owner, expires_at: Option<u64>| crate::state::Checkpoint {
        owner,
        ..crate::testing::checkpoint(id, expires_at)
    };
    base.checkpoints.push(own(3, CheckpointOwner::Writer(Epoch(2)), None));
    base.checkpoints.push(own(4, CheckpointOwner::Reader, Some(900)));
    base
}

/// A checkpoint that is made through a writer contains the rows that this writer accepted. A newer
/// writer may have begun on a state that a restore replaced.
#[test]
fn a_checkpoint_through_a_writer_is_refused_once_there_is_a_newer_one() {
    let base = manifest();
    let through = |epoch| {
        let through = Some(Epoch(epoch));
        let new = NewCheckpoint { id: CheckpointId(9), through, ..NewCheckpoint::default() };
        Edit::AddCheckpoint(new).apply(&base)
    };
    assert!(through(base.writer_epoch.get()).is_ok());
    let by = base.writer_epoch;
    assert_eq!(through(by.get() - 1), Err(Refusal::Fenced { by }));
}

/// C1: a writer's checkpoint is removed by its own commits, its close, and the next claim.
#[test]
fn a_writers_checkpoint_is_the_writers() {
    let (base, id) = (kept(), CheckpointId(3));
    let refused = Err(Conflict::OfTheWriter { epoch: Epoch(2) }.into());
    let at = Some(UnixMillis(9));
    assert_eq!(Edit::RemoveCheckpoint { id }.apply(&base), refused);
    assert_eq!(Edit::RefreshCheckpoint { id, expires_at: at }.apply(&base), refused);
    let release = vec![Release { checkpoint: id, needed: vec![] }];
    let update = UpdateCheckpoints { release: release.clone(), ..UpdateCheckpoints::default() };
    assert_eq!(Edit::UpdateCheckpoints(update).apply(&base), refused);
    let revoke = Edit::RevokeExpired { ids: vec![id], now: UnixMillis(u64::MAX) };
    assert!(revoke.apply(&base).unwrap().checkpoint(id).is_some());

    let own = FlushL0 { release, ..FlushL0::nothing(Epoch(2), &base) };
    assert!(Edit::FlushL0(own).apply(&base).unwrap().checkpoint(id).is_none());
    let closed = Edit::close_without_log(Epoch(2)).apply(&base).unwrap();
    assert!(closed.checkpoint(id).is_none());
    let claimed = Edit::ClaimWriter(claim(2, 9));
    assert!(claimed.apply(&base).unwrap().checkpoint(id).is_none());
    let piling = Rules::ALL.without(Rule::TakeoverRemovesPins);
    assert!(claimed.apply_with(&base, piling).unwrap().checkpoint(id).is_some());
}

/// A writer's checkpoint pins no WAL: the writer has these rows in memory.
#[test]
fn a_flush_swaps_the_writers_checkpoint_in_one_commit() {
    let base = kept();
    let swap = FlushL0 {
        checkpoint: Some(NewCheckpoint { id: CheckpointId(7), ..NewCheckpoint::default() }),
        release: vec![Release { checkpoint: CheckpointId(3), needed: vec![SstId(14), SstId(9)] }],
        ..flush(&base)
    };
    let edit = Edit::FlushL0(swap);
    let next = edit.apply(&base).unwrap();
    assert!(next.checkpoint(CheckpointId(3)).is_none() && edit.in_effect(&next));
    let new = next.checkpoint(CheckpointId(7)).unwrap();
    assert_eq!((new.manifest_id, new.owner), (next.id, CheckpointOwner::Writer(Epoch(2))));
    assert!(!new.pins_wal(new.replay_from));

    // A compaction was committed first and removed table 14, which a scan may be reading.
    let mut compaction = finish(&[14, 13], 7);
    compaction.add[0].max_seq = Seq(60);
    let compacted = Edit::FinishCompaction(compaction).apply(&base).unwrap();
    let next = edit.apply(&compacted).unwrap();
    assert!(next.checkpoint(CheckpointId(3)).is_some() && edit.in_effect(&next));
    assert_eq!(next.checkpoint(CheckpointId(7)).unwrap().manifest_id, next.id);
    let careless = edit.apply_with(&compacted, Rules::ALL.without(Rule::ReleaseUnread)).unwrap();
    assert!(careless.checkpoint(CheckpointId(3)).is_none());
}

/// A commit of checkpoints alone is not in effect before it is committed.
#[test]
fn a_commit_that_only_pins_or_lets_go_is_recognised() {
    let base = kept();
    let nothing = || FlushL0::nothing(Epoch(2), &base);
    let pins = Edit::FlushL0(FlushL0 {
        checkpoint: Some(NewCheckpoint { id: CheckpointId(7), ..NewCheckpoint::default() }),
        ..nothing()
    });
    let release = vec![Release { checkpoint: CheckpointId(3), needed: vec![] }];
    let lets_go = Edit::FlushL0(FlushL0 { release, ..nothing() });
    for edit in [pins, lets_go] {
        assert!(!edit.in_effect(&base), "{edit:?}");
        assert!(edit.in_effect(&edit.apply(&base).unwrap()), "{edit:?}");
    }
}

#[test]
fn a_reader_swaps_and_refreshes_in_one_commit() {
    let base = kept();
    let expires_at = Some(UnixMillis(5000));
    let new = NewCheckpoint {
        id: CheckpointId(8),
        owner: CheckpointOwner::Reader,
        expires_at,
        wal_id_last_seen: Some(WalId(9)),
        ..NewCheckpoint::default()
    };
    let update = UpdateCheckpoints {
        add: Some(new),
        release: vec![Release { checkpoint: CheckpointId(4), needed: vec![SstId(9)] }],
        refresh: vec![CheckpointId(1), CheckpointId(4)],
        expires_at,
    };
    let edit = Edit::UpdateCheckpoints(update.clone());
    assert!(!edit.in_effect(&base));
    let next = edit.apply(&base).unwrap();
    assert!(edit.in_effect(&next));
    let of = |id| next.checkpoint(CheckpointId(id)).map(|one| (one.manifest_id, one.expires_at));
    assert_eq!((of(8), of(4)), (Some((next.id, expires_at)), None));
    assert_eq!(of(1), Some((base.checkpoints[0].manifest_id, expires_at)));
    assert!(next.checkpoint(CheckpointId(8)).unwrap().pins_wal(WalId(9)));

    let gone = UpdateCheckpoints { refresh: vec![CheckpointId(99)], ..update };
    let refused = Edit::UpdateCheckpoints(gone).apply(&base);
    assert_eq!(refused, Err(Refusal::Expired { checkpoint: CheckpointId(99) }));
}

/// A reader may end without notice; a writer's checkpoint never expires.
#[test]
fn the_owner_of_a_checkpoint_decides_whether_it_expires() {
    let new = |owner, expires_at: Option<u64>| {
        Edit::AddCheckpoint(NewCheckpoint {
            id: CheckpointId(7),
            owner,
            expires_at: expires_at.map(UnixMillis),
            ..NewCheckpoint::default()
        })
    };
    let writer = CheckpointOwner::Writer(Epoch(2));
    assert!(new(CheckpointOwner::Reader, Some(9)).apply(&kept()).is_ok());
    assert!(new(writer, None).apply(&kept()).is_ok());
    assert!(new(CheckpointOwner::User, None).apply(&kept()).is_ok());
    let endless = Edit::RefreshCheckpoint { id: CheckpointId(4), expires_at: None };
    for wrong in [new(CheckpointOwner::Reader, None), new(writer, Some(9)), endless] {
        assert!(matches!(wrong.apply(&kept()), Err(Refusal::Invalid(_))), "{wrong:?}");
    }
    let other = new(CheckpointOwner::Writer(Epoch(1)), None);
    assert_eq!(other.apply(&kept()), Err(Refusal::Fenced { by: Epoch(2) }));
}

/// C3: an expired checkpoint that is present is valid; a removed one does not return.
#[test]
fn a_present_checkpoint_is_alive_despite_the_clock() {
    let base = kept();
    let long_past = base.checkpoint(CheckpointId(4)).unwrap();
    assert!(long_past.expired_at(UnixMillis(1_000_000)));
    let refresh =
        Edit::RefreshCheckpoint { id: CheckpointId(4), expires_at: Some(UnixMillis(2_000_000)) };
    let copy = Edit::AddCheckpoint(NewCheckpoint {
        id: CheckpointId(9),
        source: Some(CheckpointId(4)),
        ..NewCheckpoint::default()
    });
    assert!(refresh.apply(&base).is_ok() && copy.apply(&base).is_ok());
    let revoke = Edit::RevokeExpired { ids: vec![CheckpointId(4)], now: UnixMillis(1_000_000) };
    let revoked = revoke.apply(&base).unwrap();
    let gone = Err(Refusal::Expired { checkpoint: CheckpointId(4) });
    assert_eq!(refresh.apply(&revoked), gone);
    assert_eq!(copy.apply(&revoked), gone);
}

#[test]
fn a_destroyed_database_lets_readers_go_and_pins_nothing_new() {
    let base = Manifest { destroyed_at: Some(UnixMillis(1)), ..kept() };
    let release = vec![Release { checkpoint: CheckpointId(4), needed: vec![] }];
    let only = UpdateCheckpoints { release, ..UpdateCheckpoints::default() };
    assert!(Edit::UpdateCheckpoints(only.clone()).apply(&base).is_ok());
    let refresh = UpdateCheckpoints { refresh: vec![CheckpointId(4)], ..only };
    let refused = Edit::UpdateCheckpoints(refresh).apply(&base);
    assert_eq!(refused, Err(Conflict::Destroyed.into()));
}
