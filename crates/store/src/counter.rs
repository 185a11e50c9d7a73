//! Counters for hot paths. If all threads added to one atomic, its cache line would move between
//! cores on every `get`. Each thread therefore adds to a cache line that few others share, and a
//! read adds the lines up.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

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
pub struct Counter {
    lines: [Line; LINES],
}

impl Counter {
    /// Adds `n`. Wraps after 2^64.
    #[inline]
    pub fn add(&self, n: u64) {
        if let Some(line) = self.lines.get(own_line()) {
            line.0.fetch_add(n, Relaxed);
        }
    }

    /// Adds one. Returns whether the operation is timed, which is one in 256 per thread.
    /// Reading a clock twice for each `get` would cost a twentieth of its time.
    #[inline]
    pub fn count(&self) -> bool {
        let line = self.lines.get(own_line());
        line.is_some_and(|line| line.0.fetch_add(1, Relaxed).is_multiple_of(SAMPLED))
    }

    /// The sum. Concurrent additions may or may not be included.
    pub fn sum(&self) -> u64 {
        self.lines.iter().fold(0, |sum, line| sum.wrapping_add(line.0.load(Relaxed)))
    }
}

/// The line of this thread, the same for all counters: below [`LINES`].
#[inline]
fn own_line() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static LINE: usize = NEXT.fetch_add(1, Relaxed) % LINES;
    }
    // A thread that is shutting down has no thread-locals any more.
    LINE.try_with(|line| *line).unwrap_or(0)
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
