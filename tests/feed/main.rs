//! The change feed (RFC 0041): read from tokens it returns the committed history, through flushes,
//! collections, take-overs, ingests and restores; missing changes raise an error.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test reports, and stops at what it did not expect"
)]

mod before;
mod elsewhere;
mod history;
mod places;
mod replaced;
mod restored;

use siltstone::changes::{self, Changes, ChangesFrom, ChangesOptions, Consumer};
use siltstone::ingest::{IngestJob, IngestRequest, JOB_LIFETIME};
use siltstone::tables::{Duplicates, PartOptions, PushResult, ReplacedRange};
use siltstone::{
    Accept, Batch, ChangeRows, ChangeToken, CompactionOptions, Database, Env, Error, ErrorKind,
    FillOutcome, Kind, OpenOptions, Options, Reader, ReaderOptions, Result, Rows, Scan, ScanRange,
};
use siltstone_tests::faults::{Bucket, FaultPlan};
use siltstone_tests::gc::round;
use siltstone_tests::sim::{ProcessId, Sim};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// A row of the feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) seq: u64,
    pub(crate) kind: Kind,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) at: u64,
}

pub(crate) type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

pub(crate) fn options() -> Options {
    Options {
        flush_interval: Duration::from_millis(20),
        l0_sst_size_bytes: 4096,
        block_bytes: 256,
        l0_manifest_commit_interval: Duration::ZERO,
        manifest_poll_interval: Some(Duration::from_millis(50)),
        embedded_gc: false,
        compaction: CompactionOptions {
            target_sst_bytes: 600,
            min_move_bytes: 0,
            ..CompactionOptions::default()
        },
        ..Options::default()
    }
}

pub(crate) struct Place {
    pub(crate) sim: Sim,
    pub(crate) bucket: Arc<Bucket>,
}

impl Place {
    pub(crate) fn of(seed: u64) -> Place {
        let sim = Sim::new(seed);
        let bucket = Bucket::new(&sim, FaultPlan::none());
        Place { sim, bucket }
    }

    pub(crate) fn process(&self, name: &'static str) -> (ProcessId, Env) {
        let process = self.sim.process(name, 0);
        (process, self.sim.env(process, self.bucket.store(process)))
    }

    pub(crate) fn run<T, W>(&self, name: &'static str, work: impl FnOnce(Env) -> W) -> T
    where
        T: Send + 'static,
        W: Future<Output = Result<T>> + Send + 'static,
    {
        let (process, env) = self.process(name);
        let seed = self.sim.seed();
        let done = self.sim.block_on(process, work(env)).expect("it ends");
        done.unwrap_or_else(|error| panic!("seed {seed}, {name}: {error}"))
    }
}

pub(crate) async fn open(env: &Env) -> Result<Database> {
    let how = OpenOptions { options: options(), take_over: Some(true), ..OpenOptions::default() };
    Database::open(env.clone(), how).await
}

pub(crate) fn key(n: u32) -> Vec<u8> {
    format!("key{n:03}").into_bytes()
}

pub(crate) async fn write(db: &Database, batch: &Batch) -> Result<siltstone::Commit> {
    loop {
        match db.write(batch)? {
            Accept::Accepted(commit) => return Ok(commit),
            Accept::Pressure(room) => room.await?,
        }
    }
}

pub(crate) async fn put(db: &Database, n: u32, value: &[u8]) -> Result<()> {
    let mut batch = Batch::new();
    batch.put(&key(n), value, None)?;
    write(db, &batch).await.map(drop)
}

/// A job of one part, of several tables.
pub(crate) async fn job_of(env: &Env, keys: std::ops::Range<u32>) -> Result<IngestRequest> {
    job_over(env, keys, None).await
}

/// The same, for a job that replaces a range.
pub(crate) async fn job_over(
    env: &Env,
    keys: std::ops::Range<u32>,
    replaced: Option<ReplacedRange>,
) -> Result<IngestRequest> {
    job_with(env, keys, b"bulk", replaced).await
}

/// The same, with this value.
pub(crate) async fn job_with(
    env: &Env,
    keys: std::ops::Range<u32>,
    value: &[u8],
    replaced: Option<ReplacedRange>,
) -> Result<IngestRequest> {
    let job = IngestJob::begin(env, JOB_LIFETIME, None, LIMIT).await?;
    let job = match replaced {
        Some(range) => job.replacing(range),
        None => job,
    };
    let mut writer = job.writer(
        env,
        PartOptions {
            options: options(),
            duplicates: Duplicates::KeepLast,
            sort_memory_bytes: 1 << 20,
            scratch: std::env::temp_dir(),
            table_bytes: 200,
        },
    )?;
    for n in keys {
        if writer.push(Kind::Put, &key(n), value, None)? == PushResult::Full {
            writer.relieve().await?;
        }
    }
    let part = writer.finish().await?;
    job.commit(env, &[part], LIMIT).await
}

/// The keys from one number to before another; `None`: to the last one.
pub(crate) fn range(from: u32, to: Option<u32>) -> ReplacedRange {
    let to = to.map(key);
    ReplacedRange::new(Some(&key(from)), to.as_deref()).expect("in order")
}

pub(crate) async fn begin(
    env: &Env,
    since: ChangesFrom,
    consumer: Option<&str>,
) -> Result<Changes> {
    let consumer = consumer.map(Consumer::new);
    changes::changes(env, ChangesOptions { since, consumer, until: None, before: None }, LIMIT)
        .await
}

pub(crate) fn rows_of(changed: &ChangeRows) -> Vec<Row> {
    let row = |at: usize| Row {
        seq: changed.seqs[at].get(),
        kind: changed.kinds[at],
        key: changed.keys.get(at).expect("a key").to_vec(),
        value: changed.values.get(at).expect("a value").to_vec(),
        at: changed.times[at].0,
    };
    (0..changed.len()).map(row).collect()
}

/// All remaining rows, in batches of this size.
pub(crate) async fn rest(feed: &mut Changes, most: usize) -> Result<Vec<Row>> {
    let mut all = Vec::new();
    while let Some(changed) = feed.read(most, 1 << 20).await? {
        all.extend(rows_of(&changed));
    }
    Ok(all)
}

pub(crate) async fn all_of(mut scan: Scan) -> Result<Pairs> {
    let (mut rows, mut all) = (Rows::new(), Vec::new());
    loop {
        let filled = scan.fill(&mut rows, 100, 1 << 20)?;
        let row = |at| rows.row(at).map(|(key, value)| (key.to_vec(), value.to_vec()));
        all.extend((0..rows.len()).filter_map(row));
        rows.clear();
        match filled {
            FillOutcome::End => return Ok(all),
            FillOutcome::Full => {}
            FillOutcome::NeedsBlocks => scan.fetch().await?,
        }
    }
}

/// The result of applying the rows.
pub(crate) fn replayed(base: Pairs, rows: &[Row]) -> Pairs {
    let mut state: BTreeMap<Vec<u8>, Vec<u8>> = base.into_iter().collect();
    for row in rows {
        match row.kind {
            Kind::Put => drop(state.insert(row.key.clone(), row.value.clone())),
            Kind::Delete => drop(state.remove(&row.key)),
            Kind::RangeDelete => state.retain(|key, _| *key < row.key || *key >= row.value),
            other => panic!("{other:?}"),
        }
    }
    state.into_iter().collect()
}
