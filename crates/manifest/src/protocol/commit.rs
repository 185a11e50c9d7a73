//! Commits one edit to the chain of manifests (rules M1 to M3).
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
//!                ├─ read, and fits ─────────► Prove ──boundary < V──► Create(V+1); or Find
//!                └─ in effect, or refused ──► Verify ──► Done, Failed; or Find
//! ```
//! A base that was read is proven by a listing before anything is created on it. *The run that
//! breaks a database without it:* a database is destroyed, and V, its last manifest, is freed. A
//! commit on V - 1 creates V in the freed slot; another one, which had listed V before that, reads
//! it, and creates V + 1: behind the last boundary, so every process takes it for the database.
//!
//! If a listing shows that the base no longer exists, the commit ends: the database was deleted,
//! and perhaps another one was created in its place (rule E1). An object that this commit created
//! there is left alone: no process takes it for a manifest of its database, and a late delete could
//! hit an object of the next database.
//!
//! Why an object that lands late is harmless: an unknown outcome is settled by sending the same
//! bytes to the same slot until the answer is Committed or Lost; this commit sends no other edit
//! before that. Let V + 1 be the slot. It is given up for one of two reasons. Lost: the object of
//! another process is there, so ours cannot land while it exists; when it is freed, the boundary
//! has passed V + 1 before, so no process trusts an object that lands there later. Or the boundary
//! had reached V + 1 already, with the same effect. In both cases an earlier try may have been the
//! real V + 1 and have been freed since. So the next plan first checks whether the newest state
//! shows the edit as in effect; every edit can be recognised (rule M2). If the driver stops while
//! an outcome is unknown, it leaves a create that may land at V + 1 and be valid. It must then
//! treat the edit as possibly committed, keep every object that the edit references, and finish
//! this commit before it commits anything that depends on the outcome.

use super::{Listing, ManifestAnswer, ManifestRequest};
use crate::edit::{Conflict, Edit, Refusal};
use crate::rules::{Rule, Rules};
use crate::state::Manifest;
use siltstone_base::{AttemptId, ManifestId, PutOutcome};
use std::sync::Arc;

/// Commits one edit to the chain.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Commit {
    /// `None`: creates the database.
    edit: Option<Arc<Edit>>,
    /// The state on which the current plan is based; `None` before a new database has a state.
    base: Option<Arc<Manifest>>,
    /// The number of the first manifest of a new database; none for an edit.
    first: ManifestId,
    /// Whether the listing that checked the slot showed no later manifest.
    is_newest: bool,
    rules: Rules,
    phase: CommitPhase,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum CommitPhase {
    Create(Arc<Manifest>),
    CheckSlot(Arc<Manifest>),
    Find,
    Read(ManifestId),
    /// The base was read, and this may follow it. It must be verified that the base is real.
    Prove(Arc<Manifest>),
    /// In the base the edit is in effect (`None`) or refused. It must be verified that the base is
    /// real, and for a refusal also the newest.
    Verify(Option<Refusal>),
    Done(Arc<Manifest>),
    Failed(Refusal),
}

/// The next step of [`Commit`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CommitAction {
    /// Perform this request.
    Request(ManifestRequest),
    /// The edit is in effect in this proven state: the manifest that was created, or a later one
    /// that was the newest when the outcome was settled.
    Done(Arc<Manifest>),
    /// The edit was refused, and will not take effect.
    Failed(Refusal),
}

impl Commit {
    /// Commits `edit`, planned on `newest`: the newest manifest known to the caller. An outdated or
    /// even wrong manifest costs requests, but does not affect correctness.
    #[must_use]
    pub fn new(edit: Edit, newest: Arc<Manifest>, rules: Rules) -> Commit {
        let (edit, base) = (Some(Arc::new(edit)), Some(newest));
        let (first, phase) = (ManifestId::NONE, CommitPhase::Find);
        let mut commit = Commit { edit, base, first, is_newest: false, rules, phase };
        commit.plan(true);
        commit
    }

