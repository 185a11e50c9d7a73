//! Counters for hot paths. If all threads added to one atomic, its cache line would move between
//! cores on every `get`. Each thread therefore adds to a cache line that few others share, and a
//! read adds the lines up.

use super::latency::Latency;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Cache lines of one counter. From the ninth thread on threads share lines, which is slower but
/// still correct.
const LINES: usize = 8;

/// One in this number of operations is sampled.
const SAMPLED: u64 = 256;

/// 64 bytes: the cache line of x86-64 and of most aarch64 processors.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Line(AtomicU64);

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    lines: [Line; LINES],
}

impl Counter {
    /// Adds `n`. Wraps after 2^64.
    pub(crate) fn add(&self, n: u64) {
        if let Some(line) = self.lines.get(own_line()) {
            line.0.fetch_add(n, Relaxed);
        }
    }

    /// Adds one. Returns whether the operation is timed, which is one in [`SAMPLED`] per thread.
    /// Reading a clock twice for each `get` would cost a twentieth of its time.
    pub(crate) fn count(&self) -> bool {
        let line = self.lines.get(own_line());
        line.is_some_and(|line| line.0.fetch_add(1, Relaxed).is_multiple_of(SAMPLED))
    }

    /// The sum. Concurrent additions may or may not be included.
    pub(crate) fn sum(&self) -> u64 {
        self.lines.iter().fold(0, |sum, line| sum.wrapping_add(line.0.load(Relaxed)))
    }
}

/// The line of this thread, the same for all counters: below [`LINES`].
fn own_line() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static LINE: usize = NEXT.fetch_add(1, Relaxed) % LINES;
    }
    // A thread that is shutting down has no thread-locals any more.
    LINE.try_with(|line| *line).unwrap_or(0)
}

/// Counters of the operations on one handle since it was opened.
#[derive(Debug)]
pub(crate) struct HandleCounters {
    /// By the monotonic clock.
    pub(crate) opened: Duration,
    pub(crate) gets: Counter,
    pub(crate) get_many_keys: Counter,
    pub(crate) scans: Counter,
    /// Durations of `get`: sampled, if memory had all blocks; all, if the store was read.
    pub(crate) cached_gets: Latency,
    pub(crate) fetched_gets: Latency,
    /// For each WAL object, the time since its oldest write was accepted.
    pub(crate) durable_writes: Latency,
}

impl HandleCounters {
    pub(crate) fn since(opened: Duration) -> Self {
        HandleCounters {
            opened,
            gets: Counter::default(),
            get_many_keys: Counter::default(),
            scans: Counter::default(),
            cached_gets: Latency::default(),
            fetched_gets: Latency::default(),
            durable_writes: Latency::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_add_up() {
        let counter = Counter::default();
        std::thread::scope(|scope| {
            for _ in 0..3 * LINES {
                scope.spawn(|| (0..1000).for_each(|_| counter.add(2)));
            }
        });
        assert_eq!(counter.sum(), 3 * LINES as u64 * 2000);
    }
}
