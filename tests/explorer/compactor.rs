//! A compactor: claims its epoch, takes over the jobs of an older one or merges everything into one
//! run, alone or as the coordinator of workers, by the real edits, the real record of jobs, and the
//! real `Commit` and `Append` step functions.
//!
//! ```text
//! claim ─► look at the record ─► (take over) ─► (start) ─┬► claim ─► upload ─► progress ─┬► finish
//!                                                        └──────── look again ◄──────────┘
//! ```

use crate::actor::{Actor, Call, crash, manifest_object, manifest_steps};
use crate::jobs::{
    Claimable, Shape, WHOLE, claim_of, claimed, claims, job, name_of, next_table, record_object,
    record_steps, worker_of,
};
use crate::step::{Step, What};
use crate::worker::wrong;
use crate::world::{Object, Out, World};
use crate::writer::bug;
use siltstone_base::{AttemptId, Epoch, JobId, ObjectName, SstDescriptor};
use siltstone_manifest::compaction::record::{RecordAnswer, RecordRequest};
use siltstone_manifest::compaction::{
    Append, AppendAction, Change, ChangeRefusal, Compactions, Job,
};
use siltstone_manifest::edit::Edit;
use siltstone_manifest::protocol::{Commit, CommitAction, ManifestAnswer, ManifestRequest};
use siltstone_manifest::{Manifest, Rule};
use std::sync::Arc;

const ROLE: &str = "compactor";

/// A compactor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Compactor {
    shape: Shape,
    /// Number of ranges of a job that it begins with; the others are for workers.
    own: u8,
    /// Number of claims of others that it may still judge stalled.
    takes: u8,
    /// Whether units do the work: it claims all ranges, and records the results of units.
    drives: bool,
    /// Number of names that it has used.
    names: u8,
    epoch: Epoch,
    phase: Phase,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Waiting,
    Commit(Commit, Call, Committing),
    Append(Append, Call, Doing),
    /// The newest record that it knows, and the resulting decision.
    Decide(Arc<Compactions>),
}

/// The purpose of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Committing {
    Claim,
    Finish,
}

/// Its action on the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Doing {
    Looks,
    /// An action that requires its epoch.
    Changes,
    /// An action that any worker may perform.
    Works,
    /// Only if a rule is dropped: changes before the claim, taking over and then forgetting.
    Tidies(bool),
}

impl Compactor {
    /// A compactor that does everything itself.
    pub(crate) fn actor() -> Actor {
        Compactor::of(WHOLE, 1, 0)
    }

    /// A compactor that leaves ranges to workers, and judges this many claims of others stalled.
    pub(crate) fn of(shape: Shape, own: u8, takes: u8) -> Actor {
        let (epoch, phase) = (Epoch::NONE, Phase::Waiting);
        let drives = false;
        Actor::Compactor(Compactor { shape, own, takes, drives, names: 0, epoch, phase })
    }

    /// The driver of units.
    pub(crate) fn driving(shape: Shape) -> Actor {
        let (epoch, phase) = (Epoch::NONE, Phase::Waiting);
        let (own, takes, drives) = (0, 0, true);
        Actor::Compactor(Compactor { shape, own, takes, drives, names: 0, epoch, phase })
    }

    pub(crate) fn steps(&self, world: &World, me: usize, out: &mut Out) {
        let mut sent = Vec::new();
        match &self.phase {
            Phase::Waiting => self.start(world, me, out),
            Phase::Commit(commit, call, _) => {
                let CommitAction::Request(request) = commit.action() else { return };
                if let (ManifestRequest::Create(state), Call::Send) = (&request, call) {
                    sent.push(manifest_object(me, state));
                }
                manifest_steps(world, (me, ROLE), &request, *call, out, |next, answer| {
                    on(next, me, |compactor, world| compactor.on_commit(world, answer));
                });
            }
            Phase::Append(append, call, _) => {
                let AppendAction::Request(request) = append.action() else { return };
                if let (RecordRequest::Create(record), Call::Send) = (&request, call) {
                    sent.push(record_object(me, record));
                }
                record_steps(world, (me, ROLE), &request, *call, out, |next, answer| {
                    on(next, me, |compactor, world| compactor.on_record(world, me, answer));
                });
            }
            Phase::Decide(record) => self.decide(world, me, record, out),
        }
        crash(world, (me, ROLE), &sent, out);
    }

