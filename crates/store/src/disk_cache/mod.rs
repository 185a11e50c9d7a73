//! A cache of tables on local disks, between a handle and its object store (RFC 0053). It answers
//! [`Store::get_table`] from files of [parts](parts), and passes everything else on.
//!
//! It must never change an answer: an entry that is not whole, or not the one that was asked for,
//! is removed and read again from the store. A disk that fails costs requests, not reads.

mod entry;
mod eviction;
mod filler;
mod folder;
mod parts;

use crate::counter::Counter;
use crate::env::{Effects, Env};
use crate::in_use::StoreUse;
use crate::presence::Presence;
use crate::profile::Profile;
use crate::sent::SentRequests;
use crate::{
    CacheUse, CopyAnswer, DiskCacheCounts, Listed, LogIdentityStep, PutAnswer, Store, SweepReport,
    TableRead, Upload,
};
use bytes::Bytes;
use entry::{EntryKey, is_cached, place_of};
use filler::{DiskCache, FetchedPart};
use folder::PartLookup;
use futures::FutureExt;
use futures::future::BoxFuture;
use siltstone_base::WalStore;
use siltstone_base::{DatabaseId, Error, ErrorKind, JobId, ObjectName, Result, UnixMillis};
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Puts a cache of at most `capacity` bytes in `folder` between a handle's environment and its
/// store. The environment stays as it is if the store has no network to save requests of, or has no
/// URL that tells its database from others.
///
/// # Errors
/// Unsupported for an encrypted database, whose plain bytes must not be stored.
pub fn cached(env: Env, folder: &Path, capacity: u64) -> Result<Env> {
    if env.store.profile().answers_at_once {
        return Ok(env);
    }
    if env.store.is_encrypted() {
        let text = "the disk cache would store parts of an encrypted database in plain form: open \
                    it without the option disk_cache_path";
        return Err(Error::unsupported(text));
    }
    let Some(location) = env.store.location() else { return Ok(env) };
    // Only an empty path has no absolute form.
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let (clock, random) = (Arc::clone(&env.clock), Arc::clone(&env.random));
    let effects = Effects { clock, random, spawn: Arc::clone(&env.spawn) };
    let cache = DiskCache::at(folder, capacity);
    cache.fill(Vec::new(), &effects);
    let errors_before = cache.errors();
    let counters = CacheCounters { hits: Counter::default(), misses: Counter::default() };
    let use_of = HandleCache { cache, effects, counters, errors_before };
    let place = place_of(&location);
    let store = CachedStore { store: Arc::clone(&env.store), place, handle: Arc::new(use_of) };
    Ok(Env { store: Arc::new(store), ..env })
}

/// What the stores of one handle share: its own, and those of the ancestors of a clone.
struct HandleCache {
    cache: Arc<DiskCache>,
    effects: Effects,
    counters: CacheCounters,
    /// Errors of the cache before this handle used it.
    errors_before: u64,
}

struct CacheCounters {
    hits: Counter,
    misses: Counter,
}

/// A store with a cache.
struct CachedStore {
    store: Arc<dyn Store>,
    /// The place of this store among the entries.
    place: u64,
    handle: Arc<HandleCache>,
}

/// What the disk had of a read.
#[derive(Default)]
struct FoundParts {
    /// The bytes of the read, with those of the missing parts left out; empty if all are missing.
    bytes: Vec<u8>,
    /// Numbers of the missing parts, in order.
    missing: Vec<u64>,
}

impl HandleCache {
    /// Reads the entries of `keys`, which cover `range`. Blocks.
    fn look(
        &self,
        keys: impl Iterator<Item = EntryKey>,
        range: &Range<u64>,
        used: Option<UnixMillis>,
    ) -> FoundParts {
        let (mut found, mut file) = (FoundParts::default(), Vec::new());
        let length = (range.end - range.start) as usize;
        for key in keys {
            let at = parts::bytes_of(key.part, key.object_bytes).start;
            let mut take = |payload: &[u8]| {
                if found.bytes.is_empty() {
                    found.bytes = vec![0; length];
                }
                parts::copy(&mut found.bytes, range.start, payload, at);
            };
            if let Some(payload) = self.cache.waiting(&key) {
                take(&payload);
                continue;
            }
            let looked = self.cache.folder.read(&key, used, &mut file, &mut take);
            match &looked {
                Ok(PartLookup::Found) => continue,
                Ok(PartLookup::Missing) => {}
                Ok(PartLookup::Damaged) => self.cache.damaged(),
                Err(error) => self.cache.failed(error),
            }
            found.missing.push(key.part);
        }
        found
    }
}

