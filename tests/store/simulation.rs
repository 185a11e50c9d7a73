//! The simulation itself: one trace per seed; the effects of killing, pausing and hanging.

use bytes::Bytes;
use parking_lot::Mutex;
use siltstone::store::PutAnswer;
use siltstone::store::memory::MemoryStore;
use siltstone::store::retry::with_retries;
use siltstone::{Env, Error};
use siltstone_base::{ObjectName, UnixMillis, WalId};
use siltstone_tests::faults::{Bucket, FaultPlan};
use siltstone_tests::sim::{Limits, Sim, Stopped};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

fn wal(id: u64) -> ObjectName {
    ObjectName::Wal(WalId(id))
}

/// A busy little world: writers that race for names, sleep at random, and spawn.
fn busy_world(seed: u64) -> (u64, Vec<u64>) {
    let sim = Sim::new(seed);
    let mut rng = sim.split_rng();
    let bucket = Bucket::new(&sim, FaultPlan::random(&mut rng));
    let order = Arc::new(Mutex::new(Vec::new()));
    let main = sim.process("main", 0);
    for writer in 0..4 {
        let process = sim.process("writer", 0);
        let env = sim.env(process, bucket.store(process));
        let order = Arc::clone(&order);
        sim.spawn(process, "write", async move {
            for id in 1..20 {
                let pause = Duration::from_micros(env.random.next_u64() % 3000);
                env.clock.sleep(pause).await;
                let answer = env.store.put_if_absent(wal(id), Bytes::from(vec![writer])).await;
                if matches!(answer, PutAnswer::Created) {
                    order.lock().push(id * 10 + u64::from(writer));
                }
            }
        });
    }
    let handle = sim.clone();
    sim.block_on(main, async move { handle.sleep(Duration::from_secs(600)).await }).unwrap();
    let order = order.lock().clone();
    (sim.trace_hash(), order)
}

#[test]
fn one_seed_has_one_trace() {
    let mut traces = Vec::new();
    for seed in 0..10 {
        let first = busy_world(seed);
        assert_eq!(first, busy_world(seed), "seed {seed}");
        traces.push(first.0);
    }
    traces.sort_unstable();
    traces.dedup();
    assert_eq!(traces.len(), 10, "seeds make a difference");
}

fn world() -> (Sim, Env) {
    let sim = Sim::new(3);
    let process = sim.process("main", 0);
    let env = sim.env(process, MemoryStore::unnamed());
    (sim, env)
}

#[test]
fn virtual_hours_take_no_time() {
    let (sim, env) = world();
    sim.set_limits(Limits { time: Duration::from_secs(1_000_000), ..Limits::default() });
    let process = sim.process("sleeper", 0);
    let started = env.clock.now();
    let clock = Arc::clone(&env.clock);
    sim.block_on(process, async move { clock.sleep(Duration::from_secs(100 * 3600)).await })
        .unwrap();
    assert_eq!(env.clock.now(), UnixMillis(started.0 + 100 * 3600 * 1000));
    assert_eq!(env.clock.monotonic(), Duration::from_secs(100 * 3600));
}

#[test]
fn clocks_of_processes_differ_and_may_jump() {
    let sim = Sim::new(0);
    let (early, late) = (sim.process("early", -5000), sim.process("late", 7000));
    let now = |process| sim.effects(process).clock.now().0 as i64;
    assert_eq!(now(late) - now(early), 12_000);
    sim.set_skew_millis(late, -1000);
    assert_eq!(now(late) - now(early), 4000);
    assert_eq!(sim.effects(late).clock.monotonic(), Duration::ZERO);
}

/// Counts up every millisecond, without end.
fn spawn_counter(sim: &Sim, process: siltstone_tests::sim::ProcessId) -> Arc<AtomicU64> {
    let count = Arc::new(AtomicU64::new(0));
    let (counting, handle) = (Arc::clone(&count), (**sim).clone());
    sim.spawn(process, "count", async move {
        loop {
            handle.sleep(Duration::from_millis(1)).await;
            counting.fetch_add(1, Ordering::Relaxed);
        }
    });
    count
}

