//! A reader with a checkpoint: walks, pins the walked log, reads it. Then it refreshes the
//! checkpoint and reads again, or replaces it when the tables have changed, with a scan still on
//! the old ones.

use crate::actor::{Actor, Call, crash, manifest_object, manifest_steps};
use crate::step::{Step, What};
use crate::world::{Out, Record, World};
use crate::writer::{bug, lacks, version_of};
use siltstone_base::{CheckpointId, UnixMillis, WalId};
use siltstone_manifest::edit::{Edit, NewCheckpoint, Refusal, UpdateCheckpoints};
use siltstone_manifest::protocol::{
    Commit, CommitAction, Failure, Follow, FollowAction, ManifestAnswer, ManifestRequest,
    PinnedAction, PinnedWalk, Pins,
};
use siltstone_manifest::{CheckpointOwner, Manifest};
use std::sync::Arc;

const ROLE: &str = "pinning reader";
/// Long expired for the collector's clock: may be revoked at any time.
const PAST: UnixMillis = UnixMillis(1);
/// Never reached by the collector's clock.
const FUTURE: UnixMillis = UnixMillis(5_000);

/// A reader with a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pinner {
    then: Then,
    phase: Phase,
    /// The proven state from which it continues.
    state: Option<Arc<Manifest>>,
    /// The rows that it read last.
    view: Vec<Record>,
    /// The versions that it reads.
    pins: Option<Pins>,
}

/// Its action after it has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Then {
    Ends,
    /// Refreshes the checkpoint, and reads again.
    Refreshes,
    /// Replaces it when the tables change, while a scan reads them, and releases it after the scan.
    Replaces,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Waiting,
    Follow(Follow),
    Commit(Commit, Call, bool),
    Walk(PinnedWalk, Vec<(WalId, Record)>, bool),
    /// Continues to read: with a scan on the older version, or without.
    Reads(bool),
    Update(Commit, Call, bool),
    Done,
}

fn id(me: usize) -> CheckpointId {
    CheckpointId(me as u128 + 1)
}

/// The checkpoint that replaces the first.
fn second(me: usize) -> CheckpointId {
    CheckpointId(me as u128 + 101)
}

impl Pinner {
    pub(crate) fn actor(refresh: bool) -> Actor {
        Pinner::that(if refresh { Then::Refreshes } else { Then::Ends })
    }

    /// A reader that replaces its checkpoint.
    pub(crate) fn replacing() -> Actor {
        Pinner::that(Then::Replaces)
    }

    fn that(then: Then) -> Actor {
        let (phase, view) = (Phase::Waiting, Vec::new());
        Actor::Pinner(Pinner { then, phase, state: None, view, pins: None })
    }

    /// A missing table that it reads while every checkpoint that it holds is present: a revoked
    /// checkpoint keeps nothing.
    pub(crate) fn lacks(&self, world: &World) -> Option<String> {
        let pins = self.pins.as_ref()?;
        let present = |id| world.ghost.tip.checkpoint(id).is_some();
        pins.checkpoints().all(present).then(|| lacks(world, pins)).flatten()
    }

