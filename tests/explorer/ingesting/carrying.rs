//! A checkpoint of a log that contains the job becomes the current state again (rule N14): the
//! checkpoint is made at any moment of the job's life, is restored, and may be deleted meanwhile.

use super::room::{Ingest, Room, digest, numbered};
use super::{Actor, Ingesting, JOB};
use siltstone_base::{AttemptId, CheckpointId, TimelineId, UnixMillis, WalId};
use siltstone_manifest::ingest::{JobStatus, standing};
use siltstone_manifest::protocol::{
    Commit, CommitAction, OpenAction, OpenWriter, Recovered, WalSeen, WriterOptions,
};
use siltstone_manifest::{
    Edit, InstallIngest, LogTables, Manifest, NewCheckpoint, Refusal, Restore,
};
use std::sync::Arc;

const KEPT: CheckpointId = CheckpointId(7);
const LINE: TimelineId = TimelineId(500);

/// The process that restores.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Restoring {
    /// Until there is a checkpoint.
    Look,
    /// The pinned state.
    Open(Box<OpenWriter>, Arc<Manifest>, Vec<Ingest>),
    Commit(Commit, Vec<Ingest>),
}

impl Room {
    /// The last id of a continuous log from the replay point of `state` on, and the ingests in it.
    pub(super) fn walked(&self, from: WalId) -> (WalId, Vec<Ingest>) {
        let (mut next, mut met) = (from, Vec::new());
        loop {
            match self.wal.get(&next) {
                Some((WalSeen::Fence { next_id, .. }, _)) => next = *next_id,
                Some((_, ingest)) => {
                    met.extend(*ingest);
                    next = next.next();
                }
                None => return (next.minus(1), met),
            }
        }
    }

    /// Whether the manifest has the job among its tables, unchanged or merged.
    fn shows(state: &Manifest) -> bool {
        state.tables().next().is_some()
    }
}

impl Ingesting {
    /// A checkpoint of the walked log, on the newest state.
    pub(super) fn keep(&self, room: &mut Room, walked: WalId) -> Actor {
        let new =
            NewCheckpoint { id: KEPT, wal_id_last_seen: Some(walked), ..NewCheckpoint::default() };
        room.commit(Edit::AddCheckpoint(new), self.rules);
        Actor::Gone
    }

    /// Deletes the checkpoint, once it exists.
    pub(super) fn let_go(&self, room: &mut Room) -> Actor {
        if room.newest().checkpoint(KEPT).is_none() {
            return Actor::Remover;
        }
        room.commit(Edit::RemoveCheckpoint { id: KEPT }, self.rules);
        Actor::Gone
    }

    pub(super) fn go_back(&self, room: &mut Room, restoring: Restoring) -> Actor {
        match restoring {
            Restoring::Look => {
                let newest = room.newest();
                let Some(kept) = newest.checkpoint(KEPT) else {
                    return Actor::Restorer(Restoring::Look);
                };
                let version = room.manifests.get(&kept.manifest_id).cloned().expect("it is kept");
                let (_, mut met) = room.walked(kept.replay_from);
                met.retain(|ingest| ingest.seq > version.flushed_seq);
                let last = |ingest: &Ingest| room.wal_of(ingest) <= kept.wal_id_last_seen;
                met.retain(last);
                if met.iter().any(|ingest| !room.is_staged(ingest.attempt)) {
                    room.breaks("N14: what the log of a present checkpoint names was collected");
                }
                let options = WriterOptions {
                    claim: AttemptId(300),
                    max_parallel_writes: 1,
                    take_over: true,
                    ..WriterOptions::default()
                };
                let open = Box::new(OpenWriter::new(options, newest, self.rules));
                Actor::Restorer(Restoring::Open(open, version, met))
            }
            Restoring::Open(mut open, version, met) => match room.step_open(&mut open) {
                false => Actor::Restorer(Restoring::Open(open, version, met)),
                true => match open.action() {
                    OpenAction::Done(recovered) => {
                        let edit = Ingesting::restore(room, &recovered, version, &met);
                        let edit = Edit::Restore(edit);
                        let commit = Commit::new(edit, recovered.manifest, self.rules);
                        Actor::Restorer(Restoring::Commit(commit, met))
                    }
                    _ => Actor::Gone,
                },
            },
            Restoring::Commit(mut commit, met) => match commit.action() {
                CommitAction::Request(request) => {
                    commit.on_answer(room.serve(request));
                    Ingesting::judge(room, &commit, &met);
                    Actor::Restorer(Restoring::Commit(commit, met))
                }
                CommitAction::Done(_) | CommitAction::Failed(_) => Actor::Gone,
            },
        }
    }

    fn restore(
        room: &Room,
        recovered: &Recovered,
        version: Arc<Manifest>,
        met: &[Ingest],
    ) -> Restore {
        let install = |ingest: &Ingest| InstallIngest {
            after: 0,
            job: JOB,
            digest: digest(ingest.attempt),
            layers: numbered(room.staged, *ingest),
        };
        let last = |ingests: &mut dyn Iterator<Item = Ingest>| {
            ingests.map(|ingest| ingest.seq).max().unwrap_or_default()
        };
        let replayed = &mut recovered.replay.iter().filter_map(|(id, _)| room.wal.get(id)?.1);
        Restore {
            epoch: recovered.epoch,
            checkpoint: KEPT,
            cut: version.flushed_seq.max(last(&mut met.iter().copied())),
            version,
            log: LogTables { ingests: met.iter().map(install).collect(), ..LogTables::default() },
            reached: last(replayed),
            commit_time: UnixMillis(0),
            fences: recovered.fences(),
            timeline: LINE,
            began_at: UnixMillis(0),
        }
    }

    /// Checks the result.
    fn judge(room: &mut Room, commit: &Commit, met: &[Ingest]) {
        match commit.action() {
            CommitAction::Done(state) if state.restored_at() == state.id => {
                if !met.is_empty() && !Room::shows(&state) {
                    room.breaks("N14: what the log of a checkpoint brought is missing");
                }
                let adopted = matches!(standing(&state, JOB), JobStatus::Adopted(_));
                if !met.is_empty() && !adopted {
                    room.breaks("N14: a job that came back does not count as taken in");
                }
            }
            CommitAction::Failed(Refusal::Invalid(_) | Refusal::Broken(_)) => {
                room.breaks("N14: what the log of a checkpoint brings is refused");
            }
            _ => {}
        }
    }
}

impl Room {
    /// The WAL id of an ingest.
    fn wal_of(&self, ingest: &Ingest) -> WalId {
        let found = self.wal.iter().find(|(_, (_, there))| *there == Some(*ingest));
        found.map_or(WalId::NONE, |(id, _)| *id)
    }
}
