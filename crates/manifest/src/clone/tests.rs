use super::*;
use crate::edit::{CloneEdit, Edit, NewCheckpoint, PinEdit, UpdateCheckpoints};
use crate::invariant;
use crate::state::CheckpointOwner;
use crate::testing::{manifest, table};
use siltstone_base::{CheckpointId, Epoch, ErrorKind, ManifestId, SstId, TimelineId, WalId};

const CLONE: DatabaseId = DatabaseId(500);
const REQUEST: RequestId = RequestId(9);

fn entry(number: u32, database: u128, pin: u128) -> Ancestor {
    let location = "memory://parent".to_owned();
    Ancestor { number, database: DatabaseId(database), location, checkpoint: CheckpointId(pin) }
}

/// A parent with one table in its own ancestor 3.
fn parent() -> Manifest {
    let mut parent = manifest();
    parent.runs[1].tables[0].location = SstLocation::Ancestor(3);
    assert_eq!(invariant::broken(&parent), None);
    parent
}

fn started() -> Manifest {
    begun_with(vec![entry(1, 77, 31), entry(2, 78, 32)])
}

fn begun_with(entries: Vec<Ancestor>) -> Manifest {
    begun(CLONE, REQUEST, &[("parent", &parent())], entries, None).unwrap()
}

fn composed(parent: &Manifest, number: u32) -> Composed {
    let log =
        [vec![table(SstId(70), b"a", b"b", 61, 65)], vec![table(SstId(71), b"a", b"c", 66, 70)]];
    let source = CloneSource {
        name: "parent",
        state: parent,
        number,
        log: &log,
        last_seq: Seq(70),
        commit_time: UnixMillis(5),
        keys: (None, None),
    };
    compose(&[source]).unwrap()
}

fn filling(pins: &[u128], number: u32) -> CloneEdit {
    CloneEdit::Fill {
        pins: pins.iter().copied().map(CheckpointId).collect(),
        timeline: TimelineId(40 + u128::from(number)),
        began_at: UnixMillis(6),
        tables: Box::new(composed(&parent(), number)),
    }
}

fn apply(edit: &CloneEdit, base: &Manifest) -> Result<Manifest, Refusal> {
    let edit = Edit::Clone(edit.clone());
    assert!(!edit.in_effect(base));
    let next = edit.apply(base)?;
    assert!(edit.in_effect(&next));
    Ok(next)
}

fn ids(pins: &[u128]) -> Vec<CheckpointId> {
    pins.iter().copied().map(CheckpointId).collect()
}

/// K2: numbers, layers and locations are the parent's; rows of its log are the newest layers.
#[test]
fn one_whole_source_stays_what_it_is_but_for_where_it_lies() {
    let parent = parent();
    let composed = composed(&parent, 1);
    let orders: Vec<u64> = composed.l0.iter().map(|layer| layer.order).collect();
    assert_eq!(orders, [6, 5, 4, 3]);
    assert_eq!(composed.l0[0].tables[0].id, SstId(71));
    assert_eq!(composed.l0[0].tables[0].location, SstLocation::Own);
    let placed = |table: &SstDescriptor| (table.id, table.location);
    assert_eq!(placed(&composed.l0[3].tables[0]), (SstId(13), SstLocation::Ancestor(1)));
    assert_eq!(placed(&composed.runs[1].tables[0]), (SstId(9), SstLocation::Ancestor(2)));
    assert_eq!((composed.flushed_seq, composed.last_l0_order), (Seq(70), 6));
    let kept: Vec<u32> = composed.runs.iter().map(|run| run.id).collect();
    assert_eq!(kept, [6, 0]);
}

/// The part of `parent`, as entry `number`, within `keys`.
fn part<'a>(
    parent: &'a Manifest,
    number: u32,
    keys: (Option<&'a [u8]>, Option<&'a [u8]>),
) -> CloneSource<'a> {
    let commit_time = UnixMillis(u64::from(number));
    let name = if keys.0.is_some() { "memory://right" } else { "memory://left" };
    CloneSource { name, state: parent, number, log: &[], last_seq: Seq(60), commit_time, keys }
}

