//! What ingests need whose tables no manifest names: those in the log, those that are asked for,
//! and those that a consumer of the change feed has yet to read.
//!
//! A writer may install an ingest, and a collector free what it was made of, while this reads. So
//! everything that an ingest needs has a [`Keeper`], and what is missing is a problem only while
//! the newest manifest, read after that, still has its keeper.

use super::{Verify, is_damage};
use crate::wal::replay::tables_at;
use bytes::Bytes;
use siltstone_base::{CheckpointId, JobId, ObjectName, Result, Seq, SstDescriptor, WalId};
use siltstone_manifest::Manifest;
use siltstone_manifest::batch::decode_tables;
use siltstone_manifest::ingest::{ClosedJob, pending};
use siltstone_sst::wal::{WalBrings, WalIngest};
use std::collections::BTreeMap;

/// Who needs what an ingest brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keeper {
    /// Whoever opens: its last number is not in tables.
    Log(Seq),
    /// Whoever reads at this checkpoint.
    Checkpoint(CheckpointId),
    /// A consumer of the change feed that reads the log from here or from before.
    Feed(WalId),
    /// The writer: it is asked for.
    Request(JobId),
}

impl Keeper {
    /// Whether `now` still has it.
    pub(super) fn is_in(self, now: &Manifest) -> bool {
        match self {
            Keeper::Log(last) => last > now.flushed_seq,
            Keeper::Checkpoint(id) => now.checkpoint(id).is_some(),
            Keeper::Feed(id) => now.holds.iter().any(|hold| hold.wal_from <= id),
            Keeper::Request(job) => pending(now, job).is_some(),
        }
    }
}

/// What is known of what ingests bring.
#[derive(Default)]
pub(super) struct IngestContents {
    /// Tables, each with all who need it.
    pub(super) tables: BTreeMap<ObjectName, (SstDescriptor, Vec<Keeper>)>,
    /// Objects that closed jobs; `None` for what was told to be missing or damaged.
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
    /// Takes note of what `ingest`, which stands in the log at `at`, brings.
    pub(super) async fn brought(
        &mut self,
        at: WalId,
        ingest: &WalIngest,
        keeper: Keeper,
    ) -> Result<()> {
        match &ingest.brings {
            WalBrings::Tables(tables) => match decode_tables(tables) {
                Ok(tables) => self.brought.add(tables_at(ingest.first_seq, tables), keeper),
                Err(error) if is_damage(error.kind()) => {
                    self.report.problem(ObjectName::Wal(at), None, error);
                }
                Err(error) => return Err(error),
            },
            WalBrings::Job { job, digest } => {
                let Some(closed) = self.closed(*job, digest, keeper).await? else { return Ok(()) };
                if closed.layers.len() != ingest.numbers as usize {
                    let what = "has another number of layers than the log says";
                    self.report.problem(ObjectName::IngestManifest(*job), None, what);
                }
                let layers = closed.numbered(ingest.first_seq);
                self.brought.add(layers.into_iter().flatten(), keeper);
            }
        }
        Ok(())
    }

    /// Jobs that are asked for and not taken in yet.
    pub(super) async fn requests(&mut self, newest: &Manifest) -> Result<()> {
        for asked in &newest.pending_ingests {
            let keeper = Keeper::Request(asked.job);
            if let Some(closed) = self.closed(asked.job, &asked.digest, keeper).await? {
                // Its numbers come with the log: any will do.
                let layers = closed.numbered(newest.flushed_seq.next());
                self.brought.add(layers.into_iter().flatten(), keeper);
            }
        }
        Ok(())
    }

    /// The object that closed `job`; what is wrong with it goes into the report, once.
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
                self.report.problem(name, None, "is another than the one that was asked for");
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
