//! The common parts of processes. A process drives the real step functions as the engine does:
//! `action()`, one request, `on_…()`.
//!
//! A read or a listing is one step: its result is fixed when it takes effect, and the time of the
//! answer cannot be distinguished from a sleep of the process. A create with a plain answer is one
//! step; otherwise the object is read back, in a separate step, as in the engine's conditional
//! create.

use crate::collector::Collector;
use crate::compactor::Compactor;
use crate::leaser::Leaser;
use crate::pinner::Pinner;
use crate::reader::Reader;
use crate::step::{How, Step, What};
use crate::unit::Unit;
use crate::worker::Worker;
use crate::world::{Faults, Object, Out, Owner, Pending, Stored, World};
use crate::writer::Writer;
use siltstone_base::{AttemptId, ObjectName, PutOutcome};
use siltstone_manifest::Manifest;
use siltstone_manifest::protocol::{ManifestAnswer, ManifestRequest};
use std::sync::Arc;

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Actor {
    Writer(Writer),
    Reader(Reader),
    Pinner(Pinner),
    Leaser(Box<Leaser>),
    Compactor(Compactor),
    Worker(Worker),
    Unit(Unit),
    Collector(Box<Collector>),
    /// Ended by itself or by a crash.
    Gone,
}

impl Actor {
    pub(crate) fn steps(&self, world: &World, me: usize, out: &mut Out) {
        match self {
            Actor::Writer(writer) => writer.steps(world, me, out),
            Actor::Reader(reader) => reader.steps(world, me, out),
            Actor::Pinner(pinner) => pinner.steps(world, me, out),
            Actor::Leaser(leaser) => leaser.steps(world, me, out),
            Actor::Compactor(compactor) => compactor.steps(world, me, out),
            Actor::Worker(worker) => worker.steps(world, me, out),
            Actor::Unit(unit) => unit.steps(world, me, out),
            Actor::Collector(collector) => collector.steps(world, me, out),
            Actor::Gone => {}
        }
    }
}

/// The state of a create.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Call {
    /// Not sent yet.
    #[default]
    Send,
    /// Sent; the answer was not a plain "created".
    ReadBack {
        /// Whether the request may still be in flight if nothing is found.
        unknown: bool,
    },
}

/// The result of one step of a create.
pub(crate) enum Progress {
    Call(Call),
    Outcome(PutOutcome<Object>),
}

/// The steps of creating `object` by a process that recognises its own bytes by `owner_of`.
pub(crate) struct Create {
    pub(crate) me: usize,
    pub(crate) role: &'static str,
    pub(crate) name: ObjectName,
    pub(crate) object: Object,
}

impl Create {
    /// Appends every possible result of the next step of the create; `then` is called with it.
    pub(crate) fn steps(
        &self,
        world: &World,
        call: Call,
        out: &mut Out,
        then: impl Fn(&mut World, Progress),
    ) {
        match call {
            Call::Send => self.send(world, out, then),
            Call::ReadBack { unknown } => self.read_back(world, unknown, out, then),
        }
    }

    fn step(&self, how: How) -> Step {
        Step::of(self.me, self.role, What::Creates(self.name, how))
    }

    fn send(&self, world: &World, out: &mut Out, then: impl Fn(&mut World, Progress)) {
        let free = !world.store.0.contains_key(&self.name);
        let left = world.faults;
        let read_back = |unknown| Progress::Call(Call::ReadBack { unknown });
        if free {
            world.then(out, self.step(How::Created), |next| {
                next.land(self.name, self.object.clone());
                then(next, Progress::Outcome(PutOutcome::Committed));
            });
        } else {
            world.then(out, self.step(How::Exists), |next| then(next, read_back(false)));
        }
        if free && left.retried > 0 {
            world.then(out, self.step(How::ExistsOfOwn), |next| {
                next.faults = Faults { retried: left.retried - 1, ..left };
                next.land(self.name, self.object.clone());
                then(next, read_back(false));
            });
        }
        if free && left.unanswered > 0 {
            world.then(out, self.step(How::Unanswered), |next| {
                next.faults = Faults { unanswered: left.unanswered - 1, ..left };
                next.land(self.name, self.object.clone());
                then(next, read_back(true));
            });
        }
        if left.late > 0 {
            world.then(out, self.step(How::OnItsWay), |next| {
                next.faults = Faults { late: left.late - 1, ..left };
                next.post(Pending::Create(self.name, self.object.clone()));
                then(next, read_back(true));
            });
        }
        if free && left.refused > 0 {
            world.then(out, self.step(How::Refused), |next| {
                next.faults = Faults { refused: left.refused - 1, ..left };
                then(next, read_back(false));
            });
        }
    }

