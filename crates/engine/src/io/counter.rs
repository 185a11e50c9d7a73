//! Counters for hot paths. One atomic that all threads add to would bounce between their caches on
//! every `get`; here each thread adds to a cache line that few others share, and reading sums up.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Lines of one counter. Threads share lines from the ninth on: slower, never wrong.
const LINES: usize = 8;

/// 64 bytes: the line of x86-64 and of most aarch64 processors.
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

    /// The sum. Additions that run meanwhile are in it or not.
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
    // A thread that is being taken down has no locals any more.
    LINE.try_with(|line| *line).unwrap_or(0)
}

/// What one handle was asked for since it was opened.
#[derive(Debug)]
pub(crate) struct HandleCounters {
    /// By the clock's monotonic time.
    pub(crate) opened: Duration,
    pub(crate) gets: Counter,
    pub(crate) get_many_keys: Counter,
    pub(crate) scans: Counter,
}

impl HandleCounters {
    pub(crate) fn since(opened: Duration) -> Self {
        HandleCounters {
            opened,
            gets: Counter::default(),
            get_many_keys: Counter::default(),
            scans: Counter::default(),
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
