//! A writer: opens, appends, flushes, closes.
//!
//! | module | holds |
//! | --- | --- |
//! | `opening` | the opening: claim, walk, fence, confirm |
//! | `running` | records through the window |
//! | `flushing` | its commits |
//! | `looking` | the look for a writer that has overtaken it |
//! | `reading` | its reads, and the checkpoints that keep their tables alive |

use crate::actor::{Actor, Call, manifest_steps};
use crate::step::{Step, What};
use crate::world::{Out, Pending, Record, World};
use siltstone_base::{AttemptId, Epoch, SstId, WalId};
use siltstone_manifest::edit::Refusal;
use siltstone_manifest::protocol::{Commit, CommitAction, OpenWriter, WalWindow, WriterOptions};
use siltstone_manifest::{KeptFence, Manifest};
use std::sync::Arc;

mod flushing;
mod looking;
mod opening;
mod reading;
mod running;

use flushing::Purpose;
use looking::Looking;
use reading::Reading;
pub(crate) use reading::{hole, lacks, version_of};

const ROLE: &str = "writer";

/// The plan of a writer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Plan {
    /// Its `max_parallel_writes`.
    pub(crate) width: u64,
    /// Records to append, one per WAL object.
    pub(crate) records: usize,
    /// Flushes: each once this many of its own records are acknowledged.
    pub(crate) flush_at: Vec<usize>,
    /// Number of durable records that a flush leaves to the next one: in the engine those that came
    /// after the memtable was frozen. `wal_id_last_seen` then runs ahead.
    pub(crate) behind: usize,
    /// How often it looks for a newer manifest while it runs.
    pub(crate) looks: u8,
    /// Whether it closes at the end: flushed as planned, or with nothing left to flush.
    pub(crate) close: bool,
    /// Whether it makes a mistake that the rules must detect: it names its tables without
    /// reserving.
    pub(crate) careless: bool,
    /// Whether it sends requests beside each other while it opens.
    pub(crate) beside: bool,
    /// Whether a scan continues on tables that a commit replaces, and compactions are taken up.
    pub(crate) scans: bool,
}

/// A writer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Writer {
    plan: Plan,
    phase: Phase,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::large_enum_variant, reason = "a writer has one, and opens but once")]
enum Phase {
    Waiting,
    Opening { machine: OpenWriter, call: Call, bodies: Vec<(WalId, Record)> },
    Closing { commit: Commit, call: Call },
    Running(Box<Running>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Running {
    epoch: Epoch,
    /// Its own fence; the first record gets its `next_id`.
    fence: KeptFence,
    fences: Vec<KeptFence>,
    keep: Vec<KeptFence>,
    window: WalWindow,
    /// Records that are sent and not settled, each with its watermark.
    flying: Vec<(WalId, (Record, WalId), Call)>,
    /// Ids for which the window has requested the WAL boundary.
    asking: Vec<WalId>,
    /// The recovered records.
    base: Vec<Record>,
    /// Its own records, in the order in which they were sent.
    sent: Vec<Record>,
    known: Arc<Manifest>,
    flushes: usize,
    commit: Option<(Commit, Call, Purpose)>,
    reading: Reading,
    looking: Looking,
}

/// The table that process `me` writes in its flush number `flush`.
fn table_name(me: usize, flush: usize) -> SstId {
    SstId((me as u128 + 1) * 16 + flush as u128)
}

/// A refusal that the protocol excludes.
pub(crate) fn bug(refusal: Refusal) -> Option<String> {
    match refusal {
        Refusal::Invalid(_) | Refusal::Broken(_) => {
            Some(format!("M2: an edit is refused as wrong: {refusal:?}"))
        }
        _ => None,
    }
}

impl Writer {
    pub(crate) fn actor(plan: Plan) -> Actor {
        Actor::Writer(Writer { plan, phase: Phase::Waiting })
    }

    /// The same writer, which sends requests beside each other while it opens.
    pub(crate) fn sending_beside(self) -> Writer {
        Writer { plan: Plan { beside: true, ..self.plan }, ..self }
    }

    /// Whether it is opening.
    pub(crate) fn opens(&self) -> bool {
        matches!(self.phase, Phase::Opening { .. })
    }

    pub(crate) fn steps(&self, world: &World, me: usize, out: &mut Out) {
        match &self.phase {
            Phase::Waiting => self.start(world, me, out),
            Phase::Opening { machine, call, .. } => self.open(world, me, machine, *call, out),
            Phase::Running(running) => self.run(world, me, running, out),
            Phase::Closing { commit, call } => {
                let CommitAction::Request(request) = commit.action() else { return };
                manifest_steps(world, (me, ROLE), &request, *call, out, |next, answer| {
                    on(next, me, |writer, world| writer.on_early_close(world, answer));
                });
            }
        }
    }

    /// Writers start in the order of the configuration: with equal plans any other order is the
    /// same under other names.
    fn start(&self, world: &World, me: usize, out: &mut Out) {
        if world.ghost.gone {
            return;
        }
        let waiting =
            |actor: &Actor| matches!(actor, Actor::Writer(Writer { phase: Phase::Waiting, .. }));
        if world.actors.iter().take(me).any(|actor| waiting(actor)) {
            return;
        }
        let newest = world.ghost.tip.clone();
        let options = WriterOptions {
            claim: AttemptId(me as u128 + 1),
            max_parallel_writes: self.plan.width,
            take_over: true,
            transient: false,
            ends_transient: false,
            reserve: if self.plan.flush_at.is_empty() || self.plan.careless {
                Vec::new()
            } else {
                vec![table_name(me, 0)]
            },
            checkpoint: Some(reading::first_checkpoint(me)),
            merge_operator: None,
            cut: None,
        };
        let machine = OpenWriter::new(options, newest, world.rules);
        world.then(out, Step::of(me, ROLE, What::Starts), |next| {
            on(next, me, |writer, _| {
                let bodies = Vec::new();
                writer.phase = Phase::Opening { machine, call: Call::Send, bodies };
                After::Goes
            });
        });
    }
}

/// Whether a process continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    Goes,
    Ends,
}

/// Changes the writer `me` together with the world. When it ends, its sent requests are left to the
/// network.
fn on(world: &mut World, me: usize, change: impl FnOnce(&mut Writer, &mut World) -> After) {
    let Some(Actor::Writer(mut writer)) = world.actors.get(me).map(|actor| (**actor).clone())
    else {
        return;
    };
    let after = change(&mut writer, world);
    if after == After::Ends
        && let Phase::Running(running) = &writer.phase
    {
        for (name, object) in running.under_way(me) {
            world.post(Pending::Create(name, object));
        }
    }
    if let Some(actor) = world.actor(me) {
        *actor = if after == After::Ends { Actor::Gone } else { Actor::Writer(writer) };
    }
}
