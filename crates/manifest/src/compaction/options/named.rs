//! Setting and reading an option by name.

use super::value::{number, wrong};
use super::{CompactionOptions, OptionKind, OptionLine, OptionValue, SchedulerName};
use siltstone_base::{Error, Result};

impl CompactionOptions {
    /// Sets one option by name.
    ///
    /// # Errors
    /// Invalid for an unknown name, a value of the wrong kind, or a value out of range; the message
    /// contains the name and the range.
    pub fn set(&mut self, name: &str, value: &OptionValue) -> Result<()> {
        let line = CompactionOptions::line(name)?;
        if line.kind == OptionKind::Name {
            return self.set_name(line, value);
        }
        let number = number(line, value)?;
        let count = || number.unwrap_or_default() as u64;
        match line.name {
            "l0_compaction_threshold_ssts" => self.l0_compaction_threshold_ssts = count(),
            "l0_max_ssts" => self.l0_max_ssts = count(),
            "max_compactions" => self.max_compactions = count(),
            "max_pending_compaction_bytes" => {
                self.max_pending_compaction_bytes = number.map(|bytes| bytes as u64);
            }
            "compaction_ranges" => self.compaction_ranges = number.map(|ranges| ranges as u64),
            "compaction_bytes_per_second" => {
                self.compaction_bytes_per_second = number.map(|bytes| bytes as u64);
            }
            "level_compaction_threshold_runs" => self.level_compaction_threshold_runs = count(),
            "level_max_runs" => self.level_max_runs = count(),
            "max_total_runs" => self.max_total_runs = number.map(|runs| runs as u64),
            "max_space_amplification" => self.max_space_amplification = number,
            "tombstone_percent" => self.tombstone_percent = count(),
            "windows.length" => {
                self.windows.length_millis = (number.unwrap_or_default() * 1000.0).round() as u64;
            }
            "windows.prefix_bytes" => self.windows.prefix_bytes = count(),
            "windows.keep" => self.windows.keep = number.map(|windows| windows as u64),
            "windows.max_runs" => self.windows.max_runs = count(),
            "target_sst_bytes" => self.target_sst_bytes = count(),
            "min_move_bytes" => self.min_move_bytes = count(),
            other => return Err(Error::internal("an option without a field").with("option", other)),
        }
        Ok(())
    }

    fn set_name(&mut self, line: &OptionLine, value: &OptionValue) -> Result<()> {
        let OptionValue::Text(text) = value else { return Err(wrong(line, value)) };
        if line.name == "windows.by" {
            self.windows.by_key = match text.as_str() {
                "key" => true,
                "expiry" => false,
                _ => return Err(wrong(line, value)),
            };
            return Ok(());
        }
        let known = SchedulerName::ALL.iter().find(|scheduler| scheduler.name() == text);
        self.compaction_scheduler = *known.ok_or_else(|| wrong(line, value))?;
        Ok(())
    }

    /// The value of an option; durations in seconds.
    ///
    /// # Errors
    /// Invalid for an unknown name.
    pub fn get(&self, name: &str) -> Result<OptionValue> {
        let int = |value: Option<u64>| value.map_or(OptionValue::Nothing, OptionValue::Int);
        let line = CompactionOptions::line(name)?;
        Ok(match line.name {
            "compaction_scheduler" => {
                OptionValue::Text(self.compaction_scheduler.name().to_owned())
            }
            "windows.by" => {
                OptionValue::Text(if self.windows.by_key { "key" } else { "expiry" }.to_owned())
            }
            "l0_compaction_threshold_ssts" => int(Some(self.l0_compaction_threshold_ssts)),
            "l0_max_ssts" => int(Some(self.l0_max_ssts)),
            "max_compactions" => int(Some(self.max_compactions)),
            "max_pending_compaction_bytes" => int(self.max_pending_compaction_bytes),
            "compaction_ranges" => int(self.compaction_ranges),
            "compaction_bytes_per_second" => int(self.compaction_bytes_per_second),
            "level_compaction_threshold_runs" => int(Some(self.level_compaction_threshold_runs)),
            "level_max_runs" => int(Some(self.level_max_runs)),
            "max_total_runs" => int(self.max_total_runs),
            "max_space_amplification" => {
                self.max_space_amplification.map_or(OptionValue::Nothing, OptionValue::Number)
            }
            "tombstone_percent" => int(Some(self.tombstone_percent)),
            "windows.length" => OptionValue::Number(self.windows.length_millis as f64 / 1000.0),
            "windows.prefix_bytes" => int(Some(self.windows.prefix_bytes)),
            "windows.keep" => int(self.windows.keep),
            "windows.max_runs" => int(Some(self.windows.max_runs)),
            "target_sst_bytes" => int(Some(self.target_sst_bytes)),
            _ => int(Some(self.min_move_bytes)),
        })
    }
}
