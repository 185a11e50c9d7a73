//! The writer's handle: each method delegates to the shared state of the writer.
//!
//! A method must never run on a handle that is closed, fenced or failed: all of them get the
//! writer through [`Database::writer`], which checks that.

use super::checkpoints::{self, CheckpointOptions};
use super::stats::{LatencyHistogram, Stats, latencies};
use crate::compact::compaction_log::{CompactionEntry, Health};
use crate::compact::{self, CompactionRequest};
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
use siltstone_store::env::Env;
use siltstone_store::presence::Occupancy;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The single writer of a database. Cheap to clone; all clones share one handle, which can be used
/// from any thread.
///
/// If the last clone is dropped without [`Database::close`], the background tasks upload the
/// buffered writes and stop. The next opener finds these writes, and finds that this writer did
/// not close cleanly.
#[derive(Clone)]
pub struct Database {
    inner: Arc<DatabaseInner>,
}

/// Ends the background tasks when the last clone of the handle is dropped.
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
    /// Opens the database for writing: claims an epoch, fences the previous writer, and replays its
    /// WAL (protocol rules F1 to F5).
    ///
    /// # Errors
    /// NotFound if there is no database and `create` is off; Conflict if another writer is known to
    /// be alive, or if `take_over` does not permit taking over; Fenced if another opener claimed a
    /// later epoch; Invalid, Denied, Unavailable, Corruption, Unsupported.
    pub fn open(env: Env, how: OpenOptions) -> BoxFuture<'static, Result<Database>> {
        async move { Database::open_as(env, how, Occupancy::default()).await }.boxed()
    }

    /// Like [`Database::open`], with an [`Occupancy`] that marks the database as in use by the
    /// opening and the handle. A caller that stops waiting ends `occupancy`, and the next opener
    /// then finds no live writer. An occupancy serves one opening.
    ///
    /// # Errors
    /// As [`Database::open`]; Closed if `occupancy` has been ended.
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
        // Report the cause of death before the phase: the tasks of a dead writer end the phase
        // too, and Fenced says more than Closed.
        if let Some(dead) = writer.dead() {
            return Err(dead);
        }
        if writer.life.phase() != Phase::Open {
            return Err(siltstone_store::supervise::closed());
        }
        Ok(writer)
    }

    /// The error with which calls are refused: Closed, Fenced, or the error that ended the writer.
    /// `None` while the handle is open.
    #[must_use]
    pub fn refusal(&self) -> Option<Error> {
        self.writer().err()
    }

    /// The error that ended the handle without a close, for example Fenced. `None` while the handle
    /// is open, and after a close.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        let dead = self.inner.writer.dead();
        dead.filter(|error| error.kind() != siltstone_base::ErrorKind::Closed)
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// Closed, Fenced. If the answer is a future, it ends with Closed, Fenced or an error of the
    /// store.
    pub fn get(&self, key: &[u8]) -> Result<Answer<Option<Value>>> {
        let writer = self.writer()?;
        read::get(&writer.context, writer.pin(), key)
    }

    /// The value of `key`, its expiry time, and the sequence number of its write if known.
    ///
    /// # Errors
    /// As [`Database::get`].
    pub fn get_entry(&self, key: &[u8]) -> Result<Answer<Option<KeyEntry>>> {
        let writer = self.writer()?;
        read::get_entry(&writer.context, writer.pin(), key)
    }

    /// The values of `keys`, in the order of `keys`, all at one sequence number.
    ///
    /// # Errors
    /// As [`Database::get`].
    pub fn get_many(&self, keys: impl Into<Keys>) -> Result<Answer<Vec<Option<Value>>>> {
        let writer = self.writer()?;
        read::get_many(&writer.context, writer.pin(), Arc::new(keys.into()))
    }

    /// Iterates over a range at the current sequence number. The scan does not see later writes.
    ///
    /// # Errors
    /// Closed, Fenced.
    pub fn scan(&self, range: ScanRange) -> Result<Scan> {
        let writer = self.writer()?;
        let guard = Snapshot::of(writer);
        let (context, pin) = (writer.context.clone(), guard.pin().clone());
        Ok(Scan::new(context, pin, range, Some(Arc::new(guard))))
    }

    /// Estimates how much data a range holds. The estimate uses metadata only and reads no block.
    ///
    /// # Errors
    /// Closed, Fenced. If indexes of the tables at the edges of the range are not in memory, the
    /// answer is a future that reads them and may end with an error of the store.
    pub fn approximate_size(&self, range: ScanRange) -> Result<Answer<Size>> {
        let writer = self.writer()?;
        Ok(read::approximate_size(&writer.context, &writer.pin(), range))
    }

    /// Sets `key` to `value`. With `expires_in` the value expires after that time, rounded up to
    /// milliseconds.
    ///
    /// # Errors
    /// Invalid for an invalid key or value, and as [`Database::expiry`]; Closed, Fenced.
    pub fn put(&self, key: &[u8], value: &[u8], expires_in: Option<Duration>) -> Result<Accept> {
        self.put_until(key, value, self.expiry(expires_in)?)
    }

    /// Sets `key` to `value`. With `expires_at` the value expires at that time. A time in the past
    /// is valid: the value is expired at once, and still hides the previous value of the key.
    ///
    /// # Errors
    /// Invalid for an invalid key or value; Closed, Fenced.
    pub fn put_until(
        &self,
        key: &[u8],
        value: &[u8],
        expires_at: Option<UnixMillis>,
    ) -> Result<Accept> {
        let bytes = encode_one(Kind::Put, key, value, expires_at)?;
        self.writer()?.accept(bytes, 1)
    }

    /// Deletes `key`. An absent key is no error.
    ///
    /// # Errors
    /// As [`Database::put`].
    pub fn delete(&self, key: &[u8]) -> Result<Accept> {
        let bytes = encode_one(Kind::Delete, key, &[], None)?;
        self.writer()?.accept(bytes, 1)
    }

    /// Deletes every key of `[start, end)`. An empty range is no error.
    ///
    /// # Errors
    /// Invalid if `start` or `end` is not a valid key, or `start` is not below `end`; Closed,
    /// Fenced.
    pub fn delete_range(&self, start: &[u8], end: &[u8]) -> Result<Accept> {
        let bytes = encode_one(Kind::RangeDelete, start, end, None)?;
        self.writer()?.accept(bytes, 1)
    }

    /// Deletes every key at or above `start`. It is no error if there is no such key.
    ///
    /// # Errors
    /// Invalid if `start` is not a valid key; Closed, Fenced.
    pub fn delete_from(&self, start: &[u8]) -> Result<Accept> {
        let mut batch = Batch::new();
        batch.delete_from(start)?;
        self.writer()?.accept_open_ended(&batch)
    }

    /// Adds a merge operand to `key`. A read folds it into the older value of the key. With
    /// `expires_in` the operand expires after that time.
    ///
    /// # Errors
    /// As [`Database::put`]; Invalid without a merge operator, and for an operand that the operator
    /// rejects.
    pub fn merge(
        &self,
        key: &[u8],
        operand: &[u8],
        expires_in: Option<Duration>,
    ) -> Result<Accept> {
        self.merge_until(key, operand, self.expiry(expires_in)?)
    }

    /// Like [`Database::merge`], with a time at which the operand expires.
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

    /// Writes a batch atomically.
    ///
    /// # Errors
    /// As [`Database::put`]; Invalid for a batch above `max_batch_bytes`; for a batch with merge
    /// operands also as [`Database::merge`].
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

    /// Writes a large batch without the memtable: uploads the batch as one table, and then accepts
    /// it (RFC 0044). The option `writes.skip_memtable_bytes` sets the size from
    /// which a batch is large. The future returns the commit; dropping it earlier writes nothing.
    ///
    /// Returns `None` if the batch is smaller, or has merge operands or range deletes. The caller
    /// then passes it to [`Database::write`].
    ///
    /// # Errors
    /// Closed, Fenced; Invalid for a batch above `max_batch_bytes`. The future fails with these,
    /// Timeout, or an error of the store; it has written nothing then.
    pub fn write_large(&self, batch: &Batch) -> Result<Option<LargeWrite>> {
        let writer = self.writer()?;
        if !writer.skips_memtable(batch) {
            return Ok(None);
        }
        writer.accept_large(batch).map(Some)
    }

    /// The time at which a value written now with this lifetime expires.
    ///
    /// # Errors
    /// As [`UnixMillis::after`].
    pub fn expiry(&self, expires_in: Option<Duration>) -> Result<Option<UnixMillis>> {
        expires_in.map(|life| self.inner.writer.context.now().after(life)).transpose()
    }

    /// Waits until every write accepted before the call is durable.
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

    /// Waits until every write accepted before the call is in a table of the manifest. Tests and
    /// bulk loads use it; for durability [`Database::flush`] suffices.
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

    /// Flushes the memtable and merges every table into one sorted run: a major compaction. Returns
    /// `false` if there was nothing to compact. Dropping the future does not stop the compaction.
    ///
    /// # Errors
    /// Closed; Fenced, also if another compactor has taken over, which stops this handle's
    /// compactor for good but not the handle; Corruption; errors of the store. The next call
    /// continues after the parts that are complete.
    pub fn compact(&self) -> BoxFuture<'_, Result<bool>> {
        async move {
            self.flush_memtable().await?;
            let writer = Arc::clone(self.writer()?);
            let compacted = compact::compact(writer, CompactionRequest::Major).await;
            let compacted = compacted.map_err(|error| error.during("compact"))?;
            let writer = Arc::clone(self.writer()?);
            // The manifest has the compacted tables now. Release the pins on the previous version
            // and collect it, unless a reader still uses it.
            let until = writer.env.clock.monotonic() + writer.options.deadline;
            let tidies = Arc::clone(&writer);
            let tidy = async move {
                tidies.commit_pins().await?;
                collector::tidy(&tidies, until).await;
                Ok(())
            };
            // A failure is not the caller's: the next collection does the same work.
            let _ = writer.apart(tidy).await;
            Ok(compacted)
        }
        .boxed()
    }

    /// Runs a compaction plan that the caller wrote: `L0:4, L0:3, 7 -> 7` merges two layers of L0
    /// and run 7 into run 7. Returns `false` if the plan would change nothing.
    ///
    /// # Errors
    /// Invalid if `plan` cannot be parsed; Conflict if the plan is not allowed, with a text that
    /// says what to change; and as [`Database::compact`].
    pub fn submit<'a>(&'a self, plan: &'a str) -> BoxFuture<'a, Result<bool>> {
        async move {
            let wanted = CompactionRequest::Plan(plan.parse()?);
            let writer = Arc::clone(self.writer()?);
            let compacted = compact::compact(writer, wanted).await;
            compacted.map_err(|error| error.during("compact"))
        }
        .boxed()
    }

    /// A fixed view of the database at the current sequence number.
    ///
    /// # Errors
    /// Closed, Fenced.
    pub fn snapshot(&self) -> Result<Snapshot> {
        Ok(Snapshot::of(self.writer()?))
    }

    /// Creates a checkpoint: a state of the database that every process can read until the
    /// checkpoint is deleted or expires.
    ///
    /// # Errors
    /// Closed, Fenced; Expired for a source that was deleted or has expired; Conflict for a name
    /// that is in use; Invalid for options out of range; Denied, Unavailable, Timeout. These three
    /// state the id of the checkpoint, because it may have been created.
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

    /// The statistics of the handle.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats::of_writer(&self.inner.writer)
    }

    /// The durations of calls and requests of the handle, one histogram for each kind.
    #[must_use]
    pub fn latencies(&self) -> Vec<LatencyHistogram> {
        latencies(&self.inner.writer.context)
    }

    /// The last compactions of this process, at most 64, oldest first.
    #[must_use]
    pub fn compaction_log(&self) -> Vec<CompactionEntry> {
        self.inner.writer.compactor.log.entries()
    }

    /// The error that keeps the compactor of this process from compacting; `None` if it works.
    /// After a failed run the compactor retries. After another compactor has taken over it does
    /// not.
    #[must_use]
    pub fn compaction_error(&self) -> Option<Error> {
        match self.inner.writer.compactor.log.health() {
            Health::Healthy => None,
            Health::Fails(error) | Health::Fenced(error) => Some(error),
        }
    }

    /// The error of the last round of this process's collector, or the error with which the store
    /// refused one of its deletes. The collector retries both.
    #[must_use]
    pub fn gc_error(&self) -> Option<Error> {
        self.inner.writer.collector.error()
    }

    /// The options with which the handle was opened.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.inner.writer.options
    }

    /// Lets other openers take over the database before this handle is closed. A binding calls this
    /// for a handle that its program has dropped, and then closes it in the background. Either that
    /// close or the next opener ends the handle.
    pub fn allow_takeover(&self) {
        self.inner.writer.life.leave();
    }

    /// Uploads the buffered writes, flushes the memtable, records a clean close, and ends the
    /// handle. The close continues if this future is dropped. `close` is idempotent: all calls wait
    /// for the same close and return the same result.
    ///
    /// # Errors
    /// Fenced, Timeout, Denied, Unavailable, Internal; Closed if the runtime ended during the
    /// close. The handle is closed in each of these cases. Acknowledged writes are durable, and the
    /// next opener replays the WAL.
    pub fn close(&self) -> BoxFuture<'_, Result<()>> {
        async move { close::close(&self.inner.writer).await.map_err(|error| error.during("close")) }
            .boxed()
    }

    /// The result of [`Database::close`]; `None` while the close has not ended.
    #[must_use]
    pub fn close_result(&self) -> Option<Result<()>> {
        let ended = close::ended(&self.inner.writer)?;
        Some(ended.map_err(|error| error.during("close")))
    }
}
