//! A reader that follows a database (rule M4).
//!
//! ```text
//! poll ─► read manifest V + 1 ──hit──► look ─► maybe a newer state ──┐
//!   │          └──nothing────────────────────────────────────────────┤
//!   └─ a listing is due ─► look ─► list the WAL's boundary ──────────┤
//!                                      └─ at or past me ─► start again
//!                                                                    ▼
//!                          idle ◄──nothing met── absent ◄─── walk the WAL from here
//!                            ▲                     │ met some
//!                            └──below all── list the WAL's boundary ──► start again
//! ```
//! A missing object at an id that the manifest knows to be used is not the end of the log. Once the
//! boundary is known to be below it, it is a hole, and the reader fails until the replay point has
//! passed it.
//! It is also a hole if a listing contains an object so far after it that it proves the hole (rule
//! E3). Listings of the WAL after the position of the reader are part of a poll anyway, to confirm
//! the position and the objects met.
//! A poll of the *log alone* skips the look for a manifest; the objects that it reads are confirmed
//! nevertheless.
//! A *thorough* poll lists, and confirms its end instead of its beginning: a missing object at the
//! last id counts as the end only if the boundary was seen below it after the read. So the poll
//! finds everything that was durable before it began, however soon ids are freed.
//! If the walk meets an object with an epoch above that of the manifest, it stops before it returns
//! anything: a look by a listing comes first (rule C5), because the new epoch may not continue from
//! the objects met so far.
//! Objects met are returned only after the boundary was seen below all of them. Objects of an older
//! epoch between a fence and its `next_id` are never read: the walk skips them.

use super::hole::{HoleCheck, HoleCheckResult};
use super::look::{Look, LookAction};
use super::{Failure, Hole, ManifestAnswer, ManifestRequest, WalListing, WalSeen, beyond};
use crate::edit::{Conflict, Refusal};
use crate::rules::{Rule, Rules};
use crate::state::{KeptFence, Manifest};
use siltstone_base::{Epoch, WalId};
use std::sync::Arc;

/// Maximum number of WAL objects that a walk meets before it confirms and returns them. It bounds
/// the memory of the driver, and lets a reader under load make progress although it never reaches
/// the end.
pub const WALK_LIMIT: usize = 64;

/// Follows a database.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Follow {
    /// The newest proven state; `None` before the first look.
    known: Option<Arc<Manifest>>,
    /// The next WAL id to read.
    at: WalId,
    /// The id at which a new reader continues in the log, unless the log begins later.
    begins: WalId,
    /// Number of polls until a listing is due.
    cheap_polls_left: u32,
    list_every: u32,
    rules: Rules,
    phase: FollowPhase,
    /// The id at which this walk began: `at` is reset to it if the walk is not confirmed.
    walk_from: WalId,
    /// The smallest id met on this walk; none if no object was met.
    first_met: WalId,
    /// Objects met on this walk that are not confirmed yet.
    met: Vec<WalId>,
    /// The newer epoch, met on this walk, for which a look was already made (rule C5).
    looked_up: Option<Epoch>,
    /// Whether the end of the walk is confirmed although no object was met: for a thorough poll,
    /// and for the first walk after the reader began or restarted, so that a new reader already
    /// knows what a later poll would find.
    confirm_end: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum FollowPhase {
    Idle,
    /// Looks for the newest manifest, and restarts from it.
    Start(Look),
    /// Looks for a newer state; `true`: by a listing, and the position is checked afterwards.
    Look(Look, bool),
    /// Checks that the position of the reader was not freed.
    CheckPlace,
    /// Walks the log; contains the objects that the listing of the position showed after it.
    Walk(WalListing),
    ConfirmWalk(WalkOutcome),
    /// There is no object at the position, but there are later ones: checks whether they prove a
    /// hole. The flag says whether the walk continues if the object appears meanwhile, or the next
    /// poll does. A walk that continued after every listing would never end beside a faster writer.
    Doubt(HoleCheck, bool),
    Failed(Failure),
}

