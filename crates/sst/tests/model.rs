//! Compares a table with a sorted list: every look-up, every move, every codec, all block sizes.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test"
)]

mod support;

use proptest::prelude::*;
use siltstone_base::{Cursor, Kind, Seq, SstDescriptor, UnixMillis, compare_internal};
use siltstone_sst::{Codec, Table, TableCursor, TableOptions};
use std::sync::Arc;
use support::{Forgetful, Owned, build, drive, get, open, read_all, sort};

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        // Few letters: long common prefixes, one key the prefix of another, many versions.
        6 => prop::collection::vec(prop::sample::select(vec![0u8, b'a', b'b', 0xff]), 1..7),
        2 => (0u16..50).prop_map(|n| format!("fixed/{n:05}").into_bytes()),
        1 => (0u8..3, 0usize..300).prop_map(|(last, len)| {
            let mut key = vec![b'k'; len];
            key.push(last);
            key
        }),
    ]
}

fn entry() -> impl Strategy<Value = Owned> {
    let seq = prop_oneof![8 => 0u64..40, 1 => Just(Seq::MAX.get()), 1 => 0..=Seq::MAX.get()];
    let expiry = prop_oneof![
        4 => Just(None),
        1 => (1000u64..1010).prop_map(Some),
        1 => prop::sample::select(vec![Some(0), Some(u64::MAX)]),
    ];
    let value = prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..20),
        2 => Just(vec![7; 8]),
        1 => (0usize..600).prop_map(|len| vec![b'v'; len]),
    ];
    let kind = prop::sample::select(vec![Kind::Put, Kind::Put, Kind::Delete, Kind::Merge]);
    (key(), seq, kind, expiry, value).prop_map(|(key, seq, kind, expiry, value)| Owned {
        key,
        seq: Seq(seq),
        kind,
        expires_at: expiry.map(UnixMillis),
        value: if kind == Kind::Delete { Vec::new() } else { value },
    })
}

fn options() -> impl Strategy<Value = TableOptions> {
    let block = prop::sample::select(vec![0, 1, 40, 100, 300, 16 << 10]);
    let codec = prop::sample::select(vec![Codec::None, Codec::Lz4, Codec::Zstd]);
    let bits = prop::sample::select(vec![0, 1, 10]);
    (block, codec, bits).prop_map(|(block_bytes, codec, filter_bits_per_key)| TableOptions {
        block_bytes,
        codec,
        filter_bits_per_key,
    })
}

/// Keys and sequence numbers at and around those of the entries.
fn probes(entries: &[Owned], extra: &[(Vec<u8>, u64)]) -> Vec<(Vec<u8>, Seq)> {
    let mut probes: Vec<_> = extra.iter().map(|(key, seq)| (key.clone(), Seq(*seq))).collect();
    for entry in entries {
        for seq in [Seq(0), entry.seq.minus(1), entry.seq, entry.seq.next(), Seq::MAX] {
            probes.push((entry.key.clone(), seq));
        }
        let mut after = entry.key.clone();
        after.push(0);
        probes.push((after, Seq::MAX));
        probes.push((entry.key[..entry.key.len() - 1].to_vec(), Seq(3)));
    }
    probes
}

fn check_counts(descriptor: &SstDescriptor, entries: &[Owned]) {
    let expiries: Vec<_> = entries.iter().filter_map(|entry| entry.expires_at).collect();
    let all_expire = expiries.len() == entries.len();
    let tombstones = entries.iter().filter(|entry| entry.kind == Kind::Delete).count() as u64;
    assert_eq!(descriptor.entries, entries.len() as u64);
    assert_eq!(descriptor.tombstones, tombstones);
    assert_eq!(Some(descriptor.min_seq), entries.iter().map(|entry| entry.seq).min());
    assert_eq!(Some(descriptor.max_seq), entries.iter().map(|entry| entry.seq).max());
    assert_eq!(descriptor.min_expiry, expiries.iter().copied().min());
    assert_eq!(descriptor.max_expiry, expiries.into_iter().max().filter(|_| all_expire));
    assert_eq!(descriptor.first_key, entries[0].key);
    assert_eq!(descriptor.last_key, entries[entries.len() - 1].key);
}

