//! The edit that makes a checkpoint the current state (RFC 0030, rule S1).
//!
//! No counter decreases: epochs, orders, the replay point and `flushed_seq` only grow. So no
//! process takes undone data for new data, and no sequence number is reused.

use super::history::{NewHistory, has_begun};
use super::ingest::{forget_ended, take_back_behind};
use super::writer::check_epoch;
use super::{Conflict, LogTables, Refusal};
use crate::rules::{Rule, Rules};
use crate::state::{KeptFence, Manifest};
use siltstone_base::{CheckpointId, Epoch, ManifestId, Seq, TimelineId, UnixMillis};
use std::sync::Arc;

/// Makes the version pinned by a checkpoint the current state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Restore {
    /// The epoch under which the previous writer was fenced.
    pub epoch: Epoch,
    /// The checkpoint; it must be present in the base state of the commit.
    pub checkpoint: CheckpointId,
    /// The manifest that it pins.
    pub version: Arc<Manifest>,
    /// The tables and jobs of its part of the log; names of row tables are reserved.
    pub log: LogTables,
    /// The last sequence number in it.
    pub cut: Seq,
    /// The largest sequence number of the log that was walked.
    pub reached: Seq,
    /// The latest commit time of that log.
    pub commit_time: UnixMillis,
    /// All fences met on the walk, and the own one.
    pub fences: Vec<KeptFence>,
    /// The identity of the history that begins here, new.
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
        // Jobs and batches in its log were requested or reserved in the state that it pins (rule
        // N14).
        next.pending_ingests.clone_from(&version.pending_ingests);
        next.left.clone_from(&version.left);
        forget_ended(next, &self.log.ingests);
        take_back_behind(next, &version, rules);
        let reached = next.flushed_seq.max(self.reached).max(self.cut);
        // The state continues the history of the checkpoint, not the one before the restore (S1).
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

/// Checks that a job planned on `planned_on` may still change tables (rule S2).
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
