//! What a manifest holds of ingest jobs: those that wait, those that ended, and what applications
//! brought.

use bytes::Bytes;
use siltstone_base::{JobId, Seq, TimelineId, UnixMillis};

/// Jobs that may wait at once (rule N9).
pub const MOST_PENDING: usize = 256;
/// Ended jobs that are remembered (rule N10).
pub const MOST_REMEMBERED: usize = 4096;
/// Applications whose last version is recorded (rule N11).
pub const MOST_APPS: usize = 4096;

/// An ingest job that waits for the writer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PendingIngest {
    /// The job, staged under `ingest/<job>/`.
    pub job: JobId,
    /// When it was left here.
    pub requested_at: UnixMillis,
    /// Digest of what it brings: a request that is made again brings the same.
    pub digest: Bytes,
    /// The application whose version it is, and the version.
    pub app: Option<(String, u64)>,
    /// The timeline it was staged for; `None`: the first one.
    pub timeline: Option<TimelineId>,
}

/// An ingest job that ended, kept as long as a request of its could arrive.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RememberedIngest {
    /// The job.
    pub job: JobId,
    /// What became of it.
    pub outcome: IngestOutcome,
    /// Why it was refused.
    pub reason: Option<String>,
}

/// What became of an ingest job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IngestOutcome {
    /// It is part of the database; its last sequence number.
    Adopted(Seq),
    /// The writer refused it.
    Refused,
    /// Whoever asked for it took that back.
    Withdrawn,
    /// Something that this version has no word for: it ended.
    Other(u8),
}

/// The last version that an application brought.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IngestApp {
    /// Its name.
    pub app: String,
    /// The version.
    pub version: u64,
    /// The job that brought it.
    pub job: JobId,
    /// The last sequence number of its entries.
    pub seq: Seq,
}
