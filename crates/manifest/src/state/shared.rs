//! What a manifest holds for those who read along: leases, holds on the log, histories.

use siltstone_base::{AttemptId, ManifestId, Seq, TimelineId, UnixMillis, WalId};

/// Leases that there may be at once (rule L1).
pub const MOST_LEASES: usize = 32;

/// Versions that readers share until a moment (rule L1). They pin manifests and tables, no WAL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// When it may be revoked.
    pub expires_at: UnixMillis,
    /// What it covers, ascending; at least one.
    pub versions: Vec<LeasedVersion>,
}

/// A manifest that a lease keeps alive, with its tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeasedVersion {
    /// Its number.
    pub manifest_id: ManifestId,
    /// The attempt that wrote it; none while it is planned.
    pub manifest_attempt: AttemptId,
}

/// A history that began with a restore, or with a clone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timeline {
    /// Its identity.
    pub id: TimelineId,
    /// The last sequence number that counts of the history before.
    pub cut: Seq,
    /// The first sequence number of its own.
    pub begins: Seq,
    /// The manifest that it began with.
    pub manifest_id: ManifestId,
    /// When it began.
    pub began_at: UnixMillis,
}

/// A consumer's hold on the WAL (rules W3, W5).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hold {
    /// The consumer's name.
    pub name: String,
    /// Which of those that ever had the name: larger is newer.
    pub generation: u64,
    /// The first WAL id that it still needs.
    pub wal_from: WalId,
    /// The last sequence number that it has seen.
    pub seq: Seq,
    /// When it may be revoked; `None`: never.
    pub expires_at: Option<UnixMillis>,
    /// Bytes of WAL beyond which it may be revoked; `None`: no bound.
    pub most_bytes: Option<u64>,
}
