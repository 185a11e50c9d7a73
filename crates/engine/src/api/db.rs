//! The database handle: a thin face over the writer's shared state.

use super::checkpoints::{self, CheckpointOptions};
use super::stats::Stats;
use crate::compact::compaction_log::{CompactionEntry, Health};
use crate::compact::{self, CompactionRequest};
use crate::io::env::Env;
use crate::io::store::presence::Occupancy;
use crate::options::Options;
use crate::read::answer::Answer;
use crate::read::value::{KeyEntry, Value};
use crate::read::{self, Keys, Scan, ScanRange, Size};
use crate::writer::accept::Accept;
use crate::writer::close;
use crate::writer::collector;
use crate::writer::large::LargeWrite;
use crate::writer::life::Phase;
use crate::writer::open::{self, OpenOptions};
use crate::writer::snapshot::Snapshot;
use crate::writer::state::Writer;
use futures::FutureExt;
use futures::future::BoxFuture;
use siltstone_base::batch::encode_one;
use siltstone_base::{Batch, BatchOps, Error, Kind, Result, UnixMillis};
use siltstone_manifest::Checkpoint;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The one writer of a database. Cheap to clone; all clones are one handle, used from any thread.
///
/// Dropping the last clone without [`Database::close`] sends what is buffered and stops; the next
/// opener finds everything durable, and that this one did not close cleanly.
#[derive(Clone)]
pub struct Database {
    inner: Arc<DatabaseInner>,
}

/// Ends the background tasks when the last handle goes.
struct DatabaseInner {
    writer: Arc<Writer>,
}

impl Drop for DatabaseInner {
    fn drop(&mut self) {
        close::abandon(&self.writer);
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("epoch", &self.inner.writer.epoch)
            .field("store", &self.inner.writer.env.store)
            .finish_non_exhaustive()
    }
}

