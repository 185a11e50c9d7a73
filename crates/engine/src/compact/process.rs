//! A compactor in its own process. It has no writer, and reads what it needs from the manifest
//! (RFC 0021).

use super::event::CompactorEvent;
use super::host::{Host, HostParts, KnownTables};
use super::job::either;
use super::{CompactionRequest, Compactor, compact, schedule, worker};
use crate::cache::ancestors::Ancestors;
use crate::cache::blocks::BlockCache;
use crate::cache::fetch::{Needs, ReadContext, brought};
use crate::cache::handle_counters::HandleCounters;
use crate::manifests::client::{ManifestClient, Observer, newest};
use crate::manifests::gate;
use crate::manifests::objects::Objects;
use crate::options::Options;
use crate::read::settings::check_settings;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use siltstone_base::{Epoch, Error, MergeOperator, Result, Seq};
use siltstone_manifest::{Edit, Manifest};
use siltstone_sst::Codec;
use siltstone_store::counting::count;
use siltstone_store::env::Env;
use siltstone_store::supervise::closed;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// Factor by which the pause between two looks grows while nothing happens: 2 s become 16 s, which
/// is 0.06 reads per second, or less than 0.1 requests with the listings in between.
pub(super) const SLOWEST_LOOKS: u32 = 8;
/// Longest time for which an ending process tries to release its epoch.
const RELEASE_LIMIT: Duration = Duration::from_secs(2);
/// Looks by one read before a listing (rule M4).
const LOOKS_BY_READ: u32 = 15;

/// How to run a compactor in its own process.
#[derive(Clone, Default)]
pub struct CompactorOptions {
    /// Options. Those about reading and writing rows have no effect. Without `compression`, new
    /// tables have the codec with which the database was created.
    pub options: Options,
    /// The merge operator with whose name the database was created.
    pub merge_operator: Option<Arc<dyn MergeOperator>>,
    /// Number of workers that are expected in other processes. Jobs are split into ranges for all
    /// of them. With 0 the compactor merges everything itself.
    pub workers: usize,
}

impl fmt::Debug for CompactorOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompactorOptions")
            .field("options", &self.options)
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}

/// A compactor, or a worker of one, in a process without a writer. Clones are cheap and share one
/// compactor.
#[derive(Clone)]
pub struct CompactorProcess {
    pub(super) process: Arc<Process>,
}

impl fmt::Debug for CompactorProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompactorProcess").field("store", &self.process.env.store).finish()
    }
}

/// Receives the events of a compactor.
type Listener = Box<dyn Fn(CompactorEvent) + Send + Sync>;

/// The state that the tasks of the process share.
pub(super) struct Process {
    pub(super) env: Env,
    /// The codec of new tables, if it was given.
    codec: Option<Codec>,
    pub(super) options: Options,
    workers: usize,
    pub(super) manifests: ManifestClient,
    context: ReadContext,
    pub(super) compactor: Compactor,
    /// Bytes of all tables at open.
    bytes: u64,
    life: Arc<CompactorObserver>,
    pace: Mutex<PollPace>,
    listener: Listener,
}

/// The observer of the manifest client.
#[derive(Default)]
struct CompactorObserver {
    /// Once set, no commit is retried.
    stopped: AtomicBool,
    /// Wakes the task that waits for something to do.
    news: Notify,
}

impl Observer for CompactorObserver {
    fn learns(&self, _: &Arc<Manifest>) {
        self.news.notify_one();
    }

    fn ended(&self) -> Option<Error> {
        self.stopped.load(Ordering::Acquire).then(closed)
    }
}

/// How often the process looks for a newer manifest.
struct PollPace {
    pause: Duration,
    looks: u32,
}

