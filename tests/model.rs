//! The engine compared with an ordered map: random operations, random small options, every result
//! compared, in the writer, in snapshots, after reopening, and in a reader.

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
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use siltstone::store::local::LocalStore;
use siltstone::store::memory::MemoryStore;
use siltstone::verify::verify;
use siltstone::{
    Accept, Batch, Codec, Commit, CompactionOptions, Database, Env, FillOutcome, OpenOptions,
    Options, Progress, Reader, ReaderOptions, Rows, Scan, ScanRange, SchedulerName, UnixMillis,
    built_in_operator, task,
};
use siltstone_tests::lending::LendingStore;
use siltstone_tests::moto::Moto;
use siltstone_tests::ranges;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Debug)]
enum Op {
    Put(u8, u8),
    Delete(u8),
    Batch(Vec<Write>),
    DeleteRange(u8, u8),
    Merge(u8, u8),
    Get(u8),
    GetMany(Vec<u8>),
    Scan(Option<u8>, Option<u8>, bool, Option<u64>),
    Snapshot,
    CheckSnapshots,
    Durable,
    FlushMemtable,
    Compact,
    Reopen,
    TakeOver,
    Reader,
    /// From now on two parts of every table, cut at a key, are side by side (RFC 0031).
    Halve(u8),
    /// From now on keys outside of a range are hidden.
    Cut(Option<u8>, Option<u8>),
}

/// One operation of a batch.
#[derive(Clone, Copy, Debug)]
enum Write {
    Put(u8, u8),
    Delete(u8),
    /// From one key to another, if they are in order.
    DeleteRange(u8, u8),
    Merge(u8, u8),
    /// A value that expired before it was written: equivalent to a tombstone.
    Expired(u8, u8),
    /// A value that outlives the test.
    Expiring(u8, u8),
}

fn writes() -> impl Strategy<Value = Write> {
    let pair = || (any::<u8>().prop_map(|k| k % 40), any::<u8>());
    prop_oneof![
        6 => pair().prop_map(|(k, v)| Write::Put(k, v)),
        3 => pair().prop_map(|(k, _)| Write::Delete(k)),
        2 => pair().prop_map(|(k, l)| Write::DeleteRange(k, l % 44)),
        2 => pair().prop_map(|(k, v)| Write::Merge(k, v)),
        1 => pair().prop_map(|(k, v)| Write::Expired(k, v)),
        1 => pair().prop_map(|(k, v)| Write::Expiring(k, v)),
    ]
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        8 => (any::<u8>(), any::<u8>()).prop_map(|(k, v)| Op::Put(k % 40, v)),
        3 => any::<u8>().prop_map(|k| Op::Delete(k % 40)),
        3 => vec(writes(), 0..12).prop_map(Op::Batch),
        2 => (any::<u8>(), any::<u8>()).prop_map(|(a, b)| Op::DeleteRange(a % 40, b % 44)),
        3 => (any::<u8>(), any::<u8>()).prop_map(|(k, v)| Op::Merge(k % 40, v)),
        4 => any::<u8>().prop_map(|k| Op::Get(k % 44)),
        2 => vec(any::<u8>().prop_map(|k| k % 44), 0..20).prop_map(Op::GetMany),
        4 => (any::<Option<u8>>(), any::<Option<u8>>(), any::<bool>(), prop::option::of(0u64..6))
            .prop_map(|(a, b, r, l)| Op::Scan(a.map(|k| k % 44), b.map(|k| k % 44), r, l)),
        1 => Just(Op::Snapshot),
        1 => Just(Op::CheckSnapshots),
        1 => Just(Op::Durable),
        2 => Just(Op::FlushMemtable),
        2 => Just(Op::Compact),
        1 => Just(Op::Reopen),
        1 => Just(Op::TakeOver),
        1 => Just(Op::Reader),
        1 => any::<u8>().prop_map(|k| Op::Halve(k % 44)),
        1 => (any::<u8>(), any::<u8>(), any::<bool>()).prop_map(|(a, b, both)| {
            // Little is cut off, otherwise little of most histories would be left.
            Op::Cut((a % 3 == 0).then_some(a % 8), both.then_some(30 + b % 14))
        }),
    ];
    vec(op, 1..80)
}

