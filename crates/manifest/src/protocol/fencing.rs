//! Fencing, which is what opening a writer is: claim, walk, fence, confirm (rules F1 to F5).
//!
//! ```text
//! claim ─► walk ─► read id ──older data──► keep for replay, id + 1 ─┐
//!            ▲        │ ├────older fence─► keep the fence, next_id ─┤
//!            ├────────┼─┼───────────────────────────────────────────┘
//!            │        │ ├────newer, or vanished ─► Fenced
//!            │        │ └────absent, and the claim knows of more ─► look ──overtaken──► Fenced
//!            │     absent                               ▲            └──────► Corruption
//!            │        ▼                                 │ nothing
//!            │     list the WAL ──something later──► read that, and id again
//!            │        │                    └────────────┼───┐
//!            └────────┼───────────────met something─────┘   │ proves nothing
//!                     ▼                                     │
//!                   look ◄──────────────────────────────────┘
//!                     │  └──overtaken──► Fenced
//!                     ▼
//!                create fence ──Lost──► the same rules on what is there
//!                     │  └──NotApplied, Unknown──► look, and the same fence again
//!                     ▼
//!                  confirm (look) ──overtaken──► Fenced
//!                     ▼
//!                   Done
//! ```
//! A repair opens with a cut: the walk ends there, whatever stands at it, and goes on as `cut.rs`
//! says.

use super::commit::{Commit, CommitAction};
use super::cut::{CutAction, CutLog, CutOff};
use super::hole::{HoleCheck, HoleCheckResult};
use super::look::{Look, LookAction};
use super::{Failure, Hole, ManifestAnswer, ManifestRequest, WalListing, WalSeen, beyond};
use crate::edit::{ClaimWriter, Conflict, Edit, NewCheckpoint, Refusal};
use crate::rules::{Rule, Rules};
use crate::state::{KeptFence, Manifest};
use siltstone_base::{AttemptId, Epoch, ManifestId, PutOutcome, SstId, WalId};
use std::sync::Arc;

/// What a writer brings to its claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct WriterOptions {
    /// Identity of the claim, random.
    pub claim: AttemptId,
    /// WAL objects it will have under way at once, 1 to 64.
    pub max_parallel_writes: u64,
    /// Whether to end a writer that did not close cleanly.
    pub take_over: bool,
    /// Whether it is opened for a moment, to take ingest jobs in.
    pub transient: bool,
    /// Whether to end a writer of that kind that did not close cleanly, whatever `take_over` says.
    pub ends_transient: bool,
    /// Names for its first tables, fresh.
    pub reserve: Vec<SstId>,
    /// The checkpoint it keeps for its own reads.
    pub checkpoint: Option<NewCheckpoint>,
    /// Name of the merge operator that it brings.
    pub merge_operator: Option<String>,
    /// Where the log is to be cut off, by a repair: what stands there and behind it is not kept.
    pub cut: Option<WalId>,
}

/// A writer that may begin.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Recovered {
    /// The newest state, of this writer's epoch.
    pub manifest: Arc<Manifest>,
    /// Its epoch.
    pub epoch: Epoch,
    /// WAL objects to replay, in this order, and whose they are. Their bodies are those read on
    /// the walk; rows at or below `flushed_seq` are dropped (rule N4).
    pub replay: Vec<(WalId, Epoch)>,
    /// Its own fence. Its first WAL object is `fence.next_id`.
    pub fence: KeptFence,
    /// Fences that must stand in the manifest no later than the commit that moves the replay point
    /// past them: those met, but for those of writers that closed cleanly after one that had; and
    /// its own unless the fenced writer had closed cleanly (rule F5).
    pub keep: Vec<KeptFence>,
    /// Fences met that need not stand there.
    pub waived: Vec<KeptFence>,
    /// What was cut off, where that was asked for.
    pub cut_off: Option<CutOff>,
}

impl Recovered {
    /// The edit of a clean close: once the outcome of everything sent is settled. Only a writer
    /// that came this far has one (rule F4).
    #[must_use]
    pub fn close(&self) -> Edit {
        Edit::CloseClean { epoch: self.epoch }
    }

