//! Back-pressure (RFC 0022): three measures give one pressure, and the pressure gives a rate. Pure
//! except for the shared figures; waiting is in `stalls`.

use crate::compact::pending::{above, pending_bytes};
use crate::options::Options;
use parking_lot::Mutex;
use siltstone_base::{Error, ErrorKind, UnixMillis};
use siltstone_manifest::Manifest;
use siltstone_manifest::compaction::SpaceAmplification;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// The rate at which slowing begins, in bytes per second. It exceeds the speed of any writer.
const FASTEST: f64 = (1u64 << 30) as f64;
/// The rate at which writes stop is one layer per this many seconds: 1 MiB/s for layers of 64 MiB.
const SECONDS_A_LAYER: f64 = 64.0;
/// A write that is due within this time is not delayed, because timers are no finer.
const GRACE: Duration = Duration::from_millis(5);
/// The longest wait that the rate alone causes.
pub(crate) const LONGEST_DELAY: Duration = Duration::from_millis(500);

/// Why writes wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StallCause {
    /// Unflushed bytes.
    Memory,
    /// Layers of L0.
    L0,
    /// Bytes that wait for compaction, or bytes above the last layer.
    Pending,
}

impl StallCause {
    pub(crate) const ALL: [StallCause; 3] =
        [StallCause::Memory, StallCause::L0, StallCause::Pending];
}

/// The figures from which the measures are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Load {
    /// Bytes that are accepted and not in tables yet.
    pub(crate) unflushed: usize,
    /// Layers of L0.
    pub(crate) l0: u64,
    /// Bytes that wait for compaction.
    pub(crate) pending: u64,
    /// The bytes above the last layer, if they are bounded.
    pub(crate) above: Option<SpaceAmplification>,
}

/// The figure at which a measure begins to rise, and the figure at which writes stop.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Span {
    from: f64,
    to: f64,
}

impl Span {
    /// 0 at or below `from`, 1 at or above `to`, linear in between.
    fn measure(self, figure: f64) -> f64 {
        let reached = figure >= self.to;
        // The division must not be by zero for an empty span.
        let inside = ((figure - self.from) / (self.to - self.from).max(1.0)).clamp(0.0, 1.0);
        if reached { 1.0 } else { inside }
    }
}

/// The bounds of the measures, from the options.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StallLimits {
    memory: Span,
    l0: Span,
    pending: Option<Span>,
    /// Unflushed bytes that amount to one layer.
    layer_bytes: f64,
}

impl StallLimits {
    pub(crate) fn of(options: &Options) -> StallLimits {
        let most = options.max_memtable_bytes as f64;
        let layer_bytes = (options.l0_sst_size_bytes as f64).max(1.0);
        let compaction = &options.compaction;
        let (threshold, stop) =
            (compaction.l0_compaction_threshold_ssts as f64, compaction.l0_max_ssts as f64);
        let pending = compaction.max_pending_compaction_bytes.map(|most| most as f64);
        StallLimits {
            memory: Span { from: (most * 0.75).max(layer_bytes.min(most)), to: most },
            l0: Span { from: f64::midpoint(threshold, stop), to: stop },
            pending: pending.map(|most| Span { from: most / 2.0, to: most }),
            layer_bytes,
        }
    }

    /// All measures, in the order of [`StallCause::ALL`].
    fn measures(&self, load: &Load) -> [f64; 3] {
        let coming = load.l0 as f64 + load.unflushed as f64 / self.layer_bytes;
        let waiting = self.waiting(load).max(self.above(load));
        [self.memory.measure(load.unflushed as f64), self.l0.measure(coming), waiting]
    }

    /// The measure of the bytes that wait for compaction.
    fn waiting(&self, load: &Load) -> f64 {
        self.pending.map_or(0.0, |span| span.measure(load.pending as f64))
    }

    /// The measure of the bytes above the last layer.
    fn above(&self, load: &Load) -> f64 {
        load.above.map_or(0.0, |above| self.space(&above, load.unflushed))
    }

    /// Which of the two measures of [`StallCause::Pending`] is larger: `Some` if it is that of the
    /// bytes above the last layer, `None` if it is that of the bytes that wait.
    pub(crate) fn by_space(&self, load: &Load) -> Option<SpaceAmplification> {
        load.above.filter(|_| self.above(load) > self.waiting(load))
    }

    /// The measure of the bytes above the last layer. Unflushed bytes count as the part of a layer
    /// that they fill. This measure never stops writes; at 1 they have the slowest rate.
    fn space(&self, above: &SpaceAmplification, unflushed: usize) -> f64 {
        let coming = unflushed as f64 / self.layer_bytes * above.coming as f64;
        let span = Span { from: above.slow_from as f64, to: above.most as f64 };
        span.measure(above.bytes as f64 + coming)
    }

