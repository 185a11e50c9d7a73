//! Prefetching.
//!
//! A look-up in a large memory waits about a hundred nanoseconds for each cache line, but the lines
//! of many look-ups can be loaded in parallel: while a load waits, a processor continues with the
//! next two to three hundred instructions. So code that makes many look-ups first computes the
//! addresses from data that is in the cache, and then calls [`prefetch`] for all of them in a loop
//! that does nothing else: a dozen instructions for each, so most loads of the loop wait at the
//! same time.
//!
//! Instructions that prefetch without waiting exist, but calling them is `unsafe`.

/// Bytes between two reads: less than a line of 64.
const STRIDE: usize = 48;
/// Number of reads, besides the last one.
const LOADS: usize = 4;

/// Reads a few of these bytes, one per line if there are few lines, and returns their XOR. Pass it
/// to [`std::hint::black_box`]; otherwise the compiler removes the reads.
#[must_use]
#[inline(always)]
pub fn prefetch(bytes: &[u8]) -> u64 {
    let stride = STRIDE.max(bytes.len() / LOADS);
    let byte = |at: usize| u64::from(bytes.get(at).copied().unwrap_or_default());
    (0..LOADS).fold(byte(bytes.len().wrapping_sub(1)), |sum, n| sum ^ byte(n * stride))
}

#[cfg(test)]
mod tests {
    use super::prefetch;

    #[test]
    fn every_line_of_a_short_stretch_is_read() {
        for len in 1..=192 {
            // The bytes of one line are 1: the result shows whether that line was read an odd
            // number of times.
            let odd = (0..3).filter(|line| {
                let bytes: Vec<u8> = (0..len).map(|at| u8::from(at / 64 == *line)).collect();
                prefetch(&bytes) == 1
            });
            let reads = |line: usize| {
                let last = usize::from((len - 1) / 64 == line);
                last + (0..4).filter(|n| n * 48 < len && n * 48 / 64 == line).count()
            };
            let expected = (0..3).filter(|line| reads(*line) % 2 == 1);
            assert_eq!(odd.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "{len}");
            assert!((0..len.div_ceil(64)).all(|line| reads(line) > 0), "{len}");
        }
        assert_eq!(prefetch(b""), 0);
    }
}
