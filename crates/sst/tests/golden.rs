//! Objects written when the format was frozen: the same input gives the same bytes, and they decode
//! to the same entries.
//!
//! `SILTSTONE_REWRITE_GOLDEN=1` writes them again; a change to these files is a change of the
//! format and must be recorded in RFC 0002.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test"
)]

mod support;

use bytes::Bytes;
use siltstone_base::{
    AttemptId, Batch, Cover, DatabaseId, Envelope, Epoch, Kind, ObjectId, ObjectKind, RangeDelete,
    Seq, UnixMillis, WalId,
};
use siltstone_sst::wal::{CutInfo, WalBody, WalBuilder, decode, encode_fence};
use siltstone_sst::{Codec, Table, TableBuilder, TableOptions};
use std::path::PathBuf;
use support::{Owned, build, read_all, slice};

#[expect(clippy::disallowed_methods, reason = "a test asks whether to rewrite its files")]
fn stored(name: &str, bytes: &[u8]) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/sst");
    let path = folder.join(name);
    if std::env::var("SILTSTONE_REWRITE_GOLDEN").is_ok_and(|value| value == "1") {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(&path, bytes).unwrap();
    }
    std::fs::read(&path).unwrap()
}

fn compare(name: &str, bytes: &[u8]) -> Vec<u8> {
    let stored = stored(name, bytes);
    assert!(stored == bytes, "{name}: the bytes written differ from those that were frozen");
    stored
}

/// Keys of varying lengths, versions in two blocks, every kind, expiries.
fn varied() -> Vec<Owned> {
    let mut entries = Vec::new();
    for n in 0u64..60 {
        let key = format!("user/{:03}{}", n / 4, "x".repeat((n / 4 % 3) as usize));
        let mut entry = Owned::put(key.as_bytes(), 10_000 - n * 7, b"");
        match n % 6 {
            0 => entry.kind = Kind::Delete,
            1 => (entry.kind, entry.value) = (Kind::Merge, vec![n as u8; 3]),
            _ => entry.value = format!("value {n} ").repeat((n % 5) as usize).into_bytes(),
        }
        if n % 10 == 3 {
            entry.expires_at = Some(UnixMillis(1_800_000_000_000 + n));
        }
        entries.push(entry);
    }
    entries
}

/// Everything that a block can collapse: keys and values of one length, one sequence number, one
/// kind.
fn uniform() -> Vec<Owned> {
    (0u64..100).map(|n| Owned::put(&(n * 3).to_be_bytes(), 0, &(n * n).to_le_bytes())).collect()
}

const TABLE: u128 = 0x0190_0000_0000_0000_0000_0000_0000_0007;

/// Reads a frozen table alone, and returns it for further checks.
fn check_table(stored: &[u8], entries: &[Owned]) -> Table {
    let length = stored.len() as u64;
    let footer = slice(stored, Table::footer_range(length).unwrap());
    let range = Table::tail_range_of_footer(length, &footer).unwrap();
    let table = Table::open_alone(length, slice(stored, range)).unwrap();
    assert!(table.block_count() > 1);
    assert_eq!(read_all(stored, &table).unwrap(), entries);
    table
}

#[test]
fn tables_are_what_they_were() {
    let options = TableOptions { block_bytes: 256, codec: Codec::None, filter_bits_per_key: 10 };
    let no_filter = TableOptions { filter_bits_per_key: 0, ..options };
    for (name, options, entries) in [
        ("table-varied.bin", options, varied()),
        ("table-uniform.bin", options, uniform()),
        ("table-no-filter.bin", no_filter, varied()),
    ] {
        let (bytes, descriptor) = build(options, TABLE, 0, &entries);
        let table = check_table(&compare(name, &bytes), &entries);
        assert_eq!(table.descriptor(), &descriptor, "read alone, it says what the builder said");
    }
}

