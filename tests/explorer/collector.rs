//! A garbage collector: rounds of the real `Collect` step function. Like the engine's, it reuses
//! facts that its earlier rounds have proven.
//!
//! A *piecemeal* collector performs in several steps what others do in one: it lists folder after
//! folder, and the deletes of a batch take effect in any order. The engine sends both concurrently.

use crate::actor::{
    Actor, Call, Create, Progress, crash, manifest_object, manifest_steps, without,
};
use crate::jobs::record_steps;
use crate::step::{Step, What};
use crate::world::{Faults, Object, Out, Pending, World};
use siltstone_base::{ObjectName, UnixMillis};
use siltstone_manifest::gc::ListedObject;
use siltstone_manifest::protocol::{Collect, CollectAction, ManifestRequest, ProvenManifests};

const ROLE: &str = "collector";

/// The collector's clock: later than every expiry.
const NOW: UnixMillis = UnixMillis(1_000);

/// A collector.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Collector {
    rounds: u8,
    piecemeal: bool,
    round: Option<Round>,
    /// Facts proven by the last round.
    known: ProvenManifests,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Round {
    machine: Collect,
    call: Call,
    /// Folders that are already listed, with their objects.
    folders: Vec<Folder>,
    listed: Vec<ListedObject>,
    /// For each object of the current batch: whether it is deleted, or could not be deleted;
    /// `None`: not yet.
    gone: Vec<Option<bool>>,
}

/// A unit of one listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Folder {
    Manifests,
    Wal,
    Tables,
    Records,
}

impl Folder {
    const EVERY: [Folder; 4] = [Folder::Manifests, Folder::Wal, Folder::Tables, Folder::Records];

    fn of(name: ObjectName) -> Folder {
        match name {
            ObjectName::Manifest(_) | ObjectName::ManifestBoundary(_) => Folder::Manifests,
            ObjectName::Wal(_) | ObjectName::WalBoundary(_) => Folder::Wal,
            ObjectName::Compactions(_) | ObjectName::CompactionsBoundary(_) => Folder::Records,
            _ => Folder::Tables,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Folder::Manifests => "manifests",
            Folder::Wal => "WAL",
            Folder::Tables => "tables",
            Folder::Records => "job records",
        }
    }
}

impl Collector {
    pub(crate) fn actor(rounds: u8) -> Actor {
        Collector::that(rounds, false)
    }

    /// A collector that lists folder after folder, and deletes a batch in any order.
    pub(crate) fn piecemeal(rounds: u8) -> Actor {
        Collector::that(rounds, true)
    }

    fn that(rounds: u8, piecemeal: bool) -> Actor {
        let known = ProvenManifests::default();
        Actor::Collector(Box::new(Collector { rounds, piecemeal, round: None, known }))
    }

    /// Whether a round is running.
    pub(crate) fn works(&self) -> bool {
        self.round.is_some()
    }

    pub(crate) fn steps(&self, world: &World, me: usize, out: &mut Out) {
        let Some(round) = &self.round else {
            if self.rounds > 0 {
                self.start(world, me, out);
            }
            return;
        };
        let call = &round.call;
        let mut sent = Vec::new();
        match round.machine.action() {
            CollectAction::Request(request) => {
                if let (ManifestRequest::Create(state), Call::Send) = (&request, call) {
                    sent.push(manifest_object(me, state));
                }
                manifest_steps(world, (me, ROLE), &request, *call, out, |next, answer| {
                    on_round(next, me, |round, call| match answer {
                        Err(to) => *call = to,
                        Ok(answer) => {
                            *call = Call::Send;
                            round.machine.on_answer(answer);
                        }
                    });
                });
            }
            // There are no applications in this world.
            CollectAction::ReadJobs(_) => {}
            CollectAction::ListObjects if self.piecemeal => list(world, me, round, out),
            CollectAction::ListObjects => {
                let listed = world.store.listed();
                world.then(out, Step::of(me, ROLE, What::ListsObjects), |next| {
                    on_round(next, me, |round, _| round.machine.on_objects(listed));
                });
            }
            CollectAction::Record(request) => {
                record_steps(world, (me, ROLE), &request, *call, out, |next, answer| {
                    on_round(next, me, |round, _| {
                        if let Ok(answer) = answer {
                            round.machine.on_record(answer);
                        }
                    });
                });
            }
            CollectAction::CreateBoundary(name) => {
                let create = Create { me, role: ROLE, name, object: Object::Boundary };
                create.steps(world, *call, out, |next, progress| {
                    on_round(next, me, |round, call| match progress {
                        Progress::Call(to) => *call = to,
                        Progress::Outcome(outcome) => {
                            *call = Call::Send;
                            round.machine.on_boundary(without(outcome));
                        }
                    });
                });
            }
            CollectAction::Delete(names) => {
                let one = |at: &usize| round.gone.get(*at).is_none_or(Option::is_none);
                let left = (0..names.len()).filter(one);
                let batch = if self.piecemeal { names.len() } else { 1 };
                for at in left.take(batch) {
                    names.get(at).into_iter().for_each(|name| {
                        delete(world, me, (*name, at, batch), out);
                    });
                }
            }
            CollectAction::Done(_) => {}
        }
        crash(world, (me, ROLE), &sent, out);
    }

