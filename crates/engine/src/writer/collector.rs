//! The embedded collector: rounds of garbage collection in the writer's process. Every
//! `gc.interval` it checks what the process knows, without requests, so an idle database causes
//! none. A round also runs when there is more garbage than allowed, and when the store is full.

use super::life::Phase;
use super::state::Writer;
use crate::gc::{Collected, Collector, Garbage, GcReport, around};
use crate::manifests::objects::Objects;
use futures::future::{Either, select};
use parking_lot::Mutex;
use siltstone_base::{Error, ErrorKind, Result};
use siltstone_manifest::gc::Allowance;
use siltstone_store::supervise::caught;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Log target of lines about collection.
const TARGET: &str = "siltstone.gc";

/// The embedded collector, as the handle sees it.
pub(crate) struct Embedded {
    /// Locked for the length of a round. A round keeps what it has learned for the next one.
    working: tokio::sync::Mutex<Option<Collector>>,
    garbage: Arc<Garbage>,
    /// Numbers of completed rounds, deleted objects, their bytes, and failed deletes.
    pub(crate) rounds: AtomicU64,
    pub(crate) deleted: AtomicU64,
    pub(crate) deleted_bytes: AtomicU64,
    pub(crate) failed: AtomicU64,
    /// Bytes that are kept only for consumers of the change feed, as of the last round.
    pub(crate) held_by_feed: AtomicU64,
    /// Why the last round, or one of its deletes, failed; `None` if it succeeded.
    error: Mutex<Option<Error>>,
    /// Whether the store refused deletes and has accepted none since.
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

    /// Counts a round and logs what it deleted.
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

    /// Keeps the reason of failed deletes until a delete succeeds: a round without deletes proves
    /// nothing.
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

    /// Records that a round failed or the task died.
    pub(crate) fn fails(&self, error: &Error) {
        if error.kind() == ErrorKind::Closed {
            return;
        }
        let before = self.error.lock().replace(error.clone());
        if before.is_none_or(|before| before.to_string() != error.to_string()) {
            log::warn!(target: TARGET, "collecting failed: {error}");
        }
    }

    /// Why the last round, or one of its deletes, failed.
    pub(crate) fn error(&self) -> Option<Error> {
        self.error.lock().clone()
    }

    /// Waits until no round runs. The caller must have closed the handle, so that no round begins.
    pub(crate) async fn at_rest(&self) {
        drop(self.working.lock().await);
    }
}

/// Why a round is considered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    /// The interval has passed.
    Look,
    /// There is more garbage than allowed.
    TooMuch,
    /// The store is full.
    Full,
}

/// When the next round may begin.
struct RoundPacing {
    /// Pause until the next look.
    pause: Duration,
    /// A full store causes no round before this time of the monotonic clock.
    full_from: Duration,
    full_pause: Duration,
    /// Too much garbage causes no round before this time of the monotonic clock.
    too_much_from: Duration,
}

/// Runs until the handle has nothing more to write, because the writes of a close may need room
/// too.
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
                // A round may be cancelled at any point.
                Either::Right(_) => continue,
            }
        };
        let done = done.unwrap_or_else(|panicked| {
            // The panic may have left its state inconsistent, so the next round begins without it.
            *working = Some(new_collector(&writer));
            Err(panicked)
        });
        drop(working);
        if call == Call::Full {
            // If nothing can be freed, each failed write asks for another round.
            let freed = done.as_ref().is_ok_and(|deleted| *deleted > 0);
            let longer = (turn.full_pause * 2).min(LONGEST_FULL_PAUSE);
            turn.full_pause = if freed { FIRST_FULL_PAUSE } else { longer };
            turn.full_from = writer.env.clock.monotonic() + turn.full_pause;
        }
        let nothing = done.as_ref().is_ok_and(|deleted| *deleted == 0);
        if call == Call::TooMuch && nothing && leases_have_run_out(&writer) {
            // By the store's clock the leases have not expired.
            turn.too_much_from = writer.env.clock.monotonic() + PAUSE_WHILE_KEPT;
        }
        turn.pause = match done {
            Ok(_) => interval,
            // The next round begins from the start.
            Err(error) => {
                writer.collector.fails(&error);
                (turn.pause * 2).min(interval.saturating_mul(LONGEST))
            }
        };
    }
}

/// Whether a present since-lease has expired by the clock of this process.
fn leases_have_run_out(writer: &Writer) -> bool {
    let now = writer.env.clock.now();
    let newest = writer.manifests.newest_known();
    newest.since_leases.iter().any(|lease| lease.expired_at(now))
}

/// A collector that begins with the newest manifest that the process knows.
fn at_open(writer: &Writer) -> Collector {
    new_collector(writer).beginning_with(writer.manifests.newest_known())
}

fn new_collector(writer: &Writer) -> Collector {
    let objects = Objects { env: writer.env.clone(), limit: writer.options.deadline };
    let gc = &writer.options.gc;
    Collector::new(objects, gc.min_age, gc.db_delete_grace)
}

/// The longest pause after failed rounds, in intervals.
const LONGEST: u32 = 8;
/// Pauses between two rounds for a full store. They double while nothing is freed.
const FIRST_FULL_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_FULL_PAUSE: Duration = Duration::from_secs(2);
/// The pause after a round that could delete nothing because the store's clock is behind.
const PAUSE_WHILE_KEPT: Duration = Duration::from_secs(5);

/// Runs a round if it is worth its requests. Returns the number of deleted objects.
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

/// Runs one round. Without an allowance it frees as much as possible, for a full store.
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
    // The manifests that the round found, as if this process had polled for them.
    collector.newest_found().into_iter().for_each(|found| writer.manifests.learn(found));
    if !report.overtaken {
        garbage.round_ended(began, collector.young());
    }
    Ok(report.total().deleted)
}

/// At the end of work, by `compact()` or a close: runs one round if it is worth its requests, until
/// `until` on the monotonic clock. After a failure the next collector continues.
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
        log::info!(target: TARGET, "a round failed; the next collector continues: {error}");
    }
}

/// Waits for the next reason to collect; `None` once nothing more is written. While the handle
/// closes, only a full store is a reason.
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

/// Completes when a round for `call` is no longer wanted: when the handle begins to close or, for a
/// full store, when everything is written or the handle has ended.
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
    use crate::gc::no_garbage;
    use crate::options::Options;

    #[test]
    fn refused_deletes_are_shown_until_one_succeeds() {
        let embedded = Embedded::new(no_garbage(&Options::default()));
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
