//! The bytes of manifest and boundary objects: the golden file, round trips, damage, versions,
//! size.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at what it did not expect"
)]

mod support;

use bytes::Bytes;
use proptest::prelude::*;
use siltstone_base::checksum::crc32c;
use siltstone_base::{
    AttemptId, DatabaseId, Envelope, ErrorKind, ManifestId, ObjectId, ObjectKind, Seq, SstId,
    UnixMillis,
};
use siltstone_manifest::codec::{decode_boundary, encode_boundary};
use siltstone_manifest::{L0Entry, Manifest, SinceLease, SortedRun};
use support::{ATTEMPT, DATABASE, OBJECT, damage, empty, framed, framed_as, full, golden, table};

fn encode(manifest: &Manifest) -> Bytes {
    manifest.encode(OBJECT, ATTEMPT).expect("small manifests are not refused")
}

#[test]
fn every_field_round_trips() {
    // The golden files are older than since-leases.
    let since = |from, until| SinceLease { from: ManifestId(from), expires_at: UnixMillis(until) };
    let leased = Manifest { since_leases: vec![since(37, 1_500), since(40, 2_500)], ..full() };
    for manifest in [full(), leased, empty()] {
        let bytes = encode(&manifest);
        let (envelope, decoded) = Manifest::decode(&bytes).unwrap();
        let compatible = manifest.features.carried.compatible;
        assert_eq!(decoded, manifest.written_as(ATTEMPT));
        let plain = Envelope::new(ObjectKind::Manifest, DATABASE, OBJECT, ATTEMPT);
        assert_eq!(envelope, Envelope { compatible, ..plain });
        assert_eq!(encode(&decoded), bytes, "encoding is not deterministic");
    }
}

#[test]
fn bytes_are_those_of_the_golden_files() {
    golden("full.manifest", &encode(&full()));
    golden("empty.manifest", &encode(&empty()));
    golden("7.boundary", &encode_boundary(7, DATABASE, OBJECT, ATTEMPT));
}

#[test]
fn every_flip_and_cut_is_found() {
    damage(&encode(&full()), |bytes, what| {
        let error = Manifest::decode(bytes).expect_err(what);
        assert_eq!(error.kind(), ErrorKind::Corruption, "{what}: {error}");
    });
    damage(&encode_boundary(7, DATABASE, OBJECT, ATTEMPT), |bytes, what| {
        let error = decode_boundary(bytes).expect_err(what);
        assert_eq!(error.kind(), ErrorKind::Corruption, "{what}: {error}");
    });
}

/// Damages the body alone and seals it again: the checksum is correct, so only the verifier and the
/// invariants protect. A flip may give another valid manifest (a key's letter), never a panic.
#[test]
fn a_damaged_body_under_a_right_checksum_never_panics() {
    let bytes = encode(&full());
    let body = &bytes[80..bytes.len() - 4];
    damage(body, |body, what| {
        if let Err(error) = Manifest::decode(&framed(body)) {
            let kind = error.kind();
            let allowed = [ErrorKind::Corruption, ErrorKind::Unsupported];
            assert!(allowed.contains(&kind), "{what}: {error}");
        }
    });
}

#[test]
fn a_newer_version_and_an_unknown_feature_are_refused_by_name() {
    let body = encode(&empty())[80..].to_vec();
    let body = &body[..body.len() - 4];
    let envelope = Envelope::new(ObjectKind::Manifest, DATABASE, OBJECT, ATTEMPT);

    let feature = framed_as(&Envelope { incompatible: 1 << 9, ..envelope }, body);
    let error = Manifest::decode(&feature).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("feature bit: 9"), "{error}");

    let hint = framed_as(&Envelope { compatible: 1 << 9, ..envelope }, body);
    assert!(Manifest::decode(&hint).is_ok(), "a compatible feature is accepted");

    // The version is at byte 10, the envelope's own checksum at 68.
    let mut newer = framed(body);
    newer[10] = 2;
    let head = crc32c(&newer[..68]);
    newer[68..72].copy_from_slice(&head.to_le_bytes());
    let error = Manifest::decode(&newer).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("format version: 2"), "{error}");
}

