//! A reader that keeps up with a database (rule M4).
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
//! Nothing at an id that the manifest knows to be taken is no end: once the boundary is seen below
//! it, it is a hole, and the reader fails with it until the replay point has passed it.
//! Nor is it one where a listing shows something so far behind that it proves a hole (rule E3): the
//! listings that a poll makes anyway, of the place and of what was met, are those of the WAL behind
//! the reader.
//! A poll of the *log alone* leaves the look out: what it reads is confirmed all the same.
//! A *thorough* poll is a listing whose end is confirmed too, in the place of its beginning:
//! nothing at the last id counts only once the boundary was seen below it, after the reading.
//! Whatever was durable before such a poll began is then met, however soon ids are freed.
//! An object of an epoch above that of the manifest ends the walk before anything of it is handed
//! out: a look by a listing comes first (rule C5), since what follows may not go on from what was
//! met.
//! What was met is handed out only after the boundary was seen below all of it. What an older epoch
//! landed between a fence and its `next_id` is never read: the walk jumps over it.

use super::hole::{HoleCheck, HoleCheckResult};
use super::look::{Look, LookAction};
use super::{Failure, Hole, ManifestAnswer, ManifestRequest, WalListing, WalSeen, beyond};
use crate::edit::{Conflict, Refusal};
use crate::rules::{Rule, Rules};
use crate::state::{KeptFence, Manifest};
use siltstone_base::{Epoch, WalId};
use std::sync::Arc;

/// WAL objects that a walk meets before it confirms and hands out: bounds what the driver holds,
/// and a reader under load keeps up although it never meets the end.
pub const WALK_LIMIT: usize = 64;

/// Keeps up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Follow {
    /// The newest proven state; `None` before the first look.
    known: Option<Arc<Manifest>>,
    /// The next WAL id to read.
    at: WalId,
    /// Where a reader that begins goes on in the log, unless that begins later.
    begins: WalId,
    /// Polls until a listing is due.
    cheap_polls_left: u32,
    list_every: u32,
    rules: Rules,
    phase: FollowPhase,
    /// Where this walk began: `at` falls back to it when the walk is not believed.
    walk_from: WalId,
    /// The smallest id met on this walk; none when nothing was.
    first_met: WalId,
    /// Records met on this walk, not yet confirmed.
    met: Vec<WalId>,
    /// A look was made for a newer epoch that this walk met, on the state of this one (rule C5).
    looked_up: Option<Epoch>,
    /// Whether the end of the walk is confirmed although nothing was met: of a thorough poll, and
    /// of the first walk since the reader began, or began again. What a later poll would find out,
    /// whoever begins is to know.
    confirm_end: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum FollowPhase {
    Idle,
    /// From the newest manifest again, wherever the reader stood.
    Start(Look),
    /// For a newer state; `true`: with a listing, and the place is checked after.
    Look(Look, bool),
    /// Is the place where the reader stands still there?
    CheckPlace,
    /// With what the listing of the place showed behind it.
    Walk(WalListing),
    ConfirmWalk(WalkOutcome),
    /// Nothing is here, and something is behind: does it prove a hole? If something is here by now:
    /// whether the walk goes on, or the next poll does. A walk that goes on from every listing that
    /// ended the last would never end beside a writer that is faster.
    Doubt(HoleCheck, bool),
    Failed(Failure),
}

/// What follows a walk that is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum WalkOutcome {
    Idle,
    Walk,
    /// Nothing, although there may be more to read.
    Stop,
    Fail(Failure),
}

/// What [`Follow`] wants.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FollowAction {
    /// Do this.
    Request(ManifestRequest),
    /// Read this WAL object and keep its body until it is applied or the walk starts again.
    ReadWal(WalId),
    /// List the WAL behind this id, and its boundary.
    ListWal(WalId),
    /// Nothing until the next poll.
    Idle,
    /// The end.
    Failed(Failure),
}

/// What became visible.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FollowEvent {
    /// A newer state. Rows at or below its `flushed_seq` are in its tables.
    Newer(Arc<Manifest>),
    /// Rows of these WAL objects, in this order, on top of what there is.
    Apply(Vec<WalId>),
    /// The reader had fallen behind what is kept: forget every WAL row, and go on from this state;
    /// rows from its `replay_from` on follow.
    StartAgain(Arc<Manifest>),
}

impl Follow {
    /// A reader that has nothing yet; it begins with the newest manifest. One poll in `list_every`
    /// is a listing (at least every one).
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

    /// A reader that has read the log up to `next`, and begins there where the replay point of the
    /// newest manifest has not passed it.
    #[must_use]
    pub fn behind(next: WalId, list_every: u32, rules: Rules) -> Follow {
        Follow { begins: next, ..Follow::new(list_every, rules) }
    }

