//! Spans without a value, which scans find and later scans seek past (RFC 0056): no row is ever
//! hidden by one, and a scan reads nothing of it twice.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test reports, and stops at what it did not expect"
)]

use proptest::collection::vec;
use proptest::prelude::*;
use siltstone::store::memory::MemoryStore;
use siltstone::tables::{Duplicates, LoadOptions, RowBatch};
use siltstone::{
    Accept, Batch, Database, Env, FillOutcome, Isolation, OpenOptions, Options, Reader,
    ReaderOptions, Rows, Scan, ScanRange, UnixMillis, built_in_operator, task,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Keys of the random histories. Spans of at least 64 entries are remembered.
const KEYS: u32 = 500;

fn key(k: u32) -> Vec<u8> {
    format!("{k:06}").into_bytes()
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn memory(runtime: &Runtime) -> Env {
    task::tokio_env(runtime.handle().clone(), MemoryStore::unnamed())
}

fn how(options: Options) -> OpenOptions {
    let merge_operator = built_in_operator("append");
    OpenOptions { options, merge_operator, ..OpenOptions::default() }
}

/// Without a block cache, so that a scan that passes entries asks for their blocks.
fn uncached() -> Options {
    Options {
        flush_interval: Duration::from_secs(3600),
        block_cache_bytes: 0,
        block_bytes: 512,
        ..Options::default()
    }
}

async fn write(db: &Database, batch: &Batch) {
    loop {
        match db.write(batch).unwrap() {
            Accept::Accepted(_) => return,
            Accept::Pressure(relief) => relief.await.unwrap(),
        }
    }
}

async fn rows_of(mut scan: Scan) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    let mut rows = Rows::new();
    loop {
        let filled = scan.fill(&mut rows, 100, 10_000).unwrap();
        for row in 0..rows.len() {
            let (key, value) = rows.row(row).unwrap();
            all.push((key.to_vec(), value.to_vec()));
        }
        rows.clear();
        match filled {
            FillOutcome::Full => {}
            FillOutcome::NeedsBlocks => scan.fetch().await.unwrap(),
            FillOutcome::End => return all,
        }
    }
}

/// Checks that a scan gives the rows of a map, and reports the first difference.
fn check_rows(rows: &[(Vec<u8>, Vec<u8>)], map: &Map, range: &ScanRange, of: &str) {
    let wanted = expected(map, range);
    let at = (0..rows.len().max(wanted.len())).find(|at| rows.get(*at) != wanted.get(*at));
    if let Some(at) = at {
        let text = |row: Option<&(Vec<u8>, Vec<u8>)>| {
            row.map(|(key, value)| format!("{} = {}", key.escape_ascii(), value.escape_ascii()))
        };
        let (got, wanted) = (text(rows.get(at)), text(wanted.get(at)));
        panic!("row {at} of {of}, {range:?}: {got:?} instead of {wanted:?}");
    }
}

fn expected(map: &Map, range: &ScanRange) -> Vec<(Vec<u8>, Vec<u8>)> {
    let inside = |key: &Vec<u8>| {
        range.start.as_ref().is_none_or(|start| start <= key)
            && range.end.as_ref().is_none_or(|end| key < end)
    };
    let mut rows: Vec<_> =
        map.iter().filter(|(k, _)| inside(k)).map(|(k, v)| (k.clone(), v.clone())).collect();
    if range.reverse {
        rows.reverse();
    }
    rows.truncate(usize::try_from(range.limit.unwrap_or(u64::MAX)).unwrap_or(usize::MAX));
    rows
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Put(u32),
    PutMany(u32, u32),
    Delete(u32),
    DeleteMany(u32, u32),
    DeleteRange(u32, u32),
    Expired(u32, u32),
    Merge(u32),
    Scan(ScanOf),
    Snapshot,
    ScanSnapshots(ScanOf),
    /// Scans of a transaction that puts single keys and deletes some.
    Transaction(u32, u32, ScanOf),
    Flush,
    Compact,
    Load(u32),
    Reader(ScanOf),
}

/// The row of a load.
struct LoadedRow(Vec<u8>);

impl RowBatch for LoadedRow {
    fn rows(&self) -> usize {
        1
    }

    fn row(&self, _row: usize) -> (&[u8], &[u8]) {
        (&self.0, b"loaded")
    }

    fn bytes(&self) -> usize {
        self.0.len() + 6
    }
}

#[derive(Clone, Copy, Debug)]
struct ScanOf {
    start: Option<u32>,
    end: Option<u32>,
    reverse: bool,
    limit: Option<u64>,
}

impl ScanOf {
    fn range(self) -> ScanRange {
        let ScanOf { start, end, reverse, limit } = self;
        ScanRange { start: start.map(key), end: end.map(key), reverse, limit }
    }
}

fn scans() -> impl Strategy<Value = ScanOf> {
    let bound = || prop::option::of(0..KEYS);
    (bound(), bound(), any::<bool>(), prop::option::of(1u64..4))
        .prop_map(|(start, end, reverse, limit)| ScanOf { start, end, reverse, limit })
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let long = || (0..KEYS, 60u32..300);
    let op = prop_oneof![
        6 => (0..KEYS).prop_map(Op::Put),
        3 => long().prop_map(|(k, n)| Op::PutMany(k, n)),
        4 => (0..KEYS).prop_map(Op::Delete),
        6 => long().prop_map(|(k, n)| Op::DeleteMany(k, n)),
        1 => long().prop_map(|(k, n)| Op::DeleteRange(k, n)),
        1 => long().prop_map(|(k, n)| Op::Expired(k, n)),
        2 => (0..KEYS).prop_map(Op::Merge),
        12 => scans().prop_map(Op::Scan),
        2 => Just(Op::Snapshot),
        4 => scans().prop_map(Op::ScanSnapshots),
        4 => (0..KEYS, 0..KEYS, scans()).prop_map(|(k, d, scan)| Op::Transaction(k, d, scan)),
        2 => Just(Op::Flush),
        1 => Just(Op::Compact),
        1 => (0..KEYS).prop_map(Op::Load),
        1 => scans().prop_map(Op::Reader),
    ];
    vec(op, 1..60)
}

struct World {
    env: Env,
    db: Database,
    map: Map,
    snapshots: Vec<(siltstone::Snapshot, Map)>,
    written: u64,
}

impl World {
    async fn change(&mut self, keys: impl Iterator<Item = u32>, put: bool) {
        let mut batch = Batch::new();
        for k in keys.filter(|k| *k < KEYS) {
            self.written += 1;
            let value = self.written.to_string().into_bytes();
            if put {
                batch.put(&key(k), &value, None).unwrap();
                self.map.insert(key(k), value);
            } else {
                batch.delete(&key(k)).unwrap();
                self.map.remove(&key(k));
            }
        }
        if !batch.is_empty() {
            write(&self.db, &batch).await;
        }
    }

    async fn check(&self, scan: ScanOf) {
        // The second scan knows what the first one has found.
        for _ in 0..2 {
            let rows = rows_of(self.db.scan(scan.range()).unwrap()).await;
            check_rows(&rows, &self.map, &scan.range(), "the database");
        }
    }

    async fn transaction(&self, put: u32, delete: u32, scan: ScanOf) {
        let transaction = self.db.transaction(Isolation::Snapshot).unwrap();
        // Before the transaction has writes of its own, it may leave what it finds.
        let all = ScanRange { reverse: scan.reverse, ..ScanRange::all() };
        let rows = rows_of(transaction.scan(all.clone()).unwrap()).await;
        check_rows(&rows, &self.map, &all, "a new transaction");
        let mut map = self.map.clone();
        for k in delete..(delete + 100).min(KEYS) {
            transaction.delete(&key(k)).unwrap();
            map.remove(&key(k));
        }
        transaction.put(&key(put), b"own", None).unwrap();
        map.insert(key(put), b"own".to_vec());
        // Spans of the scans end where a later write of the transaction puts a row, and where a
        // rollback brings one back.
        let savepoint = transaction.savepoint().unwrap();
        let before = map.clone();
        for (k, back) in [(delete.midpoint(put), false), (delete + 50, false), (put + 1, true)] {
            for _ in 0..2 {
                let rows = rows_of(transaction.scan(scan.range()).unwrap()).await;
                check_rows(&rows, &map, &scan.range(), "a transaction");
            }
            for gone in delete + 100..(delete + 200).min(KEYS) {
                transaction.delete(&key(gone)).unwrap();
                map.remove(&key(gone));
            }
            if back {
                transaction.rollback_to(&savepoint).unwrap();
                map.clone_from(&before);
            }
            transaction.put(&key(k), b"later", None).unwrap();
            map.insert(key(k), b"later".to_vec());
        }
        for _ in 0..2 {
            let rows = rows_of(transaction.scan(scan.range()).unwrap()).await;
            check_rows(&rows, &map, &scan.range(), "a transaction");
        }
        transaction.rollback();
        self.check(scan).await;
    }

    async fn load(&mut self, k: u32) {
        let mut load = self
            .db
            .begin_load(LoadOptions {
                sorted: true,
                duplicates: Duplicates::KeepLast,
                memory_bytes: 1 << 20,
                scratch: std::env::temp_dir(),
                table_bytes: 1 << 20,
            })
            .await
            .unwrap();
        load.loader().unwrap().push(Arc::new(LoadedRow(key(k)))).await.unwrap();
        load.finish().await.unwrap();
        self.map.insert(key(k), b"loaded".to_vec());
    }

    async fn run(&mut self, op: Op) {
        match op {
            Op::Put(k) => self.change(k..k + 1, true).await,
            Op::PutMany(k, n) => self.change(k..k + n, true).await,
            Op::Delete(k) => self.change(k..k + 1, false).await,
            Op::DeleteMany(k, n) => self.change(k..k + n, false).await,
            Op::DeleteRange(k, n) => {
                let mut batch = Batch::new();
                batch.delete_range(&key(k), &key(k + n)).unwrap();
                write(&self.db, &batch).await;
                self.map.retain(|one, _| *one < key(k) || *one >= key(k + n));
            }
            Op::Expired(k, n) => {
                let mut batch = Batch::new();
                for k in k..(k + n).min(KEYS) {
                    batch.put(&key(k), b"expired", Some(UnixMillis(1))).unwrap();
                    self.map.remove(&key(k));
                }
                write(&self.db, &batch).await;
            }
            Op::Merge(k) => {
                let mut batch = Batch::new();
                batch.merge(&key(k), b"+", None).unwrap();
                write(&self.db, &batch).await;
                self.map.entry(key(k)).or_default().push(b'+');
            }
            Op::Scan(scan) => self.check(scan).await,
            Op::Snapshot => {
                self.snapshots.push((self.db.snapshot().unwrap(), self.map.clone()));
            }
            Op::ScanSnapshots(scan) => {
                for (snapshot, map) in &self.snapshots {
                    let rows = rows_of(snapshot.scan(scan.range())).await;
                    check_rows(&rows, map, &scan.range(), "a snapshot");
                }
                self.check(scan).await;
            }
            Op::Transaction(put, delete, scan) => self.transaction(put, delete, scan).await,
            Op::Flush => self.db.flush_memtable().await.unwrap(),
            Op::Compact => drop(self.db.compact().await.unwrap()),
            Op::Load(k) => self.load(k).await,
            Op::Reader(scan) => {
                self.db.flush().await.unwrap();
                let options = ReaderOptions { options: uncached(), ..ReaderOptions::default() };
                let merge_operator = built_in_operator("append");
                let options = ReaderOptions { merge_operator, ..options };
                let reader = Reader::open(self.env.clone(), options).await.unwrap();
                for _ in 0..2 {
                    let rows = rows_of(reader.scan(scan.range()).unwrap()).await;
                    check_rows(&rows, &self.map, &scan.range(), "a reader");
                }
                reader.close().await.unwrap();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Every scan equals that of an ordered map, for all that scans before it have found.
    #[test]
    fn no_span_hides_a_row(ops in ops()) {
        let runtime = runtime();
        let env = memory(&runtime);
        runtime.block_on(async {
            let db = Database::open(env.clone(), how(uncached())).await.unwrap();
            let (map, snapshots) = (Map::new(), Vec::new());
            let mut world = World { env, db, map, snapshots, written: 0 };
            for op in ops {
                world.run(op).await;
            }
            for reverse in [false, true] {
                let all = ScanOf { start: None, end: None, reverse, limit: None };
                world.run(Op::ScanSnapshots(all)).await;
            }
            world.db.close().await.unwrap();
        });
    }
}

const DELETED: u32 = 20_000;

/// A database with a flushed queue: the first rows are deleted, the next one is there.
async fn queue(env: Env) -> Database {
    let db = Database::open(env, how(uncached())).await.unwrap();
    for deleted in [false, true] {
        let mut batch = Batch::new();
        for k in 0..DELETED {
            if deleted {
                batch.delete(&key(k)).unwrap();
            } else {
                batch.put(&key(k), &[7; 40], None).unwrap();
            }
        }
        batch.put(&key(DELETED), b"next", None).unwrap();
        write(&db, &batch).await;
        db.flush_memtable().await.unwrap();
    }
    db
}

/// The first row of a scan, and the GETs that it took.
async fn first(db: &Database, range: ScanRange) -> (Option<Vec<u8>>, u64) {
    let before = db.stats().get_requests;
    let rows = rows_of(db.scan(ScanRange { limit: Some(1), ..range }).unwrap()).await;
    (rows.into_iter().next().map(|(key, _)| key), db.stats().get_requests - before)
}

#[test]
fn a_second_seek_reads_nothing_of_the_deleted_rows() {
    let runtime = runtime();
    let env = memory(&runtime);
    runtime.block_on(async {
        let db = queue(env).await;
        let (row, gets) = first(&db, ScanRange::all()).await;
        assert_eq!(row, Some(key(DELETED)));
        assert!(gets > 16, "{gets} GETs: the first scan passes all entries");
        for start in [0, 1, 900, DELETED - 1] {
            let range = ScanRange { start: Some(key(start)), ..ScanRange::all() };
            let (row, gets) = first(&db, range).await;
            assert_eq!(row, Some(key(DELETED)));
            assert!(gets <= 4, "{gets} GETs from {start}: one block of each table, and read-ahead");
        }
        // The same from above, with the span that a forward scan has found.
        let before = ScanRange { end: Some(key(DELETED)), reverse: true, ..ScanRange::all() };
        assert_eq!(first(&db, before).await, (None, 0));
        // A scan that comes upon the span in its middle.
        let mut batch = Batch::new();
        batch.put(b"!", b"first", None).unwrap();
        write(&db, &batch).await;
        let before = db.stats().get_requests;
        let range = ScanRange { limit: Some(2), ..ScanRange::all() };
        let rows = rows_of(db.scan(range).unwrap()).await;
        assert_eq!(
            rows.iter().map(|row| row.0.clone()).collect::<Vec<_>>(),
            [b"!".to_vec(), key(DELETED)]
        );
        let gets = db.stats().get_requests - before;
        assert!(gets <= 16, "{gets} GETs: a few blocks until the span is noticed");
        db.close().await.unwrap();
    });
}

/// A queue: the first row is read and deleted, again and again. The deleted rows grow in number,
/// and no read gets dearer.
#[test]
fn reading_a_queue_stays_cheap() {
    let runtime = runtime();
    let env = memory(&runtime);
    runtime.block_on(async {
        let db = queue(env).await;
        let mut batch = Batch::new();
        for k in 0..1_000 {
            batch.put(&key(DELETED + k), b"row", None).unwrap();
        }
        write(&db, &batch).await;
        first(&db, ScanRange::all()).await;
        let before = db.stats().get_requests;
        for k in 0..1_000 {
            let (row, _) = first(&db, ScanRange::all()).await;
            assert_eq!(row, Some(key(DELETED + k)));
            let mut batch = Batch::new();
            batch.delete(&key(DELETED + k)).unwrap();
            write(&db, &batch).await;
        }
        assert_eq!(first(&db, ScanRange::all()).await.0, None);
        let gets = db.stats().get_requests - before;
        assert!(gets <= 2 * 1_001, "{gets} GETs for 1,000 rows");
        // A row that comes into the empty queue is found at once.
        let mut batch = Batch::new();
        batch.put(&key(77), b"new", None).unwrap();
        write(&db, &batch).await;
        assert_eq!(first(&db, ScanRange::all()).await.0, Some(key(77)));
        db.close().await.unwrap();
    });
}

/// The same within one transaction, whose deletes no other view sees.
#[test]
fn reading_a_queue_in_a_transaction_stays_cheap() {
    let runtime = runtime();
    let env = memory(&runtime);
    runtime.block_on(async {
        let db = Database::open(env, how(uncached())).await.unwrap();
        let mut batch = Batch::new();
        for k in 0..2_001 {
            batch.put(&key(k), &[7; 40], None).unwrap();
        }
        write(&db, &batch).await;
        db.flush_memtable().await.unwrap();
        let transaction = db.transaction(Isolation::Serializable).unwrap();
        let before = db.stats().get_requests;
        for k in 0..2_000 {
            let next = ScanRange { limit: Some(1), ..ScanRange::all() };
            let rows = rows_of(transaction.scan(next).unwrap()).await;
            assert_eq!(rows.first().map(|row| &row.0), Some(&key(k)));
            transaction.delete(&key(k)).unwrap();
        }
        let gets = db.stats().get_requests - before;
        assert!(gets <= 3 * 2_000, "{gets} GETs for 2,000 rows");
        transaction.rollback();
        assert_eq!(first(&db, ScanRange::all()).await.0, Some(key(0)));
        db.close().await.unwrap();
    });
}

/// A row is loaded into a span that is known: it has a sequence number, but is in no memtable.
#[test]
fn an_ingest_behind_a_span_is_seen() {
    let runtime = runtime();
    let env = memory(&runtime);
    runtime.block_on(async {
        let db = queue(env.clone()).await;
        first(&db, ScanRange::all()).await;
        let (map, snapshots) = (Map::new(), Vec::new());
        let mut world = World { env, db, map, snapshots, written: 0 };
        world.load(500).await;
        assert_eq!(first(&world.db, ScanRange::all()).await.0, Some(key(500)));
        world.db.close().await.unwrap();
    });
}
