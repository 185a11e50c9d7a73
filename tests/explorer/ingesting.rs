//! An ingest job (RFC 0035, rules N8 to N13): every interleaving of two drivers that close and ask
//! for one job, an abort, two writers that adopt, install and replay, a compactor, and a collector
//! whose clock has passed the job's deadline; with creates that land late. And a checkpoint that is
//! made, and becomes the current state again; and a later version of the job's application.

mod carrying;
mod passing;

use crate::chain::{self, Chain};
use crate::search::Model;
use bytes::Bytes;
use carrying::Restoring;
use siltstone_base::sst::SstLocation;
use siltstone_base::{
    AttemptId, DatabaseId, Epoch, JobId, ManifestId, ObjectName, PutOutcome, Seq, SstDescriptor,
    SstId, UnixMillis, WalId,
};
use siltstone_manifest::gc::{Evidence, ListedObject, dead};
use siltstone_manifest::ingest::{Standing, pending, standing, standing_as, to_adopt};
use siltstone_manifest::protocol::{
    Commit, CommitAction, ManifestAnswer, ManifestRequest, OpenAction, OpenWriter, Recovered,
    WalListing, WalSeen, WriterOptions,
};
use siltstone_manifest::{
    Edit, FinishCompaction, FlushL0, IngestEdit, InstallIngest, KeptFence, Manifest, RequestIngest,
    Rule, Rules, Settings,
};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

const DATABASE: DatabaseId = DatabaseId(1);
/// Its deadline is moment 1; the collector's clock shows 9.
const JOB: JobId = JobId(1 << 80);
const NOW: UnixMillis = UnixMillis(9);
/// What the job staged, and what a compaction makes of it.
const STAGED: SstId = SstId(14);
const MERGED: SstId = SstId(15);
/// What deletes the range that the job replaces.
const DELETES: SstId = SstId(13);

/// Rules that this model is for.
pub(crate) const DROPPED: [Rule; 10] = [
    Rule::RememberIngests,
    Rule::RequestAboveHorizon,
    Rule::WithdrawUnrequested,
    Rule::AdoptOnce,
    Rule::HonourPending,
    Rule::HorizonFirst,
    Rule::TakeIngestsOver,
    Rule::WithdrawUnpassed,
    Rule::RefuseForgotten,
    Rule::OriginStays,
];

/// What is explored.
pub(crate) struct Ingesting {
    rules: Rules,
    drivers: usize,
    writers: usize,
    aborts: bool,
    compactor: bool,
    /// Somebody makes a checkpoint, and somebody goes back to it. The job is asked for already.
    restores: bool,
    /// And somebody lets go of it.
    lets_go: bool,
    /// The job is a version of an application, and a later one comes. Deadlines are far.
    passes: bool,
    /// And somebody forgets it.
    forgets: bool,
    rounds: u8,
    late: u8,
    /// N8: an abort that created its object looks at the manifest before it says so.
    looks: bool,
    /// The job replaces what is there.
    replaces: bool,
    /// P5: by a layer of its own, which is installed with the others.
    together: bool,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Actor {
    Driver(Driving),
    Abort(Aborting),
    Writer(Writing),
    Compactor,
    /// Who makes a checkpoint has walked to here.
    Keeper(WalId),
    Restorer(Restoring),
    Remover,
    /// Who makes a checkpoint has not begun.
    Keeps,
    /// Who brings a later version.
    Passer,
    Forgetter,
    Collector {
        rounds: u8,
        doing: Collecting,
    },
    Gone,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Driving {
    Close(AttemptId),
    Request(Commit),
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Aborting {
    Close,
    Look,
    Withdraw(Commit),
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Writing {
    Open(Box<OpenWriter>),
    Run(Box<Running>),
    /// What is asked of the manifest, and what it is of the queue.
    Install(Box<Running>, Commit),
}

/// A writer that has replayed.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Running {
    known: Arc<Manifest>,
    epoch: Epoch,
    fences: Vec<KeptFence>,
    next_wal: WalId,
    last: Seq,
    /// Ingests that are durable and not installed, the oldest first, and where they lie.
    queue: Vec<(WalId, Ingest)>,
    /// One that is under way.
    sends: Option<Ingest>,
}

/// An INGEST record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Ingest {
    seq: Seq,
    attempt: AttemptId,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Collecting {
    Listed(Vec<ListedObject>),
    Horizon(Vec<ListedObject>, Commit),
    Delete(Vec<ObjectName>),
    Nothing,
}

/// What lands after its sender died.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Late {
    Manifest(Arc<Manifest>),
    Wal(WalId, Epoch, Ingest),
    /// The object that closes the job; none: as aborted.
    Closing(Option<AttemptId>),
}

/// One state.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Room {
    manifests: Chain,
    wal: BTreeMap<WalId, (WalSeen, Option<Ingest>)>,
    /// The object that closed the job: the attempt that brought parts, or an abort.
    closed: Option<Option<AttemptId>>,
    /// Tables of the job, a layer each, the oldest first.
    staged: &'static [SstId],
    tables: BTreeSet<SstId>,
    actors: Vec<Arc<Actor>>,
    network: Vec<Late>,
    late: u8,
    broken: Option<&'static str>,
}

impl Room {
    fn newest(&self) -> Arc<Manifest> {
        chain::newest(&self.manifests)
    }

