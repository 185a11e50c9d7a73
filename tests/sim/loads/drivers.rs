//! Drivers: they stage a job, close it, and may request it.

use super::{Action, LIFETIME, LIMIT, Loads};
use crate::world::{World, start};
use siltstone::ingest::{IngestJob, IngestRequest, forget_app};
use siltstone::tables::StagedPart;
use siltstone::tables::{Duplicates, PartOptions, PushResult, ReplacedRange};
use siltstone::{Batch, Env, Error, ErrorKind, JobStatus, Kind, Result};
use siltstone_tests::sim::{ProcessId, Rng};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// One job after another.
pub(super) async fn driver(loads: Arc<Loads>, process: ProcessId, mut rng: Rng) -> Result<()> {
    let world = &loads.world;
    let env = world.sim.env(process, world.bucket.store(process));
    while !world.stopped() {
        world.sim.sleep(Duration::from_millis(rng.below(1500))).await;
        let mut dice = rng.split();
        match drive(&loads, &env, &mut dice).await {
            Ok(()) => {}
            Err(error) if passes(world, process, &error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reasons for the end of a job that are not the driver's fault: there is no database yet, or the
/// deadline has passed.
fn passes(world: &World, process: ProcessId, error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Expired)
        || world.excuses(process, error)
}

async fn drive(loads: &Arc<Loads>, env: &Env, rng: &mut Rng) -> Result<()> {
    let mut of = |_| rng.split();
    let [mut replace, mut late, mut abort, mut twice, mut repeat, mut rows, mut version] =
        std::array::from_fn(&mut of);
    let mut merge = of(0);
    let is_late = loads.acts(Action::Late, &mut late, 250);
    let lifetime = if is_late { Duration::from_millis(200 + late.below(2000)) } else { LIFETIME };
    let app = loads
        .acts(Action::Version, &mut version, 750)
        .then(|| (APP.to_owned(), loads.version.fetch_add(1, Ordering::Relaxed)));
    let mut job = match IngestJob::begin(env, lifetime, app, LIMIT).await {
        Ok(job) => job,
        // A collector's clock is ahead: for it such a deadline has passed before anything is
        // staged.
        Err(error) if is_late && error.kind() == ErrorKind::Invalid => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut content = Batch::new();
    let mut within = (0, KEYS);
    if loads.acts(Action::Replace, &mut replace, 350) {
        let ranged;
        (within, ranged) = range(&mut replace, &mut content)?;
        job = job.replacing(ranged);
    }
    let operands = loads.acts(Action::Operands, &mut merge, 300) && job.operator.is_some();
    let parts = if operands {
        stage_operands(&job, env, within, &mut rows, &mut content).await?
    } else {
        stage(&job, env, within, &mut rows, &mut content).await?
    };
    loads.books.lock().closes(&job, content.as_bytes().to_vec(), operands);
    rivals(loads, (&job, &parts), (&mut abort, &mut twice));
    let request = job.commit(env, &parts, LIMIT).await?;
    if is_late {
        loads.world.sim.sleep(Duration::from_millis(1000 + late.below(4000))).await;
    }
    if loads.acts(Action::Repeat, &mut repeat, 300) {
        elsewhere(loads, "repeater", &mut repeat, 8000, {
            let (loads, request) = (Arc::clone(loads), request.clone());
            move |env: Env| async move {
                ask(&loads, &env, &request, false).await?;
                loads.did(Action::Repeat);
                Ok(())
            }
        });
    }
    let (how, versioned) = (rows.below(10), request.job.app.is_some());
    if versioned && loads.acts(Action::Pass, &mut version, 600) {
        // Meanwhile others request later versions, or the application is forgotten.
        loads.world.sim.sleep(Duration::from_millis(version.below(6000))).await;
    }
    let asked = hand_over_or_ask(loads, env, request, how).await;
    if matches!(&asked, Err(error) if error.kind() == ErrorKind::Conflict) {
        match (is_late, versioned) {
            (true, _) => loads.did(Action::Late),
            (false, true) => loads.did(Action::Pass),
            (false, false) => {}
        }
    }
    asked
}

/// Other processes abort the job, or close it, at the same time.
fn rivals(
    loads: &Arc<Loads>,
    (job, parts): (&IngestJob, &[StagedPart]),
    (abort, twice): (&mut Rng, &mut Rng),
) {
    if loads.acts(Action::Abort, abort, 150) {
        elsewhere(loads, "abort", abort, 1500, {
            let (loads, job) = (Arc::clone(loads), job.clone());
            move |env: Env| async move {
                let stands = job.abort(&env, LIMIT).await?;
                loads.books.lock().stands(job.id, &stands);
                if stands == JobStatus::Withdrawn {
                    loads.did(Action::Abort);
                }
                Ok(())
            }
        });
    }
    if loads.acts(Action::CloseTwice, twice, 200) {
        elsewhere(loads, "closer", twice, 500, {
            let (loads, job, parts) = (Arc::clone(loads), job.clone(), parts.to_vec());
            move |env: Env| async move {
                let request = job.commit(&env, &parts, LIMIT).await?;
                loads.did(Action::CloseTwice);
                ask(&loads, &env, &request, false).await
            }
        });
    }
}

/// The application whose versions some jobs are.
const APP: &str = "stream";

/// Forgets the application now and then.
pub(super) async fn forgets_the_app(
    loads: Arc<Loads>,
    process: ProcessId,
    mut rng: Rng,
) -> Result<()> {
    let world = &loads.world;
    let env = world.sim.env(process, world.bucket.store(process));
    while !world.stopped() {
        world.sim.sleep(Duration::from_millis(1000 + rng.below(8000))).await;
        if !loads.acts(Action::ForgetApp, &mut rng, 600) {
            continue;
        }
        match forget_app(&env, APP, LIMIT).await {
            Ok(()) => loads.did(Action::ForgetApp),
            Err(error) if passes(world, process, &error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn hand_over_or_ask(
    loads: &Loads,
    env: &Env,
    request: IngestRequest,
    how: u64,
) -> Result<()> {
    match how {
        // Closed, and forgotten.
        0 => Ok(()),
        1..5 => {
            loads.handed.lock().push(request);
            Ok(())
        }
        5..8 => ask(loads, env, &request, false).await,
        _ => ask(loads, env, &request, true).await,
    }
}

const KEYS: u64 = 24;

/// A range to replace, by the numbers of its keys, recorded as the job's first operation.
fn range(rng: &mut Rng, content: &mut Batch) -> Result<((u64, u64), ReplacedRange)> {
    let first = rng.below(KEYS);
    let end = (first + 1 + rng.below(KEYS)).min(KEYS);
    let (first_key, end_key) = (World::key(first), [World::key(end - 1), vec![0]].concat());
    let (start, stop) = match rng.below(6) {
        0 => (None, None),
        1 => (Some(first_key), None),
        2 => (None, Some(end_key)),
        _ => (Some(first_key), Some(end_key)),
    };
    let least = start.clone().unwrap_or_else(|| b"\0".to_vec());
    let beyond = stop.clone().unwrap_or_else(|| vec![0xff]);
    content.delete_range(&least, &beyond)?;
    let within = (if start.is_some() { first } else { 0 }, if stop.is_some() { end } else { KEYS });
    Ok((within, ReplacedRange::new(start.as_deref(), stop.as_deref())?))
}

/// Up to three parts, which may share keys.
async fn stage(
    job: &IngestJob,
    env: &Env,
    (first, end): (u64, u64),
    rng: &mut Rng,
    content: &mut Batch,
) -> Result<Vec<StagedPart>> {
    let least = u64::from(job.replace.is_none());
    let mut parts = Vec::new();
    for part in 0..least + rng.below(3) {
        let mut writer = job.writer(env, part_options(rng)).unwrap();
        for _ in 0..1 + rng.below(8) {
            let key = World::key(first + rng.below(end - first));
            let pushed = if rng.chance(200) {
                content.delete(&key)?;
                writer.push(Kind::Delete, &key, &[], None)?
            } else {
                let value = format!("{}/{part}/{}", job.id, rng.below(1000));
                content.put(&key, value.as_bytes(), None)?;
                writer.push(Kind::Put, &key, value.as_bytes(), None)?
            };
            if pushed == PushResult::Full {
                writer.relieve().await?;
            }
        }
        parts.push(writer.finish().await?);
    }
    Ok(parts)
}

/// Up to three parts, which share no keys. Each key has one row: most are merge operands.
async fn stage_operands(
    job: &IngestJob,
    env: &Env,
    (first, end): (u64, u64),
    rng: &mut Rng,
    content: &mut Batch,
) -> Result<Vec<StagedPart>> {
    let (mut parts, mut next) = (Vec::new(), first);
    while next < end && parts.len() < 3 {
        let to = (next + 1 + rng.below(8)).min(end);
        let how = PartOptions { duplicates: Duplicates::Refuse, ..part_options(rng) };
        let mut writer = job.writer(env, how).unwrap();
        for key in (next..to).map(World::key) {
            let value = format!("{}/{}/{}", job.id, parts.len(), rng.below(1000));
            let pushed = match rng.below(8) {
                0 => {
                    content.delete(&key)?;
                    writer.push(Kind::Delete, &key, &[], None)?
                }
                1 => {
                    content.put(&key, value.as_bytes(), None)?;
                    writer.push(Kind::Put, &key, value.as_bytes(), None)?
                }
                _ => {
                    content.merge(&key, value.as_bytes(), None)?;
                    writer.push(Kind::Merge, &key, value.as_bytes(), None)?
                }
            };
            if pushed == PushResult::Full {
                writer.relieve().await?;
            }
        }
        parts.push(writer.finish().await?);
        next = to + rng.below(2);
    }
    Ok(parts)
}

fn part_options(rng: &mut Rng) -> PartOptions {
    PartOptions {
        options: siltstone::Options { block_bytes: 128, ..Default::default() },
        duplicates: Duplicates::KeepLast,
        sort_memory_bytes: 1 << 20,
        scratch: std::env::temp_dir(),
        table_bytes: 20 + rng.below(200),
    }
}

/// Requests a job, and records the answer.
async fn ask(loads: &Loads, env: &Env, request: &IngestRequest, wait: bool) -> Result<()> {
    let stands = request.submit(env, wait, LIMIT).await?;
    if request.job.app.is_some()
        && matches!(stands, JobStatus::Adopted(_) | JobStatus::AdoptedBefore(_))
    {
        loads.did(Action::Version);
    }
    let mut books = loads.books.lock();
    books.requested(request.job.id);
    books.stands(request.job.id, &stands);
    Ok(())
}

/// The same from a separate process, some time later.
fn elsewhere<W>(
    loads: &Arc<Loads>,
    name: &'static str,
    rng: &mut Rng,
    millis: u64,
    work: impl FnOnce(Env) -> W + Send + 'static,
) where
    W: Future<Output = Result<()>> + Send + 'static,
{
    let world = Arc::clone(&loads.world);
    let process = world.sim.process(name, rng.below(4000) as i64 - 2000);
    let env = world.sim.env(process, world.bucket.store(process));
    let pause = Duration::from_millis(rng.below(millis));
    start(&loads.world, process, name, async move {
        world.sim.sleep(pause).await;
        match work(env).await {
            Err(error) if !passes(&world, process, &error) => Err(error),
            _ => Ok(()),
        }
    });
}
