//! The table of the engine's own options: name, kind, range and meaning.

use super::{OptionInfo, OptionKind};
use siltstone_base::limits::{MAX_BATCH_BYTES, MAX_PARALLEL_WRITES};
use siltstone_manifest::compaction::CompactionOptions;

const GIB: f64 = (1u64 << 30) as f64;

const fn info(
    name: &'static str,
    kind: OptionKind,
    min: f64,
    max: f64,
    doc: &'static str,
) -> OptionInfo {
    OptionInfo { name, kind, min, max, doc, line: None }
}

/// Names that stood at the top before their group did.
const MOVED: [(&str, &str); 8] = [
    ("compactor_poll_interval", "compactors.poll_interval"),
    ("worker_timeout", "compactors.worker_timeout"),
    ("checkpoint_lifetime", "readers.checkpoint_lifetime"),
    ("gc_interval", "gc.interval"),
    ("min_age", "gc.min_age"),
    ("max_garbage_bytes", "gc.max_garbage_bytes"),
    ("transaction_window_bytes", "writes.transaction_window_bytes"),
    ("wal_enabled", "writes.wal_enabled"),
];

/// Where the option is that once had this name.
pub(super) fn place_of(name: &str) -> Option<&'static str> {
    let own = MOVED.iter().find(|(before, _)| *before == name).map(|(_, place)| *place);
    own.or_else(|| CompactionOptions::place_of(name))
}

