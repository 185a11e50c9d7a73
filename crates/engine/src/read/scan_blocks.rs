//! The blocks that a scan's cursors see: those fetched for it, and those in the cache; and how far
//! each table is read ahead.
//!
//! A short scan waits for what it lacks. Once a scan has read [`CACHED_WAVES`] waves of a table,
//! the next waves of that table are on their way while it uses up the current one:
//!
//! ```text
//! blocks of a table   0 1 | 2 3 4 5 | 6 ... 13 | 14 ... 29 | 30 ...    | ...
//! wave                1   | 2       | 3        | 4         | 5         | 6
//!                       waited for, one by one | asked for with the third, two ahead
//! ```
//! A wave that was read ahead in vain, because it failed, is read again in its turn.

use crate::cache::fetch::{CacheFill, ReadContext};
use crate::cache::metadata::{OpenTable, TableHandle};
use crate::read::scan_range::ScanRange;
use parking_lot::Mutex;
use siltstone_base::{BlockAddr, Error, Result, Seq, SstId};
use siltstone_sst::{Block, Table};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use tokio::sync::oneshot;

/// Waves of a table whose blocks stay in the block cache: short scans repeat, long ones do not.
/// What a long one reads stays only where it pushes nothing out.
const CACHED_WAVES: u32 = 3;

/// Waves of a table that are on their way or at hand behind the current one.
const WAVES_AHEAD: usize = 2;

/// Bytes of such waves of all tables of a scan: with more tables each is read less far ahead.
const AHEAD_BYTES: u64 = 32 << 20;

/// Bytes of all tables up to which a scan fills the disk cache: a short scan repeats, and one that
/// reads a whole database must not push out what point reads have left there.
const DISK_FILL_BYTES: u64 = 1 << 20;

type Fetched = Vec<(BlockAddr, Arc<Block>)>;

/// See the module.
pub(super) struct ScanBlocks {
    context: ReadContext,
    range: ScanRange,
    hand: Mutex<BTreeMap<BlockAddr, Arc<Block>>>,
    ahead: Mutex<HashMap<SstId, ScanPrefetch>>,
    /// Waves of the table that a run has just left: its next table goes on from there.
    carried: AtomicU32,
    /// Tables whose metadata was read, and that no cursor has taken up yet.
    opened: Mutex<Vec<Arc<OpenTable>>>,
    /// Bytes that the scan has fetched beyond the first blocks.
    fetched: AtomicU64,
}

/// How far one table is read ahead.
struct ScanPrefetch {
    table: Arc<OpenTable>,
    waves: u32,
    /// The first block that no wave has, if the table and the range go on.
    next: Option<u32>,
    coming: VecDeque<ComingWave>,
}

/// A wave that is read by a task of its own. The task ends when the wave is dropped.
struct ComingWave {
    blocks: Range<u32>,
    bytes: u64,
    arrives: oneshot::Receiver<Result<Fetched>>,
}

/// Neighbouring blocks to fetch.
struct Wave {
    /// Ascending.
    blocks: Range<u32>,
    bytes: u64,
    /// The block that follows in the direction of the scan.
    next: Option<u32>,
}

impl ScanBlocks {
    /// Those that memory has.
    pub(super) fn new(context: &ReadContext, range: &ScanRange) -> ScanBlocks {
        ScanBlocks {
            context: context.clone(),
            range: range.clone(),
            hand: Mutex::default(),
            ahead: Mutex::default(),
            carried: AtomicU32::new(0),
            opened: Mutex::default(),
            fetched: AtomicU64::new(0),
        }
    }

    /// A block in memory. One that is missing will be asked for by [`ScanBlocks::fetch`].
    pub(super) fn block(&self, table: &Arc<OpenTable>, addr: BlockAddr) -> Option<Arc<Block>> {
        // A cursor keeps the block it stands in, and a scan does not turn back.
        let held = self.hand.lock().remove(&addr);
        let found = held.or_else(|| self.context.block(table, addr.block));
        if found.is_none() {
            self.reads(table);
        }
        found
    }

