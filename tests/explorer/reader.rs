//! A reader that follows the database without a checkpoint.

use crate::actor::{Actor, Call, manifest_steps};
use crate::step::{Step, What};
use crate::world::{Out, Record, Store, World};
use siltstone_base::WalId;
use siltstone_manifest::protocol::{Failure, Follow, FollowAction, FollowEvent};
use siltstone_manifest::{Manifest, Rules};
use std::sync::Arc;

const ROLE: &str = "reader";
/// One poll in this many is a listing.
const LIST_EVERY: u32 = 2;

/// A reader.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Reader {
    polls: u8,
    /// Whether its polls are thorough, as in the engine's explicit refresh.
    thorough: bool,
    /// The rows acknowledged before it began, or began to refresh: it must have them when it is
    /// done.
    promised: Promised,
    machine: Follow,
    /// The state whose tables it reads.
    state: Option<Arc<Manifest>>,
    /// WAL records to apply, in order.
    applied: Vec<Record>,
    /// Bodies that were read and not applied yet.
    bodies: Vec<(WalId, Record)>,
}

/// The rows that a running walk must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Promised {
    /// The rows acknowledged when its first request is sent.
    ToBegin,
    /// This many records.
    Records(usize),
    /// Any rows.
    Nothing,
}

impl Reader {
    /// A reader with cheap polls: a listing now and then.
    pub(crate) fn actor(polls: u8, rules: Rules) -> Actor {
        Reader::that(polls, false, rules)
    }

    /// A reader whose every poll keeps the guarantee of an explicit refresh.
    pub(crate) fn refreshing(polls: u8, rules: Rules) -> Actor {
        Reader::that(polls, true, rules)
    }

    fn that(polls: u8, thorough: bool, rules: Rules) -> Actor {
        Actor::Reader(Reader {
            polls,
            thorough,
            promised: Promised::ToBegin,
            machine: Follow::new(LIST_EVERY, rules),
            state: None,
            applied: Vec::new(),
            bodies: Vec::new(),
        })
    }

    pub(crate) fn steps(&self, world: &World, me: usize, out: &mut Out) {
        match self.machine.action() {
            FollowAction::Request(request) => {
                manifest_steps(world, (me, ROLE), &request, Call::Send, out, |next, answer| {
                    on(next, me, |reader, world| {
                        reader.begin(world);
                        if let Ok(answer) = answer {
                            let events = reader.machine.on_answer(answer);
                            reader.take(world, events);
                        }
                    });
                });
            }
            FollowAction::ReadWal(id) => {
                let (what, _) = world.store.wal(id);
                world.then(out, Step::of(me, ROLE, What::ReadsWal(id, what)), |next| {
                    on(next, me, |reader, world| reader.read_wal(world, id));
                });
            }
            FollowAction::ListWal(after) => {
                let listing = world.store.wal_listing(after);
                let what = What::ListsWal(after, listing.boundary);
                world.then(out, Step::of(me, ROLE, what), |next| {
                    on(next, me, |reader, world| {
                        let events = reader.machine.on_wal_listing(listing);
                        reader.take(world, events);
                    });
                });
            }
            FollowAction::ReadWalBoundary => {
                let boundary = world.store.wal_boundary();
                world.then(out, Step::of(me, ROLE, What::ListsWalBoundary(boundary)), |next| {
                    on(next, me, |reader, world| {
                        let events = reader.machine.on_wal_boundary(boundary);
                        reader.take(world, events);
                    });
                });
            }
            FollowAction::Idle | FollowAction::Failed(Failure::Hole(_)) if self.polls > 0 => {
                world.then(out, Step::of(me, ROLE, What::Polls), |next| {
                    on(next, me, |reader, world| {
                        reader.polls -= 1;
                        if reader.thorough {
                            reader.promised = Promised::Records(world.ghost.acknowledged());
                            reader.machine.poll_thoroughly();
                        } else {
                            reader.machine.poll(false);
                        }
                    });
                });
            }
            FollowAction::Idle | FollowAction::Failed(_) => {}
        }
    }

    /// Its first request is sent.
    fn begin(&mut self, world: &World) {
        if self.promised == Promised::ToBegin {
            self.promised = Promised::Records(world.ghost.acknowledged());
        }
    }

