use super::*;
use crate::protocol::HoleProof;
use crate::protocol::testing::TinyStore;
use siltstone_base::{Epoch, ManifestId};

/// Runs the reader until it is idle; returns the data that became visible.
fn drive(store: &mut TinyStore, follow: &mut Follow) -> Vec<FollowEvent> {
    let mut events = Vec::new();
    loop {
        events.extend(match follow.action() {
            FollowAction::Request(request) => follow.on_answer(store.serve(request)),
            FollowAction::ReadWal(id) => follow.on_wal(store.read_wal(id)),
            FollowAction::ListWal(after) => follow.on_wal_listing(store.list_wal(after)),
            FollowAction::ReadWalBoundary => follow.on_wal_boundary(store.wal_boundary),
            FollowAction::Idle | FollowAction::Failed(_) => return events,
        });
    }
}

fn applied(events: &[FollowEvent]) -> Vec<u64> {
    let ids = events.iter().filter_map(|event| match event {
        FollowEvent::Apply(ids) => Some(ids),
        _ => None,
    });
    ids.flatten().map(|id| id.get()).collect()
}

/// A reader directly behind the first writer's fence.
fn reader(store: &mut TinyStore, list_every: u32) -> Follow {
    let mut follow = Follow::new(list_every, Rules::ALL);
    let events = drive(store, &mut follow);
    assert!(matches!(events.first(), Some(FollowEvent::StartAgain(_))));
    follow
}

fn poll(store: &mut TinyStore, follow: &mut Follow) -> Vec<FollowEvent> {
    follow.poll(false);
    drive(store, follow)
}

#[test]
fn a_reader_keeps_up_with_records_fences_and_states() {
    let mut store = TinyStore::new();
    let first = store.open(1, 2).unwrap();
    let mut follow = reader(&mut store, 100);
    assert_eq!(follow.next_wal_id(), WalId(3));
    store.data(3, 1);
    assert_eq!(applied(&poll(&mut store, &mut follow)), vec![3]);
    let second = store.open(2, 2).unwrap();
    assert_eq!((second.fence.id, second.fence.next_id), (WalId(4), WalId(6)));
    // In the gap: ignored.
    store.data(5, 1);
    store.data(6, 2);
    let events = poll(&mut store, &mut follow);
    assert!(matches!(events.first(), Some(FollowEvent::Newer(_))));
    assert_eq!(applied(&events), vec![6]);
    assert_eq!(first.epoch, Epoch(1));
}

#[test]
fn an_idle_poll_is_two_reads() {
    let mut store = TinyStore::new();
    store.open(1, 2).unwrap();
    let mut follow = reader(&mut store, 100);
    follow.poll(false);
    assert!(matches!(follow.action(), FollowAction::Request(ManifestRequest::Read(_))));
    follow.on_answer(ManifestAnswer::Read(None));
    assert_eq!(follow.action(), FollowAction::ReadWal(WalId(3)));
    assert_eq!(follow.on_wal(WalSeen::Absent), vec![]);
    assert_eq!(follow.action(), FollowAction::Idle);
}

#[test]
fn flushed_log_objects_are_not_read_again() {
    let mut store = TinyStore::new();
    let writer = store.open(1, 1).unwrap();
    let mut follow = reader(&mut store, 100);
    (2..6).for_each(|id| store.data(id, 1));
    store.flush(&writer, 5);
    store.free_wal();
    let events = poll(&mut store, &mut follow);
    assert!(matches!(events.first(), Some(FollowEvent::Newer(state)) if state.replay_from.0 == 5));
    assert_eq!(applied(&events), vec![5]);
}

/// M4: a reader sleeps past a collection; V+1 never exists again, so one poll in N is a listing.
#[test]
fn a_reader_that_slept_past_gc_starts_again_at_a_listing() {
    for (rules, wakes) in [(Rules::ALL, true), (Rules::ALL.without(Rule::ListSometimes), false)] {
        let mut store = TinyStore::new();
        let writer = store.open(1, 1).unwrap();
        let mut follow = reader(&mut store, 3);
        follow.rules = rules;
        (2..6).for_each(|id| store.data(id, 1));
        store.flush(&writer, 5);
        store.free_wal();
        store.grow(2);
        store.free_manifests(store.newest().id.get() - 1);
        let cheap: Vec<_> = (0..2).flat_map(|_| poll(&mut store, &mut follow)).collect();
        assert_eq!(cheap, vec![]);
        let listed = poll(&mut store, &mut follow);
        assert_eq!(!listed.is_empty(), wakes);
        assert_eq!(applied(&listed), if wakes { vec![5] } else { vec![] });
    }
}