#[test]
fn a_manifest_that_breaks_an_invariant_is_corruption_by_its_name() {
    let mut broken = full();
    broken.l0[0].order = 2;
    let error = Manifest::decode(&encode(&broken)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(error.to_string().contains("L0 orders descend"), "{error}");
}

#[test]
fn one_kind_of_object_is_not_taken_for_another() {
    let manifest = encode(&empty());
    let boundary = encode_boundary(7, DATABASE, OBJECT, ATTEMPT);
    assert_eq!(decode_boundary(&manifest).unwrap_err().kind(), ErrorKind::Corruption);
    assert_eq!(Manifest::decode(&boundary).unwrap_err().kind(), ErrorKind::Corruption);
    let copied = encode_boundary(7, DATABASE, ObjectId(9), ATTEMPT);
    let envelope = Envelope::new(ObjectKind::Boundary, DATABASE, OBJECT, ATTEMPT);
    let moved = [envelope.encode().as_slice(), &copied[72..]].concat();
    assert!(decode_boundary(&moved).is_err(), "the checksum is not bound to the object");
}

#[test]
fn a_boundary_object_says_its_id() {
    let bytes = encode_boundary(u64::MAX, DatabaseId(1), ObjectId(2), AttemptId(3));
    let (envelope, id) = decode_boundary(&bytes).unwrap();
    assert_eq!((envelope.database, envelope.object, id), (DatabaseId(1), ObjectId(2), u64::MAX));
    assert!(decode_boundary(&encode_boundary(0, DATABASE, OBJECT, ATTEMPT)).is_err());
}

#[test]
fn a_hundred_thousand_tables_are_read_back() {
    const TABLES: u64 = 100_000;
    let mut large = empty();
    large.flushed_seq = Seq(TABLES);
    let tables = (0..TABLES).map(|number| {
        let key = format!("a key of an ordinary length, number {number:09}");
        table(u128::from(number) + 1, [key.as_bytes(), key.as_bytes()], [1, number + 1])
    });
    large.runs = vec![SortedRun { id: 0, tables: tables.collect() }];
    let bytes = encode(&large);
    assert_eq!(Manifest::decode(&bytes).unwrap().1, large.written_as(ATTEMPT));
}

#[test]
fn an_unreadable_manifest_is_not_written() {
    let mut huge = empty();
    huge.schema = Some(Bytes::from(vec![0; 256 << 20]));
    assert_eq!(huge.encode(OBJECT, ATTEMPT).unwrap_err().kind(), ErrorKind::Invalid);
    huge.schema = Some(Bytes::from(vec![0; 255 << 20]));
    assert!(Manifest::decode(&encode(&huge)).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Keys and counts of every size: nothing is truncated, and nothing of a neighbour is read.
    #[test]
    fn any_tables_round_trip(
        layers in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..70), 1u64..9), 0..9),
        sizes in (any::<u32>(), any::<u64>(), any::<u64>()),
    ) {
        let mut manifest = full();
        manifest.flushed_seq = Seq(Seq::MAX.get());
        manifest.l0 = Vec::new();
        let mut seq = 100;
        for (number, (key, step)) in (1u64..).zip(layers) {
            let max = seq + step;
            let last = [&key[..], b"z"].concat();
            let mut added = table(u128::from(number) << 90, [&key, &last], [seq, max]);
            (added.checksum, added.entries, added.tombstones) = sizes;
            manifest.l0.insert(0, L0Entry { order: number, tables: vec![added] });
            seq = max + 1;
        }
        manifest.last_l0_order = u64::MAX;
        manifest.reserved = vec![SstId(u128::MAX)];
        let bytes = encode(&manifest);
        prop_assert_eq!(Manifest::decode(&bytes).unwrap().1, manifest.written_as(ATTEMPT));
    }

    /// Any bytes in a valid frame give a result or an error.
    #[test]
    fn any_body_gives_an_answer(body in prop::collection::vec(any::<u8>(), 0..300)) {
        let kind = Manifest::decode(&framed(&body)).err().map(|error| error.kind());
        prop_assert!(matches!(kind, None | Some(ErrorKind::Corruption | ErrorKind::Unsupported)));
    }
}
