//! The cache of one folder: the queue of fetched parts, the one task that writes them, and the
//! bound on what the folder takes.
//!
//! A process knows the bytes that it has written since it last counted the folder. Each time it has
//! written a 64th of the capacity, it counts the folder and removes the least recently used files.
//! So one process never exceeds the capacity, and each other process adds a 64th at most. Processes
//! share no lock and no index, so none waits for a killed one.

use super::entry::EntryKey;
use super::folder::{CacheFolder, disk_bytes};
use super::parts::PART_BYTES;
use crate::env::Effects;
use bytes::Bytes;
use parking_lot::Mutex;
use siltstone_base::UnixMillis;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

/// Log target of lines about the cache.
const TARGET: &str = "siltstone.store";
/// Bytes of parts that wait to be written. A disk that is slower than the store loses parts, not
/// memory.
const QUEUE_BYTES: usize = 32 << 20;
/// Time without writes after one has failed.
const REST_MS: u64 = 30_000;
/// A process counts the folder each time that it has written this share of the capacity.
const STEPS: u64 = 64;

/// A part that was fetched from the store.
#[derive(Debug)]
pub(super) struct FetchedPart {
    pub(super) key: EntryKey,
    pub(super) payload: Bytes,
}

/// The cache in one folder, which handles of this process share.
#[derive(Debug)]
pub(super) struct DiskCache {
    pub(super) folder: CacheFolder,
    pub(super) capacity: u64,
    process: u32,
    queue: Mutex<FillQueue>,
    state: Mutex<FillState>,
    /// The size of the folder, as far as this process knows.
    bytes: AtomicU64,
    errors: AtomicU64,
    /// Whether something failed and no write has succeeded since.
    fails: AtomicBool,
    /// How often that began, for log lines with back-off.
    begun: AtomicU64,
}

#[derive(Debug, Default)]
struct FillQueue {
    order: VecDeque<EntryKey>,
    /// The parts that wait, with the one that is being written. Reads find them here.
    parts: HashMap<EntryKey, Bytes>,
    bytes: usize,
    /// Whether a task writes them.
    is_served: bool,
}

impl FillQueue {
    fn drop_part(&mut self, key: &EntryKey) {
        if let Some(payload) = self.parts.remove(key) {
            self.bytes -= payload.len();
        }
    }
}

/// State of the task that writes.
#[derive(Debug, Default)]
struct FillState {
    /// Bytes written since the folder was counted; `None` before the first time.
    since: Option<u64>,
    /// When something failed.
    failed_at: Option<UnixMillis>,
}

/// The caches that handles of this process use.
static CACHES: Mutex<Vec<Weak<DiskCache>>> = Mutex::new(Vec::new());