#[test]
fn the_first_poll_after_a_long_pause_lists() {
    let mut store = TinyStore::new();
    store.open(1, 1).unwrap();
    let mut follow = reader(&mut store, 100);
    follow.poll(true);
    assert!(matches!(follow.action(), FollowAction::Request(ManifestRequest::List { .. })));
}

/// M4: V+1 and the reader's own position never exist again; one thorough poll detects both.
#[test]
fn a_thorough_poll_sees_past_two_freed_slots() {
    for (rules, sees) in [(Rules::ALL, true), (Rules::ALL.without(Rule::ListSometimes), false)] {
        let mut store = TinyStore::new();
        let writer = store.open(1, 1).unwrap();
        let mut follow = reader(&mut store, 100);
        follow.rules = rules;
        (2..6).for_each(|id| store.data(id, 1));
        store.flush(&writer, 5);
        store.free_wal();
        store.grow(2);
        store.free_manifests(store.newest().id.get() - 1);
        assert_eq!(follow.poll_thoroughly(), sees);
        let events = drive(&mut store, &mut follow);
        assert_eq!(applied(&events), if sees { vec![5] } else { vec![] });
    }
}

/// The same, if everything is freed during the poll: between its look at the manifests and its read
/// of the WAL.
#[test]
fn objects_freed_during_a_thorough_poll_are_seen() {
    let mut store = TinyStore::new();
    let writer = store.open(1, 1).unwrap();
    let mut follow = reader(&mut store, 100);
    (2..6).for_each(|id| store.data(id, 1));
    follow.poll_thoroughly();
    let mut events = Vec::new();
    loop {
        events.extend(match follow.action() {
            FollowAction::Request(request) => follow.on_answer(store.serve(request)),
            _ => break,
        });
    }
    assert_eq!(follow.action(), FollowAction::ReadWal(WalId(2)));
    store.flush(&writer, 5);
    store.free_wal();
    store.grow(2);
    store.free_manifests(store.newest().id.get() - 1);
    events.extend(drive(&mut store, &mut follow));
    let newest = follow.manifest().map(|newest| newest.id);
    assert_eq!((newest, applied(&events)), (Some(store.newest().id), vec![5]));
}

#[test]
fn a_thorough_poll_that_finds_nothing_is_as_many_requests_as_a_listing() {
    let mut store = TinyStore::new();
    store.open(1, 1).unwrap();
    let mut follow = reader(&mut store, 100);
    let mut requests = |follow: &mut Follow| {
        let mut count = 0;
        while follow.action() != FollowAction::Idle {
            count += 1;
            match follow.action() {
                FollowAction::Request(request) => follow.on_answer(store.serve(request)),
                FollowAction::ReadWal(id) => follow.on_wal(store.read_wal(id)),
                FollowAction::ListWal(after) => follow.on_wal_listing(store.list_wal(after)),
                FollowAction::ReadWalBoundary => follow.on_wal_boundary(store.wal_boundary),
                FollowAction::Idle | FollowAction::Failed(_) => panic!("not idle"),
            };
        }
        count
    };
    follow.poll(true);
    let listing = requests(&mut follow);
    assert!(follow.poll_thoroughly());
    assert_eq!(requests(&mut follow), listing);
    follow.poll(false);
    assert!(requests(&mut follow) < listing);
}

