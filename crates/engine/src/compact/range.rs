//! One key range of a job: its inputs merged into tables, each recorded before the next is
//! completed. While one is synced and recorded, the next one is being merged already: two names are
//! reserved ahead (RFC 0019).

use super::host::Host;
use super::merging::{Ends, Made, Merging};
use super::sending::{Sender, Sent};
use crate::cache::{MetadataBudget, TableHandle};
use crate::env::Env;
use crate::parts::inputs::{Ahead, Inputs};
use bytes::Bytes;
use futures::channel::oneshot;
use futures::future::{Either, join, select};
use parking_lot::Mutex;
use siltstone_base::prefix::shared_prefix;
use siltstone_base::{
    AttemptId, Envelope, Error, JobId, ObjectId, ObjectKind, ObjectName, Result, Seq,
    SstDescriptor, SstId, Step,
};
use siltstone_manifest::compaction::{Change, ChangeRefusal, Claim, Job, JobFacts, JobRange};
use siltstone_merge::{Direction, Merge, Retain, Retention, RunCursor, TableBounds};
use siltstone_sst::{Codec, TableBuilder, TableOptions};
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What the inputs of a range have in memory from a store that is far: three waves each, as one is
/// used up, one is there and one comes.
const READ_AHEAD_BYTES: u64 = 48 << 20;
/// Bytes that one input reads at a time from a store that is far: from where a stream of 50 MiB/s
/// costs more time than a request, to where it does so many times over.
const WAVE_BYTES: RangeInclusive<u64> = 512 << 10..=4 << 20;
/// Size of an upload's chunk, and what is built between two looks at whether to go on: a few
/// milliseconds of one core.
pub(super) const SLICE_BYTES: usize = 2 << 20;
/// Names that a range has ahead: of the table that is being recorded while the next one is made,
/// and of that one.
pub(super) const NAMES_AHEAD: usize = 2;
/// Signs of life in the time after which a silent worker counts as dead: two may be lost.
const BEATS_A_TIMEOUT: u32 = 3;

/// How the work on a range ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The range is finished.
    Done,
    /// It is somebody else's now, or its job is to end: what was not recorded is garbage.
    Lost,
}

/// The inputs of a job, newest layer first.
pub(super) type Layers = Arc<Vec<Vec<SstDescriptor>>>;

/// A worker on one range.
pub(super) struct RangeWorker {
    host: Arc<dyn Host>,
    job: JobId,
    at: usize,
    worker: AttemptId,
    /// Set when nobody wants the result any more.
    stop: Arc<AtomicBool>,
    /// Whether the claim was found gone.
    lost: AtomicBool,
    /// When the record last heard of this worker, by the clock that never goes back.
    heard: Mutex<Duration>,
    /// Dropped once nothing is left to merge: somebody else may have the core, while the last table
    /// is synced and recorded.
    merging: Mutex<Option<oneshot::Sender<()>>>,
}

/// A table whose bytes are all made and handed over.
struct Built {
    sender: Sender,
    table: SstDescriptor,
    /// Whether an entry is left for the next one.
    more: bool,
}

/// A table on its way into the record.
struct Finishing {
    sent: Sent,
    table: SstDescriptor,
    /// The name that is reserved with it; `None` where it is the last.
    name: Option<SstId>,
}

impl RangeWorker {
    /// For the range at place `at`, under the claim of `worker`, until `stop` is set.
    pub(super) fn new(
        host: &Arc<dyn Host>,
        (job, at): (JobId, usize),
        worker: AttemptId,
        stop: &Arc<AtomicBool>,
    ) -> RangeWorker {
        let heard = Mutex::new(host.env().clock.monotonic());
        let (host, stop) = (Arc::clone(host), Arc::clone(stop));
        let (lost, merging) = (AtomicBool::new(false), Mutex::default());
        RangeWorker { host, job, at, worker, stop, lost, heard, merging }
    }

    /// The same, with what tells (by its end) that nothing is left to merge.
    pub(super) fn telling(self) -> (RangeWorker, oneshot::Receiver<()>) {
        let (merging, merged) = oneshot::channel();
        *self.merging.lock() = Some(merging);
        (self, merged)
    }

