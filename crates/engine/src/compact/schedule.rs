//! The scheduling loop: starts due jobs, several at a time, until the compactor is stopped. In the
//! writer's process a flush wakes it; in its own process it polls for newer manifests.

use super::event::CompactorEvent;
use super::host::Host;
use super::job::JobEnd;
use super::start::{DuePlans, PlanStart, Starter};
use super::{CompactionRequest, job, leftovers, take_back};
use siltstone_base::{AttemptId, Epoch, Error, ErrorKind, JobId, Result};
use siltstone_store::supervise::caught;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedRwLockReadGuard;

/// Pause after a failed compaction. It doubles with each failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Runs until its process stops it or, in its own process, another compactor has taken over.
///
/// # Errors
/// In its own process: Fenced, NotFound, Invalid, Unsupported; and errors of a store that accepts
/// nothing from the beginning, after the deadline, or immediately if a permission is missing.
pub(crate) async fn run(host: &Arc<dyn Host>) -> Result<()> {
    let mut pause = FIRST_PAUSE;
    let mut trial = StartupTrial::default();
    trial.begins(&**host);
    while host.check_open().is_ok() {
        let due = caught("compactor", start_due(host)).await.flatten();
        let due = match due {
            Err(_) => host.compactor().told(&**host, due).await,
            started => started,
        };
        let error = match (due, host.compactor().take_failure()) {
            (Ok(due), None) => {
                pause = FIRST_PAUSE;
                trial.passes();
                if !due {
                    host.idle(None).await;
                }
                continue;
            }
            (Ok(_), Some(error)) => error,
            (Err(error), _) => error,
        };
        if host.writer().is_none() && trial.ends_by(&**host, &error) {
            return Err(error);
        }
        if error.kind() == ErrorKind::Fenced {
            // The compactor stays stopped, unless the other one releases the epoch, or stalls while
            // this one is needed.
            let again = take_back::watch(&**host).await;
            host.idle(again).await;
            continue;
        }
        if host.check_open().is_ok() {
            host.emit(CompactorEvent::Trouble(error));
        }
        rest(host, pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    Ok(())
}

/// Whether a compactor or worker in its own process has shown that it works. If it never could, its
/// user learns that from an error; if it has worked before, it waits and retries.
#[derive(Default)]
pub(super) struct StartupTrial {
    passed: bool,
    /// When the first proving operation began.
    since: Option<Duration>,
}

impl StartupTrial {
    /// An operation begins that can prove it, unless one is in progress.
    pub(super) fn begins(&mut self, host: &dyn Host) {
        self.since.get_or_insert_with(|| host.env().clock.monotonic());
    }

    /// No such operation is in progress any more.
    pub(super) fn rests(&mut self) {
        self.since = None;
    }

    /// The store has accepted the work.
    pub(super) fn passes(&mut self) {
        self.passed = true;
    }

    /// Whether the process ends with `error`: a retry cannot help, or the store has accepted
    /// nothing from the beginning. A missing permission does not wait for the deadline.
    pub(super) fn ends_by(&self, host: &dyn Host, error: &Error) -> bool {
        let since = self.since.filter(|_| !self.passed);
        let waited = since.map(|since| host.env().clock.monotonic().saturating_sub(since));
        let in_vain = waited.is_some_and(|waited| {
            error.kind() == ErrorKind::Denied || waited >= host.options().deadline
        });
        in_vain || is_final(error)
    }
}

/// Whether a retry cannot help a process that only compacts.
fn is_final(error: &Error) -> bool {
    use ErrorKind as Kind;
    matches!(error.kind(), Kind::Fenced | Kind::NotFound | Kind::Invalid | Kind::Unsupported)
}

/// Starts what is due. Returns whether there was anything. Jobs that no process works on come
/// first.
async fn start_due(host: &Arc<dyn Host>) -> Result<bool> {
    let compactor = host.compactor();
    // A manual compaction waits or runs, so no new job begins.
    let Ok(turn) = Arc::clone(&compactor.turn).try_read_owned() else { return Ok(false) };
    let turn = Arc::new(turn);
    if compactor.epoch() == Epoch::NONE && host.writer().is_some() {
        // Without due work not even the epoch is claimed.
        let known = compactor.chain.known();
        if DuePlans::of(&**host, &CompactionRequest::Scheduled, known.as_deref())?.plans.is_empty()
        {
            return Ok(false);
        }
    }
    let epoch = compactor.claimed(&**host).await?;
    let left = leftovers(&**host, epoch).await?;
    for job in &left {
        let worker = AttemptId(host.env().random_u128());
        spawn(host, &turn, (epoch, *job, worker));
    }
    let record = compactor.chain.newest(host.manifests()).await?;
    let mut wishes = DuePlans::of(&**host, &CompactionRequest::Scheduled, Some(&record))?;
    let starter = Starter::new(&**host, epoch);
    let mut any = !left.is_empty();
    for plan in std::mem::take(&mut wishes.plans) {
        match starter.start(&mut wishes, &plan).await? {
            PlanStart::Nothing => {}
            // The tree has changed: plan again for the rest.
            PlanStart::Committed | PlanStart::Restored => return Ok(true),
            PlanStart::Job(job, worker) => {
                spawn(host, &turn, (epoch, job, worker));
                any = true;
            }
        }
    }
    Ok(any)
}

/// Runs a job as a separate task.
fn spawn(
    host: &Arc<dyn Host>,
    turn: &Arc<OwnedRwLockReadGuard<()>>,
    (epoch, job, worker): (Epoch, JobId, AttemptId),
) {
    host.compactor().begins(job, worker);
    let (owned, turn) = (Arc::clone(host), Arc::clone(turn));
    let task = async move {
        let compactor = owned.compactor();
        let worked = job::run(&owned, epoch, job).await;
        let told = worked.clone().and_then(JobEnd::committed);
        if let Err(error) = compactor.told(&*owned, told).await {
            compactor.fails(error);
        }
        compactor.ends(job, worked.is_ok());
        drop(turn);
        owned.nudge();
    };
    host.env().spawn.spawn("compact", Box::pin(task));
}

/// Waits for about `pause`, or until the handle ends.
pub(crate) async fn rest(host: &Arc<dyn Host>, pause: Duration) {
    let until = host.env().clock.monotonic() + host.env().jittered(pause);
    while host.check_open().is_ok() && host.env().clock.monotonic() < until {
        host.idle(Some(until)).await;
    }
}