/// The step after a confirmed walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum WalkOutcome {
    Idle,
    Walk,
    /// Ends the walk, although there may be more to read.
    Stop,
    Fail(Failure),
}

/// The next step of [`Follow`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FollowAction {
    /// Perform this request.
    Request(ManifestRequest),
    /// Read this WAL object and keep its body until it is applied or the walk restarts.
    ReadWal(WalId),
    /// List the WAL objects after this id, and the boundary of the WAL.
    ListWal(WalId),
    /// Read the boundary of the WAL alone. A walk is confirmed every [`WALK_LIMIT`] objects, and a
    /// listing of the rest of the log each time would take time quadratic in its length.
    ReadWalBoundary,
    /// Wait until the next poll.
    Idle,
    /// The reader has failed.
    Failed(Failure),
}

/// Data that became visible.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FollowEvent {
    /// A newer state. Rows at or below its `flushed_seq` are in its tables.
    Newer(Arc<Manifest>),
    /// Apply the rows of these WAL objects, in this order.
    Apply(Vec<WalId>),
    /// The reader was behind the retained log: drop all WAL rows and continue from this state; rows
    /// from its `replay_from` on follow.
    StartAgain(Arc<Manifest>),
}

impl Follow {
    /// A new reader, which begins with the newest manifest. One poll in `list_every` (at least 1)
    /// is a listing.
    #[must_use]
    pub fn new(list_every: u32, rules: Rules) -> Follow {
        let list_every = list_every.max(1);
        Follow {
            known: None,
            at: WalId::NONE,
            begins: WalId::NONE,
            cheap_polls_left: list_every - 1,
            list_every,
            rules,
            phase: FollowPhase::Start(Look::new(None, rules)),
            walk_from: WalId::NONE,
            first_met: WalId::NONE,
            met: Vec::new(),
            looked_up: None,
            confirm_end: false,
        }
    }

    /// A reader that has read the log up to `next`, and begins there unless the replay point of the
    /// newest manifest has passed it.
    #[must_use]
    pub fn behind(next: WalId, list_every: u32, rules: Rules) -> Follow {
        Follow { begins: next, ..Follow::new(list_every, rules) }
    }

    /// Begins a poll if the reader is idle or found a hole: the missing rows may be in tables now,
    /// or the object may be back. `long_pause`: the last poll or listing was so long ago that
    /// numbers may have been freed, so this poll lists. Returns whether it lists.
    pub fn poll(&mut self, long_pause: bool) -> bool {
        if !self.may_poll() {
            return false;
        }
        // A failure found by a listing can only be cleared by a listing.
        let told = self.phase != FollowPhase::Idle;
        let due = self.cheap_polls_left == 0 || long_pause || told;
        let due = due && self.rules.has(Rule::ListSometimes);
        let known = self.known.clone();
        if due {
            self.cheap_polls_left = self.list_every - 1;
            self.phase = FollowPhase::Look(Look::new(known, self.rules), true);
        } else {
            self.cheap_polls_left = self.cheap_polls_left.saturating_sub(1);
            self.phase = FollowPhase::Look(Look::probe(known, self.rules), false);
        }
        due
    }

    /// As [`Follow::poll`], for a caller that must see everything that was durable before: two
    /// freed slots, which a poll by probes takes for the end, do not end this one. Returns whether
    /// it lists.
    pub fn poll_thoroughly(&mut self) -> bool {
        if !self.may_poll() || !self.rules.has(Rule::ListSometimes) {
            return self.poll(false);
        }
        self.cheap_polls_left = self.list_every - 1;
        self.confirm_end = true;
        self.phase = FollowPhase::Look(Look::new(self.known.clone(), self.rules), false);
        true
    }

    /// Begins a poll that only reads on in the WAL, without a look for a newer state: half the
    /// requests, for a reader that has found nothing for a long time. A poll that lists must come
    /// in between.
    pub fn poll_log(&mut self) {
        if self.phase == FollowPhase::Idle {
            self.start_walk();
        }
    }

    fn may_poll(&self) -> bool {
        matches!(self.phase, FollowPhase::Idle | FollowPhase::Failed(Failure::Hole(_)))
    }

