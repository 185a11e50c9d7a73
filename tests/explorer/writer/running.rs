//! A running writer: sends records through the real `WalWindow`, and performs its events.

use super::flushing::Purpose;
use super::{After, Phase, ROLE, Running, Writer, on};
use crate::actor::{Call, Create, Progress, crash, manifest_object, manifest_steps, owner};
use crate::step::{Step, What};
use crate::world::{Object, Out, Record, World, seen};
use siltstone_base::{ObjectName, PutOutcome, WalId};
use siltstone_manifest::protocol::{CommitAction, ManifestRequest, WindowEvent};

/// The object of a record that was cut with this watermark.
fn data(me: usize, (record, durable): (Record, WalId)) -> Object {
    Object::Data { owner: owner(me), record, durable }
}

impl Writer {
    pub(super) fn run(&self, world: &World, me: usize, running: &Running, out: &mut Out) {
        self.send(world, me, running, out);
        for (place, (id, cut, call)) in running.flying.iter().enumerate() {
            let create =
                Create { me, role: ROLE, name: ObjectName::Wal(*id), object: data(me, *cut) };
            create.steps(world, *call, out, |next, progress| {
                on(next, me, |writer, world| writer.on_record(world, place, progress));
            });
        }
        for (place, id) in running.asking.iter().copied().enumerate() {
            let boundary = world.store.wal_boundary();
            world.then(out, Step::of(me, ROLE, What::ListsWalBoundary(boundary)), |next| {
                on(next, me, |writer, world| match &mut writer.phase {
                    Phase::Running(running) => {
                        running.asking.remove(place);
                        let events = running.window.on_boundary(id, boundary);
                        running.take(world, events)
                    }
                    _ => After::Goes,
                });
            });
        }
        match &running.commit {
            Some((commit, call, _)) => {
                if let CommitAction::Request(request) = commit.action() {
                    manifest_steps(world, (me, ROLE), &request, *call, out, |next, answer| {
                        on(next, me, |writer, world| writer.on_commit(world, answer));
                    });
                }
            }
            None => self.begin_commit(world, me, running, out),
        }
        running.end_scan(world, me, out);
        running.look(world, me, out);
        crash(world, (me, ROLE), &running.under_way(me), out);
    }

    fn send(&self, world: &World, me: usize, running: &Running, out: &mut Out) {
        let closing = matches!(running.commit, Some((_, _, Purpose::Close)));
        if running.sent.len() == self.plan.records || closing {
            return;
        }
        let Some(id) = running.window.may_send() else { return };
        let number = running.sent.len() + 1;
        world.then(out, Step::of(me, ROLE, What::Sends(id, number)), |next| {
            on(next, me, |writer, world| {
                let Phase::Running(running) = &mut writer.phase else { return After::Goes };
                let record = world.ghost.edit().sends(running.epoch);
                running.sent.push(record);
                running.window.send();
                running.flying.push((id, (record, running.window.committed()), Call::Send));
                After::Goes
            });
        });
    }

    fn on_record(&mut self, world: &mut World, place: usize, progress: Progress) -> After {
        let Phase::Running(running) = &mut self.phase else { return After::Goes };
        let Some((id, _, call)) = running.flying.get_mut(place) else { return After::Goes };
        let outcome = match progress {
            Progress::Call(to) => {
                *call = to;
                return After::Goes;
            }
            Progress::Outcome(outcome) => outcome,
        };
        *call = Call::Send;
        let id = *id;
        let outcome = match outcome {
            PutOutcome::Committed => PutOutcome::Committed,
            PutOutcome::Lost(object) => PutOutcome::Lost(seen(&object).0),
            PutOutcome::NotApplied => PutOutcome::NotApplied,
            PutOutcome::Unknown => PutOutcome::Unknown,
        };
        let events = running.window.on_outcome(id, outcome);
        if !events.contains(&WindowEvent::Retry(id)) {
            // Settled, or settled by the boundary: nothing is in flight for this window.
            running.flying.remove(place);
        }
        running.take(world, events)
    }
}

impl Running {
    /// Number of its own records that are committed, with everything before them.
    pub(super) fn committed(&self) -> usize {
        let next = self.window.committed().next();
        usize::try_from(next.get().saturating_sub(self.fence.next_id.get())).unwrap_or(usize::MAX)
    }

    /// Performs the window's events.
    pub(super) fn take(&mut self, world: &mut World, events: Vec<WindowEvent>) -> After {
        let first = self.fence.next_id;
        let index = |id: WalId| usize::try_from(id.get() - first.get()).unwrap_or(usize::MAX);
        let mut after = After::Goes;
        for event in events {
            let problem = match event {
                WindowEvent::Acknowledged(id) => {
                    world.ghost.edit().acknowledges(self.epoch, index(id))
                }
                WindowEvent::Retry(_) => None,
                WindowEvent::CheckBoundary(id) => {
                    self.asking.push(id);
                    None
                }
                WindowEvent::Fenced { lost, .. } => {
                    after = After::Ends;
                    lost.and_then(|id| world.ghost.edit().disowns(self.epoch, index(id)))
                }
                WindowEvent::Failed(failure) => {
                    after = After::Ends;
                    world.ghost.edit().failed(failure)
                }
            };
            world.break_if(problem);
        }
        after
    }

    /// Creates that were sent and not answered.
    pub(super) fn under_way(&self, me: usize) -> Vec<(ObjectName, Object)> {
        let flying = self.flying.iter().filter(|(_, _, call)| *call == Call::Send);
        let mut sent: Vec<(ObjectName, Object)> =
            flying.map(|(id, cut, _)| (ObjectName::Wal(*id), data(me, *cut))).collect();
        if let Some((commit, Call::Send, _)) = &self.commit
            && let CommitAction::Request(ManifestRequest::Create(state)) = commit.action()
        {
            sent.push(manifest_object(me, &state));
        }
        sent
    }
}
