//! Layers of a job that lie over one another, merged before the job is closed.
//!
//! Each layer of a job is one of L0, which every look-up goes through, and which counts against the
//! bound from which on puts wait. Whoever closes a job with many parts over the same keys therefore
//! merges them first: the ingest takes longer, and no put waits.

use super::spare::SpareBuffers;
use super::staged::{OpenPart, SLICE_BYTES};
use super::view::context;
use crate::cache::metadata::{MetadataBudget, TableHandle};
use crate::io::env::Env;
use crate::options::Options;
use crate::readahead::inputs::{InputCursor, Inputs, PrefetchBytes};
use siltstone_base::{Cursor, DatabaseId, Entry, Error, JobId, Result, Seq, SstDescriptor, Step};
use siltstone_manifest::ingest::stacked;
use siltstone_merge::{Direction, Merge, RunCursor, TableBounds};
use std::ops::RangeInclusive;
use std::time::Duration;

/// Layers that a job is closed with at most, beside that of the range which it replaces. Half of
/// the layers at which a database of default options begins to compact: a job is never a reason to
/// hold puts up.
const MOST_LAYERS: usize = 4;
/// Bytes of rows from which on another table is begun: as parts are cut by default.
const TABLE_BYTES: u64 = 64 << 20;
/// What is read ahead of all layers together, three waves each.
const READ_AHEAD_BYTES: u64 = 48 << 20;
/// Bytes of one wave: many layers are read in small ones, so that memory stays bounded.
const WAVE_BYTES: RangeInclusive<u64> = 64 << 10..=4 << 20;

/// These layers, the oldest first, as [`MOST_LAYERS`] at most: of equal keys the newest layer's
/// counts. Tombstones stay, since they delete what the database has. The smallest neighbours are
/// merged, each byte once; what was merged is left in the job's folder, and goes with the job.
///
/// # Errors
/// Those of the store; Corruption of a part.
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

/// The rows of these layers as one.
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
            // A chance for others between two slices.
            env.clock.sleep(Duration::ZERO).await;
        }
    }
    if let Some(rest) = open {
        tables.push(rest.finish(of.0).await?);
    }
    Ok(tables)
}

/// Of every key of some layers the entry of the newest one.
struct LayeredRows {
    merge: Merge<RunCursor<InputCursor>>,
    inputs: Inputs,
    placed: bool,
    /// The key that was given out last: what older layers hold of it is passed over.
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
                // As in the database: all of a layer counts at its number.
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
            return Err(Error::internal("a merge stands on no entry"));
        };
        self.given.clear();
        self.given.extend_from_slice(entry.key);
        Ok(Some(entry))
    }
}
