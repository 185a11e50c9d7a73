//! One change into the chain of records: the steps of a manifest's commit (rules M1 to M3), with
//! one request less where a new number was just proven.
//!
//! ```text
//! plan ─► create n + 1 ─Committed─► list ─ boundary below n + 1 ─► done
//!  ▲          │ ▲ └─NotApplied, Unknown─┘ └─ at or above: the slot had been freed ─┐
//!  │          Lost                                                                 │
//!  └─ read ◄─ list ◄───────────────────────────────────────────────────────────────┘
//!  in effect, or refused ─► list ─► done, failed; or read on
//! ```
//! What was read is believed, for settling or refusing, only after a listing whose boundary lies
//! below it; planning on less is harmless, since its create fails or lands below the boundary.

use super::{Change, ChangeRefusal, Compactions};
use crate::rules::{Rule, Rules};
use siltstone_base::{DatabaseId, PutOutcome};
use std::sync::Arc;

/// A request about records.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RecordRequest {
    /// Create this record under its number if the name is free. While the same is asked for again
    /// the driver sends the same bytes with the same attempt id, and an object that is there counts
    /// as Committed when it carries that attempt.
    Create(Arc<Compactions>),
    /// List `compactions/`, boundaries included.
    List,
    /// Read the record of this number.
    Read(u64),
}

/// An answer to a [`RecordRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RecordAnswer {
    /// What became of a create.
    Created(PutOutcome<()>),
    /// What a listing showed.
    Listed(RecordListing),
    /// What was read; `None`: there is no such object.
    Read(Option<Arc<Compactions>>),
}

/// What a listing of `compactions/` showed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RecordListing {
    /// The largest number; 0 when there is no record.
    pub newest: u64,
    /// The largest boundary; 0 when there is none.
    pub boundary: u64,
}

/// Brings one change into the chain, or finds the newest record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Append {
    change: Option<Arc<Change>>,
    base: Arc<Compactions>,
    rules: Rules,
    phase: AppendPhase,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum AppendPhase {
    Create(Arc<Compactions>),
    CheckSlot(Arc<Compactions>),
    Find,
    Read(u64),
    /// The base says: in effect (`None`), or refused.
    Verify(Option<ChangeRefusal>),
    Done(Arc<Compactions>),
    Failed(ChangeRefusal),
}

/// What [`Append`] wants.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AppendAction {
    /// Do this.
    Request(RecordRequest),
    /// The change is in effect in this proven record; or this is the newest one.
    Done(Arc<Compactions>),
    /// It is not, and will not be.
    Failed(ChangeRefusal),
}

impl RecordListing {
    /// The same to a database whose records count from `first`: smaller numbers are those of one
    /// that stood at the same place before (rule E1).
    #[must_use]
    pub fn counting_from(self, first: u64) -> RecordListing {
        let counts = |number: u64| if number < first { 0 } else { number };
        RecordListing { newest: counts(self.newest), boundary: counts(self.boundary) }
    }
}

impl Append {
    /// Brings `change` in, planned on `newest`: the newest record the caller knows of. An old or
    /// even a false one costs requests, never correctness.
    #[must_use]
    pub fn new(change: Change, newest: Arc<Compactions>, rules: Rules) -> Append {
        let change = Some(Arc::new(change));
        let mut append = Append { change, base: newest, rules, phase: AppendPhase::Find };
        append.plan();
        append
    }

    /// Finds the newest record and proves it: what a collector, a worker and a compactor that
    /// starts begin with. Where there is none it ends with [`Compactions::none`].
    #[must_use]
    pub fn look(database: DatabaseId, rules: Rules) -> Append {
        let base = Arc::new(Compactions::none(database));
        Append { change: None, base, rules, phase: AppendPhase::Find }
    }

    /// What to do now. The same create is asked for again after NotApplied and Unknown: wait, with
    /// jitter, and send the same bytes.
    #[must_use]
    pub fn action(&self) -> AppendAction {
        AppendAction::Request(match &self.phase {
            AppendPhase::Create(next) => RecordRequest::Create(next.clone()),
            AppendPhase::CheckSlot(_) | AppendPhase::Find | AppendPhase::Verify(_) => {
                RecordRequest::List
            }
            AppendPhase::Read(number) => RecordRequest::Read(*number),
            AppendPhase::Done(record) => return AppendAction::Done(record.clone()),
            AppendPhase::Failed(refusal) => return AppendAction::Failed(*refusal),
        })
    }

