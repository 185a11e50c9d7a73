//! The writer's edits.

use super::checkpoint::{is_added, is_released, release};
use super::{
    Conflict, InstallBatch, InstallBehind, InstallIngest, NewCheckpoint, Refusal, Release, log,
};
use crate::features::SINCE_LEASES;
use crate::rules::{Rule, Rules};
use crate::state::{CheckpointOwner, KeptFence, L0Entry, Manifest, WRITER_RECORDS, WriterRecord};
use siltstone_base::limits::MAX_PARALLEL_WRITES;
use siltstone_base::{AttemptId, Epoch, Seq, SstDescriptor, SstId, UnixMillis, WalId};

/// The claim of a new writer (rules F1, R2, C1). After this commit no older writer can commit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClaimWriter {
    /// The writer epoch that it has seen; it claims the next one.
    pub expected: Epoch,
    /// Its identity, random.
    pub claim: AttemptId,
    /// Maximum number of WAL objects in flight.
    pub max_parallel_writes: u64,
    /// Whether to fence a writer that did not close cleanly.
    pub take_over: bool,
    /// Whether it is opened briefly to install ingest jobs.
    pub transient: bool,
    /// Whether to fence a briefly opened writer that did not close cleanly, independent of
    /// `take_over`.
    pub ends_transient: bool,
    /// Names for its first tables. The names of the older writer become void.
    pub reserve: Vec<SstId>,
    /// The checkpoint that it keeps for its own reads. The checkpoint of the older writer is
    /// removed.
    pub checkpoint: Option<NewCheckpoint>,
    /// Name of its merge operator; recorded if there is none yet.
    pub merge_operator: Option<String>,
}

impl ClaimWriter {
    pub(super) fn apply(&self, next: &mut Manifest, rules: Rules) -> Result<(), Refusal> {
        if next.writer_epoch != self.expected {
            return Err(Conflict::EpochMoved { now: next.writer_epoch }.into());
        }
        let ends = self.take_over
            || self.ends_transient && next.last_writer().is_some_and(|last| last.transient);
        if !ends && !next.closed_cleanly() {
            return Err(Conflict::NotClosed { epoch: next.writer_epoch }.into());
        }
        if !(1..=MAX_PARALLEL_WRITES).contains(&self.max_parallel_writes) {
            return Err(Refusal::Invalid("max_parallel_writes is 1 to 64"));
        }
        match (&self.merge_operator, &next.settings.merge_operator) {
            (Some(brought), Some(recorded)) if brought != recorded => {
                return Err(Refusal::Invalid("the database has another merge operator now"));
            }
            (Some(brought), None) => next.settings.merge_operator = Some(brought.clone()),
            _ => {}
        }
        let epoch = self.expected.next();
        next.writer_epoch = epoch;
        next.widest_window = next.widest_window.max(self.max_parallel_writes);
        next.writers.push(WriterRecord {
            epoch,
            claim: self.claim,
            max_parallel_writes: self.max_parallel_writes,
            clean_close: false,
            transient: self.transient,
        });
        let excess = next.writers.len().saturating_sub(WRITER_RECORDS);
        next.writers.drain(..excess);
        if rules.has(Rule::TakeoverVoidsNames) {
            next.reserved.clear();
        }
        // Names of large batches stay until no replay can need them (rule N15).
        if !rules.has(Rule::KeepLeft) {
            next.left.clear();
        }
        next.reserved.extend(&self.reserve);
        // The snapshots of the older writer ended with it, and all data that this writer recovers
        // is newer than the data in tables.
        next.floor = next.flushed_seq;
        if rules.has(Rule::TakeoverRemovesPins) {
            next.checkpoints.retain(|one| !matches!(one.owner, CheckpointOwner::Writer(_)));
        }
        next.features.name_for_committers(SINCE_LEASES, "0.1.0");
        pin(next, self.checkpoint.as_ref(), epoch, rules)
    }

    pub(super) fn in_effect(&self, state: &Manifest) -> bool {
        state.writers.iter().any(|writer| writer.claim == self.claim)
    }
}

