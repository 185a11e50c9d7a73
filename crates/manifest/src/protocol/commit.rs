//! One edit into the chain of manifests (rules M1 to M3).
//!
//! ```text
//!            plan ──────► Create(V+1) ──Committed──► CheckSlot ──boundary < V+1──► Done
//!             ▲  │           ▲    │ │                    │
//!             │  │           └────┘ │ Lost               │ boundary ≥ V+1: the slot had been freed
//!             │  │   NotApplied,    ▼                    ▼
//!             │  │   Unknown      Find ◄─────────────────┘
//!             │  │                  │
//!             └──┼──── Read ◄───────┘
//!                │
//!                └─ in effect, or refused ──► Verify ──► Done, Failed; or Find
//! ```
//! A listing in which the base does not stand any more ends it: the database was deleted, and
//! perhaps another one made in its place (rule E1). What was created on the empty place is left
//! there: nobody takes it for anything, and a delete that lands late would be a danger to whatever
//! comes to stand there.
//!
//! Why a late landing is harmless. An unknown outcome is settled by sending the very same bytes to
//! the very same slot until the answer is Committed or Lost; no other edit of this machine is sent
//! before. Let V + 1 be the slot. It is left for one of two reasons. Lost: a stranger's object is
//! there, so ours cannot land while that stays; and when it is freed, the boundary has passed
//! V + 1 before, so whatever lands there is believed by nobody. Or the boundary had reached V + 1
//! already: the same. In both cases an earlier try may have been the real V + 1 and have been freed
//! since, so the next plan first asks the newest state whether the edit is in effect; edits are
//! made to be recognised (rule M2). A driver that gives up while an outcome is unknown leaves a
//! create that may land at V + 1 and be valid: it must treat the edit as perhaps committed, keep
//! every object that the edit names, and finish this machine before it commits anything that
//! depends on the answer.

use super::{Listing, ManifestAnswer, ManifestRequest};
use crate::edit::{Conflict, Edit, Refusal};
use crate::rules::{Rule, Rules};
use crate::state::Manifest;
use siltstone_base::{AttemptId, ManifestId, PutOutcome};
use std::sync::Arc;

/// Brings one edit into the chain.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Commit {
    /// `None`: the creation of the database.
    edit: Option<Arc<Edit>>,
    /// The state that the present plan stands on; `None` before a new database has any.
    base: Option<Arc<Manifest>>,
    /// The number of a new database's first manifest; none for an edit.
    first: ManifestId,
    rules: Rules,
    phase: CommitPhase,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum CommitPhase {
    Create(Arc<Manifest>),
    CheckSlot(Arc<Manifest>),
    Find,
    Read(ManifestId),
    /// The base says: in effect (`None`), or refused. Is the base real, and the newest?
    Verify(Option<Refusal>),
    Done(Arc<Manifest>),
    Failed(Refusal),
}

/// What [`Commit`] wants.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CommitAction {
    /// Do this.
    Request(ManifestRequest),
    /// The edit is in effect in this proven state: the manifest created, or a later one that was
    /// the newest when the outcome was settled.
    Done(Arc<Manifest>),
    /// It is not, and will not be.
    Failed(Refusal),
}

impl Commit {
    /// Commits `edit`, planned on `newest`: the newest manifest the caller knows of. An old or even
    /// a false one costs requests, never correctness.
    #[must_use]
    pub fn new(edit: Edit, newest: Arc<Manifest>, rules: Rules) -> Commit {
        let (edit, base) = (Some(Arc::new(edit)), Some(newest));
        let (first, phase) = (ManifestId::NONE, CommitPhase::Find);
        let mut commit = Commit { edit, base, first, rules, phase };
        commit.plan();
        commit
    }

    /// Creates a database with `initial` as its first manifest. Done with somebody else's when the
    /// database exists by then.
    #[must_use]
    pub fn found(initial: Manifest, rules: Rules) -> Commit {
        let first = initial.id;
        let phase = CommitPhase::Create(Arc::new(initial));
        Commit { edit: None, base: None, first, rules, phase }
    }

    /// What to do now. The same create is asked for again after NotApplied and Unknown: wait, with
    /// jitter, and send the same bytes.
    #[must_use]
    pub fn action(&self) -> CommitAction {
        let base = self.base.as_ref().map_or(ManifestId::NONE, |base| base.id);
        CommitAction::Request(match &self.phase {
            CommitPhase::Create(planned) => ManifestRequest::Create(planned.clone()),
            CommitPhase::CheckSlot(created) => ManifestRequest::List { after: created.id },
            CommitPhase::Find | CommitPhase::Verify(_) => ManifestRequest::List { after: base },
            CommitPhase::Read(id) => ManifestRequest::Read(*id),
            CommitPhase::Done(state) => return CommitAction::Done(state.clone()),
            CommitPhase::Failed(refusal) => return CommitAction::Failed(*refusal),
        })
    }

