//! One key range of a job: merges its inputs into tables and records each table before it completes
//! the next. While a table is synced and recorded, the next one is merged already, so two names are
//! reserved in advance (RFC 0019).

use super::host::Host;
use super::merging::{MergeStop, Merging, Slice};
use super::opening;
use super::sending::{Sender, UploadResult};
use crate::readahead::inputs::Inputs;
use futures::channel::oneshot;
use futures::future::{Either, join, select};
use parking_lot::Mutex;
use siltstone_base::{
    AttemptId, Envelope, Error, JobId, ObjectId, ObjectKind, ObjectName, Result, SstDescriptor,
    SstId, Step,
};
use siltstone_manifest::compaction::{
    Change, ChangeRefusal, Claim, Job, JobParameters, JobRange, seen_output,
};
use siltstone_sst::{Codec, TableBuilder, TableOptions};
use siltstone_store::env::{Env, Spawn};
use siltstone_store::supervise::caught;
use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Size of a chunk for a remote store, and the amount written at a time if compactions are limited
/// to a rate: a few milliseconds of one core.
pub(super) const SLICE_BYTES: usize = 2 << 20;
/// Names that a range has reserved: of the table that is being recorded, and of the one that is
/// being built meanwhile.
pub(super) const NAMES_AHEAD: usize = 2;
/// Heartbeats within the time after which a stalled worker counts as dead. Two may be lost.
const HEARTBEATS_A_TIMEOUT: u32 = 3;

/// How the work on a range ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RangeEnding {
    /// The range is finished.
    Done,
    /// Another worker has the range now, or its job has to end. Tables that were not recorded are
    /// garbage.
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
    wanted: ResultWanted,
    /// Time of the last change of this worker in the record, by the monotonic clock.
    heard: Mutex<Duration>,
    /// Dropped once nothing is left to merge. Another range may use the core while the last table
    /// is synced and recorded.
    merging: Mutex<Option<oneshot::Sender<()>>>,
    /// The folder of its tables if it works on a unit.
    folder: Option<JobId>,
}

/// Whether the result is still wanted. Clones share the state.
#[derive(Clone)]
struct ResultWanted {
    /// Set when the result is no longer wanted.
    stop: Arc<AtomicBool>,
    /// Set once the worker has found that it lost its claim.
    lost: Arc<AtomicBool>,
}

impl ResultWanted {
    /// Whether the result is still wanted.
    fn holds(&self) -> bool {
        !self.lost.load(Ordering::Acquire) && !self.stop.load(Ordering::Acquire)
    }

    /// Records that the claim is lost.
    fn lose(&self) {
        self.lost.store(true, Ordering::Release);
    }
}

/// A table whose bytes are all built and handed over.
struct Built {
    sender: Sender,
    table: SstDescriptor,
    /// Whether an entry is left for the next table.
    more: bool,
}

/// A table that is being synced and recorded.
struct Finishing {
    sent: UploadResult,
    table: SstDescriptor,
    /// The name that is reserved with the table; `None` if it is the last one.
    name: Option<SstId>,
}

impl RangeWorker {
    /// A worker for the range at index `at`, under the claim of `worker`, until `stop` is set.
    pub(super) fn new(
        host: &Arc<dyn Host>,
        (job, at): (JobId, usize),
        worker: AttemptId,
        stop: &Arc<AtomicBool>,
    ) -> RangeWorker {
        let heard = Mutex::new(host.env().clock.monotonic());
        let wanted = ResultWanted { stop: Arc::clone(stop), lost: Arc::default() };
        let (host, merging) = (Arc::clone(host), Mutex::default());
        RangeWorker { host, job, at, worker, wanted, heard, merging, folder: None }
    }

    /// A worker for a unit. It makes no claim and no record.
    pub(super) fn of_unit(host: &Arc<dyn Host>, (job, at): (JobId, usize)) -> RangeWorker {
        let alone = RangeWorker::new(host, (job, at), AttemptId::NONE, &Arc::default());
        RangeWorker { folder: Some(JobId::of_units(job)), ..alone }
    }

