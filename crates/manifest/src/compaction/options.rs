//! Options of compaction by name: one table tells name, kind, range, default and meaning, and
//! serves every language.
//!
//! Names are flat, SlateDB's where it has one; its dotted ones
//! (`compaction_scheduler_tiered.level_max_runs`) are understood too.

use super::lazy_leveled::LazyLeveled;
use super::scheduler::CompactionScheduler;
use super::tiered::Tiered;
use super::time_window::{TimeWindow, WindowBy};
use super::work::Shaping;
use siltstone_base::{Error, Result};

/// Which scheduler.
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
    /// Every scheduler.
    pub const ALL: [SchedulerName; 3] =
        [SchedulerName::Tiered, SchedulerName::LazyLeveled, SchedulerName::TimeWindow];

    /// As it is chosen.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SchedulerName::Tiered => "tiered",
            SchedulerName::LazyLeveled => "lazy_leveled",
            SchedulerName::TimeWindow => "time_window",
        }
    }
}

/// A value as a caller in another language gives it.
#[derive(Clone, Debug, PartialEq)]
pub enum OptionValue {
    /// A count, or a number of bytes.
    Int(u64),
    /// Seconds, or a ratio.
    Number(f64),
    /// A name, or a number with its unit (`64MiB`, `12h`).
    Text(String),
    /// "None": no limit, or the scheduler's own default.
    Nothing,
}

/// What kind of value an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionKind {
    /// Bytes.
    Bytes,
    /// A number without unit.
    Count,
    /// A ratio.
    Ratio,
    /// Seconds.
    Duration,
    /// A name out of a list.
    Name,
}

/// One line of the table.
#[derive(Clone, Copy, Debug)]
pub struct OptionLine {
    /// Flat name.
    pub name: &'static str,
    /// What it takes.
    pub kind: OptionKind,
    /// Smallest value, in the kind's unit.
    pub min: f64,
    /// Largest value.
    pub max: f64,
    /// Whether "none" is a value.
    pub optional: bool,
    /// Meaning, and what a larger or smaller value costs.
    pub doc: &'static str,
}

impl OptionLine {
    /// The range in words.
    #[must_use]
    pub fn range(&self) -> String {
        let unit = match self.kind {
            OptionKind::Bytes => " bytes",
            OptionKind::Duration => " seconds",
            OptionKind::Count | OptionKind::Ratio => "",
            OptionKind::Name => match self.name {
                "window_by" => return "key or expiry".to_owned(),
                _ => return "tiered, lazy_leveled or time_window".to_owned(),
            },
        };
        let none = if self.optional { ", or none" } else { "" };
        format!("{} to {}{unit}{none}", self.min, self.max)
    }
}

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
    /// What tells a window: `true` for the key, `false` for the expiry.
    pub window_by_key: bool,
    /// Length of a window of expiry, in milliseconds.
    pub window_millis: u64,
    /// First bytes of the key that tell a window.
    pub window_prefix_bytes: u64,
    /// Windows that are kept.
    pub keep_windows: Option<u64>,
    /// Runs that the rows of one window may lie in.
    pub window_max_runs: u64,
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
            window_by_key: false,
            window_millis: 24 * 3600 * 1000,
            window_prefix_bytes: 0,
            keep_windows: None,
            window_max_runs: 4,
            target_sst_bytes: 256 << 20,
            min_move_bytes: 8 << 20,
        }
    }
}

