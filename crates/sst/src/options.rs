//! Options for building tables.

use crate::codec::Codec;

/// The layout options of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableOptions {
    /// Target of a block in bytes, before compression; limited to 1 byte up to 64 MiB. An entry
    /// larger than the target gets its own block.
    pub block_bytes: usize,
    /// Compression of blocks; a block that would not shrink by an eighth stays uncompressed.
    pub codec: Codec,
    /// Filter bits per user key; 0 for no filter.
    pub filter_bits_per_key: u32,
}

impl Default for TableOptions {
    /// Blocks of 16 KiB, no compression, 10 bits of filter per key.
    fn default() -> Self {
        TableOptions { block_bytes: 16 << 10, codec: Codec::None, filter_bits_per_key: 10 }
    }
}