    /// Takes blocks that were fetched.
    pub(super) fn take(&self, fetched: impl Iterator<Item = (BlockAddr, Arc<Block>)>) {
        self.hand.lock().extend(fetched);
    }

    /// Takes metadata that was read.
    pub(super) fn opened(&self, table: Arc<OpenTable>) {
        self.opened.lock().push(table);
    }

    /// The metadata that was read of a table.
    pub(super) fn take_opened(&self, handle: &TableHandle) -> Option<Arc<OpenTable>> {
        let mut opened = self.opened.lock();
        let is_it = |table: &Arc<OpenTable>| table.descriptor().is_part(&handle.descriptor);
        let at = opened.iter().position(is_it)?;
        Some(opened.swap_remove(at))
    }

    /// Blocks of `table` will be asked for.
    pub(super) fn reads(&self, table: &Arc<OpenTable>) {
        self.ahead.lock().entry(table.descriptor().id).or_insert_with(|| {
            let waves = self.carried.swap(0, Ordering::Relaxed);
            let (table, coming) = (Arc::clone(table), VecDeque::new());
            ScanPrefetch { table, waves, next: None, coming }
        });
    }

    /// A run asks for no more blocks of this table. Another run may be waiting for a block of
    /// another part of it.
    pub(super) fn leaves(&self, table: &TableHandle) {
        let mut tables = self.ahead.lock();
        let Some(left) = tables.get_mut(&table.descriptor.id) else { return };
        self.carried.store(left.waves, Ordering::Relaxed);
        if table.descriptor.is_cut() {
            (left.waves, left.next) = (0, None);
            left.coming.clear();
        } else {
            tables.remove(&table.descriptor.id);
        }
    }

    /// Fetches `addr` and, as the scan proves long, more and more of what follows it in its table.
    pub(super) async fn fetch(&self, addr: BlockAddr) -> Result<()> {
        let coming = self.next_wave(addr)?;
        if let Some(coming) = coming {
            self.read_ahead(addr.sst);
            // A failed one is read again, which reports why.
            if let Ok(Ok(fetched)) = coming.arrives.await {
                self.take(fetched.into_iter());
                return Ok(());
            }
        }
        let (table, wave, fill) = self.wave_at(addr)?;
        self.read_ahead(addr.sst);
        let blocks: Vec<u32> = wave.blocks.collect();
        let fetched = self.context.blocks(&table.table, &blocks, fill).await?;
        self.take(fetched.into_iter());
        Ok(())
    }

    /// The wave with this block, if it is on its way or at hand. Waves before it were passed over.
    fn next_wave(&self, addr: BlockAddr) -> Result<Option<ComingWave>> {
        let mut tables = self.ahead.lock();
        let ahead = prefetch_of(&mut tables, addr)?;
        ahead.waves = ahead.waves.saturating_add(1);
        while let Some(wave) = ahead.coming.pop_front() {
            if wave.blocks.contains(&addr.block) {
                return Ok(Some(wave));
            }
        }
        Ok(None)
    }

    /// The wave that begins with a block which nothing has read ahead.
    fn wave_at(&self, addr: BlockAddr) -> Result<(Arc<OpenTable>, Wave, CacheFill)> {
        let mut tables = self.ahead.lock();
        let ahead = prefetch_of(&mut tables, addr)?;
        ahead.coming.clear();
        let wave = self.wave(&ahead.table.table, addr.block, ahead.waves);
        ahead.next = wave.next;
        let keeps = ahead.waves <= CACHED_WAVES;
        let before = self.fetched.fetch_add(wave.bytes, Ordering::Relaxed);
        let fill = match keeps {
            true if before + wave.bytes <= DISK_FILL_BYTES => CacheFill::Keep,
            true => CacheFill::KeepInMemory,
            false => self.fill_of_long(wave.bytes),
        };
        Ok((Arc::clone(&ahead.table), wave, fill))
    }

    fn fill_of_long(&self, bytes: u64) -> CacheFill {
        let has_room = self.context.cache.has_room(bytes);
        if has_room { CacheFill::KeepInMemory } else { CacheFill::PassBy }
    }

