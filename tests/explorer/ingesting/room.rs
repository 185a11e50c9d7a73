//! One state: manifests, a log, the staged objects of the job, and the processes.

use super::{Actor, JOB};
use crate::chain::{self, Chain};
use bytes::Bytes;
use siltstone_base::sst::SstLocation;
use siltstone_base::{
    AttemptId, Epoch, JobId, ManifestId, ObjectName, PutOutcome, Seq, SstDescriptor, SstId,
    UnixMillis, WalId,
};
use siltstone_manifest::gc::ListedObject;
use siltstone_manifest::protocol::{
    Commit, CommitAction, ManifestAnswer, ManifestRequest, OpenAction, OpenWriter, WalListing,
    WalSeen,
};
use siltstone_manifest::{Edit, Manifest, Rules};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An INGEST record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Ingest {
    pub(super) seq: Seq,
    pub(super) attempt: AttemptId,
}

/// A request that lands after its sender died.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Late {
    Manifest(Arc<Manifest>),
    Wal(WalId, Epoch, Ingest),
    /// The closing object of the job; none: as aborted.
    Closing(Option<AttemptId>),
}

/// One state.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Room {
    pub(super) manifests: Chain,
    pub(super) wal: BTreeMap<WalId, (WalSeen, Option<Ingest>)>,
    /// The closing object of the job: the attempt that contains parts, or an abort.
    pub(super) closed: Option<Option<AttemptId>>,
    /// Tables of the job, one per layer, oldest first.
    pub(super) staged: &'static [SstId],
    pub(super) tables: BTreeSet<SstId>,
    pub(super) actors: Vec<Arc<Actor>>,
    pub(super) network: Vec<Late>,
    pub(super) late: u8,
    pub(super) broken: Option<&'static str>,
}

impl Room {
    pub(super) fn newest(&self) -> Arc<Manifest> {
        chain::newest(&self.manifests)
    }

    pub(super) fn serve(&mut self, request: ManifestRequest) -> ManifestAnswer {
        chain::serve(&mut self.manifests, ManifestId::NONE, request)
    }

    pub(super) fn create(
        &mut self,
        id: WalId,
        seen: WalSeen,
        ingest: Option<Ingest>,
    ) -> PutOutcome<WalSeen> {
        match self.wal.get(&id) {
            Some(there) if *there == (seen, ingest) => PutOutcome::Committed,
            Some((there, _)) => PutOutcome::Lost(*there),
            None => {
                self.wal.insert(id, (seen, ingest));
                PutOutcome::Committed
            }
        }
    }

    pub(super) fn step_open(&mut self, open: &mut OpenWriter) -> bool {
        let seen = |room: &Room, id| room.wal.get(&id).map_or(WalSeen::Absent, |(seen, _)| *seen);
        match open.action() {
            OpenAction::Request(request) => open.on_answer(self.serve(request)),
            OpenAction::ReadWal(id) | OpenAction::ReadCutOff(id) => open.on_wal(seen(self, id)),
            OpenAction::ListWal(after) => {
                let later = self.wal.keys().copied().filter(|id| *id > after).collect();
                open.on_wal_listing(&WalListing { boundary: WalId::NONE, later });
            }
            OpenAction::CreateFence(fence) => {
                let object = WalSeen::Fence { epoch: fence.epoch, next_id: fence.next_id };
                let outcome = self.create(fence.id, object, None);
                open.on_fence(outcome);
            }
            OpenAction::Done(_) | OpenAction::Failed(_) => {}
        }
        matches!(open.action(), OpenAction::Done(_) | OpenAction::Failed(_))
    }

    /// Commits immediately, for a process that is not interrupted.
    pub(super) fn commit(&mut self, edit: Edit, rules: Rules) -> CommitAction {
        let mut commit = Commit::new(edit, self.newest(), rules);
        loop {
            match commit.action() {
                CommitAction::Request(request) => commit.on_answer(self.serve(request)),
                ended => return ended,
            }
        }
    }

    /// Whether all staged objects of the job exist.
    pub(super) fn is_staged(&self, attempt: AttemptId) -> bool {
        self.closed == Some(Some(attempt)) && self.staged.iter().all(|id| self.tables.contains(id))
    }

    pub(super) fn listed(&self) -> Vec<ListedObject> {
        let closed = self.closed.map(|_| ObjectName::IngestManifest(JOB));
        let staged = self.staged.iter().filter(|id| self.tables.contains(*id));
        let staged = staged.map(|id| ObjectName::IngestSst(JOB, *id));
        let names = closed.into_iter().chain(staged);
        names.map(|name| ListedObject { name, modified: UnixMillis(0), bytes: 1 }).collect()
    }

    pub(super) fn delete(&mut self, name: ObjectName) {
        match name {
            ObjectName::IngestManifest(_) => self.closed = None,
            ObjectName::IngestSst(_, id) => drop(self.tables.remove(&id)),
            _ => {}
        }
    }

    pub(super) fn breaks(&mut self, what: &'static str) {
        self.broken.get_or_insert(what);
    }
}

pub(crate) fn table(id: SstId, job: Option<JobId>) -> SstDescriptor {
    SstDescriptor {
        id,
        location: SstLocation::Own,
        job,
        object_bytes: 100,
        checksum: 7,
        tail_offset: 50,
        first_key: b"a".to_vec().into(),
        last_key: b"z".to_vec().into(),
        visible_start: None,
        visible_end: None,
        seq_override: None,
        entries: 1,
        tombstones: 0,
        min_seq: Seq(0),
        max_seq: Seq(0),
        min_expiry: None,
        max_expiry: None,
        range_deletes: None,
        sum: None,
    }
}

/// The layers of a job, each with its number.
pub(super) fn numbered(staged: &[SstId], ingest: Ingest) -> Vec<Vec<SstDescriptor>> {
    let below = |at: usize| (staged.len() - 1 - at) as u64;
    let numbered = |(at, id): (usize, &SstId)| {
        let seq_override = Some(ingest.seq.minus(below(at)));
        vec![SstDescriptor { seq_override, ..table(*id, Some(JOB)) }]
    };
    staged.iter().enumerate().map(numbered).collect()
}

pub(super) fn digest(attempt: AttemptId) -> Bytes {
    Bytes::copy_from_slice(&attempt.to_bytes())
}
