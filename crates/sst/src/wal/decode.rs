//! Decodes a WAL object. All of it is checked before any part is returned.

use super::{
    BODY_FENCE, BODY_RECORDS, CODEC_NONE, CutInfo, INGEST_JOB, INGEST_TABLES, OWN_HEAD_BYTES,
    RECORD_BATCH, RECORD_INGEST, WAL_RECORD_HEAD_BYTES,
};
use crate::section::SectionPlace;
use bytes::Bytes;
use siltstone_base::batch::BatchOps;
use siltstone_base::bytes_io::Reader;
use siltstone_base::envelope::ENVELOPE_BYTES;
use siltstone_base::{
    Envelope, Epoch, Error, JobId, ObjectId, ObjectKind, Result, Seq, UnixMillis, WalId,
};

/// A WAL object.
#[derive(Clone, Debug)]
pub struct WalObject {
    /// Its database, and the attempt that wrote it.
    pub envelope: Envelope,
    /// Epoch of the writer.
    pub epoch: Epoch,
    /// Its number.
    pub id: WalId,
    /// First sequence number; none without records.
    pub first_seq: Seq,
    /// Last sequence number; none without records.
    pub last_seq: Seq,
    /// The watermark and the commit time at which it was cut.
    pub sent: CutInfo,
    /// Its content.
    pub body: WalBody,
}

/// The content of a WAL object.
#[derive(Clone, Debug)]
pub enum WalBody {
    /// A fence: its epoch and later ones continue at `next_id`.
    Fence {
        /// The first id of the epoch that fenced.
        next_id: WalId,
    },
    /// Records in commit order.
    Records(WalRecords),
}

/// The records of an object, still encoded.
#[derive(Clone, Debug)]
pub struct WalRecords {
    bytes: Bytes,
    count: u32,
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WalRecord {
    /// A batch that was committed as a whole.
    Batch {
        /// Sequence number of its first operation.
        first_seq: Seq,
        /// The number of operations, which is the number of its sequence numbers.
        ops: u32,
        /// The operations, for [`BatchOps`].
        bytes: Bytes,
    },
    /// An ingest; the last record of its object.
    Ingest(WalIngest),
}

/// An ingest: data that became part of the database at this position of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalIngest {
    /// Its first sequence number.
    pub first_seq: Seq,
    /// The number of its sequence numbers, at least one: one per layer.
    pub numbers: u32,
    /// The ingested data.
    pub content: WalIngestContent,
}

/// The data that an ingest adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WalIngestContent {
    /// A job's tables.
    Job {
        /// The job.
        job: JobId,
        /// The digest of its content.
        digest: Bytes,
    },
    /// Tables in the database's own folder, as the manifest crate encodes them.
    Tables(Bytes),
}

impl WalRecord {
    /// Its first and last sequence number.
    #[must_use]
    pub fn seqs(&self) -> (Seq, Seq) {
        match self {
            Self::Batch { first_seq, ops, .. } => {
                (*first_seq, first_seq.plus(u64::from(*ops).saturating_sub(1)))
            }
            Self::Ingest(ingest) => (ingest.first_seq, ingest.last_seq()),
        }
    }
}

impl WalIngest {
    /// Its last sequence number.
    #[must_use]
    pub fn last_seq(&self) -> Seq {
        self.first_seq.plus(u64::from(self.numbers).saturating_sub(1))
    }
}

/// A record's head, and the location of its payload in the records' bytes.
struct RecordFrame {
    kind: u8,
    ops: u32,
    first_seq: Seq,
    start: usize,
    len: usize,
}

/// Decodes the object that was read under the name of `expected`.
///
/// # Errors
/// Corruption if it is damaged, has another id, or has a gap between the sequence numbers of its
/// records; Unsupported if a newer version wrote it.
pub fn decode(bytes: Bytes, expected: WalId) -> Result<WalObject> {
    decode_object(&bytes, expected).map_err(|error| error.with("wal id", expected))
}

