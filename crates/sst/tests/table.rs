//! Single facts about tables that a comparison with a model would not show.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test"
)]

mod support;

use siltstone_base::{
    AttemptId, DatabaseId, Envelope, ErrorKind, Kind, ObjectId, ObjectKind, Seq, UnixMillis,
};
use siltstone_bloom::key_hash;
use siltstone_sst::{Codec, Table, TableBuilder, TableOptions, TableScratch};
use support::{Owned, block, build, envelope, get, open, read_all};

fn tiny() -> TableOptions {
    TableOptions { block_bytes: 60, ..TableOptions::default() }
}

/// The mechanism of a known mistake of another store: separators were shortened between the
/// versions of one key, so that a search ended among them and missed the newer ones.
#[test]
fn versions_that_straddle_blocks_are_found_newest_first() {
    let mut entries: Vec<_> =
        (0..50).map(|n| Owned::put(b"hot", 1000 - n * 10, &[n as u8; 9])).collect();
    entries.insert(0, Owned::put(b"cold", 5, b"c"));
    entries.push(Owned::put(b"hot2", 5, b"h"));
    let (bytes, descriptor) = build(tiny(), 1, 0, &entries);
    let table = open(&bytes, &descriptor).unwrap();
    assert!(table.block_count() > 5, "the versions straddle blocks");
    assert_eq!(get(&bytes, &table, b"hot", Seq::MAX), Some(entries[1].clone()));
    for seq in 0..1010 {
        let expected = entries.iter().find(|e| e.key == b"hot" && e.seq <= Seq(seq));
        assert_eq!(get(&bytes, &table, b"hot", Seq(seq)).as_ref(), expected, "at {seq}");
    }
    assert_eq!(get(&bytes, &table, b"cold", Seq::MAX), Some(entries[0].clone()));
    assert_eq!(get(&bytes, &table, b"hot2", Seq::MAX).as_ref(), entries.last());
    assert_eq!(table.find_block(b"hot2", Seq(4)), None);
    assert_eq!(table.find_block(b"hot2", Seq(u64::MAX)), Some(table.block_count() - 1));
}

#[test]
fn separators_are_short() {
    let long = |n: u32| format!("{n:05}{}", "tail".repeat(50)).into_bytes();
    let entries: Vec<_> = (0..400).map(|n| Owned::put(&long(n * 7), 1, b"v")).collect();
    let options = TableOptions { block_bytes: 2000, filter_bits_per_key: 0, ..tiny() };
    let (bytes, descriptor) = build(options, 1, 0, &entries);
    let table = open(&bytes, &descriptor).unwrap();
    let tail = descriptor.object_bytes - descriptor.tail_offset;
    let properties = 2 * 205 + 104;
    let per_block = (tail - 112 - properties - 205 - 20) / u64::from(table.block_count());
    assert!(per_block < 12, "{per_block} bytes of index per block for keys of 205 bytes");
}

/// A column that is constant in a block takes no bytes.
#[test]
fn constant_columns_collapse() {
    let size = |change: &dyn Fn(u64, &mut Owned)| {
        let entries: Vec<_> = (0u64..1000)
            .map(|n| {
                let mut entry = Owned::put(&n.to_be_bytes(), 9, &[1; 8]);
                change(n, &mut entry);
                entry
            })
            .collect();
        let options = TableOptions { block_bytes: 1 << 20, filter_bits_per_key: 0, ..tiny() };
        build(options, 1, 0, &entries).0.len()
    };
    let plain = size(&|_, _| {});
    // 8 bytes of value, 1 of shared length, 1 of differing key; sometimes two.
    assert!((10_000..10_700).contains(&plain), "{plain}");
    // Metadata varies by a few bytes with the numbers in it.
    let check = |change: &dyn Fn(u64, &mut Owned), more: usize| {
        let added = size(change) - plain;
        assert!((more..more + 10).contains(&added), "{added} bytes instead of {more}");
    };
    check(&|n, entry| entry.seq = Seq(n % 256), 1000);
    check(&|n, entry| entry.seq = Seq(1 << 40 | n), 2000);
    check(&|_, entry| entry.expires_at = Some(UnixMillis(1 << 40)), 0);
    check(&|n, entry| entry.expires_at = Some(UnixMillis(n)), 2000);
    // Tags vary, the expiry does not.
    check(&|n, entry| entry.expires_at = (n % 2 == 0).then_some(UnixMillis(1 << 40)), 1000);
    check(&|n, entry| entry.kind = [Kind::Put, Kind::Merge][n as usize % 2], 1000);
    check(&|n, entry| entry.value.truncate(8 - (n as usize % 2)), 2000 - 500);
}

