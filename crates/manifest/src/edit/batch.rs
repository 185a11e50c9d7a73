//! Edits of large batches (RFC 0044, rule N15): names reserved in advance, tables installed by a
//! flush, and names released once no replay needs them.

use super::Refusal;
use super::hold::keep_tables;
use super::ingest::place;
use super::writer::check_epoch;
use crate::features::LARGE_BATCHES;
use crate::rules::{Rule, Rules};
use crate::state::{KeptFence, Manifest};
use siltstone_base::{Epoch, Seq, SstDescriptor, SstId, WalId};

/// The version of Siltstone that introduced large batches.
const SINCE: &str = "0.1.0";

/// The writer reserves names for tables that the log may come to contain (rule N15).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReserveBatch {
    /// The writer's epoch.
    pub epoch: Epoch,
    /// The names, all new.
    pub names: Vec<SstId>,
    /// Names of its failed batches: the log contains none of them.
    pub let_go: Vec<SstId>,
}

/// A large batch that a flush installs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InstallBatch {
    /// Number of layers of the flush that are older than the batch.
    pub after: usize,
    /// Its tables: disjoint, in key order, each with the sequence number of the batch.
    pub tables: Vec<SstDescriptor>,
}

impl ReserveBatch {
    pub(super) fn apply(&self, next: &mut Manifest) -> Result<(), Refusal> {
        check_epoch(next, self.epoch)?;
        next.features.name(LARGE_BATCHES, SINCE);
        // A process that meets the batch in the log reads it by a version that keeps its tables
        // (rule Q5); a lease on the previous version does not.
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
    /// Its sequence number.
    pub(super) fn seq(&self) -> Option<Seq> {
        self.tables.first().and_then(|table| table.seq_override)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = SstId> {
        self.tables.iter().map(|table| table.id)
    }

    /// Places its tables and removes their names from the reserved ones.
    pub(super) fn apply(&self, next: &mut Manifest, rules: Rules) -> Result<(), Refusal> {
        let Some(seq) = self.seq() else {
            return Err(Refusal::Invalid("an installed batch needs tables with a number"));
        };
        // Since a repair continued from an older manifest, unreferenced tables are not collected
        // (rule Y3).
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

/// The names to release with the commit that moves the replay point to `replay_from`: names that
/// older writers reserved, once nothing from before this writer is replayed any more. `left` are
/// the names that it found, `fence` is its own fence.
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
