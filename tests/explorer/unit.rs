//! A task of a cluster, without epoch or claim. It reads the record of jobs, merges an unfinished
//! range into the folder of the job's units, and reports to the driver. Other tasks may process the
//! same range at any moment: a retry, or a speculative copy.

use crate::actor::{Actor, Call, crash};
use crate::jobs::{name_of, record_steps, table_named};
use crate::step::{Step, What};
use crate::world::{Object, Out, World};
use siltstone_base::{JobId, ObjectName, SstDescriptor};
use siltstone_manifest::compaction::record::RecordAnswer;
use siltstone_manifest::compaction::{Append, AppendAction, Compactions, FinishedUnit, Job};
use std::sync::Arc;

const ROLE: &str = "unit";

/// A task that is run this many times.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Unit {
    runs: u8,
    phase: Phase,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Waiting,
    /// Looks for the newest record.
    Look(Append),
    /// Chooses one of its ranges to merge.
    Choose(Arc<Compactions>),
    /// Its output is stored; the message is still to be sent.
    Tell(JobId, FinishedUnit),
}

impl Unit {
    /// A task that is run this many times.
    pub(crate) fn actor(runs: u8) -> Actor {
        Actor::Unit(Unit { runs, phase: Phase::Waiting })
    }

    pub(crate) fn steps(&self, world: &World, me: usize, out: &mut Out) {
        match &self.phase {
            Phase::Waiting => {
                let look = Append::look(world.ghost.tip.database, world.rules);
                if !world.ghost.jobs.jobs.is_empty() {
                    world.then(out, Step::of(me, ROLE, What::Starts), |next| {
                        on(next, me, |unit, _| unit.to(Phase::Look(look)));
                    });
                }
            }
            Phase::Look(append) => {
                let AppendAction::Request(request) = append.action() else { return };
                record_steps(world, (me, ROLE), &request, Call::Send, out, |next, answer| {
                    on(next, me, |unit, _| unit.on_answer(answer));
                });
            }
            Phase::Choose(record) => self.choose(world, me, record, out),
            Phase::Tell(job, finished) => {
                let (job, finished) = (*job, finished.clone());
                world.then(out, Step::of(me, ROLE, What::Begins("to tell its driver")), |next| {
                    next.ghost.edit().tells(job, finished);
                    on(next, me, |unit, _| unit.rests());
                });
            }
        }
        crash(world, (me, ROLE), &[], out);
    }

    fn to(&mut self, phase: Phase) -> Option<()> {
        self.phase = phase;
        Some(())
    }

    /// Is run again, or ends.
    fn rests(&mut self) -> Option<()> {
        self.phase = Phase::Waiting;
        (self.runs > 0).then_some(())
    }

    fn on_answer(&mut self, answer: Result<RecordAnswer, Call>) -> Option<()> {
        let (Phase::Look(append), Ok(answer)) = (&mut self.phase, answer) else { return None };
        append.on_answer(answer);
        match append.action() {
            AppendAction::Request(_) => Some(()),
            AppendAction::Done(record) => self.to(Phase::Choose(record)),
            AppendAction::Failed(_) => None,
        }
    }

    fn choose(&self, world: &World, me: usize, record: &Arc<Compactions>, out: &mut Out) {
        let mut found = false;
        for job in record.jobs.iter().filter(|job| !job.cancelled) {
            let ranges = job.ranges.iter().enumerate().filter(|(_, range)| !range.done);
            for (at, _) in ranges {
                found |= self.merge(world, me, (job, at), out).is_some();
            }
        }
        if !found {
            world.then(out, Step::of(me, ROLE, What::Begins("to rest: it is late")), |next| {
                on(next, me, |_, _| None);
            });
        }
    }

    fn merge(
        &self,
        world: &World,
        me: usize,
        (job, range): (&Job, usize),
        out: &mut Out,
    ) -> Option<()> {
        let folder = JobId::of_units(job.id);
        let made = table_named(&world.ghost, job, range, name_of(me, self.runs))?;
        let there = job.input_ids().all(|table| world.store.has_table(table));
        let table = SstDescriptor { job: Some(folder), ..made.table };
        let (id, name) = (job.id, ObjectName::IngestSst(folder, table.id));
        let after = job.ranges.get(range)?.last_output();
        let step = Step::of(me, ROLE, What::Uploads(table.id));
        world.then(out, step, |next| {
            if !there {
                // Inputs are gone: the job has ended.
                on(next, me, |_, _| None);
                return;
            }
            next.land(name, Object::Table(made.rows));
            on(next, me, |unit, _| {
                unit.runs -= 1;
                unit.to(Phase::Tell(id, FinishedUnit { range, after, tables: vec![table] }))
            });
        });
        Some(())
    }
}

/// Changes the unit `me` together with the world; `None` ends it.
fn on(world: &mut World, me: usize, change: impl FnOnce(&mut Unit, &mut World) -> Option<()>) {
    let Some(Actor::Unit(mut unit)) = world.actors.get(me).map(|actor| (**actor).clone()) else {
        return;
    };
    let goes_on = change(&mut unit, world);
    if let Some(actor) = world.actor(me) {
        *actor = if goes_on.is_some() { Actor::Unit(unit) } else { Actor::Gone };
    }
}
