//! Cutting a log off at an object that nobody can read (RFC 0034, rule Y2): a part of an opening.
//!
//! ```text
//! list from the cut on ─► read each ─► before each free id: look ─► fence it ─► … W in a row: done
//!                                                ▲           └─Lost─► it is cut off too ─┐
//!                                                └───────────────────────────────────────┘
//! ```
//! Why one fence is not enough here. What cannot be read may be a fence: then its maker, alive,
//! begins up to W ids behind it, where a single fence in front would be none to it. With W fences
//! in a row whoever is alive meets one: a first id is at most W behind a fence that was listed, and
//! no id is sent before the one W below it was committed.
//!
//! Until the commit that ends a repair, the cut itself bars everybody: so what is fenced behind it
//! is no harm to whoever opens after a crash.

use super::{WalListing, WalSeen, beyond};
use crate::rules::{Rule, Rules};
use crate::state::{KeptFence, Manifest};
use siltstone_base::{Epoch, WalId};
use std::collections::{BTreeSet, VecDeque};

/// What was cut off.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CutOff {
    /// The first id that is not kept.
    pub at: WalId,
    /// The last id behind it that anything was at.
    pub last: WalId,
    /// Objects of this database that were read.
    pub readable: BTreeSet<WalId>,
    /// Objects that nobody can read, or of another database.
    pub unreadable: BTreeSet<WalId>,
}

/// Cuts a log off, under an epoch that has claimed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct CutLog {
    off: CutOff,
    epoch: Epoch,
    /// W of any epoch.
    window: u64,
    /// Fences in a row that end whoever is alive: as many.
    row: u64,
    met: Vec<KeptFence>,
    own: Vec<KeptFence>,
    /// Freed up to here: nothing is still under way there.
    boundary: WalId,
    /// Own fences in a row so far, behind everything that was there.
    in_a_row: u64,
    phase: CutPhase,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum CutPhase {
    /// The next of these, then fences.
    Read(VecDeque<WalId>),
    Fence(WalId),
    Done,
    Fenced(Epoch),
}

/// What [`CutLog`] wants.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum CutAction {
    /// Read this object.
    Read(WalId),
    /// Look, and then fence.
    Fence(KeptFence),
    /// The log is ended.
    Done,
    /// By a newer writer.
    Fenced(Epoch),
}

impl CutLog {
    /// Cuts at `at` the log that the claim `state` knows, under its epoch; `listing` shows what is
    /// there from `at` on.
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

    /// The fence that was asked for is there.
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

    /// Something else stands there.
    pub(super) fn on_lost(&mut self, seen: WalSeen) {
        let CutPhase::Fence(id) = self.phase else { return };
        // An earlier try of this very fence.
        if matches!(seen, WalSeen::Fence { epoch, .. } if epoch == self.epoch) {
            self.on_fenced();
        } else if self.meets(id, seen) {
            self.off.last = self.off.last.max(id);
            self.in_a_row = 0;
            self.fence_from(id.next());
        }
    }

    /// What came of it: the fences, ids ascending, of which no gap reaches into another; the last
    /// one is the own that ends the log.
    pub(super) fn ended(&self) -> (CutOff, Vec<KeptFence>) {
        let mut all: Vec<KeptFence> = self.met.iter().chain(&self.own).copied().collect();
        all.sort_unstable();
        let mut fences: Vec<KeptFence> = Vec::new();
        for fence in all {
            // Left behind in the gap of what cannot be read: no walk ever met it.
            while fences.last().is_some_and(|before| before.next_id > fence.id) {
                fences.pop();
            }
            fences.push(fence);
        }
        (self.off.clone(), fences)
    }

    /// Notes what `id` holds; `false` where a newer writer ends this.
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
            // Gone since it was listed: by nobody of ours, and nobody replays it any more.
            WalSeen::Absent | WalSeen::Vanished => {}
        }
        true
    }

    fn read_on(&mut self) {
        if matches!(&self.phase, CutPhase::Read(ids) if ids.is_empty()) {
            // Nothing below is still under way: its sender has seen W more committed.
            let from = self.off.last.next().minus(self.window);
            self.fence_from(from.max(self.off.at.next()).max(self.boundary.next()));
        }
    }

    /// Goes on at the first id from `id` on where nothing stands and that no met fence skips.
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

    /// The last one points past everything that may still be under way; one before it to the next.
    fn fence_at(&self, id: WalId) -> KeptFence {
        let last = id > self.off.last && self.in_a_row + 1 >= self.row;
        let next_id = if last { id.plus(self.window) } else { id.next() };
        KeptFence { id, epoch: self.epoch, next_id }
    }
}

#[cfg(test)]
mod tests;
