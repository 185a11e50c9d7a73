//! What commits have touched since the oldest open transaction began (RFC 0025, O5). Pure; the lock
//! of the commit guards it.
//!
//! ```text
//! chunk   := places | bytes      64 KiB, then closed and shared with whoever validates
//! place   := number of the commit, length of the key, length of the end (0: a key alone)
//! window  := closed chunks, oldest first | the open chunk        everything above `floor`
//! ```

use super::footprint::{CommitFootprint, ConflictingWrite, Footprint};
use siltstone_base::{Error, ErrorKind, Result, Seq};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// From so many bytes on a chunk is closed: what is checked under the lock, and copied to be
/// checked outside of it, is at most one.
const CHUNK_BYTES: usize = 64 << 10;
/// So little is checked under the lock without a round outside of it: some hundred keys.
const LITTLE_BYTES: usize = 4 << 10;

/// What was touched, in the order of commits.
#[derive(Clone, Debug, Default)]
struct WindowChunk {
    places: Vec<TouchedRange>,
    bytes: Vec<u8>,
}

/// One key or range.
#[derive(Clone, Copy, Debug)]
struct TouchedRange {
    /// The last number of the commit.
    seq: Seq,
    /// Where its bytes begin.
    at: u32,
    key_len: u16,
    /// 0 for a key, as no range ends with the empty key.
    end_len: u16,
}

impl WindowChunk {
    fn len_bytes(&self) -> usize {
        self.places.len() * size_of::<TouchedRange>() + self.bytes.len()
    }

    fn last(&self) -> Option<Seq> {
        self.places.last().map(|place| place.seq)
    }

    fn push(&mut self, seq: Seq, touched: CommitFootprint<'_>) {
        let (key, end) = match touched {
            CommitFootprint::Key(key) => (key, &[][..]),
            CommitFootprint::Span(start, end) => (start, end),
        };
        // Keys have at most 65,535 bytes, and a chunk little more than CHUNK_BYTES.
        let (key_len, end_len) = (key.len() as u16, end.len() as u16);
        self.places.push(TouchedRange { seq, at: self.bytes.len() as u32, key_len, end_len });
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(end);
    }

    /// The number of the first place above `seq`.
    fn first_above(&self, seq: Seq) -> usize {
        self.places.partition_point(|place| place.seq <= seq)
    }

    fn touched(&self, place: &TouchedRange) -> Option<CommitFootprint<'_>> {
        let at = place.at as usize;
        let middle = at + usize::from(place.key_len);
        let key = self.bytes.get(at..middle)?;
        match usize::from(place.end_len) {
            0 => Some(CommitFootprint::Key(key)),
            end => Some(CommitFootprint::Span(key, self.bytes.get(middle..middle + end)?)),
        }
    }

    /// The first thing above `seq` that the footprint minds.
    fn clash(&self, seq: Seq, footprint: &Footprint) -> Option<ConflictingWrite> {
        let places = self.places.get(self.first_above(seq)..).unwrap_or_default();
        places.iter().filter_map(|place| self.touched(place)).find_map(|one| footprint.clash(one))
    }

    /// What is above `seq`.
    fn above(&self, seq: Seq) -> WindowChunk {
        let mut above = WindowChunk::default();
        for place in self.places.get(self.first_above(seq)..).unwrap_or_default() {
            if let Some(touched) = self.touched(place) {
                above.push(place.seq, touched);
            }
        }
        above
    }
}

/// A part of the window, to be checked outside of the lock.
#[derive(Debug)]
pub(crate) struct WindowStretch {
    chunks: Vec<Arc<WindowChunk>>,
    /// Everything up to here is in it.
    pub(crate) until: Seq,
}

impl WindowStretch {
    /// The first thing above `seq` that the footprint minds.
    pub(crate) fn clash(&self, seq: Seq, footprint: &Footprint) -> Option<ConflictingWrite> {
        self.chunks.iter().find_map(|chunk| chunk.clash(seq, footprint))
    }
}

/// The window.
#[derive(Debug)]
pub(crate) struct CommitWindow {
    most_bytes: usize,
    /// The numbers that open transactions read at, and how many each.
    open: BTreeMap<Seq, usize>,
    closed: VecDeque<Arc<WindowChunk>>,
    filling: WindowChunk,
    bytes: usize,
    /// What was committed up to here may be missing.
    floor: Seq,
}

