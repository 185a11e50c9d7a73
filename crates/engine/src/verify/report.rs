//! What a verification found.

use super::MOST_PROBLEMS;
use siltstone_base::{DatabaseId, ManifestId, ObjectName, WalId};
use std::fmt;

/// What a verification found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Identity of the database; none when the newest manifest could not be read.
    pub database: DatabaseId,
    /// The manifest that was gone by: the newest.
    pub manifest_id: ManifestId,
    /// Manifests that were read and checked.
    pub manifests: u64,
    /// Present checkpoints, expired ones included: what they name is checked too.
    pub checkpoints: u64,
    /// Boundary objects.
    pub boundaries: u64,
    /// Tables.
    pub tables: u64,
    /// Data blocks in them.
    pub blocks: u64,
    /// Entries in them, of all kinds.
    pub entries: u64,
    /// Point tombstones among the entries.
    pub tombstones: u64,
    /// WAL objects from the replay points on, fences included.
    pub wal_objects: u64,
    /// Fences among them.
    pub fences: u64,
    /// Batches in the WAL objects.
    pub batches: u64,
    /// Operations in the batches.
    pub operations: u64,
    /// The last WAL object that was met; none when there was none.
    pub wal_last_id: WalId,
    /// Bytes that were read.
    pub bytes_read: u64,
    /// Objects that nobody names: no problem, and the collector's to delete.
    pub orphans: Vec<Orphan>,
    /// What is wrong, at most 1,000 of them.
    pub problems: Vec<Problem>,
    /// How many problems there are, those not listed included.
    pub problem_count: u64,
}

/// Something wrong in an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub object: ObjectName,
    /// From which byte of it on, where that is known.
    pub offset: Option<u64>,
    /// What.
    pub what: String,
}

/// An object that nobody names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// Its name.
    pub name: ObjectName,
    /// Its length.
    pub bytes: u64,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.object)?;
        if let Some(offset) = self.offset {
            write!(f, " at byte {offset}")?;
        }
        write!(f, ": {}", self.what)
    }
}

impl Report {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.problem_count == 0
    }

    pub(super) fn problem(
        &mut self,
        object: ObjectName,
        offset: Option<u64>,
        what: impl fmt::Display,
    ) {
        self.problem_count += 1;
        if self.problems.len() < MOST_PROBLEMS {
            self.problems.push(Problem { object, offset, what: what.to_string() });
        }
    }

    /// Its problems are those of objects in an ancestor.
    pub(super) fn lies_in(&mut self, location: &str) {
        for problem in &mut self.problems {
            problem.what = format!("{} (in the ancestor at {location})", problem.what);
        }
    }

    /// Adds the counts and problems of a part.
    pub(super) fn add(&mut self, part: Report) {
        self.tables += part.tables;
        self.blocks += part.blocks;
        self.entries += part.entries;
        self.tombstones += part.tombstones;
        self.bytes_read += part.bytes_read;
        self.problem_count += part.problem_count;
        let room = MOST_PROBLEMS.saturating_sub(self.problems.len());
        self.problems.extend(part.problems.into_iter().take(room));
    }
}