    /// A walk has ended: checks that it has everything that was durable before it began.
    fn ends_walk(&mut self, world: &mut World) {
        let Promised::Records(promised) = self.promised else { return };
        self.promised = Promised::Nothing;
        let serves = self.view(world).len();
        // If an outsider deletes objects at the end of the log, nothing may prove that.
        if serves < promised && world.ghost.is_whole() {
            world.break_if(Some(format!(
                "M4: {promised} records were acknowledged before a reader began to look, and it \
                 ends with {serves}"
            )));
        }
    }

    /// The rows that it serves: tables, then the WAL records above them.
    pub(crate) fn view(&self, world: &World) -> Vec<Record> {
        self.state.as_ref().map_or_else(Vec::new, |state| world.ghost.merged(state, &self.applied))
    }

    /// Whether it eventually serves the acknowledged rows, or reports why it cannot, if no other
    /// process runs.
    pub(crate) fn catches_up(&self, world: &World) -> bool {
        let mut reader = self.clone();
        let mut scratch = world.clone();
        for _ in 0..=LIST_EVERY {
            reader.machine.poll(false);
            while reader.step_alone(&mut scratch) {}
        }
        let told = matches!(reader.machine.action(), FollowAction::Failed(Failure::Hole(_)));
        let wrong = scratch.broken.is_some();
        !wrong && (told || reader.view(world).len() >= world.ghost.acknowledged())
    }

    /// One step without other processes; returns whether there was one.
    fn step_alone(&mut self, world: &mut World) -> bool {
        match self.machine.action() {
            FollowAction::Request(request) => {
                let Some(answer) = world.store.answer(&request) else { return false };
                let events = self.machine.on_answer(answer);
                self.take(world, events);
            }
            FollowAction::ReadWal(id) => self.read_wal(world, id),
            FollowAction::ListWal(after) => {
                let events = self.machine.on_wal_listing(Store::wal_listing(&world.store, after));
                self.take(world, events);
            }
            FollowAction::ReadWalBoundary => {
                let events = self.machine.on_wal_boundary(world.store.wal_boundary());
                self.take(world, events);
            }
            FollowAction::Idle | FollowAction::Failed(_) => return false,
        }
        true
    }

    fn read_wal(&mut self, world: &mut World, id: WalId) {
        let (what, record) = world.store.wal(id);
        if let Some(record) = record {
            self.bodies.retain(|(met, _)| *met != id);
            self.bodies.push((id, record));
        }
        let events = self.machine.on_wal(what);
        self.take(world, events);
    }

    fn take(&mut self, world: &mut World, events: Vec<FollowEvent>) {
        for event in events {
            match event {
                FollowEvent::Newer(state) => {
                    self.state = Some(state);
                }
                FollowEvent::StartAgain(state) => {
                    self.applied.clear();
                    self.state = Some(state);
                }
                FollowEvent::Apply(ids) => {
                    for id in ids {
                        let body = self.bodies.iter().find(|(met, _)| *met == id);
                        self.applied.extend(body.map(|(_, record)| *record));
                    }
                }
            }
        }
        if !matches!(
            self.machine.action(),
            FollowAction::ReadWal(_) | FollowAction::ListWal(_) | FollowAction::ReadWalBoundary
        ) {
            self.bodies.clear();
        }
        match self.machine.action() {
            FollowAction::Failed(failure) => {
                let problem = world.ghost.edit().failed(failure);
                world.break_if(problem);
                self.promised = Promised::Nothing;
            }
            FollowAction::Idle => self.ends_walk(world),
            _ => {}
        }
        if let Some(state) = &self.state {
            let believed = world.ghost.believed(state);
            world.break_if(believed);
        }
    }
}

fn on(world: &mut World, me: usize, change: impl FnOnce(&mut Reader, &mut World)) {
    let Some(Actor::Reader(mut reader)) = world.actors.get(me).map(|actor| (**actor).clone())
    else {
        return;
    };
    change(&mut reader, world);
    if let Some(actor) = world.actor(me) {
        *actor = Actor::Reader(reader);
    }
}
