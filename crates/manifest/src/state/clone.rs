//! The parts of a manifest that belong to a clone: its ancestor entries, and its initial state.

use super::{Ancestor, L0Entry, Manifest, Settings, SortedRun};
use bytes::Bytes;
use siltstone_base::sst::SstLocation;
use siltstone_base::{CheckpointId, Seq, SstId, UnixMillis};
use std::collections::BTreeSet;

/// The initial state of a clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Composed {
    /// The settings on which every process must agree.
    pub settings: Settings,
    /// The schema of keys and values.
    pub schema: Option<Bytes>,
    /// L0, newest first.
    pub l0: Vec<L0Entry>,
    /// The largest order assigned.
    pub last_l0_order: u64,
    /// The newest table removed from L0.
    pub l0_last_compacted: Option<SstId>,
    /// Sorted runs, newest first.
    pub runs: Vec<SortedRun>,
    /// The largest sequence number in tables.
    pub flushed_seq: Seq,
    /// The latest commit time.
    pub commit_time: UnixMillis,
}

/// Whether the tables of a clone that is being created are recorded.
pub(crate) fn is_filled(state: &Manifest) -> bool {
    !state.timelines.is_empty()
}

/// The number of the first ancestor entry of a clone.
pub const FIRST_ENTRY: u32 = 1;

/// The ancestor entries of a clone that is being created: for each parent its own entry, then
/// entries of its ancestors. Earlier sets, whose pins turned out to be gone, are not included; they
/// stay in the manifest until the collector has freed the objects that they may reference.
#[must_use]
pub fn entries(state: &Manifest) -> &[Ancestor] {
    let all = state.ancestors.as_slice();
    // The numbers of one set are consecutive, and one number is skipped before the next set. Only
    // this gap separates the sets, because one database may be both a parent and an ancestor of
    // another parent.
    let mut pairs = all.iter().zip(all.iter().skip(1));
    let gap = pairs.rposition(|(one, next)| !follows(one, next));
    all.get(gap.map_or(0, |at| at + 1)..).unwrap_or_default()
}

fn follows(one: &Ancestor, next: &Ancestor) -> bool {
    next.number == one.number.saturating_add(1)
}

/// The number of the first entry of the next set.
#[must_use]
pub fn next_set(state: &Manifest) -> u32 {
    state.last_ancestor.saturating_add(2)
}

/// Whether `entries` form a new set after those of `state`.
pub(crate) fn is_next_set(state: &Manifest, entries: &[Ancestor]) -> bool {
    let mut pairs = entries.iter().zip(entries.iter().skip(1));
    entries.first().is_some_and(|first| first.number >= next_set(state))
        && pairs.all(|(one, next)| follows(one, next))
}

/// The pins of a clone that is being created, in the order of its entries.
#[must_use]
pub fn pins(state: &Manifest) -> Vec<CheckpointId> {
    entries(state).iter().map(|entry| entry.checkpoint).collect()
}

/// The ancestors that contain tables of `state`, in ascending order of number: a clone of it needs
/// them too.
#[must_use]
pub fn named_ancestors(state: &Manifest) -> Vec<&Ancestor> {
    let numbers = state.tables().filter_map(|table| match table.location {
        SstLocation::Own => None,
        SstLocation::Ancestor(number) => Some(number),
    });
    let numbers: BTreeSet<u32> = numbers.collect();
    state.ancestors.iter().filter(|entry| numbers.contains(&entry.number)).collect()
}
