use super::*;
use crate::edit::Edit;
use crate::state::Checkpoint;
use crate::testing::{checkpoint, manifest, table};
use siltstone_base::DatabaseId;

fn parts(state: &Manifest, id: u128) -> Vec<GivenUpPart> {
    GivenUpPart::all(state, SstId(id), Rules::ALL).expect("numbers are apart")
}

/// The cover that replaces a table, at `seq`, under a reserved name.
fn cover(of: &SstDescriptor, seq: u64) -> SstDescriptor {
    table(SstId(50), &of.first_key, &of.last_key, seq, seq)
}

fn giving_up(id: u128, cover: Option<SstDescriptor>) -> GiveUpTable {
    GiveUpTable {
        epoch: Epoch(2),
        table: SstId(id),
        covers: vec![(SstId(id).into(), cover)],
        checkpoints: vec![CheckpointId(1)],
    }
}

#[test]
fn a_cover_lies_between_newer_and_older_tables() {
    let m = manifest();
    // Its own largest number: the tables of two older layers are below it.
    let [newest] = &parts(&m, 14)[..] else { panic!("one part") };
    assert_eq!((newest.cover, newest.entries_below), (Some(Seq(60)), 4));
    assert_eq!(parts(&m, 13)[0].cover, Some(Seq(50)));
    assert_eq!((parts(&m, 10)[0].cover, parts(&m, 10)[0].layer), (Some(Seq(30)), Layer::Run(6)));
    // No older table is below the last run.
    assert_eq!((parts(&m, 9)[0].cover, parts(&m, 9)[0].entries_below), (None, 0));
    assert_eq!(parts(&m, 99), []);
    // A job behind all data may bring older rows later.
    let behind = Manifest { behind: Some(0), ..manifest() };
    assert_eq!(parts(&behind, 9)[0].cover, Some(effective_seqs(&m.runs[1].tables[0]).1));
    // A newer row of a key that the table does not contain.
    let mut m = manifest();
    m.l0[1].tables[0] = table(SstId(13), b"b", b"c", 25, 25);
    assert_eq!(parts(&m, 10)[0].cover, Some(Seq(24)));
    // No number is left.
    m.l0[1].tables[0] = table(SstId(13), b"b", b"c", 21, 21);
    let refused = GivenUpPart::all(&m, SstId(10), Rules::ALL);
    assert_eq!(refused, Err(Conflict::NoRoomForCover { table: SstId(10) }.into()));
}

#[test]
fn its_cover_takes_its_place() {
    let base = manifest();
    let lost = base.runs[0].tables[0].clone();
    let edit = Edit::GiveUpTable(giving_up(10, Some(cover(&lost, 30))));
    assert!(!edit.in_effect(&base));
    let next = edit.apply(&base).unwrap();
    assert!(edit.in_effect(&next));
    let ids = |state: &Manifest| state.tables().map(|one| one.id.get()).collect::<Vec<_>>();
    assert_eq!(ids(&next), [14, 13, 50, 11, 9]);
    assert_eq!((next.tables_since, next.reserved.as_slice()), (next.id, [].as_slice()));
    // The log and the counters are unchanged.
    assert_eq!(next.replay_from, base.replay_from);
    assert_eq!((next.flushed_seq, next.writer_epoch), (base.flushed_seq, base.writer_epoch));
    assert!(next.closed_cleanly());
}

#[test]
fn one_that_hides_nothing_leaves_nothing() {
    let edit = Edit::GiveUpTable(giving_up(9, None));
    let next = edit.apply(&manifest()).unwrap();
    assert_eq!(next.runs.len(), 1, "a run of no table is none");
}

#[test]
fn checkpoints_of_users_go_and_pins_of_clones_stay() {
    let mut base = manifest();
    let pin = CheckpointOwner::Clone(DatabaseId(5));
    base.checkpoints.push(Checkpoint { owner: pin, ..checkpoint(3, None) });
    let checkpoints = vec![CheckpointId(1), CheckpointId(3)];
    let edit = GiveUpTable { checkpoints, ..giving_up(9, None) };
    let next = Edit::GiveUpTable(edit).apply(&base).unwrap();
    let left: Vec<u128> = next.checkpoints.iter().map(|one| one.id.0).collect();
    assert_eq!(left, [2, 3]);
}

#[test]
fn a_plan_on_other_layers_is_refused() {
    let base = manifest();
    let gone = Refusal::from(Conflict::TableGone { table: SstId(10) });
    let refused = |edit: GiveUpTable| Edit::GiveUpTable(edit).apply(&base).unwrap_err();
    let lost = base.runs[0].tables[0].clone();
    // Another number; no cover where one is needed; a cover where none is; and no such table.
    assert_eq!(refused(giving_up(10, Some(cover(&lost, 29)))), gone);
    assert_eq!(refused(giving_up(10, None)), gone);
    let last = base.runs[1].tables[0].clone();
    let of_last = refused(giving_up(9, Some(cover(&last, 20))));
    assert_eq!(of_last, Conflict::TableGone { table: SstId(9) }.into());
    let never = refused(giving_up(99, None));
    assert_eq!(never, Conflict::TableGone { table: SstId(99) }.into());
    let wide = table(SstId(50), b"a", b"g", 30, 30);
    assert!(matches!(refused(giving_up(10, Some(wide))), Refusal::Invalid(_)));
    // A name that is not reserved, and another writer.
    let unnamed = SstDescriptor { id: SstId(77), ..cover(&lost, 30) };
    assert!(matches!(refused(giving_up(10, Some(unnamed))), Refusal::Invalid(_)));
    let fenced = GiveUpTable { epoch: Epoch(1), ..giving_up(9, None) };
    assert_eq!(refused(fenced), Refusal::Fenced { by: Epoch(2) });
}