/// M4 (model): a reader stands on a freed id, takes a zombie's fence there, jumps into the gap of a
/// real one, and serves a record that recovery drops.
#[test]
fn a_zombies_fence_on_a_freed_id_is_not_followed() {
    // The look for a newer epoch detects it as well.
    let late = Rules::ALL.without(Rule::ConfirmHits);
    let never = late.without(Rule::LookUpNewerEpochs);
    for (rules, safe) in [(Rules::ALL, true), (late, true), (never, false)] {
        let mut store = TinyStore::new();
        let mut follow = Follow::new(100, rules);
        // It is at 1; the real history has data at 1, a fence at 2 with a gap to 5, and the older
        // writer's late record 3 inside.
        drive(&mut store, &mut follow);
        store.data(1, 1);
        let gap = WalSeen::Fence { epoch: Epoch(3), next_id: WalId(5) };
        store.create_wal(WalId(2), gap);
        store.data(3, 1);
        store.data(5, 3);
        let mut newest = Manifest::clone(&store.newest());
        newest.id = ManifestId(9);
        newest.replay_from = WalId(2);
        newest.writer_epoch = Epoch(3);
        store.manifests = [(newest.id, Arc::new(newest))].into();
        store.manifest_boundary = ManifestId(8);
        store.wal.remove(&WalId(1));
        store.wal_boundary = WalId(1);
        let zombie = WalSeen::Fence { epoch: Epoch(2), next_id: WalId(3) };
        store.create_wal(WalId(1), zombie);
        let served = applied(&poll(&mut store, &mut follow));
        assert_eq!(served, if safe { vec![5] } else { vec![3] });
    }
}

#[test]
fn a_long_walk_hands_out_in_parts() {
    let mut store = TinyStore::new();
    store.open(1, 1).unwrap();
    let mut follow = reader(&mut store, 100);
    let last = 2 + 2 * WALK_LIMIT as u64;
    (2..last).for_each(|id| store.data(id, 1));
    let events = poll(&mut store, &mut follow);
    assert_eq!(events.len(), 2);
    assert_eq!(applied(&events), (2..last).collect::<Vec<_>>());
}

/// An object of the log was deleted by hand: the reader reports it, at its start or while it
/// follows, and continues once tables contain the missing rows.
#[test]
fn a_hole_is_told_until_tables_cover_it() {
    let mut store = TinyStore::new();
    let first = store.open(1, 2).unwrap();
    let mut follow = reader(&mut store, 100);
    (3..=5).for_each(|id| store.data(id, 1));
    store.flush_seen(&first, 4, 5);
    store.wal.remove(&WalId(5));
    let witness = HoleProof::Manifest { id: ManifestId(3), last_seen: WalId(5) };
    let hole = Hole { id: WalId(5), witness };
    let mut fresh = Follow::new(100, Rules::ALL);
    for reader in [&mut follow, &mut fresh] {
        reader.poll(false);
        assert_eq!(applied(&drive(&mut store, reader)), vec![4]);
        assert_eq!(reader.action(), FollowAction::Failed(Failure::Hole(hole)));
        assert_eq!(applied(&poll(&mut store, reader)), vec![]);
        assert_eq!(reader.action(), FollowAction::Failed(Failure::Hole(hole)));
    }
    let mut blind = Follow::new(100, Rules::ALL.without(Rule::HoleIsNoEnd));
    assert_eq!(applied(&drive(&mut store, &mut blind)), vec![4]);
    assert_eq!(blind.action(), FollowAction::Idle);
    store.data(6, 1);
    store.flush_seen(&first, 6, 6);
    for reader in [&mut follow, &mut fresh] {
        assert_eq!(applied(&poll(&mut store, reader)), vec![6]);
        assert_eq!(reader.action(), FollowAction::Idle);
    }
}

/// E3: no manifest knows of the missing object, but a later object does. A reader that finds a
/// later object reports it immediately; a reader before the hole reports it with the next poll that
/// lists.
#[test]
fn a_later_object_tells_a_reader_of_a_hole() {
    let mut store = TinyStore::new();
    store.open(1, 2).unwrap();
    let mut follow = reader(&mut store, 2);
    (3..=7).for_each(|id| store.data(id, 1));
    store.wal.remove(&WalId(4));
    let hole = Failure::Hole(Hole { id: WalId(4), witness: HoleProof::Object(WalId(7)) });
    assert_eq!(applied(&poll(&mut store, &mut follow)), vec![3]);
    assert_eq!(follow.action(), FollowAction::Failed(hole));
}

