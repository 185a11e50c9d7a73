//! A compactor: claims its epoch, takes over what an older one left, or merges L0 into one run.
//!
//! The real edits and the real `Commit` machine; the job records are the model's own, written as
//! rule R2 has it: a record is immutable, stands under its epoch's name, and is deleted only after
//! the commit that ended its job.

use crate::actor::{
    Actor, Call, Create, Progress, crash, manifest_object, manifest_steps, owner, without,
};
use crate::step::{Step, What};
use crate::world::{Faults, Object, Out, Pending, Record, World, describe};
use crate::writer::bug;
use siltstone_base::{AttemptId, Epoch, JobId, ObjectName, PutOutcome, SstId};
use siltstone_manifest::edit::{Edit, FinishCompaction};
use siltstone_manifest::protocol::{Commit, CommitAction, ManifestAnswer, ManifestRequest};
use siltstone_manifest::{Manifest, Rule};
use std::sync::Arc;

const ROLE: &str = "compactor";

/// A compactor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Compactor {
    phase: Phase,
}

/// One job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Job {
    id: JobId,
    inputs: Vec<SstId>,
    output: SstId,
    /// Whether the output was there when the job was taken over.
    uploaded: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Waiting,
    /// Only where a rule is dropped: tidying up before the claim.
    Tidy(Vec<ObjectName>),
    Claim(Commit, Call),
    /// Claimed: to read what older epochs left.
    ReadJobs(Epoch, Arc<Manifest>),
    Record(Epoch, Arc<Manifest>, Job, Vec<ObjectName>, Call),
    Upload(Epoch, Arc<Manifest>, Job, Vec<ObjectName>),
    Finish(Commit, Call, Vec<ObjectName>),
    DeleteRecords(Vec<ObjectName>),
}

fn record_name(epoch: Epoch) -> ObjectName {
    ObjectName::Compactions(epoch.get())
}

impl Compactor {
    pub(crate) fn actor() -> Actor {
        Actor::Compactor(Compactor { phase: Phase::Waiting })
    }

    pub(crate) fn steps(&self, world: &World, me: usize, out: &mut Out) {
        let mut sent = Vec::new();
        match &self.phase {
            Phase::Waiting => self.start(world, me, out),
            Phase::Claim(commit, call) | Phase::Finish(commit, call, _) => {
                let CommitAction::Request(request) = commit.action() else { return };
                if let (ManifestRequest::Create(state), Call::Send) = (&request, call) {
                    sent.push(manifest_object(me, state));
                }
                manifest_steps(world, (me, ROLE), &request, *call, out, |next, answer| {
                    on(next, me, |compactor, world| compactor.on_commit(world, answer));
                });
            }
            Phase::ReadJobs(epoch, state) => {
                let next_phase = take_over_or_plan(world, me, *epoch, state);
                world.then(out, Step::of(me, ROLE, What::ReadsJobs), |next| {
                    on(next, me, |compactor, _| {
                        compactor.phase = next_phase?;
                        Some(())
                    });
                });
            }
            Phase::Record(epoch, _, job, _, call) => {
                let object = Object::Job {
                    owner: owner(me),
                    job: job.id,
                    outputs: vec![job.output],
                    inputs: job.inputs.clone(),
                };
                let name = record_name(*epoch);
                if *call == Call::Send {
                    sent.push((name, object.clone()));
                }
                let create = Create { me, role: ROLE, name, object };
                create.steps(world, *call, out, |next, progress| {
                    on(next, me, |compactor, _| compactor.on_recorded(progress));
                });
            }
            Phase::Upload(epoch, state, job, records) => {
                upload(world, me, (*epoch, state, job, records), out);
            }
            Phase::Tidy(records) | Phase::DeleteRecords(records) => {
                self.delete_record(world, me, records, out);
            }
        }
        crash(world, (me, ROLE), &sent, out);
    }

    fn start(&self, world: &World, me: usize, out: &mut Out) {
        let newest = world.ghost.tip.clone();
        // Nothing to do: one that only claims shows nothing.
        let orphans = orphans(world, &newest);
        if newest.l0.is_empty() && orphans.is_empty() {
            return;
        }
        let phase = if world.rules.has(Rule::ClaimBeforeJobs) || orphans.is_empty() {
            claim(world, me)
        } else {
            Phase::Tidy(orphans)
        };
        world.then(out, Step::of(me, ROLE, What::Starts), |next| {
            on(next, me, |compactor, _| {
                compactor.phase = phase;
                Some(())
            });
        });
    }

    fn delete_record(&self, world: &World, me: usize, records: &[ObjectName], out: &mut Out) {
        let Some(name) = records.first().copied() else { return };
        let tidying = matches!(self.phase, Phase::Tidy(_));
        let rest = records.get(1..).unwrap_or_default().to_vec();
        let after = move |world: &mut World| {
            let phase = match (rest.is_empty(), tidying) {
                (true, true) => Some(claim(world, me)),
                (true, false) => None,
                (false, true) => Some(Phase::Tidy(rest.clone())),
                (false, false) => Some(Phase::DeleteRecords(rest.clone())),
            };
            on(world, me, |compactor, _| {
                compactor.phase = phase?;
                Some(())
            });
        };
        world.then(out, Step::of(me, ROLE, What::Deletes(name, true)), |next| {
            next.delete(name);
            after(next);
        });
        let left = world.faults;
        if left.late > 0 {
            world.then(out, Step::of(me, ROLE, What::DeleteOnItsWay(name)), |next| {
                next.faults = Faults { late: left.late - 1, ..left };
                next.post(Pending::Delete(name));
                after(next);
            });
        }
    }

