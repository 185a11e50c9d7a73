//! A reader in any process: the newest manifest, and the contiguous WAL from its replay point
//! (RFC 0006).

use super::stats::Stats;
use crate::cache::blocks::BlockCache;
use crate::cache::fetch::{Needs, ReadContext, brought};
use crate::cache::metadata::MetadataBudget;
use crate::follower::at_checkpoint::{self, KnownCheckpoint, ReadAt};
use crate::follower::following::{Follower, Looking, ReaderView};
use crate::io::counter::HandleCounters;
use crate::io::env::Env;
use crate::io::supervise::{caught, closed, ends_the_handle, watched};
use crate::manifests::poll::{IDLE_AFTER, IDLE_PAUSE};
use crate::options::Options;
use crate::read::answer::Answer;
use crate::read::value::Value;
use crate::read::{self, Keys, Pin, Scan, ScanRange, Size};
use parking_lot::RwLock;
use siltstone_base::{Error, ErrorKind, ManifestId, MergeOperator, Result, Seq};
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// How to open a reader.
#[derive(Clone, Default)]
pub struct ReaderOptions {
    /// Options; those about writing have no effect.
    pub options: Options,
    /// A state to stay at, as it is: nothing is written and nothing newer is seen. Without one the
    /// reader follows the writer, and keeps a checkpoint of its own unless `reader_checkpoint` is
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
    /// Also once something died: nothing is given back then, it expires by itself.
    closed: AtomicBool,
    /// Why the reader has ended, where nobody closed it.
    died: OnceLock<Error>,
}

impl Drop for ReaderInner {
    /// Without a close the checkpoint is given back all the same, if the process lives that long.
    fn drop(&mut self) {
        if !self.shared.closed.swap(true, Ordering::AcqRel) && self.shared.follower.is_some() {
            let shared = Arc::clone(&self.shared);
            let give_back = Box::pin(async move { shared.give_back().await });
            self.shared.context.env.spawn.spawn("reader end", give_back);
        }
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
    /// Opens the database for reading. Writes a checkpoint to the manifest, unless it stays at one,
    /// or `reader_checkpoint` is off.
    ///
    /// # Errors
    /// NotFound where there is none, and for a version that is not kept; Expired for a checkpoint
    /// to read at that is gone; Denied, also when a reader's own checkpoint may not be written;
    /// Unavailable, Timeout, Corruption, Unsupported, Invalid as their texts say.
    pub async fn open(env: Env, how: ReaderOptions) -> Result<Reader> {
        let shared = Reader::open_shared(env, how).await.map_err(|e| e.during("open_reader"))?;
        if shared.follower.is_some() {
            let (follows, dies) = (Arc::downgrade(&shared), Arc::downgrade(&shared));
            let follow = watched("reader", follow(follows), move |died| {
                if let Some(shared) = dies.upgrade() {
                    shared.die(died);
                }
            });
            shared.context.env.spawn.spawn("reader", follow);
        }
        Ok(Reader { inner: Arc::new(ReaderInner { shared }) })
    }

    async fn open_shared(env: Env, how: ReaderOptions) -> Result<Arc<ReaderShared>> {
        let own = how.at.is_none() && how.options.reader_checkpoint;
        how.options.validate_reader(own)?;
        let (env, requests) = crate::io::store::counting::count(env);
        let options = how.options;
        let context = ReadContext::from(Needs {
            env: env.clone(),
            requests,
            asked: Arc::new(HandleCounters::since(env.clock.monotonic())),
            cache: Arc::new(BlockCache::new(options.block_cache_bytes, options.block_bytes)),
            operator: brought(how.merge_operator),
            latest: AtomicU64::default(),
            deadline: options.deadline,
            writer: None,
        });
        let budget = MetadataBudget::new(options.metadata_cache_bytes);
        let (follower, view, known) = match &how.at {
            Some(at) => {
                let (view, known) = at_checkpoint::view(&context, &options, &budget, at).await?;
                (None, view, known)
            }
            None => {
                let (follower, view) = Follower::start(&context, &options, &budget).await?;
                (Some(tokio::sync::Mutex::new(follower)), view, None)
            }
        };
        Ok(Arc::new(ReaderShared {
            options,
            context,
            budget,
            view: RwLock::new(view),
            follower,
            at: how.at,
            known,
            closed: AtomicBool::new(false),
            died: OnceLock::new(),
        }))
    }

    fn shared(&self) -> Result<&Arc<ReaderShared>> {
        self.inner.shared.check_open()?;
        Ok(&self.inner.shared)
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// Closed; and what the awaited part of the answer gives.
    pub fn get(&self, key: &[u8]) -> Result<Answer<Option<Value>>> {
        let shared = self.shared()?;
        let pending = match read::get(&shared.context, shared.pin(), key)? {
            Answer::Ready(value) => return Ok(Answer::Ready(value)),
            Answer::Pending(pending) => pending,
        };
        let (shared, key) = (Arc::clone(shared), key.to_vec());
        Ok(Answer::Pending(Box::pin(async move {
            match pending.await {
                // Without a checkpoint, or once it was revoked, a table may go while we look:
                // position anew, once.
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    shared.reposition().await?;
                    let again = read::get(&shared.context, shared.pin(), &key)?.wait().await;
                    again.map_err(dangling)
                }
                answer => answer,
            }
        })))
    }

    /// The values of `keys`, in their order, all of one moment.
    ///
    /// # Errors
    /// As [`Reader::get`].
    pub fn get_many(&self, keys: impl Into<Keys>) -> Result<Answer<Vec<Option<Value>>>> {
        let shared = Arc::clone(self.shared()?);
        let keys = Arc::new(keys.into());
        let pending = match read::get_many(&shared.context, shared.pin(), Arc::clone(&keys))? {
            Answer::Ready(values) => return Ok(Answer::Ready(values)),
            Answer::Pending(pending) => pending,
        };
        Ok(Answer::Pending(Box::pin(async move {
            match pending.await {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    shared.reposition().await?;
                    let again = read::get_many(&shared.context, shared.pin(), keys)?.wait().await;
                    again.map_err(dangling)
                }
                answer => answer,
            }
        })))
    }

