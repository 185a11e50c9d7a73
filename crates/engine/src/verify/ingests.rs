//! The content of ingests whose tables no manifest names: ingests in the log, pending ones, and
//! those that a consumer of the change feed has yet to read.
//!
//! A writer may install an ingest, and a collector may delete its objects, while they are verified.
//! Each object of an ingest therefore has a [`Keeper`], and a missing object is a problem only if
//! the newest manifest, read after the object, still has its keeper.

use super::{Verify, is_damage};
use crate::wal::replay::tables_at;
use bytes::Bytes;
use siltstone_base::{CheckpointId, JobId, ObjectName, Result, Seq, SstDescriptor, WalId};
use siltstone_manifest::Manifest;
use siltstone_manifest::batch::decode_tables;
use siltstone_manifest::ingest::{ClosedJob, pending};
use siltstone_sst::wal::{WalIngest, WalIngestContent};
use std::collections::BTreeMap;

/// A holder that needs the content of an ingest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keeper {
    /// The next opening: the last sequence number of the ingest is not in tables.
    Log(Seq),
    /// Readers at this checkpoint.
    Checkpoint(CheckpointId),
    /// A consumer of the change feed that reads the log from this id or an earlier one.
    Feed(WalId),
    /// The writer: the job is pending.
    Request(JobId),
}

impl Keeper {
    /// Whether `now` still has the keeper.
    pub(super) fn is_in(self, now: &Manifest) -> bool {
        match self {
            Keeper::Log(last) => last > now.flushed_seq,
            Keeper::Checkpoint(id) => now.checkpoint(id).is_some(),
            Keeper::Feed(id) => now.holds.iter().any(|hold| hold.wal_from <= id),
            Keeper::Request(job) => pending(now, job).is_some(),
        }
    }
}

/// The known content of ingests.
#[derive(Default)]
pub(super) struct IngestContents {
    /// Tables, each with all its keepers.
    pub(super) tables: BTreeMap<ObjectName, (SstDescriptor, Vec<Keeper>)>,
    /// Objects that closed jobs; `None` for one that was reported as missing or damaged.
    closed: BTreeMap<JobId, Option<ClosedJob>>,
}

impl IngestContents {
    fn add(&mut self, tables: impl IntoIterator<Item = SstDescriptor>, keeper: Keeper) {
        for table in tables {
            let known = self.tables.entry(table.name()).or_insert((table, Vec::new()));
            if !known.1.contains(&keeper) {
                known.1.push(keeper);
            }
        }
    }
}

impl Verify<'_> {
    /// Records the content of `ingest`, which is at `at` in the log.
    pub(super) async fn brought(
        &mut self,
        at: WalId,
        ingest: &WalIngest,
        keeper: Keeper,
    ) -> Result<()> {
        match &ingest.content {
            WalIngestContent::Tables(tables) => match decode_tables(tables) {
                Ok(tables) => self.brought.add(tables_at(ingest.first_seq, tables), keeper),
                Err(error) if is_damage(error.kind()) => {
                    self.report.problem(ObjectName::Wal(at), None, error);
                }
                Err(error) => return Err(error),
            },
            WalIngestContent::Job { job, digest } => {
                let Some(closed) = self.closed(*job, digest, keeper).await? else { return Ok(()) };
                if closed.layers.len() != ingest.numbers as usize {
                    let what = "has a different number of layers than the log says";
                    self.report.problem(ObjectName::IngestManifest(*job), None, what);
                }
                let layers = closed.numbered(ingest.first_seq);
                self.brought.add(layers.into_iter().flatten(), keeper);
            }
        }
        Ok(())
    }

    /// Checks jobs that are pending and not adopted yet.
    pub(super) async fn requests(&mut self, newest: &Manifest) -> Result<()> {
        for asked in &newest.pending_ingests {
            let keeper = Keeper::Request(asked.job);
            if let Some(closed) = self.closed(asked.job, &asked.digest, keeper).await? {
                // The log assigns its sequence numbers later; any numbers do here.
                let layers = closed.numbered(newest.flushed_seq.next());
                self.brought.add(layers.into_iter().flatten(), keeper);
            }
        }
        Ok(())
    }

    /// The object that closed `job`. Its problem is reported once.
    async fn closed(
        &mut self,
        job: JobId,
        digest: &Bytes,
        keeper: Keeper,
    ) -> Result<Option<ClosedJob>> {
        if let Some(known) = self.brought.closed.get(&job) {
            return Ok(known.clone());
        }
        let name = ObjectName::IngestManifest(job);
        let found = match self.objects.closed_job(job).await {
            Ok(Some(closed)) if closed.digest() != *digest => {
                self.report.problem(name, None, "differs from the object that was requested");
                None
            }
            Ok(Some(closed)) => Some(closed),
            Ok(None) if !self.has(keeper).await? => return Ok(None),
            Ok(None) => {
                self.report.problem(name, None, "is missing, and an ingest needs it");
                None
            }
            Err(error) if is_damage(error.kind()) => {
                self.report.problem(name, None, error);
                None
            }
            Err(error) => return Err(error),
        };
        self.brought.closed.insert(job, found.clone());
        Ok(found)
    }

    async fn has(&self, keeper: Keeper) -> Result<bool> {
        let now = self.newest_now().await?;
        Ok(now.is_none_or(|now| keeper.is_in(&now)))
    }
}
