//! Sealing: bytes followed by a checksum that is bound to (object id, offset of the bytes).
//!
//! A stored checksum is *masked*: rotated, and a constant added. The CRC of bytes followed by their
//! own CRC does not depend on the bytes, for any initial value. So without the mask the checksum of
//! a whole object could not detect that one sealed part was replaced by another of the same length.
//! Addition is not linear over single bits, which breaks the cancellation. (Rotation and constant
//! are those of LevelDB's log format, for the same reason.)

use siltstone_base::checksum::bound;
use siltstone_base::{Error, ObjectId, Result};

/// Bytes of the checksum after a section or a block.
pub(crate) const CHECKSUM_BYTES: usize = 4;

/// The location of a section or a block, to which its checksum is bound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SectionPlace {
    pub(crate) object: ObjectId,
    pub(crate) offset: u64,
}

impl SectionPlace {
    fn checksum(self, bytes: &[u8]) -> u32 {
        let crc = bound(self.object, self.offset, bytes);
        crc.rotate_right(15).wrapping_add(0xa282_ead8)
    }

    /// Appends the checksum of `out[from..]`, which will be at this location.
    pub(crate) fn seal(self, out: &mut Vec<u8>, from: usize) {
        let checksum = self.checksum(out.get(from..).unwrap_or_default());
        out.extend_from_slice(&checksum.to_le_bytes());
    }

    /// The length of `sealed` without the checksum, once that is verified.
    ///
    /// # Errors
    /// Corruption, naming `what`, if the checksum does not match.
    pub(crate) fn open(self, what: &'static str, sealed: &[u8]) -> Result<usize> {
        let mismatch = || {
            Error::corruption("checksum mismatch").with("part", what).with("offset", self.offset)
        };
        let (bytes, checksum) = sealed.split_last_chunk::<CHECKSUM_BYTES>().ok_or_else(mismatch)?;
        if self.checksum(bytes) != u32::from_le_bytes(*checksum) {
            return Err(mismatch());
        }
        Ok(bytes.len())
    }
}
