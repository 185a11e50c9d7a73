//! Rounds of the writer's process, in the background. A look every `gc.interval` goes by what the
//! process knows, and asks the store nothing: an idle database is left alone. Between looks a round
//! comes when there is more garbage than may stay, and when the store has no room left.

use super::life::Phase;
use super::state::Writer;
use crate::gc::{Collected, Collector, Garbage, GcReport, around};
use crate::io::supervise::caught;
use crate::manifests::objects::Objects;
use futures::future::{Either, select};
use parking_lot::Mutex;
use siltstone_base::{Error, ErrorKind, Result};
use siltstone_manifest::gc::Allowance;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Where lines about collection go.
const TARGET: &str = "siltstone.gc";

/// The collector of the writer's process, as its handle knows it.
pub(crate) struct Embedded {
    /// Whoever collects holds it; what a round has learned is for the next.
    working: tokio::sync::Mutex<Option<Collector>>,
    garbage: Arc<Garbage>,
    /// Rounds that ended, objects that they deleted and their bytes, deletes that failed.
    pub(crate) rounds: AtomicU64,
    pub(crate) deleted: AtomicU64,
    pub(crate) deleted_bytes: AtomicU64,
    pub(crate) failed: AtomicU64,
    /// Bytes that only consumers of the change feed kept, as the last round found.
    pub(crate) held_by_feed: AtomicU64,
    /// Why the last round failed, or a delete of it; `None` when it went well.
    error: Mutex<Option<Error>>,
    /// Whether the store refused deletes, and has taken none since.
    deletes_fail: AtomicBool,
}

impl Embedded {
    pub(crate) fn new(garbage: Arc<Garbage>) -> Embedded {
        let none = || AtomicU64::new(0);
        Embedded {
            working: tokio::sync::Mutex::default(),
            garbage,
            rounds: none(),
            deleted: none(),
            deleted_bytes: none(),
            failed: none(),
            held_by_feed: none(),
            error: Mutex::default(),
            deletes_fail: AtomicBool::new(false),
        }
    }

    /// Counts a round, and says what it deleted.
    fn note(&self, report: &GcReport) {
        let total = report.total();
        self.rounds.fetch_add(1, Ordering::Relaxed);
        self.deleted.fetch_add(total.deleted, Ordering::Relaxed);
        self.deleted_bytes.fetch_add(total.bytes, Ordering::Relaxed);
        self.failed.fetch_add(total.failed + total.denied, Ordering::Relaxed);
        self.held_by_feed.store(report.held_by_feed, Ordering::Relaxed);
        let (objects, megabytes) = (total.deleted, total.bytes as f64 / 1e6);
        if objects > 0 {
            log::info!(target: TARGET, "collected {objects} objects, {megabytes:.1} MB");
        }
        self.note_deletes(report.trouble.as_ref(), total);
    }