    /// Every fence on the walk and the own one, for [`replay_point`](crate::replay_point).
    #[must_use]
    pub fn fences(&self) -> Vec<KeptFence> {
        let mut fences: Vec<_> = self.keep.iter().chain(&self.waived).copied().collect();
        if !fences.contains(&self.fence) {
            fences.push(self.fence);
        }
        fences
    }
}

/// Opens a writer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OpenWriter {
    options: Arc<WriterOptions>,
    rules: Rules,
    phase: OpenPhase,
    /// From the end of the claim on.
    claimed: Option<Claimed>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Claimed {
    /// The newest proven state.
    known: Arc<Manifest>,
    epoch: Epoch,
    /// The state as it was at the claim, and how far it knew of the WAL: what holes are judged by.
    /// A later state may know of an object that landed after its id was read.
    last_seen: (ManifestId, WalId),
    /// Whether the epoch before had closed cleanly, as the claim saw it.
    after_clean_close: bool,
    replay: Vec<(WalId, Epoch)>,
    met: Vec<KeptFence>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum OpenPhase {
    Claim(Commit),
    Walk(WalId),
    /// Nothing is at this id: is something behind it?
    List(WalId),
    /// Something is: does it prove a hole?
    Doubt(HoleCheck, WalId),
    /// Looking before a fence at this id.
    Look(Look, WalId),
    /// Looking whether what is missing was freed behind a newer writer.
    Missing(Look, Hole),
    Fence(WalId),
    /// Cutting the log off. In a box, since few openings do.
    Cut(Box<CutLog>),
    /// Looking before a fence behind the cut, and then creating it.
    CutLook(Look, Box<CutLog>),
    CutFence(Box<CutLog>),
    CutConfirm(Look, Box<CutLog>),
    Confirm(Look, KeptFence),
    Done(Recovered),
    Failed(Failure),
}

/// What [`OpenWriter`] wants.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OpenAction {
    /// Do this.
    Request(ManifestRequest),
    /// Read this WAL object and keep its body.
    ReadWal(WalId),
    /// The same behind the cut: what nobody can read is [`WalSeen::Foreign`].
    ReadCutOff(WalId),
    /// List the WAL behind this id, and its boundary.
    ListWal(WalId),
    /// Create this fence if the name is free: always with the same bytes and attempt id as long as
    /// it is the same fence.
    CreateFence(KeptFence),
    /// Open.
    Done(Recovered),
    /// Not open. The claim may stand.
    Failed(Failure),
}

impl OpenWriter {
    /// Opens on a database whose newest known manifest is `newest`.
    #[must_use]
    pub fn new(options: WriterOptions, newest: Arc<Manifest>, rules: Rules) -> OpenWriter {
        let options = Arc::new(options);
        let phase = OpenPhase::Claim(claim(&options, newest, rules));
        let mut open = OpenWriter { options, rules, phase, claimed: None };
        open.settle();
        open
    }

    /// What to do now.
    #[must_use]
    pub fn action(&self) -> OpenAction {
        match &self.phase {
            OpenPhase::Claim(commit) => match commit.action() {
                CommitAction::Request(request) => OpenAction::Request(request),
                // Settled before anybody can ask; see `settle`.
                CommitAction::Done(_) => OpenAction::Failed(Failure::Fenced { by: None }),
                CommitAction::Failed(refusal) => OpenAction::Failed(refusal.into()),
            },
            // Whatever stands there.
            OpenPhase::Walk(id) if self.options.cut == Some(*id) => {
                OpenAction::ListWal(id.minus(1))
            }
            OpenPhase::Walk(id) => OpenAction::ReadWal(*id),
            OpenPhase::List(id) => OpenAction::ListWal(*id),
            OpenPhase::Doubt(doubt, _) => OpenAction::ReadWal(doubt.reads()),
            OpenPhase::Look(look, _)
            | OpenPhase::Missing(look, _)
            | OpenPhase::CutLook(look, _)
            | OpenPhase::CutConfirm(look, _)
            | OpenPhase::Confirm(look, _) => match look.action() {
                LookAction::Request(request) => OpenAction::Request(request),
                LookAction::Done(_) => OpenAction::Failed(Failure::Fenced { by: None }),
            },
            OpenPhase::Fence(id) => OpenAction::CreateFence(self.fence_at(*id)),
            OpenPhase::Cut(cut) | OpenPhase::CutFence(cut) => match cut.action() {
                CutAction::Read(id) => OpenAction::ReadCutOff(id),
                CutAction::Fence(fence) => OpenAction::CreateFence(fence),
                // Settled before anybody can ask; see `cut_on`.
                CutAction::Done => OpenAction::Failed(Failure::Fenced { by: None }),
                CutAction::Fenced(by) => OpenAction::Failed(Failure::Fenced { by: Some(by) }),
            },
            OpenPhase::Done(recovered) => OpenAction::Done(recovered.clone()),
            OpenPhase::Failed(failure) => OpenAction::Failed(*failure),
        }
    }