fn options() -> impl Strategy<Value = Options> {
    let codec = prop_oneof![Just(Codec::None), Just(Codec::Lz4), Just(Codec::Zstd)];
    // Caches that hold almost nothing, and caches that hold everything.
    let cache = prop_oneof![0usize..4096, Just(1 << 20)];
    let scheduler = prop_oneof![Just(SchedulerName::Tiered), Just(SchedulerName::LazyLeveled)];
    let shape = (500u64..3000, 0u64..2000, 1u64..9, scheduler, any::<bool>(), 1u64..5);
    (1024usize..4096, 64usize..600, codec, 0u32..12, cache, 1u64..5, shape).prop_map(
        |(l0, block, codec, bits, cache, window, shape)| {
            let (table, moved, threshold, scheduler, embedded, ranges) = shape;
            Options {
                embedded_compactor: embedded,
                compaction: CompactionOptions {
                    target_sst_bytes: table,
                    min_move_bytes: moved,
                    compaction_ranges: Some(ranges),
                    l0_compaction_threshold_ssts: threshold,
                    level_compaction_threshold_runs: 2,
                    compaction_scheduler: scheduler,
                    ..CompactionOptions::default()
                },
                l0_sst_size_bytes: l0,
                block_bytes: block,
                compression: Some(codec),
                filter_bits_per_key: bits,
                block_cache_bytes: cache,
                metadata_cache_bytes: cache,
                max_parallel_writes: window,
                flush_interval: Duration::from_millis(1),
                l0_manifest_commit_interval: Duration::ZERO,
                ..Options::default()
            }
        },
    )
}

/// Keys of several lengths that share prefixes.
fn key(k: u8) -> Vec<u8> {
    let mut key = b"key".to_vec();
    key.extend(std::iter::repeat_n(b'a' + k % 5, usize::from(k % 3)));
    key.push(k);
    key
}

fn value(v: u8) -> Vec<u8> {
    vec![v; usize::from(v) % 90]
}

async fn accepted(db: &Database, batch: &Batch) -> Commit {
    loop {
        match db.write(batch).unwrap() {
            Accept::Accepted(commit) => return commit,
            Accept::Pressure(relief) => relief.await.unwrap(),
        }
    }
}

async fn rows_of(mut scan: Scan) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    let mut rows = Rows::new();
    loop {
        let filled = scan.fill(&mut rows, 3, 100).unwrap();
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
    rows.truncate(range.limit.unwrap_or(u64::MAX).min(1 << 30) as usize);
    rows
}

struct World {
    env: Env,
    options: Options,
    db: Database,
    map: Map,
    snapshots: Vec<(siltstone::Snapshot, Map)>,
}

impl World {
    fn how(options: &Options) -> OpenOptions {
        let merge_operator = built_in_operator("append");
        OpenOptions { options: options.clone(), merge_operator, ..OpenOptions::default() }
    }

    async fn write(&mut self, writes: &[Write]) {
        let mut batch = Batch::new();
        for write in writes {
            match *write {
                Write::Put(k, v) => {
                    batch.put(&key(k), &value(v), None).unwrap();
                    self.map.insert(key(k), value(v));
                }
                Write::Expiring(k, v) => {
                    batch.put(&key(k), &value(v), Some(UnixMillis(u64::MAX))).unwrap();
                    self.map.insert(key(k), value(v));
                }
                Write::Expired(k, v) => {
                    batch.put(&key(k), &value(v), Some(UnixMillis(1))).unwrap();
                    self.map.remove(&key(k));
                }
                Write::Delete(k) => {
                    batch.delete(&key(k)).unwrap();
                    self.map.remove(&key(k));
                }
                Write::Merge(k, v) => {
                    batch.merge(&key(k), &[v], None).unwrap();
                    self.map.entry(key(k)).or_default().push(v);
                }
                Write::DeleteRange(from, to) => {
                    let (start, end) = (key(from), key(to));
                    if start < end {
                        batch.delete_range(&start, &end).unwrap();
                        self.map.retain(|key, _| *key < start || *key >= end);
                    } else {
                        // Out of order, only the first: to the last key.
                        batch.delete_from(&start).unwrap();
                        self.map.retain(|key, _| *key < start);
                    }
                }
            }
        }
        let commit = accepted(&self.db, &batch).await;
        assert_eq!(commit.seq(), self.db.snapshot().unwrap().seq());
    }

