//! Measures the engine over the S3 server of the tests with the latency of a real store, in real
//! time: `make stores-bench`. Each line shows a figure beside its bound.

use siltstone::{
    Accept, Batch, Codec, Database, Env, FillOutcome, OpenOptions, Options, Reader, ReaderOptions,
    Rows, ScanRange, task,
};
use siltstone_test_server::client::Client;
use siltstone_test_server::log::{LogEntry, round_trips};
use siltstone_test_server::pace::{Bandwidth, LatencyModel};
use siltstone_test_server::{Kind, ServerConfig, TestServer};
use siltstone_tests::s3_server;
use siltstone_tests::sim::Rng;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// A server, a client's runtime, and a place in the server.
struct Bench {
    server: TestServer,
    runtime: Runtime,
}

impl Bench {
    fn new() -> Bench {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        Bench { server: s3_server::start(ServerConfig::default()), runtime }
    }

    fn env(&self) -> Env {
        let effects = task::tokio_effects(self.runtime.handle().clone());
        effects.clone().with_store(s3_server::store(&self.server, "db", &effects))
    }

    fn open(&self) -> Database {
        self.open_with(false)
    }

    fn open_with(&self, embedded_compactor: bool) -> Database {
        let options = Options {
            block_cache_bytes: 0,
            embedded_compactor,
            embedded_gc: false,
            compression: Some(Codec::None),
            ..Options::default()
        };
        let how = OpenOptions { options, ..OpenOptions::default() };
        self.runtime.block_on(Database::open(self.env(), how)).unwrap()
    }

    fn slow(&self, latency: LatencyModel) {
        self.server.set_pace(latency, Bandwidth::default());
        self.server.log().clear();
    }

    fn fast(&self) {
        self.slow(LatencyModel::default());
    }

    /// Writes rows of random bytes, in tables. Many tables need a compactor beside.
    fn load(&self, rows: u64, value_bytes: usize) {
        let db = self.open_with(true);
        let mut rng = Rng::new(7);
        let mut value = vec![0; value_bytes];
        let mut batch = Batch::new();
        for n in 0..rows {
            value.chunks_mut(8).for_each(|part| {
                let drawn = rng.next_u64().to_be_bytes();
                part.copy_from_slice(&drawn[..part.len()]);
            });
            batch.put(&key(n), &value, None).unwrap();
            if batch.as_bytes().len() > 1 << 20 || n + 1 == rows {
                self.write(&db, &batch);
                batch = Batch::new();
            }
        }
        self.runtime.block_on(db.flush_memtable()).unwrap();
        self.runtime.block_on(db.close()).unwrap();
    }

    fn write(&self, db: &Database, batch: &Batch) {
        loop {
            match db.write(batch).unwrap() {
                Accept::Accepted(_) => return,
                Accept::Pressure(wait) => self.runtime.block_on(wait).unwrap(),
            }
        }
    }

    fn get(&self, db: &Database, n: u64) -> Duration {
        let began = Instant::now();
        let found = self.runtime.block_on(async { db.get(&key(n))?.wait().await }).unwrap();
        assert!(found.is_some(), "{n}");
        began.elapsed()
    }
}

fn key(n: u64) -> [u8; 16] {
    let mut key = [b'k'; 16];
    key[8..].copy_from_slice(&n.to_be_bytes());
    key
}

/// The quantile of times, in milliseconds.
fn quantile(times: &mut [Duration], share: f64) -> f64 {
    times.sort_unstable();
    let at = ((times.len() as f64 * share).ceil() as usize).clamp(1, times.len()) - 1;
    times[at].as_secs_f64() * 1000.0
}

fn told(name: &str, figure: f64, bound: &str) {
    println!("{name:<52} {figure:>9.2}   {bound}");
}

/// The median of small requests by a plain client: what one request costs here.
fn request_millis(bench: &Bench, method: &str, count: u64) -> Vec<Duration> {
    let mut client = Client::connect(bench.server.address()).unwrap();
    let one = |n: u64| {
        let began = Instant::now();
        client.send(method, &format!("/quarry/plain/{n}"), &[], b"small").unwrap();
        began.elapsed()
    };
    (0..count).map(one).collect()
}

#[test]
#[ignore = "a bench"]
fn durable_puts() {
    let bench = Bench::new();
    let db = bench.open();
    bench.slow(LatencyModel::fixed());
    let plain = quantile(&mut request_millis(&bench, "PUT", 100), 0.5);
    let mut times: Vec<Duration> = (0..200u64)
        .map(|n| {
            let began = Instant::now();
            let Accept::Accepted(commit) = db.put(&key(n), b"value", None).unwrap() else {
                panic!("there is room")
            };
            bench.runtime.block_on(commit.wait(None)).unwrap();
            began.elapsed()
        })
        .collect();
    let median = quantile(&mut times, 0.5);
    told("durable put, p50 in ms", median, "");
    told("durable put, p50 in PUTs (28 ms)", median / 28.0, "");
    told("durable put, p50 in PUTs of a plain client", median / plain, "at most 1.1");
}

