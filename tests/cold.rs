//! The cost of a distant store: requests are counted, and waits measured by a virtual clock.
//!
//! Every number here is guaranteed by RFC 0011: one GET for a cold get whose table's metadata is in
//! memory and two otherwise, two for a short cold scan, one PUT for a durable put, shared PUTs for
//! many waiters, and no request at all while nothing happens.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test reports, and stops at what it did not expect"
)]

use siltstone::store::Store;
use siltstone::store::counting::{RequestTotals, Requests};
use siltstone::store::memory::MemoryStore;
use siltstone::{
    Accept, Batch, Codec, Commit, CompactionOptions, Database, Env, FillOutcome, OpenOptions,
    Options, Reader, ReaderOptions, Rows, ScanRange, Writes,
};
use siltstone_base::ObjectName;
use siltstone_tests::latency::{Latencies, slow};
use siltstone_tests::recording::{Recorded, RecordingStore, Request};
use siltstone_tests::sim::{Sim, SimHandle};
use std::sync::Arc;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// Tables whose sizes follow from their rows.
fn plain() -> Options {
    Options { compression: Some(Codec::None), ..Options::default() }
}

/// A process on a slow store, in virtual time.
struct World {
    env: Env,
    requests: Arc<Requests>,
}

impl World {
    async fn open(&self, options: Options) -> Database {
        let how = OpenOptions { options, ..OpenOptions::default() };
        Database::open(self.env.clone(), how).await.unwrap()
    }

    /// The requests of `work`, and how long it took.
    async fn measured<T>(&self, work: impl Future<Output = T>) -> (T, RequestTotals, Duration) {
        let (before, began) = (self.requests.totals(), self.env.clock.monotonic());
        let done = work.await;
        let (after, ended) = (self.requests.totals(), self.env.clock.monotonic());
        let requests = RequestTotals {
            gets: after.gets - before.gets,
            puts: after.puts - before.puts,
            lists: after.lists - before.lists,
            deletes: after.deletes - before.deletes,
            upload_chunks: after.upload_chunks - before.upload_chunks,
            bytes_read: after.bytes_read - before.bytes_read,
            bytes_written: after.bytes_written - before.bytes_written,
            failed: after.failed - before.failed,
            transient: after.transient - before.transient,
            hedged: after.hedged - before.hedged,
        };
        (done, requests, ended - began)
    }
}

/// Runs `story` in a separate world.
fn tell<F: Future<Output = ()> + Send + 'static>(
    latencies: Latencies,
    story: impl FnOnce(Arc<World>, SimHandle) -> F,
) {
    let sim = Sim::new(11);
    let process = sim.process("writer", 0);
    let clock = Arc::clone(&sim.effects(process).clock);
    let (store, requests) = slow(MemoryStore::unnamed(), clock, latencies, 5);
    let world = Arc::new(World { env: sim.env(process, store), requests });
    let story = story(world, (*sim).clone());
    sim.block_on(process, story).expect("the story ends");
}

fn key(n: u64) -> [u8; 16] {
    let mut key = [b'k'; 16];
    key[8..].copy_from_slice(&n.to_be_bytes());
    key
}

fn accepted(accept: siltstone::Result<Accept>) -> Commit {
    match accept.unwrap() {
        Accept::Accepted(commit) => commit,
        Accept::Pressure(_) => panic!("there is room"),
    }
}

/// Writes the rows `n` of `rows` that belong to `layer` of `layers`, in a separate table.
async fn flush_layer(db: &Database, rows: u64, layer: u64, layers: u64) {
    let mut batch = Batch::new();
    for n in (0..rows).filter(|n| n % layers == layer) {
        batch.put(&key(n), &[layer as u8; 100], None).unwrap();
    }
    accepted(db.write(&batch));
    db.flush_memtable().await.unwrap();
}

async fn loaded(world: &World, rows: u64, layers: u64) {
    let db = world.open(Options::default()).await;
    for layer in 0..layers {
        flush_layer(&db, rows, layer, layers).await;
    }
    db.close().await.unwrap();
}

