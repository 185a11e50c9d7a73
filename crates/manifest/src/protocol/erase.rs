//! What is left of a destroyed database goes, in an order that anybody can resume (rules D3, D4).
//!
//! ```text
//! list all ─► look: still the last manifest V ─► boundaries of the log and of records
//!   ─► delete all but manifests, kept fences and boundaries ─► boundary V-1 ─► delete manifests
//!   below V ─► boundary V, which says so ─► delete V, and boundaries below those that stay
//! ```
//! Nothing is pinned, so no edit fits V: it is the last, and everybody who removes removes the
//! same. Up to boundary V the place says "destroyed". What was listed before V was seen to be the
//! newest is the old database's: the next one begins only behind boundary V. Whatever is deleted
//! late lies at or below a boundary that stays, or has a name that nobody gives again.

use super::look::{Look, LookAction};
use super::{DELETE_BATCH, ManifestAnswer, ManifestRequest};
use crate::edit::is_let_go;
use crate::rules::{Rule, Rules};
use crate::state::Manifest;
use siltstone_base::id::NUMBERS_A_MILLI;
use siltstone_base::{ManifestId, ObjectName, PutOutcome, WalId};
use std::collections::VecDeque;
use std::sync::Arc;

/// Removes what a destroyed database left.
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
    /// What is to be done, in this order.
    Steps(VecDeque<EraseStep>),
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum EraseStep {
    Boundary {
        name: ObjectName,
        last: bool,
    },
    /// Taken from the end.
    Delete(Vec<ObjectName>),
}

/// How a removal ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EraseReport {
    /// Objects deleted.
    pub deleted: u64,
    /// Deletes that failed: the next removal meets them again.
    pub failed: u64,
    /// Whether nothing of the database is left but boundaries and fences.
    pub finished: bool,
}

/// What [`Erase`] wants.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EraseAction {
    /// List every object under the root, staged ingests and scratch too.
    ListObjects,
    /// Do this.
    Request(ManifestRequest),
    /// Create this boundary object if the name is free; that it is there already is as good.
    CreateBoundary {
        /// Its name.
        name: ObjectName,
        /// Whether it says that its database is gone.
        last: bool,
    },
    /// Delete these objects, in any order, or as many of the first ones as suits.
    Delete(Vec<ObjectName>),
    /// The end.
    Done(EraseReport),
}

impl Erase {
    /// Of the database whose newest proven manifest is `last`. Nothing is done to one that is not
    /// destroyed, or whose last manifest pins anything.
    #[must_use]
    pub fn new(last: Arc<Manifest>, rules: Rules) -> Erase {
        let ended = last.destroyed_at.is_some() && is_let_go(&last);
        let phase = if ended { ErasePhase::List } else { ErasePhase::Done };
        Erase { last, rules, phase, report: EraseReport::default() }
    }

    /// What to do now.
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
            // Somebody else has finished; perhaps there is a new one.
            self.report.finished = true;
            self.phase = ErasePhase::Done;
        }
    }

    /// The answer to [`EraseAction::CreateBoundary`]. Nothing goes on before it is there.
    pub fn on_boundary(&mut self, outcome: PutOutcome<()>) {
        let ErasePhase::Steps(steps) = &mut self.phase else { return };
        let there = matches!(outcome, PutOutcome::Committed | PutOutcome::Lost(()));
        if there && matches!(steps.front(), Some(EraseStep::Boundary { .. })) {
            steps.pop_front();
            self.go_on();
        }
    }

    /// The answer to [`EraseAction::Delete`], for so many of its names: whether each is gone.
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

    /// Past steps that are done. What could not be deleted must not come to lie behind the next
    /// boundary: nobody would look for it.
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

    /// All but manifests and boundaries; fences stay, so that a writer that slept before them meets
    /// them. What is numbered above the boundaries is nobody's, and a number of the next database
    /// one day: a delete of it could land then.
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

/// Taken from the end, so that they go in the order of their names.
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

/// The highest boundaries of a place: how far its numbers have come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NumbersLeft {
    /// Of manifests.
    pub manifests: ManifestId,
    /// Of the log.
    pub wal: WalId,
    /// Of records of jobs.
    pub records: u64,
}

impl NumbersLeft {
    /// As a listing shows them.
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

    /// What the log and the records of a new database here count from (rule D4): `now`, the number
    /// that the store's time gives, where that is beyond all that was here; else the first number
    /// of the millisecond after next. What the old one still sends follows closely on its numbers.
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
