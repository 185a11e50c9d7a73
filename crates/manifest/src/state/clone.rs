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

/// The number of the first entry that a clone ever has.
pub const FIRST_ENTRY: u32 = 1;

/// The entries that a clone is being made with, of each parent its own and then those of the
/// ancestors that it names: all but those of pins that were found gone before, which stand until
/// the collector has freed what may be left of them.
#[must_use]
pub fn entries(state: &Manifest) -> &[Ancestor] {
    let all = state.ancestors.as_slice();
    // The numbers of a set have no gap, and one is left before the next set: nothing else tells
    // them apart, since one database may be a parent, and an ancestor of another one.
    let mut pairs = all.iter().zip(all.iter().skip(1));
    let gap = pairs.rposition(|(one, next)| !follows(one, next));
    all.get(gap.map_or(0, |at| at + 1)..).unwrap_or_default()
}

fn follows(one: &Ancestor, next: &Ancestor) -> bool {
    next.number == one.number.saturating_add(1)
}

/// The number of the first entry of another set.
#[must_use]
pub fn next_set(state: &Manifest) -> u32 {
    state.last_ancestor.saturating_add(2)
}

/// Whether `entries` are a set of their own behind those that `state` has.
pub(crate) fn is_next_set(state: &Manifest, entries: &[Ancestor]) -> bool {
    let mut pairs = entries.iter().zip(entries.iter().skip(1));
    entries.first().is_some_and(|first| first.number >= next_set(state))
        && pairs.all(|(one, next)| follows(one, next))
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
