//! The shared objects, the random decisions, and the bookkeeping.

use super::link::Traffic;
use super::places::Place;
use super::plan::{Fault, FaultPlan};
use super::quota::Quota;
use super::refusal::{Refusals, Verb, is_for_good};
use super::store::FaultStore;
use crate::sim::{ProcessId, Rng, SimHandle};
use bytes::Bytes;
use parking_lot::Mutex;
use siltstone::store::{Listed, ObjectTag, PutAnswer, Store, lies_under};
use siltstone_base::{Error, ErrorKind, ManifestId, ObjectName, UnixMillis, WalId};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

/// How long an object's reads are correct after a flipped read: longer than a read and its retries.
const FLIP_PAUSE: Duration = Duration::from_secs(60);
/// Separates the random stream of [`Fault::EDGES`] from the others: enabling one of them changes no
/// other draw.
const EDGES: u64 = 0x6564_6765_0000_0001;

/// The point of a store operation at which the process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashPoint {
    /// Before the request leaves.
    Before,
    /// The store has applied it; the answer never arrives.
    AnswerLost,
    /// The answer has arrived. The poll that receives it still completes in memory; no further
    /// request is sent.
    After,
}

#[derive(Clone)]
struct Object {
    bytes: Bytes,
    created: Duration,
    modified: UnixMillis,
    tag: ObjectTag,
}

struct State {
    /// Whether its stores report that the place may be deleted under a handle.
    may_be_emptied: bool,
    objects: BTreeMap<ObjectName, Object>,
    /// Number of objects stored so far, for their tags.
    stored: u64,
    /// Every object of the log that was ever created, in order of creation.
    log: Vec<(WalId, Bytes)>,
    /// Every manifest that was ever created, in order of creation.
    manifests: Vec<(ManifestId, Bytes)>,
    rng: Rng,
    /// For [`Fault::EDGES`].
    edges: Rng,
    plan: FaultPlan,
    counts: BTreeMap<Fault, u64>,
    operations: BTreeMap<ProcessId, u64>,
    crash: Option<(ProcessId, u64, CrashPoint)>,
    /// Objects with a flipped read, and until when their reads are correct, so that a repeated read
    /// is correct even if many callers read one object at once.
    flipped: BTreeMap<ObjectName, Duration>,
    down_until: Duration,
    /// When the store refused creates or everything, as from and until.
    outages: Vec<(Duration, Duration)>,
    denied: bool,
    under_way: u64,
    traffic: Traffic,
    refusals: Refusals,
    quota: Quota,
    /// When a create of the WAL of each process was last refused permanently.
    refused_wal: BTreeMap<ProcessId, Duration>,
}

/// The object store of a simulated world.
pub struct Bucket {
    sim: SimHandle,
    /// The location by which others find it; `None`: it cannot be found.
    place: Option<Place>,
    state: Mutex<State>,
}

/// The fate of one request.
pub(super) struct Passage {
    /// The time to the store, and back.
    pub(super) there: Duration,
    pub(super) back: Duration,
    /// The error of a request that is refused in any case.
    pub(super) error: Option<Error>,
    /// When the client gives up, counted from the beginning, if that is before the answer.
    pub(super) cut: Option<Duration>,
    /// Whether the store has seen the request and refused it: then certainly nothing was applied.
    pub(super) is_certain: bool,
    /// When the process is to die in this request.
    pub(super) crash: Option<CrashPoint>,
}

impl Bucket {
    /// An empty store under `plan`, with random decisions from the simulation's seed.
    #[must_use]
    pub fn new(sim: &SimHandle, plan: FaultPlan) -> Arc<Bucket> {
        Bucket::at(sim, plan, None)
    }

    pub(super) fn at(sim: &SimHandle, plan: FaultPlan, place: Option<Place>) -> Arc<Bucket> {
        let state = State {
            objects: BTreeMap::new(),
            stored: 0,
            log: Vec::new(),
            manifests: Vec::new(),
            rng: sim.split_rng(),
            plan,
            counts: BTreeMap::new(),
            operations: BTreeMap::new(),
            crash: None,
            flipped: BTreeMap::new(),
            down_until: Duration::ZERO,
            outages: Vec::new(),
            may_be_emptied: true,
            denied: false,
            under_way: 0,
            edges: Rng::new(sim.seed() ^ EDGES),
            traffic: Traffic::default(),
            refusals: Refusals::default(),
            quota: Quota::default(),
            refused_wal: BTreeMap::new(),
        };
        Arc::new(Bucket { sim: sim.clone(), place, state: Mutex::new(state) })
    }

    /// The view of `process` on the store.
    #[must_use]
    pub fn store(self: &Arc<Self>, process: ProcessId) -> Arc<dyn Store> {
        Arc::new(FaultStore::new(Arc::clone(self), process))
    }

