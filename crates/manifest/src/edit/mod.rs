//! Edits: the changes from one manifest to the next (rule M2).
//!
//! An edit is a change by id, never "set L0 to this list", so that a writer, a compactor and
//! readers can change the same state and stay correct under retry. Every edit can be recognised in
//! a later state ([`Edit::in_effect`]); this settles a commit with an unknown outcome.
//!
//! | edit | recognised by |
//! | --- | --- |
//! | claim of a writer, of a compactor | its claim identity in the records |
//! | flush | its epoch, how far it reached, its names no longer reserved |
//! | finished compaction | its job among the finished ones |
//! | reserved names, kept fences, checkpoints | present |
//! | leases | the versions are covered for long enough |
//! | a step of the creation of a clone | its timeline, its entries, that it is initialised |
//! | claim, head, promotion of a mirror | its claim, the head's claim, no longer a mirror |
//! | restore, kept part of a log | its history among the timelines |
//! | a table given up | its epoch closed, and the table gone |
//! | evolution of a table's columns | the schema that it sets |
//! | an edit of an ingest job | the job pending, recorded or remembered |
//! | an edit of a hold | its generation and its position |
//! | clean close, destroy, removed or refreshed checkpoints | the value they set |

mod batch;
mod checkpoint;
mod clone;
mod compaction;
mod destroy;
mod give_up;
mod history;
mod hold;
pub(crate) mod ingest;
mod leases;
mod log;
pub(crate) mod mirror;
mod refusal;
mod repair;
mod restore;
mod schema;
mod writer;

pub use batch::{InstallBatch, ReserveBatch, to_let_go};
pub use checkpoint::{NewCheckpoint, Release, UpdateCheckpoints};
pub use clone::{CloneEdit, PinEdit};
pub use compaction::FinishCompaction;
pub use destroy::{Destroy, bars_destroy, is_let_go};
pub use give_up::{GiveUpTable, GivenUpPart};
pub use hold::{AdvanceHold, HoldConflict, HoldEdit, HoldExcess, HoldFrom, TakeHold};
pub use ingest::{
    IngestConflict, IngestEdit, InstallBehind, InstallIngest, RequestIngest, with_layers,
};
pub use leases::CoverVersions;
pub use log::LogTables;
pub use mirror::{MirrorEdit, NewHead};
pub(crate) use refusal::fenced;
pub use refusal::{Conflict, MirrorUse, Refusal};
pub use repair::{KeepPrefix, VoidManifests};
pub use restore::Restore;
pub use schema::Evolve;
pub use writer::{ClaimWriter, FlushL0, replay_point};

use crate::features::UNITS;
use crate::invariant::INVARIANTS;
use crate::rules::{Rule, Rules};
use crate::state::{CheckpointOwner, KeptFence, Manifest};
use siltstone_base::{AttemptId, CheckpointId, Epoch, ManifestId, SstId, UnixMillis, WalId};

