//! The reader's handle: reads the newest manifest and the contiguous WAL from its replay point, in
//! any process (RFC 0006).
//!
//! A reader must never return a wrong answer for an object that was deleted: it fails instead. It
//! writes nothing except its lease.

mod at_time;
mod following;
mod health;
mod missing;

use super::stats::{LatencyHistogram, Stats, latencies};
use crate::cache::ancestors::Ancestors;
use crate::cache::blocks::BlockCache;
use crate::cache::fetch::{Needs, ReadContext, brought};
use crate::cache::handle_counters::HandleCounters;
use crate::cache::metadata::MetadataBudget;
use crate::follower::at_checkpoint::{self, KnownCheckpoint, ReadAt};
use crate::follower::following::{Follower, PollMode, ReaderView};
use crate::manifests::missing::restored;
use crate::options::Options;
use crate::read::answer::Answer;
use crate::read::mirror;
use crate::read::scan::MissingTables;
use crate::read::tree::Levels;
use crate::read::value::{KeyEntry, Value};
use crate::read::{self, Keys, Pin, Scan, ScanRange, Size};
use futures::FutureExt;
use futures::future::BoxFuture;
use health::ReaderHealth;
use parking_lot::RwLock;
use siltstone_base::{Error, ErrorKind, ManifestId, MergeOperator, Result, Seq};
use siltstone_manifest::Manifest;
use siltstone_store::env::Env;
use siltstone_store::supervise::{caught, ends_the_handle, watched};
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Options of a reader.
#[derive(Clone, Default)]
pub struct ReaderOptions {
    /// Options; those about writing have no effect.
    pub options: Options,
    /// A fixed state to read at: the reader then writes nothing and sees no newer data. `None`: the
    /// reader follows the writer, and shares a lease on the tables that it reads unless
    /// `reader_lease` is off.
    pub at: Option<ReadAt>,
    /// The merge operator that the database records. Built-in operators are found by name.
    pub merge_operator: Option<Arc<dyn MergeOperator>>,
}

impl fmt::Debug for ReaderOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReaderOptions")
            .field("options", &self.options)
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

/// A reader of a database that another process may be writing. It looks for new data every
/// `manifest_poll_interval`, and sees whole durable batches in commit order. Cheap to clone; all
/// clones share one reader, which can be used from any thread.
#[derive(Clone)]
pub struct Reader {
    inner: Arc<ReaderInner>,
}

struct ReaderInner {
    shared: Arc<ReaderShared>,
}

/// State that the handle and its following task share.
pub(crate) struct ReaderShared {
    options: Options,
    context: ReadContext,
    budget: Arc<MetadataBudget>,
    view: RwLock<ReaderView>,
    /// `None` for a reader at a fixed state.
    follower: Option<tokio::sync::Mutex<Follower>>,
    at: Option<ReadAt>,
    /// The checkpoint at which the reader is fixed.
    known: Option<KnownCheckpoint>,
    health: ReaderHealth,
    /// When a refresh last confirmed that the reader had all durable data, in milliseconds of
    /// [`Clock::elapsed`](siltstone_store::env::Clock::elapsed).
    confirmed: AtomicU64,
    /// When the next refresh is due at the latest, in the same unit.
    next_look: AtomicU64,
}

impl Drop for ReaderInner {
    /// Does not release the lease: other readers share it, and it expires by itself (rule L4).
    fn drop(&mut self) {
        self.shared.health.close();
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("store", &self.inner.shared.context.env.store)
            .finish_non_exhaustive()
    }
}

