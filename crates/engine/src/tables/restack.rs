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
/// Bytes read ahead of all layers together, three waves each.
const READ_AHEAD_BYTES: u64 = 48 << 20;
/// Bytes of one wave. Many layers are read in small waves, so that memory stays bounded.
const WAVE_BYTES: RangeInclusive<u64> = 64 << 10..=4 << 20;

/// Merges the layers, oldest first, into at most [`MOST_LAYERS`]. The entry of the newest layer
/// counts for equal keys. Tombstones are kept, because they delete rows of the database. The
/// smallest adjacent layers are merged, each byte once. Merged tables stay in the job's folder and
/// are deleted with the job.
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
    let mut rows = LayeredRows::open(env, &options, layers).await?;
    let spare = SpareBuffers::new(SLICE_BYTES);
    let (mut tables, mut open): (Vec<SstDescriptor>, Option<OpenPart>) = (Vec::new(), None);
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
    if let Some(rest) = open {
        tables.push(rest.finish(of.0).await?);
    }
    Ok(tables)
}

/// The entry of the newest layer for each key of some layers.
struct LayeredRows {
    merge: Merge<RunCursor<RunInputs>>,
    inputs: Inputs,
    placed: bool,
    /// The last key that was returned. Entries of older layers for it are skipped.
    given: Vec<u8>,
}

impl LayeredRows {
    async fn open(
        env: &Env,
        options: &Options,
        layers: &[Vec<SstDescriptor>],
    ) -> Result<LayeredRows> {
        let context = context(env.clone(), options, 0);
        let budget = MetadataBudget::new(usize::MAX);
        let wave = READ_AHEAD_BYTES / 3 / layers.len().max(1) as u64;
        let wave = wave.clamp(*WAVE_BYTES.start(), *WAVE_BYTES.end());
        let mut inputs = Inputs::new(PrefetchBytes { first_bytes: wave, most_bytes: wave });
        let mut runs = Vec::with_capacity(layers.len());
        for (rank, layer) in (1..).zip(layers) {
            let mut tables = Vec::with_capacity(layer.len());
            for table in layer {
                // As in the database, all of a layer counts at its sequence number.
                let ranked = SstDescriptor { seq_override: Some(Seq(rank)), ..table.clone() };
                let handle = TableHandle::new(ranked, &budget);
                let open = context.table(&handle).await?;
                let cursor = inputs.add_table(&open.table, &context, None);
                let cursor = cursor.ok_or_else(|| Error::internal("a job has a table twice"))?;
                tables.push((TableBounds::from(table), cursor));
            }
            runs.push(RunCursor::new(tables));
        }
        let merge = Merge::new(runs, Direction::Forward);
        Ok(LayeredRows { merge, inputs, placed: false, given: Vec::new() })
    }

    async fn next(&mut self) -> Result<Option<Entry<'_>>> {
        loop {
            let step = if self.placed { self.merge.advance()? } else { self.merge.seek_first()? };
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
        self.given.clear();
        self.given.extend_from_slice(entry.key);
        Ok(Some(entry))
    }
}
