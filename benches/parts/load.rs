//! A bulk load of shuffled rows (RFC 0039): within memory, and in eight heaps that are written to
//! files and merged, as a load larger than its memory does.

use criterion::{Criterion, Throughput};
use siltstone::store::local::LocalStore;
use siltstone::tables::{Duplicates, LoadOptions, RowBatch};
use siltstone::{Database, Env, OpenOptions, Options, task};
use siltstone_benches::scaled;
use std::path::Path;
use std::sync::Arc;
use tokio::runtime::Runtime;

const ROWS: u64 = 1_000_000;
const BATCH_ROWS: usize = 1 << 13;
const KEY_BYTES: usize = 16;
const VALUE_BYTES: usize = 100;
/// Bytes of memory that a load counts per row.
const ROW_BYTES: usize = KEY_BYTES + VALUE_BYTES + 32;
/// The memory of a load is that of three heaps.
const HEAPS: usize = 8;

/// Contiguous rows, as in an Arrow array.
struct Flat(Vec<u8>);

impl RowBatch for Flat {
    fn rows(&self) -> usize {
        self.0.len() / (KEY_BYTES + VALUE_BYTES)
    }

    fn row(&self, row: usize) -> (&[u8], &[u8]) {
        let start = row * (KEY_BYTES + VALUE_BYTES);
        self.0[start..start + KEY_BYTES + VALUE_BYTES].split_at(KEY_BYTES)
    }

    fn bytes(&self) -> usize {
        self.0.len()
    }
}

/// Rows with keys in random order: products with an odd number do not repeat below 2^64.
fn shuffled(rows: u64) -> Vec<Arc<dyn RowBatch>> {
    let numbers: Vec<u64> = (0..rows).collect();
    let batch = |numbers: &[u64]| {
        let mut flat = Vec::with_capacity(numbers.len() * (KEY_BYTES + VALUE_BYTES));
        for n in numbers {
            flat.extend_from_slice(&n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes());
            flat.extend_from_slice(&n.to_be_bytes());
            flat.extend_from_slice(&[*n as u8; VALUE_BYTES]);
        }
        Arc::new(Flat(flat)) as Arc<dyn RowBatch>
    };
    numbers.chunks(BATCH_ROWS).map(batch).collect()
}

fn env(runtime: &Runtime, path: &Path) -> Env {
    let effects = task::tokio_effects(runtime.handle().clone());
    let store = LocalStore::new(path, effects.clone()).unwrap();
    effects.with_store(store)
}

async fn load(env: &Env, batches: &[Arc<dyn RowBatch>], memory_bytes: usize, scratch: &Path) {
    let how = OpenOptions { options: Options::default(), ..OpenOptions::default() };
    let db = Database::open(env.clone(), how).await.unwrap();
    let how = LoadOptions {
        sorted: false,
        duplicates: Duplicates::Refuse,
        memory_bytes,
        scratch: scratch.to_owned(),
        table_bytes: 64 << 20,
    };
    let mut load = db.begin_load(how).await.unwrap();
    for batch in batches {
        load.loader().unwrap().push(Arc::clone(batch)).await.unwrap();
    }
    let report = load.finish().await.unwrap();
    assert_eq!(report.rows, batches.iter().map(|batch| batch.rows() as u64).sum::<u64>());
    db.close().await.unwrap();
}

pub(crate) fn bench(criterion: &mut Criterion) {
    // In the target folder: the system's folder for temporary files may be in memory.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let rows = scaled(ROWS);
    let batches = shuffled(rows);
    let heap = rows as usize * ROW_BYTES / HEAPS + 1;
    let mut group = criterion.benchmark_group("load");
    group.throughput(Throughput::Elements(rows));
    let mut n = 0;
    for (name, memory_bytes) in [("in_memory", 1 << 30), ("eight_heaps_merged", 3 * heap)] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                n += 1;
                let place = folder.path().join(format!("{n}"));
                let env = env(&runtime, &place);
                runtime.block_on(load(&env, &batches, memory_bytes, folder.path()));
                std::fs::remove_dir_all(place).unwrap();
            });
        });
    }
    group.finish();
}
