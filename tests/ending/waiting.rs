//! A soft destroy, and the collector that waits (rule D2).

use super::{DEADLINE, World, destroy, named};
use siltstone::gc::{self, GcOptions, GcReport};
use siltstone::{CheckpointOptions, ErrorKind, Reader, ReaderOptions, admin};
use siltstone_tests::gc::AT_ONCE;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

fn collect(world: &World, grace: Duration, dry: bool) -> GcReport {
    let how = GcOptions { db_delete_grace: grace, ..AT_ONCE };
    world.run("collector", move |env| async move { gc::once(&env, &how, dry).await })
}

#[test]
fn it_waits_for_the_grace() {
    let world = World::new(7);
    world.lived();
    world.run("destroyer", |env| async move { destroy(&env, true).await });
    let before = world.names();
    assert_eq!(collect(&world, HOUR, false).total().deleted, 0);
    assert_eq!(collect(&world, HOUR, true).objects.len(), 0);
    assert_eq!(world.names(), before);
    world.sim.run_for(HOUR + Duration::from_secs(1)).expect("time goes on");
    let dry = collect(&world, HOUR, true);
    assert!(dry.objects.len() > 5 && world.names() == before, "{dry:?}");
    let report = collect(&world, HOUR, false);
    assert!(report.total().deleted >= dry.total().deleted, "{report:?}");
    assert!(world.is_empty(), "{:?}", world.names());
    world.is_used_again();
}

/// Checkpoints of users and of readers, until each has expired or is deleted.
#[test]
fn it_waits_for_every_checkpoint() {
    let world = World::new(7);
    world.lived();
    let kept = world.run("checkpoint", |env| async move {
        let how = CheckpointOptions { lifetime: Some(HOUR), ..named("for an hour") };
        admin::create_checkpoint(&env, &how, DEADLINE).await?;
        admin::create_checkpoint(&env, &named("for ever"), DEADLINE).await
    });
    let (reading, env) = world.process("reader");
    let reader = world.sim.block_on(reading, Reader::open(env, ReaderOptions::default()));
    std::mem::forget(reader.expect("it ends").expect("a healthy store"));
    world.sim.kill(reading);
    world.run("destroyer", |env| async move { destroy(&env, true).await });
    let refused = world.try_run("destroyer", |env| async move { destroy(&env, false).await });
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(collect(&world, Duration::ZERO, false).total().deleted, 0);
    world.sim.run_for(HOUR * 2).expect("time goes on");
    let report = collect(&world, Duration::ZERO, false);
    assert!(report.revoked >= 1 && report.total().deleted == 0, "{report:?}");
    world.run("tidy", move |env| async move {
        admin::delete_checkpoint(&env, &kept.id.into(), DEADLINE).await
    });
    assert!(collect(&world, Duration::ZERO, false).total().deleted > 5);
    assert!(world.is_empty(), "{:?}", world.names());
}

/// A later hard destroy does not wait.
#[test]
fn a_hard_one_does_not_wait() {
    let world = World::new(7);
    world.lived();
    for soft in [true, true, false] {
        world.run("destroyer", move |env| async move { destroy(&env, soft).await });
    }
    assert!(world.is_empty(), "{:?}", world.names());
    world.is_used_again();
}
