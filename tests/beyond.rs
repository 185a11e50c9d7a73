//! Reads of more rows than the block cache holds, from a store that lends its tables: they are read
//! in place, and none of that memory is kept once the tables are gone (RFC 0006, "Beyond the
//! cache").

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test reports, and stops at what it did not expect"
)]

use siltstone::store::Store;
use siltstone::store::local::LocalStore;
use siltstone::{
    Accept, Answer, Batch, Codec, Database, FillOutcome, OpenOptions, Options, Rows, ScanRange,
    task,
};
use siltstone_tests::lending::LendingStore;
use siltstone_tests::sim::Rng;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

const ROWS: u64 = 4000;
const VALUE_BYTES: usize = 100;
/// Capacity of the cache: about a tenth of all blocks.
const CACHE: usize = 64 << 10;

fn key(n: u64) -> [u8; 16] {
    // Consecutive numbers are not neighbours in the order of keys.
    (u128::from(n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835)).to_be_bytes()
}

fn value(n: u64) -> Vec<u8> {
    let mut rng = Rng::new(n);
    (0..VALUE_BYTES).map(|_| rng.next_u64() as u8).collect()
}

fn options() -> Options {
    Options {
        block_cache_bytes: CACHE,
        block_bytes: 4096,
        embedded_gc: false,
        embedded_compactor: false,
        ..Options::default()
    }
}

/// A database over `store`, with all rows in three tables whose metadata is in memory.
fn filled(runtime: &Runtime, store: Arc<dyn Store>, options: Options) -> Database {
    runtime.block_on(async {
        let env = task::tokio_env(runtime.handle().clone(), store);
        let how = OpenOptions { options, ..OpenOptions::default() };
        let db = Database::open(env, how).await.unwrap();
        for layer in 0..3 {
            let mut batch = Batch::new();
            for n in (0..ROWS).filter(|n| n % 3 == layer) {
                batch.put(&key(n), &value(n), None).unwrap();
            }
            assert!(matches!(db.write(&batch), Ok(Accept::Accepted(_))));
            db.flush_memtable().await.unwrap();
        }
        // Enough reads to fill the cache.
        for n in 0..ROWS / 2 {
            assert!(db.get(&key(n)).unwrap().wait().await.unwrap().is_some());
        }
        db
    })
}

fn read_now(db: &Database, n: u64) -> Option<Vec<u8>> {
    match db.get(&key(n)).unwrap() {
        Answer::Ready(value) => value.map(|value| value.to_vec()),
        Answer::Pending(_) => panic!("row {n} was fetched"),
    }
}

fn scanned(db: &Database) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut scan = db.scan(ScanRange::all()).unwrap();
    let (mut rows, mut all) = (Rows::new(), Vec::new());
    loop {
        let filled = scan.fill(&mut rows, 100, 1 << 20).unwrap();
        let given = (0..rows.len()).filter_map(|row| rows.row(row));
        all.extend(given.map(|(key, value)| (key.to_vec(), value.to_vec())));
        rows.clear();
        match filled {
            FillOutcome::Full => {}
            FillOutcome::NeedsBlocks => panic!("a scan fetched"),
            FillOutcome::End => return all,
        }
    }
}

/// The tasks of a handle that was closed and dropped release it when they next run.
async fn none_is_lent(store: &LendingStore) {
    let all_gone = async {
        while store.lent() > 0 {
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), all_gone).await;
    assert!(waited.is_ok(), "{} are still lent", store.lent());
}

/// Every kind of read finds every row, immediately and without a request.
fn expect_all_in_place(db: &Database) {
    let before = db.stats();
    assert_eq!(before.mapped_bytes, before.table_bytes);
    for n in 0..ROWS {
        assert_eq!(read_now(db, n).as_deref(), Some(&value(n)[..]), "row {n}");
    }
    assert_eq!(read_now(db, ROWS), None);
    let Answer::Ready(found) = db.get_many((0..ROWS).map(key).collect::<Vec<_>>()).unwrap() else {
        panic!("get_many fetched");
    };
    for (n, found) in found.iter().enumerate() {
        assert_eq!(found.as_deref(), Some(&value(n as u64)[..]), "row {n} of many");
    }
    let mut expected: Vec<_> = (0..ROWS).map(|n| (key(n).to_vec(), value(n))).collect();
    expected.sort();
    assert!(scanned(db) == expected, "a scan gives the rows in order");
    let after = db.stats();
    assert_eq!(after.get_requests, before.get_requests);
    assert!(after.block_cache_bytes <= after.block_cache_capacity);
}

#[test]
fn tables_larger_than_the_cache_are_read_from_the_map() {
    let runtime = Runtime::new().unwrap();
    let store = LendingStore::new();
    let db = filled(&runtime, Arc::clone(&store) as _, options());
    assert_eq!(store.lent(), 3);
    expect_all_in_place(&db);
    // Also without any cache.
    runtime.block_on(db.close()).unwrap();
    drop(db);
    runtime.block_on(none_is_lent(&store));
    let env = task::tokio_env(runtime.handle().clone(), Arc::clone(&store) as _);
    let none = Options { block_cache_bytes: 0, ..options() };
    let how = OpenOptions { options: none, ..OpenOptions::default() };
    let db = runtime.block_on(Database::open(env, how)).unwrap();
    for n in 0..200 {
        let found = runtime.block_on(db.get(&key(n)).unwrap().wait()).unwrap();
        assert_eq!(found.as_deref(), Some(&value(n)[..]));
    }
    expect_all_in_place(&db);
}