    /// Iterates over a range, as it is now. The reader's checkpoint keeps what it reads for as long
    /// as it lives; without one, or once it was revoked, it may lose its tables to a collector: it
    /// then ends with Expired, never with a wrong answer.
    ///
    /// # Errors
    /// Closed.
    pub fn scan(&self, range: ScanRange) -> Result<Scan> {
        let shared = self.shared()?;
        Ok(Scan::new(shared.context.clone(), shared.pin(), range, None))
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
        let shared = Arc::clone(self.shared()?);
        let sized = read::approximate_size(&shared.context, &shared.pin(), range.clone());
        let Answer::Pending(pending) = sized else { return Ok(sized) };
        Ok(Answer::Pending(Box::pin(async move {
            match pending.await {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    shared.reposition().await?;
                    let again = read::approximate_size(&shared.context, &shared.pin(), range);
                    again.wait().await.map_err(dangling)
                }
                answer => answer,
            }
        })))
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
    /// Closed, Unavailable, Timeout, Denied, Corruption; the view stays as it was.
    pub async fn refresh(&self) -> Result<()> {
        let shared = self.shared()?;
        let refreshed = shared.refresh(Looking::Thoroughly).await;
        refreshed.map_err(|error| error.during("refresh"))
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
        stats
    }

    /// The options the reader was opened with.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.inner.shared.options
    }

    /// Ends following and reading, and gives the reader's checkpoint back. Scans that go on have
    /// what is in memory; what was collected meanwhile is Expired. A second close does nothing.
    ///
    /// # Errors
    /// None: a checkpoint that cannot be given back now expires by itself.
    pub async fn close(&self) -> Result<()> {
        let shared = &self.inner.shared;
        if !shared.closed.swap(true, Ordering::AcqRel) {
            shared.give_back().await;
        }
        Ok(())
    }
}

impl ReaderShared {
    fn pin(&self) -> Pin {
        let now = self.context.now();
        let view = self.view.read();
        Pin { tree: Arc::clone(&view.tree), seq: view.seq, now }
    }

