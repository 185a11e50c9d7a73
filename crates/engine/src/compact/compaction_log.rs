//! The log of compactions: totals, the last entries, and a line for each (RFC 0022). Every process
//! that compacts writes the same.

use parking_lot::Mutex;
use siltstone_base::{Epoch, Error, ErrorKind, SstDescriptor, UnixMillis};
use siltstone_manifest::compaction::{Layer, PlanReason};
use siltstone_store::env::Clock;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Log target of lines about compactions.
pub(super) const TARGET: &str = "siltstone.compaction";
/// Number of entries that are kept.
const KEPT: usize = 64;

/// One compaction that has ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CompactionEntry {
    /// When it ended.
    pub ended_at: UnixMillis,
    /// Layers and destination in the notation of plans: `L0:4, L0:3, 7 -> 7`.
    pub plan: String,
    /// Why it was started.
    pub why: &'static str,
    /// Number of merged tables.
    pub tables_in: u64,
    /// Rows of the merged tables, including older versions and tombstones.
    pub rows_in: u64,
    /// Bytes of the merged tables.
    pub bytes_in: u64,
    /// Number of written tables.
    pub tables_out: u64,
    /// Rows of the written tables.
    pub rows_out: u64,
    /// Bytes of the written tables.
    pub bytes_out: u64,
    /// Number of tables that were moved to the destination unchanged.
    pub moved: u64,
    /// Number of tables that were dropped without being read.
    pub dropped: u64,
    /// Duration.
    pub took: Duration,
    /// Why it failed; `None` after success.
    pub error: Option<String>,
}

impl CompactionEntry {
    /// An entry for a compaction of `layers` into the run `destination`.
    pub(crate) fn of(
        layers: impl Iterator<Item = Layer>,
        destination: u32,
        why: PlanReason,
    ) -> CompactionEntry {
        let mut plan = String::new();
        for layer in layers {
            let comma = if plan.is_empty() { "" } else { ", " };
            plan += &match layer {
                Layer::Run(id) => format!("{comma}{id}"),
                Layer::L0(order) => format!("{comma}L0:{order}"),
            };
        }
        plan += &format!(" -> {destination}");
        CompactionEntry { plan, why: why.name(), ..CompactionEntry::default() }
    }

    /// Adds tables that are read.
    pub(crate) fn reading<'a>(mut self, tables: impl Iterator<Item = &'a SstDescriptor>) -> Self {
        for table in tables {
            self.tables_in += 1;
            self.rows_in += table.entries;
            self.bytes_in += table.object_bytes;
        }
        self
    }

    /// Adds tables that were written.
    pub(crate) fn writing<'a>(mut self, tables: impl Iterator<Item = &'a SstDescriptor>) -> Self {
        for table in tables {
            self.tables_out += 1;
            self.rows_out += table.entries;
            self.bytes_out += table.object_bytes;
        }
        self
    }

    /// Input bytes per second; 0 if nothing was read.
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        let seconds = self.took.as_secs_f64();
        if seconds > 0.0 { self.bytes_in as f64 / seconds } else { 0.0 }
    }
}

impl fmt::Display for CompactionEntry {
    /// The log line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let megabytes = |bytes: f64| bytes / 1e6;
        let plural = |count| if count == 1 { "table" } else { "tables" };
        let seconds = self.took.as_secs_f64();
        if let Some(error) = &self.error {
            let (plan, why) = (&self.plan, self.why);
            return write!(f, "compaction of {plan} ({why}) failed after {seconds:.2} s: {error}");
        }
        write!(
            f,
            "compacted {} ({}): {} {}, {} rows, {:.1} MB in; {} {}, {} rows, {:.1} MB out; \
             {} moved, {} dropped; {seconds:.2} s, {:.1} MB/s",
            self.plan,
            self.why,
            self.tables_in,
            plural(self.tables_in),
            self.rows_in,
            megabytes(self.bytes_in as f64),
            self.tables_out,
            plural(self.tables_out),
            self.rows_out,
            megabytes(self.bytes_out as f64),
            self.moved,
            self.dropped,
            megabytes(self.bytes_per_second()),
        )
    }
}

/// Totals since the process began to compact.
#[derive(Clone, Debug, Default)]
pub(crate) struct CompactionTotals {
    pub(crate) running: u64,
    pub(crate) ended: u64,
    pub(crate) failed: u64,
    /// How often the epoch was taken back from a stalled compactor.
    pub(crate) takeovers: u64,
    pub(crate) moved: u64,
    pub(crate) dropped: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) rows_in: u64,
    pub(crate) rows_out: u64,
    pub(crate) seconds: f64,
}