    async fn run(&mut self, op: &Op) {
        match op {
            Op::Put(k, v) => self.write(&[Write::Put(*k, *v)]).await,
            Op::Delete(k) => self.write(&[Write::Delete(*k)]).await,
            Op::DeleteRange(from, to) => self.write(&[Write::DeleteRange(*from, *to)]).await,
            Op::Merge(k, v) => self.write(&[Write::Merge(*k, *v)]).await,
            Op::Batch(writes) => self.write(writes).await,
            Op::Get(k) => {
                let got = self.db.get(&key(*k)).unwrap().wait().await.unwrap();
                assert_eq!(got.as_deref(), self.map.get(&key(*k)).map(Vec::as_slice));
            }
            Op::GetMany(ks) => {
                let keys: Vec<_> = ks.iter().map(|k| key(*k)).collect();
                let got = self.db.get_many(keys.clone()).unwrap().wait().await.unwrap();
                let want: Vec<_> = keys.iter().map(|k| self.map.get(k).cloned()).collect();
                assert_eq!(
                    got.iter().map(|v| v.as_deref().map(<[u8]>::to_vec)).collect::<Vec<_>>(),
                    want
                );
            }
            Op::Scan(start, end, reverse, limit) => {
                let range = ScanRange {
                    start: start.map(key),
                    end: end.map(key),
                    reverse: *reverse,
                    limit: *limit,
                };
                let got = rows_of(self.db.scan(range.clone()).unwrap()).await;
                assert_eq!(got, expected(&self.map, &range));
                // The tests' blocks are small, so that a part has a few of them.
                let mut in_parts = Vec::new();
                let parts = self.db.scan(range).unwrap().partition(100).await.unwrap();
                for part in parts {
                    in_parts.extend(rows_of(part).await);
                }
                // Parts have no separate limit: the caller that collects their rows stops there.
                in_parts.truncate(limit.map_or(usize::MAX, |limit| limit as usize));
                assert_eq!(in_parts, got);
            }
            Op::Snapshot => {
                self.snapshots.push((self.db.snapshot().unwrap(), self.map.clone()));
            }
            Op::CheckSnapshots => self.check_snapshots().await,
            Op::Durable => self.db.flush().await.unwrap(),
            Op::FlushMemtable => self.db.flush_memtable().await.unwrap(),
            Op::Compact => {
                self.db.compact().await.unwrap();
                // One run, without tombstones unless a snapshot needs them: there is nothing to
                // gain.
                let gained = self.db.compact().await.unwrap();
                assert!(!gained || !self.snapshots.is_empty());
            }
            Op::Reopen => {
                self.db.close().await.unwrap();
                let how = OpenOptions { take_over: Some(false), ..World::how(&self.options) };
                self.db = Database::open(self.env.clone(), how).await.unwrap();
            }
            Op::TakeOver => {
                self.db.flush().await.unwrap();
                let how = OpenOptions { take_over: Some(true), ..World::how(&self.options) };
                self.db = Database::open(self.env.clone(), how).await.unwrap();
            }
            Op::Reader => self.check_reader().await,
            Op::Halve(k) => self.halve(&key(*k)).await,
            Op::Cut(start, end) => self.cut(start.map(key), end.map(key)).await,
        }
    }

    async fn halve(&mut self, at: &[u8]) {
        self.db.close().await.unwrap();
        ranges::halve(&self.env, at).await.unwrap();
        self.db = Database::open(self.env.clone(), World::how(&self.options)).await.unwrap();
    }

