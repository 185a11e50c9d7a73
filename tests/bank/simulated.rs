//! The bank in the simulation: stores that fail in every way, writers that are killed, one day per
//! seed.

use crate::{Bank, Town, business, report, setting};
use parking_lot::Mutex;
use siltstone::Env;
use siltstone_tests::faults::{Fault, FaultPlan, Places};
use siltstone_tests::sim::{Limits, ProcessId, Rng, Sim, SimHandle};
use std::sync::Arc;
use std::time::Duration;

struct Simulated {
    sim: SimHandle,
    places: Arc<Places>,
    plan: Mutex<FaultPlan>,
    processes: Mutex<Vec<ProcessId>>,
}

impl Town for Simulated {
    fn process(&self, role: &'static str, place: &str) -> (Env, u64) {
        let process = self.sim.process(role, 0);
        let bucket = self.places.bucket(&self.sim, place, self.plan.lock().clone());
        let mut processes = self.processes.lock();
        processes.push(process);
        (self.sim.env(process, bucket.store(process)), processes.len() as u64 - 1)
    }

    fn kill(&self, process: u64) {
        let process = self.processes.lock()[process as usize];
        self.sim.kill(process);
    }

    fn heal(&self) {
        *self.plan.lock() = FaultPlan::none();
        self.places.heal();
    }
}

/// Every fault that the contract allows, so rarely that most of the work is done.
fn plan(rng: &mut Rng) -> FaultPlan {
    let mut plan = FaultPlan::none();
    for fault in Fault::REQUESTS.into_iter().filter(|fault| fault.keeps_the_contract()) {
        let rate = 1 + rng.below(15) as u32;
        let rate = if fault == Fault::BrownOut { rate.div_ceil(8) } else { rate };
        if rng.chance(500) {
            plan = plan.with(fault, rate);
        }
    }
    plan.latency.1 = Duration::from_millis(3 + rng.below(20));
    plan.lateness = (Duration::from_millis(50), Duration::from_secs(10));
    plan.brown_out = (Duration::from_millis(100), Duration::from_secs(2));
    plan
}

fn run(seed: u64) -> Vec<String> {
    let sim = Sim::new(seed);
    sim.set_limits(Limits { steps: 50_000_000, time: Duration::from_secs(7200) });
    let mut rng = sim.split_rng();
    // On every fourth day nothing fails; processes are killed nevertheless.
    let plan = if seed.is_multiple_of(4) { FaultPlan::none() } else { plan(&mut rng) };
    let town = Simulated {
        sim: (*sim).clone(),
        places: Arc::default(),
        plan: Mutex::new(plan),
        processes: Mutex::default(),
    };
    let bank = Bank::new(Box::new(town));
    let head = sim.process("head office", 0);
    let shift = Duration::from_secs(4);
    let day = business(Arc::clone(&bank), 2 + rng.below(3), shift, rng);
    let ended = sim.block_on(head, day);
    let mut troubles = report(&format!("seed {seed}"), &bank);
    troubles.extend(ended.err().map(|stopped| format!("it did not end: {stopped:?}")));
    if !troubles.is_empty() {
        troubles.push(sim.report());
    }
    troubles
}

#[test]
fn the_total_never_changes() {
    let (first, banks) = (setting("FIRST_SEED", 1), setting("BANKS", 8));
    let mut failed = Vec::new();
    for seed in first..first + banks {
        let troubles = run(seed);
        if !troubles.is_empty() {
            println!("seed {seed}:\n  {}", troubles.join("\n  "));
            failed.push(seed);
        }
    }
    assert!(failed.is_empty(), "seeds {failed:?} failed; run one with FIRST_SEED=… BANKS=1");
}
