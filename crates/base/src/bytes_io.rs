//! Bounded decoding: a [`Reader`] that returns Corruption if bytes are missing, and varints.

use crate::error::{Error, Result};

/// A LEB128 varint of 64 bits takes at most 10 bytes.
pub const MAX_VARINT_BYTES: usize = 10;

/// Appends `value` as LEB128: 7 bits per byte, low bits first, high bit set in all but the last
/// byte.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Bytes that [`put_varint`] would write.
#[must_use]
pub fn varint_len(value: u64) -> usize {
    // Every started group of 7 bits takes a byte; zero takes one.
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Reads forward through `bytes`; every method returns Corruption instead of reading past the end.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Starts at the first byte.
    #[must_use]
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, at: 0 }
    }

    /// The number of bytes read so far.
    #[must_use]
    #[inline]
    pub fn position(&self) -> usize {
        self.at
    }

    /// The number of bytes left.
    #[must_use]
    #[inline]
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Whether everything was read.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.remaining() == 0
    }

    /// The next `n` bytes.
    ///
    /// # Errors
    /// Corruption if fewer are left.
    #[inline]
    pub fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let end = self.at.checked_add(n).filter(|end| *end <= self.bytes.len());
        let taken = end.and_then(|end| self.bytes.get(self.at..end)).ok_or_else(|| {
            Error::corruption("bytes end too early")
                .with("needed", n)
                .with("left", self.remaining())
        })?;
        self.at += n;
        Ok(taken)
    }

    /// The next `N` bytes as an array.
    ///
    /// # Errors
    /// Corruption if fewer are left.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0u8; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// One byte.
    ///
    /// # Errors
    /// Corruption at the end.
    #[inline]
    pub fn u8(&mut self) -> Result<u8> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    /// Two bytes, little-endian.
    ///
    /// # Errors
    /// Corruption at the end.
    pub fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// Four bytes, little-endian.
    ///
    /// # Errors
    /// Corruption at the end.
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Eight bytes, little-endian.
    ///
    /// # Errors
    /// Corruption at the end.
    #[inline]
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Sixteen bytes, big-endian, as identities are stored.
    ///
    /// # Errors
    /// Corruption at the end.
    pub fn u128_be(&mut self) -> Result<u128> {
        Ok(u128::from_be_bytes(self.array()?))
    }

    /// A varint.
    ///
    /// # Errors
    /// Corruption at the end, past ten bytes, or past 64 bits.
    #[inline]
    pub fn varint(&mut self) -> Result<u64> {
        // Most lengths take one byte.
        match self.bytes.get(self.at) {
            Some(byte) if *byte < 0x80 => {
                self.at += 1;
                Ok(u64::from(*byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for group in 0..MAX_VARINT_BYTES as u32 {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            let shifted = bits << (7 * group);
            if shifted >> (7 * group) != bits {
                return Err(Error::corruption("varint over 64 bits"));
            }
            value |= shifted;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Error::corruption("varint over 10 bytes"))
    }

    /// A varint that counts bytes still to come: limited by the bytes left before anything is
    /// allocated.
    ///
    /// # Errors
    /// As [`Reader::varint`], and Corruption if it exceeds the bytes left.
    #[inline]
    pub fn length(&mut self) -> Result<usize> {
        let claimed = self.varint()?;
        usize::try_from(claimed).ok().filter(|n| *n <= self.remaining()).ok_or_else(|| {
            Error::corruption("a length runs past the end")
                .with("claimed", claimed)
                .with("left", self.remaining())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_at_the_edges() {
        for value in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            assert_eq!(out.len(), varint_len(value), "{value}");
            assert_eq!(Reader::new(&out).varint().ok(), Some(value));
        }
    }

    #[test]
    fn hostile_varints_are_corruption() {
        assert!(Reader::new(&[0x80; 11]).varint().is_err());
        let too_wide = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02];
        assert!(Reader::new(&too_wide).varint().is_err());
        assert!(Reader::new(&[]).varint().is_err());
        assert!(Reader::new(&[200, 1, 0]).length().is_err());
    }
}