    /// The answer to [`OpenAction::Request`].
    pub fn on_answer(&mut self, answer: ManifestAnswer) {
        match &mut self.phase {
            OpenPhase::Claim(commit) => commit.on_answer(answer),
            OpenPhase::Look(look, _)
            | OpenPhase::Missing(look, _)
            | OpenPhase::CutLook(look, _)
            | OpenPhase::CutConfirm(look, _)
            | OpenPhase::Confirm(look, _) => {
                look.on_answer(answer);
            }
            _ => return,
        }
        self.settle();
    }

    /// The answer to [`OpenAction::ReadWal`] and [`OpenAction::ReadCutOff`].
    pub fn on_wal(&mut self, seen: WalSeen) {
        if let OpenPhase::Cut(cut) = &mut self.phase {
            cut.on_read(seen);
            return self.cut_on();
        }
        match self.phase {
            OpenPhase::Walk(id) => self.walk(id, seen),
            OpenPhase::Doubt(..) => self.doubt(seen),
            _ => {}
        }
    }

    /// The answer to [`OpenAction::ListWal`].
    pub fn on_wal_listing(&mut self, listing: &WalListing) {
        if let (OpenPhase::Walk(id), Some(claimed)) = (&self.phase, &self.claimed)
            && self.options.cut == Some(*id)
        {
            let window = claimed.known.window_with(self.options.max_parallel_writes);
            let cut = CutLog::new(*id, &claimed.known, window, listing, self.rules);
            self.phase = OpenPhase::Cut(Box::new(cut));
            return self.cut_on();
        }
        let OpenPhase::List(id) = self.phase else { return };
        match HoleCheck::of(id, listing, self.rules) {
            Some(doubt) => self.phase = OpenPhase::Doubt(doubt, id),
            None => self.look_before(id),
        }
    }

    /// The answer to [`OpenAction::CreateFence`].
    pub fn on_fence(&mut self, outcome: PutOutcome<WalSeen>) {
        if let OpenPhase::CutFence(cut) = &mut self.phase {
            match outcome {
                PutOutcome::Committed => cut.on_fenced(),
                PutOutcome::Lost(seen) => cut.on_lost(seen),
                PutOutcome::NotApplied | PutOutcome::Unknown => {}
            }
            return self.cut_on();
        }
        let OpenPhase::Fence(id) = self.phase else { return };
        match outcome {
            PutOutcome::Committed => self.confirm(id),
            PutOutcome::Lost(seen) => self.walk(id, seen),
            PutOutcome::NotApplied | PutOutcome::Unknown => self.look_before(id),
        }
    }

    /// The epoch, once claimed.
    #[must_use]
    pub fn epoch(&self) -> Option<Epoch> {
        self.claimed.as_ref().map(|claimed| claimed.epoch)
    }

    /// The edit of a clean close, once it may be recorded (rule F4).
    #[must_use]
    pub fn close(&self) -> Option<Edit> {
        match &self.phase {
            OpenPhase::Done(recovered) => Some(recovered.close()),
            _ if self.rules.has(Rule::CloseAfterConfirm) => None,
            _ => self.epoch().map(|epoch| Edit::CloseClean { epoch }),
        }
    }

