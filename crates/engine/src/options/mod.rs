//! The options of a handle (RFC 0007). Names are flat, and are those of SlateDB where it has one.
//! Options that few users set are in groups: their names begin with the group's name and a dot. One
//! table has the name, unit, default, range and meaning of each option, for Rust, Python and the
//! command line.

pub(crate) mod compaction;
mod compactors;
mod disk_cache;
mod gc;
mod readers;
mod table;
mod writes;

pub use compaction::{bytes_of_text, seconds_of_text};
pub use compactors::Compactors;
pub use disk_cache::{DiskCacheOptions, MirroredKeys};
pub use gc::Gc;
pub use readers::Readers;
pub use writes::Writes;

use compaction::{forms, from_compaction, in_units, of_compaction, to_compaction};
use siltstone_base::likeness::nearest;
use siltstone_base::limits::DEFAULT_MAX_BATCH_BYTES;
use siltstone_base::{Error, Result};
use siltstone_manifest::compaction::CompactionOptions;
use siltstone_manifest::compaction::options::{OptionLine, moved};
use siltstone_manifest::protocol::Lifetimes;
use siltstone_sst::{Codec, TableOptions};
use siltstone_store::Store;
use siltstone_store::disk_cache::cached;
use siltstone_store::env::Env;
use std::fmt;
use std::time::Duration;

/// The bounds on the life of a since-lease.
const SHORTEST_SINCE: Duration = Duration::from_secs(20);
const LONGEST_SINCE: Duration = Duration::from_secs(60);

/// The options of a database handle. [`Options::TABLE`] describes every field.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Maximum time for which a write waits in memory before its WAL object is sent.
    pub flush_interval: Duration,
    /// Bytes of buffered writes at which a WAL object is sent immediately.
    pub flush_bytes: usize,
    /// Maximum number of WAL objects in flight.
    pub max_parallel_writes: u64,
    /// Maximum number of WAL PUTs per second; `None`: no maximum.
    pub max_wal_puts_per_second: Option<f64>,
    /// Size at which the memtable is frozen and flushed to L0.
    pub l0_sst_size_bytes: usize,
    /// Minimum time between two manifest commits of flushes.
    pub l0_manifest_commit_interval: Duration,
    /// Unflushed bytes at which writes begin to wait.
    pub max_memtable_bytes: usize,
    /// How often a reader, and a writer under load, looks for a newer manifest; `None`: see
    /// [`Options::poll_interval`].
    pub manifest_poll_interval: Option<Duration>,
    /// Whether a reader leases the versions that it reads.
    pub reader_lease: bool,
    /// Options that only readers use.
    pub readers: Readers,
    /// Maximum bytes of a batch.
    pub max_batch_bytes: usize,
    /// How large batches are written, and how much the writer remembers for transactions.
    pub writes: Writes,
    /// Target size of a block of a table.
    pub block_bytes: usize,
    /// Codec of the blocks; `None`: LZ4 in an object store, no codec in a folder and in memory.
    pub compression: Option<Codec>,
    /// Bloom filter bits per key.
    pub filter_bits_per_key: u32,
    /// Memory for decoded blocks.
    pub block_cache_bytes: usize,
    /// Memory for indexes and filters of tables.
    pub metadata_cache_bytes: usize,
    /// The disk cache of parts of tables: `disk_cache_path` and `disk_cache_bytes`.
    pub disk_cache: DiskCacheOptions,
    /// Whether reads of this handle see only durable rows.
    pub read_durable_only: bool,
    /// Maximum time that a call may take.
    pub deadline: Duration,
    /// Whether the writer compacts in the background.
    pub embedded_compactor: bool,
    /// Whether the writer deletes unreferenced objects in the background.
    pub embedded_gc: bool,
    /// When the writer's collector runs, and what it keeps.
    pub gc: Gc,
    /// How often compactors and workers poll, and when they count as dead.
    pub compactors: Compactors,
    /// How tables are compacted; [`CompactionOptions::TABLE`] describes it.
    pub compaction: CompactionOptions,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            flush_interval: Duration::from_millis(100),
            flush_bytes: 4 << 20,
            max_parallel_writes: 4,
            max_wal_puts_per_second: None,
            l0_sst_size_bytes: 64 << 20,
            l0_manifest_commit_interval: Duration::from_millis(100),
            max_memtable_bytes: 256 << 20,
            manifest_poll_interval: None,
            reader_lease: true,
            readers: Readers::default(),
            max_batch_bytes: DEFAULT_MAX_BATCH_BYTES,
            writes: Writes::default(),
            block_bytes: 16 << 10,
            compression: None,
            filter_bits_per_key: 10,
            block_cache_bytes: 512 << 20,
            metadata_cache_bytes: 256 << 20,
            disk_cache: DiskCacheOptions::default(),
            read_durable_only: false,
            deadline: Duration::from_secs(30),
            embedded_compactor: true,
            embedded_gc: true,
            gc: Gc::default(),
            compactors: Compactors::default(),
            compaction: CompactionOptions::default(),
        }
    }
}

