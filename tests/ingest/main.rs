//! Ingest jobs (RFC 0035): staged by other processes, adopted by an open writer while it writes,
//! read everywhere, replayed, collected when they were aborted; with a crash at every request.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test reports, and stops at what it did not expect"
)]

mod behind;
mod carried;
mod crashes;
mod gaps;
mod large;
mod loading;
mod model;
mod outrun;
mod overlapping;
mod overtaken;
mod passed;
mod reading;
mod standing;

use siltstone::ingest::{IngestJob, IngestRequest, JOB_LIFETIME};
use siltstone::tables::StagedPart;
use siltstone::tables::{Duplicates, PartOptions, PushResult};
use siltstone::{
    Accept, CompactionOptions, Database, Env, FillOutcome, Kind, OpenOptions, Options, Result,
    Rows, Scan, ScanRange, Writes,
};
use siltstone_tests::faults::{Bucket, Fault, FaultPlan};
use siltstone_tests::sim::{ProcessId, Sim};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const LIMIT: Duration = Duration::from_secs(20);

pub(crate) type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

pub(crate) fn options() -> Options {
    Options {
        flush_interval: Duration::from_millis(20),
        l0_sst_size_bytes: 4096,
        block_bytes: 256,
        l0_manifest_commit_interval: Duration::ZERO,
        manifest_poll_interval: Some(Duration::from_millis(50)),
        embedded_gc: false,
        writes: Writes { skip_memtable_bytes: Some(large::LARGE_BYTES), ..Writes::default() },
        compaction: CompactionOptions {
            target_sst_bytes: 600,
            min_move_bytes: 0,
            ..CompactionOptions::default()
        },
        ..Options::default()
    }
}

/// The same, for a writer that commits nothing for an hour after its first flush: queued jobs stay
/// queued.
pub(crate) fn slow() -> Options {
    Options { l0_manifest_commit_interval: Duration::from_secs(3600), ..options() }
}

pub(crate) struct Place {
    pub(crate) sim: Sim,
    pub(crate) bucket: Arc<Bucket>,
}

impl Place {
    pub(crate) fn new() -> Place {
        Place::of(7)
    }

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
        self.sim.block_on(process, work(env)).expect("it ends").expect("it works")
    }

    /// Objects under `ingest/`.
    pub(crate) fn staged(&self) -> usize {
        let all = self.bucket.objects();
        all.iter().filter(|(name, _)| name.to_string().starts_with("ingest/")).count()
    }
}

pub(crate) async fn open(env: &Env, options: Options) -> Result<Database> {
    let how = OpenOptions { options, take_over: Some(true), ..OpenOptions::default() };
    Database::open(env.clone(), how).await
}

pub(crate) fn key(n: u32) -> Vec<u8> {
    format!("key{n:03}").into_bytes()
}

pub(crate) async fn put(db: &Database, n: u32, value: &[u8]) -> Result<()> {
    accepted(|| db.put(&key(n), value, None)).await
}

/// Makes a write, and repeats it after waiting for room.
pub(crate) async fn accepted(write: impl Fn() -> Result<Accept>) -> Result<()> {
    loop {
        match write()? {
            Accept::Accepted(_) => return Ok(()),
            Accept::Pressure(room) => room.await?,
        }
    }
}

pub(crate) fn part_options() -> PartOptions {
    PartOptions {
        options: options(),
        duplicates: Duplicates::KeepLast,
        sort_memory_bytes: 1 << 20,
        scratch: std::env::temp_dir(),
        table_bytes: 200,
    }
}

pub(crate) async fn begin(env: &Env) -> Result<IngestJob> {
    IngestJob::begin(env, JOB_LIFETIME, None, LIMIT).await
}

/// Stages rows; `None` deletes.
pub(crate) async fn stage(
    env: &Env,
    job: &IngestJob,
    rows: impl IntoIterator<Item = (u32, Option<Vec<u8>>)>,
) -> Result<StagedPart> {
    let mut writer = job.writer(env, part_options()).unwrap();
    for (n, value) in rows {
        let pushed = match value {
            Some(value) => writer.push(Kind::Put, &key(n), &value, None)?,
            None => writer.push(Kind::Delete, &key(n), &[], None)?,
        };
        if pushed == PushResult::Full {
            writer.relieve().await?;
        }
    }
    let part = writer.finish().await?;
    // It is sent as bytes.
    StagedPart::from_bytes(&part.to_bytes()?)
}

pub(crate) fn rows(from: std::ops::Range<u32>, value: &[u8]) -> Vec<(u32, Option<Vec<u8>>)> {
    from.map(|n| (n, Some(value.to_vec()))).collect()
}

/// A job of one part.
pub(crate) async fn job_of(
    env: &Env,
    staged: Vec<(u32, Option<Vec<u8>>)>,
) -> Result<IngestRequest> {
    let job = begin(env).await?;
    let part = stage(env, &job, staged).await?;
    job.commit(env, &[part], LIMIT).await
}

/// A job that is a version of the application "stream".
pub(crate) async fn version_of(env: &Env, version: u64, value: &[u8]) -> Result<IngestRequest> {
    let app = Some(("stream".to_owned(), version));
    let job = IngestJob::begin(env, JOB_LIFETIME, app, LIMIT).await?;
    let part = stage(env, &job, rows(0..2, value)).await?;
    job.commit(env, &[part], LIMIT).await
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

pub(crate) fn pairs(model: &BTreeMap<u32, Vec<u8>>) -> Pairs {
    model.iter().map(|(n, value)| (key(*n), value.clone())).collect()
}

pub(crate) fn everything() -> ScanRange {
    ScanRange::all()
}
