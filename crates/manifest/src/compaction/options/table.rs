//! The table of compaction options: each line has name, kind, range and meaning of one option, and
//! is used by all languages.
//!
//! Names are flat and equal to SlateDB's where SlateDB has the option; SlateDB's dotted names
//! (`compaction_scheduler_tiered.level_max_runs`) are accepted too. The names of options in a group
//! begin with the name of the group and a dot.

use super::{CompactionOptions, SchedulerName};
use siltstone_base::{Error, Result};

/// The kind of value of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionKind {
    /// A number of bytes.
    Bytes,
    /// A number without unit.
    Count,
    /// A ratio.
    Ratio,
    /// A number of seconds.
    Duration,
    /// A name from a list.
    Name,
}

/// One line of the table.
#[derive(Clone, Copy, Debug)]
pub struct OptionLine {
    /// Its name, with the name of its group and a dot if it is in one.
    pub name: &'static str,
    /// The kind of its value.
    pub kind: OptionKind,
    /// Smallest value, in the unit of the kind.
    pub min: f64,
    /// Largest value.
    pub max: f64,
    /// Whether "none" is allowed.
    pub optional: bool,
    /// Meaning, and the cost of a larger or smaller value.
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
                "windows.by" => return "key or expiry".to_owned(),
                _ => return "tiered, lazy_leveled or time_window".to_owned(),
            },
        };
        let none = if self.optional { ", or none" } else { "" };
        format!("{} to {}{unit}{none}", self.min, self.max)
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
    /// All options.
    pub const TABLE: &'static [OptionLine] = &[
        line(
            ("compaction_scheduler", OptionKind::Name),
            (0.0, 0.0),
            false,
            "Compaction strategy: tiered writes least; lazy_leveled keeps one large run, so reads \
             visit fewer runs and space is least; time_window keeps rows of the same age together \
             and drops them unread.",
        ),
        line(
            ("l0_compaction_threshold_ssts", OptionKind::Count),
            (1.0, 1000.0),
            false,
            "L0 is compacted when it has more layers than this. A lower value speeds up reads and \
             costs compaction I/O.",
        ),
        line(
            ("l0_max_ssts", OptionKind::Count),
            (2.0, 2000.0),
            false,
            "At this number of layers in L0 writes wait for compaction; more than \
             l0_compaction_threshold_ssts. Writes are slowed from half way between the two on.",
        ),
        line(
            ("max_pending_compaction_bytes", OptionKind::Bytes),
            (1.0, 1024.0 * 1024.0 * GIB),
            true,
            "At this number of bytes that wait to be compacted, writes wait; from half of it on \
             they are slowed. None, the default: no limit, because one merge of a large last run \
             may have all bytes.",
        ),
        line(
            ("max_compactions", OptionKind::Count),
            (1.0, 64.0),
            false,
            "Maximum number of concurrent compactions. From 2 on, one place is kept for L0.",
        ),
        line(
            ("compaction_ranges", OptionKind::Count),
            (1.0, 256.0),
            true,
            "Key ranges of one compaction that are merged concurrently, each on a core and with \
             some 64 MiB of memory. None: one per core of the process; on several cores and in a \
             local folder, two per core.",
        ),
        line(
            ("compaction_bytes_per_second", OptionKind::Bytes),
            (65_536.0, 64.0 * GIB),
            true,
            "Maximum bytes per second that all compactions of the process read and write \
             together. A lower value leaves more of disk and network to reads and writes; if it \
             is too low, L0 grows until writes wait. None: no limit.",
        ),
        line(
            ("level_compaction_threshold_runs", OptionKind::Count),
            (2.0, 1000.0),
            false,
            "A level is compacted when it has more runs than this; also the ratio between the \
             sizes of runs of one level and the next. More runs slow down reads and save \
             compaction I/O.",
        ),
        line(
            ("level_max_runs", OptionKind::Count),
            (3.0, 2000.0),
            false,
            "No data is compacted into a level that has this many runs; more than \
             level_compaction_threshold_runs.",
        ),
        line(
            ("max_total_runs", OptionKind::Count),
            (1.0, 10_000.0),
            true,
            "Maximum number of runs; above it, neighbours are merged. None: the default of the \
             scheduler: no limit (tiered), 12 (lazy_leveled), 32 (time_window).",
        ),
        line(
            ("max_space_amplification", OptionKind::Ratio),
            (1.01, 1000.0),
            true,
            "Maximum ratio of all bytes to those of the last layer; above it, all layers are \
             merged. None: the default of the scheduler: 1.5 in a local folder, once more than \
             two tables of L0 lie above the last layer, and no limit elsewhere (tiered), 1.25 \
             (lazy_leveled), no limit (time_window).",
        ),
        line(
            ("tombstone_percent", OptionKind::Count),
            (1.0, 100.0),
            false,
            "A table of a run is merged to the bottom if it has at least 4096 tombstones and they \
             are at least this share of its entries, so that scans over deleted ranges stay fast.",
        ),
        line(
            ("windows.by", OptionKind::Name),
            (0.0, 0.0),
            false,
            "time_window: whether the first bytes of the key or the expiry determines the window \
             of a row.",
        ),
        line(
            ("windows.length", OptionKind::Duration),
            (0.001, 3.2e9),
            false,
            "time_window by expiry: length of a window. Rows of a window are dropped together, so \
             a longer window keeps expired rows longer and makes fewer runs.",
        ),
        line(
            ("windows.prefix_bytes", OptionKind::Count),
            (1.0, 1024.0),
            false,
            "time_window by key: number of first bytes of the key that determine the window.",
        ),
        line(
            ("windows.keep", OptionKind::Count),
            (1.0, 1e9),
            true,
            "time_window by key: number of newest windows that are kept; older ones are deleted \
             permanently. None: all are kept.",
        ),
        line(
            ("windows.max_runs", OptionKind::Count),
            (1.0, 1000.0),
            false,
            "time_window: maximum number of runs with rows of one window; above it, they are \
             merged.",
        ),
        line(
            ("target_sst_bytes", OptionKind::Bytes),
            (65_536.0, 64.0 * GIB),
            false,
            "Size at which a table that compaction writes ends. Larger tables are fewer objects; \
             smaller tables lose less when a job is interrupted.",
        ),
        line(
            ("min_move_bytes", OptionKind::Bytes),
            (0.0, 64.0 * GIB),
            false,
            "A table that shares keys with no other is moved unread, unless it is smaller than \
             this and has neighbours to merge with.",
        ),
    ];

    /// The line of the table for `name`; accepts SlateDB's dotted names too.
    ///
    /// # Errors
    /// Invalid for an unknown name, with the known names, and for a renamed option, with its new
    /// name.
    pub fn line(name: &str) -> Result<&'static OptionLine> {
        let flat = flat(name);
        if let Some(line) = CompactionOptions::TABLE.iter().find(|line| line.name == flat) {
            return Ok(line);
        }
        if let Some(place) = CompactionOptions::place_of(name) {
            return Err(moved(name, place));
        }
        let known: Vec<_> = CompactionOptions::TABLE.iter().map(|line| line.name).collect();
        Err(Error::invalid("unknown option of compaction")
            .with("option", name)
            .with("known options", known.join(", ")))
    }

    /// The present name of an option that had the name `name` before: its group, a dot, its name
    /// there.
    #[must_use]
    pub fn place_of(name: &str) -> Option<&'static str> {
        MOVED.iter().find(|(before, _)| *before == flat(name)).map(|(_, place)| *place)
    }
}

/// The name without SlateDB's prefix.
fn flat(name: &str) -> &str {
    let own = SchedulerName::ALL.iter().find_map(|scheduler| {
        let own = name.strip_prefix("compaction_scheduler_")?;
        own.strip_prefix(scheduler.name())?.strip_prefix('.')
    });
    own.unwrap_or(name)
}

/// Options that had a name without a group before.
const MOVED: [(&str, &str); 5] = [
    ("window", "windows.length"),
    ("window_by", "windows.by"),
    ("window_prefix_bytes", "windows.prefix_bytes"),
    ("keep_windows", "windows.keep"),
    ("window_max_runs", "windows.max_runs"),
];

/// The error for an option that was moved into a group.
#[must_use]
pub fn moved(name: &str, place: &str) -> Error {
    Error::invalid(format!("the option {name} has moved: it is {place} now"))
        .with("option", name)
        .with("place", place)
}