fn check_moves(bytes: Vec<u8>, table: Arc<Table>, model: &[Owned], probes: &[(Vec<u8>, Seq)]) {
    let source = Forgetful::new(bytes, Arc::clone(&table));
    let mut cursor = TableCursor::new(Arc::clone(&table), &source);
    let mut forward = Vec::new();
    let mut found = drive(&mut cursor, &source, |cursor| cursor.seek_first());
    while let Some(entry) = found {
        check_plain(&cursor, &model[forward.len()..]);
        forward.push(entry);
        found = drive(&mut cursor, &source, |cursor| cursor.next());
    }
    assert_eq!(forward, model);
    if model.len() == table.descriptor().entries as usize {
        assert_eq!(source.asked.get(), table.block_count(), "a scan reads every block once");
    }
    let mut backward = Vec::new();
    let mut found = drive(&mut cursor, &source, |cursor| cursor.seek_last());
    while let Some(entry) = found {
        backward.push(entry);
        found = drive(&mut cursor, &source, |cursor| cursor.prev());
    }
    backward.reverse();
    assert_eq!(backward, model);
    for (key, seq) in probes {
        let at = model
            .partition_point(|entry| compare_internal(&entry.key, entry.seq, key, *seq).is_lt());
        let before = at.checked_sub(1);
        let sought = drive(&mut cursor, &source, |cursor| cursor.seek(key, *seq));
        assert_eq!(sought.as_ref(), model.get(at), "seek {key:?} {seq}");
        if sought.is_some() {
            let prev = drive(&mut cursor, &source, |cursor| cursor.prev());
            assert_eq!(prev.as_ref(), before.and_then(|n| model.get(n)), "prev of {key:?} {seq}");
        }
        let sought = drive(&mut cursor, &source, |cursor| cursor.seek_before(key, *seq));
        assert_eq!(sought.as_ref(), before.and_then(|n| model.get(n)), "before {key:?} {seq}");
        if sought.is_some() {
            let next = drive(&mut cursor, &source, |cursor| cursor.next());
            assert_eq!(next.as_ref(), model.get(at), "next after {key:?} {seq}");
        }
    }
}

/// Checks that entries that a cursor calls plain are plain and at the stated position; `ahead`
/// begins with the current entry.
fn check_plain(cursor: &impl Cursor, ahead: &[Owned]) {
    let newest = ahead.iter().take(3).map(|entry| entry.seq).max().unwrap();
    for seq in [Seq::MAX, newest] {
        let plain = cursor.plain(seq, 3);
        for (at, entry) in ahead.iter().take(plain).enumerate() {
            assert!(entry.kind == Kind::Put && entry.expires_at.is_none() && entry.seq <= seq);
            let bytes = (entry.key.as_slice(), entry.value.as_slice());
            assert_eq!((cursor.plain_key(at), cursor.plain_value(at)), bytes);
            if let Some(columns) = cursor.plain_columns() {
                assert_eq!((columns.key(at), columns.value(at)), bytes);
            }
        }
    }
}

