//! Cutting the log before an object that cannot be read (RFC 0034, rule Y2). Part of opening a
//! writer.
//!
//! ```text
//! list from the cut on ─► read each ─► before each free id: look ─► fence it ─► … W in a row: done
//!                                                ▲           └─Lost─► it is cut off too ─┐
//!                                                └───────────────────────────────────────┘
//! ```
//! Why one fence is not enough here: the unreadable object may be a fence. Then its writer may
//! still be alive and begins up to W ids after it, where a single fence before it does not stop
//! that writer. With W fences in a row every live writer meets one: its first id is at most W after
//! a fence that was listed, and no id is sent before the id that is W smaller was committed.
//!
//! Until the commit that ends a repair, the unreadable object stops every opener, so the fences
//! behind it do not harm an opener after a crash.

use super::{WalListing, WalSeen, beyond};
use crate::rules::{Rule, Rules};
use crate::state::{KeptFence, Manifest};
use siltstone_base::{Epoch, WalId};
use std::collections::{BTreeSet, VecDeque};

/// The part of the log that was cut off.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CutOff {
    /// The first id that is not kept.
    pub at: WalId,
    /// The last id with an object.
    pub last: WalId,
    /// Objects of this database that could be read.
    pub readable: BTreeSet<WalId>,
    /// Objects that cannot be read, or that belong to another database.
    pub unreadable: BTreeSet<WalId>,
}

/// Cuts the log under an epoch that has been claimed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct CutLog {
    off: CutOff,
    epoch: Epoch,
    /// The largest W of any epoch.
    window: u64,
    /// Number of consecutive fences that stop every live writer.
    row: u64,
    met: Vec<KeptFence>,
    own: Vec<KeptFence>,
    /// Objects up to here were freed: no write to them is in flight.
    boundary: WalId,
    /// Number of consecutive own fences so far, after all existing objects.
    in_a_row: u64,
    phase: CutPhase,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum CutPhase {
    /// Reads the first of these, then fences.
    Read(VecDeque<WalId>),
    Fence(WalId),
    Done,
    Fenced(Epoch),
}

/// The next step of [`CutLog`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum CutAction {
    /// Read this object.
    Read(WalId),
    /// Look for a newer manifest, then create this fence.
    Fence(KeptFence),
    /// The log is fenced off.
    Done,
    /// A newer writer with this epoch has taken over.
    Fenced(Epoch),
}

impl CutLog {
    /// Cuts the log at `at` under the epoch that `state` records; `listing` contains the objects
    /// from `at` on.
    pub(super) fn new(
        at: WalId,
        state: &Manifest,
        window: u64,
        listing: &WalListing,
        rules: Rules,
    ) -> CutLog {
        let ids: VecDeque<WalId> = listing.later.iter().copied().filter(|id| *id >= at).collect();
        let last = ids.back().copied().unwrap_or_default().max(state.wal_id_last_seen).max(at);
        let off = CutOff { at, last, ..CutOff::default() };
        let kept = state.kept_fences.iter().copied();
        let mut cut = CutLog {
            off,
            epoch: state.writer_epoch,
            window,
            row: if rules.has(Rule::FencesInARow) { window } else { 1 },
            met: kept.filter(|fence| fence.id >= at).collect(),
            own: Vec::new(),
            boundary: listing.boundary,
            in_a_row: 0,
            phase: CutPhase::Read(ids),
        };
        cut.read_on();
        cut
    }

    pub(super) fn action(&self) -> CutAction {
        match &self.phase {
            CutPhase::Read(ids) => CutAction::Read(ids.front().copied().unwrap_or_default()),
            CutPhase::Fence(id) => CutAction::Fence(self.fence_at(*id)),
            CutPhase::Done => CutAction::Done,
            CutPhase::Fenced(by) => CutAction::Fenced(*by),
        }
    }

