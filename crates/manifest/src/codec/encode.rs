//! Encoding: from the state to the FlatBuffers body.

use super::shared;
use crate::state::{
    Ancestor, Checkpoint, CheckpointOwner, FinishedJob, KeptFence, L0Entry, Manifest, Settings,
    SortedRun, WriterRecord,
};
use bytes::Bytes;
use flatbuffers::{FlatBufferBuilder, ForwardsUOffset, Vector, WIPOffset};
use siltstone_base::sst::SstLocation;
use siltstone_base::{AttemptId, ManifestId, SstDescriptor, SstId, WalStore};
use siltstone_fbs::manifest as fb;

pub(crate) type Builder = FlatBufferBuilder<'static>;
pub(crate) type Offset<T> = WIPOffset<T>;
pub(crate) type TableList<T> = WIPOffset<Vector<'static, ForwardsUOffset<T>>>;
pub(crate) type ByteList = WIPOffset<Vector<'static, u8>>;

/// Maximum bytes of one table without its strings and byte lists, including the offset that points
/// to it and padding: SstDescriptor has 21 fields of at most 16 bytes and a vtable of 46 bytes. The
/// root has more fields and a limit of its own.
pub(crate) const TABLE_BYTES_AT_MOST: u64 = 400;
/// The same limit for the root.
const ROOT_BYTES_AT_MOST: u64 = 1024;
/// Overhead of a string or byte list: its length, a zero and padding.
pub(super) const LIST_BYTES: u64 = 16;

/// An upper bound for the size of [`body`]. The builder panics at 2 GiB, so every caller must check
/// this bound first.
pub(super) fn body_bytes_at_most(manifest: &Manifest) -> u64 {
    let text = |text: &str| text.len() as u64 + LIST_BYTES;
    let bytes = |bytes: &Bytes| bytes.len() as u64 + LIST_BYTES;
    let tables = manifest.tables().map(|table| {
        let keys = [
            Some(&table.first_key),
            Some(&table.last_key),
            table.visible_start.as_ref(),
            table.visible_end.as_ref(),
        ];
        TABLE_BYTES_AT_MOST + keys.into_iter().flatten().map(bytes).sum::<u64>()
    });
    let checkpoints = manifest.checkpoints.iter().map(|checkpoint| {
        let facts = checkpoint.metadata.iter();
        let facts: u64 =
            facts.map(|(name, value)| TABLE_BYTES_AT_MOST + text(name) + text(value)).sum();
        TABLE_BYTES_AT_MOST + checkpoint.name.as_deref().map_or(0, text) + facts
    });
    let ancestors =
        manifest.ancestors.iter().map(|each| TABLE_BYTES_AT_MOST + text(&each.location));
    let settings = &manifest.settings;
    let names = [
        Some(settings.codec.as_str()),
        Some(settings.filter.as_str()),
        settings.merge_operator.as_deref(),
        settings.key_schema.as_deref(),
    ];
    let plain = manifest.writers.len()
        + manifest.reserved.len()
        + manifest.kept_fences.len()
        + manifest.l0.len()
        + manifest.left.len()
        + manifest.runs.len()
        + manifest.finished_jobs.len();
    let store = manifest.wal_store.as_ref().and_then(|store| store.location.as_deref());
    // Two more tables: the settings and the WAL store.
    ROOT_BYTES_AT_MOST
        + TABLE_BYTES_AT_MOST * (plain as u64 + 2)
        + shared::bytes_at_most(manifest)
        + store.map_or(0, text)
        + tables.sum::<u64>()
        + checkpoints.sum::<u64>()
        + ancestors.sum::<u64>()
        + names.into_iter().flatten().map(text).sum::<u64>()
        + manifest.schema.as_ref().map_or(0, bytes)
}

