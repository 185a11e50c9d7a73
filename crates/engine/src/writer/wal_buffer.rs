//! Accepted batches that are in no WAL object yet, in pieces of bounded size. Each piece becomes
//! one object. Pieces are cut while they are filled, so the WAL task takes one off the front and
//! copies nothing under the commit lock.

use siltstone_base::Seq;
use siltstone_sst::wal::{WalBuilder, WalIngest};
use std::collections::VecDeque;
use std::time::Duration;

/// Upper bound of a WAL object, in multiples of `flush_bytes`. A higher bound would occupy a slow
/// link with one object for minutes. A lower bound would cost requests while the window is full:
/// four multiples are what arrives while four objects are in flight.
pub(crate) const OBJECT_FLUSHES: usize = 4;

/// The part of the log that the commit lock guards.
pub(crate) struct WalBuffer {
    /// Pieces that are complete, oldest first.
    full: VecDeque<WalPiece>,
    /// The piece that is filled.
    open: WalBuilder,
    /// Time at which the oldest batch of the open piece was accepted.
    since: Option<Duration>,
    /// Upper bound of a piece, unless one batch alone is larger.
    most_bytes: usize,
    /// A piece of at least this size is sent immediately.
    flush_bytes: usize,
}

/// The content of one object, and the time at which its oldest batch was accepted; `None` if it
/// holds only an ingest.
pub(crate) type WalPiece = (WalBuilder, Option<Duration>);

/// When something must be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlushDue {
    /// Now: there is enough for an object.
    Now,
    /// After the flush interval: the oldest batch was accepted at this time.
    Since(Duration),
}

impl WalBuffer {
    pub(crate) fn new(flush_bytes: usize) -> WalBuffer {
        WalBuffer {
            full: VecDeque::new(),
            open: WalBuilder::new(),
            since: None,
            most_bytes: flush_bytes.saturating_mul(OBJECT_FLUSHES),
            flush_bytes,
        }
    }

    /// Appends a batch. Batches are never split. Returns whether the WAL task must be notified: a
    /// batch began to wait, or there is enough to send.
    pub(crate) fn push(
        &mut self,
        first: Seq,
        ops: u32,
        bytes: &[u8],
        now: impl FnOnce() -> Duration,
    ) -> bool {
        let full = self.open.len_with(bytes.len()) > self.most_bytes;
        if full && !self.open.is_empty() {
            self.full.push_back((std::mem::take(&mut self.open), self.since.take()));
        }
        self.open.push_batch(first, ops, bytes);
        let began = self.since.is_none();
        if began {
            self.since = Some(now());
        }
        began || self.open.len_bytes() >= self.flush_bytes
    }

    /// Appends an ingest. It ends its piece (rule N12), which is due immediately.
    pub(crate) fn push_ingest(&mut self, ingest: &WalIngest) {
        self.open.push_ingest(ingest);
        self.full.push_back((std::mem::take(&mut self.open), self.since.take()));
    }

    /// When something must be sent; `None` if the buffer is empty.
    pub(crate) fn due(&self) -> Option<FlushDue> {
        if !self.full.is_empty() || self.open.len_bytes() >= self.flush_bytes {
            return (!self.is_empty()).then_some(FlushDue::Now);
        }
        self.since.map(FlushDue::Since)
    }

    /// Removes the oldest piece; `None` if the buffer is empty.
    pub(crate) fn take(&mut self) -> Option<WalPiece> {
        if let Some(full) = self.full.pop_front() {
            return Some(full);
        }
        let since = self.since.take();
        (!self.open.is_empty()).then(|| (std::mem::take(&mut self.open), since))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.full.is_empty() && self.open.is_empty()
    }

    /// Sequence number of the oldest operation; `NONE` if the buffer is empty.
    pub(crate) fn first_seq(&self) -> Seq {
        self.full.front().map_or(&self.open, |(piece, _)| piece).first_seq()
    }

    /// Total length of the objects if all pieces were sent now.
    pub(crate) fn len_bytes(&self) -> usize {
        let full: usize = self.full.iter().map(|(piece, _)| piece.len_bytes()).sum();
        full + if self.open.is_empty() { 0 } else { self.open.len_bytes() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten batches of 30 bytes, in pieces of at most 400 bytes including headers and checksums.
    fn filled() -> WalBuffer {
        let mut buffer = WalBuffer::new(100);
        for seq in 1..=10 {
            buffer.push(Seq(seq), 1, &[7; 30], || Duration::from_secs(seq));
        }
        buffer
    }

    #[test]
    fn pieces_are_bounded_and_lose_no_batch() {
        let mut buffer = filled();
        let all = buffer.len_bytes();
        let (mut next, mut bytes, mut pieces) = (Seq(1), 0, 0);
        while let Some((piece, since)) = buffer.take() {
            assert_eq!(since, Some(Duration::from_secs(next.0)));
            assert!(piece.len_bytes() <= 400, "{}", piece.len_bytes());
            assert_eq!((piece.first_seq(), next), (next, piece.first_seq()));
            next = piece.last_seq().next();
            bytes += piece.len_bytes();
            pieces += 1;
        }
        assert_eq!((next, bytes), (Seq(11), all));
        assert!(pieces >= 2, "{pieces}");
        assert!(buffer.is_empty() && buffer.due().is_none() && buffer.len_bytes() == 0);
    }

    #[test]
    fn the_rest_is_due_by_its_own_oldest_batch() {
        let mut buffer = WalBuffer::new(100_000);
        buffer.push(Seq(1), 1, &[7; 30], || Duration::from_secs(1));
        buffer.push(Seq(2), 1, &[7; 30], || Duration::from_secs(2));
        assert_eq!(buffer.due(), Some(FlushDue::Since(Duration::from_secs(1))));
        // This batch does not fit: the earlier ones are due now, and its own wait begins.
        buffer.push(Seq(3), 1, &vec![7; 399_900], || Duration::from_secs(3));
        assert_eq!((buffer.due(), buffer.first_seq()), (Some(FlushDue::Now), Seq(1)));
        let (first, since) = buffer.take().expect("a piece");
        assert_eq!((first.last_seq(), since), (Seq(2), Some(Duration::from_secs(1))));
        assert_eq!((buffer.due(), buffer.first_seq()), (Some(FlushDue::Now), Seq(3)));
        assert_eq!(buffer.take().expect("a piece").0.first_seq(), Seq(3));
        buffer.push(Seq(4), 1, &[7; 30], || Duration::from_secs(4));
        assert_eq!(buffer.due(), Some(FlushDue::Since(Duration::from_secs(4))));
    }

    #[test]
    fn a_batch_is_never_cut_and_one_alone_may_be_larger() {
        let mut buffer = WalBuffer::new(100);
        assert!(buffer.push(Seq(1), 5, &[7; 3000], || Duration::ZERO));
        assert!(buffer.push(Seq(6), 1, &[7; 30], || Duration::ZERO));
        let (large, _) = buffer.take().expect("a piece");
        assert_eq!((large.first_seq(), large.last_seq()), (Seq(1), Seq(5)));
        assert_eq!(buffer.take().map(|(piece, _)| piece.last_seq()), Some(Seq(6)));
    }
}
