//! Since-leases: every version from one on is kept until a moment (rules L7 to L9, RFC 0048).
//!
//! ```text
//! versions      5   6   7   8   9   10 (newest)
//! (6, 8:00)         └───────────────────────►
//! (9, 8:10)                     └───────────►
//! ```
//! A later lease is there because it ends later, so both ascend. While one is present the
//! collector leaves every manifest from its first version on, and whatever those name.

use super::{LeasedVersion, Manifest};
use crate::rules::Rules;
use siltstone_base::{ManifestId, UnixMillis};

/// Since-leases that there may be at once. Readers add one per half life, and a collector drops
/// them; without a collector the two that end first become one.
pub const MOST_SINCE_LEASES: usize = 16;

/// Keeps every version from `from` on, with its tables, pending jobs and names, until it is
/// dropped. It keeps no WAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SinceLease {
    /// The first version that it covers.
    pub from: ManifestId,
    /// When a collector may drop it.
    pub expires_at: UnixMillis,
}

/// What keeps a version for readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cover {
    /// The version that a point lease names; under a since-lease, the one that was asked for.
    pub version: LeasedVersion,
    /// Until when it lasts.
    pub until: UnixMillis,
    /// Whether it is a since-lease.
    pub is_since: bool,
}

impl SinceLease {
    /// Whether a collector may drop it at `now`.
    #[must_use]
    pub fn expired_at(&self, now: UnixMillis) -> bool {
        self.expires_at <= now
    }
}

impl Manifest {
    /// The first version that a since-lease covers, when one is present: the boundary of manifests
    /// stays below it.
    #[must_use]
    pub fn kept_from(&self) -> Option<ManifestId> {
        self.since_leases.iter().map(|lease| lease.from).min()
    }

    /// Until when since-leases cover `version`.
    #[must_use]
    pub fn covered_since(&self, version: ManifestId) -> Option<UnixMillis> {
        let covering = self.since_leases.iter().filter(|lease| lease.from <= version);
        covering.map(|lease| lease.expires_at).max()
    }

    /// The lease under which `version`, a state of this database up to this one, is read. Of more
    /// than one the one that lasts longest. A point lease on another version with the same tables
    /// counts.
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
    /// Where there is no room the two that end first become one: from the first version of the
    /// first, until the end of the second, so nobody's time is cut. A reader adds a lease only once
    /// less than half a life of the others is left, and expiries are rounded to an eighth of a
    /// life, so at most nine end within one life: the two that end first ended before.
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

    /// Run 3 of RFC 0048: one lease each half life, and no collector for very long. The first that
    /// comes drops all but what the last life added.
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
