//! A bank: transactions move money between accounts, and the total never changes (RFC 0036).
//!
//! Several consecutive tellers of one writer, each fencing the previous one; compactors, and
//! collectors without a grace period. Meanwhile the books are audited through everything that shows
//! a moment of the database: the live handle, transactions, old and new snapshots, a following
//! reader, manual checkpoints, clones of the whole and of its halves, clones of clones; at the end
//! a restore. In every view the total is unchanged, no transfer acknowledged before the read is
//! missing, and a view of a fixed moment does not change.
//!
//! `BANKS` (default 8) sets the number of seeds in the simulation, `FIRST_SEED` the first seed.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test reports, and stops at what it did not expect"
)]

mod audits;
mod books;
mod branch;
mod folder;
mod simulated;

use books::Books;
use futures::FutureExt;
use siltstone::{
    CompactionOptions, Database, Env, Error, FillOutcome, OpenOptions, Options, ReadAt, Reader,
    ReaderOptions, Result, Rows, Scan, ScanRange,
};
use siltstone_tests::sim::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

pub(crate) type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// The environment of the bank.
pub(crate) trait Town: Send + Sync {
    /// The database at `place` as seen by a new process, and the id of that process for
    /// [`Town::kill`].
    fn process(&self, role: &'static str, place: &str) -> (Env, u64);

    /// Ends a process, if that is possible from outside.
    fn kill(&self, _process: u64) {}

    /// No more faults.
    fn heal(&self) {}
}

/// The state that all processes share.
pub(crate) struct Bank {
    pub(crate) town: Box<dyn Town>,
    pub(crate) books: Books,
    pub(crate) stop: AtomicBool,
    /// Numbers for tellers, clones and names.
    next: AtomicU64,
}

impl Bank {
    pub(crate) fn new(town: Box<dyn Town>) -> Arc<Bank> {
        let (stop, next) = (AtomicBool::new(false), AtomicU64::new(1));
        Arc::new(Bank { town, books: Books::default(), stop, next })
    }

    pub(crate) fn env(&self, role: &'static str, place: &str) -> Env {
        self.town.process(role, place).0
    }

    pub(crate) fn parent(&self, role: &'static str) -> Env {
        self.env(role, PARENT)
    }

    pub(crate) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// The place of the database from which all others are cloned.
pub(crate) const PARENT: &str = "parent";
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// Small sizes: rows are in memtables, in L0 and in runs, and move.
pub(crate) fn options() -> Options {
    Options {
        flush_interval: Duration::from_millis(5),
        l0_sst_size_bytes: 4096,
        block_bytes: 256,
        block_cache_bytes: 16 << 10,
        metadata_cache_bytes: 4 << 10,
        l0_manifest_commit_interval: Duration::ZERO,
        manifest_poll_interval: Some(Duration::from_millis(50)),
        embedded_gc: false,
        deadline: DEADLINE,
        compaction: CompactionOptions {
            l0_compaction_threshold_ssts: 2,
            target_sst_bytes: 2048,
            min_move_bytes: 0,
            ..CompactionOptions::default()
        },
        ..Options::default()
    }
}

pub(crate) async fn open(env: &Env) -> Result<Database> {
    let how = OpenOptions { options: options(), take_over: Some(true), ..OpenOptions::default() };
    Database::open(env.clone(), how).await
}

/// A reader that writes nothing and joins no lease.
pub(crate) async fn reader(env: &Env, at: Option<ReadAt>) -> Result<Reader> {
    let options = Options { reader_lease: at.is_some(), ..options() };
    Reader::open(env.clone(), ReaderOptions { options, at, ..ReaderOptions::default() }).await
}

pub(crate) async fn rows_of(mut scan: Scan) -> Result<Pairs> {
    let (mut rows, mut all) = (Rows::new(), Vec::new());
    loop {
        let filled = scan.fill(&mut rows, 7, 1 << 20)?;
        let pairs = (0..rows.len()).filter_map(|row| rows.row(row));
        all.extend(pairs.map(|(key, value)| (key.to_vec(), value.to_vec())));
        rows.clear();
        match filled {
            FillOutcome::End => return Ok(all),
            FillOutcome::Full => {}
            FillOutcome::NeedsBlocks => scan.fetch().await?,
        }
    }
}

pub(crate) async fn rows_in(db: &Database) -> Result<Pairs> {
    rows_of(db.scan(ScanRange::all())?).await
}

/// The errors that a failing store may cause: never corruption or missing data.
pub(crate) fn is_excused(error: &Error) -> bool {
    use siltstone::ErrorKind::{Closed, Fenced, Timeout, Unavailable};
    matches!(error.kind(), Closed | Fenced | Timeout | Unavailable)
}

/// Starts `work` as a task of `env`'s process; `None` if that was killed.
pub(crate) fn as_task<T: Send + 'static>(
    env: &Env,
    work: impl Future<Output = T> + Send + 'static,
) -> impl Future<Output = Option<T>> + Send + 'static {
    let (done, ended) = futures::channel::oneshot::channel();
    env.spawn.spawn("bank", Box::pin(async move { drop(done.send(work.await)) }));
    async move { ended.await.ok() }
}

/// A day of business, and its result. This many writers follow each other; each works for about
/// `shift`.
pub(crate) async fn business(bank: Arc<Bank>, writers: u64, shift: Duration, mut rng: Rng) {
    branch::found(&bank).await.expect("an empty place");
    let manager = bank.parent("manager");
    let mut working: Vec<_> =
        audits::outside(&bank, &mut rng).into_iter().map(|work| as_task(&manager, work)).collect();
    let shifts = branch::shifts(Arc::clone(&bank), writers, shift, rng.split());
    working.push(as_task(&manager, shifts.boxed()));
    for ended in futures::future::join_all(working).await.into_iter().flatten() {
        if let Err(error) = ended {
            bank.books.trouble(format!("{error:?}"));
        }
    }
    bank.town.heal();
    if let Err(error) = audits::at_the_end(&bank, &mut rng).await {
        bank.books.trouble(format!("in the end, with a healthy store: {error:?}"));
    }
}

pub(crate) fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The result of a day as a report; checks that every view was audited.
pub(crate) fn report(name: &str, bank: &Bank) -> Vec<String> {
    let (audits, transfers) = bank.books.came_to();
    println!("{name}: {transfers} transfers acknowledged; audits: {audits:?}");
    let mut troubles = bank.books.troubles();
    let missing = audits::VIEWS.iter().filter(|view| !audits.contains_key(*view));
    troubles.extend(missing.map(|view| format!("{view}: it was not audited")));
    troubles
}