impl DiskCache {
    /// The cache in `root`. Handles that name the same folder and the same capacity share it. A
    /// child of a fork does not share that of its parent, whose task does not run in it.
    pub(super) fn at(root: PathBuf, capacity: u64) -> Arc<DiskCache> {
        let process = std::process::id();
        let mut caches = CACHES.lock();
        caches.retain(|cache| cache.strong_count() > 0);
        let is_it = |cache: &Arc<DiskCache>| {
            cache.folder.root() == root && cache.capacity == capacity && cache.process == process
        };
        if let Some(found) = caches.iter().filter_map(Weak::upgrade).find(is_it) {
            return found;
        }
        let cache = Arc::new(DiskCache {
            folder: CacheFolder::new(root),
            capacity,
            process,
            queue: Mutex::default(),
            state: Mutex::default(),
            bytes: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            fails: AtomicBool::new(false),
            begun: AtomicU64::new(0),
        });
        caches.push(Arc::downgrade(&cache));
        cache
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    pub(super) fn errors(&self) -> u64 {
        self.errors.load(Relaxed)
    }

    /// Counts an entry that was damaged.
    pub(super) fn damaged(&self) {
        self.errors.fetch_add(1, Relaxed);
    }

    /// Counts a failure, and logs the first one of several.
    pub(super) fn failed(&self, error: &io::Error) {
        self.errors.fetch_add(1, Relaxed);
        if self.fails.swap(true, Relaxed) {
            return;
        }
        if (self.begun.fetch_add(1, Relaxed) + 1).is_power_of_two() {
            log::warn!(
                target: TARGET,
                "event=disk_cache_fails folder={:?} error={:?} advice=\"reads go to the store; \
                 look at the space and the permissions of the folder\"",
                self.folder.root(),
                error.to_string(),
            );
        }
    }

    /// Hands parts over to be written. Those for which the queue has no room come back.
    pub(super) fn fill(
        self: &Arc<Self>,
        parts: Vec<FetchedPart>,
        effects: &Effects,
    ) -> Vec<FetchedPart> {
        let mut queue = self.queue.lock();
        let mut parts = parts.into_iter().peekable();
        let has_room =
            |queue: &FillQueue, part: &FetchedPart| queue.bytes + part.payload.len() <= QUEUE_BYTES;
        while let Some(FetchedPart { key, payload }) = parts.next_if(|part| has_room(&queue, part))
        {
            if let Entry::Vacant(free) = queue.parts.entry(key) {
                let bytes = payload.len();
                free.insert(payload);
                queue.bytes += bytes;
                queue.order.push_back(key);
            }
        }
        let begins = !std::mem::replace(&mut queue.is_served, true);
        drop(queue);
        if begins {
            let (serving, run_in) = (Serving(Some(Arc::clone(self))), effects.clone());
            effects.spawn.spawn_blocking("disk cache", Box::new(move || serving.run(&run_in)));
        }
        parts.collect()
    }

    /// Whether the disk has a part, or it waits to be written. A use at `now` is noted.
    pub(super) fn has(&self, key: &EntryKey, now: UnixMillis) -> bool {
        self.queue.lock().parts.contains_key(key)
            || self.folder.has(key, now).unwrap_or_else(|error| {
                self.failed(&error);
                false
            })
    }

    /// A part that waits to be written.
    pub(super) fn waiting(&self, key: &EntryKey) -> Option<Bytes> {
        self.queue.lock().parts.get(key).cloned()
    }

    /// Removes a part whose bytes were found to be damaged.
    pub(super) fn remove(&self, key: &EntryKey) -> io::Result<()> {
        self.queue.lock().drop_part(key);
        self.folder.remove(key)
    }

    /// Ends with `written`, the part before, and takes the next one; `None` ends the task.
    fn next(&self, written: Option<&EntryKey>) -> Option<FetchedPart> {
        let mut queue = self.queue.lock();
        if let Some(written) = written {
            queue.drop_part(written);
        }
        while let Some(key) = queue.order.pop_front() {
            if let Some(payload) = queue.parts.get(&key).cloned() {
                return Some(FetchedPart { key, payload });
            }
        }
        queue.is_served = false;
        None
    }

    /// Counts the folder if this process has not done so. Only a write ends a failure.
    fn begin(&self, now: UnixMillis) {
        let mut state = self.state.lock();
        if state.since.is_none() && state.failed_at.is_none() {
            match self.make_room(now) {
                Ok(()) => state.since = Some(0),
                failed => self.settle(&mut state, failed, now),
            }
        }
    }

    /// Writes a part, unless something failed a moment ago.
    fn write(&self, part: &FetchedPart, now: UnixMillis, unique: u64) {
        let mut state = self.state.lock();
        if state.failed_at.is_some_and(|at| at.0.abs_diff(now.0) < REST_MS) {
            return;
        }
        let written = self.try_write(part, &mut state, now, unique);
        self.settle(&mut state, written, now);
    }

    fn try_write(
        &self,
        part: &FetchedPart,
        state: &mut FillState,
        now: UnixMillis,
        unique: u64,
    ) -> io::Result<()> {
        let needed = disk_bytes(part.key.file_bytes() as u64);
        let since = match state.since {
            Some(since) if since + needed <= self.step() => since,
            _ => {
                self.make_room(now)?;
                0
            }
        };
        let bytes = self.folder.write(&part.key, &part.payload, now, unique)?;
        state.since = Some(since + bytes);
        self.bytes.fetch_add(bytes, Relaxed);
        Ok(())
    }

    fn settle(&self, state: &mut FillState, done: io::Result<()>, now: UnixMillis) {
        match done {
            Ok(()) => {
                state.failed_at = None;
                let failed = self.fails.swap(false, Relaxed);
                if failed && self.begun.load(Relaxed).is_power_of_two() {
                    let folder = self.folder.root();
                    log::info!(target: TARGET, "event=disk_cache_recovers folder={folder:?}");
                }
            }
            // The folder is deleted at this moment; the next write creates it again.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                state.since = None;
                self.errors.fetch_add(1, Relaxed);
            }
            Err(error) => {
                state.since = None;
                state.failed_at = Some(now);
                self.failed(&error);
            }
        }
    }

