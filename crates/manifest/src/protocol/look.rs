//! Finding the newest manifest, and proving it.
//!
//! A manifest may be freed after it was listed, and a sleeping process may create another object in
//! its slot before the slot is read. So a manifest is trusted only after a second listing with a
//! boundary below it: boundaries are created before a manifest is freed, so the slot had not been
//! freed when it was read.
//!
//! If the store tags its objects, the first listing proves the manifest as well: it showed the
//! object with its tag, and no boundary at or above it. A listing shows boundaries at least as new
//! as manifests, so the slot had not been freed when the object was there, and the object that was
//! read is that one.

use super::{Listing, ManifestAnswer, ManifestRequest};
use crate::rules::{Rule, Rules};
use crate::state::Manifest;
use siltstone_base::ManifestId;
use std::sync::Arc;

/// Finds a manifest that was the newest at some time after this value was made. Ends after one
/// request if a listing shows nothing newer than the known manifest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Look {
    known: Option<Arc<Manifest>>,
    rules: Rules,
    phase: LookPhase,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum LookPhase {
    List,
    Read(ManifestId),
    Probe,
    Verify(Arc<Manifest>),
    Done,
}

/// The next step of [`Look`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LookAction {
    /// Perform this request.
    Request(ManifestRequest),
    /// The newest manifest; `None`: there is no database here, or none that continues from the
    /// known manifest. It may belong to another database than the known one.
    Done(Option<Arc<Manifest>>),
}

impl Look {
    /// If `known` is given, it must be proven: created and checked by this process, or found by a
    /// `Look`.
    #[must_use]
    pub fn new(known: Option<Arc<Manifest>>, rules: Rules) -> Look {
        Look { known, rules, phase: LookPhase::List }
    }

    /// The cheap look: reads the next number, and looks properly only if that manifest exists. If
    /// it does not, the look ends with the known manifest, which is no proof, because the next
    /// number may have been freed. So one look in N, the first one after a long pause, and every
    /// look on which a decision depends is a normal one (rules M4, F4).
    #[must_use]
    pub fn probe(known: Option<Arc<Manifest>>, rules: Rules) -> Look {
        let phase = if known.is_some() { LookPhase::Probe } else { LookPhase::List };
        Look { known, rules, phase }
    }

    /// The next step.
    #[must_use]
    pub fn action(&self) -> LookAction {
        let known = self.known.as_ref().map_or(ManifestId::NONE, |known| known.id);
        LookAction::Request(match &self.phase {
            LookPhase::List => ManifestRequest::List { after: known },
            LookPhase::Read(id) => ManifestRequest::Read(*id),
            LookPhase::Probe => ManifestRequest::Read(self.next_id()),
            LookPhase::Verify(read) => ManifestRequest::List { after: read.id },
            LookPhase::Done => return LookAction::Done(self.known.clone()),
        })
    }

    /// The answer to the request.
    pub fn on_answer(&mut self, answer: ManifestAnswer) {
        match (&self.phase, answer) {
            (LookPhase::List, ManifestAnswer::Listed(listing))
                if !listing.stands && self.rules.has(Rule::PredecessorStands) =>
            {
                // The database was deleted: another one here has its own numbers.
                self.known = None;
            }
            (LookPhase::List, ManifestAnswer::Listed(listing)) => {
                self.phase = listing.newest.map_or(LookPhase::Done, LookPhase::Read);
            }
            // It was freed since the listing, so newer manifests exist.
            (LookPhase::Read(_), ManifestAnswer::Read(None)) => self.phase = LookPhase::List,
            (LookPhase::Read(_), ManifestAnswer::Read(Some(read))) => {
                if self.rules.has(Rule::VerifyBeforeBelieving) {
                    self.phase = LookPhase::Verify(read);
                } else {
                    self.known = Some(read);
                    self.phase = LookPhase::Done;
                }
            }
            (LookPhase::Read(_), ManifestAnswer::ReadAsListed(read)) => {
                self.known = Some(read);
                self.phase = LookPhase::Done;
            }
            (LookPhase::Probe, ManifestAnswer::Read(None)) => self.phase = LookPhase::Done,
            (LookPhase::Probe, ManifestAnswer::Read(Some(_)))
                if self.rules.has(Rule::LookAtHits) =>
            {
                self.phase = LookPhase::List;
            }
            (LookPhase::Probe, ManifestAnswer::Read(Some(read))) => {
                self.known = Some(read);
                self.phase = LookPhase::Done;
            }
            (LookPhase::Verify(_), ManifestAnswer::Listed(listing)) => self.on_verified(listing),
            _ => {}
        }
    }

    fn next_id(&self) -> ManifestId {
        self.known.as_ref().map_or(ManifestId::FIRST, |known| known.next_id())
    }

