//! A writer: opens, appends, flushes, closes.

use crate::actor::{Actor, Call, Create, Progress, crash, manifest_object, manifest_steps, owner};
use crate::step::{Step, What};
use crate::world::{Object, Out, Pending, Record, World, describe, seen};
use siltstone_base::{AttemptId, Epoch, ObjectName, PutOutcome, Seq, SstDescriptor, SstId, WalId};
use siltstone_manifest::edit::{Edit, FlushL0, Refusal, replay_point};
use siltstone_manifest::protocol::{
    Commit, CommitAction, ManifestAnswer, ManifestRequest, OpenAction, OpenWriter, Recovered,
    WalListing, WalSeen, WalWindow, WindowEvent, WriterOptions,
};
use siltstone_manifest::{KeptFence, Manifest, Rules};
use std::sync::Arc;

mod looking;
mod reading;

use looking::Looking;
use reading::Reading;
pub(crate) use reading::{hole, lacks, version_of};

const ROLE: &str = "writer";

/// What a writer sets out to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Plan {
    /// Its `max_parallel_writes`.
    pub(crate) width: u64,
    /// Records to append, one to a WAL object.
    pub(crate) records: usize,
    /// Flushes: each once so many of its own records are acknowledged.
    pub(crate) flush_at: Vec<usize>,
    /// Records that are durable by then, and that a flush leaves to the next one: in the engine
    /// those that came after the memtable was frozen. `wal_id_last_seen` then runs ahead.
    pub(crate) behind: usize,
    /// How often it looks for a newer manifest while it runs.
    pub(crate) looks: u8,
    /// Whether it closes in the end.
    pub(crate) close: bool,
    /// Whether it makes a mistake that the rules must catch: names its tables without reserving.
    pub(crate) careless: bool,
    /// Whether a scan stays on what a commit replaces, and compactions are taken up.
    pub(crate) scans: bool,
}