/// Every option but those of compaction.
pub(super) const TABLE: &[OptionInfo] = &[
    info(
        "flush_interval",
        OptionKind::Duration,
        0.0,
        3600.0,
        "Longest time a write waits in memory before its WAL object is sent. Shorter loses \
         less when the process is killed and costs more PUTs; a write that a caller \
         waits for is sent at once.",
    ),
    info(
        "flush_bytes",
        OptionKind::Bytes,
        1.0,
        GIB,
        "Bytes of buffered writes that send a WAL object at once. An object holds at most four \
         times as many, or one batch where that alone is larger: lower it for a link so slow that \
         16 MiB take minutes.",
    ),
    info(
        "max_parallel_writes",
        OptionKind::Count,
        1.0,
        MAX_PARALLEL_WRITES as f64,
        "WAL objects in flight at a time. More hides a slow store's latency; a take-over skips \
         as many WAL ids.",
    ),
    info(
        "max_wal_puts_per_second",
        OptionKind::Rate,
        0.01,
        100_000.0,
        "Ceiling on WAL PUTs per second, to bound their price; off by default. As an object holds \
         four times `flush_bytes` at most, it bounds bytes as well.",
    ),
    info(
        "l0_sst_size_bytes",
        OptionKind::Bytes,
        1024.0,
        4.0 * GIB,
        "Size at which the memtable is frozen and flushed to a table in L0.",
    ),
    info(
        "l0_manifest_commit_interval",
        OptionKind::Duration,
        0.0,
        3600.0,
        "Shortest time between two manifest commits of flushes; flushed tables wait in memory \
         until then and go in together.",
    ),
    info(
        "max_memtable_bytes",
        OptionKind::Bytes,
        4096.0,
        64.0 * GIB,
        "Bytes accepted but not yet in tables from which on writes wait (back-pressure). They are \
         slowed from three quarters of it on. A reader holds as many of the log; where there is \
         more it says Invalid.",
    ),
    info(
        "manifest_poll_interval",
        OptionKind::Duration,
        0.001,
        3600.0,
        "How often a reader looks for newer data, and a writer under load looks whether it was \
         fenced. None: every second; a reader that has found nothing for a minute looks after a \
         twentieth of the time without a change, from 4.5 to 45 seconds, until it finds one.",
    ),
    info(
        "reader_lease",
        OptionKind::Bool,
        0.0,
        1.0,
        "Whether a reader leases the tables that it reads, so that no collector deletes them. \
         Readers share leases: one of them renews each half of a lease's life. Without a lease \
         nothing is written, and a scan whose table was collected raises Expired.",
    ),
    info(
        "readers.checkpoint_lifetime",
        OptionKind::Duration,
        0.001,
        31_536_000.0,
        "Longest life of a lease on one state, which long scans and databases at rest use. More \
         than twice manifest_poll_interval. Leases on what changes last four poll intervals, \
         from 20 seconds to a minute, and never longer than this.",
    ),
    info(
        "readers.max_staleness",
        OptionKind::Duration,
        0.001,
        31_536_000.0,
        "How old what a following reader reads may be: a read that comes longer after the last \
         look that found everything durable looks first, with four requests, and raises what that \
         raises. None: no bound.",
    ),
    info(
        "readers.follow_restores",
        OptionKind::Bool,
        0.0,
        1.0,
        "Whether a following reader continues with the restored state after a restore. Otherwise \
         it ends there, so that no caller goes back in time unnoticed.",
    ),
    info(
        "max_batch_bytes",
        OptionKind::Bytes,
        1024.0,
        MAX_BATCH_BYTES as f64,
        "Largest batch. A batch is atomic and lies in one WAL object.",
    ),
    info(
        "writes.wal_enabled",
        OptionKind::Bool,
        0.0,
        1.0,
        "Whether writes go to the WAL. Off, for a database that is only filled: rows are written \
         once, as tables, and a write is durable once its memtable is flushed. A wait for \
         durability flushes at once; a crash loses what was not flushed. Such a writer takes no \
         loads and ingest jobs, and its rows are not in the change feed.",
    ),
    info(
        "writes.skip_memtable_bytes",
        OptionKind::Bytes,
        1.0,
        MAX_BATCH_BYTES as f64,
        "Bytes from which on a batch is uploaded as a table before it is accepted: the log names \
         that, and the memtable holds nothing of it, so each byte is written once instead of \
         twice. The write waits for the upload. Batches with merge operands or range deletes, and \
         those of transactions, go through the memtable. None: all do.",
    ),
    info(
        "writes.ingest_poll_interval",
        OptionKind::Duration,
        0.001,
        86_400.0,
        "How often a writer that does nothing else looks for ingest jobs that other processes ask \
         for, with one request; one that writes finds them within a second. None: never, so they \
         wait for its next write.",
    ),
    info(
        "writes.transaction_window_bytes",
        OptionKind::Bytes,
        262_144.0,
        64.0 * GIB,
        "Memory for the keys that were written since the oldest open transaction began; where none \
         is open, none is taken. Over it the oldest are forgotten, and a transaction that began \
         before them gets Conflict if it commits writes.",
    ),
    info(
        "block_bytes",
        OptionKind::Bytes,
        64.0,
        16_777_216.0,
        "Target size of a block of a table: the unit of cold reads and of the block cache.",
    ),
    info(
        "compression",
        OptionKind::Text,
        0.0,
        0.0,
        "Codec of the blocks of new tables: none, lz4 or zstd. Every block says its own, so it \
         may change from one opening to the next. None: lz4 in an object store, where half the \
         bytes are half the time and the money; none in a folder and in memory, where a block \
         that is not cached costs less to copy than to unpack.",
    ),
    info(
        "filter_bits_per_key",
        OptionKind::Count,
        0.0,
        64.0,
        "Bloom filter bits per key of new tables; 10 let about 1 % of absent keys through.",
    ),
    info("block_cache_bytes", OptionKind::Bytes, 0.0, 1024.0 * GIB, "Memory for decoded blocks."),
    info(
        "metadata_cache_bytes",
        OptionKind::Bytes,
        0.0,
        1024.0 * GIB,
        "Memory for indexes and filters of tables.",
    ),
    info(
        "disk_cache_path",
        OptionKind::Path,
        0.0,
        0.0,
        "Folder on a local disk that caches parts of tables of object stores, as they are stored. \
         Handles and processes may share it, and it survives restarts. Its files can be read by \
         this user alone. It is not used for databases in folders and in memory. None: no cache.",
    ),
    info(
        "disk_cache_bytes",
        OptionKind::Bytes,
        4_194_304.0,
        65536.0 * GIB,
        "Bytes that the folder of the disk cache may take; parts that were used longest ago go \
         first. Each further process that writes to the folder may add a 64th for a while. None: \
         16 GiB.",
    ),
    info(
        "disk_cache_mirror",
        OptionKind::Keys,
        0.0,
        0.0,
        "Keys whose tables the disk cache keeps whole: \"all\", or the bounds of a range. The \
         handle fetches these tables in the background, and then the new tables of each \
         compaction and flush, as far as they fit in disk_cache_bytes. None: the cache keeps what \
         was read.",
    ),
    info(
        "read_durable_only",
        OptionKind::Bool,
        0.0,
        1.0,
        "Whether this writer's reads, scans and snapshots see only what is durable; by default \
         they see everything accepted.",
    ),
    info(
        "embedded_compactor",
        OptionKind::Bool,
        0.0,
        1.0,
        "Whether the writer compacts in the background, in its own process. Off, tables pile \
         up in L0 until compact() is called or another compactor comes; writes wait once there are \
         l0_max_ssts.",
    ),
    info(
        "embedded_gc",
        OptionKind::Bool,
        0.0,
        1.0,
        "Whether the writer deletes unreferenced objects in the background. Off, \
         garbage stays until `gc` or `run-gc` is called.",
    ),
    info(
        "gc.interval",
        OptionKind::Duration,
        0.001,
        31_536_000.0,
        "Time between two looks for garbage. A look costs the writer nothing, and a collector \
         without a writer five requests; a round is some twenty and the deletes.",
    ),
    info(
        "gc.min_age",
        OptionKind::Duration,
        0.0,
        31_536_000.0,
        "Grace period: what was stored, or superseded, later than this ago by the store's \
         clock is not collected. Nothing that anybody names depends on it; it gives readers \
         without a checkpoint time to finish, and people time to look at older manifests.",
    ),
    info(
        "gc.max_garbage_bytes",
        OptionKind::Bytes,
        0.0,
        1024.0 * GIB,
        "Bytes of garbage in tables and the WAL from which on the writer's collector frees the \
         oldest though they are younger than gc.min_age. By default a quarter of the tables' \
         bytes, at least 256 MiB. Less keeps a disk emptier; a reader without a checkpoint that \
         is slower than so much is written begins again at the newest version, or gets Expired.",
    ),
    info(
        "gc.db_delete_grace",
        OptionKind::Duration,
        0.0,
        315_360_000.0,
        "For so long after a soft destroy everything is left as it is; then, once no checkpoint \
         and no lease is left either, a collector removes the database. A destroy that is not \
         soft does not wait.",
    ),
    info(
        "compactors.poll_interval",
        OptionKind::Duration,
        0.001,
        3600.0,
        "How often a compactor in a process of its own looks for a newer manifest, and a worker \
         for work. While there is none the pause grows to eight times as much. A writer's own \
         compactor goes by both to tell when the one that stopped it is dead.",
    ),
    info(
        "compactors.worker_timeout",
        OptionKind::Duration,
        0.01,
        86_400.0,
        "A range of a compaction whose worker gave no sign of life for so long is taken by \
         another; signs are given three times as often. Shorter loses less time to a dead \
         worker, longer costs fewer requests.",
    ),
    info(
        "deadline",
        OptionKind::Duration,
        0.001,
        86_400.0,
        "Longest time a call may take before it raises Timeout. A write whose wait timed out \
         goes on, and may still become durable.",
    ),
];
