//! Blocks of a table that were read ahead of a merge: stored bytes of neighbouring blocks. Each is
//! decoded when the merge reaches it, so that it is in the core's cache when its entries are read.

use crate::cache::fetch::{CacheFill, ReadContext};
use bytes::Bytes;
use parking_lot::Mutex;
use siltstone_base::{BlockAddr, Error, ObjectName, Result, SstDescriptor};
use siltstone_sst::{Block, BlockSource, Table};
use siltstone_store::CacheUse;
use siltstone_store::buffers::Buffers;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Bounds of the bytes that are read ahead of one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PrefetchBytes {
    /// Bytes of the first wave; from one to the next it doubles.
    pub(crate) first_bytes: u64,
    /// Bytes of the largest wave.
    pub(crate) most_bytes: u64,
}

/// Neighbouring blocks as they are stored.
pub(crate) struct BlockWave {
    blocks: Range<u32>,
    /// The offset of `bytes` in the object.
    at: u64,
    bytes: Bytes,
}

/// One table's waves, between the task that reads them and the cursor that consumes them.
pub(crate) struct TablePrefetch {
    table: Arc<Table>,
    context: ReadContext,
    ahead: PrefetchBytes,
    /// Buffers for the waves of a store that answers immediately.
    buffers: Buffers,
    /// Blocks from this one on are not read ahead: no cursor will need them.
    end: u32,
    state: Mutex<PrefetchState>,
}

struct PrefetchState {
    waves: VecDeque<BlockWave>,
    /// A block that was fetched alone.
    single: Option<(u32, Arc<Block>)>,
    /// The first block that was not asked for yet.
    next: u32,
    /// Bytes of the next wave.
    bytes: u64,
    /// Bytes that were asked for.
    asked: u64,
    /// A block that was read and is damaged, or could not be read at once.
    spoilt: Option<u32>,
    failed: Option<Error>,
}

impl TablePrefetch {
    /// Reads ahead up to block number `end`, at most to the end of the table.
    pub(crate) fn new(
        table: Arc<Table>,
        context: ReadContext,
        ahead: PrefetchBytes,
        buffers: Buffers,
        end: Option<u32>,
    ) -> TablePrefetch {
        let end = end.unwrap_or(u32::MAX).min(table.block_count());
        let state = PrefetchState {
            waves: VecDeque::new(),
            single: None,
            next: 0,
            bytes: ahead.first_bytes,
            asked: 0,
            spoilt: None,
            failed: None,
        };
        TablePrefetch { table, context, ahead, buffers, end, state: Mutex::new(state) }
    }

    /// The descriptor of the table.
    pub(crate) fn descriptor(&self) -> &SstDescriptor {
        self.table.descriptor()
    }

    /// The blocks and bytes of the next wave, if it is due because the blocks at hand will be used
    /// up soon. The wave then counts as requested.
    pub(crate) fn due(&self) -> Option<(Range<u32>, Range<u64>)> {
        let mut state = self.state.lock();
        let begun = state.next > 0 && state.next < self.end;
        if !begun || state.waves.len() > 1 || state.failed.is_some() {
            return None;
        }
        let from = state.next;
        self.begin(&mut state, from)
    }

    /// As [`TablePrefetch::due`], for the wave that starts with `block`, even if it is loaded.
    pub(crate) fn from(&self, block: u32) -> Option<(Range<u32>, Range<u64>)> {
        self.begin(&mut self.state.lock(), block)
    }

    fn begin(&self, state: &mut PrefetchState, block: u32) -> Option<(Range<u32>, Range<u64>)> {
        let first = self.table.block_range(block)?;
        let (mut end, mut bytes) = (block + 1, first.start..first.end);
        while end < self.end
            && let Some(range) = self.table.block_range(end)
            && range.end - bytes.start <= state.bytes
        {
            (end, bytes.end) = (end + 1, range.end);
        }
        state.bytes = state.bytes.saturating_mul(2).min(self.ahead.most_bytes);
        state.asked += bytes.end - bytes.start;
        state.next = end;
        Some((block..end, bytes))
    }

    /// Reads a wave, with all that a store is given to recover from a failure.
    pub(crate) async fn read(&self, blocks: Range<u32>, bytes: Range<u64>) -> Result<BlockWave> {
        let at = bytes.start;
        let bytes = self.context.read(self.table.descriptor(), bytes, CacheUse::Look).await?;
        Ok(BlockWave { blocks, at, bytes })
    }