    /// Merges the rest of `range` into tables of the unit's folder. Each table has a name that no
    /// other worker uses (rule U1). Returns all of them in key order, once they are durable.
    ///
    /// # Errors
    /// Errors of the store; Corruption; Closed once the process is stopped. Uploaded tables are
    /// garbage then.
    pub(super) async fn make(
        &self,
        job: &Job,
        range: &JobRange,
        layers: &[Vec<SstDescriptor>],
    ) -> Result<Vec<SstDescriptor>> {
        let options = table_options(&job.parameters)?;
        let (mut inputs, mut merging) = opening::open(&*self.host, job, range, layers).await?;
        let (mut tables, mut before) = (Vec::new(), None::<UploadResult>);
        let mut more = true;
        while more && (self.place(&mut inputs, &mut merging).await? || merging.has_range_deletes())
        {
            let name = SstId(self.host.env().new_ulid());
            let made = self.table(name, options, &mut inputs, merging).await?;
            let (back, built) = made.ok_or_else(|| Error::internal("a unit is always wanted"))?;
            merging = back;
            more = built.more;
            tables.push(built.table);
            // The previous table was synced while this one was built.
            if let Some(sent) = before.replace(built.sender.complete().await) {
                sent.done().await?;
            }
        }
        if let Some(sent) = before {
            sent.done().await?;
        }
        Ok(tables)
    }

    /// The worker, and a receiver that completes when nothing is left to merge.
    pub(super) fn telling(self) -> (RangeWorker, oneshot::Receiver<()>) {
        let (merging, merged) = oneshot::channel();
        *self.merging.lock() = Some(merging);
        (self, merged)
    }

    /// Merges the rest of the range as a separate task. Claims the range in place of `instead_of`,
    /// unless it is claimed already. The task is separate because a range that holds the turn of
    /// the record must make progress even if its job waits for something else.
    ///
    /// # Errors
    /// Errors of the store; Corruption; Closed once the handle closes; Fenced. The next worker
    /// continues after the recorded progress.
    pub(super) async fn work(
        self,
        layers: Layers,
        instead_of: Option<Claim>,
    ) -> Result<RangeEnding> {
        let spawn = Arc::clone(&self.host.env().spawn);
        apart(&*spawn, async move { self.run(&layers, instead_of).await }).await
    }

    async fn run(
        self,
        layers: &[Vec<SstDescriptor>],
        instead_of: Option<Claim>,
    ) -> Result<RangeEnding> {
        if !self.claim(instead_of).await? {
            return Ok(RangeEnding::Lost);
        }
        let merged = pin!(self.merge(layers));
        let heartbeats = pin!(self.heartbeats());
        match select(merged, heartbeats).await {
            Either::Left((ended, _)) => ended,
            // The claim is lost, so the merge stops at its next slice.
            Either::Right(((), merged)) => merged.await,
        }
    }

    async fn merge(&self, layers: &[Vec<SstDescriptor>]) -> Result<RangeEnding> {
        let Some((job, range)) = self.seen().await? else { return Ok(RangeEnding::Lost) };
        let options = table_options(&job.parameters)?;
        let (mut inputs, mut merging) = opening::open(&*self.host, &job, &range, layers).await?;
        let mut names: VecDeque<SstId> = range.reserved.into();
        let mut before: Option<Finishing> = None;
        loop {
            let placed = match self.place(&mut inputs, &mut merging).await {
                Ok(placed) => placed,
                Err(error) => return self.finish(before.take()).await.and(Err(error)),
            };
            if !placed && !merging.has_range_deletes() {
                let ended = self.progress(Vec::new(), None, true).await?;
                return Ok(if ended { RangeEnding::Done } else { RangeEnding::Lost });
            }
            if names.is_empty() {
                // Earlier versions reserved only one name.
                names.extend(before.as_ref().and_then(|table| table.name));
                if !self.finish(before.take()).await? {
                    return Ok(RangeEnding::Lost);
                }
            }
            let reserved = names.pop_front();
            let reserved =
                reserved.ok_or_else(|| Error::internal("a range has no name for its table"))?;
            names.extend(before.as_ref().and_then(|table| table.name));
            let table = self.table(reserved, options, &mut inputs, merging);
            let (built, recorded) = join(table, self.finish(before.take())).await;
            let (back, built) = match (built, recorded) {
                (Ok(Some(built)), Ok(true)) => built,
                (built, recorded) => {
                    if let Ok(Some((_, built))) = built {
                        built.sender.give_up().await?;
                        recorded?;
                    } else {
                        recorded.and(built.map(|_| ()))?;
                    }
                    return Ok(RangeEnding::Lost);
                }
            };
            merging = back;
            let name = built.more.then(|| SstId(self.host.env().new_ulid()));
            let sent = built.sender.complete().await;
            let finishing = Finishing { sent, table: built.table, name };
            if built.more {
                before = Some(finishing);
                continue;
            }
            drop(self.merging.lock().take());
            let ended = self.finish(Some(finishing)).await?;
            return Ok(if ended { RangeEnding::Done } else { RangeEnding::Lost });
        }
    }

