//! A cursor over the disjoint tables of a sorted run, or of one layer of L0.

use bytes::Bytes;
use siltstone_base::{Columns, Cursor, Entry, Error, Result, Seq, SstDescriptor, Step};

/// Smallest and largest visible user key of a table, as recorded in the manifest. If two tables are
/// parts of one object, only the visible range tells which of them has a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableBounds {
    /// Smallest user key.
    pub first_key: Bytes,
    /// Largest user key.
    pub last_key: Bytes,
    /// Whether the largest key is not in the table, because its visible range ends before it.
    pub ends_before: bool,
}

impl From<&SstDescriptor> for TableBounds {
    fn from(table: &SstDescriptor) -> Self {
        TableBounds {
            first_key: table.first_visible().clone(),
            last_key: table.last_visible().clone(),
            ends_before: table.visible_end.as_ref().is_some_and(|end| *end <= table.last_key),
        }
    }
}

impl TableBounds {
    /// Whether all keys of the table are below `key`.
    pub(crate) fn is_below(&self, key: &[u8]) -> bool {
        let last = self.last_key.as_ref();
        last < key || (self.ends_before && last == key)
    }
}

/// The pending move of the current table.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// None: the cursor is on an entry, or has no position.
    Idle,
    /// The move that the caller requested waits for a block.
    Own,
    /// A move to a neighbouring table waits for the block at its edge.
    Edge,
}

#[derive(Clone, Copy)]
enum RunSide {
    Right,
    Left,
}

/// To the edge of a table that a move towards `side` reaches first.
fn enter<C: Cursor>(table: &mut C, side: RunSide) -> Result<Step> {
    match side {
        RunSide::Right => table.seek_first(),
        RunSide::Left => table.seek_last(),
    }
}

/// The tables below a [`RunCursor`], in key order. They share no user key.
///
/// Bounds may be wider than the visible keys: a table without visible keys is skipped.
pub trait RunTables {
    /// A cursor over one table.
    type Cursor: Cursor;

    /// The number of tables.
    fn count(&self) -> usize;

    /// Whether all keys of table `at` are below `key`.
    fn is_below(&self, at: usize, key: &[u8]) -> bool;

    /// Whether table `at` begins at or before `key`.
    fn begins_by(&self, at: usize, key: &[u8]) -> bool;

    /// The cursor of table `at`; `None` if there is none, or if it was not entered last.
    fn current(&self, at: usize) -> Option<&Self::Cursor>;

    /// The cursor of table `at`, which is created if need be; `None` behind the last table. A
    /// cursor keeps its position as long as no other table is entered.
    fn enter(&mut self, at: usize) -> Option<&mut Self::Cursor>;
}

impl<C: Cursor> RunTables for Vec<(TableBounds, C)> {
    type Cursor = C;

    fn count(&self) -> usize {
        self.len()
    }

    fn is_below(&self, at: usize, key: &[u8]) -> bool {
        self.get(at).is_some_and(|(bounds, _)| bounds.is_below(key))
    }

    fn begins_by(&self, at: usize, key: &[u8]) -> bool {
        self.get(at).is_some_and(|(bounds, _)| bounds.first_key.as_ref() <= key)
    }

    #[inline(always)]
    fn current(&self, at: usize) -> Option<&C> {
        self.get(at).map(|(_, cursor)| cursor)
    }

    #[inline(always)]
    fn enter(&mut self, at: usize) -> Option<&mut C> {
        self.get_mut(at).map(|(_, cursor)| cursor)
    }
}

/// The number of leading tables of `count` for which `holds`, which holds for no table behind one
/// for which it does not.
fn leading(count: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut from, mut to) = (0, count);
    while from < to {
        let middle = from.midpoint(to);
        if holds(middle) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    from
}

/// Moves over tables in key order and reads only the current one.
pub struct RunCursor<T> {
    tables: T,
    /// The current table; the number of tables if there is none.
    at: usize,
    stage: Stage,
}

impl<T: RunTables> RunCursor<T> {
    /// Over `tables`, without a position. No table is read before the first move.
    #[must_use]
    pub fn new(tables: T) -> Self {
        let at = tables.count();
        RunCursor { tables, at, stage: Stage::Idle }
    }

    /// Calls `own` on the current table, or continues to the edge that it waits for, and moves on
    /// to the neighbours on `side` while a table has no entry there.
    #[inline(always)]
    fn drive(
        &mut self,
        side: RunSide,
        own: impl Fn(&mut T::Cursor) -> Result<Step>,
    ) -> Result<Step> {
        let edge = self.stage == Stage::Edge;
        self.stage = Stage::Idle;
        let Some(table) = self.tables.enter(self.at) else { return Ok(Step::End) };
        match if edge { enter(table, side) } else { own(table) } {
            Ok(Step::Ready) => Ok(Step::Ready),
            step => self.settle(side, edge, step),
        }
    }

