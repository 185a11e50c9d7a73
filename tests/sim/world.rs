//! The state that all actors share, and how an actor handles a failed call.

use crate::edges::{Edges, tasks_are_supervised};
use crate::oracle::{Moment, Oracle, Rows};
use futures::future::{Either, select};
use parking_lot::Mutex;
use siltstone::{
    Batch, Env, Error, ErrorKind, OpenOptions, Options, Scan, UnixMillis, built_in_operator,
};
use siltstone_tests::faults::{Bucket, Fault, is_for_good};
use siltstone_tests::sim::{ProcessId, Rng, SimHandle};
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The state that all actors share.
pub(crate) struct World {
    pub(crate) sim: SimHandle,
    pub(crate) bucket: Arc<Bucket>,
    pub(crate) oracle: Oracle,
    pub(crate) options: Options,
    pub(crate) edges: Edges,
    /// Whether range deletes, operands and expiry are written too.
    every_kind: bool,
    pub(crate) stop: Arc<AtomicBool>,
    /// Numbers values, so that no two are equal.
    counter: AtomicU64,
    pub(crate) active: AtomicU64,
    /// Actors by process, so that those of a killed process can be removed from the count.
    tasks: Mutex<BTreeMap<ProcessId, u64>>,
    pub(crate) collected: AtomicU64,
    pub(crate) compacted: AtomicU64,
    pub(crate) taken_back: AtomicU64,
    /// A process has tried to restore it: following readers may receive an error.
    pub(crate) restoring: AtomicBool,
}

impl World {
    /// Number of possible keys.
    pub(crate) const KEYS: u64 = 24;

    pub(crate) fn new(
        sim: SimHandle,
        bucket: Arc<Bucket>,
        options: Options,
        (edges, every_kind): (Edges, bool),
    ) -> Arc<World> {
        Arc::new(World {
            sim,
            bucket,
            oracle: Oracle::default(),
            options,
            edges,
            every_kind,
            stop: Arc::default(),
            counter: AtomicU64::new(0),
            active: AtomicU64::new(0),
            tasks: Mutex::default(),
            collected: AtomicU64::new(0),
            compacted: AtomicU64::new(0),
            taken_back: AtomicU64::new(0),
            restoring: AtomicBool::new(false),
        })
    }