/// The regular commit of a writer: adds tables to L0 and moves the replay point.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FlushL0 {
    /// The writer's epoch.
    pub epoch: Epoch,
    /// New layers, oldest first, each of disjoint tables in ascending key order. Their names must
    /// be reserved; their orders are assigned here, counting up from the last one.
    pub layers: Vec<Vec<SstDescriptor>>,
    /// Ingest jobs to install, oldest first.
    pub ingests: Vec<InstallIngest>,
    /// Large batches to install, oldest first.
    pub batches: Vec<InstallBatch>,
    /// A job to install behind all other data.
    pub behind: Option<InstallBehind>,
    /// The next WAL id to read in a replay, from [`replay_point`]. Never moves back.
    pub replay_from: WalId,
    /// Entries up to this sequence number are in tables. Never decreases; grows with every layer.
    pub flushed_seq: Seq,
    /// The latest commit time in tables; the manifest keeps its own if that is later.
    pub commit_time: UnixMillis,
    /// Whether rows of the tables were never in the log.
    pub unlogged: bool,
    /// The largest WAL id that is committed.
    pub wal_id_last_seen: WalId,
    /// Fences that must stay: all fences named by the recovery, no later than the commit that moves
    /// the replay point past them (rule F5). Fences that are already kept are ignored.
    pub fences: Vec<KeptFence>,
    /// Names for the next tables.
    pub reserve: Vec<SstId>,
    /// Names of large batches that are no longer replayed, from [`to_let_go`](super::to_let_go),
    /// and names of failed batches.
    pub let_go: Vec<SstId>,
    /// The oldest sequence number that the snapshots of the writer need; a value above
    /// `flushed_seq` counts as `flushed_seq`.
    pub floor: Seq,
    /// A checkpoint of the new state, for the writer's own reads.
    pub checkpoint: Option<NewCheckpoint>,
    /// Older checkpoints of the writer: each is removed, unless a compaction that was committed
    /// before has removed a table that is still read through it.
    pub release: Vec<Release>,
}

impl FlushL0 {
    /// A commit of `epoch` on `state` without any change.
    #[must_use]
    pub fn nothing(epoch: Epoch, state: &Manifest) -> FlushL0 {
        FlushL0 {
            epoch,
            layers: Vec::new(),
            ingests: Vec::new(),
            batches: Vec::new(),
            behind: None,
            replay_from: state.replay_from,
            flushed_seq: state.flushed_seq,
            commit_time: state.commit_time,
            unlogged: false,
            wal_id_last_seen: state.wal_id_last_seen,
            fences: Vec::new(),
            reserve: Vec::new(),
            let_go: Vec::new(),
            floor: state.floor,
            checkpoint: None,
            release: Vec::new(),
        }
    }

    fn names(&self) -> impl Iterator<Item = SstId> {
        self.layers.iter().flatten().map(|table| table.id)
    }

    pub(super) fn apply(&self, next: &mut Manifest, rules: Rules) -> Result<(), Refusal> {
        check_epoch(next, self.epoch)?;
        if self.replay_from < next.replay_from || self.flushed_seq < next.flushed_seq {
            return Err(Refusal::Invalid("the replay point and flushed_seq never move back"));
        }
        // A later state shows by this increase that the commit was made.
        let mut brought = [self.layers.len(), self.ingests.len(), self.batches.len()].into_iter();
        let adds = brought.any(|count| count > 0);
        if adds && self.flushed_seq == next.flushed_seq {
            return Err(Refusal::Invalid("a flush that adds tables raises flushed_seq"));
        }
        // A replay skips by sequence number (rule N13): a job above it would be installed a second
        // time.
        let jobs = self.ingests.iter().map(|one| one.last_seq());
        let mut lasts = jobs.chain(self.batches.iter().map(|one| one.seq()));
        if lasts.any(|last| last > Some(self.flushed_seq)) {
            return Err(Refusal::Invalid("a job or batch is above flushed_seq"));
        }
        check_names(next, self.names(), rules)?;
        if adds {
            next.tables_since = next.id;
        }
        let used: Vec<SstId> = self.names().collect();
        next.reserved.retain(|name| !used.contains(name));
        next.reserved.extend(&self.reserve);
        // Each table is placed above all older data.
        log::add(next, (&self.layers, &self.ingests, &self.batches), rules)?;
        next.left.retain(|name| !self.let_go.contains(name));
        self.behind.as_ref().map_or(Ok(()), |behind| behind.apply(next, rules))?;
        next.replay_from = self.replay_from;
        next.flushed_seq = self.flushed_seq;
        next.commit_time = next.commit_time.max(self.commit_time);
        if self.unlogged {
            next.features.leave_unlogged(self.flushed_seq);
        }
        next.wal_id_last_seen = next.wal_id_last_seen.max(self.wal_id_last_seen);
        next.floor = self.floor.min(self.flushed_seq);
        keep_fences(next, &self.fences);
        release(next, &self.release, rules);
        pin(next, self.checkpoint.as_ref(), self.epoch, rules)
    }

    pub(super) fn in_effect(&self, state: &Manifest, rules: Rules) -> bool {
        // Another epoch has voided the names, so they prove nothing; the answer is then Fenced,
        // which leaves the outcome open.
        if state.writer_epoch != self.epoch {
            return false;
        }
        let added = if rules.has(Rule::SettleByReservation) {
            !self.names().any(|name| state.reserved.contains(&name))
                && state.flushed_seq >= self.flushed_seq
        } else {
            self.names().all(|name| state.tables().any(|table| table.id == name))
        };
        let batches = || self.batches.iter().flat_map(InstallBatch::names);
        added
            && !batches().chain(self.let_go.iter().copied()).any(|name| state.left.contains(&name))
            && self.behind.as_ref().is_none_or(|behind| behind.in_effect(state))
            && state.replay_from >= self.replay_from
            && state.flushed_seq >= self.flushed_seq
            && state.wal_id_last_seen >= self.wal_id_last_seen
            && state.floor == self.floor.min(self.flushed_seq)
            && keeps_all(state, &self.fences)
            && self.reserve.iter().all(|name| state.reserved.contains(name))
            && is_added(state, self.checkpoint.as_ref(), rules)
            && is_released(state, &self.release, rules)
    }
}

