//! A reader in any process: the newest manifest, and the contiguous WAL from its replay point
//! (RFC 0006).

mod following;
mod health;
mod missing;

use super::stats::Stats;
use crate::cache::ancestors::Ancestors;
use crate::cache::blocks::BlockCache;
use crate::cache::fetch::{Needs, ReadContext, brought};
use crate::cache::metadata::MetadataBudget;
use crate::follower::at_checkpoint::{self, KnownCheckpoint, ReadAt};
use crate::follower::following::{Follower, PollMode, ReaderView, restored};
use crate::io::counter::HandleCounters;
use crate::io::env::Env;
use crate::io::supervise::{caught, ends_the_handle, watched};
use crate::options::Options;
use crate::read::answer::Answer;
use crate::read::scan::MissingTables;
use crate::read::value::Value;
use crate::read::{self, Keys, Pin, Scan, ScanRange, Size};
use futures::FutureExt;
use futures::future::BoxFuture;
use health::ReaderHealth;
use parking_lot::RwLock;
use siltstone_base::{Error, ErrorKind, ManifestId, MergeOperator, Result, Seq};
use siltstone_manifest::Manifest;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How to open a reader.
#[derive(Clone, Default)]
pub struct ReaderOptions {
    /// Options; those about writing have no effect.
    pub options: Options,
    /// A state to stay at, as it is: nothing is written and nothing newer is seen. Without one the
    /// reader follows the writer, and shares a lease on what it reads unless `reader_lease` is
    /// off.
    pub at: Option<ReadAt>,
    /// The merge operator that the database records; a built-in one needs not be brought.
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

/// Reads a database that another process may be writing. It follows the writer every
/// `manifest_poll_interval`, and sees whole batches in commit order, as far as they are durable.
/// Cheap to clone; all clones are one reader, used from any thread.
#[derive(Clone)]
pub struct Reader {
    inner: Arc<ReaderInner>,
}

struct ReaderInner {
    shared: Arc<ReaderShared>,
}

/// What the handle and the following task share.
pub(crate) struct ReaderShared {
    options: Options,
    context: ReadContext,
    budget: Arc<MetadataBudget>,
    view: RwLock<ReaderView>,
    /// `None` when the reader stays where it is.
    follower: Option<tokio::sync::Mutex<Follower>>,
    at: Option<ReadAt>,
    /// The checkpoint it stays at.
    known: Option<KnownCheckpoint>,
    health: ReaderHealth,
    /// When the reader was last seen to have all that was durable, and when it is to look again at
    /// the latest: milliseconds of [`Clock::elapsed`](crate::io::env::Clock::elapsed).
    confirmed: AtomicU64,
    next_look: AtomicU64,
}

impl Drop for ReaderInner {
    /// Nothing is given back: what was leased is shared, and runs out by itself (rule L4).
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
    /// Opens the database for reading. Joins a lease on what is newest, or writes one to the
    /// manifest where there is none, unless it stays at a checkpoint or `reader_lease` is off.
    ///
    /// # Errors
    /// NotFound where there is none, and for a version that is not kept; Expired for a checkpoint
    /// to read at that is gone; Denied, also when a lease may not be written; Invalid, also where
    /// the log holds more than `max_memtable_bytes`; Unavailable, Timeout, Corruption, Unsupported
    /// as their texts say.
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
            Ok(Reader { inner: Arc::new(ReaderInner { shared }) })
        }
        .boxed()
    }

    async fn open_shared(env: Env, how: ReaderOptions) -> Result<Arc<ReaderShared>> {
        let own = how.at.is_none() && how.options.reader_lease;
        let began = env.clock.elapsed();
        how.options.validate_reader(own)?;
        let (env, requests) = crate::io::store::counting::count(env);
        let options = how.options;
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
    /// Closed; and what the awaited part of the answer gives. With `max_staleness` also what
    /// [`Reader::fresh`] gives.
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

    /// The values of `keys`, in their order, all of one moment.
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

    /// Iterates over a range, as it is now. A lease covers what it reads for as long as it lives;
    /// without one, or once it was revoked, the scan may lose its tables to a collector: it then
    /// ends with Expired, never with a wrong answer.
    ///
    /// # Errors
    /// Closed; Unavailable where what the reader has is older than `max_staleness`: await
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

    /// As [`Reader::scan`], of what the reader has, however old: for who has just awaited
    /// [`Reader::fresh`], which may take longer than the bound.
    ///
    /// # Errors
    /// Closed.
    pub fn scan_as_it_is(&self, range: ScanRange) -> Result<Scan> {
        let shared = self.shared()?;
        let scan = Scan::new(shared.context.clone(), shared.pin(), range, None);
        let judge: Arc<dyn MissingTables> = Arc::<ReaderShared>::clone(shared);
        Ok(scan.judged_by(judge))
    }

    /// Makes sure that what the reader has is no older than `max_staleness`: looks for newer data
    /// where the last look is longer ago. Ready where it is not, and without the option.
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

    /// The checkpoint that the reader stays at, if it was opened at one: what another reader opens
    /// the same state by, with fewer requests ([`ReadAt::Known`]).
    #[must_use]
    pub fn checkpoint(&self) -> Option<&KnownCheckpoint> {
        self.inner.shared.known.as_ref()
    }

    /// About how much a range holds, by metadata alone: no block is read.
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

    /// The version that it reads.
    pub(super) fn manifest(&self) -> Arc<Manifest> {
        Arc::clone(&self.inner.shared.view.read().manifest)
    }

    pub(super) fn env(&self) -> &Env {
        &self.inner.shared.context.env
    }

    /// The last sequence number that reads see.
    #[must_use]
    pub fn seq(&self) -> Seq {
        self.inner.shared.view.read().seq
    }

    /// Looks for newer data now: afterwards reads see everything that was durable before the call,
    /// whatever a collector freed meanwhile. That is two listings and two reads, and one more read
    /// for each object that is new; what the reader does by itself is cheaper. At a given
    /// checkpoint there is nothing newer.
    ///
    /// # Errors
    /// Closed, Unavailable, Timeout, Denied, Corruption, NotFound; the view stays as it was. One
    /// that time does not cure ends the reader once two looks in a row have met it.
    pub fn refresh(&self) -> BoxFuture<'_, Result<()>> {
        async move {
            let shared = self.shared()?;
            let refreshed = shared.refresh(PollMode::Thoroughly).await;
            refreshed.map_err(|error| error.during("refresh"))
        }
        .boxed()
    }

    /// Where it reads, and how long a request may take.
    pub(super) fn place(&self) -> Result<(Env, Duration)> {
        let shared = self.shared()?;
        Ok((shared.context.env.clone(), shared.options.deadline))
    }

    /// What the reader holds and has done.
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

    /// What the last look for newer data failed with; it is tried again. `None` where it succeeded.
    #[must_use]
    pub fn refresh_error(&self) -> Option<Error> {
        self.inner.shared.health.error()
    }

    /// Why the reader has ended by itself, which every read raises.
    #[must_use]
    pub fn ended(&self) -> Option<Error> {
        self.inner.shared.health.ended()
    }

    /// The options the reader was opened with.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.inner.shared.options
    }

    /// Ends following and reading, and gives back memory, files and maps. Nothing is written: what
    /// was leased is shared, and runs out by itself. Scans that go on keep what they hold, and read
    /// what is not collected. A second close does nothing.
    ///
    /// # Errors
    /// None.
    #[allow(clippy::unused_async, reason = "what closing takes may change")]
    pub fn close(&self) -> BoxFuture<'_, Result<()>> {
        async move {
            let shared = &self.inner.shared;
            shared.health.close();
            shared.context.end_use(&shared.budget);
            Ok(())
        }
        .boxed()
    }
}

