use super::*;
use crate::edit::{Edit, FlushL0, InstallIngest};
use crate::features::FEED;
use crate::state::PendingIngest;
use crate::testing::{manifest, table};
use bytes::Bytes;
use siltstone_base::{CheckpointId, SstDescriptor, SstId};

fn place(seq: u64, wal: u64) -> LogPlace {
    LogPlace { seq: Seq(seq), wal: WalId(wal) }
}

fn taking(name: &str, generation: u64, from: HoldFrom) -> TakeHold {
    TakeHold {
        name: name.to_owned(),
        generation,
        from,
        timeline: None,
        expires_at: Some(UnixMillis(100)),
        most_bytes: Some(1 << 20),
        checkpoint: None,
        unretained: None,
    }
}

fn take(base: &Manifest, name: &str, generation: u64, from: HoldFrom) -> Manifest {
    let edit = Edit::Hold(HoldEdit::Take(Box::new(taking(name, generation, from))));
    let next = edit.apply(base).unwrap();
    assert!(edit.in_effect(&next) && !edit.in_effect(base));
    next
}

fn refused(base: &Manifest, edit: HoldEdit) -> HoldConflict {
    match Edit::Hold(edit).apply(base) {
        Err(Refusal::Conflict(Conflict::Hold(conflict))) => conflict,
        other => panic!("{other:?}"),
    }
}

fn advance(name: &str, generation: u64, to: LogPlace) -> HoldEdit {
    let expires_at = Some(UnixMillis(200));
    let (name, timeline) = (name.to_owned(), None);
    HoldEdit::Advance(AdvanceHold { name, generation, to, timeline, expires_at })
}

fn advanced(base: &Manifest, name: &str, generation: u64, to: LogPlace) -> Manifest {
    let edit = Edit::Hold(advance(name, generation, to));
    let next = edit.apply(base).unwrap();
    assert!(edit.in_effect(&next));
    next
}

/// `manifest()` replays from 6; its tables contain entries up to 60.
#[test]
fn a_hold_begins_where_all_behind_it_is_there() {
    let at = |place| HoldEdit::Take(Box::new(taking("a", 1, HoldFrom::At(place))));
    let oldest = place(60, 6);
    for gone in [place(60, 5), place(59, 6)] {
        assert_eq!(refused(&manifest(), at(gone)), HoldConflict::Passed { oldest });
    }
    let held = take(&manifest(), "a", 1, HoldFrom::At(place(60, 6)));
    assert_eq!(held.hold("a").map(Hold::place), Some(place(60, 6)));
    assert!(held.features.names(FEED) && held.features.check_committable().is_ok());
    // Positions to which a consumer has walked: passed by the replay point, or not.
    let walked = |to| take(&manifest(), "a", 1, HoldFrom::Walked(to)).hold("a").map(Hold::place);
    assert_eq!(walked(place(58, 4)), Some(place(60, 6)));
    assert_eq!(walked(place(64, 8)), Some(place(64, 8)));
}

#[test]
fn a_present_hold_is_as_good_as_the_replay_point() {
    let held = take(&manifest(), "a", 1, HoldFrom::At(place(60, 6)));
    let later = Manifest { replay_from: WalId(9), flushed_seq: Seq(90), ..held };
    assert_eq!(later.oldest_certain(), place(60, 6));
    let at = |place| HoldEdit::Take(Box::new(taking("b", 1, HoldFrom::At(place))));
    let oldest = place(60, 6);
    assert_eq!(refused(&later, at(place(59, 6))), HoldConflict::Passed { oldest });
    let both = take(&later, "b", 1, HoldFrom::At(place(70, 7)));
    assert_eq!(both.holds.len(), 2);
}