    /// The largest measure, and its cause.
    pub(crate) fn pressure(&self, load: &Load) -> (f64, StallCause) {
        let measures = StallCause::ALL.into_iter().zip(self.measures(load));
        measures.fold((0.0, StallCause::Memory), |(most, whose), (cause, measure)| {
            if measure > most { (measure, cause) } else { (most, whose) }
        })
    }

    /// Why writes stop, if they do. Memory is checked last, because a full L0 also fills memory.
    pub(crate) fn full(&self, load: &Load) -> Option<StallCause> {
        if self.is_l0_full(load.l0) {
            return Some(StallCause::L0);
        }
        if self.pending.is_some_and(|span| load.pending as f64 >= span.to) {
            return Some(StallCause::Pending);
        }
        (load.unflushed as f64 >= self.memory.to).then_some(StallCause::Memory)
    }

    /// Bytes per second at a pressure between 0 and 1. Each step lowers the rate by the same
    /// factor.
    pub(crate) fn rate(&self, pressure: f64) -> f64 {
        let slowest = (self.layer_bytes / SECONDS_A_LAYER).min(FASTEST);
        FASTEST * (slowest / FASTEST).powf(pressure.clamp(0.0, 1.0))
    }

    fn is_l0_full(&self, l0: u64) -> bool {
        l0 as f64 >= self.l0.to
    }

    /// The number of unflushed bytes below which there is no pressure.
    fn calm_below(&self, load: &Load) -> usize {
        if self.pending.is_some_and(|span| load.pending as f64 > span.from) {
            return 0;
        }
        let layers = (self.l0.from - load.l0 as f64).max(0.0);
        let above = load.above.map_or(f64::INFINITY, |above| {
            let left = above.slow_from.saturating_sub(above.bytes);
            left as f64 / above.coming.max(1) as f64
        });
        (layers.min(above) * self.layer_bytes).min(self.memory.from) as usize
    }
}

/// A write that was not accepted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Hold {
    pub(crate) cause: StallCause,
    /// When to try again; `None` means when the stall ends.
    pub(crate) until: Option<Duration>,
}

/// How long writes have waited for one cause.
#[derive(Debug, Default)]
struct StallTime {
    nanos: AtomicU64,
    /// Number of writes that are stopped now.
    stopped: AtomicUsize,
}

/// The writer's back-pressure, shared by the code that changes the figures and the code that waits.
pub(crate) struct Pressure {
    pub(crate) limits: StallLimits,
    options: Options,
    l0: AtomicU64,
    pending: AtomicU64,
    above: Mutex<Option<SpaceAmplification>>,
    calm_below: AtomicUsize,
    /// Notifies waiting writes: a stall may be over, or the handle has ended.
    pub(crate) relief: Notify,
    /// Notified on each newer manifest. Ingest jobs wait for it, because a compaction may make room
    /// for them without relief for writes, and without lowering L0.
    pub(crate) newer: Notify,
    /// Notifies the watch task: a write is stopped, or the handle ends.
    pub(crate) watch: Notify,
    waited: [StallTime; 3],
    /// Number of waits by the rate, and number of stalls until there is room.
    pub(crate) slowed: AtomicU64,
    pub(crate) stopped: AtomicU64,
    /// Time of the last log line for each cause, separately for slowed and stopped writes.
    pub(crate) said: Mutex<Vec<(StallCause, bool, Duration)>>,
}

impl Pressure {
    pub(crate) fn new(options: &Options) -> Arc<Pressure> {
        let limits = StallLimits::of(options);
        Arc::new(Pressure {
            limits,
            options: options.clone(),
            l0: AtomicU64::new(0),
            pending: AtomicU64::new(0),
            above: Mutex::default(),
            calm_below: AtomicUsize::new(limits.calm_below(&Load::default())),
            relief: Notify::new(),
            newer: Notify::new(),
            watch: Notify::new(),
            waited: Default::default(),
            slowed: AtomicU64::new(0),
            stopped: AtomicU64::new(0),
            said: Mutex::default(),
        })
    }

    /// Reports an error that blocks flushes. If a permission is missing, stalled writes and callers
    /// that wait for a flush learn it immediately.
    pub(crate) fn tell(&self, error: &Error) {
        if error.kind() == ErrorKind::Denied {
            self.relief.notify_waiters();
        }
    }

    /// Takes the figures from the newest known manifest.
    pub(crate) fn observe(&self, manifest: &Manifest, now: UnixMillis) {
        let l0 = manifest.l0.len() as u64;
        let limited = self.options.compaction.max_pending_compaction_bytes.is_some();
        let pending = if limited { pending_bytes(manifest, &self.options, now) } else { 0 };
        let l0_before = self.l0.swap(l0, Ordering::AcqRel);
        let pending_before = self.pending.swap(pending, Ordering::AcqRel);
        let above = above(manifest, &self.options);
        let above_before = std::mem::replace(&mut *self.above.lock(), above);
        let load = Load { unflushed: 0, l0, pending, above };
        self.calm_below.store(self.limits.calm_below(&load), Ordering::Release);
        let left = |above: Option<SpaceAmplification>| {
            above.map(|one| i128::from(one.slow_from) - i128::from(one.bytes))
        };
        let relieved = match (left(above_before), left(above)) {
            (Some(before), Some(now)) => now > before,
            (before, now) => before.is_some() && now.is_none(),
        };
        if l0 < l0_before || pending < pending_before || relieved {
            self.relief.notify_waiters();
        }
        self.newer.notify_waiters();
    }