    async fn cut(&mut self, start: Option<Vec<u8>>, end: Option<Vec<u8>>) {
        if start.as_ref().zip(end.as_ref()).is_some_and(|(start, end)| start >= end) {
            return;
        }
        self.db.close().await.unwrap();
        ranges::cut(&self.env, start.as_deref(), end.as_deref()).await.unwrap();
        let seen = |key: &Vec<u8>| {
            start.as_ref().is_none_or(|start| start <= key)
                && end.as_ref().is_none_or(|end| key < end)
        };
        self.map.retain(|key, _| seen(key));
        self.db = Database::open(self.env.clone(), World::how(&self.options)).await.unwrap();
    }

    async fn check_snapshots(&self) {
        for (snapshot, map) in &self.snapshots {
            for reverse in [false, true] {
                let range = ScanRange { reverse, ..ScanRange::all() };
                assert_eq!(rows_of(snapshot.scan(range.clone())).await, expected(map, &range));
            }
            for k in 0..44 {
                let got = snapshot.get(&key(k)).unwrap().wait().await.unwrap();
                assert_eq!(got.as_deref(), map.get(&key(k)).map(Vec::as_slice));
            }
            // Twice: the second time blocks are in memory, if the cache is large enough.
            for _ in 0..2 {
                let keys: Vec<_> = (0..44).map(key).collect();
                let got = snapshot.get_many(keys.clone()).unwrap().wait().await.unwrap();
                for (key, got) in keys.iter().zip(got) {
                    assert_eq!(got.as_deref(), map.get(key).map(Vec::as_slice), "{key:?}");
                }
            }
        }
    }

    async fn check_reader(&self) {
        self.db.flush().await.unwrap();
        let how = ReaderOptions { options: self.options.clone(), ..ReaderOptions::default() };
        let reader = Reader::open(self.env.clone(), how).await.unwrap();
        let got = rows_of(reader.scan(ScanRange::all()).unwrap()).await;
        assert_eq!(got, expected(&self.map, &ScanRange::all()));
        reader.close().await.unwrap();
    }
}

/// A workload on `env`, with every result compared.
async fn check(env: Env, ops: &[Op], options: Options) {
    let db = Database::open(env.clone(), World::how(&options)).await.unwrap();
    let mut world = World { env, options, db, map: Map::new(), snapshots: vec![] };
    for op in ops {
        world.run(op).await;
    }
    world.check_snapshots().await;
    world.run(&Op::Reopen).await;
    world.run(&Op::Scan(None, None, false, None)).await;
    world.run(&Op::Scan(None, None, true, None)).await;
    world.check_snapshots().await;
    world.check_reader().await;
    world.db.close().await.unwrap();
    let report = verify(&world.env, Duration::from_secs(30), &Progress::default()).await.unwrap();
    assert_eq!(report.problems, []);
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn the_engine_equals_an_ordered_map(ops in ops(), options in options()) {
        let runtime = runtime();
        let env = task::tokio_env(runtime.handle().clone(), MemoryStore::unnamed());
        runtime.block_on(check(env, &ops, options));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn so_it_does_in_a_local_folder(ops in ops(), options in options()) {
        let runtime = runtime();
        let folder = tempfile::tempdir().unwrap();
        let effects = task::tokio_effects(runtime.handle().clone());
        let store = LocalStore::new(folder.path(), effects.clone()).unwrap();
        runtime.block_on(check(effects.clone().with_store(store), &ops, options));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Blocks beyond the cache are read in place (RFC 0006).
    #[test]
    fn so_it_does_over_a_store_that_lends(ops in ops(), options in options()) {
        let runtime = runtime();
        let env = task::tokio_env(runtime.handle().clone(), LendingStore::new());
        runtime.block_on(check(env, &ops, options));
    }
}

/// The same over S3's protocol: a few histories, each in a separate path.
#[test]
fn so_it_does_over_s3() {
    let Some(moto) = Moto::start_or_skip("model") else { return };
    let runtime = runtime();
    let effects = task::tokio_effects(runtime.handle().clone());
    let mut runner = TestRunner::deterministic();
    for case in 0..6 {
        let store = moto.store("model", &format!("case{case}"), &effects);
        let ops = ops().new_tree(&mut runner).unwrap().current();
        let options = options().new_tree(&mut runner).unwrap().current();
        runtime.block_on(check(effects.clone().with_store(store), &ops, options));
    }
}
