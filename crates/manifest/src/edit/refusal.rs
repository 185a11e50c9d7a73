//! The reasons why an edit does not fit a state.

use super::hold::HoldConflict;
use super::ingest::IngestConflict;
use crate::naming::gone;
use siltstone_base::{CheckpointId, DatabaseId, Epoch, Error, ErrorKind, ManifestId, SstId};
use std::fmt;

/// The reason of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// A newer writer has taken over: this handle is fenced.
    Fenced {
        /// The epoch that took over.
        by: Epoch,
    },
    /// A newer compactor has taken over.
    CompactorFenced {
        /// The epoch that took over.
        by: Epoch,
    },
    /// The state is not the one for which the edit was planned.
    Conflict(Conflict),
    /// The checkpoint no longer exists.
    Expired {
        /// Which.
        checkpoint: CheckpointId,
    },
    /// The maximum number of checkpoints exists; expired ones could be removed.
    TooManyCheckpoints,
    /// The edit itself is not valid.
    Invalid(&'static str),
    /// The edit would break the named invariant: a bug.
    Broken(&'static str),
}

/// The part of the state that an edit conflicts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Conflict {
    /// Another claim was committed first; this is the epoch now.
    EpochMoved {
        /// The newest epoch.
        now: Epoch,
    },
    /// The last writer did not close cleanly and may be alive.
    NotClosed {
        /// Its epoch.
        epoch: Epoch,
    },
    /// Another checkpoint has the name.
    NameTaken {
        /// Which.
        checkpoint: CheckpointId,
    },
    /// The checkpoint belongs to a writer and is removed with it.
    OfTheWriter {
        /// Its epoch.
        epoch: Epoch,
    },
    /// The checkpoint belongs to a clone, which reads tables of this database.
    OfAClone {
        /// That clone.
        clone: DatabaseId,
    },
    /// Another database is at the location of the clone.
    PlaceTaken {
        /// Its identity.
        database: DatabaseId,
        /// Whether it is a clone that is being created by another request.
        being_made: bool,
    },
    /// The clone was created by the same request, and was written to since.
    CloneInUse {
        /// Its identity.
        database: DatabaseId,
    },
    /// Another process creates the same clone with other pins, or was faster.
    PinsMoved,
    /// A table is in the ancestor that is to be removed.
    StillNamed {
        /// Which table.
        table: SstId,
    },
    /// A table to remove does not exist.
    TableGone {
        /// Which.
        table: SstId,
    },
    /// A table that stays is between the removed and the added tables, and shares keys with them.
    Overlap {
        /// Which.
        table: SstId,
    },
    /// There is no sequence number between those of newer and older tables for the cover of a table
    /// that is given up (rule Y4).
    NoRoomForCover {
        /// Which.
        table: SstId,
    },
    /// The job was planned before a restore (rule S2).
    RestoredSince {
        /// The manifest of the restore.
        at: ManifestId,
    },
    /// A mirror has no writer (rule X4).
    Mirror {
        /// Its identity.
        database: DatabaseId,
    },
    /// The target of an export is not a mirror, or was promoted (rule X4).
    NoMirror {
        /// Its identity.
        database: DatabaseId,
        /// The operation that needs a mirror.
        wanted_by: MirrorUse,
    },
    /// It is the mirror of another database (rule X4).
    OtherSource {
        /// Its identity.
        database: DatabaseId,
        /// The source of the mirror.
        source: DatabaseId,
    },
    /// The mirror was created by exports and this is an import, or the other way round.
    OtherPurpose {
        /// Its identity.
        database: DatabaseId,
        /// Whether it was created by an import.
        is_import: bool,
    },
    /// A newer export to the same place has taken over (rule X2).
    ExportOvertaken,
    /// The columns are not those from which the edit was planned.
    SchemaMoved,
    /// An ingest job does not fit.
    Ingest(IngestConflict),
    /// A hold on the log does not fit.
    Hold(HoldConflict),
    /// Pinned data prevents a destroy that does not wait.
    Pinned {
        /// One of the checkpoints.
        checkpoint: CheckpointId,
        /// Number of further checkpoints.
        more: usize,
    },
    /// The database was destroyed.
    Destroyed,
    /// The database is still being created.
    NotInitialized,
    /// The database was deleted; another one may be at this location (rules F8, E1).
    OtherDatabase,
}

