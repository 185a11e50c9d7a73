//! Rows that exceed memory: sorted runs, most of them in files, merged by ranges of keys in
//! parallel.

use super::heap::{CutHeap, Heap, HeapPart, SortedPart, both, cut};
use super::kept::{KeptCursor, KeptRun, forward_only};
use super::making::{FillResult, Target};
use super::{Lacks, Maker, WAITING, numbered};
use crate::options::Options;
use crate::readahead::inputs::{InputCursor, Inputs, PrefetchBytes};
use crate::tables::sorter::run_options;
use crate::tables::table::TableFile;
use crate::tables::writer::{Duplicates, equal_keys_of_load};
use bytes::Bytes;
use futures::FutureExt;
use futures::channel::oneshot;
use futures::stream::{self, StreamExt, TryStreamExt};
use siltstone_base::{
    AttemptId, Cursor, DatabaseId, Entry, Envelope, Error, Kind, ObjectId, ObjectKind, Result, Seq,
    Step,
};
use siltstone_merge::{Direction, Merge};
use siltstone_sst::{TableBuilder, TableOptions};
use siltstone_store::Upload;
use siltstone_store::env::{Effects, Spawn};
use siltstone_store::local::scratch::ScratchFolder;
use siltstone_store::lone_object::LoneObject;
use std::sync::Arc;

/// Target block size of runs. One block of each run is read at a time; those of sixty runs fit into
/// a core's cache.
const BLOCK_BYTES: usize = 16 << 10;
/// Bytes of a run that are written to its file at a time, while they are still in the core's cache.
pub(super) const CHUNK_BYTES: usize = 256 << 10;
/// Runs of a heap per parallel sort or write. Merged runs are removed while the others are merged,
/// so that only the last run of each heap is left.
const PARTS: usize = 2;
/// Minimum and maximum read-ahead of a run.
const AHEAD_BYTES: (u64, u64) = (64 << 10, 1 << 20);

/// A heap as runs.
pub(super) struct SortedHeap {
    /// The runs that are still to be merged.
    runs: Vec<Arc<Run>>,
    samples: Vec<Vec<u8>>,
    /// Bytes that a sample represents.
    sample_bytes: u64,
    common: (Vec<u8>, usize),
}

/// A range of keys of a heap, in order.
enum Run {
    File(FileRun),
    Kept(KeptRun),
}

/// A run in a file, which is removed when this is dropped.
struct FileRun {
    /// `None` only while it is dropped.
    table: Option<TableFile>,
    name: String,
    folder: Arc<ScratchFolder>,
    spawn: Arc<dyn Spawn>,
    /// Dropped once the file is removed.
    removed: Option<oneshot::Sender<()>>,
}

impl Drop for FileRun {
    /// Removes the file in the background, because a file system may take a third as long to free a
    /// file as to write it.
    fn drop(&mut self) {
        let (table, removed) = (self.table.take(), self.removed.take());
        // If the folder is removed meanwhile, the file is removed with it.
        let (folder, name) = (Arc::downgrade(&self.folder), std::mem::take(&mut self.name));
        let remove = move || {
            drop(table);
            if let Some(folder) = folder.upgrade() {
                folder.remove(&name);
            }
            drop(removed);
        };
        self.spawn.spawn_blocking("remove", Box::new(remove));
    }
}

impl Run {
    /// Whether its first and last key overlap the range.
    fn meets(&self, (from, until): &KeyRange) -> bool {
        let (first, last) = self.ends();
        from.as_ref().is_none_or(|from| last >= from.as_slice())
            && until.as_ref().is_none_or(|until| first < until.as_slice())
    }

    /// The first and the last key.
    fn ends(&self) -> (&[u8], &[u8]) {
        match self {
            Run::File(file) => file.table.as_ref().map_or((&[], &[]), |table| {
                let table = table.table().descriptor();
                (table.first_key.as_ref(), table.last_key.as_ref())
            }),
            Run::Kept(kept) => kept.ends(),
        }
    }
}

/// Writes a nonempty heap to files, one per range of keys.
pub(super) async fn spill(
    maker: Maker,
    heap: Heap,
    (folder, number): (Arc<ScratchFolder>, usize),
) -> Result<SortedHeap> {
    let runs = move |maker: Maker, at: usize, part: HeapPart| {
        let (name, folder) = (format!("{number}-{at}.sst"), Arc::clone(&folder));
        let path = folder.path().join(&name);
        async move {
            let Maker { env, .. } = &maker;
            let (clock, random) = (Arc::clone(&env.clock), Arc::clone(&env.random));
            let effects = Effects { clock, random, spawn: Arc::clone(&env.spawn) };
            let object = LoneObject::scratch_file(&path, &effects, &maker.waves);
            write_run(&maker, part, object.upload().await?).await?;
            let options = Options { block_cache_bytes: 0, ..Options::default() };
            let spawn = Arc::clone(&effects.spawn);
            let table = Some(TableFile::open(effects, &object, &options).await?);
            let (removed, gone) = oneshot::channel();
            maker.removals.lock().push(gone);
            let removed = Some(removed);
            Ok(Run::File(FileRun { table, name, folder, spawn, removed }))
        }
    };
    sorted(&maker, heap, runs).await
}