    pub(super) fn place(&self) -> Option<&Place> {
        self.place.as_ref()
    }

    pub(super) fn sim(&self) -> &SimHandle {
        &self.sim
    }

    /// Ends all faults: existing effects stay, and requests in flight still land. The link stays
    /// the same.
    pub fn heal(&self) {
        let mut state = self.state.lock();
        let link = state.plan.link;
        state.plan = FaultPlan::none();
        state.plan.link = link;
        state.refusals.lift();
        state.quota.lift();
        state.down_until = Duration::ZERO;
        state.denied = false;
    }

    /// Sets other faults from now on.
    pub fn set_plan(&self, plan: FaultPlan) {
        self.state.lock().plan = plan;
    }

    /// From now on its stores report that the place is never deleted, as a folder does: databases
    /// created here count from 1.
    pub fn stays(&self) {
        self.state.lock().may_be_emptied = false;
    }

    pub(super) fn may_be_emptied(&self) -> bool {
        self.state.lock().may_be_emptied
    }

    /// Refuses every request for lack of permission, or stops doing so.
    pub fn set_denied(&self, denied: bool) {
        self.state.lock().denied = denied;
    }

    /// Lets every request fail for `duration`.
    pub fn break_for(&self, duration: Duration) {
        self.state.lock().down_until = self.sim.elapsed() + duration;
    }

    /// Kills `process` in its `operation`-th store operation, counted from 1.
    pub fn crash_at(&self, process: ProcessId, operation: u64, point: CrashPoint) {
        self.state.lock().crash = Some((process, operation, point));
    }

    /// Number of store operations that `process` has begun: reads, creates, listings, deletes; the
    /// beginning of an upload, each of its chunks, and its end.
    #[must_use]
    pub fn operations(&self, process: ProcessId) -> u64 {
        self.state.lock().operations.get(&process).copied().unwrap_or(0)
    }

    /// How often each fault has occurred.
    #[must_use]
    pub fn injected(&self) -> BTreeMap<Fault, u64> {
        self.state.lock().counts.clone()
    }

    /// For how much of the last `window` the store refused requests of some kind.
    #[must_use]
    pub fn outage_within(&self, window: Duration) -> Duration {
        let now = self.sim.elapsed();
        let from = now.saturating_sub(window);
        let state = self.state.lock();
        let overlap =
            |&(began, until): &(Duration, Duration)| until.min(now).saturating_sub(began.max(from));
        state.outages.iter().map(overlap).sum()
    }

    /// Late requests that have not landed yet.
    #[must_use]
    pub fn under_way(&self) -> u64 {
        self.state.lock().under_way
    }

    /// Every object as stored.
    #[must_use]
    pub fn objects(&self) -> Vec<(ObjectName, Bytes)> {
        let state = self.state.lock();
        state.objects.iter().map(|(name, object)| (*name, object.bytes.clone())).collect()
    }

    /// Every object of the log that was ever created, including collected ones.
    #[must_use]
    pub fn log(&self) -> Vec<(WalId, Bytes)> {
        self.state.lock().log.clone()
    }

    /// Every manifest that was ever created, including collected ones, in order of creation.
    #[must_use]
    pub fn manifests(&self) -> Vec<(ManifestId, Bytes)> {
        self.state.lock().manifests.clone()
    }

    /// Stores an object from outside, replacing any existing one.
    pub fn insert(&self, name: ObjectName, bytes: Bytes) {
        let (created, modified) = (self.sim.elapsed(), self.sim.wall_clock());
        let mut state = self.state.lock();
        let tag = state.next_tag();
        state.objects.insert(name, Object { bytes, created, modified, tag });
    }

    /// Removes an object from outside. Returns whether it existed.
    pub fn remove(&self, name: ObjectName) -> bool {
        self.state.lock().objects.remove(&name).is_some()
    }

    /// Records one request of `process` with this many bytes: its number, its duration, and whether
    /// the process dies.
    pub(super) fn begin(&self, process: ProcessId, verb: Verb, bytes: u64) -> Passage {
        let now = self.sim.elapsed();
        let mut state = self.state.lock();
        let number = state.operations.entry(process).or_default();
        *number += 1;
        let number = *number;
        let crash = match state.crash {
            Some((doomed, at, point)) if doomed == process && at == number => Some(point),
            _ => None,
        };
        let (low, high) = state.plan.latency;
        let mut there = state.rng.between(low, high);
        let back = state.rng.between(low, high);
        if state.strikes(Fault::Stall) {
            there += state.rng.between(Duration::from_secs(1), Duration::from_secs(20));
        }
        if now >= state.down_until && state.strikes(Fault::BrownOut) {
            let (low, high) = state.plan.brown_out;
            state.down_until = now + state.rng.between(low, high);
            let until = state.down_until;
            state.outages.push((now, until));
        }
        let transient = now < state.down_until;
        let error = if state.denied {
            Some(Error::new(ErrorKind::Denied, "the store refused the credentials"))
        } else if transient {
            Some(Error::unavailable("the store is down (503)"))
        } else {
            state.refusal(verb, bytes, now)
        };
        let is_certain = error.is_some() && !transient;
        there += state.body(process, (now, bytes));
        let cut = state.cut(there + back, bytes);
        Passage { there, back, error, crash, cut, is_certain }
    }