impl From<Conflict> for Refusal {
    fn from(conflict: Conflict) -> Refusal {
        Refusal::Conflict(conflict)
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Conflict::EpochMoved { now } => {
                write!(f, "another claim was committed first: epoch {now}")
            }
            Conflict::NotClosed { epoch } => write!(
                f,
                "the writer of epoch {epoch} did not close and may be alive; \
                 open with take_over to end it"
            ),
            Conflict::OfTheWriter { epoch } => write!(
                f,
                "the checkpoint belongs to the writer of epoch {epoch}; it is removed when it \
                 closes or another writer takes over"
            ),
            Conflict::OfAClone { clone } => write!(
                f,
                "the checkpoint is the pin of the clone {clone}, which reads tables of this \
                 database through it; it is removed once the clone needs none of them, or is \
                 destroyed; if the clone is gone, release_clone removes it"
            ),
            Conflict::PlaceTaken { database, being_made: false } => {
                write!(f, "the database {database} is at the target; choose another place")
            }
            Conflict::PlaceTaken { database, being_made: true } => write!(
                f,
                "the clone {database} is being made there by another request; repeat that request, \
                 or destroy that clone"
            ),
            Conflict::CloneInUse { database } => {
                write!(f, "this clone, {database}, exists and has been written to since; open it")
            }
            Conflict::PinsMoved => f.write_str("another process creates the same clone"),
            Conflict::StillNamed { table } => {
                write!(f, "table {table} is in the ancestor to be detached")
            }
            Conflict::TableGone { table } => write!(f, "table {table} no longer exists"),
            Conflict::Overlap { table } => {
                write!(f, "table {table} is between the inputs and shares keys with them")
            }
            Conflict::RestoredSince { at } => {
                write!(f, "the job was planned before the restore of manifest {at}, and is void")
            }
            Conflict::NameTaken { .. }
            | Conflict::NoRoomForCover { .. }
            | Conflict::Mirror { .. }
            | Conflict::NoMirror { .. }
            | Conflict::OtherSource { .. }
            | Conflict::OtherPurpose { .. }
            | Conflict::ExportOvertaken
            | Conflict::SchemaMoved
            | Conflict::Destroyed => self.fmt_of_others(f),
            Conflict::Ingest(_) | Conflict::Hold(_) => self.fmt_of_jobs(f),
            Conflict::Pinned { checkpoint, more } => write!(
                f,
                "checkpoint {checkpoint} and {more} more pin data of this database: delete \
                 them, destroy the clones first, or destroy it softly, which waits for them"
            ),
            Conflict::NotInitialized => f.write_str(
                "the database is still being made, or its creation was interrupted; repeat the \
                 same clone, export or import to finish it, or destroy the database",
            ),
            Conflict::OtherDatabase => f.write_str(
                "the database is gone: it was deleted, and another may have been created there; \
                 this handle writes and acknowledges nothing more; open it again",
            ),
        }
    }
}

/// An operation on a mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MirrorUse {
    /// An export to it.
    Export,
    /// An import, which fills it.
    Import,
    /// Its promotion.
    Promote,
}

impl MirrorUse {
    /// The operation that exports or imports.
    pub(crate) fn of_transfer(is_import: bool) -> MirrorUse {
        if is_import { MirrorUse::Import } else { MirrorUse::Export }
    }

    fn remedy(self) -> &'static str {
        match self {
            MirrorUse::Export => {
                "an export would replace its data: choose a place without a database, or the \
                 place of an earlier export"
            }
            MirrorUse::Import => {
                "an import creates a new database: choose a place without one, or destroy this one \
                 first"
            }
            MirrorUse::Promote => {
                "a promotion makes a mirror, which exports keep up to date, writable, and this \
                 database needs none; check the path if another one is meant"
            }
        }
    }
}

