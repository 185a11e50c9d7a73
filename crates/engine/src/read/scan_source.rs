//! The inputs of a scan's merge: memtables, tables and runs of them, with or without range deletes
//! over them.

use super::scan_run::ScanRun;
use super::scan_table::ScanTable;
use siltstone_base::{Columns, Cursor, Entry, Result, Seq, Step};
use siltstone_memtable::MemCursor;
use siltstone_merge::{Covered, RunCursor};

/// One input of the merge.
pub(super) enum ScanSource {
    Memtable(MemtablePart),
    /// The only table of a run that overlaps the range, as most of L0 are.
    Table(ScanTable),
    Run(RunCursor<ScanRun>),
    /// One of the others, without what range deletes hide.
    Covered(Box<Covered<ScanSource>>),
}

/// So many entries of a memtable are passed over one by one before those of a key are sought past:
/// a seek costs some ten moves.
const MOVES_BEFORE_SEEK: u32 = 8;

/// A memtable's entries above one sequence number, up to another.
pub(super) struct MemtablePart {
    pub(super) cursor: MemCursor,
    pub(super) floor: Seq,
    pub(super) until: Seq,
}

impl MemtablePart {
    /// Passes over entries outside of the part. Memtables never lack a block.
    fn settle(&mut self, mut step: Step, forward: bool) -> Result<Step> {
        let mut passed = 0;
        while step == Step::Ready
            && let Some((key, seq)) = self.cursor.key()
            && !(self.floor < seq && seq <= self.until)
        {
            passed += 1;
            step = if seq > self.until && passed % MOVES_BEFORE_SEEK == 0 {
                // A key that others write all the time has any number of them.
                let key = key.to_vec();
                if forward {
                    self.cursor.seek(&key, self.until)?
                } else {
                    self.cursor.seek_before(&key, Seq::MAX)?
                }
            } else if forward && seq <= self.floor {
                // Older versions of the key are outside as well.
                self.cursor.next_key()?
            } else if forward {
                self.cursor.next()?
            } else {
                self.cursor.prev()?
            };
        }
        Ok(step)
    }
}

impl Cursor for MemtablePart {
    fn seek_first(&mut self) -> Result<Step> {
        let step = self.cursor.seek_first()?;
        self.settle(step, true)
    }

    fn seek_last(&mut self) -> Result<Step> {
        let step = self.cursor.seek_last()?;
        self.settle(step, false)
    }

    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<Step> {
        let step = self.cursor.seek(key, seq)?;
        self.settle(step, true)
    }

    fn seek_before(&mut self, key: &[u8], seq: Seq) -> Result<Step> {
        let step = self.cursor.seek_before(key, seq)?;
        self.settle(step, false)
    }

    fn next(&mut self) -> Result<Step> {
        let step = self.cursor.next()?;
        self.settle(step, true)
    }

    fn next_key(&mut self) -> Result<Step> {
        let step = self.cursor.next_key()?;
        self.settle(step, true)
    }

    fn prev(&mut self) -> Result<Step> {
        let step = self.cursor.prev()?;
        self.settle(step, false)
    }

    fn entry(&self) -> Option<Entry<'_>> {
        self.cursor.entry()
    }

    fn key(&self) -> Option<(&[u8], Seq)> {
        self.cursor.key()
    }

    fn plain(&self, seq: Seq, most: usize) -> usize {
        self.cursor.plain_above(self.floor, seq.min(self.until), most)
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

    fn next_key(&mut self) -> Result<Step> {
        each!(self, cursor => cursor.next_key())
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
