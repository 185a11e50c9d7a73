use super::*;
use crate::compaction::plan::Why;
use crate::state::{L0Entry, SortedRun};
use crate::testing::{empty, table};
use siltstone_base::{RangeDelete, Seq};

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
    let shaping = Shaping { target_sst_bytes: 1000, min_move_bytes: 10 };
    Work::of(state, &[], &plan, facts, shaping).unwrap()
}

fn ids<'a>(tables: impl IntoIterator<Item = &'a SstDescriptor>) -> Vec<u128> {
    tables.into_iter().map(|table| table.id.get()).collect()
}

/// A group: its bounds and tables.
type Bounds<'a> = (&'a [u8], Option<&'a [u8]>, Vec<u128>);

/// Tables that move, then the groups.
fn shape(work: &Work) -> (Vec<u128>, Vec<Bounds<'_>>) {
    let groups = work.groups.iter();
    let group = groups.map(|one| (one.start.as_ref(), one.end.as_deref(), ids(&one.tables)));
    (ids(&work.moves), group.collect())
}

#[test]
fn what_meets_nothing_moves_and_the_rest_is_merged() {
    let state = tree(
        &[(2, vec![one(22, b"a", b"b")]), (1, vec![one(11, b"d", b"f")])],
        &[(0, vec![one(1, b"e", b"g"), one(2, b"m", b"p"), one(3, b"x", b"z")])],
    );
    let work = work(&state, "L0:2, L0:1, 0 -> 0");
    assert_eq!(
        shape(&work),
        (vec![22], vec![(b"d".as_slice(), Some(b"m".as_slice()), vec![11, 1])])
    );
    // Tables 2 and 3 are where they would move to.
    let finish = work.finish(Epoch(1), JobId(1), vec![one(9, b"d", b"g")], vec![]);
    assert_eq!(finish.remove, vec![SstId(22), SstId(11), SstId(1)]);
    assert_eq!(ids(&finish.add), vec![22, 9]);
    assert_eq!(work.read_bytes(), 200);
}

#[test]
fn a_group_never_reaches_over_a_table_that_stays() {
    let state = tree(
        &[(1, vec![one(11, b"a", b"b"), one(12, b"x", b"y")])],
        &[(3, vec![one(31, b"b", b"c"), one(32, b"y", b"z")]), (0, vec![one(1, b"m", b"n")])],
    );
    let work = work(&state, "L0:1, 3 -> 0");
    let (left, right) = (vec![11, 31], vec![12, 32]);
    let groups = vec![(b"a".as_slice(), Some(b"m".as_slice()), left), (b"x", None, right)];
    assert_eq!(shape(&work), (vec![], groups));
}

#[test]
fn small_tables_are_merged_with_their_neighbours() {
    let small =
        |id, first: &[u8], last: &[u8]| SstDescriptor { object_bytes: 9, ..one(id, first, last) };
    let state = tree(
        &[
            (4, vec![small(44, b"x", b"y")]),
            (3, vec![one(33, b"m", b"p")]),
            (2, vec![small(22, b"c", b"d")]),
            (1, vec![small(11, b"a", b"b")]),
        ],
        &[],
    );
    let work = work(&state, "L0:4, L0:3, L0:2, L0:1 -> 0");
    // Table 44 has no neighbour but one that moves.
    let groups = vec![(b"a".as_slice(), Some(b"m".as_slice()), vec![22, 11])];
    assert_eq!(shape(&work), (vec![33, 44], groups));
}

#[test]
fn a_window_cuts_what_would_move() {
    let state = tree(&[(2, vec![one(22, b"a1", b"a9")]), (1, vec![one(11, b"b1", b"c1")])], &[]);
    let cut = |plan: &mut Plan| plan.cut_prefix_bytes = 1;
    let work = work_of(&state, "L0:2, L0:1 -> 0", &Facts::default(), cut);
    assert_eq!(shape(&work), (vec![22], vec![(b"b1".as_slice(), None, vec![11])]));
    assert_eq!(work.cut_prefix_bytes, 1);
}

