//! Waiting under back-pressure (RFC 0022): the futures that a stalled write returns, the task that
//! watches for compactions of other processes meanwhile, and log lines about stalls.

pub(crate) mod pressure;

use super::state::Writer;
use crate::compact::compaction_log::Health;
use crate::compact::take_back::patience;
use crate::manifests::poll::LIST_EVERY;
use futures::future::{BoxFuture, select};
use log::Level;
use pressure::{Hold, Pressure, StallCause};
use siltstone_base::{Error, ErrorKind, Result};
use siltstone_manifest::Refusal;
use siltstone_store::troubles::explained;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// Log target of lines about back-pressure.
const TARGET: &str = "siltstone.pressure";
/// Shortest time between two log lines about one cause.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// A wait in progress. It is counted until it ends or its future is dropped.
struct Stall {
    writer: Arc<Writer>,
    cause: StallCause,
    stopped: bool,
    since: Duration,
}

impl Stall {
    fn new(writer: &Arc<Writer>, cause: StallCause, stopped: bool) -> Stall {
        writer.pressure.begin(cause, stopped);
        let since = writer.env.clock.monotonic();
        Stall { writer: Arc::clone(writer), cause, stopped, since }
    }

    /// Changes the cause of the wait and logs the new one immediately, because the wait may end
    /// before the next round of [`watch`].
    fn turn(&mut self, to: StallCause) {
        if to == self.cause {
            return;
        }
        let pressure = &self.writer.pressure;
        let now = self.writer.env.clock.monotonic();
        pressure.turn(self.cause, to);
        pressure.waited_for(self.cause, now.saturating_sub(self.since));
        (self.cause, self.since) = (to, now);
        self.writer.say(to, true);
    }
}

impl Drop for Stall {
    fn drop(&mut self) {
        let pressure = &self.writer.pressure;
        let took = self.writer.env.clock.monotonic().saturating_sub(self.since);
        pressure.waited_for(self.cause, took);
        if self.stopped {
            pressure.end(self.cause);
        }
    }
}

