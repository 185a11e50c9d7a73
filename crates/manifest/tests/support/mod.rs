//! Shared by the tests of the codec: a frame around any body, and a full manifest.

#![allow(dead_code, reason = "each test target uses its part")]

pub(crate) mod tree;

use bytes::Bytes;
use siltstone_base::checksum::bound;
use siltstone_base::sst::{EntrySum, SstLocation};
use siltstone_base::{
    AttemptId, CheckpointId, DatabaseId, Envelope, Epoch, JobId, ManifestId, ObjectId, ObjectKind,
    RequestId, Seq, SstDescriptor, SstId, StoreId, TimelineId, UnixMillis, WalId, WalStore,
};
use siltstone_manifest::features::{Audience, Carried, Extension, Feature, Features};
use siltstone_manifest::{
    Ancestor, Checkpoint, CheckpointOwner, FinishedJob, Hold, IngestApp, IngestOutcome, KeptFence,
    L0Entry, Lease, LeasedVersion, Manifest, PendingIngest, RememberedIngest, Settings, SortedRun,
    Timeline, WriterRecord,
};
use std::path::Path;

pub(crate) const DATABASE: DatabaseId = DatabaseId(0xd0d1_d2d3_d4d5_d6d7_d8d9_dadb_dcdd_dedf);
pub(crate) const OBJECT: ObjectId = ObjectId(0x0b00_0000_0000_0000_0000_0000_0000_00b1);
pub(crate) const ATTEMPT: AttemptId = AttemptId(0xa000_0000_0000_0000_0000_0000_0000_00a1);

/// A manifest object around `body`, with a correct checksum.
pub(crate) fn framed(body: &[u8]) -> Vec<u8> {
    framed_as(&Envelope::new(ObjectKind::Manifest, DATABASE, OBJECT, ATTEMPT), body)
}

