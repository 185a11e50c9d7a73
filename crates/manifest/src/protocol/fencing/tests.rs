use super::*;
use crate::edit::FlushL0;
use crate::protocol::testing::{TinyStore, fence_object, ids, opener};
use crate::protocol::{HoleProof, WalWindow, WindowEvent};
use crate::state::WRITER_RECORDS;
use siltstone_base::CheckpointId;

fn fenced(by: u64) -> Failure {
    Failure::Fenced { by: Some(Epoch(by)) }
}

fn without(rule: Rule) -> Rules {
    Rules::ALL.without(rule)
}

#[test]
fn the_first_writer_of_a_database_opens() {
    let mut store = TinyStore::new();
    let recovered = store.open(1, 4).unwrap();
    assert_eq!((recovered.epoch, ids(&recovered.replay)), (Epoch(1), vec![]));
    assert_eq!(recovered.fence.next_id, WalId(5));
    // There was no writer before.
    assert_eq!(recovered.keep, vec![]);
    // Create and check, one read, a listing of later objects, look, fence, confirm.
    assert_eq!(store.requests, 7);
}

#[test]
fn a_walk_replays_older_data_and_jumps_over_older_fences() {
    let mut store = TinyStore::new();
    let first = store.open(1, 2).unwrap();
    assert_eq!(first.fence.next_id, WalId(3));
    store.data(3, 1);
    store.data(4, 1);
    let second = store.open(2, 2).unwrap();
    assert_eq!(ids(&second.replay), vec![3, 4]);
    assert_eq!((second.fence.id, second.fence.next_id), (WalId(5), WalId(7)));
    // Every process ignores the first writer's late object in the gap.
    store.data(6, 1);
    store.data(7, 2);
    let third = store.open(3, 2).unwrap();
    assert_eq!(ids(&third.replay), vec![3, 4, 7]);
    assert_eq!(third.keep, vec![first.fence, second.fence, third.fence]);
}

/// F2: an object of a newer epoch, at any point of the walk.
#[test]
fn a_newer_epoch_on_the_walk_stops_the_opener() {
    for object in [
        WalSeen::Data { epoch: Epoch(9), durable: WalId::NONE },
        WalSeen::Fence { epoch: Epoch(9), next_id: WalId(4) },
    ] {
        let mut store = TinyStore::new();
        store.create_wal(WalId(1), object);
        assert_eq!(store.open(1, 2), Err(fenced(9)));
        let mut blind = opener(&store, 2, 2, without(Rule::StopAtNewerEpoch));
        assert!(store.finish(&mut blind).is_ok());
    }
}

/// A database whose first writer has 3 in tables and 4 to 6 in the log. Its manifest knows the log
/// up to 5.
fn known_up_to_5() -> TinyStore {
    let mut store = TinyStore::new();
    let first = store.open(1, 2).unwrap();
    (3..=6).for_each(|id| store.data(id, 1));
    store.flush_seen(&first, 4, 5);
    store
}

/// An object of the log was deleted by hand.
#[test]
fn a_hole_that_the_claim_knows_of_is_no_end() {
    for id in [4, 5] {
        let mut store = known_up_to_5();
        store.wal.remove(&WalId(id));
        let witness = HoleProof::Manifest { id: ManifestId(4), last_seen: WalId(5) };
        let hole = Failure::Hole(Hole { id: WalId(id), witness });
        assert_eq!(store.open(2, 2), Err(hole));
        let blind = without(Rule::HoleIsNoEnd).without(Rule::LaterProvesHole);
        let mut blind = opener(&store, 3, 2, blind);
        let lost = store.finish(&mut blind).unwrap();
        assert_eq!(ids(&lost.replay), (4..id).collect::<Vec<_>>());
    }
    // No process knows of later objects: the log ends here.
    let mut store = known_up_to_5();
    store.wal.remove(&WalId(6));
    assert_eq!(ids(&store.open(2, 2).unwrap().replay), vec![4, 5]);
}

