//! The number of bytes of garbage that may stay because of its age.
//!
//! Young garbage stays so that readers without a checkpoint can finish. A writer at full speed
//! makes more garbage within the grace period than a disk can hold, so it is also limited in bytes.
//! Garbage above the limit raises the cut-off, as if it were older: the boundaries move further,
//! and all other rules apply unchanged.

use super::Evidence;
use super::fate::{CollectDecision, manifests, of_all};
use crate::rules::Rules;
use siltstone_base::{ObjectName, UnixMillis};

/// Bytes of garbage that may stay because of its age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Allowance {
    /// Minimum in bytes.
    pub least: u64,
    /// Percentage of the bytes of all tables in the tree.
    pub percent: u64,
}

impl Allowance {
    /// No garbage stays.
    pub const NONE: Allowance = Allowance { least: 0, percent: 0 };

    /// The limit in bytes for a tree of `live` bytes.
    #[must_use]
    pub fn of(self, live: u64) -> u64 {
        self.least.max(live / 100 * self.percent)
    }

    /// Half of the allowance.
    #[must_use]
    pub fn halved(self) -> Allowance {
        Allowance { least: self.least / 2, percent: self.percent / 2 }
    }

    /// The time up to which garbage must be deleted so that the rest is within the limit; time 0 if
    /// there is less garbage.
    pub(super) fn cutoff(self, evidence: &Evidence, rules: Rules) -> UnixMillis {
        let stored = manifests(&evidence.listed);
        let (mut live, mut wal_until) = (0, UnixMillis(0));
        let mut young: Vec<(UnixMillis, u64)> = Vec::new();
        let mut fates = of_all(evidence, rules);
        // The WAL is ordered by id: an object is deleted only after those with smaller ids.
        fates.sort_unstable_by_key(|(object, _)| object.name);
        for (object, fate) in fates {
            let since = match (object.name, fate) {
                (
                    ObjectName::Compacted(_) | ObjectName::IngestSst(..),
                    CollectDecision::Alive(_),
                ) => {
                    live += object.bytes;
                    None
                }
                // A table is superseded with the last manifest that references it. If the successor
                // of that manifest was not in the listing, the table stays.
                (ObjectName::Compacted(_) | ObjectName::IngestSst(..), CollectDecision::Young) => {
                    let last = evidence.named.get(&object.name);
                    last.and_then(|last| stored.get(&last.next())).copied()
                }
                (ObjectName::Wal(_), CollectDecision::Young) => {
                    wal_until = wal_until.max(object.modified);
                    Some(wal_until)
                }
                _ => None,
            };
            young.extend(since.map(|since| (since, object.bytes)));
        }
        young.sort_unstable();
        let mut left: u64 = young.iter().map(|(_, bytes)| bytes).sum();
        let mut cutoff = UnixMillis(0);
        for (since, bytes) in young {
            if left <= self.of(live) {
                break;
            }
            (cutoff, left) = (since, left - bytes);
        }
        cutoff
    }
}
