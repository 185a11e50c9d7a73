//! Decoding: from the FlatBuffers body to the state.

use super::shared;
use super::unknown::unknown_field;
use crate::features::{Carried, Features};
use crate::invariant;
use crate::state::{
    Ancestor, Checkpoint, CheckpointOwner, FedIngest, FinishedJob, ForgottenApps, KeptFence,
    L0Entry, Manifest, Mirror, Settings, SortedRun, WriterRecord, behind,
};
use bytes::Bytes;
use flatbuffers::{Follow, ForwardsUOffset, Vector, VerifierOptions};
use siltstone_base::sst::{EntrySum, SstLocation};
use siltstone_base::{
    AttemptId, CheckpointId, DatabaseId, Envelope, Epoch, Error, JobId, ManifestId, RequestId,
    Result, Seq, SstDescriptor, SstId, StoreId, UnixMillis, WalId, WalStore,
};
use siltstone_fbs::manifest as fb;

/// The schema has a depth of three (root, run, table); the rest is reserved for later versions.
const MAX_DEPTH: usize = 16;
/// Size of the smallest table: a 4-byte offset to its vtable, and a 4-byte offset that points to
/// it. So this limit never refuses a valid manifest, and it stops an invalid one that points to the
/// same table many times.
const MIN_TABLE_BYTES: usize = 8;
/// The verifier counts a table's vtable and each field's offset with the table, though tables of
/// one shape share their vtable: an SstDescriptor of 100 bytes counts for about 200. Eight times
/// the body refuses no honest manifest and bounds what this decoder allocates.
const APPARENT_FACTOR: usize = 8;

/// The limits of the verifier for a body of `length` bytes: its defaults would stop at a million
/// tables or two gigabytes for any length.
pub(crate) fn limits(length: usize) -> VerifierOptions {
    VerifierOptions {
        max_depth: MAX_DEPTH,
        max_tables: length / MIN_TABLE_BYTES,
        max_apparent_size: length.saturating_mul(APPARENT_FACTOR),
        ..VerifierOptions::default()
    }
}

/// Decodes the body of a manifest with this envelope.
///
/// The required features are checked before anything else: without them the rest may be
/// misunderstood.
pub(super) fn body(bytes: &[u8], envelope: &Envelope) -> Result<Manifest> {
    let root = fb::root_as_manifest_with_opts(&limits(bytes.len()), bytes)
        .map_err(|invalid| Error::corruption("not a manifest's body").caused_by(invalid))?;
    let mut features = Features {
        carried: Carried::of(envelope, unknown_field(&root)),
        named: list(root.features(), |each| Ok(shared::read_feature(&each)))?,
        extensions: list(root.extensions(), |each| Ok(shared::read_extension(&each)))?,
    };
    let mirror = Mirror::out_of(&mut features)?;
    let fed = FedIngest::out_of(&mut features)?;
    let behind = behind::out_of(&mut features)?;
    let forgotten_apps = ForgottenApps::out_of(&mut features)?;
    features.check_readable()?;
    let read = state(&root, envelope.database, features)?;
    let read = Manifest { mirror, fed, behind, forgotten_apps, ..read };
    let manifest = read.written_as(envelope.attempt);
    invariant::check_decoded(&manifest)?;
    Ok(manifest)
}