    /// Begins a poll, when idle, or after a hole: tables may hold by now what is missing, or it may
    /// be back. `long_pause`: the last one, or the last listing, is so long ago that numbers are
    /// likely to have been freed, and the poll lists. Whether it does.
    pub fn poll(&mut self, long_pause: bool) -> bool {
        if !self.may_poll() {
            return false;
        }
        // What a listing has shown, only a listing can show again.
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

    /// As [`Follow::poll`], for a caller that is promised everything that was durable before: two
    /// freed slots, which look like an end to a poll that probes, do not end this one. Whether it
    /// lists.
    pub fn poll_thoroughly(&mut self) -> bool {
        if !self.may_poll() || !self.rules.has(Rule::ListSometimes) {
            return self.poll(false);
        }
        self.cheap_polls_left = self.list_every - 1;
        self.confirm_end = true;
        self.phase = FollowPhase::Look(Look::new(self.known.clone(), self.rules), false);
        true
    }

    /// Begins a poll that reads on in the WAL alone, without a look for a newer state: half the
    /// requests, for a reader that found nothing for long. A poll that lists must come between.
    pub fn poll_log(&mut self) {
        if self.phase == FollowPhase::Idle {
            self.start_walk();
        }
    }

    fn may_poll(&self) -> bool {
        matches!(self.phase, FollowPhase::Idle | FollowPhase::Failed(Failure::Hole(_)))
    }

    /// Whether the log is being read on.
    #[must_use]
    pub fn is_walking(&self) -> bool {
        matches!(self.phase, FollowPhase::Walk(_))
    }

    /// During a walk: what was met is handed out before it goes on, since the driver holds as much
    /// as it is to.
    pub fn hand_out_now(&mut self) -> Vec<FollowEvent> {
        match self.phase {
            FollowPhase::Walk(_) if !self.met.is_empty() => self.end_walk(WalkOutcome::Walk),
            _ => Vec::new(),
        }
    }

    /// During a walk: hands out what was met and ends, although there may be more to read; the next
    /// poll goes on there.
    pub fn stop(&mut self) -> Vec<FollowEvent> {
        match self.phase {
            FollowPhase::Walk(_) => self.end_walk(WalkOutcome::Stop),
            _ => Vec::new(),
        }
    }

    /// While idle: a newer state that the driver learned of by a commit of its own, proven. What it
    /// has in tables need not be read from the WAL; the next poll goes on from there.
    pub fn learn(&mut self, state: &Arc<Manifest>) {
        let newer = self.known.as_ref().is_some_and(|known| known.id < state.id);
        if self.phase == FollowPhase::Idle && newer && !self.is_other(state) {
            self.at = self.at.max(state.replay_from);
            self.walk_from = self.at;
            self.known = Some(Arc::clone(state));
        }
    }

    /// What to do now.
    #[must_use]
    pub fn action(&self) -> FollowAction {
        match &self.phase {
            FollowPhase::Idle => FollowAction::Idle,
            FollowPhase::Start(look) | FollowPhase::Look(look, _) => match look.action() {
                LookAction::Request(request) => FollowAction::Request(request),
                LookAction::Done(_) => FollowAction::Idle,
            },
            FollowPhase::CheckPlace | FollowPhase::ConfirmWalk(_) => FollowAction::ListWal(self.at),
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
            // Believed only when confirmed, like all else: it may sit on a freed id.
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

    /// The newest proven state.
    #[must_use]
    pub fn manifest(&self) -> Option<&Arc<Manifest>> {
        self.known.as_ref()
    }

    /// The next WAL id to read: everything below was handed out, or is in tables.
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

    /// Whether another database lives here now (rule F8).
    fn is_other(&self, newest: &Manifest) -> bool {
        self.known.as_ref().is_some_and(|known| known.database != newest.database)
    }

    /// Takes over a newer state; what it has in tables need not be read from the WAL.
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

    /// Nothing is here.
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

    /// An object of an epoch that the manifest does not know of: its claim was committed before, so
    /// a look finds it. Where one does not, the object is nobody's, and the log ends before it.
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

    /// Something behind the place, where nothing was found, was read, or the place once more.
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

    /// A hole, unless what is missing was freed.
    fn missing(&mut self, hole: Hole) -> Vec<FollowEvent> {
        let then = WalkOutcome::Fail(Failure::Hole(hole));
        if !self.rules.has(Rule::ProveHoles) {
            return self.hand_out(then, &WalListing::default());
        }
        // That it was not freed has to be seen even where nothing was met.
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

    /// What was met is real. `listing` is what was listed behind the end of the walk.
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
