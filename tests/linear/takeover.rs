//! Two writers, one after the other, in the simulation; requests fail.
//!
//! Reads return durable data (`read_durable_only`), and a write ends when it is durable: a
//! successor has exactly this data. A failed condition may depend on data that is not durable yet,
//! so it counts once everything accepted before is durable. There are no reads through a handle
//! that is being taken over: it continues to show its data. Its writes end, or have no end.

use crate::checker::{History, Op, Ret};
use crate::{condition, draw, number_in, options, seen_in, setting, stored};
use siltstone::{
    Accept, Answer, Commit, Database, Env, Error, ErrorKind, OpenOptions, Options, Result,
};
use siltstone_tests::faults::{Bucket, Fault, FaultPlan};
use siltstone_tests::sim::{Limits, Rng, Sim};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const KEYS: usize = 4;
const TASKS: u64 = 4;
/// Operations of a task with each writer.
const EACH: u64 = 10;

struct Shared {
    histories: Vec<History>,
    next: AtomicU64,
    /// Whether the first writer is open.
    opened: AtomicBool,
    /// Whether it is being taken over.
    taken_over: AtomicBool,
}

async fn open(env: &Env) -> Result<Database> {
    let options = Options { read_durable_only: true, ..options() };
    let how = OpenOptions { options, take_over: Some(true), ..OpenOptions::default() };
    loop {
        match Database::open(env.clone(), how.clone()).await {
            Err(error) if error.kind().is_transient() => {}
            opened => return opened,
        }
    }
}

async fn durable(mut write: impl FnMut() -> Result<Accept>) -> Result<Ret> {
    loop {
        match write()? {
            Accept::Accepted(commit) => return commit.wait(None).await.map(|()| Ret::Done),
            Accept::Pressure(room) => room.await?,
        }
    }
}

async fn judged(db: &Database, answer: Result<Answer<Commit>>) -> Result<Ret> {
    let answer = match answer {
        Ok(answer) => answer.wait().await,
        Err(error) => Err(error),
    };
    match answer {
        Ok(commit) => commit.wait(None).await.map(|()| Ret::Done),
        Err(error) if error.kind() == ErrorKind::Conflict => {
            db.flush().await.map(|()| Ret::Conflict)
        }
        Err(error) => Err(error),
    }
}

async fn carried_out(db: &Database, key: &[u8], op: &Op) -> Result<Ret> {
    match op {
        Op::Get => {
            let value = db.get(key)?.wait().await?;
            Ok(Ret::Value(value.map(|value| number_in(&value))))
        }
        Op::Put(value) => durable(|| db.put(key, &stored(*value), None)).await,
        Op::Delete => durable(|| db.delete(key)).await,
        Op::PutIfAbsent(value) => {
            judged(db, db.put_if(key, &stored(*value), None, condition(None))).await
        }
        Op::PutIf(expected, value) => {
            judged(db, db.put_if(key, &stored(*value), None, condition(*expected))).await
        }
        Op::DeleteIf(expected) => judged(db, db.delete_if(key, condition(*expected))).await,
    }
}

/// A client of one handle. A failed operation may have happened, except for a read; for the
/// checker, the next operation of this client belongs to a different client.
async fn client(shared: Arc<Shared>, db: Database, env: Env, mut rng: Rng, first: bool) {
    let mut seen = [None; KEYS];
    for _ in 0..EACH * KEYS as u64 {
        let which = rng.below(KEYS as u64) as usize;
        let op = draw(&mut rng, seen[which], || shared.next.fetch_add(1, Ordering::Relaxed));
        let over = first && shared.taken_over.load(Ordering::Relaxed);
        if over && op == Op::Get {
            continue;
        }
        let noted = shared.histories[which].invoked(op.clone());
        match carried_out(&db, format!("key{which}").as_bytes(), &op).await {
            Ok(ret) => {
                shared.histories[which].returned(noted, ret.clone());
                seen[which] = seen_in(&op, &ret, seen[which]);
            }
            Err(error) if error.kind().is_transient() => {}
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::Fenced | ErrorKind::Closed), "{error}");
                return;
            }
        }
        env.clock.sleep(Duration::from_millis(rng.below(40))).await;
    }
}

