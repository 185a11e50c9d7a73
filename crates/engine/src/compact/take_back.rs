//! When an embedded compactor that was stopped by another one takes the epoch back (RFC 0021): its
//! writer needs compaction, and the other compactor has given no sign of life for long.

use super::host::Host;
use super::process::SLOWEST_LOOKS;
use super::start::DuePlans;
use super::{CompactionRequest, Compactor};
use crate::options::Options;
use siltstone_base::{AttemptId, Epoch, JobId, Result};
use siltstone_manifest::compaction::Compactions;
use siltstone_manifest::{Conflict, Edit, Manifest, Refusal};
use std::sync::Arc;
use std::time::Duration;

/// Looks within the time after which a stalled compactor counts as dead.
const LOOKS_A_PATIENCE: u32 = 4;
/// Factor by which jitter extends a pause at most.
const JITTER: u32 = 2;

/// How long another compactor must give no sign of life. An idle compactor that is alive looks
/// after its longest pause, finds work and records a job; a working one sends three heartbeats
/// within `worker_timeout`. Both intervals are options of the other process, and this process knows
/// only its own.
pub(crate) fn patience(options: &Options) -> Duration {
    options.compactors.worker_timeout + options.compactors.poll_interval * (SLOWEST_LOOKS * JITTER)
}

/// State that changes while a compactor, or a worker of its jobs, is alive.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LivenessSigns {
    epoch: Epoch,
    claim: AttemptId,
    finished: Vec<JobId>,
    /// Number of the newest job record.
    record: u64,
}

impl LivenessSigns {
    fn of(state: &Manifest, record: &Compactions) -> LivenessSigns {
        LivenessSigns {
            epoch: state.compactor_epoch,
            claim: state.compactor_claim,
            finished: state.finished_jobs.iter().map(|done| done.job).collect(),
            record: record.number,
        }
    }
}

/// Observations of the compactor that holds the epoch, by the observer's monotonic clock.
#[derive(Debug, Default)]
pub(super) struct CompactorWatch {
    seen: Option<ObservedSigns>,
}

#[derive(Debug)]
struct ObservedSigns {
    signs: LivenessSigns,
    /// The first look that saw these signs.
    since: Duration,
    /// The last look.
    looked: Duration,
}

impl CompactorWatch {
    /// Takes the result of a look. Returns for how long all looks have seen the same signs.
    fn look(&mut self, signs: LivenessSigns, now: Duration) -> Duration {
        let before = self.seen.take().filter(|seen| seen.signs == signs);
        let since = before.map_or(now, |seen| seen.since);
        self.seen = Some(ObservedSigns { signs, since, looked: now });
        now.saturating_sub(since)
    }

    /// Forgets everything: the next look counts as the first.
    pub(super) fn forget(&mut self) {
        self.seen = None;
    }

    /// How long no sign of life was seen; `None` if this process does not look.
    pub(super) fn lasts(&self, now: Duration) -> Option<Duration> {
        self.seen.as_ref().map(|seen| now.saturating_sub(seen.since))
    }

    /// Time of the next look.
    fn next_look(&self, patience: Duration) -> Option<Duration> {
        self.seen.as_ref().map(|seen| seen.looked + patience / LOOKS_A_PATIENCE)
    }
}

/// The step of a stopped compactor before it waits. If compaction is needed and a look is due, it
/// looks at the other compactor, and takes the epoch back if that was stalled for too long. Returns
/// the time of the next call, by the monotonic clock; `None` means after the next event in this
/// process.
pub(super) async fn watch(host: &dyn Host) -> Option<Duration> {
    let (compactor, clock) = (host.compactor(), &host.env().clock);
    let now = clock.monotonic();
    if compactor.held.lock().fenced.is_none() {
        return Some(now);
    }
    if !is_needed(host) {
        compactor.watch.lock().forget();
        return None;
    }
    let patience = patience(host.options());
    let next = compactor.watch.lock().next_look(patience);
    if let Some(next) = next.filter(|next| *next > now) {
        return Some(next);
    }
    match look(host, patience).await {
        // This compactor has the epoch, or the epoch is released.
        Ok(true) => Some(clock.monotonic()),
        // If the store does not answer, nothing is known about the other compactor.
        Ok(false) | Err(_) => Some(clock.monotonic() + patience / LOOKS_A_PATIENCE),
    }
}

