//! The options of compaction, and whether they are consistent.
//!
//! | module | holds |
//! | --- | --- |
//! | [`table`] | name, kind, range and meaning of each option, for all languages |
//! | [`named`] | setting and reading an option by name |
//! | [`value`] | values as callers pass them, with units |
//! | [`windows`] | the options of time windows |
//! | [`choice`] | the scheduler that the options select |

mod choice;
mod named;
mod table;
mod value;
mod windows;

pub use choice::SchedulerName;
pub use table::{OptionKind, OptionLine, moved};
pub use value::{OptionValue, forms, with_unit};
pub use windows::Windows;

use super::work::TableSizing;
use siltstone_base::{Error, Result};

/// The compaction options of a database. [`CompactionOptions::TABLE`] describes every field.
#[derive(Clone, Debug, PartialEq)]
pub struct CompactionOptions {
    /// The scheduler.
    pub compaction_scheduler: SchedulerName,
    /// L0 is compacted when it has more layers than this.
    pub l0_compaction_threshold_ssts: u64,
    /// Writers wait if L0 has this many layers.
    pub l0_max_ssts: u64,
    /// Writers wait if this many bytes are waiting to be compacted.
    pub max_pending_compaction_bytes: Option<u64>,
    /// Maximum number of running jobs.
    pub max_compactions: u64,
    /// A level is compacted when it has more runs than this.
    pub level_compaction_threshold_runs: u64,
    /// A level with this many runs receives no further runs.
    pub level_max_runs: u64,
    /// Number of key ranges of one compaction that are merged concurrently; `None`: the number of
    /// cores, or twice that number if there are several cores and the store has a low latency.
    pub compaction_ranges: Option<u64>,
    /// Bytes that the compactions of a process may read and write per second; `None`: no limit.
    pub compaction_bytes_per_second: Option<u64>,
    /// Maximum number of runs.
    pub max_total_runs: Option<u64>,
    /// Limit of total bytes, relative to the bytes of the last layer.
    pub max_space_amplification: Option<f64>,
    /// The default of that limit for the tiered scheduler, which depends on the kind of store and
    /// is not an option itself. Two tables of L0 may always be above the last layer.
    pub own_space_amplification: Option<f64>,
    /// Percentage of tombstones from which on a table is merged to the bottom.
    pub tombstone_percent: u64,
    /// The options of [`TimeWindow`](super::TimeWindow).
    pub windows: Windows,
    /// Size at which an output ends, in bytes.
    pub target_sst_bytes: u64,
    /// Size in bytes below which a table is merged with its neighbours rather than moved.
    pub min_move_bytes: u64,
}

impl Default for CompactionOptions {
    fn default() -> CompactionOptions {
        CompactionOptions {
            compaction_scheduler: SchedulerName::Tiered,
            l0_compaction_threshold_ssts: 8,
            l0_max_ssts: 16,
            max_pending_compaction_bytes: None,
            max_compactions: 4,
            compaction_ranges: None,
            compaction_bytes_per_second: None,
            level_compaction_threshold_runs: 8,
            level_max_runs: 16,
            max_total_runs: None,
            max_space_amplification: None,
            own_space_amplification: None,
            tombstone_percent: 50,
            windows: Windows::default(),
            target_sst_bytes: 256 << 20,
            min_move_bytes: 8 << 20,
        }
    }
}

impl CompactionOptions {
    /// Checks that the options are consistent.
    ///
    /// # Errors
    /// Invalid, with the names of both options.
    pub fn check(&self) -> Result<()> {
        let pairs = [
            (
                ("l0_max_ssts", self.l0_max_ssts),
                ("l0_compaction_threshold_ssts", self.l0_compaction_threshold_ssts),
            ),
            (
                ("level_max_runs", self.level_max_runs),
                ("level_compaction_threshold_runs", self.level_compaction_threshold_runs),
            ),
        ];
        for ((most, limit), (threshold, value)) in pairs {
            if limit <= value {
                return Err(Error::invalid(format!("{most} must be more than {threshold}"))
                    .with(most, limit)
                    .with(threshold, value));
            }
        }
        self.windows.check(self.compaction_scheduler)
    }

    /// The target sizes of tables.
    #[must_use]
    pub fn shaping(&self) -> TableSizing {
        TableSizing { target_sst_bytes: self.target_sst_bytes, min_move_bytes: self.min_move_bytes }
    }
}

#[cfg(test)]
mod tests;
