//! Nothing where something must be: a hole in the log, and what proves it (rules F2, E3).
//!
//! ```text
//! ids:            7    8    9    10
//! watermark:      6         7               9 may have landed before 8
//! watermark:      6         7    8          10 was cut once 8 was committed: 8 is a hole
//! ```

use super::WalSeen;
use crate::rules::{Rule, Rules};
use siltstone_base::{Error, ManifestId, ObjectName, WalId};

/// What a listing of `wal/` shows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct WalListing {
    /// The largest boundary; none when there is none.
    pub boundary: WalId,
    /// The ids above the one asked for, ascending.
    pub later: Vec<WalId>,
}

/// An id of the log that holds nothing, although it was taken.
///
/// A manifest may say so. Whoever raised `wal_id_last_seen` had walked there by the rules: a writer
/// over what it recovered, its fence, and its committed prefix; a reader, for its checkpoint, over
/// what it met and had confirmed. So every id that a walk from the replay point reaches, up to
/// there, was taken when that manifest was committed, and stays so until the replay point passes
/// it. Ids between a fence and its `next_id` are not reached; ids below the replay point are behind
/// the walk.
///
/// Or a later object does (rule E3): its watermark says up to where everything was committed when
/// it was cut, and its writer's first id lies behind a fence whose maker had met everything before.
/// A fence says that of all before itself. What an older epoch has left between a fence and its
/// `next_id` has a watermark before the fence, and a walk that met the fence is past it. (A writer
/// sends id i only once every id up to i - W is committed, so a watermark is never further back.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hole {
    /// The id.
    pub id: WalId,
    /// What proves it.
    pub witness: HoleProof,
}

/// What proves a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HoleProof {
    /// A manifest, committed before the id was read.
    Manifest {
        /// Its number.
        id: ManifestId,
        /// How far it knows of the log.
        last_seen: WalId,
    },
    /// A later object of the log, seen before the id was read.
    Object(WalId),
}

impl Hole {
    /// What stands at `id` when nothing was found there: a hole, or (`None`) the end of the log as
    /// far as a manifest can tell. `known` and what it says of the log must be older than the read.
    pub(super) fn at(
        id: WalId,
        (manifest, last_seen): (ManifestId, WalId),
        rules: Rules,
    ) -> Option<Hole> {
        let hole = id <= last_seen && rules.has(Rule::HoleIsNoEnd);
        hole.then_some(Hole { id, witness: HoleProof::Manifest { id: manifest, last_seen } })
    }

    /// The hole at `id` that `seen`, found at `later`, proves; `None` when it proves nothing.
    #[must_use]
    pub fn before(id: WalId, (later, seen): (WalId, WalSeen)) -> Option<Hole> {
        Hole::told(id, (later, seen), Rules::ALL)
    }

    fn told(id: WalId, (later, seen): (WalId, WalSeen), rules: Rules) -> Option<Hole> {
        let proven = match seen {
            WalSeen::Data { durable, .. } if rules.has(Rule::ProofByWatermark) => id <= durable,
            WalSeen::Data { .. } | WalSeen::Fence { .. } => id < later,
            WalSeen::Absent | WalSeen::Vanished | WalSeen::Foreign => false,
        };
        proven.then_some(Hole { id, witness: HoleProof::Object(later) })
    }
}

/// Looks for what proves a hole at an id where nothing was found, among what was listed behind it;
/// then the id is read once more.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct HoleCheck {
    id: WalId,
    /// Still to be looked at, ascending: the farthest proves the most.
    later: Vec<WalId>,
    /// What is proven unless something stands at the id by now.
    hole: Option<Hole>,
}

/// What came of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum HoleCheckResult {
    /// Read on.
    Goes,
    /// Nothing proves a hole: the log ends here.
    End,
    /// Something stands at the id by now.
    Met(WalSeen),
    /// Nothing stands there, and it is proven that something did.
    Hole(Hole),
}

impl HoleCheck {
    /// `None` when nothing is behind `id`.
    pub(super) fn of(id: WalId, listing: &WalListing, rules: Rules) -> Option<HoleCheck> {
        let behind = listing.later.iter().copied().filter(|later| *later > id);
        let later: Vec<WalId> = behind.collect();
        let doubt = !later.is_empty() && rules.has(Rule::LaterProvesHole);
        doubt.then_some(HoleCheck { id, later, hole: None })
    }

    /// What to read.
    pub(super) fn reads(&self) -> WalId {
        match (self.hole, self.later.last()) {
            (None, Some(later)) => *later,
            _ => self.id,
        }
    }

    /// The answer.
    pub(super) fn on_wal(&mut self, seen: WalSeen, rules: Rules) -> HoleCheckResult {
        if let Some(hole) = self.hole {
            return match seen {
                WalSeen::Absent | WalSeen::Vanished => HoleCheckResult::Hole(hole),
                met => HoleCheckResult::Met(met),
            };
        }
        let Some(later) = self.later.pop() else { return HoleCheckResult::End };
        match Hole::told(self.id, (later, seen), rules) {
            Some(hole) if rules.has(Rule::ReadAgainBeforeHole) => {
                self.hole = Some(hole);
                HoleCheckResult::Goes
            }
            Some(hole) => HoleCheckResult::Hole(hole),
            None if self.later.is_empty() => HoleCheckResult::End,
            None => HoleCheckResult::Goes,
        }
    }
}

impl From<Hole> for Error {
    fn from(hole: Hole) -> Error {
        let error = Error::corruption(
            "a WAL object that was committed is missing: something other than Siltstone deleted \
             it; put it back, from the store's older versions or a backup, and try again \
             (`siltstone verify` names all that is missing), or go on without it (`siltstone \
             repair`)",
        )
        .with("object", ObjectName::Wal(hole.id));
        match hole.witness {
            HoleProof::Manifest { id, last_seen } => {
                error.with("manifest", id).with("its wal_id_last_seen", last_seen)
            }
            HoleProof::Object(later) => {
                error.with("proven by the later object", ObjectName::Wal(later))
            }
        }
    }
}