    /// Goes on where a machine inside has ended.
    fn settle(&mut self) {
        match &self.phase {
            OpenPhase::Claim(commit) => match commit.action() {
                CommitAction::Done(state) => self.on_claimed(state),
                CommitAction::Failed(refusal) => self.on_refused(refusal),
                CommitAction::Request(_) => {}
            },
            OpenPhase::Look(look, id) => {
                let id = *id;
                if let LookAction::Done(newest) = look.action()
                    && self.still_newest(newest)
                {
                    self.phase = self.fence_or_late_hole(id);
                }
            }
            OpenPhase::Missing(look, hole) => {
                let hole = *hole;
                // Of one's own epoch still: the replay point is where the walk began, and nothing
                // from there on was freed before the look, hence none when the id was read.
                if let LookAction::Done(newest) = look.action()
                    && self.still_newest(newest)
                {
                    self.phase = OpenPhase::Failed(Failure::Hole(hole));
                }
            }
            OpenPhase::CutLook(look, cut) => {
                let cut = cut.clone();
                if let LookAction::Done(newest) = look.action()
                    && self.still_newest(newest)
                {
                    self.phase = OpenPhase::CutFence(cut);
                }
            }
            OpenPhase::CutConfirm(look, cut) => {
                let cut = cut.clone();
                if let LookAction::Done(newest) = look.action()
                    && self.still_newest(newest)
                {
                    self.finish_cut(&cut);
                }
            }
            OpenPhase::Confirm(look, fence) => {
                let fence = *fence;
                if let LookAction::Done(newest) = look.action()
                    && self.still_newest(newest)
                {
                    self.finish(fence);
                }
            }
            _ => {}
        }
    }

    /// Another claim came first: claim the epoch after that, if that one may be ended.
    fn on_refused(&mut self, refusal: Refusal) {
        let newest = match &self.phase {
            OpenPhase::Claim(commit) => commit.base().cloned(),
            _ => None,
        };
        self.phase = match (refusal, newest) {
            (Refusal::Conflict(Conflict::EpochMoved { .. }), Some(newest)) => {
                OpenPhase::Claim(claim(&self.options, newest, self.rules))
            }
            _ => OpenPhase::Failed(refusal.into()),
        };
    }

    fn on_claimed(&mut self, state: Arc<Manifest>) {
        let Some(record) = state.writers.iter().find(|one| one.claim == self.options.claim) else {
            self.phase = OpenPhase::Failed(Failure::Fenced { by: Some(state.writer_epoch) });
            return;
        };
        let epoch = record.epoch;
        if state.writer_epoch != epoch {
            self.phase = OpenPhase::Failed(Failure::Fenced { by: Some(state.writer_epoch) });
            return;
        }
        // Before the first epoch there was nobody.
        let after_clean_close = epoch == Epoch::FIRST || state.follows_clean_close(epoch);
        self.phase = OpenPhase::Walk(state.replay_from);
        self.claimed = Some(Claimed {
            last_seen: (state.id, state.wal_id_last_seen),
            known: state,
            epoch,
            after_clean_close,
            replay: Vec::new(),
            met: Vec::new(),
        });
    }

    /// Applies the rules of the walk to what `id` holds.
    fn walk(&mut self, id: WalId, seen: WalSeen) {
        let Some(claimed) = &mut self.claimed else { return };
        let stop = self.rules.has(Rule::StopAtNewerEpoch);
        let own = claimed.epoch;
        self.phase = match seen {
            WalSeen::Absent => match Hole::at(id, claimed.last_seen, self.rules) {
                None if self.rules.has(Rule::LaterProvesHole) => OpenPhase::List(id),
                None => return self.look_before(id),
                Some(hole) => return self.missing(hole),
            },
            // It was there, and was freed: somebody else moves the replay point.
            WalSeen::Vanished => OpenPhase::Failed(Failure::Fenced { by: None }),
            WalSeen::Foreign => OpenPhase::Failed(Failure::Foreign(id)),
            WalSeen::Data { epoch, .. } | WalSeen::Fence { epoch, .. } if epoch > own && stop => {
                OpenPhase::Failed(Failure::Fenced { by: Some(epoch) })
            }
            // Nobody else has this epoch: an earlier try of this fence landed.
            WalSeen::Fence { epoch, .. } if epoch == own => return self.confirm(id),
            WalSeen::Data { epoch, .. } if epoch == own => {
                OpenPhase::Failed(Failure::Impossible(id))
            }
            WalSeen::Data { epoch, .. } => {
                claimed.replay.push((id, epoch));
                OpenPhase::Walk(id.next())
            }
            WalSeen::Fence { epoch, next_id } => {
                let fence = KeptFence { id, epoch, next_id };
                claimed.met.push(fence);
                let jump = self.rules.has(Rule::JumpOverOlderFence);
                OpenPhase::Walk(if jump { beyond(&fence) } else { id.next() })
            }
        };
    }