    /// Whether a walk of the log is running.
    #[must_use]
    pub fn is_walking(&self) -> bool {
        matches!(self.phase, FollowPhase::Walk(_))
    }

    /// During a walk: returns the objects met before the walk continues, because the driver has
    /// reached its memory limit.
    pub fn hand_out_now(&mut self) -> Vec<FollowEvent> {
        match self.phase {
            FollowPhase::Walk(_) if !self.met.is_empty() => self.end_walk(WalkOutcome::Walk),
            _ => Vec::new(),
        }
    }

    /// During a walk: returns the objects met and ends the walk, although there may be more to
    /// read; the next poll continues there.
    pub fn stop(&mut self) -> Vec<FollowEvent> {
        match self.phase {
            FollowPhase::Walk(_) => self.end_walk(WalkOutcome::Stop),
            _ => Vec::new(),
        }
    }

    /// While idle: a newer proven state that the driver knows from its own commit. Rows in its
    /// tables need not be read from the WAL; the next poll continues after them.
    pub fn learn(&mut self, state: &Arc<Manifest>) {
        let newer = self.known.as_ref().is_some_and(|known| known.id < state.id);
        if self.phase == FollowPhase::Idle && newer && !self.is_other(state) {
            self.at = self.at.max(state.replay_from);
            self.walk_from = self.at;
            self.known = Some(Arc::clone(state));
        }
    }

    /// The next step.
    #[must_use]
    pub fn action(&self) -> FollowAction {
        match &self.phase {
            FollowPhase::Idle => FollowAction::Idle,
            FollowPhase::Start(look) | FollowPhase::Look(look, _) => match look.action() {
                LookAction::Request(request) => FollowAction::Request(request),
                LookAction::Done(_) => FollowAction::Idle,
            },
            FollowPhase::CheckPlace | FollowPhase::ConfirmWalk(WalkOutcome::Idle) => {
                FollowAction::ListWal(self.at)
            }
            FollowPhase::ConfirmWalk(_) => FollowAction::ReadWalBoundary,
            FollowPhase::Walk(_) => FollowAction::ReadWal(self.at),
            FollowPhase::Doubt(doubt, _) => FollowAction::ReadWal(doubt.reads()),
            FollowPhase::Failed(failure) => FollowAction::Failed(*failure),
        }
    }

    /// The answer to [`FollowAction::Request`].
    pub fn on_answer(&mut self, answer: ManifestAnswer) -> Vec<FollowEvent> {
        match &mut self.phase {
            FollowPhase::Start(look) | FollowPhase::Look(look, _) => {
                look.on_answer(answer);
                self.settle_look()
            }
            _ => Vec::new(),
        }
    }

    /// The answer to [`FollowAction::ReadWal`].
    pub fn on_wal(&mut self, seen: WalSeen) -> Vec<FollowEvent> {
        match &mut self.phase {
            FollowPhase::Walk(_) => {}
            FollowPhase::Doubt(..) => return self.doubt(seen),
            _ => return Vec::new(),
        }
        let nothing = matches!(seen, WalSeen::Absent | WalSeen::Vanished);
        if !nothing && self.first_met.is_none() {
            self.first_met = self.at;
        }
        let epoch = match seen {
            WalSeen::Data { epoch, .. } | WalSeen::Fence { epoch, .. } => epoch,
            _ => Epoch::NONE,
        };
        let newer = self.known.as_ref().is_some_and(|known| epoch > known.writer_epoch);
        if newer && self.rules.has(Rule::LookUpNewerEpochs) {
            return self.newer_epoch();
        }
        match seen {
            WalSeen::Data { .. } => {
                self.met.push(self.at);
                self.at = self.at.next();
                if self.met.len() >= WALK_LIMIT {
                    return self.end_walk(WalkOutcome::Walk);
                }
            }
            WalSeen::Fence { epoch, next_id } => {
                let fence = KeptFence { id: self.at, epoch, next_id };
                let jump = self.rules.has(Rule::JumpOverOlderFence);
                self.at = if jump { beyond(&fence) } else { self.at.next() };
            }
            // Trusted only when confirmed, like every object: it may be at a freed id.
            WalSeen::Foreign => return self.end_walk(WalkOutcome::Fail(Failure::Foreign(self.at))),
            WalSeen::Absent | WalSeen::Vanished => return self.end_of_log(),
        }
        Vec::new()
    }