    /// The answer.
    pub fn on_answer(&mut self, answer: ManifestAnswer) {
        match (&self.phase, answer) {
            (CommitPhase::Create(planned), ManifestAnswer::Created(outcome, attempt)) => {
                let planned = planned.clone();
                self.on_created(planned, outcome, attempt);
            }
            (CommitPhase::CheckSlot(created), ManifestAnswer::Listed(listing)) => {
                self.phase = if listing.boundary >= created.id {
                    // Freed before it was created: the base was ancient, the outcome is Unknown.
                    CommitPhase::Find
                } else if self.stands(listing) {
                    CommitPhase::Done(created.clone())
                } else {
                    CommitPhase::Failed(Conflict::OtherDatabase.into())
                };
            }
            (CommitPhase::Find, ManifestAnswer::Listed(listing)) => self.find(listing),
            (CommitPhase::Read(_), ManifestAnswer::Read(None)) => self.phase = CommitPhase::Find,
            (CommitPhase::Read(_), ManifestAnswer::Read(Some(read))) => {
                let known = self.base.as_ref().map(|base| base.database);
                self.base = Some(self.planned_on(&read));
                if known.is_some_and(|database| database != read.database) {
                    self.phase = CommitPhase::Failed(Conflict::OtherDatabase.into());
                } else {
                    self.plan();
                }
            }
            (CommitPhase::Verify(refusal), ManifestAnswer::Listed(listing)) => {
                let refusal = *refusal;
                self.on_verified(refusal, listing);
            }
            _ => {}
        }
    }

    /// What the next plan stands on, now that `read` is the newest. Without the rule only its
    /// number counts, and what others changed is gone.
    fn planned_on(&self, read: &Arc<Manifest>) -> Arc<Manifest> {
        match &self.base {
            Some(base) if !self.rules.has(Rule::PlanOnNewest) => {
                Arc::new(Manifest { id: read.id, ..Manifest::clone(base) })
            }
            _ => Arc::clone(read),
        }
    }

    /// The state that the present plan stands on.
    #[must_use]
    pub fn base(&self) -> Option<&Arc<Manifest>> {
        self.base.as_ref()
    }

    fn on_created(&mut self, planned: Arc<Manifest>, outcome: PutOutcome<()>, attempt: AttemptId) {
        let written = || Arc::new(Manifest::clone(&planned).written_as(attempt));
        self.phase = match outcome {
            PutOutcome::Committed if self.rules.has(Rule::CheckSlot) => {
                CommitPhase::CheckSlot(written())
            }
            PutOutcome::Committed => CommitPhase::Done(written()),
            PutOutcome::Lost(()) => CommitPhase::Find,
            PutOutcome::NotApplied | PutOutcome::Unknown => CommitPhase::Create(planned),
        };
    }

    /// Nothing newer can only be a listing that raced: the slot was taken or freed. List again.
    fn find(&mut self, listing: Listing) {
        if !self.stands(listing) {
            self.phase = CommitPhase::Failed(Conflict::OtherDatabase.into());
            return;
        }
        // The first manifest of a place in which everything below is freed already, and nothing is
        // above: what was deleted here still has a collector.
        let nowhere = self.base.is_none() && listing.boundary >= self.first;
        self.phase = match listing.newest {
            None if nowhere => CommitPhase::Failed(Conflict::OtherDatabase.into()),
            newest => newest.map_or(CommitPhase::Find, CommitPhase::Read),
        };
    }

    /// Whether what was asked for is still part of something.
    fn stands(&self, listing: Listing) -> bool {
        listing.stands || !self.rules.has(Rule::PredecessorStands)
    }

    fn plan(&mut self) {
        let Some(base) = &self.base else { return };
        let verdict = match &self.edit {
            // Any manifest at all: the database exists.
            None => Ok(None),
            Some(edit) if edit.in_effect_with(base, self.rules) => Ok(None),
            Some(edit) => edit.apply_with(base, self.rules).map(Some),
        };
        self.phase = match verdict {
            Ok(Some(next)) => CommitPhase::Create(Arc::new(next)),
            Ok(None) if self.rules.has(Rule::VerifyBeforeBelieving) => CommitPhase::Verify(None),
            Ok(None) => CommitPhase::Done(base.clone()),
            Err(refusal) if self.rules.has(Rule::VerifyBeforeBelieving) => {
                CommitPhase::Verify(Some(refusal))
            }
            Err(refusal) => CommitPhase::Failed(refusal),
        };
    }

    fn on_verified(&mut self, refusal: Option<Refusal>, listing: Listing) {
        let Some(base) = &self.base else { return };
        if listing.boundary >= base.id || !self.stands(listing) {
            // Perhaps a sleeper's object in a freed slot.
            self.find(listing);
            return;
        }
        self.phase = match (refusal, listing.newest) {
            // In effect in a real state: it was committed, whatever came after.
            (None, _) => CommitPhase::Done(base.clone()),
            (Some(refusal), None) => CommitPhase::Failed(refusal),
            // A refusal counts only from the newest.
            (Some(_), Some(newest)) => CommitPhase::Read(newest),
        };
    }
}

#[cfg(test)]
mod tests;