/// The value of an option, from a caller in another language.
#[derive(Clone, Debug, PartialEq)]
pub enum OptionValue {
    /// A duration.
    Seconds(f64),
    /// A count or a number of bytes.
    Int(u64),
    /// On or off.
    Bool(bool),
    /// A name, or a number with its unit (`64MiB`, `12h`).
    Text(String),
    /// None: no limit.
    Nothing,
}

impl fmt::Display for OptionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptionValue::Seconds(number) => number.fmt(f),
            OptionValue::Int(number) => number.fmt(f),
            OptionValue::Bool(on) => on.fmt(f),
            OptionValue::Text(text) => write!(f, "'{text}'"),
            OptionValue::Nothing => f.write_str("none"),
        }
    }
}

/// The kind of an option's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionKind {
    /// Seconds.
    Duration,
    /// Bytes.
    Bytes,
    /// A number without unit.
    Count,
    /// On or off.
    Bool,
    /// A name from a list.
    Text,
    /// A folder.
    Path,
    /// A range of keys.
    Keys,
    /// A rate per second, or none.
    Rate,
    /// A number without unit, with a fraction.
    Ratio,
}

/// One line of the options' table.
#[derive(Clone, Copy, Debug)]
pub struct OptionInfo {
    /// The name. For an option of a group, it begins with the group's name and a dot.
    pub name: &'static str,
    /// The kind of its value.
    pub kind: OptionKind,
    /// Minimum value, in the kind's unit (seconds for durations).
    pub min: f64,
    /// Maximum value.
    pub max: f64,
    /// The meaning, and the cost of a larger or smaller value.
    pub doc: &'static str,
    /// For an option of compaction, its line in [`CompactionOptions::TABLE`].
    pub(crate) line: Option<&'static OptionLine>,
}

impl OptionInfo {
    /// Whether the option may be none. This applies to options of this table only.
    fn may_be_none(&self) -> bool {
        self.kind == OptionKind::Rate
            || matches!(
                self.name,
                "compression"
                    | "disk_cache_bytes"
                    | "disk_cache_mirror"
                    | "disk_cache_path"
                    | "gc.max_garbage_bytes"
                    | "manifest_poll_interval"
                    | "readers.max_staleness"
                    | "writes.ingest_poll_interval"
                    | "writes.skip_memtable_bytes"
            )
    }

    /// The range in words, for messages and documentation.
    #[must_use]
    pub fn range(&self) -> String {
        if let Some(line) = self.line {
            return line.range();
        }
        match self.kind {
            OptionKind::Duration => format!("{} to {} seconds", self.min, self.max),
            OptionKind::Bytes => {
                let none = if self.may_be_none() { ", or none" } else { "" };
                format!("{} to {} bytes{none}", self.min, self.max)
            }
            OptionKind::Count => format!("{} to {}", self.min, self.max),
            OptionKind::Rate => format!("{} to {} per second, or none", self.min, self.max),
            OptionKind::Bool => "true or false".to_owned(),
            OptionKind::Ratio => format!("{} to {}", self.min, self.max),
            OptionKind::Text => "none, lz4 or zstd".to_owned(),
            OptionKind::Path => "a path, or none".to_owned(),
            OptionKind::Keys => "all, a range of keys, or none".to_owned(),
        }
    }
}

