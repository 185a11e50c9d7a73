//! The missing parts of the keys of a wave, and an estimate of the memory that fetching them takes.

use super::get::MissingPart;
use crate::cache::fetch::COALESCE_GAP_BYTES;
use siltstone_base::{SstId, TablePart};
use siltstone_sst::{Codec, Table};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum bytes of the reads in flight and of the blocks and tables that they return. Together
/// with the values that answers pin (8 MiB) and the tables kept between waves (4 MiB) this is 32
/// MiB.
const WAVE_BYTES: usize = 20 << 20;
/// Maximum bytes of tables that are kept from one wave to the next, because the next keys are
/// mostly in them.
pub(super) const KEPT_TABLES_BYTES: usize = 4 << 20;
/// Maximum number of keys with missing parts in one wave. All of them may wait for the metadata of
/// one table, which costs little memory. Without this bound a wave would take all keys, and most of
/// them would have to wait again.
const WAVE_KEYS: usize = 4096;

/// Missing parts, each once.
#[derive(Default)]
pub(super) struct MissingParts {
    lacks: Vec<MissingPart>,
    seen: BTreeSet<(Option<TablePart>, Option<u32>)>,
    /// The end of the last read of each table. Keys ascend, and so do the blocks.
    ends: BTreeMap<SstId, u64>,
    keys: usize,
    bytes: usize,
}

impl MissingParts {
    /// No missing parts, with `held` bytes in memory already.
    pub(super) fn beside(held: usize) -> MissingParts {
        MissingParts { bytes: held, ..MissingParts::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lacks.is_empty()
    }

    /// Whether the next key has to wait for the next wave. A wave always takes one key.
    pub(super) fn is_full(&self) -> bool {
        !self.is_empty() && (self.bytes >= WAVE_BYTES || self.keys >= WAVE_KEYS)
    }

    /// Adds the missing parts of one more key.
    pub(super) fn add(&mut self, more: Vec<MissingPart>) {
        self.keys += 1;
        for lack in more {
            let id = match &lack {
                MissingPart::Metadata(handle) => (Some(handle.descriptor.part()), None),
                MissingPart::Block(table, block) => {
                    (Some(table.descriptor().id.into()), Some(*block))
                }
                MissingPart::Turn => (None, None),
            };
            if self.seen.insert(id) {
                self.bytes = self.bytes.saturating_add(self.bytes_for(&lack));
                self.lacks.push(lack);
            }
        }
    }

    pub(super) fn into_lacks(self) -> Vec<MissingPart> {
        self.lacks
    }

    /// The bytes that a read of the part takes: the stored bytes, the gap that is read along with
    /// them, and the decoded bytes. A block without a codec has its stored length. For other codecs
    /// the target size of the table's blocks is used; only a block with a single entry exceeds it.
    fn bytes_for(&mut self, lack: &MissingPart) -> usize {
        let length = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        match lack {
            MissingPart::Metadata(handle) => {
                let tail = Table::tail_range(&handle.descriptor);
                length(tail.end.saturating_sub(tail.start)).saturating_mul(2)
            }
            MissingPart::Turn => 0,
            MissingPart::Block(table, block) => {
                let Some(range) = table.block_range(*block) else { return 0 };
                let stored = length(range.end.saturating_sub(range.start));
                let options = &table.properties().options;
                let decoded = match options.codec {
                    Codec::None => stored,
                    _ => stored.max(options.block_bytes),
                };
                let before = self.ends.insert(table.descriptor().id, range.end);
                let gap = before.and_then(|end| range.start.checked_sub(end));
                let gap = length(gap.filter(|gap| *gap <= COALESCE_GAP_BYTES).unwrap_or(0));
                stored.saturating_add(gap).saturating_add(decoded)
            }
        }
    }
}
