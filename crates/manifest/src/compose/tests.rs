use super::*;
use crate::compaction::{
    Facts, Job, JobParameters, Layer, Plan, PlanRefusal, Running, TableSizing, Work, manual,
    validate,
};
use crate::edit::{Edit, FinishCompaction};
use crate::invariant::broken;
use crate::state::Ancestor;
use crate::testing::{empty, manifest, table};
use siltstone_base::{AttemptId, CheckpointId, Epoch, ErrorKind, JobId, TablePart};

fn key(key: &str) -> Bytes {
    Bytes::copy_from_slice(key.as_bytes())
}

fn range(start: Option<&str>, end: Option<&str>) -> VisibleRange {
    VisibleRange { start: start.map(key), end: end.map(key) }
}

fn part(name: &str, tables: Composition) -> Part {
    Part { name: name.to_owned(), tables }
}

/// Every table is in one database, and both parts are clones of it.
fn one_parent(_: SstLocation) -> Option<DatabaseId> {
    Some(DatabaseId(78))
}

/// `state` cut in two, and combined again: the right half through another pin.
fn split_and_joined(state: &Manifest, at: &str) -> Composition {
    let left = project(state, &range(None, Some(at))).located(|_| Some(3)).unwrap();
    let right = project(state, &range(Some(at), None)).located(|_| Some(4)).unwrap();
    unite(vec![part("right", right), part("left", left)], one_parent).unwrap()
}

/// A database with these tables, which has two pins in its ancestor.
fn database_of(tables: Composition) -> Manifest {
    let mut state = manifest();
    state.reserved.clear();
    let other = Ancestor { number: 4, checkpoint: CheckpointId(5), ..state.ancestors[0].clone() };
    state.ancestors.push(other);
    state.last_ancestor = 4;
    tables.fill(&mut state);
    assert_eq!(broken(&state), None);
    state
}

fn seen(table: &SstDescriptor) -> (u128, Option<Bytes>, Option<Bytes>) {
    (table.id.get(), table.visible_start.clone(), table.visible_end.clone())
}

#[test]
fn all_keys_are_all_of_it() {
    let state = manifest();
    let whole = project(&state, &VisibleRange::default());
    let alone = unite(vec![part("one", whole.clone())], one_parent).unwrap();
    assert_eq!(alone, whole);
    assert_eq!((whole.l0.clone(), whole.runs.clone()), (state.l0.clone(), state.runs.clone()));
    assert_eq!(whole.last_l0_order, state.last_l0_order);
}