/// Sorts a nonempty heap in memory, if there is room for it.
pub(super) async fn keep(maker: Maker, heap: Heap) -> Result<SortedHeap> {
    let runs = |maker: Maker, _, part: HeapPart| async move {
        let sorting = move || part.sorted(maker.how.duplicates);
        let part = maker.env.blocking("sort", sorting).await?;
        Ok(Run::Kept(KeptRun::of(part)))
    };
    sorted(&maker, heap, runs).await
}

impl SortedHeap {
    /// Drops runs that end before `from`.
    pub(super) fn pass(&mut self, from: Option<&[u8]>) {
        self.runs.retain(|run| from.is_none_or(|from| run.ends().1 >= from));
    }
}

/// Converts each range of a heap with `run`.
async fn sorted<F: Future<Output = Result<Run>>>(
    maker: &Maker,
    heap: Heap,
    run: impl Fn(Maker, usize, HeapPart) -> F,
) -> Result<SortedHeap> {
    let bytes = heap.bytes() as u64;
    // More than the number of cores, so that some are written while others are sorted.
    let side_by_side = maker.env.spawn.cores() + WAITING;
    let cut = cut(maker, heap, PARTS * side_by_side).await?;
    let CutHeap { parts, samples, common } = cut;
    let sample_bytes = bytes / samples.len().max(1) as u64 + 1;
    let runs = parts.into_iter().enumerate().map(|(at, part)| run(maker.clone(), at, part));
    let runs = stream::iter(runs).buffered(side_by_side).map_ok(Arc::new).try_collect().await?;
    Ok(SortedHeap { runs, samples, sample_bytes, common })
}

async fn write_run(maker: &Maker, part: HeapPart, mut upload: Box<dyn Upload>) -> Result<()> {
    let duplicates = maker.how.duplicates;
    let (id, attempt) = (maker.env.new_ulid(), maker.env.random_u128());
    let envelope =
        Envelope::new(ObjectKind::Table, DatabaseId::NONE, ObjectId(id), AttemptId(attempt));
    let options = TableOptions { block_bytes: BLOCK_BYTES, ..run_options() };
    let mut builder = maker.spare_runs.builder(options, envelope);
    let mut rows = maker.env.blocking("sort", move || part.sorted(duplicates)).await?;
    loop {
        maker.check()?;
        let of = maker.clone();
        let work = move || {
            let chunk = fill_run(&of, &mut rows, (&mut builder, &mut *upload));
            (rows, builder, upload, chunk)
        };
        let chunk;
        (rows, builder, upload, chunk) = maker.env.blocking("spill", work).await?;
        match chunk? {
            Some(chunk) => upload.write(chunk).await?,
            None => break,
        }
    }
    let (rest, _) = maker.spare_runs.finish(builder)?;
    upload.write(rest).await?;
    upload.finish().await
}

/// Continues until a chunk is ready to be sent; `None` at the end.
fn fill_run(
    maker: &Maker,
    rows: &mut SortedPart,
    (builder, upload): (&mut TableBuilder, &mut dyn Upload),
) -> Result<Option<Bytes>> {
    while let Some((key, value, number)) = rows.next()? {
        let seq = numbered(number);
        builder.add(&Entry { key, seq, kind: Kind::Put, expires_at: None, value })?;
        let Some(chunk) = maker.spare_runs.chunk(builder) else { continue };
        maker.check()?;
        match upload.write_now(&chunk) {
            Some(written) => written?,
            None => return Ok(Some(chunk)),
        }
    }
    Ok(None)
}

/// Keys from the first, inclusive, to the second, exclusive. `None` means no bound.
pub(super) type KeyRange = (Option<Vec<u8>>, Option<Vec<u8>>);

