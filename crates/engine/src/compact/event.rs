//! Events of a compactor in its own process.

use super::compaction_log::{CompactionEntry, TARGET};
use siltstone_base::Error;
use std::fmt;
use std::time::Duration;

/// An event of a compactor or a worker.
#[derive(Clone, Debug)]
pub enum CompactorEvent {
    /// A compaction has ended, with the reason if it failed.
    Compacted(CompactionEntry),
    /// A worker has finished a range.
    Merged(RangeMerged),
    /// An operation failed and is retried.
    Trouble(Error),
}

/// A range of a job that a worker has finished. The job may belong to another compactor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeMerged {
    /// Id of the job.
    pub job: String,
    /// Index of the range in the job, from 0.
    pub range: usize,
    /// How long it took here.
    pub took: Duration,
}

impl fmt::Display for RangeMerged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.took.as_secs_f64();
        write!(f, "merged range {} of job {}; {seconds:.2} s", self.range, self.job)
    }
}

impl CompactorEvent {
    /// Logs the event, unless the log of compactions has done so.
    pub(super) fn log(&self) {
        if let CompactorEvent::Merged(range) = self {
            log::info!(target: TARGET, "{range}");
        }
    }
}

impl fmt::Display for CompactorEvent {
    /// One log line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CompactorEvent::Compacted(entry) => entry.fmt(f),
            CompactorEvent::Merged(range) => range.fmt(f),
            CompactorEvent::Trouble(error) => write!(f, "retrying after an error: {error}"),
        }
    }
}
