//! The edit that ends a database (RFC 0030, rules D1 to D3).
//!
//! Destroyed means: whoever was the writer has been fenced, nothing is added any more, and once
//! nothing is pinned either, no edit fits the state at all. So its number is the last one.

use super::writer::{check_epoch, end_writer, go_past, keep_fences};
use super::{Conflict, Refusal};
use crate::rules::{Rule, Rules};
use crate::state::{Checkpoint, CheckpointOwner, KeptFence, Manifest};
use siltstone_base::{CheckpointId, Epoch, UnixMillis};

/// Ends the database.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Destroy {
    /// Under which it was fenced; `None` where there is nobody to fence: a database that was never
    /// initialised, a mirror, or one that was destroyed before.
    pub epoch: Option<Epoch>,
    /// When it is destroyed: the later of its maker's clock and the store's.
    pub at: UnixMillis,
    /// What checkpoints have expired by: the earlier of the two.
    pub now: UnixMillis,
    /// Whether what is pinned stays until it is let go (rule D2). Otherwise pins of clones, and
    /// checkpoints that somebody made, refuse it, and all others go.
    pub soft: bool,
    /// Every fence on the walk, and the own one.
    pub fences: Vec<KeptFence>,
}

impl Destroy {
    pub(super) fn apply(&self, next: &mut Manifest, rules: Rules) -> Result<(), Refusal> {
        let first = next.destroyed_at.is_none();
        let has_writer = next.initialized && next.mirror.is_none();
        if first && has_writer && rules.has(Rule::FenceBeforeDestroy) {
            // Nobody has epoch 0 where a writer has claimed.
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

    /// Nothing is pinned any more once it was done for good, and nothing is pinned anew.
    pub(super) fn in_effect(&self, state: &Manifest) -> bool {
        state.destroyed_at.is_some() && (self.soft || is_let_go(state))
    }
}

/// Checkpoints that bar a destroy which does not wait, unless they have expired at `now`: those of
/// clones, those that somebody made, and what this version has no word for.
pub fn bars_destroy(state: &Manifest, now: UnixMillis) -> impl Iterator<Item = &Checkpoint> {
    state.checkpoints.iter().filter(move |one| match one.owner {
        CheckpointOwner::User | CheckpointOwner::Clone(_) | CheckpointOwner::Other { .. } => {
            !one.expired_at(now)
        }
        CheckpointOwner::Writer(_) | CheckpointOwner::Reader => false,
    })
}

/// Whether nothing is pinned: neither a checkpoint nor a lease nor a hold is left.
#[must_use]
pub fn is_let_go(state: &Manifest) -> bool {
    let leases = state.leases.is_empty() && state.since_leases.is_empty();
    state.checkpoints.is_empty() && leases && state.holds.is_empty()
}
