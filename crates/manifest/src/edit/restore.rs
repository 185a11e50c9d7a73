//! The edit that makes a checkpoint the current state again (RFC 0030, rule S1).
//!
//! Nothing that counts goes back: epochs, orders, the replay point and what counts as flushed only
//! grow, so that no process takes what is undone for what is new, and no number is given twice.

use super::history::{NewHistory, has_begun};
use super::ingest::forget_ended;
use super::writer::check_epoch;
use super::{Conflict, LogTables, Refusal};
use crate::rules::{Rule, Rules};
use crate::state::{KeptFence, Manifest};
use siltstone_base::{CheckpointId, Epoch, ManifestId, Seq, TimelineId, UnixMillis};
use std::sync::Arc;

/// Makes what a checkpoint pins the current state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Restore {
    /// Under which the writer before was fenced.
    pub epoch: Epoch,
    /// The checkpoint; it must be present in the very state that this is committed on.
    pub checkpoint: CheckpointId,
    /// The manifest that it names.
    pub version: Arc<Manifest>,
    /// What its part of the log brings; names of tables of rows are reserved.
    pub log: LogTables,
    /// The last sequence number that it holds.
    pub cut: Seq,
    /// The largest sequence number of the log that was walked.
    pub reached: Seq,
    /// The latest commit time of that log.
    pub commit_time: UnixMillis,
    /// Every fence on the walk, and the own one.
    pub fences: Vec<KeptFence>,
    /// The history that begins here: a fresh identity.
    pub timeline: TimelineId,
    /// When it begins.
    pub began_at: UnixMillis,
}

impl Restore {
    pub(super) fn apply(&self, next: &mut Manifest, rules: Rules) -> Result<(), Refusal> {
        if rules.has(Rule::RestoreByEpoch) {
            check_epoch(next, self.epoch)?;
        }
        let pins = |one: &crate::state::Checkpoint| one.manifest_id == self.version.id;
        let present = next.checkpoint(self.checkpoint).is_some_and(pins);
        if !present && rules.has(Rule::RestoreFromPresent) {
            return Err(Refusal::Expired { checkpoint: self.checkpoint });
        }
        let version = Arc::clone(&self.version);
        next.l0.clone_from(&version.l0);
        next.l0_last_compacted = version.l0_last_compacted;
        next.runs.clone_from(&version.runs);
        next.ingest_apps.clone_from(&version.ingest_apps);
        next.tables_since = next.id;
        // What its log brings was asked for, or left, by the state that it names (rule N14).
        next.pending_ingests.clone_from(&version.pending_ingests);
        next.left.clone_from(&version.left);
        forget_ended(next, &self.log.ingests);
        let reached = next.flushed_seq.max(self.reached).max(self.cut);
        // What the state goes on from is the checkpoint's history, not what stood here (S1).
        let from = match rules.has(Rule::RestoreTakesHistory) {
            true => version.timelines.clone(),
            false => next.timelines.clone(),
        };
        let begun = NewHistory {
            id: self.timeline,
            began_at: self.began_at,
            from,
            log: &self.log,
            cut: self.cut,
            flushed: if rules.has(Rule::RestoreGoesOn) { reached } else { self.cut },
            commit_time: self.commit_time,
            fences: &self.fences,
        };
        begun.begin(next, rules)
    }

    pub(super) fn in_effect(&self, state: &Manifest) -> bool {
        has_begun(state, self.timeline)
    }
}

/// Whether a job that was planned on `planned_on` may still change tables (rule S2).
pub(super) fn check_plan(
    state: &Manifest,
    planned_on: ManifestId,
    rules: Rules,
) -> Result<(), Refusal> {
    let at = state.restored_at();
    if planned_on < at && rules.has(Rule::RestoreVoidsPlans) {
        return Err(Conflict::RestoredSince { at }.into());
    }
    Ok(())
}
