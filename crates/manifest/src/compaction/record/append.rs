//! Appends one change to the chain of job records: the steps of a manifest commit (rules M1 to M3),
//! with one request less if a new number was just proven.
//!
//! ```text
//! plan ─► create n + 1 ─Committed─► list ─ boundary below n + 1 ─► done
//!  ▲          │ ▲ └─NotApplied, Unknown─┘ └─ at or above: the slot had been freed ─┐
//!  │          Lost                                                                 │
//!  └─ read ◄─ list ◄───────────────────────────────────────────────────────────────┘
//!  in effect, or refused ─► list ─► done, failed; or read on
//! ```
//! A record that was read is trusted, to settle or refuse a change, only after a listing whose
//! boundary is below it. Planning on an untrusted record is harmless, because its create fails or
//! lands below the boundary.

use super::{Change, ChangeRefusal, Compactions};
use crate::rules::{Rule, Rules};
use siltstone_base::{DatabaseId, PutOutcome};
use std::sync::Arc;

/// A request for records of jobs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RecordRequest {
    /// Create this record under its number if the name is free. As long as the same record is
    /// requested, the driver sends the same bytes with the same attempt id, and an existing object
    /// with that attempt id counts as Committed.
    Create(Arc<Compactions>),
    /// List `compactions/`, boundaries included.
    List,
    /// Read the record of this number.
    Read(u64),
}

/// The answer to a [`RecordRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RecordAnswer {
    /// The outcome of a create.
    Created(PutOutcome<()>),
    /// The result of a listing.
    Listed(RecordListing),
    /// The record; `None`: the object does not exist.
    Read(Option<Arc<Compactions>>),
}

/// The result of a listing of `compactions/`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RecordListing {
    /// The largest number of a record; 0 if there is no record.
    pub newest: u64,
    /// The largest boundary; 0 if there is none.
    pub boundary: u64,
}

/// Appends one change to the chain, or finds the newest record.
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
    /// In the base the change is in effect (`None`) or refused; it must be verified that the base
    /// counts.
    Verify(Option<ChangeRefusal>),
    Done(Arc<Compactions>),
    Failed(ChangeRefusal),
}

/// The next step of [`Append`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AppendAction {
    /// Perform this request.
    Request(RecordRequest),
    /// The change is in effect in this proven record; or, for a look, this is the newest record.
    Done(Arc<Compactions>),
    /// The change was refused, and will not take effect.
    Failed(ChangeRefusal),
}

impl RecordListing {
    /// The listing for a database whose records count from `first`: smaller numbers belong to an
    /// earlier database at the same location (rule E1).
    #[must_use]
    pub fn counting_from(self, first: u64) -> RecordListing {
        let counts = |number: u64| if number < first { 0 } else { number };
        RecordListing { newest: counts(self.newest), boundary: counts(self.boundary) }
    }
}

impl Append {
    /// Appends `change`, planned on `newest`: the newest record known to the caller. An outdated or
    /// even wrong record costs requests, but does not affect correctness.
    #[must_use]
    pub fn new(change: Change, newest: Arc<Compactions>, rules: Rules) -> Append {
        let change = Some(Arc::new(change));
        let mut append = Append { change, base: newest, rules, phase: AppendPhase::Find };
        append.plan();
        append
    }

    /// Finds the newest record and proves it. Collectors, workers and starting compactors begin
    /// with this. Without a record it ends with [`Compactions::none`].
    #[must_use]
    pub fn look(database: DatabaseId, rules: Rules) -> Append {
        let base = Arc::new(Compactions::none(database));
        Append { change: None, base, rules, phase: AppendPhase::Find }
    }

    /// The next step. After NotApplied and Unknown the same create is requested again: the driver
    /// waits, with jitter, and sends the same bytes.
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

    /// The answer to the request. An answer to another request is ignored.
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
            // The collector freed it since the listing, so newer records exist.
            (AppendPhase::Read(_), RecordAnswer::Read(None)) => AppendPhase::Find,
            (asked, _) => asked,
        };
    }

    /// The number of the first record.
    fn first(&self) -> u64 {
        self.base.database.counts_from()
    }

    /// An empty listing means that the chain was never begun. If a boundary shows that it was
    /// begun, the listing raced with a change, and the next listing shows more.
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
            // The record before the first one needs no proof.
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
            // The change is in effect in a real record, also if others were appended later. A look
            // needs the newest record of the listing.
            (None, true) if anywhere || newest => AppendPhase::Done(self.base.clone()),
            (None, true) => AppendPhase::Read(listing.newest),
            (Some(refusal), true) if newest => AppendPhase::Failed(refusal),
            (Some(_), true) => AppendPhase::Read(listing.newest),
        }
    }
}

#[cfg(test)]
mod tests;