/// The same for a reader before the hole: the next object to read is missing.
#[test]
fn a_reader_before_a_hole_is_told_by_the_next_poll_that_lists() {
    let mut store = TinyStore::new();
    store.open(1, 2).unwrap();
    let mut follow = reader(&mut store, 2);
    (3..=7).for_each(|id| store.data(id, 1));
    store.wal.remove(&WalId(3));
    assert_eq!(poll(&mut store, &mut follow), vec![]);
    assert_eq!(follow.action(), FollowAction::Idle);
    assert_eq!(poll(&mut store, &mut follow), vec![]);
    let hole = Failure::Hole(Hole { id: WalId(3), witness: HoleProof::Object(WalId(7)) });
    assert_eq!(follow.action(), FollowAction::Failed(hole));
    // And again with the next poll.
    assert_eq!(poll(&mut store, &mut follow), vec![]);
    assert_eq!(follow.action(), FollowAction::Failed(hole));
    // The object is back.
    store.data(3, 1);
    assert_eq!(applied(&poll(&mut store, &mut follow)), vec![3, 4, 5, 6, 7]);
}

/// The same for a reader that begins there.
#[test]
fn a_reader_that_begins_before_a_hole_is_told() {
    let mut store = TinyStore::new();
    let first = store.open(1, 2).unwrap();
    (3..=7).for_each(|id| store.data(id, 1));
    store.flush_seen(&first, 4, 3);
    store.wal.remove(&WalId(4));
    let mut follow = reader(&mut store, 100);
    let hole = Failure::Hole(Hole { id: WalId(4), witness: HoleProof::Object(WalId(7)) });
    assert_eq!(follow.action(), FollowAction::Failed(hole));
    store.data(4, 1);
    assert_eq!(applied(&poll(&mut store, &mut follow)), vec![4, 5, 6, 7]);
}

/// The polls of a reader beside a faster writer end.
#[test]
fn objects_that_land_during_a_poll_are_left_to_the_next() {
    let mut store = TinyStore::new();
    store.open(1, 1).unwrap();
    let mut follow = reader(&mut store, 100);
    store.data(2, 1);
    follow.poll(false);
    let mut next = 3;
    for _ in 0..100 {
        match follow.action() {
            FollowAction::Request(request) => drop(follow.on_answer(store.serve(request))),
            FollowAction::ReadWal(id) => drop(follow.on_wal(store.read_wal(id))),
            FollowAction::ListWal(after) => {
                (next..next + 3).for_each(|id| store.data(id, 1));
                next += 3;
                follow.on_wal_listing(store.list_wal(after));
            }
            FollowAction::ReadWalBoundary => drop(follow.on_wal_boundary(store.wal_boundary)),
            FollowAction::Idle | FollowAction::Failed(_) => break,
        }
    }
    assert_eq!(follow.action(), FollowAction::Idle);
    assert_eq!(applied(&poll(&mut store, &mut follow)), (3..next).collect::<Vec<_>>());
}

/// The reader slept before it read objects that its manifest knows, and they were freed meanwhile.
#[test]
fn freed_objects_are_no_hole_for_a_reader() {
    for rules in [Rules::ALL, Rules::ALL.without(Rule::ProveHoles)] {
        let mut store = TinyStore::new();
        let first = store.open(1, 2).unwrap();
        (3..=4).for_each(|id| store.data(id, 1));
        store.flush_seen(&first, 4, 4);
        let mut follow = Follow::new(100, rules);
        while follow.action() != FollowAction::ReadWal(WalId(4)) {
            if let FollowAction::Request(request) = follow.action() {
                follow.on_answer(store.serve(request));
            }
        }
        store.flush_seen(&first, 5, 4);
        store.free_wal();
        let events = drive(&mut store, &mut follow);
        if rules == Rules::ALL {
            assert!(matches!(events.as_slice(), [FollowEvent::StartAgain(_)]), "{events:?}");
            assert_eq!((follow.action(), follow.next_wal_id()), (FollowAction::Idle, WalId(5)));
        } else {
            assert!(matches!(follow.action(), FollowAction::Failed(Failure::Hole(_))));
        }
    }
}

#[test]
fn a_foreign_object_ends_the_reader_once_it_is_known_to_count() {
    let mut store = TinyStore::new();
    store.open(1, 1).unwrap();
    let mut follow = reader(&mut store, 100);
    store.data(2, 1);
    store.create_wal(WalId(3), WalSeen::Foreign);
    assert_eq!(applied(&poll(&mut store, &mut follow)), vec![2]);
    assert_eq!(follow.action(), FollowAction::Failed(Failure::Foreign(WalId(3))));
}

