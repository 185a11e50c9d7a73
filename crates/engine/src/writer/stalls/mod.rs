//! Waiting under pressure (RFC 0022): the futures that a write is answered with, the task that
//! looks for another process's compactions meanwhile, and what is said about it.

pub(crate) mod pressure;

use super::state::Writer;
use crate::compact::compaction_log::Health;
use crate::compact::take_back::patience;
use crate::io::store::troubles::explained;
use crate::manifests::poll::LIST_EVERY;
use futures::future::{BoxFuture, select};
use log::Level;
use pressure::{Hold, Pressure, StallCause};
use siltstone_base::{Error, ErrorKind, Result};
use siltstone_manifest::Refusal;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// Where lines about pressure go.
const TARGET: &str = "siltstone.pressure";
/// Shortest time between two lines of a cause.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// A wait under way: counted until it is over, or given up.
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

    /// What is in the way is something else by now, and that is said at once: the wait may be over
    /// before the next look of [`watch`].
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
    /// The future of a write that is held up: ends when it may come again.
    pub(crate) fn held_up(self: &Arc<Self>, hold: Hold) -> BoxFuture<'static, Result<()>> {
        if hold.until.is_none() && hold.cause == StallCause::Memory {
            // A memtable may be over the bound without having reached its flush size.
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

    /// Ends at `until`, or sooner when something was relieved.
    async fn slowed(&self, until: Duration) -> Result<()> {
        let mut relief = pin!(self.pressure.relief.notified());
        relief.as_mut().enable();
        self.still_takes_writes()?;
        let left = until.saturating_sub(self.env.clock.monotonic());
        select(relief, self.env.clock.sleep(left)).await;
        self.still_takes_writes()
    }

    /// Ends when the stall does: there is room.
    async fn stopped(&self, waiting: &mut Stall) -> Result<()> {
        let troubles = self.context.requests.troubles();
        let began = troubles.moment();
        let relieved = async {
            loop {
                // Registered before the look, so that a relief in between is not missed.
                let mut relief = pin!(self.pressure.relief.notified());
                relief.as_mut().enable();
                self.still_takes_writes()?;
                let unflushed = self.tail.lock().unflushed_bytes();
                let full = self.pressure.limits.full(&self.pressure.load(unflushed));
                let denied = troubles.denied_since(began);
                match (full, denied) {
                    (None, _) => return Ok(()),
                    // No flush can make room before somebody gives the permission.
                    (Some(StallCause::Memory), Some(denied)) => return Err(denied),
                    (Some(cause), _) => waiting.turn(cause),
                }
                relief.await;
            }
        };
        let limit = self.options.deadline;
        let waited = self.env.deadline(limit, "wait for room", relieved).await;
        waited.map_err(|error| match error.kind() {
            // Only the deadline itself is one here.
            ErrorKind::Timeout => self.stalled_too_long(began),
            _ => error,
        })
    }

    fn still_takes_writes(&self) -> Result<()> {
        self.tail.lock().ended.clone().map_or(Ok(()), Err)
    }

    /// The error of a write that found no room within the deadline, since it `began` to wait.
    fn stalled_too_long(&self, began: u64) -> Error {
        let unflushed = self.tail.lock().unflushed_bytes();
        let full = self.pressure.limits.full(&self.pressure.load(unflushed));
        // Room that came with the deadline is gone with it.
        let cause = full.unwrap_or(StallCause::Memory);
        let text = format!("no room for the write within the deadline: {}", self.reason(cause));
        let error = Error::new(ErrorKind::Timeout, text)
            .during("wait for room")
            .with("deadline", format_args!("{:?}", self.options.deadline));
        // What holds compaction up is in the reason.
        let refused = self.context.requests.troubles().since(began);
        explained(error, refused.filter(|_| cause == StallCause::Memory))
    }

    /// What is in the way, its figure and limit, and the way out.
    fn reason(&self, cause: StallCause) -> String {
        let unflushed = self.tail.lock().unflushed_bytes();
        let load = self.pressure.load(unflushed);
        let compaction = &self.options.compaction;
        match cause {
            StallCause::Memory => format!(
                "{unflushed} bytes are not in tables yet (max_memtable_bytes {}); the store takes \
                 flushes slower than writes come: write slower, or raise max_memtable_bytes",
                self.options.max_memtable_bytes
            ),
            StallCause::L0 => format!(
                "L0 has {} layers (l0_max_ssts {}); {}",
                load.l0,
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

    /// What becomes of compaction, and what helps.
    fn way_out(&self, option: &str) -> String {
        if !self.options.embedded_compactor {
            return format!(
                "embedded_compactor is off, and nobody else compacts fast enough: run a compactor \
                 (siltstone run-compactor), call compact(), open with embedded_compactor, or raise \
                 {option}"
            );
        }
        match self.compactor.log.health() {
            Health::Well => format!(
                "compaction is slower than the writes: write slower, give it another process \
                 (siltstone run-compactor), or raise {option}"
            ),
            Health::Fails(error) => {
                format!("compaction fails, and is tried again: {error}")
            }
            Health::Fenced(_) => self.stopped_compactor(),
        }
    }

    /// What becomes of a compactor that another one has stopped.
    fn stopped_compactor(&self) -> String {
        let seconds = |time: Duration| format!("{:.1} s", time.as_secs_f64());
        let stalled = self.compactor.stalled_for(self.env.clock.monotonic()).unwrap_or_default();
        format!(
            "another compactor has taken over and has been stalled for {}: see that it is alive, \
             or start another one; once it has been stalled for {} this process compacts again",
            seconds(stalled),
            seconds(patience(&self.options))
        )
    }

    /// Writes a line about what holds writes up, but not too many.
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
    /// Whether somebody is stopped for want of compaction.
    fn wants_compaction(&self) -> bool {
        matches!(self.stopped_by(), Some(StallCause::L0 | StallCause::Pending))
    }
}

/// While somebody is stopped: looks for what a compactor in another process has done, and says how
/// it stands. Runs until the handle begins to close or has ended.
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
        // What it finds is told to those who wait. A read of the next number misses a manifest
        // whose predecessor was freed; a listing does not.
        match writer.manifests.probe(looks.is_multiple_of(LIST_EVERY)).await {
            // A writer that sends nothing does not meet its successor's fence.
            Ok(newest) if newest.writer_epoch > writer.epoch => {
                writer.end(&Refusal::Fenced { by: newest.writer_epoch }.into());
            }
            Err(error) if !error.kind().may_pass() => writer.end(&error),
            Ok(_) | Err(_) => {}
        }
    }
}
