//! A compactor in a process of its own: it has no writer, and reads what it must know from the
//! manifest (RFC 0021).

use super::event::CompactorEvent;
use super::host::{Host, HostParts, KnownTables};
use super::job::either;
use super::{CompactionRequest, Compactor, compact, schedule, worker};
use crate::cache::ancestors::Ancestors;
use crate::cache::blocks::BlockCache;
use crate::cache::fetch::{Needs, ReadContext, brought};
use crate::io::counter::HandleCounters;
use crate::io::env::Env;
use crate::io::store::counting::count;
use crate::io::supervise::closed;
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
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// How much the pause between two looks grows while nothing happens: 2 s become 16 s, 0.06 reads a
/// second, and with the listing in between less than 0.1 requests.
pub(super) const SLOWEST_LOOKS: u32 = 8;
/// Longest time that a process which ends tries to give its epoch up.
const RELEASE_LIMIT: Duration = Duration::from_secs(2);
/// Looks by one read before a listing is asked (rule M4).
const LOOKS_BY_READ: u32 = 15;

/// How to run a compactor in a process of its own.
#[derive(Clone, Default)]
pub struct CompactorOptions {
    /// Options; those about reading and writing rows have no effect. Where they say nothing of
    /// `compression`, new tables have the codec that the database was made with.
    pub options: Options,
    /// The merge operator, by whose name the database was made.
    pub merge_operator: Option<Arc<dyn MergeOperator>>,
    /// How many workers are expected in other processes: jobs are cut into ranges for all of them.
    /// With 0 the compactor does everything itself.
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

/// A compactor, or a worker of one, in a process without a writer. Cheap to clone; all clones are
/// one.
#[derive(Clone)]
pub struct CompactorProcess {
    pub(super) process: Arc<Process>,
}

impl fmt::Debug for CompactorProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompactorProcess").field("store", &self.process.env.store).finish()
    }
}

/// Hears what a compactor has to tell.
type Listener = Box<dyn Fn(CompactorEvent) + Send + Sync>;

/// What its tasks share.
pub(super) struct Process {
    pub(super) env: Env,
    /// What new tables are packed with where it was said.
    codec: Option<Codec>,
    pub(super) options: Options,
    workers: usize,
    pub(super) manifests: ManifestClient,
    context: ReadContext,
    pub(super) compactor: Compactor,
    /// Bytes of all tables when it was opened.
    bytes: u64,
    life: Arc<CompactorObserver>,
    pace: Mutex<PollPace>,
    listener: Listener,
}

/// What its manifest client is told and asks.
#[derive(Default)]
struct CompactorObserver {
    /// Once it is set no commit is tried again.
    stopped: AtomicBool,
    /// Heard by whoever waits for something to do.
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

/// How often it looks.
struct PollPace {
    pause: Duration,
    looks: u32,
}

impl CompactorProcess {
    /// Finds the database; nothing is written yet. `listener` hears of every compaction, on some
    /// thread, and must not block.
    ///
    /// # Errors
    /// NotFound where there is none; Invalid for options or a merge operator that do not fit;
    /// Denied, Unavailable, Timeout, Corruption, Unsupported.
    pub async fn open(
        env: Env,
        how: CompactorOptions,
        listener: impl Fn(CompactorEvent) + Send + Sync + 'static,
    ) -> Result<CompactorProcess> {
        let codec = how.options.compression;
        let options = how.options.on(&*env.store);
        options.validate()?;
        let (env, requests) = count(env);
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

    /// Compacts as the scheduler says, until [`CompactorProcess::stop`]: then what was recorded is
    /// where the next compactor goes on.
    ///
    /// # Errors
    /// Fenced once another compactor has taken over; NotFound when the database is destroyed;
    /// Denied, and Timeout after the `deadline`, where the store takes nothing from the beginning.
    /// Later troubles are told, and waited out.
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

    /// Merges every table into one sorted run, and gives the compactor's epoch up: an embedded
    /// compactor that this one stopped goes on after its next flush. Answers `false` when nothing
    /// was to gain.
    ///
    /// # Errors
    /// As [`crate::Database::compact`].
    pub fn compact(&self) -> BoxFuture<'_, Result<bool>> {
        async move { self.carry_out(CompactionRequest::Major).await }.boxed()
    }

    /// Bytes that were read from the store so far, and the bytes of all tables when it was opened:
    /// how far [`CompactorProcess::compact`] is. An estimate, since some tables go unread, and
    /// manifests are read too.
    #[must_use]
    pub fn bytes(&self) -> (u64, u64) {
        (self.process.context.requests.totals().bytes_read, self.process.bytes)
    }

    /// Carries out a plan made by hand, as [`crate::Database::submit`], and gives the epoch up.
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

    /// Merges ranges of the jobs that a compactor elsewhere has started, until
    /// [`CompactorProcess::stop`].
    ///
    /// # Errors
    /// NotFound when the database is destroyed; Unsupported for a record that it cannot read;
    /// Denied, and Timeout after the `deadline`, where the store takes nothing of its first range.
    /// Later troubles are told, and waited out.
    pub fn work(&self) -> BoxFuture<'_, Result<()>> {
        async move {
            worker::run(&self.process).await.map_err(|error| error.during("work for a compactor"))
        }
        .boxed()
    }

    /// Ends [`CompactorProcess::run`], [`CompactorProcess::work`] and what is under way, soon.
    pub fn stop(&self) {
        self.process.life.stopped.store(true, Ordering::Release);
        self.process.life.news.notify_one();
    }

    /// Tells the others that nobody holds the epoch. That it fails is no harm: the next compactor
    /// claims all the same.
    pub(super) async fn release(&self) {
        let process = &self.process;
        let epoch = process.compactor.give_up_epoch();
        if epoch != Epoch::NONE {
            let released = process.manifests.try_commit(Edit::ReleaseCompactor { epoch });
            // Whoever waits for the end has waited for what it ended with.
            drop(either(released, process.env.clock.sleep(RELEASE_LIMIT)).await);
        }
    }
}

impl Process {
    /// Waits for `pause`, or until something happens here.
    pub(super) async fn rests(&self, pause: Duration) {
        either(self.life.news.notified(), self.env.clock.sleep(pause)).await;
    }

    /// The pause before the next look, longer than the one before; short again after news.
    pub(super) fn next_pause(&self, news: bool) -> Duration {
        let shortest = self.options.compactors.poll_interval;
        let mut pace = self.pace.lock();
        let grown = (pace.pause * 3 / 2).min(shortest * SLOWEST_LOOKS);
        pace.pause = if news { shortest } else { grown };
        self.env.jittered(pace.pause)
    }

    /// Looks for a newer manifest; whether there was one.
    ///
    /// # Errors
    /// The store's; NotFound when the database is destroyed; Invalid when it has a merge operator
    /// by now that was not brought.
    pub(super) async fn look(&self) -> Result<bool> {
        let thorough = {
            let mut pace = self.pace.lock();
            pace.looks += 1;
            pace.looks.is_multiple_of(LOOKS_BY_READ + 1)
        };
        let known = self.manifests.newest_known().id;
        let newest = self.manifests.probe(thorough).await?;
        // A writer may have made a merge operator known meanwhile.
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

    /// Who reads where is known to the writer alone: every version above its floor is kept.
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

    /// A newer manifest, the end of a job and the end of the process wake it.
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

    /// Nobody reads here.
    fn take_up(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn tell(&self, event: CompactorEvent) {
        event.log();
        (self.listener)(event);
    }
}