    /// Takes what was read.
    pub(crate) fn take(&self, wave: Result<BlockWave>) {
        let mut state = self.state.lock();
        match wave {
            Ok(wave) => state.waves.push_back(wave),
            Err(error) => state.failed = Some(error),
        }
    }

    /// Whether the block is at hand.
    ///
    /// # Errors
    /// Why a wave could not be read.
    pub(crate) fn has(&self, block: u32) -> Result<bool> {
        let mut state = self.state.lock();
        if let Some(error) = state.failed.take() {
            return Err(error);
        }
        let single = state.single.as_ref().is_some_and(|(number, _)| *number == block);
        Ok(single || state.waves.iter().any(|wave| wave.blocks.contains(&block)))
    }

    /// Bytes that were asked for so far.
    pub(crate) fn asked(&self) -> u64 {
        self.state.lock().asked
    }

    /// Whether nothing is left to be asked for.
    pub(crate) fn is_read(&self) -> bool {
        self.state.lock().next >= self.end
    }

    /// Fetches a block again, alone, when it was found to be damaged: bytes may be damaged on the
    /// way, not only at rest. Whether it was.
    ///
    /// # Errors
    /// Corruption, when it is still; the store's.
    pub(crate) async fn mend(&self, block: u32) -> Result<bool> {
        if self.state.lock().spoilt.take() != Some(block) {
            return Ok(false);
        }
        let fetched = self.context.blocks(&self.table, &[block], CacheFill::Renew).await?;
        let fetched = fetched.into_iter().next().map(|(addr, block)| (addr.block, block));
        self.state.lock().single = fetched;
        Ok(true)
    }

    /// A wave from a store that answers at once.
    fn read_now(&self, state: &mut PrefetchState, block: u32) -> Option<BlockWave> {
        if !self.context.env.store.profile().answers_at_once {
            return None;
        }
        let (blocks, bytes) = self.begin(state, block)?;
        let (at, length) = (bytes.start, bytes.end - bytes.start);
        let name = self.table.descriptor().name();
        match self.bytes_now(name, bytes) {
            Some(bytes) if bytes.len() as u64 == length => Some(BlockWave { blocks, at, bytes }),
            _ => {
                state.spoilt = Some(block);
                None
            }
        }
    }

    fn bytes_now(&self, name: ObjectName, range: Range<u64>) -> Option<Bytes> {
        let (home, table) = (&self.context.env.store, self.table.descriptor());
        let store = self.context.ancestors.store_of(home, table).ok()?;
        let mut buffer = self.buffers.take();
        match store.reads().get_now_into(name, range.clone(), &mut buffer) {
            Some(found) => found.ok()?.then(|| self.buffers.lend(buffer)),
            None => store.reads().get_now(name, Some(range))?.ok()?,
        }
    }

    fn decoded(&self, state: &mut PrefetchState, block: u32) -> Option<Arc<Block>> {
        let wave = state.waves.front().filter(|wave| wave.blocks.contains(&block))?;
        let is_last = wave.blocks.end <= block + 1;
        let range = self.table.block_range(block)?;
        let (start, end) = (range.start.checked_sub(wave.at)?, range.end.checked_sub(wave.at)?);
        let stored = match wave.bytes.get(start as usize..end as usize) {
            Some(part) => wave.bytes.slice_ref(part),
            None => Bytes::new(),
        };
        match self.table.decode_block(block, stored) {
            Ok(decoded) => {
                // A merge does not turn back: what it still needs of the wave, the block holds.
                if is_last {
                    state.waves.pop_front();
                }
                Some(Arc::new(decoded))
            }
            Err(_) => {
                state.spoilt = Some(block);
                None
            }
        }
    }
}

impl BlockSource for TablePrefetch {
    fn block(&self, addr: BlockAddr) -> Option<Arc<Block>> {
        let mut state = self.state.lock();
        // A cursor keeps the block it stands in, and a merge does not turn back.
        if let Some((_, block)) = state.single.take_if(|(number, _)| *number == addr.block) {
            return Some(block);
        }
        while state.waves.front().is_some_and(|wave| wave.blocks.end <= addr.block) {
            state.waves.pop_front();
        }
        if state.waves.is_empty()
            && let Some(wave) = self.read_now(&mut state, addr.block)
        {
            state.waves.push_back(wave);
        }
        self.decoded(&mut state, addr.block)
    }
}
