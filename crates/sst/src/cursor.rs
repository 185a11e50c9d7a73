//! A cursor over one table, limited to the blocks in memory.

use crate::block::Block;
use crate::table::Table;
use bytes::Bytes;
use siltstone_base::{BlockAddr, Columns, Cursor, Entry, Result, Seq, SstId, Step};
use std::sync::Arc;

/// The source of decoded blocks for a cursor: a cache, or blocks that were fetched for it.
pub trait BlockSource {
    /// The block at `addr` if it is in memory. A block that was returned once may be missing the
    /// next time.
    fn block(&self, addr: BlockAddr) -> Option<Arc<Block>>;
}

impl<S: BlockSource + ?Sized> BlockSource for Arc<S> {
    fn block(&self, addr: BlockAddr) -> Option<Arc<Block>> {
        (**self).block(addr)
    }
}

impl<S: BlockSource + ?Sized> BlockSource for &S {
    fn block(&self, addr: BlockAddr) -> Option<Arc<Block>> {
        (**self).block(addr)
    }
}

/// Moves over the visible entries of a table.
///
/// It keeps the last block that it used. So a move that needs a second block does not lose the
/// first one when it is repeated, even if the source remembers only one block.
pub struct TableCursor<S: BlockSource> {
    table: Arc<Table>,
    /// The table in the addresses of the blocks that it needs.
    name: SstId,
    blocks: S,
    /// The last block that was used.
    held: Option<(u32, Arc<Block>)>,
    /// Position in the held block; `None`: no position.
    position: Option<usize>,
    /// Whether `next` or `prev` waits for a block: the position is the one before the move.
    pending: bool,
    visible_start: Option<Bytes>,
    visible_end: Option<Bytes>,
}

/// The first or the last position of a block.
#[derive(Clone, Copy)]
enum Edge {
    First,
    Last,
}

impl<S: BlockSource> TableCursor<S> {
    /// A cursor without a position.
    #[must_use]
    pub fn new(table: Arc<Table>, blocks: S) -> Self {
        let visible_start = table.descriptor().visible_start.clone();
        let visible_end = table.descriptor().visible_end.clone();
        TableCursor {
            name: table.descriptor().id,
            table,
            blocks,
            held: None,
            position: None,
            pending: false,
            visible_start,
            visible_end,
        }
    }

    /// As [`TableCursor::new`], with a block that was already found.
    #[must_use]
    pub fn holding(table: Arc<Table>, blocks: S, held: Option<(u32, Arc<Block>)>) -> Self {
        TableCursor { held, ..TableCursor::new(table, blocks) }
    }

    /// The same cursor, which requests its blocks as blocks of table `name`: a caller with several
    /// parts of one table can then tell which of them needs a block.
    #[must_use]
    pub fn named(self, name: SstId) -> Self {
        TableCursor { name, ..self }
    }

    /// The current block and the position in it, for callers that return a value as a slice of the
    /// block ([`Block::value_range`]). `None` exactly if [`Cursor::entry`] is.
    #[must_use]
    pub fn standing(&self) -> Option<(&Arc<Block>, usize)> {
        let position = self.position.filter(|_| !self.pending)?;
        self.held.as_ref().map(|(_, block)| (block, position))
    }

    /// The table it moves over.
    #[must_use]
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Whether all entries after a visible entry of `block` are visible too.
    fn is_in_sight_onward(&self, block: &Block) -> bool {
        self.visible_end.as_ref().is_none_or(|end| {
            block.len().checked_sub(1).is_some_and(|last| block.key(last) < end.as_ref())
        })
    }

    fn nowhere(&mut self) -> Step {
        self.position = None;
        self.pending = false;
        Step::End
    }

    /// Moves to `position` of the held block, if its key is visible.
    fn stand(&mut self, position: usize) -> Step {
        let Some((_, block)) = &self.held else { return self.nowhere() };
        if self.visible_start.is_some() || self.visible_end.is_some() {
            let key = block.key(position);
            let visible = self.visible_start.as_ref().is_none_or(|start| start.as_ref() <= key)
                && self.visible_end.as_ref().is_none_or(|end| key < end.as_ref());
            if !visible {
                return self.nowhere();
            }
        }
        self.position = Some(position);
        self.pending = false;
        Step::Ready
    }

    /// Holds block number `block`. If it is not in memory, the previous block stays, and the result
    /// names the block that is needed.
    fn hold(&mut self, block: u32) -> Option<Step> {
        if self.held.as_ref().is_some_and(|(held, _)| *held == block) {
            return None;
        }
        let addr = BlockAddr { sst: self.name, block };
        match self.blocks.block(addr) {
            Some(found) => {
                self.held = Some((block, found));
                None
            }
            None => Some(Step::NeedBlock(addr)),
        }
    }

    /// Moves to one end of block number `block`, or to no position if there is no such block.
    fn enter(&mut self, block: Option<u32>, edge: Edge) -> Step {
        let Some(block) = block.filter(|block| *block < self.table.block_count()) else {
            return self.nowhere();
        };
        if let Some(needed) = self.hold(block) {
            return needed;
        }
        let last = self.held.as_ref().map_or(0, |(_, block)| block.len() - 1);
        self.stand(match edge {
            Edge::First => 0,
            Edge::Last => last,
        })
    }

