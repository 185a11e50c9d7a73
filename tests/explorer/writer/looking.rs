//! A writer under load looks for a newer manifest (rule F7), as the engine's WAL task does: by one
//! read of the next number, or at times by a listing.

use super::{After, Phase, ROLE, Running, on};
use crate::actor::{Call, manifest_steps};
use crate::step::{Step, What};
use crate::world::{Out, World};
use siltstone_manifest::Manifest;
use siltstone_manifest::protocol::{Look, LookAction, ManifestAnswer};
use std::sync::Arc;

/// Looks that a writer may still begin, and the current one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Looking {
    left: u8,
    look: Option<Look>,
}

impl Looking {
    pub(super) fn begin(left: u8) -> Looking {
        Looking { left, look: None }
    }
}

impl Running {
    /// A look of either kind may begin at any moment, even during a commit. The engine begins one
    /// only when it sends a WAL object, and a listing only now and then.
    pub(super) fn look(&self, world: &World, me: usize, out: &mut Out) {
        let Some(look) = &self.looking.look else {
            if self.looking.left > 0 {
                let (known, rules) = (Some(self.known.clone()), world.rules);
                begin(world, me, "a look", Look::probe(known.clone(), rules), out);
                begin(world, me, "a listing", Look::new(known, rules), out);
            }
            return;
        };
        let LookAction::Request(request) = look.action() else { return };
        manifest_steps(world, (me, ROLE), &request, Call::Send, out, |next, answer| {
            on(next, me, |writer, world| match (&mut writer.phase, answer) {
                (Phase::Running(running), Ok(answer)) => running.on_look(world, answer),
                _ => After::Goes,
            });
        });
    }

    fn on_look(&mut self, world: &mut World, answer: ManifestAnswer) -> After {
        let Some(look) = &mut self.looking.look else { return After::Goes };
        look.on_answer(answer);
        let LookAction::Done(newest) = look.action() else { return After::Goes };
        self.looking.look = None;
        let Some(newest) = newest else {
            if !world.ghost.gone {
                world.break_if(Some("E1: a database that is there is called gone".to_owned()));
            }
            return After::Ends;
        };
        self.learn(&newest);
        if newest.writer_epoch <= self.epoch {
            let believed = world.ghost.believed(&newest);
            world.break_if(believed);
            return After::Goes;
        }
        if world.ghost.tip.writer_epoch <= self.epoch {
            world.break_if(Some(
                "F7: a writer ends as overtaken, and no other has claimed".to_owned(),
            ));
        }
        let events = self.window.on_overtaken(newest.writer_epoch);
        self.take(world, events)
    }

    /// Any newer state is a better base for its commits.
    pub(super) fn learn(&mut self, state: &Arc<Manifest>) {
        if state.id > self.known.id {
            self.known = state.clone();
        }
    }
}

fn begin(world: &World, me: usize, what: &'static str, look: Look, out: &mut Out) {
    world.then(out, Step::of(me, ROLE, What::Begins(what)), |next| {
        on(next, me, |writer, _| {
            if let Phase::Running(running) = &mut writer.phase {
                running.looking = Looking { left: running.looking.left - 1, look: Some(look) };
            }
            After::Goes
        });
    });
}
