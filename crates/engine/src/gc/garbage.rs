//! How much garbage this process knows of, without asking the store: what decides that a round
//! cannot wait for its interval.
//!
//! Tables are counted as they leave the tree, from every manifest that the process learns. One that
//! a present checkpoint or lease keeps does not count yet: a table stands in every manifest from
//! the one that added it to the last that names it, so what keeps one of those keeps it. The WAL
//! is counted as it is written: by the next flush it is garbage. A round then tells what stayed.

use crate::options::Options;
use parking_lot::Mutex;
use siltstone_base::sst::SstLocation;
use siltstone_base::{ManifestId, ObjectName, SstId, UnixMillis};
use siltstone_manifest::Manifest;
use siltstone_manifest::gc::Allowance;
use siltstone_store::counting::Requests;
use siltstone_store::env::Clock;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use tokio::sync::Notify;

/// Garbage that may stay by default. Twice the live bytes and 1 GiB must hold the tree, the tables
/// that a compaction writes beside it, up to 256 MiB of WAL that is not flushed, and this: a
/// quarter of the live bytes and of the 1 GiB.
const DEFAULT: Allowance = Allowance { least: 256 << 20, percent: 25 };
/// Garbage that may stay when work ends: after `compact()`, and when the handle closes. The garbage
/// of one WAL object costs less than a round.
const AT_REST: Allowance = Allowance { least: 4 << 20, percent: 25 };
/// Manifests whose remains are worth a round when a handle closes, of any writer: processes
/// that open often, write little and close leave no other sign.
const MANIFESTS_AT_REST: u64 = 64;
/// Tables that left the tree and are remembered. While rounds fail, more of them would change
/// nothing: a round is due already, and each commit looks at all of them.
const MOST_RETIRED: usize = 4096;
/// A since-lease counts as run out so long after its end by this process's clock: the store's may
/// be a little behind, and a round goes by both.
const CLOCKS_DIFFER: u64 = 1000;

/// The garbage that a process knows of.
pub(crate) struct Garbage {
    requests: Arc<Requests>,
    clock: Arc<dyn Clock>,
    allowed: Allowance,
    /// Whether a collector of this process hears of it.
    heard: bool,
    known: Mutex<KnownGarbage>,
    /// Heard by the collector: there is more than is allowed.
    pub(crate) too_much: Notify,
}

#[derive(Default)]
struct KnownGarbage {
    newest: Option<Arc<Manifest>>,
    /// Tables of the tree: their bytes, and the first manifest known to name them.
    tree: HashMap<SstId, (u64, ManifestId)>,
    live: u64,
    /// Tables that left the tree.
    retired: HashMap<SstId, Retired>,
    /// WAL that the last round left, and all that had been written when it began.
    wal_left: u64,
    wal_before: u64,
    /// The newest manifest when the last round ended; of a handle that had none, when it opened.
    rounded: ManifestId,
}

/// A table that left the tree. It stood in all manifests from `first` to `last`.
#[derive(Clone, Copy)]
struct Retired {
    bytes: u64,
    first: ManifestId,
    last: ManifestId,
}

impl Garbage {
    pub(crate) fn new(
        requests: Arc<Requests>,
        clock: Arc<dyn Clock>,
        options: &Options,
    ) -> Arc<Garbage> {
        let given = options.gc.max_garbage_bytes.map(|least| Allowance { least, percent: 0 });
        let allowed = given.unwrap_or(DEFAULT);
        let (heard, known, too_much) = (options.embedded_gc, Mutex::default(), Notify::new());
        Arc::new(Garbage { requests, clock, allowed, heard, known, too_much })
    }

    /// The garbage that a round leaves: half of the allowance, so that the next round has something
    /// to do.
    pub(crate) fn leaves(&self) -> Allowance {
        self.allowed.halved()
    }