    /// Something behind `id`, where nothing was found, was read, or `id` once more.
    fn doubt(&mut self, seen: WalSeen) {
        let (Some(claimed), OpenPhase::Doubt(doubt, id)) = (&self.claimed, &mut self.phase) else {
            return;
        };
        let id = *id;
        if let WalSeen::Data { epoch, .. } | WalSeen::Fence { epoch, .. } = seen
            && epoch > claimed.epoch
            && self.rules.has(Rule::StopAtNewerEpoch)
        {
            self.phase = OpenPhase::Failed(Failure::Fenced { by: Some(epoch) });
            return;
        }
        match doubt.on_wal(seen, self.rules) {
            HoleCheckResult::Goes => {}
            HoleCheckResult::End => self.look_before(id),
            HoleCheckResult::Met(seen) => self.walk(id, seen),
            HoleCheckResult::Hole(hole) => self.missing(hole),
        }
    }

    /// A hole, unless what is missing was freed behind a newer writer.
    fn missing(&mut self, hole: Hole) {
        let known = self.claimed.as_ref().map(|claimed| claimed.known.clone());
        self.phase = if self.rules.has(Rule::ProveHoles) {
            OpenPhase::Missing(Look::new(known, self.rules), hole)
        } else {
            OpenPhase::Failed(Failure::Hole(hole))
        };
    }

    fn look_before(&mut self, id: WalId) {
        let known = self.claimed.as_ref().map(|claimed| claimed.known.clone());
        self.phase = if self.rules.has(Rule::LookBeforeFence) {
            OpenPhase::Look(Look::new(known, self.rules), id)
        } else {
            OpenPhase::Fence(id)
        };
    }

    /// A fence at `id`; but where holes are judged by what is known now, perhaps a hole.
    fn fence_or_late_hole(&self, id: WalId) -> OpenPhase {
        let known = self.claimed.as_ref().map(|claimed| &claimed.known);
        let late = known.filter(|_| !self.rules.has(Rule::JudgeHolesByTheClaim));
        let hole = late.and_then(|now| Hole::at(id, (now.id, now.wal_id_last_seen), self.rules));
        hole.map_or(OpenPhase::Fence(id), |hole| OpenPhase::Failed(Failure::Hole(hole)))
    }

    fn confirm(&mut self, id: WalId) {
        let fence = self.fence_at(id);
        let known = self.claimed.as_ref().map(|claimed| claimed.known.clone());
        if !self.rules.has(Rule::Confirm) {
            self.finish(fence);
        } else if self.rules.has(Rule::ConfirmByList) {
            self.phase = OpenPhase::Confirm(Look::new(known, self.rules), fence);
        } else {
            self.phase = OpenPhase::Confirm(Look::probe(known, self.rules), fence);
        }
    }

    /// The fence at `id`: it points past everything that any older writer may still have under
    /// way (rule F3).
    fn fence_at(&self, id: WalId) -> KeptFence {
        let own = self.options.max_parallel_writes;
        let (epoch, widest) = match &self.claimed {
            Some(claimed) => (claimed.epoch, claimed.known.window_with(own)),
            None => (Epoch::NONE, own),
        };
        let window = if self.rules.has(Rule::WidestWindow) { widest } else { own };
        let skip = if self.rules.has(Rule::SkipTheWindow) { window } else { 1 };
        KeptFence { id, epoch, next_id: id.plus(skip) }
    }