const fn line(
    (name, kind): (&'static str, OptionKind),
    (min, max): (f64, f64),
    optional: bool,
    doc: &'static str,
) -> OptionLine {
    OptionLine { name, kind, min, max, optional, doc }
}

const GIB: f64 = (1u64 << 30) as f64;

impl CompactionOptions {
    /// Every option.
    pub const TABLE: &'static [OptionLine] = &[
        line(
            ("compaction_scheduler", OptionKind::Name),
            (0.0, 0.0),
            false,
            "Who chooses what is compacted: tiered writes least, lazy_leveled keeps one large run \
             and so reads fewer and takes the least space, time_window keeps rows together that \
             age together and drops them unread.",
        ),
        line(
            ("l0_compaction_threshold_ssts", OptionKind::Count),
            (1.0, 1000.0),
            false,
            "L0 is compacted when it has more layers than this. Fewer cost reads less and \
             compaction more.",
        ),
        line(
            ("l0_max_ssts", OptionKind::Count),
            (2.0, 2000.0),
            false,
            "Layers of L0 from which on writes wait for compaction; more than \
             l0_compaction_threshold_ssts. They are slowed from half way between the two on.",
        ),
        line(
            ("max_pending_compaction_bytes", OptionKind::Bytes),
            (1.0, 1024.0 * 1024.0 * GIB),
            true,
            "Bytes that wait to be compacted from which on writes wait; they are slowed from half \
             of it on. None by default: the one merge of a large last run may be all of them.",
        ),
        line(
            ("max_compactions", OptionKind::Count),
            (1.0, 64.0),
            false,
            "Compactions under way at once. From 2 on one place is kept for L0.",
        ),
        line(
            ("compaction_ranges", OptionKind::Count),
            (1.0, 256.0),
            true,
            "Key ranges of one compaction that are merged at once, each on a core and with some \
             64 MiB of memory. None: as many as the process has cores, and where they are several \
             and the store is a local folder twice as many.",
        ),
        line(
            ("compaction_bytes_per_second", OptionKind::Bytes),
            (65_536.0, 64.0 * GIB),
            true,
            "Bytes that all compactions of the process together read and write a second, at most. \
             Less leaves more of disk and network to reads and writes; too little, and L0 grows \
             until writes wait. None: no limit.",
        ),
        line(
            ("level_compaction_threshold_runs", OptionKind::Count),
            (2.0, 1000.0),
            false,
            "A level is compacted when it has more runs than this; also how many times larger \
             the runs of the next level are. More runs cost reads more and writes less.",
        ),
        line(
            ("level_max_runs", OptionKind::Count),
            (3.0, 2000.0),
            false,
            "Nothing is compacted into a level that has this many runs; more than \
             level_compaction_threshold_runs.",
        ),
        line(
            ("max_total_runs", OptionKind::Count),
            (1.0, 10_000.0),
            true,
            "Runs there may be in all before neighbours are merged. None is the scheduler's own: \
             no bound (tiered), 12 (lazy_leveled), 32 (time_window).",
        ),
        line(
            ("max_space_amplification", OptionKind::Ratio),
            (1.01, 1000.0),
            true,
            "All bytes may come to this many times those of the last layer before everything is \
             merged into it. None is the scheduler's own: 1.5 in a local folder, once more than \
             two tables of L0 lie above the last layer, and no bound elsewhere (tiered), 1.25 \
             (lazy_leveled), no bound (time_window).",
        ),
        line(
            ("tombstone_percent", OptionKind::Count),
            (1.0, 100.0),
            false,
            "A table of a run with 4096 tombstones or more, which make up this share of its \
             entries, is merged to the bottom, so that scans over deleted ranges stay fast.",
        ),
        line(
            ("window_by", OptionKind::Name),
            (0.0, 0.0),
            false,
            "time_window: whether the first bytes of the key tell a window or the expiry.",
        ),
        line(
            ("window", OptionKind::Duration),
            (0.001, 3.2e9),
            false,
            "time_window by expiry: length of a window. Rows of one are dropped together, so a \
             longer one keeps expired rows longer and leaves fewer runs.",
        ),
        line(
            ("window_prefix_bytes", OptionKind::Count),
            (1.0, 1024.0),
            false,
            "time_window by key: how many first bytes of the key tell a window.",
        ),
        line(
            ("keep_windows", OptionKind::Count),
            (1.0, 1e9),
            true,
            "time_window by key: only so many of the newest windows are kept; older ones are \
             deleted for good. None keeps all.",
        ),
        line(
            ("window_max_runs", OptionKind::Count),
            (1.0, 1000.0),
            false,
            "time_window: runs that the rows of one window may lie in before they are merged.",
        ),
        line(
            ("target_sst_bytes", OptionKind::Bytes),
            (65_536.0, 64.0 * GIB),
            false,
            "Size at which a table that compaction writes ends. Larger ones are fewer objects; \
             smaller ones lose less when a job is interrupted.",
        ),
        line(
            ("min_move_bytes", OptionKind::Bytes),
            (0.0, 64.0 * GIB),
            false,
            "A table that shares keys with no other is moved unread, unless it is smaller than \
             this and has neighbours to merge it with.",
        ),
    ];

    /// The line of the table for `name`, flat or dotted.
    ///
    /// # Errors
    /// Invalid for names nobody knows, with those there are.
    pub fn line(name: &str) -> Result<&'static OptionLine> {
        let flat = SchedulerName::ALL.iter().find_map(|scheduler| {
            let own = name.strip_prefix("compaction_scheduler_")?;
            own.strip_prefix(scheduler.name())?.strip_prefix('.')
        });
        let flat = flat.unwrap_or(name);
        CompactionOptions::TABLE.iter().find(|line| line.name == flat).ok_or_else(|| {
            let known: Vec<_> = CompactionOptions::TABLE.iter().map(|line| line.name).collect();
            Error::invalid("unknown option of compaction")
                .with("option", name)
                .with("known options", known.join(", "))
        })
    }

    /// Sets one option by name.
    ///
    /// # Errors
    /// Invalid for an unknown name, a wrong kind of value, or one out of range; the text names the
    /// option and the range.
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
            "window" => self.window_millis = (number.unwrap_or_default() * 1000.0).round() as u64,
            "window_prefix_bytes" => self.window_prefix_bytes = count(),
            "keep_windows" => self.keep_windows = number.map(|windows| windows as u64),
            "window_max_runs" => self.window_max_runs = count(),
            "target_sst_bytes" => self.target_sst_bytes = count(),
            "min_move_bytes" => self.min_move_bytes = count(),
            other => return Err(Error::internal("an option without a field").with("option", other)),
        }
        Ok(())
    }

    fn set_name(&mut self, line: &OptionLine, value: &OptionValue) -> Result<()> {
        let OptionValue::Text(text) = value else { return Err(wrong(line, value)) };
        if line.name == "window_by" {
            self.window_by_key = match text.as_str() {
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
            "window_by" => {
                OptionValue::Text(if self.window_by_key { "key" } else { "expiry" }.to_owned())
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
            "window" => OptionValue::Number(self.window_millis as f64 / 1000.0),
            "window_prefix_bytes" => int(Some(self.window_prefix_bytes)),
            "keep_windows" => int(self.keep_windows),
            "window_max_runs" => int(Some(self.window_max_runs)),
            "target_sst_bytes" => int(Some(self.target_sst_bytes)),
            _ => int(Some(self.min_move_bytes)),
        })
    }

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
        let window = self.compaction_scheduler == SchedulerName::TimeWindow;
        if window && self.window_by_key && self.window_prefix_bytes == 0 {
            return Err(Error::invalid("window_by = key needs window_prefix_bytes"));
        }
        if self.keep_windows.is_some() && !(window && self.window_by_key) {
            return Err(Error::invalid(
                "keep_windows needs compaction_scheduler = time_window and window_by = key",
            ));
        }
        Ok(())
    }

    /// The scheduler that they choose, for tables of `l0_sst_size_bytes` in L0.
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
                by: match self.window_by_key {
                    true => WindowBy::Key {
                        prefix_bytes: self.window_prefix_bytes as u16,
                        keep_windows: self.keep_windows.map(|windows| windows as usize),
                    },
                    false => WindowBy::Expiry { window_millis: self.window_millis },
                },
                window_max_runs: self.window_max_runs as usize,
                max_total_runs: runs(None).unwrap_or(TimeWindow::default().max_total_runs),
            }),
        })
    }

    /// How large tables should be.
    #[must_use]
    pub fn shaping(&self) -> Shaping {
        Shaping { target_sst_bytes: self.target_sst_bytes, min_move_bytes: self.min_move_bytes }
    }
}

