//! Clones (RFC 0029, RFC 0031): what one begins with, who reads it, what keeps what it names alive,
//! several parents, parents elsewhere, a crash at every request of its making, and how it lets go
//! of its parents.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test reports, and stops at what it did not expect"
)]

mod kept;
mod made;
mod refused;
mod stopped;
mod two_buckets;
mod united;

use siltstone::admin::{self, CloneParent};
use siltstone::store::counting::RequestTotals;
use siltstone::store::memory::MemoryStore;
use siltstone::task::tokio_env;
use siltstone::{
    Accept, CompactorOptions, CompactorProcess, Database, Env, Error, Fill, OpenOptions, Options,
    Reader, ReaderOptions, Result, Rows, Scan, ScanRange,
};
use siltstone_manifest::Manifest;
use siltstone_tests::gc;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const ROWS: u32 = 60;
pub(crate) type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

pub(crate) fn options() -> Options {
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

/// Places in the memory of this process, one a name, each test's own.
pub(crate) struct Places {
    test: &'static str,
    runtime: tokio::runtime::Handle,
}

impl Places {
    pub(crate) fn env(&self, name: &str) -> Env {
        let store = MemoryStore::named(&format!("{}/{name}", self.test));
        tokio_env(self.runtime.clone(), store)
    }

    /// A database with tables in a run, tables in L0, and a log, whose writer did not close.
    pub(crate) async fn parent(&self, name: &str) -> Env {
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

/// What [`Places::parent`] holds.
pub(crate) fn parents_rows() -> Pairs {
    let round = |n| match n {
        0..15 => 3,
        15..30 => 2,
        _ => 1,
    };
    let rows = (0..ROWS).filter(|n| !(50..52).contains(n));
    rows.map(|n| (key(n), value(round(n)))).collect()
}

pub(crate) fn run<F: Future<Output = ()>>(test: &'static str, story: impl FnOnce(Places) -> F) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let places = Places { test, runtime: runtime.handle().clone() };
    runtime.block_on(story(places));
}

pub(crate) fn key(n: u32) -> Vec<u8> {
    format!("key{n:04}").into_bytes()
}

pub(crate) fn value(round: u8) -> Vec<u8> {
    vec![round; 40]
}

pub(crate) async fn open(env: &Env) -> Result<Database> {
    let how = OpenOptions { options: options(), ..OpenOptions::default() };
    let how = OpenOptions { take_over: Some(true), ..how };
    Database::open(env.clone(), how).await
}

pub(crate) async fn fill(db: &Database, rows: std::ops::Range<u32>, round: u8) {
    let mut last = None;
    for n in rows {
        let Accept::Accepted(commit) = db.put(&key(n), &value(round), None).unwrap() else {
            panic!("pressure in a small test")
        };
        last = Some(commit);
    }
    last.unwrap().wait(None).await.unwrap();
}

pub(crate) fn forget(db: &Database, rows: std::ops::Range<u32>) {
    let deleted = db.delete_range(&key(rows.start), &key(rows.end)).unwrap();
    assert!(matches!(deleted, Accept::Accepted(_)));
}

pub(crate) async fn some(scan: &mut Scan, limit: usize) -> Result<Pairs> {
    let (mut rows, mut all) = (Rows::new(), Vec::new());
    while all.len() < limit {
        let filled = scan.fill(&mut rows, limit - all.len(), 1 << 20)?;
        let pairs = (0..rows.len()).filter_map(|row| rows.row(row));
        all.extend(pairs.map(|(key, value)| (key.to_vec(), value.to_vec())));
        rows.clear();
        match filled {
            Fill::End => break,
            Fill::Full => {}
            Fill::NeedsBlocks => scan.fetch().await?,
        }
    }
    Ok(all)
}

pub(crate) async fn all(db: &Database) -> Result<Pairs> {
    some(&mut db.scan(ScanRange::all())?, usize::MAX).await
}

/// What a reader of its own sees, which writes nothing.
pub(crate) async fn read(env: &Env) -> Result<Pairs> {
    let options = Options { reader_checkpoint: false, ..options() };
    let how = ReaderOptions { options, ..ReaderOptions::default() };
    let reader = Reader::open(env.clone(), how).await?;
    some(&mut reader.scan(ScanRange::all())?, usize::MAX).await
}

pub(crate) fn of(env: &Env) -> CloneParent {
    CloneParent { env: env.clone(), checkpoint: None, start: None, end: None }
}

pub(crate) async fn clone(env: &Env, parent: &Env) -> Result<()> {
    admin::clone(env, &[of(parent)], &options()).await
}

pub(crate) async fn manifest(env: &Env) -> Arc<Manifest> {
    gc::newest(env).await.unwrap().unwrap()
}

/// Compacts everything by a process of its own.
pub(crate) async fn compact(env: &Env) -> Result<()> {
    let how = CompactorOptions { options: options(), workers: 0, merge_operator: None };
    CompactorProcess::open(env.clone(), how, |_| {}).await?.compact().await.map(drop)
}

/// Rewrites everything there and collects with no grace, twice over.
pub(crate) async fn rewrite(env: &Env) {
    for _ in 0..2 {
        compact(env).await.unwrap();
        gc::round(env).await.unwrap();
    }
}

pub(crate) fn total(requests: RequestTotals) -> u64 {
    requests.gets + requests.puts + requests.lists + requests.deletes
}

pub(crate) fn text(error: &Error) -> String {
    error.to_string()
}