fn check_gets(bytes: &[u8], table: &Table, model: &[Owned], probes: &[(Vec<u8>, Seq)]) {
    for (key, seq) in probes {
        let expected = model.iter().find(|entry| entry.key == *key && entry.seq <= *seq);
        assert_eq!(get(bytes, table, key, *seq).as_ref(), expected, "get {key:?} {seq}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn a_table_equals_a_sorted_list(
        options in options(),
        chunk in prop::sample::select(vec![0usize, 1, 100, usize::MAX]),
        mut entries in prop::collection::vec(entry(), 1..120),
        extra in prop::collection::vec((key(), 0u64..45), 0..10),
    ) {
        sort(&mut entries);
        let (bytes, descriptor) = build(options, 77, chunk, &entries);
        check_counts(&descriptor, &entries);
        let table = open(&bytes, &descriptor).unwrap();
        prop_assert_eq!(read_all(&bytes, &table).unwrap(), entries.clone());
        let probes = probes(&entries, &extra);
        check_gets(&bytes, &table, &entries, &probes);
        check_moves(bytes, Arc::new(table), &entries, &probes);
    }

    /// A clone by range sees a part of a table; no move may return the rest.
    #[test]
    fn only_the_visible_range_is_seen(
        options in options(),
        mut entries in prop::collection::vec(entry(), 1..60),
        start in prop::option::of(key()),
        end in prop::option::of(key()),
    ) {
        sort(&mut entries);
        let (bytes, mut descriptor) = build(options, 77, 0, &entries);
        descriptor.visible_start = start.clone().map(Into::into);
        descriptor.visible_end = end.clone().map(Into::into);
        let table = Arc::new(open(&bytes, &descriptor).unwrap());
        let probes = probes(&entries, &[]);
        entries.retain(|entry| {
            start.as_ref().is_none_or(|start| *start <= entry.key)
                && end.as_ref().is_none_or(|end| entry.key < *end)
        });
        check_moves(bytes, table, &entries, &probes);
    }

    /// Never too few bytes, and at most one block too many at each bound.
    #[test]
    fn the_bytes_of_a_range_are_those_of_its_blocks(
        options in options(),
        mut entries in prop::collection::vec(entry(), 1..80),
        bounds in prop::collection::vec((prop::option::of(key()), prop::option::of(key())), 1..20),
    ) {
        sort(&mut entries);
        let (bytes, descriptor) = build(options, 77, 0, &entries);
        let table = open(&bytes, &descriptor).unwrap();
        let size = |block: u32| table.block_range(block).map_or(0, |range| range.end - range.start);
        let largest = (0..table.block_count()).map(size).max().unwrap();
        prop_assert_eq!(table.bytes_between(None, None), Table::bytes_of_blocks(&descriptor));
        for (start, end) in bounds {
            let (start, end) = (start.as_deref(), end.as_deref());
            let inside = entries.iter().filter(|entry| {
                start.is_none_or(|start| start <= entry.key.as_slice())
                    && end.is_none_or(|end| entry.key.as_slice() < end)
            });
            let mut blocks: Vec<_> =
                inside.map(|entry| table.find_block(&entry.key, entry.seq).unwrap()).collect();
            blocks.dedup();
            let exact: u64 = blocks.iter().copied().map(size).sum();
            let said = table.bytes_between(start, end);
            if start.zip(end).is_none_or(|(start, end)| start < end) {
                prop_assert!(exact <= said, "{} of {}", said, exact);
            }
            prop_assert!(said <= exact + 2 * largest, "{} of {}", said, exact);
        }
    }

    /// An ingested table counts as written at the manifest's sequence number.
    #[test]
    fn the_manifest_overrides_sequence_numbers(
        options in options(),
        mut entries in prop::collection::vec(entry(), 1..60),
        seq in prop::sample::select(vec![0, 1, 20, Seq::MAX.get()]),
    ) {
        sort(&mut entries);
        entries.dedup_by(|a, b| a.key == b.key);
        let (bytes, mut descriptor) = build(options, 77, 0, &entries);
        descriptor.seq_override = Some(Seq(seq));
        let table = open(&bytes, &descriptor).unwrap();
        entries.iter_mut().for_each(|entry| entry.seq = Seq(seq));
        let probes = probes(&entries, &[]);
        check_gets(&bytes, &table, &entries, &probes);
        check_moves(bytes, Arc::new(table), &entries, &probes);
    }
}