    fn start(&self, world: &World, me: usize, out: &mut Out) {
        let machine = Collect::new(world.ghost.tip.clone(), NOW, NOW, world.rules);
        let machine = machine.knowing(self.known.clone());
        world.then(out, Step::of(me, ROLE, What::Starts), |next| {
            on(next, me, |collector| {
                let (folders, listed, gone) = (Vec::new(), Vec::new(), Vec::new());
                collector.rounds -= 1;
                collector.known = ProvenManifests::default();
                let call = Call::Send;
                collector.round = Some(Round { machine, call, folders, listed, gone });
            });
        });
    }
}

/// Lists one of the remaining folders.
fn list(world: &World, me: usize, round: &Round, out: &mut Out) {
    for folder in Folder::EVERY.into_iter().filter(|folder| !round.folders.contains(folder)) {
        let mut listed = world.store.listed();
        listed.retain(|object| Folder::of(object.name) == folder);
        world.then(out, Step::of(me, ROLE, What::ListsFolder(folder)), |next| {
            on(next, me, |collector| {
                let Some(round) = &mut collector.round else { return };
                round.folders.push(folder);
                round.folders.sort();
                round.listed.extend(listed);
                round.listed.sort_by_key(|object| object.name);
                if round.folders.len() == Folder::EVERY.len() {
                    round.machine.on_objects(std::mem::take(&mut round.listed));
                    round.folders.clear();
                }
            });
        });
    }
}

/// Deletes a name, given its position in a batch and the size of the batch.
fn delete(world: &World, me: usize, (name, at, batch): (ObjectName, usize, usize), out: &mut Out) {
    let left = world.faults;
    let ends = |next: &mut World, gone: bool| {
        on_round(next, me, |round, _| round.ends(at, batch, gone));
    };
    world.then(out, Step::of(me, ROLE, What::Deletes(name, true)), |next| {
        next.delete(name);
        ends(next, true);
    });
    if left.refused > 0 {
        world.then(out, Step::of(me, ROLE, What::Deletes(name, false)), |next| {
            next.faults = Faults { refused: left.refused - 1, ..left };
            ends(next, false);
        });
    }
    if left.late > 0 {
        world.then(out, Step::of(me, ROLE, What::DeleteOnItsWay(name)), |next| {
            next.faults = Faults { late: left.late - 1, ..left };
            next.post(Pending::Delete(name));
            ends(next, false);
        });
    }
}

impl Round {
    /// A delete of the batch ended; the last one ends the batch.
    fn ends(&mut self, at: usize, batch: usize, gone: bool) {
        self.gone.resize(batch, None);
        if let Some(place) = self.gone.get_mut(at) {
            *place = Some(gone);
        }
        let all: Option<Vec<bool>> = self.gone.iter().copied().collect();
        if let Some(all) = all {
            self.gone.clear();
            self.machine.on_deleted(&all);
        }
    }
}

fn on(world: &mut World, me: usize, change: impl FnOnce(&mut Collector)) {
    if let Some(Actor::Collector(collector)) = world.actor(me) {
        change(collector);
    }
}

fn on_round(world: &mut World, me: usize, change: impl FnOnce(&mut Round, &mut Call)) {
    let Some(Actor::Collector(collector)) = world.actor(me) else { return };
    let Some(mut round) = collector.round.take() else { return };
    let mut call = round.call;
    change(&mut round, &mut call);
    round.call = call;
    if !matches!(round.machine.action(), CollectAction::Done(_)) {
        collector.round = Some(round);
    } else if collector.rounds > 0 {
        collector.known = round.machine.into_known();
    } else if let Some(actor) = world.actor(me) {
        *actor = Actor::Gone;
    }
}
