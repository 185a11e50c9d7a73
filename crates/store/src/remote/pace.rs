//! The usual response time of a store, and the requests that it has not answered. They decide when
//! a request is given up and sent again, and which request the error of a deadline names.
//!
//! ```text
//! patience   2 s at first, or 8 times the recent response time if that is more;
//!            doubled by each request that is given up, from 8 s on raised by a quarter, up to the
//!            store option `timeout`
//! ```
//! A request that is lost, because of a dead connection or a silent server, therefore costs two
//! seconds and not the whole deadline. A store whose answers take 5 s gets more time from the
//! second request on. Requests that were begun together and are given up together double the
//! patience once. Above 8 s it grows slowly, because a request that began shortly before an outage
//! ended is repeated only after its patience: a call of 30 s outlives an outage of 20 s.

use super::concurrency::Concurrency;
use super::hedge::Hedges;
use crate::env::Clock;
use crate::sent::{SentOutcome, SentRequests};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A healthy store answers within this time: 20 times the slowest percentile of object stores for
/// small objects.
pub(super) const LEAST_PATIENCE: Duration = Duration::from_secs(2);
/// Factor by which the recent response time may be exceeded before a request is given up.
const SLACK: u32 = 8;
/// Up to this patience a request that is given up doubles it.
const DOUBLED_PATIENCE: Duration = Duration::from_secs(8);
/// Requests of at least this size measure the speed of sending.
const TELLING_BYTES: u64 = 64 << 10;
/// Nanoseconds per sent byte before any answer has told: 32 MiB/s, of which [`SLACK`] leaves 4. So
/// a lost request of a whole part of an upload, 8 MiB, is repeated after 4 s, and 1 MiB gets its 8
/// s on a link of 1 Mbit/s at the third attempt.
const GUESSED_NANOS: u64 = 30;
/// Factor on the time for sending after a request was given up.
const GIVEN_UP: u64 = 4;
/// Shorter waits are not reported.
const TOLD_AFTER: Duration = Duration::from_millis(200);

/// The pace of one store, shared by all of its clients.
pub(super) struct StorePace {
    clock: Arc<dyn Clock>,
    sent: Arc<SentRequests>,
    /// When slow requests are sent a second time.
    pub(super) hedges: Hedges,
    /// How many requests may be in flight.
    pub(super) concurrency: Arc<Concurrency>,
    known: Mutex<PaceKnown>,
}

#[derive(Default)]
struct PaceKnown {
    patience: Duration,
    /// The recent time until the head of an answer.
    latency: Duration,
    /// Nanoseconds per sent byte; 0 while unknown.
    nanos_a_byte: u64,
    /// Whether any request was answered.
    is_reached: bool,
    /// Why no connection could be made, as long as none ever was.
    unreachable: Option<String>,
    /// The requests in flight, in the order of their beginning.
    waiting: BTreeMap<u64, (String, Duration)>,
    begun: u64,
    /// The last request that was given up or refused, if none of its method succeeded since.
    failed: Option<FailedRequest>,
}

/// A request that was given up, or that the store refused for now.
struct FailedRequest {
    /// Its method, endpoint and path.
    what: String,
    /// The status of the refusal.
    status: Option<u16>,
    at: Duration,
}

impl fmt::Display for FailedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            Some(status) => write!(f, "{}, refused with status {status}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

impl PaceKnown {
    fn expected_nanos(&self) -> u64 {
        if self.nanos_a_byte == 0 { GUESSED_NANOS } else { self.nanos_a_byte }
    }
}

impl fmt::Debug for StorePace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StorePace").finish_non_exhaustive()
    }
}

/// A request in flight.
pub(super) struct InFlightRequest {
    pace: Arc<StorePace>,
    number: u64,
    since: Duration,
    patience: Duration,
}

impl StorePace {
    pub(super) fn new(clock: Arc<dyn Clock>) -> StorePace {
        let (hedges, known) = (Hedges::default(), Mutex::default());
        StorePace { clock, sent: Arc::default(), hedges, concurrency: Arc::default(), known }
    }

    /// Counts of the requests to the store.
    pub(super) fn sent(&self) -> Arc<SentRequests> {
        Arc::clone(&self.sent)
    }

    /// The patience now, if one request may take at most `most`.
    pub(super) fn patience(&self, most: Duration) -> Duration {
        self.known.lock().patience.max(LEAST_PATIENCE).min(most)
    }

    /// The time allowed for sending `bytes` at the recent speed: at most `most`.
    pub(super) fn sending(&self, bytes: u64, most: Duration) -> Duration {
        let nanos = self.known.lock().expected_nanos();
        most.min(Duration::from_nanos(nanos.saturating_mul(bytes)).saturating_mul(SLACK))
    }

