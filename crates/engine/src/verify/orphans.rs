//! Orphans: objects that were listed and that no manifest, log or job names or may come to name. A
//! collector deletes them.
//!
//! No object that a collector retains is an orphan (RFC 0020): a manual deletion of orphans must
//! not break the database.

use super::{Orphan, Verify, is_damage};
use siltstone_base::{Error, JobId, ObjectName, Result, SstId};
use siltstone_manifest::compaction::record::JobReservation;
use siltstone_manifest::{FedSource, Manifest};
use std::collections::HashSet;

/// Reserved table names, and folders of jobs.
struct ReservedNames {
    tables: HashSet<SstId>,
    jobs: HashSet<JobId>,
}

impl Verify<'_> {
    /// The names that compaction jobs reserve, by their newest record. It is read after the listing
    /// and before the newest manifest (rule G1), so each uploaded object of a job is in the record
    /// or in the manifest.
    pub(super) async fn jobs(&mut self) -> Result<()> {
        let Some(newest) = self.newest_now().await? else { return Ok(()) };
        let record = async {
            loop {
                let listing = self.objects.list_records(newest.database, || Ok(())).await?;
                if listing.newest <= listing.boundary {
                    return Ok::<_, Error>(None);
                }
                let record = self.objects.record(listing.newest, newest.database).await?;
                // Otherwise it was freed since, behind a newer one.
                if record.is_some() {
                    return Ok(record);
                }
            }
        };
        match record.await {
            Ok(record) => {
                self.jobs = record.map(|record| record.reservations()).unwrap_or_default();
                Ok(())
            }
            Err(error) if is_damage(error.kind()) => {
                let last = self.listed.keys().rev().find_map(|name| match name {
                    ObjectName::Compactions(_) => Some(*name),
                    _ => None,
                });
                let boundary = self.listed.keys().rev().find_map(|name| match name {
                    ObjectName::CompactionsBoundary(at) => Some(at.saturating_add(1)),
                    _ => None,
                });
                let missing = ObjectName::Compactions(boundary.unwrap_or_default());
                self.report.problem(last.unwrap_or(missing), None, error);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn waiting(&self, newest: &Manifest) -> ReservedNames {
        let finished = |job: JobId| newest.finished_jobs.iter().any(|done| done.job == job);
        let running: Vec<&JobReservation> =
            self.jobs.iter().filter(|job| !finished(job.job)).collect();
        let mut waiting = ReservedNames {
            tables: running.iter().flat_map(|job| job.outputs.iter().copied()).collect(),
            jobs: running.iter().map(|job| JobId::of_units(job.job)).collect(),
        };
        waiting.jobs.extend(newest.mirror.as_ref().and_then(|mirror| mirror.job));
        for one in &newest.fed {
            match one.source {
                FedSource::Job(job) => drop(waiting.jobs.insert(job)),
                FedSource::Table(table) => drop(waiting.tables.insert(table)),
            }
        }
        waiting
    }

    /// Finds the objects that existed at the start and that nothing names or may come to name.
    pub(super) fn orphans(&mut self, newest: &Manifest) {
        self.name_all(newest);
        self.named.extend(self.brought.tables.keys().copied());
        let waiting = self.waiting(newest);
        for (name, bytes) in std::mem::take(&mut self.listed) {
            let waits = match name {
                ObjectName::Compacted(id) => waiting.tables.contains(&id),
                // Newer than the manifest that was read, or one from which a repair would continue.
                ObjectName::Manifest(id) => id > newest.id || newest.follows(id),
                // Written during the verification; or held, but not read by a walk, for example
                // behind a fence.
                ObjectName::Wal(id) => {
                    let holds = newest.holds.iter().map(|hold| hold.wal_from);
                    let from = holds.fold(newest.replay_from, |from, hold| from.min(hold));
                    let is_open = id >= newest.replay_from && id > self.report.wal_last_id;
                    is_open || (from <= id && id < newest.replay_from)
                }
                // Jobs, whose own functions check them.
                ObjectName::Compactions(_) | ObjectName::IngestManifest(_) => true,
                ObjectName::IngestSst(job, _) => {
                    let is_staged = !job.is_of_units() && !job.is_of_an_export();
                    is_staged || waiting.jobs.contains(&job)
                }
                _ => false,
            };
            if !waits && !self.named.contains(&name) {
                self.report.orphans.push(Orphan { name, bytes });
            }
        }
    }
}
