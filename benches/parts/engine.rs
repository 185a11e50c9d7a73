//! The whole engine on a store in memory, with default options.

use criterion::{Criterion, Throughput};
use siltstone::store::memory::MemoryStore;
use siltstone::{
    Accept, Answer, Batch, Database, FillOutcome, OpenOptions, Options, Rows, ScanRange, task,
};
use siltstone_benches::rows::{ROW_BYTES, absent_key, mixed, shuffled_key, sorted_key, value};
use siltstone_benches::scaled;
use std::hint::black_box;
use tokio::runtime::Runtime;

fn open(runtime: &Runtime, options: Options) -> Database {
    let env = task::tokio_env(runtime.handle().clone(), MemoryStore::unnamed());
    let how = OpenOptions { options, ..OpenOptions::default() };
    runtime.block_on(Database::open(env, how)).unwrap()
}

/// Writes, and waits if there is no room.
fn accepted(runtime: &Runtime, mut write: impl FnMut() -> siltstone::Result<Accept>) {
    loop {
        match write().unwrap() {
            Accept::Accepted(_) => return,
            Accept::Pressure(stall) => runtime.block_on(stall).unwrap(),
        }
    }
}

/// A database of `rows` rows, all in tables, all in memory.
fn loaded(runtime: &Runtime, rows: u64) -> Database {
    let db = open(runtime, Options::default());
    for from in (0..rows).step_by(1000) {
        let mut batch = Batch::new();
        for n in from..(from + 1000).min(rows) {
            batch.put(&shuffled_key(n, rows), &value(n), None).unwrap();
        }
        accepted(runtime, || db.write(&batch));
    }
    runtime.block_on(db.flush_memtable()).unwrap();
    scan_all(runtime, &db, rows);
    for n in 0..rows {
        runtime.block_on(db.get(&sorted_key(n)).unwrap().wait()).unwrap();
    }
    db
}

fn scan_all(runtime: &Runtime, db: &Database, expected: u64) {
    let mut scan = db.scan(ScanRange::all()).unwrap();
    let mut rows = Rows::new();
    let mut met = 0;
    loop {
        rows.clear();
        let filled = scan.fill(&mut rows, 10_000, 1 << 20).unwrap();
        met += rows.len() as u64;
        match filled {
            FillOutcome::Full => {}
            FillOutcome::NeedsBlocks => runtime.block_on(scan.fetch()).unwrap(),
            FillOutcome::End => break,
        }
    }
    assert_eq!(met, expected);
}

fn writes(criterion: &mut Criterion, runtime: &Runtime) {
    let mut group = criterion.benchmark_group("engine");
    group.throughput(Throughput::Elements(1));
    let mut n = 0;
    let db = open(runtime, Options::default());
    group.bench_function("put", |bencher| {
        bencher.iter(|| {
            n += 1;
            accepted(runtime, || db.put(&shuffled_key(n, 1_000_000), &value(n), None));
        });
    });
    runtime.block_on(db.close()).unwrap();
    let db = open(runtime, Options::default());
    let size = scaled(1_000);
    group.throughput(Throughput::Elements(size));
    let mut batch = Batch::new();
    group.bench_function("write_1000", |bencher| {
        bencher.iter(|| {
            batch.clear();
            for _ in 0..size {
                n += 1;
                batch.put(&shuffled_key(n, 1_000_000), &value(n), None).unwrap();
            }
            accepted(runtime, || db.write(&batch));
        });
    });
    runtime.block_on(db.close()).unwrap();
    let db = open(runtime, Options::default());
    group.throughput(Throughput::Elements(1));
    group.bench_function("put_awaited", |bencher| {
        bencher.iter(|| {
            n += 1;
            let commit = match db.put(&shuffled_key(n, 1_000_000), &value(n), None).unwrap() {
                Accept::Accepted(commit) => commit,
                Accept::Pressure(_) => unreachable!("awaited puts leave nothing behind"),
            };
            runtime.block_on(commit.wait(None)).unwrap();
        });
    });
    runtime.block_on(db.close()).unwrap();
    group.finish();
}

pub(crate) fn bench(criterion: &mut Criterion) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    writes(criterion, &runtime);
    let rows = scaled(400_000);
    let db = loaded(&runtime, rows);
    let mut group = criterion.benchmark_group("engine");
    group.throughput(Throughput::Elements(1));
    let mut n = 0;
    group.bench_function("get", |bencher| {
        bencher.iter(|| {
            n += 1;
            let key = sorted_key(mixed(n) % rows);
            match db.get(&key).unwrap() {
                Answer::Ready(found) => assert!(found.is_some()),
                Answer::Pending(pending) => assert!(runtime.block_on(pending).unwrap().is_some()),
            }
        });
    });
    group.bench_function("get_absent", |bencher| {
        bencher.iter(|| {
            n += 1;
            let key = absent_key(mixed(n) % rows);
            let found = runtime.block_on(db.get(&key).unwrap().wait()).unwrap();
            assert!(found.is_none());
        });
    });
    let mut batch = Rows::new();
    group.bench_function("scan_50", |bencher| {
        bencher.iter(|| {
            n += 1;
            let start = Some(sorted_key(mixed(n) % rows).to_vec());
            let range = ScanRange { start, limit: Some(50), ..ScanRange::all() };
            let mut scan = db.scan(range).unwrap();
            batch.clear();
            while scan.fill(&mut batch, 50, 1 << 20).unwrap() == FillOutcome::NeedsBlocks {
                runtime.block_on(scan.fetch()).unwrap();
            }
            black_box(batch.len())
        });
    });
    group.throughput(Throughput::Bytes(rows * ROW_BYTES));
    group.bench_function("scan_all", |bencher| {
        bencher.iter(|| scan_all(&runtime, &db, rows));
    });
    group.finish();
    runtime.block_on(db.close()).unwrap();
}