    /// Merges what is left of the range, under a claim that takes the place of `instead_of`, unless
    /// the range is claimed already: as a task of its own. A range that waits with the turn of the
    /// record's changes must go on whatever its job waits for.
    ///
    /// # Errors
    /// The store's; Corruption; Closed once the handle closes; Fenced. What is recorded stays, and
    /// is where the next worker goes on.
    pub(super) async fn work(self, layers: Layers, instead_of: Option<Claim>) -> Result<Ended> {
        let (answer, answered) = oneshot::channel();
        let spawn = Arc::clone(&self.host.env().spawn);
        let task = async move { drop(answer.send(self.run(&layers, instead_of).await)) };
        spawn.spawn("compact range", Box::pin(task));
        answered.await.map_err(|_| Error::internal("a range of a compaction died"))?
    }

    async fn run(self, layers: &[Vec<SstDescriptor>], instead_of: Option<Claim>) -> Result<Ended> {
        if !self.claim(instead_of).await? {
            return Ok(Ended::Lost);
        }
        let merged = pin!(self.merge(layers));
        let beats = pin!(self.beats());
        match select(merged, beats).await {
            Either::Left((ended, _)) => ended,
            // The claim is gone: the merge stops at its next slice.
            Either::Right(((), merged)) => merged.await,
        }
    }

    async fn merge(&self, layers: &[Vec<SstDescriptor>]) -> Result<Ended> {
        let Some((job, range)) = self.seen().await? else { return Ok(Ended::Lost) };
        let options = match cfg!(mutation = "own_options_decide") {
            true => self.host.options().table_options(),
            false => table_options(&job.facts)?,
        };
        let (mut inputs, mut merging) = self.open(&job, &range, layers).await?;
        let mut names: VecDeque<SstId> = range.reserved.into();
        let mut before: Option<Finishing> = None;
        loop {
            let placed = match self.place(&mut inputs, &mut merging).await {
                Ok(placed) => placed,
                Err(error) => return self.finish(before.take()).await.and(Err(error)),
            };
            if !placed && !merging.has_range_deletes() {
                let ended = self.progress(Vec::new(), None, true).await?;
                return Ok(if ended { Ended::Done } else { Ended::Lost });
            }
            if names.is_empty() {
                // One name ahead is what earlier versions reserved.
                names.extend(before.as_ref().and_then(|table| table.name));
                if !self.finish(before.take()).await? {
                    return Ok(Ended::Lost);
                }
            }
            let reserved = names.pop_front();
            let reserved =
                reserved.ok_or_else(|| Error::internal("a range has no name for its table"))?;
            names.extend(before.as_ref().and_then(|table| table.name));
            let table = self.table(reserved, options, &mut inputs, merging);
            let (built, recorded) = join(table, self.finish(before.take())).await;
            let (back, mut built) = match (built, recorded) {
                (Ok(Some(built)), Ok(true)) => built,
                (built, recorded) => {
                    if let Ok(Some((_, built))) = built {
                        built.sender.give_up().await?;
                        recorded?;
                    } else {
                        recorded.and(built.map(|_| ()))?;
                    }
                    return Ok(Ended::Lost);
                }
            };
            merging = back;
            // Where nobody takes that, the upload has failed: how it ended tells why.
            drop(built.sender.complete().await);
            let name = built.more.then(|| SstId(self.host.env().new_ulid()));
            let finishing = Finishing { sent: built.sender.sent(), table: built.table, name };
            if built.more {
                before = Some(finishing);
                continue;
            }
            drop(self.merging.lock().take());
            let ended = self.finish(Some(finishing)).await?;
            return Ok(if ended { Ended::Done } else { Ended::Lost });
        }
    }

    /// Waits until a table is durable and records it; whether the range is still this worker's.
    async fn finish(&self, table: Option<Finishing>) -> Result<bool> {
        let Some(Finishing { sent, table, name }) = table else { return Ok(true) };
        let finished = async {
            sent.done().await?;
            self.progress(vec![table], name, name.is_none()).await
        };
        // The table behind it is not wanted then.
        finished.await.inspect_err(|_| self.lost.store(true, Ordering::Release))
    }

    /// Says that the worker lives whenever the record has not heard of it for a while, however long
    /// a table takes. Ends when the claim is gone.
    async fn beats(&self) {
        let env = self.host.env();
        let every = self.host.options().worker_timeout / BEATS_A_TIMEOUT;
        if cfg!(mutation = "beats_by_progress") {
            return std::future::pending().await;
        }
        loop {
            let heard = *self.heard.lock();
            let silent = env.clock.monotonic().saturating_sub(heard);
            if silent < every {
                env.clock.sleep(every - silent).await;
                continue;
            }
            match self.progress(Vec::new(), None, false).await {
                Ok(true) => {}
                Ok(false) => return,
                // The store is away: whoever waits for it too will tell.
                Err(_) => env.clock.sleep(env.jittered(every)).await,
            }
        }
    }