/// K7: a table inside the range stays whole, one across a bound is cut, one outside is not
/// referenced.
#[test]
fn a_range_of_a_parent_is_what_shows_of_it() {
    let parent = parent();
    let composed = compose(&[part(&parent, 1, (None, Some(b"g")))]).unwrap();
    let last: Vec<_> = composed.runs.iter().flat_map(|run| &run.tables).collect();
    let seen = last.iter().map(|table| (table.id.get(), table.visible_end.as_deref()));
    assert_eq!(seen.collect::<Vec<_>>(), [(10, None), (9, Some(b"g".as_slice()))]);
    let error = compose(&[part(&parent, 1, (Some(b"g"), Some(b"g")))]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(compose(&[]).unwrap_err().kind(), ErrorKind::Invalid);
}

/// K6: the halves of one parent, each with its own pins, combine to the whole. An object that both
/// reference has one location.
#[test]
fn halves_of_one_parent_are_all_of_it() {
    let parent = parent();
    let halves = [part(&parent, 3, (Some(b"h"), None)), part(&parent, 1, (None, Some(b"h")))];
    let united = compose(&halves).unwrap();
    let mut clone =
        begun_with(vec![entry(1, 77, 31), entry(2, 78, 32), entry(3, 77, 33), entry(4, 78, 34)]);
    (clone.l0, clone.runs) = (united.l0, united.runs);
    (clone.last_l0_order, clone.flushed_seq) = (united.last_l0_order, united.flushed_seq);
    assert_eq!(invariant::broken(&clone), None);
    assert_eq!(united.commit_time, UnixMillis(3));
    let nine: Vec<_> = clone.tables().filter(|table| table.id == SstId(9)).collect();
    assert!(nine.iter().all(|table| table.location == SstLocation::Ancestor(2)));
    assert_eq!(nine.len(), 2);
    let overlapping = [part(&parent, 3, (Some(b"g"), None)), part(&parent, 1, (None, Some(b"h")))];
    let error = compose(&overlapping).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let told = error.to_string();
    assert!(told.contains("memory://left") && told.contains("memory://right"), "{told}");
}

/// The first manifest is refused for every reason for which its tables would be refused later, so
/// that no clone is begun that cannot be filled.
#[test]
fn parents_that_meet_are_told_before_anything_is_begun() {
    let parent = parent();
    let keys = [(None, Some("h")), (Some("h"), None), (None, None)];
    let keys = keys.map(|(start, end)| {
        let key = |key: Option<&'static str>| key.map(|key| Bytes::from_static(key.as_bytes()));
        VisibleRange { start: key(start), end: key(end) }
    });
    let [left, right, all] = &keys;
    let rows = |keys, log: &[(&'static str, &'static str)]| {
        let span = |(first, last): &(&'static str, &'static str)| {
            Span::between(Bytes::from_static(first.as_bytes()), Bytes::from_static(last.as_bytes()))
        };
        let log = log.iter().map(span).collect();
        CloneRows { name: "one", state: &parent, keys, log }
    };
    check_sources(&[rows(right, &[]), rows(left, &[])]).unwrap();
    // Hidden log rows overlap nothing.
    check_sources(&[rows(right, &[("a", "b")]), rows(left, &[("x", "z")])]).unwrap();
    assert!(check_sources(&[rows(right, &[]), rows(all, &[])]).is_err());
    let empty = Manifest::new_database(DatabaseId(9), parent.settings.clone());
    let other = |first, last| CloneRows { state: &empty, ..rows(all, &[(first, last)]) };
    check_sources(&[rows(left, &[]), other("h", "k")]).unwrap();
    assert!(check_sources(&[rows(left, &[]), other("g", "k")]).is_err());
    // A restored backup has copies of the tables under their names.
    let restored = Manifest { database: DatabaseId(9), ..parent.clone() };
    let copies = CloneRows { state: &restored, name: "other", ..rows(right, &[]) };
    let error = check_sources(&[rows(left, &[]), copies]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("other"), "{error}");
}

/// A clone records its own location, independent of that of its parent.
#[test]
fn a_clone_has_a_place_of_its_own() {
    let entries = vec![entry(1, 77, 31)];
    let at = |state: &Manifest, place| {
        let begun = begun(CLONE, REQUEST, &[("parent", state)], entries.clone(), place).unwrap();
        (begun.features.clone_place().map(str::to_owned), begun)
    };
    let (place, child) = at(&parent(), Some("memory://child"));
    assert_eq!(place.as_deref(), Some("memory://child"));
    let (place, grandchild) = at(&child, Some("memory://grandchild"));
    assert_eq!(place.as_deref(), Some("memory://grandchild"));
    assert_eq!(at(&grandchild, None).0, None);
}

/// Rule D2: a destroyed ancestor is pinned for a clone of a clone by the pin that keeps it anyway.
#[test]
fn a_pin_is_repeated_in_a_destroyed_ancestor() {
    let (mine, theirs, user) = (CheckpointId(31), CheckpointId(32), CheckpointId(33));
    let (owner, expires_at) = (CheckpointOwner::Clone(CLONE), Some(UnixMillis(900)));
    let new = |id, source| NewCheckpoint { id, owner, expires_at, source, ..Default::default() };
    let begun = Edit::AddCheckpoint(new(mine, None)).apply(&manifest()).unwrap();
    let held = Edit::Pin(PinEdit::Hold { pin: mine, clone: CLONE }).apply(&begun).unwrap();
    let by_hand = NewCheckpoint { id: user, ..NewCheckpoint::default() };
    let held = Edit::AddCheckpoint(by_hand).apply(&held).unwrap();
    let destroyed = |state| Manifest { destroyed_at: Some(UnixMillis(1)), ..state };
    let gone = Err(Conflict::Destroyed.into());

    let held = destroyed(held);
    let repeated = Edit::AddCheckpoint(new(theirs, Some(mine))).apply(&held).unwrap();
    let hold = Edit::Pin(PinEdit::Hold { pin: theirs, clone: CLONE });
    assert_eq!(hold.apply(&repeated).unwrap().checkpoint(theirs).unwrap().expires_at, None);
    for source in [None, Some(user), Some(CheckpointId(99))] {
        assert_eq!(Edit::AddCheckpoint(new(theirs, source)).apply(&held), gone);
    }
    let expiring = Edit::AddCheckpoint(new(theirs, Some(mine)));
    assert_eq!(expiring.apply(&destroyed(begun)), gone);
    let own = NewCheckpoint { owner: CheckpointOwner::User, ..new(theirs, Some(mine)) };
    assert_eq!(Edit::AddCheckpoint(own).apply(&held), gone);
}

/// One database may be a parent and an ancestor of another parent: only the numbers identify the
/// newest set of entries.
#[test]
fn a_set_of_entries_is_told_by_its_numbers() {
    let first = vec![entry(1, 77, 31), entry(2, 78, 32), entry(3, 77, 33)];
    let begun = begun_with(first.clone());
    assert_eq!((entries(&begun), next_set(&begun)), (first.as_slice(), 5));
    let repin = |entries: Vec<Ancestor>| {
        let recorded = ids(&[31, 32, 33]);
        apply(&CloneEdit::Repin { recorded, entries }, &begun)
    };
    let second = vec![entry(5, 77, 41), entry(6, 77, 42)];
    assert_eq!(entries(&repin(second.clone()).unwrap()), second);
    for wrong in [vec![entry(4, 77, 41)], vec![entry(5, 77, 41), entry(7, 78, 42)], vec![]] {
        assert!(matches!(repin(wrong), Err(Refusal::Invalid(_))));
    }
}

/// K7: an ancestor with tables only outside the range is not an ancestor of the clone.
#[test]
fn only_referenced_tables_of_a_range_are_pinned() {
    let mut parent = parent();
    // Its table 9 is in its ancestor 3, and has the keys up to y.
    parent.runs[1].tables[0].last_key = Bytes::from_static(b"f");
    let from = |start: &'static str| VisibleRange {
        start: Some(Bytes::from_static(start.as_bytes())),
        end: None,
    };
    assert_eq!(named_within(&parent, &from("f")).len(), 1);
    assert_eq!(named_within(&parent, &from("g")).len(), 0);
    let composed = compose(&[part(&parent, 1, (Some(b"g"), None))]).unwrap();
    let placed = composed.runs.iter().flat_map(|run| &run.tables).map(|table| table.location);
    assert!(placed.eq([SstLocation::Ancestor(1)]));
}

