//! The begin of a new history, shared by a restore and a cut of the log. No replayed log contains
//! undone data, and no consumer holds it; sequence numbers continue after the assigned ones.

use super::hold::end_undone;
use super::writer::{check_names, end_writer, go_past, keep_fences, push_layers};
use super::{LogTables, Refusal};
use crate::rules::{Rule, Rules};
use crate::state::{KeptFence, Manifest, Timeline};
use siltstone_base::{Seq, TimelineId, UnixMillis};

/// The start of a new history.
pub(super) struct NewHistory<'a> {
    /// Its identity, new.
    pub(super) id: TimelineId,
    /// When it begins.
    pub(super) began_at: UnixMillis,
    /// The tables and jobs of the log. Names of row tables are reserved; jobs and batches are
    /// protected by their requests and by their names (rules N9, N15).
    pub(super) log: &'a LogTables,
    /// The histories that it continues, oldest first.
    pub(super) from: Vec<Timeline>,
    /// The last sequence number that is kept.
    pub(super) cut: Seq,
    /// The new `flushed_seq`.
    pub(super) flushed: Seq,
    /// The latest commit time of the log that was walked.
    pub(super) commit_time: UnixMillis,
    /// All fences that must stay.
    pub(super) fences: &'a [KeptFence],
}

impl NewHistory<'_> {
    /// Ends the previous writer and the previous history.
    pub(super) fn begin(&self, next: &mut Manifest, rules: Rules) -> Result<(), Refusal> {
        if self.log.last_brought() > Some(self.cut) {
            return Err(Refusal::Invalid("the log has a number above the last one kept"));
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

/// Whether the history with this identity has begun by this state.
pub(super) fn has_begun(state: &Manifest, id: TimelineId) -> bool {
    state.timelines.iter().any(|one| one.id == id)
}