#[test]
fn without_a_database_a_reader_is_idle() {
    let mut store = TinyStore::new();
    store.manifests.clear();
    let mut follow = Follow::new(1, Rules::ALL);
    assert_eq!(drive(&mut store, &mut follow), vec![]);
    assert_eq!(follow.manifest(), None);
}

/// F8: the database was destroyed and created again at the same place.
#[test]
fn a_reader_does_not_slip_into_another_database() {
    let mut store = TinyStore::new();
    let mut follow = reader(&mut store, 1);
    let other = Manifest { database: siltstone_base::DatabaseId(5), ..crate::testing::empty() };
    let other = Manifest { id: ManifestId(2), ..other };
    store.manifests = [(other.id, Arc::new(other))].into();
    assert_eq!(poll(&mut store, &mut follow), vec![]);
    let gone = Failure::Refused(Conflict::OtherDatabase.into());
    assert_eq!(follow.action(), FollowAction::Failed(gone));
}

/// C5: rows of a newer epoch are returned only after a look has shown where its log begins.
#[test]
fn a_newer_epoch_is_looked_up_before_anything_is_handed_out() {
    let mut store = TinyStore::new();
    store.open(1, 2).unwrap();
    let mut follow = reader(&mut store, 100);
    store.data(3, 1);
    store.open(2, 2).unwrap();
    store.data(6, 2);
    // A poll of the log alone would not look.
    follow.poll_log();
    let mut seen = Vec::new();
    loop {
        let events = match follow.action() {
            FollowAction::Request(request) => {
                seen.push("looks");
                follow.on_answer(store.serve(request))
            }
            FollowAction::ReadWal(id) => follow.on_wal(store.read_wal(id)),
            FollowAction::ListWal(after) => follow.on_wal_listing(store.list_wal(after)),
            FollowAction::ReadWalBoundary => follow.on_wal_boundary(store.wal_boundary),
            FollowAction::Idle | FollowAction::Failed(_) => break,
        };
        for event in events {
            seen.push(match event {
                FollowEvent::Apply(_) => "rows",
                FollowEvent::Newer(_) | FollowEvent::StartAgain(_) => "newer",
            });
        }
    }
    let newer = seen.iter().position(|what| *what == "newer").unwrap();
    let rows = seen.iter().position(|what| *what == "rows").unwrap();
    assert!(newer < rows, "{seen:?}");
    assert_eq!(follow.manifest().unwrap().writer_epoch, Epoch(2));
    assert_eq!(follow.next_wal_id(), WalId(7));
}

/// An object of an epoch that no writer claimed: the log ends before it.
#[test]
fn an_unclaimed_epoch_ends_the_walk() {
    let mut store = TinyStore::new();
    store.open(1, 2).unwrap();
    let mut follow = reader(&mut store, 100);
    store.data(3, 1);
    store.data(4, 9);
    assert_eq!(applied(&poll(&mut store, &mut follow)), vec![3]);
    assert_eq!(follow.next_wal_id(), WalId(4));
    assert_eq!(follow.action(), FollowAction::Idle);
}

/// A driver at its memory limit: the objects met are confirmed and returned, and the next poll
/// continues after them.
#[test]
fn a_walk_is_ended_in_the_middle() {
    let mut store = TinyStore::new();
    store.open(1, 2).unwrap();
    let mut follow = reader(&mut store, 100);
    for id in 3..7 {
        store.data(id, 1);
    }
    follow.poll_log();
    assert_eq!(follow.action(), FollowAction::ReadWal(WalId(3)));
    let mut events = follow.on_wal(store.read_wal(WalId(3)));
    events.extend(follow.hand_out_now());
    assert!(events.is_empty(), "confirmed first");
    assert_eq!(follow.action(), FollowAction::ReadWalBoundary);
    let events = follow.on_wal_boundary(store.wal_boundary);
    assert_eq!(applied(&events), vec![3]);
    assert_eq!(follow.action(), FollowAction::ReadWal(WalId(4)));
    follow.on_wal(store.read_wal(WalId(4)));
    follow.stop();
    assert_eq!(applied(&drive(&mut store, &mut follow)), vec![4]);
    assert_eq!((follow.action(), follow.next_wal_id()), (FollowAction::Idle, WalId(5)));
    assert_eq!(applied(&poll(&mut store, &mut follow)), vec![5, 6]);
}