    /// Begins a request. `what` describes it for people.
    pub(super) fn begin(self: &Arc<Self>, what: String, patience: Duration) -> InFlightRequest {
        let since = self.clock.monotonic();
        let mut known = self.known.lock();
        known.begun += 1;
        let number = known.begun;
        known.waiting.insert(number, (what, since));
        InFlightRequest { pace: Arc::clone(self), number, since, patience }
    }

    /// The request that holds up the callers: the oldest one in flight, or one that was given up or
    /// refused later than that one began, as long as none of its method has succeeded since.
    pub(super) fn unanswered(&self) -> Option<String> {
        let now = self.clock.monotonic();
        let known = self.known.lock();
        let oldest = known.waiting.values().next();
        let oldest = oldest.filter(|(_, since)| now.saturating_sub(*since) >= TOLD_AFTER);
        let failed = known.failed.as_ref();
        match oldest {
            Some((what, since)) if failed.is_none_or(|failed| failed.at <= *since) => {
                let waited = now.saturating_sub(*since);
                Some(format!("{what}, for {:.1} s", waited.as_secs_f64()))
            }
            _ => failed.map(FailedRequest::to_string),
        }
    }

    /// Why no connection can be made; `None` once one was made, and before the first attempt.
    pub(super) fn unreachable(&self) -> Option<String> {
        let known = self.known.lock();
        known.unreachable.clone().filter(|_| !known.is_reached)
    }
}

impl InFlightRequest {
    /// Counts a piece of the answer.
    pub(super) fn comes(&self, bytes: u64) {
        self.pace.sent.comes(bytes);
    }