    /// Waits until a table is durable and records it. Returns whether the range is still this
    /// worker's.
    async fn finish(&self, table: Option<Finishing>) -> Result<bool> {
        let Some(Finishing { sent, table, name }) = table else { return Ok(true) };
        let finished = async {
            sent.done().await?;
            self.progress(vec![table], name, name.is_none()).await
        };
        // The next table is no longer wanted then.
        finished.await.inspect_err(|_| self.wanted.lose())
    }

    /// Sends a heartbeat whenever the record has had no change of this worker for a while, even
    /// while a table takes long. Ends when the claim is lost.
    async fn heartbeats(&self) {
        let env = self.host.env();
        let every = self.host.options().compactors.worker_timeout / HEARTBEATS_A_TIMEOUT;
        loop {
            let heard = *self.heard.lock();
            let since = env.clock.monotonic().saturating_sub(heard);
            if since < every {
                env.clock.sleep(every - since).await;
                continue;
            }
            match self.progress(Vec::new(), None, false).await {
                Ok(true) => {}
                Ok(false) => return,
                // The store is unavailable; the merge reports that.
                Err(_) => env.clock.sleep(env.jittered(every)).await,
            }
        }
    }

    /// The job and the range as recorded; `None` if the range is no longer this worker's.
    async fn seen(&self) -> Result<Option<(Job, JobRange)>> {
        let chain = &self.host.compactor().chain;
        let Some(job) = chain.job(self.host.manifests(), self.job).await? else { return Ok(None) };
        let range = job.ranges.get(self.at).cloned();
        let mine = |range: &JobRange| range.claim.is_some_and(|one| one.worker == self.worker);
        Ok(range.filter(|range| mine(range) && !job.cancelled).map(|range| (job, range)))
    }

    /// Claims the range. Returns whether it is this worker's.
    async fn claim(&self, instead_of: Option<Claim>) -> Result<bool> {
        if self.seen().await?.is_some() {
            return Ok(true);
        }
        // Uploads under the names of the earlier claim are garbage.
        self.change(Change::Claim {
            job: self.job,
            range: self.at,
            worker: self.worker,
            instead_of,
            names: names_ahead(self.host.env()),
        })
        .await
    }

