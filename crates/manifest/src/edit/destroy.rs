//! The edit that destroys a database (RFC 0030, rules D1 to D3).
//!
//! After it, the previous writer is fenced and no data is added. Once nothing is pinned either, no
//! edit can be committed, so the number of that manifest is the last one.

use super::writer::{check_epoch, end_writer, go_past, keep_fences};
use super::{Conflict, Refusal};
use crate::rules::{Rule, Rules};
use crate::state::{Checkpoint, CheckpointOwner, KeptFence, Manifest};
use siltstone_base::{CheckpointId, Epoch, UnixMillis};

/// Destroys the database.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Destroy {
    /// The epoch under which the previous writer was fenced; `None` if there is no writer to fence:
    /// a database that was never initialised, a mirror, or one that was destroyed before.
    pub epoch: Option<Epoch>,
    /// When it is destroyed: the later of the clock of the process and the clock of the store.
    pub at: UnixMillis,
    /// The time at which expiry of checkpoints is judged: the earlier of the two clocks.
    pub now: UnixMillis,
    /// Whether pinned data stays until it is released (rule D2). Otherwise pins of clones, and
    /// checkpoints created by users, prevent the destroy, and all other checkpoints are removed.
    pub soft: bool,
    /// All fences met on the walk, and the own one.
    pub fences: Vec<KeptFence>,
}

impl Destroy {
    pub(super) fn apply(&self, next: &mut Manifest, rules: Rules) -> Result<(), Refusal> {
        let first = next.destroyed_at.is_none();
        let has_writer = next.initialized && next.mirror.is_none();
        if first && has_writer && rules.has(Rule::FenceBeforeDestroy) {
            // No writer has epoch 0 if a writer has claimed.
            check_epoch(next, self.epoch.unwrap_or_default())?;
        }
        if !self.soft {
            let bars: Vec<CheckpointId> = bars_destroy(next, self.now).map(|one| one.id).collect();
            if let Some((checkpoint, others)) = bars.split_first() {
                let (checkpoint, more) = (*checkpoint, others.len());
                return Err(Conflict::Pinned { checkpoint, more }.into());
            }
            next.checkpoints.clear();
            next.leases.clear();
            next.since_leases.clear();
            next.holds.clear();
            next.fed.clear();
        }
        if first {
            next.destroyed_at = Some(self.at);
            keep_fences(next, &self.fences);
            go_past(next, &self.fences);
            end_writer(next);
        }
        Ok(())
    }

    /// A complete destroy has removed all pins, and no pin can be added later.
    pub(super) fn in_effect(&self, state: &Manifest) -> bool {
        state.destroyed_at.is_some() && (self.soft || is_let_go(state))
    }
}

/// Checkpoints that prevent a destroy which does not wait, unless they have expired at `now`: pins
/// of clones, checkpoints created by users, and checkpoints of an unknown owner.
pub fn bars_destroy(state: &Manifest, now: UnixMillis) -> impl Iterator<Item = &Checkpoint> {
    state.checkpoints.iter().filter(move |one| match one.owner {
        CheckpointOwner::User | CheckpointOwner::Clone(_) | CheckpointOwner::Other { .. } => {
            !one.expired_at(now)
        }
        CheckpointOwner::Writer(_) | CheckpointOwner::Reader => false,
    })
}

/// Whether nothing is pinned: there is no checkpoint, lease or hold.
#[must_use]
pub fn is_let_go(state: &Manifest) -> bool {
    let leases = state.leases.is_empty() && state.since_leases.is_empty();
    state.checkpoints.is_empty() && leases && state.holds.is_empty()
}