    /// The answer. One to something that was not asked is ignored.
    pub fn on_answer(&mut self, answer: RecordAnswer) {
        let phase = std::mem::replace(&mut self.phase, AppendPhase::Find);
        let answer = match answer {
            RecordAnswer::Listed(listing) => {
                RecordAnswer::Listed(listing.counting_from(self.first()))
            }
            answer => answer,
        };
        self.phase = match (phase, answer) {
            (AppendPhase::Create(next), RecordAnswer::Created(outcome)) => match outcome {
                PutOutcome::Committed if self.rules.has(Rule::CheckRecordSlot) => {
                    AppendPhase::CheckSlot(next)
                }
                PutOutcome::Committed => AppendPhase::Done(next),
                PutOutcome::Lost(()) => AppendPhase::Find,
                PutOutcome::NotApplied | PutOutcome::Unknown => AppendPhase::Create(next),
            },
            (AppendPhase::CheckSlot(created), RecordAnswer::Listed(listing)) => {
                match listing.boundary < created.number {
                    true => AppendPhase::Done(created),
                    false => self.find(listing),
                }
            }
            (AppendPhase::Find, RecordAnswer::Listed(listing)) => self.find(listing),
            (AppendPhase::Read(_), RecordAnswer::Read(Some(read))) => {
                self.base = read;
                self.plan();
                return;
            }
            (AppendPhase::Verify(refusal), RecordAnswer::Listed(listing)) => {
                self.verified(refusal, listing)
            }
            // Freed since the listing: newer ones exist.
            (AppendPhase::Read(_), RecordAnswer::Read(None)) => AppendPhase::Find,
            (asked, _) => asked,
        };
    }

    /// The number of the first record.
    fn first(&self) -> u64 {
        self.base.database.counts_from()
    }

    /// Nothing there is a chain that was never begun, unless a boundary says that it was: then the
    /// listing raced, and the next one shows more.
    fn find(&mut self, listing: RecordListing) -> AppendPhase {
        if listing.newest > listing.boundary {
            return AppendPhase::Read(listing.newest);
        }
        if listing == RecordListing::default() {
            self.base = Arc::new(Compactions::none(self.base.database));
            self.plan();
            return std::mem::replace(&mut self.phase, AppendPhase::Find);
        }
        AppendPhase::Find
    }

    fn plan(&mut self) {
        let verdict = match &self.change {
            None => Ok(None),
            Some(change) if change.in_effect(&self.base) => Ok(None),
            Some(change) => change.apply_with(&self.base, self.rules).map(Some),
        };
        self.phase = match verdict {
            Ok(Some(next)) => AppendPhase::Create(Arc::new(next)),
            // The record before the first needs no proof.
            Ok(None) if self.base.number < self.first() => AppendPhase::Done(self.base.clone()),
            Ok(None) => AppendPhase::Verify(None),
            Err(refusal) => AppendPhase::Verify(Some(refusal)),
        };
    }

    fn verified(&mut self, refusal: Option<ChangeRefusal>, listing: RecordListing) -> AppendPhase {
        let real = listing.boundary < self.base.number.max(self.first());
        let newest = listing.newest <= self.base.number;
        let anywhere = self.change.as_ref().is_none_or(|change| !change.shows_in_newest_only());
        match (refusal, real) {
            (_, false) => self.find(listing),
            // In effect in a real record: it was made, whatever came after. A look wants no less
            // than what was the newest when it was listed.
            (None, true) if anywhere || newest => AppendPhase::Done(self.base.clone()),
            (None, true) => AppendPhase::Read(listing.newest),
            (Some(refusal), true) if newest => AppendPhase::Failed(refusal),
            (Some(_), true) => AppendPhase::Read(listing.newest),
        }
    }
}

#[cfg(test)]
mod tests;
