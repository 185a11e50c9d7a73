//! Killed before, after and during every request of a destroy.

use super::{World, destroy, expected, keys, killed, open, says_destroyed};
use siltstone::ErrorKind;
use siltstone::gc;
use siltstone_tests::faults::CrashPoint;
use siltstone_tests::gc::AT_ONCE;

const POINTS: [CrashPoint; 3] = [CrashPoint::Before, CrashPoint::AnswerLost, CrashPoint::After];

/// The result of opening now: all rows, a destroyed database, or none.
fn found(world: &World) -> &'static str {
    let opened = world.try_run("opener", |env| async move {
        let db = open(&env, false).await?;
        let found = keys(&db).await?;
        db.close().await?;
        Ok(found)
    });
    match opened {
        Ok(found) => {
            assert_eq!(found, expected("old"), "nothing acknowledged is lost before it ends");
            "all"
        }
        Err(error) if says_destroyed(&error) => "destroyed",
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
            "nothing"
        }
    }
}

/// D1, D3: killed at every request; after a repetition by another process nothing is left, and the
/// place can be used again. Every intermediate state occurs.
#[test]
fn a_destroy_is_resumed_after_every_crash() {
    let (mut crashes, mut met) = (0, Vec::new());
    for operation in 1.. {
        for point in POINTS {
            let world = World::new(operation);
            world.lived();
            let (dying, env) = world.process("dying");
            world.bucket.crash_at(dying, operation, point);
            let ended = world.sim.block_on(dying, async move { destroy(&env, false).await });
            if let Some(ended) = killed(ended) {
                ended.expect("a healthy store");
                assert!(world.is_empty(), "{:?}", world.names());
                world.is_used_again();
                if point != CrashPoint::Before {
                    // A request that was abandoned, as in a read-ahead, has no end at which to die.
                    continue;
                }
                met.dedup();
                println!("{crashes} crashes of a destroy, met: {met:?}");
                assert!(crashes > 60 && ["all", "destroyed"].iter().all(|one| met.contains(one)));
                return;
            }
            crashes += 1;
            world.sim.kill(dying);
            let now = found(&world);
            met.push(now);
            let again = world.try_run("again", |env| async move { destroy(&env, false).await });
            match again {
                Ok(()) => {
                    assert!(world.is_empty(), "{operation} {point:?}: {:?}", world.names());
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::NotFound, "{operation} {point:?}: {error}");
                    assert_eq!(now, "nothing", "{operation} {point:?}");
                }
            }
            if operation % 3 == 0 {
                world.is_used_again();
            }
        }
    }
}

/// D2: the collector that removes a softly destroyed database is killed at every request.
#[test]
fn a_collector_is_resumed_after_every_crash() {
    for operation in 1.. {
        for point in POINTS {
            let world = World::new(operation);
            world.lived();
            world.run("destroyer", |env| async move { destroy(&env, true).await });
            let (dying, env) = world.process("dying");
            world.bucket.crash_at(dying, operation, point);
            let ended =
                world.sim.block_on(dying, async move { gc::once(&env, &AT_ONCE, false).await });
            if let Some(ended) = killed(ended) {
                let total = ended.expect("a healthy store").total();
                assert!(world.is_empty() && total.deleted > 5, "{:?}", world.names());
                assert!(operation > 10, "{operation} requests are few");
                return;
            }
            world.sim.kill(dying);
            let again =
                world.try_run("again", |env| async move { gc::once(&env, &AT_ONCE, false).await });
            match again {
                Ok(report) => assert_eq!(report.total().failed, 0),
                Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{error}"),
            }
            let left = world.names();
            let manifests = |name: &&siltstone_base::ObjectName| {
                matches!(name, siltstone_base::ObjectName::Manifest(_))
            };
            assert!(left.iter().filter(manifests).count() <= 1, "{operation} {point:?}: {left:?}");
            if operation % 3 == 0 {
                world.is_used_again();
            }
        }
    }
}