/// The FlatBuffers body.
pub(super) fn body(manifest: &Manifest) -> Vec<u8> {
    let mut builder = Builder::new();
    let b = &mut builder;
    let l0_last_compacted = manifest.l0_last_compacted.map(|id| id128(id.get()));
    let request = manifest.request.map(|id| id128(id.get()));
    let args = fb::ManifestArgs {
        id: manifest.id.get(),
        initialized: manifest.initialized,
        destroyed_at: manifest.destroyed_at.map(|at| at.0),
        settings: Some(settings(b, &manifest.settings)),
        schema: manifest.schema.as_ref().map(|schema| b.create_vector(schema)),
        ancestors: list(b, &manifest.ancestors, ancestor),
        last_ancestor: manifest.last_ancestor,
        request: request.as_ref(),
        wal_store: manifest.wal_store.as_ref().map(|store| wal_store(b, store)),
        features: list(b, &manifest.features.named, shared::feature),
        extensions: list(b, &manifest.features.extensions, shared::extension),
        writer_epoch: manifest.writer_epoch.get(),
        writers: list(b, &manifest.writers, writer),
        widest_window: manifest.widest_window,
        reserved: names(b, &manifest.reserved),
        left: names(b, &manifest.left),
        floor: manifest.floor.get(),
        replay_from: manifest.replay_from.get(),
        wal_id_last_seen: manifest.wal_id_last_seen.get(),
        flushed_seq: manifest.flushed_seq.get(),
        commit_time: manifest.commit_time.0,
        kept_fences: list(b, &manifest.kept_fences, kept_fence),
        last_l0_order: manifest.last_l0_order,
        l0: list(b, &manifest.l0, l0_entry),
        l0_last_compacted: l0_last_compacted.as_ref(),
        runs: list(b, &manifest.runs, sorted_run),
        tables_since: manifest.tables_since.get(),
        compactor_epoch: manifest.compactor_epoch.get(),
        compactor_claim: Some(&id128(manifest.compactor_claim.get())),
        finished_jobs: list(b, &manifest.finished_jobs, finished_job),
        checkpoints: list(b, &manifest.checkpoints, |b, one| checkpoint(b, one, manifest.id)),
        leases: list(b, &manifest.leases, |b, one| shared::lease(b, one, manifest.id)),
        since_leases: list(b, &manifest.since_leases, shared::since_lease),
        holds: list(b, &manifest.holds, shared::hold),
        timelines: list(b, &manifest.timelines, shared::timeline),
        pending_ingests: list(b, &manifest.pending_ingests, shared::pending_ingest),
        remembered_ingests: list(b, &manifest.remembered_ingests, shared::remembered_ingest),
        ingest_apps: list(b, &manifest.ingest_apps, shared::ingest_app),
        ingest_horizon: manifest.ingest_horizon.0,
    };
    let root = fb::Manifest::create(b, &args);
    b.finish(root, None);
    b.finished_data().to_vec()
}

pub(crate) fn id128(bits: u128) -> fb::Id128 {
    fb::Id128::new((bits >> 64) as u64, bits as u64)
}

/// A vector of tables; an empty one is omitted.
pub(crate) fn list<S, T>(
    b: &mut Builder,
    items: &[S],
    one: impl Fn(&mut Builder, &S) -> Offset<T>,
) -> Option<TableList<T>> {
    if items.is_empty() {
        return None;
    }
    let offsets: Vec<Offset<T>> = items.iter().map(|item| one(b, item)).collect();
    Some(WIPOffset::new(b.create_vector(&offsets).value()))
}

pub(crate) fn names(
    b: &mut Builder,
    ids: &[SstId],
) -> Option<WIPOffset<Vector<'static, fb::Id128>>> {
    if ids.is_empty() {
        return None;
    }
    let ids: Vec<fb::Id128> = ids.iter().map(|id| id128(id.get())).collect();
    Some(WIPOffset::new(b.create_vector(&ids).value()))
}

pub(crate) fn byte_list(b: &mut Builder, bytes: &Bytes) -> ByteList {
    b.create_vector(bytes)
}

fn settings(b: &mut Builder, settings: &Settings) -> Offset<fb::Settings<'static>> {
    let codec = b.create_string(&settings.codec);
    let filter = b.create_string(&settings.filter);
    let merge_operator = settings.merge_operator.as_ref().map(|name| b.create_string(name));
    let key_schema = settings.key_schema.as_ref().map(|name| b.create_string(name));
    let args =
        fb::SettingsArgs { codec: Some(codec), filter: Some(filter), merge_operator, key_schema };
    fb::Settings::create(b, &args)
}

fn ancestor(b: &mut Builder, ancestor: &Ancestor) -> Offset<fb::Ancestor<'static>> {
    let location = b.create_string(&ancestor.location);
    let args = fb::AncestorArgs {
        database: Some(&id128(ancestor.database.get())),
        location: Some(location),
        checkpoint: Some(&id128(ancestor.checkpoint.get())),
        number: ancestor.number,
    };
    fb::Ancestor::create(b, &args)
}

fn wal_store(b: &mut Builder, store: &WalStore) -> Offset<fb::WalStore<'static>> {
    let location = store.location.as_ref().map(|location| b.create_string(location));
    let args = fb::WalStoreArgs { id: Some(&id128(store.id.get())), location };
    fb::WalStore::create(b, &args)
}

fn writer(b: &mut Builder, writer: &WriterRecord) -> Offset<fb::WriterRecord<'static>> {
    let args = fb::WriterRecordArgs {
        epoch: writer.epoch.get(),
        claim: Some(&id128(writer.claim.get())),
        max_parallel_writes: writer.max_parallel_writes,
        clean_close: writer.clean_close,
        transient: writer.transient,
    };
    fb::WriterRecord::create(b, &args)
}

fn kept_fence(b: &mut Builder, fence: &KeptFence) -> Offset<fb::KeptFence<'static>> {
    let args = fb::KeptFenceArgs {
        id: fence.id.get(),
        epoch: fence.epoch.get(),
        next_id: fence.next_id.get(),
    };
    fb::KeptFence::create(b, &args)
}

