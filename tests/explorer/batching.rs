//! A large batch (RFC 0044, rule N15): every interleaving of a writer that reserves a name, uploads
//! under it, puts it into the log and installs it, of two writers that take over, replay and
//! install, and of a collector; with uploads, records and commits that land late.

use crate::chain::{self, Chain};
use crate::ingesting::table;
use crate::search::Model;
use siltstone_base::{
    AttemptId, DatabaseId, Epoch, ManifestId, ObjectName, PutOutcome, Seq, SstDescriptor, SstId,
    UnixMillis, WalId,
};
use siltstone_manifest::gc::{Evidence, ListedObject, dead};
use siltstone_manifest::protocol::{
    Commit, CommitAction, ManifestAnswer, ManifestRequest, OpenAction, OpenWriter, Recovered,
    WalListing, WalSeen, WriterOptions,
};
use siltstone_manifest::{
    Edit, FlushL0, InstallBatch, KeptFence, Manifest, ReserveBatch, Rule, Rules, Settings,
    to_let_go,
};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

const DATABASE: DatabaseId = DatabaseId(1);
/// The collector's clock: every object is old enough for it.
const NOW: UnixMillis = UnixMillis(9);
/// The table of the batch, and its number.
const TABLE: SstId = SstId(14);
const SEQ: Seq = Seq(1);

/// The rules that this model tests.
pub(crate) const DROPPED: [Rule; 3] = [Rule::KeepLeft, Rule::HonourLeft, Rule::LeftUntilReplayed];

/// The explored model.
pub(crate) struct Batching {
    rules: Rules,
    writers: usize,
    rounds: u8,
    late: u8,
    /// R1: the name is reserved before the upload.
    reserves: bool,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Actor {
    Writer(Writing),
    Collector { rounds: u8, doing: Collecting },
    Gone,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Writing {
    Reserve(Box<Running>, Commit),
    Upload(Box<Running>),
    Send(Box<Running>),
    Open(Box<OpenWriter>),
    /// A commit that installs nothing, for example of its pins.
    Idle(Box<Running>, Commit),
    Install(Box<Running>, Commit),
}

/// A writer that has replayed.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Running {
    claimed: Arc<Manifest>,
    known: Arc<Manifest>,
    epoch: Epoch,
    fence: KeptFence,
    fences: Vec<KeptFence>,
    /// The position of the batch in the log, once it is there.
    queued: Option<WalId>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Collecting {
    Nothing,
    Listed(Vec<ListedObject>),
    Delete(Vec<ObjectName>),
}

/// A request that lands after its sender died.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Late {
    Manifest(Arc<Manifest>),
    Upload,
    Wal(WalId, Epoch),
}

/// One state.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Room {
    manifests: Chain,
    /// Objects of the log, and whether they contain the batch.
    wal: BTreeMap<WalId, (WalSeen, bool)>,
    uploaded: bool,
    acknowledged: bool,
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

    fn create(&mut self, id: WalId, object: (WalSeen, bool)) -> PutOutcome<WalSeen> {
        match self.wal.get(&id) {
            Some(there) if *there == object => PutOutcome::Committed,
            Some((there, _)) => PutOutcome::Lost(*there),
            None => {
                self.wal.insert(id, object);
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
                let outcome = self.create(fence.id, (object, false));
                open.on_fence(outcome);
            }
            OpenAction::Done(_) | OpenAction::Failed(_) => {}
        }
        matches!(open.action(), OpenAction::Done(_) | OpenAction::Failed(_))
    }

    fn breaks(&mut self, what: &'static str) {
        self.broken.get_or_insert(what);
    }

    /// A writer that takes over restores acknowledged data, completely.
    fn replay(&mut self, recovered: &Recovered) -> Running {
        let known = Arc::clone(&recovered.manifest);
        let holds = |id: &WalId| self.wal.get(id).is_some_and(|(_, holds)| *holds);
        let mut met = recovered.replay.iter().map(|(id, _)| *id).filter(holds);
        let queued = met.next().filter(|_| known.flushed_seq < SEQ);
        if queued.is_some() && !self.uploaded {
            self.breaks("N15: what the log names was collected");
        }
        if self.acknowledged && known.flushed_seq < SEQ && queued.is_none() {
            self.breaks("N15: what was acknowledged is gone");
        }
        Running {
            claimed: Arc::clone(&known),
            known,
            epoch: recovered.epoch,
            fence: recovered.fence,
            fences: recovered.fences(),
            queued,
        }
    }

    fn listed(&self) -> Vec<ListedObject> {
        let name = ObjectName::Compacted(TABLE);
        let listed = ListedObject { name, modified: UnixMillis(0), bytes: 1 };
        if self.uploaded { vec![listed] } else { Vec::new() }
    }
}

fn numbered() -> Vec<SstDescriptor> {
    vec![SstDescriptor { seq_override: Some(SEQ), ..table(TABLE, None) }]
}

