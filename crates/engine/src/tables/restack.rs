//! Merges overlapping layers of a job before the job is closed.
//!
//! Each layer of a job becomes a layer of L0, which every look-up reads, and which counts against
//! the limit at which puts wait. Before it closes a job with many parts over the same keys, the
//! caller therefore merges them: the ingest takes longer, and no put waits.

use super::spare::SpareBuffers;
use super::staged::{OpenPart, SLICE_BYTES};
use super::view::context;
use crate::cache::metadata::{MetadataBudget, TableHandle};
use crate::options::Options;
use crate::readahead::inputs::{Inputs, PrefetchBytes, RunInputs};
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use siltstone_base::{Cursor, DatabaseId, Entry, Error, JobId, Result, Seq, SstDescriptor, Step};
use siltstone_manifest::ingest::stacked;
use siltstone_merge::{Direction, Merge, RunCursor, TableBounds};
use siltstone_store::env::Env;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Maximum number of layers of a closed job, in addition to that of its replaced range. It is half
/// of the layers at which a database with default options begins to compact, so a job alone never
/// delays puts.
const MOST_LAYERS: usize = 4;
/// A table is complete at this many bytes of rows, the default size of parts.
const TABLE_BYTES: u64 = 64 << 20;
/// Maximum number of layers that one merge reads. More are merged in rounds before; one round is
/// enough for up to 65,536.
const MOST_MERGED: usize = 256;
/// Number of tables at which a merge ends a range of keys: it opens the tables of one range at a
/// time. Above [`MOST_MERGED`], or each table could end a range.
const MOST_OPEN: usize = 2 * MOST_MERGED;
/// Tables that are opened at the same time.
const OPENED_AT_ONCE: usize = 16;
/// Bytes read ahead of all layers together, three waves each.
const READ_AHEAD_BYTES: u64 = 48 << 20;
/// Bytes of one wave. Many layers are read in small waves, so that memory stays bounded.
const WAVE_BYTES: RangeInclusive<u64> = 64 << 10..=4 << 20;

/// Merges the layers, oldest first, into at most [`MOST_LAYERS`]. The entry of the newest layer
/// counts for equal keys. Tombstones are kept, because they delete rows of the database. The
/// smallest adjacent layers are merged, each byte once, or twice if there are more than
/// [`MOST_MERGED`]. Merged tables stay in the job's folder and are deleted with the job.
///
/// # Errors
/// Errors of the store; Corruption of a part.
pub(crate) async fn restack(
    env: &Env,
    of: (JobId, DatabaseId),
    layers: Vec<Vec<SstDescriptor>>,
    limit: Duration,
) -> Result<Vec<Vec<SstDescriptor>>> {
    if layers.len() <= MOST_LAYERS {
        return Ok(layers);
    }
    let mut layers = layers;
    while layers.len() > MOST_MERGED {
        let mut fewer = Vec::with_capacity(layers.len().div_ceil(MOST_MERGED));
        for stack in layers.chunks(MOST_MERGED) {
            fewer.push(merged(env, of, stack, limit).await?);
        }
        layers = fewer;
    }
    let mut made = Vec::new();
    for stack in stacked(&layers, MOST_LAYERS) {
        let several = stack.len() > 1;
        let stack = layers.get(stack).unwrap_or_default();
        made.push(if several { merged(env, of, stack, limit).await? } else { stack.concat() });
    }
    Ok(made)
}

/// Merges these layers into one.
async fn merged(
    env: &Env,
    of: (JobId, DatabaseId),
    layers: &[Vec<SstDescriptor>],
    limit: Duration,
) -> Result<Vec<SstDescriptor>> {
    let options = Options { deadline: limit, ..Options::default() };
    let spare = SpareBuffers::new(SLICE_BYTES);
    let (mut tables, mut open): (Vec<SstDescriptor>, Option<OpenPart>) = (Vec::new(), None);
    for range in ranges(layers, MOST_OPEN) {
        let mut rows = LayeredRows::open(env, &options, layers, range).await?;
        while let Some(entry) = rows.next().await? {
            if let Some(full) = open.take_if(|open| open.bytes >= TABLE_BYTES) {
                tables.push(full.finish(of.0).await?);
            }
            let part = match &mut open {
                Some(open) => open,
                None => open.insert(OpenPart::begin(env, of, &options, &spare).await?),
            };
            if let Some(chunk) = part.add(&entry)? {
                part.upload.write(chunk).await?;
                // Let other tasks run between two slices.
                env.clock.sleep(Duration::ZERO).await;
            }
        }
    }
    if let Some(rest) = open {
        tables.push(rest.finish(of.0).await?);
    }
    Ok(tables)
}

/// Keys that one merge reads.
#[derive(Debug)]
struct MergeRange {
    start: Bytes,
    /// The first key after the range; no end is unbounded.
    end: Option<Bytes>,
}

