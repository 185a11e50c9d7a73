//! Hard limits, each with its reason.

/// Keys are 1 to 65,535 bytes: a length fits two bytes in a block's key region.
pub const MAX_KEY_BYTES: usize = u16::MAX as usize;
/// Values are under 4 GiB: a length fits four bytes.
pub const MAX_VALUE_BYTES: usize = u32::MAX as usize - 1;
/// Default of `max_batch_bytes`: a batch is never split between objects, so its size is limited.
pub const DEFAULT_MAX_BATCH_BYTES: usize = 64 << 20;
/// Largest `max_batch_bytes`: one WAL object contains a whole batch, is one PUT, and record lengths
/// are four bytes. 1 GiB is below all three limits.
pub const MAX_BATCH_BYTES: usize = 1 << 30;
/// Largest `max_parallel_writes`. A fence skips that many ids, so the limit keeps gaps small.
pub const MAX_PARALLEL_WRITES: u64 = 64;
/// Largest manifest that is read: 100,000 tables of about 500 bytes, with a reserve.
pub const MAX_MANIFEST_BYTES: u64 = 256 << 20;
/// Largest block after decompression: a block closes at its target size plus one entry, and a
/// single entry is at most a key and a value. Larger claims in a header are refused before any
/// allocation.
pub const MAX_BLOCK_BYTES: u64 = MAX_KEY_BYTES as u64 + MAX_VALUE_BYTES as u64 + (64 << 20);

const _: () = assert!(DEFAULT_MAX_BATCH_BYTES <= MAX_BATCH_BYTES);
