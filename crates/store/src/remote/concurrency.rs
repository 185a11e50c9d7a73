//! How many requests are in flight to a store that throttles.
//!
//! ```text
//! no limit ─ throttled (429, 503) ─► half of those in flight ─ each round of answers ─► 1 more ─┐
//!     ▲                                    ▲ throttled: halved, at most once a round            │
//!     └──────────── more than MOST ────────┴────────────────────────────────────────────────────┘
//! ```
//! Additive increase and multiplicative decrease (Chiu and Jain, "Analysis of the Increase and
//! Decrease Algorithms for Congestion Avoidance", 1989): clients that share a store come to equal
//! parts of what it serves. Without a limit, all requests of a process would be sent again at the
//! rate of the retry budget, most of them in vain.
//!
//! A turn lasts until the head of the answer. A body that a caller reads slowly therefore holds up
//! no other request.

use futures::channel::oneshot;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// No limit is lower: requests of different kinds, such as a write of the log beside a compaction,
/// do not wait for each other one by one.
const LEAST: f64 = 4.0;
/// A limit above this is none.
const MOST: f64 = 512.0;
/// Target of log lines.
const TARGET: &str = "siltstone.store";

/// The limit of one store, shared by all of its clients.
#[derive(Debug, Default)]
pub(super) struct Concurrency {
    state: Mutex<ConcurrencyState>,
}

#[derive(Debug, Default)]
struct ConcurrencyState {
    limit: Option<f64>,
    in_flight: usize,
    /// Number of turns so far.
    begun: u64,
    /// The last turn at the time of the last decrease. Requests up to it were sent before that.
    lowered_at: u64,
    /// Requests that wait, in order.
    waiting: VecDeque<oneshot::Sender<RequestTurn>>,
}

/// The right to have one request in flight.
#[derive(Debug)]
pub(super) struct RequestTurn {
    concurrency: Arc<Concurrency>,
    number: u64,
    /// Whether its end admits waiting requests.
    admits: bool,
}

impl Concurrency {
    /// Waits until one more request may be in flight.
    pub(super) async fn turn(self: &Arc<Self>) -> RequestTurn {
        let awaited = {
            let mut state = self.state.lock();
            if state.has_room() {
                return self.begin(&mut state);
            }
            let (sender, awaited) = oneshot::channel();
            state.waiting.push_back(sender);
            awaited
        };
        match awaited.await {
            Ok(turn) => turn,
            // Senders are dropped with the state alone, which this call holds.
            Err(_) => self.begin(&mut self.state.lock()),
        }
    }

    fn begin(self: &Arc<Self>, state: &mut ConcurrencyState) -> RequestTurn {
        state.in_flight += 1;
        state.begun += 1;
        RequestTurn { concurrency: Arc::clone(self), number: state.begun, admits: true }
    }

    /// Gives turns to waiting requests, as far as there is room.
    fn admit(self: &Arc<Self>) {
        loop {
            let (waiting, turn) = {
                let mut state = self.state.lock();
                if !state.has_room() {
                    return;
                }
                let Some(waiting) = state.waiting.pop_front() else { return };
                let turn = self.begin(&mut state);
                (waiting, turn)
            };
            // If its caller is gone, the turn goes to the next one. Its drop would call this
            // function again, once within the other for each caller that is gone.
            if let Err(mut turn) = waiting.send(turn) {
                turn.admits = false;
            }
        }
    }
}

impl ConcurrencyState {
    fn has_room(&self) -> bool {
        self.limit.is_none_or(|limit| (self.in_flight as f64) < limit.floor())
    }

    /// Lowers the limit, unless it was lowered since request `number` was sent.
    fn lower(&mut self, number: u64) {
        if number <= self.lowered_at {
            return;
        }
        let in_flight = self.in_flight as f64;
        let before = self.limit.map_or(in_flight, |limit| limit.min(in_flight));
        let limit = (before / 2.0).max(LEAST);
        if self.limit.is_none() {
            log::warn!(target: TARGET, "event=store_throttles limit={limit}");
        }
        self.limit = Some(limit);
        self.lowered_at = self.begun;
    }

    /// Raises the limit by one a round of answers, if it holds requests up.
    fn raise(&mut self) {
        let Some(limit) = self.limit else { return };
        if self.waiting.is_empty() {
            return;
        }
        let limit = limit + 1.0 / limit;
        self.limit = (limit <= MOST).then_some(limit);
        if self.limit.is_none() {
            log::info!(target: TARGET, "event=store_throttles_no_more");
        }
    }
}

impl RequestTurn {
    /// Records the status of the answer.
    pub(super) fn answered(&self, status: u16) {
        let mut state = self.concurrency.state.lock();
        match status {
            429 | 503 => state.lower(self.number),
            _ => state.raise(),
        }
    }
}

