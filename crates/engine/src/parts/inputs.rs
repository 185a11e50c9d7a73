//! The tables below a merge: their cursors, and the driver that fetches what the cursors lack.

use super::table::TableFile;
use crate::fetch::{Fill, ReadContext};
use parking_lot::Mutex;
use siltstone_base::{BlockAddr, Error, Result, SstId};
use siltstone_sst::{Block, BlockSource, Table, TableCursor};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A cursor over one of the tables.
pub(crate) type InputCursor = TableCursor<Arc<Hand>>;

/// Blocks that were fetched and not reached yet.
#[derive(Default)]
pub(crate) struct Hand(Mutex<BTreeMap<u32, Arc<Block>>>);

impl BlockSource for Hand {
    fn block(&self, addr: BlockAddr) -> Option<Arc<Block>> {
        // A cursor keeps the block it stands in, and a merge does not turn back.
        self.0.lock().remove(&addr.block)
    }
}

struct Input {
    context: ReadContext,
    table: Arc<Table>,
    hand: Arc<Hand>,
    waves: u32,
}

/// Tables that are read forward, once.
pub(crate) struct Inputs {
    tables: HashMap<SstId, Input>,
    /// Bytes that one wave of read-ahead may bring.
    ahead_bytes: u64,
}

impl Inputs {
    pub(crate) fn new(ahead_bytes: u64) -> Inputs {
        Inputs { tables: HashMap::new(), ahead_bytes }
    }

    /// A cursor over `file`; `None` when this very table is among the inputs already: it cannot add
    /// anything.
    pub(super) fn add(&mut self, file: &TableFile) -> Option<InputCursor> {
        self.add_table(file.table(), file.context())
    }

    /// As [`Inputs::add`], for a table of a database.
    pub(crate) fn add_table(
        &mut self,
        table: &Arc<Table>,
        context: &ReadContext,
    ) -> Option<InputCursor> {
        let (table, hand) = (Arc::clone(table), Arc::<Hand>::default());
        let id = table.descriptor().id;
        if self.tables.contains_key(&id) {
            return None;
        }
        let cursor = TableCursor::new(Arc::clone(&table), Arc::clone(&hand));
        let context = context.clone();
        self.tables.insert(id, Input { context, table, hand, waves: 0 });
        Some(cursor)
    }

    /// Fetches blocks, and what follows them: one block more, two, four, …
    ///
    /// # Errors
    /// Corruption, and what the store says.
    pub(crate) async fn fetch(&mut self, needed: &[BlockAddr]) -> Result<()> {
        for addr in needed {
            let input = self.tables.get_mut(&addr.sst).ok_or_else(|| {
                Error::internal("a merge asks for a block of a table that it does not read")
            })?;
            let ahead = 1u64 << input.waves.min(16);
            input.waves += 1;
            let (mut wanted, mut bytes) = (vec![addr.block], 0);
            for block in (1..ahead).map_while(|n| addr.block.checked_add(u32::try_from(n).ok()?)) {
                let Some(range) = input.table.block_range(block) else { break };
                bytes += range.end - range.start;
                if bytes > self.ahead_bytes {
                    break;
                }
                wanted.push(block);
            }
            let fetched = input.context.blocks(&input.table, &wanted, Fill::PassBy).await?;
            let fetched = fetched.into_iter().map(|(addr, block)| (addr.block, block));
            input.hand.0.lock().extend(fetched);
        }
        Ok(())
    }
}
