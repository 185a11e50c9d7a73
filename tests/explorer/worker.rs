//! A worker, without epoch, plans or commits. It takes an unclaimed range, or one whose worker it
//! judges dead, at any moment: a wrong judgement must cost nothing but work.

use crate::actor::{Actor, Call, crash};
use crate::jobs::{
    Claimable, claimed, claims, name_of, next_table, record_object, record_steps, worker_of,
};
use crate::step::{Step, What};
use crate::world::{Object, Out, World};
use siltstone_base::{ObjectName, SstDescriptor};
use siltstone_manifest::compaction::record::{RecordAnswer, RecordRequest};
use siltstone_manifest::compaction::{Append, AppendAction, Change, ChangeRefusal, Compactions};
use std::sync::Arc;

const ROLE: &str = "worker";

/// A worker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Worker {
    /// Ranges that it may still claim.
    claims: u8,
    /// Number of names that it has used.
    names: u8,
    phase: Phase,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Waiting,
    /// Looks for the newest record; or changes it.
    Append(Append, Call, Doing),
    /// Chooses one of these ranges.
    Choose(Arc<Compactions>),
    Upload(Arc<Compactions>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Doing {
    Looks,
    Claims,
    /// Records a table, which is the range's last one or not.
    Records(bool),
}

impl Worker {
    /// A worker that takes this many ranges.
    pub(crate) fn actor(claims: u8) -> Actor {
        Actor::Worker(Worker { claims, names: 0, phase: Phase::Waiting })
    }

    pub(crate) fn steps(&self, world: &World, me: usize, out: &mut Out) {
        let mut sent = Vec::new();
        match &self.phase {
            Phase::Waiting => {
                let look = Append::look(world.ghost.tip.database, world.rules);
                if !world.ghost.jobs.jobs.is_empty() {
                    world.then(out, Step::of(me, ROLE, What::Starts), |next| {
                        on(next, me, |worker, _| worker.begin(look, Doing::Looks));
                    });
                }
            }
            Phase::Append(append, call, _) => {
                let AppendAction::Request(request) = append.action() else { return };
                if let (RecordRequest::Create(record), Call::Send) = (&request, call) {
                    sent.push(record_object(me, record));
                }
                record_steps(world, (me, ROLE), &request, *call, out, |next, answer| {
                    on(next, me, |worker, world| worker.on_answer(world, answer));
                });
            }
            Phase::Choose(record) => self.choose(world, me, record, out),
            Phase::Upload(record) => self.upload(world, me, record, out),
        }
        crash(world, (me, ROLE), &sent, out);
    }

    fn begin(&mut self, append: Append, doing: Doing) -> Option<()> {
        self.phase = Phase::Append(append, Call::Send, doing);
        Some(())
    }

    /// Every unfinished range may be unclaimed, or its worker stalled.
    fn choose(&self, world: &World, me: usize, record: &Arc<Compactions>, out: &mut Out) {
        let tip = world.ghost.tip.clone();
        let mut found = false;
        let running = record.jobs.iter().filter(|job| {
            let finished = tip.finished_jobs.iter().any(|done| done.job == job.id);
            !job.cancelled && !finished && job.merged(&tip).is_ok()
        });
        for job in running {
            for (at, range) in job.ranges.iter().enumerate().filter(|(_, range)| !range.done) {
                found = true;
                self.claim(world, me, (record, job.id, at, range.claim), out);
            }
        }
        if !found {
            world.then(
                out,
                Step::of(me, ROLE, What::Begins("to rest: there is no work")),
                |next| {
                    on(next, me, |_, _| None);
                },
            );
        }
    }

    fn claim(&self, world: &World, me: usize, wanted: Claimable<'_>, out: &mut Out) {
        let append = claims(world, me, self.names, wanted);
        world.then(out, Step::of(me, ROLE, What::ClaimsRange(wanted.2)), |next| {
            on(next, me, |worker, _| {
                worker.claims -= 1;
                worker.names += 1;
                worker.begin(append, Doing::Claims)
            });
        });
    }

    fn upload(&self, world: &World, me: usize, record: &Arc<Compactions>, out: &mut Out) {
        let Some((job, range)) = claimed(record, worker_of(me)) else { return };
        let Some(made) = next_table(&world.ghost, job, range) else { return };
        let (id, at) = (job.id, range);
        let there = job.input_ids().all(|table| world.store.has_table(table));
        let table: SstDescriptor = made.table;
        let step = Step::of(me, ROLE, What::Uploads(table.id));
        world.then(out, step, |next| {
            if !there {
                // Inputs are gone: the job has ended.
                on(next, me, |_, _| None);
                return;
            }
            next.land(ObjectName::Compacted(table.id), Object::Table(made.rows));
            on(next, me, |one, world| {
                let names = if made.last { vec![] } else { vec![name_of(me, one.names)] };
                one.names += u8::from(!made.last);
                let change = Change::Progress {
                    job: id,
                    range: at,
                    worker: worker_of(me),
                    outputs: vec![table],
                    names,
                    done: made.last,
                };
                let append = Append::new(change, record.clone(), world.rules);
                one.begin(append, Doing::Records(made.last))
            });
        });
    }

    fn on_answer(&mut self, world: &mut World, answer: Result<RecordAnswer, Call>) -> Option<()> {
        let Phase::Append(append, call, doing) = &mut self.phase else { return None };
        match answer {
            Err(to) => *call = to,
            Ok(answer) => {
                *call = Call::Send;
                append.on_answer(answer);
            }
        }
        match append.action() {
            AppendAction::Request(_) => Some(()),
            AppendAction::Done(record) => {
                let believed = world.ghost.believed_jobs(&record);
                world.break_if(believed);
                self.phase = match doing {
                    Doing::Looks => Phase::Choose(record),
                    Doing::Records(true) => return self.rests(),
                    Doing::Claims | Doing::Records(false) => Phase::Upload(record),
                };
                Some(())
            }
            AppendAction::Failed(refusal) => {
                world.break_if(wrong(refusal));
                self.rests()
            }
        }
    }

    /// Looks for other work, or ends.
    fn rests(&mut self) -> Option<()> {
        self.phase = Phase::Waiting;
        (self.claims > 0).then_some(())
    }
}

/// A refusal that the protocol excludes: two tables over the same keys, a name twice.
pub(crate) fn wrong(refusal: ChangeRefusal) -> Option<String> {
    let broken = matches!(refusal, ChangeRefusal::Broken(_));
    broken.then(|| format!("R1: a change of the record is refused as wrong: {refusal:?}"))
}

/// Changes the worker `me` together with the world; `None` ends it.
fn on(world: &mut World, me: usize, change: impl FnOnce(&mut Worker, &mut World) -> Option<()>) {
    let Some(Actor::Worker(mut worker)) = world.actors.get(me).map(|actor| (**actor).clone())
    else {
        return;
    };
    let goes_on = change(&mut worker, world);
    if let Some(actor) = world.actor(me) {
        *actor = if goes_on.is_some() { Actor::Worker(worker) } else { Actor::Gone };
    }
}
