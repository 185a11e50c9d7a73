//! Columns of unsigned numbers: a base, and for each row the difference to it in a fixed number of
//! bytes.
//!
//! ```text
//! row n := base + (width bytes, little-endian, at start + n * width)
//! ```
//! A width of 0 means that all rows are equal to the base; the column takes no bytes.

/// Number of bytes for `value`: 0 for 0, at most 8.
pub(crate) fn width_of(value: u64) -> u8 {
    (64 - value.leading_zeros()).div_ceil(8) as u8
}

/// Appends the lower `width` bytes of `value`.
pub(crate) fn put(out: &mut Vec<u8>, value: u64, width: u8) {
    out.extend(value.to_le_bytes().into_iter().take(usize::from(width)));
}

/// The location of a column in a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) start: usize,
    pub(crate) width: u8,
    pub(crate) base: u64,
}

impl Column {
    /// A column that is `value` in every row.
    pub(crate) fn constant(value: u64) -> Column {
        Column { start: 0, width: 0, base: value }
    }

    /// The value that row `row` adds to the base. Missing bytes count as zero; a decoded block was
    /// checked to be complete.
    #[inline(always)]
    pub(crate) fn delta(&self, bytes: &[u8], row: usize) -> u64 {
        let width = usize::from(self.width);
        if width == 0 {
            return 0;
        }
        let at = self.start + row * width;
        let rest = bytes.get(at..).unwrap_or_default();
        match rest.first_chunk::<8>() {
            // One unaligned load; the excess bytes belong to later rows and are masked off.
            Some(word) => u64::from_le_bytes(*word) & (u64::MAX >> (64 - 8 * width)),
            None => {
                rest.iter().take(width).rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
            }
        }
    }

    /// Row `row`, modulo 2^64; a decoded block was checked not to wrap.
    #[inline]
    pub(crate) fn get(&self, bytes: &[u8], row: usize) -> u64 {
        self.base.wrapping_add(self.delta(bytes, row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_width_round_trips_to_the_last_byte() {
        for bits in 0..64 {
            let values = [0, 1u64 << bits, (1u64 << bits) - 1, u64::MAX >> (63 - bits)];
            let width = values.iter().map(|value| width_of(*value)).max().unwrap();
            let mut bytes = vec![0xaa; 3];
            values.iter().for_each(|value| put(&mut bytes, *value, width));
            let column = Column { start: 3, width, base: 0 };
            let read: Vec<u64> = (0..values.len()).map(|row| column.get(&bytes, row)).collect();
            assert_eq!(read, values, "width {width}");
        }
        assert_eq!((width_of(0), width_of(255), width_of(256), width_of(u64::MAX)), (0, 1, 2, 8));
    }
}
