//! The parts of a manifest that belong to readers and consumers: leases, holds on the log,
//! timelines.

use super::Manifest;
use crate::rules::{Rule, Rules};
use siltstone_base::{AttemptId, ManifestId, Seq, TimelineId, UnixMillis, WalId};
use std::collections::BTreeSet;

/// Maximum number of leases (rule L1).
pub const MOST_LEASES: usize = 32;
/// Maximum number of leased versions in all leases: 24 bytes each in every manifest. Readers switch
/// to newer tables about 16 times per lifetime, and each such version stays for at most two
/// lifetimes.
pub const MOST_LEASED: usize = 1024;

/// Versions that readers share until an expiry (rule L1). They pin manifests and tables, but no
/// WAL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// When it may be revoked.
    pub expires_at: UnixMillis,
    /// The leased versions, ascending; at least one.
    pub versions: Vec<LeasedVersion>,
}

/// A manifest that a lease keeps alive, with its tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeasedVersion {
    /// Its number.
    pub manifest_id: ManifestId,
    /// The attempt that wrote it; none while it is only planned.
    pub manifest_attempt: AttemptId,
}

impl Lease {
    /// Whether it has expired at `now` and may be revoked.
    #[must_use]
    pub fn expired_at(&self, now: UnixMillis) -> bool {
        self.expires_at <= now
    }

    /// The leased version `id`, if this lease covers it.
    #[must_use]
    pub fn version(&self, id: ManifestId) -> Option<LeasedVersion> {
        self.versions.iter().find(|version| version.manifest_id == id).copied()
    }
}

impl Manifest {
    /// The lease that covers version `id`; if there are several, the one with the latest expiry.
    #[must_use]
    pub fn lease_of(&self, id: ManifestId) -> Option<&Lease> {
        let covering = self.leases.iter().filter(|lease| lease.version(id).is_some());
        covering.max_by_key(|lease| lease.expires_at)
    }

    /// A leased version with the same tables as `version`, which is a state of this database up to
    /// this one, and its expiry; if there are several, the one with the latest expiry (rule L2).
    #[must_use]
    pub fn leased_as(
        &self,
        version: &Manifest,
        rules: Rules,
    ) -> Option<(LeasedVersion, UnixMillis)> {
        let since = match rules.has(Rule::JoinWhatIsRead) {
            true => version.tables_since,
            false => ManifestId::NONE,
        };
        let each = self.leases.iter().flat_map(|lease| {
            lease.versions.iter().map(move |version| (*version, lease.expires_at))
        });
        let same = each.filter(|(one, _)| (since..=version.id).contains(&one.manifest_id));
        same.max_by_key(|(one, until)| (*until, one.manifest_id))
    }

    /// Number of versions in all leases.
    #[must_use]
    pub fn leased_versions(&self) -> usize {
        self.leases.iter().map(|lease| lease.versions.len()).sum()
    }

    /// Manifests that present checkpoints and leases name. Manifests covered by since-leases are
    /// given by [`Manifest::kept_from`].
    #[must_use]
    pub fn pinned_versions(&self) -> BTreeSet<ManifestId> {
        let checkpoints = self.checkpoints.iter().map(|one| one.manifest_id);
        let leased = self.leases.iter().flat_map(|lease| &lease.versions);
        checkpoints.chain(leased.map(|version| version.manifest_id)).collect()
    }

    /// Whether a present checkpoint or lease names version `id`.
    #[must_use]
    pub fn pins(&self, id: ManifestId) -> bool {
        self.checkpoints.iter().any(|one| one.manifest_id == id) || self.lease_of(id).is_some()
    }

    /// Whether a checkpoint, a lease or a hold has expired at `now`.
    #[must_use]
    pub fn has_expired(&self, now: UnixMillis) -> bool {
        let mut leases = self.leases.iter();
        self.checkpoints.iter().any(|one| one.expired_at(now))
            || self.since_leases.iter().any(|lease| lease.expired_at(now))
            || leases.any(|lease| lease.expired_at(now))
            || self.holds.iter().any(|hold| hold.expired_at(now))
    }
}

/// A history that began with a restore or a clone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timeline {
    /// Its identity.
    pub id: TimelineId,
    /// The last sequence number of the previous history that is part of this one.
    pub cut: Seq,
    /// The first sequence number of its own.
    pub begins: Seq,
    /// The manifest with which it began.
    pub manifest_id: ManifestId,
    /// When it began.
    pub began_at: UnixMillis,
}

/// A position in the log, between two batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LogPlace {
    /// The last sequence number before it.
    pub seq: Seq,
    /// The next WAL id to read.
    pub wal: WalId,
}

/// The hold of a change feed consumer on the WAL (rules W3, W5).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hold {
    /// The consumer's name.
    pub name: String,
    /// Distinguishes consumers that used the same name: larger is newer.
    pub generation: u64,
    /// The first WAL id that the consumer still needs.
    pub wal_from: WalId,
    /// The last sequence number that the consumer has seen.
    pub seq: Seq,
    /// When it may be revoked; `None`: never.
    pub expires_at: Option<UnixMillis>,
    /// Bytes of WAL above which it may be revoked; `None`: no limit.
    pub most_bytes: Option<u64>,
    /// The position of a consumer that began before what the hold retains, until it has
    /// acknowledged all up to there. The log in between may be deleted, so a feed that continues
    /// here finds it or says that it is gone.
    pub unretained: Option<LogPlace>,
}
