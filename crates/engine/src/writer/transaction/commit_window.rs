//! The keys and ranges that commits have touched since the oldest open transaction began (RFC 0025,
//! O5). Pure; the commit lock guards it.
//!
//! ```text
//! chunk   := places | bytes      64 KiB, then closed and shared with validating transactions
//! place   := number of the commit, length of the key, length of the end (0: a key alone)
//! window  := closed chunks, oldest first | the open chunk        everything above `floor`
//! ```

use super::footprint::{CommitFootprint, ConflictingWrite, Footprint};
use siltstone_base::{Error, ErrorKind, Result, Seq};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A chunk of this size is closed. At most one chunk is therefore checked under the lock, or copied
/// to be checked outside of it.
const CHUNK_BYTES: usize = 64 << 10;
/// Up to this size the check runs under the lock alone, without a round outside: some hundred keys.
const LITTLE_BYTES: usize = 4 << 10;

/// Touched keys and ranges, in the order of commits.
#[derive(Clone, Debug, Default)]
struct WindowChunk {
    places: Vec<TouchedRange>,
    bytes: Vec<u8>,
}

/// One key or range.
#[derive(Clone, Copy, Debug)]
struct TouchedRange {
    /// The last sequence number of the commit.
    seq: Seq,
    /// Offset of its bytes.
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

    /// Index of the first place above `seq`.
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

    /// The first place above `seq` that conflicts with the footprint.
    fn clash(&self, seq: Seq, footprint: &Footprint) -> Option<ConflictingWrite> {
        let places = self.places.get(self.first_above(seq)..).unwrap_or_default();
        places.iter().filter_map(|place| self.touched(place)).find_map(|one| footprint.clash(one))
    }

    /// The places above `seq`.
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
    /// The stretch contains all commits up to this number.
    pub(crate) until: Seq,
}

impl WindowStretch {
    /// The first place above `seq` that conflicts with the footprint.
    pub(crate) fn clash(&self, seq: Seq, footprint: &Footprint) -> Option<ConflictingWrite> {
        self.chunks.iter().find_map(|chunk| chunk.clash(seq, footprint))
    }
}

/// The window.
#[derive(Debug)]
pub(crate) struct CommitWindow {
    most_bytes: usize,
    /// Sequence numbers at which open transactions read, with the number of transactions.
    open: BTreeMap<Seq, usize>,
    closed: VecDeque<Arc<WindowChunk>>,
    filling: WindowChunk,
    bytes: usize,
    /// Commits up to this number may be missing.
    floor: Seq,
}

impl CommitWindow {
    /// An empty window of at most `most_bytes`.
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

    /// Whether commits must be noted, because a transaction is open.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        !self.open.is_empty()
    }

    /// Registers a transaction that reads at `seq`, the newest number.
    pub(crate) fn register(&mut self, seq: Seq) {
        if self.open.is_empty() {
            self.floor = seq;
        }
        *self.open.entry(seq).or_insert(0) += 1;
    }

    /// Removes a transaction that read at `seq`.
    pub(crate) fn release(&mut self, seq: Seq) {
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

    /// Notes that the commit `seq` touched a key or range.
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

    /// Whether the commits above `seq` are few enough to be checked under the lock.
    pub(crate) fn is_little_above(&self, seq: Seq) -> bool {
        let little = self.filling.len_bytes() <= LITTLE_BYTES;
        let none_closed = self.closed.back().is_none_or(|chunk| chunk.last() <= Some(seq));
        none_closed && (little || self.filling.last() <= Some(seq))
    }

    /// The commits above `seq`, to be checked outside of the lock; `None` if they are few enough
    /// for [`CommitWindow::check`].
    ///
    /// # Errors
    /// Conflict if some of them were dropped from the window.
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

    /// Checks that no commit above `seq` touched the footprint.
    ///
    /// # Errors
    /// Conflict, with the key; also if some of the commits were dropped from the window.
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
        let text = "more was committed since the transaction began than the window holds, so \
                    conflicts cannot be ruled out: run it again, make it shorter, or raise \
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
