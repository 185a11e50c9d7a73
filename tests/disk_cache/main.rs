//! The disk cache (RFC 0053): reads of a store far away that a folder answers, the bound on that
//! folder, and a folder that is damaged, deleted or unusable, which must never change an answer.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test reports, and stops at what it did not expect"
)]

mod admission;
mod bounds;
mod damage;
mod far;
mod mirror;

use far::{FarStore, far};
use siltstone::admin::{self, CloneParent};
use siltstone::store::counting::{CountingStore, Requests};
use siltstone::store::memory::MemoryStore;
use siltstone::task::tokio_env;
use siltstone::{
    Accept, Codec, Database, DiskCacheOptions, Env, OpenOptions, Options, Reader, ReaderOptions,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// Bytes of a value.
pub(crate) const VALUE: usize = 1000;
pub(crate) const MIB: u64 = 1 << 20;

/// A database in a store far away, and a folder for a cache.
pub(crate) struct World {
    pub(crate) env: Env,
    pub(crate) store: Arc<FarStore>,
    pub(crate) requests: Arc<Requests>,
    folder: TempDir,
}

/// Runs a test in a world of its own.
pub(crate) fn tell<F: Future<Output = ()>>(name: &str, story: impl FnOnce(World) -> F) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let env = tokio_env(runtime.handle().clone(), MemoryStore::unnamed());
    runtime.block_on(story(World::of(name, env)));
}

impl World {
    fn of(name: &str, env: Env) -> World {
        let store = far(&format!("disk-cache/{name}"));
        let (counted, requests) = CountingStore::wrap(Arc::<FarStore>::clone(&store));
        let env = Env { store: counted, ..env };
        World { env, store, requests, folder: tempfile::tempdir().unwrap() }
    }

    /// Another database of the same process.
    pub(crate) fn beside(&self, name: &str) -> World {
        World::of(name, self.env.clone())
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    /// Options with a cache of so many bytes in the folder, and without one in memory.
    pub(crate) fn options(&self, bytes: u64) -> Options {
        Options { disk_cache: cache_in(&self.folder(), bytes), ..plain() }
    }

    pub(crate) async fn writer(&self, options: Options) -> Database {
        let how = OpenOptions { options, ..OpenOptions::default() };
        Database::open(self.env.clone(), how).await.unwrap()
    }

    pub(crate) async fn reader(&self, options: Options) -> Reader {
        let how = ReaderOptions { options, ..ReaderOptions::default() };
        Reader::open(self.env.clone(), how).await.unwrap()
    }

    /// A database of one table.
    pub(crate) async fn filled(&self, rows: u32) {
        let db = self.writer(plain()).await;
        put(&db, 0..rows).await;
        db.close().await.unwrap();
    }

    /// The GETs of reading all rows of `rows`, whose values are checked.
    pub(crate) async fn gets(&self, reader: &Reader, rows: impl Iterator<Item = u32>) -> u64 {
        let before = self.requests.totals().gets;
        for n in rows {
            let found = reader.get(&key(n)).unwrap().wait().await.unwrap();
            assert_eq!(found.as_deref(), Some(value(n).as_slice()), "row {n}");
        }
        self.requests.totals().gets - before
    }

    /// Reads rows until the cache has all of them, and waits until they are written.
    pub(crate) async fn warm(&self, reader: &Reader, rows: impl Iterator<Item = u32> + Clone) {
        for _ in 0..200 {
            if self.gets(reader, rows.clone()).await == 0 {
                return written(&self.folder()).await;
            }
            pause().await;
        }
        panic!("the cache does not fill: {:?}", reader.stats());
    }
}

/// Waits until nothing has been written for a while.
pub(crate) async fn written(folder: &Path) {
    let (mut before, mut quiet) = (0, 0);
    while quiet < 6 {
        pause().await;
        let bytes = disk_bytes(folder);
        quiet = if bytes == before { quiet + 1 } else { 0 };
        before = bytes;
    }
}

pub(crate) async fn pause() {
    tokio::time::sleep(Duration::from_millis(20)).await;
}

/// Waits for something that happens behind the reads.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..5000 {
        if holds() {
            return;
        }
        pause().await;
    }
    panic!("never: {what}");
}

pub(crate) fn cache_in(folder: &Path, bytes: u64) -> DiskCacheOptions {
    DiskCacheOptions {
        path: Some(folder.to_owned()),
        bytes: Some(bytes),
        ..DiskCacheOptions::default()
    }
}

