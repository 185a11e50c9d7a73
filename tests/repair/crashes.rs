//! A repair killed before, after and during every request, and repeated.

use super::jobs::{layered, record};
use super::logs::{lived, log};
use super::manifests::{at_rest_with_a_checkpoint, newest};
use super::{Harm, World, expected, killed, mend, open, tell};
use siltstone_base::{ManifestId, ObjectName};
use siltstone_tests::faults::CrashPoint;

const POINTS: [CrashPoint; 3] = [CrashPoint::Before, CrashPoint::AnswerLost, CrashPoint::After];
const ROWS: u64 = 8;

/// Damages the log, manifests, or both; for an idle database its only manifest, or that and the one
/// before, beside a checkpoint; or the record of compaction jobs. Returns the number of kept rows.
fn harmed(world: &World, which: usize) -> u64 {
    if which == 5 {
        layered(world, ROWS);
        world.run("compactor", |env| async move { open(&env, false).await?.compact().await });
        world.harm(record(world).expect("a compactor ran"), Harm::Flipped);
        return ROWS;
    }
    if which == 4 {
        at_rest_with_a_checkpoint(world);
        let last = newest(world);
        world.harm(ObjectName::Manifest(last), Harm::Flipped);
        world.harm(ObjectName::Manifest(ManifestId(last.get() - 1)), Harm::Flipped);
        return 2;
    }
    lived(world, ROWS);
    if which == 3 {
        world.run("closer", |env| async move { open(&env, false).await?.close().await });
        world.run("collector", |env| async move { siltstone_tests::gc::round(&env).await });
    }
    let log = log(world);
    let newest = newest(world);
    if which != 0 {
        world.harm(ObjectName::Manifest(newest), Harm::Flipped);
    }
    match which {
        1 | 3 => return ROWS,
        2 => world.harm(ObjectName::Manifest(ManifestId(newest.get() - 1)), Harm::Removed),
        _ => {}
    }
    world.harm(ObjectName::Wal(log[log.len() - 3].0), Harm::Truncated);
    log[log.len() - 4].1.get()
}

#[test]
fn every_crash_of_a_repair() {
    for which in 0..6 {
        let mut crashes = 0;
        'world: for operation in 1.. {
            for point in POINTS {
                let world = World::new(operation);
                let kept = harmed(&world, which);
                let (dying, env) = world.process("dying");
                world.bucket.crash_at(dying, operation, point);
                let ended = world.sim.block_on(dying, async move { mend(&env).await });
                if let Some(ended) = killed(ended) {
                    ended.expect("a healthy store");
                    world.goes_on_with(&expected(kept));
                    if point != CrashPoint::Before {
                        // A request that was abandoned, as in a read-ahead, has no end.
                        continue;
                    }
                    println!("{crashes} crashes of repair {which}");
                    assert!(crashes > 30);
                    break 'world;
                }
                crashes += 1;
                world.sim.kill(dying);
                again(&world, kept, &format!("{which} {operation} {point:?}"));
            }
        }
    }
}

/// Either it opens with everything that can be kept, or a repeated repair makes it open.
fn again(world: &World, kept: u64, place: &str) {
    let told = world.run("teller", |env| async move { tell(&env).await });
    if told.needed {
        // A process that tries to open in between is refused, and does no harm. Without the record
        // of compaction jobs it opens.
        assert_eq!(world.opens(), place.starts_with('5'), "{place}");
        world.run("again", |env| async move { mend(&env).await });
    }
    let found = world.run("reader", |env| async move {
        let db = open(&env, false).await?;
        let found = super::keys(&db).await?;
        db.close().await?;
        Ok(found)
    });
    assert_eq!(found, expected(kept), "{place}");
    if place.contains("Lost") {
        world.goes_on_with(&expected(kept));
    }
}
