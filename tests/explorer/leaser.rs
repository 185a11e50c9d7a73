//! A reader that shares leases: looks, joins or commits a lease, reads. Then it takes up newer
//! tables, with a scan still on the older ones, and renews its versions, in any order and at any
//! moment; and it judges missing tables.

use crate::actor::{Actor, Call, crash, manifest_object, manifest_steps};
use crate::ghost::name;
use crate::step::{Step, What};
use crate::world::{Out, World};
use crate::writer::bug;
use siltstone_base::{ManifestId, UnixMillis};
use siltstone_manifest::Manifest;
use siltstone_manifest::edit::Edit;
use siltstone_manifest::protocol::{
    Commit, CommitAction, LeasedEdit, Leases, Lifetimes, Look, LookAction, ManifestRequest, Moment,
    Want,
};
use std::sync::Arc;
use std::time::Duration;

const ROLE: &str = "leasing reader";
const LIFETIME: Duration = Duration::from_millis(8);
const LASTING: Duration = Duration::from_secs(2);
/// A lease made at this moment has expired for the collector's clock: it may be revoked at any
/// time.
const EARLY: Moment = Moment { now: Duration::ZERO, wall: UnixMillis(0), share: 0.0 };
/// A lease made at this moment is never revoked; by its own clock everything is due.
const LATE: Moment = Moment { now: Duration::from_secs(5), wall: UnixMillis(5_000), share: 0.0 };

/// A reader that shares leases.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Leaser {
    /// How often it takes up newer tables.
    takes: u8,
    /// Whether it still has to renew its versions.
    renews: bool,
    /// Whether it has renewed: versions read at that time are never revoked.
    renewed: Vec<ManifestId>,
    leases: Leases,
    phase: Phase,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Waiting,
    /// Looks for the newest state, to read it.
    Looks(Look),
    /// Whether the commit renews versions.
    Commits(Commit, Call, LeasedEdit, bool),
    Reads,
    /// A table of this version is missing: it decides whether that is a corruption.
    Judges(Look, ManifestId),
    Done,
}

impl Leaser {
    /// A reader that uses only point leases.
    pub(crate) fn actor(world: siltstone_manifest::Rules, takes: u8, renews: bool) -> Actor {
        Leaser::of(Lifetimes::points(LIFETIME), world, takes, renews)
    }

    /// A reader that covers newer tables by since-leases, and renews by point leases.
    pub(crate) fn since(world: siltstone_manifest::Rules, takes: u8, renews: bool) -> Actor {
        let lifetimes = Lifetimes { since: Some(LIFETIME), point: LIFETIME };
        Leaser::of(lifetimes, world, takes, renews)
    }

    /// The same, with since-leases that have not expired for the collector's clock.
    pub(crate) fn lasting(world: siltstone_manifest::Rules, takes: u8) -> Actor {
        let lifetimes = Lifetimes { since: Some(LASTING), point: LASTING };
        Leaser::of(lifetimes, world, takes, false)
    }

    fn of(
        lifetimes: Lifetimes,
        world: siltstone_manifest::Rules,
        takes: u8,
        renews: bool,
    ) -> Actor {
        let leases = Leases::new(lifetimes, world);
        let phase = Phase::Waiting;
        Actor::Leaser(Box::new(Leaser { takes, renews, renewed: Vec::new(), leases, phase }))
    }

    /// A missing table that it reads under a present lease; or a lease that is missing although it
    /// was renewed.
    pub(crate) fn lacks(&self, world: &World) -> Option<String> {
        let tip = &world.ghost.tip;
        let mut renewed =
            self.leases.versions().filter(|(version, _)| self.renewed.contains(version));
        if let Some((version, _)) = renewed.find(|(_, state)| !self.leases.is_covered(state, tip)) {
            return Some(format!("L4: version {version} is read, was renewed, and is not leased"));
        }
        let leased = self.leases.versions().filter(|(_, state)| self.leases.is_covered(state, tip));
        let gone = leased.filter_map(|(version, state)| Some((version, missing(world, state)?)));
        gone.map(|(version, table)| {
            format!("L1 to L3: table {table} is gone, and version {version} is leased and read")
        })
        .next()
    }

    pub(crate) fn steps(&self, world: &World, me: usize, out: &mut Out) {
        match &self.phase {
            Phase::Waiting => {
                let look = Look::new(None, world.rules);
                world.then(out, Step::of(me, ROLE, What::Starts), |next| {
                    on(next, me, |leaser, _| leaser.phase = Phase::Looks(look));
                });
            }
            Phase::Looks(look) | Phase::Judges(look, _) => {
                let LookAction::Request(request) = look.action() else { return };
                manifest_steps(world, (me, ROLE), &request, Call::Send, out, |next, answer| {
                    on(next, me, |leaser, world| {
                        if let (Phase::Looks(look) | Phase::Judges(look, _), Ok(answer)) =
                            (&mut leaser.phase, answer)
                        {
                            look.on_answer(answer);
                        }
                        leaser.looked(world);
                    });
                });
            }
            Phase::Commits(commit, call, ..) => {
                let CommitAction::Request(request) = commit.action() else { return };
                if let (ManifestRequest::Create(state), Call::Send) = (&request, call) {
                    crash(world, (me, ROLE), &[manifest_object(me, state)], out);
                }
                manifest_steps(world, (me, ROLE), &request, *call, out, |next, answer| {
                    on(next, me, |leaser, world| {
                        if let Phase::Commits(commit, call, ..) = &mut leaser.phase {
                            match answer {
                                Err(to) => *call = to,
                                Ok(answer) => {
                                    *call = Call::Send;
                                    commit.on_answer(answer);
                                }
                            }
                        }
                        leaser.committed(world);
                    });
                });
            }
            Phase::Reads => self.read_on(world, me, out),
            Phase::Done => {}
        }
    }

