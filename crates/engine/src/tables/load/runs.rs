//! What is more than memory holds: sorted runs in files, merged by ranges of keys, side by side.

use super::heap::{Heap, HeapPart, SortedPart, both, cut};
use super::making::{Filled, Target};
use super::{Lacks, Maker, WAITING, equal_keys, numbered};
use crate::io::env::Effects;
use crate::io::store::Upload;
use crate::io::store::local::scratch::ScratchFolder;
use crate::io::store::lone_object::LoneObject;
use crate::options::Options;
use crate::readahead::inputs::{InputCursor, Inputs, PrefetchBytes};
use crate::tables::sorter::run_options;
use crate::tables::table::TableFile;
use crate::tables::writer::Duplicates;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::try_join_all;
use siltstone_base::{
    AttemptId, Cursor, DatabaseId, Entry, Envelope, Error, Kind, ObjectId, ObjectKind, Result, Seq,
    Step,
};
use siltstone_merge::{Direction, Merge};
use siltstone_sst::TableBuilder;
use std::sync::Arc;

/// Bytes that are built between two chances to stop.
const SLICE_BYTES: usize = 4 << 20;
/// What one run reads ahead, at least and at most.
const AHEAD_BYTES: (u64, u64) = (64 << 10, 4 << 20);

/// A heap in files.
pub(super) struct Spilled {
    runs: Vec<TableFile>,
    samples: Vec<Vec<u8>>,
    /// Bytes that a sample stands for.
    sample_bytes: u64,
    common: (Vec<u8>, usize),
    /// Goes when all has been read.
    _folder: Arc<ScratchFolder>,
}

/// Moves a heap that is not empty into files, one for each range of keys.
pub(super) async fn spill(
    maker: Maker,
    heap: Heap,
    (folder, number): (Arc<ScratchFolder>, usize),
) -> Result<Spilled> {
    let bytes = heap.bytes() as u64;
    // More than there are cores: some are written while others are sorted.
    let cut = cut(&maker, heap, maker.env.spawn.cores() + WAITING).await?;
    let duplicates = maker.how.duplicates;
    let runs = cut.parts.into_iter().enumerate().map(|(at, part)| {
        let path = folder.path().join(format!("{number}-{at}.sst"));
        let maker = maker.clone();
        async move {
            let Maker { env, .. } = &maker;
            let (clock, random) = (Arc::clone(&env.clock), Arc::clone(&env.random));
            let effects = Effects { clock, random, spawn: Arc::clone(&env.spawn) };
            let object = LoneObject::scratch_file(&path, &effects);
            write_run(&maker, part, duplicates, object.upload().await?).await?;
            let options = Options { block_cache_bytes: 0, ..Options::default() };
            TableFile::open(effects, &object, &options).await
        }
    });
    let runs = try_join_all(runs).await?;
    let sample_bytes = bytes / cut.samples.len().max(1) as u64 + 1;
    let (samples, common) = (cut.samples, cut.common);
    Ok(Spilled { runs, samples, sample_bytes, common, _folder: folder })
}

async fn write_run(
    maker: &Maker,
    part: HeapPart,
    duplicates: Duplicates,
    mut upload: Box<dyn Upload>,
) -> Result<()> {
    let (id, attempt) = (maker.env.new_ulid(), maker.env.random_u128());
    let envelope =
        Envelope::new(ObjectKind::Table, DatabaseId::NONE, ObjectId(id), AttemptId(attempt));
    let mut builder = TableBuilder::new(run_options(), envelope);
    let mut rows = maker.env.blocking("sort", move || part.sorted(duplicates)).await?;
    loop {
        maker.check()?;
        let work = move || {
            let chunk = fill_run(&mut rows, &mut builder, &mut *upload);
            (rows, builder, upload, chunk)
        };
        let chunk;
        (rows, builder, upload, chunk) = maker.env.blocking("spill", work).await?;
        match chunk? {
            Some(chunk) => upload.write(chunk).await?,
            None => break,
        }
    }
    let (rest, _) = builder.finish()?;
    upload.write(rest).await?;
    upload.finish().await
}

/// Goes on until there is a chunk to be sent; `None` at the end.
fn fill_run(
    rows: &mut SortedPart,
    builder: &mut TableBuilder,
    upload: &mut dyn Upload,
) -> Result<Option<Bytes>> {
    while let Some((key, value, number)) = rows.next()? {
        let seq = numbered(number);
        builder.add(&Entry { key, seq, kind: Kind::Put, expires_at: None, value })?;
        let Some(chunk) = builder.take_chunk(SLICE_BYTES) else { continue };
        match upload.write_now(&chunk) {
            Some(written) => written?,
            None => return Ok(Some(chunk)),
        }
    }
    Ok(None)
}

