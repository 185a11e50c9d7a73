//! The edit of readers' leases (rules L1, L2, L4; RFC 0028).
//!
//! ```text
//! until  ──►  8:00            8:15             8:30
//! before      v7 v9           v12
//! "cover the newest and v9 until 8:30", in the commit that makes v15
//! after       v7              v12              v9 v15
//! ```
//! Nobody's time is cut: a version moves to a later record, or stays.

use super::Refusal;
use crate::rules::{Rule, Rules};
use crate::state::{Lease, LeasedVersion, MOST_LEASED, MOST_LEASES, Manifest};
use siltstone_base::{AttemptId, ManifestId, UnixMillis};

/// Covers versions until a moment, for whoever reads them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CoverVersions {
    /// Whether the tables of the state that it is committed on are covered: by a version that has
    /// them and is leased already, or by the one that this commit makes.
    pub newest: bool,
    /// Versions that are leased and still read. One that no lease has any more is passed over.
    pub versions: Vec<ManifestId>,
    /// It is in effect where everything is covered until here, whoever saw to it.
    pub enough: UnixMillis,
    /// Until when it covers.
    pub until: UnixMillis,
}

impl CoverVersions {
    pub(super) fn apply(&self, next: &mut Manifest, rules: Rules) -> Result<(), Refusal> {
        let mut moving = Vec::new();
        let named = self.versions.iter().filter(|_| rules.has(Rule::RenewWhatIsRead));
        for id in named {
            match next.lease_of(*id) {
                Some(lease) if lease.expires_at >= self.until => {}
                Some(lease) => moving.extend(lease.version(*id)),
                None if rules.has(Rule::RenewOnlyPresent) => {}
                None => {
                    moving.push(LeasedVersion {
                        manifest_id: *id,
                        manifest_attempt: AttemptId::NONE,
                    });
                }
            }
        }
        if self.newest && rules.has(Rule::PinWhatIsRead) {
            match next.leased_newest_with(rules) {
                Some((_, until)) if until >= self.until => {}
                Some((version, _)) => moving.push(version),
                None => {
                    let leased = next.leases.iter().map(|lease| lease.versions.len());
                    if leased.sum::<usize>() >= MOST_LEASED {
                        return Err(Refusal::Invalid(
                            "1,024 versions are leased to readers; let the collector run, which \
                             drops leases that have run out, or give readers a shorter \
                             readers.checkpoint_lifetime",
                        ));
                    }
                    let own = (next.id, AttemptId::NONE);
                    let (manifest_id, manifest_attempt) = own;
                    moving.push(LeasedVersion { manifest_id, manifest_attempt });
                }
            }
        }
        cover(&mut next.leases, moving, self.until);
        Ok(())
    }

    pub(super) fn in_effect(&self, state: &Manifest, rules: Rules) -> bool {
        let lasts = |until: UnixMillis| until >= self.enough;
        let newest = || {
            let leased = state.leased_newest_with(rules);
            leased.is_some_and(|(_, until)| lasts(until)) || !rules.has(Rule::PinWhatIsRead)
        };
        let renewed = |id: &ManifestId| match state.lease_of(*id) {
            Some(lease) => lasts(lease.expires_at) || !rules.has(Rule::RenewWhatIsRead),
            None => rules.has(Rule::RenewOnlyPresent),
        };
        (!self.newest || newest()) && self.versions.iter().all(renewed)
    }
}

/// Moves `moving` into the record that ends at `until`, or one that ends later.
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
    // Where there is no room: the next later one, else the last one, prolonged.
    let place = first.min(leases.len().saturating_sub(1));
    if let Some(lease) = leases.get_mut(place) {
        lease.expires_at = lease.expires_at.max(until);
        lease.versions.append(&mut moving);
        lease.versions.sort_by_key(|version| version.manifest_id);
        lease.versions.dedup_by_key(|version| version.manifest_id);
    }
}

/// Drops the leases that have run out by `now` (rule G3): a renewal that landed first has moved
/// what it covers to a later record.
pub(super) fn revoke(next: &mut Manifest, now: UnixMillis) {
    next.leases.retain(|lease| !lease.expired_at(now));
}

#[cfg(test)]
mod tests;
