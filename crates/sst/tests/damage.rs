//! Bytes that no builder wrote: flipped, truncated, swapped, hostile. The result is correct, or
//! Corruption, or Unsupported; never a panic, never wrong data.
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
use proptest::prelude::*;
use siltstone_base::envelope::ENVELOPE_BYTES;
use siltstone_base::sst::EntrySum;
use siltstone_base::{ErrorKind, Kind, Result, Seq, SstDescriptor, UnixMillis};
use siltstone_bloom::key_hash;
use siltstone_sst::{Codec, FOOTER_BYTES, Table, TableOptions};
use support::{Owned, block, build, open, read_all, seal, slice, sort};

const OBJECT: u128 = 0x5157;

/// Every kind, many versions, expiries, tags and values that vary: no column collapses everywhere.
fn sample() -> Vec<Owned> {
    let mut entries = Vec::new();
    for n in 0u64..12 {
        let key = format!("key/{:02}", n / 3);
        let mut entry = Owned::put(key.as_bytes(), 300 - n * 20, format!("value {n}").as_bytes());
        entry.expires_at = (n % 4 == 1).then_some(UnixMillis(1_700_000_000_000 + n * 300));
        match n % 5 {
            2 => (entry.kind, entry.value) = (Kind::Delete, Vec::new()),
            3 => entry.kind = Kind::Merge,
            _ => {}
        }
        entries.push(entry);
    }
    entries.push(Owned::put(&[b'z'; 90], 7, &[b'v'; 160]));
    sort(&mut entries);
    entries
}

fn small(codec: Codec) -> TableOptions {
    TableOptions { block_bytes: 90, codec, filter_bits_per_key: 10 }
}

fn is_refusal(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Corruption | ErrorKind::Unsupported)
}

/// Reads all entries: with the descriptor of the manifest, and without.
fn read(bytes: &[u8], descriptor: &SstDescriptor) -> [Result<Vec<Owned>>; 2] {
    let described = open(bytes, descriptor).and_then(|table| {
        // A wrong filter would be as bad as a wrong block.
        for entry in sample() {
            assert!(table.may_contain(key_hash(&entry.key)));
        }
        read_all(bytes, &table)
    });
    let length = bytes.len() as u64;
    let alone = Table::footer_range(length)
        .and_then(|range| Table::tail_range_of_footer(length, &slice(bytes, range)))
        .and_then(|range| Table::open_alone(length, slice(bytes, range)))
        .and_then(|table| read_all(bytes, &table));
    [described, alone]
}

fn check_damaged(bytes: &[u8], descriptor: &SstDescriptor, what: std::fmt::Arguments<'_>) -> usize {
    let mut refused = 0;
    for answer in read(bytes, descriptor) {
        match answer {
            Ok(entries) => assert!(entries == sample(), "{what}: a wrong answer"),
            Err(error) => {
                assert!(is_refusal(error.kind()), "{what}: {error:?}");
                refused += 1;
            }
        }
    }
    refused
}

#[test]
fn every_flipped_bit_is_found_or_harmless() {
    for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
        let (bytes, descriptor) = build(small(codec), OBJECT, 0, &sample());
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let refused = check_damaged(&flipped, &descriptor, format_args!("{codec:?} bit {bit}"));
            // The envelope at the front is not read: the tail contains a copy of it.
            let expected = if bit / 8 < ENVELOPE_BYTES { 0 } else { 2 };
            assert_eq!(refused, expected, "{codec:?} bit {bit}");
        }
    }
}

#[test]
fn every_truncation_is_found() {
    for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
        let (bytes, descriptor) = build(small(codec), OBJECT, 0, &sample());
        for cut in 0..bytes.len() {
            let refused =
                check_damaged(&bytes[..cut], &descriptor, format_args!("{codec:?} cut at {cut}"));
            assert_eq!(refused, 2, "{codec:?} cut at {cut}");
            // A tail that was truncated in transit, while the object is complete.
            let tail = slice(&bytes, Table::tail_range(&descriptor));
            let tail = tail.slice(..cut.min(tail.len() - 1));
            assert!(Table::open(descriptor.clone(), tail).is_err());
        }
        let mut longer = bytes.clone();
        longer.push(0);
        let alone = &read(&longer, &descriptor)[1];
        assert!(alone.is_err(), "a byte too much");
    }
}

