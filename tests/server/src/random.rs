//! Pseudo-random numbers of a seed (SplitMix64), so that a run can be repeated.

/// A generator of one seed.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// In `[0, 1)`.
    pub(crate) fn share(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// In `0..below`, which is not 0.
    pub(crate) fn below(&mut self, below: usize) -> usize {
        let below = u64::try_from(below).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next_u64() % below).unwrap_or(0)
    }

    /// A draw from the standard normal distribution (Box and Muller, 1958).
    pub(crate) fn normal(&mut self) -> f64 {
        // In (0, 1]: the logarithm of zero is undefined.
        let radius = (-2.0 * (1.0 - self.share()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.share()).cos()
    }
}