    fn on_verified(&mut self, listing: Listing) {
        // It is not trusted either if its predecessor does not exist: it was created at an emptied
        // location.
        let stands = listing.stands || !self.rules.has(Rule::PredecessorStands);
        self.phase = match std::mem::replace(&mut self.phase, LookPhase::List) {
            LookPhase::Verify(read) if listing.boundary < read.id && stands => {
                self.known = Some(read);
                LookPhase::Done
            }
            _ => LookPhase::List,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::manifest;

    fn numbered(id: u64) -> Arc<Manifest> {
        Arc::new(Manifest { id: ManifestId(id), ..manifest() })
    }

    fn listed(newest: Option<u64>, boundary: u64) -> ManifestAnswer {
        let newest = newest.map(ManifestId);
        let boundary = ManifestId(boundary);
        ManifestAnswer::Listed(Listing { newest, boundary, stands: true })
    }

    #[test]
    fn nothing_newer_costs_one_listing() {
        let mut look = Look::new(Some(numbered(7)), Rules::ALL);
        look.on_answer(listed(None, 0));
        assert_eq!(look.action(), LookAction::Done(Some(numbered(7))));
    }

    /// E1: the known manifest is gone; the database that is there now is found from the start.
    #[test]
    fn a_database_that_was_deleted_is_looked_for_anew() {
        let mut look = Look::new(Some(numbered(50)), Rules::ALL);
        let of = |ids: &[u64], after| {
            let ids: Vec<ManifestId> = ids.iter().copied().map(ManifestId).collect();
            ManifestAnswer::Listed(Listing::of(&ids, ManifestId::NONE, ManifestId(after)))
        };
        look.on_answer(of(&[1, 2, 3, 51], 50));
        let again = ManifestRequest::List { after: ManifestId::NONE };
        assert_eq!(look.action(), LookAction::Request(again));
        look.on_answer(of(&[1, 2, 3, 51], 0));
        look.on_answer(ManifestAnswer::Read(Some(numbered(3))));
        look.on_answer(of(&[1, 2, 3, 51], 3));
        assert_eq!(look.action(), LookAction::Done(Some(numbered(3))));
        let mut nothing = Look::new(Some(numbered(50)), Rules::ALL);
        nothing.on_answer(of(&[51], 50));
        nothing.on_answer(of(&[51], 0));
        assert_eq!(nothing.action(), LookAction::Done(None));
    }

    #[test]
    fn no_manifest_is_no_database() {
        let mut look = Look::new(None, Rules::ALL);
        look.on_answer(listed(None, 0));
        assert_eq!(look.action(), LookAction::Done(None));
    }

    #[test]
    fn a_probe_that_misses_costs_one_read_and_a_hit_is_looked_at() {
        let mut miss = Look::probe(Some(numbered(7)), Rules::ALL);
        assert_eq!(miss.action(), LookAction::Request(ManifestRequest::Read(ManifestId(8))));
        miss.on_answer(ManifestAnswer::Read(None));
        assert_eq!(miss.action(), LookAction::Done(Some(numbered(7))));

        let mut hit = Look::probe(Some(numbered(7)), Rules::ALL);
        hit.on_answer(ManifestAnswer::Read(Some(numbered(8))));
        let list = ManifestRequest::List { after: ManifestId(7) };
        assert_eq!(hit.action(), LookAction::Request(list));
    }

    /// The listed number was freed, and a late object of another process was read in its slot.
    #[test]
    fn a_manifest_in_a_freed_slot_is_not_believed() {
        let mut look = Look::new(None, Rules::ALL);
        look.on_answer(listed(Some(7), 0));
        assert_eq!(look.action(), LookAction::Request(ManifestRequest::Read(ManifestId(7))));
        look.on_answer(ManifestAnswer::Read(Some(numbered(7))));
        look.on_answer(listed(Some(20), 12));
        let again = ManifestRequest::List { after: ManifestId::NONE };
        assert_eq!(look.action(), LookAction::Request(again));
        look.on_answer(listed(Some(20), 12));
        look.on_answer(ManifestAnswer::Read(Some(numbered(20))));
        look.on_answer(listed(None, 12));
        assert_eq!(look.action(), LookAction::Done(Some(numbered(20))));
    }

    #[test]
    fn the_object_that_was_listed_is_proven_by_that_listing() {
        let mut look = Look::new(None, Rules::ALL);
        look.on_answer(listed(Some(7), 3));
        look.on_answer(ManifestAnswer::ReadAsListed(numbered(7)));
        assert_eq!(look.action(), LookAction::Done(Some(numbered(7))));
    }

    #[test]
    fn a_number_freed_before_it_was_read_is_looked_for_again() {
        let mut look = Look::new(None, Rules::ALL);
        look.on_answer(listed(Some(7), 0));
        look.on_answer(ManifestAnswer::Read(None));
        let again = ManifestRequest::List { after: ManifestId::NONE };
        assert_eq!(look.action(), LookAction::Request(again));
    }
}