impl Reader {
    /// Opens the database for reading. Joins a lease on the newest state, or writes one to the
    /// manifest if there is none. A reader at a fixed state, or with `reader_lease` off, takes no
    /// lease.
    ///
    /// # Errors
    /// NotFound if there is no database, and for a version that is no longer retained; Expired for
    /// a checkpoint that was deleted or has expired; Denied, also if the credentials do not permit
    /// writing a lease; Invalid, also if the log holds more than `max_memtable_bytes`; Unavailable,
    /// Timeout, Corruption, Unsupported.
    pub fn open(env: Env, how: ReaderOptions) -> BoxFuture<'static, Result<Reader>> {
        async move {
            let shared =
                Reader::open_shared(env, how).await.map_err(|e| e.during("open_reader"))?;
            if shared.follower.is_some() {
                let (follows, dies) = (Arc::downgrade(&shared), Arc::downgrade(&shared));
                let follow = watched("reader", following::follow(follows), move |died| {
                    if let Some(shared) = dies.upgrade() {
                        shared.health.die(died);
                    }
                });
                shared.context.env.spawn.spawn("reader", follow);
            }
            if let Some(span) = shared.options.mirrored(&shared.context.env) {
                let asked = Arc::clone(&shared.context.asked);
                let (handle, context) = (Arc::downgrade(&shared), shared.context.clone());
                let mirrors = mirror::run(handle, context, span, ReaderShared::levels);
                let mirrors = watched("mirror", mirrors, move |died| asked.mirror.dies(died));
                shared.context.env.spawn.spawn("mirror", mirrors);
            }
            Ok(Reader { inner: Arc::new(ReaderInner { shared }) })
        }
        .boxed()
    }

    async fn open_shared(env: Env, how: ReaderOptions) -> Result<Arc<ReaderShared>> {
        let own = how.at.is_none() && how.options.reader_lease;
        let began = env.clock.elapsed();
        how.options.validate_reader(own)?;
        let (env, requests) = siltstone_store::counting::count(env);
        let options = how.options;
        let env = options.caching(env)?;
        let context = ReadContext::from(Needs {
            env: env.clone(),
            requests,
            asked: Arc::new(HandleCounters::since(env.clock.monotonic())),
            cache: BlockCache::of_handle(options.block_cache_bytes, options.block_bytes),
            ancestors: Ancestors::default(),
            operator: brought(how.merge_operator),
            latest: AtomicU64::default(),
            deadline: options.deadline,
            writer: None,
        });
        let budget = MetadataBudget::new(options.metadata_cache_bytes);
        let begins = async {
            match &how.at {
                Some(at) => {
                    let seen = at_checkpoint::view(&context, &options, &budget, at).await?;
                    Ok((None, seen.0, seen.1))
                }
                None => {
                    let (follower, view) = Follower::start(&context, &options, &budget).await?;
                    Ok((Some(follower), view, None))
                }
            }
        };
        let limit = options.deadline;
        let began_at = context.requests.within(&env, limit, "open_reader", begins).await?;
        let (follower, view, known) = began_at;
        let next_look = follower.as_ref().and_then(Follower::next_moment);
        Ok(Arc::new(ReaderShared {
            options,
            context,
            budget,
            view: RwLock::new(view),
            follower: follower.map(tokio::sync::Mutex::new),
            at: how.at,
            known,
            health: ReaderHealth::new(&env),
            confirmed: AtomicU64::new(in_millis(began)),
            next_look: AtomicU64::new(next_look.map_or(u64::MAX, in_millis)),
        }))
    }

    fn shared(&self) -> Result<&Arc<ReaderShared>> {
        self.inner.shared.health.check_open()?;
        Ok(&self.inner.shared)
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// Closed. If the answer is a future, it may end with Expired for a deleted table or an error
    /// of the store; with `max_staleness` also as [`Reader::fresh`].
    pub fn get(&self, key: &[u8]) -> Result<Answer<Option<Value>>> {
        let shared = self.shared()?;
        if shared.is_stale() {
            return Ok(shared.after_a_look(key.to_vec(), ReaderShared::get));
        }
        let pin = shared.pin();
        let levels = Arc::clone(pin.tree.below());
        let pending = match read::get(&shared.context, pin, key)? {
            Answer::Ready(value) => return Ok(Answer::Ready(value)),
            Answer::Pending(pending) => pending,
        };
        Ok(shared.repeated(levels, pending, key.to_vec(), ReaderShared::get))
    }

    /// The value of `key`, its expiry time, and the sequence number of its write if known.
    ///
    /// # Errors
    /// As [`Reader::get`].
    pub fn get_entry(&self, key: &[u8]) -> Result<Answer<Option<KeyEntry>>> {
        let shared = self.shared()?;
        if shared.is_stale() {
            return Ok(shared.after_a_look(key.to_vec(), ReaderShared::get_entry));
        }
        let pin = shared.pin();
        let levels = Arc::clone(pin.tree.below());
        let pending = match read::get_entry(&shared.context, pin, key)? {
            Answer::Ready(entry) => return Ok(Answer::Ready(entry)),
            Answer::Pending(pending) => pending,
        };
        Ok(shared.repeated(levels, pending, key.to_vec(), ReaderShared::get_entry))
    }

    /// The values of `keys`, in the order of `keys`, all at one sequence number.
    ///
    /// # Errors
    /// As [`Reader::get`].
    pub fn get_many(&self, keys: impl Into<Keys>) -> Result<Answer<Vec<Option<Value>>>> {
        let shared = self.shared()?;
        let keys = Arc::new(keys.into());
        if shared.is_stale() {
            return Ok(shared.after_a_look(keys, ReaderShared::get_many));
        }
        let pin = shared.pin();
        let levels = Arc::clone(pin.tree.below());
        let pending = match read::get_many(&shared.context, pin, Arc::clone(&keys))? {
            Answer::Ready(values) => return Ok(Answer::Ready(values)),
            Answer::Pending(pending) => pending,
        };
        Ok(shared.repeated(levels, pending, keys, ReaderShared::get_many))
    }

    /// Iterates over a range at the reader's current sequence number. The reader's lease retains
    /// the tables of the scan while the scan lives. Without a lease, or after it was revoked, a
    /// collector may delete them; the scan then ends with Expired, never with a wrong answer.
    ///
    /// # Errors
    /// Closed; Unavailable if the reader's view is older than `max_staleness`: await
    /// [`Reader::fresh`] first.
    pub fn scan(&self, range: ScanRange) -> Result<Scan> {
        let shared = self.shared()?;
        if shared.is_stale() {
            return Err(Error::unavailable(
                "what the reader has is older than max_staleness; refresh it before the scan",
            ));
        }
        self.scan_as_it_is(range)
    }

    /// Like [`Reader::scan`], without the check of `max_staleness`. For callers that have just
    /// awaited [`Reader::fresh`], which may take longer than `max_staleness`.
    ///
    /// # Errors
    /// Closed.
    pub fn scan_as_it_is(&self, range: ScanRange) -> Result<Scan> {
        let shared = self.shared()?;
        let scan = Scan::new(shared.context.clone(), shared.pin(), range, None);
        let judge: Arc<dyn MissingTables> = Arc::<ReaderShared>::clone(shared);
        Ok(scan.judged_by(judge))
    }

    /// Refreshes the reader if its last refresh is longer ago than `max_staleness`. Returns a ready
    /// answer if it is not, or if the option is not set.
    ///
    /// # Errors
    /// Closed; as [`Reader::refresh`].
    pub fn fresh(&self) -> Result<Answer<()>> {
        let shared = self.shared()?;
        if !shared.is_stale() {
            return Ok(Answer::Ready(()));
        }
        Ok(shared.after_a_look((), |_, ()| Ok(Answer::Ready(()))))
    }

    /// The checkpoint at which the reader was opened, if any. Another reader opens the same state
    /// with it in fewer requests ([`ReadAt::Known`]).
    #[must_use]
    pub fn checkpoint(&self) -> Option<&KnownCheckpoint> {
        self.inner.shared.known.as_ref()
    }

    /// Estimates how much data a range holds. The estimate uses metadata only and reads no block.
    ///
    /// # Errors
    /// As [`Reader::get`].
    pub fn approximate_size(&self, range: ScanRange) -> Result<Answer<Size>> {
        let shared = self.shared()?;
        if shared.is_stale() {
            return Ok(shared.after_a_look(range, ReaderShared::approximate_size));
        }
        let pin = shared.pin();
        let sized = read::approximate_size(&shared.context, &pin, range.clone());
        let Answer::Pending(pending) = sized else { return Ok(sized) };
        let levels = Arc::clone(pin.tree.below());
        Ok(shared.repeated(levels, pending, range, ReaderShared::approximate_size))
    }

    /// The version of the manifest that the reader uses.
    pub(super) fn manifest(&self) -> Arc<Manifest> {
        Arc::clone(&self.inner.shared.view.read().manifest)
    }

    pub(super) fn env(&self) -> &Env {
        &self.inner.shared.context.env
    }

    /// The highest sequence number that reads see.
    #[must_use]
    pub fn seq(&self) -> Seq {
        self.inner.shared.view.read().seq
    }

    /// Refreshes the reader now. Afterwards reads see everything that was durable before the call,
    /// even if a collector deleted objects meanwhile. A refresh costs two listings, two reads, and
    /// one read for each new object. The reader's own periodic refresh is cheaper. Does nothing for
    /// a reader at a fixed state.
    ///
    /// # Errors
    /// Closed, Unavailable, Timeout, Denied, Corruption, NotFound. The view stays unchanged. A
    /// permanent error ends the reader after two consecutive refreshes have met it.
    pub fn refresh(&self) -> BoxFuture<'_, Result<()>> {
        async move {
            let shared = self.shared()?;
            let refreshed = shared.refresh(PollMode::Thoroughly).await;
            refreshed.map_err(|error| error.during("refresh"))
        }
        .boxed()
    }

    /// The reader's environment and its deadline for one call.
    pub(super) fn place(&self) -> Result<(Env, Duration)> {
        let shared = self.shared()?;
        Ok((shared.context.env.clone(), shared.options.deadline))
    }

    /// The durations of calls and requests of the reader, one histogram for each kind.
    #[must_use]
    pub fn latencies(&self) -> Vec<LatencyHistogram> {
        latencies(&self.inner.shared.context)
    }

    /// The statistics of the reader.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let shared = &self.inner.shared;
        let view = shared.view.read().clone();
        let now = shared.context.env.clock.now();
        let mut stats = Stats::of_reads(&view.tree, &shared.context)
            .with_manifest(&view.manifest, &shared.options, now)
            .with_prices();
        stats.manifest_id = view.manifest.id.0;
        stats.visible_seq = view.seq.0;
        stats.durable_seq = view.seq.0;
        stats.flushed_seq = view.tree.flushed_seq.0;
        stats.metadata_bytes = shared.budget.used() as u64;
        stats.metadata_capacity = shared.options.metadata_cache_bytes as u64;
        if shared.follower.is_some() {
            let (at, ago) = shared.health.last_success(&shared.context.env);
            stats.last_refresh_time = at.0 as f64 / 1000.0;
            stats.staleness_seconds = ago.as_secs_f64();
            stats.refresh_failures = shared.health.failures();
        }
        stats
    }

    /// The error of the last refresh, which the reader retries; `None` if it succeeded.
    #[must_use]
    pub fn refresh_error(&self) -> Option<Error> {
        self.inner.shared.health.error()
    }

    /// The error that ended the reader without a close. Every read returns it.
    #[must_use]
    pub fn ended(&self) -> Option<Error> {
        self.inner.shared.health.ended()
    }

    /// The options with which the reader was opened.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.inner.shared.options
    }

    /// Closes the reader and releases its memory, files and memory maps. It does not release the
    /// lease: other readers share it, and it expires by itself. Open scans keep their blocks and
    /// continue as long as no collector deletes their tables. A second close does nothing.
    ///
    /// # Errors
    /// None.
    pub fn close(&self) -> BoxFuture<'_, Result<()>> {
        async move {
            let shared = &self.inner.shared;
            shared.health.close();
            shared.context.end_use(&shared.budget);
            let env = &shared.context.env;
            env.at_rest(env.clock.monotonic() + shared.options.deadline).await;
            Ok(())
        }
        .boxed()
    }
}

