//! Steps as texts, for traces.

use crate::collector::Folder;
use crate::ghost::name;
use siltstone_base::{ManifestId, ObjectName, SstId, WalId};
use siltstone_manifest::compaction::record::RecordListing;
use siltstone_manifest::protocol::{Listing, WalSeen};
use std::fmt;

/// The actor of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Who {
    /// A process, by its position in the configuration, and its kind.
    Process(usize, &'static str),
    /// No process any more: a request that was in flight.
    Network,
    /// An actor that does not follow the rules.
    Outsider,
}

/// The result of a create.
#[derive(Clone, Copy, Debug)]
pub(crate) enum How {
    Created,
    Exists,
    ExistsOfOwn,
    Unanswered,
    OnItsWay,
    Refused,
}

/// The action of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    Starts,
    Wipes,
    Crashes,
    Lists(Listing),
    Reads(ManifestId, bool),
    ReadsAsListed(ManifestId),
    Creates(ObjectName, How),
    ReadsBack(ObjectName, Option<bool>),
    ReadsWal(WalId, WalSeen),
    ListsWal(WalId, WalId),
    ListsWalBoundary(WalId),
    Sends(WalId, usize),
    Uploads(SstId),
    PlansFlush(SstId, WalId),
    BeginsClose,
    Begins(&'static str),
    BeginsCommit(&'static str),
    Polls,
    EndsScan,
    ListsObjects,
    ListsFolder(Folder),
    ListsRecords(RecordListing),
    ReadsRecord(u64, bool),
    TakesOver,
    StartsJob,
    ClaimsRange(usize),
    RecordsUnit(usize),
    Deletes(ObjectName, bool),
    DeleteOnItsWay(ObjectName),
    Lands(ObjectName),
    DeleteLands(ObjectName),
}

/// One step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    who: Who,
    what: What,
}

impl Step {
    pub(crate) fn of(me: usize, role: &'static str, what: What) -> Step {
        Step { who: Who::Process(me, role), what }
    }

    pub(crate) fn outsider(what: What) -> Step {
        Step { who: Who::Outsider, what }
    }

    pub(crate) fn network(what: What) -> Step {
        Step { who: Who::Network, what }
    }
}

/// `wal 3`, `manifest 7`, `table t11`.
struct Short(ObjectName);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ObjectName::Manifest(id) => write!(f, "manifest {id}"),
            ObjectName::ManifestBoundary(id) => write!(f, "manifest boundary {id}"),
            ObjectName::Wal(id) => write!(f, "WAL {id}"),
            ObjectName::WalBoundary(id) => write!(f, "WAL boundary {id}"),
            ObjectName::Compacted(id) => write!(f, "table {}", name(id)),
            ObjectName::Compactions(id) => write!(f, "job record {id}"),
            other => other.fmt(f),
        }
    }
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            How::Created => "created",
            How::Exists => "it exists",
            How::ExistsOfOwn => "created, but the answer to a retry is: it exists",
            How::Unanswered => "created, but the answer is lost",
            How::OnItsWay => "no answer; the request is still on its way",
            How::Refused => "refused, with nothing stored",
        })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.who {
            Who::Process(me, role) => write!(f, "{role} {me} ")?,
            Who::Network => f.write_str("a late request: ")?,
            Who::Outsider => f.write_str("an outsider ")?,
        }
        match self.what {
            What::Starts => f.write_str("starts"),
            What::Wipes => f.write_str("deletes the whole database"),
            What::Crashes => f.write_str("crashes; what it had sent may still arrive"),
            What::Lists(Listing { newest: None, boundary, .. }) => {
                write!(f, "lists manifests: none newer, boundary {boundary}")
            }
            What::Lists(Listing { newest: Some(newest), boundary, .. }) => {
                write!(f, "lists manifests: {newest} is newest, boundary {boundary}")
            }
            What::ReadsAsListed(id) => write!(f, "reads manifest {id}, which it has listed"),
            What::Reads(id, true) => write!(f, "reads manifest {id}"),
            What::Reads(id, false) => write!(f, "reads manifest {id}: not there"),
            What::Creates(name, how) => write!(f, "creates {}: {how}", Short(name)),
            What::ReadsBack(name, mine) => {
                let found = match mine {
                    Some(true) => "its own",
                    Some(false) => "another process's",
                    None => "nothing",
                };
                write!(f, "reads {} back: {found}", Short(name))
            }
            What::ReadsWal(id, seen) => write!(f, "reads WAL {id}: {seen:?}"),
            What::ListsWal(after, boundary) => {
                write!(f, "lists the WAL behind {after}: boundary {boundary}")
            }
            What::ListsWalBoundary(id) => write!(f, "lists the WAL boundary: {id}"),
            What::Sends(id, number) => write!(f, "sends its record {number} to WAL {id}"),
            What::Uploads(id) => write!(f, "uploads table {}", name(id)),
            What::PlansFlush(id, to) => {
                write!(f, "begins the flush of {}, replay point to {to}", name(id))
            }
            What::BeginsClose => f.write_str("begins a clean close"),
            What::Begins(what) => write!(f, "begins {what}"),
            What::BeginsCommit(what) => write!(f, "begins to commit: {what}"),
            What::Polls => f.write_str("polls"),
            What::EndsScan => f.write_str("ends its scan"),
            What::ListsObjects => f.write_str("lists all objects"),
            What::ListsFolder(folder) => write!(f, "lists the {}", folder.name()),
            What::ListsRecords(RecordListing { newest, boundary }) => {
                write!(f, "lists job records: {newest} is newest, boundary {boundary}")
            }
            What::ReadsRecord(number, true) => write!(f, "reads job record {number}"),
            What::ReadsRecord(number, false) => write!(f, "reads job record {number}: not there"),
            What::TakesOver => f.write_str("begins to take the jobs over"),
            What::StartsJob => f.write_str("begins to start a job"),
            What::ClaimsRange(range) => write!(f, "begins to claim range {range}"),
            What::RecordsUnit(range) => write!(f, "begins to record what a unit made of {range}"),
            What::Deletes(name, true) => write!(f, "deletes {}", Short(name)),
            What::Deletes(name, false) => write!(f, "fails to delete {}", Short(name)),
            What::DeleteOnItsWay(name) => {
                write!(f, "gives up deleting {}; the request is still on its way", Short(name))
            }
            What::Lands(name) => write!(f, "{} is created", Short(name)),
            What::DeleteLands(name) => write!(f, "{} is deleted", Short(name)),
        }
    }
}