/// E3: no manifest knows of the missing object, but a later object does.
#[test]
fn a_later_object_proves_a_hole() {
    for (missing, proven) in [(3, true), (4, true), (5, true), (6, false), (7, false)] {
        let mut store = TinyStore::new();
        store.open(1, 2).unwrap();
        (3..=7).for_each(|id| store.data(id, 1));
        store.wal.remove(&WalId(missing));
        let mut blind = opener(&store, 2, 2, without(Rule::LaterProvesHole));
        let lost = store.clone().finish(&mut blind).unwrap();
        assert_eq!(ids(&lost.replay), (3..missing).collect::<Vec<_>>());
        let ended = store.open(2, 2);
        if proven {
            let witness = HoleProof::Object(WalId(7));
            assert_eq!(ended, Err(Failure::Hole(Hole { id: WalId(missing), witness })));
        } else {
            // 7 may have landed before 6, which was not acknowledged then.
            assert_eq!(ids(&ended.unwrap().replay), (3..missing).collect::<Vec<_>>());
        }
    }
}

/// E3: a fence proves that its creator had met everything before it.
#[test]
fn a_later_fence_proves_a_hole() {
    let mut store = TinyStore::new();
    store.open(1, 4).unwrap();
    store.data(5, 1);
    let second = store.open(2, 4).unwrap();
    assert_eq!(second.fence.id, WalId(6));
    store.wal.remove(&WalId(5));
    let hole = Hole { id: WalId(5), witness: HoleProof::Object(WalId(6)) };
    assert_eq!(store.open(3, 4), Err(Failure::Hole(hole)));
}

/// E3: the old writer continues while the opener walks.
#[test]
fn an_object_that_landed_after_the_look_is_no_hole() {
    for rules in [Rules::ALL, without(Rule::ReadAgainBeforeHole)] {
        let mut store = TinyStore::new();
        store.open(1, 2).unwrap();
        let mut open = opener(&store, 2, 2, rules);
        while open.action() != OpenAction::ListWal(WalId(3)) {
            store.step(&mut open);
        }
        (3..=5).for_each(|id| store.data(id, 1));
        let ended = store.finish(&mut open);
        if rules == Rules::ALL {
            assert_eq!(ids(&ended.unwrap().replay), vec![3, 4, 5]);
        } else {
            assert!(matches!(ended, Err(Failure::Hole(_))), "{ended:?}");
        }
    }
}

/// The opener slept; a newer writer flushed the log into tables, and it was freed.
#[test]
fn freed_objects_behind_a_newer_writer_are_no_hole() {
    for rules in [Rules::ALL, without(Rule::ProveHoles)] {
        let mut store = known_up_to_5();
        let mut slow = opener(&store, 2, 2, rules);
        while slow.epoch().is_none() {
            store.step(&mut slow);
        }
        let newer = store.open(3, 2).unwrap();
        store.flush_seen(&newer, newer.fence.next_id.get(), newer.fence.id.get());
        store.free_wal();
        let ended = store.finish(&mut slow);
        if rules == Rules::ALL {
            assert_eq!(ended, Err(fenced(3)));
        } else {
            assert!(matches!(ended, Err(Failure::Hole(_))), "{ended:?}");
        }
    }
}

/// The opener read an empty id; the object landed later, and a reader's checkpoint records it.
#[test]
fn a_later_checkpoint_makes_no_hole_of_what_landed_since() {
    for rules in [Rules::ALL, without(Rule::JudgeHolesByTheClaim)] {
        let mut store = TinyStore::new();
        store.open(1, 2).unwrap();
        let mut open = opener(&store, 2, 2, rules);
        while open.action() != OpenAction::ReadWal(WalId(3)) {
            store.step(&mut open);
        }
        store.step(&mut open);
        store.data(3, 1);
        let walked = NewCheckpoint {
            id: CheckpointId(7),
            wal_id_last_seen: Some(WalId(3)),
            ..NewCheckpoint::default()
        };
        store.commit(Edit::AddCheckpoint(walked)).unwrap();
        let ended = store.finish(&mut open);
        if rules == Rules::ALL {
            assert_eq!(ids(&ended.unwrap().replay), vec![3]);
        } else {
            assert!(matches!(ended, Err(Failure::Hole(_))), "{ended:?}");
        }
    }
}

#[test]
fn a_vanished_object_means_fenced_and_a_foreign_one_is_named() {
    let store = TinyStore::new();
    for (seen, failure) in [
        (WalSeen::Vanished, Failure::Fenced { by: None }),
        (WalSeen::Foreign, Failure::Foreign(WalId(1))),
        (WalSeen::Data { epoch: Epoch(1), durable: WalId::NONE }, Failure::Impossible(WalId(1))),
    ] {
        let mut open = opener(&store, 1, 2, Rules::ALL);
        let mut store = store.clone();
        while open.action() != OpenAction::ReadWal(WalId(1)) {
            store.step(&mut open);
        }
        open.on_wal(seen);
        assert_eq!(open.action(), OpenAction::Failed(failure));
    }
}

