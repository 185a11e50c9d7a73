//! The engine's collector beside everything else: killed at every request, two at once, late and
//! denied deletes, wrong clocks, listings without the newest objects, paused scans. The remaining
//! objects are compared with the reachable ones (`tests/support/reachable.rs`).

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test reports, and stops at what it did not expect"
)]

mod listings;
mod records;
mod rest;
mod rounds;

use siltstone::gc::GcReport;
use siltstone::store::counting::Requests;
use siltstone::verify::verify;
use siltstone::{
    Batch, Database, Env, Error, OpenOptions, Options, Progress, Reader, ReaderOptions, Readers,
    Result,
};
use siltstone_tests::faults::{Bucket, FaultPlan};
use siltstone_tests::gc::AT_ONCE;
use siltstone_tests::reachable::{Difference, difference};
use siltstone_tests::scans::{Pairs, all, some};
use siltstone_tests::sim::{ProcessId, Sim};
use std::sync::Arc;
use std::time::Duration;

const ROWS: u32 = 40;
const POLL: Duration = Duration::from_millis(50);

fn options() -> Options {
    Options {
        flush_interval: Duration::from_millis(5),
        l0_sst_size_bytes: 4096,
        block_bytes: 256,
        block_cache_bytes: 0,
        metadata_cache_bytes: 0,
        l0_manifest_commit_interval: Duration::ZERO,
        manifest_poll_interval: Some(POLL),
        embedded_gc: false,
        ..Options::default()
    }
}

async fn open(env: &Env, options: Options) -> Result<Database> {
    Database::open(env.clone(), OpenOptions { options, ..OpenOptions::default() }).await
}

async fn fill(db: &Database, round: u8) -> Result<()> {
    for part in 0..3 {
        let mut batch = Batch::new();
        for n in (0..ROWS).filter(|n| n % 3 == part) {
            batch.put(format!("key{n:03}").as_bytes(), &[round; 30], None)?;
        }
        let siltstone::Accept::Accepted(commit) = db.write(&batch)? else { continue };
        commit.wait(None).await?;
        db.flush_memtable().await?;
    }
    Ok(())
}

fn expected(round: u8) -> Pairs {
    (0..ROWS).map(|n| (format!("key{n:03}").into_bytes(), vec![round; 30])).collect()
}

/// A simulated world with one store.
struct World {
    sim: Sim,
    bucket: Arc<Bucket>,
}

impl World {
    fn new(seed: u64, plan: FaultPlan) -> World {
        let sim = Sim::new(seed);
        let bucket = Bucket::new(&sim, plan);
        World { sim, bucket }
    }

    fn process(&self, name: &'static str, skew_millis: i64) -> (ProcessId, Env) {
        let process = self.sim.process(name, skew_millis);
        (process, self.sim.env(process, self.bucket.store(process)))
    }

    /// Runs `work` in a separate process, to its end.
    fn run<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
        &self,
        name: &'static str,
        work: impl FnOnce(Env) -> F,
    ) -> T {
        let (process, env) = self.process(name, 0);
        self.sim.block_on(process, work(env)).expect("it ends").expect("a healthy store")
    }

    fn pause(&self, time: Duration) {
        self.sim.run_for(time).expect("time goes on");
    }

    /// One round without a grace period.
    fn collect(&self) -> GcReport {
        self.run("collector", |env| async move { siltstone::gc::once(&env, &AT_ONCE, false).await })
    }

    fn difference(&self) -> Difference {
        difference(&self.bucket.objects()).expect("sound objects")
    }

    /// A history with all kinds of events: a writer that was killed during its work, a reader that
    /// was killed, a second writer that merges, overwrites, merges again, and closes.
    fn live(&self) {
        let (killed, env) = self.process("first", 0);
        let first = self.sim.block_on(killed, async move {
            let db = open(&env, options()).await?;
            fill(&db, 1).await?;
            db.compact().await?;
            fill(&db, 2).await?;
            std::mem::forget(db);
            Ok::<_, Error>(())
        });
        first.expect("it ends").expect("a healthy store");
        let (reading, env) = self.process("reader", 0);
        let options = Options {
            readers: Readers { checkpoint_lifetime: Duration::from_secs(1), ..Readers::default() },
            ..options()
        };
        let how = ReaderOptions { options, ..ReaderOptions::default() };
        let reader = self.sim.block_on(reading, Reader::open(env, how));
        std::mem::forget(reader.expect("it ends").expect("a healthy store"));
        self.sim.kill(killed);
        self.sim.kill(reading);
        self.run("second", |env| async move {
            let db = open(&env, options_of_second()).await?;
            fill(&db, 3).await?;
            db.compact().await?;
            fill(&db, 4).await?;
            db.compact().await?;
            db.close().await
        });
        // The killed reader's lease expires.
        self.pause(Duration::from_secs(2));
    }

    /// Checks that everything is intact, and that reads return the last writes.
    fn check(&self) {
        assert_eq!(self.difference().dangling, vec![]);
        let report = self.run("verifier", |env| async move {
            verify(&env, Duration::from_secs(10), &Progress::default()).await
        });
        assert_eq!(report.problem_count, 0, "{:?}", report.problems);
        let rows = self.run("last", |env| async move {
            let db = open(&env, options()).await?;
            let rows = all(&db).await?;
            db.close().await?;
            Ok(rows)
        });
        assert_eq!(rows, expected(4));
    }
}

fn options_of_second() -> Options {
    Options { max_parallel_writes: 1, ..options() }
}

fn total(requests: &Requests) -> u64 {
    let totals = requests.totals();
    totals.gets + totals.puts + totals.lists + totals.deletes + totals.upload_chunks
}
