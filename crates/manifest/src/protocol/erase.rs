//! Deletes the objects of a destroyed database in an order that any process can resume (rules D3,
//! D4).
//!
//! ```text
//! list all ─► look: still the last manifest V ─► boundaries of the log and of records
//!   ─► delete all but manifests, kept fences and boundaries ─► boundary V-1 ─► delete manifests
//!   below V ─► boundary V, which says so ─► delete V, and boundaries below those that stay
//! ```
//! Nothing is pinned, so no edit can be committed after V: it is the last manifest, and every
//! process that deletes deletes the same objects. Up to boundary V the location shows "destroyed".
//! Objects listed before V was confirmed as the newest manifest belong to the old database: the
//! next one begins only behind boundary V. An object that is deleted late is at or below a boundary
//! that stays, or has a name that is never reused.

use super::look::{Look, LookAction};
use super::{DELETE_BATCH, ManifestAnswer, ManifestRequest};
use crate::edit::is_let_go;
use crate::rules::{Rule, Rules};
use crate::state::Manifest;
use siltstone_base::id::NUMBERS_A_MILLI;
use siltstone_base::{ManifestId, ObjectName, PutOutcome, WalId};
use std::collections::VecDeque;
use std::sync::Arc;

/// Deletes the objects of a destroyed database.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Erase {
    /// The last manifest.
    last: Arc<Manifest>,
    rules: Rules,
    phase: ErasePhase,
    report: EraseReport,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ErasePhase {
    List,
    Look(Look, Vec<ObjectName>),
    /// The remaining steps, in order.
    Steps(VecDeque<EraseStep>),
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum EraseStep {
    Boundary {
        name: ObjectName,
        last: bool,
    },
    /// Names are taken from the end.
    Delete(Vec<ObjectName>),
}

/// The result of a removal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EraseReport {
    /// Objects deleted.
    pub deleted: u64,
    /// Failed deletes; the next removal tries them again.
    pub failed: u64,
    /// Whether only boundaries and fences of the database are left.
    pub finished: bool,
}

/// The next step of [`Erase`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EraseAction {
    /// List every object under the root, including staged ingests and scratch files.
    ListObjects,
    /// Perform this request.
    Request(ManifestRequest),
    /// Create this boundary object if the name is free; an existing object is as good.
    CreateBoundary {
        /// Its name.
        name: ObjectName,
        /// Whether it records that the database is destroyed.
        last: bool,
    },
    /// Delete these objects, in any order, or any number of the first ones.
    Delete(Vec<ObjectName>),
    /// The removal has ended.
    Done(EraseReport),
}

impl Erase {
    /// Removes the database with the newest proven manifest `last`. Does nothing if the database is
    /// not destroyed, or if its last manifest pins anything.
    #[must_use]
    pub fn new(last: Arc<Manifest>, rules: Rules) -> Erase {
        let ended = last.destroyed_at.is_some() && is_let_go(&last);
        let phase = if ended { ErasePhase::List } else { ErasePhase::Done };
        Erase { last, rules, phase, report: EraseReport::default() }
    }

    /// The next step.
    #[must_use]
    pub fn action(&self) -> EraseAction {
        match &self.phase {
            ErasePhase::List => EraseAction::ListObjects,
            ErasePhase::Look(look, _) => match look.action() {
                LookAction::Request(request) => EraseAction::Request(request),
                LookAction::Done(_) => EraseAction::Done(self.report),
            },
            ErasePhase::Steps(steps) => match steps.front() {
                Some(EraseStep::Boundary { name, last }) => {
                    EraseAction::CreateBoundary { name: *name, last: *last }
                }
                Some(EraseStep::Delete(names)) => {
                    EraseAction::Delete(names.iter().rev().take(DELETE_BATCH).copied().collect())
                }
                None => EraseAction::Done(self.report),
            },
            ErasePhase::Done => EraseAction::Done(self.report),
        }
    }

    /// The answer to [`EraseAction::ListObjects`].
    pub fn on_objects(&mut self, listed: Vec<ObjectName>) {
        if self.phase != ErasePhase::List {
            return;
        }
        if self.rules.has(Rule::LookAfterListing) {
            let known = Some(Arc::clone(&self.last));
            self.phase = ErasePhase::Look(Look::new(known, self.rules), listed);
        } else {
            self.begin(&listed);
        }
    }

    /// The answer to [`EraseAction::Request`].
    pub fn on_answer(&mut self, answer: ManifestAnswer) {
        let ErasePhase::Look(look, listed) = &mut self.phase else { return };
        look.on_answer(answer);
        let LookAction::Done(newest) = look.action() else { return };
        let listed = std::mem::take(listed);
        let same = |newest: &Arc<Manifest>| {
            (newest.database, newest.id) == (self.last.database, self.last.id)
        };
        if newest.as_ref().is_some_and(same) {
            self.begin(&listed);
        } else {
            // Another process has finished; there may be a new database.
            self.report.finished = true;
            self.phase = ErasePhase::Done;
        }
    }

    /// The answer to [`EraseAction::CreateBoundary`]. The removal continues only when the boundary
    /// exists.
    pub fn on_boundary(&mut self, outcome: PutOutcome<()>) {
        let ErasePhase::Steps(steps) = &mut self.phase else { return };
        let there = matches!(outcome, PutOutcome::Committed | PutOutcome::Lost(()));
        if there && matches!(steps.front(), Some(EraseStep::Boundary { .. })) {
            steps.pop_front();
            self.go_on();
        }
    }

    /// The answer to [`EraseAction::Delete`], for as many of its names: whether each is deleted.
    pub fn on_deleted(&mut self, gone: &[bool]) {
        let ErasePhase::Steps(steps) = &mut self.phase else { return };
        let Some(EraseStep::Delete(names)) = steps.front_mut() else { return };
        for gone in gone {
            if names.pop().is_none() {
                break;
            }
            if *gone {
                self.report.deleted += 1;
            } else {
                self.report.failed += 1;
            }
        }
        self.go_on();
    }

