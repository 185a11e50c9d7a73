//! Range deletes of a table: storage, look-ups, bounds, damage.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test stops at what it did not expect"
)]

mod support;

use bytes::Bytes;
use proptest::prelude::*;
use siltstone_base::{Cover, ErrorKind, Kind, RangeDelete, Seq, SstDescriptor};
use siltstone_sst::{Codec, Table, TableBuilder, TableOptions};
use support::{Owned, envelope, open, read_all};

fn tiny() -> TableOptions {
    TableOptions { block_bytes: 32, codec: Codec::None, filter_bits_per_key: 10 }
}

fn range(start: &[u8], end: &[u8], seq: u64) -> RangeDelete {
    RangeDelete::new(start, end, Seq(seq))
}

fn built(entries: &[Owned], ranges: &[RangeDelete]) -> (Bytes, SstDescriptor) {
    let mut builder = TableBuilder::new(tiny(), envelope(1));
    builder.add_range_deletes(ranges).unwrap();
    for entry in entries {
        builder.add(&entry.entry()).unwrap();
    }
    builder.finish().unwrap()
}

#[test]
fn added_range_deletes_are_found_beside_the_entries() {
    let entries = [Owned::put(b"f", 5, b"v"), Owned::put(b"k", 9, b"v")];
    let ranges = [range(b"m", b"p", 12), range(b"b", b"g", 3), range(b"b", b"d", 7)];
    let (bytes, descriptor) = built(&entries, &ranges);
    let table = open(&bytes, &descriptor).unwrap();
    assert_eq!(&**table.range_deletes(), &Cover::of(ranges.to_vec()));
    assert_eq!(read_all(&bytes, &table).unwrap(), entries);
    // Bounds and numbers include them.
    assert_eq!(
        (descriptor.first_key.as_ref(), descriptor.last_key.as_ref()),
        (&b"b"[..], &b"p"[..])
    );
    assert_eq!((descriptor.min_seq, descriptor.max_seq), (Seq(3), Seq(12)));
    assert_eq!((descriptor.entries, descriptor.tombstones), (2, 0));
    let (offset, length) = descriptor.range_deletes.unwrap();
    assert!(descriptor.tail_offset < offset && offset + length < descriptor.object_bytes);
    let alone =
        Table::open_alone(bytes.len() as u64, bytes.slice(descriptor.tail_offset as usize..));
    assert_eq!(alone.unwrap().descriptor(), &descriptor);
}

#[test]
fn a_range_that_ends_behind_a_key_ends_the_bounds_there() {
    let (_, descriptor) = built(&[Owned::put(b"f", 5, b"v")], &[range(b"a", b"k\0", 7)]);
    assert_eq!(descriptor.last_key.as_ref(), b"k");
}

#[test]
fn range_deletes_alone_make_a_table() {
    let ranges = [range(b"m", b"p", 12), range(b"b", b"g", 3)];
    let (bytes, descriptor) = built(&[], &ranges);
    let table = open(&bytes, &descriptor).unwrap();
    let again = Owned { kind: Kind::Delete, ..Owned::put(b"b", 3, b"") };
    assert_eq!(read_all(&bytes, &table).unwrap(), [again]);
    assert_eq!(table.range_deletes().list().len(), 2);
    assert_eq!((descriptor.entries, descriptor.tombstones), (1, 1));
}

#[test]
fn a_range_that_breaks_a_bound_is_refused() {
    let mut builder = TableBuilder::new(tiny(), envelope(1));
    for wrong in [
        range(b"b", b"b", 1),
        range(b"c", b"b", 1),
        range(b"", b"b", 1),
        range(b"a", b"b", 1 << 56),
    ] {
        let refused = builder.add_range_deletes(&[wrong]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
    }
    assert_eq!(builder.finish().unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn numbers_that_the_manifest_overrules_are_its_own() {
    let (bytes, descriptor) = built(&[Owned::put(b"f", 5, b"v")], &[range(b"a", b"c", 3)]);
    let descriptor = SstDescriptor { seq_override: Some(Seq(40)), ..descriptor };
    let table = open(&bytes, &descriptor).unwrap();
    assert_eq!(table.range_deletes().at(b"a", Seq::MAX), Seq(40));
}

/// K7: the left half's delete of [a, z) must not hide the right half.
#[test]
fn range_deletes_outside_the_visible_range_hide_nothing() {
    let entries = [Owned::put(b"f", 5, b"v"), Owned::put(b"k", 9, b"v")];
    let (bytes, descriptor) = built(&entries, &[range(b"b", b"g", 3), range(b"m", b"p", 12)]);
    let cut = |start: Option<&'static [u8]>, end: Option<&'static [u8]>| {
        let [visible_start, visible_end] = [start, end].map(|key| key.map(Bytes::from_static));
        open(&bytes, &SstDescriptor { visible_start, visible_end, ..descriptor.clone() }).unwrap()
    };
    assert_eq!(cut(Some(b"c"), Some(b"n")).range_deletes().list(), {
        [range(b"m", b"n", 12), range(b"c", b"g", 3)]
    });
    assert_eq!(cut(None, Some(b"f")).range_deletes().list(), [range(b"b", b"f", 3)]);
    // The first block begins behind a range delete that belongs to the table nevertheless.
    let none = cut(Some(b"g"), Some(b"m"));
    assert!(none.range_deletes().is_empty());
    let block = none.block_range(0).unwrap();
    let block = bytes.slice(block.start as usize..block.end as usize);
    assert_eq!(none.decode_block(0, block).unwrap().entry(0).unwrap().key, b"f");
}

#[test]
fn every_flipped_bit_of_the_tail_is_found() {
    let entries = [Owned::put(b"f", 5, b"v"), Owned::put(b"k", 9, b"v")];
    let ranges = [range(b"b", b"g", 3), range(b"m", b"p", 12)];
    let (bytes, descriptor) = built(&entries, &ranges);
    let tail = descriptor.tail_offset as usize;
    for at in tail..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 1 << bit;
            let tail = Bytes::from(damaged).slice(tail..);
            assert!(Table::open(descriptor.clone(), tail).is_err(), "byte {at}, bit {bit}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn any_range_deletes_come_back(
        bounds in prop::collection::vec((1u8..60, 1u8..9, 1u64..40), 1..30),
        keys in prop::collection::btree_set(1u8..70, 0..20),
    ) {
        let ranges: Vec<_> = bounds
            .iter()
            .map(|(start, length, seq)| range(&[*start], &[start + length], *seq))
            .collect();
        let mut distinct = ranges.clone();
        distinct.sort_by(|a, b| a.start.cmp(&b.start).then_with(|| b.seq.cmp(&a.seq)));
        distinct.dedup_by(|a, b| a.start == b.start && a.seq == b.seq);
        let entries: Vec<_> = keys.iter().map(|key| Owned::put(&[*key], 50, b"v")).collect();
        let (bytes, descriptor) = built(&entries, &distinct);
        let table = open(&bytes, &descriptor).unwrap();
        prop_assert_eq!(&**table.range_deletes(), &Cover::of(distinct.clone()));
        let first = distinct.iter().map(|one| one.start.to_vec());
        let first = first.chain(keys.iter().map(|key| vec![*key])).min().unwrap();
        prop_assert_eq!(&descriptor.first_key, &first);
        let last = distinct.iter().map(|one| one.last_key().to_vec());
        let last = last.chain(keys.iter().map(|key| vec![*key])).max().unwrap();
        prop_assert_eq!(&descriptor.last_key, &last);
        if !entries.is_empty() {
            prop_assert_eq!(read_all(&bytes, &table).unwrap(), entries);
        }
    }
}
