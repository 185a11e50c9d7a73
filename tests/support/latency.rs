//! A store with the latency of an object store, by the clock of the given environment: in a
//! simulation no real time passes.
//!
//! Latency is a floor and, above it, a lognormal part: real ones have a hard minimum (the way there
//! and back) and a long tail. With `median` and `sigma` of the lognormal part a quantile is
//! `floor + median * exp(sigma * z)`, `z` the normal distribution's (0, 1.28, 2.33 for p50, p90,
//! p99):
//!
//! ```text
//!         floor  median  sigma     p50  p90  p99 (ms)   measured at one region of a large provider
//! GET        19       6   1.05      25   42   88         24-25  33-47  77-98, minimum 19
//! PUT        20       8   0.80      28   42   71         28-29  35-40  67-81, minimum 20
//! LIST       17       8   0.70      25   37   58         25     31-33  59-63, minimum 17
//! ```
//! Bytes add their share of 50 MiB/s, the speed of one stream of such a store.

use crate::sim::Rng;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use siltstone::env::Clock;
use siltstone::store::counting::{CountingStore, Requests};
use siltstone::store::{Listed, PutAnswer, Store, TaggedBytes, Upload};
use siltstone_base::{ObjectName, Result};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Bytes per second of one request.
const STREAM_BYTES_PER_SECOND: f64 = 50.0 * 1024.0 * 1024.0;

/// The latency of one kind of request.
#[derive(Clone, Copy, Debug)]
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
    pub const fn fixed(latency: Duration) -> Latency {
        Latency { floor: latency, median: Duration::ZERO, sigma: 0.0 }
    }

    fn draw(&self, rng: &mut Rng) -> Duration {
        self.floor + self.median.mul_f64((self.sigma * normal(rng)).exp())
    }
}

/// A draw from the normal distribution (G. Box, M. Muller, *A Note on the Generation of Random
/// Normal Deviates*, 1958).
fn normal(rng: &mut Rng) -> f64 {
    // In (0, 1]: the logarithm of zero is undefined.
    let mut uniform = || ((rng.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
    let (radius, angle) = (uniform(), uniform());
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

/// The latencies of a store.
#[derive(Clone, Copy, Debug)]
pub struct Latencies {
    /// Reads.
    pub get: Latency,
    /// Creates, and the end of an upload.
    pub put: Latency,
    /// Listings and deletes.
    pub list: Latency,
    /// Whether bytes take time as well.
    pub bandwidth: bool,
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

impl Latencies {
    /// A large provider's standard store, used from its own region.
    #[must_use]
    pub const fn standard() -> Latencies {
        Latencies {
            get: Latency { floor: millis(19), median: millis(6), sigma: 1.05 },
            put: Latency { floor: millis(20), median: millis(8), sigma: 0.80 },
            list: Latency { floor: millis(17), median: millis(8), sigma: 0.70 },
            bandwidth: true,
        }
    }

    /// Its medians without their spread and independent of the bytes: the clock shows every wave of
    /// requests.
    #[must_use]
    pub const fn fixed() -> Latencies {
        Latencies {
            get: Latency::fixed(millis(25)),
            put: Latency::fixed(millis(28)),
            list: Latency::fixed(millis(25)),
            bandwidth: false,
        }
    }
}

struct Slow {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    latencies: Latencies,
    rng: Mutex<Rng>,
}

/// `store`, delayed by `latencies` by `clock`, and the number of requests that reach it.
#[must_use]
pub fn slow(
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    latencies: Latencies,
    seed: u64,
) -> (Arc<dyn Store>, Arc<Requests>) {
    let slow = Slow { store, clock, latencies, rng: Mutex::new(Rng::new(seed)) };
    CountingStore::wrap(Arc::new(slow))
}

impl Slow {
    fn pass(&self, latency: Latency, bytes: usize) -> BoxFuture<'static, ()> {
        let mut drawn = latency.draw(&mut self.rng.lock());
        if self.latencies.bandwidth {
            drawn += Duration::from_secs_f64(bytes as f64 / STREAM_BYTES_PER_SECOND);
        }
        self.clock.sleep(drawn)
    }
}

impl fmt::Debug for Slow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

/// Without `get_now`: nothing arrives over a network immediately.
impl Store for Slow {
    fn get(
        &self,
        name: ObjectName,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'_, Result<Option<Bytes>>> {
        async move {
            let found = self.store.get(name, range).await;
            let bytes = found.as_ref().ok().and_then(Option::as_ref).map_or(0, Bytes::len);
            self.pass(self.latencies.get, bytes).await;
            found
        }
        .boxed()
    }

    fn get_tagged(&self, name: ObjectName) -> BoxFuture<'_, Result<Option<TaggedBytes>>> {
        async move {
            let found = self.store.get_tagged(name).await;
            let bytes = found.as_ref().ok().and_then(Option::as_ref).map_or(0, |(it, _)| it.len());
            self.pass(self.latencies.get, bytes).await;
            found
        }
        .boxed()
    }

    fn put_if_absent(&self, name: ObjectName, bytes: Bytes) -> BoxFuture<'_, PutAnswer> {
        async move {
            self.pass(self.latencies.put, bytes.len()).await;
            self.store.put_if_absent(name, bytes).await
        }
        .boxed()
    }

    fn upload(&self, name: ObjectName) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        async move {
            let upload = self.store.upload(name).await?;
            let wait = self.pass(self.latencies.put, 0);
            let slow: Box<dyn Upload> = Box::new(SlowUpload { upload, wait });
            Ok(slow)
        }
        .boxed()
    }

    fn list(
        &self,
        prefix: &'static str,
        after: Option<ObjectName>,
    ) -> BoxFuture<'_, Result<Vec<Listed>>> {
        async move {
            let listed = self.store.list(prefix, after).await;
            self.pass(self.latencies.list, 0).await;
            listed
        }
        .boxed()
    }

    fn delete(&self, name: ObjectName) -> BoxFuture<'_, Result<()>> {
        async move {
            self.pass(self.latencies.list, 0).await;
            self.store.delete(name).await
        }
        .boxed()
    }
}

/// Takes one PUT in total, from its beginning on.
struct SlowUpload {
    upload: Box<dyn Upload>,
    wait: BoxFuture<'static, ()>,
}

impl Upload for SlowUpload {
    siltstone::store::passed_on!(upload: write, abort);

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        async move {
            self.wait.await;
            self.upload.finish().await
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_table() {
        let mut rng = Rng::new(1);
        let Latencies { get, put, list, .. } = Latencies::standard();
        for (latency, expected) in [(get, [25, 42, 88]), (put, [28, 42, 71]), (list, [25, 37, 58])]
        {
            let mut drawn: Vec<Duration> = (0..20_000).map(|_| latency.draw(&mut rng)).collect();
            drawn.sort_unstable();
            for (part, expected) in [50, 90, 99].into_iter().zip(expected) {
                let quantile = drawn[drawn.len() * part / 100].as_secs_f64() * 1000.0;
                let off = (quantile - f64::from(expected)).abs() / f64::from(expected);
                assert!(off < 0.05, "p{part}: {quantile} ms, {expected} expected");
            }
            assert!(drawn[0] >= latency.floor);
        }
    }
}