    fn start(&self, world: &World, me: usize, out: &mut Out) {
        let tip = world.ghost.tip.clone();
        let left = left(&world.ghost.jobs, &tip);
        // There is nothing to do: a compactor that only claims shows nothing.
        if tip.l0.is_empty() && left.is_empty() {
            return;
        }
        let tidies = !left.is_empty() && !world.rules.has(Rule::ClaimBeforeJobs);
        let phase = match tidies {
            false => claim(world, me),
            true => {
                let change = Change::TakeOver { epoch: tip.compactor_epoch.next() };
                let append = Append::new(change, world.ghost.jobs.clone(), world.rules);
                Phase::Append(append, Call::Send, Doing::Tidies(false))
            }
        };
        world.then(out, Step::of(me, ROLE, What::Starts), |next| {
            on(next, me, |compactor, _| compactor.to(phase));
        });
    }

    /// The next step of the engine's compactor, by the newest record that it knows.
    fn decide(&self, world: &World, me: usize, record: &Arc<Compactions>, out: &mut Out) {
        // It learns of the manifest by its own commits; it may also learn a newer state.
        let tip = world.ghost.tip.clone();
        let unfinished = left(record, &tip);
        let Some(job) = unfinished.first().and_then(|id| record.job(*id)) else {
            return self.plan(world, me, record, out);
        };
        let epoch = self.epoch;
        if record.epoch < epoch {
            self.change(world, me, (record, Change::TakeOver { epoch }), What::TakesOver, out);
        } else if job.is_done() {
            self.finish(world, me, (record, job), out);
        } else {
            self.work(world, me, (record, job), out);
        }
    }

    fn plan(&self, world: &World, me: usize, record: &Arc<Compactions>, out: &mut Out) {
        let (tip, epoch) = (world.ghost.tip.clone(), self.epoch);
        if tip.l0.is_empty() {
            world.then(out, Step::of(me, ROLE, What::Begins("to rest: nothing is due")), |next| {
                on(next, me, |_, _| None);
            });
        } else if record.epoch < epoch {
            self.change(world, me, (record, Change::TakeOver { epoch }), What::TakesOver, out);
        } else {
            let mut job = job(JobId(me as u128 + 1), &tip, self.shape);
            for (range, count) in job.ranges.iter_mut().zip(0..self.own) {
                range.claim = Some(claim_of(me));
                range.reserved = vec![name_of(me, self.names + count)];
            }
            if self.drives {
                job.ranges.iter_mut().for_each(|range| range.claim = Some(claim_of(me)));
            }
            let forget = record.finished(&tip);
            let change = Change::Start { epoch, job: Box::new(job), forget };
            self.change(world, me, (record, change), What::StartsJob, out);
        }
    }

    /// Its own ranges first; then unclaimed ones, or ones whose worker it judges stalled; it also
    /// looks for the records of others.
    fn work(
        &self,
        world: &World,
        me: usize,
        (record, job): (&Arc<Compactions>, &Job),
        out: &mut Out,
    ) {
        if self.drives {
            self.record(world, me, (record, job), out);
        } else if claimed(record, worker_of(me)).is_some_and(|(mine, _)| mine.id == job.id) {
            return self.upload(world, me, record, out);
        }
        let ranges = job.ranges.iter().enumerate().filter(|(_, range)| !range.done);
        for (at, range) in ranges.filter(|_| !self.drives) {
            if range.claim.is_none() || self.takes > 0 {
                self.claim_range(world, me, (record, job.id, at, range.claim), out);
            }
        }
        if world.ghost.jobs.number > record.number {
            let look = Append::look(world.ghost.tip.database, world.rules);
            world.then(out, Step::of(me, ROLE, What::Polls), |next| {
                on(next, me, |compactor, _| {
                    compactor.to(Phase::Append(look, Call::Send, Doing::Looks))
                });
            });
        }
    }

