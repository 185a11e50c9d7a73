//! The edits of a repair (RFC 0034): it continues from the newest readable manifest, and keeps the
//! part of the log before the first unreadable object.
//!
//! As in a restore, no counter decreases. The lost objects may have used larger numbers than can be
//! known, so numbers that they may have used are skipped too.

use super::history::{NewHistory, has_begun};
use super::writer::{check_epoch, keep_fences};
use super::{LogTables, Refusal, check};
use crate::features::{INGEST, INGEST_APPS};
use crate::rules::{Rule, Rules};
use crate::state::{
    CheckpointOwner, KeptFence, Manifest, PendingIngest, RELEASED, Timeline, WRITER_RECORDS,
    WriterRecord,
};
use siltstone_base::limits::MAX_PARALLEL_WRITES;
use siltstone_base::{
    AttemptId, CheckpointId, Epoch, ManifestId, Seq, TimelineId, UnixMillis, WalId,
};
use std::collections::BTreeSet;

/// Maximum number of L0 layers, and of ancestors, that one manifest may have added: the repair
/// skips the orders and numbers that unreadable manifests may have used.
const MOST_BROUGHT: u32 = 1 << 16;

/// The first version with the features that this module names.
const SINCE: &str = "0.1.0";

/// Cuts the log: rows before the cut are in tables now, rows after it are lost (rule Y2).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeepPrefix {
    /// The epoch under which the previous writer was fenced.
    pub epoch: Epoch,
    /// The tables and jobs of the log before the cut; names of row tables are reserved.
    pub log: LogTables,
    /// The last sequence number that is kept.
    pub cut: Seq,
    /// No sequence number above this was assigned: the lost rows have smaller ones.
    pub reached: Seq,
    /// The latest commit time of the log that was walked.
    pub commit_time: UnixMillis,
    /// All fences met on the walk and behind the cut, and the own ones.
    pub fences: Vec<KeptFence>,
    /// The identity of the history that begins here, new.
    pub timeline: TimelineId,
    /// When it begins.
    pub began_at: UnixMillis,
}

impl KeepPrefix {
    pub(super) fn apply(&self, next: &mut Manifest, rules: Rules) -> Result<(), Refusal> {
        check_epoch(next, self.epoch)?;
        if !self.log.is_empty() {
            next.tables_since = next.id;
        }
        let kept = next.flushed_seq.max(self.cut);
        let passes = rules.has(Rule::CutPassesNumbers);
        let begun = NewHistory {
            id: self.timeline,
            began_at: self.began_at,
            from: next.timelines.clone(),
            log: &self.log,
            cut: kept,
            flushed: if passes { kept.max(self.reached) } else { kept },
            commit_time: self.commit_time,
            fences: &self.fences,
        };
        begun.begin(next, rules)
    }

    pub(super) fn in_effect(&self, state: &Manifest) -> bool {
        has_begun(state, self.timeline)
    }
}

/// Continues from a manifest whose successors cannot be read or are missing (rule Y3). It is not an
/// edit, because its base is not the newest manifest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VoidManifests {
    /// The largest used number.
    pub last: ManifestId,
    /// The largest epoch in the log.
    pub epoch: Epoch,
    /// Identity of the claim, random.
    pub claim: AttemptId,
    /// Fences in a listing.
    pub fences: Vec<KeptFence>,
    /// The boundary of the log: missing objects up to it were freed under a manifest that is lost.
    pub wal_boundary: WalId,
    /// Checkpoints whose objects are missing.
    pub gone: Vec<CheckpointId>,
    /// Older manifests that exist.
    pub readable: BTreeSet<ManifestId>,
    /// The jobs in the kept part of the log, whose rows are acknowledged. Other requests end.
    pub jobs: Vec<PendingIngest>,
    /// The identity of the history that begins here, new.
    pub timeline: TimelineId,
    /// When it begins.
    pub began_at: UnixMillis,
}

impl VoidManifests {
    /// Number of void manifests after `base`, if `last` is the largest used number; a manifest that
    /// is missing without a trace counts as one.
    #[must_use]
    pub fn behind(base: &Manifest, last: ManifestId) -> u64 {
        last.next().get().saturating_sub(base.next_id().get()).max(1)
    }