#[test]
fn while_the_cache_has_room_nothing_is_lent() {
    let runtime = Runtime::new().unwrap();
    let store = LendingStore::new();
    let roomy = Options { block_cache_bytes: 64 << 20, ..options() };
    let db = filled(&runtime, Arc::clone(&store) as _, roomy);
    assert_eq!((store.lent(), db.stats().mapped_bytes), (0, 0));
}

#[test]
fn compressed_blocks_are_copied_as_ever() {
    let runtime = Runtime::new().unwrap();
    let store = LendingStore::new();
    let squeezed = Options { compression: Some(Codec::Zstd), ..options() };
    let env = task::tokio_env(runtime.handle().clone(), Arc::clone(&store) as _);
    let how = OpenOptions { options: squeezed, ..OpenOptions::default() };
    let db = runtime.block_on(Database::open(env, how)).unwrap();
    let mut batch = Batch::new();
    for n in 0..ROWS {
        batch.put(&key(n), &[n as u8; VALUE_BYTES], None).unwrap();
    }
    assert!(matches!(db.write(&batch), Ok(Accept::Accepted(_))));
    runtime.block_on(db.flush_memtable()).unwrap();
    for n in 0..ROWS {
        let found = runtime.block_on(db.get(&key(n)).unwrap().wait()).unwrap();
        assert_eq!(found.as_deref(), Some(&[n as u8; VALUE_BYTES][..]));
    }
    assert!(db.stats().block_cache_bytes <= db.stats().block_cache_capacity);
}

/// Blocks in the cache keep their buffers alive: none of a deleted table may stay there, or a
/// deleted file would keep its disk space until it is evicted.
#[test]
fn no_state_of_deleted_tables_is_kept() {
    let runtime = Runtime::new().unwrap();
    let store = LendingStore::new();
    let db = filled(&runtime, Arc::clone(&store) as _, options());
    expect_all_in_place(&db);
    let held: Vec<_> = (0..ROWS).map(|n| db.get(&key(n)).unwrap()).collect();
    runtime.block_on(db.compact()).unwrap();
    for n in 0..ROWS {
        runtime.block_on(db.get(&key(n)).unwrap().wait()).unwrap();
    }
    // The new tables, and the old ones whose values are still in use.
    assert_eq!(store.lent() as u64, db.stats().tables + 3);
    for (n, held) in held.into_iter().enumerate() {
        let Answer::Ready(Some(held)) = held else { panic!("row {n} was in place") };
        assert_eq!(*held, value(n as u64)[..]);
    }
    assert_eq!(store.lent() as u64, db.stats().tables);
    expect_all_in_place(&db);
}

/// Lent bytes are damaged, read ones are not: reads use the path of all stores.
#[test]
fn a_damaged_mapped_block_is_read_again() {
    let runtime = Runtime::new().unwrap();
    let store = LendingStore::new();
    store.lend_damaged();
    let db = filled(&runtime, Arc::clone(&store) as _, options());
    let requests = db.stats().get_requests;
    for n in 0..ROWS {
        let found = runtime.block_on(db.get(&key(n)).unwrap().wait()).unwrap();
        assert_eq!(found.as_deref(), Some(&value(n)[..]), "row {n}");
    }
    assert!(db.stats().get_requests > requests);
}

/// A folder: every read that meets damage reports it with its location, and no other read does; and
/// a removed folder still serves reads from open files.
#[test]
fn a_damaged_table_of_a_folder_is_told() {
    let runtime = Runtime::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let store = || {
        let effects = task::tokio_effects(runtime.handle().clone());
        LocalStore::new(folder.path(), effects).unwrap()
    };
    let db = filled(&runtime, store(), options());
    runtime.block_on(db.close()).unwrap();
    let tables = std::fs::read_dir(folder.path().join("compacted")).unwrap();
    let path = tables.map(|entry| entry.unwrap().path()).min().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let place = |n| bytes.windows(VALUE_BYTES).position(|at| at == value(n));
    let (damaged, at) = (0..3).find_map(|n| Some((n, place(n)?))).unwrap();
    // Over the same file: a replacement would be a different file.
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[bytes[at] ^ 1], at as u64).unwrap();

    let env = task::tokio_env(runtime.handle().clone(), store());
    let none = Options { block_cache_bytes: 0, ..options() };
    let how = OpenOptions { options: none, ..OpenOptions::default() };
    let db = runtime.block_on(Database::open(env, how)).unwrap();
    let read = |n| runtime.block_on(db.get(&key(n)).unwrap().wait());
    let expect_told = || {
        let told: Vec<u64> = (0..ROWS).filter(|n| read(*n).is_err()).collect();
        assert!(told.contains(&damaged) && told.len() < 50, "{told:?}");
        for n in told {
            let error = read(n).unwrap_err();
            assert_eq!(error.kind(), siltstone::ErrorKind::Corruption, "{error}");
            assert!(error.to_string().contains("offset"), "{error}");
        }
    };
    expect_told();
    std::fs::remove_dir_all(folder.path()).unwrap();
    expect_told();
}
