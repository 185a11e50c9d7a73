//! Whether another round could find anything: an idle database is to be left alone.

use super::report::GcReport;
use siltstone_base::{SstId, UnixMillis};
use siltstone_manifest::{LeasedVersion, Manifest};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// Superseded manifests that are worth a round though nothing else has changed.
const MANIFESTS: u64 = 64;

/// The state that the last round left.
#[derive(Clone, Debug, Default)]
pub(super) struct LastRound {
    /// The newest manifest it went by; none before the first round.
    newest: Option<Arc<Manifest>>,
    /// When what it left for its age will be old enough, by the monotonic clock; `None`: nothing.
    ripens: Option<Duration>,
    /// Whether something could not be deleted, or another collector was ahead.
    unfinished: bool,
}

impl LastRound {
    /// Before the first round, of a process that begins with `newest`: what is there already is
    /// another's garbage, and waits until this process makes some of its own.
    pub(super) fn at_open(newest: Arc<Manifest>) -> LastRound {
        LastRound { newest: Some(newest), ..LastRound::default() }
    }

    /// After a round that began at `began` and found `newest`.
    pub(super) fn after(
        report: &GcReport,
        newest: Arc<Manifest>,
        began: Duration,
        min_age: Duration,
    ) -> LastRound {
        let total = report.total();
        LastRound {
            newest: Some(newest),
            ripens: (total.young > 0).then_some(began + min_age),
            unfinished: report.overtaken
                || total.failed + total.denied > 0
                || report.trouble.is_some(),
        }
    }

    /// Whether a round could find anything, which would begin from `newest`. Garbage comes with
    /// commits: with the one that takes tables away, with the claim of a compactor or writer that
    /// voids an older one's names. All other reasons are here too: age, expiry, and what went
    /// wrong before.
    pub(super) fn is_due(&self, newest: &Manifest, now: UnixMillis, monotonic: Duration) -> bool {
        let same = |last: &Arc<Manifest>| (last.database, last.id) == (newest.database, newest.id);
        !self.newest.as_ref().is_some_and(same) || self.is_open(newest, now, monotonic)
    }

    /// Whether a round is worth its requests: as [`LastRound::is_due`], but of commits only those
    /// count that free a WAL object, a table, what a checkpoint pinned or a lease covered, or that
    /// are many.
    pub(super) fn is_worth(&self, newest: &Manifest, now: UnixMillis, monotonic: Duration) -> bool {
        self.newest.as_ref().is_none_or(|last| frees(last, newest))
            || self.is_open(newest, now, monotonic)
    }

    /// The newest manifest that the last round found.
    pub(super) fn newest(&self) -> Option<&Arc<Manifest>> {
        self.newest.as_ref()
    }

    fn is_open(&self, newest: &Manifest, now: UnixMillis, monotonic: Duration) -> bool {
        self.unfinished || self.ripens.is_some_and(|at| at <= monotonic) || newest.has_expired(now)
    }
}

/// Whether `newest` needs less than `last`.
fn frees(last: &Manifest, newest: &Manifest) -> bool {
    if last.id == newest.id {
        return false;
    }
    let gone = |version: &LeasedVersion| newest.lease_of(version.manifest_id).is_none();
    let there: HashSet<SstId> = newest.tables().map(|table| table.id).collect();
    newest.replay_from > last.replay_from
        || last.checkpoints.iter().any(|one| newest.checkpoint(one.id).is_none())
        || last.leases.iter().flat_map(|lease| &lease.versions).any(gone)
        || last.kept_from().is_some_and(|from| newest.kept_from().is_none_or(|now| now > from))
        || newest.id.get() >= last.id.get() + MANIFESTS
        || last.tables().any(|table| !there.contains(&table.id))
}

#[cfg(test)]
mod tests {
    use super::super::report::Collected;
    use super::*;
    use siltstone_base::{AttemptId, CheckpointId, DatabaseId, ManifestId, ObjectName, WalId};
    use siltstone_manifest::{Checkpoint, CheckpointOwner, Settings};

    const MIN_AGE: Duration = Duration::from_secs(300);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn manifest(id: u64) -> Manifest {
        let first = Manifest::new_database(DatabaseId(1), Settings::default());
        Manifest { id: ManifestId(id), ..first }
    }

    fn seen(collected: Collected) -> LastRound {
        let mut report = GcReport::default();
        *report.class(ObjectName::Manifest(ManifestId(1))) = collected;
        LastRound::after(&report, Arc::new(manifest(7)), at(10), MIN_AGE)
    }

    #[test]
    fn nothing_is_due_where_nothing_happened() {
        let seen = seen(Collected { alive: 3, deleted: 9, ..Collected::default() });
        assert!(!seen.is_due(&manifest(7), UnixMillis(1), at(1_000_000)));
        assert!(seen.is_due(&manifest(8), UnixMillis(1), at(11)));
        assert!(LastRound::default().is_due(&manifest(7), UnixMillis(1), at(0)));
        let anew = Manifest { database: DatabaseId(2), ..manifest(7) };
        assert!(seen.is_due(&anew, UnixMillis(1), at(11)));
    }

    #[test]
    fn a_round_is_worth_what_it_frees() {
        let seen = LastRound::at_open(Arc::new(manifest(7)));
        let worth = |newest: &Manifest| seen.is_worth(newest, UnixMillis(1), at(1));
        assert!(!worth(&manifest(7)) && !worth(&manifest(8)) && worth(&manifest(7 + MANIFESTS)));
        assert!(worth(&Manifest { replay_from: WalId(5), ..manifest(8) }));
    }

    #[test]
    fn young_objects_are_waited_for_and_failed_deletes_tried_again() {
        let young = seen(Collected { young: 1, ..Collected::default() });
        assert!(!young.is_due(&manifest(7), UnixMillis(1), at(309)));
        assert!(young.is_due(&manifest(7), UnixMillis(1), at(310)));
        let denied = seen(Collected { denied: 1, ..Collected::default() });
        assert!(denied.is_due(&manifest(7), UnixMillis(1), at(11)));
    }

    #[test]
    fn an_expired_checkpoint_is_reason_enough() {
        let mut pinned = manifest(7);
        pinned.checkpoints = vec![Checkpoint {
            id: CheckpointId(1),
            manifest_id: ManifestId(3),
            manifest_attempt: AttemptId::NONE,
            replay_from: WalId(1),
            wal_id_last_seen: WalId(0),
            created_at: UnixMillis(1),
            expires_at: Some(UnixMillis(50)),
            source: None,
            owner: CheckpointOwner::Reader,
            name: None,
            metadata: Vec::new(),
        }];
        let seen = seen(Collected::default());
        assert!(!seen.is_due(&pinned, UnixMillis(49), at(11)));
        assert!(seen.is_due(&pinned, UnixMillis(50), at(11)));
    }
}
