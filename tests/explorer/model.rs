//! The model for the search: every step of every process, and the invariants.

use crate::actor::Actor;
use crate::ghost::told;
use crate::search::Model;
use crate::step::Step;
use crate::world::{Faults, Out, Tags, World};
use crate::writer::hole;
use siltstone_base::DatabaseId;
use siltstone_manifest::{Checkpoint, CheckpointOwner, Manifest, Rules, Settings};

/// A configuration: processes, faults, rules in force.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// Its name.
    pub(crate) name: &'static str,
    /// Rules in force.
    pub(crate) rules: Rules,
    /// Processes.
    pub(crate) actors: Vec<Actor>,
    /// The possible faults, and how often each may occur.
    pub(crate) faults: Faults,
    /// The tags of the store.
    pub(crate) tags: Tags,
    /// Steps before the search begins: only the end of a long story is explored.
    pub(crate) prelude: &'static [Go],
}

/// A part of a prelude.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Go {
    /// The process takes this many steps, each without a fault.
    Steps(usize, usize),
    /// The collector performs a whole round.
    Round(usize),
    /// The process crashes.
    Crash(usize),
}

impl Config {
    fn play(&self, world: World) -> World {
        self.prelude.iter().fold(world, |world, go| match *go {
            Go::Steps(me, count) => (0..count).fold(world, |world, _| one(world, me, false)),
            Go::Round(me) => round(world, me),
            Go::Crash(me) => one(world, me, true),
        })
    }
}

/// The world after a round of the collector `me`.
fn round(world: World, me: usize) -> World {
    let works = |world: &World| {
        let actor = world.actors.get(me).map(|actor| &**actor);
        matches!(actor, Some(Actor::Collector(collector)) if collector.works())
    };
    let mut world = one(world, me, false);
    while works(&world) {
        world = one(world, me, false);
    }
    world
}

/// The world after a step of process `me`: its first, the plain one, or its last, a crash.
fn one(world: World, me: usize, last: bool) -> World {
    let mut steps = Vec::new();
    if let Some(actor) = world.actors.get(me) {
        actor.steps(&world, me, &mut steps);
    }
    let chosen = if last { steps.pop() } else { steps.into_iter().next() };
    chosen.map_or(world, |(_, next)| next)
}

impl Model for Config {
    type State = World;
    type Step = Step;

    fn initial(&self) -> World {
        let first = Manifest::new_database(DatabaseId(1), Settings::default());
        let world = World::new(self.rules, first, self.actors.clone(), self.faults);
        self.play(world.with_tags(self.tags))
    }

    fn fingerprint(&self, state: &World) -> u64 {
        state.fingerprint()
    }

    fn steps(&self, state: &World, out: &mut Out) {
        for (me, actor) in state.actors.iter().enumerate() {
            actor.steps(state, me, out);
        }
        state.network_steps(out);
        state.outsider_steps(out);
    }

    fn violation(&self, state: &World) -> Option<String> {
        let there = || state.actors.iter().filter(|_| !state.ghost.gone);
        let hole = || there().find_map(|actor| hole(state, actor));
        let broken = state.broken.clone().or_else(hole);
        broken.or_else(|| wrong_view(state)).or_else(|| left_by_an_older_writer(state))
    }
}

/// The same, in search of a process that ends because an outsider deleted an object that it needs.
pub(crate) struct Told<'a>(pub(crate) &'a Config);

impl Model for Told<'_> {
    type State = World;
    type Step = Step;

    fn initial(&self) -> World {
        self.0.initial()
    }

    fn fingerprint(&self, state: &World) -> u64 {
        state.fingerprint()
    }

    fn steps(&self, state: &World, out: &mut Out) {
        self.0.steps(state, out);
    }

    fn violation(&self, state: &World) -> Option<String> {
        state.ghost.told.then(|| "the hole is told".to_owned())
    }
}

/// A reader that serves rows which are not a prefix of the history, or that never catches up.
fn wrong_view(world: &World) -> Option<String> {
    if world.ghost.gone {
        // There are no guarantees for a deleted database.
        return None;
    }
    for (me, actor) in world.actors.iter().enumerate() {
        let view = match &**actor {
            Actor::Reader(reader) => reader.view(world),
            Actor::Pinner(pinner) => pinner.view().to_vec(),
            _ => continue,
        };
        if !world.ghost.is_history(&view) {
            let view = told(view.iter().copied());
            return Some(format!(
                "I2, I4: reader {me} serves {view}, which recovery does not keep"
            ));
        }
    }
    let settled = |actor: &Actor| matches!(actor, Actor::Gone | Actor::Reader(_));
    if world.network.is_empty() && world.actors.iter().all(|actor| settled(actor)) {
        for (me, actor) in world.actors.iter().enumerate() {
            if let Actor::Reader(reader) = &**actor
                && !reader.catches_up(world)
            {
                return Some(format!("M4: reader {me} never sees all that was acknowledged"));
            }
        }
    }
    None
}

/// Rules R2, C1: only the newest writer's names are reserved, and only its checkpoints are present.
fn left_by_an_older_writer(world: &World) -> Option<String> {
    let owner = |name: &siltstone_base::SstId| name.get() / 16;
    let mut owners: Vec<u128> = world.ghost.tip.reserved.iter().map(owner).collect();
    owners.dedup();
    if owners.len() > 1 {
        return Some("R2: names of an older writer are still reserved".to_owned());
    }
    let older = |one: &Checkpoint| match one.owner {
        CheckpointOwner::Writer(epoch) => epoch < world.ghost.tip.writer_epoch,
        _ => false,
    };
    let piled = world.ghost.tip.checkpoints.iter().any(older);
    piled.then(|| "C1: a checkpoint of an older writer is still present".to_owned())
}
