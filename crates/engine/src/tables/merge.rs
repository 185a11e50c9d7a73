//! Several parts as one sorted whole: of every key the version of the input that was named first.

use super::table::TableFile;
use super::view::View;
use crate::read::{Fill, Rows, ScanRange};
use crate::readahead::inputs::{InputCursor, Inputs, PrefetchBytes};
use futures::future::BoxFuture;
use siltstone_base::{BlockAddr, Cursor, Entry, Error, Kind, Result, Seq, Step, UnixMillis};
use siltstone_memtable::MemCursor;
use siltstone_merge::{Direction, Merge};
use std::fmt;

/// A merge of a few rows reads little; one that goes on reads in long stretches.
const READ_AHEAD: PrefetchBytes = PrefetchBytes { first_bytes: 32 << 10, most_bytes: 4 << 20 };

/// An input of a merge.
#[derive(Clone, Debug)]
pub enum MergeInput {
    /// A table in a file.
    Table(TableFile),
    /// A memtable, as a view of it.
    Memory(View),
}

impl MergeInput {
    /// A merge of parts gives entries, and a range delete is none: passed over, what it deletes
    /// would come back.
    fn refuse_range_deletes(&self) -> Result<()> {
        let has = match self {
            MergeInput::Table(file) => file.has_range_deletes(),
            MergeInput::Memory(view) => {
                view.tree().memtables().any(|memtable| memtable.has_range_deletes())
            }
        };
        if has {
            let text = "range deletes cannot be merged outside a database";
            return Err(Error::unsupported(text));
        }
        Ok(())
    }
}

enum MergeSource {
    Table(InputCursor),
    Memory(MemCursor),
}

impl MergeSource {
    fn cursor(&mut self) -> &mut dyn Cursor {
        match self {
            MergeSource::Table(cursor) => cursor,
            MergeSource::Memory(cursor) => cursor,
        }
    }

    fn entry(&self) -> Option<Entry<'_>> {
        match self {
            MergeSource::Table(cursor) => cursor.entry(),
            MergeSource::Memory(cursor) => cursor.entry(),
        }
    }

    fn key(&self) -> Option<(&[u8], Seq)> {
        match self {
            MergeSource::Table(cursor) => cursor.key(),
            MergeSource::Memory(cursor) => cursor.key(),
        }
    }
}

/// One input, of each key only the newest version at or below a sequence number. All its entries
/// count as written at `rank`, so that the input that was named first wins whatever numbers its
/// writer gave.
struct Newest {
    source: MergeSource,
    bound: Seq,
    rank: Seq,
    /// The key whose newest version was given out: its older ones are passed over.
    given: Vec<u8>,
    /// The move that waits for a block is the first one of `next`: it leaves what was given.
    stands: bool,
}

impl Newest {
    /// From where the source stands, or came to stand, to the next entry to give out.
    fn settle(&mut self, mut step: Step) -> Result<Step> {
        self.stands = false;
        while step == Step::Ready {
            let Some((key, seq)) = self.source.key() else {
                return Err(Error::internal("a cursor stands on no entry"));
            };
            if seq <= self.bound && key != self.given.as_slice() {
                let given = &mut self.given;
                given.clear();
                given.extend_from_slice(key);
                self.stands = true;
                return Ok(Step::Ready);
            }
            step = self.source.cursor().next()?;
        }
        Ok(step)
    }

    fn forward_only<T>() -> Result<T> {
        Err(Error::internal("a merge of parts moves forward"))
    }
}

impl Cursor for Newest {
    fn seek_first(&mut self) -> Result<Step> {
        // Repeated after NeedBlock, it begins anew: nothing was given out yet.
        self.given.clear();
        let step = self.source.cursor().seek_first()?;
        self.settle(step)
    }

    fn seek(&mut self, key: &[u8], _: Seq) -> Result<Step> {
        self.given.clear();
        let step = self.source.cursor().seek(key, Seq::MAX)?;
        self.settle(step)
    }

    fn next(&mut self) -> Result<Step> {
        let step = self.source.cursor().next()?;
        self.settle(step)
    }

    fn entry(&self) -> Option<Entry<'_>> {
        let entry = self.source.entry().filter(|_| self.stands)?;
        Some(Entry { seq: self.rank, ..entry })
    }

    fn key(&self) -> Option<(&[u8], Seq)> {
        // What was given out stands in a buffer of its own.
        self.stands.then_some((self.given.as_slice(), self.rank))
    }

    fn seek_last(&mut self) -> Result<Step> {
        Newest::forward_only()
    }

    fn seek_before(&mut self, _: &[u8], _: Seq) -> Result<Step> {
        Newest::forward_only()
    }

    fn prev(&mut self) -> Result<Step> {
        Newest::forward_only()
    }
}