fn decode_object(bytes: &Bytes, expected: WalId) -> Result<WalObject> {
    let envelope = Envelope::decode(bytes, ObjectKind::Wal)?;
    let end = SectionPlace { object: envelope.object, offset: 0 }.open("WAL object", bytes)?;
    let covered = bytes.get(..end).unwrap_or_default();
    let mut reader = Reader::new(covered);
    reader.take(ENVELOPE_BYTES)?;
    let body = reader.u8()?;
    let codec = reader.u8()?;
    let head_bytes = usize::from(reader.u16()?);
    let count = reader.u32()?;
    let epoch = Epoch(reader.u64()?);
    let id = WalId(reader.u64()?);
    let (first_seq, last_seq) = (Seq(reader.u64()?), Seq(reader.u64()?));
    let next_id = WalId(reader.u64()?);
    let body_bytes = reader.u64()?;
    let sent = CutInfo { durable: WalId(reader.u64()?), at: UnixMillis(reader.u64()?) };
    let key = reader.u128_be()?;
    if id != expected {
        return Err(Error::corruption("a WAL object stands under another id").with("found", id));
    }
    if body != BODY_RECORDS && body != BODY_FENCE {
        return Err(Error::unsupported("a kind of WAL object that this version does not know")
            .with("kind", body));
    }
    if codec != CODEC_NONE || key != 0 {
        return Err(Error::unsupported(
            "a WAL object is compressed or encrypted in a way that this version does not know",
        )
        .with("codec", codec)
        .with("key", ObjectId(key)));
    }
    // Data that a newer version has put behind the known fields may be skipped: otherwise it would
    // have set a feature bit.
    let more = head_bytes.checked_sub(OWN_HEAD_BYTES);
    let known = more.is_some_and(|more| reader.take(more).is_ok());
    let rest = reader.remaining();
    if !known || epoch.is_none() || sent.durable >= id || body_bytes != rest as u64 {
        return Err(Error::corruption("impossible head of a WAL object"));
    }
    let body = if body == BODY_FENCE {
        let empty = (count, body_bytes, first_seq, last_seq) == (0, 0, Seq::NONE, Seq::NONE);
        let sent_by_rule = sent.durable == id.minus(1) && sent.at.0 == 0;
        if !empty || !sent_by_rule || next_id <= id {
            return Err(Error::corruption("impossible fence").with("next id", next_id));
        }
        WalBody::Fence { next_id }
    } else {
        let records = WalRecords { bytes: bytes.slice(end - rest..end), count };
        if !next_id.is_none() {
            return Err(Error::corruption("a WAL object with records is no fence"));
        }
        records.check(first_seq, last_seq)?;
        WalBody::Records(records)
    };
    Ok(WalObject { envelope, epoch, id, first_seq, last_seq, sent, body })
}

impl WalObject {
    /// Its records in commit order; none for a fence.
    pub fn records(&self) -> impl Iterator<Item = Result<WalRecord>> {
        let records = match &self.body {
            WalBody::Records(records) => Some(records),
            WalBody::Fence { .. } => None,
        };
        records.into_iter().flat_map(WalRecords::iter)
    }

    /// Bytes of its records.
    #[must_use]
    pub fn record_bytes(&self) -> usize {
        match &self.body {
            WalBody::Records(records) => records.bytes.len(),
            WalBody::Fence { .. } => 0,
        }
    }
}

impl WalRecords {
    /// The number of records.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The records in commit order. Their sequence numbers were checked to have no gap. Stops after
    /// the first error: Corruption for a batch without the operations that it claims, Unsupported
    /// for an ingest of a newer version.
    pub fn iter(&self) -> impl Iterator<Item = Result<WalRecord>> {
        let mut at = Some(0);
        std::iter::from_fn(move || {
            let start = at.take().filter(|start| *start < self.bytes.len())?;
            let record = self.frame(start).and_then(|framed| {
                let record = self.open(&framed)?;
                at = Some(framed.start + framed.len);
                Ok(record)
            });
            Some(record)
        })
    }