/// K1: begin, fill, finish; the state decides the next step of any creator.
#[test]
fn the_steps_in_their_order() {
    let started = started();
    assert_eq!(invariant::broken(&started), None);
    assert_eq!(next_step(&started, REQUEST), Ok(CloneStep::Fill));
    let finish = CloneEdit::Finish { pins: ids(&[31, 32]) };
    assert_eq!(apply(&finish, &started), Err(Conflict::PinsMoved.into()));

    let filled = apply(&filling(&[31, 32], 1), &started).unwrap();
    assert_eq!(next_step(&filled, REQUEST), Ok(CloneStep::Hold));
    assert_eq!((filled.flushed_seq, filled.floor), (Seq(70), Seq(70)));
    assert_eq!(filled.tables_since, filled.id);
    assert_eq!(apply(&filling(&[31, 32], 2), &filled), Err(Conflict::PinsMoved.into()));

    let made = apply(&finish, &filled).unwrap();
    assert_eq!(next_step(&made, REQUEST), Ok(CloneStep::Done));
    assert_eq!((made.tables().count(), made.ancestors.len()), (7, 2));
    let late = apply(&filling(&[31, 32], 2), &made);
    assert_eq!(late, Err(Conflict::CloneInUse { database: CLONE }.into()));
}

/// A database that is being created accepts only the steps of its creation.
#[test]
fn a_clone_in_the_making_cannot_be_used() {
    let new = NewCheckpoint { id: CheckpointId(9), ..NewCheckpoint::default() };
    let refused = Edit::AddCheckpoint(new).apply(&started());
    assert_eq!(refused, Err(Conflict::NotInitialized.into()));
}

