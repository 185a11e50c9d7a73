//! The seam between logic and effects: clock, randomness, spawning and the store come in through
//! one [`Env`], so that the whole engine runs under simulation on one thread (RFC 0008).

use crate::Store;
use crate::retry_budget::RetryBudget;
use crate::supervise::caught_now;
use futures::FutureExt;
use futures::future::BoxFuture;
use siltstone_base::id::ulid_bits;
use siltstone_base::{Error, ErrorKind, Result, UnixMillis};
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// Time.
pub trait Clock: Send + Sync {
    /// Wall-clock time. It only decides the expiry of entries and names of objects; safety must
    /// never depend on it.
    fn now(&self) -> UnixMillis;
    /// Time since some fixed moment of this process. It never goes back.
    fn monotonic(&self) -> Duration;
    /// As [`Clock::monotonic`], but also counts time during which the machine is suspended.
    /// Promises to other processes with a time limit are counted by this clock.
    fn elapsed(&self) -> Duration {
        self.monotonic()
    }
    /// Completes after `duration`.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;
}

impl fmt::Debug for dyn Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

/// Randomness, for identities and jitter.
pub trait Random: Send + Sync {
    /// 64 uniform bits.
    fn next_u64(&self) -> u64;
}

/// 128 uniform bits.
pub(crate) fn random_u128(random: &dyn Random) -> u128 {
    (u128::from(random.next_u64()) << 64) | u128::from(random.next_u64())
}

/// Background work.
pub trait Spawn: Send + Sync {
    /// Runs `task` until it ends. `name` appears in traces.
    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>);
    /// Runs `work` on a thread where it may block (file synchronisation, building a large table)
    /// without delaying tasks.
    fn spawn_blocking(&self, name: &'static str, work: Box<dyn FnOnce() + Send>);
    /// Number of cores that this process may use.
    fn cores(&self) -> usize {
        1
    }
}

/// All of an [`Env`] except the store: what a store itself is built with. Cheap to clone.
#[derive(Clone)]
pub struct Effects {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub random: Arc<dyn Random>,
    /// Background work.
    pub spawn: Arc<dyn Spawn>,
}

impl Effects {
    /// The environment with `store`.
    #[must_use]
    pub fn with_store(self, store: Arc<dyn Store>) -> Env {
        let retries = Arc::default();
        Env { clock: self.clock, random: self.random, spawn: self.spawn, store, retries }
    }

    /// Runs `work` on a blocking thread and waits for its result. `work` runs to its end even if
    /// the future is dropped.
    ///
    /// # Errors
    /// Internal if `work` panicked, Closed if the runtime ended before it began.
    pub async fn blocking<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        blocking(&*self.spawn, name, work).await
    }
}

impl fmt::Debug for Effects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Effects").finish_non_exhaustive()
    }
}

async fn blocking<T: Send + 'static>(
    spawn: &dyn Spawn,
    name: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let (answer, answered) = futures::channel::oneshot::channel();
    let work = Box::new(move || drop(answer.send(caught_now(name, work))));
    spawn.spawn_blocking(name, work);
    // Panics are answered, so only a runtime that ends drops the work.
    let ended = || {
        let text = "the runtime ended before the work began: the process is exiting";
        Error::new(ErrorKind::Closed, text).with("work", name)
    };
    answered.await.unwrap_or_else(|_| Err(ended()))
}

/// Everything outside of its own memory that the engine uses. Cheap to clone.
#[derive(Clone)]
pub struct Env {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub random: Arc<dyn Random>,
    /// Background work.
    pub spawn: Arc<dyn Spawn>,
    /// The root of the database in an object store.
    pub store: Arc<dyn Store>,
    /// The turns of retries.
    pub retries: Arc<RetryBudget>,
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env").field("store", &self.store).finish_non_exhaustive()
    }
}

impl Env {
    /// 128 uniform bits.
    #[must_use]
    pub fn random_u128(&self) -> u128 {
        random_u128(&*self.random)
    }

    /// The bits of a new ULID.
    #[must_use]
    pub fn new_ulid(&self) -> u128 {
        ulid_bits(self.clock.now().0, self.random_u128())
    }

    /// A uniform duration from `base` to `2 * base`, for retries, so that competing processes do
    /// not stay in step.
    #[must_use]
    pub fn jittered(&self, base: Duration) -> Duration {
        base + base.mul_f64(self.share())
    }

    /// A uniform number from 0 to 1.
    #[must_use]
    pub fn share(&self) -> f64 {
        (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Runs `work` on a blocking thread and waits for its result.
    ///
    /// # Errors
    /// Internal if `work` panicked, Closed if the runtime ended before it began.
    pub async fn blocking<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        blocking(&*self.spawn, name, work).await
    }

    /// The output of `work`, or Timeout after `limit`. The work is dropped then.
    ///
    /// # Errors
    /// Errors of `work`; Timeout.
    pub async fn deadline<T>(
        &self,
        limit: Duration,
        operation: &'static str,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let work = pin!(work);
        match futures::future::select(work, self.clock.sleep(limit)).await {
            futures::future::Either::Left((done, _)) => done,
            futures::future::Either::Right(((), _)) => Err(self.timed_out(limit, operation)),
        }
    }

    /// Waits until `until` on the monotonic clock for the work that the store does in the
    /// background, so that the place of a closed database may be moved or removed.
    pub async fn at_rest(&self, until: Duration) {
        let left = until.saturating_sub(self.clock.monotonic());
        let rest = self.store.at_rest().map(Ok);
        if let Err(error) = self.deadline(left, "close", rest).await {
            log::info!(
                target: crate::troubles::TARGET,
                "the store still works in the background: {error}"
            );
        }
    }

    /// The error of a call whose deadline has passed.
    pub fn timed_out(&self, limit: Duration, operation: &'static str) -> Error {
        let error = Error::new(ErrorKind::Timeout, "the deadline passed").during(operation);
        self.unanswered(error.with("deadline", format_args!("{limit:?}")))
    }

    /// Adds the request that holds up the call to `error`, which reports a passed deadline.
    pub fn unanswered(&self, error: Error) -> Error {
        match self.store.unanswered() {
            Some(request) => error.with("waits for", request),
            None => error,
        }
    }
}