pub(crate) fn table(b: &mut Builder, table: &SstDescriptor) -> Offset<fb::SstDescriptor<'static>> {
    let job = table.job.map(|job| id128(job.get()));
    let sum = table.sum.map(|sum| id128(sum.bits));
    let args = fb::SstDescriptorArgs {
        id: Some(&id128(table.id.get())),
        ancestor: match table.location {
            SstLocation::Own => None,
            SstLocation::Ancestor(number) => Some(number),
        },
        job: job.as_ref(),
        object_bytes: table.object_bytes,
        checksum: table.checksum,
        tail_offset: table.tail_offset,
        first_key: Some(byte_list(b, &table.first_key)),
        last_key: Some(byte_list(b, &table.last_key)),
        visible_start: table.visible_start.as_ref().map(|key| byte_list(b, key)),
        visible_end: table.visible_end.as_ref().map(|key| byte_list(b, key)),
        seq_override: table.seq_override.map(|seq| seq.get()),
        entries: table.entries,
        tombstones: table.tombstones,
        min_seq: table.min_seq.get(),
        max_seq: table.max_seq.get(),
        min_expiry: table.min_expiry.map(|at| at.0),
        max_expiry: table.max_expiry.map(|at| at.0),
        range_deletes_offset: table.range_deletes.map(|(offset, _)| offset),
        range_deletes_bytes: table.range_deletes.map(|(_, bytes)| bytes),
        sum: sum.as_ref(),
        sum_kind: table.sum.map(|sum| sum.kind),
    };
    fb::SstDescriptor::create(b, &args)
}

fn l0_entry(b: &mut Builder, entry: &L0Entry) -> Offset<fb::L0Entry<'static>> {
    let offsets: Vec<_> = entry.tables.iter().map(|each| table(b, each)).collect();
    let tables = WIPOffset::new(b.create_vector(&offsets).value());
    fb::L0Entry::create(b, &fb::L0EntryArgs { order: entry.order, tables: Some(tables) })
}

fn sorted_run(b: &mut Builder, run: &SortedRun) -> Offset<fb::SortedRun<'static>> {
    let offsets: Vec<_> = run.tables.iter().map(|each| table(b, each)).collect();
    let tables = WIPOffset::new(b.create_vector(&offsets).value());
    fb::SortedRun::create(b, &fb::SortedRunArgs { id: run.id, tables: Some(tables) })
}

fn finished_job(b: &mut Builder, job: &FinishedJob) -> Offset<fb::FinishedJob<'static>> {
    let args = fb::FinishedJobArgs { job: Some(&id128(job.job.get())), epoch: job.epoch.get() };
    fb::FinishedJob::create(b, &args)
}

/// The attempt that wrote a pinned manifest; omitted if it is the manifest that contains the pin.
pub(super) fn attempt_of(id: ManifestId, attempt: AttemptId, own: ManifestId) -> Option<fb::Id128> {
    (id != own && !attempt.is_none()).then(|| id128(attempt.get()))
}

fn checkpoint(
    b: &mut Builder,
    checkpoint: &Checkpoint,
    own: ManifestId,
) -> Offset<fb::Checkpoint<'static>> {
    let (owner, owner_epoch, owner_database) = match checkpoint.owner {
        CheckpointOwner::User => (fb::CheckpointOwner::User, None, None),
        CheckpointOwner::Writer(epoch) => (fb::CheckpointOwner::Writer, Some(epoch.get()), None),
        CheckpointOwner::Reader => (fb::CheckpointOwner::Reader, None, None),
        CheckpointOwner::Clone(database) => {
            (fb::CheckpointOwner::Clone, None, Some(id128(database.get())))
        }
        CheckpointOwner::Other { kind, epoch, database } => {
            let database = database.map(|id| id128(id.get()));
            (fb::CheckpointOwner(kind), epoch.map(|epoch| epoch.get()), database)
        }
    };
    let attempt = attempt_of(checkpoint.manifest_id, checkpoint.manifest_attempt, own);
    let source = checkpoint.source.map(|id| id128(id.get()));
    let name = checkpoint.name.as_ref().map(|name| b.create_string(name));
    let metadata = list(b, &checkpoint.metadata, |b, (name, value)| {
        let name = b.create_string(name);
        let value = b.create_string(value);
        fb::Fact::create(b, &fb::FactArgs { name: Some(name), value: Some(value) })
    });
    let args = fb::CheckpointArgs {
        id: Some(&id128(checkpoint.id.get())),
        manifest_id: checkpoint.manifest_id.get(),
        manifest_attempt: attempt.as_ref(),
        replay_from: checkpoint.replay_from.get(),
        wal_id_last_seen: checkpoint.wal_id_last_seen.get(),
        created_at: checkpoint.created_at.0,
        expires_at: checkpoint.expires_at.map(|at| at.0),
        source: source.as_ref(),
        owner,
        owner_epoch,
        owner_database: owner_database.as_ref(),
        name,
        metadata,
    };
    fb::Checkpoint::create(b, &args)
}