/// Whether writes here are delayed because this process may not compact.
fn is_needed(host: &dyn Host) -> bool {
    if !host.needs_compaction() {
        return false;
    }
    // Plan as if no job ran: jobs that a dead compactor began are due too.
    let due = DuePlans::of(host, &CompactionRequest::Scheduled, None)
        .is_ok_and(|due| !due.plans.is_empty());
    due || host.compactor().chain.known().is_some_and(|record| {
        let finished = record.finished(&host.manifests().newest_known());
        record.jobs.iter().any(|job| !finished.contains(&job.id))
    })
}

/// Looks once. Returns whether the epoch is now this compactor's, or released.
async fn look(host: &dyn Host, patience: Duration) -> Result<bool> {
    let (compactor, manifests) = (host.compactor(), host.manifests());
    // List, because a read that finds nothing proves nothing (rule M4).
    let record = compactor.chain.list(manifests).await?;
    let state = manifests.probe(true).await?;
    let signs = LivenessSigns::of(&state, &record);
    let stalled = compactor.watch.lock().look(signs, host.env().clock.monotonic());
    // A job of the old epoch that still runs here would end the new epoch with its error.
    if compactor.is_at_work() {
        return Ok(false);
    }
    if state.compactor_is_released() || stalled < patience {
        return Ok(state.compactor_is_released());
    }
    take_back(host, state.compactor_epoch, stalled).await
}

/// Claims the epoch, unless another compactor has claimed since `epoch` was judged.
async fn take_back(host: &dyn Host, epoch: Epoch, stalled: Duration) -> Result<bool> {
    let compactor = host.compactor();
    // A manual compaction claims for itself.
    let Ok(_turn) = Arc::clone(&compactor.turn).try_read_owned() else { return Ok(false) };
    let claim = AttemptId(host.env().random_u128());
    let edit = Edit::ClaimCompactor { writer: host.writer(), expected: epoch, claim };
    match host.manifests().try_commit(edit).await? {
        Ok(_) => {
            compactor.starts_anew(epoch.next());
            compactor.log.took_over(epoch, stalled);
            Ok(true)
        }
        Err(Refusal::Conflict(Conflict::EpochMoved { .. })) => {
            compactor.watch.lock().forget();
            Ok(false)
        }
        Err(refusal) => Err(refusal.into()),
    }
}

impl Compactor {
    /// How long the compactor that stopped this one has given no sign of life; `None` if this
    /// process does not look.
    pub(crate) fn stalled_for(&self, now: Duration) -> Option<Duration> {
        self.watch.lock().lasts(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signs(epoch: u64, record: u64) -> LivenessSigns {
        LivenessSigns { epoch: Epoch(epoch), claim: AttemptId(7), finished: Vec::new(), record }
    }

    #[test]
    fn the_count_starts_at_the_first_look_and_ends_with_any_sign() {
        let at = Duration::from_secs;
        let mut watch = CompactorWatch::default();
        assert_eq!(watch.lasts(at(5)), None);
        // The time before the first look does not count.
        assert_eq!(watch.look(signs(3, 9), at(1000)), at(0));
        assert_eq!(watch.look(signs(3, 9), at(1061)), at(61));
        assert_eq!(watch.lasts(at(1070)), Some(at(70)));
        assert_eq!(watch.look(signs(3, 10), at(1080)), at(0));
        assert_eq!(watch.look(signs(4, 10), at(1090)), at(0));
        let ended = LivenessSigns { finished: vec![JobId(1)], ..signs(4, 10) };
        assert_eq!(watch.look(ended.clone(), at(1100)), at(0));
        let claimed = LivenessSigns { claim: AttemptId(8), ..ended };
        assert_eq!(watch.look(claimed.clone(), at(1110)), at(0));
        assert_eq!(watch.look(claimed.clone(), at(1200)), at(90));
        watch.forget();
        assert_eq!(watch.look(claimed, at(1300)), at(0));
    }

    #[test]
    fn patience_outlasts_the_longest_pause_and_a_worker() {
        let options = Options::default();
        let patience = patience(&options);
        assert!(patience > options.compactors.worker_timeout);
        assert!(patience > options.compactors.poll_interval * 16);
        assert_eq!(patience, Duration::from_secs(62));
    }
}