impl ReaderShared {
    /// The tables of the view; `None` once the reader has ended.
    fn levels(&self) -> Option<Arc<Levels>> {
        self.health.check_open().ok()?;
        Some(Arc::clone(&self.view.read().tree.levels))
    }

    fn pin(&self) -> Pin {
        let now = self.context.now();
        let view = self.view.read();
        Pin { tree: Arc::clone(&view.tree), seq: view.seq, now }
    }

    /// Runs `work` on the follower. If it panics, the reader ends while the follower is still
    /// locked, so that no other task uses the incomplete state.
    async fn whole(&self, work: impl Future<Output = Result<()>>) -> Result<()> {
        let worked = caught("reader", work).await.inspect_err(|died| self.health.die(died));
        worked.map_err(|died| ends_the_handle(&died)).flatten()
    }

    async fn refresh(&self, look: PollMode) -> Result<()> {
        let Some(follower) = &self.follower else { return Ok(()) };
        let work = async {
            let mut follower = follower.lock().await;
            self.health.check_open()?;
            self.whole(self.look_again(&mut follower, look)).await
        };
        self.in_time(work).await
    }

    /// Runs a refresh within the deadline of the options; otherwise Timeout.
    async fn in_time(&self, look: impl Future<Output = Result<()>>) -> Result<()> {
        let looked = self.context.deadline(self.options.deadline, "refresh", look).await;
        if looked.as_ref().is_err_and(|error| error.kind() == ErrorKind::Timeout) {
            self.health.note(&self.context.env, &looked);
        }
        looked
    }

