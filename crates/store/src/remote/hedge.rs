//! Hedged requests: a request whose answer is late is sent a second time, and the first answer
//! counts (Dean and Barroso, "The Tail at Scale", 2013).
//!
//! ```text
//! sent again after   3 times the 95th percentile of the recent response times, at least 100 ms
//! budget             1 in 20 requests, of which 10 may come together
//! ```
//! Only reads and short creates are hedged. A second create has the same bytes and the same attempt
//! id, so both copies make the same object, and a copy that finds it is told by that id (rule M1).
//! A store that is slow as a whole spends the budget and then gets each request once.

use crate::sent::SentKind;
use parking_lot::Mutex;
use std::time::Duration;

/// Longer bodies take bandwidth, and their time depends on it.
const LONGEST_BODY: u64 = 64 << 10;
/// No request is hedged earlier: pauses of a busy machine are no reason.
const LEAST_DELAY: Duration = Duration::from_millis(100);
/// Factor on the percentile.
const SLACK: f64 = 3.0;
/// Response times that must be known before a request is hedged.
const LEAST_SAMPLES: u32 = 20;
/// The budget is counted in parts of a hedge: each request earns one, and a hedge takes so many.
const PARTS: u32 = 20;
/// Most parts that are saved up.
const MOST_PARTS: u32 = 10 * PARTS;

/// The steps of the percentile on a response time above and below it. They balance where 1 of 20
/// is above: `0.19 / 20 = 0.01 * 19 / 20`.
const STEP_UP: f64 = 0.19;
const STEP_DOWN: f64 = 0.01;

/// Recent response times of one kind of requests.
#[derive(Clone, Copy, Debug, Default)]
struct ResponseTimes {
    /// The 95th percentile, in seconds.
    high: f64,
    samples: u32,
}

impl ResponseTimes {
    fn add(&mut self, took: Duration) {
        let took = took.as_secs_f64();
        self.high = match self.samples {
            0 => took,
            _ if took > self.high => self.high * (1.0 + STEP_UP),
            _ => self.high * (1.0 - STEP_DOWN),
        };
        self.samples = self.samples.saturating_add(1);
    }

    fn delay(&self) -> Option<Duration> {
        let delay = Duration::try_from_secs_f64(self.high * SLACK).ok()?;
        (self.samples >= LEAST_SAMPLES).then_some(delay.max(LEAST_DELAY))
    }
}

/// When requests of one store are hedged, shared by all of its clients.
#[derive(Debug, Default)]
pub(super) struct Hedges {
    known: Mutex<HedgesKnown>,
}

#[derive(Debug, Default)]
struct HedgesKnown {
    gets: ResponseTimes,
    puts: ResponseTimes,
    parts: u32,
}

impl HedgesKnown {
    fn of(&mut self, kind: SentKind) -> Option<&mut ResponseTimes> {
        match kind {
            SentKind::Get => Some(&mut self.gets),
            SentKind::Put => Some(&mut self.puts),
            SentKind::List | SentKind::Delete | SentKind::Chunk => None,
        }
    }
}

impl Hedges {
    /// The time after which a request with a body of `bytes` is sent again; `None` if never.
    pub(super) fn delay(&self, kind: SentKind, bytes: u64) -> Option<Duration> {
        let mut known = self.known.lock();
        known.parts = (known.parts + 1).min(MOST_PARTS);
        let times = known.of(kind)?;
        if bytes <= LONGEST_BODY { times.delay() } else { None }
    }

    /// Takes one hedge from the budget; whether there was one.
    pub(super) fn take(&self) -> bool {
        let mut known = self.known.lock();
        let left = known.parts.checked_sub(PARTS);
        known.parts = left.unwrap_or(known.parts);
        left.is_some()
    }

    /// Records the time until the head of an answer.
    pub(super) fn answered(&self, kind: SentKind, bytes: u64, took: Duration) {
        let mut known = self.known.lock();
        if bytes <= LONGEST_BODY
            && let Some(times) = known.of(kind)
        {
            times.add(took);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(hedges: &Hedges, millis: u64) {
        for _ in 0..400 {
            hedges.answered(SentKind::Get, 0, Duration::from_millis(millis));
        }
    }

    #[test]
    fn the_delay_follows_the_slow_answers_and_not_the_slowest() {
        let hedges = Hedges::default();
        assert_eq!(hedges.delay(SentKind::Get, 0), None);
        for at in 0..20_000_u64 {
            let tail = if at % 100 == 0 { 5000 } else { 0 };
            let spread = at * 7919 % 20;
            hedges.answered(SentKind::Get, 0, Duration::from_millis(90 + spread + tail));
        }
        let delay = hedges.delay(SentKind::Get, 0).unwrap();
        // The 95th percentile is 109 ms.
        assert!((280..420).contains(&delay.as_millis()), "{delay:?}");
        assert_eq!(hedges.delay(SentKind::Put, 0), None);
        assert_eq!(hedges.delay(SentKind::List, 0), None);
        assert_eq!(hedges.delay(SentKind::Get, LONGEST_BODY + 1), None);
    }

    #[test]
    fn a_fast_store_is_not_hedged_for_a_pause_of_the_machine() {
        let hedges = Hedges::default();
        settled(&hedges, 1);
        assert_eq!(hedges.delay(SentKind::Get, 0), Some(LEAST_DELAY));
    }

    #[test]
    fn one_request_in_twenty_is_hedged_in_the_long_run() {
        let hedges = Hedges::default();
        settled(&hedges, 200);
        let mut taken = 0;
        for _ in 0..10_000 {
            hedges.delay(SentKind::Get, 0);
            taken += u32::from(hedges.take());
        }
        assert!((490..=510).contains(&taken), "{taken}");
        // The saved budget is spent immediately, and no more.
        for _ in 0..10_000 {
            hedges.delay(SentKind::Get, 0);
        }
        let burst = (0..1000).filter(|_| hedges.take()).count();
        assert_eq!(burst, 10);
    }
}