    /// The job and the range as the record has them; `None` when they are not ours any more.
    async fn seen(&self) -> Result<Option<(Job, JobRange)>> {
        let chain = &self.host.compactor().chain;
        let Some(job) = chain.job(self.host.manifests(), self.job).await? else { return Ok(None) };
        let range = job.ranges.get(self.at).cloned();
        let mine = |range: &JobRange| range.claim.is_some_and(|one| one.worker == self.worker);
        Ok(range.filter(|range| mine(range) && !job.cancelled).map(|range| (job, range)))
    }

    /// Whether the range is this worker's.
    async fn claim(&self, instead_of: Option<Claim>) -> Result<bool> {
        if self.seen().await?.is_some() {
            return Ok(true);
        }
        // Whatever was uploaded under the names of the claim before is garbage.
        self.change(Change::Claim {
            job: self.job,
            range: self.at,
            worker: self.worker,
            instead_of,
            names: names_ahead(self.host.env()),
        })
        .await
    }

    /// Records what is new; whether the range is still this worker's.
    async fn progress(
        &self,
        outputs: Vec<SstDescriptor>,
        name: Option<SstId>,
        done: bool,
    ) -> Result<bool> {
        let (job, range, worker) = (self.job, self.at, self.worker);
        let names = name.into_iter().collect();
        self.change(Change::Progress { job, range, worker, outputs, names, done }).await
    }

    async fn change(&self, change: Change) -> Result<bool> {
        let host = &self.host;
        match host.compactor().chain.append(host.manifests(), change).await? {
            Ok(_) => {
                *self.heard.lock() = host.env().clock.monotonic();
                Ok(true)
            }
            Err(ChangeRefusal::Taken { .. }) if cfg!(mutation = "taken_claim_is_mine") => Ok(true),
            Err(ChangeRefusal::Taken { .. } | ChangeRefusal::NoSuchJob { .. }) => {
                self.lost.store(true, Ordering::Release);
                Ok(false)
            }
            Err(refusal) => Err(refusal.into()),
        }
    }

    /// Whether somebody still wants the result.
    fn is_wanted(&self) -> bool {
        !self.lost.load(Ordering::Acquire) && !self.stop.load(Ordering::Acquire)
    }