impl Options {
    /// These options, with the defaults of the kind of store for the values that were not given.
    pub(crate) fn on(mut self, store: &dyn Store) -> Options {
        let profile = store.profile();
        self.compaction.own_space_amplification = profile.space_amplification;
        let codec = if profile.compresses_blocks { Codec::Lz4 } else { Codec::None };
        self.compression = self.compression.or(Some(codec));
        self
    }

    /// Every option.
    pub const TABLE: &'static [OptionInfo] = table::TABLE;

    /// Every group of options.
    pub const GROUPS: &'static [&'static str] =
        &["compactors", "gc", "readers", "windows", "writes"];

    /// Every option, including those of groups: first the table's, then those of compaction.
    pub fn all() -> impl Iterator<Item = OptionInfo> {
        let compaction = CompactionOptions::TABLE.iter().map(|line| line.name);
        Options::TABLE.iter().copied().chain(compaction.filter_map(of_compaction))
    }

    /// The line of the table for `name`.
    ///
    /// # Errors
    /// Invalid for unknown names.
    pub fn info(name: &str) -> Result<OptionInfo> {
        if let Some(info) = Options::TABLE.iter().find(|info| info.name == name) {
            return Ok(*info);
        }
        if let Some(info) = of_compaction(name) {
            return Ok(info);
        }
        if let Some(place) = table::place_of(name) {
            return Err(moved(name, place));
        }
        if name == "wal_url" {
            return Err(Error::invalid(
                "this is an option of the store: give it as a store option",
            )
            .with("option", name));
        }
        if Options::GROUPS.contains(&name) {
            return Err(Error::invalid(format!("{name} is a group of options: set those in it"))
                .with("option", name)
                .with("known options", known(name)));
        }
        let group = name.split_once('.').map_or("", |(group, _)| group);
        let error = Error::invalid("unknown option").with("option", name);
        let error = match nearest(name, Options::all().map(|info| info.name)) {
            Some(near) => error.with("nearest", near),
            None => error,
        };
        Err(error.with("known options", known(group)))
    }

    /// Sets one option by name.
    ///
    /// # Errors
    /// Invalid for an unknown name, a wrong type, or a value out of range (the text names the
    /// option and the range).
    pub fn set(&mut self, name: &str, value: OptionValue) -> Result<()> {
        let info = Options::info(name)?;
        if info.line.is_some() {
            return self.compaction.set(name, &to_compaction(&info, value)?);
        }
        let value = in_units(&info, value);
        let number = check(&info, &value)?;
        let duration = || Duration::from_secs_f64(number);
        match name {
            "flush_interval" => self.flush_interval = duration(),
            "flush_bytes" => self.flush_bytes = number as usize,
            "max_parallel_writes" => self.max_parallel_writes = number as u64,
            "max_wal_puts_per_second" => {
                self.max_wal_puts_per_second = (value != OptionValue::Nothing).then_some(number);
            }
            "l0_sst_size_bytes" => self.l0_sst_size_bytes = number as usize,
            "l0_manifest_commit_interval" => self.l0_manifest_commit_interval = duration(),
            "max_memtable_bytes" => self.max_memtable_bytes = number as usize,
            "manifest_poll_interval" => {
                self.manifest_poll_interval = (value != OptionValue::Nothing).then(duration);
            }
            "reader_lease" => self.reader_lease = number != 0.0,
            "readers.checkpoint_lifetime" => self.readers.checkpoint_lifetime = duration(),
            "readers.max_staleness" => {
                self.readers.max_staleness = (value != OptionValue::Nothing).then(duration);
            }
            "readers.follow_restores" => self.readers.follow_restores = number != 0.0,
            "max_batch_bytes" => self.max_batch_bytes = number as usize,
            "writes.wal_enabled" => self.writes.wal_enabled = number != 0.0,
            "writes.skip_memtable_bytes" => {
                self.writes.skip_memtable_bytes =
                    (value != OptionValue::Nothing).then_some(number as usize);
            }
            "writes.ingest_poll_interval" => {
                self.writes.ingest_poll_interval = (value != OptionValue::Nothing).then(duration);
            }
            "writes.transaction_window_bytes" => {
                self.writes.transaction_window_bytes = number as usize;
            }
            "block_bytes" => self.block_bytes = number as usize,
            "compression" => self.compression = codec(&value)?,
            "filter_bits_per_key" => self.filter_bits_per_key = number as u32,
            "block_cache_bytes" => self.block_cache_bytes = number as usize,
            "metadata_cache_bytes" => self.metadata_cache_bytes = number as usize,
            "embedded_compactor" => self.embedded_compactor = number != 0.0,
            "embedded_gc" => self.embedded_gc = number != 0.0,
            "gc.interval" => self.gc.interval = duration(),
            "gc.min_age" => self.gc.min_age = duration(),
            "gc.db_delete_grace" => self.gc.db_delete_grace = duration(),
            "gc.max_garbage_bytes" => {
                let given = value != OptionValue::Nothing;
                self.gc.max_garbage_bytes = given.then_some(number as u64);
            }
            "compactors.poll_interval" => self.compactors.poll_interval = duration(),
            "compactors.worker_timeout" => self.compactors.worker_timeout = duration(),
            "read_durable_only" => self.read_durable_only = number != 0.0,
            "deadline" => self.deadline = duration(),
            _ => self.disk_cache.set(name, value),
        }
        Ok(())
    }

    /// The value of one option by name; `None` for an unknown name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<OptionValue> {
        let seconds = |duration: Duration| OptionValue::Seconds(duration.as_secs_f64());
        let int = |number: usize| OptionValue::Int(number as u64);
        Some(match name {
            "flush_interval" => seconds(self.flush_interval),
            "flush_bytes" => int(self.flush_bytes),
            "max_parallel_writes" => OptionValue::Int(self.max_parallel_writes),
            "max_wal_puts_per_second" => match self.max_wal_puts_per_second {
                Some(rate) => OptionValue::Seconds(rate),
                None => OptionValue::Nothing,
            },
            "l0_sst_size_bytes" => int(self.l0_sst_size_bytes),
            "l0_manifest_commit_interval" => seconds(self.l0_manifest_commit_interval),
            "max_memtable_bytes" => int(self.max_memtable_bytes),
            "manifest_poll_interval" => {
                self.manifest_poll_interval.map_or(OptionValue::Nothing, seconds)
            }
            "reader_lease" => OptionValue::Bool(self.reader_lease),
            "readers.checkpoint_lifetime" => seconds(self.readers.checkpoint_lifetime),
            "readers.max_staleness" => {
                self.readers.max_staleness.map_or(OptionValue::Nothing, seconds)
            }
            "readers.follow_restores" => OptionValue::Bool(self.readers.follow_restores),
            "compactors.poll_interval" => seconds(self.compactors.poll_interval),
            "compactors.worker_timeout" => seconds(self.compactors.worker_timeout),
            "max_batch_bytes" => int(self.max_batch_bytes),
            "writes.wal_enabled" => OptionValue::Bool(self.writes.wal_enabled),
            "writes.skip_memtable_bytes" => {
                self.writes.skip_memtable_bytes.map_or(OptionValue::Nothing, int)
            }
            "writes.ingest_poll_interval" => {
                self.writes.ingest_poll_interval.map_or(OptionValue::Nothing, seconds)
            }
            "writes.transaction_window_bytes" => int(self.writes.transaction_window_bytes),
            "block_bytes" => int(self.block_bytes),
            "compression" => self
                .compression
                .map_or(OptionValue::Nothing, |codec| OptionValue::Text(codec.as_str().to_owned())),
            "filter_bits_per_key" => OptionValue::Int(u64::from(self.filter_bits_per_key)),
            "block_cache_bytes" => int(self.block_cache_bytes),
            "metadata_cache_bytes" => int(self.metadata_cache_bytes),
            "read_durable_only" => OptionValue::Bool(self.read_durable_only),
            "embedded_compactor" => OptionValue::Bool(self.embedded_compactor),
            "embedded_gc" => OptionValue::Bool(self.embedded_gc),
            "gc.interval" => seconds(self.gc.interval),
            "gc.min_age" => seconds(self.gc.min_age),
            "gc.db_delete_grace" => seconds(self.gc.db_delete_grace),
            "gc.max_garbage_bytes" => {
                self.gc.max_garbage_bytes.map_or(OptionValue::Nothing, OptionValue::Int)
            }
            "deadline" => seconds(self.deadline),
            "disk_cache_bytes" | "disk_cache_mirror" | "disk_cache_path" => {
                self.disk_cache.get(name)
            }
            _ => {
                of_compaction(name)?;
                return self.compaction.get(name).ok().map(from_compaction);
            }
        })
    }

    /// Checks every option against its range and the options against each other.
    ///
    /// # Errors
    /// Invalid, naming the option and its range.
    pub fn validate(&self) -> Result<()> {
        for info in Options::TABLE {
            if let Some(value) = self.get(info.name) {
                check(info, &value)?;
            }
        }
        if self.max_memtable_bytes < self.l0_sst_size_bytes {
            return Err(Error::invalid(
                "max_memtable_bytes must be at least l0_sst_size_bytes, or writes would wait for \
                 a flush that never starts",
            )
            .with("max_memtable_bytes", self.max_memtable_bytes)
            .with("l0_sst_size_bytes", self.l0_sst_size_bytes));
        }
        let pause = self.max_wal_puts_per_second.map(|rate| 1.0 / rate);
        if pause.is_some_and(|pause| pause >= self.deadline.as_secs_f64()) {
            return Err(Error::invalid(
                "max_wal_puts_per_second must allow more than one PUT per deadline, or calls that \
                 wait for durability would time out; raise it, or raise deadline",
            )
            .with("max_wal_puts_per_second", self.max_wal_puts_per_second.unwrap_or_default())
            .with("deadline", format_args!("{:?}", self.deadline)));
        }
        self.disk_cache.check()?;
        self.compaction.check()
    }

    /// How often a reader, or a writer under load, looks for a newer manifest. If the interval was
    /// not set, a reader polls less often after a minute without a change.
    #[must_use]
    pub fn poll_interval(&self) -> Duration {
        self.manifest_poll_interval.unwrap_or(Duration::from_secs(1))
    }

    /// The lives of readers' leases (rule L5, RFC 0048). A since-lease keeps every table that is
    /// replaced during its life, so its life is short: at least four polls, within the bounds of 20
    /// and 60 seconds.
    pub(crate) fn lease_lifetimes(&self) -> Lifetimes {
        let point = self.readers.checkpoint_lifetime;
        let since = (self.poll_interval() * 4).clamp(SHORTEST_SINCE, LONGEST_SINCE).min(point);
        Lifetimes { since: Some(since), point }
    }

    /// As [`Options::validate`], and checks the conditions for a reader that leases what it reads.
    pub(crate) fn validate_reader(&self, own_checkpoint: bool) -> Result<()> {
        self.validate()?;
        let lifetime = self.readers.checkpoint_lifetime;
        if own_checkpoint && lifetime <= self.poll_interval() * 2 {
            return Err(Error::invalid(
                "readers.checkpoint_lifetime must be more than twice manifest_poll_interval, or \
                 the reader's lease could run out between two polls; make it longer, or poll more \
                 often",
            )
            .with("readers.checkpoint_lifetime", format_args!("{lifetime:?}"))
            .with("manifest_poll_interval", format_args!("{:?}", self.poll_interval())));
        }
        Ok(())
    }

    /// The environment of a handle with these options, whose requests are counted already: with
    /// the disk cache.
    ///
    /// # Errors
    /// Unsupported for a database that the disk cache must not store.
    pub(crate) fn caching(&self, env: Env) -> Result<Env> {
        match self.disk_cache.folder() {
            Some((folder, bytes)) => cached(env, folder, bytes),
            None => Ok(env),
        }
    }

    /// The keys to mirror, if the environment of the handle has a disk cache.
    pub(crate) fn mirrored(&self, env: &Env) -> Option<MirroredKeys> {
        env.store.observed().disk_cache?;
        self.disk_cache.mirror.clone()
    }

    /// The codec of the blocks of new tables.
    pub(crate) fn codec(&self) -> Codec {
        self.compression.unwrap_or(Codec::None)
    }

    pub(crate) fn table_options(&self) -> TableOptions {
        TableOptions {
            block_bytes: self.block_bytes,
            codec: self.codec(),
            filter_bits_per_key: self.filter_bits_per_key,
        }
    }
}