    /// Bytes that this process writes between two counts.
    fn step(&self) -> u64 {
        (self.capacity / STEPS).max(2 * disk_bytes(PART_BYTES + 1))
    }

    /// Counts the folder, and removes the files that were used longest ago until one more step has
    /// room.
    fn make_room(&self, now: UnixMillis) -> io::Result<()> {
        self.folder.prepare()?;
        let most = self.capacity.saturating_sub(self.step());
        loop {
            let census = self.folder.census(now)?;
            let mut bytes = census.bytes;
            for file in census.oldest.into_order() {
                if bytes <= most {
                    break;
                }
                self.folder.evict(&file)?;
                bytes = bytes.saturating_sub(file.bytes);
            }
            self.bytes.store(bytes, Relaxed);
            if bytes <= most {
                return Ok(());
            }
            if bytes == census.bytes {
                return Err(io::Error::other("the folder holds more than the cache may take"));
            }
        }
    }
}

/// The task that writes the queue of a cache.
struct Serving(Option<Arc<DiskCache>>);

impl Serving {
    fn run(mut self, effects: &Effects) {
        let Some(cache) = self.0.clone() else { return };
        cache.begin(effects.clock.now());
        let mut written = None;
        while let Some(part) = cache.next(written.as_ref()) {
            cache.write(&part, effects.clock.now(), effects.random.next_u64());
            written = Some(part.key);
        }
        self.0 = None;
    }
}

