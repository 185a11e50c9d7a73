use super::*;
use crate::state::{L0Entry, Manifest, SortedRun};
use crate::testing::{empty, table};
use siltstone_base::{SstDescriptor, SstId};

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

/// Writers slow down when the factor is exceeded or there are two layers, whichever is more.
#[test]
fn layers_above_slow_writers_down() {
    let above = |state: &Manifest| LazyLeveled::default().above(state);
    let of = |bytes, coming, slow_from, most| {
        Some(SpaceAmplification { bytes, coming, slow_from, most })
    };
    assert_eq!(above(&tree(18)), of(54, 18, 75, 90));
    assert_eq!(above(&tree(100)), of(300, 100, 200, 240));
    // An empty tree: no flush is expected.
    let mut state = tree(18);
    state.l0.clear();
    assert_eq!(above(&state), None);
    assert_eq!(above(&empty()), None);
    assert_eq!(Tiered::default().above(&tree(18)), None);
}