/// One change to a database's state.
#[expect(clippy::large_enum_variant, reason = "one is made for each commit, and not kept")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Edit {
    /// A new writer takes the next epoch (rule F1).
    ClaimWriter(ClaimWriter),
    /// The writer adds tables to L0 and moves the replay point.
    FlushL0(FlushL0),
    /// The writer reserves names for tables it will upload (rule R1).
    ReserveNames {
        /// The writer's epoch.
        epoch: Epoch,
        /// The names, fresh.
        names: Vec<SstId>,
    },
    /// The writer reserves names for the tables of a large batch (rule N15).
    ReserveBatch(ReserveBatch),
    /// The writer records fences that must stay (rule F5).
    KeepFences {
        /// The writer's epoch.
        epoch: Epoch,
        /// The fences.
        fences: Vec<KeptFence>,
    },
    /// The writer closes, with the outcome of every write known (rule F5). Its unused names are
    /// released.
    CloseClean {
        /// The writer's epoch.
        epoch: Epoch,
        /// The end of its log: its last object or, without writes, its fence. From now on a log
        /// that ends before it has a hole (rule F2).
        wal_id_last_seen: WalId,
    },
    /// Pins the manifest that this commit creates, or the version pinned by another checkpoint.
    AddCheckpoint(NewCheckpoint),
    /// Changes the expiry of a checkpoint. A checkpoint that has expired but is present can be
    /// refreshed (rule C3).
    RefreshCheckpoint {
        /// The checkpoint.
        id: CheckpointId,
        /// When it may be revoked from now on; `None`: never.
        expires_at: Option<UnixMillis>,
    },
    /// Adds, removes and refreshes checkpoints in one commit, for a reader whose tables change.
    UpdateCheckpoints(UpdateCheckpoints),
    /// Removes a checkpoint, for its owner or an administrator; never that of a writer.
    RemoveCheckpoint {
        /// The checkpoint.
        id: CheckpointId,
    },
    /// Covers versions by leases that all readers share (rules L1, L2).
    CoverVersions(CoverVersions),
    /// Removes the given checkpoints, and all leases and holds, that are expired at the time of the
    /// commit (rule G3): a refresh that was committed first takes precedence.
    RevokeExpired {
        /// The candidates among the checkpoints.
        ids: Vec<CheckpointId>,
        /// Expired means: expires at or before this.
        now: UnixMillis,
    },
    /// A new compactor takes the next compactor epoch (rule R2).
    ClaimCompactor {
        /// The epoch of the writer in whose process the compactor runs: it may claim only while
        /// that writer is the newest. Otherwise a writer that was taken over would stop the
        /// compactor of its successor. `None`: the compactor runs in its own process.
        writer: Option<Epoch>,
        /// The compactor epoch it saw.
        expected: Epoch,
        /// Its identity, random.
        claim: AttemptId,
    },
    /// The compactor releases its epoch: no compactor runs until the next claim.
    ReleaseCompactor {
        /// Its epoch.
        epoch: Epoch,
    },
    /// The compactor adds the feature for units of its jobs (RFC 0046).
    BeginUnits {
        /// Its epoch.
        epoch: Epoch,
    },
    /// The compactor ends a job: removes and adds tables.
    FinishCompaction(FinishCompaction),
    /// A step of creating a clone, or of removing its ancestors (rules K1, K5).
    Clone(CloneEdit),
    /// A clone changes its pin in the database that it pins (rules K1, K4, K5).
    Pin(PinEdit),
    /// Destroys the database (rule D1).
    Destroy(Destroy),
    /// Makes a checkpoint the current state (rule S1).
    Restore(Restore),
    /// A step of an export into this database, or its promotion (rules X2, X4).
    Mirror(MirrorEdit),
    /// Cuts the log before an object that cannot be read (rule Y2).
    KeepPrefix(KeepPrefix),
    /// Gives up a table that cannot be read (rule Y4).
    GiveUpTable(GiveUpTable),
    /// Allows unreferenced tables to be collected again after a repair (rule Y3).
    CollectTables,
    /// Requests, refuses, withdraws or forgets an ingest job (rules N9 to N11).
    Ingest(IngestEdit),
    /// Begins, moves or removes the hold of a change feed consumer (rules W3 to W5).
    Hold(HoldEdit),
    /// Changes the value columns to others by which older rows can be read (RFC 0040).
    Evolve(Evolve),
}

impl Edit {
    /// The state after this edit, with the next id; all invariants hold.
    ///
    /// # Errors
    /// The reason why the edit does not fit `base`. `Refusal::Broken` means a bug in the caller.
    pub fn apply(&self, base: &Manifest) -> Result<Manifest, Refusal> {
        self.apply_with(base, Rules::ALL)
    }