impl Batching {
    fn write(&self, room: &mut Room, writing: Writing) -> Actor {
        match writing {
            Writing::Open(mut open) => match room.step_open(&mut open) {
                false => Actor::Writer(Writing::Open(open)),
                true => match open.action() {
                    OpenAction::Done(recovered) => {
                        let running = room.replay(&recovered);
                        self.idle(running)
                    }
                    _ => Actor::Gone,
                },
            },
            Writing::Reserve(mut running, mut commit) => match commit.action() {
                CommitAction::Request(request) => {
                    commit.on_answer(room.serve(request));
                    Actor::Writer(Writing::Reserve(running, commit))
                }
                CommitAction::Done(state) => {
                    running.known = state;
                    Actor::Writer(Writing::Upload(running))
                }
                CommitAction::Failed(_) => Actor::Gone,
            },
            Writing::Upload(running) => {
                room.uploaded = true;
                Actor::Writer(Writing::Send(running))
            }
            Writing::Send(mut running) => {
                let id = running.fence.next_id;
                let data = WalSeen::Data { epoch: running.epoch, durable: id.minus(1) };
                if room.create(id, (data, true)) != PutOutcome::Committed {
                    return Actor::Gone;
                }
                room.acknowledged = true;
                running.queued = Some(id);
                self.install(running)
            }
            Writing::Idle(mut running, mut commit) => match commit.action() {
                CommitAction::Request(request) => {
                    commit.on_answer(room.serve(request));
                    Actor::Writer(Writing::Idle(running, commit))
                }
                CommitAction::Done(state) => {
                    running.known = state;
                    self.install(running)
                }
                CommitAction::Failed(_) => Actor::Gone,
            },
            Writing::Install(running, mut commit) => match commit.action() {
                CommitAction::Request(request) => {
                    commit.on_answer(room.serve(request));
                    Actor::Writer(Writing::Install(running, commit))
                }
                CommitAction::Done(_) => Actor::Gone,
                CommitAction::Failed(_) => {
                    if room.newest().writer_epoch == running.epoch {
                        room.breaks("N15: a batch that is in the log cannot be installed");
                    }
                    Actor::Gone
                }
            },
        }
    }

    fn idle(&self, running: Running) -> Actor {
        let known = &running.known;
        let nothing = FlushL0::nothing(running.epoch, known);
        let let_go =
            to_let_go(&running.claimed.left, &running.fence, known.replay_from, self.rules);
        let edit = Edit::FlushL0(FlushL0 { let_go, fences: running.fences.clone(), ..nothing });
        let commit = Commit::new(edit, Arc::clone(known), self.rules);
        Actor::Writer(Writing::Idle(Box::new(running), commit))
    }

    /// Installs the queued batch, or moves the replay point past the own fence.
    fn install(&self, running: Box<Running>) -> Actor {
        let known = &running.known;
        let nothing = FlushL0::nothing(running.epoch, known);
        let replay_from =
            running.fence.next_id.max(running.queued.map_or(WalId::NONE, WalId::next));
        let let_go = to_let_go(&running.claimed.left, &running.fence, replay_from, self.rules);
        let fences = running.fences.clone();
        let mut flush = FlushL0 { let_go, replay_from, fences, ..nothing };
        if running.queued.is_some() {
            flush.batches = vec![InstallBatch { after: 0, tables: numbered() }];
            flush.flushed_seq = SEQ;
        }
        let commit = Commit::new(Edit::FlushL0(flush), Arc::clone(known), self.rules);
        Actor::Writer(Writing::Install(running, commit))
    }

    /// A round: list, read the newest, delete.
    fn collect(&self, room: &mut Room, rounds: u8, doing: Collecting) -> Actor {
        let doing = match doing {
            Collecting::Nothing if rounds == 0 => return Actor::Gone,
            Collecting::Nothing => {
                let doing = Collecting::Listed(room.listed());
                return Actor::Collector { rounds: rounds - 1, doing };
            }
            Collecting::Listed(listed) => {
                let newest = Some(room.newest());
                let found = Evidence { listed, newest, cutoff: NOW, ..Evidence::default() };
                Collecting::Delete(dead(&found, self.rules).deletes)
            }
            Collecting::Delete(mut names) => {
                if names.pop().is_some() {
                    room.uploaded = false;
                }
                if names.is_empty() { Collecting::Nothing } else { Collecting::Delete(names) }
            }
        };
        Actor::Collector { rounds, doing }
    }

    fn opened(&self, room: &mut Room, writer: usize) -> OpenWriter {
        let options = WriterOptions {
            claim: AttemptId(100 + writer as u128),
            max_parallel_writes: 1,
            take_over: true,
            ..WriterOptions::default()
        };
        OpenWriter::new(options, room.newest(), self.rules)
    }
}

fn set(room: &mut Room, me: usize, actor: Actor) {
    if let Some(slot) = room.actors.get_mut(me) {
        *slot = Arc::new(actor);
    }
}

/// The request that may land after its sender died.
fn under_way(actor: &Actor) -> Option<Late> {
    let commit = match actor {
        Actor::Writer(Writing::Upload(_)) => return Some(Late::Upload),
        Actor::Writer(Writing::Send(running)) => {
            return Some(Late::Wal(running.fence.next_id, running.epoch));
        }
        Actor::Writer(
            Writing::Reserve(_, commit) | Writing::Install(_, commit) | Writing::Idle(_, commit),
        ) => commit,
        _ => return None,
    };
    match commit.action() {
        CommitAction::Request(ManifestRequest::Create(manifest)) => Some(Late::Manifest(manifest)),
        _ => None,
    }
}