    /// Requests the jobs of the log in the new history, whether their requests are lost or not.
    /// *The runs that break without this:* a job is in the log, and its request was in a lost
    /// manifest; a cut of this log installs the job, which is not pending; or its driver aborts the
    /// job, which looks as if it was never submitted, and no writer can open the database.
    fn request_jobs(&self, next: &mut Manifest) {
        for job in &self.jobs {
            next.features.name(INGEST, SINCE);
            if job.app.is_some() {
                next.features.name_for_committers(INGEST_APPS, SINCE);
            }
            next.remembered_ingests.retain(|one| one.job != job.job);
            next.pending_ingests
                .push(PendingIngest { timeline: Some(self.timeline), ..job.clone() });
        }
    }

    /// The state that continues from `base`, to be created under the first free number. It claims
    /// an epoch for a writer that never begins, so the next opener walks and fences as usual.
    ///
    /// # Errors
    /// Broken, if the state would break an invariant.
    pub fn apply(&self, base: &Manifest, rules: Rules) -> Result<Manifest, Refusal> {
        let mut next = base.clone();
        (next.id, next.attempt) = (self.last.next().max(base.next_id()), AttemptId::NONE);
        // Each void manifest may have been a claim.
        let voided = VoidManifests::behind(base, self.last);
        let passed = if rules.has(Rule::VoidPassesEpochs) { voided + 1 } else { 1 };
        claim(&mut next, base.writer_epoch.plus(passed).max(self.epoch.next()), self.claim);
        self.request_jobs(&mut next);
        next.compactor_epoch = next.compactor_epoch.plus(passed);
        next.compactor_claim = RELEASED;
        let brought = u64::from(MOST_BROUGHT).saturating_mul(voided);
        next.last_l0_order = next.last_l0_order.saturating_add(brought);
        let brought = u32::try_from(brought).unwrap_or(u32::MAX);
        next.last_ancestor = next.last_ancestor.saturating_add(brought);
        self.keep_what_is_there(&mut next);
        next.wal_id_last_seen = next.wal_id_last_seen.max(self.wal_boundary);
        next.features.keep_tables();
        next.tables_since = next.id;
        next.timelines.push(Timeline {
            id: self.timeline,
            cut: next.flushed_seq,
            begins: next.flushed_seq.next(),
            manifest_id: next.id,
            began_at: self.began_at,
        });
        check(&next, rules)?;
        Ok(next)
    }

    fn keep_what_is_there(&self, next: &mut Manifest) {
        next.checkpoints.retain(|one| !self.gone.contains(&one.id));
        for one in &mut next.checkpoints {
            // The pin may have been made permanent since.
            if matches!(one.owner, CheckpointOwner::Clone(_)) {
                one.expires_at = None;
            }
        }
        for lease in &mut next.leases {
            lease.versions.retain(|version| self.readable.contains(&version.manifest_id));
        }
        next.leases.retain(|lease| !lease.versions.is_empty());
        // Versions after the base are lost. Readers look for a new version; until the repair is
        // confirmed, collectors delete no unreferenced table.
        next.since_leases.clear();
        let mut fences = self.fences.clone();
        fences.sort_unstable();
        for fence in fences {
            let apart = |kept: &KeptFence| kept.next_id <= fence.id || fence.next_id <= kept.id;
            // A later fence is found by a walk.
            if fence.next_id <= next.replay_from && next.kept_fences.iter().all(apart) {
                keep_fences(next, &[fence]);
            }
        }
    }
}

/// As a claim, with the largest window that an unreadable claim may have had.
fn claim(next: &mut Manifest, epoch: Epoch, claim: AttemptId) {
    next.writer_epoch = epoch;
    next.widest_window = MAX_PARALLEL_WRITES;
    next.writers.push(WriterRecord {
        epoch,
        claim,
        max_parallel_writes: MAX_PARALLEL_WRITES,
        clean_close: false,
        transient: false,
    });
    let excess = next.writers.len().saturating_sub(WRITER_RECORDS);
    next.writers.drain(..excess);
    next.reserved.clear();
    next.pending_ingests.clear();
    next.floor = next.flushed_seq;
    next.checkpoints.retain(|one| !matches!(one.owner, CheckpointOwner::Writer(_)));
}

#[cfg(test)]
mod tests;