impl CachedStore {
    fn key(&self, read: &TableRead, part: u64) -> EntryKey {
        let (name, object_bytes) = (read.name, read.object_bytes);
        EntryKey { place: self.place, name, object_bytes, part }
    }

    fn keys(&self, read: &TableRead) -> impl Iterator<Item = EntryKey> + use<> {
        let first = self.key(read, 0);
        parts::covering(&read.range).map(move |part| EntryKey { part, ..first })
    }

    /// What the disk has of a read.
    async fn look(&self, read: &TableRead) -> FoundParts {
        let effects = &self.handle.effects;
        let fills = read.cached == CacheUse::Fill;
        let used = fills.then(|| effects.clock.now());
        let (keys, handle, range) = (self.keys(read), Arc::clone(&self.handle), read.range.clone());
        let looks = move || handle.look(keys, &range, used);
        let found = effects.blocking("disk cache", looks).await.unwrap_or_else(|_| {
            let missing = parts::covering(&read.range).collect();
            FoundParts { missing, ..FoundParts::default() }
        });
        if fills {
            let all = parts::covering(&read.range);
            let missing = found.missing.len() as u64;
            self.handle.counters.misses.add(missing);
            self.handle.counters.hits.add((all.end - all.start).saturating_sub(missing));
        }
        found
    }

    async fn read(&self, read: TableRead) -> Result<Option<Bytes>> {
        let FoundParts { mut bytes, missing } = self.look(&read).await;
        let fills = read.cached == CacheUse::Fill;
        let request = parts::request(&missing, &read.range, read.object_bytes, fills);
        let Some(request) = request else { return Ok(Some(Bytes::from(bytes))) };
        let fetched = match self.store.get(read.name, Some(request.clone())).await {
            // The object is shorter than its table says; the bytes that are wanted may be there.
            Err(error) if error.kind() == ErrorKind::Corruption && request != read.range => {
                return self.store.get(read.name, Some(read.range)).await;
            }
            fetched => fetched?,
        };
        let Some(fetched) = fetched else { return Ok(None) };
        if fills {
            let part = |part| {
                let range = parts::bytes_of(part, read.object_bytes);
                let (start, end) = (range.start - request.start, range.end - request.start);
                let payload = fetched.get(start as usize..end as usize)?;
                let payload = fetched.slice_ref(payload);
                Some(FetchedPart { key: self.key(&read, part), payload })
            };
            let parts = missing.iter().filter_map(|number| part(*number)).collect();
            self.handle.cache.fill(parts, &self.handle.effects);
        }
        if request == read.range {
            return Ok(Some(fetched));
        }
        // A copy: a slice would keep whole parts in memory as long as a block.
        if bytes.is_empty() {
            bytes = vec![0; (read.range.end - read.range.start) as usize];
        }
        parts::copy(&mut bytes, read.range.start, &fetched, request.start);
        Ok(Some(Bytes::from(bytes)))
    }

    async fn renew(&self, read: TableRead) -> Result<Option<Bytes>> {
        let (keys, handle) = (self.keys(&read), Arc::clone(&self.handle));
        let removes = move || {
            for key in keys {
                if let Err(error) = handle.cache.remove(&key) {
                    handle.cache.failed(&error);
                }
            }
        };
        // Without the removal the next reader finds the damage, and comes here as well.
        let _ = self.handle.effects.blocking("disk cache", removes).await;
        self.store.get(read.name, Some(read.range)).await
    }
}

impl fmt::Debug for CachedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

