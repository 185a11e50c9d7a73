//! Requests of an opening that are sent beside the current one, to save round trips.
//!
//! ```text
//! create the claim                 ─┬─ read the WAL ids where the walk begins and may end
//! list after the claim's create    ─┼─ the walk has ended by those reads: list the WAL
//!                                   └─ it has not: read its next id
//! list the WAL after an absent id  ─── list the manifests, for the look before the fence
//! ```
//! Each keeps the order on which the rules depend.
//!
//! - *Objects read before the claim.* The claim follows a proven manifest directly, so until it was
//!   committed no other commit moved the replay point, and no id from there on was freed. The
//!   objects are those that a walk after the claim meets, because objects do not change. If another
//!   process commits first, the answers are dropped.
//! - *No object before the claim.* An older writer may create that id later. Then the create of the
//!   fence is lost, and the walk continues with the object there, as for every race. An id that the
//!   manifest knows to be taken is read again after the claim.
//! - *The look before the fence* begins after the read that found no object (rule F2). If that read
//!   came before the claim, the listing that checks the claim's slot is this look: it shows that no
//!   newer writer has claimed, so the id had not been freed.
//! - *The listing of the WAL* begins after that read too, and only shows holes.
//!
//! An answer is dropped if the machine asks for something else.

use super::{OpenAction, OpenPhase, OpenWriter, beyond};
use crate::protocol::look::Look;
use crate::protocol::{
    LookAction, ManifestAnswer, ManifestRequest, WalListing, WalSeen, likely_end,
};
use crate::rules::Rule;
use crate::state::{KeptFence, Manifest};
use siltstone_base::{Epoch, WalId};
use std::sync::Arc;

/// The answer to an action of [`OpenWriter::beside`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EarlyAnswer {
    /// To [`OpenAction::ReadWal`] of this id.
    Wal(WalId, WalSeen),
    /// To [`OpenAction::ListWal`] after this id.
    WalListed(WalId, WalListing),
    /// To [`OpenAction::Request`] of this request.
    Manifests(ManifestRequest, ManifestAnswer),
}

/// How far the early reads of the WAL lead.
enum EarlyWalk {
    /// Nothing was read at this id.
    Unread(WalId),
    /// There was no object at this id.
    Ended(WalId),
}

impl OpenWriter {
    /// The actions that may be performed beside the current one, in any order; their answers go to
    /// [`OpenWriter::on_early`] before that of the current one.
    #[must_use]
    pub fn beside(&self) -> Vec<OpenAction> {
        if self.options.cut.is_some() {
            return Vec::new();
        }
        let actions = match &self.phase {
            OpenPhase::Claim(commit) => match (commit.planned(), commit.unconfirmed()) {
                (Some(planned), _) => before_the_claim(planned, commit.base()),
                (_, Some(claim)) => self.after_the_claim(claim),
                (None, None) => Vec::new(),
            },
            OpenPhase::List(id) if self.looks_before(*id) => self.first_request_of_a_look(),
            _ => Vec::new(),
        };
        actions.into_iter().filter(|action| !self.is_answered(action)).collect()
    }

    /// The answer to an action of [`OpenWriter::beside`]. It may be left out.
    pub fn on_early(&mut self, answer: EarlyAnswer) {
        let asked = self.beside().iter().any(|action| answers(&answer, action));
        if asked && self.is_usable(&answer) {
            // In order of their ids, not of their arrival: the explorer visits fewer states.
            let at = self.early.partition_point(|one| wal_id(one) < wal_id(&answer));
            self.early.insert(at, answer);
        }
    }

    /// Continues with the early answers for which the next actions ask.
    pub(super) fn take_early(&mut self) {
        while let Some(at) = self.early.iter().position(|one| answers(one, &self.action())) {
            match self.early.remove(at) {
                EarlyAnswer::Wal(_, seen) => self.apply_wal(seen),
                EarlyAnswer::WalListed(_, listing) => self.apply_wal_listing(&listing),
                EarlyAnswer::Manifests(_, answer) => self.apply_answer(answer),
            }
        }
        let is_claimed = |commit: &super::Commit| commit.unconfirmed().is_some();
        if !matches!(&self.phase, OpenPhase::Claim(commit) if is_claimed(commit)) {
            self.early.clear();
        }
    }

