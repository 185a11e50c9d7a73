//! One key range of a job: its inputs merged into tables, each recorded before the next is
//! completed. While one is synced and recorded, the next one is being merged already: two names are
//! reserved ahead (RFC 0019).

use super::host::Host;
use super::merging::{MergeStop, Merging, Slice};
use super::opening;
use super::sending::{Sender, UploadResult};
use crate::io::env::{Env, Spawn};
use crate::io::supervise::caught;
use crate::readahead::inputs::Inputs;
use futures::channel::oneshot;
use futures::future::{Either, join, select};
use parking_lot::Mutex;
use siltstone_base::{
    AttemptId, Envelope, Error, JobId, ObjectId, ObjectKind, ObjectName, Result, SstDescriptor,
    SstId, Step,
};
use siltstone_manifest::compaction::{
    Change, ChangeRefusal, Claim, Job, JobFacts, JobRange, seen_output,
};
use siltstone_sst::{Codec, TableBuilder, TableOptions};
use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Size of a chunk for a store that is far, and what is written at a time where compactions are
/// held to a rate: a few milliseconds of one core.
pub(super) const SLICE_BYTES: usize = 2 << 20;
/// Names that a range has ahead: of the table that is being recorded while the next one is made,
/// and of that one.
pub(super) const NAMES_AHEAD: usize = 2;
/// Signs of life in the time after which a stalled worker counts as dead: two may be lost.
const HEARTBEATS_A_TIMEOUT: u32 = 3;

/// How the work on a range ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RangeEnding {
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
    wanted: ResultWanted,
    /// When the record last heard of this worker, by the clock that never goes back.
    heard: Mutex<Duration>,
    /// Dropped once nothing is left to merge: somebody else may have the core, while the last table
    /// is synced and recorded.
    merging: Mutex<Option<oneshot::Sender<()>>>,
    /// The folder of its tables, where it works on a unit.
    folder: Option<JobId>,
}

/// Whether the result is wanted. A clone tells the same.
#[derive(Clone)]
struct ResultWanted {
    /// Set when nobody wants it any more.
    stop: Arc<AtomicBool>,
    /// Set once the claim was found gone.
    lost: Arc<AtomicBool>,
}

impl ResultWanted {
    /// Whether somebody still wants it.
    fn holds(&self) -> bool {
        !self.lost.load(Ordering::Acquire) && !self.stop.load(Ordering::Acquire)
    }

    /// The claim is gone.
    fn lose(&self) {
        self.lost.store(true, Ordering::Release);
    }
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
    sent: UploadResult,
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
        let wanted = ResultWanted { stop: Arc::clone(stop), lost: Arc::default() };
        let (host, merging) = (Arc::clone(host), Mutex::default());
        RangeWorker { host, job, at, worker, wanted, heard, merging, folder: None }
    }

    /// For a unit: it claims nothing, and records nothing.
    pub(super) fn of_unit(host: &Arc<dyn Host>, (job, at): (JobId, usize)) -> RangeWorker {
        let alone = RangeWorker::new(host, (job, at), AttemptId::NONE, &Arc::default());
        RangeWorker { folder: Some(JobId::of_units(job)), ..alone }
    }

    /// Merges what is left of `range` into tables of the unit's folder, each under a name that
    /// nobody else gives (rule U1): all of them, key ascending, once they are durable.
    ///
    /// # Errors
    /// The store's; Corruption; Closed once the process is stopped. What was uploaded is garbage.
    pub(super) async fn make(
        &self,
        job: &Job,
        range: &JobRange,
        layers: &[Vec<SstDescriptor>],
    ) -> Result<Vec<SstDescriptor>> {
        let options = table_options(&job.facts)?;
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
            // The one before was synced while this one was made.
            if let Some(sent) = before.replace(built.sender.complete().await) {
                sent.done().await?;
            }
        }
        if let Some(sent) = before {
            sent.done().await?;
        }
        Ok(tables)
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
            // The claim is gone: the merge stops at its next slice.
            Either::Right(((), merged)) => merged.await,
        }
    }

    async fn merge(&self, layers: &[Vec<SstDescriptor>]) -> Result<RangeEnding> {
        let Some((job, range)) = self.seen().await? else { return Ok(RangeEnding::Lost) };
        let options = match cfg!(mutation = "own_options_decide") {
            true => self.host.options().table_options(),
            false => table_options(&job.facts)?,
        };
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
                // One name ahead is what earlier versions reserved.
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

    /// Waits until a table is durable and records it; whether the range is still this worker's.
    async fn finish(&self, table: Option<Finishing>) -> Result<bool> {
        let Some(Finishing { sent, table, name }) = table else { return Ok(true) };
        let finished = async {
            sent.done().await?;
            self.progress(vec![table], name, name.is_none()).await
        };
        // The table behind it is not wanted then.
        finished.await.inspect_err(|_| self.wanted.lose())
    }

    /// Says that the worker lives whenever the record has not heard of it for a while, however long
    /// a table takes. Ends when the claim is gone.
    async fn heartbeats(&self) {
        let env = self.host.env();
        let every = self.host.options().compactors.worker_timeout / HEARTBEATS_A_TIMEOUT;
        if cfg!(mutation = "heartbeats_by_progress") {
            return std::future::pending().await;
        }
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
                self.wanted.lose();
                Ok(false)
            }
            Err(refusal) => Err(refusal.into()),
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

    /// Slices until the table ends; answers whether an entry is left for the next one, or `None`
    /// when nobody wants the table any more.
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
                    return Err(Error::internal("reading ahead has an end"));
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
            self.host.check_open()?;
            if !self.wanted.holds() {
                return Ok(None);
            }
        }
    }

    /// Waits as long as these bytes are worth, where compactions are held to a rate.
    async fn pay(&self, bytes: u64) -> Result<()> {
        let options = &self.host.options().compaction;
        let Some(per_second) = options.compaction_bytes_per_second else { return Ok(()) };
        let go_on = || self.wanted.holds() && self.host.check_open().is_ok();
        let limit = &self.host.compactor().limit;
        limit.pay(&*self.host.env().clock, bytes, per_second, go_on).await;
        self.host.check_open()
    }

    /// One slice where it holds up no task. A store that takes chunks at once is given them until
    /// the table ends, nobody wants it any more, or its bytes are to be paid for.
    async fn slice(
        &self,
        (mut merging, mut builder): (Merging, TableBuilder),
        sender: &mut Sender,
    ) -> Result<((Merging, TableBuilder), Result<Slice>)> {
        let (host, wanted) = (Arc::clone(&self.host), self.wanted.clone());
        let rate = host.options().compaction.compaction_bytes_per_second;
        let most = rate.map_or(u64::MAX, |_| SLICE_BYTES as u64);
        let go_on = move |written| written < most && wanted.holds() && host.check_open().is_ok();
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

/// Work on a range, as a task of its own: whoever waits for it may wait for something else first,
/// also for the turn that it holds.
///
/// # Errors
/// Those of `work`; Internal where it panics.
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
