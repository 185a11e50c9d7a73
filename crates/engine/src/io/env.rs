//! The seam between logic and effects: clock, randomness, spawning and the store come in through
//! one [`Env`], so that the whole engine runs under simulation on one thread (RFC 0008).

use super::store::Store;
use super::supervise::caught_now;
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
    /// Wall-clock time. Never decides about safety: expiry of entries and names use it, nothing
    /// else does.
    fn now(&self) -> UnixMillis;
    /// Time since some fixed moment of this process; never goes back.
    fn monotonic(&self) -> Duration;
    /// As [`Clock::monotonic`], and runs on while the machine is suspended: what was promised to
    /// others until a moment is counted by this.
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

/// Randomness: identities and jitter.
pub trait Random: Send + Sync {
    /// 64 uniform bits.
    fn next_u64(&self) -> u64;
}

/// Background work.
pub trait Spawn: Send + Sync {
    /// Runs `task` until it ends. `name` stands in traces.
    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>);
    /// Runs `work`, which may block (file synchronisation, building a large table), where it holds
    /// up no task.
    fn spawn_blocking(&self, name: &'static str, work: Box<dyn FnOnce() + Send>);
    /// How many pieces of work truly run side by side: the cores that this process may use.
    fn cores(&self) -> usize {
        1
    }
}

/// Everything of an [`Env`] but the store: what a store itself is built with. Cheap to clone.
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
    /// The whole seam, with `store` in it.
    #[must_use]
    pub fn with_store(self, store: Arc<dyn Store>) -> Env {
        Env { clock: self.clock, random: self.random, spawn: self.spawn, store }
    }

    /// Runs `work` on the blocking side and waits for its result. `work` runs to its end even when
    /// the future is dropped.
    ///
    /// # Errors
    /// Internal when `work` panicked, or the runtime ended before it began.
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
    let gone = || Error::internal("a blocking worker was dropped").with("worker", name);
    answered.await.unwrap_or_else(|_| Err(gone()))
}

/// Everything the engine may touch outside its own memory. Cheap to clone.
#[derive(Clone)]
pub struct Env {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub random: Arc<dyn Random>,
    /// Background work.
    pub spawn: Arc<dyn Spawn>,
    /// The database's root in an object store.
    pub store: Arc<dyn Store>,
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
        (u128::from(self.random.next_u64()) << 64) | u128::from(self.random.next_u64())
    }

    /// The bits of a new ULID.
    #[must_use]
    pub fn new_ulid(&self) -> u128 {
        ulid_bits(self.clock.now().0, self.random_u128())
    }

    /// `base` to `2 * base`, uniform: what a retry waits, so that rivals do not stay in step.
    #[must_use]
    pub fn jittered(&self, base: Duration) -> Duration {
        base + base.mul_f64(self.share())
    }

    /// From 0 to 1, uniform.
    #[must_use]
    pub fn share(&self) -> f64 {
        (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Runs `work` on the blocking side and waits for its result.
    ///
    /// # Errors
    /// Internal when `work` panicked, or the runtime ended before it began.
    pub async fn blocking<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        blocking(&*self.spawn, name, work).await
    }

    /// `work`, or Timeout after `limit`. The work is dropped then.
    ///
    /// # Errors
    /// Those of `work`; Timeout.
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

    /// What a call ends with whose deadline passed.
    pub(crate) fn timed_out(&self, limit: Duration, operation: &'static str) -> Error {
        let error = Error::new(ErrorKind::Timeout, "the deadline passed").during(operation);
        self.unanswered(error.with("deadline", format_args!("{limit:?}")))
    }

    /// `error`, a deadline that passed, with the request that was not answered meanwhile.
    pub(crate) fn unanswered(&self, error: Error) -> Error {
        match self.store.unanswered() {
            Some(request) => error.with("no answer to", request),
            None => error,
        }
    }
}