    /// The answer to [`FollowAction::ListWal`].
    pub fn on_wal_listing(&mut self, listing: WalListing) -> Vec<FollowEvent> {
        let boundary = listing.boundary;
        match self.phase {
            FollowPhase::CheckPlace if boundary >= self.at => self.start_again(),
            FollowPhase::CheckPlace => {
                self.start_walk();
                self.phase = FollowPhase::Walk(listing);
            }
            FollowPhase::ConfirmWalk(_) if boundary >= self.first_met => self.start_again(),
            FollowPhase::ConfirmWalk(then) => return self.hand_out(then, &listing),
            _ => {}
        }
        Vec::new()
    }

    /// The answer to [`FollowAction::ReadWalBoundary`].
    pub fn on_wal_boundary(&mut self, boundary: WalId) -> Vec<FollowEvent> {
        self.on_wal_listing(WalListing { boundary, later: Vec::new() })
    }

    /// The newest proven state.
    #[must_use]
    pub fn manifest(&self) -> Option<&Arc<Manifest>> {
        self.known.as_ref()
    }

    /// The next WAL id to read: everything below was returned, or is in tables.
    #[must_use]
    pub fn next_wal_id(&self) -> WalId {
        self.walk_from
    }

    fn settle_look(&mut self) -> Vec<FollowEvent> {
        let (found, start, check_place) = match &self.phase {
            FollowPhase::Start(look) => (look.action(), true, false),
            FollowPhase::Look(look, check_place) => (look.action(), false, *check_place),
            _ => return Vec::new(),
        };
        match found {
            LookAction::Request(_) => Vec::new(),
            LookAction::Done(None) if self.known.is_some() => {
                self.phase = FollowPhase::Failed(Refusal::from(Conflict::OtherDatabase).into());
                Vec::new()
            }
            LookAction::Done(None) => {
                self.phase = FollowPhase::Idle;
                Vec::new()
            }
            LookAction::Done(Some(newest)) if self.is_other(&newest) => {
                self.phase = FollowPhase::Failed(Refusal::from(Conflict::OtherDatabase).into());
                Vec::new()
            }
            LookAction::Done(Some(newest)) if start => {
                self.known = Some(newest.clone());
                self.at = newest.replay_from.max(self.begins);
                self.start_walk();
                self.confirm_end = true;
                vec![FollowEvent::StartAgain(newest)]
            }
            LookAction::Done(Some(newest)) => self.advance(newest, check_place),
        }
    }

    /// Whether another database is at this location now (rule F8).
    fn is_other(&self, newest: &Manifest) -> bool {
        self.known.as_ref().is_some_and(|known| known.database != newest.database)
    }

    /// Adopts a newer state; rows in its tables need not be read from the WAL.
    fn advance(&mut self, newest: Arc<Manifest>, check_place: bool) -> Vec<FollowEvent> {
        self.at = self.at.max(newest.replay_from);
        let newer = self.known.as_ref().is_none_or(|known| known.id < newest.id);
        let event = newer.then(|| FollowEvent::Newer(newest.clone()));
        self.known = Some(newest);
        if check_place {
            self.walk_from = self.at;
            self.phase = FollowPhase::CheckPlace;
        } else {
            self.start_walk();
        }
        event.into_iter().collect()
    }

    fn start_walk(&mut self) {
        self.walk_from = self.at;
        self.first_met = WalId::NONE;
        self.met.clear();
        self.phase = FollowPhase::Walk(WalListing::default());
    }

