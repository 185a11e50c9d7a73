//! How fast writes may come (RFC 0022): three measures give one pressure, the pressure gives a
//! rate. Pure but for the shared figures; waiting is in `stalls`.

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

/// The rate where slowing begins, in bytes a second: more than any writer reaches.
const FASTEST: f64 = (1u64 << 30) as f64;
/// Where writes stop it has fallen to one layer in so many seconds: 1 MiB/s for layers of 64 MiB.
const SECONDS_A_LAYER: f64 = 64.0;
/// A write that is paid for no later than this is not held up: waits are not shorter than a timer's
/// tick.
const GRACE: Duration = Duration::from_millis(5);
/// Longest wait by the rate alone.
pub(crate) const LONGEST_DELAY: Duration = Duration::from_millis(500);

/// What writes wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StallCause {
    /// Unflushed bytes.
    Memory,
    /// Layers of L0.
    L0,
    /// Bytes that wait to be compacted, or lie above the last layer.
    Pending,
}

impl StallCause {
    pub(crate) const ALL: [StallCause; 3] =
        [StallCause::Memory, StallCause::L0, StallCause::Pending];
}

/// The figures that measures are taken of.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Load {
    /// Bytes accepted and not yet in tables.
    pub(crate) unflushed: usize,
    /// Layers of L0.
    pub(crate) l0: u64,
    /// Bytes that wait to be compacted.
    pub(crate) pending: u64,
    /// What lies above the last layer, where that is bounded.
    pub(crate) above: Option<SpaceAmplification>,
}

/// From where on something is measured, and where writes stop.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Span {
    from: f64,
    to: f64,
}

impl Span {
    /// 0 at `from` and below, 1 at `to` and above, a straight line between.
    fn measure(self, figure: f64) -> f64 {
        let reached = figure >= self.to;
        // An empty span has no between.
        let inside = ((figure - self.from) / (self.to - self.from).max(1.0)).clamp(0.0, 1.0);
        if reached { 1.0 } else { inside }
    }
}

/// The measures' bounds, from the options.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StallLimits {
    memory: Span,
    l0: Span,
    pending: Option<Span>,
    /// Unflushed bytes that come to one layer.
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

    /// Every measure, in the order of [`StallCause::ALL`].
    fn measures(&self, load: &Load) -> [f64; 3] {
        let coming = load.l0 as f64 + load.unflushed as f64 / self.layer_bytes;
        let waiting = self.waiting(load).max(self.above(load));
        [self.memory.measure(load.unflushed as f64), self.l0.measure(coming), waiting]
    }

    /// Of the bytes that wait to be compacted.
    fn waiting(&self, load: &Load) -> f64 {
        self.pending.map_or(0.0, |span| span.measure(load.pending as f64))
    }

    /// Of what lies above the last layer.
    fn above(&self, load: &Load) -> f64 {
        load.above.map_or(0.0, |above| self.space(&above, load.unflushed))
    }

    /// Which of the two measures of [`StallCause::Pending`] counts: what lies above the last layer,
    /// where that is so, and else the bytes that wait.
    pub(crate) fn by_space(&self, load: &Load) -> Option<SpaceAmplification> {
        load.above.filter(|_| self.above(load) > self.waiting(load))
    }

    /// Of what lies above the last layer, with what is unflushed as the part of a layer that it
    /// is. Writes never stop by it: at its end they are as slow as the rate gets.
    fn space(&self, above: &SpaceAmplification, unflushed: usize) -> f64 {
        let coming = unflushed as f64 / self.layer_bytes * above.coming as f64;
        let span = Span { from: above.slow_from as f64, to: above.most as f64 };
        span.measure(above.bytes as f64 + coming)
    }

    /// The largest measure, and whose it is.
    pub(crate) fn pressure(&self, load: &Load) -> (f64, StallCause) {
        let measures = StallCause::ALL.into_iter().zip(self.measures(load));
        measures.fold((0.0, StallCause::Memory), |(most, whose), (cause, measure)| {
            if measure > most { (measure, cause) } else { (most, whose) }
        })
    }

    /// Why writes stop, if they do. Memory comes last: where L0 is full it is full because of that.
    pub(crate) fn full(&self, load: &Load) -> Option<StallCause> {
        if self.is_l0_full(load.l0) {
            return Some(StallCause::L0);
        }
        if self.pending.is_some_and(|span| load.pending as f64 >= span.to) {
            return Some(StallCause::Pending);
        }
        (load.unflushed as f64 >= self.memory.to).then_some(StallCause::Memory)
    }

    /// Bytes a second at a pressure between 0 and 1: by the same factor less for each step.
    pub(crate) fn rate(&self, pressure: f64) -> f64 {
        let slowest = (self.layer_bytes / SECONDS_A_LAYER).min(FASTEST);
        FASTEST * (slowest / FASTEST).powf(pressure.clamp(0.0, 1.0))
    }

    fn is_l0_full(&self, l0: u64) -> bool {
        l0 as f64 >= self.l0.to
    }

    /// Unflushed bytes below which there is no pressure.
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