    fn serve(&mut self, request: ManifestRequest) -> ManifestAnswer {
        chain::serve(&mut self.manifests, ManifestId::NONE, request)
    }

    fn create(&mut self, id: WalId, seen: WalSeen, ingest: Option<Ingest>) -> PutOutcome<WalSeen> {
        match self.wal.get(&id) {
            Some(there) if *there == (seen, ingest) => PutOutcome::Committed,
            Some((there, _)) => PutOutcome::Lost(*there),
            None => {
                self.wal.insert(id, (seen, ingest));
                PutOutcome::Committed
            }
        }
    }

    fn step_open(&mut self, open: &mut OpenWriter) -> bool {
        let seen = |room: &Room, id| room.wal.get(&id).map_or(WalSeen::Absent, |(seen, _)| *seen);
        match open.action() {
            OpenAction::Request(request) => open.on_answer(self.serve(request)),
            OpenAction::ReadWal(id) | OpenAction::ReadCutOff(id) => open.on_wal(seen(self, id)),
            OpenAction::ListWal(after) => {
                let later = self.wal.keys().copied().filter(|id| *id > after).collect();
                open.on_wal_listing(&WalListing { boundary: WalId::NONE, later });
            }
            OpenAction::CreateFence(fence) => {
                let object = WalSeen::Fence { epoch: fence.epoch, next_id: fence.next_id };
                let outcome = self.create(fence.id, object, None);
                open.on_fence(outcome);
            }
            OpenAction::Done(_) | OpenAction::Failed(_) => {}
        }
        matches!(open.action(), OpenAction::Done(_) | OpenAction::Failed(_))
    }

    /// Commits at once, by somebody who is quick.
    fn commit(&mut self, edit: Edit, rules: Rules) -> CommitAction {
        let mut commit = Commit::new(edit, self.newest(), rules);
        loop {
            match commit.action() {
                CommitAction::Request(request) => commit.on_answer(self.serve(request)),
                ended => return ended,
            }
        }
    }

    /// Whether all that the job brings is there.
    fn is_staged(&self, attempt: AttemptId) -> bool {
        self.closed == Some(Some(attempt)) && self.staged.iter().all(|id| self.tables.contains(id))
    }

    fn listed(&self) -> Vec<ListedObject> {
        let closed = self.closed.map(|_| ObjectName::IngestManifest(JOB));
        let staged = self.staged.iter().filter(|id| self.tables.contains(*id));
        let staged = staged.map(|id| ObjectName::IngestSst(JOB, *id));
        let names = closed.into_iter().chain(staged);
        names.map(|name| ListedObject { name, modified: UnixMillis(0), bytes: 1 }).collect()
    }

    fn delete(&mut self, name: ObjectName) {
        match name {
            ObjectName::IngestManifest(_) => self.closed = None,
            ObjectName::IngestSst(_, id) => drop(self.tables.remove(&id)),
            _ => {}
        }
    }