    /// Creates a database with `initial` as its first manifest. If another process has created the
    /// database before, the commit ends with the manifest of that process.
    #[must_use]
    pub fn found(initial: Manifest, rules: Rules) -> Commit {
        let first = initial.id;
        let phase = CommitPhase::Create(Arc::new(initial));
        Commit { edit: None, base: None, first, is_newest: false, rules, phase }
    }

    /// The next step. After NotApplied and Unknown the same create is requested again: the driver
    /// waits, with jitter, and sends the same bytes.
    #[must_use]
    pub fn action(&self) -> CommitAction {
        let base = self.base.as_ref().map_or(ManifestId::NONE, |base| base.id);
        CommitAction::Request(match &self.phase {
            CommitPhase::Create(planned) => ManifestRequest::Create(planned.clone()),
            CommitPhase::CheckSlot(created) => ManifestRequest::List { after: created.id },
            CommitPhase::Find | CommitPhase::Prove(_) | CommitPhase::Verify(_) => {
                ManifestRequest::List { after: base }
            }
            CommitPhase::Read(id) => ManifestRequest::Read(*id),
            CommitPhase::Done(state) => return CommitAction::Done(state.clone()),
            CommitPhase::Failed(refusal) => return CommitAction::Failed(*refusal),
        })
    }

    /// The answer to the request.
    pub fn on_answer(&mut self, answer: ManifestAnswer) {
        match (&self.phase, answer) {
            (CommitPhase::Create(planned), ManifestAnswer::Created(outcome, attempt)) => {
                let planned = planned.clone();
                self.on_created(planned, outcome, attempt);
            }
            (CommitPhase::CheckSlot(created), ManifestAnswer::Listed(listing)) => {
                self.phase = if listing.boundary >= created.id {
                    // The slot was freed before it was created: the base was very old, so the
                    // outcome is Unknown.
                    CommitPhase::Find
                } else if self.stands(listing) {
                    self.is_newest = listing.newest.is_none();
                    CommitPhase::Done(created.clone())
                } else {
                    CommitPhase::Failed(Conflict::OtherDatabase.into())
                };
            }
            (CommitPhase::Find, ManifestAnswer::Listed(listing)) => self.find(listing),
            (CommitPhase::Read(_), ManifestAnswer::Read(None)) => self.phase = CommitPhase::Find,
            (
                CommitPhase::Read(_),
                ManifestAnswer::Read(Some(read)) | ManifestAnswer::ReadAsListed(read),
            ) => {
                let known = self.base.as_ref().map(|base| base.database);
                self.base = Some(self.planned_on(&read));
                if known.is_some_and(|database| database != read.database) {
                    self.phase = CommitPhase::Failed(Conflict::OtherDatabase.into());
                } else {
                    self.plan(!self.rules.has(Rule::VerifyBeforeBelieving));
                }
            }
            (CommitPhase::Prove(planned), ManifestAnswer::Listed(listing)) => {
                let planned = planned.clone();
                self.on_proven(planned, listing);
            }
            (CommitPhase::Verify(refusal), ManifestAnswer::Listed(listing)) => {
                let refusal = *refusal;
                self.on_verified(refusal, listing);
            }
            _ => {}
        }
    }

    /// The base of the next plan, if `read` is the newest manifest. Without the rule only its
    /// number is used, and changes of other processes are lost.
    fn planned_on(&self, read: &Arc<Manifest>) -> Arc<Manifest> {
        match &self.base {
            Some(base) if !self.rules.has(Rule::PlanOnNewest) => {
                Arc::new(Manifest { id: read.id, ..Manifest::clone(base) })
            }
            _ => Arc::clone(read),
        }
    }

    /// The state on which the current plan is based.
    #[must_use]
    pub fn base(&self) -> Option<&Arc<Manifest>> {
        self.base.as_ref()
    }

