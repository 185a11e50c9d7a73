//! The memory of `get_many`: the caches and 32 MiB, besides the results, for any number of keys.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test reports, and stops at what it did not expect"
)]

use peak_alloc::PeakAlloc;
use siltstone::store::local::LocalStore;
use siltstone::{Accept, Batch, CompactionOptions, Database, Env, OpenOptions, Options, task};
use siltstone_tests::sim::Rng;
use std::time::Duration;
use tokio::runtime::Runtime;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const ROWS: u64 = 210_000;
const VALUE_BYTES: usize = 1000;
const MIB: usize = 1 << 20;
/// RFC 0006: blocks and reads of a wave, tables between waves, memory pinned by results.
const WORKING: usize = 32 * MIB;
const BLOCK_CACHE: usize = 16 * MIB;
const METADATA_CACHE: usize = 8 * MIB;
/// A key's share of the lists in a call: the key, its positions, its result.
const BYTES_A_KEY: usize = 200;

fn key(n: u64) -> [u8; 16] {
    // Consecutive numbers are not neighbours in the order of keys.
    (u128::from(n).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835)).to_be_bytes()
}

fn value(n: u64) -> Vec<u8> {
    let mut rng = Rng::new(n);
    (0..VALUE_BYTES / 8).flat_map(|_| rng.next_u64().to_le_bytes()).collect()
}

fn options() -> Options {
    Options {
        block_cache_bytes: BLOCK_CACHE,
        metadata_cache_bytes: METADATA_CACHE,
        l0_sst_size_bytes: 16 * MIB,
        embedded_gc: false,
        embedded_compactor: false,
        compaction: CompactionOptions {
            l0_max_ssts: 64,
            l0_compaction_threshold_ssts: 63,
            ..CompactionOptions::default()
        },
        deadline: Duration::from_secs(600),
        ..Options::default()
    }
}

async fn filled(env: Env) -> Database {
    let how = OpenOptions { options: options(), ..OpenOptions::default() };
    let db = Database::open(env, how).await.unwrap();
    for first in (0..ROWS).step_by(500) {
        let mut batch = Batch::new();
        for n in first..first + 500 {
            batch.put(&key(n), &value(n), None).unwrap();
        }
        loop {
            match db.write(&batch).unwrap() {
                Accept::Accepted(_) => break,
                Accept::Pressure(relief) => relief.await.unwrap(),
            }
        }
    }
    db.flush_memtable().await.unwrap();
    db
}

/// Looks up this many random keys; returns the peak memory, besides the results' own bytes.
fn peak_of(runtime: &Runtime, db: &Database, count: usize, rng: &mut Rng) -> usize {
    let numbers: Vec<u64> = (0..count).map(|_| rng.next_u64() % ROWS).collect();
    let keys: Vec<[u8; 16]> = numbers.iter().map(|n| key(*n)).collect();
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let answer = db.get_many(keys).unwrap();
    let values = runtime.block_on(answer.wait()).unwrap();
    let peak = ALLOCATOR.peak_usage().saturating_sub(before);
    assert_eq!(values.len(), count);
    for (n, found) in numbers.iter().zip(&values).step_by(97) {
        assert_eq!(found.as_deref(), Some(&value(*n)[..]), "key {n}");
    }
    assert!(values.iter().all(Option::is_some));
    peak.saturating_sub(count * (VALUE_BYTES + BYTES_A_KEY))
}

/// One test, because the allocator counts the whole process.
#[test]
fn many_keys_take_the_caches_and_32_mib() {
    let runtime = Runtime::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let effects = task::tokio_effects(runtime.handle().clone());
    let store = LocalStore::new(folder.path(), effects).unwrap();
    let db = runtime.block_on(filled(task::tokio_env(runtime.handle().clone(), store)));
    let mut rng = Rng::new(5);
    // The caches grow to their limits.
    let cold = peak_of(&runtime, &db, 10_000, &mut rng);
    assert!(cold <= WORKING + BLOCK_CACHE + METADATA_CACHE, "{} MiB cold", cold / MIB);
    for count in [10_000, 100_000] {
        let peak = peak_of(&runtime, &db, count, &mut rng);
        assert!(peak <= WORKING, "{count} keys took {} MiB beside the caches", peak / MIB);
    }
    runtime.block_on(db.close()).unwrap();
}