#[test]
fn another_request_is_told_what_stands_there() {
    let other = next_step(&started(), RequestId(10));
    assert_eq!(other, Err(Conflict::PlaceTaken { database: CLONE, being_made: true }.into()));
    let (database, being_made) = (DatabaseId(77), false);
    let taken = next_step(&manifest(), REQUEST);
    assert_eq!(taken, Err(Conflict::PlaceTaken { database, being_made }.into()));
    let filled = apply(&filling(&[31, 32], 1), &started()).unwrap();
    let mut used = apply(&CloneEdit::Finish { pins: ids(&[31, 32]) }, &filled).unwrap();
    used.writer_epoch = Epoch(1);
    let refused = next_step(&used, REQUEST);
    assert_eq!(refused, Err(Conflict::CloneInUse { database: CLONE }.into()));
    let gone = Manifest { destroyed_at: Some(UnixMillis(1)), ..started() };
    assert_eq!(next_step(&gone, REQUEST), Err(Conflict::Destroyed.into()));
}

/// Expired pins: others replace them, and data read under the old ones is void.
#[test]
fn pinned_anew_it_is_filled_anew() {
    let filled = apply(&filling(&[31, 32], 1), &started()).unwrap();
    let entries = vec![entry(4, 77, 41), entry(5, 78, 42)];
    let repin = CloneEdit::Repin { recorded: ids(&[31, 32]), entries: entries.clone() };
    let again = apply(&repin, &filled).unwrap();
    assert_eq!(next_step(&again, REQUEST), Ok(CloneStep::Fill));
    assert_eq!((super::entries(&again), pins(&again)), (entries.as_slice(), ids(&[41, 42])));
    assert_eq!((again.tables().count(), again.ancestors.len()), (0, 4));
    for late in [filling(&[31, 32], 5), CloneEdit::Finish { pins: ids(&[31, 32]) }] {
        assert_eq!(apply(&late, &again), Err(Conflict::PinsMoved.into()));
    }
    let slept = CloneEdit::Repin { recorded: ids(&[31, 32]), entries: vec![entry(7, 77, 51)] };
    assert_eq!(apply(&slept, &again), Err(Conflict::PinsMoved.into()));
    let filled = apply(&filling(&[41, 42], 4), &again).unwrap();
    let made = apply(&CloneEdit::Finish { pins: ids(&[41, 42]) }, &filled).unwrap();
    let tables: Vec<_> = made.runs.iter().flat_map(|run| &run.tables).collect();
    assert_eq!(tables[2].location, SstLocation::Ancestor(5));
}