    /// Records the result of a unit: any result that fits the record as known here or, without the
    /// rule, any that is not recorded.
    fn record(
        &self,
        world: &World,
        me: usize,
        (record, job): (&Arc<Compactions>, &Job),
        out: &mut Out,
    ) {
        let told = world.ghost.told_by_units.iter().filter(|(id, _)| *id == job.id);
        for (_, unit) in told {
            let stands = !job.fitting(std::slice::from_ref(unit)).is_empty();
            let known = unit.tables.iter().all(|table| job.outputs().any(|one| one == table));
            if stands || (!known && !world.rules.has(Rule::UnitsAsTheyStand)) {
                let (epoch, worker, finished) = (self.epoch, worker_of(me), vec![unit.clone()]);
                let change = Change::Units { epoch, job: job.id, worker, finished };
                self.change(world, me, (record, change), What::RecordsUnit(unit.range), out);
            }
        }
    }

    fn claim_range(&self, world: &World, me: usize, wanted: Claimable<'_>, out: &mut Out) {
        let append = claims(world, me, self.names, wanted);
        world.then(out, Step::of(me, ROLE, What::ClaimsRange(wanted.2)), |next| {
            on(next, me, |compactor, _| {
                compactor.takes -= u8::from(wanted.3.is_some());
                compactor.names += 1;
                compactor.to(Phase::Append(append, Call::Send, Doing::Works))
            });
        });
    }

    fn change(
        &self,
        world: &World,
        me: usize,
        (record, change): (&Arc<Compactions>, Change),
        what: What,
        out: &mut Out,
    ) {
        let given = if matches!(change, Change::Start { .. }) { self.own } else { 0 };
        let append = Append::new(change, record.clone(), world.rules);
        world.then(out, Step::of(me, ROLE, what), |next| {
            on(next, me, |compactor, _| {
                compactor.names += given;
                compactor.to(Phase::Append(append, Call::Send, Doing::Changes))
            });
        });
    }

    fn upload(&self, world: &World, me: usize, record: &Arc<Compactions>, out: &mut Out) {
        let Some((job, range)) = claimed(record, worker_of(me)) else { return };
        let Some(made) = next_table(&world.ghost, job, range) else { return };
        let there = job.input_ids().all(|table| world.store.has_table(table));
        let (id, table): (JobId, SstDescriptor) = (job.id, made.table);
        world.then(out, Step::of(me, ROLE, What::Uploads(table.id)), |next| {
            if !there {
                // Inputs are gone: a newer compactor has ended the job.
                on(next, me, |_, _| None);
                return;
            }
            next.land(ObjectName::Compacted(table.id), Object::Table(made.rows));
            on(next, me, |compactor, world| {
                let names = if made.last { vec![] } else { vec![name_of(me, compactor.names)] };
                compactor.names += u8::from(!made.last);
                let (worker, done) = (worker_of(me), made.last);
                let outputs = vec![table];
                let change = Change::Progress { job: id, range, worker, outputs, names, done };
                let append = Append::new(change, record.clone(), world.rules);
                compactor.to(Phase::Append(append, Call::Send, Doing::Works))
            });
        });
    }

    fn finish(&self, world: &World, me: usize, (record, job): (&Compactions, &Job), out: &mut Out) {
        let tip = world.ghost.tip.clone();
        let done = tip.finished_jobs.iter().map(|done| done.job);
        let retire = done.filter(|job| record.job(*job).is_none()).collect();
        let Ok(finish) = job.finish(&tip, self.epoch, retire) else { return };
        let commit = Commit::new(Edit::FinishCompaction(finish), tip, world.rules);
        world.then(out, Step::of(me, ROLE, What::BeginsCommit("the end of the job")), |next| {
            on(next, me, |compactor, _| {
                compactor.to(Phase::Commit(commit, Call::Send, Committing::Finish))
            });
        });
    }