    /// As [`Edit::apply`], under `rules`.
    ///
    /// # Errors
    /// As [`Edit::apply`].
    pub fn apply_with(&self, base: &Manifest, rules: Rules) -> Result<Manifest, Refusal> {
        if base.destroyed_at.is_some() && !self.is_clean_up() && !self.repeats_a_pin(base) {
            return Err(Conflict::Destroyed.into());
        }
        if !base.initialized && !self.is_of_the_making() {
            return Err(Conflict::NotInitialized.into());
        }
        if base.mirror.is_some() && !self.suits_a_mirror() {
            return Err(Conflict::Mirror { database: base.database }.into());
        }
        let mut next = base.clone();
        (next.id, next.attempt) = (base.next_id(), AttemptId::NONE);
        match self {
            Edit::ClaimWriter(claim) => claim.apply(&mut next, rules)?,
            Edit::FlushL0(flush) => flush.apply(&mut next, rules)?,
            Edit::ReserveNames { epoch, names } => {
                writer::check_epoch(&next, *epoch)?;
                next.reserved.extend(names);
            }
            Edit::ReserveBatch(reserve) => reserve.apply(&mut next)?,
            Edit::KeepFences { epoch, fences } => {
                writer::check_epoch(&next, *epoch)?;
                writer::keep_fences(&mut next, fences);
            }
            Edit::CloseClean { epoch, wal_id_last_seen } => {
                writer::close(&mut next, *epoch, *wal_id_last_seen)?;
            }
            Edit::AddCheckpoint(new) => new.apply(&mut next)?,
            Edit::RefreshCheckpoint { id, expires_at } => {
                checkpoint::refresh(&mut next, *id, *expires_at)?;
            }
            Edit::UpdateCheckpoints(update) => update.apply(&mut next, rules)?,
            Edit::CoverVersions(cover) => cover.apply(&mut next, rules)?,
            Edit::RemoveCheckpoint { id } => checkpoint::remove(&mut next, *id)?,
            Edit::RevokeExpired { ids, now } => {
                next.checkpoints.retain(|one| !(ids.contains(&one.id) && one.expired_at(*now)));
                leases::revoke(&mut next, *now);
                hold::revoke(&mut next, *now, rules);
            }
            Edit::ClaimCompactor { writer, expected, claim } => {
                if writer.is_some_and(|writer| writer != next.writer_epoch) {
                    return Err(Refusal::Fenced { by: next.writer_epoch });
                }
                compaction::claim(&mut next, *expected, *claim)?;
            }
            Edit::ReleaseCompactor { epoch } => compaction::release(&mut next, *epoch)?,
            Edit::BeginUnits { epoch } => compaction::begin_units(&mut next, *epoch)?,
            Edit::FinishCompaction(finish) => finish.apply(&mut next, rules)?,
            Edit::Clone(change) => change.apply(&mut next)?,
            Edit::Pin(change) => change.apply(&mut next)?,
            Edit::Destroy(destroy) => destroy.apply(&mut next, rules)?,
            Edit::Restore(restore) => restore.apply(&mut next, rules)?,
            Edit::Mirror(change) => change.apply(&mut next, rules)?,
            Edit::KeepPrefix(prefix) => prefix.apply(&mut next, rules)?,
            Edit::GiveUpTable(given_up) => given_up.apply(&mut next, rules)?,
            Edit::CollectTables => next.features.collect_tables(),
            Edit::Ingest(change) => change.apply(&mut next, rules)?,
            Edit::Hold(change) => change.apply(&mut next, rules)?,
            Edit::Evolve(change) => change.apply(&mut next)?,
        }
        check(&next, rules)?;
        Ok(next)
    }

    /// Whether `state` shows that this edit was committed, and not undone in a way that requires it
    /// again.
    #[must_use]
    pub fn in_effect(&self, state: &Manifest) -> bool {
        self.in_effect_with(state, Rules::ALL)
    }

    /// As [`Edit::in_effect`], under `rules`.
    #[must_use]
    pub fn in_effect_with(&self, state: &Manifest, rules: Rules) -> bool {
        match self {
            Edit::ClaimWriter(claim) => claim.in_effect(state),
            Edit::FlushL0(flush) => flush.in_effect(state, rules),
            Edit::ReserveNames { epoch, names } => {
                state.writer_epoch == *epoch && names.iter().all(|n| state.reserved.contains(n))
            }
            Edit::ReserveBatch(reserve) => reserve.in_effect(state),
            Edit::KeepFences { epoch, fences } => {
                state.writer_epoch == *epoch && writer::keeps_all(state, fences)
            }
            Edit::CloseClean { epoch, .. } => {
                let mut writers = state.writers.iter();
                writers.any(|writer| writer.epoch == *epoch && writer.clean_close)
            }
            Edit::AddCheckpoint(new) => state.checkpoint(new.id).is_some(),
            Edit::RefreshCheckpoint { id, expires_at } => {
                state.checkpoint(*id).is_some_and(|one| one.expires_at == *expires_at)
            }
            Edit::UpdateCheckpoints(update) => update.in_effect(state, rules),
            Edit::CoverVersions(cover) => cover.in_effect(state, rules),
            Edit::RemoveCheckpoint { id } => state.checkpoint(*id).is_none(),
            Edit::RevokeExpired { ids, now } => {
                let mut named = state.checkpoints.iter().filter(|one| ids.contains(&one.id));
                !named.any(|one| one.expired_at(*now))
                    && !state.leases.iter().any(|lease| lease.expired_at(*now))
                    && !state.since_leases.iter().any(|lease| lease.expired_at(*now))
                    && !state.holds.iter().any(|hold| hold.expired_at(*now))
            }
            Edit::ClaimCompactor { claim, .. } => state.compactor_claim == *claim,
            Edit::ReleaseCompactor { epoch } => {
                state.compactor_epoch == *epoch && state.compactor_is_released()
            }
            Edit::BeginUnits { .. } => state.features.names(UNITS),
            Edit::FinishCompaction(finish) => {
                state.finished_jobs.iter().any(|done| done.job == finish.job)
            }
            Edit::Clone(change) => change.in_effect(state),
            Edit::Pin(change) => change.in_effect(state),
            Edit::Destroy(destroy) => destroy.in_effect(state),
            Edit::Restore(restore) => restore.in_effect(state),
            Edit::Mirror(change) => change.in_effect(state),
            Edit::KeepPrefix(prefix) => prefix.in_effect(state),
            Edit::GiveUpTable(given_up) => given_up.in_effect(state),
            Edit::CollectTables => !state.features.keeps_tables(),
            Edit::Ingest(change) => change.in_effect(state),
            Edit::Hold(change) => change.in_effect(state),
            Edit::Evolve(change) => change.in_effect(state),
        }
    }

