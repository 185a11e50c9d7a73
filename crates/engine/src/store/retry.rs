//! Repeats requests until they succeed, until retrying cannot help, or until their time is up.

use crate::env::Env;
use futures::future::{Either, select};
use siltstone_base::{Error, ErrorKind, Result};
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

/// Pauses double from the first to the second; each is drawn from once to twice its base, so that
/// rivals do not stay in step and no pause is longer than a second.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Runs `attempt` again and again while it fails with a transient kind
/// ([`ErrorKind::is_transient`]), for `limit` in all, the attempt under way included.
///
/// # Errors
/// A kind that time does not cure, at once. Timeout once `limit` has passed, caused by the last
/// failure where there was one.
pub async fn with_retries<T, F: Future<Output = Result<T>>>(
    env: &Env,
    limit: Duration,
    operation: &'static str,
    mut attempt: impl FnMut() -> F,
) -> Result<T> {
    let started = env.clock.monotonic();
    let left = || limit.saturating_sub(env.clock.monotonic().saturating_sub(started));
    let mut pause = FIRST_PAUSE;
    let mut last = None;
    loop {
        let work = pin!(attempt());
        match select(work, env.clock.sleep(left())).await {
            Either::Left((Ok(value), _)) => return Ok(value),
            Either::Left((Err(error), _)) if !error.kind().is_transient() => {
                return Err(error.during(operation));
            }
            Either::Left((Err(error), _)) => last = Some(error),
            Either::Right(_) => return Err(timed_out(operation, limit, last)),
        }
        let wait = env.jittered(pause);
        if wait >= left() {
            env.clock.sleep(left()).await;
            return Err(timed_out(operation, limit, last));
        }
        env.clock.sleep(wait).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn timed_out(operation: &'static str, limit: Duration, last: Option<Error>) -> Error {
    let error = Error::new(ErrorKind::Timeout, "the deadline passed")
        .during(operation)
        .with("deadline", format_args!("{limit:?}"));
    match last {
        Some(last) => error.caused_by(last),
        None => error,
    }
}