    /// The merge over what is left of the range. The inputs' metadata is read around the caches,
    /// but for what is there anyhow.
    async fn open(
        &self,
        job: &Job,
        range: &JobRange,
        layers: &[Vec<SstDescriptor>],
    ) -> Result<(Inputs, Merging)> {
        let (known, context) = (self.host.known_tables(), self.host.context());
        let budget = MetadataBudget::new(usize::MAX);
        let start = match range.resume_after() {
            // The smallest key behind it.
            Some(last) => [last.as_ref(), &[0]].concat(),
            None => range.keys.start.to_vec(),
        };
        let end = range.keys.end.as_deref();
        let wave = READ_AHEAD_BYTES / 3 / layers.len().max(1) as u64;
        let wave = wave.clamp(*WAVE_BYTES.start(), *WAVE_BYTES.end());
        let memory = &self.host.compactor().memory;
        let ahead = Ahead { first_bytes: wave, most_bytes: wave };
        let mut inputs = Inputs::reading_into(memory.waves.clone(), ahead);
        let mut runs = Vec::with_capacity(layers.len());
        let mut range_deletes = Vec::new();
        for layer in layers {
            let mut tables = Vec::new();
            for descriptor in layer.iter().filter(|table| table.overlaps(Some(&start), end)) {
                let handle = match known.get(&descriptor.id) {
                    Some(handle) => Arc::clone(handle),
                    None => TableHandle::new(descriptor.clone(), &budget),
                };
                let table = context.table(&handle).await?;
                range_deletes.extend_from_slice(table.range_deletes().list());
                let last = end.and_then(|end| table.table.find_block(end, Seq::MAX));
                let after = last.and_then(|last| last.checked_add(1));
                let cursor = inputs.add_table(&table.table, context, after);
                let cursor = cursor.ok_or_else(|| Error::internal("a job has an input twice"))?;
                tables.push((TableBounds::from(descriptor), cursor));
            }
            runs.push(RunCursor::new(tables));
        }
        let merge = Merge::new(runs, Direction::Forward).sharing(shared_by_all(layers));
        let retention = Retention {
            snapshots: job.facts.snapshots.clone().unwrap_or_default(),
            floor: job.facts.snapshots.is_none().then_some(self.floor(&job.facts)),
            bottom: range.keys.bottom || cfg!(mutation = "bottom_everywhere"),
            now: job.facts.now,
            operator: context.operator().cloned(),
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
        Ok((inputs, Merging::new(rows, ends, memory.chunks.clone())))
    }

    /// Above which every version is kept.
    fn floor(&self, facts: &JobFacts) -> Seq {
        match cfg!(mutation = "floor_of_the_moment") {
            true => self.host.manifests().newest_known().floor,
            false => facts.floor,
        }
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

    /// Builds one table and hands its bytes over: while a slice is merged, the one before is sent
    /// and what the next one will need comes in. `None` when nobody wants the table any more.
    async fn table(
        &self,
        name: SstId,
        options: TableOptions,
        inputs: &mut Inputs,
        merging: Merging,
    ) -> Result<Option<(Merging, Built)>> {
        let env = self.host.env();
        let upload = env.store.upload(ObjectName::Compacted(name)).await?;
        let attempt = AttemptId(env.random_u128());
        let database = self.host.manifests().database();
        let envelope = Envelope::new(ObjectKind::Table, database, ObjectId(name.get()), attempt);
        let builder = TableBuilder::new(options, envelope).writing_into(merging.buffer());
        let mut sender = Sender::begin(env, upload);
        match self.build((merging, builder), inputs, &mut sender).await {
            Ok(Some((merging, table, more))) => Ok(Some((merging, Built { sender, table, more }))),
            // An upload that fails is why nobody takes the next chunk.
            ended => sender.give_up().await.and(ended.map(|_| None)),
        }
    }

    async fn build(
        &self,
        state: (Merging, TableBuilder),
        inputs: &mut Inputs,
        sender: &mut Sender,
    ) -> Result<Option<(Merging, SstDescriptor, bool)>> {
        let filled = self.fill(state, &mut *inputs, sender).await?;
        let Some((mut merging, mut builder, more)) = filled else { return Ok(None) };
        merging.end_table(&mut builder, more)?;
        let finish = move || builder.finish();
        let (rest, table): (Bytes, _) = self.host.env().blocking("compact", finish).await??;
        let moved = inputs.take_asked() + rest.len() as u64;
        sender.send(rest).await?;
        self.pay(moved).await?;
        Ok(Some((merging, table, more)))
    }

    /// Slices until the table ends; answers whether an entry is left for the next one, or `None`
    /// when nobody wants the table any more.
    async fn fill(
        &self,
        mut state: (Merging, TableBuilder),
        inputs: &mut Inputs,
        sender: &mut Sender,
    ) -> Result<Option<(Merging, TableBuilder, bool)>> {
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
                Made::Chunk(chunk) => {
                    let moved = inputs.take_asked() + chunk.len() as u64;
                    sender.send(chunk).await?;
                    self.pay(moved).await?;
                }
                Made::TableEnds => return Ok(Some((state.0, state.1, true))),
                Made::End => return Ok(Some((state.0, state.1, false))),
            }
            self.host.check_open()?;
            if !self.is_wanted() {
                return Ok(None);
            }
        }
    }

    /// Waits as long as these bytes are worth, where compactions are held to a rate.
    async fn pay(&self, bytes: u64) -> Result<()> {
        let options = &self.host.options().compaction;
        let Some(per_second) = options.compaction_bytes_per_second else { return Ok(()) };
        let go_on = || self.is_wanted() && self.host.check_open().is_ok();
        let limit = &self.host.compactor().limit;
        limit.pay(&*self.host.env().clock, bytes, per_second, go_on).await;
        self.host.check_open()
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
        self.host.env().blocking("compact", work).await
    }
}

/// Names for a range that is claimed.
pub(super) fn names_ahead(env: &Env) -> Vec<SstId> {
    (0..NAMES_AHEAD).map(|_| SstId(env.new_ulid())).collect()
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
