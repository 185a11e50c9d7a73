//! Opening a writer: claim an epoch, walk the log, fence it, confirm the epoch (rules F1 to F5).
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
//!                create fence ──Lost──► the same rules for the object there
//!                     │  └──NotApplied, Unknown──► look, and the same fence again
//!                     ▼
//!                  confirm (look) ──overtaken──► Fenced
//!                     ▼
//!                   Done
//! ```
//! A repair opens with a cut: the walk ends at that id without reading it, and continues as
//! described in `cut.rs`.

mod early;
mod recovered;

use super::commit::{Commit, CommitAction};
use super::cut::{CutAction, CutLog};
use super::hole::{HoleCheck, HoleCheckResult};
use super::look::{Look, LookAction};
use super::{Failure, Hole, ManifestAnswer, ManifestRequest, WalListing, WalSeen, beyond};
use crate::edit::{ClaimWriter, Conflict, Edit, NewCheckpoint, Refusal};
use crate::rules::{Rule, Rules};
use crate::state::{KeptFence, Manifest};
use siltstone_base::{AttemptId, Epoch, ManifestId, PutOutcome, SstId, WalId};
use std::sync::Arc;

pub use early::EarlyAnswer;
pub use recovered::Recovered;

/// The options of a writer for its claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct WriterOptions {
    /// Identity of the claim, random.
    pub claim: AttemptId,
    /// Maximum number of WAL objects in flight, 1 to 64.
    pub max_parallel_writes: u64,
    /// Whether to fence a writer that did not close cleanly.
    pub take_over: bool,
    /// Whether it is opened briefly to install ingest jobs.
    pub transient: bool,
    /// Whether to fence a briefly opened writer that did not close cleanly, independent of
    /// `take_over`.
    pub ends_transient: bool,
    /// New names for its first tables.
    pub reserve: Vec<SstId>,
    /// The checkpoint that it keeps for its own reads.
    pub checkpoint: Option<NewCheckpoint>,
    /// Name of its merge operator.
    pub merge_operator: Option<String>,
    /// The id at which a repair cuts the log: the object there and later ones are not kept.
    pub cut: Option<WalId>,
}

/// Opens a writer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OpenWriter {
    options: Arc<WriterOptions>,
    rules: Rules,
    phase: OpenPhase,
    /// Set once the claim is committed.
    claimed: Option<Claimed>,
    /// Answers that the next actions may ask for.
    early: Vec<EarlyAnswer>,
    /// The id without an object at which the walk ended by reads from before the claim.
    early_end: Option<WalId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Claimed {
    /// The newest proven state.
    known: Arc<Manifest>,
    epoch: Epoch,
    /// The number of the state at the claim, and the last WAL id that it knew: holes are judged by
    /// it. A later state may know of an object that landed after its id was read.
    last_seen: (ManifestId, WalId),
    /// Whether the previous epoch had closed cleanly at the time of the claim.
    after_clean_close: bool,
    /// The id for whose fence the listing that checked the claim is the look: it began after the
    /// read that found no object there, and showed no newer manifest.
    looked: Option<WalId>,
    replay: Vec<(WalId, Epoch)>,
    met: Vec<KeptFence>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum OpenPhase {
    Claim(Commit),
    Walk(WalId),
    /// There is no object at this id: lists the objects after it.
    List(WalId),
    /// There are objects after it: checks whether they prove a hole.
    Doubt(HoleCheck, WalId),
    /// Looks for a newer manifest before a fence at this id.
    Look(Look, WalId),
    /// Looks whether the missing object was freed after a newer writer took over.
    Missing(Look, Hole),
    Fence(WalId),
    /// Cuts the log. Boxed, because few openings do.
    Cut(Box<CutLog>),
    /// Looks for a newer manifest before a fence behind the cut, then creates it.
    CutLook(Look, Box<CutLog>),
    CutFence(Box<CutLog>),
    CutConfirm(Look, Box<CutLog>),
    Confirm(Look, KeptFence),
    Done(Recovered),
    Failed(Failure),
}

/// The next step of [`OpenWriter`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OpenAction {
    /// Perform this request.
    Request(ManifestRequest),
    /// Read this WAL object and keep its body.
    ReadWal(WalId),
    /// As `ReadWal`, behind the cut: an object that cannot be read is [`WalSeen::Foreign`].
    ReadCutOff(WalId),
    /// List the WAL objects after this id, and the boundary of the WAL.
    ListWal(WalId),
    /// Create this fence if the name is free, with the same bytes and attempt id for every try of
    /// the same fence.
    CreateFence(KeptFence),
    /// The writer is open.
    Done(Recovered),
    /// The writer is not open. Its claim may be committed.
    Failed(Failure),
}

impl OpenWriter {
    /// Opens a writer on the database with the newest known manifest `newest`.
    #[must_use]
    pub fn new(options: WriterOptions, newest: Arc<Manifest>, rules: Rules) -> OpenWriter {
        let options = Arc::new(options);
        let phase = OpenPhase::Claim(claim(&options, newest, rules));
        let mut open =
            OpenWriter { options, rules, phase, claimed: None, early: Vec::new(), early_end: None };
        open.settle();
        open
    }

