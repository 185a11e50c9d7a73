//! A unit of a compaction: the rest of one range of a job, merged in any process, without an epoch
//! or a claim (RFC 0046). It reads the record, uploads into the folder of the job's units, and
//! returns the tables that it made. It must not write to the record.

use super::host::Host;
use super::process::{CompactorProcess, Process};
use super::range::RangeWorker;
use super::worker::{inputs, is_over};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use siltstone_base::{DatabaseId, ErrorKind, JobId, Result, SstDescriptor, SstId};
use siltstone_manifest::compaction::FinishedUnit;
use std::sync::Arc;

/// The work of one process. It is small, and any process may run it any number of times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactionUnit {
    /// The job.
    pub job: JobId,
    /// Index of the range in the job, from 0.
    pub range: usize,
    /// The table after which the unit continues; `None` means from the start of the range.
    pub after: Option<SstId>,
    /// The first key of the range.
    pub start: Bytes,
    /// The first key after the range; `None` if the range has no end.
    pub end: Option<Bytes>,
}

/// The result of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitResult {
    job: JobId,
    database: DatabaseId,
    /// `None` if the unit is no longer needed.
    finished: Option<FinishedUnit>,
}

impl UnitResult {
    /// The job.
    #[must_use]
    pub fn job(&self) -> JobId {
        self.job
    }

    /// The tables of the unit; `None` if its range was finished already or its job has ended.
    #[must_use]
    pub fn tables(&self) -> Option<&[SstDescriptor]> {
        self.finished.as_ref().map(|unit| unit.tables.as_slice())
    }

    /// The result of the unit that must be recorded.
    pub(super) fn finished(&self) -> Option<&FinishedUnit> {
        self.finished.as_ref()
    }

    /// Encodes the tables for transport; `None` if the unit is no longer needed.
    ///
    /// # Errors
    /// Invalid if there are too many tables.
    pub fn to_bytes(&self) -> Result<Option<Bytes>> {
        let bytes = self.finished.as_ref().map(|unit| unit.to_bytes(self.job, self.database));
        bytes.transpose()
    }

    /// Decodes the result of `unit` from the bytes of [`UnitResult::to_bytes`].
    ///
    /// # Errors
    /// Corruption; Unsupported if a newer version wrote it; Invalid if it belongs to another job.
    pub fn from_bytes(unit: &CompactionUnit, bytes: Option<&[u8]>) -> Result<UnitResult> {
        let tables = bytes.map(|bytes| FinishedUnit::tables_of(bytes, unit.job)).transpose()?;
        Ok(UnitResult::of(unit, DatabaseId::NONE, tables))
    }

    fn of(
        unit: &CompactionUnit,
        database: DatabaseId,
        tables: Option<Vec<SstDescriptor>>,
    ) -> UnitResult {
        let (range, after) = (unit.range, unit.after);
        let finished = tables.map(|tables| FinishedUnit { range, after, tables });
        UnitResult { job: unit.job, database, finished }
    }
}

impl CompactorProcess {
    /// Merges a unit of a plan, which any process may have made. A unit that runs twice uploads
    /// twice, and the plan records one of the two results.
    ///
    /// # Errors
    /// Denied, Unavailable, Timeout, Corruption; Unsupported for a job that a newer version has
    /// begun; Closed once the process is stopped. The collector deletes uploads that are not
    /// recorded.
    pub fn run_unit<'a>(&'a self, unit: &'a CompactionUnit) -> BoxFuture<'a, Result<UnitResult>> {
        async move {
            let made = make(&self.process, unit).await;
            let tables = made.map_err(|error| error.during("merge a unit of a compaction"))?;
            Ok(UnitResult::of(unit, self.process.manifests.database(), tables))
        }
        .boxed()
    }
}

/// `None` if the unit is no longer needed.
async fn make(process: &Arc<Process>, unit: &CompactionUnit) -> Result<Option<Vec<SstDescriptor>>> {
    let record = process.compactor.chain.list(&process.manifests).await?;
    let Some(job) = record.job(unit.job).filter(|job| !job.cancelled) else { return Ok(None) };
    let begun = FinishedUnit { range: unit.range, after: unit.after, tables: Vec::new() };
    let range = job.ranges.get(unit.range).filter(|range| range.stands_for(&begun));
    let (Some(range), Some(layers)) = (range, inputs(process, unit.job).await?) else {
        return Ok(None);
    };
    let host: Arc<dyn Host> = Arc::<Process>::clone(process);
    let worker = RangeWorker::of_unit(&host, (unit.job, unit.range));
    match worker.make(job, range, &layers).await {
        Ok(tables) => Ok(Some(tables)),
        // Missing inputs belonged to a job that ended meanwhile.
        Err(error) if error.kind() == ErrorKind::NotFound => {
            if is_over(process, unit.job).await? {
                Ok(None)
            } else {
                Err(error)
            }
        }
        Err(error) => Err(error),
    }
}