    /// Records the head of the answer, of `status`, to a request of `sent` bytes.
    pub(super) fn answered(&self, sent: u64, status: u16) {
        let now = self.pace.clock.monotonic();
        let took = now.saturating_sub(self.since);
        let mut known = self.pace.known.lock();
        known.is_reached = true;
        known.unreachable = None;
        if SentOutcome::of(status) == SentOutcome::Transient {
            self.failed(&mut known, Some(status), now);
        } else if known.failed.as_ref().is_some_and(|failed| self.is_like(failed, &known)) {
            known.failed = None;
        }
        if sent >= TELLING_BYTES {
            let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX) / sent;
            known.nanos_a_byte = nanos.max(known.nanos_a_byte - known.nanos_a_byte / 8).max(1);
            return;
        }
        // A slow answer counts immediately; fast ones lower the value gradually.
        known.latency = took.max(known.latency - known.latency / 8);
        known.patience = known.latency * SLACK;
    }

    /// Records that no answer came in time to a request of `sent` bytes.
    pub(super) fn gave_up(&self, sent: u64) {
        let mut known = self.pace.known.lock();
        let double = self.patience * 2;
        let longer = double.min(DOUBLED_PATIENCE.max(self.patience + self.patience / 4));
        known.patience = known.patience.max(longer);
        if sent >= TELLING_BYTES {
            known.nanos_a_byte = known.expected_nanos().saturating_mul(GIVEN_UP);
        }
        self.failed(&mut known, None, self.pace.clock.monotonic());
    }

    fn failed(&self, known: &mut PaceKnown, status: Option<u16>, at: Duration) {
        let what = known.waiting.get(&self.number).map(|(what, _)| what.clone());
        known.failed = what.map(|what| FailedRequest { what, status, at });
    }

    /// Whether this request has the method of `failed`.
    fn is_like(&self, failed: &FailedRequest, known: &PaceKnown) -> bool {
        let method = |what: &str| what.split(' ').next().map(str::to_owned);
        let own = known.waiting.get(&self.number).and_then(|(what, _)| method(what));
        own == method(&failed.what)
    }

    /// Records that no connection could be made.
    pub(super) fn not_connected(&self, why: String) {
        self.pace.known.lock().unreachable = Some(why);
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        self.pace.known.lock().waiting.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::BoxFuture;
    use siltstone_base::UnixMillis;

    struct Hand(Mutex<Duration>);

    impl Clock for Hand {
        fn now(&self) -> UnixMillis {
            UnixMillis(0)
        }

        fn monotonic(&self) -> Duration {
            *self.0.lock()
        }

        fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
            Box::pin(futures::future::pending())
        }
    }

    const MOST: Duration = Duration::from_secs(30);

    fn pace() -> (Arc<Hand>, Arc<StorePace>) {
        let hand = Arc::new(Hand(Mutex::new(Duration::from_secs(100))));
        (Arc::clone(&hand), Arc::new(StorePace::new(hand)))
    }

    fn pass(hand: &Hand, seconds: f64) {
        *hand.0.lock() += Duration::from_secs_f64(seconds);
    }

    fn seconds(pace: &StorePace) -> f64 {
        pace.patience(MOST).as_secs_f64()
    }

    #[test]
    fn patience_doubles_with_what_is_given_up_and_follows_what_answers_take() {
        let (hand, pace) = pace();
        assert_eq!(seconds(&pace), 2.0);
        let together: Vec<_> =
            (0..9).map(|_| pace.begin("GET x".into(), pace.patience(MOST))).collect();
        together.iter().for_each(|request| request.gave_up(0));
        assert_eq!(seconds(&pace), 4.0);
        pace.begin("GET x".into(), pace.patience(MOST)).gave_up(0);
        let slow = pace.begin("GET x".into(), pace.patience(MOST));
        pass(&hand, 3.0);
        slow.answered(0, 200);
        assert_eq!(seconds(&pace), 24.0);
        (0..60).for_each(|_| pace.begin("GET x".into(), MOST).answered(0, 200));
        assert_eq!(seconds(&pace), 2.0);
        assert_eq!(pace.patience(Duration::from_secs(1)), Duration::from_secs(1));
    }

    /// Times at which requests begin that are given up one after another.
    #[test]
    fn a_call_of_thirty_seconds_outlives_an_outage_of_twenty() {
        let (_hand, pace) = pace();
        let mut begun = vec![0.0];
        while *begun.last().unwrap() < 30.0 {
            let request = pace.begin("GET x".into(), pace.patience(MOST));
            begun.push(begun.last().unwrap() + seconds(&pace));
            request.gave_up(0);
        }
        assert_eq!(begun, [0.0, 2.0, 6.0, 14.0, 24.0, 36.5]);
    }

    #[test]
    fn the_unanswered_request_is_told() {
        let (hand, pace) = pace();
        assert_eq!(pace.unanswered(), None);
        let first = pace.begin("PUT /wal/1".into(), MOST);
        let _second = pace.begin("GET /wal/2".into(), MOST);
        assert_eq!(pace.unanswered(), None);
        pass(&hand, 1.5);
        assert_eq!(pace.unanswered().as_deref(), Some("PUT /wal/1, for 1.5 s"));
        first.gave_up(10);
        drop((first, _second));
        assert_eq!(pace.unanswered().as_deref(), Some("PUT /wal/1"));
        pace.begin("GET /wal/1".into(), MOST).answered(0, 200);
        assert_eq!(pace.unanswered().as_deref(), Some("PUT /wal/1"));
        pace.begin("PUT /wal/1".into(), MOST).answered(10, 200);
        assert_eq!(pace.unanswered(), None);
    }

    #[test]
    fn a_refused_request_is_told_until_one_of_its_method_succeeds() {
        let (hand, pace) = pace();
        let old = pace.begin("GET /list".into(), MOST);
        pass(&hand, 1.0);
        pace.begin("PUT /manifest/2".into(), MOST).answered(10, 503);
        let told = "PUT /manifest/2, refused with status 503";
        assert_eq!(pace.unanswered().as_deref(), Some(told));
        drop(old);
        pace.begin("GET /manifest/2".into(), MOST).answered(0, 404);
        assert_eq!(pace.unanswered().as_deref(), Some(told));
        // A request that began later and waits still is what holds up the callers.
        pass(&hand, 0.1);
        let later = pace.begin("PUT /manifest/2".into(), MOST);
        pass(&hand, 0.5);
        assert_eq!(pace.unanswered().as_deref(), Some("PUT /manifest/2, for 0.5 s"));
        later.answered(10, 412);
        drop(later);
        assert_eq!(pace.unanswered(), None);
    }

    #[test]
    fn a_store_that_was_reached_is_not_unreachable() {
        let (_, pace) = pace();
        pace.begin("GET x".into(), MOST).not_connected("refused".into());
        assert_eq!(pace.unreachable().as_deref(), Some("refused"));
        pace.begin("GET x".into(), MOST).answered(0, 200);
        pace.begin("GET x".into(), MOST).not_connected("refused".into());
        assert_eq!(pace.unreachable(), None);
    }

    #[test]
    fn bytes_go_out_as_fast_as_they_did() {
        let (hand, measured) = pace();
        let (_, pace) = pace();
        // The first lost request is repeated soon, and a slow one gets more time each time.
        let guessed = |bytes| pace.sending(bytes, MOST).as_secs_f64();
        assert!((2.0..2.1).contains(&guessed(8 << 20)));
        pace.begin("PUT x".into(), MOST).gave_up(1);
        assert!((2.0..2.1).contains(&guessed(8 << 20)));
        pace.begin("PUT x".into(), MOST).gave_up(8 << 20);
        assert!((8.0..8.1).contains(&guessed(8 << 20)));
        let part = measured.begin("PUT x".into(), MOST);
        pass(&hand, 0.1);
        part.answered(1 << 20, 200);
        let eight = measured.sending(8 << 20, MOST).as_secs_f64();
        assert!((6.0..6.5).contains(&eight), "{eight}");
    }
}
