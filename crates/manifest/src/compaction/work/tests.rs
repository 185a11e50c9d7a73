use super::*;
use crate::edit::Edit;
use crate::state::{L0Entry, SortedRun};
use crate::testing::{empty, table};
use siltstone_base::{AttemptId, RangeDelete, Seq};

/// A table of 100 bytes and 10 entries over `[first, last]`.
fn one(id: u128, first: &[u8], last: &[u8]) -> SstDescriptor {
    SstDescriptor { entries: 10, ..table(SstId(id), first, last, 1, 1) }
}

/// Layers as `(L0 order or run id, tables)`, newest first.
fn tree(l0: &[(u64, Vec<SstDescriptor>)], runs: &[(u32, Vec<SstDescriptor>)]) -> Manifest {
    let mut state = empty();
    let l0 = l0.iter().cloned();
    state.l0 = l0.map(|(order, tables)| L0Entry { order, tables }).collect();
    state.runs = runs.iter().cloned().map(|(id, tables)| SortedRun { id, tables }).collect();
    state
}

/// Tables below 10 bytes are small.
fn work(state: &Manifest, plan: &str) -> Work {
    work_of(state, plan, &Facts::default(), |_| {})
}

fn work_of(state: &Manifest, plan: &str, facts: &Facts, change: impl FnOnce(&mut Plan)) -> Work {
    let mut plan: Plan = plan.parse().unwrap();
    change(&mut plan);
    let shaping = TableSizing { target_sst_bytes: 1000, min_move_bytes: 10 };
    Work::of(state, &[], &plan, facts, shaping).unwrap()
}

fn ids<'a>(tables: impl IntoIterator<Item = &'a SstDescriptor>) -> Vec<u128> {
    tables.into_iter().map(|table| table.id.get()).collect()
}

/// A group: its bounds and tables.
type Bounds<'a> = (&'a [u8], Option<&'a [u8]>, Vec<u128>);

/// Tables that are moved, then the groups.
fn shape(work: &Work) -> (Vec<u128>, Vec<Bounds<'_>>) {
    let groups = work.groups.iter();
    let group = groups.map(|one| (one.start.as_ref(), one.end.as_deref(), ids(&one.tables)));
    (ids(&work.moves), group.collect())
}

#[test]
fn tables_without_overlap_move_and_the_rest_is_merged() {
    let state = tree(
        &[(2, vec![one(22, b"a", b"b")]), (1, vec![one(11, b"d", b"f")])],
        &[(0, vec![one(1, b"e", b"g"), one(2, b"m", b"p"), one(3, b"x", b"z")])],
    );
    let work = work(&state, "L0:2, L0:1, 0 -> 0");
    assert_eq!(
        shape(&work),
        (vec![22], vec![(b"d".as_slice(), Some(b"m".as_slice()), vec![11, 1])])
    );
    // Tables 2 and 3 are already at their destination.
    let finish =
        work.finish(Epoch(1), (JobId(1), ManifestId::FIRST), vec![one(9, b"d", b"g")], vec![]);
    assert_eq!(finish.remove, [SstId(22), SstId(11), SstId(1)].map(TablePart::from));
    assert_eq!(ids(&finish.add), vec![22, 9]);
    assert_eq!(work.read_bytes(), 200);
}

#[test]
fn ranges_cover_each_group_and_no_more() {
    let wide = |id| SstDescriptor { object_bytes: 700, ..one(id, b"a", b"k") };
    let state = tree(
        &[(2, vec![wide(21), one(22, b"p", b"q")]), (1, vec![wide(11), one(12, b"q", b"z")])],
        &[(0, vec![one(1, b"m", b"n")])],
    );
    let work = work(&state, "L0:2, L0:1 -> 0");
    let anchors: Vec<Anchor> = (b'a'..b'k')
        .map(|first| Anchor { key: vec![first].into(), bytes: 140 })
        .chain([Anchor { key: b"q".as_slice().into(), bytes: 200 }])
        .collect();
    let ranges = work.ranges(&anchors, 4, 100);
    let bounds: Vec<_> =
        ranges.iter().map(|one| (one.start.as_ref(), one.end.as_deref())).collect();
    let key = |key: &'static [u8]| Some(key);
    assert_eq!(
        bounds,
        vec![
            (b"a".as_slice(), key(b"d")),
            (b"d", key(b"g")),
            (b"g", key(b"j")),
            (b"j", key(b"m")),
            (b"p", None),
        ]
    );
    let first = &work.groups[0];
    assert_eq!(ids(first.tables_in(b"d", Some(b"g"))), vec![21, 11]);
    // Without anchors the bounds of the tables are used: there is no key to split at here.
    assert_eq!(work.ranges(&[], 4, 100).len(), 2);
    assert_eq!(work.ranges(&anchors, 4, 100_000).len(), 2);
}

/// Rows of a dropped table do not sink, and the commit cannot know that: it removes the tables that
/// the dropped ones would pass and adds them again.
#[test]
fn tables_below_a_dropped_table_move_to_its_place() {
    let mut state = tree(&[(2, vec![one(22, b"b", b"c")])], &[(0, vec![one(1, b"a", b"z")])]);
    (state.flushed_seq, state.last_l0_order) = (Seq(9), 2);
    (state.compactor_epoch, state.compactor_claim) = (Epoch(1), AttemptId(1));
    let deleted = Cover::of(vec![RangeDelete::new(b"b", b"d", Seq(9))]);
    let facts = Facts { deleted, ..Facts::default() };
    let plan = "L0:2, 0 -> 0".parse().unwrap();
    let shaping = TableSizing { target_sst_bytes: 1000, min_move_bytes: 10 };
    let work = Work::of(&state, &[], &plan, &facts, shaping).unwrap();
    assert_eq!((work.drops.clone(), ids(&work.moves)), (vec![SstId(22)], vec![1]));
    assert!(work.is_metadata_only());
    let finish = work.finish(Epoch(1), (JobId(1), ManifestId::FIRST), vec![], vec![]);
    let next = Edit::FinishCompaction(finish).apply(&state).unwrap();
    assert_eq!(next.tables().map(|table| table.id).collect::<Vec<_>>(), [SstId(1)]);
}
