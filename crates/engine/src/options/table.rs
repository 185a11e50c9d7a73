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

/// The present name of an option that had the name `name` before.
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
        "Maximum time that a write waits in memory before its WAL object is sent. A shorter time \
         loses less when the process is killed and costs more PUTs. A write that a caller waits \
         for is sent immediately.",
    ),
    info(
        "flush_bytes",
        OptionKind::Bytes,
        1.0,
        GIB,
        "Buffered writes of this size are sent immediately, as a WAL object. An object has at \
         most four times this size, or one batch that is larger. Lower it for a link so slow that \
         16 MiB take minutes.",
    ),
    info(
        "max_parallel_writes",
        OptionKind::Count,
        1.0,
        MAX_PARALLEL_WRITES as f64,
        "Maximum number of WAL objects in flight. A higher value hides the latency of a slow \
         store; a take-over skips as many WAL ids.",
    ),
    info(
        "max_wal_puts_per_second",
        OptionKind::Rate,
        0.01,
        100_000.0,
        "Maximum rate of WAL PUTs, to limit their price; off by default. An object has at most \
         four times `flush_bytes`, so the rate limits bytes as well. It must allow more than one \
         PUT per `deadline`; a close does not wait for it.",
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
        "Minimum time between two manifest commits of flushes. Tables that are flushed meanwhile \
         wait in memory and are committed together.",
    ),
    info(
        "max_memtable_bytes",
        OptionKind::Bytes,
        4096.0,
        64.0 * GIB,
        "Accepted bytes that are not in tables yet: at this limit writes wait (back-pressure), \
         and from three quarters of it on they are slowed. A reader holds at most as many bytes \
         of the log; if there are more, it raises Invalid.",
    ),
    info(
        "manifest_poll_interval",
        OptionKind::Duration,
        0.001,
        3600.0,
        "How often a reader looks for newer data, and a writer under load checks whether it was \
         fenced. None: every second; after a minute without new data, a reader waits a twentieth \
         of the time without a change, from 4.5 to 45 seconds, until it finds one.",
    ),
    info(
        "reader_lease",
        OptionKind::Bool,
        0.0,
        1.0,
        "Whether a reader leases the tables that it reads, so that no collector deletes them. \
         Readers share leases: at each half of a lease's life one of them renews it. A reader \
         without a lease writes nothing, and its scan raises Expired if a table was collected.",
    ),
    info(
        "readers.checkpoint_lifetime",
        OptionKind::Duration,
        0.001,
        31_536_000.0,
        "Maximum life of a lease on one state; long scans and idle databases use such leases. \
         More than twice manifest_poll_interval. Leases on a changing state last four poll \
         intervals, from 20 seconds to a minute, and never longer than this.",
    ),
    info(
        "readers.max_staleness",
        OptionKind::Duration,
        0.001,
        31_536_000.0,
        "Maximum staleness of a following reader. If its last complete refresh is older, a read \
         refreshes first, with four requests, and raises any error of that refresh. None: no \
         bound.",
    ),
    info(
        "readers.follow_restores",
        OptionKind::Bool,
        0.0,
        1.0,
        "Whether a following reader continues with the restored state after a restore. If not, \
         the reader ends, so that no caller goes back in time unnoticed.",
    ),
    info(
        "max_batch_bytes",
        OptionKind::Bytes,
        1024.0,
        MAX_BATCH_BYTES as f64,
        "Maximum size of a batch. A batch is atomic and is stored in one WAL object.",
    ),
    info(
        "writes.wal_enabled",
        OptionKind::Bool,
        0.0,
        1.0,
        "Whether writes go to the WAL. Turn it off for a database that is only filled: rows are \
         written once, as tables, and a write is durable once its memtable is flushed. A wait for \
         durability flushes immediately; a crash loses what was not flushed. Such a writer \
         accepts no loads and ingest jobs, and its rows are not in the change feed.",
    ),
    info(
        "writes.skip_memtable_bytes",
        OptionKind::Bytes,
        1.0,
        MAX_BATCH_BYTES as f64,
        "A batch of at least this size is uploaded as a table before it is accepted. The log \
         refers to the table and the memtable is bypassed, so each byte is written once instead \
         of twice. The write waits for the upload. Batches with merge operands or range deletes, \
         and those of transactions, always go through the memtable. None: all batches do.",
    ),
    info(
        "writes.ingest_poll_interval",
        OptionKind::Duration,
        0.001,
        86_400.0,
        "How often an idle writer looks for ingest jobs that other processes request, with one \
         request. A writer that writes finds them within a second. None: never, so they wait for \
         its next write.",
    ),
    info(
        "writes.transaction_window_bytes",
        OptionKind::Bytes,
        262_144.0,
        64.0 * GIB,
        "Memory for the keys that were written since the oldest open transaction began; none is \
         used while no transaction is open. Above it the oldest keys are forgotten, and a \
         transaction that began before them raises Conflict if it commits writes.",
    ),
    info(
        "block_bytes",
        OptionKind::Bytes,
        64.0,
        16_777_216.0,
        "Target size of a block of a table: the unit of uncached reads and of the block cache.",
    ),
    info(
        "compression",
        OptionKind::Text,
        0.0,
        0.0,
        "Codec of the blocks of new tables: none, lz4 or zstd. Each block names its codec, so the \
         option may change from one opening to the next. Default: lz4 in an object store, where \
         half the bytes take half the time and the money; none in a folder and in memory, where \
         an uncached block costs less to copy than to decompress.",
    ),
    info(
        "filter_bits_per_key",
        OptionKind::Count,
        0.0,
        64.0,
        "Bloom filter bits per key of new tables; with 10, about 1 % of absent keys pass the \
         filter.",
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
         Handles and processes may share it, and it survives restarts. Only this user can read \
         its files. It is not used for databases in folders and in memory. None: no cache.",
    ),
    info(
        "disk_cache_bytes",
        OptionKind::Bytes,
        4_194_304.0,
        65536.0 * GIB,
        "Maximum size of the folder of the disk cache; the least recently used parts are removed \
         first. Each further process that writes to the folder may temporarily add a 64th. None: \
         16 GiB.",
    ),
    info(
        "disk_cache_mirror",
        OptionKind::Keys,
        0.0,
        0.0,
        "Keys whose tables the disk cache keeps whole: \"all\", or the bounds of a range. The \
         handle fetches these tables in the background, and then the new tables of each \
         compaction and flush, as far as they fit in disk_cache_bytes. None: the cache keeps \
         parts that were read.",
    ),
    info(
        "read_durable_only",
        OptionKind::Bool,
        0.0,
        1.0,
        "Whether this writer's reads, scans and snapshots see only durable writes; by default \
         they see all accepted writes.",
    ),
    info(
        "embedded_compactor",
        OptionKind::Bool,
        0.0,
        1.0,
        "Whether the writer compacts in the background, in its own process. If off, tables \
         accumulate in L0 until compact() is called or another compactor runs; writes wait once \
         there are l0_max_ssts.",
    ),
    info(
        "embedded_gc",
        OptionKind::Bool,
        0.0,
        1.0,
        "Whether the writer deletes unreferenced objects in the background. If off, garbage stays \
         until `gc` or `run-gc` is called.",
    ),
    info(
        "gc.interval",
        OptionKind::Duration,
        0.001,
        31_536_000.0,
        "Time between two checks for garbage. A check costs the writer no request, and a \
         collector without a writer five; a round costs some twenty, and the deletes.",
    ),
    info(
        "gc.min_age",
        OptionKind::Duration,
        0.0,
        31_536_000.0,
        "Grace period: objects that were stored, or superseded, more recently than this by the \
         store's clock are not collected. Referenced objects are never deleted, for any value. \
         The period gives readers without a checkpoint time to finish, and people time to look at \
         older manifests.",
    ),
    info(
        "gc.max_garbage_bytes",
        OptionKind::Bytes,
        0.0,
        1024.0 * GIB,
        "Bytes of garbage in tables and the WAL above which the writer's collector frees the \
         oldest even if they are younger than gc.min_age. Default: a quarter of the tables' \
         bytes, at least 256 MiB. A lower value keeps a disk emptier. A reader without a lease or \
         checkpoint that falls behind by this much restarts at the newest version, or raises \
         Expired.",
    ),
    info(
        "gc.db_delete_grace",
        OptionKind::Duration,
        0.0,
        315_360_000.0,
        "Grace period of a soft destroy. After it, a collector deletes the database once no \
         checkpoint or lease remains. A destroy that is not soft does not wait.",
    ),
    info(
        "compactors.poll_interval",
        OptionKind::Duration,
        0.001,
        3600.0,
        "How often a compactor in a process of its own looks for a newer manifest, and a worker \
         for work. While there is none, the interval grows to eight times this. A writer's own \
         compactor uses this and compactors.worker_timeout to detect that the compactor that \
         replaced it is dead.",
    ),
    info(
        "compactors.worker_timeout",
        OptionKind::Duration,
        0.01,
        86_400.0,
        "If the worker of a range of a compaction sends no heartbeat for this time, another \
         worker takes the range; heartbeats are sent three times as often. A shorter time loses \
         less to a dead worker, a longer one costs fewer requests.",
    ),
    info(
        "deadline",
        OptionKind::Duration,
        0.001,
        86_400.0,
        "Maximum duration of a call before it raises Timeout. A write whose wait timed out \
         continues, and may still become durable.",
    ),
];