    /// The next step.
    #[must_use]
    pub fn action(&self) -> OpenAction {
        match &self.phase {
            OpenPhase::Claim(commit) => match commit.action() {
                CommitAction::Request(request) => OpenAction::Request(request),
                // `settle` has handled this before the caller can see it.
                CommitAction::Done(_) => OpenAction::Failed(Failure::Fenced { by: None }),
                CommitAction::Failed(refusal) => OpenAction::Failed(refusal.into()),
            },
            // At the cut the object itself is not read.
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
                // `cut_on` has handled this before the caller can see it.
                CutAction::Done => OpenAction::Failed(Failure::Fenced { by: None }),
                CutAction::Fenced(by) => OpenAction::Failed(Failure::Fenced { by: Some(by) }),
            },
            OpenPhase::Done(recovered) => OpenAction::Done(recovered.clone()),
            OpenPhase::Failed(failure) => OpenAction::Failed(*failure),
        }
    }

    /// The answer to [`OpenAction::Request`].
    pub fn on_answer(&mut self, answer: ManifestAnswer) {
        self.apply_answer(answer);
        self.take_early();
    }

    fn apply_answer(&mut self, answer: ManifestAnswer) {
        match &mut self.phase {
            OpenPhase::Claim(commit) => {
                commit.on_answer(answer);
                self.note_early_end();
            }
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
        self.apply_wal(seen);
        self.take_early();
    }

    fn apply_wal(&mut self, seen: WalSeen) {
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
        self.apply_wal_listing(listing);
        self.take_early();
    }

    fn apply_wal_listing(&mut self, listing: &WalListing) {
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
            _ => self.epoch().map(Edit::close_without_log),
        }
    }

    /// Continues after an inner step function has ended.
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
                // The epoch is still the own one: the replay point is where the walk began, and no
                // id from there on was freed before this look, so none was freed when the id was
                // read.
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

    /// Another claim was committed first: claims the next epoch, if the writer of that claim may be
    /// fenced.
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
        let is_newest = matches!(&self.phase, OpenPhase::Claim(commit) if commit.is_newest());
        let Some(record) = state.writers.iter().find(|one| one.claim == self.options.claim) else {
            self.phase = OpenPhase::Failed(Failure::Fenced { by: Some(state.writer_epoch) });
            return;
        };
        let epoch = record.epoch;
        if state.writer_epoch != epoch {
            self.phase = OpenPhase::Failed(Failure::Fenced { by: Some(state.writer_epoch) });
            return;
        }
        // There was no writer before the first epoch.
        let after_clean_close = epoch == Epoch::FIRST || state.follows_clean_close(epoch);
        let begin = state.replay_from;
        self.phase = OpenPhase::Walk(begin);
        self.claimed = Some(Claimed {
            last_seen: (state.id, state.wal_id_last_seen),
            known: state,
            epoch,
            after_clean_close,
            looked: self.early_end.filter(|_| is_newest),
            replay: Vec::new(),
            met: Vec::new(),
        });
    }

    /// Applies the rules of the walk to the object at `id`.
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
            // The object existed and was freed: another writer moves the replay point.
            WalSeen::Vanished => OpenPhase::Failed(Failure::Fenced { by: None }),
            WalSeen::Foreign => OpenPhase::Failed(Failure::Foreign(id)),
            WalSeen::Data { epoch, .. } | WalSeen::Fence { epoch, .. } if epoch > own && stop => {
                OpenPhase::Failed(Failure::Fenced { by: Some(epoch) })
            }
            // No other writer has this epoch: an earlier try of this fence has landed.
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

    /// Handles the read of an object after `id`, where no object was found, or of `id` again.
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

    /// Reports a hole, unless the missing object was freed after a newer writer took over.
    fn missing(&mut self, hole: Hole) {
        let known = self.claimed.as_ref().map(|claimed| claimed.known.clone());
        self.phase = if self.rules.has(Rule::ProveHoles) {
            OpenPhase::Missing(Look::new(known, self.rules), hole)
        } else {
            OpenPhase::Failed(Failure::Hole(hole))
        };
    }

    fn look_before(&mut self, id: WalId) {
        let looked = self.claimed.as_mut().and_then(|claimed| claimed.looked.take());
        if looked == Some(id) {
            self.phase = self.fence_or_late_hole(id);
            return;
        }
        let known = self.claimed.as_ref().map(|claimed| claimed.known.clone());
        self.phase = if self.rules.has(Rule::LookBeforeFence) {
            OpenPhase::Look(Look::new(known, self.rules), id)
        } else {
            OpenPhase::Fence(id)
        };
    }

    /// Continues with a fence at `id`, or with a hole, if holes are judged by the current state.
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

    /// The fence at `id`: it points past every id that an older writer may have in flight (rule
    /// F3).
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

    /// Adopts a newer proven state, or ends as Fenced if its epoch belongs to another writer.
    fn still_newest(&mut self, newest: Option<Arc<Manifest>>) -> bool {
        let Some(claimed) = &mut self.claimed else { return false };
        match newest {
            // Rule F8: a new database at the same location may have the same epoch.
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
            // Rule E1: the database was deleted; another one may have been created.
            None => {
                self.phase = OpenPhase::Failed(Failure::Refused(Conflict::OtherDatabase.into()));
                false
            }
        }
    }

    /// Continues behind the cut, with a look before each fence and one at the end.
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

/// Whether the writer of `epoch` closed cleanly, after a writer that had closed cleanly. If a
/// writer did not close cleanly, more fences are kept than necessary.
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
