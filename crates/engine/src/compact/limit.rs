//! The rate limit of compactions: one token bucket for all jobs and ranges of a process.
//!
//! ```text
//! paid up to ─┬──────────┬─────────┬────────► time
//!             │ A: bytes │ B: bytes│          A waits for the end of its stretch, then B
//! ```
//! A range that has moved bytes takes the next stretch of time, whose length is the cost of the
//! bytes, and waits for its end. Ranges are served in the order of their calls, so none starves.
//! Unused time is not saved, so there is no burst after a pause.

use parking_lot::Mutex;
use siltstone_store::env::Clock;
use std::time::Duration;

/// Longest time between two checks of whether to go on.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// The token bucket.
#[derive(Default)]
pub(super) struct Limit {
    /// Time up to which the rate is used.
    paid: Mutex<Duration>,
}

impl Limit {
    /// Waits for the cost of `bytes` moved bytes at `per_second` bytes per second, or until `go_on`
    /// returns `false`.
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
