//! A garbage collector: rounds of the real `Collect` machine.

use crate::actor::{
    Actor, Call, Create, Progress, crash, manifest_object, manifest_steps, without,
};
use crate::jobs::record_steps;
use crate::step::{Step, What};
use crate::world::{Faults, Object, Out, Pending, World};
use siltstone_base::{ObjectName, UnixMillis};
use siltstone_manifest::protocol::{Collect, CollectAction, ManifestRequest};

const ROLE: &str = "collector";

/// The collector's clock: later than every expiry.
const NOW: UnixMillis = UnixMillis(1_000);

/// A collector.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Collector {
    rounds: u8,
    round: Option<(Collect, Call)>,
}

impl Collector {
    pub(crate) fn actor(rounds: u8) -> Actor {
        Actor::Collector(Collector { rounds, round: None })
    }

    pub(crate) fn steps(&self, world: &World, me: usize, out: &mut Out) {
        let Some((round, call)) = &self.round else {
            if self.rounds > 0 {
                let round = Collect::new(world.ghost.tip.clone(), NOW, NOW, world.rules);
                world.then(out, Step::of(me, ROLE, What::Starts), |next| {
                    on(next, me, |collector| {
                        collector.rounds -= 1;
                        collector.round = Some((round, Call::Send));
                    });
                });
            }
            return;
        };
        let mut sent = Vec::new();
        match round.action() {
            CollectAction::Request(request) => {
                if let (ManifestRequest::Create(state), Call::Send) = (&request, call) {
                    sent.push(manifest_object(me, state));
                }
                manifest_steps(world, (me, ROLE), &request, *call, out, |next, answer| {
                    on_round(next, me, |round, call| match answer {
                        Err(to) => *call = to,
                        Ok(answer) => {
                            *call = Call::Send;
                            round.on_answer(answer);
                        }
                    });
                });
            }
            CollectAction::ListObjects => {
                let listed = world.store.listed();
                world.then(out, Step::of(me, ROLE, What::ListsObjects), |next| {
                    on_round(next, me, |round, _| round.on_objects(listed));
                });
            }
            CollectAction::Record(request) => {
                record_steps(world, (me, ROLE), &request, *call, out, |next, answer| {
                    on_round(next, me, |round, _| {
                        if let Ok(answer) = answer {
                            round.on_record(answer);
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
                            round.on_boundary(without(outcome));
                        }
                    });
                });
            }
            CollectAction::Delete(names) => {
                names.first().into_iter().for_each(|name| delete(world, me, *name, out));
            }
            CollectAction::Done(_) => {}
        }
        crash(world, (me, ROLE), &sent, out);
    }
}

fn delete(world: &World, me: usize, name: ObjectName, out: &mut Out) {
    let left = world.faults;
    world.then(out, Step::of(me, ROLE, What::Deletes(name, true)), |next| {
        next.delete(name);
        on_round(next, me, |round, _| round.on_deleted(&[true]));
    });
    if left.refused > 0 {
        world.then(out, Step::of(me, ROLE, What::Deletes(name, false)), |next| {
            next.faults = Faults { refused: left.refused - 1, ..left };
            on_round(next, me, |round, _| round.on_deleted(&[false]));
        });
    }
    if left.late > 0 {
        world.then(out, Step::of(me, ROLE, What::DeleteOnItsWay(name)), |next| {
            next.faults = Faults { late: left.late - 1, ..left };
            next.post(Pending::Delete(name));
            on_round(next, me, |round, _| round.on_deleted(&[false]));
        });
    }
}

fn on(world: &mut World, me: usize, change: impl FnOnce(&mut Collector)) {
    if let Some(Actor::Collector(collector)) = world.actor(me) {
        change(collector);
    }
}

fn on_round(world: &mut World, me: usize, change: impl FnOnce(&mut Collect, &mut Call)) {
    let Some(Actor::Collector(collector)) = world.actor(me) else { return };
    let Some((round, call)) = &mut collector.round else { return };
    change(round, call);
    if matches!(round.action(), CollectAction::Done(_)) {
        collector.round = None;
    }
    if collector.round.is_none()
        && collector.rounds == 0
        && let Some(actor) = world.actor(me)
    {
        *actor = Actor::Gone;
    }
}
