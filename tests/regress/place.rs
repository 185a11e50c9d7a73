//! A simulated store, its processes, and the operations of tests on them.

use siltstone::{
    Accept, Commit, Database, Env, Error, FillOutcome, OpenOptions, Options, Reader, ReaderOptions,
    Readers, Result, Rows, Scan, ScanRange,
};
use siltstone_manifest::Manifest;
use siltstone_tests::faults::{Bucket, FaultPlan};
use siltstone_tests::gc;
use siltstone_tests::sim::{ProcessId, Sim};
use std::sync::Arc;
use std::time::Duration;

pub(crate) fn options() -> Options {
    Options {
        flush_interval: Duration::from_secs(60),
        manifest_poll_interval: Some(Duration::from_secs(600)),
        l0_manifest_commit_interval: Duration::ZERO,
        max_parallel_writes: 2,
        deadline: Duration::from_secs(30),
        ..Options::default()
    }
}

/// A world with one store.
pub(crate) struct Place {
    pub(crate) sim: Sim,
    pub(crate) bucket: Arc<Bucket>,
}

impl Place {
    pub(crate) fn new(plan: impl FnOnce(FaultPlan) -> FaultPlan) -> Place {
        let sim = Sim::new(11);
        let bucket = Bucket::new(&sim, plan(FaultPlan::none()));
        Place { sim, bucket }
    }

    pub(crate) fn process(&self) -> (ProcessId, Env) {
        self.skewed(0)
    }

    /// A process whose clock is off by this amount.
    pub(crate) fn skewed(&self, millis: i64) -> (ProcessId, Env) {
        let process = self.sim.process("process", millis);
        let env = self.sim.env(process, self.bucket.store(process));
        (process, env)
    }

    /// Lets time pass.
    pub(crate) fn pass(&self, seconds: u64) {
        self.sim.run_for(Duration::from_secs(seconds)).expect("time goes on");
    }

    /// Lets `process` continue until it has begun this many store operations, or `over`; stops it
    /// there.
    pub(crate) fn pause_at(&self, process: ProcessId, operation: u64, over: impl Fn() -> bool) {
        while self.bucket.operations(process) < operation && !over() {
            self.sim.run_for(Duration::from_millis(1)).expect("time goes on");
        }
        self.sim.pause(process);
    }

    /// The newest manifest.
    pub(crate) fn newest(&self) -> Arc<Manifest> {
        let (process, env) = self.process();
        let newest = self.run(process, async move { gc::newest(&env).await });
        newest.expect("a healthy store").expect("a database")
    }

    /// A writer that opens, writes each key into a separate table, and closes.
    pub(crate) fn flushes(&self, keys: &'static [&'static str]) {
        let (process, env) = self.process();
        let wrote = self.run(process, async move {
            let db = open(env).await?;
            for key in keys {
                put(&db, key)?;
                db.flush_memtable().await?;
            }
            db.close().await
        });
        wrote.expect("a healthy store");
    }

    pub(crate) fn run<T: Send + 'static>(
        &self,
        process: ProcessId,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.sim.block_on(process, work).expect("it ends")
    }

    /// Opens, does `work`, ends without closing.
    pub(crate) fn open(&self) -> (ProcessId, Env, Database) {
        let (process, env) = self.process();
        let db = self.run(process, open(env.clone())).expect("opens");
        (process, env, db)
    }

    pub(crate) fn collect(&self) {
        let (process, env) = self.process();
        self.run(process, async move { gc::round(&env).await }).expect("a round");
    }

    /// The keys that a new writer finds.
    pub(crate) fn recovered(&self) -> Vec<String> {
        let (process, env) = self.process();
        self.run(process, async move {
            let db = open(env).await?;
            let found = keys(&db).await?;
            db.close().await?;
            Ok(found)
        })
        .expect("opens")
    }
}

pub(crate) async fn open(env: Env) -> Result<Database> {
    Database::open(env, OpenOptions { options: options(), ..OpenOptions::default() }).await
}

pub(crate) fn put(db: &Database, key: &str) -> Result<Commit> {
    match db.put(key.as_bytes(), b"value", None)? {
        Accept::Accepted(commit) => Ok(commit),
        Accept::Pressure(_) => Err(Error::internal("pressure in a small test")),
    }
}

pub(crate) async fn keys(db: &Database) -> Result<Vec<String>> {
    keys_of(db.scan(ScanRange::all())?).await
}

pub(crate) async fn keys_of(mut scan: Scan) -> Result<Vec<String>> {
    let mut rows = Rows::new();
    while scan.fill(&mut rows, 1000, 1 << 20)? == FillOutcome::NeedsBlocks {
        scan.fetch().await?;
    }
    Ok((0..rows.len())
        .filter_map(|row| rows.row(row).map(|(key, _)| String::from_utf8_lossy(key).into_owned()))
        .collect())
}

/// A reader whose leases have this lifetime in seconds.
pub(crate) async fn reader(env: Env, lifetime: u64) -> Result<Reader> {
    let options = Options {
        readers: Readers {
            checkpoint_lifetime: Duration::from_secs(lifetime),
            ..Readers::default()
        },
        manifest_poll_interval: Some(Duration::from_secs(1)),
        ..options()
    };
    Reader::open(env, ReaderOptions { options, ..ReaderOptions::default() }).await
}