impl Drop for Serving {
    /// If the task is dropped or panics, the queued parts are discarded, and the next part that is
    /// filled starts a new task.
    fn drop(&mut self) {
        if let Some(cache) = self.0.take() {
            let mut queue = cache.queue.lock();
            *queue = FillQueue::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::{Clock, Random, Spawn};
    use futures::FutureExt;
    use futures::future::{BoxFuture, pending};
    use siltstone_base::{ObjectName, SstId};
    use std::time::Duration;

    type Work = Box<dyn FnOnce() + Send>;

    /// A clock that a test sets, and work that runs when the test says.
    #[derive(Default)]
    struct Held {
        now: AtomicU64,
        numbers: AtomicU64,
        work: Mutex<Vec<Work>>,
    }

    impl Clock for Held {
        fn now(&self) -> UnixMillis {
            UnixMillis(self.now.load(Relaxed))
        }

        fn monotonic(&self) -> Duration {
            Duration::ZERO
        }

        fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
            pending().boxed()
        }
    }

    impl Random for Held {
        fn next_u64(&self) -> u64 {
            self.numbers.fetch_add(1, Relaxed)
        }
    }

    impl Spawn for Held {
        fn spawn(&self, _: &'static str, _: BoxFuture<'static, ()>) {}

        fn spawn_blocking(&self, _: &'static str, work: Work) {
            self.work.lock().push(work);
        }
    }

    impl Held {
        fn run(&self) {
            let work = std::mem::take(&mut *self.work.lock());
            work.into_iter().for_each(|work| work());
        }
    }

    fn effects() -> (Arc<Held>, Effects) {
        let held = Arc::new(Held { now: AtomicU64::new(1 << 40), ..Held::default() });
        let (clock, random) = (Arc::<Held>::clone(&held), Arc::<Held>::clone(&held));
        let effects = Effects { clock, random, spawn: Arc::<Held>::clone(&held) };
        (held, effects)
    }

    fn part(part: u64) -> FetchedPart {
        let name = ObjectName::Compacted(SstId(5));
        let key = EntryKey { place: 1, name, object_bytes: PART_BYTES * 1000, part };
        FetchedPart { key, payload: Bytes::from(vec![part as u8; PART_BYTES as usize]) }
    }

    fn is_stored(cache: &DiskCache, key: &EntryKey) -> bool {
        let found = cache.folder.read(key, None, &mut Vec::new(), |_| {});
        found.unwrap() == super::super::folder::PartLookup::Found
    }

    #[test]
    fn the_queue_is_bounded_and_read_from() {
        let folder = tempfile::tempdir().unwrap();
        let cache = DiskCache::at(folder.path().join("c"), 1 << 30);
        let (held, effects) = effects();
        for n in 0..400 {
            drop(cache.fill(vec![part(n), part(n)], &effects));
        }
        let most = QUEUE_BYTES as u64 / PART_BYTES;
        assert_eq!(cache.queue.lock().bytes, QUEUE_BYTES);
        assert_eq!(cache.waiting(&part(most - 1).key), Some(part(most - 1).payload));
        assert_eq!(cache.waiting(&part(most).key), None);
        assert_eq!(held.work.lock().len(), 1, "one task serves the queue");
        cache.remove(&part(7).key).unwrap();
        held.run();
        assert!(is_stored(&cache, &part(0).key) && is_stored(&cache, &part(most - 1).key));
        assert!(!is_stored(&cache, &part(7).key), "a part that was removed is not written");
        assert_eq!(cache.queue.lock().bytes, 0);
        assert_eq!(cache.bytes(), (most - 1) * disk_bytes(part(0).key.file_bytes() as u64));
    }

    #[test]
    fn a_task_that_never_runs_leaves_the_queue_to_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        let cache = DiskCache::at(folder.path().join("c"), 1 << 30);
        let (held, effects) = effects();
        drop(cache.fill(vec![part(0)], &effects));
        held.work.lock().clear();
        assert_eq!(cache.waiting(&part(0).key), None);
        drop(cache.fill(vec![part(1)], &effects));
        held.run();
        assert!(is_stored(&cache, &part(1).key));
    }

    #[test]
    fn writes_rest_after_a_failure() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("c");
        std::fs::write(&root, b"in the way").unwrap();
        let cache = DiskCache::at(root.clone(), 1 << 30);
        let (held, effects) = effects();
        let fill = |n, later| {
            held.now.fetch_add(later, Relaxed);
            drop(cache.fill(vec![part(n)], &effects));
            held.run();
            cache.errors()
        };
        assert_eq!([fill(0, 0), fill(1, 1000), fill(2, REST_MS - 1001)], [1, 1, 1]);
        assert_eq!(fill(3, 1), 2);
        std::fs::remove_file(root).unwrap();
        assert_eq!([fill(4, 1000), fill(5, REST_MS)], [2, 2]);
        assert!(!is_stored(&cache, &part(4).key) && is_stored(&cache, &part(5).key));
    }

    #[test]
    fn handles_of_one_folder_and_size_share_a_cache() {
        let folder = tempfile::tempdir().unwrap();
        let at = |bytes| DiskCache::at(folder.path().to_owned(), bytes);
        let (one, same, other) = (at(1 << 23), at(1 << 23), at(1 << 24));
        assert!(Arc::ptr_eq(&one, &same) && !Arc::ptr_eq(&one, &other));
    }
}