/// F3: with n + 1, or the new writer's own W, the old writer's object takes the first id.
#[test]
fn a_fence_points_past_the_widest_window_of_any_epoch() {
    let mut store = TinyStore::new();
    store.open(1, 5).unwrap();
    let next_id = |rules| {
        let mut store = store.clone();
        let mut open = opener(&store, 2, 2, rules);
        store.finish(&mut open).unwrap().fence
    };
    let wide = next_id(Rules::ALL);
    assert_eq!(wide.next_id, wide.id.plus(5));
    assert_eq!(next_id(without(Rule::WidestWindow)).next_id, wide.id.plus(2));
    assert_eq!(next_id(without(Rule::SkipTheWindow)).next_id, wide.id.next());
}

#[test]
fn a_fence_lost_to_the_older_writers_record_moves_on() {
    let mut store = TinyStore::new();
    let mut open = opener(&store, 1, 2, Rules::ALL);
    store.finish(&mut open).unwrap();
    let mut second = opener(&store, 2, 2, Rules::ALL);
    assert_eq!(store.step_to_fence(&mut second).id, WalId(3));
    store.data(3, 1);
    let recovered = store.finish(&mut second).unwrap();
    assert_eq!(ids(&recovered.replay), vec![3]);
    assert_eq!(recovered.fence.id, WalId(4));
}

/// Ambiguous outcome: the same fence again, until it is known to exist or its id is taken.
#[test]
fn an_unknown_fence_is_looked_after_and_sent_again() {
    let mut store = TinyStore::new();
    let mut open = opener(&store, 1, 2, Rules::ALL);
    let fence = store.step_to_fence(&mut open);
    store.create_fence(fence);
    open.on_fence(PutOutcome::Unknown);
    assert!(matches!(open.action(), OpenAction::Request(ManifestRequest::List { .. })));
    assert_eq!(store.step_to_fence(&mut open), fence);
    assert_eq!(store.finish(&mut open).unwrap().fence, fence);
}

/// F4: B claims V and sleeps; C claims V+1, and the neighbouring numbers are freed.
#[test]
fn an_overtaken_opener_does_not_confirm() {
    let mut store = TinyStore::new();
    let mut sleeper = opener(&store, 1, 1, Rules::ALL);
    let fence = store.step_to_fence(&mut sleeper);
    store.create_fence(fence);
    store.open(2, 1).unwrap();
    store.grow(5);
    store.free_manifests(6);
    let mut by_probing = sleeper.clone();
    let mut not_at_all = sleeper.clone();
    assert_eq!(store.finish(&mut sleeper), Err(fenced(2)));

    by_probing.rules = without(Rule::ConfirmByList);
    assert_eq!(store.finish(&mut by_probing).unwrap().epoch, Epoch(1));
    not_at_all.rules = without(Rule::Confirm);
    assert_eq!(store.finish(&mut not_at_all).unwrap().epoch, Epoch(1));
}

/// F2: C listed before B's fence landed at n, and would continue at n + 1.
#[test]
fn an_overtaken_opener_creates_no_fence() {
    let mut store = TinyStore::new();
    let mut sleeper = opener(&store, 1, 1, Rules::ALL);
    while sleeper.action() != OpenAction::ReadWal(WalId(1)) {
        store.step(&mut sleeper);
    }
    store.open(2, 1).unwrap();
    let mut blind = sleeper.clone();
    sleeper.on_wal(WalSeen::Absent);
    assert_eq!(store.finish(&mut sleeper), Err(fenced(2)));
    blind.rules = without(Rule::LookBeforeFence);
    blind.on_wal(WalSeen::Absent);
    blind.on_wal_listing(&WalListing::default());
    assert!(matches!(blind.action(), OpenAction::CreateFence(_)));
}