    /// The figures, with `unflushed` unflushed bytes.
    pub(crate) fn load(&self, unflushed: usize) -> Load {
        let (l0, pending) = (self.l0.load(Ordering::Acquire), self.pending.load(Ordering::Acquire));
        Load { unflushed, l0, pending, above: *self.above.lock() }
    }

    /// Whether nothing delays writes. Costs one comparison.
    pub(crate) fn is_calm(&self, unflushed: usize) -> bool {
        unflushed < self.calm_below.load(Ordering::Relaxed)
    }

    /// Whether L0 or pending bytes, and not memory alone, delay or stop writes.
    pub(crate) fn needs_compaction(&self, unflushed: usize) -> bool {
        let [_, l0, pending] = self.limits.measures(&self.load(unflushed));
        l0 > 0.0 || pending > 0.0
    }

    /// Number of layers that L0 can still take.
    pub(crate) fn l0_layers_left(&self) -> usize {
        let most = self.options.compaction.l0_max_ssts;
        usize::try_from(most.saturating_sub(self.l0.load(Ordering::Acquire))).unwrap_or(0)
    }

    /// Whether L0 has room for `layers` in addition to the `queued` ones. An ingest counts as at
    /// most half of the limit: a larger one would otherwise wait for ever.
    pub(crate) fn has_room_for(&self, queued: usize, layers: usize) -> bool {
        let most = usize::try_from(self.options.compaction.l0_max_ssts).unwrap_or(usize::MAX);
        self.l0_layers_left() >= queued + layers.clamp(1, (most / 2).max(1))
    }

    /// Admits a write of `bytes`, or returns what it waits for. `due` is the time at which the
    /// accepted writes are paid for at the current rate.
    pub(crate) fn admit(
        &self,
        load: &Load,
        bytes: usize,
        now: Duration,
        due: &mut Duration,
    ) -> Result<(), Hold> {
        if let Some(cause) = self.limits.full(load) {
            return Err(Hold { cause, until: None });
        }
        let (pressure, cause) = self.limits.pressure(load);
        if pressure == 0.0 {
            // The charge of an earlier pressure is void: it has no cause any more.
            *due = now;
            return Ok(());
        }
        if *due > now + GRACE {
            return Err(Hold { cause, until: Some(*due) });
        }
        let cost = Duration::from_secs_f64(bytes as f64 / self.limits.rate(pressure));
        *due = (now.max(*due) + cost).min(now + LONGEST_DELAY);
        Ok(())
    }

    /// Counts a wait for `cause`. `stopped` means until there is room.
    pub(crate) fn begin(&self, cause: StallCause, stopped: bool) {
        let count = if stopped { &self.stopped } else { &self.slowed };
        count.fetch_add(1, Ordering::Relaxed);
        if stopped {
            self.of(cause).stopped.fetch_add(1, Ordering::AcqRel);
            self.watch.notify_one();
        }
    }

    /// A stopped wait changes its cause.
    pub(crate) fn turn(&self, from: StallCause, to: StallCause) {
        self.of(to).stopped.fetch_add(1, Ordering::AcqRel);
        self.of(from).stopped.fetch_sub(1, Ordering::AcqRel);
        self.watch.notify_one();
    }

    /// Adds the duration of a wait for `cause`.
    pub(crate) fn waited_for(&self, cause: StallCause, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.of(cause).nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// A stopped wait has ended.
    pub(crate) fn end(&self, cause: StallCause) {
        self.of(cause).stopped.fetch_sub(1, Ordering::AcqRel);
    }

    /// Total time for which writes have waited for `cause`.
    pub(crate) fn waited(&self, cause: StallCause) -> Duration {
        Duration::from_nanos(self.of(cause).nanos.load(Ordering::Relaxed))
    }

    /// The cause that stops a write now, if any.
    pub(crate) fn stopped_by(&self) -> Option<StallCause> {
        let stopped = |cause: &StallCause| self.of(*cause).stopped.load(Ordering::Acquire) > 0;
        StallCause::ALL.into_iter().rev().find(stopped)
    }

    fn of(&self, cause: StallCause) -> &StallTime {
        let [memory, l0, pending] = &self.waited;
        match cause {
            StallCause::Memory => memory,
            StallCause::L0 => l0,
            StallCause::Pending => pending,
        }
    }
}

#[cfg(test)]
mod tests;