impl ReaderShared {
    fn pin(&self) -> Pin {
        let now = self.context.now();
        let view = self.view.read();
        Pin { tree: Arc::clone(&view.tree), seq: view.seq, now }
    }

    /// `work` on the follower. Where it panics the reader ends while the follower is still locked:
    /// nobody goes on from what it left half done.
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

    /// A look, or Timeout.
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

    /// For how long nobody has looked whether there is something newer.
    fn age(&self) -> Duration {
        let confirmed = Duration::from_millis(self.confirmed.load(Ordering::Acquire));
        self.context.env.clock.elapsed().saturating_sub(confirmed)
    }

    fn is_stale(&self) -> bool {
        let bound = self.options.readers.max_staleness.filter(|_| self.follower.is_some());
        bound.is_some_and(|bound| self.age() > bound)
    }

    /// `read` once a look has found whatever is newer.
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

    /// One look for all who wait for one.
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

    fn get_many(&self, keys: Arc<Keys>) -> Result<Answer<Vec<Option<Value>>>> {
        read::get_many(&self.context, self.pin(), keys)
    }

    fn approximate_size(&self, range: ScanRange) -> Result<Answer<Size>> {
        Ok(read::approximate_size(&self.context, &self.pin(), range))
    }

    /// From the newest manifest, whatever was known.
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

    /// The database was restored to a checkpoint: only who was asked to goes on (rule S3).
    fn check_follows(&self, restored_at: ManifestId) -> Result<()> {
        if self.options.readers.follow_restores {
            return Ok(());
        }
        let error = restored(restored_at);
        // What the reader has leased expires by itself.
        self.health.die(&error);
        Err(error)
    }
}

/// Where lines about readers go.
const TARGET: &str = "siltstone.reader";

fn in_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
