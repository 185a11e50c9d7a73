//! From the FlatBuffers body to the state.

use crate::invariant;
use crate::state::{
    AdoptedIngest, Ancestor, Checkpoint, CheckpointOwner, FinishedJob, KeptFence, L0Entry,
    Manifest, PendingIngest, Settings, SortedRun, WriterRecord,
};
use bytes::Bytes;
use flatbuffers::{Follow, ForwardsUOffset, Vector, VerifierOptions};
use siltstone_base::sst::SstLocation;
use siltstone_base::{
    AttemptId, CheckpointId, DatabaseId, Epoch, Error, JobId, ManifestId, Result, Seq,
    SstDescriptor, SstId, UnixMillis, WalId,
};
use siltstone_fbs::manifest as fb;

/// Root, run, table: nothing in the schema lies deeper; room for what later versions append.
const MAX_DEPTH: usize = 16;
/// Smallest table: a 4-byte offset to its vtable, and 4 bytes of whoever points at it. So this
/// many never refuse an honest manifest, and a hostile one that points at one table again and
/// again stops here.
const MIN_TABLE_BYTES: usize = 8;
/// The verifier counts a table's vtable and each field's offset with the table, though tables of
/// one shape share their vtable: an SstDescriptor of 100 bytes counts for about 200. Eight times
/// the body refuses no honest manifest and bounds what this decoder allocates.
const APPARENT_FACTOR: usize = 8;

/// The verifier's limits for a body of `length` bytes: its defaults would stop at a million
/// tables or two gigabytes whatever the length.
pub(crate) fn limits(length: usize) -> VerifierOptions {
    VerifierOptions {
        max_depth: MAX_DEPTH,
        max_tables: length / MIN_TABLE_BYTES,
        max_apparent_size: length.saturating_mul(APPARENT_FACTOR),
        ..VerifierOptions::default()
    }
}

/// Reads the body of a manifest of `database`.
pub(super) fn body(bytes: &[u8], database: DatabaseId) -> Result<Manifest> {
    let root = fb::root_as_manifest_with_opts(&limits(bytes.len()), bytes)
        .map_err(|invalid| Error::corruption("not a manifest's body").caused_by(invalid))?;
    let manifest = Manifest {
        id: ManifestId(root.id()),
        database,
        initialized: root.initialized(),
        destroyed_at: root.destroyed_at().map(UnixMillis),
        settings: settings(&root.settings()),
        schema: byte_list(root.schema()),
        ancestors: list(root.ancestors(), |each| Ok(ancestor(&each)))?,
        writer_epoch: Epoch(root.writer_epoch()),
        writers: list(root.writers(), |each| Ok(writer(&each)))?,
        widest_window: root.widest_window(),
        reserved: root.reserved().iter().flatten().map(|id| SstId(bits(id))).collect(),
        floor: Seq(root.floor()),
        replay_from: WalId(root.replay_from()),
        wal_id_last_seen: WalId(root.wal_id_last_seen()),
        flushed_seq: Seq(root.flushed_seq()),
        kept_fences: list(root.kept_fences(), |each| Ok(kept_fence(&each)))?,
        last_l0_order: root.last_l0_order(),
        l0: list(root.l0(), |each| {
            Ok(L0Entry { order: each.order(), tables: tables(each.tables())? })
        })?,
        l0_last_compacted: root.l0_last_compacted().map(|id| SstId(bits(id))),
        runs: list(root.runs(), |each| {
            Ok(SortedRun { id: each.id(), tables: tables(each.tables())? })
        })?,
        compactor_epoch: Epoch(root.compactor_epoch()),
        compactor_claim: AttemptId(root.compactor_claim().map_or(0, bits)),
        finished_jobs: list(root.finished_jobs(), |each| {
            Ok(FinishedJob { job: JobId(bits(each.job())), epoch: Epoch(each.epoch()) })
        })?,
        checkpoints: list(root.checkpoints(), |each| checkpoint(&each))?,
        pending_ingests: list(root.pending_ingests(), |each| {
            let requested_at = UnixMillis(each.requested_at());
            Ok(PendingIngest { job: JobId(bits(each.job())), requested_at })
        })?,
        adopted_ingests: list(root.adopted_ingests(), |each| {
            Ok(AdoptedIngest { job: JobId(bits(each.job())), seq: Seq(each.seq()) })
        })?,
    };
    invariant::check_decoded(&manifest)?;
    Ok(manifest)
}

pub(crate) fn bits(id: &fb::Id128) -> u128 {
    (u128::from(id.high()) << 64) | u128::from(id.low())
}

/// Every item of a vector of tables; none when it is missing.
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
        database: DatabaseId(bits(ancestor.database())),
        location: ancestor.location().to_owned(),
        checkpoint: CheckpointId(bits(ancestor.checkpoint())),
    }
}

fn writer(writer: &fb::WriterRecord<'_>) -> WriterRecord {
    WriterRecord {
        epoch: Epoch(writer.epoch()),
        claim: AttemptId(bits(writer.claim())),
        max_parallel_writes: writer.max_parallel_writes(),
        clean_close: writer.clean_close(),
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
        _ => return Err(Error::corruption("half a place of range deletes")),
    };
    Ok(SstDescriptor {
        id: SstId(bits(table.id())),
        location: table.ancestor().map_or(SstLocation::Own, SstLocation::Ancestor),
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
    })
}

fn checkpoint(checkpoint: &fb::Checkpoint<'_>) -> Result<Checkpoint> {
    Ok(Checkpoint {
        id: CheckpointId(bits(checkpoint.id())),
        manifest_id: ManifestId(checkpoint.manifest_id()),
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
    let half = || Error::corruption("a checkpoint's owner is not said in full");
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
        unknown => Err(Error::unsupported(
            "a checkpoint has an owner that this version of Siltstone does not know; upgrade",
        )
        .with("owner", unknown.0)),
    }
}