/// A writer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Writer {
    plan: Plan,
    phase: Phase,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Waiting,
    Opening { machine: OpenWriter, call: Call, bodies: Vec<(WalId, Record)> },
    Closing { commit: Commit, call: Call },
    Running(Box<Running>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Running {
    epoch: Epoch,
    /// Its own fence; the first record goes to its `next_id`.
    fence: KeptFence,
    fences: Vec<KeptFence>,
    keep: Vec<KeptFence>,
    window: WalWindow,
    /// Records sent and not settled.
    flying: Vec<(WalId, Record, Call)>,
    /// Ids for which the window has asked for the WAL boundary.
    asking: Vec<WalId>,
    /// What was recovered.
    base: Vec<Record>,
    /// Its own records, in the order in which they were sent.
    sent: Vec<Record>,
    known: Arc<Manifest>,
    flushes: usize,
    commit: Option<(Commit, Call, Purpose)>,
    reading: Reading,
    looking: Looking,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Purpose {
    Flush,
    Pin,
    Close,
}

/// The table that process `me` writes by its flush number `flush`.
fn table_name(me: usize, flush: usize) -> SstId {
    SstId((me as u128 + 1) * 16 + flush as u128)
}

/// A refusal that the protocol excludes.
pub(crate) fn bug(refusal: Refusal) -> Option<String> {
    match refusal {
        Refusal::Invalid(_) | Refusal::Broken(_) => {
            Some(format!("M2: an edit is refused as wrong: {refusal:?}"))
        }
        _ => None,
    }
}

impl Writer {
    pub(crate) fn actor(plan: Plan) -> Actor {
        Actor::Writer(Writer { plan, phase: Phase::Waiting })
    }

    /// Whether it is on its way in.
    pub(crate) fn opens(&self) -> bool {
        matches!(self.phase, Phase::Opening { .. })
    }

    pub(crate) fn steps(&self, world: &World, me: usize, out: &mut Out) {
        match &self.phase {
            Phase::Waiting => self.start(world, me, out),
            Phase::Opening { machine, call, .. } => self.open(world, me, machine, *call, out),
            Phase::Running(running) => self.run(world, me, running, out),
            Phase::Closing { commit, call } => {
                let CommitAction::Request(request) = commit.action() else { return };
                manifest_steps(world, (me, ROLE), &request, *call, out, |next, answer| {
                    on(next, me, |writer, world| writer.on_early_close(world, answer));
                });
            }
        }
    }

    /// Writers start in the order of the configuration: with equal plans any other order is this
    /// one under other names.
    fn start(&self, world: &World, me: usize, out: &mut Out) {
        if world.ghost.gone {
            return;
        }
        let waiting =
            |actor: &Actor| matches!(actor, Actor::Writer(Writer { phase: Phase::Waiting, .. }));
        if world.actors.iter().take(me).any(|actor| waiting(actor)) {
            return;
        }
        let newest = world.ghost.tip.clone();
        let options = WriterOptions {
            claim: AttemptId(me as u128 + 1),
            max_parallel_writes: self.plan.width,
            take_over: true,
            reserve: if self.plan.flush_at.is_empty() || self.plan.careless {
                Vec::new()
            } else {
                vec![table_name(me, 0)]
            },
            checkpoint: Some(reading::first_checkpoint(me)),
            merge_operator: None,
        };
        let machine = OpenWriter::new(options, newest, world.rules);
        world.then(out, Step::of(me, ROLE, What::Starts), |next| {
            on(next, me, |writer, _| {
                let bodies = Vec::new();
                writer.phase = Phase::Opening { machine, call: Call::Send, bodies };
                After::Goes
            });
        });
    }

    fn open(&self, world: &World, me: usize, machine: &OpenWriter, call: Call, out: &mut Out) {
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
            OpenAction::ReadWal(id) => {
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
        bodies.extend(record.map(|record| (id, record)));
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
                bodies.extend(record.map(|record| (id, record)));
                PutOutcome::Lost(what)
            }
        });
        self.opened(world)
    }

    /// Goes on when the machine has ended.
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

    fn run(&self, world: &World, me: usize, running: &Running, out: &mut Out) {
        self.send(world, me, running, out);
        for (place, (id, record, call)) in running.flying.iter().enumerate() {
            let object = Object::Data { owner: owner(me), record: *record };
            let create = Create { me, role: ROLE, name: ObjectName::Wal(*id), object };
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
                running.flying.push((id, record, Call::Send));
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
            // Settled, or settled by the boundary: nothing is on its way for this window.
            running.flying.remove(place);
        }
        running.take(world, events)
    }

    fn begin_commit(&self, world: &World, me: usize, running: &Running, out: &mut Out) {
        let own = running.committed();
        let due = self.plan.flush_at.get(running.flushes).is_some_and(|due| own >= *due);
        let taken = own.saturating_sub(self.plan.behind);
        let rows = running.durable_rows(taken);
        if due && !rows.is_empty() {
            let id = table_name(me, running.flushes);
            let more = self.plan.flush_at.len() > running.flushes + 1 && !self.plan.careless;
            let reserve = more.then(|| table_name(me, running.flushes + 1));
            let flush = running.flush(describe(id, &rows), taken, reserve, world.rules);
            let step = Step::of(me, ROLE, What::PlansFlush(id, flush.replay_from));
            world.then(out, step, |next| {
                next.land(ObjectName::Compacted(id), Object::Table(rows));
                let edit = Edit::FlushL0(flush);
                on(next, me, |writer, world| writer.commit(world.rules, edit, Purpose::Flush));
            });
        }
        running.begin_pinning(&self.plan, world, me, out);
        let flushed = running.flushes == self.plan.flush_at.len();
        let done = running.sent.len() == self.plan.records && running.window.is_settled();
        if self.plan.close && done && flushed {
            let edit = Edit::CloseClean { epoch: running.epoch };
            world.then(out, Step::of(me, ROLE, What::BeginsClose), |next| {
                on(next, me, |writer, world| writer.commit(world.rules, edit, Purpose::Close));
            });
        }
    }

    fn commit(&mut self, rules: Rules, edit: Edit, purpose: Purpose) -> After {
        if let Phase::Running(running) = &mut self.phase {
            let commit = Commit::new(edit, running.known.clone(), rules);
            running.commit = Some((commit, Call::Send, purpose));
        }
        After::Goes
    }

    fn on_commit(&mut self, world: &mut World, answer: Result<ManifestAnswer, Call>) -> After {
        let Phase::Running(running) = &mut self.phase else { return After::Goes };
        let Some((commit, call, purpose)) = &mut running.commit else { return After::Goes };
        match answer {
            Err(to) => *call = to,
            Ok(answer) => {
                *call = Call::Send;
                commit.on_answer(answer);
            }
        }
        let purpose = *purpose;
        match commit.action() {
            CommitAction::Request(_) => After::Goes,
            CommitAction::Done(state) => {
                let believed = world.ghost.believed(&state);
                world.break_if(believed);
                running.commit = None;
                if purpose == Purpose::Close {
                    return After::Ends;
                }
                running.reading.committed(world, &state, self.plan.scans);
                running.learn(&state);
                running.flushes += usize::from(purpose == Purpose::Flush);
                After::Goes
            }
            CommitAction::Failed(refusal) => {
                if !self.plan.careless {
                    let problem = world.ghost.edit().failed(refusal.into());
                    world.break_if(problem);
                }
                running.commit = None;
                After::Ends
            }
        }
    }

    fn on_early_close(&mut self, world: &mut World, answer: Result<ManifestAnswer, Call>) -> After {
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

impl Running {
    /// How many of its own records are committed, with everything before them.
    fn committed(&self) -> usize {
        let next = self.window.committed().next();
        usize::try_from(next.get().saturating_sub(self.fence.next_id.get())).unwrap_or(usize::MAX)
    }

    /// Of what was recovered and the first `taken` of its own records: those in no table.
    fn durable_rows(&self, taken: usize) -> Vec<Record> {
        let own = self.sent.iter().take(taken);
        let rows = self.base.iter().chain(own).copied();
        rows.filter(|row| Seq(row.seq) > self.known.flushed_seq).collect()
    }

    /// The commit of what was recovered and the first `taken` own records as `table`.
    fn flush(
        &self,
        table: SstDescriptor,
        taken: usize,
        reserve: Option<SstId>,
        rules: Rules,
    ) -> FlushL0 {
        let own = self.fence.next_id.plus(taken as u64).minus(1);
        let last = if taken == 0 { self.fence.id } else { own };
        FlushL0 {
            flushed_seq: table.max_seq,
            layers: vec![vec![table]],
            replay_from: replay_point(last, &self.fences, rules),
            wal_id_last_seen: self.window.committed(),
            fences: self.keep.clone(),
            reserve: reserve.into_iter().collect(),
            checkpoint: Some(self.reading.checkpoint()),
            release: self.reading.pins.releases(true),
            ..FlushL0::nothing(self.epoch, &self.known)
        }
    }

    /// Does what the window says.
    fn take(&mut self, world: &mut World, events: Vec<WindowEvent>) -> After {
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
    fn under_way(&self, me: usize) -> Vec<(ObjectName, Object)> {
        let flying = self.flying.iter().filter(|(_, _, call)| *call == Call::Send);
        let mut sent: Vec<(ObjectName, Object)> = flying
            .map(|(id, record, _)| {
                (ObjectName::Wal(*id), Object::Data { owner: owner(me), record: *record })
            })
            .collect();
        if let Some((commit, Call::Send, _)) = &self.commit
            && let CommitAction::Request(ManifestRequest::Create(state)) = commit.action()
        {
            sent.push(manifest_object(me, &state));
        }
        sent
    }
}

/// Whether a process goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    Goes,
    Ends,
}

/// Lets the writer `me` change together with the world. When it ends, what it had sent is left to
/// the network.
fn on(world: &mut World, me: usize, change: impl FnOnce(&mut Writer, &mut World) -> After) {
    let Some(Actor::Writer(mut writer)) = world.actors.get(me).map(|actor| (**actor).clone())
    else {
        return;
    };
    let after = change(&mut writer, world);
    if after == After::Ends
        && let Phase::Running(running) = &writer.phase
    {
        for (name, object) in running.under_way(me) {
            world.post(Pending::Create(name, object));
        }
    }
    if let Some(actor) = world.actor(me) {
        *actor = if after == After::Ends { Actor::Gone } else { Actor::Writer(writer) };
    }
}
