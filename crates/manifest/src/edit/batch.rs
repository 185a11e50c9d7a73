//! Edits of large batches (RFC 0044, rule N15): names that are reserved ahead, tables that a flush
//! installs, and what is let go once nobody replays it.

use super::Refusal;
use super::hold::keep_tables;
use super::ingest::place;
use super::writer::check_epoch;
use crate::features::LARGE_BATCHES;
use crate::rules::{Rule, Rules};
use crate::state::{KeptFence, Manifest};
use siltstone_base::{Epoch, Seq, SstDescriptor, SstId, WalId};

/// The version of Siltstone that brought large batches.
const SINCE: &str = "0.1.0";

/// The writer reserves names that the log may come to hold (rule N15).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReserveBatch {
    /// The writer's epoch.
    pub epoch: Epoch,
    /// The names, fresh.
    pub names: Vec<SstId>,
    /// Names of its batches that failed: the log holds none of them.
    pub let_go: Vec<SstId>,
}

/// A large batch that a flush makes part of the database.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InstallBatch {
    /// How many of the flush's layers are older than it.
    pub after: usize,
    /// Its tables, disjoint, in key order, each at the batch's number.
    pub tables: Vec<SstDescriptor>,
}

impl ReserveBatch {
    pub(super) fn apply(&self, next: &mut Manifest) -> Result<(), Refusal> {
        check_epoch(next, self.epoch)?;
        next.features.name(LARGE_BATCHES, SINCE);
        // Whoever meets the batch in the log reads it by a version that keeps its tables (rule
        // Q5): a lease of the version before does not.
        next.tables_since = next.id;
        next.left.retain(|name| !self.let_go.contains(name));
        next.left.extend(&self.names);
        Ok(())
    }

    pub(super) fn in_effect(&self, state: &Manifest) -> bool {
        let has = |name: &SstId| state.left.contains(name);
        state.writer_epoch == self.epoch
            && self.names.iter().all(has)
            && !self.let_go.iter().any(has)
    }
}

impl InstallBatch {
    /// Its number.
    pub(super) fn seq(&self) -> Option<Seq> {
        self.tables.first().and_then(|table| table.seq_override)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = SstId> {
        self.tables.iter().map(|table| table.id)
    }

    /// Places its tables, whose names are used up.
    pub(super) fn apply(&self, next: &mut Manifest, rules: Rules) -> Result<(), Refusal> {
        let Some(seq) = self.seq() else {
            return Err(Refusal::Invalid("a batch that is installed has tables, with a number"));
        };
        // Since a repair that went on from an older manifest nothing is collected (rule Y3).
        let kept = self.names().all(|name| next.left.contains(&name));
        let kept = kept || next.features.keeps_tables();
        if rules.has(Rule::CheckReservation) && !kept {
            return Err(Refusal::Invalid("the name of a batch's table is not reserved"));
        }
        let used: Vec<SstId> = self.names().collect();
        next.left.retain(|name| !used.contains(name));
        place(next, &self.tables, rules);
        keep_tables(next, &used, seq, rules);
        Ok(())
    }
}

/// The names that go with the commit which moves the replay point to `replay_from`: those that
/// older writers left, once nothing is replayed any more that was there before this writer began.
/// `left` are those that it found, `fence` is its own.
#[must_use]
pub fn to_let_go(
    left: &[SstId],
    fence: &KeptFence,
    replay_from: WalId,
    rules: Rules,
) -> Vec<SstId> {
    let replayed = replay_from >= fence.next_id || !rules.has(Rule::LeftUntilReplayed);
    if replayed { left.to_vec() } else { Vec::new() }
}
