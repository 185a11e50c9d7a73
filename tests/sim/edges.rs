//! Faults of the environment: which of them a seed has, and how severe they are.
//!
//! They have a separate random stream. A seed without any has the same trace as before they were
//! added; disabling one of them changes no other draw here.

use siltstone::Options;
use siltstone_tests::faults::{Fault, FaultPlan, Link};
use siltstone_tests::sim::{Rng, Sim, SimHandle};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Faults that the engine is known not to survive are disabled until it is fixed; `ALL_EDGES=1`
/// enables them.
fn is_mended(mended: bool) -> bool {
    mended || std::env::var_os("ALL_EDGES").is_some()
}

/// A task that panics ends its handle, and all waits on it. If disabled: the handle looked alive,
/// and waits on the task never ended.
pub(crate) fn tasks_are_supervised() -> bool {
    is_mended(true)
}

/// A close may be dropped, and the next one ends. If disabled: the next one waited for ever.
pub(crate) fn close_may_be_dropped() -> bool {
    is_mended(true)
}

/// A WAL object has a maximum size, so that a client with a fixed limit can send every one. If
/// disabled: all buffered data became one object, which such a client can never send.
pub(crate) fn wal_objects_are_bounded() -> bool {
    is_mended(true)
}

/// A permanently refused create of the WAL ends the handle. If disabled: it was repeated.
pub(crate) fn refusals_end_handles() -> bool {
    is_mended(true)
}

/// A missing bucket ends a handle. If disabled: a flush repeated a commit that met the missing
/// bucket without knowing its outcome, and its own earlier commit made the edit `Invalid`.
pub(crate) fn missing_buckets_end_handles() -> bool {
    is_mended(true)
}

/// `verify` reports a hole that a later object proves, as openers and readers do. If disabled: it
/// used only manifests.
pub(crate) fn verify_tells_what_objects_prove() -> bool {
    is_mended(true)
}

/// Rule E1 holds: a manifest counts only if its predecessor exists, and a process whose manifest
/// has none ends. If disabled: the old handle's commit became the newest of the new database.
pub(crate) fn successors_have_predecessors() -> bool {
    is_mended(true)
}

/// How often a seed has such faults at all, in a thousand.
const HAS_EDGES: u32 = 600;
const HAS_THIS_ONE: u32 = 250;
/// Separates this random stream from the bucket's.
const DICE: u64 = 0x6564_6765_7300_0002;
/// The largest object that a client with a fixed limit must be able to send: slightly more than an
/// object of the log of these seeds (4 `flush_bytes`) and their largest tables.
pub(crate) const LARGEST_SENT: u64 = 24 << 10;

/// The faults of one seed.
pub(crate) struct Edges {
    on: BTreeSet<Fault>,
    rates: Vec<(Fault, u32)>,
    link: Link,
    refusal: Duration,
    spare_bytes: u64,
    page_names: usize,
    steps: Rng,
}

impl Edges {
    pub(crate) fn draw(seed: u64) -> Edges {
        let mut rng = Rng::new(seed ^ DICE);
        let any = rng.chance(HAS_EDGES);
        let mut on = BTreeSet::new();
        let mut rates = Vec::new();
        for fault in Fault::EDGES {
            if rng.chance(HAS_THIS_ONE) && any && Edges::is_drawn(fault) {
                on.insert(fault);
            }
            // A client with a limit has a link.
            if fault == Fault::CutOff && on.contains(&Fault::SlowLink) {
                on.insert(fault);
            }
            let per_mille = match fault {
                // A low rate is sufficient for a seed to meet one.
                Fault::PutDenied | Fault::RefusedForGood => 4 + rng.below(12),
                Fault::TaskPanic => 2 + rng.below(8),
                Fault::DiskFull => 15 + rng.below(40),
                Fault::ListDenied => 10 + rng.below(40),
                Fault::DeleteDenied => 100 + rng.below(300),
                Fault::ListInPages => 300 + rng.below(700),
                Fault::DroppedFuture => 50 + rng.below(300),
                _ => rng.below(1),
            };
            rates.push((fault, per_mille as u32));
        }
        let bytes_per_second = 4000 << rng.below(5);
        let fixed = rng.chance(500) && wal_objects_are_bounded();
        let limit = Duration::from_millis(300 + rng.below(4000));
        // Four concurrent bodies of the largest size.
        let longest = Duration::from_millis(4 * LARGEST_SENT * 1000 / bytes_per_second);
        let link = Link {
            bytes_per_second,
            limit: if fixed { limit + longest } else { limit },
            limit_bytes_per_second: (!fixed).then_some(bytes_per_second / 8),
        };
        Edges {
            on,
            rates,
            link,
            refusal: Duration::from_millis(500 + rng.below(10_000)),
            spare_bytes: rng.below(8192),
            page_names: 1 + rng.below(6) as usize,
            steps: rng.split(),
        }
    }