fn state(root: &fb::Manifest<'_>, database: DatabaseId, features: Features) -> Result<Manifest> {
    Ok(Manifest {
        id: ManifestId(root.id()),
        attempt: AttemptId::NONE,
        database,
        features,
        initialized: root.initialized(),
        destroyed_at: root.destroyed_at().map(UnixMillis),
        settings: settings(&root.settings()),
        schema: byte_list(root.schema()),
        wal_store: root.wal_store().map(|store| wal_store(&store)),
        ancestors: list(root.ancestors(), |each| Ok(ancestor(&each)))?,
        last_ancestor: root.last_ancestor(),
        request: root.request().map(|id| RequestId(bits(id))),
        mirror: None,
        writer_epoch: Epoch(root.writer_epoch()),
        writers: list(root.writers(), |each| Ok(writer(&each)))?,
        widest_window: root.widest_window(),
        reserved: names(root.reserved()),
        left: names(root.left()),
        floor: Seq(root.floor()),
        replay_from: WalId(root.replay_from()),
        wal_id_last_seen: WalId(root.wal_id_last_seen()),
        flushed_seq: Seq(root.flushed_seq()),
        commit_time: UnixMillis(root.commit_time()),
        kept_fences: list(root.kept_fences(), |each| Ok(kept_fence(&each)))?,
        last_l0_order: root.last_l0_order(),
        l0: list(root.l0(), |each| {
            Ok(L0Entry { order: each.order(), tables: tables(each.tables())? })
        })?,
        l0_last_compacted: root.l0_last_compacted().map(|id| SstId(bits(id))),
        runs: list(root.runs(), |each| {
            Ok(SortedRun { id: each.id(), tables: tables(each.tables())? })
        })?,
        tables_since: ManifestId(root.tables_since()),
        compactor_epoch: Epoch(root.compactor_epoch()),
        compactor_claim: AttemptId(root.compactor_claim().map_or(0, bits)),
        finished_jobs: list(root.finished_jobs(), |each| {
            Ok(FinishedJob { job: JobId(bits(each.job())), epoch: Epoch(each.epoch()) })
        })?,
        checkpoints: list(root.checkpoints(), |each| checkpoint(&each))?,
        leases: list(root.leases(), |each| shared::read_lease(&each))?,
        since_leases: list(root.since_leases(), |each| Ok(shared::read_since_lease(&each)))?,
        holds: list(root.holds(), |each| Ok(shared::read_hold(&each)))?,
        fed: Vec::new(),
        behind: None,
        forgotten_apps: ForgottenApps::default(),
        timelines: list(root.timelines(), |each| Ok(shared::read_timeline(&each)))?,
        pending_ingests: list(root.pending_ingests(), |each| Ok(shared::read_pending(&each)))?,
        remembered_ingests: list(root.remembered_ingests(), |each| {
            Ok(shared::read_remembered(&each))
        })?,
        ingest_apps: list(root.ingest_apps(), |each| Ok(shared::read_app(&each)))?,
        ingest_horizon: UnixMillis(root.ingest_horizon()),
    })
}

/// A list of table names; empty if it is missing.
pub(crate) fn names(ids: Option<Vector<'_, fb::Id128>>) -> Vec<SstId> {
    ids.iter().flatten().map(|id| SstId(bits(id))).collect()
}

pub(crate) fn bits(id: &fb::Id128) -> u128 {
    (u128::from(id.high()) << 64) | u128::from(id.low())
}

/// All items of a vector of tables; empty if it is missing.
pub(crate) fn list<'a, T: Follow<'a> + 'a, S>(
    items: Option<Vector<'a, ForwardsUOffset<T>>>,
    one: impl Fn(T::Inner) -> Result<S>,
) -> Result<Vec<S>> {
    items.iter().flatten().map(one).collect()
}

pub(crate) fn byte_list(bytes: Option<Vector<'_, u8>>) -> Option<Bytes> {
    bytes.map(|bytes| Bytes::copy_from_slice(bytes.bytes()))
}

fn settings(settings: &fb::Settings<'_>) -> Settings {
    Settings {
        codec: settings.codec().unwrap_or_default().to_owned(),
        filter: settings.filter().unwrap_or_default().to_owned(),
        merge_operator: settings.merge_operator().map(str::to_owned),
        key_schema: settings.key_schema().map(str::to_owned),
    }
}

fn ancestor(ancestor: &fb::Ancestor<'_>) -> Ancestor {
    Ancestor {
        number: ancestor.number(),
        database: DatabaseId(bits(ancestor.database())),
        location: ancestor.location().to_owned(),
        checkpoint: CheckpointId(bits(ancestor.checkpoint())),
    }
}

fn wal_store(store: &fb::WalStore<'_>) -> WalStore {
    WalStore { id: StoreId(bits(store.id())), location: store.location().map(str::to_owned) }
}

fn writer(writer: &fb::WriterRecord<'_>) -> WriterRecord {
    WriterRecord {
        epoch: Epoch(writer.epoch()),
        claim: AttemptId(bits(writer.claim())),
        max_parallel_writes: writer.max_parallel_writes(),
        clean_close: writer.clean_close(),
        transient: writer.transient(),
    }
}