#[test]
fn the_newest_of_a_name_goes_on_where_it_stood() {
    let held = take(&manifest(), "a", 5, HoldFrom::At(place(60, 6)));
    let held = advanced(&held, "a", 5, place(70, 7));
    let newer = take(&held, "a", 6, HoldFrom::Kept);
    assert_eq!(newer.hold("a").map(Hold::place), Some(place(70, 7)));
    // W5: a consumer that slept frees nothing, and its hold does not return.
    assert_eq!(refused(&newer, advance("a", 5, place(80, 8))), HoldConflict::Overtaken);
    let again = HoldEdit::Take(Box::new(taking("a", 5, HoldFrom::Kept)));
    assert_eq!(refused(&newer, again), HoldConflict::Overtaken);
    let absent = HoldEdit::Take(Box::new(taking("b", 1, HoldFrom::Kept)));
    assert_eq!(refused(&newer, absent), HoldConflict::Gone);
    // Progress only grows.
    let held = advanced(&newer, "a", 6, place(65, 6));
    assert_eq!(held.hold("a").map(Hold::place), Some(place(70, 7)));
    assert_eq!(held.hold("a").and_then(|one| one.expires_at), Some(UnixMillis(200)));
}

/// W6: undone data can be neither acknowledged nor a position at which to begin.
#[test]
fn a_hold_moves_and_begins_in_the_history_of_its_state() {
    let held = take(&manifest(), "a", 1, HoldFrom::At(place(60, 6)));
    let began = Timeline {
        id: TimelineId(7),
        cut: Seq(65),
        begins: Seq(91),
        manifest_id: held.id,
        began_at: UnixMillis(1),
    };
    let restored = Manifest { timelines: vec![began], flushed_seq: Seq(90), ..held };
    let undone = HistoryUndone { remains: Some(Seq(65)), at: restored.id };
    let beyond = advance("a", 1, place(70, 7));
    assert_eq!(refused(&restored, beyond.clone()), HoldConflict::Undone(undone));
    assert_eq!(advanced(&restored, "a", 1, place(65, 7)).hold("a").unwrap().seq, Seq(65));
    let at = |seq, timeline| {
        let new = taking("b", 1, HoldFrom::At(place(seq, 7)));
        HoldEdit::Take(Box::new(TakeHold { timeline, ..new }))
    };
    assert_eq!(refused(&restored, at(90, None)), HoldConflict::Undone(undone));
    assert!(Edit::Hold(at(90, Some(TimelineId(7)))).apply(&restored).is_ok());
    let left = HoldConflict::Undone(HistoryUndone { remains: None, at: restored.id });
    assert_eq!(refused(&restored, at(95, Some(TimelineId(8)))), left);
    let without = Rules::ALL.without(Rule::HoldInHistory);
    assert!(Edit::Hold(beyond).apply_with(&restored, without).is_ok());
}

#[test]
fn the_end_of_a_hold_ends_its_consumer() {
    let held = take(&manifest(), "a", 1, HoldFrom::At(place(60, 6)));
    let expired = Edit::RevokeExpired { ids: vec![], now: UnixMillis(100) };
    assert!(held.has_expired(UnixMillis(100)) && !expired.in_effect(&held));
    let revoked = expired.apply(&held).unwrap();
    assert!(revoked.holds.is_empty() && expired.in_effect(&revoked));
    assert_eq!(refused(&revoked, advance("a", 1, place(70, 7))), HoldConflict::Gone);
    // A refresh that is committed first takes precedence (rule G3).
    let refreshed = advanced(&held, "a", 1, place(60, 6));
    assert_eq!(expired.apply(&refreshed).unwrap().holds.len(), 1);
    let release = Edit::Hold(HoldEdit::Release { name: "a".to_owned() });
    assert!(release.apply(&held).unwrap().holds.is_empty());
    // The same for progress, against the limit on bytes.
    let overdrawn = HoldExcess { name: "a".to_owned(), generation: 1, wal_from: WalId(6) };
    let revoke = Edit::Hold(HoldEdit::Revoke(vec![overdrawn]));
    assert!(revoke.apply(&held).unwrap().holds.is_empty());
    let moved = advanced(&held, "a", 1, place(70, 7));
    assert!(revoke.in_effect(&moved) && revoke.apply(&moved).unwrap().holds.len() == 1);
}

/// W3: the pinned state and the hold come from one commit.
#[test]
fn a_snapshot_and_what_follows_it_are_one_commit() {
    let new = NewCheckpoint {
        id: CheckpointId(9),
        wal_id_last_seen: Some(WalId(7)),
        ..NewCheckpoint::default()
    };
    let from = HoldFrom::Walked(place(64, 8));
    let both = TakeHold { checkpoint: Some(new), ..taking("a", 1, from) };
    let edit = Edit::Hold(HoldEdit::Take(Box::new(both)));
    let next = edit.apply(&manifest()).unwrap();
    let pinned = next.checkpoint(CheckpointId(9)).unwrap();
    assert_eq!((pinned.manifest_id, pinned.wal_id_last_seen), (next.id, WalId(7)));
    assert!(edit.in_effect(&next) && next.hold("a").is_some());
}