    /// The rows that it serves.
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
            Phase::Reads(scans) => self.read_on(world, me, *scans, out),
            Phase::Update(commit, call, _) => {
                let CommitAction::Request(request) = commit.action() else { return };
                if let (ManifestRequest::Create(state), Call::Send) = (&request, call) {
                    sent.push(manifest_object(me, state));
                }
                manifest_steps(world, (me, ROLE), &request, *call, out, |next, answer| {
                    on(next, me, |pinner, world| pinner.on_update(world, me, answer));
                });
            }
            Phase::Done => {}
        }
        if !sent.is_empty() {
            crash(world, (me, ROLE), &sent, out);
        }
    }

    /// Takes up newer tables; ends its scan; releases the version of the scan.
    fn read_on(&self, world: &World, me: usize, scans: bool, out: &mut Out) {
        let Some(pins) = &self.pins else { return };
        let newest = world.ghost.tip.clone();
        let first = pins.checkpoints().eq([id(me)]);
        let (add, told) = if first && pins.is_behind(&newest) {
            let new = NewCheckpoint {
                id: second(me),
                expires_at: Some(FUTURE),
                owner: CheckpointOwner::Reader,
                ..NewCheckpoint::default()
            };
            (Some(new), "another checkpoint")
        } else if pins.has_unread() {
            (None, "that it needs a checkpoint no more")
        } else {
            if scans && !first {
                world.then(out, Step::of(me, ROLE, What::EndsScan), |next| {
                    on(next, me, |pinner, _| {
                        pinner.phase = Phase::Reads(false);
                        if let Some(pins) = &mut pinner.pins {
                            pins.forget_unread(|_| false);
                        }
                    });
                });
            }
            return;
        };
        let release = pins.releases(add.is_some());
        let update = UpdateCheckpoints { add, release, ..UpdateCheckpoints::default() };
        let commit = Commit::new(Edit::UpdateCheckpoints(update), newest, world.rules);
        world.then(out, Step::of(me, ROLE, What::BeginsCommit(told)), |next| {
            on(next, me, |pinner, _| pinner.phase = Phase::Update(commit, Call::Send, scans));
        });
    }

    fn on_update(&mut self, world: &mut World, me: usize, answer: Result<ManifestAnswer, Call>) {
        let Phase::Update(commit, call, scans) = &mut self.phase else { return };
        match answer {
            Err(to) => *call = to,
            Ok(answer) => {
                *call = Call::Send;
                commit.on_answer(answer);
            }
        }
        match commit.action() {
            CommitAction::Request(_) => {}
            CommitAction::Done(state) => {
                let believed = world.ghost.believed(&state);
                world.break_if(believed);
                let pins = self.pins.iter_mut();
                for pins in pins {
                    let first = pins.checkpoints().eq([id(me)]);
                    let added = first.then(|| (second(me), version_of(world, &state, second(me))));
                    pins.committed(&state, added);
                }
                self.phase = Phase::Reads(*scans);
            }
            CommitAction::Failed(refusal) => {
                world.break_if(bug(refusal));
                self.pins = None;
                self.phase = Phase::Done;
            }
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
            FollowAction::ListWal(after) => {
                let listing = world.store.wal_listing(after);
                let what = What::ListsWal(after, listing.boundary);
                world.then(out, Step::of(me, ROLE, what), |next| {
                    on_follow(next, me, |follow| {
                        follow.on_wal_listing(listing);
                    });
                    on(next, me, |pinner, world| pinner.followed(world));
                });
            }
            FollowAction::ReadWalBoundary => {
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
                    expires_at: Some(if self.then == Then::Replaces { FUTURE } else { PAST }),
                    wal_id_last_seen: Some(walked),
                    owner: CheckpointOwner::Reader,
                    ..NewCheckpoint::default()
                });
                let commit = Commit::new(edit, state, world.rules);
                let step = Step::of(me, ROLE, What::BeginsCommit("a checkpoint"));
                world.then(out, step, |next| {
                    on(next, me, |pinner, _| {
                        let again = pinner.then == Then::Refreshes;
                        pinner.phase = Phase::Commit(commit, Call::Send, again);
                    });
                });
            }
            FollowAction::Failed(_) => {}
        }
    }

    /// Ends if it cannot follow.
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
                // A later state may have settled the commit, and the checkpoint may be missing
                // there.
                self.phase = match state.checkpoint(id(me)) {
                    Some(checkpoint) => {
                        self.pins = Some(Pins::new(id(me), version_of(world, &state, id(me))));
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
                let problem = match failure {
                    Failure::Hole(_) => world.ghost.edit().failed(failure),
                    _ => (present || failure != gone)
                        .then(|| format!("C3: a present checkpoint cannot be read: {failure:?}")),
                };
                world.break_if(problem);
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
                        let edit = Edit::RefreshCheckpoint { id: id(me), expires_at: Some(FUTURE) };
                        let commit = Commit::new(edit, state.clone(), world.rules);
                        Phase::Commit(commit, Call::Send, false)
                    }
                    _ if self.then == Then::Replaces => Phase::Reads(true),
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
