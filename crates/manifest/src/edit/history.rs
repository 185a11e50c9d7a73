//! A history that begins: what a restore and a cut of the log have in common. What was undone is in
//! no log that anybody replays, and is held for nobody; numbers go on behind what was given.

use super::hold::end_undone;
use super::writer::{check_names, end_writer, go_past, keep_fences, push_layers};
use super::{LogTables, Refusal};
use crate::rules::{Rule, Rules};
use crate::state::{KeptFence, Manifest, Timeline};
use siltstone_base::{Seq, TimelineId, UnixMillis};

/// Where a history begins, and with what.
pub(super) struct NewHistory<'a> {
    /// Its identity, fresh.
    pub(super) id: TimelineId,
    /// When it begins.
    pub(super) began_at: UnixMillis,
    /// What the log brings. Names of tables of rows are reserved; what jobs and batches brought is
    /// kept by their requests, and by their names (rules N9, N15).
    pub(super) log: &'a LogTables,
    /// The histories that it goes on from, the oldest first.
    pub(super) from: Vec<Timeline>,
    /// The last sequence number that is kept.
    pub(super) cut: Seq,
    /// What counts as flushed from now on.
    pub(super) flushed: Seq,
    /// The latest commit time of the log that was walked.
    pub(super) commit_time: UnixMillis,
    /// Every fence that must stay.
    pub(super) fences: &'a [KeptFence],
}

impl NewHistory<'_> {
    /// Ends whoever was the writer, and the history before.
    pub(super) fn begin(&self, next: &mut Manifest, rules: Rules) -> Result<(), Refusal> {
        if self.log.last_brought() > Some(self.cut) {
            return Err(Refusal::Invalid("what the log brings lies above the last number kept"));
        }
        check_names(next, self.log.names(), rules)?;
        match rules.has(Rule::TakeIngestsOver) {
            true => self.log.add_to(next, rules)?,
            false => push_layers(next, &self.log.layers),
        }
        next.flushed_seq = self.flushed;
        next.floor = next.flushed_seq;
        next.commit_time = next.commit_time.max(self.commit_time);
        keep_fences(next, self.fences);
        if rules.has(Rule::RestoreCutsLog) {
            go_past(next, self.fences);
        }
        end_writer(next);
        let mut timelines = self.from.clone();
        timelines.push(Timeline {
            id: self.id,
            cut: self.cut,
            begins: next.flushed_seq.next(),
            manifest_id: next.id,
            began_at: self.began_at,
        });
        let left = std::mem::replace(&mut next.timelines, timelines);
        end_undone(next, &left, self.cut, rules);
        Ok(())
    }
}

/// Whether the history of this identity began, by this state.
pub(super) fn has_begun(state: &Manifest, id: TimelineId) -> bool {
    state.timelines.iter().any(|one| one.id == id)
}