/// Checks that every name is reserved (rule R1).
pub(super) fn check_names(
    state: &Manifest,
    mut names: impl Iterator<Item = SstId>,
    rules: Rules,
) -> Result<(), Refusal> {
    if rules.has(Rule::CheckReservation) && !names.all(|name| state.reserved.contains(&name)) {
        return Err(Refusal::Invalid("a table's name is not reserved"));
    }
    Ok(())
}

/// Adds layers to L0, oldest first; orders are assigned here, counting up from the last one.
pub(super) fn push_layers(next: &mut Manifest, layers: &[Vec<SstDescriptor>]) {
    for tables in layers {
        next.last_l0_order = next.last_l0_order.saturating_add(1);
        let entry = L0Entry { order: next.last_l0_order, tables: tables.clone() };
        next.l0.insert(0, entry);
    }
}

/// Adds the own checkpoint of the writer. It pins no WAL: the writer has these rows in memory.
fn pin(
    next: &mut Manifest,
    new: Option<&NewCheckpoint>,
    epoch: Epoch,
    rules: Rules,
) -> Result<(), Refusal> {
    let Some(new) = new.filter(|_| rules.has(Rule::PinWhatIsRead)) else { return Ok(()) };
    let (owner, wal_id_last_seen) = (CheckpointOwner::Writer(epoch), Some(WalId::NONE));
    NewCheckpoint { owner, wal_id_last_seen, ..new.clone() }.apply(next)
}

/// The next id to read once everything up to and including `last` is in tables: after a fence its
/// `next_id`, so that the replay point is never inside a gap (rule F2).
#[must_use]
pub fn replay_point(last: WalId, fences: &[KeptFence], rules: Rules) -> WalId {
    let fence = fences.iter().find(|fence| fence.id == last);
    match fence {
        Some(fence) if rules.has(Rule::ReplayPointOutsideGap) => fence.next_id,
        _ => last.next(),
    }
}

/// Fenced, if the newest writer does not have `epoch`.
pub(super) fn check_epoch(state: &Manifest, epoch: Epoch) -> Result<(), Refusal> {
    if state.writer_epoch == epoch {
        Ok(())
    } else {
        Err(Refusal::Fenced { by: state.writer_epoch })
    }
}

/// Adds the fences that are not kept yet, in order of id.
pub(super) fn keep_fences(next: &mut Manifest, fences: &[KeptFence]) {
    for fence in fences {
        if let Err(place) = next.kept_fences.binary_search_by_key(&fence.id, |kept| kept.id) {
            next.kept_fences.insert(place, *fence);
        }
    }
}

/// Moves the replay point past the last of `fences`, which end the log.
pub(super) fn go_past(next: &mut Manifest, fences: &[KeptFence]) {
    let beyond = fences.iter().map(|fence| fence.next_id).max();
    next.replay_from = beyond.map_or(next.replay_from, |id| id.max(next.replay_from));
    let walked = WalId(next.replay_from.get() - 1);
    next.wal_id_last_seen = next.wal_id_last_seen.max(walked);
}

/// Releases the names and checkpoints of the previous writer; the next opener finds the epoch
/// closed.
pub(super) fn end_writer(next: &mut Manifest) {
    next.reserved.clear();
    next.left.clear();
    next.pending_ingests.clear();
    next.checkpoints.retain(|one| !matches!(one.owner, CheckpointOwner::Writer(_)));
    if let Some(writer) = next.writers.last_mut() {
        writer.clean_close = true;
    }
}

pub(super) fn keeps_all(state: &Manifest, fences: &[KeptFence]) -> bool {
    fences.iter().all(|fence| state.kept_fences.contains(fence))
}

/// Records that the newest writer closed with every outcome known, and where its log ends. The rows
/// between the last flush and that end are nowhere else.
pub(super) fn close(next: &mut Manifest, epoch: Epoch, last: WalId) -> Result<(), Refusal> {
    check_epoch(next, epoch)?;
    next.wal_id_last_seen = next.wal_id_last_seen.max(last);
    if let Some(writer) = next.writers.last_mut() {
        writer.clean_close = true;
    }
    next.reserved.clear();
    next.checkpoints.retain(|one| one.owner != CheckpointOwner::Writer(epoch));
    Ok(())
}