    /// Continues with any next action.
    fn read_on(&self, world: &World, me: usize, out: &mut Out) {
        let tip = &world.ghost.tip;
        if self.takes > 0 && self.leases.is_behind(tip) {
            let look = Look::new(None, world.rules);
            world.then(out, Step::of(me, ROLE, What::Polls), |next| {
                on(next, me, |leaser, _| {
                    leaser.takes -= 1;
                    leaser.phase = Phase::Looks(look);
                });
            });
        }
        if self.renews {
            // On the newest state, or on the one that it knows: the edit is planned again as
            // needed.
            let known = self.leases.newest().map(|(_, state)| state.clone());
            let covering = self.leases.cover(false, LATE);
            let edit = Edit::CoverVersions(covering.edit.clone());
            let commit = Commit::new(edit, known.unwrap_or_else(|| tip.clone()), world.rules);
            let step = Step::of(me, ROLE, What::BeginsCommit("to renew what it reads"));
            world.then(out, step, |next| {
                on(next, me, |leaser, _| {
                    leaser.renews = false;
                    leaser.phase = Phase::Commits(commit, Call::Send, covering, true);
                });
            });
        }
        let mut versions = self.leases.versions();
        let lost = versions.find(|(_, state)| missing(world, state).is_some());
        if let Some((version, _)) = lost {
            let look = Look::new(None, world.rules);
            world.then(out, Step::of(me, ROLE, What::Begins("to judge what is missing")), |next| {
                on(next, me, |leaser, _| leaser.phase = Phase::Judges(look, version));
            });
        }
    }

    fn looked(&mut self, world: &mut World) {
        let (Phase::Looks(look) | Phase::Judges(look, _)) = &self.phase else { return };
        let newest = match look.action() {
            LookAction::Request(_) => return,
            LookAction::Done(newest) => newest,
        };
        let Some(newest) = newest else {
            self.phase = Phase::Done;
            return;
        };
        let believed = world.ghost.believed(&newest);
        world.break_if(believed);
        if let Phase::Judges(_, version) = self.phase {
            let corrupt = self.leases.is_corrupt(version, &newest);
            world.break_if(corrupt.then(|| {
                format!("L5: what version {version} lost to the collector is called a corruption")
            }));
            self.phase = Phase::Done;
            return;
        }
        self.leases.learn(&newest, EARLY);
        self.phase = Phase::Reads;
        if self.leases.commits(&newest, Want::Now, EARLY) {
            let covering = self.leases.cover(true, EARLY);
            let edit = Edit::CoverVersions(covering.edit.clone());
            let commit = Commit::new(edit, newest, world.rules);
            self.phase = Phase::Commits(commit, Call::Send, covering, false);
        }
    }

    fn committed(&mut self, world: &mut World) {
        let Phase::Commits(commit, _, covering, renewal) = &self.phase else { return };
        match commit.action() {
            CommitAction::Request(_) => {}
            CommitAction::Failed(refusal) => {
                world.break_if(bug(refusal));
                self.phase = Phase::Done;
            }
            CommitAction::Done(state) => {
                let believed = world.ghost.believed(&state);
                world.break_if(believed);
                let (renewal, covering) = (*renewal, covering.clone());
                let at = if renewal { LATE } else { EARLY };
                self.leases.committed(&covering, &state, at);
                let mut versions = self.leases.versions();
                let uncovered = versions.find(|(_, read)| !self.leases.is_covered(read, &state));
                world.break_if(uncovered.map(|(id, _)| {
                    format!("L3: version {id} is read, and no lease has ever covered it")
                }));
                if renewal {
                    self.renewed = self.leases.versions().map(|(version, _)| version).collect();
                }
                self.phase = Phase::Reads;
            }
        }
    }
}

/// A missing table of `state`.
fn missing(world: &World, state: &Arc<Manifest>) -> Option<String> {
    let gone = state.tables().find(|table| !world.store.has_table(table.id))?;
    Some(name(gone.id))
}

fn on(world: &mut World, me: usize, change: impl FnOnce(&mut Leaser, &mut World)) {
    let Some(Actor::Leaser(mut leaser)) = world.actors.get(me).map(|actor| (**actor).clone())
    else {
        return;
    };
    change(&mut leaser, world);
    if let Some(actor) = world.actor(me) {
        *actor = Actor::Leaser(leaser);
    }
}
