//! WAL objects are decoded as they were encoded, and damage is detected.
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
use siltstone_base::{
    AttemptId, Batch, DatabaseId, Envelope, Epoch, ErrorKind, JobId, ObjectId, ObjectKind, Seq,
    UnixMillis, WalId,
};
use siltstone_sst::wal::{
    CutInfo, WAL_HEAD_BYTES, WAL_RECORD_HEAD_BYTES, WalBody, WalBuilder, WalIngest,
    WalIngestContent, WalRecord, decode, encode_fence,
};

const OBJECT: ObjectId = ObjectId(0x0b);
const SENT: CutInfo = CutInfo { durable: WalId(15), at: UnixMillis(1_700_000_000_000) };

fn envelope() -> Envelope {
    Envelope::new(ObjectKind::Wal, DatabaseId(0xdb), OBJECT, AttemptId(0xa7))
}

fn batch(keys: &[(&[u8], &[u8])]) -> Batch {
    let mut batch = Batch::new();
    for (key, value) in keys {
        batch.put(key, value, None).unwrap();
    }
    batch.delete(b"gone").unwrap();
    batch.merge(b"sum", b"1", Some(UnixMillis(9))).unwrap();
    batch
}

/// Two batches from sequence number 5 on: 5 to 7, and 8 to 11.
fn sample() -> Bytes {
    let mut builder = WalBuilder::new();
    assert!(builder.is_empty());
    let (one, two) = (batch(&[(b"a", b"1")]), batch(&[(b"b", b"2"), (b"c", b"")]));
    builder.push_batch(Seq(5), one.ops(), one.as_bytes());
    builder.push_batch(Seq(8), two.ops(), two.as_bytes());
    assert_eq!((builder.first_seq(), builder.last_seq()), (Seq(5), Seq(11)));
    let length = builder.len_bytes();
    let bytes = builder.finish(envelope(), Epoch(3), WalId(17), SENT);
    assert_eq!(bytes.len(), length);
    bytes
}

fn seal(mut bytes: Vec<u8>) -> Bytes {
    let sealed = support::seal(OBJECT.get(), 0, &bytes);
    bytes.extend_from_slice(&sealed);
    Bytes::from(bytes)
}

/// The sample without its checksum.
fn open_sample() -> Vec<u8> {
    sample().slice(..sample().len() - 4).to_vec()
}

#[test]
fn batches_come_back_whole_and_in_order() {
    let object = decode(sample(), WalId(17)).unwrap();
    assert_eq!((object.epoch, object.id), (Epoch(3), WalId(17)));
    assert_eq!((object.first_seq, object.last_seq), (Seq(5), Seq(11)));
    assert_eq!(object.envelope, envelope());
    let records: Vec<_> = object.records().map(Result::unwrap).collect();
    let expected =
        [(Seq(5), batch(&[(b"a", b"1")])), (Seq(8), batch(&[(b"b", b"2"), (b"c", b"")]))];
    let expected = expected.map(|(first_seq, batch)| WalRecord::Batch {
        first_seq,
        ops: batch.ops(),
        bytes: Bytes::copy_from_slice(batch.as_bytes()),
    });
    assert_eq!(records, expected);
}

#[test]
fn a_fence_says_where_to_go_on() {
    let bytes = encode_fence(envelope(), Epoch(4), WalId(17), WalId(21));
    let object = decode(bytes.clone(), WalId(17)).unwrap();
    assert!(matches!(object.body, WalBody::Fence { next_id: WalId(21) }));
    assert_eq!((object.epoch, object.first_seq), (Epoch(4), Seq::NONE));
    assert_eq!(object.records().count(), 0);
    let error = decode(bytes, WalId(18)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption, "another name: {error}");
    for next in [0, 16, 17] {
        let backwards = encode_fence(envelope(), Epoch(4), WalId(17), WalId(next));
        assert!(decode(backwards, WalId(17)).is_err(), "a fence leads onward: {next}");
    }
}

#[test]
fn an_object_without_records_is_one() {
    let mut builder = WalBuilder::default();
    builder.push_batch(Seq(5), 0, &[]);
    assert!(builder.is_empty(), "a batch without operations leaves no trace");
    let object =
        decode(builder.finish(envelope(), Epoch(1), WalId(1), CutInfo::default()), WalId(1))
            .unwrap();
    assert_eq!((object.first_seq, object.last_seq), (Seq::NONE, Seq::NONE));
    assert_eq!(object.records().count(), 0);
}