impl CompactorProcess {
    /// Finds the database without writing anything. `listener` is called for every event, on any
    /// thread, and must not block.
    ///
    /// # Errors
    /// NotFound if there is no database; Invalid for invalid options or an unsuitable merge
    /// operator; Denied, Unavailable, Timeout, Corruption, Unsupported.
    pub async fn open(
        env: Env,
        how: CompactorOptions,
        listener: impl Fn(CompactorEvent) + Send + Sync + 'static,
    ) -> Result<CompactorProcess> {
        let codec = how.options.compression;
        let options = how.options.on(&*env.store);
        options.validate()?;
        let (env, requests) = count(env);
        let env = options.caching(env)?;
        let objects = Objects { env: env.clone(), limit: options.deadline };
        let newest = newest(&objects).await?;
        let life = Arc::new(CompactorObserver::default());
        let context = ReadContext::from(Needs {
            env: env.clone(),
            requests,
            asked: Arc::new(HandleCounters::since(env.clock.monotonic())),
            cache: Arc::new(BlockCache::new(0, options.block_bytes)),
            ancestors: Ancestors::default(),
            operator: brought(how.merge_operator),
            latest: AtomicU64::default(),
            deadline: options.deadline,
            writer: None,
        });
        check_settings(&newest, &context)?;
        gate::check_changes(&newest)?;
        let bytes = newest.tables().map(|table| table.object_bytes).sum();
        let process = Arc::new(Process {
            env,
            workers: how.workers,
            manifests: ManifestClient::new(objects, newest, Arc::<CompactorObserver>::clone(&life)),
            context,
            compactor: Compactor::default(),
            bytes,
            life,
            pace: Mutex::new(PollPace { pause: options.compactors.poll_interval, looks: 0 }),
            codec,
            options,
            listener: Box::new(listener),
        });
        Ok(CompactorProcess { process })
    }

    /// Compacts as the scheduler decides, until [`CompactorProcess::stop`]. The next compactor
    /// continues after the recorded progress.
    ///
    /// # Errors
    /// Fenced once another compactor has taken over; NotFound if the database was destroyed;
    /// Denied, or Timeout after `deadline`, if the store accepts nothing from the beginning. Later
    /// errors are reported as events and retried.
    pub fn run(&self) -> BoxFuture<'_, Result<()>> {
        async move {
            let host: Arc<dyn Host> = Arc::<Process>::clone(&self.process);
            let ran = schedule::run(&host).await;
            self.process.compactor.at_rest().await;
            self.release().await;
            ran.map_err(|error| error.during("run compactor"))
        }
        .boxed()
    }

    /// Merges all tables into one sorted run and releases the epoch. An embedded compactor that
    /// this one stopped continues after its next flush. Returns `false` if there is nothing to
    /// gain.
    ///
    /// # Errors
    /// As [`crate::Database::compact`].
    pub fn compact(&self) -> BoxFuture<'_, Result<bool>> {
        async move { self.carry_out(CompactionRequest::Major).await }.boxed()
    }

    /// Bytes read from the store so far, and bytes of all tables at open: the progress of
    /// [`CompactorProcess::compact`]. This is an estimate, because some tables are not read, and
    /// manifests are read too.
    #[must_use]
    pub fn bytes(&self) -> (u64, u64) {
        (self.process.context.requests.totals().bytes_read, self.process.bytes)
    }

    /// Carries out a plan of the caller, as [`crate::Database::submit`], and releases the epoch.
    ///
    /// # Errors
    /// As [`crate::Database::submit`].
    pub fn submit<'a>(&'a self, plan: &'a str) -> BoxFuture<'a, Result<bool>> {
        async move { self.carry_out(CompactionRequest::Plan(plan.parse()?)).await }.boxed()
    }

    async fn carry_out(&self, wanted: CompactionRequest) -> Result<bool> {
        let gained = compact(Arc::<Process>::clone(&self.process), wanted).await;
        self.release().await;
        gained.map_err(|error| error.during("compact"))
    }

    /// Merges ranges of jobs that a compactor elsewhere has started, until
    /// [`CompactorProcess::stop`].
    ///
    /// # Errors
    /// NotFound if the database was destroyed; Unsupported for a record that this version cannot
    /// read; Denied, or Timeout after `deadline`, if the store accepts nothing of the first range.
    /// Later errors are reported as events and retried.
    pub fn work(&self) -> BoxFuture<'_, Result<()>> {
        async move {
            worker::run(&self.process).await.map_err(|error| error.during("work for a compactor"))
        }
        .boxed()
    }

    /// Ends [`CompactorProcess::run`], [`CompactorProcess::work`] and the running operations soon.
    pub fn stop(&self) {
        self.process.life.stopped.store(true, Ordering::Release);
        self.process.life.news.notify_one();
    }

    /// Releases the epoch, so that other compactors know. A failure does no harm, because the next
    /// compactor claims the epoch anyway.
    pub(super) async fn release(&self) {
        let process = &self.process;
        let epoch = process.compactor.give_up_epoch();
        if epoch != Epoch::NONE {
            let released = process.manifests.try_commit(Edit::ReleaseCompactor { epoch });
            // A failure is ignored: the caller returns the result of the work itself.
            drop(either(released, process.env.clock.sleep(RELEASE_LIMIT)).await);
        }
    }
}

