//! The stored form of a block.
//!
//! ```text
//! offset size field
//!      0    1 codec: 0 none, 1 LZ4, 2 Zstandard
//!      1    8 length of the decompressed block
//!      9    n the block, compressed by the codec
//!    9+n    4 masked CRC32C of bytes 0..9+n, bound to (object id, offset of the block)
//! ```

use super::BlockBuilder;
use crate::codec::{Codec, Compressor, decompress};
use crate::section::{CHECKSUM_BYTES, SectionPlace};
use bytes::Bytes;
use siltstone_base::bytes_io::Reader;
use siltstone_base::limits::MAX_BLOCK_BYTES;
use siltstone_base::{Error, Result};

/// Bytes before the block.
const FRAME_BYTES: usize = 9;

/// Writes blocks; reuses the memory and the codecs' state.
#[derive(Default)]
pub(crate) struct BlockWriter {
    raw: Vec<u8>,
    compressor: Compressor,
}

impl BlockWriter {
    /// Appends the block of `entries` to `out`, which will be at `place`, and returns its length in
    /// bytes.
    ///
    /// # Errors
    /// Internal if a codec refuses input that it must accept.
    pub(crate) fn append(
        &mut self,
        entries: &BlockBuilder,
        codec: Codec,
        place: SectionPlace,
        out: &mut Vec<u8>,
    ) -> Result<u64> {
        let from = out.len();
        out.extend_from_slice(&[0; FRAME_BYTES]);
        let (codec, raw_bytes) = if codec == Codec::None {
            entries.encode_into(out);
            (Codec::None, out.len() - from - FRAME_BYTES)
        } else {
            self.raw.clear();
            entries.encode_into(&mut self.raw);
            (self.compressor.append(codec, &self.raw, out)?, self.raw.len())
        };
        if let Some([kind, length @ ..]) = out.get_mut(from..from + FRAME_BYTES) {
            *kind = codec as u8;
            length.copy_from_slice(&(raw_bytes as u64).to_le_bytes());
        }
        place.seal(out, from);
        Ok((out.len() - from) as u64)
    }
}

/// As [`open`], for the same bytes as in an earlier call: their checksum is not verified again.
///
/// # Errors
/// As [`open`].
pub(crate) fn open_again(stored: Bytes) -> Result<Bytes> {
    let end = stored.len().checked_sub(CHECKSUM_BYTES);
    unpack(stored, end.ok_or_else(|| Error::corruption("a block is shorter than its checksum"))?)
}

/// Whether the block in `stored` claims that no codec was used. Not verified.
pub(crate) fn is_plain(stored: &[u8]) -> bool {
    stored.first() == Some(&(Codec::None as u8))
}

/// The decompressed block in `stored`, which was read from `place`.
///
/// # Errors
/// Corruption for a wrong checksum, place or length; Unsupported for an unknown codec.
pub(crate) fn open(stored: Bytes, place: SectionPlace) -> Result<Bytes> {
    let end = place.open("block", &stored)?;
    unpack(stored, end)
}

fn unpack(stored: Bytes, end: usize) -> Result<Bytes> {
    let mut reader = Reader::new(stored.get(..end).unwrap_or_default());
    let codec = Codec::from_byte(reader.u8()?)?;
    let raw_bytes = reader.u64()?;
    if raw_bytes > MAX_BLOCK_BYTES {
        return Err(Error::corruption("a block claims an impossible decompressed length")
            .with("claimed", raw_bytes));
    }
    decompress(codec, stored.slice(FRAME_BYTES..end), raw_bytes)
}
