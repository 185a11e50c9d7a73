//! The commits of a writer: flushes, checkpoints, its clean close.

use super::{After, Phase, ROLE, Running, Writer, on, table_name};
use crate::actor::Call;
use crate::step::{Step, What};
use crate::world::{Object, Out, Record, World, describe};
use siltstone_base::{ObjectName, Seq, SstDescriptor, SstId};
use siltstone_manifest::Rules;
use siltstone_manifest::edit::{Edit, FlushL0, replay_point};
use siltstone_manifest::protocol::{Commit, CommitAction, ManifestAnswer};

/// The purpose of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Purpose {
    Flush,
    Pin,
    Close,
}

impl Writer {
    pub(super) fn begin_commit(&self, world: &World, me: usize, running: &Running, out: &mut Out) {
        let own = running.committed();
        let due = self.plan.flush_at.get(running.flushes).is_some_and(|due| own >= *due);
        let taken = own.saturating_sub(self.plan.behind);
        let rows = running.durable_rows(taken);
        if due && !rows.is_empty() {
            let id = table_name(me, running.flushes);
            let more = self.plan.flush_at.len() > running.flushes + 1 && !self.plan.careless;
            let reserve = more.then(|| table_name(me, running.flushes + 1));
            let flush = running.flush(describe(id, &rows), taken, reserve, world.rules);
            let step = Step::of(me, ROLE, What::PlansFlush(id, flush.replay_from));
            world.then(out, step, |next| {
                next.land(ObjectName::Compacted(id), Object::Table(rows));
                let edit = Edit::FlushL0(flush);
                on(next, me, |writer, world| writer.commit(world.rules, edit, Purpose::Flush));
            });
        }
        running.begin_pinning(&self.plan, world, me, out);
        let flushed = running.flushes == self.plan.flush_at.len();
        let flushed = flushed || running.durable_rows(own).is_empty();
        let done = running.sent.len() == self.plan.records && running.window.is_settled();
        if self.plan.close && done && flushed {
            let wal_id_last_seen = running.window.committed();
            let edit = Edit::CloseClean { epoch: running.epoch, wal_id_last_seen };
            world.then(out, Step::of(me, ROLE, What::BeginsClose), |next| {
                on(next, me, |writer, world| writer.commit(world.rules, edit, Purpose::Close));
            });
        }
    }

    fn commit(&mut self, rules: Rules, edit: Edit, purpose: Purpose) -> After {
        if let Phase::Running(running) = &mut self.phase {
            let commit = Commit::new(edit, running.known.clone(), rules);
            running.commit = Some((commit, Call::Send, purpose));
        }
        After::Goes
    }

    pub(super) fn on_commit(
        &mut self,
        world: &mut World,
        answer: Result<ManifestAnswer, Call>,
    ) -> After {
        let Phase::Running(running) = &mut self.phase else { return After::Goes };
        let Some((commit, call, purpose)) = &mut running.commit else { return After::Goes };
        match answer {
            Err(to) => *call = to,
            Ok(answer) => {
                *call = Call::Send;
                commit.on_answer(answer);
            }
        }
        let purpose = *purpose;
        match commit.action() {
            CommitAction::Request(_) => After::Goes,
            CommitAction::Done(state) => {
                let believed = world.ghost.believed(&state);
                world.break_if(believed);
                running.commit = None;
                if purpose == Purpose::Close {
                    return After::Ends;
                }
                running.reading.committed(world, &state, self.plan.scans);
                running.learn(&state);
                running.flushes += usize::from(purpose == Purpose::Flush);
                After::Goes
            }
            CommitAction::Failed(refusal) => {
                if !self.plan.careless {
                    let problem = world.ghost.edit().failed(refusal.into());
                    world.break_if(problem);
                }
                running.commit = None;
                After::Ends
            }
        }
    }
}

impl Running {
    /// The recovered records and the first `taken` of its own: those in no table.
    fn durable_rows(&self, taken: usize) -> Vec<Record> {
        let own = self.sent.iter().take(taken);
        let rows = self.base.iter().chain(own).copied();
        rows.filter(|row| Seq(row.seq) > self.known.flushed_seq).collect()
    }

    /// The commit of the recovered and the first `taken` own records as `table`.
    fn flush(
        &self,
        table: SstDescriptor,
        taken: usize,
        reserve: Option<SstId>,
        rules: Rules,
    ) -> FlushL0 {
        let own = self.fence.next_id.plus(taken as u64).minus(1);
        let last = if taken == 0 { self.fence.id } else { own };
        FlushL0 {
            flushed_seq: table.max_seq,
            layers: vec![vec![table]],
            replay_from: replay_point(last, &self.fences, rules),
            wal_id_last_seen: self.window.committed(),
            fences: self.keep.clone(),
            reserve: reserve.into_iter().collect(),
            checkpoint: Some(self.reading.checkpoint()),
            release: self.reading.pins.releases(true),
            ..FlushL0::nothing(self.epoch, &self.known)
        }
    }
}