/// Ranges of about one table each, in order.
pub(super) fn ranges(sorted: &[SortedHeap], table_bytes: u64) -> Vec<KeyRange> {
    let weighed = sorted.iter().flat_map(|one| {
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

/// A cursor over a run.
enum RunCursor {
    File(InputCursor),
    Kept(KeptCursor),
}

impl Cursor for RunCursor {
    fn seek_first(&mut self) -> Result<Step> {
        match self {
            RunCursor::File(cursor) => cursor.seek_first(),
            RunCursor::Kept(cursor) => cursor.seek_first(),
        }
    }

    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<Step> {
        match self {
            RunCursor::File(cursor) => cursor.seek(key, seq),
            RunCursor::Kept(cursor) => cursor.seek(key, seq),
        }
    }

    #[inline(always)]
    fn next(&mut self) -> Result<Step> {
        match self {
            RunCursor::File(cursor) => cursor.next(),
            RunCursor::Kept(cursor) => cursor.next(),
        }
    }

    #[inline(always)]
    fn entry(&self) -> Option<Entry<'_>> {
        match self {
            RunCursor::File(cursor) => cursor.entry(),
            RunCursor::Kept(cursor) => cursor.entry(),
        }
    }

    #[inline(always)]
    fn user_key(&self) -> Option<&[u8]> {
        match self {
            RunCursor::File(cursor) => cursor.user_key(),
            RunCursor::Kept(cursor) => cursor.user_key(),
        }
    }

    fn seek_last(&mut self) -> Result<Step> {
        forward_only()
    }

    fn seek_before(&mut self, _: &[u8], _: Seq) -> Result<Step> {
        forward_only()
    }

    fn prev(&mut self) -> Result<Step> {
        forward_only()
    }
}

/// A range of all runs.
pub(super) struct RunRange {
    merge: Merge<RunCursor>,
    inputs: Inputs,
    range: KeyRange,
    duplicates: Duplicates,
    /// Whether the merge is placed on a row, or at the end.
    placed: bool,
    /// Whether the current row waits for the next table.
    waits: bool,
    /// The sequence number of the last row that went into a table.
    last: Seq,
    /// Keeps the runs until the cursors that read them are dropped.
    _runs: Vec<Arc<Run>>,
}

impl RunRange {
    pub(super) fn new(
        sorted: &[SortedHeap],
        range: KeyRange,
        (duplicates, ahead_bytes): (Duplicates, usize),
    ) -> RunRange {
        let runs = sorted.iter().flat_map(|one| &one.runs);
        let met: Vec<Arc<Run>> = runs.filter(|run| run.meets(&range)).cloned().collect();
        let ahead = ahead_bytes as u64 / met.len().max(1) as u64;
        let bytes = ahead.clamp(AHEAD_BYTES.0, AHEAD_BYTES.1);
        let mut inputs = Inputs::new(PrefetchBytes { first_bytes: bytes, most_bytes: bytes });
        let cursors = met.iter().filter_map(|run| match &**run {
            Run::File(run) => {
                let run = run.table.as_ref()?;
                let end = range.1.as_ref().and_then(|end| run.table().find_block(end, Seq::MAX));
                let cursor =
                    inputs.add_table(run.table(), run.context(), end.map(|block| block + 1));
                cursor.map(RunCursor::File)
            }
            Run::Kept(run) => Some(RunCursor::Kept(run.cursor())),
        });
        let cursors = cursors.collect();
        let common = sorted.iter().map(|one| one.common.clone()).reduce(both);
        let shared = common.map_or(0, |common| common.1);
        let merge = Merge::new(cursors, Direction::Forward).sharing(shared);
        let (placed, waits, last) = (false, false, Seq::NONE);
        RunRange { merge, inputs, range, duplicates, placed, waits, last, _runs: met }
    }

    /// Reads missing blocks.
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

    /// Adds rows until there is a reason to return.
    pub(super) fn fill(&mut self, target: &mut Target, table_bytes: u64) -> Result<FillResult> {
        loop {
            match self.step()? {
                Step::Ready => self.placed = true,
                Step::End => return Ok(FillResult::End),
                Step::NeedBlock(_) => return Ok(FillResult::Lacks),
            }
            let Some(entry) = self.merge.entry() else {
                return Err(Error::internal("a merge has no current row"));
            };
            if self.range.1.as_ref().is_some_and(|end| entry.key >= end.as_slice()) {
                return Ok(FillResult::End);
            }
            if target.last_key() == Some(entry.key) {
                match self.duplicates {
                    Duplicates::Refuse => {
                        let (now, before) = (entry.seq.minus(1).get(), self.last.minus(1).get());
                        return Err(equal_keys_of_load(entry.key, before, now));
                    }
                    Duplicates::KeepLast => continue,
                }
            }
            // A range is about one table; a somewhat larger range stays one table.
            if target.row_bytes() >= table_bytes.saturating_mul(2) {
                self.waits = true;
                return Ok(FillResult::Full);
            }
            self.last = entry.seq;
            if target.add(entry.key, entry.value)? {
                return Ok(FillResult::Chunk);
            }
        }
    }
}