    /// Two blocks, four, eight, ..., bounded by bytes, by the range, and by the table.
    fn wave(&self, table: &Table, block: u32, waves: u32) -> Wave {
        let most = self.context.env.store.profile().scan_bytes;
        let last = last_block(table, &self.range);
        let is_last = |at: u32| {
            last.is_some_and(|last| if self.range.reverse { at <= last } else { at >= last })
        };
        let mut bytes = table.block_range(block).map_or(0, |range| range.end - range.start);
        let (first, mut at, mut count) = (bytes, block, 1_u64);
        let next = loop {
            let following = following(table, at, self.range.reverse).filter(|_| !is_last(at));
            let Some((next, range)) = following else { break None };
            let more = range.end - range.start;
            if count >= 1 << waves.min(16) || bytes + more > most + first {
                break Some(next);
            }
            (bytes, at, count) = (bytes + more, next, count + 1);
        };
        Wave { blocks: block.min(at)..block.max(at) + 1, bytes, next }
    }

    /// Lets the next waves of a long scan come, if there is a wait that this saves.
    fn read_ahead(&self, id: SstId) {
        if self.context.env.store.profile().answers_at_once {
            return;
        }
        let mut tables = self.ahead.lock();
        let coming = tables.values().flat_map(|ahead| &ahead.coming);
        let mut held: u64 = coming.map(|wave| wave.bytes).sum();
        let Some(ahead) = tables.get_mut(&id) else { return };
        while ahead.waves >= CACHED_WAVES
            && ahead.coming.len() < WAVES_AHEAD
            && let Some(next) = ahead.next
        {
            let waves = ahead.waves + 1 + ahead.coming.len() as u32;
            let wave = self.wave(&ahead.table.table, next, waves);
            if held > 0 && held + wave.bytes > AHEAD_BYTES {
                return;
            }
            held += wave.bytes;
            ahead.next = wave.next;
            ahead.coming.push_back(self.begin(&ahead.table, wave));
        }
    }

    fn begin(&self, table: &Arc<OpenTable>, wave: Wave) -> ComingWave {
        let (mut sender, arrives) = oneshot::channel();
        let Wave { blocks, bytes, .. } = wave;
        let wanted: Vec<u32> = blocks.clone().collect();
        let (context, table, fill) =
            (self.context.clone(), Arc::clone(table), self.fill_of_long(bytes));
        let spawn = Arc::clone(&context.env.spawn);
        let work = async move {
            let fetched = tokio::select! {
                fetched = context.blocks(&table.table, &wanted, fill) => fetched,
                // The scan has ended, or has gone past it.
                () = sender.closed() => return,
            };
            drop(sender.send(fetched));
        };
        spawn.spawn("scan", Box::pin(work));
        ComingWave { blocks, bytes, arrives }
    }
}

/// How far the table of a missing block is read ahead.
fn prefetch_of(
    tables: &mut HashMap<SstId, ScanPrefetch>,
    addr: BlockAddr,
) -> Result<&mut ScanPrefetch> {
    tables
        .get_mut(&addr.sst)
        .ok_or_else(|| Error::internal("a scan asks for a block of a table that it does not read"))
}

/// The block that a scan enters after `block`, and where it lies. A short scan begins with two: one
/// in ten of them, say, runs over the end of the block it starts in, and a second block in the same
/// request costs far less than a second request.
pub(super) fn following(table: &Table, block: u32, reverse: bool) -> Option<(u32, Range<u64>)> {
    let next = if reverse { block.checked_sub(1) } else { block.checked_add(1) }?;
    Some((next, table.block_range(next)?))
}

/// The last block that a scan of `range` can need of a table; `None` if that is its end.
fn last_block(table: &Table, range: &ScanRange) -> Option<u32> {
    let edge = if range.reverse { range.start.as_deref() } else { range.end.as_deref() };
    edge.and_then(|key| table.find_block(key, Seq::MAX))
}
