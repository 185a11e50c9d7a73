//! Sections of a table's tail: bytes, then a CRC32C bound to (object id, offset of the section).

use siltstone_base::checksum::bound;
use siltstone_base::{Error, ObjectId, Result};

/// Bytes of the checksum after a section or a block.
pub(crate) const CHECKSUM_BYTES: usize = 4;

/// Where a section or a block lies: what its checksum is bound to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) object: ObjectId,
    pub(crate) offset: u64,
}

impl Place {
    fn checksum(self, bytes: &[u8]) -> u32 {
        if cfg!(mutation = "sst_checksum_unbound") {
            return siltstone_base::checksum::crc32c(bytes);
        }
        bound(self.object, self.offset, bytes)
    }

    /// Appends the checksum of `out[from..]`, which will lie at this place.
    pub(crate) fn seal(self, out: &mut Vec<u8>, from: usize) {
        let checksum = self.checksum(out.get(from..).unwrap_or_default());
        out.extend_from_slice(&checksum.to_le_bytes());
    }

    /// How many of `sealed` come before the checksum, once it is found to be right.
    ///
    /// # Errors
    /// Corruption, naming `what`, when it is not.
    pub(crate) fn open(self, what: &'static str, sealed: &[u8]) -> Result<usize> {
        let mismatch = || {
            Error::corruption("checksum mismatch in a table")
                .with("part", what)
                .with("offset", self.offset)
        };
        let (bytes, checksum) = sealed.split_last_chunk::<CHECKSUM_BYTES>().ok_or_else(mismatch)?;
        if self.checksum(bytes) != u32::from_le_bytes(*checksum) {
            return Err(mismatch());
        }
        Ok(bytes.len())
    }
}