/// The rows of all inputs in key order, read once, from their beginning to their end.
pub struct Merged {
    merge: Merge<Newest>,
    inputs: Inputs,
    start: Option<Vec<u8>>,
    end: Option<Vec<u8>>,
    left: u64,
    /// What expires at or before this has expired.
    now: UnixMillis,
    tombstones: bool,
    state: MergeState,
    needed: Vec<BlockAddr>,
    /// The key of the last row or tombstone: what older inputs hold of it is passed over.
    last: Vec<u8>,
    /// Of the rows since the batch was last taken: which are tombstones.
    deleted: Vec<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MergeState {
    Unplaced,
    /// The entry at hand was taken: move before looking.
    Taken,
    /// An entry is at hand.
    Standing,
    Ended,
}

impl Merged {
    /// Merges `inputs`, newest first, over `range` (which is not reversed). With `tombstones`, keys
    /// that are gone by a tombstone, or have expired at `now`, are rows without a value; without
    /// it they are left out.
    ///
    /// # Errors
    /// Unsupported for a reversed range, and for an input with range deletes.
    pub fn new(
        inputs: Vec<MergeInput>,
        range: ScanRange,
        tombstones: bool,
        now: UnixMillis,
    ) -> Result<Merged> {
        if range.reverse {
            return Err(Error::unsupported("a merge of parts moves forward only"));
        }
        let mut tables = Inputs::new(READ_AHEAD);
        let mut sources = Vec::new();
        let mut rank = Seq(inputs.len() as u64);
        for input in inputs {
            input.refuse_range_deletes()?;
            let newest = match &input {
                MergeInput::Memory(view) => view
                    .tree()
                    .memtables()
                    .next()
                    .map(|memtable| (MergeSource::Memory(memtable.cursor()), view.seq())),
                MergeInput::Table(file) => tables
                    .add_table(file.table(), file.context(), None)
                    .map(|cursor| (MergeSource::Table(cursor), Seq::MAX)),
            };
            if let Some((source, bound)) = newest {
                sources.push(Newest { source, bound, rank, given: Vec::new(), stands: false });
            }
            rank = rank.minus(1);
        }
        let empty = matches!((&range.start, &range.end), (Some(start), Some(end)) if start >= end);
        Ok(Merged {
            merge: Merge::new(sources, Direction::Forward),
            inputs: tables,
            start: range.start,
            end: range.end,
            left: range.limit.unwrap_or(u64::MAX),
            now,
            tombstones,
            state: if empty { MergeState::Ended } else { MergeState::Unplaced },
            needed: Vec::new(),
            last: Vec::new(),
            deleted: Vec::new(),
        })
    }

    /// Appends rows as [`crate::Scan::fill`] does. A row of a tombstone has an empty value, and is
    /// told apart by [`Merged::take_deleted`].
    ///
    /// # Errors
    /// Corruption; Unsupported for merge operands. The merge is over then.
    pub fn fill(&mut self, rows: &mut Rows, max_rows: usize, max_bytes: usize) -> Result<Fill> {
        let filled = self.fill_running(rows, max_rows, max_bytes);
        if filled.is_err() {
            self.state = MergeState::Ended;
        }
        filled
    }

    fn fill_running(&mut self, rows: &mut Rows, max_rows: usize, max_bytes: usize) -> Result<Fill> {
        while self.left > 0 && self.state != MergeState::Ended {
            if rows.len() >= max_rows || (rows.bytes() >= max_bytes && !rows.is_empty()) {
                return Ok(Fill::Full);
            }
            if self.state != MergeState::Standing {
                match self.advance()? {
                    Step::Ready => self.state = MergeState::Standing,
                    Step::End => break,
                    Step::NeedBlock(_) => return Ok(Fill::NeedsBlocks),
                }
            }
            if !self.take(rows)? {
                // The batch is full by its offsets; the entry stays at hand.
                return Ok(Fill::Full);
            }
        }
        self.state = MergeState::Ended;
        Ok(Fill::End)
    }

    /// How many more rows it gives at most.
    #[must_use]
    pub fn rows_left(&self) -> u64 {
        self.left
    }

    fn advance(&mut self) -> Result<Step> {
        let step = match (self.state, &self.start) {
            (MergeState::Taken, _) => self.merge.advance()?,
            (_, Some(start)) => self.merge.seek(start, Seq::MAX)?,
            (_, None) => self.merge.seek_first()?,
        };
        if matches!(step, Step::NeedBlock(_)) {
            self.needed.clear();
            self.needed.extend_from_slice(self.merge.needed());
        }
        Ok(step)
    }

    /// Takes the entry at hand; `false` when the batch has no room for it.
    fn take(&mut self, rows: &mut Rows) -> Result<bool> {
        let Some(entry) = self.merge.entry() else {
            return Err(Error::internal("a merge stands on no entry"));
        };
        if self.end.as_deref().is_some_and(|end| entry.key >= end) {
            self.state = MergeState::Ended;
            return Ok(true);
        }
        if entry.key == self.last.as_slice() {
            self.state = MergeState::Taken;
            return Ok(true);
        }
        let gone = match entry.kind {
            Kind::Put => entry.is_expired(self.now),
            Kind::Delete => true,
            Kind::Merge | Kind::RangeDelete => {
                let text = "merge operands and range deletes cannot be merged outside a database";
                return Err(Error::unsupported(text));
            }
        };
        if !gone || self.tombstones {
            let value = if gone { &[] } else { entry.value };
            if !rows.push(entry.key, value) {
                if rows.is_empty() {
                    return Err(Error::invalid("one row is over 2 GiB"));
                }
                return Ok(false);
            }
            self.deleted.push(gone);
            self.left -= 1;
        }
        self.last.clear();
        self.last.extend_from_slice(entry.key);
        self.state = MergeState::Taken;
        Ok(true)
    }

    /// Brings what the last [`Merged::fill`] lacked.
    ///
    /// # Errors
    /// Corruption, and what the store says; the same call may be made again.
    pub fn fetch(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.inputs.fetch(&self.needed))
    }

    /// Of the rows filled since the last call, one by one: whether it is a tombstone.
    pub fn take_deleted(&mut self) -> Vec<bool> {
        std::mem::take(&mut self.deleted)
    }
}

impl fmt::Debug for Merged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Merged").finish_non_exhaustive()
    }
}