impl CommitWindow {
    /// An empty one, of so many bytes at most.
    pub(crate) fn new(most_bytes: usize) -> CommitWindow {
        CommitWindow {
            most_bytes,
            open: BTreeMap::new(),
            closed: VecDeque::new(),
            filling: WindowChunk::default(),
            bytes: 0,
            floor: Seq::NONE,
        }
    }

    /// Whether commits must be noted: somebody is open.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        !self.open.is_empty()
    }

    /// A transaction reads at `seq`, the newest number there is.
    pub(crate) fn register(&mut self, seq: Seq) {
        if self.open.is_empty() {
            self.floor = seq;
        }
        *self.open.entry(seq).or_insert(0) += 1;
    }

    /// A transaction that read at `seq` has ended.
    pub(crate) fn let_go(&mut self, seq: Seq) {
        if let Some(count) = self.open.get_mut(&seq) {
            *count -= 1;
            if *count == 0 {
                self.open.remove(&seq);
            }
        }
        let Some(oldest) = self.open.keys().next().copied() else {
            self.closed = VecDeque::new();
            self.filling = WindowChunk::default();
            self.bytes = 0;
            return;
        };
        while self.closed.front().and_then(|chunk| chunk.last()).is_some_and(|last| last <= oldest)
        {
            self.forget_oldest();
        }
    }

    /// The commit `seq` touched this.
    pub(crate) fn note(&mut self, seq: Seq, touched: CommitFootprint<'_>) {
        let before = self.filling.len_bytes();
        self.filling.push(seq, touched);
        self.bytes += self.filling.len_bytes() - before;
        if self.filling.len_bytes() >= CHUNK_BYTES {
            self.closed.push_back(Arc::new(std::mem::take(&mut self.filling)));
        }
        while self.bytes > self.most_bytes && !self.closed.is_empty() {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some(oldest) = self.closed.pop_front() {
            self.bytes -= oldest.len_bytes();
            self.floor = oldest.last().unwrap_or(self.floor).max(self.floor);
        }
    }

    /// Whether so little was committed above `seq` that it may be checked under the lock.
    pub(crate) fn is_little_above(&self, seq: Seq) -> bool {
        let little = self.filling.len_bytes() <= LITTLE_BYTES;
        let none_closed = self.closed.back().is_none_or(|chunk| chunk.last() <= Some(seq));
        none_closed && (little || self.filling.last() <= Some(seq))
    }

    /// What was committed above `seq`; `None` where it is little enough for
    /// [`CommitWindow::check`]. For whoever checks it outside of the lock.
    ///
    /// # Errors
    /// Conflict when some of it was forgotten.
    pub(crate) fn above(&self, seq: Seq) -> Result<Option<WindowStretch>> {
        self.remembers(seq)?;
        if self.is_little_above(seq) {
            return Ok(None);
        }
        let first = self.closed.partition_point(|chunk| chunk.last() <= Some(seq));
        let mut chunks: Vec<_> = self.closed.iter().skip(first).cloned().collect();
        let until = self.filling.last().or(self.closed.back().and_then(|chunk| chunk.last()));
        chunks.push(Arc::new(self.filling.above(seq)));
        Ok(Some(WindowStretch { chunks, until: until.unwrap_or(seq) }))
    }

    /// Whether nothing that was committed above `seq` touched the footprint.
    ///
    /// # Errors
    /// Conflict, naming the key; also when some of it was forgotten.
    pub(crate) fn check(&self, seq: Seq, footprint: &Footprint) -> Result<()> {
        self.remembers(seq)?;
        let first = self.closed.partition_point(|chunk| chunk.last() <= Some(seq));
        let closed = self.closed.iter().skip(first).map(|chunk| &**chunk);
        let mut chunks = closed.chain([&self.filling]);
        chunks
            .find_map(|chunk| chunk.clash(seq, footprint))
            .map_or(Ok(()), |clash| Err(clash.into()))
    }

    fn remembers(&self, seq: Seq) -> Result<()> {
        if seq >= self.floor {
            return Ok(());
        }
        let text = "more was committed since the transaction began than is remembered, so it can \
                    not be told whether it was overtaken: run it again, make it shorter, or raise \
                    writes.transaction_window_bytes";
        Err(Error::new(ErrorKind::Conflict, text)
            .with("writes.transaction_window_bytes", self.most_bytes))
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.bytes == 0 && self.closed.is_empty() && self.filling.places.is_empty()
    }
}

#[cfg(test)]
#[path = "commit_window/tests.rs"]
mod tests;