impl Database {
    /// Opens the database for writing: claims an epoch, fences the writer before, replays its WAL
    /// (protocol rules F1 to F5).
    ///
    /// # Errors
    /// NotFound where there is none and `create` is off; Conflict while another writer is known to
    /// be alive, or as `take_over` says; Fenced when another opener overtook this one; Invalid,
    /// Denied, Unavailable, Corruption, Unsupported as their texts say.
    pub fn open(env: Env, how: OpenOptions) -> BoxFuture<'static, Result<Database>> {
        async move { Database::open_as(env, how, Occupancy::default()).await }.boxed()
    }

    /// As [`Database::open`], with what the opening and the handle occupy of the database: whoever
    /// gives up waiting ends that, and the next opener meets nobody. For this opening alone.
    ///
    /// # Errors
    /// As [`Database::open`]; Closed once `occupancy` was ended.
    pub fn open_as(
        env: Env,
        how: OpenOptions,
        occupancy: Occupancy,
    ) -> BoxFuture<'static, Result<Database>> {
        async move {
            let opened = open::writer(env, how, occupancy.clone()).await;
            let writer = opened.map_err(|error| {
                occupancy.end();
                error.during("open")
            })?;
            Ok(Database { inner: Arc::new(DatabaseInner { writer }) })
        }
        .boxed()
    }

    pub(in crate::api) fn writer(&self) -> Result<&Arc<Writer>> {
        let writer = &self.inner.writer;
        if writer.life.is_usable() {
            return Ok(writer);
        }
        // First why it died: its tasks end the phase too, and Fenced says more than Closed.
        if let Some(dead) = writer.dead() {
            return Err(dead);
        }
        if writer.life.phase() != Phase::Open {
            return Err(crate::io::supervise::closed());
        }
        Ok(writer)
    }

    /// Why calls are refused from now on: Closed, Fenced, or what ended the writer; `None` while it
    /// is open.
    #[must_use]
    pub fn ended(&self) -> Option<Error> {
        self.writer().err()
    }

    /// Why the handle has ended by itself, as when it is fenced; `None` while it has not, and where
    /// it was closed.
    #[must_use]
    pub fn died(&self) -> Option<Error> {
        let dead = self.inner.writer.dead();
        dead.filter(|error| error.kind() != siltstone_base::ErrorKind::Closed)
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// Closed, Fenced; and what the awaited part of the answer gives.
    pub fn get(&self, key: &[u8]) -> Result<Answer<Option<Value>>> {
        let writer = self.writer()?;
        read::get(&writer.context, writer.pin(), key)
    }

    /// The value of `key`, when it ends, and the number of its write, as far as that is known.
    ///
    /// # Errors
    /// As [`Database::get`].
    pub fn get_entry(&self, key: &[u8]) -> Result<Answer<Option<KeyEntry>>> {
        let writer = self.writer()?;
        read::get_entry(&writer.context, writer.pin(), key)
    }

    /// The values of `keys`, in their order, all of one moment.
    ///
    /// # Errors
    /// As [`Database::get`].
    pub fn get_many(&self, keys: impl Into<Keys>) -> Result<Answer<Vec<Option<Value>>>> {
        let writer = self.writer()?;
        read::get_many(&writer.context, writer.pin(), Arc::new(keys.into()))
    }

    /// Iterates over a range, as it is now; later writes do not show.
    ///
    /// # Errors
    /// Closed, Fenced.
    pub fn scan(&self, range: ScanRange) -> Result<Scan> {
        let writer = self.writer()?;
        let guard = Snapshot::of(writer);
        let (context, pin) = (writer.context.clone(), guard.pin().clone());
        Ok(Scan::new(context, pin, range, Some(Arc::new(guard))))
    }

    /// About how much a range holds, by metadata alone: no block is read.
    ///
    /// # Errors
    /// Closed, Fenced; and what the awaited part of the answer gives, where indexes of the tables
    /// at the edges are not in memory.
    pub fn approximate_size(&self, range: ScanRange) -> Result<Answer<Size>> {
        let writer = self.writer()?;
        Ok(read::approximate_size(&writer.context, &writer.pin(), range))
    }

    /// Sets `key` to `value`, for `expires_in` where given (rounded up to milliseconds).
    ///
    /// # Errors
    /// Invalid for a bad key or value, and as [`Database::expiry`]; Closed, Fenced.
    pub fn put(&self, key: &[u8], value: &[u8], expires_in: Option<Duration>) -> Result<Accept> {
        self.put_until(key, value, self.expiry(expires_in)?)
    }

    /// Sets `key` to `value`, until `expires_at` where given. A moment that has passed is no
    /// mistake: the value has ended from the start, and hides what the key had.
    ///
    /// # Errors
    /// Invalid for a bad key or value; Closed, Fenced.
    pub fn put_until(
        &self,
        key: &[u8],
        value: &[u8],
        expires_at: Option<UnixMillis>,
    ) -> Result<Accept> {
        let bytes = encode_one(Kind::Put, key, value, expires_at)?;
        self.writer()?.accept(bytes, 1)
    }

    /// Deletes `key`; that it was absent is no error.
    ///
    /// # Errors
    /// As [`Database::put`].
    pub fn delete(&self, key: &[u8]) -> Result<Accept> {
        let bytes = encode_one(Kind::Delete, key, &[], None)?;
        self.writer()?.accept(bytes, 1)
    }

    /// Deletes every key of `[start, end)`, whatever is there.
    ///
    /// # Errors
    /// Invalid when one of them is no key, or `start` is not below `end`; Closed, Fenced.
    pub fn delete_range(&self, start: &[u8], end: &[u8]) -> Result<Accept> {
        let bytes = encode_one(Kind::RangeDelete, start, end, None)?;
        self.writer()?.accept(bytes, 1)
    }

    /// Deletes every key from `start` on, whatever is there.
    ///
    /// # Errors
    /// Invalid when `start` is no key; Closed, Fenced.
    pub fn delete_from(&self, start: &[u8]) -> Result<Accept> {
        let mut batch = Batch::new();
        batch.delete_from(start)?;
        self.writer()?.accept_open_ended(&batch)
    }

    /// Adds a merge operand to `key`, for `expires_in` where given: a read folds it into what the
    /// key had.
    ///
    /// # Errors
    /// As [`Database::put`]; Invalid without a merge operator, and for what it does not take.
    pub fn merge(
        &self,
        key: &[u8],
        operand: &[u8],
        expires_in: Option<Duration>,
    ) -> Result<Accept> {
        self.merge_until(key, operand, self.expiry(expires_in)?)
    }

    /// As [`Database::merge`], until `expires_at` where given.
    ///
    /// # Errors
    /// As [`Database::merge`].
    pub fn merge_until(
        &self,
        key: &[u8],
        operand: &[u8],
        expires_at: Option<UnixMillis>,
    ) -> Result<Accept> {
        self.inner.writer.context.operator_or_invalid()?.check(operand)?;
        let bytes = encode_one(Kind::Merge, key, operand, expires_at)?;
        self.writer()?.accept(bytes, 1)
    }

    /// Accepts a batch as one atomic write.
    ///
    /// # Errors
    /// As [`Database::put`]; Invalid over `max_batch_bytes`, and as [`Database::merge`] where it
    /// holds operands.
    pub fn write(&self, batch: &Batch) -> Result<Accept> {
        if batch.operands() > 0 {
            let operator = self.inner.writer.context.operator_or_invalid()?;
            for op in BatchOps::new(batch.as_bytes()) {
                let op = op?;
                if op.kind == Kind::Merge {
                    operator.check(op.value)?;
                }
            }
        }
        if batch.has_open_ends() {
            return self.writer()?.accept_open_ended(batch);
        }
        self.writer()?.accept(Arc::from(batch.as_bytes()), batch.ops())
    }

    /// As [`Database::write`], past the memtable where the option `writes.skip_memtable_bytes` says
    /// so of the batch: what it is made into is uploaded before it is accepted (RFC 0044), and the
    /// future ends with its commit. Whoever drops the future before has written nothing. `None`:
    /// the batch goes through the memtable, by [`Database::write`]: it is smaller, or has operands
    /// or range deletes.
    ///
    /// # Errors
    /// Closed, Fenced; Invalid over `max_batch_bytes`. What is awaited: those, Timeout, and the
    /// store's; nothing was written then.
    pub fn write_large(&self, batch: &Batch) -> Result<Option<LargeWrite>> {
        let writer = self.writer()?;
        if !writer.skips_memtable(batch) {
            return Ok(None);
        }
        writer.accept_large(batch).map(Some)
    }

    /// The moment at which something written now with this life time expires.
    ///
    /// # Errors
    /// Invalid, as [`UnixMillis::after`] has it.
    pub fn expiry(&self, expires_in: Option<Duration>) -> Result<Option<UnixMillis>> {
        expires_in.map(|life| self.inner.writer.context.now().after(life)).transpose()
    }

    /// Returns once every write accepted before it is durable.
    ///
    /// # Errors
    /// As [`crate::Commit::wait`].
    pub fn flush(&self) -> BoxFuture<'_, Result<()>> {
        async move {
            let writer = self.writer()?;
            let last = writer.visible();
            writer.commit_at(last).wait(None).await.map_err(|error| error.during("flush"))
        }
        .boxed()
    }

    /// Returns once every write accepted before it is in a table that the manifest names. Tests and
    /// bulk loads use it; durability needs only [`Database::flush`].
    ///
    /// # Errors
    /// As [`Database::flush`].
    pub fn flush_memtable(&self) -> BoxFuture<'_, Result<()>> {
        async move {
            let writer = self.writer()?;
            let deadline = writer.options.deadline;
            let flushed = crate::writer::flush::everything(writer);
            writer.context.deadline(deadline, "flush memtable", flushed).await
        }
        .boxed()
    }

    /// Flushes the memtable and merges every table into one sorted run: a major compaction. Answers
    /// `false` when nothing was to gain. Dropping the future does not stop it.
    ///
    /// # Errors
    /// Closed, Fenced (also by another compactor: this one is stopped for good then, the handle is
    /// not); Corruption; the store's. What is finished by then is where the next call goes on.
    pub fn compact(&self) -> BoxFuture<'_, Result<bool>> {
        async move {
            self.flush_memtable().await?;
            let writer = Arc::clone(self.writer()?);
            let compacted = compact::compact(writer, CompactionRequest::Major).await;
            let compacted = compacted.map_err(|error| error.during("compact"))?;
            let writer = Arc::clone(self.writer()?);
            // Taken up by now; the version before is let go of, or is read, and stays.
            let until = writer.env.clock.monotonic() + writer.options.deadline;
            let tidies = Arc::clone(&writer);
            let tidy = async move {
                tidies.commit_pins().await?;
                collector::tidy(&tidies, until).await;
                Ok(())
            };
            // What fails of it is the next one's.
            let _ = writer.apart(tidy).await;
            Ok(compacted)
        }
        .boxed()
    }

    /// Carries out a plan made by hand: `L0:4, L0:3, 7 -> 7` merges two layers of L0 and run 7 into
    /// run 7. Answers `false` when nothing would change.
    ///
    /// # Errors
    /// Invalid for a text that is no plan; Conflict for one that may not run, with what would help;
    /// and as [`Database::compact`].
    pub fn submit<'a>(&'a self, plan: &'a str) -> BoxFuture<'a, Result<bool>> {
        async move {
            let wanted = CompactionRequest::Plan(plan.parse()?);
            let writer = Arc::clone(self.writer()?);
            let compacted = compact::compact(writer, wanted).await;
            compacted.map_err(|error| error.during("compact"))
        }
        .boxed()
    }

    /// A fixed view of the database as it is now.
    ///
    /// # Errors
    /// Closed, Fenced.
    pub fn snapshot(&self) -> Result<Snapshot> {
        Ok(Snapshot::of(self.writer()?))
    }

    /// Makes a checkpoint: a state of the database that stays readable, by any process, until the
    /// checkpoint is deleted or its time is over.
    ///
    /// # Errors
    /// Closed, Fenced; Expired for a source that is gone or whose time is over; Conflict for a name
    /// that is taken; Invalid for options out of range; Denied, Unavailable, Timeout (which name
    /// the id: it may have been made).
    pub fn checkpoint<'a>(
        &'a self,
        how: &'a CheckpointOptions,
    ) -> BoxFuture<'a, Result<Checkpoint>> {
        async move {
            let made = checkpoints::of_writer(self.writer()?, how).await;
            made.map_err(|error| error.during("checkpoint"))
        }
        .boxed()
    }

    /// What the handle holds and has done.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats::of_writer(&self.inner.writer)
    }

    /// The last compactions of this process, oldest first: at most 64.
    #[must_use]
    pub fn compaction_log(&self) -> Vec<CompactionEntry> {
        self.inner.writer.compactor.log.entries()
    }

    /// Why the compactor of this process does not compact: its last run failed and will be tried
    /// again, or another compactor has taken over, and it is not.
    #[must_use]
    pub fn compaction_error(&self) -> Option<Error> {
        match self.inner.writer.compactor.log.health() {
            Health::Well => None,
            Health::Fails(error) | Health::Fenced(error) => Some(error),
        }
    }

    /// Why the last round of this process's collector failed, or why the store refused a delete of
    /// it: it will try again.
    #[must_use]
    pub fn gc_error(&self) -> Option<Error> {
        self.inner.writer.collector.error()
    }

    /// The options the handle was opened with.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.inner.writer.options
    }

    /// Lets others open the database though this handle is not closed yet: for one that nobody has
    /// any more, while it is closed in the background. Whoever is quicker ends it.
    pub fn make_way(&self) {
        self.inner.writer.life.leave();
    }

    /// Writes everything, flushes the memtable, records a clean close, and ends the handle. Once
    /// begun it goes on, also where this future is dropped. Every close of a handle waits for the
    /// same end and answers the same.
    ///
    /// # Errors
    /// Fenced, Timeout, Denied, Unavailable, Internal; Closed when the runtime ended meanwhile: the
    /// handle is closed all the same, and what was acknowledged is durable; the next opener
    /// replays the WAL.
    pub fn close(&self) -> BoxFuture<'_, Result<()>> {
        async move { close::close(&self.inner.writer).await.map_err(|error| error.during("close")) }
            .boxed()
    }

    /// What [`Database::close`] answers, once closing has ended; `None` before.
    #[must_use]
    pub fn closed(&self) -> Option<Result<()>> {
        let ended = close::ended(&self.inner.writer)?;
        Some(ended.map_err(|error| error.during("close")))
    }
}