/// Blocks that are read in place are checked once; decoding them again gives the same result. If
/// their bytes changed in between, against the contract, rows would be wrong, but there would be no
/// panic and no read outside of the block.
#[test]
fn a_checked_block_is_decoded_again_with_any_content() {
    let layouts = [b"k".repeat(30), Vec::new()];
    for (shared, lengths) in layouts.iter().flat_map(|shared| [(shared, 1), (shared, 7)]) {
        let key = |n: u8| [&shared[..], &[n; 8][..1 + usize::from(n) % lengths]].concat();
        let entries: Vec<_> =
            (1..9u8).map(|n| Owned::put(&key(n), 5, &vec![n; n.into()])).collect();
        let options = TableOptions { codec: Codec::None, ..TableOptions::default() };
        let (bytes, descriptor) = build(options, OBJECT, 0, &entries);
        let table = open(&bytes, &descriptor).unwrap();
        let stored = slice(&bytes, table.block_range(0).unwrap());
        for checked in [false, true] {
            let block = table.decode_lent(0, stored.clone(), checked).unwrap().unwrap();
            let rows = (0..block.len()).filter_map(|n| block.entry(n));
            assert!(rows.map(|row| Owned::of(&row)).eq(entries.iter().cloned()));
            let own = table.decode_block(0, stored.clone()).unwrap();
            assert!(block.is_lent() && !own.is_lent());
            assert_eq!(block.memory_bytes(), own.memory_bytes() - own.bytes().len());
        }
        for bit in 0..stored.len() * 8 {
            let mut flipped = stored.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let flipped = Bytes::from(flipped);
            assert!(!matches!(table.decode_lent(0, flipped.clone(), false), Ok(Some(_))));
            let Ok(Some(block)) = table.decode_lent(0, flipped, true) else { continue };
            for n in 0..=block.len() {
                let found = block.lower_bound(&key(n as u8), Seq::MAX);
                let row = block.entry(found).map(|row| row.value.len());
                assert!(row.unwrap_or_default() <= block.bytes().len());
                let _ = (block.prefetch(&key(n as u8)), block.is_key(n, &key(n as u8)));
            }
        }
    }
}

/// Blocks of one length, which differ only in their location.
fn twins(object: u128, value: &[u8]) -> (Vec<u8>, SstDescriptor) {
    let entries: Vec<_> = (0..4u8).map(|n| Owned::put(&[b'k', n], 5, value)).collect();
    let options = TableOptions { block_bytes: 1, ..TableOptions::default() };
    build(options, object, 0, &entries)
}

#[test]
fn swapped_blocks_are_found() {
    let (bytes, descriptor) = twins(OBJECT, b"here");
    let table = open(&bytes, &descriptor).unwrap();
    let [first, second] = [0, 1].map(|n| slice(&bytes, table.block_range(n).unwrap()));
    assert_eq!(first.len(), second.len());
    assert!(table.decode_block(0, first.clone()).is_ok());
    for (number, stored) in [(0, second), (1, first)] {
        let error = table.decode_block(number, stored).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Corruption);
        assert!(error.to_string().contains("checksum"), "the place decides, not luck: {error}");
    }
    // The same block of another table with the same keys.
    let (others, described) = twins(OBJECT + 1, b"else");
    let other = open(&others, &described).unwrap();
    for number in 0..4 {
        let stored = slice(&others, other.block_range(number).unwrap());
        let error = table.decode_block(number, stored).err().unwrap();
        assert!(error.to_string().contains("checksum"), "{error}");
    }
}

