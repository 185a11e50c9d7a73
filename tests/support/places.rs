//! Databases of few rows at several places in memory that can reach each other: parents and clones,
//! sources and mirrors.

#![allow(clippy::missing_panics_doc, clippy::panic, clippy::unwrap_used, reason = "for tests")]

use crate::gc;
use crate::scans::{Pairs, rest};
use siltstone::store::memory::MemoryStore;
use siltstone::task::tokio_env;
use siltstone::{
    Accept, CompactorOptions, CompactorProcess, Database, Env, Error, OpenOptions, Options, Reader,
    ReaderOptions, ScanRange,
};
use siltstone_base::Result;
use siltstone_manifest::Manifest;
use std::sync::Arc;
use std::time::Duration;

/// Rows of a parent.
pub const ROWS: u32 = 60;

/// Small tables and blocks; nothing is compacted or collected automatically.
#[must_use]
pub fn options() -> Options {
    Options {
        flush_interval: Duration::from_millis(1),
        l0_sst_size_bytes: 4096,
        block_bytes: 256,
        block_cache_bytes: 0,
        metadata_cache_bytes: 0,
        embedded_gc: false,
        embedded_compactor: false,
        manifest_poll_interval: Some(Duration::from_millis(20)),
        ..Options::default()
    }
}

/// Places in the memory of this process, one per name, separate for each test.
pub struct Places {
    test: &'static str,
    /// The runtime of the tasks.
    pub runtime: tokio::runtime::Handle,
}

impl Places {
    /// The place with this name.
    #[must_use]
    pub fn env(&self, name: &str) -> Env {
        let store = MemoryStore::named(&format!("{}/{name}", self.test));
        tokio_env(self.runtime.clone(), store)
    }

    /// A database with tables in a run, tables in L0, and a log, whose writer did not close.
    pub async fn parent(&self, name: &str) -> Env {
        let env = self.env(name);
        let db = open(&env).await.unwrap();
        fill(&db, 0..ROWS, 1).await;
        db.flush_memtable().await.unwrap();
        compact(&env).await.unwrap();
        fill(&db, 0..ROWS / 2, 2).await;
        db.flush_memtable().await.unwrap();
        fill(&db, 0..ROWS / 4, 3).await;
        forget(&db, 50..52);
        db.flush().await.unwrap();
        std::mem::forget(db);
        env
    }
}

/// The rows of [`Places::parent`].
#[must_use]
pub fn parents_rows() -> Pairs {
    let round = |n| match n {
        0..15 => 3,
        15..30 => 2,
        _ => 1,
    };
    let rows = (0..ROWS).filter(|n| !(50..52).contains(n));
    rows.map(|n| (key(n), value(round(n)))).collect()
}

/// Runs a test.
pub fn run<F: Future<Output = ()>>(test: &'static str, story: impl FnOnce(Places) -> F) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let places = Places { test, runtime: runtime.handle().clone() };
    runtime.block_on(story(places));
}

/// The n-th key.
#[must_use]
pub fn key(n: u32) -> Vec<u8> {
    format!("key{n:04}").into_bytes()
}

/// The value of every row of a round.
#[must_use]
pub fn value(round: u8) -> Vec<u8> {
    vec![round; 40]
}

/// A writer, which takes over from any earlier one.
///
/// # Errors
/// Errors of an open.
pub async fn open(env: &Env) -> Result<Database> {
    let how = OpenOptions { options: options(), ..OpenOptions::default() };
    let how = OpenOptions { take_over: Some(true), ..how };
    Database::open(env.clone(), how).await
}

/// Writes rows, and waits until they are durable.
pub async fn fill(db: &Database, rows: std::ops::Range<u32>, round: u8) {
    let mut last = None;
    for n in rows {
        let Accept::Accepted(commit) = db.put(&key(n), &value(round), None).unwrap() else {
            panic!("pressure in a small test")
        };
        last = Some(commit);
    }
    last.unwrap().wait(None).await.unwrap();
}

/// Deletes rows by range.
pub fn forget(db: &Database, rows: std::ops::Range<u32>) {
    let deleted = db.delete_range(&key(rows.start), &key(rows.end)).unwrap();
    assert!(matches!(deleted, Accept::Accepted(_)));
}

/// The rows that a new reader sees, which writes nothing.
///
/// # Errors
/// Errors of an open, and of a scan.
pub async fn read(env: &Env) -> Result<Pairs> {
    let options = Options { reader_lease: false, ..options() };
    let how = ReaderOptions { options, ..ReaderOptions::default() };
    let reader = Reader::open(env.clone(), how).await?;
    rest(reader.scan(ScanRange::all())?).await
}

/// The newest manifest.
pub async fn manifest(env: &Env) -> Arc<Manifest> {
    gc::newest(env).await.unwrap().unwrap()
}

/// Compacts everything in a separate process.
///
/// # Errors
/// Errors of the compactor.
pub async fn compact(env: &Env) -> Result<()> {
    let how = CompactorOptions { options: options(), workers: 0, merge_operator: None };
    CompactorProcess::open(env.clone(), how, |_| {}).await?.compact().await.map(drop)
}

/// The text of an error as a user sees it.
#[must_use]
pub fn text(error: &Error) -> String {
    error.to_string()
}