async fn get(db: &Database, n: u64) -> Option<usize> {
    db.get(&key(n)).unwrap().wait().await.unwrap().map(|value| value.len())
}

async fn scan(db: &Database, range: ScanRange) -> usize {
    scan_rows(db, range, 1000).await
}

async fn scan_rows(db: &Database, range: ScanRange, most: usize) -> usize {
    let mut scan = db.scan(range).unwrap();
    let mut rows = Rows::new();
    while scan.fill(&mut rows, most, usize::MAX).unwrap() == FillOutcome::NeedsBlocks {
        scan.fetch().await.unwrap();
    }
    rows.len()
}

/// The time of these round trips one after another: reads and listings, and creates.
fn waits(reads: u32, creates: u32) -> Duration {
    Duration::from_millis(25) * reads + Duration::from_millis(28) * creates
}

/// Requests that may be sent beside each other are. A second create of the fence, which must be
/// refused, is beside the last listing.
#[test]
fn opening_a_writer_takes_few_round_trips() {
    tell(Latencies::fixed(), async |world, _| {
        // Is there a database? Its first manifest, the check of its slot; claim, check; fence,
        // confirmation.
        let (db, cost, took) = world.measured(world.open(Options::default())).await;
        assert_eq!(took, waits(3, 4), "a first open: {cost:?}");
        db.close().await.unwrap();
        // The newest manifest; claim, check; fence, confirmation.
        let (db, cost, took) = world.measured(world.open(Options::default())).await;
        assert_eq!(took, waits(3, 3), "nothing was written: {cost:?}");
        db.close().await.unwrap();
        loaded(&world, 100, 1).await;
        let (db, cost, took) = world.measured(world.open(Options::default())).await;
        assert_eq!(took, waits(3, 3), "closed cleanly: {cost:?}");
        assert_eq!((cost.lists, cost.puts), (4, 3), "{cost:?}");
        db.close().await.unwrap();
    });
}

#[test]
fn opening_a_reader_takes_few_round_trips() {
    tell(Latencies::fixed(), async |world, _| {
        let open = async || {
            let opened = Reader::open(world.env.clone(), ReaderOptions::default());
            let (reader, cost, took) = world.measured(opened).await;
            (reader.unwrap(), cost, took)
        };
        // The newest manifest, the beginning and the end of the log, its listing; a lease and the
        // check of its slot.
        world.open(Options::default()).await.close().await.unwrap();
        let (first, cost, took) = open().await;
        assert_eq!(took, waits(5, 1), "the first lease: {cost:?}");
        let (second, cost, took) = open().await;
        assert_eq!(took, waits(4, 0), "nothing was written: {cost:?}");
        loaded(&world, 100, 1).await;
        let (third, ..) = open().await;
        let (fourth, cost, took) = open().await;
        assert_eq!(took, waits(4, 0), "closed cleanly: {cost:?}");
        for reader in [first, second, third, fourth] {
            reader.close().await.unwrap();
        }
    });
}

fn ten_from(n: u64) -> ScanRange {
    ScanRange { start: Some(key(n).to_vec()), limit: Some(10), ..ScanRange::all() }
}

#[test]
fn a_cold_get_is_two_requests_and_one_once_metadata_is_there() {
    tell(Latencies::fixed(), async |world, _| {
        loaded(&world, 5000, 1).await;
        let db = world.open(Options::default()).await;
        let (found, cold, took) = world.measured(get(&db, 7)).await;
        assert_eq!((found, cold.gets, cold.lists), (Some(100), 2, 0));
        assert_eq!(took, Duration::from_millis(50));
        let (found, with_metadata, took) = world.measured(get(&db, 4000)).await;
        assert_eq!((found, with_metadata.gets, with_metadata.lists), (Some(100), 1, 0));
        assert_eq!(took, Duration::from_millis(25));
        let (found, warm, took) = world.measured(get(&db, 4000)).await;
        assert_eq!((found, warm.gets, took), (Some(100), 0, Duration::ZERO));
    });
}

