//! Checkpoints beside ingest jobs, and clones of them: read later, after compactors and collectors
//! have run, they show the state of one moment of the final history.

use super::{Action, LIFETIME, LIMIT, Loads};
use crate::oracle::Rows;
use crate::world::{Now, rows_of};
use siltstone::admin::{self, CloneParent};
use siltstone::{
    CheckpointName, CheckpointOptions, Env, ErrorKind, Options, ReadAt, Reader, ReaderOptions,
    Result, ScanRange, Seq,
};
use siltstone_tests::faults::FaultPlan;
use siltstone_tests::sim::{ProcessId, Rng};
use std::sync::Arc;
use std::time::Duration;

/// One checkpoint after another.
pub(super) async fn keeper(loads: Arc<Loads>, process: ProcessId, mut rng: Rng) -> Result<()> {
    let world = &loads.world;
    let env = world.sim.env(process, world.bucket.store(process));
    while !world.stopped() {
        world.sim.sleep(Duration::from_millis(rng.below(2500))).await;
        let mut dice = rng.split();
        if !loads.acts(Action::Checkpoint, &mut dice, 800) {
            continue;
        }
        match keep(&loads, process, &env, &mut dice).await {
            Ok(()) => {}
            // There is no database yet.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) if world.excuses(process, &error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn keep(loads: &Arc<Loads>, process: ProcessId, env: &Env, rng: &mut Rng) -> Result<()> {
    let world = &loads.world;
    let how = CheckpointOptions { lifetime: Some(LIFETIME), ..CheckpointOptions::default() };
    let name = CheckpointName::Id(admin::create_checkpoint(env, &how, LIMIT).await?.id);
    world.sim.sleep(Duration::from_millis(rng.below(3000))).await;
    let (seq, rows) = again(loads, process, || read(env, &world.options, Some(&name))).await?;
    let moment = Now::default().look(&world.sim, env);
    world.oracle.seen(seq, moment, rows.clone());
    loads.did(Action::Checkpoint);
    let mut dice = rng.split();
    if !loads.acts(Action::Clone, &mut dice, 400) {
        return again(loads, process, || delete(env, &name)).await;
    }
    let place = format!("clone{}", rng.next_u64());
    let bucket = loads.places.bucket(&world.sim, &place, FaultPlan::none());
    let there = Env { store: bucket.store(process), ..env.clone() };
    let cloned = clone(loads, process, (env, &there), &name, (seq, rows), rng).await;
    // For any result: a remaining clone keeps the objects that it references.
    let ended = again(loads, process, || end(&there)).await;
    cloned.and(ended)
}

/// A clone of the checkpoint shows the same rows as the checkpoint.
async fn clone(
    loads: &Arc<Loads>,
    process: ProcessId,
    (env, there): (&Env, &Env),
    name: &CheckpointName,
    (seq, rows): (Seq, Rows),
    rng: &mut Rng,
) -> Result<()> {
    let world = &loads.world;
    let parent = |env: &Env| CloneParent {
        env: env.clone(),
        checkpoint: Some(name.clone()),
        start: None,
        end: None,
    };
    let made = again(loads, process, || async {
        admin::clone(there, &[parent(env)], &world.options).await
    });
    made.await?;
    // The clone's own pin retains the tables that it reads.
    again(loads, process, || delete(env, name)).await?;
    world.sim.sleep(Duration::from_millis(rng.below(3000))).await;
    let (_, shown) = again(loads, process, || read(there, &world.options, None)).await?;
    if shown != rows {
        world.oracle.violation(format!("a clone of {seq} shows {shown:?} in place of {rows:?}"));
    }
    loads.did(Action::Clone);
    Ok(())
}

/// Repeats after failures of the store, until all processes stop, and then once.
async fn again<T, W: Future<Output = Result<T>>>(
    loads: &Loads,
    process: ProcessId,
    work: impl Fn() -> W,
) -> Result<T> {
    loop {
        match work().await {
            Err(error) if !loads.world.stopped() && loads.world.excuses(process, &error) => {
                loads.world.sim.sleep(Duration::from_millis(100)).await;
            }
            ended => return ended,
        }
    }
}

/// Ends a clone, or a started one: its pin is removed too.
async fn end(there: &Env) -> Result<()> {
    match siltstone::destroy(there, false, LIMIT).await {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        ended => ended,
    }
}

/// Deletes a checkpoint; it may be missing.
async fn delete(env: &Env, name: &CheckpointName) -> Result<()> {
    match admin::delete_checkpoint(env, name, LIMIT).await {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Expired) => Ok(()),
        ended => ended.map(drop),
    }
}

/// All rows at a checkpoint, or of the newest state.
async fn read(env: &Env, options: &Options, at: Option<&CheckpointName>) -> Result<(Seq, Rows)> {
    let at = at.map(|name| ReadAt::Checkpoint(name.clone()));
    let options = Options { reader_lease: false, ..options.clone() };
    let how = ReaderOptions { options, at, ..ReaderOptions::default() };
    let reader = Reader::open(env.clone(), how).await?;
    let rows = rows_of(reader.scan(ScanRange::all())?).await?;
    let seq = reader.seq();
    reader.close().await?;
    Ok((seq, rows))
}
