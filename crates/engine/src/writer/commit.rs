//! Commits: sequence numbers, WAL buffer and memtable are updated under one short lock in the
//! caller's thread, without a channel or a task switch. The WAL task is notified once per WAL
//! object, not once per put.

use super::accept::Accept;
use super::durability::Durability;
use super::stalls::pressure::Hold;
use super::state::Writer;
use super::transaction::commit_window::CommitWindow;
use super::transaction::footprint::touched;
use super::wal_buffer::WalBuffer;
use futures::future::BoxFuture;
use parking_lot::MutexGuard;
use siltstone_base::{Batch, DatabaseId, Error, ErrorKind, Result, Seq, TimelineId};
use siltstone_memtable::Memtable;
use siltstone_store::counting::Requests;
use siltstone_store::env::Env;
use siltstone_store::supervise::{caught_now, ends_the_handle};
use siltstone_store::troubles::explained;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Log target of lines about a writer's life.
const TARGET: &str = "siltstone.writer";

/// The state that the commit lock guards: the end of the history.
pub(crate) struct Tail {
    /// First sequence number of the next write.
    pub(crate) next_seq: Seq,
    /// Batches that are in no WAL object yet.
    pub(crate) wal: WalBuffer,
    /// The memtable that takes writes. The tree holds it too.
    pub(crate) active: Arc<Memtable>,
    /// Bytes of frozen memtables that are not in tables yet.
    pub(crate) frozen_bytes: usize,
    /// The keys that were committed while transactions are open.
    pub(crate) window: CommitWindow,
    /// The time at which writes accepted under pressure are paid for.
    pub(crate) paid_by: Duration,
    /// Why the handle takes no more writes, once that is so.
    pub(crate) ended: Option<Error>,
}

impl Tail {
    pub(crate) fn new(
        next_seq: Seq,
        wal: WalBuffer,
        window: CommitWindow,
        (active, frozen_bytes): (Arc<Memtable>, usize),
    ) -> Self {
        let (paid_by, ended) = (Duration::ZERO, None);
        Tail { next_seq, wal, active, frozen_bytes, window, paid_by, ended }
    }

    pub(crate) fn unflushed_bytes(&self) -> usize {
        self.frozen_bytes + self.active.bytes()
    }
}

/// An accepted write. Dropping it cancels nothing.
#[derive(Clone)]
pub struct Commit {
    seq: Seq,
    awaiting: Arc<CommitWaiter>,
}

/// The state that a wait for any commit of a writer needs. Shared, so that a commit costs one
/// reference count.
pub(crate) struct CommitWaiter {
    pub(crate) durability: Arc<Durability>,
    pub(crate) wal_nudge: Arc<Notify>,
    pub(crate) env: Env,
    pub(crate) requests: Arc<Requests>,
    pub(crate) deadline: Duration,
    pub(crate) database: DatabaseId,
    pub(crate) timeline: Option<TimelineId>,
}

/// The position of a commit in the history of its database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitPlace {
    /// The database.
    pub database: DatabaseId,
    /// The timeline; `None`: the first one.
    pub timeline: Option<TimelineId>,
    /// Sequence number of the last operation.
    pub seq: Seq,
}

impl Commit {
    /// Its position in the history, from which a change feed can begin.
    ///
    /// # Errors
    /// The error with which the handle ended, if the write is not known to be durable: another
    /// writer may have given its sequence numbers to other writes.
    pub fn place(&self) -> Result<CommitPlace> {
        let CommitWaiter { durability, database, timeline, .. } = &*self.awaiting;
        match durability.failure().filter(|_| !self.is_durable()) {
            Some(ended) => Err(ended),
            None => Ok(CommitPlace { database: *database, timeline: *timeline, seq: self.seq }),
        }
    }

    /// Sequence number of the last operation of the write: its position in the history of the
    /// database.
    #[must_use]
    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// Whether the write is durable.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.awaiting.durability.durable() >= self.seq
    }

    /// Completes once the write is durable; has its WAL object sent immediately if it is not, or,
    /// without a WAL, its memtable flushed.
    /// `None` waits for up to the deadline of the handle. Cancelling the wait does not cancel the
    /// write.
    ///
    /// # Errors
    /// Timeout: the write continues and may still become durable; the last refusal of the store is
    /// the cause. Fenced, Closed, and Internal if a task of the handle died: the write will not be
    /// acknowledged, though a newer writer may have recovered it. Denied: the store refuses the
    /// credentials; the write stays queued and is retried. Invalid, NotFound, Unsupported,
    /// Corruption, Internal: the store refuses the write for good, and the handle has ended.
    pub fn wait(&self, limit: Option<Duration>) -> BoxFuture<'static, Result<()>> {
        let this = self.clone();
        if self.awaiting.durability.want(self.seq) {
            self.awaiting.wal_nudge.notify_one();
        }
        Box::pin(async move {
            let awaiting = &this.awaiting;
            let limit = limit.unwrap_or(awaiting.deadline);
            let durable = Arc::clone(&awaiting.durability).wait(this.seq);
            let waited = awaiting.env.deadline(limit, "wait for durability", durable).await;
            waited.map_err(|error| explained(error, awaiting.requests.troubles().of_log()))
        })
    }
}

impl fmt::Debug for Commit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Commit")
            .field("seq", &self.seq)
            .field("durable", &self.is_durable())
            .finish_non_exhaustive()
    }
}

impl Writer {
    /// Accepts one atomic batch (`bytes` are those of `Batch::as_bytes`), or returns a stall. The
    /// memtable keeps the buffer.
    ///
    /// # Errors
    /// Invalid over `max_batch_bytes`; Fenced, Closed once the handle has ended.
    pub(crate) fn accept(self: &Arc<Self>, bytes: Arc<[u8]>, ops: u32) -> Result<Accept> {
        self.accept_if(bytes, ops, |_| Ok(()))
    }

