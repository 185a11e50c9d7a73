//! One key range of a job: its inputs merged into tables, each recorded before the next is
//! completed.

use super::merging::{Ends, Made, Merging};
use super::run::Run;
use super::sending::{Sender, sending};
use crate::cache::{MetadataBudget, TableHandle};
use crate::parts::inputs::{Ahead, Inputs};
use bytes::Bytes;
use futures::future::{Either, join, select};
use siltstone_base::prefix::shared_prefix;
use siltstone_base::{
    AttemptId, Envelope, Error, JobId, ObjectId, ObjectKind, ObjectName, Result, Seq,
    SstDescriptor, SstId, Step,
};
use siltstone_manifest::compaction::{Change, Job, JobFacts, JobRange};
use siltstone_merge::{Direction, Merge, Retain, Retention, RunCursor, TableBounds};
use siltstone_sst::{Codec, TableBuilder, TableOptions};
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::pin::pin;
use std::sync::Arc;

/// What the inputs of a range have in memory from a store that is far: three waves each, as one is
/// used up, one is there and one comes.
const READ_AHEAD_BYTES: u64 = 48 << 20;
/// Bytes that one input reads at a time from a store that is far: from where a stream of 50 MiB/s
/// costs more time than a request, to where it does so many times over.
const WAVE_BYTES: RangeInclusive<u64> = 512 << 10..=4 << 20;
/// Size of an upload's chunk, and what is built between two looks at whether to go on: a few
/// milliseconds of one core.
const SLICE_BYTES: usize = 2 << 20;

/// A worker on one range.
pub(super) struct RangeWorker<'r, 'w> {
    run: &'r Run<'w>,
    job: JobId,
    at: usize,
    worker: AttemptId,
}

impl<'r, 'w> RangeWorker<'r, 'w> {
    /// For the range at place `at`, under the claim of `worker`.
    pub(super) fn new(
        run: &'r Run<'w>,
        job: JobId,
        at: usize,
        worker: AttemptId,
    ) -> RangeWorker<'r, 'w> {
        RangeWorker { run, job, at, worker }
    }

    /// Merges what is left of the range, `layers` being the job's inputs, newest first.
    ///
    /// # Errors
    /// The store's; Corruption; Closed once the handle closes; Conflict when the range went to
    /// somebody else, Fenced. What is recorded stays, and is where the next worker goes on.
    pub(super) async fn work(self, layers: &[Vec<SstDescriptor>]) -> Result<()> {
        let (job, range) = self.claimed().await?;
        if range.done {
            return Ok(());
        }
        let options = table_options(&job.facts)?;
        let (mut inputs, mut merging) = self.open(&job, &range, layers).await?;
        loop {
            let placed = self.place(&mut inputs, &mut merging).await?;
            if !placed && !merging.has_range_deletes() {
                return self.progress(Vec::new(), true).await;
            }
            let name = self.reserved_name()?;
            let (back, table, more) = self.table(name, options, &mut inputs, merging).await?;
            merging = back;
            self.progress(vec![table], !more).await?;
            if !more {
                return Ok(());
            }
        }
    }

    /// The job and the range as the record has them, with the claim ours.
    async fn claimed(&self) -> Result<(Job, JobRange)> {
        let (job, range) = self.seen()?;
        let mine = range.claim.is_some_and(|claim| claim.worker == self.worker);
        if mine || range.done {
            return Ok((job, range));
        }
        // Whatever was uploaded under the names of the claim before is garbage.
        let change = Change::Claim {
            job: self.job,
            range: self.at,
            worker: self.worker,
            instead_of: range.claim,
            names: vec![self.run.new_name()],
        };
        self.run.append(change).await?;
        self.seen()
    }

    fn seen(&self) -> Result<(Job, JobRange)> {
        let job = self.run.job(self.job)?;
        let range = job.ranges.get(self.at).cloned();
        let range = range.ok_or_else(|| Error::internal("a job lost a range"))?;
        Ok((job, range))
    }

    fn reserved_name(&self) -> Result<SstId> {
        let (_, range) = self.seen()?;
        let name = range.reserved.first().copied();
        name.ok_or_else(|| Error::internal("a range has no name for its table"))
    }

    async fn progress(&self, outputs: Vec<SstDescriptor>, done: bool) -> Result<()> {
        let names = if done { Vec::new() } else { vec![self.run.new_name()] };
        let (job, range, worker) = (self.job, self.at, self.worker);
        self.run.append(Change::Progress { job, range, worker, outputs, names, done }).await
    }

