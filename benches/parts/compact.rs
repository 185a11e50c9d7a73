//! A major compaction through the whole executor, in a local folder: eight layers of L0 that share
//! their keys' range, 16 B + 100 B rows, no compression. Bytes are those of the inputs.

use criterion::{Criterion, Throughput};
use siltstone::store::local::LocalStore;
use siltstone::{Accept, Batch, Database, OpenOptions, Options, task};
use siltstone_benches::rows::{ROW_BYTES, shuffled_key, value};
use siltstone_benches::scaled;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

const LAYERS: u64 = 8;

/// Eight layers, none of them compacted.
fn layers(runtime: &Runtime, path: &Path, rows: u64) -> Database {
    let effects = task::tokio_effects(runtime.handle().clone());
    let store = LocalStore::new(path, effects.clone()).unwrap();
    let options = Options { embedded_compactor: false, ..Options::default() };
    let how = OpenOptions { options, ..OpenOptions::default() };
    let db = runtime.block_on(Database::open(effects.with_store(store), how)).unwrap();
    let each = rows / LAYERS;
    for layer in 0..LAYERS {
        for from in (0..each).step_by(1000) {
            let mut batch = Batch::new();
            for n in from..(from + 1000).min(each) {
                let n = layer * each + n;
                batch.put(&shuffled_key(n, rows), &value(n), None).unwrap();
            }
            while let Accept::Pressure(room) = db.write(&batch).unwrap() {
                runtime.block_on(room).unwrap();
            }
        }
        runtime.block_on(db.flush_memtable()).unwrap();
    }
    db
}

pub(crate) fn bench(criterion: &mut Criterion) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let rows = scaled(1_000_000);
    let mut group = criterion.benchmark_group("compact");
    group.throughput(Throughput::Bytes(rows * ROW_BYTES));
    group.bench_function("eight_layers_local", |bencher| {
        bencher.iter_custom(|times| {
            let mut spent = Duration::ZERO;
            for _ in 0..times {
                let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
                let db = layers(&runtime, &folder.path().join("db"), rows);
                let begun = Instant::now();
                assert!(runtime.block_on(db.compact()).unwrap());
                spent += begun.elapsed();
                runtime.block_on(db.close()).unwrap();
            }
            spent
        });
    });
    group.finish();
}
