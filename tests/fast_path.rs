//! Checks of two guarantees for the hot paths: a put needs no task and no channel, and a warm get
//! allocates nothing, for any number of layers.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test reports, and stops at what it did not expect"
)]

use siltstone::store::memory::MemoryStore;
use siltstone::{Accept, Answer, Database, OpenOptions, Options, task};
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

const LAYERS: u32 = 5;
const KEYS: u32 = 400;

fn key(k: u32) -> [u8; 4] {
    k.to_be_bytes()
}

fn options() -> Options {
    Options { flush_interval: Duration::from_secs(3600), ..Options::default() }
}

/// One test, because the profiler counts the whole process.
#[test]
fn puts_need_no_task_and_warm_gets_allocate_nothing() {
    // A current-thread runtime runs tasks only inside `block_on`: outside of it only the caller's
    // own thread can have done the work.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let env = task::tokio_env(runtime.handle().clone(), MemoryStore::unnamed());
    let how = OpenOptions { options: options(), ..OpenOptions::default() };
    let db = runtime.block_on(Database::open(env, how)).unwrap();
    for layer in 0..LAYERS {
        for k in 0..KEYS {
            // Every layer covers the range of all keys, with few of the keys.
            if k % LAYERS == layer || k == 0 || k == KEYS - 1 {
                assert!(matches!(
                    db.put(&key(k), &[layer as u8; 100], None),
                    Ok(Accept::Accepted(_))
                ));
            }
        }
        runtime.block_on(db.flush_memtable()).unwrap();
    }
    assert_eq!(db.stats().l0_entries, u64::from(LAYERS));

    // Warm the caches.
    for k in 0..KEYS {
        runtime.block_on(db.get(&key(k)).unwrap().wait()).unwrap();
    }

    let profiler = dhat::Profiler::builder().testing().build();
    let before = dhat::HeapStats::get().total_blocks;
    for k in 0..KEYS {
        match db.get(&key(k)).unwrap() {
            Answer::Ready(value) => assert_eq!(value.unwrap().len(), 100),
            Answer::Pending(_) => panic!("a warm get asked the store"),
        }
    }
    let for_gets = dhat::HeapStats::get().total_blocks - before;
    assert_eq!(for_gets, 0, "{KEYS} warm gets over {LAYERS} layers allocated");

    let before = dhat::HeapStats::get().total_blocks;
    for k in 0..KEYS {
        assert!(matches!(db.put(&key(k), &[9; 100], None), Ok(Accept::Accepted(_))));
        assert!(matches!(db.get(&key(k)), Ok(Answer::Ready(Some(value))) if value[0] == 9));
    }
    let for_puts = dhat::HeapStats::get().total_blocks - before;
    // The encoded batch and the shared buffer; sometimes a chunk of nodes, or a larger WAL buffer.
    assert!(for_puts <= u64::from(KEYS) * 5 / 2, "{for_puts} blocks for {KEYS} puts");
    drop(profiler);

    runtime.block_on(db.close()).unwrap();
}
