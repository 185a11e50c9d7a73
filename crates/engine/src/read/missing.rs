//! What the keys of a wave lack, and what fetching it will take of memory.

use super::get::MissingPart;
use crate::cache::fetch::COALESCE_GAP_BYTES;
use siltstone_base::{SstId, TablePart};
use siltstone_sst::{Codec, Table};
use std::collections::{BTreeMap, BTreeSet};

/// What reads under way, and the blocks and tables that come of them, may take at a time. With what
/// answers pin (8 MiB) and the tables kept between waves (4 MiB) that makes 32 MiB.
const WAVE_BYTES: usize = 20 << 20;
/// Tables that are kept from one wave to the next: the next keys are mostly in them.
pub(super) const KEPT_TABLES_BYTES: usize = 4 << 20;
/// Keys that lack something in one wave. All of them may wait for the metadata of the same table,
/// which costs little; without a bound a wave would be all keys, most of which are then put back.
const WAVE_KEYS: usize = 4096;

/// What is lacking, each once.
#[derive(Default)]
pub(super) struct MissingParts {
    lacks: Vec<MissingPart>,
    seen: BTreeSet<(Option<TablePart>, Option<u32>)>,
    /// Where the last read of each table ends. Keys ascend, and so do its blocks.
    ends: BTreeMap<SstId, u64>,
    keys: usize,
    bytes: usize,
}

impl MissingParts {
    /// Nothing, beside what is held already.
    pub(super) fn beside(held: usize) -> MissingParts {
        MissingParts { bytes: held, ..MissingParts::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lacks.is_empty()
    }

    /// Whether the next key has to wait. One key is never too much.
    pub(super) fn is_full(&self) -> bool {
        !self.is_empty() && (self.bytes >= WAVE_BYTES || self.keys >= WAVE_KEYS)
    }

    /// What one more key lacks.
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

    /// What is read, with what lies between the blocks of one request, and what it decodes to. A
    /// block without a codec is as long as it is stored; of others a table says what it aimed at,
    /// which only a single entry exceeds.
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