    /// Skips steps that are done. An object that could not be deleted must not end up behind the
    /// next boundary, where no process would look for it.
    fn go_on(&mut self) {
        let ErasePhase::Steps(steps) = &mut self.phase else { return };
        while matches!(steps.front(), Some(EraseStep::Delete(names)) if names.is_empty()) {
            steps.pop_front();
        }
        let stuck = self.report.failed > 0;
        let deletes = matches!(steps.front(), Some(EraseStep::Delete(_)));
        if steps.is_empty() || (stuck && !deletes) {
            self.report.finished = !stuck;
            self.phase = ErasePhase::Done;
        }
    }

    fn begin(&mut self, listed: &[ObjectName]) {
        let numbers = NumbersLeft::of(listed);
        let (last, log) = (self.last.id, self.last.replay_from.minus(1));
        let (log, records) = (log.max(numbers.wal), numbers.records.max(last_record(listed)));
        let stays = NumbersLeft { manifests: last, wal: log, records };
        let mut steps = VecDeque::new();
        let boundary = |name, last| EraseStep::Boundary { name, last };
        if !log.is_none() {
            steps.push_back(boundary(ObjectName::WalBoundary(log), false));
        }
        if records > 0 {
            steps.push_back(boundary(ObjectName::CompactionsBoundary(records), false));
        }
        let all = listed.iter().copied();
        steps.push_back(delete(all.clone().filter(|name| self.goes_first(*name, log))));
        let before = last.minus(1);
        let marked = !self.rules.has(Rule::LastBoundary);
        if !before.is_none() {
            steps.push_back(boundary(ObjectName::ManifestBoundary(before), marked));
        }
        let older = |name: &ObjectName| matches!(name, ObjectName::Manifest(id) if *id < last);
        steps.push_back(delete(all.clone().filter(older)));
        if self.rules.has(Rule::LastBoundary) {
            steps.push_back(boundary(ObjectName::ManifestBoundary(last), true));
        }
        let passed = all.filter(|name| stays.passed(*name));
        let between = Some(ObjectName::ManifestBoundary(before)).filter(|_| !marked);
        let between = between.filter(|_| {
            !before.is_none() && !listed.contains(&ObjectName::ManifestBoundary(before))
        });
        steps.push_back(delete(passed.chain(between).chain([ObjectName::Manifest(last)])));
        self.phase = ErasePhase::Steps(steps);
        self.go_on();
    }

    /// Everything except manifests and boundaries. Fences stay, so that a writer that slept before
    /// them meets them. Objects with numbers above the boundaries are not deleted: the number may
    /// later belong to the next database, and a late delete could hit it.
    fn goes_first(&self, name: ObjectName, log: WalId) -> bool {
        match name {
            ObjectName::Manifest(_)
            | ObjectName::ManifestBoundary(_)
            | ObjectName::WalBoundary(_)
            | ObjectName::CompactionsBoundary(_) => false,
            ObjectName::Wal(id) => {
                let kept = self.last.kept_fences.iter().any(|fence| fence.id == id);
                id <= log && !kept
            }
            _ => true,
        }
    }
}

/// Names are taken from the end, so that they are deleted in ascending order.
fn delete(names: impl Iterator<Item = ObjectName>) -> EraseStep {
    let mut names: Vec<ObjectName> = names.collect();
    names.sort_unstable_by(|left, right| right.cmp(left));
    EraseStep::Delete(names)
}

fn last_record(listed: &[ObjectName]) -> u64 {
    let records = listed.iter().filter_map(|name| match name {
        ObjectName::Compactions(number) => Some(*number),
        _ => None,
    });
    records.max().unwrap_or_default()
}

/// The highest boundaries at a location: the numbers that were used there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NumbersLeft {
    /// Boundary of the manifests.
    pub manifests: ManifestId,
    /// Boundary of the log.
    pub wal: WalId,
    /// Boundary of the job records.
    pub records: u64,
}

impl NumbersLeft {
    /// The boundaries in a listing.
    #[must_use]
    pub fn of(listed: &[ObjectName]) -> NumbersLeft {
        let mut left = NumbersLeft::default();
        for name in listed {
            match name {
                ObjectName::ManifestBoundary(id) => left.manifests = left.manifests.max(*id),
                ObjectName::WalBoundary(id) => left.wal = left.wal.max(*id),
                ObjectName::CompactionsBoundary(id) => left.records = left.records.max(*id),
                _ => {}
            }
        }
        left
    }

    /// Whether it is a boundary below one of these.
    fn passed(&self, name: ObjectName) -> bool {
        match name {
            ObjectName::ManifestBoundary(id) => id < self.manifests,
            ObjectName::WalBoundary(id) => id < self.wal,
            ObjectName::CompactionsBoundary(id) => id < self.records,
            _ => false,
        }
    }

    /// The number from which the log and the job records of a new database count here (rule D4):
    /// `now`, the number for the time of the store, if it is above all old numbers; otherwise the
    /// first number of the millisecond after next. Late writes of the old database have numbers
    /// directly after its last ones.
    #[must_use]
    pub fn first_number(&self, now: u64, rules: Rules) -> u64 {
        if !rules.has(Rule::NumbersGoOn) {
            return now;
        }
        let reached = self.manifests.get().max(self.wal.get()).max(self.records);
        let beyond = (reached / NUMBERS_A_MILLI).saturating_add(2).saturating_mul(NUMBERS_A_MILLI);
        now.max(beyond)
    }
}

#[cfg(test)]
mod tests;
