//! The opening of a writer, by the real `OpenWriter`; and its end, if it closes too early.

use super::looking::Looking;
use super::reading::Reading;
use super::{After, Phase, ROLE, Running, Writer, bug, on};
use crate::actor::{Call, Create, Progress, crash, manifest_object, manifest_steps, owner};
use crate::step::{Step, What};
use crate::world::{Object, Out, Record, World, seen};
use siltstone_base::{ObjectName, PutOutcome, WalId};
use siltstone_manifest::KeptFence;
use siltstone_manifest::protocol::{
    Commit, CommitAction, EarlyAnswer, ManifestAnswer, ManifestRequest, OpenAction, OpenWriter,
    Recovered, WalListing, WalSeen, WalWindow,
};

impl Writer {
    pub(super) fn open(
        &self,
        world: &World,
        me: usize,
        machine: &OpenWriter,
        call: Call,
        out: &mut Out,
    ) {
        let mut sent = Vec::new();
        match machine.action() {
            OpenAction::Request(request) => {
                if let (ManifestRequest::Create(state), Call::Send) = (&request, call) {
                    sent.push(manifest_object(me, state));
                }
                manifest_steps(world, (me, ROLE), &request, call, out, |next, answer| {
                    on(next, me, |writer, world| writer.on_open_answer(world, answer));
                });
            }
            OpenAction::ReadWal(id) | OpenAction::ReadCutOff(id) => {
                let (what, record) = world.store.wal(id);
                world.then(out, Step::of(me, ROLE, What::ReadsWal(id, what)), |next| {
                    on(next, me, |writer, world| writer.on_walked(world, id, what, record));
                });
            }
            OpenAction::ListWal(after) => {
                let listing = world.store.wal_listing(after);
                let what = What::ListsWal(after, listing.boundary);
                world.then(out, Step::of(me, ROLE, what), |next| {
                    on(next, me, |writer, world| writer.on_listed(world, &listing));
                });
            }
            OpenAction::CreateFence(fence) => {
                let KeptFence { id, epoch, next_id } = fence;
                let object = Object::Fence { owner: owner(me), epoch, next_id };
                let name = ObjectName::Wal(id);
                if call == Call::Send {
                    sent.push((name, object.clone()));
                }
                let create = Create { me, role: ROLE, name, object };
                create.steps(world, call, out, |next, progress| {
                    on(next, me, |writer, world| writer.on_fence(world, id, progress));
                });
            }
            OpenAction::Done(_) | OpenAction::Failed(_) => {}
        }
        if self.plan.beside {
            read_beside(world, me, machine, out);
        }
        if let Some(edit) = machine.close().filter(|_| self.plan.close) {
            let known = world.ghost.tip.clone();
            let commit = Commit::new(edit, known, world.rules);
            world.then(out, Step::of(me, ROLE, What::BeginsClose), |next| {
                on(next, me, |writer, _| {
                    writer.phase = Phase::Closing { commit, call: Call::Send };
                    After::Goes
                });
            });
        }
        crash(world, (me, ROLE), &sent, out);
    }

    fn on_early(&mut self, early: EarlyAnswer, record: Option<(WalId, Record)>) -> After {
        let Phase::Opening { machine, bodies, .. } = &mut self.phase else { return After::Goes };
        keep(bodies, record);
        machine.on_early(early);
        After::Goes
    }

    fn on_open_answer(&mut self, world: &mut World, answer: Result<ManifestAnswer, Call>) -> After {
        let Phase::Opening { machine, call, .. } = &mut self.phase else { return After::Goes };
        match answer {
            Err(to) => *call = to,
            Ok(answer) => {
                *call = Call::Send;
                machine.on_answer(answer);
            }
        }
        self.opened(world)
    }

    fn on_walked(
        &mut self,
        world: &mut World,
        id: WalId,
        what: WalSeen,
        record: Option<Record>,
    ) -> After {
        let Phase::Opening { machine, bodies, .. } = &mut self.phase else { return After::Goes };
        keep(bodies, record.map(|record| (id, record)));
        machine.on_wal(what);
        self.opened(world)
    }

    fn on_listed(&mut self, world: &mut World, listing: &WalListing) -> After {
        let Phase::Opening { machine, .. } = &mut self.phase else { return After::Goes };
        machine.on_wal_listing(listing);
        self.opened(world)
    }