    pub(super) fn on_read(&mut self, seen: WalSeen) {
        let CutPhase::Read(ids) = &mut self.phase else { return };
        let Some(id) = ids.pop_front() else { return };
        if self.meets(id, seen) {
            self.read_on();
        }
    }

    /// The requested fence exists.
    pub(super) fn on_fenced(&mut self) {
        let CutPhase::Fence(id) = self.phase else { return };
        self.own.push(self.fence_at(id));
        if id > self.off.last {
            self.in_a_row += 1;
        }
        if self.in_a_row >= self.row {
            self.phase = CutPhase::Done;
        } else {
            self.fence_from(id.next());
        }
    }

    /// Another object is in its place.
    pub(super) fn on_lost(&mut self, seen: WalSeen) {
        let CutPhase::Fence(id) = self.phase else { return };
        // It is this fence, created by an earlier try.
        if matches!(seen, WalSeen::Fence { epoch, .. } if epoch == self.epoch) {
            self.on_fenced();
        } else if self.meets(id, seen) {
            self.off.last = self.off.last.max(id);
            self.in_a_row = 0;
            self.fence_from(id.next());
        }
    }

    /// The result: the fences, in ascending order of id and with disjoint gaps; the last one is the
    /// own fence that ends the log.
    pub(super) fn ended(&self) -> (CutOff, Vec<KeptFence>) {
        let mut all: Vec<KeptFence> = self.met.iter().chain(&self.own).copied().collect();
        all.sort_unstable();
        let mut fences: Vec<KeptFence> = Vec::new();
        for fence in all {
            // A fence in the gap of an object that cannot be read: no walk reaches it.
            while fences.last().is_some_and(|before| before.next_id > fence.id) {
                fences.pop();
            }
            fences.push(fence);
        }
        (self.off.clone(), fences)
    }

    /// Records the object at `id`; `false` if a newer writer ends this cut.
    fn meets(&mut self, id: WalId, seen: WalSeen) -> bool {
        match seen {
            WalSeen::Data { epoch, .. } | WalSeen::Fence { epoch, .. } if epoch > self.epoch => {
                self.phase = CutPhase::Fenced(epoch);
                return false;
            }
            WalSeen::Data { .. } => drop(self.off.readable.insert(id)),
            WalSeen::Fence { epoch, next_id } => {
                self.off.readable.insert(id);
                let fence = KeptFence { id, epoch, next_id };
                if !self.met.contains(&fence) {
                    self.met.push(fence);
                }
            }
            WalSeen::Foreign => drop(self.off.unreadable.insert(id)),
            // It was deleted since it was listed, not by this database's processes, and no replay
            // needs it.
            WalSeen::Absent | WalSeen::Vanished => {}
        }
        true
    }

    fn read_on(&mut self) {
        if matches!(&self.phase, CutPhase::Read(ids) if ids.is_empty()) {
            // Ids W or more below the next one are not in flight: the writer of the last object
            // sent it only after all of them were committed.
            let from = self.off.last.next().minus(self.window);
            self.fence_from(from.max(self.off.at.next()).max(self.boundary.next()));
        }
    }

    /// Continues at the first id, from `id` on, that is free and is not skipped by a fence that was
    /// read.
    fn fence_from(&mut self, id: WalId) {
        let mut at = id;
        loop {
            let taken = self.off.readable.contains(&at) || self.off.unreadable.contains(&at);
            let skips = self.met.iter().filter(|fence| fence.skips(at)).map(beyond).max();
            at = match skips {
                Some(next) => next,
                None if taken => at.next(),
                None => break,
            };
            self.in_a_row = 0;
        }
        self.phase = CutPhase::Fence(at);
    }

    /// The last fence points past every id that may be in flight; the others point to the next id.
    fn fence_at(&self, id: WalId) -> KeptFence {
        let last = id > self.off.last && self.in_a_row + 1 >= self.row;
        let next_id = if last { id.plus(self.window) } else { id.next() };
        KeptFence { id, epoch: self.epoch, next_id }
    }
}

#[cfg(test)]
mod tests;
