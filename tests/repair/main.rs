//! Databases that cannot be opened, and their state after a repair (RFC 0034).

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
mod jobs;
mod logs;
mod manifests;
mod tables;

use bytes::Bytes;
use siltstone::repair::{RepairOptions, RepairReport, repair};
use siltstone::verify::verify;
use siltstone::{Accept, Database, Env, Error, ErrorKind, OpenOptions, Options, Progress, Result};
use siltstone_base::ObjectName;
use siltstone_tests::faults::{Bucket, FaultPlan};
use siltstone_tests::scans::keys;
use siltstone_tests::sim::{ProcessId, Sim, Stopped};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(10);

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

/// The key of the operation with sequence number `row + 1`.
fn key(row: u64) -> String {
    format!("row{row:03}")
}

/// The first rows of a history, as in a scan.
fn expected(rows: u64) -> Vec<String> {
    (0..rows).map(key).collect()
}

async fn tell(env: &Env) -> Result<RepairReport> {
    repair(env, RepairOptions { dry_run: true, take_over: false }, &options()).await
}

async fn mend(env: &Env) -> Result<RepairReport> {
    repair(env, RepairOptions::default(), &options()).await
}

/// The kind of damage to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    Flipped,
    Truncated,
    Emptied,
    Removed,
}

impl Harm {
    const EVERY: [Harm; 4] = [Harm::Flipped, Harm::Truncated, Harm::Emptied, Harm::Removed];
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

    fn objects(&self) -> BTreeMap<ObjectName, Bytes> {
        self.bucket.objects().into_iter().collect()
    }

    fn harm(&self, name: ObjectName, harm: Harm) {
        let objects = self.objects();
        let bytes = objects.get(&name).expect("it is there");
        let harmed = match harm {
            Harm::Flipped => {
                let mut flipped = bytes.to_vec();
                let middle = flipped.len() / 2;
                flipped[middle] ^= 4;
                Bytes::from(flipped)
            }
            Harm::Truncated => bytes.slice(..bytes.len() * 2 / 3),
            Harm::Emptied => Bytes::new(),
            Harm::Removed => {
                self.bucket.remove(name);
                return;
            }
        };
        self.bucket.insert(name, harmed);
    }

    /// Whether it opens; otherwise the error must be damage.
    fn opens(&self) -> bool {
        let opened =
            self.try_run("opener", |env| async move { open(&env, false).await?.close().await });
        match opened {
            Ok(()) => true,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
                false
            }
        }
    }

    /// Opens, reads, continues, is closed, compacted, collected, and intact at the end.
    fn goes_on_with(&self, rows: &[String]) {
        let found = self.run("next", |env| async move {
            let db = open(&env, false).await?;
            let found = keys(&db).await?;
            put(&db, "zlater").await?;
            db.compact().await?;
            db.close().await?;
            let db = open(&env, false).await?;
            assert_eq!(keys(&db).await?.last().map(String::as_str), Some("zlater"));
            drop(db.delete(b"zlater")?);
            db.close().await?;
            Ok(found)
        });
        assert_eq!(found, rows);
        self.run("collector", |env| async move { siltstone_tests::gc::round(&env).await });
        self.is_sound();
    }

    fn is_sound(&self) {
        let report = self.run("verifier", |env| async move {
            verify(&env, DEADLINE, &Progress::default()).await
        });
        assert_eq!(report.problem_count, 0, "{:?}", report.problems);
    }
}

fn killed<T>(ended: std::result::Result<T, Stopped>) -> Option<T> {
    match ended {
        Ok(ended) => Some(ended),
        Err(Stopped::Killed) => None,
        Err(stopped) => panic!("it hangs: {stopped:?}"),
    }
}

fn is_conflict<T: std::fmt::Debug>(ended: Result<T>) {
    assert_eq!(ended.map_err(|error| Error::kind(&error)).unwrap_err(), ErrorKind::Conflict);
}