/// For any number of layers that may contain the key: all missing blocks are requested at once.
#[test]
fn a_cold_get_over_many_layers_is_two_waves() {
    tell(Latencies::fixed(), async |world, _| {
        loaded(&world, 5000, 6).await;
        let db = world.open(Options::default()).await;
        // The oldest layer has it; the filters of the others exclude it, except for a false
        // positive.
        let (found, cold, took) = world.measured(get(&db, 6)).await;
        assert_eq!((found, took), (Some(100), Duration::from_millis(50)));
        assert!((7..=8).contains(&cold.gets), "{cold:?}");
        let keys: Vec<_> = (0..600).map(|n| key(n * 8)).collect();
        let many = async { db.get_many(keys).unwrap().wait().await.unwrap() };
        let (found, _, took) = world.measured(many).await;
        assert!(found.iter().all(Option::is_some));
        assert_eq!(took, Duration::from_millis(25));
    });
}

#[test]
fn a_short_cold_scan_is_two_requests_wherever_it_starts() {
    tell(Latencies::fixed(), async |world, _| {
        loaded(&world, 1000, 1).await;
        // Every position in a block, in particular its end.
        for start in (0..950).step_by(7) {
            let db = world.open(Options::default()).await;
            let (rows, cold, took) = world.measured(scan(&db, ten_from(start))).await;
            assert_eq!((rows, cold.gets, cold.lists), (10, 2, 0), "from {start}");
            assert_eq!(took, Duration::from_millis(50), "from {start}");
            let reverse = ScanRange {
                end: Some(key(start).to_vec()),
                limit: Some(10),
                reverse: true,
                ..ScanRange::all()
            };
            let (rows, with_metadata, _) = world.measured(scan(&db, reverse)).await;
            assert_eq!(rows as u64, start.min(10));
            assert!(with_metadata.gets <= 1, "down from {start}: {with_metadata:?}");
            db.close().await.unwrap();
        }
    });
}

/// The defaults, for a writer that does not look for ingest jobs: remaining requests have another
/// reason (`tests/gc/rest.rs` counts the looks).
fn without_polls() -> Options {
    let writes = Writes { ingest_poll_interval: None, ..Writes::default() };
    Options { writes, ..Options::default() }
}

#[test]
fn a_short_scan_with_metadata_in_memory_is_one_request() {
    tell(Latencies::fixed(), async |world, _| {
        loaded(&world, 1000, 1).await;
        let options = Options { block_cache_bytes: 0, ..without_polls() };
        let db = world.open(options).await;
        get(&db, 0).await;
        for start in 0..950 {
            let (rows, cold, _) = world.measured(scan(&db, ten_from(start))).await;
            assert_eq!((rows, cold.gets), (10, 1), "from {start}");
        }
    });
}

/// Once a scan has read three waves of a table, the next two are on their way while it uses up the
/// current one.
#[test]
fn a_long_scan_does_not_wait_for_each_wave() {
    tell(Latencies::fixed(), async |world, _| {
        let db = world.open(plain()).await;
        flush_layer(&db, 60_000, 0, 1).await;
        db.close().await.unwrap();
        for reverse in [false, true] {
            let db = world.open(plain()).await;
            get(&db, 0).await;
            let all = ScanRange { reverse, ..ScanRange::all() };
            let (rows, cold, took) = world.measured(scan_rows(&db, all, 60_001)).await;
            assert_eq!(rows, 60_000);
            let one_by_one = Duration::from_millis(25 * cold.gets)
                + Duration::from_secs_f64(cold.bytes_read as f64 / f64::from(50 << 20));
            assert!(cold.gets > 7, "{cold:?}");
            assert!(took < one_by_one * 6 / 10, "{took:?} of {one_by_one:?}: {cold:?}");
            db.close().await.unwrap();
        }
    });
}

