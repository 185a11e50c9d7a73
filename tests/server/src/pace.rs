//! How fast the server is: latency by kind of request, and one pipe for all bytes.
//!
//! Latency is a floor and, above it, a lognormal part, as real stores have it: with `median` and
//! `sigma` of that part a quantile is `floor + median * exp(sigma * z)`. A share of the requests
//! can take a fixed longer time.

use crate::call::Kind;
use crate::random::Random;
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// The latency of one class of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latency {
    /// The minimum.
    pub floor: Duration,
    /// Median of the additional time.
    pub median: Duration,
    /// Spread of the additional time: the standard deviation of its logarithm.
    pub sigma: f64,
}

impl Latency {
    /// Always the same.
    #[must_use]
    pub const fn fixed(millis: u64) -> Latency {
        Latency { floor: Duration::from_millis(millis), median: Duration::ZERO, sigma: 0.0 }
    }

    const fn spread(floor: u64, median: u64, sigma: f64) -> Latency {
        let median = Duration::from_millis(median);
        Latency { floor: Duration::from_millis(floor), median, sigma }
    }
}

/// The latencies of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LatencyModel {
    /// GET and HEAD.
    pub get: Latency,
    /// Everything that writes.
    pub put: Latency,
    /// Listings.
    pub list: Latency,
    /// The share of requests that take `tail` instead.
    pub tail_share: f64,
    /// The time of those requests.
    pub tail: Duration,
}

impl LatencyModel {
    /// 25 ms per read and listing, 28 ms per write.
    #[must_use]
    pub const fn fixed() -> LatencyModel {
        let (get, list) = (Latency::fixed(25), Latency::fixed(25));
        LatencyModel { get, put: Latency::fixed(28), list, tail_share: 0.0, tail: Duration::ZERO }
    }

    /// The distributions of a large provider's standard store in its own region: p50, p90 and p99
    /// of a GET are 25, 42 and 88 ms, of a PUT 28, 42 and 71 ms, of a listing 25, 37 and 58 ms.
    #[must_use]
    pub const fn standard() -> LatencyModel {
        LatencyModel {
            get: Latency::spread(19, 6, 1.05),
            put: Latency::spread(20, 8, 0.80),
            list: Latency::spread(17, 8, 0.70),
            tail_share: 0.0,
            tail: Duration::ZERO,
        }
    }

    /// With a share of the requests that take `millis`.
    #[must_use]
    pub const fn with_tail(mut self, share: f64, millis: u64) -> LatencyModel {
        self.tail_share = share;
        self.tail = Duration::from_millis(millis);
        self
    }

    fn draw(&self, kind: Kind, random: &mut Random) -> Duration {
        if self.tail_share > 0.0 && random.share() < self.tail_share {
            return self.tail;
        }
        let latency = match kind {
            Kind::Get | Kind::Head => self.get,
            Kind::List | Kind::ListUploads => self.list,
            _ => self.put,
        };
        if latency.median.is_zero() {
            return latency.floor;
        }
        latency.floor + latency.median.mul_f64((latency.sigma * random.normal()).exp())
    }
}

/// Bytes per second; `None` for as many as the machine can.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bandwidth {
    /// Bandwidth of all connections together, in each direction.
    pub shared: Option<u64>,
    /// Bandwidth of one request.
    pub single: Option<u64>,
}

/// When the bytes of a pipe have passed.
#[derive(Debug, Default)]
struct Pipe(Mutex<Option<Instant>>);

impl Pipe {
    /// Takes the next place for `bytes`, and returns when they have passed.
    fn pass(&self, bytes: usize, rate: u64) -> Instant {
        let mut free = self.0.lock();
        let now = Instant::now();
        let start = free.map_or(now, |free| free.max(now));
        let end = start + Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
        *free = Some(end);
        end
    }
}

#[derive(Debug)]
struct PaceState {
    model: LatencyModel,
    bandwidth: Bandwidth,
    random: Random,
}

/// The pace of a server, which may change while it runs.
#[derive(Debug)]
pub(crate) struct Pace {
    state: Mutex<PaceState>,
    inward: Pipe,
    outward: Pipe,
}

/// Whether bytes come to the server or leave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    In,
    Out,
}

impl Pace {
    pub(crate) fn new(model: LatencyModel, bandwidth: Bandwidth, seed: u64) -> Pace {
        let state = PaceState { model, bandwidth, random: Random::new(seed) };
        Pace { state: Mutex::new(state), inward: Pipe::default(), outward: Pipe::default() }
    }

    pub(crate) fn change(&self, model: LatencyModel, bandwidth: Bandwidth) {
        let mut state = self.state.lock();
        (state.model, state.bandwidth) = (model, bandwidth);
    }

    /// The latency of one request.
    pub(crate) fn latency(&self, kind: Kind) -> Duration {
        let state = &mut *self.state.lock();
        state.model.draw(kind, &mut state.random)
    }

    /// Whether bytes take time.
    pub(crate) fn is_limited(&self) -> bool {
        self.state.lock().bandwidth != Bandwidth::default()
    }

    /// When `bytes` of a request have passed. The last bytes of it passed at `last`.
    pub(crate) fn passed(&self, bytes: usize, last: Instant, direction: Direction) -> Instant {
        let bandwidth = self.state.lock().bandwidth;
        let pipe = if direction == Direction::In { &self.inward } else { &self.outward };
        let shared = bandwidth.shared.map(|rate| pipe.pass(bytes, rate));
        let single = bandwidth
            .single
            .map(|rate| last + Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64));
        [Some(Instant::now()), shared, single].into_iter().flatten().max().unwrap_or(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_model() {
        let (mut random, model) = (Random::new(1), LatencyModel::standard());
        for (kind, expected) in
            [(Kind::Get, [25, 42, 88]), (Kind::Put, [28, 42, 71]), (Kind::List, [25, 37, 58])]
        {
            let mut drawn: Vec<_> = (0..20_000).map(|_| model.draw(kind, &mut random)).collect();
            drawn.sort_unstable();
            for (part, expected) in [50, 90, 99].into_iter().zip(expected) {
                let quantile = drawn[drawn.len() * part / 100].as_secs_f64() * 1000.0;
                let off = (quantile - f64::from(expected)).abs() / f64::from(expected);
                assert!(off < 0.05, "{kind} p{part}: {quantile} ms, {expected} expected");
            }
        }
    }

    #[test]
    fn the_tail_has_its_share() {
        let (mut random, model) = (Random::new(2), LatencyModel::fixed().with_tail(0.01, 500));
        let drawn = (0..20_000).map(|_| model.draw(Kind::Get, &mut random));
        let slow = drawn.filter(|latency| latency.as_millis() == 500).count();
        assert!((150..=250).contains(&slow), "{slow} of 20000");
    }

    #[test]
    fn requests_share_a_pipe() {
        let bandwidth = Bandwidth { shared: Some(1000), single: None };
        let pace = Pace::new(LatencyModel::default(), bandwidth, 0);
        let began = Instant::now();
        for _ in 0..4 {
            pace.passed(250, began, Direction::Out);
        }
        let inward = pace.passed(500, began, Direction::In) - began;
        let outward = pace.passed(1000, began, Direction::Out) - began;
        assert!((0.5..0.6).contains(&inward.as_secs_f64()), "{inward:?}");
        assert!((2.0..2.1).contains(&outward.as_secs_f64()), "{outward:?}");
    }
}
