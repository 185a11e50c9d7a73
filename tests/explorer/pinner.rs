//! A reader with a checkpoint: walks, pins what it saw, reads it, refreshes, reads it again.

use crate::actor::{Actor, Call, crash, manifest_object, manifest_steps};
use crate::step::{Step, What};
use crate::world::{Out, Record, World};
use crate::writer::bug;
use siltstone_base::{CheckpointId, UnixMillis, WalId};
use siltstone_manifest::edit::{Edit, NewCheckpoint, Refusal};
use siltstone_manifest::protocol::{
    Commit, CommitAction, Failure, Follow, FollowAction, ManifestAnswer, ManifestRequest,
    PinnedAction, PinnedWalk,
};
use siltstone_manifest::{CheckpointOwner, Manifest};
use std::sync::Arc;

const ROLE: &str = "pinning reader";

/// A reader with a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pinner {
    /// Whether it refreshes the checkpoint, and reads again.
    refresh: bool,
    phase: Phase,
    /// The proven state it goes on from.
    state: Option<Arc<Manifest>>,
    /// What it read last.
    view: Vec<Record>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Waiting,
    Follow(Follow),
    Commit(Commit, Call, bool),
    Walk(PinnedWalk, Vec<(WalId, Record)>, bool),
    Done,
}

fn id(me: usize) -> CheckpointId {
    CheckpointId(me as u128 + 1)
}

impl Pinner {
    pub(crate) fn actor(refresh: bool) -> Actor {
        Actor::Pinner(Pinner { refresh, phase: Phase::Waiting, state: None, view: Vec::new() })
    }

    /// What it serves.
    pub(crate) fn view(&self) -> &[Record] {
        &self.view
    }

    pub(crate) fn steps(&self, world: &World, me: usize, out: &mut Out) {
        let mut sent = Vec::new();
        match &self.phase {
            Phase::Waiting => {
                let follow = Follow::new(2, world.rules);
                world.then(out, Step::of(me, ROLE, What::Starts), |next| {
                    on(next, me, |pinner, _| pinner.phase = Phase::Follow(follow));
                });
            }
            Phase::Follow(follow) => self.follow(world, me, follow, out),
            Phase::Commit(commit, call, _) => {
                let CommitAction::Request(request) = commit.action() else { return };
                if let (ManifestRequest::Create(state), Call::Send) = (&request, call) {
                    sent.push(manifest_object(me, state));
                }
                manifest_steps(world, (me, ROLE), &request, *call, out, |next, answer| {
                    on(next, me, |pinner, world| pinner.on_commit(world, me, answer));
                });
            }
            Phase::Walk(walk, ..) => match walk.action() {
                PinnedAction::ReadWal(at) => {
                    let (what, record) = world.store.wal(at);
                    world.then(out, Step::of(me, ROLE, What::ReadsWal(at, what)), |next| {
                        on(next, me, |pinner, world| {
                            if let Phase::Walk(walk, bodies, _) = &mut pinner.phase {
                                bodies.extend(record.map(|record| (at, record)));
                                walk.on_wal(what);
                            }
                            pinner.on_walked(world, me);
                        });
                    });
                }
                PinnedAction::Request(request) => {
                    manifest_steps(world, (me, ROLE), &request, Call::Send, out, |next, answer| {
                        on(next, me, |pinner, world| {
                            if let (Phase::Walk(walk, ..), Ok(answer)) = (&mut pinner.phase, answer)
                            {
                                walk.on_answer(answer);
                            }
                            pinner.on_walked(world, me);
                        });
                    });
                }
                PinnedAction::Done(_) | PinnedAction::Failed(_) => {}
            },
            Phase::Done => {}
        }
        if !sent.is_empty() {
            crash(world, (me, ROLE), &sent, out);
        }
    }