    /// Whether a database that is being created accepts it.
    fn is_of_the_making(&self) -> bool {
        matches!(self, Edit::Destroy(_) | Edit::Mirror(_))
            || matches!(self, Edit::Clone(change) if change.is_of_the_making())
    }

    /// Whether a mirror accepts it: edits of exporters, and the edits of readers, clones and
    /// collectors (rule X4).
    fn suits_a_mirror(&self) -> bool {
        match self {
            Edit::Mirror(_)
            | Edit::RefreshCheckpoint { .. }
            | Edit::UpdateCheckpoints(_)
            | Edit::RemoveCheckpoint { .. }
            | Edit::CoverVersions(_)
            | Edit::RevokeExpired { .. }
            | Edit::Clone(_)
            | Edit::Pin(_)
            | Edit::CollectTables
            | Edit::Destroy(_) => true,
            Edit::AddCheckpoint(new) => !matches!(new.owner, CheckpointOwner::Writer(_)),
            _ => false,
        }
    }

    /// Whether it pins, for a clone of a clone, data that a permanent pin of the latter keeps. That
    /// pin retains the data of a destroyed database anyway, so this retains no additional data
    /// (rule D2).
    fn repeats_a_pin(&self, base: &Manifest) -> bool {
        let source = match self {
            Edit::AddCheckpoint(new) if matches!(new.owner, CheckpointOwner::Clone(_)) => {
                new.source
            }
            Edit::Pin(PinEdit::Hold { pin, .. }) => {
                base.checkpoint(*pin).and_then(|one| one.source)
            }
            _ => None,
        };
        source.and_then(|id| base.checkpoint(id)).is_some_and(|one| {
            matches!(one.owner, CheckpointOwner::Clone(_)) && one.expires_at.is_none()
        })
    }

    /// A clean close that records nothing about the log.
    #[must_use]
    pub fn close_without_log(epoch: Epoch) -> Edit {
        Edit::CloseClean { epoch, wal_id_last_seen: WalId::NONE }
    }

    /// Whether a destroyed database still accepts it.
    fn is_clean_up(&self) -> bool {
        match self {
            Edit::RemoveCheckpoint { .. }
            | Edit::RevokeExpired { .. }
            | Edit::CloseClean { .. }
            | Edit::Pin(PinEdit::Release { .. })
            | Edit::Hold(HoldEdit::Release { .. } | HoldEdit::Revoke(_))
            | Edit::Destroy(_) => true,
            Edit::UpdateCheckpoints(update) => update.is_clean_up(),
            _ => false,
        }
    }
}

/// Checks all invariants, except one whose rule a test has disabled.
fn check(next: &Manifest, rules: Rules) -> Result<(), Refusal> {
    let broken = INVARIANTS.iter().find(|one| {
        let dropped = !rules.has(Rule::ReplayPointOutsideGap)
            && one.name == "the replay point is outside every gap";
        !dropped && !(one.holds)(next)
    });
    match broken {
        None if next.id == ManifestId(u64::MAX) => Err(Refusal::Broken("ids are used up")),
        None => Ok(()),
        Some(one) => Err(Refusal::Broken(one.name)),
    }
}

#[cfg(test)]
mod tests;
