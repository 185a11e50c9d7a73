//! What a clone begins with, and what its maker does next (rules K1 to K3, RFC 0029): pure.
//!
//! A maker pins, looks at what stands in the clone's place, and asks [`next_step`]; every step is a
//! commit, so whoever makes the same request goes on where the last one stopped.

use crate::edit::{Conflict, Refusal};
use crate::state::{Ancestor, L0Entry, Manifest, Settings, SortedRun};
use bytes::Bytes;
use siltstone_base::sst::SstLocation;
use siltstone_base::{
    CheckpointId, DatabaseId, RequestId, Seq, SstDescriptor, SstId, TimelineId, UnixMillis,
};
use std::collections::BTreeSet;

/// What its maker does next about a clone that was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloneStep {
    /// Its tables are to be recorded.
    Fill,
    /// Its pins are to be made endless; then it is finished.
    Hold,
    /// It is made.
    Done,
}

/// What is next about the database that `state` describes, for whoever made `request`.
///
/// # Errors
/// Conflict, with what stands there: a database that is none of this request's, or is in use.
pub fn next_step(state: &Manifest, request: RequestId) -> Result<CloneStep, Refusal> {
    let database = state.database;
    if state.destroyed_at.is_some() {
        return Err(Conflict::Destroyed.into());
    }
    if state.request != Some(request) {
        let being_made = !state.initialized;
        return Err(Conflict::PlaceTaken { database, being_made }.into());
    }
    if !state.initialized {
        return Ok(if is_filled(state) { CloneStep::Hold } else { CloneStep::Fill });
    }
    if state.writer_epoch.is_none() {
        return Ok(CloneStep::Done);
    }
    Err(Conflict::CloneInUse { database }.into())
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

/// The first manifest of a clone: it is being made, and names its pins.
#[must_use]
pub fn begun(
    database: DatabaseId,
    request: RequestId,
    source: &Manifest,
    entries: Vec<Ancestor>,
) -> Manifest {
    Manifest {
        initialized: false,
        request: Some(request),
        features: source.features.clone(),
        schema: source.schema.clone(),
        last_ancestor: entries.iter().map(|entry| entry.number).max().unwrap_or_default(),
        ancestors: entries,
        ..Manifest::new_database(database, source.settings.clone())
    }
}

/// A state that a clone takes over.
#[derive(Clone, Copy, Debug)]
pub struct CloneSource<'a> {
    /// What the pin pins.
    pub state: &'a Manifest,
    /// Number of the clone's entry of that database. Those of its [`named_ancestors`] follow it, in
    /// their order.
    pub number: u32,
    /// Tables of the clone that hold the rows of the log that the pin covers: each a layer, the
    /// oldest first.
    pub log: &'a [SstDescriptor],
    /// The largest number of `state` and of those rows.
    pub last_seq: Seq,
    /// The latest commit time of both.
    pub commit_time: UnixMillis,
    /// The keys that are taken over, from the first to before the second; `None`: without a bound.
    pub keys: (Option<&'a [u8]>, Option<&'a [u8]>),
}

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