impl Drop for RequestTurn {
    fn drop(&mut self) {
        self.concurrency.state.lock().in_flight -= 1;
        if self.admits {
            self.concurrency.admit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use futures::future::BoxFuture;

    /// As many turns as there is room for, of `wanted`; the others wait.
    fn begin(
        concurrency: &Arc<Concurrency>,
        wanted: usize,
    ) -> (Vec<RequestTurn>, Vec<BoxFuture<'static, RequestTurn>>) {
        let (mut begun, mut waiting) = (Vec::new(), Vec::new());
        for _ in 0..wanted {
            let concurrency = Arc::clone(concurrency);
            let mut turn = async move { concurrency.turn().await }.boxed();
            match (&mut turn).now_or_never() {
                Some(turn) => begun.push(turn),
                None => waiting.push(turn),
            }
        }
        (begun, waiting)
    }

    fn limit(concurrency: &Concurrency) -> Option<usize> {
        concurrency.state.lock().limit.map(|limit| limit as usize)
    }

    #[test]
    fn there_is_no_limit_before_the_store_throttles() {
        let concurrency = Arc::new(Concurrency::default());
        let (begun, waiting) = begin(&concurrency, 5000);
        assert_eq!((begun.len(), waiting.len()), (5000, 0));
        begun.iter().for_each(|turn| turn.answered(200));
        assert_eq!(limit(&concurrency), None);
    }

    #[test]
    fn a_round_of_throttled_requests_halves_once() {
        let concurrency = Arc::new(Concurrency::default());
        let (begun, _) = begin(&concurrency, 64);
        begun.iter().for_each(|turn| turn.answered(503));
        assert_eq!(limit(&concurrency), Some(32));
        drop(begun);
        let (begun, waiting) = begin(&concurrency, 64);
        assert_eq!((begun.len(), waiting.len()), (32, 32));
        begun.iter().for_each(|turn| turn.answered(429));
        assert_eq!(limit(&concurrency), Some(16));
        drop((waiting, begun));
        for _ in 0..9 {
            begin(&concurrency, 64).0.iter().for_each(|turn| turn.answered(503));
        }
        assert_eq!(limit(&concurrency), Some(LEAST as usize));
    }

    #[test]
    fn a_limit_that_holds_requests_up_grows_by_one_a_round_and_ends() {
        let concurrency = Arc::new(Concurrency::default());
        begin(&concurrency, 64).0.iter().for_each(|turn| turn.answered(503));
        for rounds in 0..100 {
            let (begun, waiting) = begin(&concurrency, 1000);
            assert!(begun.len().abs_diff(32 + rounds) <= 2, "{} {rounds}", begun.len());
            begun.iter().for_each(|turn| turn.answered(200));
            drop((waiting, begun));
        }
        let before = limit(&concurrency);
        // It is no evidence that a store serves more if no more is asked of it.
        (0..1000).for_each(|_| begin(&concurrency, 1).0[0].answered(200));
        assert_eq!(limit(&concurrency), before);
        while limit(&concurrency).is_some() {
            let (begun, waiting) = begin(&concurrency, 1000);
            begun.iter().for_each(|turn| turn.answered(200));
            drop((waiting, begun));
        }
        assert_eq!(begin(&concurrency, 5000).1.len(), 0);
    }

    #[test]
    fn those_that_wait_are_admitted_in_order_and_one_that_left_takes_no_room() {
        let concurrency = Arc::new(Concurrency::default());
        begin(&concurrency, 8).0.iter().for_each(|turn| turn.answered(503));
        let (mut begun, mut waiting) = begin(&concurrency, 8);
        assert_eq!((begun.len(), waiting.len()), (4, 4));
        drop(waiting.remove(0));
        drop(begun.pop());
        let first = (&mut waiting[0]).now_or_never();
        assert!(first.is_some() && (&mut waiting[1]).now_or_never().is_none());
        // One that was given a turn leaves without taking it up: the next one has it.
        drop(begun.pop());
        drop(waiting.remove(1));
        assert!((&mut waiting[1]).now_or_never().is_some());
        drop((begun, first, waiting));
        assert_eq!(concurrency.state.lock().in_flight, 0);
    }
    /// Before, each turn whose caller was gone took some stack below the one before it.
    #[test]
    fn many_that_left_take_no_stack() {
        let leave = || {
            let concurrency = Arc::new(Concurrency::default());
            begin(&concurrency, 8).0.iter().for_each(|turn| turn.answered(503));
            let (mut begun, waiting) = begin(&concurrency, 200_000);
            drop(waiting);
            drop(begun.pop());
            assert!(concurrency.state.lock().waiting.is_empty());
            assert_eq!(begin(&concurrency, 2).0.len(), 1);
        };
        std::thread::Builder::new().stack_size(1 << 20).spawn(leave).unwrap().join().unwrap();
    }
}