#[test]
fn another_table_under_the_name_is_found() {
    let (bytes, descriptor) = twins(OBJECT, b"here");
    let (others, described) = twins(OBJECT + 1, b"here");
    assert_eq!(bytes.len(), others.len());
    let error = open(&others, &descriptor).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    // Same identity, same shape, other values: only the checksum differs.
    let (altered, _) = twins(OBJECT, b"else");
    let error = open(&altered, &descriptor).err().unwrap();
    assert!(error.to_string().contains("checksum"), "{error}");
    // The descriptor of a manifest must match.
    let wrong = [
        SstDescriptor { entries: 5, ..descriptor.clone() },
        SstDescriptor { tombstones: 1, ..descriptor.clone() },
        SstDescriptor { first_key: Bytes::from_static(b"j"), ..descriptor.clone() },
        SstDescriptor { last_key: Bytes::from_static(b"l"), ..descriptor.clone() },
        SstDescriptor { max_seq: Seq(6), ..descriptor.clone() },
        SstDescriptor { min_expiry: Some(UnixMillis(1)), ..descriptor.clone() },
        SstDescriptor { range_deletes: Some((80, 8)), ..descriptor.clone() },
        SstDescriptor { checksum: 0, ..descriptor.clone() },
        SstDescriptor { tail_offset: descriptor.tail_offset + 1, ..descriptor.clone() },
        SstDescriptor { tail_offset: 0, ..descriptor.clone() },
        SstDescriptor { object_bytes: 10, ..descriptor.clone() },
    ];
    for named in wrong {
        let error = open(&bytes, &named).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    }
    let clone = SstDescriptor {
        location: siltstone_base::sst::SstLocation::Ancestor(0),
        visible_start: Some(Bytes::from_static(b"k")),
        ..descriptor.clone()
    };
    assert!(open(&bytes, &clone).is_ok(), "where it lives is the manifest's word");
    assert!(open(&others, &described).is_ok());
}

/// Seals `raw` as the only block of a table, with a claim of `claimed` bytes.
fn seal_block(codec: u8, claimed: u64, raw: &[u8]) -> Vec<u8> {
    let mut stored = vec![codec];
    stored.extend_from_slice(&claimed.to_le_bytes());
    stored.extend_from_slice(raw);
    let sealed = seal(OBJECT, ENVELOPE_BYTES as u64, &stored);
    stored.extend_from_slice(&sealed);
    stored
}

/// One block that uses every column, decompressed.
fn one_block() -> (Table, Vec<u8>, Vec<Owned>) {
    let entries: Vec<_> = sample().into_iter().take(6).collect();
    let options = TableOptions { block_bytes: 10_000, ..TableOptions::default() };
    let (bytes, descriptor) = build(options, OBJECT, 0, &entries);
    let table = open(&bytes, &descriptor).unwrap();
    assert_eq!(table.block_count(), 1);
    let stored = slice(&bytes, table.block_range(0).unwrap());
    (table, stored[9..stored.len() - 4].to_vec(), entries)
}

/// A block that was sealed by an attacker: checksums match, the content may be wrong.
fn check_hostile(table: &Table, raw: &[u8]) -> Option<Vec<Owned>> {
    let stored = seal_block(0, raw.len() as u64, raw);
    match table.decode_block(0, Bytes::from(stored)) {
        Ok(block) => {
            let entries = (0..block.len()).map(|n| Owned::of(&block.entry(n).unwrap()));
            let entries: Vec<_> = entries.collect();
            let mut sorted = entries.clone();
            sort(&mut sorted);
            assert_eq!(sorted, entries, "entries out of order were accepted");
            assert!(entries.iter().all(|entry| !entry.key.is_empty()));
            Some(entries)
        }
        Err(error) => {
            assert!(is_refusal(error.kind()), "{error:?}");
            None
        }
    }
}

#[test]
fn a_block_sealed_with_other_bytes_never_panics() {
    let (table, raw, entries) = one_block();
    assert_eq!(check_hostile(&table, &raw), Some(entries));
    for position in 0..raw.len() {
        for byte in 0..=255 {
            let mut hostile = raw.clone();
            hostile[position] = byte;
            check_hostile(&table, &hostile);
        }
    }
    for at in (0..40).step_by(4) {
        for word in [0u32, 1, 2, 0x7fff_ffff, 0x8000_0000, u32::MAX - 1, u32::MAX] {
            let mut hostile = raw.clone();
            hostile[at..at + 4].copy_from_slice(&word.to_le_bytes());
            check_hostile(&table, &hostile);
        }
    }
}

