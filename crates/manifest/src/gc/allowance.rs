//! How many bytes of garbage may stay for their age alone.
//!
//! Nobody needs what is Young: it stays so that who reads without a checkpoint can finish. A writer
//! at full speed makes more of it within the grace period than a disk holds, so it has a bound in
//! bytes too. What passes the bound is a cut-off like the one by age, only later: the boundaries
//! move further, and every other rule holds as it is.

use super::Evidence;
use super::fate::{CollectDecision, manifests, of_all};
use crate::rules::Rules;
use siltstone_base::{ObjectName, UnixMillis};

/// Bytes of garbage that may stay for their age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Allowance {
    /// So many at least.
    pub least: u64,
    /// So many hundredths of the bytes of all tables in the tree.
    pub percent: u64,
}

impl Allowance {
    /// Nothing stays.
    pub const NONE: Allowance = Allowance { least: 0, percent: 0 };

    /// In bytes, of a tree of `live` bytes.
    #[must_use]
    pub fn of(self, live: u64) -> u64 {
        self.least.max(live / 100 * self.percent)
    }

    /// Half as much.
    #[must_use]
    pub fn halved(self) -> Allowance {
        Allowance { least: self.least / 2, percent: self.percent / 2 }
    }

    /// The moment up to which garbage must go so that no more than this stays; the start of time
    /// when less is there.
    pub(super) fn cutoff(self, evidence: &Evidence, rules: Rules) -> UnixMillis {
        let stored = manifests(&evidence.listed);
        let (mut live, mut wal_until) = (0, UnixMillis(0));
        let mut young: Vec<(UnixMillis, u64)> = Vec::new();
        let mut fates = of_all(evidence, rules);
        // The WAL in the order of its ids: none goes before one below it.
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
                // Superseded with the last manifest that names it. One whose successor raced the
                // listing stays.
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