/// Keys from one on, up to another one: none of the two, and the range is open.
pub(super) type KeyRange = (Option<Vec<u8>>, Option<Vec<u8>>);

/// Ranges of about a table each, in order.
pub(super) fn ranges(spilled: &[Spilled], table_bytes: u64) -> Vec<KeyRange> {
    let weighed = spilled.iter().flat_map(|one| {
        one.samples.iter().map(move |sample| (sample.as_slice(), one.sample_bytes))
    });
    let mut weighed: Vec<(&[u8], u64)> = weighed.collect();
    weighed.sort_unstable();
    let (mut ranges, mut start, mut bytes) = (Vec::new(), None, 0);
    for (key, weight) in weighed {
        if bytes >= table_bytes && start.as_deref() < Some(key) {
            let end = Some(key.to_vec());
            ranges.push((start, end.clone()));
            (start, bytes) = (end, 0);
        }
        bytes += weight;
    }
    ranges.push((start, None));
    ranges
}

/// A range of all runs.
pub(super) struct RunRange {
    merge: Merge<InputCursor>,
    inputs: Inputs,
    range: KeyRange,
    duplicates: Duplicates,
    /// Whether the merge stands on a row, or has ended there.
    placed: bool,
    /// Whether that row waits for the next table.
    waits: bool,
    /// The number of the last row that went into a table.
    last: Seq,
    /// Kept until all has been read.
    _runs: Arc<Vec<Spilled>>,
}

impl RunRange {
    pub(super) fn new(
        spilled: &Arc<Vec<Spilled>>,
        range: KeyRange,
        (duplicates, ahead_bytes): (Duplicates, usize),
    ) -> RunRange {
        let met: Vec<&TableFile> = spilled
            .iter()
            .flat_map(|one| &one.runs)
            .filter(|run| {
                let table = run.table().descriptor();
                range.0.as_ref().is_none_or(|from| table.last_key >= from.as_slice())
                    && range.1.as_ref().is_none_or(|until| table.first_key < until.as_slice())
            })
            .collect();
        // Two waves of each are in memory.
        let ahead = ahead_bytes as u64 / (2 * met.len().max(1) as u64);
        let bytes = ahead.clamp(AHEAD_BYTES.0, AHEAD_BYTES.1);
        let mut inputs = Inputs::new(PrefetchBytes { first_bytes: bytes, most_bytes: bytes });
        let cursors = met.into_iter().filter_map(|run| {
            let end = range.1.as_ref().and_then(|end| run.table().find_block(end, Seq::MAX));
            inputs.add_table(run.table(), run.context(), end.map(|block| block + 1))
        });
        let cursors = cursors.collect();
        let common = spilled.iter().map(|one| one.common.clone()).reduce(both);
        let shared = common.map_or(0, |common| common.1);
        let merge = Merge::new(cursors, Direction::Forward).sharing(shared);
        let (placed, waits, last, runs) = (false, false, Seq::NONE, Arc::clone(spilled));
        RunRange { merge, inputs, range, duplicates, placed, waits, last, _runs: runs }
    }

    /// Fetches what it lacks.
    pub(super) fn fetch(&mut self) -> Lacks<'_> {
        async { self.inputs.fetch(self.merge.needed()).await }.boxed()
    }

    fn step(&mut self) -> Result<Step> {
        match (&self.range.0, self.placed) {
            _ if std::mem::take(&mut self.waits) => Ok(Step::Ready),
            (_, true) => self.merge.advance(),
            (Some(from), false) => self.merge.seek(from, Seq::MAX),
            (None, false) => self.merge.seek_first(),
        }
    }

    /// Adds rows until there is a reason to come out.
    pub(super) fn fill(&mut self, target: &mut Target, table_bytes: u64) -> Result<Filled> {
        loop {
            match self.step()? {
                Step::Ready => self.placed = true,
                Step::End => return Ok(Filled::End),
                Step::NeedBlock(_) => return Ok(Filled::Lacks),
            }
            let Some(entry) = self.merge.entry() else {
                return Err(Error::internal("a merge stands on no row"));
            };
            if self.range.1.as_ref().is_some_and(|end| entry.key >= end.as_slice()) {
                return Ok(Filled::End);
            }
            if target.last_key() == Some(entry.key) {
                match self.duplicates {
                    Duplicates::Refuse => {
                        let (now, before) = (entry.seq.minus(1).get(), self.last.minus(1).get());
                        return Err(equal_keys(entry.key, before, now));
                    }
                    Duplicates::KeepLast => continue,
                }
            }
            // A range is about a table; one that is somewhat larger stays one.
            if target.row_bytes() >= table_bytes.saturating_mul(2) {
                self.waits = true;
                return Ok(Filled::Full);
            }
            self.last = entry.seq;
            if target.add(entry.key, entry.value)? {
                return Ok(Filled::Chunk);
            }
        }
    }
}