/// A scan reads no block behind the end of its range, however far it reads ahead.
#[test]
fn a_scan_reads_no_further_than_its_range() {
    tell(Latencies::fixed(), async |world, _| {
        let db = world.open(plain()).await;
        flush_layer(&db, 60_000, 0, 1).await;
        db.close().await.unwrap();
        for reverse in [false, true] {
            let db = world.open(plain()).await;
            get(&db, 0).await;
            let (from, to) = (key(20_000).to_vec(), key(30_000).to_vec());
            let part = ScanRange { start: Some(from), end: Some(to), reverse, limit: None };
            let (rows, cold, _) = world.measured(scan_rows(&db, part, 60_001)).await;
            assert_eq!(rows, 10_000);
            let stored = 10_000 * 130;
            assert!(cold.bytes_read < stored, "{cold:?}, the rows have {stored}");
            db.close().await.unwrap();
        }
    });
}

/// Blocks of a long scan stay in the cache if there is room, so that the next one makes no request.
/// Otherwise they evict nothing that others had read before.
#[test]
fn a_long_scan_fills_what_room_the_cache_has() {
    tell(Latencies::fixed(), async |world, _| {
        let small = Options { block_bytes: 1000, ..Options::default() };
        let db = world.open(small).await;
        flush_layer(&db, 30_000, 0, 1).await;
        db.close().await.unwrap();
        let db = world.open(Options::default()).await;
        assert_eq!(scan_rows(&db, ScanRange::all(), 30_001).await, 30_000);
        let (rows, again, _) = world.measured(scan_rows(&db, ScanRange::all(), 30_001)).await;
        assert_eq!((rows, again.gets), (30_000, 0));
        let all = db.stats().block_cache_bytes;
        db.close().await.unwrap();

        let half = Options { block_cache_bytes: all as usize / 2, ..Options::default() };
        let db = world.open(half).await;
        scan(&db, ten_from(20_000)).await;
        for _ in 0..2 {
            assert_eq!(scan_rows(&db, ScanRange::all(), 30_001).await, 30_000);
            let (rows, kept, _) = world.measured(scan(&db, ten_from(20_000))).await;
            assert_eq!((rows, kept.gets), (10, 0));
        }
        assert!(db.stats().block_cache_bytes <= db.stats().block_cache_capacity);
        db.close().await.unwrap();
    });
}

/// For any number of tables in a run: tables that a scan does not reach are not opened.
#[test]
fn a_short_cold_scan_of_a_long_run_opens_one_table() {
    tell(Latencies::fixed(), async |world, _| {
        let compaction = CompactionOptions {
            target_sst_bytes: 10_000,
            min_move_bytes: 0,
            ..CompactionOptions::default()
        };
        let options = Options { compaction, block_bytes: 1000, ..plain() };
        let db = world.open(options).await;
        for layer in 0..2 {
            flush_layer(&db, 3000, layer, 2).await;
        }
        db.compact().await.unwrap();
        assert!(db.stats().tables > 20, "{}", db.stats().tables);
        db.close().await.unwrap();
        for start in [0, 700, 1500] {
            let db = world.open(Options::default()).await;
            let (rows, cold, took) = world.measured(scan(&db, ten_from(start))).await;
            assert_eq!(rows, 10);
            // If ten rows are in two tables, the second one is opened as well.
            assert!((2..=4).contains(&cold.gets), "from {start}: {cold:?}");
            assert!(took <= Duration::from_millis(100), "from {start}: {took:?}");
            for reverse in [true, false] {
                let all = ScanRange { reverse, ..ScanRange::all() };
                let mut whole = db.scan(all).unwrap();
                let mut keys: Vec<Vec<u8>> = Vec::new();
                let mut take = |key: &[u8], _: &[u8]| {
                    keys.push(key.to_vec());
                    Ok(true)
                };
                while whole.each(&mut take).unwrap() == FillOutcome::NeedsBlocks {
                    whole.fetch().await.unwrap();
                }
                if reverse {
                    keys.reverse();
                }
                assert!(keys.is_sorted_by(|low, high| low < high));
                assert_eq!(keys.len(), 3000, "reverse: {reverse}");
            }
            db.close().await.unwrap();
        }
    });
}