#[test]
fn a_killed_process_runs_nothing_and_its_futures_are_dropped() {
    struct Dropped(Arc<AtomicU64>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let sim = Sim::new(1);
    let (doomed, other) = (sim.process("doomed", 0), sim.process("other", 0));
    let (dead, alive) = (spawn_counter(&sim, doomed), spawn_counter(&sim, other));
    let drops = Arc::new(AtomicU64::new(0));
    let held = Dropped(Arc::clone(&drops));
    sim.spawn(doomed, "hold", async move {
        let _held = held;
        futures::future::pending::<()>().await;
    });
    sim.run_for(Duration::from_millis(10)).unwrap();
    assert!(dead.load(Ordering::Relaxed) >= 9);
    sim.kill(doomed);
    assert_eq!(drops.load(Ordering::Relaxed), 1);
    let (before, others) = (dead.load(Ordering::Relaxed), alive.load(Ordering::Relaxed));
    sim.run_for(Duration::from_millis(10)).unwrap();
    assert_eq!(dead.load(Ordering::Relaxed), before);
    assert!(alive.load(Ordering::Relaxed) >= others + 9);
    // No task can be started in it either.
    let after = spawn_counter(&sim, doomed);
    sim.run_for(Duration::from_millis(10)).unwrap();
    assert_eq!(after.load(Ordering::Relaxed), 0);
    assert_eq!(sim.block_on(doomed, async {}), Err(Stopped::Killed));
}

#[test]
fn a_paused_process_sleeps_through_and_goes_on() {
    let sim = Sim::new(1);
    let zombie = sim.process("zombie", 0);
    let count = spawn_counter(&sim, zombie);
    sim.run_for(Duration::from_millis(10)).unwrap();
    sim.pause(zombie);
    let before = count.load(Ordering::Relaxed);
    sim.run_for(Duration::from_secs(60)).unwrap();
    assert_eq!(count.load(Ordering::Relaxed), before);
    sim.resume(zombie);
    sim.run_for(Duration::from_millis(10)).unwrap();
    assert!(count.load(Ordering::Relaxed) > before);
}

#[test]
fn every_kind_of_hang_is_told() {
    let hang = |limits: Limits, work: fn(Env) -> futures::future::BoxFuture<'static, ()>| {
        let (sim, env) = world();
        sim.set_limits(limits);
        let process = sim.process("stuck", 0);
        sim.block_on(process, work(env)).unwrap_err()
    };
    let limits = Limits { steps: 10_000, time: Duration::from_secs(60) };
    let stopped = hang(limits, |_| Box::pin(futures::future::pending()));
    assert_eq!(stopped, Stopped::Deadlock);
    let stopped = hang(limits, |env| {
        Box::pin(async move {
            loop {
                env.clock.sleep(Duration::ZERO).await;
            }
        })
    });
    assert_eq!(stopped, Stopped::TooManySteps);
    let stopped = hang(limits, |env| {
        Box::pin(async move {
            loop {
                env.clock.sleep(Duration::from_secs(1)).await;
            }
        })
    });
    assert_eq!(stopped, Stopped::TooLong);
    assert!(stopped.is_hang() && !Stopped::Killed.is_hang());
}

#[test]
fn blocking_work_runs_as_a_task_of_its_process() {
    let (sim, env) = world();
    let process = sim.process("main", 0);
    let answer = sim.block_on(process, async move { env.blocking("add", || 20 + 22).await });
    assert_eq!(answer.unwrap().unwrap(), 42);
}

#[test]
fn a_simulation_that_ends_frees_everything() {
    let alive = Arc::new(());
    let sim = Sim::new(1);
    let process = sim.process("main", 0);
    let env = sim.env(process, MemoryStore::unnamed());
    let held = Arc::clone(&alive);
    sim.spawn(process, "hold", async move {
        env.clock.sleep(Duration::from_secs(u64::MAX / 2)).await;
        drop(held);
    });
    sim.run_for(Duration::from_secs(1)).unwrap();
    assert_eq!(Arc::strong_count(&alive), 2);
    drop(sim);
    assert_eq!(Arc::strong_count(&alive), 1);
}

/// A thousand requests that a store refuses together: without a budget they are sent again some
/// 6,000 times in the first second, and 1,300 times in each later one.
#[test]
fn requests_that_fail_together_are_no_storm() {
    let sim = Sim::new(1);
    let process = sim.process("reader", 0);
    let env = sim.env(process, MemoryStore::unnamed());
    let attempts = Arc::new(Mutex::new(Vec::new()));
    let (times, clock) = (Arc::clone(&attempts), Arc::clone(&env.clock));
    let recovered = Duration::from_secs(10);
    let ended = sim.block_on(process, async move {
        let begun = clock.monotonic();
        let request = || async {
            let at = clock.monotonic().saturating_sub(begun);
            times.lock().push(at);
            if at < recovered { Err(Error::unavailable("503")) } else { Ok(()) }
        };
        let limit = Duration::from_secs(30);
        let requests = (0..1000).map(|_| with_retries(&env, limit, "read", request));
        let answers = futures::future::join_all(requests).await;
        assert!(answers.iter().all(Result::is_ok));
        clock.monotonic().saturating_sub(begun)
    });
    let attempts = attempts.lock();
    let in_second = |second: u64| attempts.iter().filter(|at| at.as_secs() == second).count();
    assert!(in_second(0) <= 1000 + 50 + 200, "{}", in_second(0));
    for second in 1..10 {
        assert!(in_second(second) <= 210, "{} in second {second}", in_second(second));
    }
    assert!(ended.unwrap() <= recovered + Duration::from_secs(7), "{ended:?}");
}