/// Entries with overlapping range deletes; and range deletes alone.
#[test]
fn tables_with_range_deletes_are_what_they_were() {
    let options = TableOptions { block_bytes: 256, codec: Codec::None, filter_bits_per_key: 10 };
    let ranges = [
        RangeDelete::new(b"user/003", b"user/009", Seq(9_990)),
        RangeDelete::new(b"user/001", b"user/005\0", Seq(9_700)),
        RangeDelete::new(b"user/003", b"zz", Seq(20_000)),
    ];
    for (name, entries) in
        [("table-range-deletes.bin", varied()), ("table-only-range-deletes.bin", vec![])]
    {
        let envelope =
            Envelope::new(ObjectKind::Table, DatabaseId(0xdb), ObjectId(TABLE), AttemptId(0xa7));
        let mut builder = TableBuilder::new(options, envelope);
        builder.add_range_deletes(&ranges).unwrap();
        entries.iter().for_each(|entry| builder.add(&entry.entry()).unwrap());
        let (bytes, descriptor) = builder.finish().unwrap();
        let stored = compare(name, &bytes);
        let length = stored.len() as u64;
        let footer = slice(&stored, Table::footer_range(length).unwrap());
        let range = Table::tail_range_of_footer(length, &footer).unwrap();
        let table = Table::open_alone(length, slice(&stored, range)).unwrap();
        assert_eq!(table.descriptor(), &descriptor);
        assert_eq!(&**table.range_deletes(), &Cover::of(ranges.to_vec()));
        assert_eq!(read_all(&stored, &table).unwrap().len(), entries.len().max(1));
    }
}

/// The output of a codec may change with its library, so these bytes are only read.
#[test]
fn compressed_tables_are_read_as_what_they_were() {
    for (name, codec) in [("table-lz4.bin", Codec::Lz4), ("table-zstd.bin", Codec::Zstd)] {
        let options = TableOptions { block_bytes: 512, codec, filter_bits_per_key: 10 };
        let (bytes, _) = build(options, TABLE, 0, &varied());
        let table = check_table(&stored(name, &bytes), &varied());
        let codecs = |byte: u8| {
            let starts = (0..table.block_count()).filter_map(|n| table.block_range(n));
            let stored = stored(name, &bytes);
            starts.filter(|range| stored[range.start as usize] == byte).count()
        };
        assert!(codecs(codec as u8) > 0, "{name} has a compressed block");
    }
}

#[test]
fn wal_objects_are_what_they_were() {
    let envelope =
        Envelope::new(ObjectKind::Wal, DatabaseId(0xdb), ObjectId(0x0b), AttemptId(0xa7));
    let sent = CutInfo { durable: WalId(8), at: UnixMillis(1_800_000_000_000) };
    let mut builder = WalBuilder::new();
    for n in 0u64..3 {
        let mut batch = Batch::new();
        batch.put(format!("key {n}").as_bytes(), b"value", Some(UnixMillis(n))).unwrap();
        batch.delete(b"gone").unwrap();
        builder.push_batch(Seq(100 + 2 * n), batch.ops(), batch.as_bytes());
    }
    let stored = compare("wal-records.bin", &builder.finish(envelope, Epoch(2), WalId(9), sent));
    let object = decode(Bytes::from(stored), WalId(9)).unwrap();
    assert_eq!((object.first_seq, object.last_seq), (Seq(100), Seq(105)));
    assert_eq!(object.sent, sent);
    assert_eq!(object.records().filter(Result::is_ok).count(), 3);

    let mut builder = WalBuilder::new();
    let mut batch = Batch::new();
    batch.merge(b"counter", &[1; 8], None).unwrap();
    batch.merge(b"counter", &[2; 8], Some(UnixMillis(1_800_000_000_000))).unwrap();
    batch.delete_range(b"a", b"key 2\0").unwrap();
    builder.push_batch(Seq(7), batch.ops(), batch.as_bytes());
    let stored =
        compare("wal-every-kind.bin", &builder.finish(envelope, Epoch(2), WalId(11), sent));
    let object = decode(Bytes::from(stored), WalId(11)).unwrap();
    assert_eq!((object.first_seq, object.last_seq), (Seq(7), Seq(9)));

    let stored = compare("wal-fence.bin", &encode_fence(envelope, Epoch(3), WalId(10), WalId(14)));
    let object = decode(Bytes::from(stored), WalId(10)).unwrap();
    assert!(matches!(object.body, WalBody::Fence { next_id: WalId(14) }));
}