    fn breaks(&mut self, what: &'static str) {
        self.broken.get_or_insert(what);
    }
}

pub(crate) fn table(id: SstId, job: Option<JobId>) -> SstDescriptor {
    SstDescriptor {
        id,
        location: SstLocation::Own,
        job,
        object_bytes: 100,
        checksum: 7,
        tail_offset: 50,
        first_key: b"a".to_vec().into(),
        last_key: b"z".to_vec().into(),
        visible_start: None,
        visible_end: None,
        seq_override: None,
        entries: 1,
        tombstones: 0,
        min_seq: Seq(0),
        max_seq: Seq(0),
        min_expiry: None,
        max_expiry: None,
        range_deletes: None,
        sum: None,
    }
}

/// The layers of a job, each at its number.
fn numbered(staged: &[SstId], ingest: Ingest) -> Vec<Vec<SstDescriptor>> {
    let below = |at: usize| (staged.len() - 1 - at) as u64;
    let numbered = |(at, id): (usize, &SstId)| {
        let seq_override = Some(ingest.seq.minus(below(at)));
        vec![SstDescriptor { seq_override, ..table(*id, Some(JOB)) }]
    };
    staged.iter().enumerate().map(numbered).collect()
}

fn digest(attempt: AttemptId) -> Bytes {
    Bytes::copy_from_slice(&attempt.to_bytes())
}

impl Ingesting {
    fn drive(&self, room: &mut Room, driving: Driving) -> Actor {
        match driving {
            Driving::Close(attempt) => match room.closed.get_or_insert(Some(attempt)) {
                None => Actor::Gone,
                Some(attempt) => {
                    let request = RequestIngest {
                        job: JOB,
                        database: DATABASE,
                        timeline: None,
                        digest: digest(*attempt),
                        app: self.app(),
                        requested_at: UnixMillis(0),
                    };
                    let edit = Edit::Ingest(IngestEdit::Request(request));
                    Actor::Driver(Driving::Request(Commit::new(edit, room.newest(), self.rules)))
                }
            },
            Driving::Request(mut commit) => match commit.action() {
                CommitAction::Request(request) => {
                    commit.on_answer(room.serve(request));
                    Actor::Driver(Driving::Request(commit))
                }
                CommitAction::Done(_) | CommitAction::Failed(_) => Actor::Gone,
            },
        }
    }

    fn abort(&self, room: &mut Room, aborting: Aborting) -> Actor {
        let says_aborted = |room: &mut Room| {
            let chain = room.manifests.values();
            let asked = chain.clone().any(|state| pending(state, JOB).is_some());
            if asked {
                room.breaks("N8: a job that was asked for is called aborted");
            }
        };
        let withdraws = |room: &Room| {
            let edit = Edit::Ingest(IngestEdit::Withdraw { job: JOB, app: self.app() });
            Actor::Abort(Aborting::Withdraw(Commit::new(edit, room.newest(), self.rules)))
        };
        match aborting {
            Aborting::Close => match room.closed.get_or_insert(None) {
                None if self.looks => Actor::Abort(Aborting::Look),
                None => {
                    says_aborted(room);
                    Actor::Gone
                }
                Some(_) => withdraws(room),
            },
            Aborting::Look => match standing_as(&room.newest(), JOB, self.app().as_ref()) {
                // Closed as aborted nobody can ask for it; the commit has its tables collected.
                Standing::Open => {
                    says_aborted(room);
                    withdraws(room)
                }
                _ => Actor::Gone,
            },
            Aborting::Withdraw(mut commit) => match commit.action() {
                CommitAction::Request(request) => {
                    commit.on_answer(room.serve(request));
                    Actor::Abort(Aborting::Withdraw(commit))
                }
                CommitAction::Done(state) => {
                    if standing(&state, JOB) == Standing::Withdrawn {
                        says_aborted(room);
                    }
                    Actor::Gone
                }
                CommitAction::Failed(_) => Actor::Gone,
            },
        }
    }