/// F2 (model): B, C and D claimed; D fences 2, flushes, and the collector frees 1; B's fence lands
/// in the freed 1; C reads it and jumps over D's.
#[test]
fn a_zombies_fence_in_a_freed_slot_does_not_lead_an_opener_past_the_live_one() {
    for (rules, stops) in [(Rules::ALL, true), (without(Rule::LookBeforeFence), false)] {
        let mut store = TinyStore::new();
        // Writer A, so that 1 may contain data.
        let mut a = opener(&store, 1, 2, Rules::ALL);
        let unused = store.step_to_fence(&mut a);
        let mut b = opener(&store, 2, 2, Rules::ALL);
        assert_eq!(store.step_to_fence(&mut b), KeptFence { epoch: Epoch(2), ..unused });
        let mut c = opener(&store, 3, 2, rules);
        while c.action() != OpenAction::ReadWal(WalId(1)) {
            store.step(&mut c);
        }
        store.data(1, 1);
        let d = store.open(4, 2).unwrap();
        assert_eq!((d.fence.id, d.fence.next_id), (WalId(2), WalId(4)));
        store.flush(&d, 2);
        store.free_wal();
        let OpenAction::CreateFence(late) = b.action() else { panic!("not fencing") };
        store.create_fence(late);
        c.on_wal(fence_object(late));
        assert_eq!(c.action(), OpenAction::ReadWal(WalId(3)));
        c.on_wal(WalSeen::Absent);
        store.step(&mut c);
        let fences = matches!(c.action(), OpenAction::CreateFence(_));
        assert_eq!(fences, !stops);
        if stops {
            assert_eq!(store.finish(&mut c), Err(fenced(4)));
        }
    }
}

/// F5: A sleeps before it creates n. B's fence takes n, B dies; C fences further on and flushes
/// past both; if n is collected, A wakes, creates n, and acknowledges.
#[test]
fn a_fence_met_on_the_walk_is_kept_from_the_collector() {
    for (rules, safe) in [(Rules::ALL, true), (without(Rule::KeepFencesMet), false)] {
        let mut store = TinyStore::new();
        let a = store.open(1, 1).unwrap();
        let mut window = WalWindow::new(a.epoch, a.fence.next_id, 1, Rules::ALL);
        let asleep = window.send().unwrap();
        let b = store.open(2, 1).unwrap();
        assert_eq!(b.fence.id, asleep);
        let mut c = opener(&store, 3, 1, rules);
        let c = store.finish(&mut c).unwrap();
        store.flush(&c, c.fence.next_id.get());
        store.free_wal();
        let outcome =
            store.create_wal(asleep, WalSeen::Data { epoch: a.epoch, durable: WalId::NONE });
        let mut events = window.on_outcome(asleep, outcome);
        if events == vec![WindowEvent::CheckBoundary(asleep)] {
            events = window.on_boundary(asleep, store.wal_boundary);
        }
        let acknowledged = events.contains(&WindowEvent::Acknowledged(asleep));
        assert_eq!(acknowledged, !safe);
    }
}

/// F5: a clean close makes only the next writer's own fence unnecessary.
#[test]
fn a_clean_close_waives_only_the_fence_that_the_next_writer_makes() {
    let mut store = TinyStore::new();
    store.open(1, 1).unwrap();
    let second = store.open(2, 1).unwrap();
    store.commit(second.close()).unwrap();
    let mut all = opener(&store, 3, 1, without(Rule::CleanCloseWaivesOnlyOwn));
    assert_eq!(store.clone().finish(&mut all).unwrap().keep, vec![]);
    let third = store.open(4, 1).unwrap();
    assert!(third.keep.contains(&second.fence));
    assert!(!third.keep.contains(&third.fence));
    assert!(third.fences().contains(&third.fence));
}

/// F5: a fence between two clean closes is kept by no later writer that meets it, as long as the
/// manifest has the records of both. Otherwise writers that leave their rows in the log would each
/// add a permanent fence.
#[test]
fn a_fence_between_clean_closes_is_waived_for_every_opener() {
    let mut store = TinyStore::new();
    let mut met = Vec::new();
    for life in 1..=WRITER_RECORDS as u64 + 2 {
        let writer = store.open(life.into(), 1).unwrap();
        // The record of the writer before that of the fence was dropped.
        let is_unknown = |fence: &&KeptFence| {
            fence.epoch == Epoch::FIRST || fence.epoch.0 + WRITER_RECORDS as u64 - 2 < life
        };
        let unknown: Vec<KeptFence> = met.iter().filter(is_unknown).copied().collect();
        assert_eq!(writer.keep, unknown, "{life}");
        assert_eq!(unknown.len() > 1, life > WRITER_RECORDS as u64);
        let mut all = met.clone();
        all.push(writer.fence);
        let mut fences = writer.fences();
        fences.sort_unstable_by_key(|fence| fence.id);
        assert_eq!(fences, all, "the replay point still respects every gap");
        met.push(writer.fence);
        store.commit(writer.close()).unwrap();
    }
}

