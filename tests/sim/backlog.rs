//! The backlog behind a slow link is transferred in the end, although the client's limit is fixed:
//! the same bytes can finally succeed (rule E4).

use crate::edges::{LARGEST_SENT, wal_objects_are_bounded};
use crate::world::rows_of;
use siltstone::{
    Accept, CompactionOptions, Database, Env, Error, ErrorKind, OpenOptions, Options, ScanRange,
};
use siltstone_tests::faults::{Bucket, FaultPlan, Link};
use siltstone_tests::sim::{Rng, Sim, SimHandle};
use std::sync::Arc;
use std::time::Duration;

const VALUE_BYTES: usize = 500;

fn options(rng: &mut Rng) -> Options {
    Options {
        flush_interval: Duration::from_millis(1 + rng.below(50)),
        flush_bytes: 256 + rng.below(2000) as usize,
        max_parallel_writes: 1 + rng.below(4),
        // Tables that the client can send, and no compaction that makes larger ones of them or
        // stalls for it.
        l0_sst_size_bytes: 12 << 10,
        max_memtable_bytes: 4 << 20,
        embedded_compactor: false,
        compaction: CompactionOptions {
            l0_compaction_threshold_ssts: 1000,
            l0_max_ssts: 1001,
            ..CompactionOptions::default()
        },
        embedded_gc: false,
        deadline: Duration::from_secs(2 + rng.below(20)),
        ..Options::default()
    }
}

/// Fills the buffer while nothing can be sent, then waits for all of it.
async fn pile_up(
    sim: SimHandle,
    bucket: Arc<Bucket>,
    env: Env,
    (options, rows): (Options, u64),
) -> Result<u64, Error> {
    let db = Database::open(env, OpenOptions { options, ..OpenOptions::default() }).await?;
    bucket.break_for(Duration::from_secs(5));
    let value = vec![b'v'; VALUE_BYTES];
    let mut number = 0;
    while number < rows {
        match db.put(format!("{number:06}").as_bytes(), &value, None)? {
            Accept::Accepted(_) => number += 1,
            Accept::Pressure(relief) => drop(relief.await),
        }
        sim.sleep(Duration::from_millis(number % 3)).await;
    }
    let mut tries = 0;
    while let Err(error) = db.flush().await {
        tries += 1;
        if error.kind() != ErrorKind::Timeout || tries > 100 {
            return Err(error);
        }
    }
    // The test is about sending: a process that reads everything at once may exceed its deadline.
    bucket.set_plan(FaultPlan::none());
    let rows = rows_of(db.scan(ScanRange::all())?).await?;
    Ok(rows.len() as u64)
}

#[test]
fn a_backlog_behind_a_slow_link_is_sent_in_the_end() {
    if !wal_objects_are_bounded() {
        println!("off: all that is buffered becomes one object");
        return;
    }
    for seed in 1..=crate::number("BACKLOGS", 20) {
        let sim = Sim::new(seed);
        let mut rng = sim.split_rng();
        let bytes_per_second = 4000 << rng.below(4);
        let limit = Duration::from_millis(4 * LARGEST_SENT * 1000 / bytes_per_second);
        let mut plan = FaultPlan::none();
        plan.link = Some(Link { bytes_per_second, limit, limit_bytes_per_second: None });
        let bucket = Bucket::new(&sim, plan);
        let process = sim.process("writer", 0);
        let env = sim.env(process, bucket.store(process));
        // Several times the amount that the client can send before its limit.
        let rows = 8 * LARGEST_SENT / VALUE_BYTES as u64 + rng.below(300);
        let how = (options(&mut rng), rows);
        let work = pile_up((*sim).clone(), Arc::clone(&bucket), env, how);
        let sent = sim.block_on(process, work);
        assert!(matches!(sent, Ok(Ok(found)) if found == rows), "seed {seed}: {sent:?}");
    }
}