#[test]
fn an_entry_larger_than_a_block_stands_alone() {
    let big = vec![b'x'; 5000];
    let entries = [
        Owned::put(b"a", 1, b"small"),
        Owned::put(b"b", 1, &big),
        Owned::put(b"c", 1, b"small"),
        Owned::put(&[b'd'; 65_535], 1, &big),
    ];
    for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
        let options = TableOptions { block_bytes: 100, codec, ..TableOptions::default() };
        let (bytes, descriptor) = build(options, 1, 0, &entries);
        let table = open(&bytes, &descriptor).unwrap();
        assert_eq!(table.block_count(), 4);
        assert_eq!(read_all(&bytes, &table).unwrap(), entries);
        let stored = table.block_range(1).unwrap();
        assert_eq!(stored.end - stored.start < 1000, codec != Codec::None);
    }
}

/// Keys with very long shared prefixes must not make a small block large in memory.
#[test]
fn whole_keys_bound_a_block() {
    let entries: Vec<_> = (0u32..2000)
        .map(|n| {
            let mut key = vec![b'k'; 1000];
            key.extend_from_slice(&n.to_be_bytes());
            Owned::put(&key, 1, b"")
        })
        .collect();
    let options = TableOptions { block_bytes: 16 << 10, ..TableOptions::default() };
    let (bytes, descriptor) = build(options, 1, 0, &entries);
    let table = open(&bytes, &descriptor).unwrap();
    for number in 0..table.block_count() {
        let memory = block(&bytes, &table, number).unwrap().memory_bytes();
        assert!(memory < 6 * (16 << 10), "{memory}");
    }
    assert_eq!(read_all(&bytes, &table).unwrap(), entries);
}

#[test]
fn the_filter_knows_every_key_and_few_others() {
    let entries: Vec<_> = (0u32..5000).map(|n| Owned::put(&n.to_be_bytes(), 1, b"v")).collect();
    let rate = |bits| {
        let options = TableOptions { filter_bits_per_key: bits, ..TableOptions::default() };
        let (bytes, descriptor) = build(options, 1, 0, &entries);
        let table = open(&bytes, &descriptor).unwrap();
        assert!(entries.iter().all(|entry| table.may_contain(key_hash(&entry.key))));
        let absent = 100_000u32..120_000;
        let count = absent.len();
        absent.filter(|n| table.may_contain(key_hash(&n.to_be_bytes()))).count() * 1000 / count
    };
    assert_eq!(rate(0), 1000, "no filter says perhaps");
    assert!(rate(10) < 15);
}

#[test]
fn a_builder_refuses_what_is_not_a_table() {
    let kind = |result: siltstone_base::Result<()>| result.err().map(|error| error.kind());
    let mut builder = TableBuilder::new(tiny(), envelope(1));
    let put = |key: &[u8], seq| Owned::put(key, seq, b"v");
    builder.add(&put(b"m", 5).entry()).unwrap();
    let long = vec![b'z'; 65_536];
    let wrong =
        [put(b"m", 5), put(b"m", 6), put(b"l", 1), put(b"", 1), put(&long, 1), put(b"n", 1 << 56)];
    for entry in wrong {
        assert_eq!(kind(builder.add(&entry.entry())), Some(ErrorKind::Invalid), "{entry:?}");
    }
    let tombstone = Owned { kind: Kind::Delete, ..put(b"n", 1) };
    assert_eq!(kind(builder.add(&tombstone.entry())), Some(ErrorKind::Invalid));
    let range = Owned { kind: Kind::RangeDelete, ..put(b"n", 1) };
    assert_eq!(kind(builder.add(&range.entry())), Some(ErrorKind::Invalid));
    builder.add(&put(b"m", 4).entry()).unwrap();
    let (bytes, descriptor) = builder.finish().unwrap();
    let table = open(&bytes, &descriptor).unwrap();
    assert_eq!(read_all(&bytes, &table).unwrap(), [put(b"m", 5), put(b"m", 4)]);

    let empty = TableBuilder::new(tiny(), envelope(1)).finish();
    assert_eq!(empty.err().map(|error| error.kind()), Some(ErrorKind::Invalid));
    let wal = Envelope::new(ObjectKind::Wal, DatabaseId(1), ObjectId(1), AttemptId(1));
    let added = TableBuilder::new(tiny(), wal).add(&put(b"k", 1).entry());
    assert_eq!(kind(added), Some(ErrorKind::Invalid));
}