/// Tables as large as their rows, no cache of blocks, and nothing in the background.
pub(crate) fn plain() -> Options {
    Options {
        block_cache_bytes: 0,
        compression: Some(Codec::None),
        embedded_compactor: false,
        embedded_gc: false,
        reader_lease: false,
        manifest_poll_interval: Some(Duration::from_secs(3600)),
        ..Options::default()
    }
}

pub(crate) fn key(n: u32) -> Vec<u8> {
    format!("key{n:08}").into_bytes()
}

pub(crate) fn value(n: u32) -> Vec<u8> {
    (0..VALUE as u32).map(|at| (n.wrapping_mul(31).wrapping_add(at * at) >> 3) as u8).collect()
}

/// Writes rows into a table of their own.
pub(crate) async fn put(db: &Database, rows: std::ops::Range<u32>) {
    for n in rows {
        let Accept::Accepted(_) = db.put(&key(n), &value(n), None).unwrap() else {
            panic!("there is room")
        };
    }
    db.flush_memtable().await.unwrap();
}

/// The files of entries under a folder.
pub(crate) fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(listed) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found = Vec::new();
    for path in listed.filter_map(|one| Some(one.ok()?.path())) {
        if path.is_dir() {
            found.extend(entries(&path));
        } else if path.extension().is_some_and(|ending| ending == "part") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Bytes of the disk that the entries take.
pub(crate) fn disk_bytes(folder: &Path) -> u64 {
    let bytes = |path: PathBuf| std::fs::metadata(path).map_or(0, |file| file.len());
    entries(folder).into_iter().map(|path| bytes(path).next_multiple_of(4096)).sum()
}

#[test]
fn a_warm_cache_answers_without_requests() {
    tell("warm", async |world| {
        world.filled(3000).await;
        let options = world.options(64 * MIB);
        let reader = world.reader(options.clone()).await;
        world.warm(&reader, (0..3000).step_by(7)).await;
        let stats = reader.stats();
        assert!(stats.disk_cache_hits > 0 && stats.disk_cache_misses > 20, "{stats:?}");
        assert_eq!((stats.disk_cache_capacity, stats.disk_cache_errors), (64 * MIB, 0));
        assert_eq!(stats.disk_cache_bytes, disk_bytes(&world.folder()));
        reader.close().await.unwrap();

        // The folder outlives the handle, and other blocks of the same parts are there as well.
        let reader = world.reader(options).await;
        assert_eq!(world.gets(&reader, (0..3000).step_by(3)).await, 0);
        let stats = reader.stats();
        assert_eq!((stats.disk_cache_misses, stats.disk_cache_errors), (0, 0), "{stats:?}");
        let before = world.requests.totals().gets;
        let keys: Vec<Vec<u8>> = (0..3000).map(key).collect();
        let found = reader.get_many(keys).unwrap().wait().await.unwrap();
        assert!(found.iter().all(Option::is_some));
        assert_eq!(world.requests.totals().gets, before);
        reader.close().await.unwrap();
    });
}

/// Requests of a cold read: at most as many as without a cache, for any content of the folder.
#[test]
fn a_read_takes_no_more_requests_than_without_a_cache() {
    tell("requests", async |world| {
        world.filled(3000).await;
        let with = world.reader(world.options(64 * MIB)).await;
        let without = world.reader(plain()).await;
        for n in (0..3000).step_by(400) {
            let (with, without) =
                (world.gets(&with, n..=n).await, world.gets(&without, n..=n).await);
            assert!(with <= without, "row {n}: {with} requests, {without} without a cache");
        }
    });
}

/// Tables of a clone lie at the place of its parent, which has entries of its own.
#[test]
fn tables_of_ancestors_are_cached() {
    tell("clone", async |world| {
        let parent = world.beside("clone-parent");
        parent.filled(1000).await;
        let env = parent.env.clone();
        let from = CloneParent { env, checkpoint: None, start: None, end: None };
        admin::clone(&world.env, &[from], &plain()).await.unwrap();
        let reader = world.reader(world.options(64 * MIB)).await;
        world.warm(&reader, (0..1000).step_by(7)).await;
        assert!(!entries(&world.folder()).is_empty());
        assert_eq!(world.gets(&reader, 0..1000).await, 0);
    });
}

#[test]
fn a_store_without_a_network_has_no_cache() {
    tell("near", async |mut world| {
        world.env.store = MemoryStore::named("disk-cache/near-at-hand");
        let db = world.writer(world.options(64 * MIB)).await;
        put(&db, 0..100).await;
        assert!(db.get(&key(7)).unwrap().wait().await.unwrap().is_some());
        assert_eq!(db.stats().disk_cache_capacity, 0);
        db.close().await.unwrap();
        assert!(!world.folder().exists());
    });
}