impl Model for Batching {
    type State = Room;
    type Step = String;

    fn initial(&self) -> Room {
        let first = Arc::new(Manifest::new_database(DATABASE, Settings::default()));
        let mut room = Room {
            manifests: BTreeMap::from([(first.id, first)]),
            wal: BTreeMap::new(),
            uploaded: false,
            acknowledged: false,
            actors: Vec::new(),
            network: Vec::new(),
            late: self.late,
            broken: None,
        };
        // The first writer has opened before anything else begins.
        let mut open = self.opened(&mut room, 0);
        while !room.step_open(&mut open) {}
        let OpenAction::Done(recovered) = open.action() else { panic!("the writer opens") };
        let running = Box::new(room.replay(&recovered));
        let names = vec![TABLE];
        let reserve =
            Edit::ReserveBatch(ReserveBatch { epoch: running.epoch, names, let_go: Vec::new() });
        let commit = Commit::new(reserve, Arc::clone(&running.known), self.rules);
        let first = match self.reserves {
            true => Writing::Reserve(running, commit),
            false => Writing::Upload(running),
        };
        let mut actors = vec![Actor::Writer(first)];
        for writer in 1..self.writers {
            let open = Box::new(self.opened(&mut room, writer));
            actors.push(Actor::Writer(Writing::Open(open)));
        }
        actors.push(Actor::Collector { rounds: self.rounds, doing: Collecting::Nothing });
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
            let mut next = state.clone();
            let stepped = match Actor::clone(actor) {
                Actor::Gone => continue,
                Actor::Writer(writing) => self.write(&mut next, writing),
                Actor::Collector { rounds, doing } => self.collect(&mut next, rounds, doing),
            };
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
                Late::Upload => {
                    next.uploaded = true;
                    "late: the table".to_owned()
                }
                Late::Wal(id, epoch) => {
                    let data = WalSeen::Data { epoch, durable: id.minus(1) };
                    next.create(id, (data, true));
                    format!("late: INGEST at {id}")
                }
            };
            out.push((told, next));
        }
    }

    fn violation(&self, state: &Room) -> Option<String> {
        let names = |state: &Arc<Manifest>| state.tables().any(|table| table.id == TABLE);
        if names(&state.newest()) && !state.uploaded {
            return Some("N15: a table that the manifest names was collected".to_owned());
        }
        let chain: Vec<bool> = state.manifests.values().map(names).collect();
        if chain.windows(2).filter(|pair| matches!(pair, [false, true])).count() > 1 {
            return Some("N15: a batch is part of the database twice".to_owned());
        }
        state.broken.map(str::to_owned)
    }
}

fn told(actor: &Actor) -> &'static str {
    match actor {
        Actor::Writer(Writing::Reserve(..)) => "writer reserves the name",
        Actor::Writer(Writing::Upload(_)) => "writer uploads",
        Actor::Writer(Writing::Send(_)) => "writer sends INGEST",
        Actor::Writer(Writing::Open(_)) => "writer opens",
        Actor::Writer(Writing::Idle(..)) => "writer commits its pins",
        Actor::Writer(Writing::Install(..)) => "writer installs",
        Actor::Collector { doing: Collecting::Nothing, .. } => "collector lists",
        Actor::Collector { doing: Collecting::Listed(_), .. } => "collector judges",
        Actor::Collector { doing: Collecting::Delete(_), .. } => "collector deletes",
        Actor::Gone => "an ended process",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::search;

    fn model(rules: Rules) -> Batching {
        Batching { rules, writers: 3, rounds: 1, late: 1, reserves: true }
    }

    #[test]
    fn a_large_batch_that_was_acknowledged_is_never_lost() {
        for (rounds, late) in [(1, 2), (2, 1)] {
            let model = Batching { rounds, late, ..model(Rules::ALL) };
            let report = search(&model, 250_000);
            let stopped = if report.complete { "" } else { " (stopped)" };
            println!("batch: {} states, depth {}{stopped}", report.states, report.depth);
            if let Some(violation) = report.violation {
                panic!("{}\n{}", violation.what, violation.trace.join("\n"));
            }
        }
    }

    #[test]
    fn each_rule_of_large_batches_dropped_is_found_out() {
        for rule in DROPPED {
            let found = search(&model(Rules::ALL.without(rule)), 2_000_000).violation;
            let found = found.unwrap_or_else(|| panic!("{rule:?} dropped and not found out"));
            println!("{rule:?}: trace of {}: {}", found.trace.len(), found.what);
        }
    }

    /// R1: x is uploaded and collected, and then the log names it.
    #[test]
    fn a_name_that_is_not_reserved_first_is_found_out() {
        let model = Batching { reserves: false, ..model(Rules::ALL) };
        let found = search(&model, 2_000_000).violation.expect("found out");
        println!("not reserved: trace of {}: {}", found.trace.len(), found.what);
    }
}
