//! Small manifests for this crate's unit tests.

use crate::state::{
    Ancestor, Checkpoint, CheckpointOwner, FinishedJob, KeptFence, L0Entry, Lease, LeasedVersion,
    Manifest, PendingIngest, Settings, SortedRun, WriterRecord,
};
use siltstone_base::sst::SstLocation;
use siltstone_base::{
    AttemptId, CheckpointId, DatabaseId, Epoch, JobId, ManifestId, Seq, SstDescriptor, SstId,
    UnixMillis, WalId,
};

/// A table over `[first, last]` with sequence numbers `[min, max]`.
pub(crate) fn table(id: SstId, first: &[u8], last: &[u8], min: u64, max: u64) -> SstDescriptor {
    SstDescriptor {
        id,
        location: SstLocation::Own,
        job: None,
        object_bytes: 100,
        checksum: 7,
        tail_offset: 50,
        first_key: first.to_vec().into(),
        last_key: last.to_vec().into(),
        visible_start: None,
        visible_end: None,
        seq_override: None,
        entries: 1,
        tombstones: 0,
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
    Manifest::new_database(DatabaseId(77), Settings::default())
}

/// A database with one of everything.
pub(crate) fn manifest() -> Manifest {
    let mut m = empty();
    m.id = ManifestId(5);
    m.writer_epoch = Epoch(2);
    let writer = |epoch, claim| WriterRecord {
        epoch: Epoch(epoch),
        claim: AttemptId(claim),
        max_parallel_writes: 2,
        clean_close: false,
        transient: false,
    };
    m.writers = vec![writer(1, 101), writer(2, 102)];
    m.widest_window = 2;
    m.reserved = vec![SstId(50), SstId(51)];
    m.kept_fences = vec![KeptFence { id: WalId(2), epoch: Epoch(2), next_id: WalId(4) }];
    m.replay_from = WalId(6);
    m.wal_id_last_seen = WalId(7);
    m.flushed_seq = Seq(60);
    m.floor = Seq(40);
    m.last_l0_order = 4;
    m.l0 = vec![
        L0Entry { order: 4, tables: vec![table(SstId(14), b"a", b"z", 51, 60)] },
        L0Entry { order: 3, tables: vec![table(SstId(13), b"b", b"y", 41, 50)] },
    ];
    let (low, high) = (table(SstId(10), b"a", b"f", 21, 30), table(SstId(11), b"g", b"z", 21, 40));
    m.runs = vec![
        SortedRun { id: 6, tables: vec![low, high] },
        SortedRun { id: 0, tables: vec![table(SstId(9), b"a", b"z", 1, 20)] },
    ];
    m.compactor_epoch = Epoch(1);
    m.compactor_claim = AttemptId(201);
    m.finished_jobs = vec![FinishedJob { job: JobId(300), epoch: Epoch(1) }];
    m.checkpoints = vec![checkpoint(1, Some(900)), checkpoint(2, None)];
    let version = LeasedVersion { manifest_id: ManifestId(3), manifest_attempt: AttemptId(30) };
    m.leases = vec![Lease { expires_at: UnixMillis(900), versions: vec![version] }];
    m.last_ancestor = 3;
    m.ancestors = vec![Ancestor {
        number: 3,
        database: DatabaseId(78),
        location: "memory:///parent".to_owned(),
        checkpoint: CheckpointId(4),
    }];
    m.pending_ingests = vec![PendingIngest {
        job: JobId(400),
        requested_at: UnixMillis(77),
        digest: bytes::Bytes::new(),
        app: None,
        timeline: None,
    }];
    m
}

/// A checkpoint of manifest 3 with WAL 4 to 5.
pub(crate) fn checkpoint(id: u128, expires_at: Option<u64>) -> Checkpoint {
    Checkpoint {
        id: CheckpointId(id),
        manifest_id: ManifestId(3),
        manifest_attempt: AttemptId(30),
        replay_from: WalId(4),
        wal_id_last_seen: WalId(5),
        created_at: UnixMillis(100),
        expires_at: expires_at.map(UnixMillis),
        source: None,
        owner: CheckpointOwner::User,
        name: None,
        metadata: Vec::new(),
    }
}