/// The state of compaction.
#[derive(Clone, Debug, Default)]
pub(crate) enum Health {
    /// The last run succeeded, or there was none.
    #[default]
    Healthy,
    /// The last run failed and will be retried.
    Fails(Error),
    /// Another compactor has taken over. This one waits until the other releases the epoch or is
    /// stalled for long.
    Fenced(Error),
}

#[derive(Default)]
struct Kept {
    totals: CompactionTotals,
    entries: VecDeque<CompactionEntry>,
    health: Health,
}

/// The log of the compactor of one process.
#[derive(Default)]
pub(crate) struct CompactionLog {
    kept: Mutex<Kept>,
}

impl CompactionLog {
    /// Begins an entry. If the result is dropped without [`RunningCompaction::end`], the log gets
    /// no entry.
    pub(crate) fn begin(
        &self,
        clock: &Arc<dyn Clock>,
        entry: CompactionEntry,
    ) -> RunningCompaction<'_> {
        self.kept.lock().totals.running += 1;
        RunningCompaction { log: self, clock: Arc::clone(clock), since: clock.monotonic(), entry }
    }

    /// Records the result of a run of the compactor.
    pub(crate) fn ran<T>(&self, ran: &Result<T, Error>) {
        let health = match ran {
            Ok(_) => Health::Healthy,
            Err(error) if error.kind() == ErrorKind::Closed => return,
            Err(error) if error.kind() == ErrorKind::Fenced => Health::Fenced(error.clone()),
            // A plan of the caller that does not apply says nothing about the compactor.
            Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Invalid) => {
                return;
            }
            Err(error) => Health::Fails(error.clone()),
        };
        match &health {
            Health::Healthy => {}
            Health::Fails(error) => log::warn!(target: TARGET, "compaction failed: {error}"),
            Health::Fenced(error) => {
                log::warn!(target: TARGET, "this process has stopped compacting: {error}");
            }
        }
        let mut kept = self.kept.lock();
        kept.totals.failed += u64::from(matches!(health, Health::Fails(_)));
        kept.health = health;
    }

    /// Records that the epoch was taken back from the compactor of `epoch`, which was stalled.
    pub(crate) fn took_over(&self, epoch: Epoch, stalled: Duration) {
        let seconds = stalled.as_secs_f64();
        log::warn!(
            target: TARGET,
            "this process compacts again: the compactor of epoch {epoch} was stalled for \
             {seconds:.1} s while writes waited"
        );
        let mut kept = self.kept.lock();
        kept.totals.takeovers += 1;
        kept.health = Health::Healthy;
    }

    pub(crate) fn health(&self) -> Health {
        self.kept.lock().health.clone()
    }

    pub(crate) fn totals(&self) -> CompactionTotals {
        self.kept.lock().totals.clone()
    }

    /// The last entries, oldest first.
    pub(crate) fn entries(&self) -> Vec<CompactionEntry> {
        self.kept.lock().entries.iter().cloned().collect()
    }
}

/// A compaction in progress.
pub(crate) struct RunningCompaction<'l> {
    log: &'l CompactionLog,
    clock: Arc<dyn Clock>,
    since: Duration,
    /// Its entry so far.
    pub(crate) entry: CompactionEntry,
}

impl RunningCompaction<'_> {
    /// The same, with an earlier beginning.
    pub(crate) fn since(mut self, since: Duration) -> Self {
        self.since = since;
        self
    }

    /// Ends the compaction. Returns its entry, unless only the end of the handle ended it.
    pub(crate) fn end<T>(mut self, ended: &Result<T, Error>) -> Option<CompactionEntry> {
        let mut entry = std::mem::take(&mut self.entry);
        entry.took = self.clock.monotonic().saturating_sub(self.since);
        entry.ended_at = self.clock.now();
        match ended {
            Ok(_) => log::info!(target: TARGET, "{entry}"),
            Err(error) if error.kind() == ErrorKind::Closed => return None,
            Err(error) => {
                entry.error = Some(error.to_string());
                log::warn!(target: TARGET, "{entry}");
            }
        }
        let mut kept = self.log.kept.lock();
        let totals = &mut kept.totals;
        if entry.error.is_none() {
            totals.ended += 1;
            totals.moved += entry.moved;
            totals.dropped += entry.dropped;
            totals.bytes_in += entry.bytes_in;
            totals.bytes_out += entry.bytes_out;
            totals.rows_in += entry.rows_in;
            totals.rows_out += entry.rows_out;
        }
        totals.seconds += entry.took.as_secs_f64();
        kept.entries.push_back(entry.clone());
        let over = kept.entries.len().saturating_sub(KEPT);
        kept.entries.drain(..over);
        drop(kept);
        Some(entry)
    }
}

impl Drop for RunningCompaction<'_> {
    fn drop(&mut self) {
        self.log.kept.lock().totals.running -= 1;
    }
}
