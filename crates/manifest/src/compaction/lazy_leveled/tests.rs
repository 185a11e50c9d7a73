use super::*;
use crate::compaction::plan::Pick;
use crate::state::{L0Entry, Manifest, SortedRun};
use crate::testing::{empty, table};
use siltstone_base::{JobId, SstDescriptor, SstId, UnixMillis};

fn of(id: u128, bytes: u64, first: &[u8], last: &[u8]) -> SstDescriptor {
    SstDescriptor { object_bytes: bytes, ..table(SstId(id), first, last, 1, 1) }
}

/// L0 layers 2 and 1, runs 7 and 0; the last run in three tables.
fn tree(above: u64) -> Manifest {
    let mut state = empty();
    let entry = |order: u64| L0Entry { order, tables: vec![of(order.into(), above, b"a", b"c")] };
    state.l0 = [2, 1].map(entry).to_vec();
    let last = vec![of(10, 100, b"a", b"f"), of(11, 100, b"g", b"p"), of(12, 100, b"q", b"z")];
    state.runs = vec![
        SortedRun { id: 7, tables: vec![of(70, above, b"b", b"h")] },
        SortedRun { id: 0, tables: last },
    ];
    state
}

fn plans(state: &Manifest, running: &[crate::compaction::Running]) -> Vec<Plan> {
    let view = View { state, running, now: UnixMillis(0), max_compactions: 4 };
    LazyLeveled::default().plans(&view)
}

#[test]
fn what_lies_above_goes_down_when_it_is_large() {
    // Three layers of 18 above 300, and a fourth to come: 372, where 375 are allowed.
    assert!(plans(&tree(18), &[]).is_empty());
    let plans = plans(&tree(19), &[]);
    let layers: Vec<Layer> = plans[0].sources.iter().map(|source| source.layer).collect();
    assert_eq!(layers, vec![Layer::L0(2), Layer::L0(1), Layer::Run(7), Layer::Run(0)]);
    // Nothing above reaches the last table.
    assert_eq!(plans[0].sources[3].pick, Pick::Tables(vec![SstId(10), SstId(11)]));
    assert_eq!((plans.len(), plans[0].destination, plans[0].why), (1, 0, Why::SpaceAmplification));
}

#[test]
fn l0_at_work_is_left_behind() {
    let job = crate::compaction::Running {
        job: JobId(1),
        inputs: vec![(Layer::L0(1), vec![SstId(1)])],
        destination: 8,
    };
    let plans = plans(&tree(50), &[job]);
    let layers: Vec<Layer> = plans[0].sources.iter().map(|source| source.layer).collect();
    assert_eq!(layers, vec![Layer::Run(7), Layer::Run(0)]);
}

/// Where nothing waits in L0, nothing is known to be coming.
#[test]
fn runs_alone_may_come_to_the_factor() {
    let above = |bytes| {
        let mut state = tree(bytes);
        state.l0.clear();
        state
    };
    assert!(plans(&above(75), &[]).is_empty());
    assert_eq!(plans(&above(76), &[]).len(), 1);
}

/// Two flushes over the same keys are already twice what is live.
#[test]
fn without_runs_the_oldest_layer_is_the_last() {
    let mut state = tree(50);
    state.runs.clear();
    let plans = plans(&state, &[]);
    assert_eq!(plans[0].to_string(), "L0:2, L0:1 -> 0");
    state.l0.remove(0);
    assert!(self::plans(&state, &[]).is_empty());
}

/// Writers slow down from where the factor is passed, or two layers, whatever is more.
#[test]
fn what_lies_above_slows_writers_down() {
    let above = |state: &Manifest| LazyLeveled::default().above(state);
    let of = |bytes, coming, slow_from, most| Some(Above { bytes, coming, slow_from, most });
    assert_eq!(above(&tree(18)), of(54, 18, 75, 90));
    assert_eq!(above(&tree(100)), of(300, 100, 200, 240));
    // Nothing comes that one would know of; and there is nothing.
    let mut state = tree(18);
    state.l0.clear();
    assert_eq!(above(&state), None);
    assert_eq!(above(&empty()), None);
    assert_eq!(Tiered::default().above(&tree(18)), None);
}
