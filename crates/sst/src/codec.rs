//! Compression of blocks, with the limits that make decompression safe.

use bytes::Bytes;
use siltstone_base::{Error, Result};

/// Larger blocks stay uncompressed, and a compressed block that claims more is refused: the LZ4
/// block format ends near 2 GiB, and the limit bounds the memory that a hostile block can make a
/// reader allocate.
pub(crate) const MAX_COMPRESSED_RAW_BYTES: u64 = 1 << 30;
/// The fastest regular level: the loss of ratio is small compared with the saved time on a
/// compactor's core.
const ZSTD_LEVEL: i32 = 1;
/// One byte of an LZ4 block represents at most 255 bytes (the format's run-length extension byte);
/// the slack covers the token and the literals of the last sequence.
const LZ4_MAX_RATIO: u64 = 255;
const LZ4_SLACK: u64 = 64;
/// A Zstandard block takes at least 4 bytes (a head of 3, and a byte to repeat) and represents at
/// most 128 KiB (RFC 8878, 3.1.1.2).
const ZSTD_BLOCK_BYTES: u64 = 4;
const ZSTD_BLOCK_RAW_BYTES: u64 = 128 << 10;

/// Compression of blocks. The numbers are stored; they never change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Codec {
    /// Not compressed.
    #[default]
    None = 0,
    /// LZ4, block format.
    Lz4 = 1,
    /// Zstandard, one frame per block.
    Zstd = 2,
}

impl Codec {
    /// The name in the manifest and in options.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Codec::None => "none",
            Codec::Lz4 => "lz4",
            Codec::Zstd => "zstd",
        }
    }

    /// The codec with that name, or `None`.
    #[must_use]
    pub fn parse(name: &str) -> Option<Codec> {
        [Codec::None, Codec::Lz4, Codec::Zstd].into_iter().find(|codec| codec.as_str() == name)
    }

    /// The codec stored as `byte`.
    ///
    /// # Errors
    /// Unsupported, with the number, for a codec that this version does not know.
    pub fn from_byte(byte: u8) -> Result<Codec> {
        match byte {
            0 => Ok(Codec::None),
            1 => Ok(Codec::Lz4),
            2 => Ok(Codec::Zstd),
            _ => Err(Error::unsupported("compressed by a codec that this version does not know")
                .with("codec", byte)),
        }
    }
}

/// Compresses blocks and reuses the state of the codecs.
#[derive(Default)]
pub(crate) struct Compressor {
    scratch: Vec<u8>,
    lz4: Option<lz4_flex::block::CompressTable>,
    zstd: Option<zstd::bulk::Compressor<'static>>,
}

impl Compressor {
    /// Appends `raw` to `out`, compressed if that saves at least an eighth, and returns the codec
    /// used. A smaller saving is not worth the time of every later read.
    ///
    /// # Errors
    /// Internal if a codec refuses input that it must accept.
    pub(crate) fn append(&mut self, codec: Codec, raw: &[u8], out: &mut Vec<u8>) -> Result<Codec> {
        let too_large = raw.len() as u64 > MAX_COMPRESSED_RAW_BYTES;
        let written = if too_large { None } else { self.compress(codec, raw)? };
        let worth = raw.len() - raw.len() / 8;
        match written.and_then(|n| self.scratch.get(..n)).filter(|bytes| bytes.len() <= worth) {
            Some(compressed) => {
                out.extend_from_slice(compressed);
                Ok(codec)
            }
            None => {
                out.extend_from_slice(raw);
                Ok(Codec::None)
            }
        }
    }

    /// Compresses into the scratch space and returns the length in bytes.
    fn compress(&mut self, codec: Codec, raw: &[u8]) -> Result<Option<usize>> {
        let room = match codec {
            Codec::None => return Ok(None),
            Codec::Lz4 => lz4_flex::block::get_maximum_output_size(raw.len()),
            Codec::Zstd => zstd::zstd_safe::compress_bound(raw.len()),
        };
        if self.scratch.len() < room {
            self.scratch.resize(room, 0);
        }
        let failed = |cause: &dyn std::fmt::Display| {
            Error::internal("a block could not be compressed")
                .with("codec", codec.as_str())
                .with("cause", cause)
        };
        if codec == Codec::Lz4 {
            let table = self.lz4.get_or_insert_with(lz4_flex::block::CompressTable::default);
            let done = lz4_flex::block::compress_into_with_table(raw, &mut self.scratch, table);
            return done.map(Some).map_err(|error| failed(&error));
        }
        let compressor = match &mut self.zstd {
            Some(compressor) => compressor,
            none => {
                let made = zstd::bulk::Compressor::new(ZSTD_LEVEL);
                none.insert(made.map_err(|error| failed(&error))?)
            }
        };
        let done = compressor.compress_to_buffer(raw, self.scratch.as_mut_slice());
        done.map(Some).map_err(|error| failed(&error))
    }
}

