//! Since-leases: every version from one on is kept until an expiry (rules L7 to L9, RFC 0048).
//!
//! ```text
//! versions      5   6   7   8   9   10 (newest)
//! (6, 8:00)         └───────────────────────►
//! (9, 8:10)                     └───────────►
//! ```
//! A later lease also ends later, so both fields ascend. While a since-lease is present, the
//! collector keeps every manifest from its first version on, and all objects that these reference.

use super::{LeasedVersion, Manifest};
use crate::rules::Rules;
use siltstone_base::{ManifestId, UnixMillis};

/// Maximum number of since-leases. Readers add one per half lifetime, and a collector drops expired
/// ones; without a collector the two that end first are merged into one.
pub const MOST_SINCE_LEASES: usize = 16;

/// Keeps every version from `from` on, with its tables, pending jobs and names, until the lease is
/// dropped. It keeps no WAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SinceLease {
    /// The first version covered.
    pub from: ManifestId,
    /// When a collector may drop it.
    pub expires_at: UnixMillis,
}

/// The lease that keeps a version for readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cover {
    /// The version that a point lease names; for a since-lease, the version that was asked for.
    pub version: LeasedVersion,
    /// The expiry of the lease.
    pub until: UnixMillis,
    /// Whether it is a since-lease.
    pub is_since: bool,
}

impl SinceLease {
    /// Whether it has expired at `now` and a collector may drop it.
    #[must_use]
    pub fn expired_at(&self, now: UnixMillis) -> bool {
        self.expires_at <= now
    }
}

impl Manifest {
    /// The first version covered by a present since-lease: the boundary of manifests stays below
    /// it.
    #[must_use]
    pub fn kept_from(&self) -> Option<ManifestId> {
        self.since_leases.iter().map(|lease| lease.from).min()
    }

    /// The expiry until which since-leases cover `version`.
    #[must_use]
    pub fn covered_since(&self, version: ManifestId) -> Option<UnixMillis> {
        let covering = self.since_leases.iter().filter(|lease| lease.from <= version);
        covering.map(|lease| lease.expires_at).max()
    }

    /// The lease under which `version`, a state of this database up to this one, is read; if there
    /// are several, the one with the latest expiry. A point lease on another version with the same
    /// tables counts.
    #[must_use]
    pub fn cover_of(&self, version: &Manifest, rules: Rules) -> Option<Cover> {
        let own = LeasedVersion { manifest_id: version.id, manifest_attempt: version.attempt };
        let since = self.covered_since(version.id);
        let since = since.map(|until| Cover { version: own, until, is_since: true });
        let point = self.leased_as(version, rules);
        let point = point.map(|(version, until)| Cover { version, until, is_since: false });
        since.into_iter().chain(point).max_by_key(|cover| cover.until)
    }

    /// Covers this version and every later one until `until`, unless a present since-lease lasts as
    /// long.
    ///
    /// If there is no room, the two leases that end first are merged into one: from the first
    /// version of the first until the end of the second, so that no lease is shortened. A reader
    /// adds a lease only if less than half a lifetime of the others is left, and expiries are
    /// rounded to an eighth of a lifetime, so at most nine end within one lifetime: the two that
    /// end first have expired before.
    pub(crate) fn cover_since(&mut self, until: UnixMillis) {
        if self.covered_since(self.id).is_some_and(|there| there >= until) {
            return;
        }
        self.since_leases.push(SinceLease { from: self.id, expires_at: until });
        if self.since_leases.len() > MOST_SINCE_LEASES {
            let first = self.since_leases.remove(0);
            if let Some(second) = self.since_leases.first_mut() {
                second.from = first.from;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::manifest;

    fn lease(from: u64, expires_at: u64) -> SinceLease {
        SinceLease { from: ManifestId(from), expires_at: UnixMillis(expires_at) }
    }

    #[test]
    fn one_that_lasts_as_long_is_enough() {
        let mut state = Manifest { since_leases: vec![lease(3, 900)], ..manifest() };
        state.cover_since(UnixMillis(900));
        assert_eq!(state.since_leases, [lease(3, 900)]);
        state.cover_since(UnixMillis(901));
        assert_eq!(state.since_leases.len(), 2);
        assert_eq!(state.kept_from(), Some(ManifestId(3)));
        assert_eq!(state.covered_since(ManifestId(2)), None);
        assert_eq!(state.covered_since(ManifestId(3)), Some(UnixMillis(900)));
        assert_eq!(state.covered_since(state.id), Some(UnixMillis(901)));
    }

    /// Run 3 of RFC 0048: one lease per half lifetime, and no collector for a long time. The first
    /// collector drops all leases except those of the last lifetime.
    #[test]
    fn the_first_does_not_take_in_all_that_follow() {
        const HALF: u64 = 10;
        let mut state = Manifest { since_leases: vec![], ..manifest() };
        for step in 0..10_000 {
            state.id = state.id.next();
            state.cover_since(UnixMillis((step + 2) * HALF));
            assert!(state.since_leases.len() <= MOST_SINCE_LEASES);
            assert!(state.since_leases.is_sorted_by_key(|lease| (lease.from, lease.expires_at)));
            let mut kept = state.clone();
            kept.since_leases.retain(|lease| !lease.expired_at(UnixMillis(step * HALF)));
            assert!(kept.kept_from() >= Some(state.id.minus(1)), "step {step}");
        }
    }
}