    /// The record whose head starts at `at`.
    fn frame(&self, at: usize) -> Result<RecordFrame> {
        let mut reader = Reader::new(self.bytes.get(at..).unwrap_or_default());
        let kind = reader.u8()?;
        let zero = reader.array::<3>()?;
        let ops = reader.u32()?;
        let len = reader.u32()? as usize;
        let first_seq = Seq(reader.u64()?);
        reader.take(len)?;
        if zero != [0; 3] || ops == 0 {
            return Err(Error::corruption("impossible record in a WAL object"));
        }
        Ok(RecordFrame { kind, ops, first_seq, start: at + WAL_RECORD_HEAD_BYTES, len })
    }

    fn open(&self, framed: &RecordFrame) -> Result<WalRecord> {
        match framed.kind {
            RECORD_BATCH => {
                let bytes = self.bytes.slice(framed.start..framed.start + framed.len);
                let mut ops = 0u64;
                for op in BatchOps::new(&bytes) {
                    op?;
                    ops += 1;
                }
                if ops != u64::from(framed.ops) {
                    return Err(Error::corruption("a batch does not hold what its record claims")
                        .with("claimed", framed.ops)
                        .with("found", ops));
                }
                Ok(WalRecord::Batch { first_seq: framed.first_seq, ops: framed.ops, bytes })
            }
            RECORD_INGEST => self.ingest(framed).map(WalRecord::Ingest),
            kind => Err(Error::unsupported("a kind of record that this version does not know")
                .with("kind", kind)),
        }
    }

    fn ingest(&self, framed: &RecordFrame) -> Result<WalIngest> {
        let payload = self.bytes.slice(framed.start..framed.start + framed.len);
        let mut reader = Reader::new(&payload);
        let (form, zero) = (reader.u8()?, reader.array::<3>()?);
        if !matches!(form, INGEST_JOB | INGEST_TABLES) || zero != [0; 3] {
            let what = "what was ingested is of a form that this version does not know";
            return Err(Error::unsupported(what).with("form", form));
        }
        let content = if form == INGEST_JOB {
            let job = JobId(reader.u128_be()?);
            if job.is_none() {
                return Err(Error::corruption("an ingest of no job"));
            }
            let digest = payload.slice(payload.len() - reader.remaining()..);
            WalIngestContent::Job { job, digest }
        } else {
            // One layer, so one number (rule P1).
            if framed.ops != 1 || reader.remaining() == 0 {
                return Err(Error::corruption("an ingest of impossible tables"));
            }
            WalIngestContent::Tables(payload.slice(payload.len() - reader.remaining()..))
        };
        Ok(WalIngest { first_seq: framed.first_seq, numbers: framed.ops, content })
    }

    /// Checks the frames: their number, that they fill the body, and that sequence numbers run from
    /// `first` to `last` without a gap.
    fn check(&self, first: Seq, last: Seq) -> Result<()> {
        let (mut at, mut count, mut expected) = (0, 0u32, first);
        let mut ended = false;
        while at < self.bytes.len() {
            let framed = self.frame(at)?;
            if std::mem::replace(&mut ended, framed.kind == RECORD_INGEST) {
                return Err(Error::corruption("a record follows an ingest in a WAL object"));
            }
            let gap = framed.first_seq != expected;
            let end = framed.first_seq.plus(u64::from(framed.ops));
            if gap || framed.first_seq.is_none() || end > Seq::MAX.next() {
                return Err(Error::corruption("sequence numbers leave a gap in a WAL object")
                    .with("expected", expected)
                    .with("found", framed.first_seq));
            }
            expected = end;
            at = framed.start + framed.len;
            count = count.saturating_add(1);
        }
        let ends_right = if count == 0 {
            (first, last) == (Seq::NONE, Seq::NONE)
        } else {
            last.next() == expected
        };
        if count != self.count || !ends_right {
            return Err(Error::corruption("a WAL object does not hold what its head claims"));
        }
        Ok(())
    }
}
