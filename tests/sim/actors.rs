//! The other processes of the simulation: readers, compactors and collectors.

use crate::world::{Now, World, rows_of};
use siltstone::gc::GcOptions;
use siltstone::{Env, Error, ErrorKind, Options, Reader, ReaderOptions, ScanRange};
use siltstone_tests::faults::Fault;
use siltstone_tests::sim::{ProcessId, Rng};
use siltstone_tests::{compact, gc};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Life of a since-lease (rule L5).
const LEASE: Duration = Duration::from_secs(20);

/// Whether a lease may have lapsed because the store refused its renewals: for a quarter of a life
/// in all, within two lives. The reader then ends the scan with Expired.
fn has_lapsed(world: &World) -> bool {
    world.bucket.outage_within(LEASE * 2) >= LEASE / 4
}

/// A reader process: follows, and records its view. Usually under leases, which may be so short
/// that they are revoked; without a lease, or then, a scan may lose its tables.
pub(crate) async fn reader(
    world: Arc<World>,
    process: ProcessId,
    env: Env,
    mut rng: Rng,
) -> Result<(), Error> {
    let mut last = siltstone::Seq::NONE;
    while !world.stopped() {
        let mut options = Options { reader_lease: rng.chance(800), ..world.options.clone() };
        if rng.chance(300) {
            options.readers.checkpoint_lifetime =
                options.poll_interval() * 2 + Duration::from_millis(1 + rng.below(2000));
        }
        // For a clock that has stepped by hours, every checkpoint is old.
        let lasts = options.reader_lease
            && !world.edges.have(Fault::ClockStep)
            && options.readers.checkpoint_lifetime
                >= Options::default().readers.checkpoint_lifetime;
        let how = ReaderOptions { options, ..ReaderOptions::default() };
        let reader = match Reader::open(env.clone(), how).await {
            Ok(reader) => reader,
            Err(error) if world.excuses(process, &error) || error.kind() == ErrorKind::NotFound => {
                world.sim.sleep(Duration::from_millis(100)).await;
                continue;
            }
            Err(error) => return Err(error),
        };
        let mut now = Now::default();
        for _ in 0..rng.below(40) {
            if world.stopped() {
                break;
            }
            if rng.chance(500)
                && let Some(refreshed) = world.patiently(&mut rng, reader.refresh()).await
                && let Err(error) = world.tolerate(process, refreshed)
            {
                match world.may_open_anew(process, &error) || world.is_of_a_restore(&error) {
                    true => break,
                    false => return Err(error),
                }
            }
            // The scan keeps its view; the number is read before and after.
            let before = reader.seq();
            let scan = match reader.scan(ScanRange::all()) {
                Err(error) if world.is_of_a_restore(&error) => break,
                scan => scan?,
            };
            let after = reader.seq();
            let moment = now.look(&world.sim, &env);
            match world.patiently(&mut rng, rows_of(scan)).await {
                None => {}
                Some(Ok(rows)) if before == after => world.oracle.seen(before, moment, rows),
                Some(Ok(_)) => {}
                Some(Err(error)) if world.excuses(process, &error) => {}
                Some(Err(error))
                    if error.kind() == ErrorKind::Expired && (!lasts || has_lapsed(&world)) => {}
                Some(Err(error)) if world.is_of_a_restore(&error) => {}
                Some(Err(error)) => return Err(error),
            }
            if before < last {
                world.oracle.violation(format!("a reader went back from {last} to {before}"));
            }
            last = before;
            world.sim.sleep(Duration::from_millis(rng.below(400))).await;
        }
        reader.close().await?;
        // A reader that opens again sees everything durable, and so everything that this one saw.
    }
    Ok(())
}

/// Rewrites everything now and then, and collects without a grace period. One process does both,
/// because the test's compactor keeps no job record; while a commit of its own may still land, it
/// does not collect.
pub(crate) async fn rewriter(world: Arc<World>, env: Env, mut rng: Rng) -> Result<(), Error> {
    let mut settled = true;
    while !world.stopped() {
        world.sim.sleep(Duration::from_millis(50 + rng.below(900))).await;
        if !settled || rng.chance(400) {
            let compacted = compact::everything(&env).await;
            settled = compacted.is_ok();
            world.compacted.fetch_add(compacted.unwrap_or(0) as u64, Ordering::Relaxed);
        }
        if settled {
            collect(&world, &env, Duration::ZERO).await;
        }
    }
    Ok(())
}

/// Collects, with little or no grace period, beside the writers' own compactors and collectors.
pub(crate) async fn collector(world: Arc<World>, env: Env, mut rng: Rng) -> Result<(), Error> {
    while !world.stopped() {
        world.sim.sleep(Duration::from_millis(50 + rng.below(900))).await;
        let grace = if rng.chance(700) { 0 } else { rng.below(3000) };
        collect(&world, &env, Duration::from_millis(grace)).await;
    }
    Ok(())
}

/// A later round repeats what a round could not do.
async fn collect(world: &World, env: &Env, min_age: Duration) {
    let options = GcOptions { min_age, ..gc::AT_ONCE };
    if let Ok(report) = siltstone::gc::once(env, &options, false).await {
        world.collected.fetch_add(report.total().deleted, Ordering::Relaxed);
    }
}