    /// Continues after a move that did not end on an entry: `step` of the current table, which was
    /// entered at its edge or not.
    #[cold]
    fn settle(&mut self, side: RunSide, mut edge: bool, mut step: Result<Step>) -> Result<Step> {
        loop {
            match step {
                Err(error) => {
                    self.at = self.tables.count();
                    return Err(error);
                }
                Ok(Step::Ready) => return Ok(Step::Ready),
                Ok(Step::NeedBlock(block)) => {
                    self.stage = if edge { Stage::Edge } else { Stage::Own };
                    return Ok(Step::NeedBlock(block));
                }
                Ok(Step::End) => {}
            }
            edge = true;
            self.at = match side {
                RunSide::Right => self.at + 1,
                // There is no table left of the first, as there is none right of the last.
                RunSide::Left => self.at.checked_sub(1).unwrap_or(self.tables.count()),
            };
            let Some(table) = self.tables.enter(self.at) else { return Ok(Step::End) };
            step = enter(table, side);
        }
    }

    /// Starts a seek at table number `at`, unless a pending seek is being repeated.
    fn start(&mut self, at: Option<usize>) {
        if self.stage == Stage::Idle {
            self.at = at.unwrap_or(self.tables.count());
        }
    }

    fn check_standing(&self) -> Result<()> {
        if self.at >= self.tables.count() {
            return Err(Error::internal("a run's cursor was moved from nowhere"));
        }
        Ok(())
    }
}

impl<T: RunTables> Cursor for RunCursor<T> {
    fn seek_first(&mut self) -> Result<Step> {
        self.start(Some(0));
        self.drive(RunSide::Right, T::Cursor::seek_first)
    }

    fn seek_last(&mut self) -> Result<Step> {
        self.start(self.tables.count().checked_sub(1));
        self.drive(RunSide::Left, T::Cursor::seek_last)
    }

    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<Step> {
        let at = leading(self.tables.count(), |at| self.tables.is_below(at, key));
        self.start(Some(at));
        self.drive(RunSide::Right, |table| table.seek(key, seq))
    }

    fn seek_before(&mut self, key: &[u8], seq: Seq) -> Result<Step> {
        // A newer version of `key` itself is before (key, seq), so its own table counts.
        let after = leading(self.tables.count(), |at| self.tables.begins_by(at, key));
        self.start(after.checked_sub(1));
        self.drive(RunSide::Left, |table| table.seek_before(key, seq))
    }

    #[inline]
    fn next(&mut self) -> Result<Step> {
        self.check_standing()?;
        self.drive(RunSide::Right, T::Cursor::next)
    }

    fn prev(&mut self) -> Result<Step> {
        self.check_standing()?;
        self.drive(RunSide::Left, T::Cursor::prev)
    }

    #[inline(always)]
    fn entry(&self) -> Option<Entry<'_>> {
        if self.stage != Stage::Idle {
            return None;
        }
        self.tables.current(self.at).and_then(|table| table.entry())
    }

    #[inline(always)]
    fn key(&self) -> Option<(&[u8], Seq)> {
        if self.stage != Stage::Idle {
            return None;
        }
        self.tables.current(self.at).and_then(|table| table.key())
    }

    #[inline(always)]
    fn user_key(&self) -> Option<&[u8]> {
        if self.stage != Stage::Idle {
            return None;
        }
        self.tables.current(self.at).and_then(|table| table.user_key())
    }

    fn plain(&self, seq: Seq, most: usize) -> usize {
        let table = self.tables.current(self.at).filter(|_| self.stage == Stage::Idle);
        table.map_or(0, |table| table.plain(seq, most))
    }

    #[inline(always)]
    fn plain_key(&self, ahead: usize) -> &[u8] {
        self.tables.current(self.at).map_or(&[], |table| table.plain_key(ahead))
    }

    #[inline(always)]
    fn plain_value(&self, ahead: usize) -> &[u8] {
        self.tables.current(self.at).map_or(&[], |table| table.plain_value(ahead))
    }

    fn plain_columns(&self) -> Option<Columns<'_>> {
        self.tables.current(self.at).and_then(|table| table.plain_columns())
    }

    fn pass(&mut self, ahead: usize) {
        if let Some(table) = self.tables.enter(self.at) {
            table.pass(ahead);
        }
    }
}
