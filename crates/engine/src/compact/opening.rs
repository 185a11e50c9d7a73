//! Opens the rest of a range: cursors over its inputs, from where the last worker stopped.

use super::host::Host;
use super::merging::{Merging, TableEnds};
use crate::cache::metadata::MetadataBudget;
use crate::readahead::inputs::{Inputs, PrefetchBytes};
use siltstone_base::entry::key_after;
use siltstone_base::prefix::shared_prefix;
use siltstone_base::{Error, Result, Seq, SstDescriptor};
use siltstone_manifest::compaction::{Job, JobRange};
use siltstone_merge::{Direction, Merge, Retain, Retention, RunCursor, TableBounds};
use siltstone_sst::Table;
use std::ops::RangeInclusive;

/// Memory for the inputs of a range from a remote store. Each input has three waves: one in use,
/// one read, and one on its way.
const READ_AHEAD_BYTES: u64 = 48 << 20;
/// Bytes that one input reads at a time from a remote store. At the lower bound a stream of 50
/// MiB/s takes longer than a request; at the upper bound it takes many times longer.
const WAVE_BYTES: RangeInclusive<u64> = 512 << 10..=4 << 20;
/// Opens the merge over the rest of the range. Reads metadata of the inputs without adding it to
/// the caches, but uses what they have.
///
/// # Errors
/// Errors of the store; Corruption.
pub(super) async fn open(
    host: &dyn Host,
    job: &Job,
    range: &JobRange,
    layers: &[Vec<SstDescriptor>],
) -> Result<(Inputs, Merging)> {
    let (known, context) = (host.known_tables(), host.context());
    let budget = MetadataBudget::new(usize::MAX);
    let start = match range.resume_after() {
        Some(last) => key_after(last),
        None => range.keys.start.to_vec(),
    };
    let end = range.keys.end.as_deref();
    let wave = READ_AHEAD_BYTES / 3 / layers.len().max(1) as u64;
    let wave = wave.clamp(*WAVE_BYTES.start(), *WAVE_BYTES.end());
    let memory = &host.compactor().memory;
    let ahead = PrefetchBytes { first_bytes: wave, most_bytes: wave };
    let mut inputs = Inputs::reading_into(memory.waves.clone(), ahead);
    let mut runs = Vec::with_capacity(layers.len());
    let mut range_deletes = Vec::new();
    let mut share = Share::default();
    for layer in layers {
        let mut tables = Vec::new();
        for descriptor in layer.iter().filter(|table| table.overlaps(Some(&start), end)) {
            let table = context.table_once(&known.handle(descriptor, &budget)).await?;
            let (start, end) = descriptor.in_sight(Some(&start), end);
            let start = start.unwrap_or_default();
            range_deletes.extend_from_slice(table.range_deletes().list());
            let last = end.and_then(|end| table.table.find_block(end, Seq::MAX));
            let after = last.and_then(|last| last.checked_add(1));
            share.add(&table.table, start, after);
            let cursor = inputs.add_table(&table.table, context, after);
            let cursor = cursor.ok_or_else(|| Error::internal("a job has an input twice"))?;
            tables.push((TableBounds::from(descriptor), cursor));
        }
        runs.push(RunCursor::new(tables));
    }
    let merge = Merge::new(runs, Direction::Forward).sharing(shared_by_all(layers));
    let retention = Retention {
        snapshot_bounds: job.parameters.snapshots.clone().unwrap_or_default(),
        // Every version above it is kept.
        floor: job.parameters.snapshots.is_none().then_some(job.parameters.floor),
        bottom: range.keys.bottom,
        now: job.parameters.now,
        operator: context.operator().cloned(),
        range_deletes,
        zero_seqs: job.parameters.zero_seqs,
    };
    let end = end.map(<[u8]>::to_vec);
    let rows = Retain::in_range(merge, retention, Some(start), end);
    let ends = TableEnds {
        target_bytes: job.parameters.target_sst_bytes,
        cut_prefix_bytes: usize::from(job.parameters.cut_prefix_bytes),
        chunk_bytes: host.env().store.profile().chunk_bytes,
        entries_a_table: share.entries_in(job.parameters.target_sst_bytes),
    };
    Ok((inputs, Merging::new(rows, ends, memory.chunks.clone())))
}

/// Number of leading bytes that the keys of all tables share: those of the smallest and the largest
/// key.
fn shared_by_all(layers: &[Vec<SstDescriptor>]) -> usize {
    let tables = || layers.iter().flatten();
    let first = tables().map(|table| table.first_visible()).min();
    let last = tables().map(|table| table.last_visible()).max();
    first.zip(last).map_or(0, |(first, last)| shared_prefix(first, last))
}

/// Estimate of the share of its inputs that lies in a range.
#[derive(Default)]
struct Share {
    entries: u64,
    bytes: u64,
}

impl Share {
    /// Adds a table's blocks from the block of `start` up to block `after`, exclusive.
    fn add(&mut self, table: &Table, start: &[u8], after: Option<u32>) {
        let blocks = u64::from(table.block_count());
        let first = table.find_block(start, Seq::MAX).map_or(blocks, u64::from);
        let within = after.map_or(blocks, u64::from).saturating_sub(first);
        let descriptor = table.descriptor();
        self.entries += part(descriptor.entries, within, blocks);
        self.bytes += part(descriptor.tail_offset, within, blocks);
    }

    /// Estimated entries of a table of `bytes` bytes, or of the last table, if no entry is dropped.
    fn entries_in(&self, bytes: u64) -> usize {
        let full = part(self.entries, bytes, self.bytes);
        usize::try_from(full.min(self.entries)).unwrap_or(usize::MAX)
    }
}

/// `all` multiplied by `some / whole`.
fn part(all: u64, some: u64, whole: u64) -> u64 {
    let part = u128::from(all) * u128::from(some) / u128::from(whole.max(1));
    u64::try_from(part).unwrap_or(u64::MAX)
}