    /// As [`TableCursor::enter`], from a position that is kept while the block is missing. Past
    /// either end of the table it releases the block that it held, and perhaps its buffer.
    fn leave_for(&mut self, block: Option<u32>, edge: Edge) -> Step {
        let step = self.enter(block, edge);
        self.pending = matches!(step, Step::NeedBlock(_));
        if step == Step::End {
            self.held = None;
        }
        step
    }

    /// Holds the block for `(key, seq)`; returns its number and the first position in it at or
    /// after that, or `None` past the end of the table.
    fn locate(&mut self, key: &[u8], seq: Seq) -> std::result::Result<Option<(u32, usize)>, Step> {
        self.nowhere();
        let Some(block) = self.table.find_block(key, seq) else { return Ok(None) };
        if let Some(needed) = self.hold(block) {
            return Err(needed);
        }
        Ok(self.held.as_ref().map(|(_, held)| (block, held.lower_bound(key, seq))))
    }

    fn seek_visible(&mut self, key: &[u8], seq: Seq) -> Step {
        match self.locate(key, seq) {
            Err(needed) => needed,
            Ok(None) => self.nowhere(),
            Ok(Some((block, position))) => {
                let len = self.held.as_ref().map_or(0, |(_, held)| held.len());
                if position < len {
                    self.stand(position)
                } else {
                    self.enter(block.checked_add(1), Edge::First)
                }
            }
        }
    }

    fn seek_before_visible(&mut self, key: &[u8], seq: Seq) -> Step {
        match self.locate(key, seq) {
            Err(needed) => needed,
            Ok(None) => self.enter(self.table.block_count().checked_sub(1), Edge::Last),
            Ok(Some((block, 0))) => self.enter(block.checked_sub(1), Edge::Last),
            Ok(Some((_, position))) => self.stand(position - 1),
        }
    }
}

impl<S: BlockSource> Cursor for TableCursor<S> {
    fn seek_first(&mut self) -> Result<Step> {
        if let Some(start) = self.visible_start.clone() {
            return Ok(self.seek_visible(&start, Seq::MAX));
        }
        self.nowhere();
        Ok(self.enter(Some(0), Edge::First))
    }

    fn seek_last(&mut self) -> Result<Step> {
        if let Some(end) = self.visible_end.clone() {
            return Ok(self.seek_before_visible(&end, Seq::MAX));
        }
        self.nowhere();
        Ok(self.enter(self.table.block_count().checked_sub(1), Edge::Last))
    }

    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<Step> {
        match self.visible_start.clone() {
            Some(start) if key < start.as_ref() => Ok(self.seek_visible(&start, Seq::MAX)),
            _ => Ok(self.seek_visible(key, seq)),
        }
    }

    fn seek_before(&mut self, key: &[u8], seq: Seq) -> Result<Step> {
        match self.visible_end.clone() {
            Some(end) if key >= end.as_ref() => Ok(self.seek_before_visible(&end, Seq::MAX)),
            _ => Ok(self.seek_before_visible(key, seq)),
        }
    }

    #[inline(always)]
    fn next(&mut self) -> Result<Step> {
        let (Some(position), Some((block, held))) = (self.position, &self.held) else {
            return Ok(self.nowhere());
        };
        if position + 1 < held.len() {
            if self.visible_start.is_none() && self.visible_end.is_none() {
                (self.position, self.pending) = (Some(position + 1), false);
                return Ok(Step::Ready);
            }
            return Ok(self.stand(position + 1));
        }
        let next = block.checked_add(1);
        Ok(self.leave_for(next, Edge::First))
    }

    fn prev(&mut self) -> Result<Step> {
        let (Some(position), Some((block, _))) = (self.position, &self.held) else {
            return Ok(self.nowhere());
        };
        if position > 0 {
            return Ok(self.stand(position - 1));
        }
        let before = block.checked_sub(1);
        Ok(self.leave_for(before, Edge::Last))
    }

    #[inline(always)]
    fn entry(&self) -> Option<Entry<'_>> {
        let (block, position) = self.standing()?;
        block.entry(position)
    }

    #[inline(always)]
    fn key(&self) -> Option<(&[u8], Seq)> {
        let (block, position) = self.standing()?;
        Some((block.key(position), block.seq(position)))
    }

    #[inline(always)]
    fn user_key(&self) -> Option<&[u8]> {
        self.standing().map(|(block, position)| block.key(position))
    }

    fn plain(&self, seq: Seq, most: usize) -> usize {
        match self.standing() {
            Some((block, position)) if block.is_plain(seq) && self.is_in_sight_onward(block) => {
                most.min(block.len() - position)
            }
            _ => 0,
        }
    }

    #[inline(always)]
    fn plain_key(&self, ahead: usize) -> &[u8] {
        self.standing().map_or(&[], |(block, position)| block.key(position + ahead))
    }

    #[inline(always)]
    fn plain_value(&self, ahead: usize) -> &[u8] {
        self.standing().map_or(&[], |(block, position)| block.value(position + ahead))
    }

    fn plain_columns(&self) -> Option<Columns<'_>> {
        self.standing().and_then(|(block, position)| block.columns(position))
    }

    fn pass(&mut self, ahead: usize) {
        let len = self.held.as_ref().map_or(0, |(_, block)| block.len());
        let position = self.position.map(|position| position + ahead);
        self.position = position.filter(|position| *position < len);
    }
}
