//! Transactions: recorded histories replayed in the order of commits, the anomalies by name, a
//! transaction's view of its own writes, and writes on a condition (RFC 0025).

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test reports, and stops at what it did not expect"
)]

mod conditions;
mod history;
mod named;
mod replay;
mod view;

use siltstone::store::memory::MemoryStore;
use siltstone::{
    Accept, Answer, Commit, CompactionOptions, Database, Error, FillOutcome, OpenOptions, Options,
    Result, Scan, ScanRange, Transaction, built_in_operator, task,
};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

type Row = (Vec<u8>, Vec<u8>);

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Small sizes: rows are in memtables, in L0 and in runs, and move while they are read.
fn options() -> Options {
    Options {
        l0_sst_size_bytes: 32 << 10,
        block_bytes: 256,
        flush_interval: Duration::from_millis(1),
        l0_manifest_commit_interval: Duration::ZERO,
        compaction: CompactionOptions {
            l0_compaction_threshold_ssts: 2,
            target_sst_bytes: 64 << 10,
            ..CompactionOptions::default()
        },
        ..Options::default()
    }
}

fn open(runtime: &Runtime, options: Options) -> Database {
    let env = task::tokio_env(runtime.handle().clone(), MemoryStore::unnamed());
    let merge_operator = built_in_operator("append");
    let how = OpenOptions { options, merge_operator, ..OpenOptions::default() };
    runtime.block_on(Database::open(env, how)).unwrap()
}

/// Waits if necessary.
fn answered<T>(runtime: &Runtime, answer: Result<Answer<T>>) -> T {
    match answer.unwrap() {
        Answer::Ready(value) => value,
        Answer::Pending(future) => runtime.block_on(future).unwrap(),
    }
}

/// Writes until it is accepted.
fn accepted(runtime: &Runtime, mut write: impl FnMut() -> Result<Accept>) -> Commit {
    loop {
        match write().unwrap() {
            Accept::Accepted(commit) => return commit,
            Accept::Pressure(room) => runtime.block_on(room).unwrap(),
        }
    }
}

/// Commits: `None` if nothing was written.
fn commit(runtime: &Runtime, transaction: &Transaction) -> Result<Option<Commit>, Error> {
    loop {
        match transaction.commit()? {
            None => return Ok(None),
            Some(Accept::Accepted(commit)) => return Ok(Some(commit)),
            Some(Accept::Pressure(room)) => runtime.block_on(room).unwrap(),
        }
    }
}

/// This many rows of a scan, which is then dropped.
fn rows_of(runtime: &Runtime, mut scan: Scan, most: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    while rows.len() < most {
        let filled = scan.each(|key, value| {
            rows.push((key.to_vec(), value.to_vec()));
            Ok(rows.len() < most)
        });
        match filled.unwrap() {
            FillOutcome::Full => {}
            FillOutcome::NeedsBlocks => runtime.block_on(scan.fetch()).unwrap(),
            FillOutcome::End => break,
        }
    }
    rows
}

fn range(start: &[u8], end: &[u8]) -> ScanRange {
    ScanRange { start: Some(start.to_vec()), end: Some(end.to_vec()), ..ScanRange::default() }
}