    fn read_back(
        &self,
        world: &World,
        unknown: bool,
        out: &mut Out,
        then: impl Fn(&mut World, Progress),
    ) {
        let found = world.store.0.get(&self.name);
        let mine = found.map(|found| *found == self.object);
        let outcome = match found {
            None if unknown => PutOutcome::Unknown,
            None => PutOutcome::NotApplied,
            Some(found) if *found == self.object => PutOutcome::Committed,
            Some(found) => PutOutcome::Lost(found.clone()),
        };
        let step = Step::of(self.me, self.role, What::ReadsBack(self.name, mine));
        world.then(out, step, |next| then(next, Progress::Outcome(outcome)));
    }
}

/// The object that a process creates for a manifest.
pub(crate) fn manifest_object(me: usize, state: &Arc<Manifest>) -> (ObjectName, Object) {
    let stored = Stored { owner: owner(me), state: state.clone() };
    (ObjectName::Manifest(state.id), Object::Manifest(stored))
}

/// The steps of one request about manifests.
pub(crate) fn manifest_steps(
    world: &World,
    (me, role): (usize, &'static str),
    request: &ManifestRequest,
    call: Call,
    out: &mut Out,
    then: impl Fn(&mut World, Result<ManifestAnswer, Call>),
) {
    if let ManifestRequest::Create(state) = request {
        let (name, object) = manifest_object(me, state);
        let create = Create { me, role, name, object };
        create.steps(world, call, out, |next, progress| match progress {
            Progress::Call(call) => then(next, Err(call)),
            Progress::Outcome(outcome) => {
                then(next, Ok(ManifestAnswer::Created(without(outcome), AttemptId::NONE)));
            }
        });
        return;
    }
    let Some(answer) = world.answer(me, request) else { return };
    let what = match (request, &answer) {
        (_, ManifestAnswer::Listed(listing)) => What::Lists(*listing),
        (ManifestRequest::Read(id), ManifestAnswer::Read(read)) => What::Reads(*id, read.is_some()),
        (ManifestRequest::Read(id), ManifestAnswer::ReadAsListed(_)) => What::ReadsAsListed(*id),
        _ => return,
    };
    world.then(out, Step::of(me, role, what), |next| {
        next.note_tag(me, &answer);
        then(next, Ok(answer));
    });
}

/// The outcome without what was found.
pub(crate) fn without(outcome: PutOutcome<Object>) -> PutOutcome<()> {
    match outcome {
        PutOutcome::Committed => PutOutcome::Committed,
        PutOutcome::Lost(_) => PutOutcome::Lost(()),
        PutOutcome::NotApplied => PutOutcome::NotApplied,
        PutOutcome::Unknown => PutOutcome::Unknown,
    }
}

/// The process dies; requests without an answer may still arrive.
pub(crate) fn crash(
    world: &World,
    (me, role): (usize, &'static str),
    sent: &[(ObjectName, Object)],
    out: &mut Out,
) {
    let left = world.faults;
    if left.crashes == 0 {
        return;
    }
    world.then(out, Step::of(me, role, What::Crashes), |next| {
        next.faults = Faults { crashes: left.crashes - 1, ..left };
        for (name, object) in sent {
            next.post(Pending::Create(*name, object.clone()));
        }
        if let Some(actor) = next.actor(me) {
            *actor = Actor::Gone;
        }
    });
}

/// The owner of a process's bytes.
pub(crate) fn owner(me: usize) -> Owner {
    Owner::try_from(me).unwrap_or(Owner::MAX - 1)
}
