//! The scheduler that the options select.

use super::CompactionOptions;
use crate::compaction::{CompactionScheduler, LazyLeveled, Tiered, TimeWindow, WindowBy};
use siltstone_base::Result;

/// The name of a scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SchedulerName {
    /// [`Tiered`].
    #[default]
    Tiered,
    /// [`LazyLeveled`].
    LazyLeveled,
    /// [`TimeWindow`].
    TimeWindow,
}

impl SchedulerName {
    /// All schedulers.
    pub const ALL: [SchedulerName; 3] =
        [SchedulerName::Tiered, SchedulerName::LazyLeveled, SchedulerName::TimeWindow];

    /// The name in the options.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SchedulerName::Tiered => "tiered",
            SchedulerName::LazyLeveled => "lazy_leveled",
            SchedulerName::TimeWindow => "time_window",
        }
    }
}

impl CompactionOptions {
    /// The scheduler that the options select, for tables of `l0_sst_size_bytes` in L0.
    ///
    /// # Errors
    /// As [`CompactionOptions::check`].
    pub fn scheduler(&self, l0_sst_size_bytes: u64) -> Result<Box<dyn CompactionScheduler>> {
        self.check()?;
        let runs = |own: Option<usize>| self.max_total_runs.map(|runs| runs as usize).or(own);
        let tiered = Tiered {
            l0_sst_size_bytes,
            l0_compaction_threshold_ssts: self.l0_compaction_threshold_ssts as usize,
            level_compaction_threshold_runs: self.level_compaction_threshold_runs as usize,
            level_max_runs: self.level_max_runs as usize,
            max_total_runs: runs(None),
            max_space_amplification: self.max_space_amplification,
            slack_bytes: 0,
            tombstone_percent: self.tombstone_percent,
        };
        Ok(match self.compaction_scheduler {
            SchedulerName::Tiered if self.max_space_amplification.is_some() => Box::new(tiered),
            SchedulerName::Tiered => Box::new(Tiered {
                max_space_amplification: self.own_space_amplification,
                slack_bytes: l0_sst_size_bytes.saturating_mul(2),
                ..tiered
            }),
            SchedulerName::LazyLeveled => {
                let own = LazyLeveled::default();
                Box::new(LazyLeveled {
                    upper: tiered,
                    max_space_amplification: self
                        .max_space_amplification
                        .unwrap_or(own.max_space_amplification),
                    max_total_runs: runs(None).unwrap_or(own.max_total_runs),
                })
            }
            SchedulerName::TimeWindow => Box::new(TimeWindow {
                upper: tiered,
                by: match self.windows.by_key {
                    true => WindowBy::Key {
                        prefix_bytes: self.windows.prefix_bytes as u16,
                        keep_windows: self.windows.keep.map(|windows| windows as usize),
                    },
                    false => WindowBy::Expiry { window_millis: self.windows.length_millis },
                },
                window_max_runs: self.windows.max_runs as usize,
                max_total_runs: runs(None).unwrap_or(TimeWindow::default().max_total_runs),
            }),
        })
    }
}