    /// As [`Garbage::leaves`], of a round when work ends.
    pub(crate) fn leaves_at_rest(&self) -> Allowance {
        let Allowance { least, percent } = AT_REST.halved();
        Allowance { least: least.min(self.leaves().least), percent }
    }

    /// Takes note of a newer manifest. Without a collector nothing would forget what it notes.
    pub(crate) fn observe(&self, newest: &Arc<Manifest>) {
        if !self.heard {
            return;
        }
        let mut known = self.known.lock();
        let first = match known.newest.replace(Arc::clone(newest)) {
            Some(before) => {
                known.retire(before.id, newest, self.clock.now());
                newest.id
            }
            None => {
                // Before this process made its claim.
                known.rounded = newest.id.minus(1);
                ManifestId::NONE
            }
        };
        // An ancestor's are its own to collect.
        let own = newest.tables().filter(|table| table.location == SstLocation::Own);
        for table in own {
            known.tree.entry(table.id).or_insert((table.object_bytes, first));
        }
        known.live = known.tree.values().map(|(bytes, _)| bytes).sum();
        let over = self.bytes(&known) > self.allowed.of(known.live);
        drop(known);
        if over {
            self.too_much.notify_one();
        }
    }

    /// Whether a round cannot wait.
    pub(crate) fn is_too_much(&self) -> bool {
        let known = self.known.lock();
        self.bytes(&known) > self.allowed.of(known.live)
    }

    /// Whether a round is worth its requests when work ends.
    pub(crate) fn is_worth_at_rest(&self) -> bool {
        let known = self.known.lock();
        let newest = known.newest.as_ref().map_or(ManifestId::NONE, |newest| newest.id);
        let nth = |id: ManifestId| id.get() / MANIFESTS_AT_REST;
        self.bytes(&known) > AT_REST.of(known.live) || nth(newest) > nth(known.rounded)
    }

    /// Bytes that a round could free, were nothing to stay for its age.
    fn bytes(&self, known: &KnownGarbage) -> u64 {
        known.bytes(&self.requests, self.clock.now())
    }

    /// A round begins: what the WAL had written by then.
    pub(crate) fn round_begins(&self) -> u64 {
        self.requests.wal_bytes()
    }

    /// A round that began with `wal_before` ended, and left `young` for its age.
    pub(crate) fn round_ended(&self, wal_before: u64, young: &[(ObjectName, u64)]) {
        let mut known = self.known.lock();
        let stays: HashMap<SstId, u64> = young.iter().filter_map(table).collect();
        known.retain_pinned_or(&stays, self.clock.now());
        for (id, bytes) in stays {
            // Another process's: no checkpoint pins it.
            let unpinned = Retired { bytes, first: ManifestId(u64::MAX), last: ManifestId::NONE };
            known.retired.entry(id).or_insert(unpinned);
        }
        let wal = young.iter().filter(|(name, _)| matches!(name, ObjectName::Wal(_)));
        known.wal_left = wal.map(|(_, bytes)| bytes).sum();
        known.wal_before = wal_before;
        known.rounded = known.newest.as_ref().map_or(ManifestId::NONE, |newest| newest.id);
    }
}

fn table((name, bytes): &(ObjectName, u64)) -> Option<(SstId, u64)> {
    match name {
        ObjectName::Compacted(id) | ObjectName::IngestSst(_, id) => Some((*id, *bytes)),
        _ => None,
    }
}

impl KnownGarbage {
    /// Tables that `newest` has no longer stood last in `before`.
    fn retire(&mut self, before: ManifestId, newest: &Manifest, now: UnixMillis) {
        let mut there: HashMap<SstId, (u64, ManifestId)> = HashMap::new();
        for table in newest.tables() {
            if let Some(entry) = self.tree.remove(&table.id) {
                there.insert(table.id, entry);
            }
        }
        let gone = std::mem::replace(&mut self.tree, there);
        if self.retired.len() + gone.len() > MOST_RETIRED {
            // The next round after the end of what keeps them finds these.
            let kept = self.kept(now);
            self.retired.retain(|_, table| !kept.keep(table));
        }
        let room = MOST_RETIRED.saturating_sub(self.retired.len());
        for (id, (bytes, first)) in gone.into_iter().take(room) {
            self.retired.insert(id, Retired { bytes, first, last: before });
        }
    }

