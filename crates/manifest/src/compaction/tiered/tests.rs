use super::*;
use crate::state::{L0Entry, Manifest, SortedRun};
use crate::testing::{empty, table};
use siltstone_base::{SstDescriptor, SstId, UnixMillis};

/// Tables over all keys: the given number of layers of L0, and runs of the given bytes, newest
/// first, the last one with id 0. Levels hold 100 x 8^N bytes times 8.
fn tree(l0: u64, runs: &[u64]) -> Manifest {
    let mut state = empty();
    let of = |id: u128, bytes| SstDescriptor {
        object_bytes: bytes,
        ..table(SstId(id), b"a", b"z", 1, 1)
    };
    let entry = |order: u64| L0Entry { order, tables: vec![of(order.into(), 100)] };
    state.l0 = (1..=l0).rev().map(entry).collect();
    let ids = (0..runs.len() as u32).rev();
    let run = |(id, bytes): (u32, &u64)| SortedRun {
        id,
        tables: vec![of(1000 + u128::from(id), *bytes)],
    };
    state.runs = ids.zip(runs).map(run).collect();
    state
}

fn tiered() -> Tiered {
    Tiered { l0_sst_size_bytes: 100, ..Tiered::default() }
}

const LEVEL_1: u64 = 100 * 8 * 8;

/// Old runs that shrank do not separate the runs of a level.
#[test]
fn levels_are_neighbours() {
    let levels = |runs: &[u64]| -> Vec<usize> {
        let state = tree(0, runs);
        let view = View { state: &state, running: &[], now: UnixMillis(0), max_compactions: 4 };
        tiered().levels(&of_runs(&Draft::new(&view))).iter().map(Vec::len).collect()
    };
    assert_eq!(levels(&[1, 1, LEVEL_1 + 1, 1]), vec![2, 2]);
    assert_eq!(levels(&[LEVEL_1 * 8 + 1]), vec![0, 0, 1]);
    assert_eq!(levels(&[u64::MAX]).len(), 19);
}