    fn on_recorded(&mut self, progress: Progress) -> Option<()> {
        let Phase::Record(epoch, state, job, records, call) = &mut self.phase else { return None };
        match progress {
            Progress::Call(to) => *call = to,
            Progress::Outcome(outcome) => {
                *call = Call::Send;
                match without(outcome) {
                    PutOutcome::Committed => {
                        records.push(record_name(*epoch));
                        let records = std::mem::take(records);
                        self.phase = Phase::Upload(*epoch, state.clone(), job.clone(), records);
                    }
                    // Nobody else writes under this epoch's name.
                    PutOutcome::Lost(()) => return None,
                    PutOutcome::NotApplied | PutOutcome::Unknown => {}
                }
            }
        }
        Some(())
    }

    fn on_commit(&mut self, world: &mut World, answer: Result<ManifestAnswer, Call>) -> Option<()> {
        let (Phase::Claim(commit, call) | Phase::Finish(commit, call, _)) = &mut self.phase else {
            return None;
        };
        match answer {
            Err(to) => *call = to,
            Ok(answer) => {
                *call = Call::Send;
                commit.on_answer(answer);
            }
        }
        match (commit.action(), &mut self.phase) {
            (CommitAction::Request(_), _) => {}
            (CommitAction::Done(state), phase) => {
                let believed = world.ghost.believed(&state);
                world.break_if(believed);
                *phase = match phase {
                    Phase::Finish(_, _, records) => Phase::DeleteRecords(std::mem::take(records)),
                    _ => Phase::ReadJobs(state.compactor_epoch, state),
                };
            }
            (CommitAction::Failed(refusal), _) => {
                world.break_if(bug(refusal));
                return None;
            }
        }
        Some(())
    }
}

fn claim(world: &World, me: usize) -> Phase {
    let newest = world.ghost.tip.clone();
    let edit = Edit::ClaimCompactor {
        writer: None,
        expected: newest.compactor_epoch,
        claim: AttemptId(me as u128 + 1),
    };
    Phase::Claim(Commit::new(edit, newest, world.rules), Call::Send)
}

/// Records of jobs that `state` does not know as finished.
fn orphans(world: &World, state: &Manifest) -> Vec<ObjectName> {
    let records = world.store.0.iter().filter_map(|(name, object)| match object {
        Object::Job { job, .. } => Some((*name, *job)),
        _ => None,
    });
    let finished = |job: JobId| state.finished_jobs.iter().any(|done| done.job == job);
    records.filter(|(_, job)| !finished(*job)).map(|(name, _)| name).collect()
}

/// What a compactor does after its claim; `None`: nothing.
fn take_over_or_plan(
    world: &World,
    me: usize,
    epoch: Epoch,
    state: &Arc<Manifest>,
) -> Option<Phase> {
    let left = orphans(world, state);
    let taken = left.first().and_then(|name| match world.store.0.get(name) {
        Some(Object::Job { job, outputs, inputs, .. }) => {
            let output = *outputs.first()?;
            let uploaded = world.store.0.contains_key(&ObjectName::Compacted(output));
            Some(Job { id: *job, inputs: inputs.clone(), output, uploaded })
        }
        _ => None,
    });
    let planned = || {
        let inputs: Vec<SstId> = state.tables().map(|table| table.id).collect();
        let plan = !state.l0.is_empty() && !inputs.is_empty();
        plan.then(|| Job {
            id: JobId(me as u128 + 1),
            inputs,
            output: SstId((me as u128 + 1) << 8),
            uploaded: false,
        })
    };
    let job = taken.or_else(planned)?;
    Some(Phase::Record(epoch, state.clone(), job, left, Call::Send))
}

fn upload(
    world: &World,
    me: usize,
    (epoch, state, job, records): (Epoch, &Arc<Manifest>, &Job, &Vec<ObjectName>),
    out: &mut Out,
) {
    let rows: Vec<Record> = {
        let mut inputs = (**state).clone();
        let wanted = |id: &SstId| job.inputs.contains(id);
        for entry in &mut inputs.l0 {
            entry.tables.retain(|table| wanted(&table.id));
        }
        for run in &mut inputs.runs {
            run.tables.retain(|table| wanted(&table.id));
        }
        world.ghost.rows(&inputs)
    };
    let finish = Edit::FinishCompaction(FinishCompaction {
        epoch,
        job: job.id,
        remove: job.inputs.clone(),
        add: vec![describe(job.output, &rows)],
        destination: 0,
        retire: Vec::new(),
    });
    let commit = Commit::new(finish, state.clone(), world.rules);
    world.then(out, Step::of(me, ROLE, What::Uploads(job.output)), |next| {
        if !job.uploaded {
            next.land(ObjectName::Compacted(job.output), Object::Table(rows));
        }
        on(next, me, |compactor, _| {
            compactor.phase = Phase::Finish(commit, Call::Send, records.clone());
            Some(())
        });
    });
}

/// Lets the compactor `me` change together with the world; `None` ends it.
fn on(world: &mut World, me: usize, change: impl FnOnce(&mut Compactor, &mut World) -> Option<()>) {
    let Some(Actor::Compactor(mut compactor)) = world.actors.get(me).map(|actor| (**actor).clone())
    else {
        return;
    };
    let goes_on = change(&mut compactor, world);
    if let Some(actor) = world.actor(me) {
        *actor = if goes_on.is_some() { Actor::Compactor(compactor) } else { Actor::Gone };
    }
}