#[test]
fn groups_do_not_reach_into_the_next_window() {
    let pair = |order: u64, window: u8| {
        let id = u128::from(order) * 10;
        (order, vec![one(id, &[window, 1], &[window, 9])])
    };
    let state = tree(&[pair(4, b'b'), pair(3, b'b'), pair(2, b'a'), pair(1, b'a')], &[]);
    let plan = "L0:4, L0:3, L0:2, L0:1 -> 0";
    let groups = |bytes| {
        let cut = |plan: &mut Plan| plan.cut_prefix_bytes = bytes;
        work_of(&state, plan, &Facts::default(), cut).groups.len()
    };
    assert_eq!((groups(0), groups(1)), (1, 2));
}

fn expired(table: SstDescriptor) -> SstDescriptor {
    let at = Some(UnixMillis(50));
    SstDescriptor { min_expiry: at, max_expiry: at, ..table }
}

/// 11 of the planted bugs: an expired table above one that stays hides its keys, and must not go.
#[test]
fn only_what_hides_nothing_is_dropped() {
    let facts = Facts { now: UnixMillis(50), ..Facts::default() };
    let below = |first: &[u8]| {
        tree(
            &[(1, vec![expired(one(11, b"a", b"c"))])],
            &[(5, vec![one(51, b"x", b"z")]), (0, vec![one(1, first, b"p")])],
        )
    };
    let hides = work_of(&below(b"c"), "L0:1 -> 5", &facts, |_| {});
    assert_eq!((ids(&hides.moves), hides.drops), (vec![11], vec![]));
    let free = work_of(&below(b"d"), "L0:1 -> 5", &facts, |_| {});
    assert_eq!((ids(&free.moves), free.drops), (vec![], vec![SstId(11)]));
    let early = Facts { now: UnixMillis(49), ..Facts::default() };
    assert!(work_of(&below(b"d"), "L0:1 -> 5", &early, |_| {}).drops.is_empty());
    // Gone with what it hides.
    let mut both = below(b"c");
    both.runs[1].tables[0] = expired(both.runs[1].tables[0].clone());
    let both = work_of(&both, "L0:1, 5, 0 -> 0", &facts, |_| {});
    assert_eq!((ids(&both.moves), both.drops), (vec![51], vec![SstId(1), SstId(11)]));
}

#[test]
fn tombstones_alone_and_keys_that_are_not_kept_go_too() {
    let buried = SstDescriptor { tombstones: 10, ..one(11, b"a", b"c") };
    let ranged = SstDescriptor { range_deletes: Some((1, 1)), ..buried.clone() };
    let state = |table| tree(&[], &[(1, vec![table]), (0, vec![one(1, b"m", b"p")])]);
    let drops = |table, facts: &Facts| {
        let all = |_: &SstDescriptor| true;
        let mut drops: Vec<_> = droppable(&state(table), all, facts).into_iter().collect();
        drops.sort_unstable();
        drops
    };
    let facts = Facts::default();
    assert_eq!(drops(buried, &facts), vec![SstId(11)]);
    assert_eq!(drops(ranged, &facts), vec![]);
    let kept = |from: &'static [u8]| Facts {
        keep_from: Some(Bytes::from_static(from)),
        ..Facts::default()
    };
    assert_eq!(drops(one(11, b"a", b"c"), &kept(b"c")), vec![]);
    assert_eq!(drops(one(11, b"a", b"c"), &kept(b"d")), vec![SstId(11)]);
    assert_eq!(drops(one(11, b"a", b"c"), &kept(b"q")), vec![SstId(1), SstId(11)]);
}

