//! Numbers and keys of random histories.

use std::collections::BTreeSet;

/// The largest key.
pub(crate) const KEYS: u8 = 24;

/// Pseudo-random numbers (xorshift64*): the same ones for the same seed.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % most
    }

    /// A few keys close to one another.
    pub(crate) fn keys(&mut self) -> BTreeSet<u8> {
        let first = self.below(u64::from(KEYS)) as u8;
        let span = 1 + self.below(6) as u8;
        let keys = (0..=self.below(3)).map(|_| (first + self.below(span.into()) as u8).min(KEYS));
        keys.collect()
    }
}
