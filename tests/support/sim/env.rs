//! The engine's seam over a simulation: one process's clock, randomness and tasks.

use super::executor::{ProcessId, SimHandle};
use super::random::Rng;
use super::timer::Sleep;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use siltstone::UnixMillis;
use siltstone::env::{Clock, Effects, Random, Spawn};
use std::sync::Arc;
use std::time::Duration;

/// Wall time at the start of every simulation: 2023-11-14T22:13:20Z.
const START_MILLIS: u64 = 1_700_000_000_000;

pub(crate) fn effects(sim: &SimHandle, process: ProcessId, random: Rng) -> Effects {
    Effects {
        clock: Arc::new(SimClock { sim: sim.clone(), process }),
        random: Arc::new(SimRandom(Mutex::new(random))),
        spawn: Arc::new(SimSpawn { sim: sim.clone(), process }),
    }
}

/// The wall clock of a machine with an error of `skew_millis`.
pub(crate) fn wall_clock(elapsed: Duration, skew_millis: i64) -> UnixMillis {
    let exact = START_MILLIS.saturating_add(elapsed.as_millis() as u64);
    UnixMillis(exact.saturating_add_signed(skew_millis))
}

struct SimClock {
    sim: SimHandle,
    process: ProcessId,
}

impl Clock for SimClock {
    fn now(&self) -> UnixMillis {
        let now = wall_clock(self.sim.elapsed(), self.sim.skew_millis(self.process));
        self.sim.show(now);
        now
    }

    fn monotonic(&self) -> Duration {
        self.sim.elapsed()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(Sleep::new(self.sim.clone(), duration))
    }
}

struct SimRandom(Mutex<Rng>);

impl Random for SimRandom {
    fn next_u64(&self) -> u64 {
        self.0.lock().next_u64()
    }
}

struct SimSpawn {
    sim: SimHandle,
    process: ProcessId,
}

impl Spawn for SimSpawn {
    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>) {
        self.sim.spawn_background(self.process, name, task);
    }

    fn spawn_blocking(&self, name: &'static str, work: Box<dyn FnOnce() + Send>) {
        self.sim.spawn_background(self.process, name, Box::pin(async move { work() }));
    }
}