    /// The leases and checkpoints that keep versions at `now`.
    fn kept(&self, now: UnixMillis) -> KeptVersions {
        let Some(newest) = &self.newest else { return KeptVersions::default() };
        let lately = UnixMillis(now.0.saturating_sub(CLOCKS_DIFFER));
        let since = newest.since_leases.iter().filter(|lease| !lease.expired_at(lately));
        let from = since.map(|lease| lease.from).min();
        KeptVersions { pinned: newest.pinned_versions(), from }
    }

    fn retain_pinned_or(&mut self, stays: &HashMap<SstId, u64>, now: UnixMillis) {
        let kept = self.kept(now);
        self.retired.retain(|id, table| stays.contains_key(id) || kept.keep(table));
    }

    fn bytes(&self, requests: &Requests, now: UnixMillis) -> u64 {
        let kept = self.kept(now);
        let unpinned = self.retired.values().filter(|table| !kept.keep(table));
        let tables: u64 = unpinned.map(|table| table.bytes).sum();
        let written = requests.wal_bytes().saturating_sub(self.wal_before);
        tables + self.wal_left + written
    }
}

/// Versions that are kept, with their tables.
#[derive(Default)]
struct KeptVersions {
    /// By checkpoints and point leases.
    pinned: BTreeSet<ManifestId>,
    /// By since-leases: this one and all later.
    from: Option<ManifestId>,
}

impl KeptVersions {
    fn keep(&self, table: &Retired) -> bool {
        let Retired { first, last, .. } = *table;
        let pinned = first <= last && self.pinned.range(first..=last).next().is_some();
        pinned || self.from.is_some_and(|from| from <= last)
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use futures::future::BoxFuture;
    use std::time::Duration;

    struct StoppedClock;

    impl Clock for StoppedClock {
        fn now(&self) -> UnixMillis {
            UnixMillis(0)
        }

        fn monotonic(&self) -> Duration {
            Duration::ZERO
        }

        fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
            Box::pin(std::future::pending())
        }
    }

    /// The garbage of a process that has sent no request and whose time stands still.
    pub(crate) fn no_garbage(options: &Options) -> Arc<Garbage> {
        Garbage::new(Arc::default(), Arc::new(StoppedClock), options)
    }
}

#[cfg(test)]
mod tests {
    use super::testing::no_garbage;
    use super::*;
    use crate::cache::metadata::testing::descriptor;
    use siltstone_base::{DatabaseId, SstDescriptor};
    use siltstone_manifest::{Settings, SortedRun};

    /// Observes manifests that each replace the one table of the one before.
    fn after_many(embedded_gc: bool) -> Arc<Garbage> {
        let options = Options { embedded_gc, ..Options::default() };
        let garbage = no_garbage(&options);
        for number in 1..3 * MOST_RETIRED as u64 {
            let first = Manifest::new_database(DatabaseId(1), Settings::default());
            let id = SstId(number.into());
            let tables = vec![SstDescriptor { id, ..descriptor(b"a", b"z") }];
            let runs = vec![SortedRun { id: 0, tables }];
            garbage.observe(&Arc::new(Manifest { id: ManifestId(number), runs, ..first }));
        }
        garbage
    }

    #[test]
    fn the_list_of_retired_tables_is_bounded() {
        assert_eq!(after_many(true).known.lock().retired.len(), MOST_RETIRED);
        let unheard = after_many(false);
        let known = unheard.known.lock();
        assert!(known.retired.is_empty() && known.tree.is_empty() && known.newest.is_none());
    }
}