/// A write was not accepted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Hold {
    pub(crate) cause: StallCause,
    /// When to come again; `None`: when the stall is over.
    pub(crate) until: Option<Duration>,
}

/// How long writes have waited for one thing.
#[derive(Debug, Default)]
struct StallTime {
    nanos: AtomicU64,
    /// Writes that are stopped just now.
    stopped: AtomicUsize,
}

/// What the writer knows of its pressure; shared by whoever changes it and whoever feels it.
pub(crate) struct Pressure {
    pub(crate) limits: StallLimits,
    options: Options,
    l0: AtomicU64,
    pending: AtomicU64,
    above: Mutex<Option<SpaceAmplification>>,
    calm_below: AtomicUsize,
    /// Heard by those who wait: a stall may be over, or the handle has ended.
    pub(crate) relief: Notify,
    /// Notified of every newer manifest. Ingest jobs wait for it: a compaction may make room for
    /// them without relief, and leave L0 as high as it was.
    pub(crate) newer: Notify,
    /// Heard by the task that watches: somebody is stopped, or the handle ends.
    pub(crate) watch: Notify,
    waited: [StallTime; 3],
    /// Waits that began, by the rate, and stalls until there is room.
    pub(crate) slowed: AtomicU64,
    pub(crate) stopped: AtomicU64,
    /// When a line was last written of each cause, for slowed and for stopped writes.
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

    /// What keeps the flush from going on: of a permission that is lacking, those who are stalled
    /// or for the flush hear at once.
    pub(crate) fn tell(&self, error: &Error) {
        if error.kind() == ErrorKind::Denied {
            self.relief.notify_waiters();
        }
    }

    /// The newest known manifest is this.
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
        let told = !cfg!(mutation = "stall_end_is_told_to_nobody");
        if told && (l0 < l0_before || pending < pending_before || relieved) {
            self.relief.notify_waiters();
        }
        self.newer.notify_waiters();
    }

    /// The figures, with so many bytes unflushed.
    pub(crate) fn load(&self, unflushed: usize) -> Load {
        let (l0, pending) = (self.l0.load(Ordering::Acquire), self.pending.load(Ordering::Acquire));
        Load { unflushed, l0, pending, above: *self.above.lock() }
    }

    /// Whether nothing holds writes up: one comparison.
    pub(crate) fn is_calm(&self, unflushed: usize) -> bool {
        unflushed < self.calm_below.load(Ordering::Relaxed)
    }

    /// Whether L0 or pending bytes, and not memory alone, slow writes down or stop them.
    pub(crate) fn needs_compaction(&self, unflushed: usize) -> bool {
        let [_, l0, pending] = self.limits.measures(&self.load(unflushed));
        l0 > 0.0 || pending > 0.0
    }

    /// Layers of L0 that may still be added.
    pub(crate) fn l0_layers_left(&self) -> usize {
        let most = self.options.compaction.l0_max_ssts;
        usize::try_from(most.saturating_sub(self.l0.load(Ordering::Acquire))).unwrap_or(0)
    }

    /// Whether L0 has room for `layers` beside those that are queued. One ingest may fill half of
    /// what there is: one of more would wait for a moment that never comes.
    pub(crate) fn has_room_for(&self, queued: usize, layers: usize) -> bool {
        let most = usize::try_from(self.options.compaction.l0_max_ssts).unwrap_or(usize::MAX);
        self.l0_layers_left() >= queued + layers.clamp(1, (most / 2).max(1))
    }

    /// Lets a write of `bytes` pass, or says what it waits for. `due` is when all that was accepted
    /// is paid for.
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
        if *due > now + GRACE {
            return Err(Hold { cause, until: Some(*due) });
        }
        let cost = Duration::from_secs_f64(bytes as f64 / self.limits.rate(pressure));
        *due = (now.max(*due) + cost).min(now + LONGEST_DELAY);
        Ok(())
    }

    /// A wait for `cause` has begun; `stopped`: until there is room.
    pub(crate) fn begin(&self, cause: StallCause, stopped: bool) {
        let count = if stopped { &self.stopped } else { &self.slowed };
        count.fetch_add(1, Ordering::Relaxed);
        if stopped {
            self.of(cause).stopped.fetch_add(1, Ordering::AcqRel);
            self.watch.notify_one();
        }
    }

    /// A stopped wait for `from` goes on for `to`.
    pub(crate) fn turn(&self, from: StallCause, to: StallCause) {
        self.of(to).stopped.fetch_add(1, Ordering::AcqRel);
        self.of(from).stopped.fetch_sub(1, Ordering::AcqRel);
        self.watch.notify_one();
    }

    /// Writes have waited for `cause` for so long.
    pub(crate) fn waited_for(&self, cause: StallCause, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.of(cause).nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// A stopped wait has ended.
    pub(crate) fn end(&self, cause: StallCause) {
        self.of(cause).stopped.fetch_sub(1, Ordering::AcqRel);
    }

    /// How long writes have waited for `cause`, all together.
    pub(crate) fn waited(&self, cause: StallCause) -> Duration {
        Duration::from_nanos(self.of(cause).nanos.load(Ordering::Relaxed))
    }

    /// What somebody is stopped by just now.
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