impl Store for CachedStore {
    fn get_table(&self, read: TableRead) -> BoxFuture<'_, Result<Option<Bytes>>> {
        let is_in_table = read.range.start < read.range.end && read.range.end <= read.object_bytes;
        if !is_in_table || !is_cached(read.name) {
            return self.store.get(read.name, Some(read.range));
        }
        match read.cached {
            CacheUse::Fill | CacheUse::Look => self.read(read).boxed(),
            CacheUse::Renew => self.renew(read).boxed(),
        }
    }

    fn disk_cache(&self) -> Option<DiskCacheCounts> {
        let HandleCache { cache, counters, errors_before, .. } = &*self.handle;
        Some(DiskCacheCounts {
            hits: counters.hits.sum(),
            misses: counters.misses.sum(),
            bytes: cache.bytes(),
            capacity: cache.capacity,
            errors: cache.errors().saturating_sub(*errors_before),
        })
    }

    fn neighbour(&self, location: &str) -> Result<Arc<dyn Store>> {
        let store = self.store.neighbour(location)?;
        if store.profile().answers_at_once {
            return Ok(store);
        }
        let (place, handle) = (place_of(location), Arc::clone(&self.handle));
        Ok(Arc::new(CachedStore { store, place, handle }))
    }

    fn sent(&self) -> Option<Arc<SentRequests>> {
        self.store.sent()
    }

    fn follow_log(&self, database: DatabaseId, recorded: Option<&WalStore>) -> Result<()> {
        self.store.follow_log(database, recorded)
    }

    fn create_log(&self, database: DatabaseId) -> BoxFuture<'_, Result<Option<WalStore>>> {
        self.store.create_log(database)
    }

    fn log_identity(&self, step: LogIdentityStep) -> BoxFuture<'_, Result<()>> {
        self.store.log_identity(step)
    }

    fn log_location(&self) -> Option<String> {
        self.store.log_location()
    }

    fn log_sent(&self) -> Option<Arc<SentRequests>> {
        self.store.log_sent()
    }

    fn get(
        &self,
        name: ObjectName,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'_, Result<Option<Bytes>>> {
        self.store.get(name, range)
    }

    fn get_now(
        &self,
        name: ObjectName,
        range: Option<Range<u64>>,
    ) -> Option<Result<Option<Bytes>>> {
        self.store.get_now(name, range)
    }

    fn get_now_into(
        &self,
        name: ObjectName,
        range: Range<u64>,
        buffer: &mut Vec<u8>,
    ) -> Option<Result<bool>> {
        self.store.get_now_into(name, range, buffer)
    }

    fn lend(&self, name: ObjectName, bytes: u64) -> Option<Bytes> {
        self.store.lend(name, bytes)
    }

    fn profile(&self) -> Profile {
        self.store.profile()
    }

    fn get_clamped(
        &self,
        name: ObjectName,
        range: Range<u64>,
    ) -> BoxFuture<'_, Result<Option<Bytes>>> {
        self.store.get_clamped(name, range)
    }

    fn is_encrypted(&self) -> bool {
        self.store.is_encrypted()
    }

    fn records(&self) -> Option<&'static str> {
        self.store.records()
    }

    fn lists_in_order(&self) -> Option<bool> {
        self.store.lists_in_order()
    }

    fn may_be_emptied(&self) -> bool {
        self.store.may_be_emptied()
    }

    fn unanswered(&self) -> Option<String> {
        self.store.unanswered()
    }

    fn moved(&self) -> u64 {
        self.store.moved()
    }

    fn location(&self) -> Option<String> {
        self.store.location()
    }

    fn stands_at(&self, location: &str) -> bool {
        self.store.stands_at(location)
    }

    fn follows(&self, location: &str) -> Result<()> {
        self.store.follows(location)
    }

    fn copy_from(&self, location: &str, from: ObjectName, to: ObjectName) -> CopyAnswer<'_> {
        self.store.copy_from(location, from, to)
    }

    fn ensure_conditions(&self) -> BoxFuture<'_, Result<()>> {
        self.store.ensure_conditions()
    }

    fn put_if_absent(&self, name: ObjectName, bytes: Bytes) -> BoxFuture<'_, PutAnswer> {
        self.store.put_if_absent(name, bytes)
    }

    fn upload(&self, name: ObjectName) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        self.store.upload(name)
    }

    fn list(
        &self,
        prefix: &'static str,
        after: Option<ObjectName>,
    ) -> BoxFuture<'_, Result<Vec<Listed>>> {
        self.store.list(prefix, after)
    }

    fn list_job(&self, job: JobId) -> BoxFuture<'_, Result<Vec<Listed>>> {
        self.store.list_job(job)
    }

    fn names(
        &self,
        prefix: &'static str,
        after: Option<ObjectName>,
    ) -> BoxFuture<'_, Result<Vec<ObjectName>>> {
        self.store.names(prefix, after)
    }

    fn delete(&self, name: ObjectName) -> BoxFuture<'_, Result<()>> {
        self.store.delete(name)
    }

    fn delete_many(&self, names: Vec<ObjectName>) -> BoxFuture<'_, Vec<Result<()>>> {
        self.store.delete_many(names)
    }

    fn names_a_delete(&self) -> usize {
        self.store.names_a_delete()
    }

    fn sweep(&self, cutoff: UnixMillis) -> BoxFuture<'_, Result<SweepReport>> {
        self.store.sweep(cutoff)
    }

    fn begin_use(&self) -> StoreUse {
        self.store.begin_use()
    }

    fn end_use(&self) {
        self.store.end_use();
    }

    fn occupy(&self, database: DatabaseId, take_over: bool) -> BoxFuture<'_, Result<Presence>> {
        self.store.occupy(database, take_over)
    }
}
