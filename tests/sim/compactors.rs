//! Compactors and workers in separate processes: they take over from one another and from the
//! writers' own, which take back from stalled ones; they are stopped at any point, and their clocks
//! are wrong.

use crate::world::World;
use siltstone::{
    CompactionOptions, CompactorEvent, CompactorOptions, CompactorProcess, Compactors, Env, Error,
    ErrorKind, Options,
};
use siltstone_tests::sim::{ProcessId, Rng, Sim};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Whether a seed has them: half of the seeds do. A compactor that its store refuses ends and
/// releases its epoch, so fewer of them stall, and it takes more seeds until an epoch is taken
/// back.
pub(crate) fn take_part(seed: u64) -> bool {
    !seed.is_multiple_of(2)
}

/// The options of writers for these seeds: many tables, so that there is work, writes that soon
/// wait for compaction, and timeouts that are often shorter than the others' pauses.
pub(crate) fn writing(options: &mut Options, rng: &mut Rng) {
    options.l0_sst_size_bytes = 1024;
    options.l0_manifest_commit_interval = Duration::ZERO;
    options.compactors.poll_interval = Duration::from_millis(1 + rng.below(60));
    options.compactors.worker_timeout = Duration::from_millis(50 + rng.below(2000));
    if rng.chance(700) {
        let threshold = 1 + rng.below(4);
        options.compaction.l0_compaction_threshold_ssts = threshold;
        options.compaction.l0_max_ssts = threshold + 1 + rng.below(8);
    }
}

/// The options of these compactors: early, into small tables, in several ranges.
fn options(world: &World, rng: &mut Rng) -> Options {
    Options {
        compactors: Compactors {
            poll_interval: Duration::from_millis(20 + rng.below(200)),
            worker_timeout: Duration::from_millis(200 + rng.below(5000)),
        },
        compaction: CompactionOptions {
            l0_compaction_threshold_ssts: 1 + rng.below(2),
            target_sst_bytes: 100 + rng.below(600),
            min_move_bytes: rng.below(2) * 200,
            compaction_ranges: Some(1 + rng.below(3)),
            max_compactions: 1 + rng.below(4),
            ..CompactionOptions::default()
        },
        ..world.options.clone()
    }
}

/// A compactor, or a worker if `works`: started again and again, each time for a while.
async fn actor(
    world: Arc<World>,
    process: ProcessId,
    env: Env,
    (mut rng, works): (Rng, bool),
) -> Result<(), Error> {
    while !world.stopped() {
        world.sim.sleep(Duration::from_millis(rng.below(500))).await;
        let workers = rng.below(3) as usize;
        let how =
            CompactorOptions { options: options(&world, &mut rng), workers, ..Default::default() };
        let counts = Arc::clone(&world);
        let listener = move |event| {
            if let CompactorEvent::Compacted(entry) = event
                && entry.error.is_none()
            {
                counts.compacted.fetch_add(entry.tables_in, Ordering::Relaxed);
            }
        };
        let one = match CompactorProcess::open(env.clone(), how, listener).await {
            Ok(one) => one,
            Err(error) if world.excuses(process, &error) || error.kind() == ErrorKind::NotFound => {
                continue;
            }
            Err(error) => return Err(error),
        };
        let (stopped, shared) = (one.clone(), Arc::clone(&world));
        let mut left = 20 + rng.below(200);
        env.spawn.spawn(
            "stop",
            Box::pin(async move {
                while left > 0 && !shared.stopped() {
                    shared.sim.sleep(Duration::from_millis(50)).await;
                    left -= 1;
                }
                stopped.stop();
            }),
        );
        let ran = match (works, rng.below(4)) {
            (true, _) => one.work().await,
            (false, 0) => one.compact().await.map(drop),
            (false, _) => one.run().await,
        };
        match ran {
            Err(error) if !world.excuses(process, &error) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Starts one or two compactors, which take over from one another, and up to two workers.
pub(crate) fn start(
    sim: &Sim,
    world: &Arc<World>,
    rng: &mut Rng,
    env: impl Fn(ProcessId) -> Env,
) -> Vec<ProcessId> {
    let (compactors, workers) = (1 + rng.below(2), rng.below(3));
    let mut all = Vec::new();
    for number in 0..compactors + workers {
        let process = sim.process("compactor", rng.below(7_200_000) as i64 - 3_600_000);
        let works = number >= compactors;
        let name = if works { "worker" } else { "compactor" };
        let actor = actor(Arc::clone(world), process, env(process), (rng.split(), works));
        crate::world::start(world, process, name, actor);
        all.push(process);
    }
    all
}