/// The decompressed bytes of `stored`, which must be exactly `raw_bytes`. An uncompressed block is
/// a slice of the argument, without a copy.
///
/// # Errors
/// Corruption if the length differs; nothing larger than the checked claim is allocated.
pub(crate) fn decompress(codec: Codec, stored: Bytes, raw_bytes: u64) -> Result<Bytes> {
    let wrong = || Error::corruption("a block does not decompress to its recorded length");
    if codec == Codec::None {
        return if stored.len() as u64 == raw_bytes { Ok(stored) } else { Err(wrong()) };
    }
    let reachable = match codec {
        Codec::Lz4 => (stored.len() as u64).saturating_mul(LZ4_MAX_RATIO).saturating_add(LZ4_SLACK),
        _ => (stored.len() as u64 / ZSTD_BLOCK_BYTES).saturating_mul(ZSTD_BLOCK_RAW_BYTES),
    };
    // A frame of ours contains its length too: a claim that differs from it costs nothing.
    let frame_says = || zstd::zstd_safe::get_frame_content_size(&stored);
    let denied = codec == Codec::Zstd && !matches!(frame_says(), Ok(Some(n)) if n == raw_bytes);
    if denied || raw_bytes > reachable.min(MAX_COMPRESSED_RAW_BYTES) {
        return Err(Error::corruption("a block claims an impossible decompressed length")
            .with("claimed", raw_bytes)
            .with("stored", stored.len()));
    }
    let wanted = usize::try_from(raw_bytes).map_err(|_| wrong())?;
    let mut raw = zeros(wanted)?;
    let written = match codec {
        Codec::Lz4 => lz4_flex::block::decompress_into(&stored, &mut raw).ok(),
        _ => zstd::bulk::decompress_to_buffer(&stored, raw.as_mut_slice()).ok(),
    };
    if written == Some(wanted) { Ok(Bytes::from(raw)) } else { Err(wrong()) }
}

/// A block may contain one value of almost 4 GiB.
fn zeros(bytes: usize) -> Result<Vec<u8>> {
    let mut zeros = Vec::new();
    let reserved = zeros.try_reserve_exact(bytes);
    reserved.map_err(|_| Error::no_memory("a block").with("bytes", bytes))?;
    zeros.resize(bytes, 0);
    Ok(zeros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_is_given_no_memory_is_no_abort() {
        let error = zeros(1 << 60).unwrap_err();
        assert_eq!(error.kind(), siltstone_base::ErrorKind::Unavailable);
        assert!(error.to_string().contains("block_cache_bytes"), "{error}");
    }

    #[test]
    fn names_and_numbers_round_trip() {
        for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
            assert_eq!(Codec::parse(codec.as_str()), Some(codec));
            assert_eq!(Codec::from_byte(codec as u8).unwrap(), codec);
        }
        assert_eq!(Codec::parse("LZ4"), None);
        let unknown = Codec::from_byte(3).unwrap_err();
        assert_eq!(unknown.kind(), siltstone_base::ErrorKind::Unsupported);
        assert!(unknown.to_string().contains('3'));
    }

    #[test]
    fn a_false_length_is_corruption_in_both_directions() {
        let raw = vec![7u8; 10_000];
        for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
            let mut out = Vec::new();
            assert_eq!(Compressor::default().append(codec, &raw, &mut out).unwrap(), codec);
            let stored = Bytes::from(out);
            let right = decompress(codec, stored.clone(), 10_000).unwrap();
            assert_eq!(right.as_ref(), raw.as_slice());
            for claimed in [0, 1, 9_999, 10_001, 1 << 29, 1 << 30, (1 << 30) + 1, u64::MAX] {
                assert!(decompress(codec, stored.clone(), claimed).is_err(), "{codec:?} {claimed}");
            }
        }
    }

    #[test]
    fn a_block_that_saves_too_little_stays_as_it_is() {
        // A linear congruential sequence (Numerical Recipes): its upper bytes are incompressible.
        let mut state = 1u32;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .take(4096)
        .collect();
        for codec in [Codec::Lz4, Codec::Zstd] {
            let mut out = Vec::new();
            assert_eq!(Compressor::default().append(codec, &noise, &mut out).unwrap(), Codec::None);
            assert_eq!(out, noise);
        }
    }
}
