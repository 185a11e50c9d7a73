//! Edits of a clone: its creation, its pins, and removing its ancestors (rules K1, K4, K5, RFC
//! 0029).

use super::{Conflict, Refusal};
use crate::state::clone::{Composed, is_filled, is_next_set, pins};
use crate::state::{Ancestor, CheckpointOwner, Manifest, Timeline};
use siltstone_base::sst::SstLocation;
use siltstone_base::{CheckpointId, DatabaseId, Seq, TimelineId, UnixMillis};

/// A change of a clone by its creator, or later by its collector.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CloneEdit {
    /// Records its tables (step 3), which were read under the given pins.
    Fill {
        /// The pins, in the order of the entries; refused if they are not the recorded ones.
        pins: Vec<CheckpointId>,
        /// The identity of the new history, random; the edit is recognised by it.
        timeline: TimelineId,
        /// When it begins.
        began_at: UnixMillis,
        /// Its initial state.
        tables: Box<Composed>,
    },
    /// Replaces the recorded pins, because some of them were found gone; the tables must be
    /// recorded again. The old entries stay, because some of their pins may be permanent by now:
    /// the collector removes them like other unreferenced entries (rule K5).
    Repin {
        /// The pins that were checked; refused if they are not the recorded ones.
        recorded: Vec<CheckpointId>,
        /// The new entries, those of each parent before those of its ancestors, numbered
        /// consecutively. One number is skipped between the largest number assigned so far and the
        /// first of them.
        entries: Vec<Ancestor>,
    },
    /// Completes its creation (step 5).
    Finish {
        /// The pins that were made permanent; refused if they are not the recorded ones.
        pins: Vec<CheckpointId>,
    },
    /// Removes an ancestor whose pin is removed (rule K5).
    Detach {
        /// The number of the entry.
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
            CloneEdit::Repin { entries, .. } if !is_next_set(next, entries) => {
                Err(Refusal::Invalid("the entries do not form a new set"))
            }
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

    /// Whether a database that is being created accepts it.
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
    next.timelines = vec![Timeline {
        id: timeline,
        cut: tables.flushed_seq,
        begins: tables.flushed_seq.next(),
        manifest_id: next.id,
        began_at,
    }];
}

/// Resets the clone to its first state, except for the entries.
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

/// A change of the pin of a clone, by the clone, in the database that it pins (rule K4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PinEdit {
    /// The pin never expires from now on, and no longer retains the log (step 4).
    Hold {
        /// The pin.
        pin: CheckpointId,
        /// The clone.
        clone: DatabaseId,
    },
    /// Removes the pin (rule K5).
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
        let owner = CheckpointOwner::Clone(clone);
        match (self, found) {
            (_, Some(found)) if found.owner != owner => {
                Err(Refusal::Invalid("the checkpoint is not a pin of this clone"))
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