    async fn look_again(&self, follower: &mut Follower, look: PollMode) -> Result<()> {
        let looked = self.look_once(follower, look).await;
        self.health.note(&self.context.env, &looked);
        looked
    }

    async fn look_once(&self, follower: &mut Follower, look: PollMode) -> Result<()> {
        let began = self.context.env.clock.elapsed();
        let show = |view| *self.view.write() = view;
        let looked = follower.refresh(&self.context, &self.options, &self.budget, look, show).await;
        self.note_next_look(follower);
        match follower.undone_by() {
            Some(at) => {
                self.check_follows(at)?;
                self.restart(follower).await?;
            }
            None => looked?,
        }
        if look == PollMode::Thoroughly {
            self.confirmed.store(in_millis(began), Ordering::Release);
        }
        Ok(())
    }

    fn note_next_look(&self, follower: &Follower) {
        let next = follower.next_moment().map_or(u64::MAX, in_millis);
        self.next_look.store(next, Ordering::Release);
    }

    /// Time since the start of the last complete refresh.
    fn age(&self) -> Duration {
        let confirmed = Duration::from_millis(self.confirmed.load(Ordering::Acquire));
        self.context.env.clock.elapsed().saturating_sub(confirmed)
    }

    fn is_stale(&self) -> bool {
        let bound = self.options.readers.max_staleness.filter(|_| self.follower.is_some());
        bound.is_some_and(|bound| self.age() > bound)
    }

