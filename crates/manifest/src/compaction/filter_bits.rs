//! The number of filter bits per key for the tables of a run: small runs get more.
//!
//! A look-up of a key in the last run checks the filters of all runs above it, and reads one block
//! for every false positive. For a given amount of memory, the sum of the false positive rates is
//! smallest if the rate of each run is proportional to its size (N. Dayan, M. Athanassoulis, S.
//! Idreos, *Monkey: Optimal Navigable Key-Value Store*, 2017). A run with an eighth of the bytes of
//! the last one gets an eighth of its rate, which costs `ln 8 / (ln 2)^2` = 4.3 bits more per key,
//! for an eighth of the keys. A layer of L0 counts as a run; it is the smallest kind, and there are
//! many of them.

use super::work::Work;
use crate::layer::Layer;
use crate::state::Manifest;
use siltstone_base::SstDescriptor;

/// Maximum number of added bits: beyond it, the rate of a blocked filter falls more and more
/// slowly.
const MOST_EXTRA: f64 = 6.0;

/// Filter bits per key for the tables that `work` writes on `state`, if tables of the last run have
/// `bits`; 0 stays 0.
#[must_use]
pub fn filter_bits(state: &Manifest, work: &Work, bits: u32) -> u32 {
    let bytes = |tables: &[SstDescriptor]| tables.iter().map(|table| table.object_bytes).sum();
    let destination = Layer::Run(work.destination);
    let (mut own, mut largest) = (work.read_bytes() + bytes(&work.moves), 0u64);
    for (layer, tables) in state.layers() {
        if layer == destination {
            let goes = |table: &&SstDescriptor| {
                let inputs = work.inputs.iter().filter(|input| input.layer == layer);
                inputs.flat_map(|input| &input.tables).any(|input| input.part() == table.part())
            };
            let stays = tables.iter().filter(|table| !goes(table));
            own += stays.map(|table| table.object_bytes).sum::<u64>();
        } else if layer < destination {
            largest = largest.max(bytes(tables));
        }
    }
    bits_above(largest, own, bits)
}

/// Filter bits per key for the table of `own` bytes that a flush adds above all layers of `state`.
#[must_use]
pub fn filter_bits_of_flush(state: &Manifest, own: u64, bits: u32) -> u32 {
    let bytes = |tables: &[SstDescriptor]| tables.iter().map(|table| table.object_bytes).sum();
    bits_above(state.layers().map(|(_, tables)| bytes(tables)).max().unwrap_or(0), own, bits)
}

/// Filter bits for a layer of `own` bytes above a layer of `largest` bytes.
fn bits_above(largest: u64, own: u64, bits: u32) -> u32 {
    if bits == 0 || largest <= own {
        return bits;
    }
    let times = largest as f64 / own.max(1) as f64;
    let extra = times.ln() / std::f64::consts::LN_2.powi(2);
    bits + extra.min(MOST_EXTRA).round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compaction::plan::Plan;
    use crate::compaction::work::{Facts, TableSizing};
    use crate::state::{L0Entry, SortedRun};
    use crate::testing::{empty, table};
    use siltstone_base::SstId;

    fn of_bytes(id: u128, object_bytes: u64) -> Vec<SstDescriptor> {
        vec![SstDescriptor { object_bytes, ..table(SstId(id), b"a", b"z", 1, 1) }]
    }

    /// Two layers of L0 of 50 bytes each into run 4, with run 4 of `own` bytes and run 0 of `last`.
    fn bits(own: u64, last: u64, plan: &str, base: u32) -> u32 {
        let mut state = empty();
        let layer = |order: u64| L0Entry { order, tables: of_bytes(u128::from(order) + 9, 50) };
        state.l0 = vec![layer(2), layer(1)];
        state.runs = vec![
            SortedRun { id: 4, tables: of_bytes(4, own) },
            SortedRun { id: 0, tables: of_bytes(1, last) },
        ];
        let plan: Plan = plan.parse().unwrap();
        let shaping = TableSizing { target_sst_bytes: 1 << 30, min_move_bytes: 10 };
        let work = Work::of(&state, &[], &plan, &Facts::default(), shaping).unwrap();
        filter_bits(&state, &work, base)
    }

    #[test]
    fn a_run_of_an_eighth_gets_a_false_positive_rate_of_an_eighth() {
        assert_eq!(bits(900, 8000, "L0:2, L0:1, 4 -> 4", 10), 14);
        assert_eq!(bits(900, 2000, "L0:2, L0:1, 4 -> 4", 10), 11);
        assert_eq!(bits(900, 1000, "L0:2, L0:1, 4 -> 4", 10), 10);
        assert_eq!(bits(900, 1 << 40, "L0:2, L0:1, 4 -> 4", 10), 16);
        assert_eq!(bits(900, 8000, "L0:2, L0:1, 4 -> 4", 0), 0);
        // A new run above both: the largest below it counts.
        assert_eq!(bits(800, 100, "L0:2, L0:1 -> 5", 10), 14);
    }

    #[test]
    fn a_flush_gets_bits_by_the_largest_layer_of_all() {
        let mut state = empty();
        assert_eq!(filter_bits_of_flush(&state, 50, 10), 10);
        state.l0 = vec![L0Entry { order: 1, tables: of_bytes(9, 50) }];
        assert_eq!(filter_bits_of_flush(&state, 50, 10), 10);
        assert_eq!(filter_bits_of_flush(&state, 25, 10), 11);
        state.runs = vec![SortedRun { id: 0, tables: of_bytes(1, 400) }];
        assert_eq!(filter_bits_of_flush(&state, 50, 10), 14);
        assert_eq!(filter_bits_of_flush(&state, 50, 0), 0);
    }

    #[test]
    fn the_last_run_gets_what_was_asked_for() {
        assert_eq!(bits(900, 8000, "L0:2, L0:1, 4, 0 -> 0", 10), 10);
        assert_eq!(bits(900, 8, "L0:2, L0:1, 4, 0 -> 0", 7), 7);
    }
}