/// Seen by all, newer than the table, and without a gap over it: then the table goes unread,
/// whatever lies below.
#[test]
fn what_a_range_delete_hides_wholly_is_dropped() {
    let newest = |seq| SstDescriptor { max_seq: Seq(seq), ..one(11, b"c", b"g") };
    let state = |table| tree(&[(2, vec![table])], &[(0, vec![one(1, b"a", b"p")])]);
    let drops = |seq, ranges: &[(&[u8], &[u8], u64)]| {
        let ranges = ranges.iter().map(|(start, end, seq)| RangeDelete::new(start, end, Seq(*seq)));
        let facts = Facts { deleted: Cover::of(ranges.collect()), ..Facts::default() };
        work_of(&state(newest(seq)), "L0:2 -> 5", &facts, |_| {}).drops
    };
    assert_eq!(drops(8, &[(b"a", b"h", 9)]), vec![SstId(11)]);
    assert_eq!(drops(8, &[(b"c", b"g\0", 9)]), vec![SstId(11)]);
    assert_eq!(drops(8, &[(b"c", b"g", 9)]), vec![], "the last key stays");
    assert_eq!(drops(8, &[(b"c\0", b"z", 9)]), vec![], "the first key stays");
    assert_eq!(drops(9, &[(b"a", b"h", 9)]), vec![], "something is as new");
    assert_eq!(drops(8, &[(b"a", b"e", 9), (b"e", b"h", 12)]), vec![SstId(11)]);
    assert_eq!(drops(8, &[(b"a", b"e", 9), (b"e\0", b"h", 12)]), vec![], "there is a gap");
    assert_eq!(drops(8, &[(b"a", b"e", 9), (b"d", b"h", 7)]), vec![], "one half is older");
}

#[test]
fn garbage_at_the_bottom_is_worth_reading() {
    let with = |tombstones| SstDescriptor { tombstones, ..one(11, b"a", b"c") };
    let work = |tombstones, below: &[u8], thorough| {
        let runs = [(1, vec![with(tombstones)]), (0, vec![one(1, below, b"z")])];
        let thorough = |plan: &mut Plan| plan.thorough = thorough;
        work_of(&tree(&[], &runs), "1 -> 1", &Facts::default(), thorough)
    };
    assert!(work(2, b"d", false).is_nothing());
    assert_eq!(work(3, b"d", false).read_bytes(), 100);
    assert!(work(3, b"c", false).is_nothing());
    assert_eq!(work(1, b"d", true).read_bytes(), 100);
    assert!(work(0, b"d", true).is_nothing());
}

/// The bottom is decided for each group: run 0 has keys from m on only.
#[test]
fn a_run_is_the_bottom_for_some_keys() {
    let two = |id, last: &[u8]| vec![one(id, b"a", b"c"), one(id + 1, b"p", last)];
    let mut runs = [(5, two(51, b"q")), (4, two(41, b"q")), (0, vec![one(1, b"m", b"z")])];
    runs[0].1.insert(1, one(59, b"g", b"h"));
    let work = work(&tree(&[], &runs), "5, 4 -> 4");
    let bottoms: Vec<_> = work.groups.iter().map(|group| group.bottom).collect();
    assert_eq!((ids(&work.moves), bottoms), (vec![59], vec![true, false]));
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
    // Without anchors the bounds of the tables have to do: nothing to cut at here.
    assert_eq!(work.ranges(&[], 4, 100).len(), 2);
    assert_eq!(work.ranges(&anchors, 4, 100_000).len(), 2);
}

#[test]
fn a_plan_that_may_not_run_comes_to_nothing() {
    let state = tree(&[], &[(5, vec![one(51, b"a", b"z")]), (0, vec![one(1, b"a", b"z")])]);
    let plan = Plan::whole([Layer::Run(5)], 0, Why::Manual);
    let refused = Work::of(&state, &[], &plan, &Facts::default(), Shaping::default());
    assert!(matches!(refused, Err(PlanRefusal::Passed { .. })), "{refused:?}");
}
