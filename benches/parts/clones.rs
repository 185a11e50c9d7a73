//! A clone and a restore of a database of 10,000 tables in a local folder. The limits are a second
//! each, and that no table is copied; neither depends on the size of the tables. So the tables are
//! objects without rows: a restore looks at their lengths, and neither call reads one.

#![allow(clippy::disallowed_methods, reason = "a bench reads the clock")]

use criterion::Criterion;
use siltstone::admin::{self, CloneParent};
use siltstone::store::PutAnswer;
use siltstone::store::local::LocalStore;
use siltstone::{
    Accept, CheckpointName, CheckpointOptions, Database, Env, OpenOptions, Options, task,
};
use siltstone_base::name::prefix;
use siltstone_base::{AttemptId, ObjectId, ObjectName, SstDescriptor, SstId};
use siltstone_benches::{is_measured, scaled};
use siltstone_manifest::Manifest;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

const TABLES: u64 = 10_000;
const BOUND: Duration = Duration::from_secs(1);

fn env(runtime: &Runtime, path: &Path) -> Env {
    let effects = task::tokio_effects(runtime.handle().clone());
    let store = LocalStore::new(path, effects.clone()).unwrap();
    effects.with_store(store)
}

fn options() -> Options {
    Options { embedded_gc: false, embedded_compactor: false, ..Options::default() }
}

/// A closed database at `path` with this many tables in one run, and one checkpoint.
async fn wide(env: &Env, tables: u64) -> CheckpointName {
    let how = OpenOptions { options: options(), ..OpenOptions::default() };
    let db = Database::open(env.clone(), how).await.unwrap();
    let Accept::Accepted(_) = db.put(b"a key", b"a value", None).unwrap() else {
        unreachable!("one row")
    };
    db.flush_memtable().await.unwrap();
    db.close().await.unwrap();
    let newest = admin::manifest(env, None, BOUND).await.unwrap();
    let mut next = Manifest::clone(&newest);
    next.id = newest.next_id();
    let (some, key) = (next.l0[0].tables[0].clone(), |n: u64| format!("key {n:012}"));
    let run = (1..=tables).map(|n| SstDescriptor {
        id: SstId(u128::from(n)),
        first_key: key(n * 2).into(),
        last_key: key(n * 2 + 1).into(),
        ..some.clone()
    });
    next.runs = vec![siltstone_manifest::SortedRun { id: 0, tables: run.collect() }];
    next.l0 = Vec::new();
    let bytes = next.encode(ObjectId(1), AttemptId(1)).unwrap();
    let put = env.store.put_if_absent(ObjectName::Manifest(next.id), bytes).await;
    assert!(matches!(put, PutAnswer::Created), "{put:?}");
    let made = admin::create_checkpoint(env, &CheckpointOptions::default(), BOUND).await.unwrap();
    CheckpointName::Id(made.id)
}

/// Number of tables that the newest manifest of `env` references.
async fn named_by(env: &Env) -> u64 {
    admin::manifest(env, None, BOUND).await.unwrap().tables().count() as u64
}

/// Stores an object for each table that the newest manifest references: a restore checks their
/// lengths.
async fn put_tables(env: &Env) {
    for table in admin::manifest(env, None, BOUND).await.unwrap().tables() {
        let bytes = vec![0; table.object_bytes as usize];
        env.store.put_if_absent(table.name(), bytes.into()).await;
    }
}

/// Number of tables stored at `env`.
async fn tables_in(env: &Env) -> usize {
    env.store.list(prefix::COMPACTED, None).await.unwrap().len()
}

fn within_its_bound(what: &str, began: Instant) {
    let took = began.elapsed();
    assert!(!is_measured() || took < BOUND, "{what} took {took:?}");
}

pub(crate) fn bench(criterion: &mut Criterion) {
    // In the target folder: the system's folder for temporary files may be in memory.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let tables = scaled(TABLES);
    let parent = env(&runtime, &folder.path().join("parent"));
    let then = runtime.block_on(wide(&parent, tables));
    runtime.block_on(put_tables(&parent));
    let before = runtime.block_on(tables_in(&parent));
    let mut group = criterion.benchmark_group("clones");
    let mut n = 0;
    group.bench_function("clone_of_10000_tables", |bencher| {
        bencher.iter(|| {
            n += 1;
            let clone = env(&runtime, &folder.path().join(format!("clone {n}")));
            let of = CloneParent { env: parent.clone(), checkpoint: None, start: None, end: None };
            let began = Instant::now();
            runtime.block_on(admin::clone(&clone, &[of], &options())).unwrap();
            within_its_bound("a clone", began);
            assert_eq!(runtime.block_on(tables_in(&clone)), 0);
            assert_eq!(runtime.block_on(named_by(&clone)), tables);
        });
    });
    group.bench_function("restore_of_10000_tables", |bencher| {
        bencher.iter(|| {
            let began = Instant::now();
            runtime.block_on(admin::restore(&parent, &then, &options())).unwrap();
            within_its_bound("a restore", began);
        });
    });
    group.finish();
    assert_eq!(runtime.block_on(tables_in(&parent)), before);
    assert_eq!(runtime.block_on(named_by(&parent)), tables);
}
