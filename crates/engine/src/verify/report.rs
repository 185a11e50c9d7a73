//! The report of a verification.

use super::MOST_PROBLEMS;
use crate::manifests::lost_clones::LostClone;
use siltstone_base::{DatabaseId, ManifestId, ObjectName, WalId};
use std::fmt;

/// The report of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Id of the database; none if the newest manifest could not be read.
    pub database: DatabaseId,
    /// The newest manifest, against which everything was checked.
    pub manifest_id: ManifestId,
    /// Number of manifests that were read and checked.
    pub manifests: u64,
    /// Number of present checkpoints, including expired ones. Their objects are checked too.
    pub checkpoints: u64,
    /// Number of boundary objects.
    pub boundaries: u64,
    /// Number of tables.
    pub tables: u64,
    /// Number of data blocks in tables.
    pub blocks: u64,
    /// Number of entries in tables, of all kinds.
    pub entries: u64,
    /// Number of point tombstones among the entries.
    pub tombstones: u64,
    /// Number of WAL objects from the replay points on, including fences.
    pub wal_objects: u64,
    /// Number of fences.
    pub fences: u64,
    /// Number of batches in the WAL objects.
    pub batches: u64,
    /// Number of operations in the batches.
    pub operations: u64,
    /// The last WAL object that was found; none if there was none.
    pub wal_last_id: WalId,
    /// Number of bytes that were read.
    pub bytes_read: u64,
    /// Number of encrypted objects of which only the form was checked, because no key was given.
    pub sealed_objects: u64,
    /// Unreferenced objects. They are not a problem; a collector deletes them.
    pub orphans: Vec<Orphan>,
    /// Clones that are not at their places. Their pins are not a problem, but retain tables.
    pub lost_clones: Vec<LostClone>,
    /// The problems, at most 1,000.
    pub problems: Vec<Problem>,
    /// Number of problems, including those that are not listed.
    pub problem_count: u64,
}

/// A problem with an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The object.
    pub object: ObjectName,
    /// Offset of the problem in the object, if it is known.
    pub offset: Option<u64>,
    /// Description of the problem.
    pub what: String,
}

/// An unreferenced object.
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
    /// Whether everything was checked and there is no problem.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.problem_count == 0 && self.sealed_objects == 0
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

    /// Marks its problems as those of objects in an ancestor.
    pub(super) fn lies_in(&mut self, location: &str) {
        for problem in &mut self.problems {
            problem.what = format!("{} (in the ancestor at {location})", problem.what);
        }
    }

    /// Marks its problems of the log as those of objects in a separate store.
    pub(super) fn log_lies_in(&mut self, location: &str) {
        for problem in &mut self.problems {
            let is_of_log = matches!(
                problem.object,
                ObjectName::Wal(_) | ObjectName::WalBoundary(_) | ObjectName::LogIdentity
            );
            if is_of_log && !problem.what.contains(location) {
                problem.what = format!("{} (in the store of the log at {location})", problem.what);
            }
        }
    }

    /// Adds the counts and problems of `part`.
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
