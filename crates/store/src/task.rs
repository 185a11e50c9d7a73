//! The effects of a real process: tokio's timers and threads, the system's clock and randomness. No
//! other module of this crate or of the engine may spawn tasks or read a clock.

#![allow(
    clippy::disallowed_methods,
    reason = "this module is what Env's Clock and Spawn are made of in a real process"
)]

use crate::Store;
use crate::env::{Clock, Effects, Env, Random, Spawn};
use futures::future::BoxFuture;
use siltstone_base::UnixMillis;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::runtime::Handle;

/// An [`Env`] on a tokio runtime, which must have its timer and I/O enabled.
#[must_use]
pub fn tokio_env(handle: Handle, store: Arc<dyn Store>) -> Env {
    tokio_effects(handle).with_store(store)
}

/// All of [`tokio_env`] except the store.
#[must_use]
pub fn tokio_effects(handle: Handle) -> Effects {
    Effects {
        clock: Arc::new(TokioClock { handle: handle.clone(), started: Instant::now() }),
        random: Arc::new(SystemRandom),
        spawn: Arc::new(TokioSpawn { handle }),
    }
}

/// The system's wall clock, for stores that set the modification time of objects themselves.
pub(crate) fn wall_clock() -> UnixMillis {
    // A clock before 1970 counts as 1970. This only affects expiry and names.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// The system's clock. It sleeps on the timer of a runtime, from any thread.
struct TokioClock {
    handle: Handle,
    started: Instant,
}

impl Clock for TokioClock {
    fn now(&self) -> UnixMillis {
        wall_clock()
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }

    /// Only Linux has such a clock. The monotonic clocks of other systems continue during
    /// suspension, or nearly so.
    #[cfg(target_os = "linux")]
    fn elapsed(&self) -> Duration {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::try_from(now).unwrap_or_else(|_| self.monotonic())
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        // Bind the timer to the runtime here, so that a thread outside of it may poll.
        let _entered = self.handle.enter();
        Box::pin(tokio::time::sleep(duration))
    }
}

/// The operating system's randomness, read each time: well under a microsecond, a few times per
/// object written. A generator with its own state would give the parent and the child of a `fork`
/// the same identities, and each would take the other's object for its own.
struct SystemRandom;

impl Random for SystemRandom {
    fn next_u64(&self) -> u64 {
        getrandom::u64().unwrap_or_else(|_| fallback_u64())
    }
}

/// For a system that refuses its randomness, such as a sandbox: hash keys of the standard library,
/// mixed with the process id and the time, because a `fork` copies the keys.
fn fallback_u64() -> u64 {
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.write_u64(wall_clock().0);
    hasher.finish()
}

/// Runs tasks on a tokio runtime and blocking work on its blocking threads.
struct TokioSpawn {
    handle: Handle,
}

impl Spawn for TokioSpawn {
    fn spawn(&self, _name: &'static str, task: BoxFuture<'static, ()>) {
        drop(self.handle.spawn(task));
    }

    fn spawn_blocking(&self, _name: &'static str, work: Box<dyn FnOnce() + Send>) {
        drop(self.handle.spawn_blocking(work));
    }

    fn cores(&self) -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryStore;
    use std::collections::HashSet;

    #[test]
    fn a_sleep_may_be_polled_from_outside_the_runtime() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let env = tokio_env(runtime.handle().clone(), MemoryStore::unnamed());
        // This runtime has no timer of its own, and no other runtime is entered here.
        let outside = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let before = env.clock.monotonic();
        outside.block_on(env.clock.sleep(Duration::from_millis(20)));
        assert!(env.clock.monotonic() - before >= Duration::from_millis(20));
        let answer = outside.block_on(env.blocking("add", || 1 + 1));
        assert_eq!(answer.unwrap(), 2);
    }

    #[test]
    fn work_that_the_end_of_the_runtime_drops_is_closed() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let env = tokio_env(runtime.handle().clone(), MemoryStore::unnamed());
        runtime.shutdown_timeout(Duration::from_secs(1));
        let outside = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let answer = outside.block_on(env.blocking("add", || 1 + 1));
        assert_eq!(answer.unwrap_err().kind(), siltstone_base::ErrorKind::Closed);
    }

    #[test]
    fn randomness_does_not_repeat() {
        let drawn: HashSet<u64> = (0..1000).map(|_| SystemRandom.next_u64()).collect();
        assert_eq!(drawn.len(), 1000);
        let drawn: HashSet<u64> = (0..1000).map(|_| fallback_u64()).collect();
        assert_eq!(drawn.len(), 1000);
    }
}
