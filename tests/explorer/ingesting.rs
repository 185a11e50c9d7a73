//! An ingest job (RFC 0035, rules N8 to N13): every interleaving of two drivers that close and
//! request one job, an abort, two writers that adopt, install and replay, a compactor, and a
//! collector whose clock has passed the job's deadline; with creates that land late. Also a
//! checkpoint that becomes the current state again, and a later version of the job's application.

mod carrying;
mod collecting;
mod driving;
mod passing;
mod room;
#[cfg(test)]
mod tests;
mod writing;

use crate::search::Model;
use carrying::Restoring;
use collecting::Collecting;
use driving::{Aborting, Driving};
pub(crate) use room::table;
use room::{Late, Room};
use siltstone_base::{AttemptId, DatabaseId, Epoch, JobId, SstId, UnixMillis, WalId};
use siltstone_manifest::protocol::{
    CommitAction, ManifestRequest, OpenAction, OpenWriter, WalSeen, WriterOptions,
};
use siltstone_manifest::{Manifest, Rule, Rules, Settings};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use writing::Writing;

const DATABASE: DatabaseId = DatabaseId(1);
/// Its deadline is moment 1; the collector's clock shows 9.
const JOB: JobId = JobId(1 << 80);
const NOW: UnixMillis = UnixMillis(9);
/// The table that the job staged, and the table that a compaction makes of it.
const STAGED: SstId = SstId(14);
const MERGED: SstId = SstId(15);
/// The table that deletes the range that the job replaces.
const DELETES: SstId = SstId(13);

/// The rules that this model tests.
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

/// The explored model.
pub(crate) struct Ingesting {
    rules: Rules,
    drivers: usize,
    writers: usize,
    aborts: bool,
    compactor: bool,
    /// A checkpoint is made and restored. The job is requested already.
    restores: bool,
    /// The checkpoint is also deleted.
    lets_go: bool,
    /// The job is a version of an application, and a later one is requested. Deadlines are far.
    passes: bool,
    /// The application is also forgotten.
    forgets: bool,
    rounds: u8,
    late: u8,
    /// N8: an abort that created its object reads the manifest before it reports that.
    looks: bool,
    /// The job replaces the existing data.
    replaces: bool,
    /// P5: by its own layer, which is installed with the others.
    together: bool,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Actor {
    Driver(Driving),
    Abort(Aborting),
    Writer(Writing),
    Compactor,
    /// The creator of a checkpoint has walked to this id.
    Keeper(WalId),
    Restorer(Restoring),
    Remover,
    /// The creator of a checkpoint has not begun.
    Keeps,
    /// The process that requests a later version.
    Passer,
    Forgetter,
    Collector {
        rounds: u8,
        doing: Collecting,
    },
    Gone,
}

impl Ingesting {
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

/// The request that may land after its sender died.
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
            // The first writer has opened before anything else begins.
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
            return Some("N11: the staged table of the job can never be judged".to_owned());
        }
        // Unchanged, or merged: a restore brings back data that existed.
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
        Actor::Keeps => "the creator of a checkpoint walks the log",
        Actor::Keeper(_) => "the checkpoint is made",
        Actor::Remover => "the checkpoint is deleted",
        Actor::Passer => "a later version is requested",
        Actor::Forgetter => "the application is forgotten",
        Actor::Restorer(Restoring::Look) => "restorer looks",
        Actor::Restorer(Restoring::Open(..)) => "restorer opens",
        Actor::Restorer(Restoring::Commit(..)) => "restorer commits",
        Actor::Collector { doing: Collecting::Nothing, .. } => "collector lists",
        Actor::Collector { doing: Collecting::Horizon(..), .. } => "collector moves the horizon",
        Actor::Collector { doing: Collecting::Listed(_), .. } => "collector judges",
        Actor::Collector { doing: Collecting::Delete(_), .. } => "collector deletes",
        Actor::Gone => "an ended process",
    }
}
