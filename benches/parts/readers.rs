//! Opening a reader at a checkpoint that it carries, in a local folder: the first step of each task
//! of a job. The limit is 10 ms.

#![allow(clippy::disallowed_methods, reason = "a bench reads the clock")]

use criterion::Criterion;
use siltstone::store::local::LocalStore;
use siltstone::{
    Accept, Batch, CheckpointOptions, Database, Env, OpenOptions, Options, ReadAt, Reader,
    ReaderOptions, task,
};
use siltstone_benches::rows::{shuffled_key, value};
use siltstone_benches::{is_measured, scaled};
use std::time::{Duration, Instant};

const BOUND: Duration = Duration::from_millis(10);
const ROWS: u64 = 100_000;

/// Writes rows into tables, and returns the state that a reader of them carries.
async fn loaded(env: &Env) -> ReadAt {
    let db = Database::open(env.clone(), OpenOptions::default()).await.unwrap();
    let rows = scaled(ROWS);
    for from in (0..rows).step_by(1000) {
        let mut batch = Batch::new();
        for n in from..(from + 1000).min(rows) {
            batch.put(&shuffled_key(n, rows), &value(n), None).unwrap();
        }
        while let Accept::Pressure(stall) = db.write(&batch).unwrap() {
            stall.await.unwrap();
        }
    }
    db.flush_memtable().await.unwrap();
    let made = db.checkpoint(&CheckpointOptions::default()).await.unwrap();
    db.close().await.unwrap();
    let first = open(env, ReadAt::Checkpoint(made.id.into())).await;
    let known = first.checkpoint().unwrap().clone();
    first.close().await.unwrap();
    ReadAt::Known(Box::new(known))
}

async fn open(env: &Env, at: ReadAt) -> Reader {
    let options = Options::default();
    let how = ReaderOptions { options, at: Some(at), ..ReaderOptions::default() };
    Reader::open(env.clone(), how).await.unwrap()
}

pub(crate) fn bench(criterion: &mut Criterion) {
    // In the target folder: the system's folder for temporary files may be in memory.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let effects = task::tokio_effects(runtime.handle().clone());
    let store = LocalStore::new(folder.path(), effects.clone()).unwrap();
    let env = effects.with_store(store);
    let known = runtime.block_on(loaded(&env));
    let mut took = Vec::new();
    criterion.bench_function("readers/open_at_a_checkpoint", |bencher| {
        bencher.iter(|| {
            let began = Instant::now();
            let reader = runtime.block_on(open(&env, known.clone()));
            took.push(began.elapsed());
            runtime.block_on(reader.close()).unwrap();
        });
    });
    // If the bench's name excludes this case, no reader was opened.
    took.sort_unstable();
    let median = took.get(took.len() / 2).copied().unwrap_or_default();
    assert!(!is_measured() || median < BOUND, "half of the readers took {median:?} and more");
}