#[test]
fn tables_inside_are_whole_and_tables_outside_are_gone() {
    let cut = project(&manifest(), &range(Some("b"), Some("g")));
    let tables: Vec<_> = cut.tables().map(seen).collect();
    let (b, g) = (Some(key("b")), Some(key("g")));
    // 13 begins with b, 10 ends with f, 11 begins with g.
    assert_eq!(
        tables,
        [
            (14, b.clone(), g.clone()),
            (13, None, g.clone()),
            (10, b.clone(), None),
            (9, b.clone(), g.clone()),
        ]
    );
    let narrower = cut.clone().cut(&range(Some("a"), Some("d")));
    assert_eq!(narrower.tables().map(seen).next(), Some((14, b, Some(key("d")))));
    assert_eq!(
        cut.cut(&range(Some("g"), None)),
        Composition { l0: vec![], runs: vec![], ..project(&manifest(), &VisibleRange::default()) }
    );
    assert_eq!(range(Some("c"), Some("c")).check().unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn databases_that_overlap_are_refused_by_name_and_keys() {
    let state = manifest();
    let left = part("memory:///left", project(&state, &range(None, Some("h"))));
    let right = part("memory:///right", project(&state, &range(Some("g"), None)));
    let error = unite(vec![right.clone(), left.clone()], one_parent).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let text = error.to_string();
    for said in ["memory:///left", "has keys to: h", "memory:///right", "has keys from: g"] {
        assert!(text.contains(said), "{text}");
    }
    let left = part("left", left.tables.cut(&range(None, Some("g"))));
    unite(vec![right, left], one_parent).unwrap();
}

#[test]
fn the_newest_layers_and_the_last_runs_share_one() {
    let deep = project(&manifest(), &range(None, Some("g")));
    let mut flat = project(&manifest(), &range(Some("m"), None));
    flat.l0.truncate(1);
    flat.runs.remove(0);
    flat.flushed_seq = Seq(99);
    let united = unite(vec![part("flat", flat), part("deep", deep)], one_parent).unwrap();
    let ids = |tables: &[SstDescriptor]| tables.iter().map(|one| one.id.get()).collect::<Vec<_>>();
    let l0: Vec<_> = united.l0.iter().map(|one| (one.order, ids(&one.tables))).collect();
    assert_eq!(l0, [(2, vec![14, 14]), (1, vec![13])]);
    let runs: Vec<_> = united.runs.iter().map(|one| (one.id, ids(&one.tables))).collect();
    assert_eq!(runs, [(1, vec![10]), (0, vec![9, 9])]);
    assert_eq!((united.flushed_seq, united.floor), (Seq(99), Seq(40)));
    assert_eq!(united.last_l0_order, 2);
}

/// The invariant demands one location per object; each parent has its own pin there.
#[test]
fn one_object_has_one_place() {
    let united = split_and_joined(&manifest(), "g");
    assert!(united.tables().all(|table| match table.id.get() {
        11 => table.location == SstLocation::Ancestor(4),
        _ => table.location == SstLocation::Ancestor(3),
    }));
    database_of(united);
    let left = project(&manifest(), &range(None, Some("h")));
    let mut right = project(&manifest(), &range(Some("h"), None));
    right.l0[0].tables[0].checksum ^= 1;
    let error = unite(vec![part("left", left), part("right", right)], one_parent).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
}

#[test]
fn other_settings_are_refused() {
    let (one, mut other) = (manifest(), manifest());
    other.settings.merge_operator = Some("sum_i64".to_owned());
    assert!(check_alike([("one", &one), ("other", &other)]).is_ok());
    other.settings.filter = "another".to_owned();
    let error = check_alike([("one", &one), ("other", &other)]).unwrap_err().to_string();
    assert!(error.contains("filter") && error.contains("other"), "{error}");
    // All must agree with the first operator that exists, regardless of its database.
    let operator = |name: &str| {
        let mut state = manifest();
        state.settings.merge_operator = Some(name.to_owned());
        state
    };
    let (sum, max) = (operator("sum_i64"), operator("max"));
    let agreed = check_alike([("one", &one), ("sum", &sum)]).unwrap();
    assert_eq!(agreed.merge_operator.as_deref(), Some("sum_i64"));
    let error = check_alike([("none", &one), ("sum", &sum), ("max", &max)]).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("one: sum") && error.contains("other: max"), "{error}");
    let typed = Manifest { schema: Some(key("s")), ..manifest() };
    assert!(check_alike([("one", &one), ("typed", &typed)]).is_err());
}

/// A combined database that contains tables 9 and 14 twice, with a compactor.
fn cousins() -> Manifest {
    let mut state = database_of(split_and_joined(&manifest(), "h"));
    state.compactor_epoch = Epoch(1);
    state.compactor_claim = AttemptId(7);
    state
}

/// K6: cousins share t, and "remove t" would remove both halves.
#[test]
fn a_part_goes_alone() {
    let state = cousins();
    let left = state.runs.last().unwrap().tables[0].clone();
    let finish = FinishCompaction {
        epoch: Epoch(1),
        job: JobId(1),
        planned_on: state.id,
        remove: vec![left.part()],
        add: vec![table(SstId(70), b"a", b"g", 1, 20)],
        destination: 0,
        retire: vec![],
    };
    let next = Edit::FinishCompaction(finish.clone()).apply(&state).unwrap();
    let last: Vec<_> = next.runs.last().unwrap().tables.iter().map(seen).collect();
    assert_eq!(last, [(70, None, None), (9, Some(key("h")), None)]);
    // A name that no part has removes nothing.
    let other = TablePart { visible_start: Some(key("i")), ..left.part() };
    let finish = FinishCompaction { remove: vec![other], ..finish };
    assert!(Edit::FinishCompaction(finish).apply(&state).is_err());
}

fn worked(state: &Manifest, plan: &Plan) -> Work {
    let shaping = TableSizing { target_sst_bytes: 1000, min_move_bytes: 10 };
    Work::of(state, &[], plan, &Facts::default(), shaping).unwrap()
}

fn job_of(state: &Manifest, work: &Work) -> Job {
    let named = (JobId(5), Default::default(), UnixMillis(1));
    Job::of(work, named, state, JobParameters::default(), work.ranges(&[], 1, u64::MAX))
}

/// A record names (layer, id), which means all parts in that layer. None of them is dropped or
/// moved, because those lists have no layers.
#[test]
fn parts_of_one_table_are_merged_and_named_by_their_layer() {
    let state = cousins();
    let plan = manual::major(&state, UnixMillis(0)).unwrap();
    let work = worked(&state, &plan);
    assert!(work.drops.is_empty() && work.moves.is_empty());
    let job = job_of(&state, &work);
    assert_eq!(job.inputs.iter().filter(|(_, ids)| ids.contains(&SstId(9))).count(), 1);
    let merged = job.merged(&state).unwrap();
    assert_eq!(merged.iter().flatten().count(), state.tables().count());
    let mut done = job;
    done.ranges.iter_mut().for_each(|range| range.done = true);
    let finish = done.finish(&state, Epoch(1), vec![]).unwrap();
    assert_eq!(finish.remove.len(), state.tables().count());
    let next = Edit::FinishCompaction(finish).apply(&state).unwrap();
    assert_eq!(next.tables().count(), 0);
}

/// A job over one part excludes other jobs from all parts: none may move to its layer meanwhile.
#[test]
fn taking_a_part_keeps_others_off_its_cousins() {
    let mut state = cousins();
    // Table 9: its left part in run 0, its right part in run 1.
    let right = state.runs.last_mut().unwrap().tables.pop().unwrap();
    state.runs[0].tables.retain(|table| table.id == SstId(10));
    state.runs[0].tables.push(right);
    state.l0.clear();
    assert_eq!(broken(&state), None);
    let left: Plan = "0 -> 0".parse().unwrap();
    let running = worked(&state, &Plan { thorough: true, ..left }).running(JobId(5));
    let plan = Plan::whole([Layer::Run(1)], 1, Default::default());
    assert!(validate(&state, &[], &plan).is_ok());
    let refused = validate(&state, &[running], &plan).unwrap_err();
    assert_eq!(refused, PlanRefusal::Busy { table: SstId(9), job: JobId(5) });
}

/// A major compaction frees hidden parts.
#[test]
fn a_thorough_plan_rewrites_what_is_cut() {
    let mut state = empty();
    state.flushed_seq = Seq(20);
    let whole = SstDescriptor { object_bytes: 5000, ..table(SstId(9), b"a", b"z", 1, 20) };
    state.runs = vec![SortedRun { id: 0, tables: vec![whole] }];
    assert_eq!(manual::major(&state, UnixMillis(0)), None);
    project(&state, &range(Some("c"), None)).fill(&mut state);
    let plan = manual::major(&state, UnixMillis(0)).unwrap();
    let work = worked(&state, &plan);
    assert_eq!(work.groups.len(), 1);
    assert_eq!(work.groups[0].start, key("c"));
    let scheduled = worked(&state, &Plan { thorough: false, ..plan });
    assert!(scheduled.is_nothing());
    let none: [Running; 0] = [];
    assert!(validate(&state, &none, &"0 -> 0".parse().unwrap()).is_ok());
}