/// One PUT and nothing else: no tick, for any `flush_interval`, and no second round trip.
#[test]
fn a_durable_put_is_one_put() {
    tell(Latencies::fixed(), async |world, _| {
        let db = world.open(Options { flush_interval: HOUR, ..Options::default() }).await;
        for n in 0..200 {
            let put = accepted(db.put(&key(n), b"value", None));
            let (waited, requests, took) = world.measured(put.wait(None)).await;
            waited.unwrap();
            assert_eq!((requests.puts, took), (1, Duration::from_millis(28)));
        }
    });
}

#[test]
fn half_of_the_durable_puts_take_less_than_thirteen_tenths_of_a_put() {
    tell(Latencies::standard(), async |world, _| {
        let db = world.open(Options::default()).await;
        let mut waits = Vec::new();
        for n in 0..400 {
            let put = accepted(db.put(&key(n), b"value", None));
            let (waited, _, took) = world.measured(put.wait(None)).await;
            waited.unwrap();
            waits.push(took);
        }
        waits.sort_unstable();
        let (p50, p99) = (waits[200], waits[396]);
        println!("durable put: p50 {p50:?}, p99 {p99:?}");
        assert!(p50 <= Duration::from_micros(36_400), "{p50:?}");
    });
}

#[test]
fn sixty_four_waiters_share_puts() {
    const WAITERS: u64 = 64;
    const EACH: u64 = 100;
    tell(Latencies::standard(), async |world, sim| {
        let db = Arc::new(world.open(Options { flush_interval: HOUR, ..Options::default() }).await);
        let writers = async {
            let waiters: Vec<_> = (0..WAITERS)
                .map(|waiter| {
                    let (done, wait) = futures::channel::oneshot::channel();
                    let db = Arc::clone(&db);
                    let process = sim.process("unused", 0);
                    sim.spawn(process, "waiter", async move {
                        for n in 0..EACH {
                            let put = accepted(db.put(&key(waiter * EACH + n), b"value", None));
                            put.wait(None).await.unwrap();
                        }
                        done.send(()).unwrap();
                    });
                    wait
                })
                .collect();
            for waiter in waiters {
                waiter.await.unwrap();
            }
        };
        let ((), requests, took) = world.measured(writers).await;
        let rate = (WAITERS * EACH) as f64 / took.as_secs_f64();
        println!("64 waiters: {rate:.0} durable puts/s, {} PUTs", requests.puts);
        assert!(rate >= 1000.0, "{rate:.0}/s");
        assert!(requests.puts * 4 <= WAITERS * EACH, "{requests:?}");
    });
}

#[test]
fn an_idle_database_asks_nothing() {
    tell(Latencies::standard(), async |world, _| {
        let db = world.open(without_polls()).await;
        accepted(db.put(&key(1), b"value", None)).wait(None).await.unwrap();
        world.env.clock.sleep(Duration::from_secs(2)).await;
        let ((), requests, _) = world.measured(world.env.clock.sleep(HOUR / 6)).await;
        assert_eq!(requests, RequestTotals::default());
        get(&db, 1).await;
    });
}

/// Rule F7 under load: mostly one GET per look, and one look in sixteen a listing.
#[test]
fn a_writer_under_load_looks_up_cheaply() {
    tell(Latencies::standard(), async |world, _| {
        let db = world.open(Options::default()).await;
        let load = async {
            for n in 0..2000 {
                accepted(db.put(&key(n), b"value", None)).wait(None).await.unwrap();
                world.env.clock.sleep(Duration::from_millis(20)).await;
            }
        };
        let ((), requests, took) = world.measured(load).await;
        let seconds = took.as_secs();
        println!("{seconds} s of load: {requests:?}");
        assert!(requests.gets + requests.lists >= seconds * 9 / 10, "{requests:?}");
        assert!(requests.gets + requests.lists <= seconds * 12 / 10, "{requests:?}");
        assert!(requests.lists * 14 <= seconds, "{requests:?}");
    });
}