    fn to(&mut self, phase: Phase) -> Option<()> {
        self.phase = phase;
        Some(())
    }

    fn on_commit(&mut self, world: &mut World, answer: Result<ManifestAnswer, Call>) -> Option<()> {
        let Phase::Commit(commit, call, committing) = &mut self.phase else { return None };
        match answer {
            Err(to) => *call = to,
            Ok(answer) => {
                *call = Call::Send;
                commit.on_answer(answer);
            }
        }
        match commit.action() {
            CommitAction::Request(_) => Some(()),
            CommitAction::Done(state) => {
                let believed = world.ghost.believed(&state);
                world.break_if(believed);
                if *committing == Committing::Finish {
                    return None;
                }
                self.epoch = state.compactor_epoch;
                let look = Append::look(state.database, world.rules);
                self.to(Phase::Append(look, Call::Send, Doing::Looks))
            }
            CommitAction::Failed(refusal) => {
                world.break_if(bug(refusal));
                None
            }
        }
    }

    fn on_record(
        &mut self,
        world: &mut World,
        me: usize,
        answer: Result<RecordAnswer, Call>,
    ) -> Option<()> {
        let Phase::Append(append, call, doing) = &mut self.phase else { return None };
        match answer {
            Err(to) => *call = to,
            Ok(answer) => {
                *call = Call::Send;
                append.on_answer(answer);
            }
        }
        let doing = *doing;
        match append.action() {
            AppendAction::Request(_) => Some(()),
            AppendAction::Done(record) => {
                let believed = world.ghost.believed_jobs(&record);
                world.break_if(believed);
                match doing {
                    Doing::Tidies(forgot) => self.tidied(world, me, &record, forgot),
                    // The record of another compactor.
                    _ if record.epoch > self.epoch => None,
                    Doing::Looks | Doing::Changes | Doing::Works => self.to(Phase::Decide(record)),
                }
            }
            // It looks for the result of the range.
            AppendAction::Failed(ChangeRefusal::Taken { .. }) => {
                let look = Append::look(world.ghost.tip.database, world.rules);
                self.to(Phase::Append(look, Call::Send, Doing::Looks))
            }
            AppendAction::Failed(refusal) => {
                world.break_if(wrong(refusal));
                None
            }
        }
    }

    /// The violation when it changes the record after `before`.
    pub(crate) fn overtaken(&self, before: &Compactions) -> Option<String> {
        let changes = matches!(self.phase, Phase::Append(_, _, Doing::Changes));
        (changes && before.epoch > self.epoch)
            .then(|| "R2: a compactor that was taken over changes the record of jobs".to_owned())
    }

    /// Forgets left-over jobs before it claims.
    fn tidied(
        &mut self,
        world: &World,
        me: usize,
        record: &Arc<Compactions>,
        forgot: bool,
    ) -> Option<()> {
        if forgot {
            return self.to(claim(world, me));
        }
        let jobs = record.jobs.iter().map(|job| job.id).collect();
        let change = Change::Forget { epoch: record.epoch, jobs };
        let append = Append::new(change, record.clone(), world.rules);
        self.to(Phase::Append(append, Call::Send, Doing::Tidies(true)))
    }
}

fn claim(world: &World, me: usize) -> Phase {
    let newest = world.ghost.tip.clone();
    let edit = Edit::ClaimCompactor {
        writer: None,
        expected: newest.compactor_epoch,
        claim: AttemptId(me as u128 + 1),
    };
    Phase::Commit(Commit::new(edit, newest, world.rules), Call::Send, Committing::Claim)
}

/// Jobs of `record` that are not finished according to `state`.
fn left(record: &Compactions, state: &Manifest) -> Vec<JobId> {
    let finished = record.finished(state);
    record.jobs.iter().map(|job| job.id).filter(|job| !finished.contains(job)).collect()
}

/// Changes the compactor `me` together with the world; `None` ends it.
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
