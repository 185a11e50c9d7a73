//! Repeats requests until they succeed, until a retry cannot help, or until their time is up.

use crate::env::Env;
use futures::FutureExt;
use futures::future::{Either, pending, select};
use siltstone_base::{Error, Result};
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

/// Pauses double from the first to the longest. Each is drawn from once to twice its base, so that
/// competing processes do not stay in step and no pause exceeds a second.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Bandwidth that a request may assume of a link, in bytes per second: one megabit per second. The
/// largest WAL object with default options, 16 MiB, gets 128 s in addition to the limit. Four of
/// them in flight, and four parts of an upload beside them, arrive in time over 1 MiB/s. An 8 MiB
/// part of an upload gets 64 s, even if a dozen requests share a link of 13 Mbit/s.
pub const SLOWEST_BYTES_PER_SECOND: u64 = 128 << 10;

/// The time limit of a request that moves `bytes`, if a request without bytes may take `limit`.
/// With it a repetition of the same bytes can succeed in the end.
#[must_use]
pub fn limit_of(limit: Duration, bytes: u64) -> Duration {
    let millis = u128::from(bytes) * 1000 / u128::from(SLOWEST_BYTES_PER_SECOND);
    limit.saturating_add(Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX)))
}

/// Repeats `attempt` while a repetition may succeed ([`Error::may_be_repeated`]), for
/// `limit` in all, including the running attempt. The retries of a handle share a
/// [`RetryBudget`](crate::retry_budget::RetryBudget).
///
/// # Errors
/// An error of another kind, immediately. Timeout once `limit` has passed, caused by the last
/// failure if there was one.
pub async fn with_retries<T, F: Future<Output = Result<T>>>(
    env: &Env,
    limit: Duration,
    operation: &'static str,
    attempt: impl FnMut() -> F,
) -> Result<T> {
    repeat(env, limit, operation, pending(), attempt).await
}

/// As [`with_retries`], for a read of a whole object. If the read still runs after half of the
/// time, the object may be large: `length` is requested in parallel, and its result extends the
/// limit ([`limit_of`]). A store that does not answer at all causes a timeout as before.
///
/// # Errors
/// As [`with_retries`].
pub async fn read_whole<T, F: Future<Output = Result<T>>>(
    env: &Env,
    limit: Duration,
    operation: &'static str,
    length: impl Future<Output = Result<Option<u64>>>,
    attempt: impl FnMut() -> F,
) -> Result<T> {
    let asked = async {
        env.clock.sleep(limit / 2).await;
        length.await
    };
    repeat(env, limit, operation, asked, attempt).await
}

/// Retries after contradictory answers of successful requests, with pauses, for as long as one
/// request may take.
pub struct ContradictionRetry<'a> {
    env: &'a Env,
    limit: Duration,
    started: Duration,
    pause: Duration,
}

impl ContradictionRetry<'_> {
    /// The time begins now.
    pub fn new(env: &Env, limit: Duration) -> ContradictionRetry<'_> {
        ContradictionRetry { env, limit, started: env.clock.monotonic(), pause: FIRST_PAUSE }
    }

    /// Pauses, and returns whether there is time for another request.
    pub async fn after_a_pause(&mut self) -> bool {
        let clock = &self.env.clock;
        if clock.monotonic().saturating_sub(self.started) >= self.limit {
            return false;
        }
        clock.sleep(self.env.jittered(self.pause)).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        true
    }
}

async fn repeat<T, F: Future<Output = Result<T>>>(
    env: &Env,
    mut limit: Duration,
    operation: &'static str,
    length: impl Future<Output = Result<Option<u64>>>,
    mut attempt: impl FnMut() -> F,
) -> Result<T> {
    let started = env.clock.monotonic();
    let left =
        |limit: Duration| limit.saturating_sub(env.clock.monotonic().saturating_sub(started));
    let mut length = pin!(length.fuse());
    let mut pause = FIRST_PAUSE;
    let mut last = None;
    loop {
        let mut work = pin!(attempt());
        let ended = loop {
            match select(&mut work, select(&mut length, env.clock.sleep(left(limit)))).await {
                Either::Left((ended, _)) => break Some(ended),
                Either::Right((Either::Left((Ok(Some(bytes)), _)), _)) => {
                    limit = limit_of(limit, bytes);
                }
                Either::Right((Either::Left(_), _)) => {}
                Either::Right((Either::Right(_), _)) => break None,
            }
        };
        match ended {
            Some(Ok(value)) => return Ok(value),
            Some(Err(error)) if !error.may_be_repeated() => return Err(error.during(operation)),
            Some(Err(error)) => last = Some(error),
            None => return Err(timed_out(env, operation, limit, last)),
        }
        let wait = env.jittered(pause).max(env.retries.turn(env.clock.monotonic()));
        if wait >= left(limit) {
            env.clock.sleep(left(limit)).await;
            return Err(timed_out(env, operation, limit, last));
        }
        env.clock.sleep(wait).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn timed_out(env: &Env, operation: &'static str, limit: Duration, last: Option<Error>) -> Error {
    let error = env.timed_out(limit, operation);
    match last {
        Some(last) => error.caused_by(last),
        None => error,
    }
}
