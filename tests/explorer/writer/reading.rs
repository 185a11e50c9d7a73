//! The reads of a writer, and the checkpoints that keep their tables alive (rule C1): the real
//! `Pins`.

use super::{After, Phase, Plan, Purpose, ROLE, Running, Writer, on};
use crate::actor::{Actor, Call};
use crate::step::{Step, What};
use crate::world::{Out, World};
use siltstone_base::{CheckpointId, ManifestId};
use siltstone_manifest::edit::{Edit, FlushL0, NewCheckpoint};
use siltstone_manifest::protocol::{Commit, Pins};
use siltstone_manifest::{CheckpointOwner, Manifest};
use std::sync::Arc;

/// The versions of the tree that a writer holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Reading {
    pub(super) pins: Pins,
    /// The version on which a scan continues.
    scan: Option<ManifestId>,
    /// The id of the last checkpoint made.
    last: CheckpointId,
}

/// The checkpoint of process `me`'s claim; later ones count from it.
pub(super) fn first_checkpoint(me: usize) -> NewCheckpoint {
    NewCheckpoint { id: CheckpointId((me as u128 + 1) * 16), ..NewCheckpoint::default() }
}

/// The version that `checkpoint` names, which `state` contains.
pub(crate) fn version_of(
    world: &World,
    state: &Arc<Manifest>,
    checkpoint: CheckpointId,
) -> Arc<Manifest> {
    let named = state.checkpoint(checkpoint).map(|one| one.manifest_id);
    let pinned = named.and_then(|id| world.store.manifest(id));
    pinned.unwrap_or(state).clone()
}

impl Reading {
    pub(super) fn begin(world: &World, state: &Arc<Manifest>) -> Reading {
        let own = CheckpointOwner::Writer(state.writer_epoch);
        let found = state.checkpoints.iter().find(|one| one.owner == own);
        let last = found.map_or(CheckpointId(256), |one| one.id);
        let pins = Pins::new(last, version_of(world, state, last));
        Reading { pins, scan: None, last }
    }

    /// The next checkpoint.
    pub(super) fn checkpoint(&self) -> NewCheckpoint {
        NewCheckpoint { id: CheckpointId(self.last.get() + 1), ..NewCheckpoint::default() }
    }

    /// A commit with a new checkpoint, or without, is in effect in `state`.
    pub(super) fn committed(&mut self, world: &World, state: &Arc<Manifest>, scans: bool) {
        let id = self.checkpoint().id;
        let made = state.checkpoint(id).is_some();
        let replaced = self.pins.newest().map(|version| version.id);
        self.last = if made { id } else { self.last };
        self.pins.committed(state, Some((id, version_of(world, state, id))));
        if scans && self.scan.is_none() {
            self.scan = replaced;
        }
        let scan = self.scan;
        self.pins.forget_unread(|version| scan == Some(version));
    }
}

impl Running {
    /// The scan ends; a later commit releases what it kept alive.
    pub(super) fn end_scan(&self, world: &World, me: usize, out: &mut Out) {
        if self.reading.scan.is_none() || self.commit.is_some() {
            return;
        }
        world.then(out, Step::of(me, ROLE, What::EndsScan), |next| {
            on(next, me, |writer, _| {
                if let Phase::Running(running) = &mut writer.phase {
                    running.reading.scan = None;
                    running.reading.pins.forget_unread(|_| false);
                }
                After::Goes
            });
        });
    }

    /// A separate commit for its checkpoints alone: it takes up the result of a compaction.
    pub(super) fn begin_pinning(&self, plan: &Plan, world: &World, me: usize, out: &mut Out) {
        let newest = world.ghost.tip.clone();
        let mine = newest.writer_epoch == self.epoch;
        if !plan.scans || !mine || !self.reading.pins.is_behind(&newest) {
            return;
        }
        let edit = Edit::FlushL0(FlushL0 {
            checkpoint: Some(self.reading.checkpoint()),
            release: self.reading.pins.releases(true),
            ..FlushL0::nothing(self.epoch, &newest)
        });
        let commit = Commit::new(edit, newest, world.rules);
        world.then(out, Step::of(me, ROLE, What::BeginsCommit("its checkpoint")), |next| {
            on(next, me, |writer, _| {
                if let Phase::Running(running) = &mut writer.phase {
                    running.commit = Some((commit, Call::Send, Purpose::Pin));
                }
                After::Goes
            });
        });
    }
}

impl Writer {
    /// A missing table that the newest writer holds.
    pub(crate) fn lacks(&self, world: &World) -> Option<String> {
        let Phase::Running(running) = &self.phase else { return None };
        // A writer that closed, or was overtaken, may find its tables missing.
        let tip = &world.ghost.tip;
        if tip.writer_epoch != running.epoch || tip.closed_cleanly() {
            return None;
        }
        lacks(world, &running.reading.pins)
    }
}

/// A missing table of a version that a process holds.
pub(crate) fn lacks(world: &World, pins: &Pins) -> Option<String> {
    pins.versions().find_map(|version| {
        let gone = version.tables().find(|table| !world.store.has_table(table.id))?;
        let (table, version) = (crate::ghost::name(gone.id), version.id);
        Some(format!("C1, C2: table {table} is gone, and version {version} is being read"))
    })
}

/// Whether `actor` reads a missing table.
pub(crate) fn hole(world: &World, actor: &Actor) -> Option<String> {
    match actor {
        Actor::Writer(writer) => writer.lacks(world),
        Actor::Pinner(pinner) => pinner.lacks(world),
        Actor::Leaser(leaser) => leaser.lacks(world),
        _ => None,
    }
}