    /// Number of actors of `process` that have not ended.
    pub(crate) fn live_tasks(&self, process: ProcessId) -> u64 {
        self.tasks.lock().remove(&process).unwrap_or(0)
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether `error` reports a restore, if there may have been one.
    pub(crate) fn is_of_a_restore(&self, error: &Error) -> bool {
        error.kind() == ErrorKind::Expired && self.restoring.load(Ordering::Relaxed)
    }

    pub(crate) fn key(n: u64) -> Vec<u8> {
        format!("key{:02}", n % World::KEYS).into_bytes()
    }

    /// A batch written at `now`, by the writer's clock.
    pub(crate) fn batch(&self, epoch: u64, rng: &mut Rng, now: UnixMillis) -> Batch {
        let mut batch = Batch::new();
        for _ in 0..=rng.below(5) {
            let key = World::key(rng.next_u64());
            if rng.chance(250) {
                batch.delete(&key).expect("a good key");
            } else if self.every_kind && rng.chance(80) {
                delete_range(&mut batch, [key, World::key(rng.next_u64())], rng);
            } else {
                let number = self.counter.fetch_add(1, Ordering::Relaxed);
                let mut value = format!("{epoch}/{number}/").into_bytes();
                value.resize(value.len() + rng.below(self.edges.value_bytes()) as usize, b'.');
                let written = match if self.every_kind { rng.below(10) } else { 9 } {
                    0..2 => batch.merge(&key, &value, None),
                    // Expired before it was written, by any clock; and never expiring.
                    2 => batch.put(&key, &value, Some(UnixMillis(1))),
                    3 => batch.put(&key, &value, Some(UnixMillis(u64::MAX))),
                    _ => batch.put(&key, &value, self.ends(rng, now)),
                };
                written.expect("a good entry");
            }
        }
        batch
    }

    /// The expiry of a value written at `now`: soon, if the seed has that.
    fn ends(&self, rng: &mut Rng, now: UnixMillis) -> Option<UnixMillis> {
        let soon = self.edges.have(Fault::ExpiryDue) && rng.chance(500);
        soon.then(|| UnixMillis(now.0 + 1 + rng.below(4000)))
    }

    /// Whether faults may cause `error` for a caller in `process`; if not, it is a bug.
    pub(crate) fn excuses(&self, process: ProcessId, error: &Error) -> bool {
        excusable(error) || self.is_of_a_panic(process, error)
    }

    fn is_of_a_panic(&self, process: ProcessId, error: &Error) -> bool {
        tasks_are_supervised()
            && error.kind() == ErrorKind::Internal
            && !self.sim.panics(process).is_empty()
    }

    /// Whether the call succeeded; failures of the store are tolerated, the end of the handle is
    /// not.
    pub(crate) fn tolerate(
        &self,
        process: ProcessId,
        result: Result<(), Error>,
    ) -> Result<bool, Error> {
        match result {
            Ok(()) => Ok(true),
            Err(error) if is_over(&error) || self.is_of_a_panic(process, &error) => Err(error),
            Err(error) if excusable(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether a handle that ended with `error` may be opened again in the same process.
    pub(crate) fn may_open_anew(&self, process: ProcessId, error: &Error) -> bool {
        is_for_good(error) || self.is_of_a_panic(process, error)
    }

    /// Runs `work`, unless the waiting caller drops it.
    pub(crate) async fn patiently<T>(
        &self,
        rng: &mut Rng,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let rate = self.edges.rate(Fault::DroppedFuture);
        if rate == 0 || !rng.chance(rate) {
            return Some(work.await);
        }
        let patience = self.sim.sleep(Duration::from_millis(rng.below(300)));
        match select(pin!(work), patience).await {
            Either::Left((done, _)) => Some(done),
            Either::Right(_) => {
                self.bucket.book(Fault::DroppedFuture);
                None
            }
        }
    }
}

/// Deletes from one of the keys to the other; every third range ends directly after a key.
fn delete_range(batch: &mut Batch, mut ends: [Vec<u8>; 2], rng: &mut Rng) {
    ends.sort();
    let [start, mut end] = ends;
    if start == end || rng.chance(333) {
        end.push(0);
    }
    batch.delete_range(&start, &end).expect("a good range");
}

/// Errors that faults may cause for a caller; any other error is a bug.
pub(crate) fn excusable(error: &Error) -> bool {
    use ErrorKind::{Closed, Conflict, Denied, Fenced, Timeout, Unavailable};
    matches!(error.kind(), Closed | Conflict | Denied | Fenced | Timeout | Unavailable)
        || is_for_good(error)
}

pub(crate) fn is_over(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Closed | ErrorKind::Fenced)
}

/// The times that one handle takes for now: they never decrease.
#[derive(Default)]
pub(crate) struct Now(UnixMillis);

impl Now {
    /// The time of a read that is made immediately.
    pub(crate) fn look(&mut self, sim: &SimHandle, env: &Env) -> Moment {
        self.0 = self.0.max(env.clock.now());
        Moment { low: self.0, high: sim.latest_shown().max(self.0) }
    }
}

/// Runs an actor and counts it as active until it ends.
pub(crate) fn start(
    world: &Arc<World>,
    process: ProcessId,
    name: &'static str,
    actor: impl Future<Output = Result<(), Error>> + Send + 'static,
) {
    let world = Arc::clone(world);
    world.active.fetch_add(1, Ordering::Relaxed);
    *world.tasks.lock().entry(process).or_default() += 1;
    let shared = Arc::clone(&world);
    world.sim.spawn(process, name, async move {
        if let Err(error) = actor.await
            && !shared.excuses(process, &error)
        {
            shared.oracle.violation(format!("{name}: {error:?}"));
        }
        shared.active.fetch_sub(1, Ordering::Relaxed);
        if let Some(tasks) = shared.tasks.lock().get_mut(&process) {
            *tasks -= 1;
        }
    });
}

/// Every row of a scan.
pub(crate) async fn rows_of(mut scan: Scan) -> Result<Rows, Error> {
    let mut rows = siltstone::Rows::new();
    let mut all = Vec::new();
    loop {
        let filled = scan.fill(&mut rows, 5, 1 << 10)?;
        all.extend(
            (0..rows.len())
                .filter_map(|row| rows.row(row).map(|(key, value)| (key.to_vec(), value.to_vec()))),
        );
        rows.clear();
        match filled {
            siltstone::FillOutcome::End => return Ok(all),
            siltstone::FillOutcome::Full => {}
            siltstone::FillOutcome::NeedsBlocks => scan.fetch().await?,
        }
    }
}

/// A writer with the merge operator of all of them.
pub(crate) fn opening(options: &Options) -> OpenOptions {
    let merge_operator = built_in_operator("append");
    OpenOptions { options: options.clone(), merge_operator, ..OpenOptions::default() }
}