    /// The merge over what is left of the range. The inputs' metadata is read around the caches,
    /// but for what is there anyhow.
    async fn open(
        &self,
        job: &Job,
        range: &JobRange,
        layers: &[Vec<SstDescriptor>],
    ) -> Result<(Inputs, Merging)> {
        let writer = self.run.writer;
        let tree = writer.tree();
        let known: HashMap<SstId, &Arc<TableHandle>> =
            tree.levels.handles().map(|handle| (handle.descriptor.id, handle)).collect();
        let budget = MetadataBudget::new(usize::MAX);
        let start = match range.resume_after() {
            // The smallest key behind it.
            Some(last) => [last.as_ref(), &[0]].concat(),
            None => range.keys.start.to_vec(),
        };
        let end = range.keys.end.as_deref();
        let wave = READ_AHEAD_BYTES / 3 / layers.len().max(1) as u64;
        let wave = wave.clamp(*WAVE_BYTES.start(), *WAVE_BYTES.end());
        let mut inputs = Inputs::new(Ahead { first_bytes: wave, most_bytes: wave });
        let mut runs = Vec::with_capacity(layers.len());
        let mut range_deletes = Vec::new();
        for layer in layers {
            let mut tables = Vec::new();
            for descriptor in layer.iter().filter(|table| table.overlaps(Some(&start), end)) {
                let handle = match known.get(&descriptor.id) {
                    Some(handle) => Arc::clone(handle),
                    None => TableHandle::new(descriptor.clone(), &budget),
                };
                let table = writer.context.table(&handle).await?;
                range_deletes.extend_from_slice(table.range_deletes().list());
                let last = end.and_then(|end| table.table.find_block(end, Seq::MAX));
                let after = last.and_then(|last| last.checked_add(1));
                let cursor = inputs.add_table(&table.table, &writer.context, after);
                let cursor = cursor.ok_or_else(|| Error::internal("a job has an input twice"))?;
                tables.push((TableBounds::from(descriptor), cursor));
            }
            runs.push(RunCursor::new(tables));
        }
        let merge = Merge::new(runs, Direction::Forward).sharing(shared_by_all(layers));
        let retention = Retention {
            snapshots: job.facts.snapshots.clone().unwrap_or_default(),
            floor: job.facts.snapshots.is_none().then_some(job.facts.floor),
            bottom: range.keys.bottom,
            now: job.facts.now,
            operator: writer.context.operator().cloned(),
            range_deletes,
            zero_seqs: job.facts.zero_seqs,
        };
        let end = end.map(<[u8]>::to_vec);
        let rows = Retain::in_range(merge, retention, Some(start), end);
        let ends = Ends {
            target_bytes: job.facts.target_sst_bytes,
            cut_prefix_bytes: usize::from(job.facts.cut_prefix_bytes),
            slice_bytes: SLICE_BYTES,
        };
        Ok((inputs, Merging::new(rows, ends)))
    }

    /// To the next entry; whether there is one.
    async fn place(&self, inputs: &mut Inputs, merging: &mut Merging) -> Result<bool> {
        loop {
            match merging.place()? {
                Step::Ready => return Ok(true),
                Step::End => return Ok(false),
                Step::NeedBlock(_) => inputs.fetch(&merging.needed()).await?,
            }
        }
    }

    /// Builds and uploads one table: while a slice is merged, the one before is sent and what the
    /// next one will need comes in. Answers whether an entry is left for the next table.
    async fn table(
        &self,
        name: SstId,
        options: TableOptions,
        inputs: &mut Inputs,
        merging: Merging,
    ) -> Result<(Merging, SstDescriptor, bool)> {
        let writer = self.run.writer;
        let upload = writer.env.store.upload(ObjectName::Compacted(name)).await?;
        let attempt = AttemptId(writer.env.random_u128());
        let database = writer.manifests.database();
        let envelope = Envelope::new(ObjectKind::Table, database, ObjectId(name.get()), attempt);
        let builder = TableBuilder::new(options, envelope);
        let (mut sender, sending) = sending(upload);
        let building = async move {
            let (mut merging, mut builder, more) =
                self.fill((merging, builder), inputs, &mut sender).await?;
            merging.end_table(&mut builder, more)?;
            let finish = move || builder.finish();
            let (rest, table): (Bytes, _) = writer.env.blocking("compact", finish).await??;
            sender.send(rest).await?;
            sender.complete().await?;
            Ok((merging, table, more))
        };
        let (built, sent) = join(building, sending).await;
        // An upload that fails is why nobody takes the next chunk.
        sent.and(built)
    }

    /// Slices until the table ends; answers whether an entry is left for the next one.
    async fn fill(
        &self,
        mut state: (Merging, TableBuilder),
        inputs: &mut Inputs,
        sender: &mut Sender,
    ) -> Result<(Merging, TableBuilder, bool)> {
        loop {
            let made = {
                let slice = pin!(self.slice(state));
                let coming = pin!(inputs.come_in());
                let Either::Left((sliced, _)) = select(slice, coming).await else {
                    return Err(Error::internal("reading ahead has an end"));
                };
                let made;
                (state, made) = sliced?;
                made?
            };
            match made {
                Made::NeedsBlocks => inputs.fetch(&state.0.needed()).await?,
                Made::Chunk(chunk) => sender.send(chunk).await?,
                Made::TableEnds => return Ok((state.0, state.1, true)),
                Made::End => return Ok((state.0, state.1, false)),
            }
            self.run.check_open()?;
        }
    }

    /// One slice where it holds up no task.
    async fn slice(
        &self,
        (mut merging, mut builder): (Merging, TableBuilder),
    ) -> Result<((Merging, TableBuilder), Result<Made>)> {
        let work = move || {
            let made = merging.slice(&mut builder);
            ((merging, builder), made)
        };
        self.run.writer.env.blocking("compact", work).await
    }
}

/// How many first bytes the keys of all tables have in common: those of the smallest and of the
/// largest key.
fn shared_by_all(layers: &[Vec<SstDescriptor>]) -> usize {
    let tables = || layers.iter().flatten();
    let first = tables().map(|table| &table.first_key).min();
    let last = tables().map(|table| &table.last_key).max();
    first.zip(last).map_or(0, |(first, last)| shared_prefix(first, last))
}

/// How the job's tables are written, whatever the options of this process are.
fn table_options(facts: &JobFacts) -> Result<TableOptions> {
    let codec = Codec::parse(&facts.codec).ok_or_else(|| {
        Error::unsupported("this version cannot write the codec of a compaction job; upgrade")
            .with("codec", &facts.codec)
    })?;
    Ok(TableOptions {
        block_bytes: usize::try_from(facts.block_bytes).unwrap_or(usize::MAX),
        codec,
        filter_bits_per_key: facts.filter_bits_per_key,
    })
}