const JOB: JobId = JobId(500);

/// A job is pending, and the writer of `manifest()` installs it at 61.
fn installed(base: &Manifest) -> Manifest {
    let mut base = base.clone();
    base.pending_ingests.push(PendingIngest {
        job: JOB,
        requested_at: UnixMillis(1),
        digest: Bytes::from_static(b"parts"),
        app: None,
        timeline: None,
    });
    let staged = SstDescriptor {
        job: Some(JOB),
        seq_override: Some(Seq(61)),
        ..table(SstId(80), b"a", b"b", 0, 0)
    };
    let digest = Bytes::from_static(b"parts");
    let ingest = InstallIngest { after: 0, job: JOB, digest, layers: vec![vec![staged]] };
    let (epoch, flushed_seq) = (base.writer_epoch, Seq(61));
    let flush = FlushL0 { ingests: vec![ingest], flushed_seq, ..FlushL0::nothing(epoch, &base) };
    Edit::FlushL0(flush).apply(&base).unwrap()
}

/// W4: until every hold has passed it, in either order.
#[test]
fn an_ingest_keeps_its_originals_until_all_have_passed_it() {
    assert!(installed(&manifest()).fed.is_empty());
    let one = take(&manifest(), "a", 1, HoldFrom::At(place(60, 6)));
    let both = take(&one, "b", 1, HoldFrom::At(place(60, 6)));
    let kept = installed(&both);
    assert_eq!(kept.fed, [FedIngest { seq: Seq(61), source: FedSource::Job(JOB) }]);
    let first = advanced(&kept, "a", 1, place(61, 7));
    assert_eq!(first.fed.len(), 1);
    assert!(advanced(&first, "b", 1, place(61, 7)).fed.is_empty());
    let release = Edit::Hold(HoldEdit::Release { name: "b".to_owned() });
    assert!(release.apply(&first).unwrap().fed.is_empty());
    let expired = Edit::RevokeExpired { ids: vec![], now: UnixMillis(1_000) };
    assert!(expired.apply(&kept).unwrap().fed.is_empty());
    // A consumer that begins after it does not need it.
    let past = advanced(&one, "a", 1, place(61, 7));
    assert!(installed(&past).fed.is_empty());
}

/// A consumer that began at the oldest log that was there continues where it has acknowledged,
/// although the hold retains only what came later.
#[test]
fn unretained_log_is_not_taken_for_acknowledged() {
    let own = place(60, 6);
    let begun = TakeHold { unretained: Some(place(0, 2)), ..taking("a", 1, HoldFrom::At(own)) };
    let begun = Edit::Hold(HoldEdit::Take(Box::new(begun))).apply(&manifest()).unwrap();
    let hold = |state: &Manifest| state.hold("a").unwrap().clone();
    assert_eq!((hold(&begun).place(), hold(&begun).acknowledged()), (own, place(0, 2)));
    // A renewal without progress changes nothing, and is in effect.
    let renewed = advanced(&begun, "a", 1, place(0, 2));
    assert_eq!(hold(&renewed).acknowledged(), place(0, 2));
    let partly = advanced(&renewed, "a", 1, place(30, 4));
    assert_eq!((hold(&partly).place(), hold(&partly).acknowledged()), (own, place(30, 4)));
    let behind = Edit::Hold(advance("a", 1, place(40, 5)));
    assert!(!behind.in_effect(&partly), "its number is below that of the hold");
    // The next consumer of the name continues there.
    let next = take(&partly, "a", 2, HoldFrom::Kept);
    assert_eq!((hold(&next).place(), hold(&next).acknowledged()), (own, place(30, 4)));
    for (to, then) in [(place(60, 5), own), (place(70, 8), place(70, 8))] {
        let done = advanced(&next, "a", 2, to);
        assert_eq!((hold(&done).unretained, hold(&done).acknowledged()), (None, then));
    }
}