#[test]
fn lengths_that_lie_are_refused() {
    let (table, raw, _) = one_block();
    for codec in 0..=3 {
        for claimed in [0, 1, raw.len() as u64 + 1, u64::from(u32::MAX), 1 << 33, u64::MAX] {
            let stored = seal_block(codec, claimed, &raw);
            let error = table.decode_block(0, Bytes::from(stored));
            let kind = error.err().map(|error| error.kind());
            assert!(kind.is_some_and(is_refusal), "codec {codec}, {claimed}: {kind:?}");
        }
    }
    // A decompression bomb: few bytes that represent very many.
    let bomb = zstd::bulk::compress(&vec![0u8; 200 << 20], 1).unwrap();
    assert!(bomb.len() < 1 << 16);
    for claimed in [100u64, 1 << 20, 1 << 31] {
        let stored = seal_block(2, claimed, &bomb);
        assert!(table.decode_block(0, Bytes::from(stored)).is_err());
    }
    // Keys with very long shared prefixes: a small block that would take much memory.
    let mut keys = vec![0u8, 0xff, 0xff, 3];
    keys.extend_from_slice(&[b'k'; 65_535]);
    for _ in 0..100_000 {
        keys.extend_from_slice(&[0xfe, 0xff, 3, 1, 0xff]);
    }
    let mut head = Vec::new();
    for word in [100_001u32, keys.len() as u32, u32::MAX, 0] {
        head.extend_from_slice(&word.to_le_bytes());
    }
    head.extend_from_slice(&[0; 18]);
    head.extend_from_slice(&[1, 7, 0, 0, 0, 0]);
    head.extend_from_slice(&keys);
    head.extend_from_slice(&vec![0; 700_007]);
    assert_eq!(check_hostile(&table, &head), None);
}

#[test]
fn a_range_delete_is_refused_by_name() {
    let (table, mut raw, _) = one_block();
    let kinds = raw.iter().position(|byte| *byte == Kind::Put as u8 | 0x80).unwrap();
    raw[kinds] = Kind::RangeDelete as u8;
    let stored = seal_block(0, raw.len() as u64, &raw);
    let error = table.decode_block(0, Bytes::from(stored)).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("range deletes"), "{error}");
}

/// Replaces the bytes at `at` in the tail section that starts at `from`, and seals it again,
/// together with the footer's checksum of the body: only the structure is wrong.
fn reseal(bytes: &mut [u8], from: usize, to: usize, at: usize, new: &[u8]) {
    bytes[at..at + new.len()].copy_from_slice(new);
    let sealed = seal(OBJECT, from as u64, &bytes[from..to - 4]);
    bytes[to - 4..to].copy_from_slice(&sealed);
    let footer = bytes.len() - FOOTER_BYTES as usize;
    let body = siltstone_base::checksum::crc32c(&bytes[..footer]);
    bytes[footer + 104..footer + 108].copy_from_slice(&body.to_le_bytes());
    let end = bytes.len();
    let sealed = seal(OBJECT, footer as u64, &bytes[footer..end - 4]);
    bytes[end - 4..].copy_from_slice(&sealed);
}

#[test]
fn a_tail_sealed_with_other_bytes_never_panics() {
    let (bytes, _) = build(small(Codec::None), OBJECT, 0, &sample());
    let length = bytes.len() as u64;
    let footer = bytes.len() - FOOTER_BYTES as usize;
    let field = |n: usize| {
        let at = footer + 72 + 8 * n;
        u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize
    };
    let bounds = [field(0), field(1), field(2), field(3)];
    assert_eq!(bounds[3], footer);
    for (from, to) in bounds.iter().zip(bounds.iter().skip(1)) {
        for at in *from..*to - 4 {
            for new in [0u8, 1, 0x7f, 0x80, 0xff] {
                let mut hostile = bytes.clone();
                reseal(&mut hostile, *from, *to, at, &[new]);
                let table = Table::open_alone(length, slice(&hostile, bounds[0] as u64..length));
                let answer = table.and_then(|table| read_all(&hostile, &table));
                match answer {
                    Ok(entries) => assert_eq!(entries, sample(), "byte {at}"),
                    Err(error) => assert!(is_refusal(error.kind()), "byte {at}: {error:?}"),
                }
            }
        }
    }
    // The offsets in the footer.
    for n in 0..4 {
        for value in [0u64, 1, 71, length, length - 1, u64::MAX, u64::MAX - 3, 1 << 63] {
            let mut hostile = bytes.clone();
            reseal(&mut hostile, footer, bytes.len(), footer + 72 + 8 * n, &value.to_le_bytes());
            let end = hostile.len();
            let range = Table::tail_range_of_footer(length, &hostile[footer..end]);
            let range = range.unwrap_or(bounds[0] as u64..length);
            let table = Table::open_alone(length, slice(&hostile, range));
            assert!(table.is_err() || value == field(n) as u64, "offset {n} is {value}");
        }
    }
}

