//! The writers: they open, adopt the job, send its INGEST, install it.

use super::room::{Ingest, Room, digest, numbered};
use super::{Actor, Ingesting, JOB};
use siltstone_base::{Epoch, PutOutcome, Seq, SstDescriptor, WalId};
use siltstone_manifest::ingest::to_adopt;
use siltstone_manifest::protocol::{
    Commit, CommitAction, OpenAction, OpenWriter, Recovered, WalSeen,
};
use siltstone_manifest::{Edit, FlushL0, IngestEdit, InstallIngest, KeptFence, Manifest};
use std::sync::Arc;

#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Writing {
    Open(Box<OpenWriter>),
    Run(Box<Running>),
    /// The request to the manifest, and its part of the queue.
    Install(Box<Running>, Commit),
}

/// A writer that has replayed.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Running {
    pub(super) known: Arc<Manifest>,
    pub(super) epoch: Epoch,
    pub(super) fences: Vec<KeptFence>,
    pub(super) next_wal: WalId,
    pub(super) last: Seq,
    /// Ingests that are durable and not installed, oldest first, with their ids.
    pub(super) queue: Vec<(WalId, Ingest)>,
    /// The ingest in flight.
    pub(super) sends: Option<Ingest>,
}

impl Ingesting {
    pub(super) fn write(&self, room: &mut Room, writing: Writing) -> Actor {
        match writing {
            Writing::Open(mut open) => match room.step_open(&mut open) {
                false => Actor::Writer(Writing::Open(open)),
                true => match open.action() {
                    OpenAction::Done(recovered) => {
                        let running = Ingesting::replay(room, &recovered);
                        Actor::Writer(Writing::Run(Box::new(running)))
                    }
                    _ => Actor::Gone,
                },
            },
            Writing::Run(running) => self.run(room, *running),
            Writing::Install(mut running, mut commit) => match commit.action() {
                CommitAction::Request(request) => {
                    commit.on_answer(room.serve(request));
                    Actor::Writer(Writing::Install(running, commit))
                }
                CommitAction::Done(state) => {
                    running.known = state;
                    running.queue.remove(0);
                    Actor::Writer(Writing::Run(running))
                }
                CommitAction::Failed(_) => {
                    if room.newest().writer_epoch == running.epoch {
                        room.breaks("N9, N12: a durable INGEST cannot be installed");
                    }
                    Actor::Gone
                }
            },
        }
    }

    pub(super) fn replay(room: &mut Room, recovered: &Recovered) -> Running {
        let known = Arc::clone(&recovered.manifest);
        let met = recovered.replay.iter().filter_map(|(id, _)| {
            let ingest = room.wal.get(id)?.1?;
            (ingest.seq > known.flushed_seq).then_some((*id, ingest))
        });
        let queue: Vec<(WalId, Ingest)> = met.collect();
        if queue.iter().any(|(_, ingest)| !room.is_staged(ingest.attempt)) {
            room.breaks("N9, N10: what a durable INGEST names was collected");
        }
        let last = queue.iter().map(|(_, ingest)| ingest.seq).max().unwrap_or(known.flushed_seq);
        Running {
            epoch: recovered.epoch,
            fences: recovered.fences(),
            next_wal: recovered.fence.next_id,
            last,
            queue,
            sends: None,
            known,
        }
    }

    /// The next action of a writer: it sends, installs, adopts, or looks.
    pub(super) fn run(&self, room: &mut Room, mut running: Running) -> Actor {
        if let Some(ingest) = running.sends {
            let data = WalSeen::Data { epoch: running.epoch, durable: running.next_wal.minus(1) };
            if room.create(running.next_wal, data, Some(ingest)) != PutOutcome::Committed {
                return Actor::Gone;
            }
            running.queue.push((running.next_wal, ingest));
            running.next_wal = running.next_wal.next();
            running.sends = None;
            return Actor::Writer(Writing::Run(Box::new(running)));
        }
        if let Some(ended) = self.take_next(room, &mut running) {
            return ended;
        }
        let queued = vec![JOB; running.queue.len()];
        let adopts = to_adopt(&running.known, &queued, self.rules);
        let adopts = adopts.filter(|one| one.job == JOB).map(|one| one.digest.clone());
        // An adopted job waits for nothing in this model, so a list that is not cleared in time is
        // taken from again immediately.
        if let Some(wanted) = adopts.filter(|_| running.queue.len() < 2) {
            let attempt = room.closed.flatten();
            match attempt.filter(|one| digest(*one) == wanted && room.is_staged(*one)) {
                Some(attempt) => {
                    running.last = running.last.plus(room.staged.len() as u64);
                    running.sends = Some(Ingest { seq: running.last, attempt });
                }
                None => {
                    let (epoch, reason) = (running.epoch, String::new());
                    let edit = Edit::Ingest(IngestEdit::Refuse { epoch, job: JOB, reason });
                    match room.commit(edit, self.rules) {
                        CommitAction::Done(state) => running.known = state,
                        _ => return Actor::Gone,
                    }
                }
            }
            return Actor::Writer(Writing::Run(Box::new(running)));
        }
        if let Some((id, ingest)) = running.queue.first().copied() {
            let mut layers = numbered(room.staged, ingest);
            if self.replaces && !self.together {
                if !self.delete_alone(room, &running, &mut layers) {
                    return Actor::Gone;
                }
                running.known = room.newest();
            }
            let install =
                InstallIngest { after: 0, job: JOB, digest: digest(ingest.attempt), layers };
            let edit = Edit::FlushL0(FlushL0 {
                ingests: vec![install],
                flushed_seq: ingest.seq,
                replay_from: running.known.replay_from.max(id.next()),
                fences: running.fences.clone(),
                ..FlushL0::nothing(running.epoch, &running.known)
            });
            let commit = Commit::new(edit, Arc::clone(&running.known), self.rules);
            return Actor::Writer(Writing::Install(Box::new(running), commit));
        }
        let newest = room.newest();
        if newest.writer_epoch != running.epoch {
            return Actor::Gone;
        }
        running.known = newest;
        Actor::Writer(Writing::Run(Box::new(running)))
    }

    /// The delete of the replaced range, in a commit before that of the rows.
    pub(super) fn delete_alone(
        &self,
        room: &mut Room,
        running: &Running,
        layers: &mut Vec<Vec<SstDescriptor>>,
    ) -> bool {
        let first = layers.remove(0);
        let (epoch, names) = (running.epoch, first.iter().map(|table| table.id).collect());
        let reserved = room.commit(Edit::ReserveNames { epoch, names }, self.rules);
        let flushed_seq = first.first().and_then(|table| table.seq_override).unwrap_or_default();
        let nothing = FlushL0::nothing(epoch, &room.newest());
        let delete = FlushL0 { layers: vec![first], flushed_seq, ..nothing };
        matches!(reserved, CommitAction::Done(_))
            && matches!(room.commit(Edit::FlushL0(delete), self.rules), CommitAction::Done(_))
    }
}