    /// Whether these seeds have the fault: holes and recreated databases have separate seeds.
    fn is_drawn(fault: Fault) -> bool {
        match fault {
            Fault::Hole | Fault::Remade => false,
            Fault::CutOff => false,
            Fault::TaskPanic => tasks_are_supervised(),
            _ => true,
        }
    }

    /// No faults.
    pub(crate) fn none() -> Edges {
        Edges { on: BTreeSet::new(), ..Edges::draw(0) }
    }

    pub(crate) fn without(mut self, fault: Fault) -> Edges {
        self.on.remove(&fault);
        if fault == Fault::CutOff {
            self.link.limit = Duration::from_secs(86_400);
        }
        self
    }

    pub(crate) fn have(&self, fault: Fault) -> bool {
        self.on.contains(&fault)
    }

    /// How often `fault` occurs, in a thousand.
    pub(crate) fn rate(&self, fault: Fault) -> u32 {
        let rate = self.rates.iter().find(|(one, _)| *one == fault);
        rate.filter(|_| self.have(fault)).map_or(0, |(_, rate)| *rate)
    }

    pub(crate) fn sharpen(&self, mut plan: FaultPlan) -> FaultPlan {
        for fault in Fault::EDGES {
            plan = plan.with(fault, self.rate(fault));
        }
        plan.link = self.have(Fault::SlowLink).then_some(self.link);
        plan.refusal.1 = plan.refusal.0 + self.refusal;
        plan.spare_bytes = self.spare_bytes;
        plan.page_names = self.page_names;
        plan.refuses_as_missing = missing_buckets_end_handles();
        plan
    }

    /// Buffers that are large compared with the bandwidth.
    pub(crate) fn widen(&self, options: &mut Options) {
        if self.have(Fault::SlowLink) {
            options.max_memtable_bytes *= 16;
        }
    }

    /// The longest value, in bytes.
    pub(crate) fn value_bytes(&self) -> u64 {
        if self.have(Fault::SlowLink) { 600 } else { 60 }
    }

    /// Steps the clocks of processes, and of the store, until stopped.
    pub(crate) fn step_clocks(
        &self,
        sim: &Sim,
        stop: &Arc<AtomicBool>,
        struck: impl Fn() + Send + 'static,
    ) {
        if !self.have(Fault::ClockStep) {
            return;
        }
        let process = sim.process("clocks", 0);
        let steps = step_clocks((**sim).clone(), self.steps.clone(), Arc::clone(stop), struck);
        sim.spawn(process, "clocks", steps);
    }
}

/// Maximum number of hours by which a clock steps, in either direction.
const MOST_HOURS: u64 = 5;

async fn step_clocks(
    sim: SimHandle,
    mut rng: Rng,
    stop: Arc<AtomicBool>,
    struck: impl Fn() + Send + 'static,
) {
    loop {
        sim.sleep(Duration::from_millis(200 + rng.below(5000))).await;
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let processes = sim.processes();
        let drawn = processes.get(rng.below(processes.len() as u64) as usize);
        let millis = rng.below(2 * MOST_HOURS * 3_600_000) as i64;
        if let Some(process) = drawn {
            sim.set_skew_millis(*process, millis - (MOST_HOURS * 3_600_000) as i64);
            struck();
        }
    }
}

/// Sets the store's clock past all its earlier times, as time does in the end.
pub(crate) fn let_hours_pass(sim: &SimHandle) {
    use siltstone_tests::sim::ProcessId;
    sim.set_skew_millis(ProcessId::NETWORK, (2 * MOST_HOURS * 3_600_000) as i64);
}
