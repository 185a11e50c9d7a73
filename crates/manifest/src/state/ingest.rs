//! The parts of a manifest that belong to ingest jobs: pending jobs, ended jobs, and the last
//! version of each application.

use bytes::Bytes;
use siltstone_base::{JobId, Seq, TimelineId, UnixMillis};

/// Maximum number of pending jobs (rule N9).
pub const MOST_PENDING: usize = 256;
/// Maximum number of ended jobs that are remembered (rule N10).
pub const MOST_REMEMBERED: usize = 4096;
/// Maximum number of applications whose last version is recorded (rule N11).
pub const MOST_APPS: usize = 4096;

/// An ingest job that waits for the writer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PendingIngest {
    /// The job, staged under `ingest/<job>/`.
    pub job: JobId,
    /// When it was requested.
    pub requested_at: UnixMillis,
    /// Digest of its content: a repeated request has the same content.
    pub digest: Bytes,
    /// The application and its version, if the job is a version of an application.
    pub app: Option<(String, u64)>,
    /// The timeline it was staged for; `None`: the first one.
    pub timeline: Option<TimelineId>,
}

/// An ingest job that has ended, kept as long as a request of it could arrive.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RememberedIngest {
    /// The job.
    pub job: JobId,
    /// How it ended.
    pub outcome: IngestOutcome,
    /// The reason of a refusal.
    pub reason: Option<String>,
}

/// How an ingest job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IngestOutcome {
    /// It was installed; its last sequence number.
    Adopted(Seq),
    /// The writer refused it.
    Refused,
    /// The requester withdrew it.
    Withdrawn,
    /// An outcome that this version does not know: the job has ended.
    Other(u8),
}

/// The last installed version of an application.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IngestApp {
    /// Its name.
    pub app: String,
    /// The version.
    pub version: u64,
    /// The job that contained it.
    pub job: JobId,
    /// The last sequence number of its entries.
    pub seq: Seq,
}
