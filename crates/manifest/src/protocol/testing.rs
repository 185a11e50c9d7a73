//! An in-memory store and drivers that run a step function to its end, for the tests of this
//! folder.

use super::{
    Commit, CommitAction, Failure, Listing, ManifestAnswer, ManifestRequest, OpenAction,
    OpenWriter, Recovered, WalListing, WalSeen, WriterOptions,
};
use crate::edit::{Edit, FlushL0, Refusal};
use crate::rules::Rules;
use crate::state::{KeptFence, Manifest};
use crate::testing::empty;
use siltstone_base::limits::MAX_PARALLEL_WRITES;
use siltstone_base::{AttemptId, Epoch, ManifestId, PutOutcome, Seq, WalId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The objects under one root. Equal manifests count as one attempt.
#[derive(Clone, Debug)]
pub(super) struct TinyStore {
    pub(super) manifests: BTreeMap<ManifestId, Arc<Manifest>>,
    pub(super) manifest_boundary: ManifestId,
    pub(super) wal: BTreeMap<WalId, WalSeen>,
    pub(super) wal_boundary: WalId,
    /// Number of requests served.
    pub(super) requests: usize,
}

impl TinyStore {
    /// A new database: manifest 1, no writer.
    pub(super) fn new() -> TinyStore {
        let first = Arc::new(empty());
        TinyStore {
            manifests: BTreeMap::from([(first.id, first)]),
            manifest_boundary: ManifestId::NONE,
            wal: BTreeMap::new(),
            wal_boundary: WalId::NONE,
            requests: 0,
        }
    }

    pub(super) fn newest(&self) -> Arc<Manifest> {
        self.manifests.last_key_value().unwrap().1.clone()
    }

    pub(super) fn serve(&mut self, request: ManifestRequest) -> ManifestAnswer {
        self.requests += 1;
        match request {
            ManifestRequest::Create(manifest) => {
                let there = self.manifests.entry(manifest.id).or_insert(manifest.clone());
                let outcome = match *there == manifest {
                    true => PutOutcome::Committed,
                    false => PutOutcome::Lost(()),
                };
                ManifestAnswer::Created(outcome, AttemptId::NONE)
            }
            ManifestRequest::List { after } => {
                let ids: Vec<ManifestId> = self.manifests.keys().copied().collect();
                ManifestAnswer::Listed(Listing::of(&ids, self.manifest_boundary, after))
            }
            ManifestRequest::Read(id) => ManifestAnswer::Read(self.manifests.get(&id).cloned()),
        }
    }

    pub(super) fn read_wal(&self, id: WalId) -> WalSeen {
        self.wal.get(&id).copied().unwrap_or(WalSeen::Absent)
    }

    pub(super) fn list_wal(&self, after: WalId) -> WalListing {
        let later = self.wal.keys().copied().filter(|id| *id > after);
        WalListing { boundary: self.wal_boundary, later: later.collect() }
    }

    pub(super) fn create_wal(&mut self, id: WalId, object: WalSeen) -> PutOutcome<WalSeen> {
        match self.wal.get(&id) {
            Some(there) if *there == object => PutOutcome::Committed,
            Some(there) => PutOutcome::Lost(*there),
            None => {
                self.wal.insert(id, object);
                PutOutcome::Committed
            }
        }
    }

    pub(super) fn create_fence(&mut self, fence: KeptFence) -> PutOutcome<WalSeen> {
        self.create_wal(fence.id, fence_object(fence))
    }

    pub(super) fn data(&mut self, id: u64, epoch: u64) {
        // With the smallest allowed watermark: the id W back was committed, and no later one is
        // known.
        let newest = self.newest();
        let record = newest.writers.iter().find(|writer| writer.epoch == Epoch(epoch));
        let window = record.map_or(MAX_PARALLEL_WRITES, |record| record.max_parallel_writes);
        let durable = WalId(id).minus(window);
        let outcome = self.create_wal(WalId(id), WalSeen::Data { epoch: Epoch(epoch), durable });
        assert_eq!(outcome, PutOutcome::Committed);
    }

    /// Acts as the collector: creates the boundary, then deletes the manifests below it.
    pub(super) fn free_manifests(&mut self, boundary: u64) {
        self.manifest_boundary = ManifestId(boundary);
        self.manifests.retain(|id, _| id.get() > boundary);
    }

    /// Acts as the collector: deletes the WAL below the replay point; kept fences stay.
    pub(super) fn free_wal(&mut self) {
        let newest = self.newest();
        self.wal_boundary = newest.replay_from.minus(1);
        self.wal.retain(|id, _| {
            *id >= newest.replay_from || newest.kept_fences.iter().any(|fence| fence.id == *id)
        });
    }

    pub(super) fn commit(&mut self, edit: Edit) -> Result<Arc<Manifest>, Refusal> {
        self.run(Commit::new(edit, self.newest(), Rules::ALL))
    }

    pub(super) fn run(&mut self, mut commit: Commit) -> Result<Arc<Manifest>, Refusal> {
        loop {
            match commit.action() {
                CommitAction::Request(request) => commit.on_answer(self.serve(request)),
                CommitAction::Done(state) => return Ok(state),
                CommitAction::Failed(refusal) => return Err(refusal),
            }
        }
    }

    /// Commits edits without relevant changes, so that ids grow.
    pub(super) fn grow(&mut self, commits: u64) {
        for _ in 0..commits {
            let newest = self.newest();
            let next = Manifest { id: newest.id.next(), ..Manifest::clone(&newest) };
            self.manifests.insert(next.id, Arc::new(next));
        }
    }

    /// Performs one request of an opener.
    pub(super) fn step(&mut self, open: &mut OpenWriter) {
        match open.action() {
            OpenAction::Request(request) => open.on_answer(self.serve(request)),
            OpenAction::ReadWal(id) => {
                self.requests += 1;
                open.on_wal(self.read_wal(id));
            }
            OpenAction::ReadCutOff(id) => {
                self.requests += 1;
                open.on_wal(self.read_wal(id));
            }
            OpenAction::ListWal(id) => {
                self.requests += 1;
                open.on_wal_listing(&self.list_wal(id));
            }
            OpenAction::CreateFence(fence) => {
                self.requests += 1;
                let outcome = self.create_fence(fence);
                open.on_fence(outcome);
            }
            OpenAction::Done(_) | OpenAction::Failed(_) => panic!("the opener has ended"),
        }
    }

    /// Steps until the opener is about to create its fence.
    pub(super) fn step_to_fence(&mut self, open: &mut OpenWriter) -> KeptFence {
        loop {
            match open.action() {
                OpenAction::CreateFence(fence) => return fence,
                _ => self.step(open),
            }
        }
    }

    pub(super) fn finish(&mut self, open: &mut OpenWriter) -> Result<Recovered, Failure> {
        loop {
            match open.action() {
                OpenAction::Done(recovered) => return Ok(recovered),
                OpenAction::Failed(failure) => return Err(failure),
                _ => self.step(open),
            }
        }
    }

    /// Opens a writer that takes over, with `width` as `max_parallel_writes`.
    pub(super) fn open(&mut self, claim: u128, width: u64) -> Result<Recovered, Failure> {
        let mut open = opener(self, claim, width, Rules::ALL);
        self.finish(&mut open)
    }

    /// Commits a flush of everything below `replay_from`, with the fences that the writer must
    /// keep.
    pub(super) fn flush(&mut self, writer: &Recovered, replay_from: u64) {
        self.flush_seen(writer, replay_from, 0);
    }

    /// As [`TinyStore::flush`], for a writer whose log has reached `last_seen`.
    pub(super) fn flush_seen(&mut self, writer: &Recovered, replay_from: u64, last_seen: u64) {
        let newest = self.newest();
        let flush = FlushL0 {
            replay_from: WalId(replay_from),
            flushed_seq: Seq(newest.flushed_seq.get() + 1),
            wal_id_last_seen: WalId(last_seen),
            fences: writer.keep.clone(),
            ..FlushL0::nothing(writer.epoch, &newest)
        };
        self.commit(Edit::FlushL0(flush)).unwrap();
    }
}

pub(super) fn fence_object(fence: KeptFence) -> WalSeen {
    WalSeen::Fence { epoch: fence.epoch, next_id: fence.next_id }
}

pub(super) fn opener(store: &TinyStore, claim: u128, width: u64, rules: Rules) -> OpenWriter {
    let options = WriterOptions {
        claim: AttemptId(claim),
        max_parallel_writes: width,
        take_over: true,
        ..WriterOptions::default()
    };
    OpenWriter::new(options, store.newest(), rules)
}

pub(super) fn ids(replay: &[(WalId, Epoch)]) -> Vec<u64> {
    replay.iter().map(|(id, _)| id.get()).collect()
}
