//! The options of time windows.

use super::SchedulerName;
use siltstone_base::{Error, Result};

/// How [`TimeWindow`](crate::compaction::TimeWindow) assigns rows to windows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Windows {
    /// Whether the key (`true`) or the expiry (`false`) determines the window of a row.
    pub by_key: bool,
    /// Length of an expiry window, in milliseconds.
    pub length_millis: u64,
    /// Number of first bytes of the key that determine the window.
    pub prefix_bytes: u64,
    /// Number of windows to keep; `None`: all.
    pub keep: Option<u64>,
    /// Maximum number of runs for the rows of one window.
    pub max_runs: u64,
}

impl Default for Windows {
    fn default() -> Windows {
        Windows {
            by_key: false,
            length_millis: 24 * 3600 * 1000,
            prefix_bytes: 0,
            keep: None,
            max_runs: 4,
        }
    }
}

impl Windows {
    /// Checks that the options are consistent with each other and with `scheduler`.
    pub(super) fn check(&self, scheduler: SchedulerName) -> Result<()> {
        let by_key = self.by_key && scheduler == SchedulerName::TimeWindow;
        if by_key && self.prefix_bytes == 0 {
            return Err(Error::invalid("windows.by = key needs windows.prefix_bytes"));
        }
        if self.keep.is_some() && !by_key {
            return Err(Error::invalid(
                "windows.keep needs compaction_scheduler = time_window and windows.by = key",
            ));
        }
        Ok(())
    }
}
