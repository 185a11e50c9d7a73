//! A process creates checkpoints and restores them, in any order: a state that a restore has undone
//! may be restored itself.

use super::{Action, LIFETIME, LIMIT, Loads, owners};
use crate::world::start;
use siltstone::{CheckpointOptions, Env, ErrorKind, Options, Result, admin};
use siltstone_base::CheckpointId;
use siltstone_tests::sim::{ProcessId, Rng};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Number of checkpoints that it has at once.
const KEPT: usize = 3;

/// Alternates between checkpoints and restores.
pub(super) async fn restorer(loads: Arc<Loads>, process: ProcessId, mut rng: Rng) -> Result<()> {
    let world = &loads.world;
    let env = world.sim.env(process, world.bucket.store(process));
    let mut kept = Vec::new();
    while !world.stopped() {
        world.sim.sleep(Duration::from_millis(rng.below(1500))).await;
        let mut dice = rng.split();
        let ended = match dice.below(100) {
            0..70 => keep(&env, &mut kept, &mut dice).await,
            _ => go_back(&loads, &env, &kept, &mut dice).await,
        };
        match ended {
            Ok(()) => {}
            // There is no database yet; the checkpoint is gone.
            Err(error) if passes(error.kind()) || world.excuses(process, &error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn passes(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::Expired)
}

async fn keep(env: &Env, kept: &mut Vec<CheckpointId>, rng: &mut Rng) -> Result<()> {
    if kept.len() == KEPT {
        let old = kept.remove(rng.below(KEPT as u64) as usize);
        admin::delete_checkpoint(env, &old.into(), LIMIT).await.map(drop)?;
    }
    let how = CheckpointOptions { lifetime: Some(LIFETIME), ..CheckpointOptions::default() };
    kept.push(admin::create_checkpoint(env, &how, LIMIT).await?.id);
    Ok(())
}

async fn go_back(
    loads: &Arc<Loads>,
    env: &Env,
    kept: &[CheckpointId],
    rng: &mut Rng,
) -> Result<()> {
    let world = &loads.world;
    let at = rng.below(kept.len().max(1) as u64) as usize;
    let (Some(to), true) = (kept.get(at), loads.acts(Action::Restore, rng, 900)) else {
        return Ok(());
    };
    loads.books.lock().restoring = true;
    world.restoring.store(true, Ordering::Relaxed);
    let options = Options { deadline: LIMIT, ..world.options.clone() };
    let went = admin::restore(env, &(*to).into(), &options).await;
    // The writer has ended, with any result.
    let process = world.sim.process("writer", rng.below(20_000) as i64 - 10_000);
    let owner = owners::owner(Arc::clone(loads), process, rng.split());
    start(world, process, "writer", owner);
    went?;
    loads.did(Action::Restore);
    Ok(())
}