/// Composes what a clone of `sources` begins with. Of one whole source everything stays but for
/// where it lies: numbers, layers and their places.
///
/// # Errors
/// Invalid for no source, several, or a part of one.
pub fn compose(sources: &[CloneSource<'_>]) -> Result<Composed, Refusal> {
    let [source] = sources else {
        return Err(Refusal::Invalid("a clone of several parents is not built yet"));
    };
    if source.keys != (None, None) {
        return Err(Refusal::Invalid("a clone of a range of keys is not built yet"));
    }
    let state = source.state;
    let mut l0 = Vec::with_capacity(state.l0.len() + source.log.len());
    let mut order = state.last_l0_order;
    for table in source.log {
        order += 1;
        l0.push(L0Entry { order, tables: vec![table.clone()] });
    }
    l0.reverse();
    for layer in &state.l0 {
        l0.push(L0Entry { order: layer.order, tables: moved(source, &layer.tables)? });
    }
    let runs = state.runs.iter().map(|run| {
        let tables = moved(source, &run.tables)?;
        Ok(SortedRun { id: run.id, tables })
    });
    Ok(Composed {
        settings: state.settings.clone(),
        schema: state.schema.clone(),
        l0,
        last_l0_order: order,
        l0_last_compacted: state.l0_last_compacted,
        runs: runs.collect::<Result<_, Refusal>>()?,
        flushed_seq: source.last_seq.max(state.flushed_seq),
        commit_time: source.commit_time.max(state.commit_time),
    })
}

/// The same tables as the clone names them.
fn moved(
    source: &CloneSource<'_>,
    tables: &[SstDescriptor],
) -> Result<Vec<SstDescriptor>, Refusal> {
    let named = named_ancestors(source.state);
    let place = |location| match location {
        SstLocation::Own => Some(source.number),
        SstLocation::Ancestor(number) => {
            let at = named.iter().position(|entry| entry.number == number)?;
            source.number.checked_add(u32::try_from(at).ok()?)?.checked_add(1)
        }
    };
    let moved = tables.iter().map(|table| {
        let number = place(table.location);
        let number = number.ok_or(Refusal::Broken("a table lies in an ancestor unknown"))?;
        Ok(SstDescriptor { location: SstLocation::Ancestor(number), ..table.clone() })
    });
    moved.collect()
}

/// A change of a clone by its maker, or, once it is made, by its collector.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CloneEdit {
    /// Records its tables (step 3), which were read under the pins named.
    Fill {
        /// The pins, in the order of its entries: those that it records, or this is refused.
        pins: Vec<CheckpointId>,
        /// The history that begins, random: by it the edit is recognised.
        timeline: TimelineId,
        /// When it begins.
        began_at: UnixMillis,
        /// What it begins with.
        tables: Box<Composed>,
    },
    /// Other pins in place of those recorded, some of which were found gone: it is to be filled
    /// again. The old entries stay, since some of their pins may be endless by now: the collector
    /// frees them like any that nothing names (rule K5).
    Repin {
        /// The pins that were looked at: those that it records, or this is refused.
        recorded: Vec<CheckpointId>,
        /// The new entries, the parent's first, with numbers that were never given.
        entries: Vec<Ancestor>,
    },
    /// Ends its making (step 5).
    Finish {
        /// The pins that were made endless: those that it records, or this is refused.
        pins: Vec<CheckpointId>,
    },
    /// Forgets an ancestor whose pin is removed (rule K5).
    Detach {
        /// The entry's number.
        number: u32,
    },
}

impl CloneEdit {
    pub(crate) fn apply(&self, next: &mut Manifest) -> Result<(), Refusal> {
        match self {
            CloneEdit::Detach { number } => return detach(next, *number),
            _ if next.initialized => {
                return Err(Conflict::CloneInUse { database: next.database }.into());
            }
            _ => {}
        }
        let recorded = pins(next);
        let moved = Err(Conflict::PinsMoved.into());
        match self {
            CloneEdit::Fill { pins, .. } if *pins != recorded || is_filled(next) => moved,
            CloneEdit::Fill { timeline, began_at, tables, .. } => {
                fill(next, *timeline, *began_at, tables);
                Ok(())
            }
            CloneEdit::Repin { recorded: seen, .. } if *seen != recorded => moved,
            CloneEdit::Repin { entries, .. } => {
                repin(next, entries);
                Ok(())
            }
            CloneEdit::Finish { pins } if *pins != recorded || !is_filled(next) => moved,
            CloneEdit::Finish { .. } | CloneEdit::Detach { .. } => {
                next.initialized = true;
                Ok(())
            }
        }
    }

    pub(crate) fn in_effect(&self, state: &Manifest) -> bool {
        match self {
            CloneEdit::Fill { timeline, .. } => {
                state.timelines.iter().any(|one| one.id == *timeline)
            }
            CloneEdit::Repin { entries, .. } => {
                let stands = |new: &Ancestor| state.ancestors.contains(new);
                entries.first().is_some_and(stands)
            }
            CloneEdit::Finish { .. } => state.initialized,
            CloneEdit::Detach { number } => state.ancestor(*number).is_none(),
        }
    }