    /// Handles a missing object at the position.
    fn end_of_log(&mut self) -> Vec<FollowEvent> {
        let known = self.known.as_ref().map(|known| (known.id, known.wal_id_last_seen));
        let hole = known.and_then(|known| Hole::at(self.at, known, self.rules));
        if let Some(hole) = hole {
            return self.missing(hole);
        }
        if let (FollowPhase::Walk(listing), true) = (&self.phase, self.met.is_empty())
            && let Some(doubt) = HoleCheck::of(self.at, listing, self.rules)
        {
            self.phase = FollowPhase::Doubt(doubt, true);
            return Vec::new();
        }
        self.end_walk(WalkOutcome::Idle)
    }

    /// Handles an object of an epoch that the manifest does not know: its claim was committed
    /// before, so a look finds it. If the look does not find it, no claim exists for the object,
    /// and the log ends before it.
    fn newer_epoch(&mut self) -> Vec<FollowEvent> {
        let known = self.known.as_ref().map(|known| known.writer_epoch);
        if std::mem::replace(&mut self.looked_up, known) == known {
            return self.end_walk(WalkOutcome::Stop);
        }
        self.at = self.walk_from;
        self.met.clear();
        self.phase = FollowPhase::Look(Look::new(self.known.clone(), self.rules), true);
        Vec::new()
    }

    /// Handles the read of an object after the position, where no object was found, or of the
    /// position again.
    fn doubt(&mut self, seen: WalSeen) -> Vec<FollowEvent> {
        let FollowPhase::Doubt(doubt, goes_on) = &mut self.phase else { return Vec::new() };
        match doubt.on_wal(seen, self.rules) {
            HoleCheckResult::Goes => Vec::new(),
            HoleCheckResult::End => self.end_walk(WalkOutcome::Idle),
            HoleCheckResult::Met(_) if !*goes_on => {
                self.phase = FollowPhase::Idle;
                Vec::new()
            }
            HoleCheckResult::Met(seen) => {
                self.phase = FollowPhase::Walk(WalListing::default());
                self.on_wal(seen)
            }
            HoleCheckResult::Hole(hole) => self.missing(hole),
        }
    }

    /// Reports a hole, unless the missing object was freed.
    fn missing(&mut self, hole: Hole) -> Vec<FollowEvent> {
        let then = WalkOutcome::Fail(Failure::Hole(hole));
        if !self.rules.has(Rule::ProveHoles) {
            return self.hand_out(then, &WalListing::default());
        }
        // The check that the object was not freed is needed even if no object was met.
        if self.first_met.is_none() {
            self.first_met = self.at;
        }
        self.phase = FollowPhase::ConfirmWalk(then);
        Vec::new()
    }

    fn end_walk(&mut self, then: WalkOutcome) -> Vec<FollowEvent> {
        if self.confirm_end && then == WalkOutcome::Idle && self.first_met.is_none() {
            self.first_met = self.at;
        }
        if self.first_met.is_none() || !self.rules.has(Rule::ConfirmHits) {
            return self.hand_out(then, &WalListing::default());
        }
        self.phase = FollowPhase::ConfirmWalk(then);
        Vec::new()
    }

    /// The objects met are confirmed. `listing` contains the objects after the end of the walk; it
    /// is used only if the walk has reached the end of the log.
    fn hand_out(&mut self, then: WalkOutcome, listing: &WalListing) -> Vec<FollowEvent> {
        let met = std::mem::take(&mut self.met);
        self.start_walk();
        self.confirm_end &= then == WalkOutcome::Walk;
        self.looked_up = None;
        match then {
            WalkOutcome::Walk => {}
            WalkOutcome::Stop => self.phase = FollowPhase::Idle,
            WalkOutcome::Idle => {
                let doubt = HoleCheck::of(self.at, listing, self.rules);
                self.phase =
                    doubt.map_or(FollowPhase::Idle, |doubt| FollowPhase::Doubt(doubt, false));
            }
            WalkOutcome::Fail(failure) => self.phase = FollowPhase::Failed(failure),
        }
        if met.is_empty() { Vec::new() } else { vec![FollowEvent::Apply(met)] }
    }

    fn start_again(&mut self) {
        self.met.clear();
        self.at = self.walk_from;
        self.phase = FollowPhase::Start(Look::new(None, self.rules));
    }
}

#[cfg(test)]
mod tests;
