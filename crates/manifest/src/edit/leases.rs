//! The edit of readers' leases (rules L1, L2, L4, RFC 0028; since-leases, RFC 0048).
//!
//! ```text
//! until  ──►  8:00            8:15             8:30
//! before      v7 v9           v12
//! "cover the newest and v9 until 8:30", in the commit that makes v15
//! after       v7              v12              v9 v15
//! ```
//! No lease is shortened: a version moves to a later record, or stays.

use super::Refusal;
use crate::rules::{Rule, Rules};
use crate::state::{Lease, LeasedVersion, MOST_LEASED, MOST_LEASES, Manifest};
use siltstone_base::{AttemptId, UnixMillis};

/// Covers versions until a point in time, for all readers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CoverVersions {
    /// The expiry of a since-lease on the version that this commit makes and all later ones (RFC
    /// 0048); `None`: no since-lease.
    pub since: Option<UnixMillis>,
    /// Whether the tables of the base state of the commit are covered by a point lease: on a leased
    /// version with the same tables, or on the version that this commit makes.
    pub newest: bool,
    /// Covered versions that are still read, for point leases. A version that no lease covers any
    /// more is ignored.
    pub versions: Vec<LeasedVersion>,
    /// The edit is in effect if everything is covered until this time, by any process.
    pub enough: UnixMillis,
    /// The expiry of the point leases.
    pub until: UnixMillis,
}

impl CoverVersions {
    pub(super) fn apply(&self, next: &mut Manifest, rules: Rules) -> Result<(), Refusal> {
        let mut moving = Vec::new();
        let mut room = MOST_LEASED.saturating_sub(next.leased_versions());
        let named = self.versions.iter().filter(|_| rules.has(Rule::RenewWhatIsRead));
        for one in named {
            let covered = next.covered_since(one.manifest_id).is_some();
            match next.lease_of(one.manifest_id) {
                Some(lease) if lease.expires_at >= self.until => {}
                Some(lease) => moving.extend(lease.version(one.manifest_id)),
                None if room == 0 => {}
                None if covered || !rules.has(Rule::RenewOnlyPresent) => {
                    room -= 1;
                    moving.push(*one);
                }
                None => {}
            }
        }
        if self.newest && rules.has(Rule::PinWhatIsRead) {
            match next.leased_as(next, rules) {
                Some((_, until)) if until >= self.until => {}
                Some((version, _)) => moving.push(version),
                None if room == 0 => {
                    return Err(Refusal::Invalid(
                        "1,024 versions are leased to readers; let the collector run, which drops \
                         leases that have run out, or open the database once with a writer of this \
                         version, after which readers need no room here",
                    ));
                }
                None => {
                    let own = (next.id, AttemptId::NONE);
                    let (manifest_id, manifest_attempt) = own;
                    moving.push(LeasedVersion { manifest_id, manifest_attempt });
                }
            }
        }
        cover(&mut next.leases, moving, self.until);
        if let Some(until) = self.since.filter(|_| rules.has(Rule::PinWhatIsRead)) {
            next.cover_since(until);
        }
        Ok(())
    }

    pub(super) fn in_effect(&self, state: &Manifest, rules: Rules) -> bool {
        let lasts = |until: UnixMillis| until >= self.enough;
        let newest = || {
            let covered = state.cover_of(state, rules);
            covered.is_some_and(|cover| lasts(cover.until)) || !rules.has(Rule::PinWhatIsRead)
        };
        let full = state.leased_versions() >= MOST_LEASED;
        let renewed = |one: &LeasedVersion| {
            let since = state.covered_since(one.manifest_id);
            match state.lease_of(one.manifest_id).map(|lease| lease.expires_at).max(since) {
                Some(until) => lasts(until) || full || !rules.has(Rule::RenewWhatIsRead),
                None => rules.has(Rule::RenewOnlyPresent),
            }
        };
        let newest = (!self.newest && self.since.is_none()) || newest();
        newest && self.versions.iter().all(renewed)
    }
}

/// Moves the versions `moving` into the record that ends at `until`, or one that ends later.
fn cover(leases: &mut Vec<Lease>, mut moving: Vec<LeasedVersion>, until: UnixMillis) {
    if moving.is_empty() {
        return;
    }
    for lease in leases.iter_mut() {
        lease.versions.retain(|version| !moving.contains(version));
    }
    leases.retain(|lease| !lease.versions.is_empty());
    leases.sort_by_key(|lease| lease.expires_at);
    let first = leases.partition_point(|lease| lease.expires_at < until);
    let exact = leases.get(first).is_some_and(|lease| lease.expires_at == until);
    if !exact && leases.len() < MOST_LEASES {
        leases.insert(first, Lease { expires_at: until, versions: Vec::new() });
    }
    // If there is no room: the next later record, otherwise the last one, extended.
    let place = first.min(leases.len().saturating_sub(1));
    if let Some(lease) = leases.get_mut(place) {
        lease.expires_at = lease.expires_at.max(until);
        lease.versions.append(&mut moving);
        lease.versions.sort_by_key(|version| version.manifest_id);
        lease.versions.dedup_by_key(|version| version.manifest_id);
    }
}

/// Drops the leases that have expired at `now` (rule G3): a renewal that was committed first has
/// moved its versions to a later record.
pub(super) fn revoke(next: &mut Manifest, now: UnixMillis) {
    next.leases.retain(|lease| !lease.expired_at(now));
    next.since_leases.retain(|lease| !lease.expired_at(now));
}

#[cfg(test)]
mod tests;
