//! A mirror: a task that keeps whole tables of a handle in the disk cache (RFC 0053).
//!
//! It must never hold a version of the tables while it fetches, because a reader's lease on that
//! version would keep garbage alive. It works on a list: a table that is deleted meanwhile is in no
//! newer version.

use super::tree::Levels;
use crate::cache::fetch::ReadContext;
use crate::options::MirroredKeys;
use futures::stream::{self, StreamExt, TryStreamExt};
use siltstone_base::sst::SstLocation;
use siltstone_base::{Error, ErrorKind, Result, SstDescriptor, SstId};
use siltstone_store::CacheUse;
use std::collections::{HashSet, VecDeque};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Pause between two looks at the tables of the handle. A look sends no request.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// Interval after which all tables are checked again, by the names of their files: other processes
/// may have evicted parts, and a user may have deleted the folder.
const CHECK_INTERVAL: Duration = Duration::from_secs(600);
/// Pause after an error.
const ERROR_PAUSE: Duration = Duration::from_secs(30);
/// Bytes of one request.
const REQUEST_BYTES: u64 = 4 << 20;
/// Requests of one table in flight.
const REQUESTS_IN_FLIGHT: usize = 4;

type TableKey = (SstLocation, SstId);

fn key_of(table: &SstDescriptor) -> TableKey {
    (table.location, table.id)
}

struct Mirror {
    context: ReadContext,
    span: MirroredKeys,
    /// The version whose tables `wanted` are. It keeps nothing alive.
    version: Weak<Levels>,
    /// Tables to fetch, newest first.
    wanted: VecDeque<SstDescriptor>,
    /// Tables of the version that were fetched.
    held: HashSet<TableKey>,
    /// Those of them whose files are to be checked again.
    unchecked: HashSet<TableKey>,
    checked_at: Duration,
    /// Whether the last request failed.
    fails: bool,
    /// Whether the tables did not fit when the version was read.
    is_too_large: bool,
}

/// Mirrors the tables of a handle until `levels` returns `None` or the handle is dropped.
pub(crate) async fn run<H: Send + Sync>(
    handle: Weak<H>,
    context: ReadContext,
    span: MirroredKeys,
    levels: fn(&H) -> Option<Arc<Levels>>,
) {
    let checked_at = context.env.clock.monotonic();
    let mut mirror = Mirror {
        context,
        span,
        version: Weak::new(),
        wanted: VecDeque::new(),
        held: HashSet::new(),
        unchecked: HashSet::new(),
        checked_at,
        fails: false,
        is_too_large: false,
    };
    loop {
        match handle.upgrade().and_then(|handle| levels(&handle)) {
            Some(levels) => mirror.look_at(&levels),
            None => return,
        }
        let pause = mirror.fetch_next().await;
        if !pause.is_zero() {
            mirror.context.env.clock.sleep(pause).await;
        }
    }
}

impl Mirror {
    /// Lists the tables to fetch, if the version is another one or a check of all is due.
    fn look_at(&mut self, levels: &Arc<Levels>) {
        let now = self.context.env.clock.monotonic();
        let is_due = now.saturating_sub(self.checked_at) >= CHECK_INTERVAL;
        if is_due {
            self.checked_at = now;
            self.unchecked.clone_from(&self.held);
        } else if std::ptr::eq(self.version.as_ptr(), Arc::as_ptr(levels)) {
            return;
        }
        self.version = Arc::downgrade(levels);
        let (start, end) = (self.span.start.as_deref(), self.span.end.as_deref());
        let runs = levels.runs.iter().flat_map(|run| run.overlapping(start, end));
        let mut tables: Vec<&SstDescriptor> = runs.map(|table| &table.descriptor).collect();
        // Parts of one table may be in several runs.
        let mut seen = HashSet::new();
        tables.retain(|table| seen.insert(key_of(table)));
        let room = self.fitting(&tables);
        self.held.retain(|key| seen.contains(key));
        self.unchecked.retain(|key| seen.contains(key));
        let is_wanted = |table: &&&SstDescriptor| {
            let key = key_of(table);
            !self.held.contains(&key) || self.unchecked.contains(&key)
        };
        let wanted = tables.iter().take(room).filter(is_wanted);
        self.wanted = wanted.map(|table| (*table).clone()).collect();
        let bytes = |held: bool| {
            let counted = tables.iter().filter(|table| self.held.contains(&key_of(table)) == held);
            counted.map(|table| table.object_bytes).sum::<u64>()
        };
        self.context.asked.mirror.bytes.store(bytes(true), Relaxed);
        self.context.asked.mirror.missing.store(bytes(false), Relaxed);
    }

