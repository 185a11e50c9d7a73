//! A durable put in a local folder, compared with the minimal cost of durability there: appending
//! the same bytes to an open file and syncing its data. Both in one run, because disks vary over
//! time.

use criterion::Criterion;
use siltstone::store::local::LocalStore;
use siltstone::{Accept, Database, OpenOptions, task};
use siltstone_base::Batch;
use siltstone_benches::rows::{shuffled_key, value};
use std::fs::OpenOptions as FileOptions;
use std::io::Write;
use std::path::Path;

/// Bytes of a WAL object besides its batch: envelope, heads and checksums.
const OBJECT_OVERHEAD_BYTES: usize = 120;

fn bare(path: &Path, criterion: &mut Criterion) {
    let mut batch = Batch::new();
    batch.put(&shuffled_key(1, 10), &value(1), None).unwrap();
    let bytes = vec![7; batch.as_bytes().len() + OBJECT_OVERHEAD_BYTES];
    let mut log = FileOptions::new().create(true).append(true).open(path).unwrap();
    criterion.bench_function("local/append_and_sync", |bencher| {
        bencher.iter(|| {
            log.write_all(&bytes).unwrap();
            log.sync_data().unwrap();
        });
    });
}

pub(crate) fn bench(criterion: &mut Criterion) {
    // In the target folder: the system's folder for temporary files may be in memory.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let effects = task::tokio_effects(runtime.handle().clone());
    let store = LocalStore::new(&folder.path().join("db"), effects.clone()).unwrap();
    let open = Database::open(effects.with_store(store), OpenOptions::default());
    let db = runtime.block_on(open).unwrap();
    bare(&folder.path().join("log"), criterion);
    let mut n = 0;
    criterion.bench_function("local/put_awaited", |bencher| {
        bencher.iter(|| {
            n += 1;
            let put = db.put(&shuffled_key(n, 1_000_000), &value(n), None).unwrap();
            let Accept::Accepted(commit) = put else { unreachable!("each is awaited") };
            runtime.block_on(commit.wait(None)).unwrap();
        });
    });
    runtime.block_on(db.close()).unwrap();
}