    /// Whether `fault` occurs now; records it.
    pub(super) fn strikes(&self, fault: Fault) -> bool {
        self.state.lock().strikes(fault)
    }

    /// Records a fault that has occurred.
    pub fn book(&self, fault: Fault) {
        self.state.lock().book(fault);
    }

    /// The same for one of [`Fault::EDGES`].
    pub(super) fn strikes_at_the_edge(&self, fault: Fault) -> bool {
        self.state.lock().strikes_at_the_edge(fault)
    }

    /// How long `bytes` of an answer take to `process` after this time, and whether the client has
    /// given up by then.
    pub(super) fn answer(&self, process: ProcessId, passage: &mut Passage, bytes: u64) {
        let mut state = self.state.lock();
        passage.back += state.body(process, (self.sim.elapsed(), bytes));
        passage.cut = state.cut(passage.there + passage.back, bytes);
    }

    /// A random bit.
    pub(super) fn coin(&self) -> bool {
        self.state.lock().edges.chance(500)
    }

    /// Whether the next listing is made of pages: the fault counts only if there is a second page.
    pub(super) fn lists_in_pages(&self) -> bool {
        let mut state = self.state.lock();
        let rate = state.plan.rate(Fault::ListInPages);
        state.edges.chance(rate)
    }

    /// Number of names in a page of a listing, and the time until the next page.
    pub(super) fn page(&self) -> (usize, Duration) {
        let mut state = self.state.lock();
        let (low, high) = state.plan.latency;
        (state.plan.page_names.max(1), state.edges.between(low * 2, high * 2))
    }

    pub(super) fn stage(&self, bytes: u64) {
        self.state.lock().quota.stage(bytes);
    }

    pub(super) fn unstage(&self, bytes: u64) {
        self.state.lock().quota.unstage(bytes);
    }

    /// Records that a create of a WAL object of `process` was answered with this refusal.
    pub(super) fn refused_wal(&self, process: ProcessId, error: &Error) {
        if is_for_good(error) {
            self.state.lock().refused_wal.insert(process, self.sim.elapsed());
        }
    }

    /// When a create of a WAL object of `process` was last refused permanently.
    #[must_use]
    pub fn wal_refused_at(&self, process: ProcessId) -> Option<Duration> {
        self.state.lock().refused_wal.get(&process).copied()
    }

    /// The first of `faults` that occurs.
    pub(super) fn first_to_strike(&self, faults: &[Fault]) -> Option<Fault> {
        let mut state = self.state.lock();
        faults.iter().copied().find(|fault| state.strikes(*fault))
    }

    /// A delay for a late request; it counts as in flight until [`Bucket::landed`].
    pub(super) fn sends_late(&self) -> Duration {
        let mut state = self.state.lock();
        state.under_way += 1;
        let (low, high) = state.plan.lateness;
        state.rng.between(low, high)
    }

    /// Counts as in flight until [`Bucket::landed`], although its client no longer waits.
    pub(super) fn sets_out(&self) {
        self.state.lock().under_way += 1;
    }

    pub(super) fn landed(&self) {
        self.state.lock().under_way -= 1;
    }

    pub(super) fn create(&self, name: ObjectName, bytes: Bytes) -> PutAnswer {
        let (created, modified) = (self.sim.elapsed(), self.sim.wall_clock());
        let state = &mut *self.state.lock();
        let tag = state.next_tag();
        match state.objects.entry(name) {
            Entry::Occupied(_) => PutAnswer::Exists,
            Entry::Vacant(free) => {
                match name {
                    ObjectName::Wal(id) => state.log.push((id, bytes.clone())),
                    ObjectName::Manifest(id) => state.manifests.push((id, bytes.clone())),
                    _ => {}
                }
                free.insert(Object { bytes, created, modified, tag });
                PutAnswer::Created
            }
        }
    }

    pub(super) fn read(&self, name: ObjectName) -> Option<Bytes> {
        self.state.lock().objects.get(&name).map(|object| object.bytes.clone())
    }