#[test]
fn every_flipped_bit_and_every_truncation_is_found() {
    let fence = encode_fence(envelope(), Epoch(4), WalId(17), WalId(21));
    for bytes in [sample(), fence] {
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let error = decode(Bytes::from(flipped), WalId(17)).err();
            assert_eq!(error.map(|e| e.kind()), Some(ErrorKind::Corruption), "bit {bit}");
        }
        for cut in 0..bytes.len() {
            let error = decode(bytes.slice(..cut), WalId(17)).err();
            assert_eq!(error.map(|e| e.kind()), Some(ErrorKind::Corruption), "cut at {cut}");
        }
        let mut longer = bytes.to_vec();
        longer.push(0);
        assert!(decode(Bytes::from(longer), WalId(17)).is_err());
    }
}

/// Every byte except the checksum may be wrong: no panic, and records are returned only if they are
/// consistent.
#[test]
fn an_object_sealed_with_other_bytes_never_panics() {
    let raw = open_sample();
    for at in 72..raw.len() {
        for byte in 0..=255 {
            let mut hostile = raw.clone();
            hostile[at] = byte;
            let Ok(object) = decode(seal(hostile), WalId(17)) else { continue };
            let mut expected = object.first_seq;
            for record in object.records() {
                let Ok(WalRecord::Batch { first_seq, ops, bytes }) = record else { continue };
                assert_eq!(first_seq, expected, "byte {at} is {byte}");
                assert_eq!(siltstone_base::BatchOps::new(&bytes).count(), ops as usize);
                expected = first_seq.plus(u64::from(ops));
            }
        }
    }
}

/// The offset of the second record of the sample.
fn second_record() -> usize {
    WAL_HEAD_BYTES + WAL_RECORD_HEAD_BYTES + batch(&[(b"a", b"1")]).as_bytes().len()
}

fn refused(raw: Vec<u8>) -> ErrorKind {
    decode(seal(raw), WalId(17)).unwrap_err().kind()
}

#[test]
fn the_head_says_what_was_committed_and_when() {
    let object = decode(sample(), WalId(17)).unwrap();
    assert_eq!(object.sent, SENT);
    let fence = decode(encode_fence(envelope(), Epoch(4), WalId(17), WalId(21)), WalId(17));
    assert_eq!(fence.unwrap().sent, CutInfo { durable: WalId(16), at: UnixMillis(0) });
    for wrong in [17u64, 18, u64::MAX] {
        let mut raw = open_sample();
        raw[128..136].copy_from_slice(&wrong.to_le_bytes());
        assert_eq!(refused(raw), ErrorKind::Corruption, "a watermark at {wrong}");
    }
}

#[test]
fn codecs_and_keys_of_a_newer_version_are_unsupported() {
    for at in [73, 144, 159] {
        let mut raw = open_sample();
        raw[at] = 1;
        assert_eq!(refused(raw), ErrorKind::Unsupported, "byte {at}");
    }
}

/// Data that a newer version puts behind the known fields without a feature bit.
#[test]
fn a_longer_head_is_passed_over() {
    let mut raw = open_sample();
    raw[74] = 88 + 5;
    raw.splice(WAL_HEAD_BYTES..WAL_HEAD_BYTES, [1, 2, 3, 4, 5]);
    let longer = decode(seal(raw), WalId(17)).unwrap();
    let records = |object: &siltstone_sst::wal::WalObject| {
        object.records().map(Result::unwrap).collect::<Vec<_>>()
    };
    assert_eq!(records(&longer), records(&decode(sample(), WalId(17)).unwrap()));
    for wrong in [0, 87, 255] {
        let mut raw = open_sample();
        (raw[74], raw[75]) = (wrong, wrong & 1);
        assert_eq!(refused(raw), ErrorKind::Corruption, "a head of {wrong}");
    }
}

#[test]
fn nothing_follows_an_ingest() {
    let mut raw = open_sample();
    raw[WAL_HEAD_BYTES] = 2;
    assert_eq!(refused(raw), ErrorKind::Corruption);
}

#[test]
fn a_gap_between_records_is_corruption() {
    let second = second_record();
    for wrong in [7u64, 9, 0] {
        let mut raw = open_sample();
        raw[second + 12..second + 20].copy_from_slice(&wrong.to_le_bytes());
        // The head agrees with the last record, so only the gap is wrong.
        raw[104..112].copy_from_slice(&(wrong + 3).to_le_bytes());
        let error = decode(seal(raw), WalId(17)).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Corruption);
        assert!(error.to_string().contains("gap"), "{error}");
    }
}

#[test]
fn reserved_values_are_refused_by_name() {
    let mut raw = open_sample();
    raw[second_record()] = 2;
    let object = decode(seal(raw), WalId(17)).unwrap();
    let records: Vec<_> = object.records().collect();
    assert_eq!(records.len(), 2);
    let error = records[1].as_ref().err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("ingest"), "{error}");
    for at in [72, WAL_HEAD_BYTES] {
        let mut raw = open_sample();
        raw[at] = 9;
        let error = match decode(seal(raw), WalId(17)) {
            Ok(object) => object.records().next().and_then(Result::err),
            Err(error) => Some(error),
        };
        assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::Unsupported), "kind at {at}");
    }
}

