//! Estimates the position of a key in a block by interpolation between the first and the last key.

use siltstone_base::near::Line;
use siltstone_base::prefix::{head, shared_prefix};
use std::cmp::Ordering;

/// The straight line from a block's first key to its last, over the eight bytes that follow the
/// shared prefix of all its keys.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Interpolation {
    /// Bytes that all keys share.
    shared: usize,
    /// The first key's first eight bytes, as a number.
    start: u64,
    /// Through the eight bytes after the shared prefix, as numbers.
    line: Line,
}

impl Interpolation {
    /// For `entries` keys from `first` to `last`.
    pub(crate) fn new(first: &[u8], last: &[u8], entries: usize) -> Interpolation {
        let shared = shared_prefix(first, last);
        let mut guess = Interpolation { shared, start: head(first), ..Interpolation::default() };
        guess.line = Line::between(guess.head(first), guess.head(last), entries);
        guess
    }

    /// Length of the prefix that all keys share.
    #[inline]
    pub(crate) fn shared(&self) -> usize {
        self.shared
    }

    /// Reads the fields. Using the result keeps the compiler from removing the reads.
    #[inline]
    pub(crate) fn prefetch(&self) -> usize {
        self.shared ^ self.line.position(self.start)
    }

    /// The eight bytes of `key` after the shared prefix.
    #[inline]
    pub(crate) fn head(&self, key: &[u8]) -> u64 {
        head(key.get(self.shared..).unwrap_or_default())
    }

    /// The head of any key; `Err` for a key that the shared prefix alone places before all keys
    /// (`Less`) or after them. `first` returns the block's first key, which is on its own cache
    /// line. It is called only if the prefix is longer than eight bytes, or the key's prefix
    /// differs.
    #[inline]
    pub(crate) fn place<'a>(
        &self,
        key: &[u8],
        first: impl FnOnce() -> &'a [u8],
    ) -> Result<u64, Ordering> {
        // Without shared bytes the shift would be by 64: nothing is left to differ.
        let differing = head(key) ^ self.start;
        let shift = 64 - 8 * self.shared.min(8) as u32;
        let alike = differing.checked_shr(shift).unwrap_or(0) == 0;
        if self.shared <= 8 && alike && key.len() >= self.shared {
            return Ok(self.head(key));
        }
        let shared = first().get(..self.shared).unwrap_or_default();
        if key.starts_with(shared) {
            return Ok(self.head(key));
        }
        // The key does not extend the prefix: if it is less than the prefix, it is less than all
        // keys.
        Err(key.cmp(shared))
    }

    /// The probable position of a key that begins with the shared prefix. May be past the end.
    #[inline]
    pub(crate) fn near(&self, key: &[u8]) -> usize {
        self.position(self.head(key))
    }

    /// The probable position of a key with this head. May be past the end.
    #[inline]
    pub(crate) fn position(&self, head: u64) -> usize {
        self.line.position(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_keys_are_found_at_once() {
        let key = |n: u64| (n << 20).to_be_bytes();
        let guess = Interpolation::new(&key(5), &key(5 + 99), 100);
        for n in 0..100 {
            let at = guess.position(guess.head(&key(5 + n)));
            assert!(at.abs_diff(n as usize) <= 1, "{n} {at}");
        }
        assert_eq!(guess.position(guess.head(&key(4))), 0);
        assert!(guess.position(guess.head(&key(9_999))) >= 99);
    }

    #[test]
    fn a_key_without_the_shared_bytes_is_placed_by_them() {
        let guess = Interpolation::new(b"abc1", b"abc9", 9);
        assert_eq!(guess.place(b"ab", || b"abc1"), Err(Ordering::Less));
        assert_eq!(guess.place(b"abb9", || b"abc1"), Err(Ordering::Less));
        assert_eq!(guess.place(b"abd", || b"abc1"), Err(Ordering::Greater));
        assert!(guess.place(b"abc", || b"abc1").is_ok());
        assert_eq!(Interpolation::new(b"k", b"k", 3).position(0), 0);
    }
}
