//! A worker takes ranges from the record of jobs, merges them, and records its tables. It has no
//! epoch, and must neither plan nor commit.

use super::cut;
use super::event::{CompactorEvent, RangeMerged};
use super::host::Host;
use super::process::Process;
use super::range::{Layers, RangeEnding, RangeWorker, apart};
use super::schedule::StartupTrial;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use siltstone_base::{AttemptId, ErrorKind, JobId, Result, SstDescriptor};
use siltstone_manifest::compaction::{Claim, ClaimWatch, Compactions};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A range that may be claimed, and the stalled claim on it, if there is one.
type FreeRange = ((JobId, usize), Option<Claim>);

/// Ranges at work.
type WorkerRanges = FuturesUnordered<BoxFuture<'static, ((JobId, usize), Result<RangeEnding>)>>;

/// Runs until the process is stopped.
///
/// # Errors
/// NotFound if the database was destroyed; Unsupported; errors of a store that accepts nothing from
/// the beginning, after the deadline, or immediately if a permission is missing.
pub(super) async fn run(process: &Arc<Process>) -> Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut working = WorkerRanges::new();
    let ran = direct(process, &stop, &mut working).await;
    stop.store(true, Ordering::Release);
    while working.next().await.is_some() {}
    ran
}

async fn direct(
    process: &Arc<Process>,
    stop: &Arc<AtomicBool>,
    working: &mut WorkerRanges,
) -> Result<()> {
    let (mut watch, mut here) = (ClaimWatch::default(), HashSet::new());
    let mut trial = StartupTrial::default();
    while process.check_open().is_ok() {
        let found = match look(process, &mut watch, &here).await {
            Ok(found) => found,
            Err(error) if error.kind().may_pass() => {
                process.emit(CompactorEvent::Trouble(error));
                Vec::new()
            }
            Err(error) => return Err(error),
        };
        let any = !found.is_empty();
        for (place, instead_of) in found {
            if working.len() >= cut::parallelism(&**process) {
                break;
            }
            let layers = match inputs(process, place.0).await {
                Ok(Some(layers)) => layers,
                Ok(None) => continue,
                Err(error) if error.kind().may_pass() => {
                    process.emit(CompactorEvent::Trouble(error));
                    break;
                }
                Err(error) => return Err(error),
            };
            trial.begins(&**process);
            here.insert(place);
            let (owned, layers) = (Arc::clone(process), Arc::new(layers));
            let work = merge(owned, (place, instead_of), layers, Arc::clone(stop));
            working.push(merged_apart(process, work).map(move |ended| (place, ended)).boxed());
        }
        let pause = process.next_pause(any);
        let Some((place, ended)) = next(process, working, pause).await else { continue };
        here.remove(&place);
        match ended {
            Ok(RangeEnding::Done) => trial.passes(),
            Ok(RangeEnding::Lost) => trial.rests(),
            Err(_) if process.check_open().is_err() => {}
            Err(error) if trial.ends_by(&**process, &error) => return Err(error),
            Err(error) => {
                // The claim stays until other workers see it as stalled, or this one claims the
                // range again.
                process.emit(CompactorEvent::Trouble(error));
                process.rests(process.next_pause(false)).await;
            }
        }
    }
    Ok(())
}

/// A range that checks whether its job has ended holds the turn of the record. This process waits
/// for that turn when it looks for other work, so the range must make progress meanwhile.
fn merged_apart(
    process: &Arc<Process>,
    work: impl Future<Output = Result<RangeEnding>> + Send + 'static,
) -> BoxFuture<'static, Result<RangeEnding>> {
    let spawn = Arc::clone(&process.env.spawn);
    async move { apart(&*spawn, work).await }.boxed()
}

/// The ranges that may be claimed: open ranges first, then those of stalled workers.
async fn look(
    process: &Process,
    watch: &mut ClaimWatch,
    here: &HashSet<(JobId, usize)>,
) -> Result<Vec<FreeRange>> {
    let chain = &process.compactor.chain;
    let record: Arc<Compactions> = chain.look(&process.manifests).await?;
    let limit = process.options.compactors.worker_timeout;
    let stalled = watch.look(&record, process.env.clock.monotonic(), limit);
    let stalled = stalled.into_iter().map(|(job, at, claim)| ((job, at), Some(claim)));
    let open = record.open_ranges().into_iter().map(|place| (place, None));
    let found: Vec<FreeRange> =
        open.chain(stalled).filter(|(place, _)| !here.contains(place)).collect();
    Ok(found)
}

/// Whether the job has ended, as of now.
pub(super) async fn is_over(process: &Process, id: JobId) -> Result<bool> {
    process.manifests.probe(true).await?;
    process.compactor.chain.list(&process.manifests).await?;
    Ok(inputs(process, id).await?.is_none())
}

/// The tables to merge, newest layer first; `None` if the job has ended.
pub(super) async fn inputs(
    process: &Process,
    id: JobId,
) -> Result<Option<Vec<Vec<SstDescriptor>>>> {
    let manifests = &process.manifests;
    let Some(job) = process.compactor.chain.job(manifests, id).await? else { return Ok(None) };
    // This process may not know the manifest on which the job was planned.
    let mut state = manifests.newest_known();
    if state.id < job.planned_on || job.merged(&state).is_err() {
        state = manifests.probe(true).await?;
    }
    let finished = state.finished_jobs.iter().any(|done| done.job == id);
    Ok(if finished { None } else { job.merged(&state).ok() })
}

async fn merge(
    process: Arc<Process>,
    (place, instead_of): FreeRange,
    layers: Layers,
    stop: Arc<AtomicBool>,
) -> Result<RangeEnding> {
    let host: Arc<dyn Host> = Arc::<Process>::clone(&process);
    let env = &process.env;
    let since = env.clock.monotonic();
    let worker = AttemptId(env.random_u128());
    let ended = RangeWorker::new(&host, place, worker, &stop).work(layers, instead_of).await;
    match &ended {
        Ok(RangeEnding::Done) => {
            let took = env.clock.monotonic().saturating_sub(since);
            let (job, range) = (place.0.to_string(), place.1);
            process.emit(CompactorEvent::Merged(RangeMerged { job, range, took }));
        }
        // Missing inputs belonged to a job that ended meanwhile without this process knowing yet,
        // or the database was destroyed.
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return if is_over(&process, place.0).await? { Ok(RangeEnding::Lost) } else { ended };
        }
        _ => {}
    }
    ended
}

/// The next range that ends here; `None` if `pause` ends first.
async fn next(
    process: &Process,
    working: &mut WorkerRanges,
    pause: std::time::Duration,
) -> Option<((JobId, usize), Result<RangeEnding>)> {
    if working.is_empty() {
        process.compactor.memory.clear();
        process.rests(pause).await;
        return None;
    }
    super::job::either(working.next(), process.rests(pause)).await.flatten()
}