impl Conflict {
    /// The texts for ingest jobs and consumers of the change feed.
    fn fmt_of_jobs(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Conflict::Ingest(conflict) => write!(f, "{conflict}"),
            Conflict::Hold(conflict) => write!(f, "{conflict}"),
            _ => Ok(()),
        }
    }

    /// The texts for names of checkpoints, repairs, mirrors and exports (RFC 0033), schemas, and
    /// destroyed databases.
    fn fmt_of_others(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Conflict::NameTaken { checkpoint } => write!(
                f,
                "checkpoint {checkpoint} has that name already; choose another name or delete it"
            ),
            Conflict::NoRoomForCover { table } => write!(
                f,
                "table {table} cannot be given up: rows over it and under it have neighbouring \
                 numbers, and nothing fits between that would hide what it had deleted; put the \
                 table back, or restore a checkpoint"
            ),
            Conflict::Mirror { database } => write!(
                f,
                "the database {database} is a mirror, and the next export replaces its data: \
                 promote it first to write to it, or read it"
            ),
            Conflict::NoMirror { database, wanted_by } => write!(
                f,
                "the database {database} is no mirror, or was promoted: it is a normal database, \
                 which accepts writes; {}",
                wanted_by.remedy()
            ),
            Conflict::OtherSource { database, source } => write!(
                f,
                "the mirror {database} of another database, {source}, is at the target; choose \
                 another place"
            ),
            Conflict::OtherPurpose { database, is_import: false } => write!(
                f,
                "the mirror {database} is at the target, and exports keep it up to date: promote \
                 it instead of importing, or choose another place"
            ),
            Conflict::OtherPurpose { database, is_import: true } => write!(
                f,
                "an import is creating the database {database} there; repeat it, or choose \
                 another place"
            ),
            Conflict::ExportOvertaken => {
                f.write_str("a newer export to the same place has taken over")
            }
            Conflict::SchemaMoved => {
                f.write_str("the table's columns were changed meanwhile; read them again")
            }
            Conflict::Destroyed => f.write_str(
                "the database was destroyed, and its objects wait for a collector; to use \
                 the place again immediately, destroy it without soft",
            ),
            _ => Ok(()),
        }
    }
}

/// The error if a newer writer has taken over, with its epoch `by` if known.
pub(crate) fn fenced(by: Option<Epoch>) -> Error {
    let error = Error::new(
        ErrorKind::Fenced,
        "another process, or another handle of this one, opened this path for writing, restored \
         the database to an earlier state, or destroyed it, and ended this handle: a database has \
         one writer at a time, and open_reader reads beside it; what was not acknowledged may or \
         may not have been recovered by the new writer",
    );
    match by {
        Some(epoch) => error.with("by epoch", epoch),
        None => error,
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        match refusal {
            Refusal::Fenced { by } => fenced(Some(by)),
            Refusal::CompactorFenced { by } => {
                Error::new(ErrorKind::Fenced, "a newer compactor has taken over")
                    .with("by epoch", by)
            }
            // The database of this handle no longer exists: retrying does not help.
            Refusal::Conflict(gone @ (Conflict::Destroyed | Conflict::OtherDatabase)) => {
                Error::new(ErrorKind::NotFound, gone.to_string())
            }
            Refusal::Conflict(Conflict::Hold(conflict)) => of_hold(conflict),
            // Succeeds once there is room.
            Refusal::Conflict(full @ Conflict::Ingest(IngestConflict::Full)) => {
                Error::unavailable(full.to_string())
            }
            Refusal::Conflict(conflict) => Error::new(ErrorKind::Conflict, conflict.to_string()),
            Refusal::Expired { checkpoint } => gone(checkpoint),
            Refusal::TooManyCheckpoints => Error::invalid(
                "the database has 1,024 checkpoints that have not expired; delete some that are \
                 no longer needed, or give them a lifetime",
            ),
            Refusal::Invalid(why) => Error::invalid(why),
            Refusal::Broken(invariant) => {
                Error::internal("a commit would break an invariant").with("invariant", invariant)
            }
        }
    }
}

/// The error that ends a consumer of the change feed.
fn of_hold(conflict: HoldConflict) -> Error {
    let error = |kind| Error::new(kind, conflict.to_string());
    match conflict {
        HoldConflict::Overtaken => error(ErrorKind::Fenced),
        HoldConflict::Gone => error(ErrorKind::Expired),
        HoldConflict::Undone(undone) => undone.into(),
        HoldConflict::Passed { oldest } => {
            error(ErrorKind::Expired).with("oldest sequence number", oldest.seq.next())
        }
    }
}