/// As [`framed`], with the caller's envelope.
pub(crate) fn framed_as(envelope: &Envelope, body: &[u8]) -> Vec<u8> {
    let mut bytes = envelope.encode().to_vec();
    bytes.extend_from_slice(&(body.len() as u64).to_le_bytes());
    bytes.extend_from_slice(body);
    let checksum = bound(envelope.object, 0, &bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Compares fresh bytes with a stored file. After a deliberate change of the format (one line in
/// RFC 0002) the fresh bytes, which stay in the target folder, replace the file.
pub(crate) fn golden(name: &str, fresh: &[u8]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/manifest").join(name);
    let stored = std::fs::read(&path).unwrap_or_default();
    if stored != fresh {
        let left = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&left, fresh).unwrap();
        panic!("{} differs from the bytes written now, {}", path.display(), left.display());
    }
}

/// Calls `check` with every single-bit flip and every truncation of `bytes`, and with one extra
/// byte.
pub(crate) fn damage(bytes: &[u8], check: impl Fn(&[u8], &str)) {
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        check(&flipped, &format!("bit {bit}"));
    }
    for length in 0..bytes.len() {
        check(&bytes[..length], &format!("cut to {length}"));
    }
    check(&[bytes, &[0]].concat(), "a byte more");
}

/// A table with `keys` and `seqs`, without optional fields.
pub(crate) fn table(id: u128, keys: [&[u8]; 2], seqs: [u64; 2]) -> SstDescriptor {
    let [first, last] = keys;
    let [min, max] = seqs;
    SstDescriptor {
        id: SstId(id),
        location: SstLocation::Own,
        job: None,
        object_bytes: 4096,
        checksum: 0x1234_5678,
        tail_offset: 4000,
        first_key: Bytes::copy_from_slice(first),
        last_key: Bytes::copy_from_slice(last),
        visible_start: None,
        visible_end: None,
        seq_override: None,
        entries: 10,
        tombstones: 1,
        min_seq: Seq(min),
        max_seq: Seq(max),
        min_expiry: None,
        max_expiry: None,
        range_deletes: None,
        sum: None,
    }
}

/// An empty database.
pub(crate) fn empty() -> Manifest {
    Manifest::new_database(DATABASE, Settings::default())
}

/// A manifest with every field set, and every option present in one place and absent in another.
pub(crate) fn full() -> Manifest {
    let mut m = empty();
    m.id = ManifestId(41);
    m.destroyed_at = Some(UnixMillis(5_000));
    m.settings = Settings {
        codec: "lz4".to_owned(),
        filter: "blocked bloom".to_owned(),
        merge_operator: Some("sum".to_owned()),
        key_schema: Some("(str, int)".to_owned()),
    };
    m.schema = Some(Bytes::from_static(b"a schema"));
    m.attempt = ATTEMPT;
    m.features.carried.compatible = 1 << 30;
    m.features.extensions = vec![
        Extension { name: "a hint".to_owned(), value: Some(Bytes::from_static(b"its bytes")) },
        Extension { name: "another".to_owned(), value: None },
    ];
    let location = Some("memory:///log".to_owned());
    m.wal_store = Some(WalStore { id: StoreId(6), location });
    m.last_ancestor = 9;
    m.request = Some(RequestId(17));
    m.ancestors = vec![Ancestor {
        number: 7,
        database: DatabaseId(3),
        location: "memory:///parent".to_owned(),
        checkpoint: CheckpointId(4),
    }];
    let writer = |epoch, clean_close| WriterRecord {
        epoch: Epoch(epoch),
        claim: AttemptId(u128::from(epoch) << 80 | 7),
        max_parallel_writes: epoch,
        clean_close,
        transient: false,
    };
    m.writer_epoch = Epoch(3);
    m.writers = vec![writer(2, true), writer(3, false)];
    m.widest_window = 4;
    m.reserved = vec![SstId(90), SstId(91 << 64)];
    m.left = vec![SstId(80)];
    m.floor = Seq(40);
    m.replay_from = WalId(12);
    m.wal_id_last_seen = WalId(15);
    m.flushed_seq = Seq(60);
    m.commit_time = UnixMillis(4_321);
    m.kept_fences = vec![
        KeptFence { id: WalId(2), epoch: Epoch(2), next_id: WalId(4) },
        KeptFence { id: WalId(7), epoch: Epoch(3), next_id: WalId(11) },
    ];
    layers(&mut m);
    m.tables_since = ManifestId(40);
    m.compactor_epoch = Epoch(2);
    m.compactor_claim = AttemptId(201);
    m.finished_jobs = vec![FinishedJob { job: JobId(300), epoch: Epoch(2) }];
    m.checkpoints = checkpoints();
    let version =
        |id, attempt| LeasedVersion { manifest_id: ManifestId(id), manifest_attempt: attempt };
    let versions = vec![version(36, AttemptId(360)), version(41, ATTEMPT)];
    m.leases = vec![Lease { expires_at: UnixMillis(1_234), versions }];
    m.holds = holds();
    m.timelines = vec![Timeline {
        id: TimelineId(21),
        cut: Seq(30),
        begins: Seq(41),
        manifest_id: ManifestId(20),
        began_at: UnixMillis(4_000),
    }];
    ingests(&mut m);
    m
}

/// L0 and two runs.
fn layers(m: &mut Manifest) {
    m.last_l0_order = 5;
    m.l0 = vec![
        L0Entry { order: 5, tables: vec![ingested()] },
        L0Entry { order: 3, tables: vec![table(14, [b"b", b"y"], [41, 50])] },
    ];
    m.l0_last_compacted = Some(SstId(9));
    let [low, high] = [table(10, [b"a", b"f"], [21, 30]), table(11, [b"g", b"z"], [21, 40])];
    m.runs = vec![
        SortedRun { id: 6, tables: vec![low, high] },
        SortedRun { id: 0, tables: vec![table(8, [b"\x00", b"\xff\xff"], [1, 20])] },
    ];
}

/// A hold with every limit, and one with none.
fn holds() -> Vec<Hold> {
    let hold = |name: &str, bound: Option<u64>| Hold {
        name: name.to_owned(),
        generation: 3,
        wal_from: WalId(13),
        seq: Seq(55),
        expires_at: bound.map(UnixMillis),
        most_bytes: bound,
        unretained: None,
    };
    vec![hold("mirror", Some(1 << 40)), hold("search", None)]
}

/// Pending jobs, a job with each outcome, and an application.
fn ingests(m: &mut Manifest) {
    let pending = PendingIngest {
        job: JobId(400),
        requested_at: UnixMillis(77),
        digest: Bytes::from_static(b"a digest"),
        app: Some(("stream".to_owned(), 12)),
        timeline: Some(TimelineId(21)),
    };
    let plain = PendingIngest {
        job: JobId(402),
        digest: Bytes::new(),
        app: None,
        timeline: None,
        ..pending.clone()
    };
    m.pending_ingests = vec![pending, plain];
    let ends = [
        IngestOutcome::Adopted(Seq(59)),
        IngestOutcome::Refused,
        IngestOutcome::Withdrawn,
        IngestOutcome::Other(200),
    ];
    let reason = |outcome| (outcome == IngestOutcome::Refused).then(|| "two keys".to_owned());
    let ended = (500u128..).zip(ends);
    m.remembered_ingests = ended
        .map(|(job, outcome)| RememberedIngest {
            job: JobId(job),
            outcome,
            reason: reason(outcome),
        })
        .collect();
    let app = "stream".to_owned();
    m.ingest_apps = vec![IngestApp { app, version: 11, job: JobId(399), seq: Seq(58) }];
    m.ingest_horizon = UnixMillis(70);
}

/// Features that no version so far requires: one for each audience.
pub(crate) fn features(audience: Audience) -> Features {
    let feature = Feature { name: "tides".to_owned(), audience, since: "9.1".to_owned() };
    Features { carried: Carried::default(), named: vec![feature], extensions: Vec::new() }
}

/// A table with every option set.
fn ingested() -> SstDescriptor {
    SstDescriptor {
        location: SstLocation::Ancestor(7),
        job: Some(JobId(398)),
        visible_start: Some(Bytes::from_static(b"c")),
        visible_end: Some(Bytes::from_static(b"m")),
        seq_override: Some(Seq(59)),
        min_expiry: Some(UnixMillis(1_000)),
        max_expiry: Some(UnixMillis(2_000)),
        range_deletes: Some((3_000, 200)),
        sum: Some(EntrySum { kind: 1, bits: u128::MAX / 3 }),
        ..table(15, [b"a", b"z"], [1, 1])
    }
}

/// A checkpoint of every owner.
fn checkpoints() -> Vec<Checkpoint> {
    let owners = [
        CheckpointOwner::User,
        CheckpointOwner::Writer(Epoch(3)),
        CheckpointOwner::Reader,
        CheckpointOwner::Clone(DatabaseId(5)),
        CheckpointOwner::Other { kind: 99, epoch: Some(Epoch(4)), database: Some(DatabaseId(6)) },
    ];
    let mut checkpoints: Vec<Checkpoint> = Vec::new();
    for (number, owner) in (1u64..).zip(owners) {
        checkpoints.push(Checkpoint {
            id: CheckpointId(u128::from(number) << 70),
            manifest_id: ManifestId(30 + number),
            manifest_attempt: AttemptId(u128::from(number) << 60),
            replay_from: WalId(12),
            wal_id_last_seen: WalId(10 + number),
            created_at: UnixMillis(100 * number),
            expires_at: (number % 2 == 0).then_some(UnixMillis(900 * number)),
            source: (number == 2).then_some(CheckpointId(1 << 70)),
            owner,
            name: (number == 1).then(|| "nightly".to_owned()),
            metadata: vec![("by".to_owned(), "a test".to_owned()); number as usize - 1],
        });
    }
    checkpoints
}
