//! Options of compaction: what they are, and whether they fit each other.
//!
//! | module | holds |
//! | --- | --- |
//! | [`table`] | name, kind, range and meaning of each, for every language |
//! | [`named`] | setting and reading one by its name |
//! | [`value`] | values as callers give them, and their units |
//! | [`windows`] | the group of the windows' |
//! | [`choice`] | the scheduler that they choose |

mod choice;
mod named;
mod table;
mod value;
mod windows;

pub use choice::SchedulerName;
pub use table::{OptionKind, OptionLine, moved};
pub use value::{OptionValue, with_unit};
pub use windows::Windows;

use super::work::TableSizing;
use siltstone_base::{Error, Result};

/// How a database is compacted. [`CompactionOptions::TABLE`] describes every field.
#[derive(Clone, Debug, PartialEq)]
pub struct CompactionOptions {
    /// Who chooses.
    pub compaction_scheduler: SchedulerName,
    /// L0 is compacted when it has more layers than this.
    pub l0_compaction_threshold_ssts: u64,
    /// Writers wait when L0 has this many layers.
    pub l0_max_ssts: u64,
    /// Writers wait when so many bytes wait to be compacted.
    pub max_pending_compaction_bytes: Option<u64>,
    /// Jobs under way at once.
    pub max_compactions: u64,
    /// A level is compacted when it has more runs than this.
    pub level_compaction_threshold_runs: u64,
    /// Nothing is compacted into a level that has this many runs.
    pub level_max_runs: u64,
    /// Key ranges of one compaction that are merged at once; `None`: as many as there are cores,
    /// twice as many where they are several and the store answers at once.
    pub compaction_ranges: Option<u64>,
    /// Bytes that the compactions of a process read and write a second; `None`: no limit.
    pub compaction_bytes_per_second: Option<u64>,
    /// Runs there may be in all.
    pub max_total_runs: Option<u64>,
    /// All bytes may come to this many times those of the last layer.
    pub max_space_amplification: Option<f64>,
    /// The same for the tiered scheduler where nothing was said: what the kind of store decides,
    /// and no option. Two tables of L0 may lie above the last layer all the same.
    pub own_space_amplification: Option<f64>,
    /// Share of tombstones from which on a table is merged to the bottom, in percent.
    pub tombstone_percent: u64,
    /// The windows of [`TimeWindow`](super::TimeWindow).
    pub windows: Windows,
    /// Size at which an output ends, in bytes.
    pub target_sst_bytes: u64,
    /// A smaller table is merged with its neighbours rather than moved, in bytes.
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
    /// Whether the options fit each other.
    ///
    /// # Errors
    /// Invalid, naming both.
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

    /// How large tables should be.
    #[must_use]
    pub fn shaping(&self) -> TableSizing {
        TableSizing { target_sst_bytes: self.target_sst_bytes, min_move_bytes: self.min_move_bytes }
    }
}

#[cfg(test)]
mod tests;