    /// Keeps why deletes fail until one succeeds: a round without deletes proves nothing.
    fn note_deletes(&self, trouble: Option<&Error>, total: Collected) {
        let failed_before = self.deletes_fail.load(Ordering::Relaxed);
        let fails = trouble.is_some() || (failed_before && total.deleted == 0);
        self.deletes_fail.store(fails, Ordering::Relaxed);
        let mut error = self.error.lock();
        if let Some(trouble) = trouble {
            *error = Some(trouble.clone());
        } else if !fails {
            *error = None;
        }
        drop(error);
        match trouble {
            Some(trouble) if !failed_before => log::warn!(
                target: TARGET,
                "event=gc_deletes_fail failed={} denied={} error={:?}",
                total.failed,
                total.denied,
                trouble.to_string(),
            ),
            None if failed_before && !fails => log::info!(target: TARGET, "event=gc_recovers"),
            _ => {}
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

    /// Why the last round failed, or a delete of it.
    pub(crate) fn error(&self) -> Option<Error> {
        self.error.lock().clone()
    }

    /// Waits until nothing is at work. Who waits has closed the handle before.
    pub(crate) async fn at_rest(&self) {
        drop(self.working.lock().await);
    }
}

/// Why the collector is at work.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    /// The interval has passed.
    Look,
    /// There is more garbage than may stay.
    TooMuch,
    /// The store has no room for something.
    Full,
}

/// When the next round may begin.
struct RoundPacing {
    /// Until the next look.
    pause: Duration,
    /// By the monotonic clock: before it, that the store is full is no reason.
    full_from: Duration,
    full_pause: Duration,
    /// Likewise: before it, that there is too much garbage is no reason.
    too_much_from: Duration,
}

/// Runs until the handle has nothing more to write: what closing writes may need room too.
pub(crate) async fn run(writer: Arc<Writer>) {
    let interval = writer.options.gc.interval;
    let mut turn = RoundPacing {
        pause: interval,
        full_from: Duration::ZERO,
        full_pause: FIRST_FULL_PAUSE,
        too_much_from: Duration::ZERO,
    };
    *writer.collector.working.lock().await = Some(at_open(&writer));
    while let Some(call) = called(&writer, &turn).await {
        let mut working = writer.collector.working.lock().await;
        let done = {
            let collector = working.get_or_insert_with(|| at_open(&writer));
            let round = pin!(caught("collector", round_if_worth(&writer, collector, call)));
            match select(round, pin!(stops(&writer, call))).await {
                Either::Left((done, _)) => done,
                // A round may stop anywhere.
                Either::Right(_) => continue,
            }
        };
        let done = done.unwrap_or_else(|panicked| {
            // What it knew may be half changed: the next round goes by nothing.
            *working = Some(new_collector(&writer));
            Err(panicked)
        });
        drop(working);
        if call == Call::Full {
            // Where nothing was to free, every write that fails asks again.
            let freed = done.as_ref().is_ok_and(|deleted| *deleted > 0);
            let longer = (turn.full_pause * 2).min(LONGEST_FULL_PAUSE);
            turn.full_pause = if freed { FIRST_FULL_PAUSE } else { longer };
            turn.full_from = writer.env.clock.monotonic() + turn.full_pause;
        }
        let nothing = done.as_ref().is_ok_and(|deleted| *deleted == 0);
        if call == Call::TooMuch && nothing && leases_have_run_out(&writer) {
            // By the store's clock they have not.
            turn.too_much_from = writer.env.clock.monotonic() + PAUSE_WHILE_KEPT;
        }
        turn.pause = match done {
            Ok(_) => interval,
            // The next one begins from the start.
            Err(error) => {
                writer.collector.fails(&error);
                (turn.pause * 2).min(interval.saturating_mul(LONGEST))
            }
        };
    }
}

/// Whether this process's clock says so of a since-lease that is present.
fn leases_have_run_out(writer: &Writer) -> bool {
    let now = writer.env.clock.now();
    let newest = writer.manifests.newest_known();
    newest.since_leases.iter().any(|lease| lease.expired_at(now))
}

/// A collector that knows what its process knows.
fn at_open(writer: &Writer) -> Collector {
    new_collector(writer).beginning_with(writer.manifests.newest_known())
}

fn new_collector(writer: &Writer) -> Collector {
    let objects = Objects { env: writer.env.clone(), limit: writer.options.deadline };
    let gc = &writer.options.gc;
    Collector::new(objects, gc.min_age, gc.db_delete_grace)
}

/// The longest pause after rounds that failed, in intervals.
const LONGEST: u32 = 8;
/// Pauses between two rounds because the store is full: they double while nothing is freed.
const FIRST_FULL_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_FULL_PAUSE: Duration = Duration::from_secs(2);
/// The pause after a round that could delete nothing, since the store's clock is behind.
const PAUSE_WHILE_KEPT: Duration = Duration::from_secs(5);

/// A round, if one is worth its requests. Answers how many objects it deleted.
async fn round_if_worth(writer: &Writer, collector: &mut Collector, call: Call) -> Result<u64> {
    let garbage = &writer.collector.garbage;
    let worth = match call {
        Call::Look => collector.is_worth(&writer.manifests.newest_known()),
        Call::TooMuch => garbage.is_too_much(),
        Call::Full => true,
    };
    match (worth, call) {
        (false, _) => Ok(0),
        (true, Call::Full) => round(writer, collector, None).await,
        (true, _) => round(writer, collector, Some(garbage.leaves())).await,
    }
}

/// One round; one that `leaves` nothing is for a store that is full.
async fn round(
    writer: &Writer,
    collector: &mut Collector,
    leaves: Option<Allowance>,
) -> Result<u64> {
    let garbage = &writer.collector.garbage;
    let began = garbage.round_begins();
    let newest = writer.manifests.newest_known();
    let report = match leaves {
        Some(leaves) => collector.round(newest, Some(leaves)).await?,
        None => collector.relieve(newest).await?,
    };
    writer.collector.note(&report);
    // What a look of this process would have found: who has gone, say.
    collector.newest_found().into_iter().for_each(|found| writer.manifests.learn(found));
    if !report.overtaken {
        garbage.round_ended(began, collector.young());
    }
    Ok(report.total().deleted)
}

/// When work ends, by `compact()` or a close: one round if it is worth its requests, over by
/// `until` on the monotonic clock. A failure leaves the rest to the next collector.
pub(crate) async fn tidy(writer: &Writer, until: Duration) {
    let garbage = &writer.collector.garbage;
    if !writer.options.embedded_gc || !garbage.is_worth_at_rest() {
        return;
    }
    let left = until.saturating_sub(writer.env.clock.monotonic());
    let work = async {
        let mut working = writer.collector.working.lock().await;
        let collector = working.get_or_insert_with(|| at_open(writer));
        round(writer, collector, Some(garbage.leaves_at_rest())).await
    };
    if let Err(error) = writer.env.deadline(left, "collect", work).await {
        log::info!(target: TARGET, "what is left is for the next collector: {error}");
    }
}

/// Waits for the next reason to collect; `None` once nothing is written any more. Of a handle that
/// closes only a full store is one.
async fn called(writer: &Writer, turn: &RoundPacing) -> Option<Call> {
    let clock = &writer.env.clock;
    let look = clock.sleep(around(&writer.env, turn.pause));
    let too_much = pin!(async {
        clock.sleep(turn.too_much_from.saturating_sub(clock.monotonic())).await;
        writer.collector.garbage.too_much.notified().await;
    });
    let full = pin!(async {
        clock.sleep(turn.full_from.saturating_sub(clock.monotonic())).await;
        writer.context.requests.full().await;
    });
    let asked = async {
        let asked = select(look, too_much);
        match select(pin!(stops(writer, Call::Look)), asked).await {
            Either::Left(_) => std::future::pending().await,
            Either::Right((Either::Left(_), _)) => Call::Look,
            Either::Right((Either::Right(_), _)) => Call::TooMuch,
        }
    };
    match select(pin!(stops(writer, Call::Full)), select(pin!(asked), full)).await {
        Either::Left(_) => None,
        Either::Right((Either::Left((call, _)), _)) => Some(call),
        Either::Right((Either::Right(_), _)) => Some(Call::Full),
    }
}

/// Completes when a round for this reason is not wanted any more: as the handle begins to close,
/// and where the store is full not before everything is written, or the handle has ended.
async fn stops(writer: &Writer, call: Call) {
    loop {
        let mut changed = pin!(writer.life.changed.notified());
        changed.as_mut().enable();
        let wanted = match call {
            Call::Look | Call::TooMuch => writer.is_open(),
            Call::Full => writer.dead().is_none() && writer.life.phase() < Phase::Done,
        };
        if !wanted {
            return;
        }
        changed.await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::env::Clock;
    use crate::options::Options;
    use futures::future::BoxFuture;
    use siltstone_base::UnixMillis;

    struct StoppedClock;

    impl Clock for StoppedClock {
        fn now(&self) -> UnixMillis {
            UnixMillis(0)
        }

        fn monotonic(&self) -> Duration {
            Duration::ZERO
        }

        fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
            Box::pin(std::future::pending())
        }
    }

    #[test]
    fn refused_deletes_are_shown_until_one_succeeds() {
        let embedded = Embedded::new(Garbage::new(
            Arc::default(),
            Arc::new(StoppedClock),
            &Options::default(),
        ));
        let denied = Error::new(ErrorKind::Denied, "no right to delete");
        let refused = GcReport { trouble: Some(denied), ..GcReport::default() };
        embedded.note(&refused);
        assert!(embedded.error().is_some_and(|error| error.kind() == ErrorKind::Denied));
        embedded.note(&GcReport::default());
        assert!(embedded.error().is_some(), "nothing was to be deleted");
        embedded.note_deletes(None, Collected { deleted: 1, ..Collected::default() });
        assert!(embedded.error().is_none());
    }
}
