//! The inputs of a scan's merge: memtables, tables and runs of them, with or without range deletes
//! over them.

use super::scan_table::ScanTable;
use siltstone_base::{Columns, Cursor, Entry, Result, Seq, Step};
use siltstone_memtable::MemCursor;
use siltstone_merge::{Covered, RunCursor};

/// One input of the merge.
pub(super) enum ScanSource {
    Memtable(Above),
    /// The only table of a run that overlaps the range, as most of L0 are.
    Table(ScanTable),
    Run(RunCursor<ScanTable>),
    /// One of the others, without what range deletes hide.
    Covered(Box<Covered<ScanSource>>),
}

/// A memtable's entries above a sequence number.
pub(super) struct Above {
    pub(super) cursor: MemCursor,
    pub(super) floor: Seq,
}

impl Above {
    /// Passes over entries at or below the floor. Memtables never lack a block.
    fn settle(
        &mut self,
        mut step: Step,
        onward: fn(&mut MemCursor) -> Result<Step>,
    ) -> Result<Step> {
        while step == Step::Ready
            && self.cursor.entry().is_some_and(|entry| entry.seq <= self.floor)
        {
            step = onward(&mut self.cursor)?;
        }
        Ok(step)
    }
}

impl Cursor for Above {
    fn seek_first(&mut self) -> Result<Step> {
        let step = self.cursor.seek_first()?;
        self.settle(step, MemCursor::next)
    }

    fn seek_last(&mut self) -> Result<Step> {
        let step = self.cursor.seek_last()?;
        self.settle(step, MemCursor::prev)
    }

    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<Step> {
        let step = self.cursor.seek(key, seq)?;
        self.settle(step, MemCursor::next)
    }

    fn seek_before(&mut self, key: &[u8], seq: Seq) -> Result<Step> {
        let step = self.cursor.seek_before(key, seq)?;
        self.settle(step, MemCursor::prev)
    }

    fn next(&mut self) -> Result<Step> {
        let step = self.cursor.next()?;
        self.settle(step, MemCursor::next)
    }

    fn prev(&mut self) -> Result<Step> {
        let step = self.cursor.prev()?;
        self.settle(step, MemCursor::prev)
    }

    fn entry(&self) -> Option<Entry<'_>> {
        self.cursor.entry()
    }

    fn key(&self) -> Option<(&[u8], Seq)> {
        self.cursor.key()
    }

    fn plain(&self, seq: Seq, most: usize) -> usize {
        self.cursor.plain_above(self.floor, seq, most)
    }

    #[inline]
    fn plain_key(&self, ahead: usize) -> &[u8] {
        self.cursor.plain_key(ahead)
    }

    #[inline]
    fn plain_value(&self, ahead: usize) -> &[u8] {
        self.cursor.plain_value(ahead)
    }

    fn pass(&mut self, ahead: usize) {
        self.cursor.pass(ahead);
    }
}

/// The same of whichever cursor it is.
macro_rules! each {
    ($source:expr, $cursor:ident => $said:expr) => {
        match $source {
            ScanSource::Memtable($cursor) => $said,
            ScanSource::Table($cursor) => $said,
            ScanSource::Run($cursor) => $said,
            ScanSource::Covered($cursor) => $said,
        }
    };
}

/// As [`each`], of what has plain entries: what range deletes may hide is not plain.
macro_rules! each_plain {
    ($source:expr, $cursor:ident => $said:expr, $covered:expr) => {
        match $source {
            ScanSource::Memtable($cursor) => $said,
            ScanSource::Table($cursor) => $said,
            ScanSource::Run($cursor) => $said,
            ScanSource::Covered(_) => $covered,
        }
    };
}

impl Cursor for ScanSource {
    fn seek_first(&mut self) -> Result<Step> {
        each!(self, cursor => cursor.seek_first())
    }

    fn seek_last(&mut self) -> Result<Step> {
        each!(self, cursor => cursor.seek_last())
    }

    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<Step> {
        each!(self, cursor => cursor.seek(key, seq))
    }

    fn seek_before(&mut self, key: &[u8], seq: Seq) -> Result<Step> {
        each!(self, cursor => cursor.seek_before(key, seq))
    }

    fn next(&mut self) -> Result<Step> {
        each!(self, cursor => cursor.next())
    }

    fn prev(&mut self) -> Result<Step> {
        each!(self, cursor => cursor.prev())
    }

    fn entry(&self) -> Option<Entry<'_>> {
        each!(self, cursor => cursor.entry())
    }

    fn key(&self) -> Option<(&[u8], Seq)> {
        each!(self, cursor => cursor.key())
    }

    #[inline]
    fn user_key(&self) -> Option<&[u8]> {
        each!(self, cursor => cursor.user_key())
    }

    fn plain(&self, seq: Seq, most: usize) -> usize {
        each_plain!(self, cursor => cursor.plain(seq, most), 0)
    }

    #[inline]
    fn plain_key(&self, ahead: usize) -> &[u8] {
        each_plain!(self, cursor => cursor.plain_key(ahead), &[])
    }

    #[inline]
    fn plain_value(&self, ahead: usize) -> &[u8] {
        each_plain!(self, cursor => cursor.plain_value(ahead), &[])
    }

    fn plain_columns(&self) -> Option<Columns<'_>> {
        match self {
            ScanSource::Table(cursor) => cursor.plain_columns(),
            ScanSource::Run(cursor) => cursor.plain_columns(),
            ScanSource::Memtable(_) | ScanSource::Covered(_) => None,
        }
    }

    fn pass(&mut self, ahead: usize) {
        each_plain!(self, cursor => cursor.pass(ahead), {});
    }
}
