//! Every way in which a small file is damaged: each bit flipped, each length cut to, bytes added.

/// A change of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// This bit, counted from the lowest of the first byte.
    Flip(usize),
    /// Everything from this byte on is gone.
    Cut(usize),
    /// So many bytes of this value stand behind the end.
    Extend(usize, u8),
}

impl Damage {
    /// Every damage of bytes of this length, one bit of `stride` flipped.
    pub fn all(length: usize, stride: usize) -> impl Iterator<Item = Damage> {
        let flips = (0..length * 8).step_by(stride.max(1)).map(Damage::Flip);
        let longer = [1, 4, 64].into_iter().flat_map(|n| [0, 0xff].map(|b| Damage::Extend(n, b)));
        flips.chain((0..length).map(Damage::Cut)).chain(longer)
    }

    /// The damaged bytes.
    #[must_use]
    pub fn apply(self, bytes: &[u8]) -> Vec<u8> {
        let mut damaged = bytes.to_vec();
        match self {
            Damage::Flip(bit) => {
                if let Some(byte) = damaged.get_mut(bit / 8) {
                    *byte ^= 1 << (bit % 8);
                }
            }
            Damage::Cut(length) => damaged.truncate(length),
            Damage::Extend(more, byte) => damaged.resize(bytes.len() + more, byte),
        }
        damaged
    }
}
