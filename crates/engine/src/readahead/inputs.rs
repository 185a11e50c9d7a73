//! The tables below a merge: their cursors, and the driver that fetches what the cursors lack, and
//! what they will lack next.
//!
//! A store that answers at once is read by the cursors themselves, a little at a time. From others
//! two waves a table are on their way or at hand: one is used up while the next one comes.

pub(crate) use super::prefetch::PrefetchBytes;
use super::prefetch::{BlockWave, TablePrefetch};
use crate::cache::fetch::ReadContext;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use siltstone_base::{BlockAddr, Error, Result, SstDescriptor, SstId, TablePart};
use siltstone_merge::TableBounds;
use siltstone_sst::{Table, TableCursor};
use siltstone_store::buffers::Buffers;
use siltstone_store::profile::Profile;
use std::collections::{HashMap, HashSet};
use std::future::pending;
use std::ops::Range;
use std::sync::Arc;

/// A cursor over one of the tables.
pub(crate) type InputCursor = TableCursor<Arc<TablePrefetch>>;

/// Cursors over the tables of one run, in key order.
pub(crate) type RunInputs = Vec<(TableBounds, InputCursor)>;

/// Buffers for such pieces that are kept for the next: two an input, for 32 inputs.
const BUFFERS: usize = 64;

/// Memory for such pieces; those of larger blocks are not kept.
pub(crate) fn buffers() -> Buffers {
    Buffers::keeping(BUFFERS, 2 * Profile::MEMORY.input_bytes as usize)
}

type PendingWave = BoxFuture<'static, (SstId, Result<BlockWave>)>;

/// Tables that are read forward, once.
pub(crate) struct Inputs {
    /// By the names that cursors ask by: a second part of a table has one of its own.
    tables: HashMap<SstId, Arc<TablePrefetch>>,
    parts: HashSet<TablePart>,
    ahead: PrefetchBytes,
    buffers: Buffers,
    coming: FuturesUnordered<PendingWave>,
    /// Tables of which a wave is on its way.
    awaited: HashSet<SstId>,
    /// Tables that were begun.
    begun: Vec<SstId>,
    /// Bytes that were asked for and told.
    asked: u64,
}

impl Inputs {
    /// None yet; each is read ahead like that, into memory of its own.
    pub(crate) fn new(ahead: PrefetchBytes) -> Inputs {
        Inputs::reading_into(buffers(), ahead)
    }

    /// As [`Inputs::new`], in memory that goes round.
    pub(crate) fn reading_into(buffers: Buffers, ahead: PrefetchBytes) -> Inputs {
        Inputs {
            tables: HashMap::new(),
            parts: HashSet::new(),
            ahead,
            buffers,
            coming: FuturesUnordered::new(),
            awaited: HashSet::new(),
            begun: Vec::new(),
            asked: 0,
        }
    }

    /// A cursor over `table`, of which blocks from number `end` on are not read ahead; `None` when
    /// this very table is among the inputs already: it cannot add anything.
    pub(crate) fn add_table(
        &mut self,
        table: &Arc<Table>,
        context: &ReadContext,
        end: Option<u32>,
    ) -> Option<InputCursor> {
        if !self.parts.insert(table.descriptor().part()) {
            return None;
        }
        let id = table.descriptor().id;
        // Names of tables begin with a time, and never reach the end of all numbers.
        let name = match self.tables.contains_key(&id) {
            true => SstId(u128::MAX - self.tables.len() as u128),
            false => id,
        };
        let most = context.env.store.profile().input_bytes;
        let ahead = PrefetchBytes {
            first_bytes: self.ahead.first_bytes.min(most),
            most_bytes: self.ahead.most_bytes.min(most),
        };
        let prefetch = Arc::new(TablePrefetch::new(
            Arc::clone(table),
            context.clone(),
            ahead,
            self.buffers.clone(),
            end,
        ));
        self.tables.insert(name, Arc::clone(&prefetch));
        Some(TableCursor::new(Arc::clone(table), prefetch).named(name))
    }

    /// The descriptors of the tables.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = &SstDescriptor> {
        self.tables.values().map(|prefetch| prefetch.descriptor())
    }

    /// Fetches blocks, and what follows them, all at once.
    ///
    /// # Errors
    /// Corruption, and what the store says.
    pub(crate) async fn fetch(&mut self, needed: &[BlockAddr]) -> Result<()> {
        for addr in needed {
            let prefetch = self.prefetch_of(addr)?;
            if prefetch.mend(addr.block).await? {
                continue;
            }
            // The wave that is being read may contain the block.
            self.await_wave(addr.sst).await;
            if !prefetch.has(addr.block)? {
                let wave = prefetch.from(addr.block).ok_or_else(|| {
                    Error::corruption("no such block in the table").with("table", addr.sst)
                })?;
                self.start(&prefetch, addr.sst, wave);
            }
        }
        for addr in needed {
            self.await_wave(addr.sst).await;
            self.prefetch_of(addr)?.has(addr.block)?;
        }
        self.look_ahead();
        Ok(())
    }

    /// Bytes that were asked for since the last time.
    pub(crate) fn take_asked(&mut self) -> u64 {
        let asked: u64 = self.tables.values().map(|prefetch| prefetch.asked()).sum();
        asked - std::mem::replace(&mut self.asked, asked)
    }

    /// Lets the waves that will be needed next come in, for as long as it is polled.
    pub(crate) async fn come_in(&mut self) {
        loop {
            self.look_ahead();
            if !self.arrive().await {
                return pending().await;
            }
        }
    }

    fn prefetch_of(&self, addr: &BlockAddr) -> Result<Arc<TablePrefetch>> {
        self.tables.get(&addr.sst).cloned().ok_or_else(|| {
            Error::internal("a merge asks for a block of a table that it does not read")
        })
    }

    /// Asks for the next wave of every table that has one left at most.
    fn look_ahead(&mut self) {
        let mut begun = std::mem::take(&mut self.begun);
        begun.retain(|id| {
            let Some(prefetch) = self.tables.get(id).cloned() else { return false };
            if !self.awaited.contains(id)
                && let Some(wave) = prefetch.due()
            {
                self.start(&prefetch, *id, wave);
            }
            !prefetch.is_read()
        });
        self.begun.extend(begun);
    }

    fn start(
        &mut self,
        prefetch: &Arc<TablePrefetch>,
        id: SstId,
        (blocks, bytes): (Range<u32>, Range<u64>),
    ) {
        if !self.begun.contains(&id) {
            self.begun.push(id);
        }
        self.awaited.insert(id);
        let prefetch = Arc::clone(prefetch);
        self.coming.push(async move { (id, prefetch.read(blocks, bytes).await) }.boxed());
    }

    /// Waits until nothing of the table is on its way.
    async fn await_wave(&mut self, id: SstId) {
        while self.awaited.contains(&id) && self.arrive().await {}
    }

    /// Waits for the next wave to come; `false` when none is on its way.
    async fn arrive(&mut self) -> bool {
        let Some((id, wave)) = self.coming.next().await else { return false };
        self.awaited.remove(&id);
        if let Some(prefetch) = self.tables.get(&id) {
            prefetch.take(wave);
        }
        true
    }
}
