//! What a compactor in a process of its own tells.

use super::compaction_log::{CompactionEntry, TARGET};
use siltstone_base::Error;
use std::fmt;
use std::time::Duration;

/// What a compactor or a worker has to tell.
#[derive(Clone, Debug)]
pub enum CompactorEvent {
    /// A compaction has ended, with the reason if without success.
    Compacted(CompactionEntry),
    /// A worker has finished a range.
    Merged(RangeMerged),
    /// Something failed, and is tried again.
    Trouble(Error),
}

/// A range of somebody's job that a worker finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeMerged {
    /// Identity of the job.
    pub job: String,
    /// Place of the range in it, from 0.
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
    /// What the log of compactions has not said by itself.
    pub(super) fn log(&self) {
        if let CompactorEvent::Merged(range) = self {
            log::info!(target: TARGET, "{range}");
        }
    }
}

impl fmt::Display for CompactorEvent {
    /// One line of a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CompactorEvent::Compacted(entry) => entry.fmt(f),
            CompactorEvent::Merged(range) => range.fmt(f),
            CompactorEvent::Trouble(error) => write!(f, "tried again: {error}"),
        }
    }
}