    /// Runs `read` after a refresh.
    fn after_a_look<W: Send + 'static, T: Send + 'static>(
        self: &Arc<Self>,
        what: W,
        read: impl FnOnce(&ReaderShared, W) -> Result<Answer<T>> + Send + 'static,
    ) -> Answer<T> {
        let shared = Arc::clone(self);
        Answer::Pending(Box::pin(async move {
            shared.look_if_stale().await.map_err(|error| {
                error.with(
                    "readers.max_staleness",
                    format_args!("{:?}", shared.options.readers.max_staleness),
                )
            })?;
            read(&shared, what)?.wait().await
        }))
    }

    /// Refreshes the reader if it is stale. Concurrent callers share one refresh.
    async fn look_if_stale(&self) -> Result<()> {
        let Some(follower) = &self.follower else { return Ok(()) };
        let work = async {
            let mut follower = follower.lock().await;
            self.health.check_open()?;
            match self.is_stale() {
                true => self.whole(self.look_again(&mut follower, PollMode::Thoroughly)).await,
                false => Ok(()),
            }
        };
        self.in_time(work).await
    }

    fn get(&self, key: Vec<u8>) -> Result<Answer<Option<Value>>> {
        read::get(&self.context, self.pin(), &key)
    }

    fn get_entry(&self, key: Vec<u8>) -> Result<Answer<Option<KeyEntry>>> {
        read::get_entry(&self.context, self.pin(), &key)
    }

    fn get_many(&self, keys: Arc<Keys>) -> Result<Answer<Vec<Option<Value>>>> {
        read::get_many(&self.context, self.pin(), keys)
    }

    fn approximate_size(&self, range: ScanRange) -> Result<Answer<Size>> {
        Ok(read::approximate_size(&self.context, &self.pin(), range))
    }

    /// Discards the follower's state and begins again from the newest manifest.
    async fn restart(&self, follower: &mut Follower) -> Result<()> {
        let tables = Arc::clone(self.view.read().tree.below());
        let (fresh, view) =
            follower.restart(&self.context, &self.options, &self.budget, &tables).await?;
        self.check_same(view.manifest.database)?;
        if follower.history() < fresh.history() {
            self.check_follows(fresh.history())?;
        }
        *follower = fresh;
        self.note_next_look(follower);
        *self.view.write() = view;
        Ok(())
    }

    /// Handles a restore of the database: the reader continues only with the option
    /// `follow_restores` (rule S3).
    fn check_follows(&self, restored_at: ManifestId) -> Result<()> {
        if self.options.readers.follow_restores {
            return Ok(());
        }
        let error = restored(restored_at);
        // The lease is not released: it expires by itself.
        self.health.die(&error);
        Err(error)
    }
}

/// Log target of readers.
const TARGET: &str = "siltstone.reader";

fn in_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
