//! Which WAL objects a writer may send, and which it may acknowledge (rules F3, F6).
//!
//! ```text
//! ids:  … 7  8  9 │10  11  12  13 │14
//!       committed │ C   ?   C   ? │
//!            prefix ┘             └ may go out once 10 is committed (W = 4)
//! ```
//! Id i is sent only after every id up to i - W is committed, and it is acknowledged only after
//! every smaller id is committed. So a fence at n stops every id above it, and the ids in flight
//! above it are below n + W.

use super::{Failure, WalSeen};
use crate::rules::{Rule, Rules};
use siltstone_base::{Epoch, PutOutcome, WalId};

/// The window of a writer over the WAL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WalWindow {
    epoch: Epoch,
    width: u64,
    rules: Rules,
    /// Every id up to here is committed.
    prefix: WalId,
    /// Ids from `prefix` + 1 on that were sent.
    sent: Vec<Slot>,
    ended: Option<Failure>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Slot {
    state: State,
    /// A try has ended Unknown: the object may have landed, been recovered and been freed.
    ambiguous: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    UnderWay,
    Committed,
    /// Our object exists after an unknown try; a listing of the boundary must show that the slot
    /// was not freed.
    PerhapsAgain,
    /// Another object exists; a listing of the boundary must show whether it counts.
    Taken(WalSeen),
}

/// The next step of a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WindowEvent {
    /// The object is durable: wake its waiters. Events come in order of id.
    Acknowledged(WalId),
    /// Send the same bytes, with the same attempt id, to the same name again.
    Retry(WalId),
    /// List the boundary of the WAL and report it by [`WalWindow::on_boundary`].
    CheckBoundary(WalId),
    /// A newer writer has taken over. Wake every waiter with Fenced; no later id is acknowledged.
    Fenced {
        /// Its epoch, if known.
        by: Option<Epoch>,
        /// An id whose bytes are certainly not stored, if there is one: another object has its
        /// name, and the name was never freed. Only for checks and traces.
        lost: Option<WalId>,
    },
    /// The writer ended for another reason.
    Failed(Failure),
}

impl WalWindow {
    /// For the writer of `epoch`, with the first id `first` (the `next_id` of its fence) and with
    /// `width` as its claimed `max_parallel_writes`.
    #[must_use]
    pub fn new(epoch: Epoch, first: WalId, width: u64, rules: Rules) -> WalWindow {
        let prefix = first.minus(1);
        WalWindow { epoch, width: width.max(1), rules, prefix, sent: Vec::new(), ended: None }
    }

    /// The id that may be sent now, if any.
    #[must_use]
    pub fn may_send(&self) -> Option<WalId> {
        let next = self.prefix.plus(self.sent.len() as u64 + 1);
        let counted = if self.rules.has(Rule::WindowOverPrefix) {
            self.sent.len()
        } else {
            self.sent.iter().filter(|slot| slot.state != State::Committed).count()
        };
        (self.ended.is_none() && (counted as u64) < self.width).then_some(next)
    }

    /// Takes the id of [`WalWindow::may_send`]: its first try is sent now.
    pub fn send(&mut self) -> Option<WalId> {
        let id = self.may_send()?;
        self.sent.push(Slot { state: State::UnderWay, ambiguous: false });
        Some(id)
    }

    /// The outcome of a try of `id`. `Lost` contains the object that exists instead.
    pub fn on_outcome(&mut self, id: WalId, outcome: PutOutcome<WalSeen>) -> Vec<WindowEvent> {
        let checked = self.rules.has(Rule::CheckWalConflict);
        if self.ended.is_some() {
            return Vec::new();
        }
        let Some(slot) = self.slot_mut(id) else { return Vec::new() };
        if slot.state != State::UnderWay {
            return Vec::new();
        }
        match outcome {
            PutOutcome::Committed if slot.ambiguous && checked => {
                slot.state = State::PerhapsAgain;
                vec![WindowEvent::CheckBoundary(id)]
            }
            PutOutcome::Committed => self.commit(id),
            PutOutcome::Lost(seen) if checked => {
                slot.state = State::Taken(seen);
                vec![WindowEvent::CheckBoundary(id)]
            }
            PutOutcome::Lost(seen) => self.lose(id, seen),
            PutOutcome::NotApplied => vec![WindowEvent::Retry(id)],
            PutOutcome::Unknown => {
                slot.ambiguous = true;
                vec![WindowEvent::Retry(id)]
            }
        }
    }

    /// The largest WAL boundary, from a listing that began after the [`WindowEvent::CheckBoundary`]
    /// of this id: an older listing is not sufficient.
    pub fn on_boundary(&mut self, id: WalId, boundary: WalId) -> Vec<WindowEvent> {
        if self.ended.is_some() {
            return Vec::new();
        }
        match self.slot_mut(id).map(|slot| slot.state) {
            // Only ids whose rows a newer writer has put into tables are freed: that writer has
            // taken over, and the outcome of this id cannot be known any more.
            Some(State::PerhapsAgain | State::Taken(_)) if id <= boundary => {
                self.end(Failure::Fenced { by: None }, None)
            }
            Some(State::Taken(seen)) => self.lose(id, seen),
            Some(State::PerhapsAgain) => self.commit(id),
            Some(State::UnderWay | State::Committed) | None => Vec::new(),
        }
    }

