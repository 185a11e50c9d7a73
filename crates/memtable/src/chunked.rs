//! Append-only arrays in chunks of doubling size. A chunk never moves, so readers can index while
//! the writer appends.
//!
//! ```text
//! chunk:     0        1          2              3
//! items:  [0,256)  [256,768)  [768,1792)  [1792,3840)  ...
//! ```
//! Item `n` is in chunk `floor(log2(n + 256)) - 8`: adding the size of the first chunk makes every
//! chunk start at a power of two.

use std::sync::OnceLock;

/// log2 of the first chunk's size: small, since an idle database holds an almost empty memtable.
const FIRST_BITS: u32 = 8;
const FIRST: u64 = 1 << FIRST_BITS;
/// The largest number, 2^32 - 1, shifted by 256 has its top bit at 32.
const CHUNKS: usize = (32 - FIRST_BITS + 1) as usize;

/// An array that only grows. The writer makes an item's chunk before it publishes the item's
/// number.
pub(crate) struct Chunked<T> {
    chunks: [OnceLock<Box<[T]>>; CHUNKS],
}

/// Chunk and position in the chunk of item `n`.
fn locate(n: u32) -> (usize, usize) {
    let shifted = u64::from(n) + FIRST;
    let top_bit = shifted.ilog2();
    ((top_bit - FIRST_BITS) as usize, (shifted - (1 << top_bit)) as usize)
}

impl<T: Default> Chunked<T> {
    pub(crate) fn new() -> Self {
        Chunked { chunks: [const { OnceLock::new() }; CHUNKS] }
    }

    /// Item `n`, whose chunk was made before its number was published.
    #[expect(
        clippy::indexing_slicing,
        reason = "locate gives a chunk below CHUNKS and a position below the chunk's size"
    )]
    pub(crate) fn get(&self, n: u32) -> &T {
        let (chunk, position) = locate(n);
        match self.chunks[chunk].get() {
            Some(items) => &items[position],
            None => unreachable!("item {n} was named before its chunk was made"),
        }
    }

    /// Item `n`; makes its chunk if it does not exist. For the writer.
    #[expect(
        clippy::indexing_slicing,
        reason = "locate gives a chunk below CHUNKS and a position below the chunk's size"
    )]
    pub(crate) fn make(&self, n: u32) -> &T {
        let (chunk, position) = locate(n);
        let size = (FIRST << chunk) as usize;
        let items = self.chunks[chunk].get_or_init(|| (0..size).map(|_| T::default()).collect());
        &items[position]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fill_chunks_without_gaps() {
        assert_eq!(locate(0), (0, 0));
        let mut expected = (0, 0);
        for n in 0..100_000u32 {
            assert_eq!(locate(n), expected, "item {n}");
            expected.1 += 1;
            if expected.1 == (FIRST << expected.0) as usize {
                expected = (expected.0 + 1, 0);
            }
        }
    }

    #[test]
    fn the_largest_number_has_a_place() {
        let (chunk, position) = locate(u32::MAX);
        assert_eq!(chunk, CHUNKS - 1);
        assert_eq!(position as u64, FIRST - 1);
    }

    #[test]
    fn items_stay_where_they_are() {
        let array: Chunked<OnceLock<u32>> = Chunked::new();
        for n in 0..5_000 {
            array.make(n).set(n).unwrap();
        }
        assert!((0..5_000).all(|n| array.get(n).get() == Some(&n)));
    }
}
