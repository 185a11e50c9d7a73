//! Merges several parts into one sorted sequence. For each key it returns the version of the first
//! input that has the key.

use super::table::TableFile;
use super::view::View;
use crate::read::{FillOutcome, Rows, ScanRange};
use crate::readahead::inputs::{InputCursor, Inputs, PrefetchBytes};
use futures::future::BoxFuture;
use siltstone_base::{BlockAddr, Cursor, Entry, Error, Kind, Result, Seq, Step, UnixMillis};
use siltstone_memtable::MemCursor;
use siltstone_merge::{Direction, Merge};
use std::fmt;

/// A merge of a few rows reads little; a longer one reads ahead more.
const READ_AHEAD: PrefetchBytes = PrefetchBytes { first_bytes: 32 << 10, most_bytes: 4 << 20 };

/// An input of a merge.
#[derive(Clone, Debug)]
pub enum MergeInput {
    /// A table in a file.
    Table(TableFile),
    /// A view of a memtable.
    Memory(View),
}

impl MergeInput {
    /// Refuses inputs with range deletes. A merge of parts returns entries, and a range delete is
    /// not an entry; without it the deleted rows would return.
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

/// One input, with only the newest version of each key at or below a sequence number. All its
/// entries count as written at `rank`, so that the input that was given first wins, regardless of
/// the sequence numbers in its file.
struct Newest {
    source: MergeSource,
    bound: Seq,
    rank: Seq,
    /// The last key that was returned. Its older versions are skipped.
    given: Vec<u8>,
    /// Whether there is a current entry; false while a move waits for a block.
    stands: bool,
}

impl Newest {
    /// Advances from the current position of the source to the next entry to return.
    fn settle(&mut self, mut step: Step) -> Result<Step> {
        self.stands = false;
        while step == Step::Ready {
            let Some((key, seq)) = self.source.key() else {
                return Err(Error::internal("a cursor has no current entry"));
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
        // If this is repeated after NeedBlock it begins again, because nothing was returned yet.
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
        // The returned key is in its own buffer.
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

/// The rows of all inputs in key order, read once from beginning to end.
pub struct Merged {
    merge: Merge<Newest>,
    inputs: Inputs,
    start: Option<Vec<u8>>,
    end: Option<Vec<u8>>,
    left: u64,
    /// Entries that expire at or before this time have expired.
    now: UnixMillis,
    tombstones: bool,
    state: MergeState,
    /// The error that ended the merge.
    failed: Option<Error>,
    needed: Vec<BlockAddr>,
    /// The key of the last row or tombstone. Entries of older inputs for it are skipped.
    last: Vec<u8>,
    /// For each row since the last call of `take_deleted`: whether it is a tombstone.
    deleted: Vec<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MergeState {
    Unplaced,
    /// The current entry was taken: advance before the next read.
    Taken,
    /// There is a current entry.
    Standing,
    Ended,
}

impl Merged {
    /// Merges `inputs`, newest first, over `range` (which is not reversed). With `tombstones`, keys
    /// that are deleted or have expired at `now` are rows without a value; otherwise they are left
    /// out.
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
            failed: None,
            needed: Vec::new(),
            last: Vec::new(),
            deleted: Vec::new(),
        })
    }

    /// Appends rows as [`crate::Scan::fill`] does. The row of a tombstone has an empty value;
    /// [`Merged::take_deleted`] identifies it.
    ///
    /// # Errors
    /// Corruption; Unsupported for merge operands. The rows before the error were appended. Every
    /// further call returns the same error.
    pub fn fill(
        &mut self,
        rows: &mut Rows,
        max_rows: usize,
        max_bytes: usize,
    ) -> Result<FillOutcome> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let filled = self.fill_running(rows, max_rows, max_bytes);
        self.failed = filled.as_ref().err().cloned();
        filled
    }

    fn fill_running(
        &mut self,
        rows: &mut Rows,
        max_rows: usize,
        max_bytes: usize,
    ) -> Result<FillOutcome> {
        while self.left > 0 && self.state != MergeState::Ended {
            if rows.len() >= max_rows || (rows.bytes() >= max_bytes && !rows.is_empty()) {
                return Ok(FillOutcome::Full);
            }
            if self.state != MergeState::Standing {
                match self.advance()? {
                    Step::Ready => self.state = MergeState::Standing,
                    Step::End => break,
                    Step::NeedBlock(_) => return Ok(FillOutcome::NeedsBlocks),
                }
            }
            if !self.take(rows)? {
                // The offsets of the batch are full; the entry stays current.
                return Ok(FillOutcome::Full);
            }
        }
        self.state = MergeState::Ended;
        Ok(FillOutcome::End)
    }

    /// Maximum number of further rows.
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

    /// Takes the current entry; `false` if the batch has no room for it.
    fn take(&mut self, rows: &mut Rows) -> Result<bool> {
        let Some(entry) = self.merge.entry() else {
            return Err(Error::internal("a merge has no current entry"));
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
                    return Err(Error::invalid("a row exceeds 2 GiB"));
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

    /// Reads the blocks that the last [`Merged::fill`] lacked.
    ///
    /// # Errors
    /// Corruption, and errors of the store; the call may be repeated.
    pub fn fetch(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.inputs.fetch(&self.needed))
    }

    /// For each row that was filled since the last call: whether it is a tombstone.
    pub fn take_deleted(&mut self) -> Vec<bool> {
        std::mem::take(&mut self.deleted)
    }
}

impl fmt::Debug for Merged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Merged").finish_non_exhaustive()
    }
}
