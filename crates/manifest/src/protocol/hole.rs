//! Holes in the log: an object is missing that must exist; and the proof of a hole (rules F2, E3).
//!
//! ```text
//! ids:            7    8    9    10
//! watermark:      6         7               9 may have landed before 8
//! watermark:      6         7    8          10 was cut once 8 was committed: 8 is a hole
//! ```

use super::WalSeen;
use crate::rules::{Rule, Rules};
use siltstone_base::{Error, ManifestId, ObjectName, WalId};

/// The result of a listing of `wal/`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct WalListing {
    /// The largest boundary; none if there is none.
    pub boundary: WalId,
    /// The ids above the requested one, ascending.
    pub later: Vec<WalId>,
}

/// An id of the log without an object, although the id was used.
///
/// A manifest can prove it. The process that raised `wal_id_last_seen` had walked to it by the
/// rules: a writer over the recovered log, its fence, and its committed prefix; a reader, for its
/// checkpoint, over the objects that it met and confirmed. So every id that a walk from the replay
/// point reaches, up to `wal_id_last_seen`, was used when that manifest was committed, and stays
/// used until the replay point passes it. A walk does not reach ids between a fence and its
/// `next_id`, nor ids below the replay point.
///
/// A later object can also prove it (rule E3): its watermark is the id up to which everything was
/// committed when the object was made, and the first id of its writer is after a fence whose
/// creator had met everything before. A fence proves this for all ids before it. An object of an
/// older epoch between a fence and its `next_id` has a watermark before the fence, and a walk that
/// met the fence is past it. (A writer sends id i only after all ids up to i - W are committed, so
/// a watermark is never further back.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hole {
    /// The id.
    pub id: WalId,
    /// The proof.
    pub witness: HoleProof,
}

/// The proof of a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HoleProof {
    /// A manifest that was committed before the id was read.
    Manifest {
        /// Its number.
        id: ManifestId,
        /// The last id of the log that it knows.
        last_seen: WalId,
    },
    /// A later object of the log that was seen before the id was read.
    Object(WalId),
}

impl Hole {
    /// Interprets a missing object at `id`: a hole, or (`None`) the end of the log as far as a
    /// manifest can tell. `known` and its knowledge of the log must be older than the read.
    pub(super) fn at(
        id: WalId,
        (manifest, last_seen): (ManifestId, WalId),
        rules: Rules,
    ) -> Option<Hole> {
        let hole = id <= last_seen && rules.has(Rule::HoleIsNoEnd);
        hole.then_some(Hole { id, witness: HoleProof::Manifest { id: manifest, last_seen } })
    }

    /// The hole at `id` that is proven by the object `seen` at `later`; `None` if it proves
    /// nothing.
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

/// Looks for the proof of a hole at an id without an object, among the later objects of a listing;
/// then the id is read again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct HoleCheck {
    id: WalId,
    /// Objects still to read, ascending: the last one proves the most.
    later: Vec<WalId>,
    /// The proven hole, unless the object appears in the final read.
    hole: Option<Hole>,
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum HoleCheckResult {
    /// Continue reading.
    Goes,
    /// No hole is proven: the log ends here.
    End,
    /// The object has appeared.
    Met(WalSeen),
    /// The object is missing, and it is proven that it existed.
    Hole(Hole),
}

impl HoleCheck {
    /// `None` if there is no object after `id`.
    pub(super) fn of(id: WalId, listing: &WalListing, rules: Rules) -> Option<HoleCheck> {
        let behind = listing.later.iter().copied().filter(|later| *later > id);
        let later: Vec<WalId> = behind.collect();
        let doubt = !later.is_empty() && rules.has(Rule::LaterProvesHole);
        doubt.then_some(HoleCheck { id, later, hole: None })
    }

    /// The next id to read.
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
