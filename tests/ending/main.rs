//! The end of a database (RFC 0030): destroyed by a process that dies at any request, beside live
//! handles, with a waiting collector; and another one created at the same place.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test reports, and stops at what it did not expect"
)]

mod crashes;
mod handles;
mod restoring;
mod waiting;

use siltstone::verify::verify;
use siltstone::{
    Accept, CheckpointOptions, Database, Env, Error, ErrorKind, OpenOptions, Options, Progress,
    Result,
};
use siltstone_base::ObjectName;
use siltstone_tests::faults::{Bucket, FaultPlan};
use siltstone_tests::scans::keys;
use siltstone_tests::sim::{ProcessId, Sim, Stopped};
use std::sync::Arc;
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(10);
const ROWS: u32 = 12;

fn options() -> Options {
    Options {
        flush_interval: Duration::from_millis(5),
        l0_sst_size_bytes: 4096,
        l0_manifest_commit_interval: Duration::ZERO,
        manifest_poll_interval: Some(Duration::from_millis(50)),
        embedded_gc: false,
        ..Options::default()
    }
}

async fn open(env: &Env, create: bool) -> Result<Database> {
    let how = OpenOptions { create, options: options(), ..OpenOptions::default() };
    Database::open(env.clone(), how).await
}

async fn put(db: &Database, key: &str) -> Result<()> {
    match db.put(key.as_bytes(), b"row", None)? {
        Accept::Accepted(commit) => commit.wait(None).await,
        Accept::Pressure(relief) => relief.await,
    }
}

fn expected(word: &str) -> Vec<String> {
    (0..ROWS).map(|row| format!("{word}{row:03}")).collect()
}

/// Rows of `word`, some of them in tables, and some merged; the handle stays open.
async fn fill(env: &Env, word: &str) -> Result<Database> {
    let db = open(env, true).await?;
    for (row, key) in expected(word).iter().enumerate() {
        put(&db, key).await?;
        if row % 4 == 3 && row < 9 {
            db.flush_memtable().await?;
        }
    }
    db.compact().await?;
    Ok(db)
}

async fn destroy(env: &Env, soft: bool) -> Result<()> {
    siltstone::destroy(env, soft, DEADLINE).await
}

/// A simulated world with one store.
struct World {
    sim: Sim,
    bucket: Arc<Bucket>,
}

impl World {
    fn new(seed: u64) -> World {
        let sim = Sim::new(seed);
        let bucket = Bucket::new(&sim, FaultPlan::none());
        World { sim, bucket }
    }

    fn process(&self, name: &'static str) -> (ProcessId, Env) {
        let process = self.sim.process(name, 0);
        (process, self.sim.env(process, self.bucket.store(process)))
    }

    /// Runs `work` in a separate process, to its end.
    fn try_run<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
        &self,
        name: &'static str,
        work: impl FnOnce(Env) -> F,
    ) -> Result<T> {
        let (process, env) = self.process(name);
        self.sim.block_on(process, work(env)).expect("it ends")
    }

    fn run<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
        &self,
        name: &'static str,
        work: impl FnOnce(Env) -> F,
    ) -> T {
        self.try_run(name, work).expect(name)
    }

    /// A database of `ROWS` rows whose writer was killed: some of them are only in the log.
    fn lived(&self) {
        let (process, env) = self.process("first");
        let filled = self.sim.block_on(process, async move {
            std::mem::forget(fill(&env, "old").await?);
            Ok::<_, Error>(())
        });
        filled.expect("it ends").expect("a healthy store");
        self.sim.kill(process);
    }

    fn names(&self) -> Vec<ObjectName> {
        self.bucket.objects().into_iter().map(|(name, _)| name).collect()
    }

    /// Only boundaries and fences are left (objects of the log without rows).
    fn is_empty(&self) -> bool {
        self.bucket.objects().iter().all(|(name, bytes)| match name {
            ObjectName::ManifestBoundary(_)
            | ObjectName::WalBoundary(_)
            | ObjectName::CompactionsBoundary(_) => true,
            ObjectName::Wal(_) => bytes.len() < 300,
            _ => false,
        })
    }

    /// A database can be created here, and works like any other.
    fn is_used_again(&self) {
        let found = self.run("next", |env| async move {
            let db = fill(&env, "new").await?;
            db.close().await?;
            let db = open(&env, false).await?;
            let found = keys(&db).await?;
            db.close().await?;
            Ok(found)
        });
        assert_eq!(found, expected("new"));
        self.run("collector", |env| async move { siltstone_tests::gc::round(&env).await });
        let report = self.run("verifier", |env| async move {
            verify(&env, DEADLINE, &Progress::default()).await
        });
        assert_eq!(report.problem_count, 0, "{:?}", report.problems);
        let differs = siltstone_tests::reachable::difference(&self.bucket.objects());
        assert_eq!(differs.expect("sound objects").dangling, vec![]);
    }
}

/// Whether opening returns `error`'s kind, and a text that names the remedy.
fn says_destroyed(error: &Error) -> bool {
    error.kind() == ErrorKind::NotFound && error.to_string().contains("without soft")
}

fn named(name: &str) -> CheckpointOptions {
    CheckpointOptions { name: Some(name.to_owned()), ..CheckpointOptions::default() }
}

fn killed<T>(ended: std::result::Result<T, Stopped>) -> Option<T> {
    match ended {
        Ok(ended) => Some(ended),
        Err(Stopped::Killed) => None,
        Err(stopped) => panic!("it hangs: {stopped:?}"),
    }
}
