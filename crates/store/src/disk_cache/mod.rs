//! A cache of tables on local disks, between a handle and its object store (RFC 0053). It answers
//! [`Store::get_table`] from files of [parts], and passes everything else on.
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
use crate::{
    CacheUse, CopyAnswer, DiskCacheCounts, Neighbours, Observed, Store, TableRead, passed_on,
};
use bytes::Bytes;
use entry::{EntryKey, is_cached, place_of};
use filler::{DiskCache, FetchedPart};
use folder::PartLookup;
use futures::FutureExt;
use futures::future::BoxFuture;
use siltstone_base::{Error, ErrorKind, ObjectName, Result, UnixMillis};
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Pause of a mirror whose parts find no room in the queue of the disk.
const PAUSE_FOR_ROOM: Duration = Duration::from_millis(20);

/// Puts a cache of at most `capacity` bytes in `folder` between a handle's environment and its
/// store. The environment stays as it is if the store has no network to save requests of, or has no
/// URL that tells its database from others.
///
/// # Errors
/// Invalid for a path at which no folder can be; Unsupported for an encrypted database, whose plain
/// bytes must not be stored.
pub fn cached(env: Env, folder: &Path, capacity: u64) -> Result<Env> {
    folder::check(folder)?;
    if env.store.profile().answers_at_once {
        return Ok(env);
    }
    if env.store.profile().is_encrypted {
        let text = "the disk cache would store parts of an encrypted database in plain form: open \
                    it without the option disk_cache_path";
        return Err(Error::unsupported(text));
    }
    let Some(location) = env.store.place().location() else { return Ok(env) };
    // Only an empty path has no absolute form.
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let (clock, random) = (Arc::clone(&env.clock), Arc::clone(&env.random));
    let effects = Effects { clock, random, spawn: Arc::clone(&env.spawn) };
    let cache = DiskCache::at(folder, capacity);
    drop(cache.fill(Vec::new(), &effects));
    let errors_before = cache.errors();
    let counters = CacheCounters { hits: Counter::default(), misses: Counter::default() };
    let use_of = HandleCache { cache, effects, counters, errors_before };
    let place = place_of(&location);
    let store = CachedStore { store: Arc::clone(&env.store), place, handle: Arc::new(use_of) };
    Ok(Env { store: Arc::new(store), ..env })
}

/// The state that the stores of one handle share: its own, and those of the ancestors of a clone.
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

/// The parts of a read that were on the disk.
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

    /// Looks for the parts of a read on the disk.
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
            let parts = self.parts_of(&read, &missing, &fetched, request.start);
            // Parts for which the queue has no room are read from the store again.
            drop(self.handle.cache.fill(parts, &self.handle.effects));
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

    /// The parts `numbers` out of `fetched`, which begins at `start` of the table.
    fn parts_of(
        &self,
        read: &TableRead,
        numbers: &[u64],
        fetched: &Bytes,
        start: u64,
    ) -> Vec<FetchedPart> {
        let part = |number: &u64| {
            let range = parts::bytes_of(*number, read.object_bytes);
            let (start, end) = (range.start - start, range.end - start);
            let payload = fetched.get(start as usize..end as usize)?;
            let payload = fetched.slice_ref(payload);
            Some(FetchedPart { key: self.key(read, *number), payload })
        };
        numbers.iter().filter_map(part).collect()
    }

    /// Fetches the parts of the read that the disk lacks, and hands them over to be written, at the
    /// pace of the disk. The answer has no bytes.
    async fn mirror(&self, read: TableRead) -> Result<Option<Bytes>> {
        let effects = &self.handle.effects;
        let (keys, handle, now) = (self.keys(&read), Arc::clone(&self.handle), effects.clock.now());
        let lacks = move || {
            let lacking = keys.filter(|key| !handle.cache.has(key, now));
            lacking.map(|key| key.part).collect::<Vec<_>>()
        };
        let missing = effects.blocking("disk cache", lacks).await?;
        let request = parts::request(&missing, &read.range, read.object_bytes, true);
        let Some(request) = request else { return Ok(Some(Bytes::new())) };
        let start = request.start;
        let Some(fetched) = self.store.get(read.name, Some(request)).await? else {
            return Ok(None);
        };
        let mut parts = self.parts_of(&read, &missing, &fetched, start);
        loop {
            parts = self.handle.cache.fill(parts, effects);
            if parts.is_empty() {
                return Ok(Some(Bytes::new()));
            }
            effects.clock.sleep(PAUSE_FOR_ROOM).await;
        }
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
    passed_on!(store: objects, unanswered, profile, reads, place, log);

    fn get_table(&self, read: TableRead) -> BoxFuture<'_, Result<Option<Bytes>>> {
        let is_in_table = read.range.start < read.range.end && read.range.end <= read.object_bytes;
        if !is_in_table || !is_cached(read.name) {
            return self.store.get(read.name, Some(read.range));
        }
        match read.cached {
            CacheUse::Fill | CacheUse::Look => self.read(read).boxed(),
            CacheUse::Mirror => self.mirror(read).boxed(),
            CacheUse::Renew => self.renew(read).boxed(),
        }
    }

    fn observed(&self) -> Observed {
        let HandleCache { cache, counters, errors_before, .. } = &*self.handle;
        let counts = DiskCacheCounts {
            hits: counters.hits.sum(),
            misses: counters.misses.sum(),
            bytes: cache.bytes(),
            capacity: cache.capacity,
            errors: cache.errors().saturating_sub(*errors_before),
        };
        Observed { disk_cache: Some(counts), ..self.store.observed() }
    }

    fn neighbours(&self) -> &dyn Neighbours {
        self
    }
}

impl Neighbours for CachedStore {
    fn follows(&self, location: &str) -> Result<()> {
        self.store.neighbours().follows(location)
    }

    fn neighbour(&self, location: &str) -> Result<Arc<dyn Store>> {
        let store = self.store.neighbours().neighbour(location)?;
        if store.profile().answers_at_once {
            return Ok(store);
        }
        let (place, handle) = (place_of(location), Arc::clone(&self.handle));
        Ok(Arc::new(CachedStore { store, place, handle }))
    }

    fn copy_from(&self, location: &str, from: ObjectName, to: ObjectName) -> CopyAnswer<'_> {
        self.store.neighbours().copy_from(location, from, to)
    }
}
