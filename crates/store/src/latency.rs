//! A histogram of durations. Many threads add to it without a lock.
//!
//! Buckets are log-linear, as in HdrHistogram: each doubling of the duration has eight buckets of
//! equal width, so a reported value exceeds the measured one by at most an eighth.

use std::array::from_fn;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Number of buckets per doubling, as a power of two.
const PART_BITS: u32 = 3;
const PARTS: usize = 1 << PART_BITS;
/// From 2^0 to 2^43 nanoseconds, which is over two hours. Longer durations count as the longest.
const DOUBLINGS: usize = 43;
const BUCKETS: usize = (DOUBLINGS + 1) * PARTS;

/// Durations of one kind of operation.
pub struct Latency {
    buckets: [AtomicU64; BUCKETS],
}

impl Default for Latency {
    fn default() -> Self {
        Latency { buckets: from_fn(|_| AtomicU64::new(0)) }
    }
}

impl std::fmt::Debug for Latency {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Latency").field("p50", &self.quantile(0.5)).finish_non_exhaustive()
    }
}

impl Latency {
    /// Adds a duration.
    #[inline]
    pub fn note(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        if let Some(bucket) = self.buckets.get(bucket_of(nanos)) {
            bucket.fetch_add(1, Relaxed);
        }
    }

    /// The quantile of the durations in seconds, for a share from 0 to 1: the upper end of its
    /// bucket. 0 if there are no durations.
    pub fn quantile(&self, share: f64) -> f64 {
        let counts: Vec<u64> = self.buckets.iter().map(|bucket| bucket.load(Relaxed)).collect();
        let all: u64 = counts.iter().sum();
        if all == 0 {
            return 0.0;
        }
        let rank = ((all as f64 * share).ceil() as u64).clamp(1, all);
        let mut below = 0;
        let at = counts.iter().position(|count| {
            below += count;
            below >= rank
        });
        end_of(at.unwrap_or(BUCKETS - 1)) as f64 / 1e9
    }
}

/// Each number below 2^[`PART_BITS`] has its own bucket. Above, the highest bit gives the doubling,
/// and the bits behind it the part.
#[inline]
fn bucket_of(nanos: u64) -> usize {
    let doubling = (u64::BITS - nanos.leading_zeros()).saturating_sub(PART_BITS + 1);
    let part = (nanos >> doubling) as usize;
    (doubling as usize * PARTS + part).min(BUCKETS - 1)
}

/// The largest number of nanoseconds in a bucket.
fn end_of(bucket: usize) -> u64 {
    let doubling = (bucket / PARTS).saturating_sub(1);
    let part = (bucket - doubling * PARTS) as u64;
    ((part + 1) << doubling) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_bucket_holds_what_falls_into_it(nanos in 0u64..1 << 43) {
            let bucket = bucket_of(nanos);
            prop_assert!(nanos <= end_of(bucket));
            prop_assert!(bucket == 0 || nanos > end_of(bucket - 1));
            prop_assert!(end_of(bucket) <= nanos + nanos / 8);
        }
    }

    #[test]
    fn shares_are_told() {
        let latency = Latency::default();
        assert_eq!(latency.quantile(0.5), 0.0);
        (1..=1000).for_each(|ms| latency.note(Duration::from_millis(ms)));
        for (share, seconds) in [(0.5, 0.5), (0.99, 0.99), (1.0, 1.0)] {
            let told = latency.quantile(share);
            assert!((seconds..=seconds * 1.125).contains(&told), "{share}: {told}");
        }
        latency.note(Duration::MAX);
        assert!(latency.quantile(1.0) > 8000.0);
    }
}