/// Codecs of sections, a key, reserved space: none of these is damage.
#[test]
fn a_footer_of_a_newer_version_is_unsupported() {
    let (bytes, _) = build(small(Codec::None), OBJECT, 0, &sample());
    let (length, footer) = (bytes.len(), bytes.len() - FOOTER_BYTES as usize);
    for at in footer + 108..length - 4 {
        let mut newer = bytes.clone();
        reseal(&mut newer, footer, length, at, &[1]);
        let error = Table::tail_range_of_footer(length as u64, &newer[footer..]).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "byte {}: {error}", at - footer);
    }
}

/// The properties, from their start to the footer.
fn properties_of(bytes: &[u8]) -> (usize, usize) {
    let footer = bytes.len() - FOOTER_BYTES as usize;
    let at = footer + 72 + 16;
    (u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize, footer)
}

#[test]
fn any_sum_is_read_and_reserved_bytes_are_unsupported() {
    let (bytes, descriptor) = build(small(Codec::None), OBJECT, 0, &sample());
    assert_eq!(descriptor.sum, None);
    let (from, to) = properties_of(&bytes);
    let alone = |bytes: &[u8]| {
        let tail = slice(bytes, descriptor.tail_offset..bytes.len() as u64);
        Table::open_alone(bytes.len() as u64, tail)
    };
    let mut summed = bytes.clone();
    let mut sum = 7u128.to_be_bytes().to_vec();
    sum.push(200);
    reseal(&mut summed, from, to, from + 104, &sum);
    let found = alone(&summed).unwrap().descriptor().sum;
    assert_eq!(found, Some(EntrySum { kind: 200, bits: 7 }));
    for (at, kind) in [(97, ErrorKind::Unsupported), (119, ErrorKind::Corruption)] {
        let mut wrong = bytes.clone();
        reseal(&mut wrong, from, to, from + at, &[4]);
        assert_eq!(alone(&wrong).err().unwrap().kind(), kind, "byte {at}");
    }
    for at in 121..128 {
        let mut newer = bytes.clone();
        reseal(&mut newer, from, to, from + at, &[1]);
        assert_eq!(alone(&newer).err().unwrap().kind(), ErrorKind::Unsupported, "byte {at}");
    }
}

#[test]
fn a_newer_version_is_refused_by_number() {
    let (bytes, descriptor) = build(small(Codec::None), OBJECT, 0, &sample());
    let footer = bytes.len() - FOOTER_BYTES as usize;
    let mut newer = bytes.clone();
    newer[footer + 16] = 4; // incompatible feature bit 2
    let checksum = siltstone_base::checksum::crc32c(&newer[footer..footer + 68]);
    newer[footer + 68..footer + 72].copy_from_slice(&checksum.to_le_bytes());
    let error = open(&newer, &descriptor).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("feature bit: 2"), "{error}");
}

#[test]
fn a_block_that_is_not_there_is_the_callers_mistake() {
    let (bytes, descriptor) = twins(OBJECT, b"v");
    let table = open(&bytes, &descriptor).unwrap();
    assert_eq!(table.block_range(4), None);
    let error = table.decode_block(4, Bytes::new()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(block(&bytes, &table, 3).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn noise_is_never_a_table(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let (_, descriptor) = twins(OBJECT, b"v");
        for answer in read(&bytes, &descriptor) {
            prop_assert!(answer.err().is_some_and(|error| is_refusal(error.kind())));
        }
    }

    /// Several changed bytes, in a block whose checksum matches.
    #[test]
    fn hostile_blocks_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        cuts in any::<bool>(),
    ) {
        let (table, mut raw, _) = one_block();
        for (at, byte) in changes {
            let at = at.index(raw.len());
            raw[at] = byte;
        }
        if cuts {
            raw.truncate(cut.index(raw.len()));
        }
        // The table knows the stored length; only equal lengths reach the check of the content.
        raw.resize(one_block().1.len(), 0);
        check_hostile(&table, &raw);
    }
}