    pub(super) fn tag(&self, name: ObjectName) -> Option<ObjectTag> {
        self.state.lock().objects.get(&name).map(|object| object.tag)
    }

    /// The bytes, perhaps with a flipped bit: never twice for one object within [`FLIP_PAUSE`].
    pub(super) fn perhaps_flipped(&self, name: ObjectName, bytes: Bytes) -> Bytes {
        let mut state = self.state.lock();
        let now = self.sim.elapsed();
        let spared = state.flipped.get(&name).is_some_and(|until| now < *until);
        if spared || bytes.is_empty() || !state.strikes(Fault::GetFlippedBit) {
            return bytes;
        }
        state.flipped.insert(name, now + FLIP_PAUSE);
        let bit = state.rng.below(bytes.len() as u64 * 8);
        let mut damaged = bytes.to_vec();
        if let Some(byte) = damaged.get_mut((bit / 8) as usize) {
            *byte ^= 1 << (bit % 8);
        }
        Bytes::from(damaged)
    }

    pub(super) fn listing(&self, prefix: &str, after: Option<ObjectName>) -> Vec<Listed> {
        let now = self.sim.elapsed();
        let mut state = self.state.lock();
        let hidden_since = if state.strikes(Fault::ListStale) {
            now.saturating_sub(state.plan.staleness)
        } else {
            Duration::MAX
        };
        let shown = state.objects.iter().filter(|(name, object)| {
            object.created <= hidden_since
                && lies_under(**name, prefix)
                && after.is_none_or(|after| **name > after)
        });
        shown
            .map(|(name, object)| Listed {
                name: *name,
                bytes: object.bytes.len() as u64,
                modified: object.modified,
                tag: Some(object.tag),
            })
            .collect()
    }
}

impl State {
    fn next_tag(&mut self) -> ObjectTag {
        self.stored += 1;
        ObjectTag::numbered(self.stored)
    }

    fn strikes(&mut self, fault: Fault) -> bool {
        let strikes = self.rng.chance(self.plan.rate(fault));
        if strikes {
            self.book(fault);
        }
        strikes
    }

    fn strikes_at_the_edge(&mut self, fault: Fault) -> bool {
        let strikes = self.edges.chance(self.plan.rate(fault));
        if strikes {
            self.book(fault);
        }
        strikes
    }

    fn book(&mut self, fault: Fault) {
        *self.counts.entry(fault).or_default() += 1;
    }

    /// The reason why the store refuses a request that has reached it.
    fn refusal(&mut self, verb: Verb, bytes: u64, now: Duration) -> Option<Error> {
        let (low, high) = self.plan.refusal;
        if self.refusals.of(verb, now).is_none() {
            if let Some(denied) = verb.denied()
                && self.strikes_at_the_edge(denied)
            {
                let until = now + self.edges.between(low, high);
                self.outages.push((now, until));
                self.refusals.deny(verb, until);
            } else if verb.is_refused() && self.strikes_at_the_edge(Fault::RefusedForGood) {
                let until = now + self.edges.between(low, high);
                self.outages.push((now, until));
                let kind = match self.edges.below(3) {
                    0 => ErrorKind::Unsupported,
                    1 if self.plan.refuses_as_missing => ErrorKind::NotFound,
                    _ => ErrorKind::Invalid,
                };
                self.refusals.refuse_for_good(verb, until, kind);
            }
        }
        let refused = self.refusals.of(verb, now);
        if refused.is_some() || verb != Verb::Put || self.plan.rate(Fault::DiskFull) == 0 {
            return refused;
        }
        let stored = self.objects.values().map(|object| object.bytes.len() as u64).sum();
        if !self.quota.is_set(now) && self.edges.chance(self.plan.rate(Fault::DiskFull)) {
            let spare = self.edges.below(self.plan.spare_bytes + 1);
            let until = now + self.edges.between(low, high);
            self.quota.set(stored, spare, until);
        }
        let full = self.quota.check(stored, bytes, now).err();
        if full.is_some() {
            self.book(Fault::DiskFull);
        }
        full
    }

    /// How long a body takes over the link.
    fn body(&mut self, process: ProcessId, (now, bytes): (Duration, u64)) -> Duration {
        let Some(link) = self.plan.link else { return Duration::ZERO };
        let takes = self.traffic.take(link, process, (now, bytes));
        if takes > self.plan.latency.1 {
            self.book(Fault::SlowLink);
        }
        takes
    }

    /// When the client gives up, if that is before the end of the request.
    fn cut(&mut self, way: Duration, bytes: u64) -> Option<Duration> {
        let limit = self.plan.link?.limit_of(bytes);
        if way <= limit {
            return None;
        }
        self.book(Fault::CutOff);
        Some(limit)
    }
}