    /// Once the claim is created: notes where the walk ends by the reads from before.
    pub(super) fn note_early_end(&mut self) {
        let OpenPhase::Claim(commit) = &self.phase else { return };
        let Some(claim) = commit.unconfirmed() else { return };
        self.early_end = match self.early_walk(claim.replay_from) {
            EarlyWalk::Ended(id) => Some(id),
            EarlyWalk::Unread(_) => None,
        };
    }

    fn early_walk(&self, begin: WalId) -> EarlyWalk {
        let mut id = begin;
        loop {
            let read = self.early.iter().find_map(|one| match one {
                EarlyAnswer::Wal(read, seen) if *read == id => Some(*seen),
                _ => None,
            });
            id = match read {
                Some(WalSeen::Data { .. }) => id.next(),
                Some(WalSeen::Fence { epoch, next_id }) => {
                    beyond(&KeptFence { id, epoch, next_id })
                }
                Some(WalSeen::Absent) => return EarlyWalk::Ended(id),
                Some(WalSeen::Vanished | WalSeen::Foreign) | None => return EarlyWalk::Unread(id),
            };
        }
    }

    fn after_the_claim(&self, claim: &Manifest) -> Vec<OpenAction> {
        if let Some(end) = self.early_end {
            return vec![OpenAction::ListWal(end)];
        }
        match self.early_walk(claim.replay_from) {
            EarlyWalk::Unread(id) => vec![OpenAction::ReadWal(id)],
            EarlyWalk::Ended(_) => Vec::new(),
        }
    }

    fn first_request_of_a_look(&self) -> Vec<OpenAction> {
        let known = self.claimed.as_ref().map(|claimed| claimed.known.clone());
        match Look::new(known, self.rules).action() {
            LookAction::Request(request) => vec![OpenAction::Request(request)],
            LookAction::Done(_) => Vec::new(),
        }
    }

    /// Whether a fence at `id` needs a look of its own.
    fn looks_before(&self, id: WalId) -> bool {
        let looked = self.claimed.as_ref().and_then(|claimed| claimed.looked);
        self.rules.has(Rule::LookBeforeFence) && looked != Some(id)
    }

    fn is_answered(&self, action: &OpenAction) -> bool {
        self.early.iter().any(|answer| answers(answer, action))
    }

    /// Whether an answer from before the claim holds after it, too.
    fn is_usable(&self, answer: &EarlyAnswer) -> bool {
        let OpenPhase::Claim(commit) = &self.phase else { return true };
        let (Some(planned), EarlyAnswer::Wal(id, seen)) = (commit.planned(), answer) else {
            return true;
        };
        let is_older = |epoch: Epoch| epoch < planned.writer_epoch;
        match seen {
            WalSeen::Absent => *id > planned.wal_id_last_seen,
            WalSeen::Data { epoch, .. } | WalSeen::Fence { epoch, .. } => is_older(*epoch),
            WalSeen::Vanished | WalSeen::Foreign => false,
        }
    }
}

/// The reads beside the create of the claim `planned` on `base`: where the walk begins, and where
/// it may end.
fn before_the_claim(planned: &Manifest, base: Option<&Arc<Manifest>>) -> Vec<OpenAction> {
    let end = base.and_then(|base| likely_end(base));
    let ids = [Some(planned.replay_from), end];
    ids.into_iter().flatten().map(OpenAction::ReadWal).collect()
}

/// The id that was read, if the answer is that of a read of the WAL.
fn wal_id(answer: &EarlyAnswer) -> Option<WalId> {
    match answer {
        EarlyAnswer::Wal(id, _) => Some(*id),
        EarlyAnswer::WalListed(..) | EarlyAnswer::Manifests(..) => None,
    }
}

/// Whether `answer` is the one to `action`.
fn answers(answer: &EarlyAnswer, action: &OpenAction) -> bool {
    match (answer, action) {
        (EarlyAnswer::Wal(read, _), OpenAction::ReadWal(id))
        | (EarlyAnswer::WalListed(read, _), OpenAction::ListWal(id)) => read == id,
        (EarlyAnswer::Manifests(sent, _), OpenAction::Request(request)) => sent == request,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