    /// A newer writer was found elsewhere: in the manifest (rule F7).
    pub fn on_overtaken(&mut self, by: Epoch) -> Vec<WindowEvent> {
        if self.ended.is_some() {
            return Vec::new();
        }
        self.end(Failure::Fenced { by: Some(by) }, None)
    }

    /// Every id up to this one is committed and acknowledged.
    #[must_use]
    pub fn committed(&self) -> WalId {
        self.prefix
    }

    /// Whether every object that was sent is committed. The explorer asks; the engine acts on
    /// [`WindowEvent::Acknowledged`].
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.ended.is_none() && self.sent.is_empty()
    }

    /// Why the writer ended, if it has.
    #[must_use]
    pub fn ended(&self) -> Option<Failure> {
        self.ended
    }

    fn slot_mut(&mut self, id: WalId) -> Option<&mut Slot> {
        let at = id.get().checked_sub(self.prefix.get() + 1)?;
        self.sent.get_mut(usize::try_from(at).ok()?)
    }

    fn commit(&mut self, id: WalId) -> Vec<WindowEvent> {
        if let Some(slot) = self.slot_mut(id) {
            slot.state = State::Committed;
        }
        let in_order = self.rules.has(Rule::AcknowledgeInOrder);
        let mut events = Vec::new();
        if !in_order {
            events.push(WindowEvent::Acknowledged(id));
        }
        let done = self.sent.iter().take_while(|slot| slot.state == State::Committed).count();
        self.sent.drain(..done);
        for _ in 0..done {
            self.prefix = self.prefix.next();
            if in_order {
                events.push(WindowEvent::Acknowledged(self.prefix));
            }
        }
        events
    }

    /// Another object has the name permanently.
    fn lose(&mut self, id: WalId, seen: WalSeen) -> Vec<WindowEvent> {
        match seen {
            WalSeen::Data { epoch, .. } | WalSeen::Fence { epoch, .. } if epoch > self.epoch => {
                self.end(Failure::Fenced { by: Some(epoch) }, Some(id))
            }
            WalSeen::Foreign => self.end(Failure::Foreign(id), None),
            // It existed, then was freed.
            WalSeen::Absent | WalSeen::Vanished => self.end(Failure::Fenced { by: None }, None),
            // An object of an older writer, or a second one of this epoch (rule F3).
            WalSeen::Data { .. } | WalSeen::Fence { .. } => self.end(Failure::Impossible(id), None),
        }
    }

    fn end(&mut self, failure: Failure, lost: Option<WalId>) -> Vec<WindowEvent> {
        self.ended = Some(failure);
        vec![match failure {
            Failure::Fenced { by } => WindowEvent::Fenced { by, lost },
            other => WindowEvent::Failed(other),
        }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEWER: WalSeen = WalSeen::Fence { epoch: Epoch(3), next_id: WalId(20) };

    fn window(width: u64) -> WalWindow {
        WalWindow::new(Epoch(2), WalId(10), width, Rules::ALL)
    }

    fn sent(window: &mut WalWindow) -> Vec<u64> {
        std::iter::from_fn(|| window.send()).map(WalId::get).collect()
    }

    /// F3: a window over the committed prefix, not a count of requests in flight.
    #[test]
    fn an_id_goes_out_once_every_id_up_to_i_minus_w_is_committed() {
        let mut window = window(2);
        assert_eq!(sent(&mut window), vec![10, 11]);
        assert_eq!(window.on_outcome(WalId(11), PutOutcome::Committed), vec![]);
        assert_eq!(window.may_send(), None);
        window.on_outcome(WalId(10), PutOutcome::Committed);
        assert_eq!(sent(&mut window), vec![12, 13]);
    }

    #[test]
    fn acknowledgements_come_in_id_order() {
        let mut window = window(3);
        sent(&mut window);
        assert_eq!(window.on_outcome(WalId(12), PutOutcome::Committed), vec![]);
        assert_eq!(window.on_outcome(WalId(11), PutOutcome::Committed), vec![]);
        let all = [10, 11, 12].map(|id| WindowEvent::Acknowledged(WalId(id))).to_vec();
        assert_eq!(window.on_outcome(WalId(10), PutOutcome::Committed), all);
        assert!(window.is_settled());
    }

    #[test]
    fn a_fenced_window_acknowledges_nothing_after() {
        let mut window = window(2);
        sent(&mut window);
        let asked = window.on_outcome(WalId(11), PutOutcome::Lost(NEWER));
        assert_eq!(asked, vec![WindowEvent::CheckBoundary(WalId(11))]);
        let fenced = WindowEvent::Fenced { by: Some(Epoch(3)), lost: Some(WalId(11)) };
        assert_eq!(window.on_boundary(WalId(11), WalId(0)), vec![fenced]);
        assert_eq!(window.on_outcome(WalId(10), PutOutcome::Committed), vec![]);
        assert_eq!(window.may_send(), None);
        assert!(!window.is_settled());
    }

    /// F6 (model): the record landed, was recovered and freed; a zombie's fence has the id.
    #[test]
    fn a_conflict_at_or_below_the_boundary_is_not_lost() {
        let mut window = window(1);
        sent(&mut window);
        assert_eq!(
            window.on_outcome(WalId(10), PutOutcome::Unknown),
            vec![WindowEvent::Retry(WalId(10))]
        );
        window.on_outcome(WalId(10), PutOutcome::Lost(NEWER));
        let unknown = WindowEvent::Fenced { by: None, lost: None };
        assert_eq!(window.on_boundary(WalId(10), WalId(10)), vec![unknown]);
    }

    #[test]
    fn a_create_repeated_into_a_freed_slot_is_not_acknowledged() {
        let mut window = window(1);
        sent(&mut window);
        window.on_outcome(WalId(10), PutOutcome::Unknown);
        let asked = window.on_outcome(WalId(10), PutOutcome::Committed);
        assert_eq!(asked, vec![WindowEvent::CheckBoundary(WalId(10))]);
        let unknown = WindowEvent::Fenced { by: None, lost: None };
        assert_eq!(window.clone().on_boundary(WalId(10), WalId(15)), vec![unknown]);
        let acknowledged = vec![WindowEvent::Acknowledged(WalId(10))];
        assert_eq!(window.on_boundary(WalId(10), WalId(9)), acknowledged);
    }

    /// F3: in steady state a create is never lost to an older epoch.
    #[test]
    fn losing_to_an_older_epoch_is_internal() {
        let mut window = window(1);
        sent(&mut window);
        window.on_outcome(
            WalId(10),
            PutOutcome::Lost(WalSeen::Data { epoch: Epoch(1), durable: WalId::NONE }),
        );
        let impossible = Failure::Impossible(WalId(10));
        assert_eq!(window.on_boundary(WalId(10), WalId(0)), vec![WindowEvent::Failed(impossible)]);
    }

    #[test]
    fn an_answer_settles_only_the_question_it_was_asked_for() {
        let mut window = window(3);
        sent(&mut window);
        for id in [10, 12] {
            window.on_outcome(WalId(id), PutOutcome::Unknown);
            window.on_outcome(WalId(id), PutOutcome::Committed);
        }
        let first = vec![WindowEvent::Acknowledged(WalId(10))];
        assert_eq!(window.on_boundary(WalId(10), WalId(2)), first);
        let second = vec![WindowEvent::Acknowledged(WalId(11))];
        assert_eq!(window.on_outcome(WalId(11), PutOutcome::Committed), second);
        let third = vec![WindowEvent::Acknowledged(WalId(12))];
        assert_eq!(window.on_boundary(WalId(12), WalId(2)), third);
    }

    /// F6: without the order A acknowledges an object above the fence.
    #[test]
    fn out_of_order_acknowledgement_is_what_the_rule_prevents() {
        let rules = Rules::ALL.without(Rule::AcknowledgeInOrder);
        let mut window = WalWindow::new(Epoch(2), WalId(10), 2, rules);
        sent(&mut window);
        let early = vec![WindowEvent::Acknowledged(WalId(11))];
        assert_eq!(window.on_outcome(WalId(11), PutOutcome::Committed), early);
        window.on_outcome(WalId(10), PutOutcome::Committed);
        assert_eq!(window.committed(), WalId(11));
    }

    /// F3 (model): with a count of requests in flight, A sends 12 while 10 hangs; a fence at 10
    /// points there.
    #[test]
    fn a_window_that_counts_goes_past_a_fence() {
        let rules = Rules::ALL.without(Rule::WindowOverPrefix);
        let mut window = WalWindow::new(Epoch(2), WalId(10), 2, rules);
        sent(&mut window);
        window.on_outcome(WalId(11), PutOutcome::Committed);
        assert_eq!(window.may_send(), Some(WalId(12)));
    }

    /// F6: without the check a conflict in a freed slot is reported as a loss.
    #[test]
    fn an_unchecked_conflict_claims_too_much() {
        let rules = Rules::ALL.without(Rule::CheckWalConflict);
        let mut window = WalWindow::new(Epoch(2), WalId(10), 1, rules);
        sent(&mut window);
        window.on_outcome(WalId(10), PutOutcome::Unknown);
        let lost = WindowEvent::Fenced { by: Some(Epoch(3)), lost: Some(WalId(10)) };
        assert_eq!(window.on_outcome(WalId(10), PutOutcome::Lost(NEWER)), vec![lost]);
    }
}
