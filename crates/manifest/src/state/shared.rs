//! What a manifest holds for those who read along: leases, holds on the log, histories.

use super::Manifest;
use crate::rules::{Rule, Rules};
use siltstone_base::{AttemptId, ManifestId, Seq, TimelineId, UnixMillis, WalId};
use std::collections::BTreeSet;

/// Leases that there may be at once (rule L1).
pub const MOST_LEASES: usize = 32;
/// Versions that leases may cover, all together: 24 bytes each in every manifest. Readers take up
/// newer tables some 16 times in a lifetime, and each such version is there for two at most.
pub const MOST_LEASED: usize = 1024;

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

impl Lease {
    /// Whether it may be revoked at `now`.
    #[must_use]
    pub fn expired_at(&self, now: UnixMillis) -> bool {
        self.expires_at <= now
    }

    /// What it covers of version `id`.
    #[must_use]
    pub fn version(&self, id: ManifestId) -> Option<LeasedVersion> {
        self.versions.iter().find(|version| version.manifest_id == id).copied()
    }
}

impl Manifest {
    /// The lease that covers version `id`, when one is present: the latest, where there are more.
    #[must_use]
    pub fn lease_of(&self, id: ManifestId) -> Option<&Lease> {
        let covering = self.leases.iter().filter(|lease| lease.version(id).is_some());
        covering.max_by_key(|lease| lease.expires_at)
    }

    /// A leased version with the very tables of `version`, a state of this database up to this one,
    /// and until when: of more than one the one that lasts longest (rule L2).
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

    /// Versions that leases name, all together.
    #[must_use]
    pub fn leased_versions(&self) -> usize {
        self.leases.iter().map(|lease| lease.versions.len()).sum()
    }

    /// Manifests that present checkpoints and leases name. Those that since-leases cover follow
    /// from [`Manifest::kept_from`].
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

    /// Whether a checkpoint, a lease or a hold may be revoked at `now`.
    #[must_use]
    pub fn has_expired(&self, now: UnixMillis) -> bool {
        let mut leases = self.leases.iter();
        self.checkpoints.iter().any(|one| one.expired_at(now))
            || self.since_leases.iter().any(|lease| lease.expired_at(now))
            || leases.any(|lease| lease.expired_at(now))
            || self.holds.iter().any(|hold| hold.expired_at(now))
    }
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