/// F5: the fence of a writer that did not close is kept, even if the one before it had closed.
#[test]
fn a_fence_of_a_writer_that_died_is_kept() {
    let mut store = TinyStore::new();
    let first = store.open(1, 1).unwrap();
    store.commit(first.close()).unwrap();
    let dies = store.open(2, 1).unwrap();
    let third = store.open(3, 1).unwrap();
    assert!(third.keep.contains(&dies.fence) && third.keep.contains(&third.fence));
}

/// F4: only a writer that confirmed may record a clean close.
#[test]
fn no_clean_close_before_the_confirmation() {
    let mut store = TinyStore::new();
    let mut open = opener(&store, 1, 1, Rules::ALL);
    store.step_to_fence(&mut open);
    assert_eq!(open.close(), None);
    let mut early = open.clone();
    early.rules = without(Rule::CloseAfterConfirm);
    assert!(early.close().is_some());
    let fence = store.finish(&mut open).unwrap().fence;
    let closes = Edit::CloseClean { epoch: Epoch(1), wal_id_last_seen: fence.id };
    assert_eq!(open.close(), Some(closes));
}

#[test]
fn two_claims_at_once_get_two_epochs_and_the_later_one_lives() {
    let mut store = TinyStore::new();
    let mut first = opener(&store, 1, 1, Rules::ALL);
    let mut second = opener(&store, 2, 1, Rules::ALL);
    // Both plan epoch 1; the second creates it.
    store.step(&mut second);
    let alive = store.finish(&mut first).unwrap();
    assert_eq!(alive.epoch, Epoch(2));
    assert_eq!(store.finish(&mut second), Err(fenced(2)));
}

#[test]
fn without_take_over_a_writer_that_may_be_alive_is_named() {
    let mut store = TinyStore::new();
    let alive = store.open(1, 1).unwrap();
    let polite =
        || WriterOptions { claim: AttemptId(2), max_parallel_writes: 1, ..Default::default() };
    let mut refused = OpenWriter::new(polite(), store.newest(), Rules::ALL);
    let named = Failure::Refused(Conflict::NotClosed { epoch: Epoch(1) }.into());
    assert_eq!(store.finish(&mut refused), Err(named));
    store.commit(alive.close()).unwrap();
    let mut welcome = OpenWriter::new(polite(), store.newest(), Rules::ALL);
    assert_eq!(store.finish(&mut welcome).unwrap().epoch, Epoch(2));
}

/// F1: after the claim no older writer can commit.
#[test]
fn a_claim_ends_the_older_writers_commits() {
    let mut store = TinyStore::new();
    let old = store.open(1, 1).unwrap();
    let newest = store.newest();
    let mut open = opener(&store, 2, 1, Rules::ALL);
    store.step(&mut open);
    let flush = FlushL0 { replay_from: WalId(9), ..FlushL0::nothing(old.epoch, &newest) };
    let refused = store.commit(Edit::FlushL0(flush));
    assert_eq!(refused, Err(Refusal::Fenced { by: Epoch(2) }));
}

/// F8: destroyed and created again at one place; the epoch number is the same.
#[test]
fn another_database_with_the_same_epoch_is_not_ones_own() {
    let mut store = TinyStore::new();
    let mut open = opener(&store, 1, 1, Rules::ALL);
    let fence = store.step_to_fence(&mut open);
    let mut other = Manifest::clone(&store.newest());
    other.database = siltstone_base::DatabaseId(5);
    other.id = other.id.plus(4);
    store.manifests = [(other.id, Arc::new(other))].into();
    store.wal.clear();
    store.create_fence(fence);
    let gone = Failure::Refused(Conflict::OtherDatabase.into());
    assert_eq!(store.finish(&mut open), Err(gone));
}

/// F5: the writer's own fence is kept too: the older writer may sleep before exactly that id.
#[test]
fn ones_own_fence_is_kept_after_an_unclean_end() {
    let mut store = TinyStore::new();
    store.open(1, 1).unwrap();
    let mut forgetful = opener(&store, 2, 1, without(Rule::KeepOwnFence));
    let forgotten = store.clone().finish(&mut forgetful).unwrap();
    assert!(!forgotten.keep.contains(&forgotten.fence));
    let writer = store.open(2, 1).unwrap();
    store.flush(&writer, writer.fence.next_id.get());
    store.free_wal();
    assert_eq!(store.read_wal(writer.fence.id), fence_object(writer.fence));
}
