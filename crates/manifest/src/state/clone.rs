//! What a manifest holds of a clone: its entries, and what it begins with.

use super::{Ancestor, L0Entry, Manifest, Settings, SortedRun};
use bytes::Bytes;
use siltstone_base::sst::SstLocation;
use siltstone_base::{CheckpointId, Seq, SstId, UnixMillis};
use std::collections::BTreeSet;

/// What a clone begins with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Composed {
    /// What every process must agree on.
    pub settings: Settings,
    /// Typed keys and values.
    pub schema: Option<Bytes>,
    /// L0, newest first.
    pub l0: Vec<L0Entry>,
    /// The largest order given.
    pub last_l0_order: u64,
    /// The newest table that left L0.
    pub l0_last_compacted: Option<SstId>,
    /// Sorted runs, newest first.
    pub runs: Vec<SortedRun>,
    /// The largest number in tables.
    pub flushed_seq: Seq,
    /// The latest commit time.
    pub commit_time: UnixMillis,
}

/// Whether the tables of a clone in the making are recorded.
pub(crate) fn is_filled(state: &Manifest) -> bool {
    !state.timelines.is_empty()
}

/// The entries that a clone is being made with, the parent's first: all but those of pins that were
/// found gone before, which stand until the collector has freed what may be left of them.
#[must_use]
pub fn entries(state: &Manifest) -> &[Ancestor] {
    let all = state.ancestors.as_slice();
    // A parent is none of its own ancestors, so each set of entries begins with it and has it once.
    let begins = all.first().map(|first| first.database);
    let last = all.iter().rposition(|entry| Some(entry.database) == begins);
    last.and_then(|last| all.get(last..)).unwrap_or_default()
}

/// The pins that a clone is being made with, in the order of its entries.
#[must_use]
pub fn pins(state: &Manifest) -> Vec<CheckpointId> {
    entries(state).iter().map(|entry| entry.checkpoint).collect()
}

/// The ancestors that tables of `state` lie in, number ascending: those that its clone needs too.
#[must_use]
pub fn named_ancestors(state: &Manifest) -> Vec<&Ancestor> {
    let numbers = state.tables().filter_map(|table| match table.location {
        SstLocation::Own => None,
        SstLocation::Ancestor(number) => Some(number),
    });
    let numbers: BTreeSet<u32> = numbers.collect();
    state.ancestors.iter().filter(|entry| numbers.contains(&entry.number)).collect()
}