impl Process {
    /// Waits for `pause`, or until an event in this process.
    pub(super) async fn rests(&self, pause: Duration) {
        either(self.life.news.notified(), self.env.clock.sleep(pause)).await;
    }

    /// The pause before the next look. It grows with each look, and is short again after news.
    pub(super) fn next_pause(&self, news: bool) -> Duration {
        let shortest = self.options.compactors.poll_interval;
        let mut pace = self.pace.lock();
        let grown = (pace.pause * 3 / 2).min(shortest * SLOWEST_LOOKS);
        pace.pause = if news { shortest } else { grown };
        self.env.jittered(pace.pause)
    }

    /// Looks for a newer manifest. Returns whether there was one.
    ///
    /// # Errors
    /// Errors of the store; NotFound if the database was destroyed; Invalid if the database now has
    /// a merge operator that this process lacks.
    pub(super) async fn look(&self) -> Result<bool> {
        let thorough = {
            let mut pace = self.pace.lock();
            pace.looks += 1;
            pace.looks.is_multiple_of(LOOKS_BY_READ + 1)
        };
        let known = self.manifests.newest_known().id;
        let newest = self.manifests.probe(thorough).await?;
        // A writer may have recorded a merge operator meanwhile.
        check_settings(&newest, &self.context)?;
        Ok(newest.id > known)
    }
}

impl Host for Process {
    fn parts(&self) -> HostParts<'_> {
        HostParts {
            env: &self.env,
            options: &self.options,
            manifests: &self.manifests,
            context: &self.context,
            compactor: &self.compactor,
            writer: None,
            workers: self.workers,
        }
    }

    fn check_open(&self) -> Result<()> {
        self.life.ended().map_or(Ok(()), Err)
    }

    /// Only the writer knows which numbers are read, so every version above its floor is kept.
    fn retention(&self, state: &Manifest) -> (Seq, Option<Vec<Seq>>) {
        (state.floor, None)
    }

    fn known_tables(&self) -> KnownTables {
        KnownTables::default()
    }

    fn codec(&self, state: &Manifest) -> String {
        match self.codec {
            None => state.settings.codec.clone(),
            Some(given) => given.as_str().to_owned(),
        }
    }

    fn needs_compaction(&self) -> bool {
        false
    }

    fn nudge(&self) {
        self.life.news.notify_one();
    }

    /// Woken by a newer manifest, by the end of a job, and by the end of the process.
    fn idle(&self, until: Option<Duration>) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if let Some(until) = until {
                let left = until.saturating_sub(self.env.clock.monotonic());
                return self.rests(left).await;
            }
            let known = self.manifests.newest_known().id;
            let pause = self.next_pause(false);
            self.rests(pause).await;
            if self.check_open().is_err() || self.manifests.newest_known().id > known {
                return;
            }
            match self.look().await {
                Ok(true) => drop(self.next_pause(true)),
                Ok(false) => {}
                Err(error) => self.compactor.fails(error),
            }
        })
    }

    /// This process has no reads.
    fn adopt_outputs(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn emit(&self, event: CompactorEvent) {
        event.log();
        (self.listener)(event);
    }
}