    /// The number of tables, newest first, that fit into the cache. A file takes up to a 32nd more
    /// than its part, for its head and the rest of a block, and a step of a 64th stays free.
    fn fitting(&mut self, tables: &[&SstDescriptor]) -> usize {
        let disk = self.context.env.store.observed().disk_cache.unwrap_or_default();
        let room = disk.capacity - disk.capacity / 32;
        let mut bytes = 0_u64;
        let fits = |table: &&&SstDescriptor| {
            bytes += table.object_bytes + table.object_bytes / 32;
            bytes <= room
        };
        let fitting = tables.iter().take_while(fits).count();
        let is_too_large = fitting < tables.len();
        if is_too_large && !self.is_too_large {
            let all: u64 = tables.iter().map(|table| table.object_bytes).sum();
            log::warn!(
                target: "siltstone.store",
                "event=mirror_too_large bytes={all} disk_cache_bytes={} advice=\"the mirror keeps \
                 the newest tables that fit; raise disk_cache_bytes, or mirror fewer keys\"",
                disk.capacity,
            );
        }
        self.is_too_large = is_too_large;
        fitting
    }

    /// Fetches the next table. Returns the pause before the next call.
    async fn fetch_next(&mut self) -> Duration {
        let Some(table) = self.wanted.front() else { return LOOK_PAUSE };
        match self.fetch(table).await {
            Ok(()) => {
                let (progress, key) = (&self.context.asked.mirror, key_of(table));
                self.unchecked.remove(&key);
                if self.held.insert(key) {
                    progress.bytes.fetch_add(table.object_bytes, Relaxed);
                    progress.missing.fetch_sub(table.object_bytes, Relaxed);
                }
                self.wanted.pop_front();
                if std::mem::take(&mut self.fails) {
                    log::info!(target: "siltstone.store", "event=mirror_recovers");
                }
                Duration::ZERO
            }
            // A collector has deleted it: the handle has a newer version soon, or ends.
            Err(error) if is_of_old_version(&error) => {
                self.wanted.pop_front();
                Duration::ZERO
            }
            Err(error) => {
                self.context.asked.mirror.errors.fetch_add(1, Relaxed);
                if !std::mem::replace(&mut self.fails, true) {
                    let name = table.name();
                    log::warn!(
                        target: "siltstone.store",
                        "event=mirror_fails object={name} error={:?} advice=\"the mirror tries \
                         again; reads are not affected\"",
                        error.to_string(),
                    );
                }
                ERROR_PAUSE
            }
        }
    }

    async fn fetch(&self, table: &SstDescriptor) -> Result<()> {
        let starts = (0..table.object_bytes.div_ceil(REQUEST_BYTES)).map(|at| at * REQUEST_BYTES);
        let fetch = async |start: u64| {
            let range = start..(start + REQUEST_BYTES).min(table.object_bytes);
            self.context.read(table, range, CacheUse::Mirror).await.map(drop)
        };
        stream::iter(starts).map(fetch).buffer_unordered(REQUESTS_IN_FLIGHT).try_collect().await
    }
}

fn is_of_old_version(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Expired | ErrorKind::Fenced)
}