/// Ranges of keys that follow one another and cover all keys. Each meets at most `most` tables, and
/// those that begin with the same key.
fn ranges(layers: &[Vec<SstDescriptor>], most: usize) -> Vec<MergeRange> {
    let mut tables: Vec<&SstDescriptor> = layers.iter().flatten().collect();
    tables.sort_by_key(|table| table.first_visible());
    let (mut ranges, mut start) = (Vec::new(), Bytes::new());
    let mut open: Vec<&SstDescriptor> = Vec::new();
    for table in tables {
        let first = table.first_visible();
        if open.len() >= most && start < *first {
            open.retain(|one| !one.ends_below(first));
            let before = std::mem::replace(&mut start, first.clone());
            ranges.push(MergeRange { start: before, end: Some(first.clone()) });
        }
        open.push(table);
    }
    ranges.push(MergeRange { start, end: None });
    ranges
}

/// The entry of the newest layer for each key of a range of some layers.
struct LayeredRows {
    merge: Merge<RunCursor<RunInputs>>,
    inputs: Inputs,
    range: MergeRange,
    placed: bool,
    /// The last key that was returned. Entries of older layers for it are skipped.
    given: Vec<u8>,
}

impl LayeredRows {
    async fn open(
        env: &Env,
        options: &Options,
        layers: &[Vec<SstDescriptor>],
        range: MergeRange,
    ) -> Result<LayeredRows> {
        let context = context(env.clone(), options, 0);
        let budget = MetadataBudget::new(usize::MAX);
        // As in the database, all of a layer counts at its sequence number.
        let ranked = |rank, table: &SstDescriptor| {
            let table = SstDescriptor { seq_override: Some(Seq(rank)), ..table.clone() };
            TableHandle::new(table, &budget)
        };
        let handles: Vec<Vec<_>> = (1..)
            .zip(layers)
            .map(|(rank, layer)| {
                let met = layer
                    .iter()
                    .filter(|table| table.overlaps(Some(&range.start), range.end.as_deref()));
                met.map(|table| ranked(rank, table)).collect()
            })
            .collect();
        let mut opened = Vec::new();
        for handle in handles.iter().flatten() {
            opened.push(context.table_once(handle));
        }
        let opened = stream::iter(opened).buffered(OPENED_AT_ONCE);
        drop(opened.try_collect::<Vec<_>>().await?);
        let wave = READ_AHEAD_BYTES / 3 / layers.len().max(1) as u64;
        let wave = wave.clamp(*WAVE_BYTES.start(), *WAVE_BYTES.end());
        let mut inputs = Inputs::new(PrefetchBytes { first_bytes: wave, most_bytes: wave });
        let mut runs = Vec::with_capacity(layers.len());
        for layer in &handles {
            let mut tables = Vec::with_capacity(layer.len());
            for handle in layer {
                let open = context.table_once(handle).await?;
                let last = range.end.as_ref().and_then(|end| open.table.find_block(end, Seq::MAX));
                let after = last.and_then(|last| last.checked_add(1));
                let cursor = inputs.add_table(&open.table, &context, after);
                let cursor = cursor.ok_or_else(|| Error::internal("a job has a table twice"))?;
                tables.push((TableBounds::from(&handle.descriptor), cursor));
            }
            runs.push(RunCursor::new(tables));
        }
        let merge = Merge::new(runs, Direction::Forward);
        Ok(LayeredRows { merge, inputs, range, placed: false, given: Vec::new() })
    }

    async fn next(&mut self) -> Result<Option<Entry<'_>>> {
        loop {
            let step = match self.placed {
                true => self.merge.advance()?,
                false => self.merge.seek(&self.range.start, Seq::MAX)?,
            };
            match step {
                Step::Ready => {
                    let again = self.placed
                        && self.merge.entry().is_some_and(|entry| entry.key == self.given);
                    self.placed = true;
                    if !again {
                        break;
                    }
                }
                Step::End => return Ok(None),
                Step::NeedBlock(_) => self.inputs.fetch(self.merge.needed()).await?,
            }
        }
        let Some(entry) = self.merge.entry() else {
            return Err(Error::internal("a merge has no current entry"));
        };
        if self.range.end.as_ref().is_some_and(|end| entry.key >= end.as_ref()) {
            return Ok(None);
        }
        self.given.clear();
        self.given.extend_from_slice(entry.key);
        Ok(Some(entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::metadata::testing::descriptor;

    /// The ranges cover all keys, and each meets few tables, though a table spans nearly all.
    #[test]
    fn a_range_meets_few_tables() {
        let key = |n: u32| format!("{n:03}").into_bytes();
        let long = vec![descriptor(&key(1), &key(99))];
        let short = (0..50).map(|n| descriptor(&key(2 * n), &key(2 * n + 1))).collect();
        let layers = [long, short];
        for most in 2..60 {
            let ranges = ranges(&layers, most);
            assert!(ranges[0].start.is_empty());
            for pair in ranges.windows(2) {
                let [one, next] = pair else { continue };
                assert_eq!(one.end.as_ref(), Some(&next.start));
                assert!(next.end.as_ref().is_none_or(|end| next.start < *end));
            }
            assert_eq!(ranges[ranges.len() - 1].end, None);
            let met = |range: &MergeRange| {
                let meets = |table: &&SstDescriptor| {
                    table.overlaps(Some(&range.start), range.end.as_deref())
                };
                layers.iter().flatten().filter(meets).count()
            };
            assert!(ranges.iter().all(|range| met(range) <= most), "{most}: {ranges:?}");
            assert!(ranges.len() <= 1 + 50 / (most - 1), "{most}: {} ranges", ranges.len());
        }
    }
}
