//! The edges of the world: which of them a seed has, and how sharp they are.
//!
//! They are drawn from dice of their own. A seed without any has the trace that it had before there
//! were edges; one of them switched off shifts nothing else of what is drawn here.

use siltstone::Options;
use siltstone_tests::faults::{Fault, FaultPlan, Link};
use siltstone_tests::sim::{Rng, Sim, SimHandle};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What the engine is known to fail stays off until it is mended; `ALL_EDGES=1` has it all the
/// same.
fn is_mended(mended: bool) -> bool {
    mended || std::env::var_os("ALL_EDGES").is_some()
}

/// A task that panics ends its handle, and all who wait for it. Off: today it leaves a handle that
/// looks alive, and whoever waits for it waits for ever.
pub(crate) fn tasks_are_supervised() -> bool {
    is_mended(true)
}

/// A close may be dropped, and the next one ends. Off: today the next one waits for ever.
pub(crate) fn close_may_be_dropped() -> bool {
    is_mended(true)
}

/// A WAL object has a largest size, so that a client with a fixed limit can send every one. Off:
/// today all that is buffered becomes one object, which such a client can never send.
pub(crate) fn wal_objects_are_bounded() -> bool {
    is_mended(true)
}

/// A create of the WAL that is refused for good ends the handle. Off: today it is repeated.
pub(crate) fn refusals_end_handles() -> bool {
    is_mended(true)
}

/// A bucket that is not there ends a handle. Off: today a flush whose commit meets that begins anew
/// with the commit's outcome open, and is refused what it had committed itself (`Invalid`).
pub(crate) fn missing_buckets_end_handles() -> bool {
    is_mended(true)
}

/// `verify` tells a hole that a later object proves, as openers and readers do. Off: today it goes
/// by manifests alone.
pub(crate) fn verify_tells_what_objects_prove() -> bool {
    is_mended(true)
}

/// Rule E1 holds: a manifest counts only beside its predecessor, and who finds itself without one
/// ends. Off: today the old handle's commit becomes the newest of the new database.
pub(crate) fn successors_have_predecessors() -> bool {
    is_mended(true)
}

/// So often in a thousand a seed has edges at all, and then each of them.
const HAS_EDGES: u32 = 600;
const HAS_THIS_ONE: u32 = 250;
/// Tells these dice from the bucket's.
const DICE: u64 = 0x6564_6765_7300_0002;
/// The largest object that a client whose limit does not grow must be able to send: some more than
/// a piece of the log of these seeds (4 `flush_bytes`) and their largest tables.
pub(crate) const LARGEST_SENT: u64 = 24 << 10;

/// What one seed has.
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
            // A client that has a limit has a link.
            if fault == Fault::CutOff && on.contains(&Fault::SlowLink) {
                on.insert(fault);
            }
            let per_mille = match fault {
                // Few of them are needed for a seed to meet one.
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
        // Four bodies of the largest size side by side.
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

    /// Whether seeds have it: holes and databases that are made again have seeds of their own.
    fn is_drawn(fault: Fault) -> bool {
        match fault {
            Fault::Hole | Fault::Remade => false,
            Fault::CutOff => false,
            Fault::TaskPanic => tasks_are_supervised(),
            _ => true,
        }
    }

    /// None at all.
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

    /// How often `fault` strikes, in a thousand.
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

    /// Steps the clocks of processes, and of the store, until told to stop.
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

/// Hours that a clock steps at most, to either side.
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

/// Sets the store's clock past all that it has shown, as time does in the end.
pub(crate) fn let_hours_pass(sim: &SimHandle) {
    use siltstone_tests::sim::ProcessId;
    sim.set_skew_millis(ProcessId::NETWORK, (2 * MOST_HOURS * 3_600_000) as i64);
}