    /// As [`Writer::accept`], but only if `holds` agrees. It is called under the lock under which
    /// the batch gets its numbers, and sees everything committed before (RFC 0025, O3).
    ///
    /// # Errors
    /// As [`Writer::accept`], and those of `holds`.
    pub(crate) fn accept_if(
        self: &Arc<Self>,
        bytes: Arc<[u8]>,
        ops: u32,
        holds: impl FnOnce(&CommitWindow) -> Result<()>,
    ) -> Result<Accept> {
        self.check_size(&bytes)?;
        self.accept_under(self.tail.lock(), bytes, ops, holds)
    }

    /// As [`Writer::accept`], for a batch with range deletes up to the last key. Under the commit
    /// lock the greatest key that they can delete is known; the ranges are ended right after it.
    ///
    /// # Errors
    /// As [`Writer::accept`].
    pub(crate) fn accept_open_ended(self: &Arc<Self>, batch: &Batch) -> Result<Accept> {
        let tail = self.tail.lock();
        let greatest = self.greatest_key();
        let batch =
            batch.ended_at(greatest.as_ref().map(|(key, there)| (key.as_slice(), *there)))?;
        self.check_size(batch.as_bytes())?;
        self.accept_under(tail, Arc::from(batch.as_bytes()), batch.ops(), |_| Ok(()))
    }

    pub(super) fn check_size(&self, bytes: &[u8]) -> Result<()> {
        if bytes.len() <= self.options.max_batch_bytes {
            return Ok(());
        }
        Err(Error::invalid(
            "the batch exceeds max_batch_bytes: split it, raise the option, or write the rows with \
             load(), which takes any number of rows and is also one commit",
        )
        .with("bytes", bytes.len())
        .with("max_batch_bytes", self.options.max_batch_bytes))
    }

    fn accept_under(
        self: &Arc<Self>,
        mut tail: MutexGuard<'_, Tail>,
        bytes: Arc<[u8]>,
        ops: u32,
        holds: impl FnOnce(&CommitWindow) -> Result<()>,
    ) -> Result<Accept> {
        if let Some(ended) = &tail.ended {
            return Err(ended.clone());
        }
        holds(&tail.window)?;
        if let Err(hold) = self.admit(&mut tail, bytes.len()) {
            drop(tail);
            return Ok(Accept::Pressure(self.held_up(hold)));
        }
        if ops == 0 {
            return Ok(Accept::Accepted(self.commit_at(tail.next_seq.minus(1))));
        }
        let (last, news) = match caught_now("commit", || self.append(&mut tail, &bytes, ops)) {
            Ok(appended) => appended?,
            // Set it before the lock is released, so that no write continues after half a batch.
            Err(panicked) => {
                tail.ended.get_or_insert_with(|| ends_the_handle(&panicked));
                drop(tail);
                self.die(&panicked);
                return Err(ends_the_handle(&panicked));
            }
        };
        if tail.active.bytes() >= self.options.l0_sst_size_bytes || self.log.is_long() {
            self.freeze(&mut tail);
        }
        drop(tail);
        if news {
            self.nudges.wal.notify_one();
        }
        Ok(Accept::Accepted(self.commit_at(last)))
    }

    /// Gives the batch its sequence numbers and its place in the memtable and in the WAL buffer.
    /// Returns its last number, and whether the WAL task must be notified.
    fn append(&self, tail: &mut Tail, bytes: &Arc<[u8]>, ops: u32) -> Result<(Seq, bool)> {
        let first = tail.next_seq;
        let last = first.plus(u64::from(ops) - 1);
        if last > Seq::MAX {
            return Err(Error::internal("sequence numbers are used up"));
        }
        tail.active.insert_batch(first, bytes)?;
        let logs = self.options.writes.wal_enabled;
        let news = logs && tail.wal.push(first, ops, bytes, || self.env.clock.monotonic());
        tail.next_seq = last.next();
        if tail.window.is_on() {
            for one in touched(bytes) {
                tail.window.note(last, one?);
            }
        }
        self.publish(last);
        Ok((last, news))
    }

    /// Whether back-pressure lets the write pass now.
    fn admit(&self, tail: &mut Tail, bytes: usize) -> Result<(), Hold> {
        let unflushed = tail.unflushed_bytes();
        if self.pressure.is_calm(unflushed) {
            return Ok(());
        }
        let now = self.env.clock.monotonic();
        self.pressure.admit(&self.pressure.load(unflushed), bytes, now, &mut tail.paid_by)
    }

    pub(crate) fn commit_at(&self, seq: Seq) -> Commit {
        Commit { seq, awaiting: Arc::clone(&self.awaiting) }
    }

    /// Ends the handle: no write is accepted or acknowledged any more, and all waiting callers wake
    /// up. The first reason is kept.
    pub(crate) fn end(&self, why: &Error) {
        let mut tail = self.tail.lock();
        let first = tail.ended.is_none();
        tail.ended.get_or_insert_with(|| why.clone());
        drop(tail);
        if first && why.kind() != ErrorKind::Closed {
            let (kind, why) = (why.kind().name(), why.to_string());
            log::error!(target: TARGET, "event=writer_ends kind={kind} error={why:?}");
        }
        self.life.refuse();
        self.life.leave();
        self.durability.fail(why.clone());
        self.pressure.relief.notify_waiters();
        self.pressure.watch.notify_one();
        self.nudges.all();
        self.life.changed.notify_waiters();
    }

    /// Why the handle has ended; `None` while a close is still in progress.
    pub(crate) fn dead(&self) -> Option<Error> {
        self.durability.failure()
    }
}