/// Layers of L0 that share their keys, and the seconds that a major compaction of them takes.
async fn compacted_in(world: &World, compaction: CompactionOptions) -> (f64, RequestTotals) {
    let compaction =
        CompactionOptions { target_sst_bytes: 100_000, min_move_bytes: 0, ..compaction };
    let options = Options { compaction, embedded_compactor: false, ..plain() };
    let db = world.open(options).await;
    for layer in 0..4 {
        flush_layer(&db, 8000, layer, 4).await;
    }
    let (done, requests, took) = world.measured(db.compact()).await;
    assert!(done.unwrap());
    let all = ScanRange { limit: Some(8000), ..ScanRange::all() };
    assert_eq!(scan(&db, all).await, 1000, "a batch of them");
    db.close().await.unwrap();
    (took.as_secs_f64(), requests)
}

/// All ranges of a job together stay within the rate, counting bytes read and written.
#[test]
fn a_compaction_keeps_to_its_rate() {
    for ranges in [1, 3] {
        tell(Latencies::fixed(), async move |world, _| {
            let limited = CompactionOptions {
                compaction_ranges: Some(ranges),
                compaction_bytes_per_second: Some(100_000),
                ..CompactionOptions::default()
            };
            let (took, requests) = compacted_in(&world, limited).await;
            let bytes = (requests.bytes_read + requests.bytes_written) as f64;
            let rate = bytes / took;
            assert!((70_000.0..=112_000.0).contains(&rate), "{ranges}: {bytes} in {took}, {rate}");
        });
    }
}

/// At most one finished table is not in the record (a resumed job makes it again), and its record
/// is not awaited: the next table is in progress by then.
#[test]
fn a_table_is_recorded_before_the_next_one_is_completed() {
    tell(Latencies::fixed(), async |world, _| {
        let recording = RecordingStore::new(Arc::clone(&world.env.store));
        let store: Arc<dyn Store> = Arc::<RecordingStore>::clone(&recording);
        let env = Env { store, ..world.env.clone() };
        let world = World { env, requests: Arc::clone(&world.requests) };
        let one = CompactionOptions { compaction_ranges: Some(1), ..CompactionOptions::default() };
        compacted_in(&world, one).await;
        let log = recording.take();
        // Flushed tables come before the job's start, its own after that.
        let started = log.iter().position(is_record).unwrap();
        let begins = |one: &Recorded| {
            matches!(one, Recorded::Asked(Request::Upload(ObjectName::Compacted(_))))
        };
        let first = started + log[started..].iter().position(begins).unwrap();
        let (mut recorded, mut begun, mut completed, mut overlapping) = (0, 0, 0, 0);
        for one in &log[first..] {
            if is_record(one) {
                recorded += 1;
            } else if begins(one) {
                overlapping += usize::from(recorded < begun);
                begun += 1;
            } else if let Recorded::Asked(Request::Finish(ObjectName::Compacted(_))) = one {
                assert!(recorded >= completed, "{completed} are complete, {recorded} recorded");
                completed += 1;
            }
        }
        assert!(completed > 5 && begun == completed, "{begun}, {completed}");
        assert_eq!(overlapping, begun - 1, "each but the first begins before the last record");
    });
}

/// Whether a record of jobs was created.
fn is_record(recorded: &Recorded) -> bool {
    matches!(recorded, Recorded::Answered(Request::Put(ObjectName::Compactions(_), _)))
}

#[test]
fn a_compaction_that_waits_for_its_rate_ends_with_the_handle() {
    tell(Latencies::fixed(), async |world, _| {
        let compaction = CompactionOptions {
            compaction_bytes_per_second: Some(1000),
            ..CompactionOptions::default()
        };
        let options = Options { compaction, embedded_compactor: false, ..Options::default() };
        let db = Arc::new(world.open(options).await);
        for layer in 0..4 {
            flush_layer(&db, 40_000, layer, 4).await;
        }
        let compacting = db.compact();
        let closing = async {
            world.env.clock.sleep(Duration::from_secs(5)).await;
            world.measured(db.close()).await
        };
        let (compacted, (closed, _, took)) = futures::future::join(compacting, closing).await;
        closed.unwrap();
        assert_eq!(compacted.unwrap_err().kind(), siltstone::ErrorKind::Closed);
        assert!(took < Duration::from_secs(2), "{took:?}");
    });
}
