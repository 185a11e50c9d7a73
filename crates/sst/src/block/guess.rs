//! Where in a block a key probably lies, if keys are spread evenly between the first and the last.

use crate::prefix::{head, shared_prefix};
use std::cmp::Ordering;

/// The straight line from a block's first key to its last, over the eight bytes that follow what
/// all of its keys share.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Guess {
    /// Bytes that all keys share.
    shared: usize,
    /// The first key's eight bytes behind them, as a number.
    first: u64,
    /// Positions per unit of those eight bytes.
    slope: f64,
}

impl Guess {
    /// For `entries` keys from `first` to `last`.
    pub(crate) fn new(first: &[u8], last: &[u8], entries: usize) -> Guess {
        let shared = shared_prefix(first, last);
        let mut guess = Guess { shared, ..Guess::default() };
        guess.first = guess.head(first);
        let span = guess.head(last) - guess.first;
        if span > 0 {
            guess.slope = entries.saturating_sub(1) as f64 / span as f64;
        }
        guess
    }

    /// The eight bytes of `key` that count here: those behind what all keys share.
    #[inline]
    pub(crate) fn head(&self, key: &[u8]) -> u64 {
        head(key.get(self.shared..).unwrap_or_default())
    }

    /// The head of any key; `Err` for one that the shared bytes alone place before all keys
    /// (`Less`) or behind them. `first` is the block's first key.
    #[inline]
    pub(crate) fn place(&self, first: &[u8], key: &[u8]) -> Result<u64, Ordering> {
        let shared = first.get(..self.shared).unwrap_or_default();
        if key.starts_with(shared) {
            return Ok(self.head(key));
        }
        // Not a prefix's extension: less than the shared bytes, less than all keys.
        Err(key.cmp(shared))
    }

    /// Where a key with this head probably lies. May be past the end.
    #[inline]
    pub(crate) fn position(&self, head: u64) -> usize {
        (head.saturating_sub(self.first) as f64 * self.slope) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_keys_are_found_at_once() {
        let key = |n: u64| (n << 20).to_be_bytes();
        let guess = Guess::new(&key(5), &key(5 + 99), 100);
        for n in 0..100 {
            let at = guess.position(guess.head(&key(5 + n)));
            assert!(at.abs_diff(n as usize) <= 1, "{n} {at}");
        }
        assert_eq!(guess.position(guess.head(&key(4))), 0);
        assert!(guess.position(guess.head(&key(9_999))) >= 99);
    }

    #[test]
    fn what_lacks_the_shared_bytes_is_placed_by_them() {
        let guess = Guess::new(b"abc1", b"abc9", 9);
        assert_eq!(guess.place(b"abc1", b"ab"), Err(Ordering::Less));
        assert_eq!(guess.place(b"abc1", b"abb9"), Err(Ordering::Less));
        assert_eq!(guess.place(b"abc1", b"abd"), Err(Ordering::Greater));
        assert!(guess.place(b"abc1", b"abc").is_ok());
        assert_eq!(Guess::new(b"k", b"k", 3).position(0), 0);
    }
}