    /// Whether a database that is being made takes it.
    pub(crate) fn is_of_the_making(&self) -> bool {
        !matches!(self, CloneEdit::Detach { .. })
    }
}

fn fill(next: &mut Manifest, timeline: TimelineId, began_at: UnixMillis, tables: &Composed) {
    next.settings = tables.settings.clone();
    next.schema = tables.schema.clone();
    next.l0 = tables.l0.clone();
    next.last_l0_order = tables.last_l0_order;
    next.l0_last_compacted = tables.l0_last_compacted;
    next.runs = tables.runs.clone();
    next.flushed_seq = tables.flushed_seq;
    next.floor = tables.flushed_seq;
    next.commit_time = tables.commit_time;
    next.tables_since = next.id;
    next.timelines = vec![crate::state::Timeline {
        id: timeline,
        cut: tables.flushed_seq,
        begins: tables.flushed_seq.next(),
        manifest_id: next.id,
        began_at,
    }];
}

/// As it was begun, but for the entries.
fn repin(next: &mut Manifest, entries: &[Ancestor]) {
    next.ancestors.extend_from_slice(entries);
    let largest = entries.iter().map(|entry| entry.number).max().unwrap_or_default();
    next.last_ancestor = next.last_ancestor.max(largest);
    (next.l0, next.runs) = (Vec::new(), Vec::new());
    (next.last_l0_order, next.l0_last_compacted) = (0, None);
    (next.flushed_seq, next.floor) = (Seq::NONE, Seq::NONE);
    next.timelines = Vec::new();
}

fn detach(next: &mut Manifest, number: u32) -> Result<(), Refusal> {
    let mut tables = next.tables();
    if let Some(table) = tables.find(|table| table.location == SstLocation::Ancestor(number)) {
        return Err(Conflict::StillNamed { table: table.id }.into());
    }
    drop(tables);
    next.ancestors.retain(|entry| entry.number != number);
    Ok(())
}

/// A change of a clone's pin, by the clone alone (rule K4), in the database that it pins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PinEdit {
    /// It never expires from now on, and lets go of the log (step 4).
    Hold {
        /// The pin.
        pin: CheckpointId,
        /// The clone.
        clone: DatabaseId,
    },
    /// It goes (rule K5).
    Release {
        /// The pin.
        pin: CheckpointId,
        /// The clone.
        clone: DatabaseId,
    },
}

impl PinEdit {
    pub(crate) fn apply(self, next: &mut Manifest) -> Result<(), Refusal> {
        let (PinEdit::Hold { pin, clone } | PinEdit::Release { pin, clone }) = self;
        let found = next.checkpoints.iter_mut().find(|one| one.id == pin);
        let owner = crate::state::CheckpointOwner::Clone(clone);
        match (self, found) {
            (_, Some(found)) if found.owner != owner => {
                Err(Refusal::Invalid("the checkpoint is no pin of this clone"))
            }
            (PinEdit::Hold { .. }, None) => Err(Refusal::Expired { checkpoint: pin }),
            (PinEdit::Hold { .. }, Some(found)) => {
                found.expires_at = None;
                found.wal_id_last_seen = found.replay_from.minus(1);
                Ok(())
            }
            (PinEdit::Release { .. }, _) => {
                next.checkpoints.retain(|one| one.id != pin);
                Ok(())
            }
        }
    }

    pub(crate) fn in_effect(self, state: &Manifest) -> bool {
        match self {
            PinEdit::Hold { pin, .. } => {
                let held = state.checkpoint(pin);
                held.is_some_and(|one| one.expires_at.is_none() && !one.pins_any_wal())
            }
            PinEdit::Release { pin, .. } => state.checkpoint(pin).is_none(),
        }
    }
}

#[cfg(test)]
mod tests;