    /// # Errors
    /// Why the reader has ended.
    fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(self.died.get().cloned().unwrap_or_else(closed));
        }
        Ok(())
    }

    /// Ends the reader because of what died.
    fn die(&self, died: &Error) {
        self.died.get_or_init(|| ends_the_handle(died));
        self.closed.store(true, Ordering::Release);
    }

    /// `work` on the follower. Where it panics the reader ends while the follower is still locked:
    /// nobody goes on from what it left half done.
    async fn whole(&self, work: impl Future<Output = Result<()>>) -> Result<()> {
        let worked = caught("reader", work).await.inspect_err(|died| self.die(died));
        worked.map_err(|died| ends_the_handle(&died)).flatten()
    }

    /// What cannot be given back expires by itself.
    async fn give_back(&self) {
        let Some(follower) = &self.follower else { return };
        let work = async { follower.lock().await.give_back().await };
        let _ = self.context.deadline(self.options.deadline, "close", work).await;
    }

    async fn refresh(&self, look: Looking) -> Result<()> {
        let Some(follower) = &self.follower else { return Ok(()) };
        let work = async {
            let mut follower = follower.lock().await;
            // What was given back must not be taken again.
            self.check_open()?;
            self.whole(self.look_again(&mut follower, look)).await
        };
        self.context.deadline(self.options.deadline, "refresh", work).await
    }

    async fn look_again(&self, follower: &mut Follower, look: Looking) -> Result<()> {
        match follower.refresh(&self.context, &self.options, &self.budget, look).await {
            Ok(Some(view)) => *self.view.write() = view,
            Ok(None) => {}
            // Its checkpoint was revoked in a pause longer than its lifetime.
            Err(error)
                if error.kind() == ErrorKind::Expired && !cfg!(mutation = "revoked_for_good") =>
            {
                self.restart(follower).await?;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// A table was gone: read the newest manifest and start from it.
    async fn reposition(&self) -> Result<()> {
        let Some(follower) = &self.follower else {
            let gone = || Error::internal("a reader neither follows nor stays");
            return Err(self.at.as_ref().map_or_else(gone, ReadAt::gone));
        };
        let work = async {
            let mut follower = follower.lock().await;
            self.check_open()?;
            self.whole(self.start_again(&mut follower)).await
        };
        self.context.deadline(self.options.deadline, "refresh", work).await
    }

    async fn start_again(&self, follower: &mut Follower) -> Result<()> {
        if follower.is_held().await? {
            return Err(Error::corruption("a table that the reader's checkpoint keeps is gone"));
        }
        self.restart(follower).await
    }

    async fn restart(&self, follower: &mut Follower) -> Result<()> {
        let tables = self.view.read().tree.levels.clone();
        let (fresh, view) =
            Follower::restart(&self.context, &self.options, &self.budget, &tables).await?;
        *follower = fresh;
        *self.view.write() = view;
        Ok(())
    }
}

fn dangling(error: Error) -> Error {
    if error.kind() != ErrorKind::NotFound {
        return error;
    }
    Error::corruption("a table that the newest manifest names is gone").caused_by(error)
}

/// Follows the writer until the reader is closed or dropped.
async fn follow(shared: Weak<ReaderShared>) {
    let mut quiet = Quiet::default();
    loop {
        let (pause, look) = {
            let Some(shared) = shared.upgrade() else { return };
            let (pause, look) = quiet.next(&shared);
            (shared.context.env.clock.sleep(pause), look)
        };
        pause.await;
        let Some(shared) = shared.upgrade() else { return };
        if shared.closed.load(Ordering::Acquire) {
            return;
        }
        // What could not be read now is read at the next turn; `refresh()` tells the error.
        let _ = shared.refresh(look).await;
    }
}

/// Since when a reader has found nothing.
#[derive(Default)]
struct Quiet {
    /// The manifest and the last sequence number that it saw, and when it saw them first.
    saw: Option<(ManifestId, Seq, Duration)>,
}

impl Quiet {
    /// The pause before the next look, and what kind of look that is.
    fn next(&mut self, shared: &ReaderShared) -> (Duration, Looking) {
        let interval = shared.options.poll_interval();
        if shared.options.manifest_poll_interval.is_some() {
            return (interval, Looking::Cheaply);
        }
        let now = shared.context.env.clock.monotonic();
        let (manifest, seq) = {
            let view = shared.view.read();
            (view.manifest.id, view.seq)
        };
        let since = match self.saw {
            Some((old, last, since)) if (old, last) == (manifest, seq) => since,
            _ => now,
        };
        self.saw = Some((manifest, seq, since));
        if now.saturating_sub(since) < IDLE_AFTER {
            return (interval, Looking::Cheaply);
        }
        // Twice in the half of its lifetime after which a checkpoint is refreshed.
        let pause = IDLE_PAUSE.min(shared.options.checkpoint_lifetime / 4).max(interval);
        (pause, Looking::Seldom)
    }
}