    fn on_fence(&mut self, world: &mut World, id: WalId, progress: Progress) -> After {
        let Phase::Opening { machine, call, bodies } = &mut self.phase else { return After::Goes };
        let outcome = match progress {
            Progress::Call(to) => {
                *call = to;
                return After::Goes;
            }
            Progress::Outcome(outcome) => outcome,
        };
        *call = Call::Send;
        machine.on_fence(match outcome {
            PutOutcome::Committed => PutOutcome::Committed,
            PutOutcome::NotApplied => PutOutcome::NotApplied,
            PutOutcome::Unknown => PutOutcome::Unknown,
            PutOutcome::Lost(object) => {
                let (what, record) = seen(&object);
                keep(bodies, record.map(|record| (id, record)));
                PutOutcome::Lost(what)
            }
        });
        self.opened(world)
    }

    /// Continues when the step function has ended.
    fn opened(&mut self, world: &mut World) -> After {
        let Phase::Opening { machine, bodies, .. } = &self.phase else { return After::Goes };
        match machine.action() {
            OpenAction::Done(recovered) => {
                let replayed: Vec<Record> = recovered
                    .replay
                    .iter()
                    .filter_map(|(id, _)| bodies.iter().find(|(met, _)| met == id))
                    .map(|(_, record)| *record)
                    .collect();
                self.begin(world, recovered, &replayed);
                After::Goes
            }
            OpenAction::Failed(failure) => {
                let problem = world.ghost.edit().failed(failure);
                world.break_if(problem);
                After::Ends
            }
            _ => After::Goes,
        }
    }

    fn begin(&mut self, world: &mut World, recovered: Recovered, replayed: &[Record]) {
        let state = &recovered.manifest;
        let believed = world.ghost.believed(state);
        world.break_if(believed);
        let base = world.ghost.merged(state, replayed);
        let broken = world.ghost.edit().recovered(recovered.epoch, base.clone());
        world.break_if(broken);
        let first = recovered.fence.next_id;
        let window = WalWindow::new(recovered.epoch, first, self.plan.width, world.rules);
        self.phase = Phase::Running(Box::new(Running {
            epoch: recovered.epoch,
            fence: recovered.fence,
            fences: recovered.fences(),
            keep: recovered.keep.clone(),
            window,
            flying: Vec::new(),
            asking: Vec::new(),
            base,
            sent: Vec::new(),
            reading: Reading::begin(world, &recovered.manifest),
            known: recovered.manifest,
            flushes: 0,
            commit: None,
            looking: Looking::begin(self.plan.looks),
        }));
    }

    pub(super) fn on_early_close(
        &mut self,
        world: &mut World,
        answer: Result<ManifestAnswer, Call>,
    ) -> After {
        let Phase::Closing { commit, call } = &mut self.phase else { return After::Goes };
        match answer {
            Err(to) => *call = to,
            Ok(answer) => {
                *call = Call::Send;
                commit.on_answer(answer);
            }
        }
        match commit.action() {
            CommitAction::Request(_) => After::Goes,
            CommitAction::Done(_) => After::Ends,
            CommitAction::Failed(refusal) => {
                world.break_if(bug(refusal));
                After::Ends
            }
        }
    }
}

/// Keeps the body that was read last at an id, in order of the ids: early reads come in any order,
/// and their answers may be dropped.
fn keep(bodies: &mut Vec<(WalId, Record)>, record: Option<(WalId, Record)>) {
    let Some((id, record)) = record else { return };
    bodies.retain(|(met, _)| *met != id);
    let at = bodies.partition_point(|(met, _)| *met < id);
    bodies.insert(at, (id, record));
}

/// Performs the actions that may be performed beside the current one, before it. An answer after
/// the current one is that of the next action.
fn read_beside(world: &World, me: usize, machine: &OpenWriter, out: &mut Out) {
    for action in machine.beside() {
        match action {
            OpenAction::ReadWal(id) => {
                let (what, record) = world.store.wal(id);
                world.then(out, Step::of(me, ROLE, What::ReadsWal(id, what)), |next| {
                    let (early, record) = (EarlyAnswer::Wal(id, what), record.map(|one| (id, one)));
                    on(next, me, |writer, _| writer.on_early(early, record));
                });
            }
            OpenAction::ListWal(after) => {
                let listing = world.store.wal_listing(after);
                let what = What::ListsWal(after, listing.boundary);
                world.then(out, Step::of(me, ROLE, what), |next| {
                    let early = EarlyAnswer::WalListed(after, listing.clone());
                    on(next, me, |writer, _| writer.on_early(early, None));
                });
            }
            OpenAction::Request(request) => {
                manifest_steps(world, (me, ROLE), &request, Call::Send, out, |next, answer| {
                    let Ok(answer) = answer else { return };
                    let early = EarlyAnswer::Manifests(request.clone(), answer);
                    on(next, me, |writer, _| writer.on_early(early, None));
                });
            }
            _ => {}
        }
    }
}