fn wrong(line: &OptionLine, value: &OptionValue) -> Error {
    let given = match value {
        OptionValue::Int(value) => value.to_string(),
        OptionValue::Number(value) => value.to_string(),
        OptionValue::Text(value) => value.clone(),
        OptionValue::Nothing => "none".to_owned(),
    };
    Error::invalid(format!("{} takes {}", line.name, line.range())).with("given", given)
}

/// The value as a number in the kind's unit, within the range; `None` for "none".
fn number(line: &OptionLine, value: &OptionValue) -> Result<Option<f64>> {
    let number = match value {
        OptionValue::Nothing if line.optional => return Ok(None),
        OptionValue::Text(text) if text == "none" && line.optional => return Ok(None),
        OptionValue::Int(value) => Some(*value as f64),
        OptionValue::Number(value) => Some(*value),
        OptionValue::Text(text) => with_unit(line.kind, text),
        OptionValue::Nothing => None,
    };
    let whole = !matches!(line.kind, OptionKind::Ratio | OptionKind::Duration);
    let fits =
        |number: &f64| (line.min..=line.max).contains(number) && (!whole || number.fract() == 0.0);
    match number.filter(fits) {
        None => Err(wrong(line, value)),
        some => Ok(some),
    }
}

/// Units by kind, and what they come to.
const UNITS: [(OptionKind, &str, f64); 10] = [
    (OptionKind::Bytes, "B", 1.0),
    (OptionKind::Bytes, "KiB", 1024.0),
    (OptionKind::Bytes, "MiB", 1024.0 * 1024.0),
    (OptionKind::Bytes, "GiB", GIB),
    (OptionKind::Duration, "ms", 0.001),
    (OptionKind::Duration, "s", 1.0),
    (OptionKind::Duration, "min", 60.0),
    (OptionKind::Duration, "h", 3600.0),
    (OptionKind::Duration, "d", 86_400.0),
    (OptionKind::Count, "", 1.0),
];

/// A number with one of its kind's units (`64MiB`, `12h`), or with none; `None` for another text.
#[must_use]
pub fn with_unit(kind: OptionKind, text: &str) -> Option<f64> {
    let text = text.trim();
    let digits = text.find(|letter: char| !(letter.is_ascii_digit() || letter == '.'));
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let number: f64 = number.parse().ok()?;
    let unit = unit.trim();
    let known = UNITS.iter().find(|(of, name, _)| *of == kind && *name == unit);
    match known {
        Some((_, _, times)) => Some(number * times),
        None => unit.is_empty().then_some(number),
    }
}

#[cfg(test)]
mod tests;
