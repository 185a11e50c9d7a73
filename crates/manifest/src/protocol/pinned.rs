//! Reading the WAL that a checkpoint pins.
//!
//! The ids from the checkpoint's `replay_from` to its `wal_id_last_seen` are alive as long as the
//! checkpoint is present, wherever the boundary is. So the walk needs no boundary. At its end it
//! must know that the checkpoint was present all the time; a deleted checkpoint never returns under
//! the same id. The same look distinguishes an object that was freed with its checkpoint (Expired)
//! from one that was deleted by other means (a hole).

use super::look::{Look, LookAction};
use super::{Failure, Hole, ManifestAnswer, ManifestRequest, WalSeen, beyond};
use crate::edit::Refusal;
use crate::rules::Rules;
use crate::state::{Checkpoint, KeptFence};
use siltstone_base::{CheckpointId, ManifestId, WalId};

/// Walks the WAL of one checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PinnedWalk {
    checkpoint: CheckpointId,
    /// The version that it names, and the last WAL id that it knows.
    pinned: (ManifestId, WalId),
    rules: Rules,
    met: Vec<WalId>,
    phase: PinnedPhase,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum PinnedPhase {
    Walk(WalId),
    /// Looks whether the checkpoint is present. If it is, the walk is done, or a missing object is
    /// a hole.
    Confirm(Look, Option<Hole>),
    Done,
    Failed(Failure),
}

/// The next step of [`PinnedWalk`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PinnedAction {
    /// Read this WAL object and keep its body.
    ReadWal(WalId),
    /// Perform this request.
    Request(ManifestRequest),
    /// The rows of these WAL objects, in this order, belong to the checkpoint.
    Done(Vec<WalId>),
    /// The checkpoint cannot be read; Expired if it was deleted.
    Failed(Failure),
}

impl PinnedWalk {
    /// Reads `checkpoint`, as recorded in the newest manifest.
    #[must_use]
    pub fn new(checkpoint: &Checkpoint, rules: Rules) -> PinnedWalk {
        let pinned = (checkpoint.manifest_id, checkpoint.wal_id_last_seen);
        let walk = PinnedPhase::Walk(checkpoint.replay_from);
        let mut all =
            PinnedWalk { checkpoint: checkpoint.id, pinned, rules, met: Vec::new(), phase: walk };
        all.step_to(checkpoint.replay_from);
        all
    }

    /// The next step.
    #[must_use]
    pub fn action(&self) -> PinnedAction {
        match &self.phase {
            PinnedPhase::Walk(id) => PinnedAction::ReadWal(*id),
            PinnedPhase::Confirm(look, _) => match look.action() {
                LookAction::Request(request) => PinnedAction::Request(request),
                LookAction::Done(_) => PinnedAction::Failed(self.gone()),
            },
            PinnedPhase::Done => PinnedAction::Done(self.met.clone()),
            PinnedPhase::Failed(failure) => PinnedAction::Failed(*failure),
        }
    }

    /// The answer to [`PinnedAction::ReadWal`].
    pub fn on_wal(&mut self, seen: WalSeen) {
        let PinnedPhase::Walk(id) = self.phase else { return };
        match seen {
            WalSeen::Data { .. } => {
                self.met.push(id);
                self.step_to(id.next());
            }
            WalSeen::Fence { epoch, next_id } => {
                self.step_to(beyond(&KeptFence { id, epoch, next_id }));
            }
            // The creator of the checkpoint had seen the object: it was freed with the checkpoint,
            // or it is a hole.
            WalSeen::Absent | WalSeen::Vanished => {
                self.phase = match Hole::at(id, self.pinned, self.rules) {
                    None => PinnedPhase::Failed(self.gone()),
                    hole => PinnedPhase::Confirm(Look::new(None, self.rules), hole),
                };
            }
            WalSeen::Foreign => self.phase = PinnedPhase::Failed(Failure::Foreign(id)),
        }
    }