    /// Takes over a newer proven state, or ends as Fenced when its epoch is another's.
    fn still_newest(&mut self, newest: Option<Arc<Manifest>>) -> bool {
        let Some(claimed) = &mut self.claimed else { return false };
        match newest {
            // Rule F8: made anew at the same place, another database may have the same epoch.
            Some(newest) if newest.database != claimed.known.database => {
                self.phase = OpenPhase::Failed(Failure::Refused(Conflict::OtherDatabase.into()));
                false
            }
            Some(newest) if newest.writer_epoch == claimed.epoch => {
                claimed.known = newest;
                true
            }
            Some(newest) => {
                self.phase = OpenPhase::Failed(Failure::Fenced { by: Some(newest.writer_epoch) });
                false
            }
            // Rule E1: deleted, whether or not another one is made.
            None => {
                self.phase = OpenPhase::Failed(Failure::Refused(Conflict::OtherDatabase.into()));
                false
            }
        }
    }

    /// Goes on behind the cut: before each fence a look, and one at the end.
    fn cut_on(&mut self) {
        let (OpenPhase::Cut(cut) | OpenPhase::CutFence(cut)) = &self.phase else { return };
        let known = self.claimed.as_ref().map(|claimed| claimed.known.clone());
        let look = Look::new(known, self.rules);
        self.phase = match cut.action() {
            CutAction::Read(_) => return,
            CutAction::Fence(_) => OpenPhase::CutLook(look, cut.clone()),
            CutAction::Done => OpenPhase::CutConfirm(look, cut.clone()),
            CutAction::Fenced(by) => OpenPhase::Failed(Failure::Fenced { by: Some(by) }),
        };
    }

    fn finish_cut(&mut self, cut: &CutLog) {
        let (off, fences) = cut.ended();
        let (Some(claimed), Some(last)) = (&self.claimed, fences.last().copied()) else { return };
        self.phase = OpenPhase::Done(Recovered {
            manifest: claimed.known.clone(),
            epoch: claimed.epoch,
            replay: claimed.replay.clone(),
            fence: last,
            keep: claimed.met.iter().copied().chain(fences).collect(),
            waived: Vec::new(),
            cut_off: Some(off),
        });
    }

    fn finish(&mut self, fence: KeptFence) {
        let Some(claimed) = &self.claimed else { return };
        let waived = claimed.after_clean_close;
        let mut keep = Vec::new();
        let waive_met = waived && !self.rules.has(Rule::CleanCloseWaivesOnlyOwn);
        let (waived_met, met): (Vec<_>, Vec<_>) =
            claimed.met.iter().partition(|fence| is_between_closes(&claimed.known, fence.epoch));
        if self.rules.has(Rule::KeepFencesMet) && !waive_met {
            keep.extend(met);
        }
        if self.rules.has(Rule::KeepOwnFence) && !waived {
            keep.push(fence);
        }
        self.phase = OpenPhase::Done(Recovered {
            manifest: claimed.known.clone(),
            epoch: claimed.epoch,
            replay: claimed.replay.clone(),
            fence,
            keep,
            waived: waived_met,
            cut_off: None,
        });
    }
}

/// Whether the writer of `epoch` closed cleanly, after one that had. Of one that did not close more
/// is kept than must be.
fn is_between_closes(state: &Manifest, epoch: Epoch) -> bool {
    state.follows_clean_close(epoch) && state.follows_clean_close(epoch.next())
}

fn claim(options: &WriterOptions, newest: Arc<Manifest>, rules: Rules) -> Commit {
    let edit = Edit::ClaimWriter(ClaimWriter {
        expected: newest.writer_epoch,
        claim: options.claim,
        max_parallel_writes: options.max_parallel_writes,
        take_over: options.take_over,
        transient: options.transient,
        ends_transient: options.ends_transient,
        reserve: options.reserve.clone(),
        checkpoint: options.checkpoint.clone(),
        merge_operator: options.merge_operator.clone(),
    });
    Commit::new(edit, newest, rules)
}

#[cfg(test)]
mod tests;