    /// The state that was created, while it is not yet known whether its slot had been freed.
    #[must_use]
    pub fn unconfirmed(&self) -> Option<&Arc<Manifest>> {
        match &self.phase {
            CommitPhase::CheckSlot(created) => Some(created),
            _ => None,
        }
    }

    /// The state that is to be created, on a proven base.
    #[must_use]
    pub fn planned(&self) -> Option<&Arc<Manifest>> {
        match &self.phase {
            CommitPhase::Create(planned) => Some(planned),
            _ => None,
        }
    }

    /// Whether the state that was created was still the newest one at the time of the listing that
    /// checked its slot: the result of a look after the create.
    #[must_use]
    pub fn is_newest(&self) -> bool {
        self.is_newest
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

    /// A listing without a newer manifest can only be a race, because the slot was taken or freed:
    /// list again.
    fn find(&mut self, listing: Listing) {
        if !self.stands(listing) {
            self.phase = CommitPhase::Failed(Conflict::OtherDatabase.into());
            return;
        }
        // For the first manifest: everything below the boundary was freed, and no manifest is above
        // it. A collector still works on the database that was deleted here.
        let nowhere = self.base.is_none() && listing.boundary >= self.first;
        self.phase = match listing.newest {
            None if nowhere => CommitPhase::Failed(Conflict::OtherDatabase.into()),
            newest => newest.map_or(CommitPhase::Find, CommitPhase::Read),
        };
    }

    /// Whether the base still exists.
    fn stands(&self, listing: Listing) -> bool {
        listing.stands || !self.rules.has(Rule::PredecessorStands)
    }

    /// Plans on the base, which is proven or not yet.
    fn plan(&mut self, is_proven: bool) {
        let Some(base) = &self.base else { return };
        let verdict = match &self.edit {
            // Any manifest means that the database exists.
            None => Ok(None),
            Some(edit) if edit.in_effect_with(base, self.rules) => Ok(None),
            Some(edit) => edit.apply_with(base, self.rules).map(Some),
        };
        self.phase = match verdict {
            Ok(Some(next)) if is_proven => CommitPhase::Create(Arc::new(next)),
            Ok(Some(next)) => CommitPhase::Prove(Arc::new(next)),
            Ok(None) if self.rules.has(Rule::VerifyBeforeBelieving) => CommitPhase::Verify(None),
            Ok(None) => CommitPhase::Done(base.clone()),
            Err(refusal) if self.rules.has(Rule::VerifyBeforeBelieving) => {
                CommitPhase::Verify(Some(refusal))
            }
            Err(refusal) => CommitPhase::Failed(refusal),
        };
    }

    fn on_proven(&mut self, planned: Arc<Manifest>, listing: Listing) {
        if !self.is_real(listing) {
            self.find(listing);
            return;
        }
        self.phase = match listing.newest {
            None => CommitPhase::Create(planned),
            // Its slot is taken.
            Some(newest) => CommitPhase::Read(newest),
        };
    }

    /// Whether the base, which was read before the listing, is real. It may also be an object that
    /// landed late in a freed slot.
    fn is_real(&self, listing: Listing) -> bool {
        self.base.as_ref().is_some_and(|base| listing.boundary < base.id) && self.stands(listing)
    }

    fn on_verified(&mut self, refusal: Option<Refusal>, listing: Listing) {
        let Some(base) = &self.base else { return };
        if !self.is_real(listing) {
            self.find(listing);
            return;
        }
        self.phase = match (refusal, listing.newest) {
            // The edit is in effect in a real state; later commits do not matter.
            (None, _) => CommitPhase::Done(base.clone()),
            (Some(refusal), None) => CommitPhase::Failed(refusal),
            // Only the newest state can refuse an edit.
            (Some(_), Some(newest)) => CommitPhase::Read(newest),
        };
    }
}

#[cfg(test)]
mod tests;