#[test]
fn a_batch_that_claims_other_operations_is_corruption() {
    let mut raw = open_sample();
    // Both records are wrong: 4 and 3 operations instead of 3 and 4; sequence numbers agree.
    let second = second_record();
    raw[WAL_HEAD_BYTES + 4] = 4;
    raw[second + 4] = 3;
    raw[second + 12] = 9;
    let object = decode(seal(raw), WalId(17)).unwrap();
    let error = object.records().next().and_then(Result::err).unwrap();
    assert_eq!(error.kind(), ErrorKind::Corruption);
}

fn short(least: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), least..9)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_batches_round_trip(
        first in 1u64..1_000_000,
        batches in prop::collection::vec(
            prop::collection::vec((short(1), short(0)), 0..6),
            0..8,
        ),
    ) {
        let mut builder = WalBuilder::new();
        let mut expected = Vec::new();
        let mut seq = Seq(first);
        for pairs in &batches {
            let mut batch = Batch::new();
            for (key, value) in pairs {
                batch.put(key, value, None).unwrap();
            }
            builder.push_batch(seq, batch.ops(), batch.as_bytes());
            if !batch.is_empty() {
                let bytes = Bytes::copy_from_slice(batch.as_bytes());
                expected.push(WalRecord::Batch { first_seq: seq, ops: batch.ops(), bytes });
            }
            seq = seq.plus(u64::from(batch.ops()));
        }
        let bytes = builder.finish(envelope(), Epoch(1), WalId(2), CutInfo::default());
        let object = decode(bytes, WalId(2)).unwrap();
        let records: Vec<_> = object.records().map(Result::unwrap).collect();
        prop_assert_eq!(records, expected);
    }
}

#[test]
fn an_ingest_comes_back_and_ends_its_object() {
    let envelope = Envelope::new(ObjectKind::Wal, DatabaseId(1), ObjectId(2), AttemptId(3));
    let mut batch = Batch::new();
    batch.put(b"k", b"v", None).unwrap();
    let mut builder = WalBuilder::new();
    builder.push_batch(Seq(9), batch.ops(), batch.as_bytes());
    let digest = Bytes::from_static(b"what it brings");
    let content = WalIngestContent::Job { job: JobId(77), digest };
    let ingest = WalIngest { first_seq: Seq(10), numbers: 3, content };
    builder.push_ingest(&ingest);
    assert_eq!((builder.first_seq(), builder.last_seq()), (Seq(9), Seq(12)));
    let sent = CutInfo { durable: WalId(4), ..CutInfo::default() };
    let object = decode(builder.finish(envelope, Epoch(1), WalId(5), sent), WalId(5)).unwrap();
    let records: Vec<_> = object.records().map(Result::unwrap).collect();
    assert_eq!((records.len(), object.last_seq, ingest.last_seq()), (2, Seq(12), Seq(12)));
    assert_eq!(records[1], WalRecord::Ingest(ingest));
}

fn tables(numbers: u32, tables: &'static [u8]) -> WalIngest {
    let content = WalIngestContent::Tables(Bytes::from_static(tables));
    WalIngest { first_seq: Seq(10), numbers, content }
}

/// The record's bytes are frozen: head, form, and the tables unchanged.
#[test]
fn own_tables_come_back_and_their_bytes_are_fixed() {
    let ingest = tables(1, b"tables");
    let mut builder = WalBuilder::new();
    builder.push_ingest(&ingest);
    let bytes = builder.finish(envelope(), Epoch(3), WalId(17), SENT);
    let record = [
        &[2, 0, 0, 0][..],
        &[1, 0, 0, 0],
        &[10, 0, 0, 0],
        &[10, 0, 0, 0, 0, 0, 0, 0],
        &[2, 0, 0, 0],
        b"tables",
    ];
    assert_eq!(&bytes[WAL_HEAD_BYTES..bytes.len() - 4], record.concat());
    let object = decode(bytes, WalId(17)).unwrap();
    let records: Vec<_> = object.records().map(Result::unwrap).collect();
    assert_eq!((records, object.last_seq), (vec![WalRecord::Ingest(ingest)], Seq(10)));
}

#[test]
fn own_tables_take_one_number_and_are_some() {
    for wrong in [tables(2, b"tables"), tables(1, b"")] {
        let mut builder = WalBuilder::new();
        builder.push_ingest(&wrong);
        let object = decode(builder.finish(envelope(), Epoch(3), WalId(17), SENT), WalId(17));
        let error = object.unwrap().records().next().and_then(Result::err).unwrap();
        assert_eq!(error.kind(), ErrorKind::Corruption);
    }
}
