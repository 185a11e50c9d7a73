//! A process with a writer: a runtime of its own, which can be stopped with everything in it.

use crate::history::{History, Written};
use siltstone::verify::verify as verify_database;
use siltstone::{
    Accept, Batch, Database, Env, Error, ErrorKind, FillOutcome, OpenOptions, Options, Progress,
    Result, Rows, ScanRange, task,
};
use siltstone_test_server::TestServer;
use siltstone_tests::s3_server;
use siltstone_tests::sim::Rng;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// The deadline of every call.
const DEADLINE: Duration = Duration::from_secs(4);
/// The additional time of a busy machine.
const SLACK: Duration = Duration::from_secs(4);
const KEYS: u64 = 40;

fn options() -> Options {
    let mut options = Options {
        deadline: DEADLINE,
        flush_interval: Duration::from_millis(5),
        l0_sst_size_bytes: 16 << 10,
        l0_manifest_commit_interval: Duration::from_millis(10),
        manifest_poll_interval: Some(Duration::from_millis(50)),
        block_cache_bytes: 0,
        ..Options::default()
    };
    options.gc.interval = Duration::from_millis(300);
    options.gc.min_age = Duration::from_millis(200);
    options
}

fn env(server: &TestServer, runtime: &Runtime) -> Env {
    let effects = task::tokio_effects(runtime.handle().clone());
    effects.clone().with_store(s3_server::store(server, "db", &effects))
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Errors that faults may cause. Corruption is one where two reads in a row were damaged.
fn is_expected(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Unavailable
            | ErrorKind::Timeout
            | ErrorKind::Corruption
            | ErrorKind::Fenced
            | ErrorKind::Conflict
            | ErrorKind::Closed
    )
}

/// A writer and its runtime.
pub(crate) struct Process {
    runtime: Runtime,
    db: Database,
}

impl Process {
    /// Opens a writer. `None` if faults prevented it.
    pub(crate) fn open(server: &TestServer) -> Option<Process> {
        let runtime = runtime();
        let env = env(server, &runtime);
        let how =
            OpenOptions { options: options(), take_over: Some(true), ..OpenOptions::default() };
        let began = Instant::now();
        let opened = runtime.block_on(Database::open(env, how));
        in_time("open", began);
        match opened {
            Ok(db) => Some(Process { runtime, db }),
            Err(error) => {
                assert!(is_expected(&error), "open: {error:?}");
                runtime.shutdown_background();
                None
            }
        }
    }

    fn call<T>(&self, name: &str, work: impl Future<Output = Result<T>>) -> Option<T> {
        let began = Instant::now();
        let done = self.runtime.block_on(work);
        in_time(name, began);
        match done {
            Ok(done) => Some(done),
            Err(error) => {
                assert!(is_expected(&error), "{name}: {error:?}");
                None
            }
        }
    }

    /// Does one thing. `false` once the handle has ended.
    pub(crate) fn step(&self, history: &mut History, rng: &mut Rng) -> bool {
        match rng.below(8) {
            0 => drop(self.call("flush_memtable", self.db.flush_memtable())),
            1 => drop(self.call("compact", self.db.compact())),
            2 => self.read(history, rng),
            _ => drop(self.write(history, rng)),
        }
        self.db.refusal().is_none()
    }

    /// A few batches, whose durability is waited for together.
    fn write(&self, history: &mut History, rng: &mut Rng) -> usize {
        let mut sent = Vec::new();
        for _ in 0..1 + rng.below(6) {
            let (mut batch, mut written) = (Batch::new(), Vec::new());
            let mut changes: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
            for _ in 0..1 + rng.below(4) {
                let key = format!("key {:03}", rng.below(KEYS)).into_bytes();
                let value = format!("{:016x} {}", rng.next_u64(), "v".repeat(200)).into_bytes();
                changes.insert(key, (!rng.chance(150)).then_some(value));
            }
            for (key, value) in &changes {
                match value {
                    Some(value) => batch.put(key, value, None).unwrap(),
                    None => batch.delete(key).unwrap(),
                }
            }
            match self.db.write(&batch) {
                Ok(Accept::Accepted(commit)) => {
                    let writes = changes.iter();
                    written.extend(writes.map(|(key, value)| history.write(key, value.as_deref())));
                    sent.push((commit, written));
                }
                Ok(Accept::Pressure(wait)) => drop(self.call("pressure", wait)),
                Err(error) => assert!(is_expected(&error), "write: {error:?}"),
            }
        }
        let mut acknowledged = 0;
        for (commit, written) in sent {
            let durable = self.call("wait", commit.wait(None)).is_some();
            acknowledged += usize::from(durable);
            settle(history, &written, durable);
        }
        acknowledged
    }