    /// Records progress. Returns whether the range is still this worker's.
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
            Err(ChangeRefusal::Taken { .. } | ChangeRefusal::NoSuchJob { .. }) => {
                self.wanted.lose();
                Ok(false)
            }
            Err(refusal) => Err(refusal.into()),
        }
    }

    /// Advances to the next entry. Returns whether there is one.
    async fn place(&self, inputs: &mut Inputs, merging: &mut Merging) -> Result<bool> {
        loop {
            match merging.place()? {
                Step::Ready => return Ok(true),
                Step::End => return Ok(false),
                Step::NeedBlock(_) => inputs.fetch(&merging.needed()).await?,
            }
        }
    }

    /// Builds one table and hands over its bytes. While a slice is merged, the previous one is sent
    /// and the blocks of the next one are read. Returns `None` if the table is no longer wanted.
    async fn table(
        &self,
        name: SstId,
        options: TableOptions,
        inputs: &mut Inputs,
        merging: Merging,
    ) -> Result<Option<(Merging, Built)>> {
        let env = self.host.env();
        let place = match self.folder {
            None => ObjectName::Compacted(name),
            Some(folder) => ObjectName::IngestSst(folder, name),
        };
        let upload = env.store.upload(place).await?;
        let attempt = AttemptId(env.random_u128());
        let database = self.host.manifests().database();
        let envelope = Envelope::new(ObjectKind::Table, database, ObjectId(name.get()), attempt);
        let scratch = self.host.compactor().memory.scratch.lock().pop().unwrap_or_default();
        let builder = TableBuilder::reusing(scratch, options, envelope);
        let builder = builder.expecting(merging.entries_a_table()).writing_into(merging.buffer());
        let mut sender = Sender::begin(env, upload);
        match self.build((merging, builder), inputs, &mut sender).await {
            Ok(Some((merging, table, more))) => Ok(Some((merging, Built { sender, table, more }))),
            // If no chunk is accepted, the upload has failed; its error is the result.
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
        let last = builder.last_key().to_vec();
        let deleted_to = merging.end_table(&mut builder, more)?;
        let before_tail = merging.before_tail(&mut builder);
        let finish = move || builder.finish_for_next();
        let finished = self.host.env().blocking("compact", finish).await??;
        self.host.compactor().memory.keep(finished.scratch);
        let mut moved = inputs.take_asked();
        for chunk in before_tail.into_iter().chain([merging.lend(finished.rest)]) {
            moved += chunk.len() as u64;
            sender.send(chunk).await?;
        }
        self.pay(moved).await?;
        let (to, inputs) = (deleted_to.as_ref(), inputs.descriptors());
        let table = seen_output(finished.table, &last, to, inputs);
        Ok(Some((merging, SstDescriptor { job: self.folder, ..table }, more)))
    }

    /// Merges slices until the table ends. Returns whether an entry is left for the next table, or
    /// `None` if the table is no longer wanted.
    async fn fill(
        &self,
        mut state: (Merging, TableBuilder),
        inputs: &mut Inputs,
        sender: &mut Sender,
    ) -> Result<Option<(Merging, TableBuilder, bool)>> {
        loop {
            let slice = {
                let slice = pin!(self.slice(state, sender));
                let coming = pin!(inputs.come_in());
                let Either::Left((sliced, _)) = select(slice, coming).await else {
                    return Err(Error::internal("the read-ahead ended"));
                };
                let (back, slice) = sliced?;
                state = back;
                slice?
            };
            let mut moved = slice.written + inputs.take_asked();
            let ended = match slice.made {
                Some(MergeStop::NeedsBlocks) => {
                    inputs.fetch(&state.0.needed()).await?;
                    None
                }
                Some(MergeStop::Chunk(chunk)) => {
                    moved += chunk.len() as u64;
                    sender.send(chunk).await?;
                    None
                }
                Some(MergeStop::TableEnds) => Some(true),
                Some(MergeStop::End) => Some(false),
                None => None,
            };
            self.pay(moved).await?;
            if let Some(more) = ended {
                return Ok(Some((state.0, state.1, more)));
            }
            self.check_open()?;
            if !self.wanted.holds() {
                return Ok(None);
            }
        }
    }

    /// Waits according to the rate limit of compactions, if there is one.
    async fn pay(&self, bytes: u64) -> Result<()> {
        let options = &self.host.options().compaction;
        let Some(per_second) = options.compaction_bytes_per_second else { return Ok(()) };
        let go_on = || self.wanted.holds() && self.check_open().is_ok();
        let limit = &self.host.compactor().limit;
        limit.pay(&*self.host.env().clock, bytes, per_second, go_on).await;
        self.check_open()
    }

    fn check_open(&self) -> Result<()> {
        self.host.compactor().check_open(&*self.host, self.job)
    }

    /// Merges one slice on a blocking thread. A store that accepts chunks immediately gets them
    /// until the table ends, the table is no longer wanted, or the rate limit requires a wait.
    async fn slice(
        &self,
        (mut merging, mut builder): (Merging, TableBuilder),
        sender: &mut Sender,
    ) -> Result<((Merging, TableBuilder), Result<Slice>)> {
        let (host, wanted) = (Arc::clone(&self.host), self.wanted.clone());
        let rate = host.options().compaction.compaction_bytes_per_second;
        let most = rate.map_or(u64::MAX, |_| SLICE_BYTES as u64);
        let job = self.job;
        let is_open = move || host.compactor().check_open(&*host, job).is_ok();
        let go_on = move |written| written < most && wanted.holds() && is_open();
        let mut upload = sender.lend();
        let work = move || {
            let made = merging.slice(&mut builder, upload.as_deref_mut(), go_on);
            ((merging, builder), made, upload)
        };
        let (state, made, upload) = self.host.env().blocking("compact", work).await?;
        sender.take_back(upload);
        Ok((state, made))
    }
}

/// Runs work on a range as a separate task. The caller may wait for something else first, even for
/// the turn that the work holds.
///
/// # Errors
/// Errors of `work`; Internal if it panics.
pub(super) async fn apart<T: Send + 'static>(
    spawn: &dyn Spawn,
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let (answer, answered) = oneshot::channel();
    let task = async move {
        let worked = caught("compact range", work).await;
        drop(answer.send(worked.flatten()));
    };
    spawn.spawn("compact range", Box::pin(task));
    let gone = || Error::internal("a range of a compaction was dropped before its end");
    answered.await.unwrap_or_else(|_| Err(gone()))
}

/// Names for a range that is claimed.
pub(super) fn names_ahead(env: &Env) -> Vec<SstId> {
    (0..NAMES_AHEAD).map(|_| SstId(env.new_ulid())).collect()
}

/// The table options of the job, which override those of this process.
fn table_options(facts: &JobParameters) -> Result<TableOptions> {
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