/// K4: only the clone ends its pin or changes its expiry; while it has an expiry, the collector may
/// revoke it.
#[test]
fn a_pin_is_the_clones() {
    let (pin, owner) = (CheckpointId(31), CheckpointOwner::Clone(CLONE));
    let new = NewCheckpoint {
        id: pin,
        owner,
        expires_at: Some(UnixMillis(900)),
        wal_id_last_seen: Some(WalId(7)),
        ..NewCheckpoint::default()
    };
    let endless = NewCheckpoint { expires_at: None, ..new.clone() };
    let refused = Edit::AddCheckpoint(endless).apply(&manifest());
    assert!(matches!(refused, Err(Refusal::Invalid(_))));
    let pinned = Edit::AddCheckpoint(new).apply(&manifest()).unwrap();
    assert!(pinned.checkpoint(pin).unwrap().pins_wal(WalId(7)));

    let expires_at = Some(UnixMillis(9));
    let mine = Err(Conflict::OfAClone { clone: CLONE }.into());
    assert_eq!(Edit::RemoveCheckpoint { id: pin }.apply(&pinned), mine);
    assert_eq!(Edit::RefreshCheckpoint { id: pin, expires_at }.apply(&pinned), mine);
    let update = UpdateCheckpoints { refresh: vec![pin], expires_at, ..Default::default() };
    assert_eq!(Edit::UpdateCheckpoints(update).apply(&pinned), mine);
    let revoke = Edit::RevokeExpired { ids: vec![pin], now: UnixMillis(1_000) };
    assert!(revoke.apply(&pinned).unwrap().checkpoint(pin).is_none());

    let hold = Edit::Pin(PinEdit::Hold { pin, clone: CLONE });
    let held = hold.apply(&pinned).unwrap();
    assert!(hold.in_effect(&held) && !hold.in_effect(&pinned));
    assert!(revoke.apply(&held).unwrap().checkpoint(pin).is_some());
    assert!(!held.checkpoint(pin).unwrap().pins_any_wal());
    assert_eq!(hold.apply(&manifest()), Err(Refusal::Expired { checkpoint: pin }));
    let destroyed = Manifest { destroyed_at: Some(UnixMillis(1)), ..pinned };
    assert_eq!(hold.apply(&destroyed), Err(Conflict::Destroyed.into()));

    let another = Edit::Pin(PinEdit::Release { pin, clone: DatabaseId(6) });
    assert!(matches!(another.apply(&held), Err(Refusal::Invalid(_))));
    let release = Edit::Pin(PinEdit::Release { pin, clone: CLONE });
    let gone = release.apply(&held).unwrap();
    assert!(release.in_effect(&gone) && gone.checkpoint(pin).is_none());
    assert!(release.apply(&destroyed).is_ok());
}

/// K5: an ancestor is removed once no table is in it.
#[test]
fn an_ancestor_that_is_named_stays() {
    let (mut named, number) = (parent(), 3);
    let detach = CloneEdit::Detach { number };
    assert_eq!(apply(&detach, &named), Err(Conflict::StillNamed { table: SstId(9) }.into()));
    named.runs.truncate(1);
    let alone = apply(&detach, &named).unwrap();
    assert_eq!((alone.ancestors.len(), alone.last_ancestor, alone.id), (0, 3, ManifestId(6)));
}
