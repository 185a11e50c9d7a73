//! Compares the result of a search in a block with a linear search, for keys of every length and
//! spread.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test"
)]

mod support;

use proptest::prelude::*;
use siltstone_base::{Seq, compare_internal};
use siltstone_sst::{Block, TableOptions};
use support::{Owned, block, build, open, sort};

/// The distribution of keys: their length, the shared prefix, and the spread of the eight bytes
/// after it.
#[derive(Clone, Copy, Debug)]
enum Spread {
    /// Hashes.
    Even,
    /// Most at one end, a few far away: a straight line estimates these badly.
    Clustered,
    /// Eight bytes from few values, followed by the bytes that differ.
    Tied,
    /// Consecutive numbers.
    Counted,
}

fn key(spread: Spread, len: usize, number: u64) -> Vec<u8> {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let head = match spread {
        Spread::Even => mixed,
        Spread::Clustered if mixed.is_multiple_of(9) => mixed,
        Spread::Clustered | Spread::Counted => number,
        Spread::Tied => mixed >> 62,
    };
    let mut key = head.to_be_bytes().to_vec();
    key.extend_from_slice(&mixed.to_be_bytes());
    key.extend_from_slice(&number.to_be_bytes());
    match len {
        // The distinguishing bytes of counters are at the end.
        1..8 => key.split_off(8 - len)[..len].to_vec(),
        _ => key[..len].to_vec(),
    }
}

/// Compares at every position at which a search could end.
fn agrees(block: &Block, probe: &[u8], seq: Seq) {
    let before = |position: &usize| {
        let entry = block.entry(*position).unwrap();
        compare_internal(entry.key, entry.seq, probe, seq).is_lt()
    };
    let expected = (0..block.len()).take_while(before).count();
    assert_eq!(block.lower_bound(probe, seq), expected, "{probe:?} at {seq:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_search_ends_where_a_linear_one_does(
        spread in prop::sample::select(
            vec![Spread::Even, Spread::Clustered, Spread::Tied, Spread::Counted]),
        len in prop::sample::select(vec![2usize, 4, 8, 9, 16, 17, 24]),
        shared in 0usize..12,
        varied in any::<bool>(),
        numbers in prop::collection::vec((0u64..400, 1u64..6), 1..300),
        probes in prop::collection::vec((0u64..420, 0u64..7), 40),
        block_bytes in prop::sample::select(vec![100usize, 2000, 16_000]),
    ) {
        let full = |number: u64| {
            let mut full = vec![b'k'; shared];
            full.extend(key(spread, len, number));
            if varied && number.is_multiple_of(3) {
                full.push(b'+');
            }
            full
        };
        let mut entries: Vec<Owned> =
            numbers.iter().map(|(number, seq)| Owned::put(&full(*number), *seq, b"v")).collect();
        sort(&mut entries);
        let options = TableOptions { block_bytes, ..TableOptions::default() };
        let (bytes, descriptor) = build(options, 1, 0, &entries);
        let table = open(&bytes, &descriptor).unwrap();
        for number in 0..table.block_count() {
            let block = block(&bytes, &table, number).unwrap();
            let (first, last) = (block.entry(0).unwrap(), block.entry(block.len() - 1).unwrap());
            for (number, seq) in &probes {
                let seq = if *seq == 6 { Seq::MAX } else { Seq(*seq) };
                agrees(&block, &full(*number), seq);
                // Shorter and longer than all of them.
                agrees(&block, &full(*number)[..shared + 1], seq);
                agrees(&block, &[full(*number), vec![0]].concat(), seq);
            }
            for edge in [first, last] {
                for seq in [Seq(0), edge.seq, Seq::MAX] {
                    agrees(&block, edge.key, seq);
                }
            }
            for far in [&[0u8][..], b"a", b"kk", b"z", &[0xff; 30]] {
                agrees(&block, far, Seq::MAX);
            }
        }
    }
}
