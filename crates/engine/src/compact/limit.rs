//! How fast compactions go at most: one bucket for all jobs and ranges of a process.
//!
//! ```text
//! paid up to ─┬──────────┬─────────┬────────► time
//!             │ A: bytes │ B: bytes│          A waits until its stretch is over, then B
//! ```
//! Whoever has moved bytes takes the next stretch of time, as long as the bytes are worth, and
//! waits for its end: in the order of asking, so that no range starves. Nothing is saved up while
//! nobody asks: after a rest there is no burst.

use crate::io::env::Clock;
use parking_lot::Mutex;
use std::time::Duration;

/// Longest time without a look at whether to go on.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// The bucket.
#[derive(Default)]
pub(super) struct Limit {
    /// Up to when time was given away.
    paid: Mutex<Duration>,
}

impl Limit {
    /// Waits as long as `bytes` that were moved are worth at `per_second` bytes a second, or until
    /// `go_on` says no.
    pub(super) async fn pay(
        &self,
        clock: &dyn Clock,
        bytes: u64,
        per_second: u64,
        go_on: impl Fn() -> bool,
    ) {
        let worth = Duration::from_secs_f64(bytes as f64 / per_second.max(1) as f64);
        let end = {
            let mut paid = self.paid.lock();
            *paid = (*paid).max(clock.monotonic()) + worth;
            *paid
        };
        loop {
            let left = end.saturating_sub(clock.monotonic());
            if left.is_zero() || !go_on() {
                return;
            }
            clock.sleep(left.min(LONGEST_SLEEP)).await;
        }
    }
}