impl Writer {
    /// The future of a stalled write. It ends when the caller may try again.
    pub(crate) fn held_up(self: &Arc<Self>, hold: Hold) -> BoxFuture<'static, Result<()>> {
        if hold.until.is_none() && hold.cause == StallCause::Memory {
            // The memtable can exceed the bound before it has reached its flush size.
            self.freeze(&mut self.tail.lock());
        }
        self.say(hold.cause, hold.until.is_none());
        let mut waiting = Stall::new(self, hold.cause, hold.until.is_none());
        Box::pin(async move {
            let this = Arc::clone(&waiting.writer);
            match hold.until {
                Some(until) => this.slowed(until).await,
                None => this.stopped(&mut waiting).await,
            }
        })
    }

    /// Ends at `until`, or earlier if the pressure was relieved.
    async fn slowed(&self, until: Duration) -> Result<()> {
        let mut relief = pin!(self.pressure.relief.notified());
        relief.as_mut().enable();
        self.still_takes_writes()?;
        let left = until.saturating_sub(self.env.clock.monotonic());
        select(relief, self.env.clock.sleep(left)).await;
        self.still_takes_writes()
    }

    /// Ends when there is room.
    async fn stopped(&self, waiting: &mut Stall) -> Result<()> {
        let troubles = self.context.requests.troubles();
        let began = troubles.moment();
        let relieved = async {
            loop {
                // Register before reading the state, so that a relief in between is not missed.
                let mut relief = pin!(self.pressure.relief.notified());
                relief.as_mut().enable();
                self.still_takes_writes()?;
                let unflushed = self.tail.lock().unflushed_bytes();
                let full = self.pressure.limits.full(&self.pressure.load(unflushed));
                let denied = troubles.denied_since(began);
                match (full, denied) {
                    (None, _) => return Ok(()),
                    // Without the permission no flush can make room.
                    (Some(StallCause::Memory), Some(denied)) => return Err(denied),
                    (Some(cause), _) => waiting.turn(cause),
                }
                relief.await;
            }
        };
        let limit = self.options.deadline;
        let waited = self.env.deadline(limit, "wait for room", relieved).await;
        waited.map_err(|error| match error.kind() {
            // Only the deadline of this wait gives Timeout here.
            ErrorKind::Timeout => self.stalled_too_long(began),
            _ => error,
        })
    }

    fn still_takes_writes(&self) -> Result<()> {
        self.tail.lock().ended.clone().map_or(Ok(()), Err)
    }

    /// The error of a write that found no room within the deadline. `began` is the moment at which
    /// it began to wait.
    fn stalled_too_long(&self, began: u64) -> Error {
        let unflushed = self.tail.lock().unflushed_bytes();
        let full = self.pressure.limits.full(&self.pressure.load(unflushed));
        // Room that appeared at the deadline comes too late.
        let cause = full.unwrap_or(StallCause::Memory);
        let text = format!("no room for the write within the deadline: {}", self.reason(cause));
        let error = Error::new(ErrorKind::Timeout, text)
            .during("wait for room")
            .with("deadline", format_args!("{:?}", self.options.deadline));
        // The reason already contains what holds up compaction.
        let refused = self.context.requests.troubles().since(began);
        explained(error, refused.filter(|_| cause == StallCause::Memory))
    }

    /// The cause of the stall, its figure and limit, and the remedy.
    fn reason(&self, cause: StallCause) -> String {
        let unflushed = self.tail.lock().unflushed_bytes();
        let load = self.pressure.load(unflushed);
        let compaction = &self.options.compaction;
        match cause {
            StallCause::Memory => format!(
                "{unflushed} bytes are not flushed yet (max_memtable_bytes {}); the store accepts \
                 flushes more slowly than rows arrive: write slower, or raise max_memtable_bytes",
                self.options.max_memtable_bytes
            ),
            StallCause::L0 => format!(
                "L0 has {} layer{} (l0_max_ssts {}); {}",
                load.l0,
                if load.l0 == 1 { "" } else { "s" },
                compaction.l0_max_ssts,
                self.way_out("l0_max_ssts")
            ),
            StallCause::Pending => match self.pressure.limits.by_space(&load) {
                Some(above) => format!(
                    "{} bytes lie above the last layer (slowed from {} on, \
                     max_space_amplification); {}",
                    above.bytes,
                    above.slow_from,
                    self.way_out("max_space_amplification")
                ),
                None => format!(
                    "{} bytes wait to be compacted (max_pending_compaction_bytes {}); {}",
                    load.pending,
                    compaction.max_pending_compaction_bytes.unwrap_or_default(),
                    self.way_out("max_pending_compaction_bytes")
                ),
            },
        }
    }

    /// The state of compaction, and the remedy.
    fn way_out(&self, option: &str) -> String {
        if !self.options.embedded_compactor {
            return format!(
                "embedded_compactor is off, and no other compactor keeps up: run a compactor \
                 (siltstone run-compactor), call compact(), open with embedded_compactor, or raise \
                 {option}"
            );
        }
        match self.compactor.log.health() {
            Health::Healthy => format!(
                "compaction is slower than the writes: write slower, add another process \
                 (siltstone run-compactor), or raise {option}; if programs open the database only \
                 for a few rows, keep the writer open longer, or run `siltstone compact`"
            ),
            Health::Fails(error) => {
                format!("compaction fails and is retried: {error}")
            }
            Health::Fenced(_) => self.stopped_compactor(),
        }
    }

    /// The state of a compactor that another one has replaced.
    fn stopped_compactor(&self) -> String {
        let seconds = |time: Duration| format!("{:.1} s", time.as_secs_f64());
        let stalled = self.compactor.stalled_for(self.env.clock.monotonic()).unwrap_or_default();
        format!(
            "another compactor has taken over and has been stalled for {}: check that it is alive, \
             or start another one; once it has been stalled for {} this process compacts again",
            seconds(stalled),
            seconds(patience(&self.options))
        )
    }

    /// Logs the cause of a stall, at most once per [`SAY_EVERY`].
    fn say(&self, cause: StallCause, stopped: bool) {
        let level = if stopped { Level::Warn } else { Level::Info };
        if !log::log_enabled!(target: TARGET, level) {
            return;
        }
        let now = self.env.clock.monotonic();
        let mut said = self.pressure.said.lock();
        said.retain(|(_, _, last)| now < *last + SAY_EVERY);
        if said.iter().any(|(of, full, _)| (*of, *full) == (cause, stopped)) {
            return;
        }
        said.push((cause, stopped, now));
        drop(said);
        let what = if stopped { "stopped" } else { "slowed" };
        log::log!(target: TARGET, level, "writes are {what}: {}", self.reason(cause));
    }
}

impl Pressure {
    /// Whether a write is stopped until a compaction ends.
    fn wants_compaction(&self) -> bool {
        matches!(self.stopped_by(), Some(StallCause::L0 | StallCause::Pending))
    }
}

/// While a write is stopped, looks for commits of compactors in other processes and logs the cause.
/// Runs until the handle begins to close or has ended.
pub(crate) async fn watch(writer: Arc<Writer>) {
    let pressure = &writer.pressure;
    let mut looks: u32 = 0;
    while writer.is_open() {
        let nudged = pin!(pressure.watch.notified());
        let Some(cause) = pressure.stopped_by() else {
            nudged.await;
            continue;
        };
        let pause = writer.options.poll_interval();
        select(nudged, writer.env.clock.sleep(pause)).await;
        if !pressure.wants_compaction() || !writer.is_open() {
            continue;
        }
        writer.say(cause, true);
        looks = looks.wrapping_add(1);
        // The manifest client notifies waiting writes of new states. A read of the next number
        // misses a manifest whose predecessor was deleted; a listing does not.
        match writer.manifests.probe(looks.is_multiple_of(LIST_EVERY)).await {
            // A writer that uploads nothing never meets its successor's fence.
            Ok(newest) if newest.writer_epoch > writer.epoch => {
                writer.end(&Refusal::Fenced { by: newest.writer_epoch }.into());
            }
            Err(error) if !error.kind().may_pass() => writer.end(&error),
            Ok(_) | Err(_) => {}
        }
    }
}
