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

/// The bounds of a [`Histogram`] in nanoseconds, as powers of two: from 1 µs to 69 s.
const BOUNDS: std::ops::RangeInclusive<u32> = 10..=36;

/// The durations of one kind of operation at one moment, as monitoring systems take them.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    /// Bounds in seconds, each twice the one before, and the number of durations below each.
    pub below: Vec<(f64, u64)>,
    /// Number of all durations.
    pub count: u64,
    /// Their sum in seconds. A duration counts as the middle of its bucket, which differs from it
    /// by at most a sixteenth.
    pub seconds: f64,
}

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
        let counts = self.counts();
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

    /// All durations, by few buckets.
    pub fn histogram(&self) -> Histogram {
        let counts = self.counts();
        // A power of two is the start of a bucket, so the sums are exact.
        let below = |power: u32| counts.iter().take(bucket_of(1 << power)).sum();
        let nanos = counts.iter().enumerate().map(|(at, &count)| {
            let start = if at == 0 { 0 } else { end_of(at - 1) + 1 };
            count as f64 * (start + end_of(at)) as f64 / 2.0
        });
        Histogram {
            below: BOUNDS.map(|power| ((1u64 << power) as f64 / 1e9, below(power))).collect(),
            count: counts.iter().sum(),
            seconds: nanos.sum::<f64>() / 1e9,
        }
    }

    fn counts(&self) -> Vec<u64> {
        self.buckets.iter().map(|bucket| bucket.load(Relaxed)).collect()
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

        #[test]
        fn a_histogram_has_all_durations(taken in proptest::collection::vec(0u64..1 << 40, 0..40)) {
            let latency = Latency::default();
            taken.iter().for_each(|&nanos| latency.note(Duration::from_nanos(nanos)));
            let told = latency.histogram();
            prop_assert_eq!(told.count, taken.len() as u64);
            for &(bound, below) in &told.below {
                let fewer = taken.iter().filter(|&&nanos| (nanos as f64) < bound * 1e9).count();
                prop_assert_eq!(below, fewer as u64);
            }
            let seconds = taken.iter().sum::<u64>() as f64 / 1e9;
            prop_assert!((told.seconds - seconds).abs() <= seconds / 16.0);
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