#[test]
fn chunks_are_the_object_however_they_are_cut() {
    let entries: Vec<_> = (0u32..3000).map(|n| Owned::put(&n.to_be_bytes(), 1, b"value")).collect();
    let options = TableOptions { block_bytes: 500, ..TableOptions::default() };
    let (whole, descriptor) = build(options, 1, usize::MAX, &entries);
    for chunk in [0, 1, 700, 5000] {
        assert_eq!(build(options, 1, chunk, &entries), (whole.clone(), descriptor.clone()));
    }
    let mut builder = TableBuilder::new(options, envelope(1));
    let mut before = builder.bytes_so_far();
    for entry in &entries {
        builder.add(&entry.entry()).unwrap();
        builder.take_chunk(5000);
        assert!(builder.take_chunk(5000).is_none());
        assert!(builder.bytes_so_far() + 500 > before, "taking bytes does not forget them");
        before = builder.bytes_so_far();
    }
    assert!(before < whole.len() as u64 && before > whole.len() as u64 / 2);
}

#[test]
fn a_table_built_in_what_another_left_is_the_same() {
    let small: Vec<_> = (0u32..50).map(|n| Owned::put(&n.to_be_bytes(), 1, b"v")).collect();
    let large: Vec<_> = (0u32..3000).map(|n| Owned::put(&n.to_be_bytes(), 1, b"value")).collect();
    let plain = TableOptions { block_bytes: 500, ..TableOptions::default() };
    let packed = TableOptions { codec: Codec::Lz4, filter_bits_per_key: 0, ..plain };
    let mut scratch = TableScratch::default();
    for (options, entries) in
        [(plain, &large), (packed, &small), (plain, &small), (packed, &large), (plain, &large)]
    {
        let mut builder = TableBuilder::reusing(scratch, options, envelope(1))
            .expecting(entries.len())
            .writing_into(Vec::with_capacity(8 << 10));
        entries.iter().for_each(|entry| builder.add(&entry.entry()).unwrap());
        let fits = builder.has_room_for_tail();
        assert_eq!(fits, entries.len() == 50);
        let mut bytes = builder.take_chunk(0).unwrap_or_default().to_vec();
        let finished = builder.finish_for_next().unwrap();
        bytes.extend_from_slice(&finished.rest);
        assert_eq!((bytes, finished.table), build(options, 1, usize::MAX, entries));
        scratch = finished.scratch;
    }
}

#[test]
fn a_table_with_one_sequence_number_repeats_no_key() {
    let repeated = [Owned::put(b"k", 3, b"new"), Owned::put(b"k", 2, b"old")];
    for block_bytes in [1, 10_000] {
        let options = TableOptions { block_bytes, ..TableOptions::default() };
        let (bytes, mut descriptor) = build(options, 1, 0, &repeated);
        descriptor.seq_override = Some(Seq(9));
        let answer = open(&bytes, &descriptor).and_then(|table| read_all(&bytes, &table));
        assert_eq!(answer.err().map(|error| error.kind()), Some(ErrorKind::Corruption));
    }
}

#[test]
fn memory_is_accounted_for() {
    let entries: Vec<_> = (0u32..5000).map(|n| Owned::put(&n.to_be_bytes(), 1, b"value")).collect();
    let (bytes, descriptor) = build(TableOptions::default(), 1, 0, &entries);
    let table = open(&bytes, &descriptor).unwrap();
    let tail = (descriptor.object_bytes - descriptor.tail_offset) as usize;
    assert!((tail / 2..tail * 3).contains(&table.memory_bytes()));
    let block = block(&bytes, &table, 0).unwrap();
    assert!(block.memory_bytes() > block.bytes().len() + 4 * block.len());
    assert_eq!(table.envelope(), &envelope(1));
    assert_eq!(table.properties().key_bytes, 20_000);
    assert_eq!(table.properties().value_bytes, 25_000);
    assert_eq!(Table::tail_range(&descriptor).end, bytes.len() as u64);
}
