//! The footer: the last bytes of a table, of fixed length, with the offsets of all other sections.
//!
//! ```text
//! offset size field
//!      0   72 a copy of the envelope
//!     72    8 offset of the filter, where the data blocks end and the tail starts
//!     80    8 offset of the index
//!     88    8 offset of the properties
//!     96    8 offset of the footer
//!    104    4 CRC32C of all bytes of the object before the footer
//!    108    4 codecs of filter, index, range deletes and properties: 0 none
//!    112   16 identity of the key that the table is encrypted with; 0 in clear
//!    128   12 zero: room
//!    140    4 masked CRC32C of bytes 0..140, bound to (object id, offset of the footer)
//! ```
//! A reader returns Unsupported if a field that this version writes as zero is not zero. The copy
//! of the envelope allows a single request of the tail to check version, feature bits and identity.

use crate::section::{CHECKSUM_BYTES, SectionPlace};
use siltstone_base::bytes_io::Reader;
use siltstone_base::checksum;
use siltstone_base::envelope::ENVELOPE_BYTES;
use siltstone_base::{Envelope, Error, ObjectKind, Result};
use std::ops::Range;

/// Bytes of a footer.
pub const FOOTER_BYTES: u64 = ENVELOPE_BYTES as u64 + 72;

/// Bytes of the codecs of sections, the key, and reserved space: all zero.
const CLEAR_BYTES: usize = 32;

/// Minimum bytes of a table: an envelope and a footer.
const MIN_OBJECT_BYTES: u64 = ENVELOPE_BYTES as u64 + FOOTER_BYTES;

/// A decoded footer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Footer {
    pub(crate) envelope: Envelope,
    pub(crate) filter: u64,
    pub(crate) index: u64,
    pub(crate) properties: u64,
    pub(crate) offset: u64,
    /// CRC32C of everything before the footer.
    pub(crate) body_checksum: u32,
}

impl Footer {
    /// The location of the footer in an object of `object_bytes`.
    ///
    /// # Errors
    /// Corruption if the object is too short to have one.
    pub(crate) fn range(object_bytes: u64) -> Result<Range<u64>> {
        if object_bytes < MIN_OBJECT_BYTES {
            return Err(Error::corruption("too short to be a table").with("bytes", object_bytes));
        }
        Ok(object_bytes - FOOTER_BYTES..object_bytes)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FOOTER_BYTES as usize);
        out.extend_from_slice(&self.envelope.encode());
        for offset in [self.filter, self.index, self.properties, self.offset] {
            out.extend_from_slice(&offset.to_le_bytes());
        }
        out.extend_from_slice(&self.body_checksum.to_le_bytes());
        out.extend_from_slice(&[0; CLEAR_BYTES]);
        SectionPlace { object: self.envelope.object, offset: self.offset }.seal(&mut out, 0);
        out
    }

    /// Reads the footer at the end of `bytes`, which are the end of an object of `object_bytes`.
    ///
    /// # Errors
    /// Corruption for bytes that no builder wrote; Unsupported for a newer version or feature.
    pub(crate) fn decode(bytes: &[u8], object_bytes: u64) -> Result<Footer> {
        let range = Footer::range(object_bytes)?;
        let start = bytes.len().checked_sub(FOOTER_BYTES as usize);
        let bytes = start
            .and_then(|start| bytes.get(start..))
            .ok_or_else(|| Error::corruption("too short to hold a footer"))?;
        let envelope = Envelope::decode(bytes, ObjectKind::Table)?;
        let place = SectionPlace { object: envelope.object, offset: range.start };
        place.open("footer", bytes)?;
        let mut reader = Reader::new(bytes.get(ENVELOPE_BYTES..).unwrap_or_default());
        let footer = Footer {
            envelope,
            filter: reader.u64()?,
            index: reader.u64()?,
            properties: reader.u64()?,
            offset: reader.u64()?,
            body_checksum: reader.u32()?,
        };
        if let Some(place) = reader.take(CLEAR_BYTES)?.iter().position(|byte| *byte != 0) {
            return Err(Error::unsupported(
                "a table's tail is compressed or encrypted in a way that this version does not \
                 know; upgrade to read it",
            )
            .with("byte of the footer", FOOTER_BYTES as usize - 4 - CLEAR_BYTES + place));
        }
        let sealed = CHECKSUM_BYTES as u64;
        let gap = |from: u64, to: u64| to.checked_sub(from).is_some_and(|gap| gap >= sealed);
        let in_order = footer.filter >= ENVELOPE_BYTES as u64
            && gap(footer.filter, footer.index)
            && gap(footer.index, footer.properties)
            && gap(footer.properties, footer.offset);
        if !in_order || footer.offset != range.start {
            return Err(Error::corruption("the parts of a table's tail are out of order"));
        }
        Ok(footer)
    }

    /// CRC32C of the whole object, given the footer's own bytes.
    pub(crate) fn object_checksum(&self, footer: &[u8]) -> u32 {
        checksum::extend(self.body_checksum, footer)
    }
}