#[test]
#[ignore = "a bench"]
fn cold_gets() {
    let bench = Bench::new();
    bench.load(20_000, 100);
    let db = bench.open();
    bench.slow(LatencyModel::fixed());
    bench.get(&db, 0);
    told("first get of a table, GETs", bench.server.log().count(Kind::Get) as f64, "2 (metadata)");
    bench.server.log().clear();
    let mut times: Vec<Duration> = (1..101).map(|n| bench.get(&db, n * 190)).collect();
    let gets = bench.server.log().count(Kind::Get) as f64 / 100.0;
    told("cold get, GETs", gets, "1");
    told("cold get, p50 in ms", quantile(&mut times, 0.5), "");
}

#[test]
#[ignore = "a bench"]
fn a_tail_of_slow_gets() {
    const GETS: u64 = 2000;
    let bench = Bench::new();
    bench.load(20_000, 100);
    let db = bench.open();
    bench.get(&db, 0);
    request_millis(&bench, "PUT", GETS);
    bench.slow(LatencyModel::fixed().with_tail(0.01, 500));
    let mut plain = request_millis(&bench, "GET", GETS);
    bench.server.log().clear();
    let mut hedged: Vec<Duration> = (0..GETS).map(|n| bench.get(&db, n * 7 % 20_000)).collect();
    let sent = bench.server.log().count(Kind::Get) as f64 / GETS as f64;
    for share in [0.5, 0.99, 0.995] {
        let (with, without) = (quantile(&mut hedged, share), quantile(&mut plain, share));
        told(&format!("cold get under the tail, p{} in ms", share * 100.0), with, "");
        told("  the same without hedging", without, "");
        told("  ratio", with / without, if share > 0.9 { "at most 0.7" } else { "" });
    }
    told("GETs for each get", sent, "at most 1.05");
}

#[test]
#[ignore = "a bench"]
fn a_scan_at_the_bandwidth() {
    const RATE: u64 = 125_000_000;
    let bytes = setting("SCAN_BYTES", 1 << 30);
    let bench = Bench::new();
    bench.load(bytes / 1016, 1000);
    let db = bench.open();
    let bandwidth = Bandwidth { shared: Some(RATE), single: None };
    bench.server.set_pace(LatencyModel::fixed(), bandwidth);
    bench.server.log().clear();
    let began = Instant::now();
    let (mut seen, mut count) = (0, 0);
    bench.runtime.block_on(async {
        let mut scan = db.scan(ScanRange::all()).unwrap();
        let mut rows = Rows::new();
        loop {
            let outcome = scan.fill(&mut rows, 10_000, usize::MAX).unwrap();
            (seen, count) = (seen + rows.bytes(), count + rows.len());
            rows.clear();
            match outcome {
                FillOutcome::NeedsBlocks => scan.fetch().await.unwrap(),
                FillOutcome::End => break,
                FillOutcome::Full => {}
            }
        }
    });
    let took = began.elapsed().as_secs_f64();
    assert_eq!(count as u64, bytes / 1016);
    told("rows scanned, in MB", seen as f64 / 1e6, "");
    let rate = seen as f64 / took;
    told("scan, MB/s", rate / 1e6, "");
    told("scan, share of the bandwidth (125 MB/s)", rate / RATE as f64, "at least 0.8");
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

fn tell_opening(name: &str, bound: usize, took: Duration, log: &[LogEntry]) {
    told(&format!("{name}, round trips"), round_trips(log) as f64, &format!("at most {bound}"));
    told("  in ms", took.as_secs_f64() * 1000.0, "");
    for entry in log {
        println!(
            "    {:>4}..{:>4} ms  {:<12} {:>3}  {}",
            entry.began.as_millis(),
            entry.ended.as_millis(),
            entry.kind,
            entry.status,
            entry.key
        );
    }
}

#[test]
#[ignore = "a bench"]
fn openings() {
    let bench = Bench::new();
    let opened = |name: &str, bound: usize, open: &dyn Fn() -> Box<dyn FnOnce()>| {
        bench.slow(LatencyModel::fixed());
        let began = Instant::now();
        let close = open();
        let took = began.elapsed();
        tell_opening(name, bound, took, &bench.server.log().take());
        bench.fast();
        close();
    };
    let writer = || -> Box<dyn FnOnce()> {
        let db = bench.open();
        let runtime = &bench.runtime;
        let (handle, kept) = (runtime.handle().clone(), db);
        Box::new(move || handle.block_on(kept.close()).unwrap())
    };
    opened("first open", 8, &writer);
    opened("open, new and empty", 6, &writer);
    bench.load(1000, 100);
    opened("open, cleanly closed", 6, &writer);
    let reader = || -> Box<dyn FnOnce()> {
        let how = ReaderOptions::default();
        let reader = bench.runtime.block_on(Reader::open(bench.env(), how)).unwrap();
        let handle = bench.runtime.handle().clone();
        Box::new(move || handle.block_on(reader.close()).unwrap())
    };
    opened("open a reader, first lease", 4, &reader);
    opened("open a reader", 4, &reader);
}