fn kept_fence(fence: &fb::KeptFence<'_>) -> KeptFence {
    KeptFence {
        id: WalId(fence.id()),
        epoch: Epoch(fence.epoch()),
        next_id: WalId(fence.next_id()),
    }
}

fn tables<'a>(
    tables: Vector<'a, ForwardsUOffset<fb::SstDescriptor<'a>>>,
) -> Result<Vec<SstDescriptor>> {
    list(Some(tables), |each| table(&each))
}

pub(crate) fn table(table: &fb::SstDescriptor<'_>) -> Result<SstDescriptor> {
    let range_deletes = match (table.range_deletes_offset(), table.range_deletes_bytes()) {
        (Some(offset), Some(bytes)) => Some((offset, bytes)),
        (None, None) => None,
        _ => return Err(Error::corruption("the position of range deletes is incomplete")),
    };
    let sum = match (table.sum(), table.sum_kind()) {
        (Some(sum), Some(kind)) if kind > 0 => Some(EntrySum { kind, bits: bits(sum) }),
        (None, None) => None,
        _ => return Err(Error::corruption("the sum over a table's entries is incomplete")),
    };
    Ok(SstDescriptor {
        id: SstId(bits(table.id())),
        location: table.ancestor().map_or(SstLocation::Own, SstLocation::Ancestor),
        job: table.job().map(|job| JobId(bits(job))),
        object_bytes: table.object_bytes(),
        checksum: table.checksum(),
        tail_offset: table.tail_offset(),
        first_key: Bytes::copy_from_slice(table.first_key().bytes()),
        last_key: Bytes::copy_from_slice(table.last_key().bytes()),
        visible_start: byte_list(table.visible_start()),
        visible_end: byte_list(table.visible_end()),
        seq_override: table.seq_override().map(Seq),
        entries: table.entries(),
        tombstones: table.tombstones(),
        min_seq: Seq(table.min_seq()),
        max_seq: Seq(table.max_seq()),
        min_expiry: table.min_expiry().map(UnixMillis),
        max_expiry: table.max_expiry().map(UnixMillis),
        range_deletes,
        sum,
    })
}

fn checkpoint(checkpoint: &fb::Checkpoint<'_>) -> Result<Checkpoint> {
    Ok(Checkpoint {
        id: CheckpointId(bits(checkpoint.id())),
        manifest_id: ManifestId(checkpoint.manifest_id()),
        manifest_attempt: AttemptId(checkpoint.manifest_attempt().map_or(0, bits)),
        replay_from: WalId(checkpoint.replay_from()),
        wal_id_last_seen: WalId(checkpoint.wal_id_last_seen()),
        created_at: UnixMillis(checkpoint.created_at()),
        expires_at: checkpoint.expires_at().map(UnixMillis),
        source: checkpoint.source().map(|id| CheckpointId(bits(id))),
        owner: owner(checkpoint)?,
        name: checkpoint.name().map(str::to_owned),
        metadata: list(checkpoint.metadata(), |fact| {
            Ok((fact.name().to_owned(), fact.value().to_owned()))
        })?,
    })
}

fn owner(checkpoint: &fb::Checkpoint<'_>) -> Result<CheckpointOwner> {
    let half = || Error::corruption("the owner of a checkpoint is incomplete");
    match checkpoint.owner() {
        fb::CheckpointOwner::User => Ok(CheckpointOwner::User),
        fb::CheckpointOwner::Writer => {
            checkpoint.owner_epoch().map(|id| CheckpointOwner::Writer(Epoch(id))).ok_or_else(half)
        }
        fb::CheckpointOwner::Reader => Ok(CheckpointOwner::Reader),
        fb::CheckpointOwner::Clone => checkpoint
            .owner_database()
            .map(|id| CheckpointOwner::Clone(DatabaseId(bits(id))))
            .ok_or_else(half),
        unknown => Ok(CheckpointOwner::Other {
            kind: unknown.0,
            epoch: checkpoint.owner_epoch().map(Epoch),
            database: checkpoint.owner_database().map(|id| DatabaseId(bits(id))),
        }),
    }
}
