//! The group of options that only windows need.

use super::SchedulerName;
use siltstone_base::{Error, Result};

/// How [`TimeWindow`](crate::compaction::TimeWindow) keeps rows together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Windows {
    /// What tells a window: `true` for the key, `false` for the expiry.
    pub by_key: bool,
    /// Length of a window of expiry, in milliseconds.
    pub length_millis: u64,
    /// First bytes of the key that tell a window.
    pub prefix_bytes: u64,
    /// Windows that are kept; `None`: all.
    pub keep: Option<u64>,
    /// Runs that the rows of one window may lie in.
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
    /// Whether they fit each other and `scheduler`.
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