    fn follow(&self, world: &World, me: usize, follow: &Follow, out: &mut Out) {
        match follow.action() {
            FollowAction::Request(request) => {
                manifest_steps(world, (me, ROLE), &request, Call::Send, out, |next, answer| {
                    on_follow(next, me, |follow| {
                        if let Ok(answer) = answer {
                            follow.on_answer(answer);
                        }
                    });
                });
            }
            FollowAction::ReadWal(at) => {
                let (what, _) = world.store.wal(at);
                world.then(out, Step::of(me, ROLE, What::ReadsWal(at, what)), |next| {
                    on_follow(next, me, |follow| {
                        follow.on_wal(what);
                    });
                    on(next, me, |pinner, world| pinner.followed(world));
                });
            }
            FollowAction::ListWalBoundary => {
                let boundary = world.store.wal_boundary();
                world.then(out, Step::of(me, ROLE, What::ListsWalBoundary(boundary)), |next| {
                    on_follow(next, me, |follow| {
                        follow.on_wal_boundary(boundary);
                    });
                    on(next, me, |pinner, world| pinner.followed(world));
                });
            }
            FollowAction::Idle => {
                let Some(state) = follow.manifest().cloned() else { return };
                let walked = follow.next_wal_id().minus(1);
                let edit = Edit::AddCheckpoint(NewCheckpoint {
                    id: id(me),
                    // Long past for the collector's clock, so that it may be revoked at any time.
                    expires_at: Some(UnixMillis(1)),
                    wal_id_last_seen: Some(walked),
                    owner: CheckpointOwner::Reader,
                    ..NewCheckpoint::default()
                });
                let commit = Commit::new(edit, state, world.rules);
                let step = Step::of(me, ROLE, What::BeginsCommit("a checkpoint"));
                world.then(out, step, |next| {
                    on(next, me, |pinner, _| {
                        pinner.phase = Phase::Commit(commit, Call::Send, pinner.refresh);
                    });
                });
            }
            FollowAction::Failed(_) => {}
        }
    }

    /// Ends when it cannot follow.
    fn followed(&mut self, world: &mut World) {
        if let Phase::Follow(follow) = &self.phase
            && let FollowAction::Failed(failure) = follow.action()
        {
            let problem = world.ghost.edit().failed(failure);
            world.break_if(problem);
            self.phase = Phase::Done;
        }
    }

    fn on_commit(&mut self, world: &mut World, me: usize, answer: Result<ManifestAnswer, Call>) {
        let Phase::Commit(commit, call, again) = &mut self.phase else { return };
        match answer {
            Err(to) => *call = to,
            Ok(answer) => {
                *call = Call::Send;
                commit.on_answer(answer);
            }
        }
        let again = *again;
        match commit.action() {
            CommitAction::Request(_) => {}
            CommitAction::Done(state) => {
                let believed = world.ghost.believed(&state);
                world.break_if(believed);
                // A later state may have settled the commit, and the checkpoint may be gone there.
                self.phase = match state.checkpoint(id(me)) {
                    Some(checkpoint) => {
                        let walk = PinnedWalk::new(checkpoint, world.rules);
                        Phase::Walk(walk, Vec::new(), again)
                    }
                    None => Phase::Done,
                };
                self.state = Some(state);
            }
            CommitAction::Failed(refusal) => {
                world.break_if(bug(refusal));
                self.phase = Phase::Done;
            }
        }
    }

    fn on_walked(&mut self, world: &mut World, me: usize) {
        let Phase::Walk(walk, bodies, again) = &self.phase else { return };
        match walk.action() {
            PinnedAction::ReadWal(_) | PinnedAction::Request(_) => {}
            PinnedAction::Failed(failure) => {
                let present = world.ghost.tip.checkpoint(id(me)).is_some();
                let gone = Failure::Refused(Refusal::Expired { checkpoint: id(me) });
                world.break_if(
                    (present || failure != gone)
                        .then(|| format!("C3: a present checkpoint cannot be read: {failure:?}")),
                );
                self.phase = Phase::Done;
            }
            PinnedAction::Done(ids) => {
                let body = |at: &WalId| bodies.iter().find(|(met, _)| met == at);
                let rows: Vec<Record> =
                    ids.iter().filter_map(body).map(|(_, record)| *record).collect();
                let pinned = world.ghost.tip.checkpoint(id(me)).map(|one| one.manifest_id);
                let state = pinned.and_then(|pinned| world.store.manifest(pinned)).cloned();
                if let Some(state) = state {
                    self.view = world.ghost.merged(&state, &rows);
                }
                self.phase = match (&self.state, *again) {
                    (Some(state), true) => {
                        let edit = Edit::RefreshCheckpoint { id: id(me), expires_at: None };
                        let commit = Commit::new(edit, state.clone(), world.rules);
                        Phase::Commit(commit, Call::Send, false)
                    }
                    _ => Phase::Done,
                };
            }
        }
    }
}

fn on(world: &mut World, me: usize, change: impl FnOnce(&mut Pinner, &mut World)) {
    let Some(Actor::Pinner(mut pinner)) = world.actors.get(me).map(|actor| (**actor).clone())
    else {
        return;
    };
    change(&mut pinner, world);
    if let Some(actor) = world.actor(me) {
        *actor = Actor::Pinner(pinner);
    }
}

fn on_follow(world: &mut World, me: usize, change: impl FnOnce(&mut Follow)) {
    on(world, me, |pinner, _| {
        if let Phase::Follow(follow) = &mut pinner.phase {
            change(follow);
        }
    });
}