/// The names of the options of a group, or of all options if there is no such group.
fn known(group: &str) -> String {
    let mut names: Vec<_> = Options::all().map(|info| info.name).collect();
    if Options::GROUPS.contains(&group) {
        names.retain(|name| name.split_once('.').is_some_and(|(own, _)| own == group));
    }
    names.join(", ")
}

fn codec(value: &OptionValue) -> Result<Option<Codec>> {
    match value {
        OptionValue::Nothing => return Ok(None),
        OptionValue::Text(name) => Codec::parse(name),
        _ => None,
    }
    .map(Some)
    .ok_or_else(|| Error::invalid("compression must be none, lz4 or zstd"))
}

/// The value as a number within the range; 0 for a name.
fn check(info: &OptionInfo, value: &OptionValue) -> Result<f64> {
    let wrong = |what: &str| {
        Err(Error::invalid(what)
            .with("option", info.name)
            .with("given", value)
            .with("range", info.range()))
    };
    let number = match (info.kind, value) {
        (_, OptionValue::Nothing) if info.may_be_none() => return Ok(0.0),
        (OptionKind::Text, _) => return codec(value).map(|_| 0.0),
        (OptionKind::Path, OptionValue::Text(path)) if !path.is_empty() => return Ok(0.0),
        (OptionKind::Keys, OptionValue::Text(span)) => {
            let read = span.parse::<MirroredKeys>();
            return read.map(|_| 0.0).map_err(|error| error.with("option", info.name));
        }
        (OptionKind::Bool, OptionValue::Bool(on)) => f64::from(u8::from(*on)),
        (
            OptionKind::Duration | OptionKind::Rate | OptionKind::Ratio,
            OptionValue::Seconds(seconds),
        ) => *seconds,
        (
            OptionKind::Duration
            | OptionKind::Rate
            | OptionKind::Ratio
            | OptionKind::Bytes
            | OptionKind::Count,
            OptionValue::Int(n),
        ) => *n as f64,
        (_, OptionValue::Text(_)) => match forms(info.kind) {
            Some(forms) => return wrong(&format!("the option takes {forms}")),
            None => return wrong("an option has a value of the wrong type"),
        },
        _ => return wrong("an option has a value of the wrong type"),
    };
    // A NaN is outside every range.
    if !(number >= info.min && number <= info.max) {
        return wrong("an option is out of range");
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_reads_back_what_it_was_set_to() {
        let mut options = Options::default();
        for info in Options::all() {
            // A number of key bytes has no default: 0 means that none was given.
            if info.name == "windows.prefix_bytes" {
                continue;
            }
            let value = options.get(info.name).unwrap();
            options.set(info.name, value.clone()).unwrap();
            assert_eq!(options.get(info.name), Some(value), "{}", info.name);
        }
        assert_eq!(options, Options::default());
        options.validate().unwrap();
    }

    /// This applies to every table of options.
    #[test]
    fn every_number_may_have_its_unit() {
        let mut options = Options::default();
        let cases = [
            ("l0_sst_size_bytes", "1MiB", OptionValue::Int(1 << 20)),
            ("target_sst_bytes", "1MiB", OptionValue::Int(1 << 20)),
            ("max_memtable_bytes", "1.5 GiB", OptionValue::Int(3 << 29)),
            ("block_bytes", "4096B", OptionValue::Int(4096)),
            ("flush_bytes", "4096", OptionValue::Int(4096)),
            ("max_parallel_writes", "3", OptionValue::Int(3)),
            ("flush_interval", "20ms", OptionValue::Seconds(0.02)),
            ("windows.length", "12h", OptionValue::Seconds(43_200.0)),
            ("gc.max_garbage_bytes", "1GiB", OptionValue::Int(1 << 30)),
            ("disk_cache_bytes", "1GiB", OptionValue::Int(1 << 30)),
        ];
        for (name, text, value) in cases {
            options.set(name, OptionValue::Text(text.into())).unwrap();
            assert_eq!(options.get(name), Some(value), "{name} = {text}");
        }
    }

    #[test]
    fn wrong_options_name_themselves_and_the_range() {
        let mut options = Options::default();
        let cases = [
            ("flush_interval", OptionValue::Seconds(-1.0)),
            ("flush_interval", OptionValue::Seconds(f64::NAN)),
            ("max_parallel_writes", OptionValue::Int(0)),
            ("max_parallel_writes", OptionValue::Bool(true)),
            ("flush_bytes", OptionValue::Text("1MB".into())),
            ("flush_bytes", OptionValue::Text("1.5B".into())),
            ("flush_bytes", OptionValue::Text("2GiB".into())),
            ("max_parallel_writes", OptionValue::Text("1KiB".into())),
            ("embedded_gc", OptionValue::Text("1".into())),
            ("gc.interval", OptionValue::Int(0)),
            ("gc.max_garbage_bytes", OptionValue::Bool(true)),
        ];
        for (name, value) in cases {
            let text = options.set(name, value).unwrap_err().to_string();
            assert!(text.contains(name) && text.contains("range"), "{text}");
        }
        let cases = [
            ("target_sst_bytes", OptionValue::Int(1), "65536 to 68719476736 bytes"),
            ("level_max_runs", OptionValue::Bool(true), "3 to 2000"),
            ("compaction_scheduler", OptionValue::Text("leveled".into()), "tiered, lazy_leveled"),
            ("windows.by", OptionValue::Int(1), "key or expiry"),
            ("windows.keep", OptionValue::Int(0), "1 to 1000000000, or none"),
        ];
        for (name, value, range) in cases {
            let text = options.set(name, value).unwrap_err().to_string();
            assert!(text.contains(name) && text.contains(range), "{text}");
        }
        let unknown = options.set("flush_intervall", OptionValue::Int(1)).unwrap_err();
        assert!(unknown.to_string().contains("flush_intervall"));
        let unknown = options.set("windows.size", OptionValue::Int(1)).unwrap_err().to_string();
        assert!(
            unknown.contains("windows.length") && !unknown.contains("flush_bytes"),
            "{unknown}"
        );
        let moved = options.set("wal_enabled", OptionValue::Bool(false)).unwrap_err().to_string();
        assert!(moved.contains("writes.wal_enabled"), "{moved}");
        let stores = options.set("wal_url", OptionValue::Text("memory://w".into())).unwrap_err();
        assert!(stores.to_string().contains("store option"), "{stores}");
    }

    #[test]
    fn errors_name_the_units_and_the_nearest_name() {
        let mut options = Options::default();
        let mut refused = |name: &str, text: &str| {
            options.set(name, OptionValue::Text(text.to_owned())).unwrap_err().to_string()
        };
        for name in ["block_cache_bytes", "target_sst_bytes"] {
            let error = refused(name, "64MB");
            assert!(error.contains("MiB") && error.contains("64MB"), "{error}");
        }
        for name in ["flush_interval", "windows.length"] {
            let error = refused(name, "2 moments");
            assert!(error.contains("seconds, or numbers with ms"), "{error}");
        }
        let error = refused("flush_intervall", "1s");
        assert!(error.contains("nearest: flush_interval,"), "{error}");
        assert!(!refused("x", "1").contains("nearest"));
        options.set("gc.min_age", OptionValue::Text("1week 1 day".to_owned())).unwrap();
        assert_eq!(options.gc.min_age, Duration::from_secs(8 * 86_400));
    }

    #[test]
    fn a_disk_cache_has_a_folder() {
        let text = |text: &str| OptionValue::Text(text.to_owned());
        let mut options = Options::default();
        assert_eq!(options.disk_cache.folder(), None);
        options.set("disk_cache_bytes", text("8MiB")).unwrap();
        let error = options.validate().unwrap_err().to_string();
        assert!(error.contains("disk_cache_path"), "{error}");
        options.set("disk_cache_path", text("/x y")).unwrap();
        options.validate().unwrap();
        let folder = std::path::Path::new("/x y");
        assert_eq!(options.disk_cache.folder(), Some((folder, 8 << 20)));
        assert_eq!(options.get("disk_cache_path"), Some(text("/x y")));
        options.set("disk_cache_bytes", OptionValue::Nothing).unwrap();
        assert_eq!(options.disk_cache.folder(), Some((folder, disk_cache::DEFAULT_BYTES)));
        options.set("disk_cache_path", OptionValue::Nothing).unwrap();
        assert_eq!(options.disk_cache.folder(), None);
        for (name, value) in [
            ("disk_cache_path", text("")),
            ("disk_cache_path", OptionValue::Int(1)),
            ("disk_cache_bytes", text("1MiB")),
            ("disk_cache_bytes", OptionValue::Bool(true)),
        ] {
            let error = options.set(name, value).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("range"), "{error}");
        }
    }

    /// The number of options that a user reads to find one. A group counts as one.
    #[test]
    fn there_are_few_options_at_the_top() {
        let names = Options::all().map(|info| info.name.split('.').next());
        let top: std::collections::BTreeSet<_> = names.collect();
        assert!(top.len() <= 41, "{}: {top:?}", top.len());
        let groups = Options::all().filter_map(|info| Some(info.name.split_once('.')?.0));
        assert_eq!(groups.collect::<std::collections::BTreeSet<_>>().len(), Options::GROUPS.len());
    }

    #[test]
    fn an_option_that_moved_is_refused_with_its_place() {
        let mut options = Options::default();
        for (name, place) in [
            ("gc_interval", "gc.interval"),
            ("min_age", "gc.min_age"),
            ("max_garbage_bytes", "gc.max_garbage_bytes"),
            ("compactor_poll_interval", "compactors.poll_interval"),
            ("worker_timeout", "compactors.worker_timeout"),
            ("checkpoint_lifetime", "readers.checkpoint_lifetime"),
            ("transaction_window_bytes", "writes.transaction_window_bytes"),
            ("window", "windows.length"),
            ("keep_windows", "windows.keep"),
        ] {
            let error = options.set(name, OptionValue::Int(1)).unwrap_err();
            assert_eq!(error.kind(), siltstone_base::ErrorKind::Invalid);
            assert!(error.to_string().contains(&format!("it is {place} now")), "{error}");
            assert!(Options::info(place).is_ok() && options.get(name).is_none());
        }
        let group = options.set("windows", OptionValue::Int(1)).unwrap_err().to_string();
        assert!(group.contains("group") && group.contains("windows.by"), "{group}");
    }
}