    fn write(&self, room: &mut Room, writing: Writing) -> Actor {
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

    fn replay(room: &mut Room, recovered: &Recovered) -> Running {
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

    /// The next thing that a writer does: it sends, installs, adopts, or looks.
    fn run(&self, room: &mut Room, mut running: Running) -> Actor {
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
        // What is adopted waits for nothing in this model, so a list that is not cleared in time
        // is taken from again at once.
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

    /// The delete of what a job replaces, in a commit before that of its rows.
    fn delete_alone(
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

    /// What was installed is merged into another table, in another run.
    fn compact(&self, room: &mut Room) -> Actor {
        let newest = room.newest();
        if !newest.tables().any(|table| table.id == STAGED) {
            return Actor::Compactor;
        }
        let edit = Edit::FinishCompaction(FinishCompaction {
            epoch: newest.compactor_epoch,
            job: JobId(1),
            planned_on: newest.id,
            remove: room.staged.iter().map(|id| (*id).into()).collect(),
            add: vec![table(MERGED, None)],
            destination: 0,
            retire: Vec::new(),
        });
        room.commit(edit, self.rules);
        Actor::Gone
    }

    /// A round: list, move the horizon, read the newest, delete.
    fn collect(&self, room: &mut Room, rounds: u8, doing: Collecting) -> Actor {
        let doing = match doing {
            Collecting::Nothing if rounds == 0 => return Actor::Gone,
            Collecting::Nothing => {
                let listed = room.listed();
                let rounds = rounds - 1;
                // By a clock alone nothing is committed.
                let doing = if self.rules.has(Rule::HorizonFirst) && !self.passes {
                    let edit = Edit::Ingest(IngestEdit::Horizon { to: NOW });
                    Collecting::Horizon(listed, Commit::new(edit, room.newest(), self.rules))
                } else {
                    Collecting::Listed(listed)
                };
                return Actor::Collector { rounds, doing };
            }
            Collecting::Horizon(listed, mut commit) => match commit.action() {
                CommitAction::Request(request) => {
                    commit.on_answer(room.serve(request));
                    Collecting::Horizon(listed, commit)
                }
                _ => Collecting::Listed(listed),
            },
            Collecting::Listed(listed) => {
                let newest = room.newest();
                let pinned = newest.checkpoints.iter();
                let pinned = pinned.filter_map(|one| room.manifests.get(&one.manifest_id).cloned());
                let pinned = pinned.collect();
                let (newest, apps) = (Some(newest), self.read_app(room));
                let found =
                    Evidence { listed, newest, pinned, apps, cutoff: NOW, ..Evidence::default() };
                // Taken from the end.
                Collecting::Delete(dead(&found, self.rules).deletes.into_iter().rev().collect())
            }
            Collecting::Delete(mut names) => match names.pop() {
                Some(name) => {
                    room.delete(name);
                    Collecting::Delete(names)
                }
                None => Collecting::Nothing,
            },
        };
        Actor::Collector { rounds, doing }
    }

    fn step(&self, room: &mut Room, actor: Actor) -> Actor {
        match actor {
            Actor::Driver(driving) => self.drive(room, driving),
            Actor::Abort(aborting) => self.abort(room, aborting),
            Actor::Writer(writing) => self.write(room, writing),
            Actor::Compactor => self.compact(room),
            Actor::Keeps => Actor::Keeper(room.walked(room.newest().replay_from).0),
            Actor::Keeper(walked) => self.keep(room, walked),
            Actor::Restorer(restoring) => self.go_back(room, restoring),
            Actor::Remover => self.let_go(room),
            Actor::Passer => self.pass(room),
            Actor::Forgetter => self.forget(room),
            Actor::Collector { rounds, doing } => self.collect(room, rounds, doing),
            Actor::Gone => Actor::Gone,
        }
    }

    fn begun(&self) -> Room {
        let mut first = Manifest::new_database(DATABASE, Settings::default());
        (first.compactor_epoch, first.compactor_claim) = (Epoch(1), AttemptId(70));
        let first = Arc::new(first);
        Room {
            manifests: BTreeMap::from([(first.id, first)]),
            wal: BTreeMap::new(),
            closed: None,
            staged: if self.replaces { &[DELETES, STAGED] } else { &[STAGED] },
            tables: BTreeSet::from([DELETES, STAGED, MERGED]),
            actors: Vec::new(),
            network: Vec::new(),
            late: self.late,
            broken: None,
        }
    }
}

fn set(room: &mut Room, me: usize, actor: Actor) {
    if let Some(slot) = room.actors.get_mut(me) {
        *slot = Arc::new(actor);
    }
}

/// What may land after its sender died.
fn under_way(actor: &Actor) -> Option<Late> {
    let commit = match actor {
        Actor::Driver(Driving::Close(attempt)) => return Some(Late::Closing(Some(*attempt))),
        Actor::Abort(Aborting::Close) => return Some(Late::Closing(None)),
        Actor::Writer(Writing::Run(running)) => {
            let ingest = running.sends?;
            return Some(Late::Wal(running.next_wal, running.epoch, ingest));
        }
        Actor::Driver(Driving::Request(commit))
        | Actor::Abort(Aborting::Withdraw(commit))
        | Actor::Writer(Writing::Install(_, commit))
        | Actor::Restorer(Restoring::Commit(commit, _))
        | Actor::Collector { doing: Collecting::Horizon(_, commit), .. } => commit,
        _ => return None,
    };
    match commit.action() {
        CommitAction::Request(ManifestRequest::Create(manifest)) => Some(Late::Manifest(manifest)),
        _ => None,
    }
}

impl Model for Ingesting {
    type State = Room;
    type Step = String;

    fn initial(&self) -> Room {
        let mut room = self.begun();
        if self.restores {
            let mut driver = Actor::Driver(Driving::Close(AttemptId(20)));
            while !matches!(driver, Actor::Gone) {
                driver = self.step(&mut room, driver);
            }
        }
        let mut actors = Vec::new();
        for driver in 0..self.drivers {
            actors.push(Actor::Driver(Driving::Close(AttemptId(20 + driver as u128))));
        }
        if self.aborts {
            actors.push(Actor::Abort(Aborting::Close));
        }
        for writer in 0..self.writers {
            let options = WriterOptions {
                claim: AttemptId(100 + writer as u128),
                max_parallel_writes: 1,
                take_over: true,
                ..WriterOptions::default()
            };
            let mut open = OpenWriter::new(options, room.newest(), self.rules);
            if writer > 0 {
                actors.push(Actor::Writer(Writing::Open(Box::new(open))));
                continue;
            }
            // The first one has opened before anything else begins.
            while !room.step_open(&mut open) {}
            let OpenAction::Done(recovered) = open.action() else { panic!("the writer opens") };
            let running = Ingesting::replay(&mut room, &recovered);
            actors.push(Actor::Writer(Writing::Run(Box::new(running))));
        }
        if self.compactor {
            actors.push(Actor::Compactor);
        }
        if self.restores {
            actors.extend([Actor::Keeps, Actor::Restorer(Restoring::Look)]);
        }
        if self.lets_go {
            actors.push(Actor::Remover);
        }
        if self.passes {
            actors.push(Actor::Passer);
        }
        if self.forgets {
            actors.push(Actor::Forgetter);
        }
        if self.rounds > 0 {
            actors.push(Actor::Collector { rounds: self.rounds, doing: Collecting::Nothing });
        }
        room.actors = actors.into_iter().map(Arc::new).collect();
        room
    }

    fn fingerprint(&self, state: &Room) -> u64 {
        let mut hasher = DefaultHasher::new();
        state.hash(&mut hasher);
        hasher.finish()
    }

    fn steps(&self, state: &Room, out: &mut Vec<(String, Room)>) {
        for (me, actor) in state.actors.iter().enumerate() {
            if matches!(&**actor, Actor::Gone) {
                continue;
            }
            let mut next = state.clone();
            let stepped = self.step(&mut next, Actor::clone(actor));
            set(&mut next, me, stepped);
            out.push((format!("{me}: {}", told(actor)), next));
            if let Some(late) = under_way(actor).filter(|_| state.late > 0) {
                let mut next = state.clone();
                next.late -= 1;
                next.network.push(late);
                set(&mut next, me, Actor::Gone);
                out.push((format!("{me}: dies, {} still under way", told(actor)), next));
            }
        }
        for at in 0..state.network.len() {
            let mut next = state.clone();
            let told = match next.network.remove(at) {
                Late::Manifest(late) => {
                    let told = format!("late: manifest {}", late.id);
                    drop(next.serve(ManifestRequest::Create(late)));
                    told
                }
                Late::Wal(id, epoch, ingest) => {
                    let data = WalSeen::Data { epoch, durable: id.minus(1) };
                    next.create(id, data, Some(ingest));
                    format!("late: INGEST at {id}")
                }
                Late::Closing(closing) => {
                    next.closed.get_or_insert(closing);
                    "late: the job's object".to_owned()
                }
            };
            out.push((told, next));
        }
    }

    fn violation(&self, state: &Room) -> Option<String> {
        let newest = state.newest();
        if newest.tables().any(|table| !state.tables.contains(&table.id)) {
            return Some("N9, N10: a table that the manifest names was collected".to_owned());
        }
        let names = |state: &Manifest, id| state.tables().any(|table| table.id == id);
        if names(&newest, DELETES) && !names(&newest, STAGED) {
            return Some(
                "P5: what was there is gone, and what replaces it is not there".to_owned(),
            );
        }
        if self.passes && self.is_nobodys(state) {
            return Some("N11: nobody can tell that what the job staged may go".to_owned());
        }
        // As it was, or merged: what a restore brings back was there.
        let has = |state: &Arc<Manifest>| names(state, STAGED) || names(state, MERGED);
        let chain: Vec<bool> = state.manifests.values().map(has).collect();
        if chain.windows(2).filter(|pair| matches!(pair, [false, true])).count() > 1 {
            return Some("N10, N12: a job is part of the database twice".to_owned());
        }
        state.broken.map(str::to_owned)
    }
}

fn told(actor: &Actor) -> &'static str {
    match actor {
        Actor::Driver(Driving::Close(_)) => "driver closes the job",
        Actor::Driver(Driving::Request(_)) => "driver asks for it",
        Actor::Abort(Aborting::Close) => "abort closes the job",
        Actor::Abort(Aborting::Look) => "abort looks",
        Actor::Abort(Aborting::Withdraw(_)) => "abort withdraws",
        Actor::Writer(Writing::Open(_)) => "writer opens",
        Actor::Writer(Writing::Run(_)) => "writer",
        Actor::Writer(Writing::Install(..)) => "writer installs",
        Actor::Compactor => "compactor",
        Actor::Keeps => "somebody walks the log",
        Actor::Keeper(_) => "somebody makes a checkpoint",
        Actor::Remover => "the checkpoint is let go of",
        Actor::Passer => "a later version is asked for",
        Actor::Forgetter => "the application is forgotten",
        Actor::Restorer(Restoring::Look) => "restorer looks",
        Actor::Restorer(Restoring::Open(..)) => "restorer opens",
        Actor::Restorer(Restoring::Commit(..)) => "restorer commits",
        Actor::Collector { doing: Collecting::Nothing, .. } => "collector lists",
        Actor::Collector { doing: Collecting::Horizon(..), .. } => "collector moves the horizon",
        Actor::Collector { doing: Collecting::Listed(_), .. } => "collector judges",
        Actor::Collector { doing: Collecting::Delete(_), .. } => "collector deletes",
        Actor::Gone => "nobody",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::search;

    fn model(rules: Rules) -> Ingesting {
        let (drivers, writers, late, rounds) = (1, 1, 0, 1);
        let (aborts, compactor, looks) = (false, false, true);
        let (replaces, together) = (false, true);
        let (restores, lets_go, passes, forgets) = (false, false, false, false);
        Ingesting {
            rules,
            drivers,
            writers,
            aborts,
            compactor,
            restores,
            lets_go,
            passes,
            forgets,
            rounds,
            late,
            looks,
            replaces,
            together,
        }
    }

    #[test]
    fn a_job_is_taken_in_once_and_nothing_of_it_is_lost() {
        let base = || model(Rules::ALL);
        let restored = || Ingesting { restores: true, drivers: 0, ..base() };
        let forgotten = || Ingesting { passes: true, forgets: true, drivers: 2, ..base() };
        let all = [
            ("repeated", Ingesting { drivers: 2, compactor: true, rounds: 2, ..base() }),
            ("two writers", Ingesting { writers: 2, late: 1, ..base() }),
            ("aborted", Ingesting { aborts: true, late: 1, compactor: true, ..base() }),
            ("late", Ingesting { drivers: 2, late: 2, compactor: true, ..base() }),
            ("replaces", Ingesting { replaces: true, drivers: 2, compactor: true, ..base() }),
            ("restored", Ingesting { compactor: true, ..restored() }),
            ("restored late", Ingesting { late: 1, rounds: 0, ..restored() }),
            ("restored and repeated", Ingesting { drivers: 1, rounds: 0, ..restored() }),
            ("restored beside two", Ingesting { writers: 2, rounds: 0, ..restored() }),
            ("let go of", Ingesting { lets_go: true, ..restored() }),
            (
                "passed",
                Ingesting { passes: true, drivers: 2, compactor: true, rounds: 2, ..base() },
            ),
            (
                "passed, aborted",
                Ingesting { passes: true, aborts: true, compactor: true, ..base() },
            ),
            ("passed late", Ingesting { passes: true, late: 1, writers: 2, ..base() }),
            ("forgotten", Ingesting { compactor: true, ..forgotten() }),
            ("forgotten, aborted", Ingesting { aborts: true, drivers: 1, ..forgotten() }),
            ("replaced by two", Ingesting { replaces: true, writers: 2, late: 1, ..base() }),
        ];
        for (name, model) in all {
            let report = search(&model, 400_000);
            let stopped = if report.complete { "" } else { " (stopped)" };
            println!("ingest, {name}: {} states, depth {}{stopped}", report.states, report.depth);
            if let Some(violation) = report.violation {
                panic!("{name}: {}\n{}", violation.what, violation.trace.join("\n"));
            }
        }
    }

    #[test]
    fn each_rule_of_ingest_dropped_is_found_out() {
        for rule in DROPPED {
            let base = model(Rules::ALL.without(rule));
            let model = match rule {
                Rule::RememberIngests => {
                    Ingesting { drivers: 2, compactor: true, rounds: 0, ..base }
                }
                Rule::RequestAboveHorizon => Ingesting { drivers: 2, compactor: true, ..base },
                Rule::WithdrawUnrequested => Ingesting { aborts: true, rounds: 0, ..base },
                Rule::WithdrawUnpassed => {
                    Ingesting { passes: true, aborts: true, rounds: 0, ..base }
                }
                Rule::RefuseForgotten => {
                    Ingesting { passes: true, forgets: true, drivers: 2, rounds: 0, ..base }
                }
                Rule::OriginStays => Ingesting { passes: true, compactor: true, ..base },
                Rule::AdoptOnce => Ingesting { rounds: 0, ..base },
                Rule::TakeIngestsOver => {
                    Ingesting { restores: true, drivers: 0, rounds: 0, ..base }
                }
                _ => base,
            };
            let found = search(&model, 2_000_000).violation;
            let found = found.unwrap_or_else(|| panic!("{rule:?} dropped and not found out"));
            println!("{rule:?}: trace of {}: {}", found.trace.len(), found.what);
        }
    }

    /// P5: the delete in V, the rows in V+1: V reads empty.
    #[test]
    fn a_delete_ahead_of_what_replaces_it_is_found_out() {
        let model = Ingesting { replaces: true, together: false, rounds: 0, ..model(Rules::ALL) };
        let found = search(&model, 2_000_000).violation.expect("found out");
        assert!(found.what.starts_with("P5"), "{}", found.what);
    }

    /// N8: J is adopted, its object is collected; a sleeping abort lands there.
    #[test]
    fn an_abort_that_does_not_look_is_found_out() {
        let model = Ingesting { aborts: true, looks: false, compactor: true, ..model(Rules::ALL) };
        let found = search(&model, 2_000_000).violation.expect("found out");
        assert!(found.what.starts_with("N8"), "{}", found.what);
    }
}