fn plan(rng: &mut Rng) -> FaultPlan {
    let mut plan = FaultPlan::none();
    for fault in Fault::REQUESTS.into_iter().filter(|fault| fault.keeps_the_contract()) {
        if rng.chance(400) {
            plan = plan.with(fault, 1 + rng.below(20) as u32 / 4);
        }
    }
    plan.latency.1 = Duration::from_millis(3 + rng.below(30));
    plan.lateness = (Duration::from_millis(20), Duration::from_secs(3));
    plan.brown_out = (Duration::from_millis(100), Duration::from_secs(1));
    plan
}

/// Histories of a seed, and the number of operations of the first writer that ended after the
/// second began.
fn run(seed: u64) -> Vec<History> {
    let sim = Sim::new(seed);
    sim.set_limits(Limits { steps: 20_000_000, time: Duration::from_secs(7200) });
    let mut rng = sim.split_rng();
    let plan = plan(&mut rng);
    let bucket = Bucket::new(&sim, plan);
    let shared = Arc::new(Shared {
        histories: (0..KEYS).map(|_| History::default()).collect(),
        next: AtomicU64::new(1),
        opened: AtomicBool::new(false),
        taken_over: AtomicBool::new(false),
    });
    let writer = |first: bool, mut rng: Rng| {
        let process = sim.process("writer", 0);
        let env = sim.env(process, bucket.store(process));
        let (shared, tasks) = (Arc::clone(&shared), (*sim).clone());
        let work = async move {
            let db = open(&env).await?;
            shared.opened.store(true, Ordering::Relaxed);
            let (all, over) = (Arc::new(AtomicU64::new(TASKS)), env.clone());
            for _ in 0..TASKS {
                let (env, ended) = (env.clone(), Arc::clone(&all));
                let client = client(Arc::clone(&shared), db.clone(), env, rng.split(), first);
                tasks.spawn(process, "client", async move {
                    client.await;
                    ended.fetch_sub(1, Ordering::Relaxed);
                });
            }
            while all.load(Ordering::Relaxed) > 0 {
                over.clock.sleep(Duration::from_millis(20)).await;
            }
            Ok::<_, Error>(())
        };
        (process, work)
    };
    let (process, first) = writer(true, rng.split());
    sim.spawn(process, "first", async move { drop(first.await) });
    while !shared.opened.load(Ordering::Relaxed) {
        sim.run_for(Duration::from_millis(1)).expect("time goes on");
    }
    sim.run_for(Duration::from_millis(rng.below(1500))).expect("time goes on");
    if rng.chance(200) {
        sim.kill(process);
    }
    shared.taken_over.store(true, Ordering::Relaxed);
    let (process, second) = writer(false, rng.split());
    let ended = sim.block_on(process, second).expect("it ends");
    ended.unwrap_or_else(|error| panic!("seed {seed}: the second writer: {error}"));
    shared.histories.clone()
}

/// `LINEAR_SEEDS` (default 60) sets the number of seeds.
#[test]
fn every_key_is_linearizable_across_a_take_over() {
    let (mut operations, mut open, mut failed) = (0, 0, Vec::new());
    let first = setting("FIRST_SEED", 1);
    for seed in first..first + setting("LINEAR_SEEDS", 60) {
        for (which, history) in run(seed).iter().enumerate() {
            let counts = history.counts();
            (operations, open) = (operations + counts.0, open + counts.1);
            if !history.is_linearizable() {
                println!("seed {seed}, key {which}:\n{}", history.text());
                failed.push(seed);
            }
        }
    }
    println!("{operations} operations, {open} of them without an end");
    assert!(failed.is_empty(), "seeds {failed:?}; run one with FIRST_SEED=… LINEAR_SEEDS=1");
    assert!(open > 0);
}
