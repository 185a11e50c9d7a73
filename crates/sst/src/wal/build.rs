//! Builds a WAL object from batches.

use super::{
    BODY_FENCE, BODY_RECORDS, CODEC_NONE, INGEST_JOB, INGEST_TABLES, OWN_HEAD_BYTES, RECORD_BATCH,
    RECORD_INGEST, WAL_HEAD_BYTES, WAL_RECORD_HEAD_BYTES, WalIngest, WalIngestContent,
};
use crate::section::{CHECKSUM_BYTES, SectionPlace};
use bytes::Bytes;
use siltstone_base::limits::MAX_BATCH_BYTES;
use siltstone_base::{Envelope, Epoch, Seq, UnixMillis, WalId};

/// Collects the batches of one WAL object. Room for the head is reserved in front of them, so
/// closing copies nothing.
#[derive(Clone, Debug)]
pub struct WalBuilder {
    bytes: Vec<u8>,
    records: u32,
    first_seq: Seq,
    last_seq: Seq,
}

/// The state of the writer at the moment at which it cuts an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CutInfo {
    /// Every id up to this one that a walk of the log reaches is committed.
    pub durable: WalId,
    /// The commit time: now, and not before any earlier commit time.
    pub at: UnixMillis,
}

/// The head's fields.
struct WalHead {
    body: u8,
    records: u32,
    epoch: Epoch,
    id: WalId,
    first_seq: Seq,
    last_seq: Seq,
    next_id: WalId,
    body_bytes: u64,
    sent: CutInfo,
}

impl Default for WalBuilder {
    fn default() -> Self {
        WalBuilder::new()
    }
}

impl WalBuilder {
    /// An object without records.
    #[must_use]
    pub fn new() -> Self {
        let bytes = vec![0; WAL_HEAD_BYTES];
        WalBuilder { bytes, records: 0, first_seq: Seq::NONE, last_seq: Seq::NONE }
    }

    /// Appends a batch: `bytes` as returned by [`siltstone_base::Batch::as_bytes`], at most
    /// [`MAX_BATCH_BYTES`], with `ops` operations, the first of which has sequence number
    /// `first_seq`. A batch without operations leaves no trace.
    ///
    /// The caller passes batches in commit order without a gap between their sequence numbers: the
    /// decoder returns Corruption otherwise.
    pub fn push_batch(&mut self, first_seq: Seq, ops: u32, bytes: &[u8]) {
        debug_assert!(bytes.len() <= MAX_BATCH_BYTES);
        debug_assert!(self.records == 0 || first_seq == self.last_seq.next());
        if ops == 0 {
            return;
        }
        self.push(RECORD_BATCH, first_seq, ops, bytes);
    }

    /// Appends an ingest, which must be the last record of its object (rule N12).
    pub fn push_ingest(&mut self, ingest: &WalIngest) {
        debug_assert!(self.records == 0 || ingest.first_seq == self.last_seq.next());
        let payload = match &ingest.content {
            WalIngestContent::Job { job, digest } => {
                [&[INGEST_JOB, 0, 0, 0], &job.to_bytes()[..], &digest[..]].concat()
            }
            WalIngestContent::Tables(tables) => [&[INGEST_TABLES, 0, 0, 0], &tables[..]].concat(),
        };
        self.push(RECORD_INGEST, ingest.first_seq, ingest.numbers, &payload);
    }

    fn push(&mut self, kind: u8, first_seq: Seq, numbers: u32, bytes: &[u8]) {
        self.bytes.reserve(WAL_RECORD_HEAD_BYTES + bytes.len() + CHECKSUM_BYTES);
        self.bytes.extend_from_slice(&[kind, 0, 0, 0]);
        self.bytes.extend_from_slice(&numbers.to_le_bytes());
        self.bytes.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(&first_seq.get().to_le_bytes());
        self.bytes.extend_from_slice(bytes);
        if self.records == 0 {
            self.first_seq = first_seq;
        }
        self.records += 1;
        self.last_seq = first_seq.plus(u64::from(numbers) - 1);
    }

    /// Length of the object if it were closed now.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.bytes.len() + CHECKSUM_BYTES
    }

    /// Length of the object if it were closed after one more batch of this many bytes.
    #[must_use]
    pub fn len_with(&self, batch_bytes: usize) -> usize {
        self.len_bytes() + WAL_RECORD_HEAD_BYTES + batch_bytes
    }

    /// Whether it has no records.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Sequence number of the first operation; none without records.
    #[must_use]
    pub fn first_seq(&self) -> Seq {
        self.first_seq
    }

    /// Sequence number of the last operation; none without records.
    #[must_use]
    pub fn last_seq(&self) -> Seq {
        self.last_seq
    }

    /// The object, written under `id` by the writer of `epoch`. `envelope` is of kind WAL.
    #[must_use]
    pub fn finish(self, envelope: Envelope, epoch: Epoch, id: WalId, sent: CutInfo) -> Bytes {
        debug_assert!(sent.durable < id);
        let head = WalHead {
            body: BODY_RECORDS,
            records: self.records,
            epoch,
            id,
            first_seq: self.first_seq,
            last_seq: self.last_seq,
            next_id: WalId::NONE,
            body_bytes: (self.bytes.len() - WAL_HEAD_BYTES) as u64,
            sent,
        };
        close(self.bytes, &envelope, &head)
    }
}

/// A fence at `id`: every epoch below `epoch` ends here, and `epoch` and later ones continue at
/// `next_id`. `envelope` is of kind WAL. The fencing writer has walked to `id`, so everything
/// before it is committed; a fence commits nothing and has no time.
#[must_use]
pub fn encode_fence(envelope: Envelope, epoch: Epoch, id: WalId, next_id: WalId) -> Bytes {
    let sent = CutInfo { durable: id.minus(1), at: UnixMillis(0) };
    let head = WalHead {
        body: BODY_FENCE,
        records: 0,
        epoch,
        id,
        first_seq: Seq::NONE,
        last_seq: Seq::NONE,
        next_id,
        body_bytes: 0,
        sent,
    };
    close(vec![0; WAL_HEAD_BYTES], &envelope, &head)
}

/// Fills in the reserved head and appends the checksum.
fn close(mut bytes: Vec<u8>, envelope: &Envelope, head: &WalHead) -> Bytes {
    let mut front = Vec::with_capacity(WAL_HEAD_BYTES);
    front.extend_from_slice(&envelope.encode());
    front.extend_from_slice(&[head.body, CODEC_NONE]);
    front.extend_from_slice(&(OWN_HEAD_BYTES as u16).to_le_bytes());
    front.extend_from_slice(&head.records.to_le_bytes());
    let words = [
        head.epoch.get(),
        head.id.get(),
        head.first_seq.get(),
        head.last_seq.get(),
        head.next_id.get(),
        head.body_bytes,
        head.sent.durable.get(),
        head.sent.at.0,
        // Not encrypted: no key.
        0,
        0,
    ];
    words.iter().for_each(|word| front.extend_from_slice(&word.to_le_bytes()));
    bytes.iter_mut().zip(front).for_each(|(to, from)| *to = from);
    SectionPlace { object: envelope.object, offset: 0 }.seal(&mut bytes, 0);
    Bytes::from(bytes)
}
