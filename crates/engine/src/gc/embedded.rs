//! Rounds of the writer's process, in the background. A look every `gc_interval` goes by what the
//! process knows, and asks the store nothing: an idle database is left alone.

use super::around;
use super::due::Seen;
use super::report::GcReport;
use super::round::Collector;
use crate::objects::Objects;
use crate::supervise::caught;
use crate::writer::Writer;
use futures::future::{Either, select};
use parking_lot::Mutex;
use siltstone_base::{Error, ErrorKind, Result};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Where lines about collection go.
const TARGET: &str = "siltstone.gc";

/// The collector of the writer's process, as its handle knows it.
#[derive(Default)]
pub(crate) struct Embedded {
    working: tokio::sync::Mutex<()>,
    /// Rounds that ended, objects that they deleted and their bytes, deletes that failed.
    pub(crate) rounds: AtomicU64,
    pub(crate) deleted: AtomicU64,
    pub(crate) deleted_bytes: AtomicU64,
    pub(crate) failed: AtomicU64,
    /// Why the last round failed; `None` when it went well.
    error: Mutex<Option<Error>>,
}

impl Embedded {
    /// Counts a round, and says what it deleted.
    fn note(&self, report: &GcReport) {
        let total = report.total();
        *self.error.lock() = None;
        self.rounds.fetch_add(1, Ordering::Relaxed);
        self.deleted.fetch_add(total.deleted, Ordering::Relaxed);
        self.deleted_bytes.fetch_add(total.bytes, Ordering::Relaxed);
        self.failed.fetch_add(total.failed + total.denied, Ordering::Relaxed);
        let (objects, megabytes) = (total.deleted, total.bytes as f64 / 1e6);
        if objects > 0 {
            log::info!(target: TARGET, "collected {objects} objects, {megabytes:.1} MB");
        }
        if let Some(trouble) = &report.trouble {
            log::warn!(target: TARGET, "a delete did not succeed: {trouble}");
        }
    }

    /// A round failed, or the task died.
    pub(crate) fn fails(&self, error: &Error) {
        if error.kind() == ErrorKind::Closed {
            return;
        }
        let before = self.error.lock().replace(error.clone());
        if before.is_none_or(|before| before.to_string() != error.to_string()) {
            log::warn!(target: TARGET, "collecting failed: {error}");
        }
    }

    /// Why the last round failed.
    pub(crate) fn error(&self) -> Option<Error> {
        self.error.lock().clone()
    }

    /// Waits until nothing is at work. Who waits has closed the handle before.
    pub(crate) async fn at_rest(&self) {
        drop(self.working.lock().await);
    }
}

/// Runs until the handle begins to close or has ended.
pub(crate) async fn run(writer: Arc<Writer>) {
    let options = &writer.options;
    let objects = Objects { env: writer.env.clone(), limit: options.deadline };
    let mut collector = Collector::new(objects.clone(), options.min_age);
    collector.seen = Seen::at_open(writer.manifests.newest_known());
    let mut pause = options.gc_interval;
    while stays_open(&writer, pause).await {
        let working = writer.collector.working.lock().await;
        let done = {
            let round = pin!(caught("collector", round_if_worth(&writer, &mut collector)));
            match select(round, pin!(ends(&writer))).await {
                Either::Left((done, _)) => done,
                // A round may stop anywhere.
                Either::Right(_) => return,
            }
        };
        drop(working);
        let done = done.unwrap_or_else(|panicked| {
            // What it knew may be half changed: the next round goes by nothing.
            collector = Collector::new(objects.clone(), options.min_age);
            Err(panicked)
        });
        pause = match done {
            Ok(()) => options.gc_interval,
            // The next one begins from the start.
            Err(error) => {
                writer.collector.fails(&error);
                (pause * 2).min(options.gc_interval.saturating_mul(LONGEST))
            }
        };
    }
}

/// The longest pause after rounds that failed, in intervals.
const LONGEST: u32 = 8;

async fn round_if_worth(writer: &Writer, collector: &mut Collector) -> Result<()> {
    let (clock, newest) = (&writer.env.clock, writer.manifests.newest_known());
    if collector.seen.is_worth(&newest, clock.now(), clock.monotonic()) {
        let report = collector.round(newest).await?;
        writer.collector.note(&report);
        // What a look of this process would have found: who has gone, say.
        collector.seen.newest().into_iter().for_each(|found| writer.manifests.learn(found));
    }
    Ok(())
}

/// Waits for `pause`; `false` once the handle begins to close or has ended.
async fn stays_open(writer: &Writer, pause: Duration) -> bool {
    let pause = writer.env.clock.sleep(around(&writer.env, pause));
    matches!(select(pause, pin!(ends(writer))).await, Either::Left(_))
}

/// Completes when the handle begins to close or has ended.
async fn ends(writer: &Writer) {
    loop {
        let mut changed = pin!(writer.phase_changed.notified());
        changed.as_mut().enable();
        if !writer.is_open() {
            return;
        }
        changed.await;
    }
}