    /// The answer to [`PinnedAction::Request`].
    pub fn on_answer(&mut self, answer: ManifestAnswer) {
        let PinnedPhase::Confirm(look, hole) = &mut self.phase else { return };
        look.on_answer(answer);
        if let LookAction::Done(newest) = look.action() {
            let present = newest.is_some_and(|state| state.checkpoint(self.checkpoint).is_some());
            self.phase = match *hole {
                _ if !present => PinnedPhase::Failed(self.gone()),
                Some(hole) => PinnedPhase::Failed(Failure::Hole(hole)),
                None => PinnedPhase::Done,
            };
        }
    }

    fn step_to(&mut self, id: WalId) {
        self.phase = if id <= self.pinned.1 {
            PinnedPhase::Walk(id)
        } else {
            PinnedPhase::Confirm(Look::new(None, self.rules), None)
        };
    }

    fn gone(&self) -> Failure {
        Failure::Refused(Refusal::Expired { checkpoint: self.checkpoint })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::HoleProof;
    use crate::protocol::Listing;
    use crate::testing::{checkpoint, manifest};
    use siltstone_base::Epoch;
    use std::sync::Arc;

    fn confirm(pinned: &mut PinnedWalk, state: crate::Manifest) {
        let id = state.id;
        let found = Listing { newest: Some(id), ..Listing::default() };
        pinned.on_answer(ManifestAnswer::Listed(found));
        pinned.on_answer(ManifestAnswer::Read(Some(Arc::new(state))));
        pinned.on_answer(ManifestAnswer::Listed(Listing::default()));
    }

    #[test]
    fn a_pinned_walk_reads_its_range_and_makes_sure() {
        let mut pinned = PinnedWalk::new(&checkpoint(1, None), Rules::ALL);
        assert_eq!(pinned.action(), PinnedAction::ReadWal(WalId(4)));
        pinned.on_wal(WalSeen::Data { epoch: Epoch(1), durable: WalId::NONE });
        pinned.on_wal(WalSeen::Fence { epoch: Epoch(2), next_id: WalId(9) });
        confirm(&mut pinned, manifest());
        assert_eq!(pinned.action(), PinnedAction::Done(vec![WalId(4)]));
    }

    #[test]
    fn a_checkpoint_removed_meanwhile_is_expired() {
        let gone = Failure::Refused(Refusal::Expired { checkpoint: CheckpointId(1) });
        let mut missing = PinnedWalk::new(&checkpoint(1, None), Rules::ALL);
        missing.on_wal(WalSeen::Absent);
        let mut state = manifest();
        state.checkpoints.clear();
        confirm(&mut missing, state);
        assert_eq!(missing.action(), PinnedAction::Failed(gone));

        let mut removed = PinnedWalk::new(&checkpoint(1, None), Rules::ALL);
        removed.on_wal(WalSeen::Data { epoch: Epoch(1), durable: WalId::NONE });
        removed.on_wal(WalSeen::Data { epoch: Epoch(1), durable: WalId::NONE });
        let mut state = manifest();
        state.checkpoints.clear();
        confirm(&mut removed, state);
        assert_eq!(removed.action(), PinnedAction::Failed(gone));
    }

    #[test]
    fn a_missing_object_of_a_present_checkpoint_is_a_hole() {
        let one = checkpoint(1, None);
        let mut missing = PinnedWalk::new(&one, Rules::ALL);
        missing.on_wal(WalSeen::Data { epoch: Epoch(1), durable: WalId::NONE });
        missing.on_wal(WalSeen::Absent);
        confirm(&mut missing, manifest());
        let (manifest, last_seen) = (one.manifest_id, one.wal_id_last_seen);
        let witness = HoleProof::Manifest { id: manifest, last_seen };
        let hole = Failure::Hole(Hole { id: WalId(5), witness });
        assert_eq!(missing.action(), PinnedAction::Failed(hole));
    }

    #[test]
    fn an_empty_range_reads_nothing() {
        let mut empty = checkpoint(1, None);
        empty.wal_id_last_seen = WalId(3);
        let pinned = PinnedWalk::new(&empty, Rules::ALL);
        assert!(matches!(pinned.action(), PinnedAction::Request(_)));
    }
}