    fn read(&self, history: &History, rng: &mut Rng) {
        let key = format!("key {:03}", rng.below(KEYS)).into_bytes();
        let get = async { self.db.get(&key)?.wait().await };
        if let Some(found) = self.call("get", get) {
            let checked = history.check(&key, found.as_deref());
            assert_eq!(checked, Ok(()), "{}", String::from_utf8_lossy(&key));
        }
        if let Some(rows) = self.call("scan", self.scan()) {
            self.compare(history, &rows);
        }
    }

    fn compare(&self, history: &History, rows: &BTreeMap<Vec<u8>, Vec<u8>>) {
        for key in history.keys() {
            let checked = history.check(&key, rows.get(&key).map(Vec::as_slice));
            assert_eq!(checked, Ok(()), "{}", String::from_utf8_lossy(&key));
        }
    }

    async fn scan(&self) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
        let mut scan = self.db.scan(ScanRange::all())?;
        let mut rows = Rows::new();
        while scan.fill(&mut rows, usize::MAX, usize::MAX)? == FillOutcome::NeedsBlocks {
            scan.fetch().await?;
        }
        let found = (0..rows.len()).filter_map(|row| rows.row(row));
        Ok(found.map(|(key, value)| (key.to_vec(), value.to_vec())).collect())
    }

    /// Compares everything with the history, just after opening: what is read is durable.
    pub(crate) fn check(&self, history: &mut History) {
        let Some(rows) = self.call("first scan", self.scan()) else { return };
        for key in rows.keys().cloned().chain(history.keys()).collect::<Vec<_>>() {
            let recovered = history.recovered(&key, rows.get(&key).map(Vec::as_slice));
            assert_eq!(recovered, Ok(()), "after opening: {}", String::from_utf8_lossy(&key));
        }
    }

    /// Writes on a server without faults, where nothing may fail.
    pub(crate) fn write_in_peace(&self, history: &mut History, rng: &mut Rng) {
        assert!(self.write(history, rng) > 0, "a write failed on a healed server");
        let flushed = self.call("flush_memtable", self.db.flush_memtable());
        assert!(flushed.is_some(), "a flush failed on a healed server");
        let compacted = self.call("compact", self.db.compact());
        assert!(compacted.is_some(), "a compaction failed on a healed server");
        self.check(history);
    }

    /// A newer writer is open: this one must acknowledge nothing.
    pub(crate) fn must_be_fenced(&self, history: &mut History, rng: &mut Rng) {
        let acknowledged = self.write(history, rng);
        assert_eq!(acknowledged, 0, "a fenced writer acknowledged a write");
    }

    /// Ends all of its tasks where they are.
    pub(crate) fn kill(self) {
        self.runtime.shutdown_background();
        drop(self.db);
    }

    pub(crate) fn close(self) {
        let _ = self.call("close", self.db.close());
        self.kill();
    }
}

fn settle(history: &mut History, written: &[Written], is_durable: bool) {
    for each in written {
        if is_durable {
            history.acknowledge(each);
        } else {
            history.leave_open();
        }
    }
}

fn in_time(name: &str, began: Instant) {
    let took = began.elapsed();
    assert!(took < DEADLINE + SLACK, "{name} took {took:?}");
}

/// Reads every byte of the database.
pub(crate) fn verify(server: &TestServer) {
    let runtime = runtime();
    let env = env(server, &runtime);
    let progress = Progress::default();
    let report = runtime.block_on(verify_database(&env, DEADLINE, &progress)).unwrap();
    assert_eq!(report.problem_count, 0, "{:?}", report.problems);
    runtime.shutdown_background();
}
