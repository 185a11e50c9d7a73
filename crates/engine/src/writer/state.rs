//! The shared state of a writer, held by its handle, its snapshots and its background tasks.
//!
//! Fields are grouped by the threads that use them. Lock order: `tail` before `tree`, and `tail`
//! before `held`. No thread awaits anything under one of these locks.

use super::behind::BehindKeys;
use super::checkpoint::TreePins;
use super::collector::Embedded;
use super::commit::{CommitWaiter, Tail};
use super::durability::Durability;
use super::durable_log::{DurableLog, UnflushedWal};
use super::flush_progress::Flushes;
use super::held_seqs::HeldSeqs;
use super::ingest::AdoptedJobs;
use super::large::LargeBatches;
use super::life::{Phase, WriterLife};
use super::nudges::Nudges;
use super::stalls::pressure::Pressure;
use super::transaction::commit_window::CommitWindow;
use super::wal_buffer::WalBuffer;
use crate::cache::fetch::ReadContext;
use crate::cache::metadata::MetadataBudget;
use crate::compact::Compactor;
use crate::gc::Garbage;
use crate::manifests::client::ManifestClient;
use crate::options::Options;
use crate::read::Pin;
use crate::read::queue::{IngestQueue, QueuedIngest};
use crate::read::tree::{Levels, Tree};
use futures::channel::oneshot;
use parking_lot::{Mutex, RwLock};
use siltstone_base::{DatabaseId, Epoch, Error, Result, Seq, TimelineId, UnixMillis, WalId};
use siltstone_manifest::{Edit, KeptFence, Manifest, Refusal};
use siltstone_memtable::Memtable;
use siltstone_store::env::Env;
use siltstone_store::presence::Occupancy;
use siltstone_store::supervise;
use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

pub(crate) struct Writer {
    // Set at open and never changed.
    pub(crate) env: Env,
    pub(crate) options: Options,
    pub(crate) epoch: Epoch,
    /// Every fence that the walk met, and this writer's own (protocol rule F5).
    pub(crate) fences: Vec<KeptFence>,
    /// The last sequence number that opening found.
    pub(crate) opened_at: Seq,
    /// Number of fences that the walk met: earlier writers that left rows in the log.
    pub(crate) fences_met: usize,
    pub(crate) manifests: ManifestClient,
    pub(crate) context: ReadContext,
    pub(crate) budget: Arc<MetadataBudget>,
    /// Locked before `turn` of the commits. No other lock is held while waiting for it.
    pub(crate) pins: tokio::sync::Mutex<TreePins>,

    // All threads and tasks.
    pub(crate) life: WriterLife,
    pub(crate) nudges: Nudges,

    // Writing threads.
    pub(crate) tail: Mutex<Tail>,
    pub(crate) durability: Arc<Durability>,
    pub(crate) awaiting: Arc<CommitWaiter>,
    pub(crate) pressure: Arc<Pressure>,

    // Reading threads.
    tree: RwLock<Arc<Tree>>,
    visible: AtomicU64,
    pub(crate) held: HeldSeqs,

    // Background tasks.
    pub(crate) compactor: Compactor,
    pub(crate) collector: Embedded,
    pub(crate) flushes: Flushes,
    pub(crate) log: DurableLog,
    pub(crate) came_behind: BehindKeys,
    /// The last adopted jobs, for callers that wait for them.
    pub(crate) adopted_jobs: AdoptedJobs,
    /// Number of requested loads. The load that runs holds the lock.
    pub(crate) loads: tokio::sync::Mutex<u64>,
    pub(crate) large: LargeBatches,
}

/// The state that opening has found, from which the writer starts.
pub(crate) struct OpenedState {
    pub(crate) env: Env,
    pub(crate) options: Options,
    pub(crate) occupancy: Occupancy,
    pub(crate) epoch: Epoch,
    pub(crate) database: DatabaseId,
    pub(crate) timeline: Option<TimelineId>,
    pub(crate) fences: Vec<KeptFence>,
    pub(crate) fences_met: usize,
    pub(crate) large: LargeBatches,
    pub(crate) manifests: ManifestClient,
    pub(crate) pressure: Arc<Pressure>,
    pub(crate) garbage: Arc<Garbage>,
    pub(crate) durability: Arc<Durability>,
    pub(crate) context: ReadContext,
    pub(crate) budget: Arc<MetadataBudget>,
    /// The tables of the version that the checkpoint of the claim names.
    pub(crate) levels: Arc<Levels>,
    pub(crate) pins: TreePins,
    pub(crate) pins_nudge: Arc<Notify>,
    pub(crate) ingest_nudge: Arc<Notify>,
    pub(crate) active: Arc<Memtable>,
    /// Newest first.
    pub(crate) frozen: Vec<Arc<Memtable>>,
    /// Replayed ingests, newest first.
    pub(crate) queued: Vec<Arc<QueuedIngest>>,
    pub(crate) first_wal: WalId,
    pub(crate) last_seq: Seq,
    pub(crate) commit_time: UnixMillis,
    pub(crate) unflushed_wal: VecDeque<UnflushedWal>,
}

impl Writer {
    pub(crate) fn new(start: OpenedState) -> Arc<Writer> {
        let (levels, queue) = IngestQueue::over(start.queued, &start.levels);
        let tree = Tree {
            active: Arc::clone(&start.active),
            frozen: start.frozen,
            levels,
            queue,
            flushed_seq: Seq::NONE,
            own: None,
        };
        let frozen_bytes = tree.frozen.iter().map(|memtable| memtable.bytes()).sum();
        let nudges = Nudges::new(start.pins_nudge, start.ingest_nudge);
        let awaiting = Arc::new(CommitWaiter {
            durability: Arc::clone(&start.durability),
            wal_nudge: Arc::clone(&nudges.wal),
            env: start.env.clone(),
            requests: Arc::clone(&start.context.requests),
            deadline: start.options.deadline,
            database: start.database,
            timeline: start.timeline,
        });
        let buffer = WalBuffer::new(start.options.flush_bytes);
        let window = CommitWindow::new(start.options.writes.transaction_window_bytes);
        let last = start.last_seq;
        Arc::new(Writer {
            env: start.env,
            options: start.options,
            epoch: start.epoch,
            fences: start.fences,
            opened_at: last,
            fences_met: start.fences_met,
            manifests: start.manifests,
            context: start.context,
            budget: start.budget,
            pins: tokio::sync::Mutex::new(start.pins),
            life: WriterLife::new(start.occupancy),
            nudges,
            tail: Mutex::new(Tail::new(last.next(), buffer, window, (start.active, frozen_bytes))),
            durability: start.durability,
            awaiting,
            pressure: start.pressure,
            tree: RwLock::new(Arc::new(tree)),
            visible: AtomicU64::new(last.0),
            held: HeldSeqs::default(),
            compactor: Compactor::default(),
            collector: Embedded::new(start.garbage),
            flushes: Flushes::default(),
            log: DurableLog::new(start.first_wal, start.unflushed_wal, start.commit_time),
            came_behind: BehindKeys::default(),
            adopted_jobs: AdoptedJobs::default(),
            loads: tokio::sync::Mutex::default(),
            large: start.large,
        })
    }

    /// Runs a task of the handle. If the task dies, the handle ends.
    pub(crate) fn supervise(
        self: &Arc<Self>,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let writer = Arc::clone(self);
        self.spawn_watched(name, task, move |died| writer.die(died));
    }

    /// Runs a task without which the handle can go on. Calls `died` if the task dies.
    pub(crate) fn spawn_watched(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
        died: impl FnOnce(&Error) + Send + 'static,
    ) {
        self.env.spawn.spawn(name, supervise::watched(name, task, died));
    }

    /// Runs `work` as a separate task. The caller may give up, or stop polling for a while: commits
    /// of a process run one after another, and a stalled caller must not block the others.
    ///
    /// # Errors
    /// Errors of `work`; Closed if the runtime has ended.
    pub(crate) async fn apart<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        let work = supervise::caught("commit", work);
        let task = async move { drop(answer.send(work.await.flatten())) };
        self.env.spawn.spawn("commit", Box::pin(task));
        answered.await.unwrap_or_else(|_| Err(self.dead().unwrap_or_else(supervise::closed)))
    }

    /// Commits `edit` through [`Writer::apart`].
    ///
    /// # Errors
    /// As [`ManifestClient::try_commit`].
    pub(crate) async fn try_commit_apart(
        self: &Arc<Self>,
        edit: Edit,
    ) -> Result<std::result::Result<Arc<Manifest>, Refusal>> {
        let writer = Arc::clone(self);
        self.apart(async move { writer.manifests.try_commit(edit).await }).await
    }

    /// Ends the handle because a task died.
    pub(crate) fn die(&self, died: &Error) {
        self.end(&supervise::ends_the_handle(died));
    }

    /// Makes everything up to `seq` visible to reads. Called under the commit lock.
    pub(crate) fn publish(&self, seq: Seq) {
        self.visible.store(seq.0, Ordering::Release);
    }

    /// The newest visible sequence number.
    pub(crate) fn visible(&self) -> Seq {
        Seq(self.visible.load(Ordering::Acquire))
    }

    /// A consistent view: a tree, and a sequence number all of whose rows are in the tree. Both are
    /// read under the lock of the tree. Otherwise a flush between the two reads could drop versions
    /// that the older number needs.
    pub(crate) fn pin(&self) -> Pin {
        let pin = self.pin_accepted();
        if self.options.read_durable_only {
            return Pin { seq: pin.seq.min(self.durability.durable()), ..pin };
        }
        pin
    }

    /// As [`Writer::pin`], but sees everything accepted.
    pub(crate) fn pin_accepted(&self) -> Pin {
        let now = self.context.now();
        let tree = self.tree.read();
        Pin { seq: self.visible(), tree: Arc::clone(&tree), now }
    }

    /// Records that the WAL object `id`, whose last number is `last_seq`, and all before it are
    /// durable.
    pub(crate) fn acknowledge(&self, id: WalId, last_seq: Seq) {
        self.log.commit(id, last_seq);
        self.durability.advance(last_seq);
    }

    pub(crate) fn tree(&self) -> Arc<Tree> {
        Arc::clone(&self.tree.read())
    }

    /// Freezes the active memtable. Called under the commit lock, so that no write comes in
    /// between.
    pub(crate) fn freeze(&self, tail: &mut Tail) {
        if tail.active.is_empty() {
            return;
        }
        let full = std::mem::replace(&mut tail.active, Arc::new(Memtable::new()));
        tail.frozen_bytes += full.bytes();
        self.log.frozen();
        let mut tree = self.tree.write();
        let mut frozen = Vec::with_capacity(tree.frozen.len() + 1);
        frozen.push(full);
        frozen.extend(tree.frozen.iter().cloned());
        let active = Arc::clone(&tail.active);
        *tree = Arc::new(Tree { active, frozen, ..Tree::clone(&tree) });
        drop(tree);
        self.nudges.flush.notify_one();
    }

    /// Requests a flush of everything up to `seq`, regardless of the size of L0.
    pub(crate) fn ask_flush(&self, seq: Seq) {
        self.flushes.ask(seq);
        self.nudges.flush.notify_one();
    }

    /// Queues an ingest above everything accepted. Called under the commit lock, right after the
    /// memtable was frozen.
    pub(crate) fn queue(&self, ingest: Arc<QueuedIngest>) {
        let mut tree = self.tree.write();
        let elements = std::iter::once(ingest).chain(tree.queued().iter().cloned()).collect();
        let (levels, queue) = IngestQueue::over(elements, tree.below());
        *tree = Arc::new(Tree { levels, queue, ..Tree::clone(&tree) });
        drop(tree);
        self.nudges.flush.notify_one();
    }

    /// Replaces flushed memtables and installed ingests by the tables of the version that contains
    /// them.
    pub(crate) fn install_flush(
        &self,
        flushed: &[Arc<Memtable>],
        ingests: &[Arc<QueuedIngest>],
        below: &Arc<Levels>,
    ) {
        for ingest in ingests {
            // Set once, because an element leaves the queue once.
            let _ = ingest.installed.set(Arc::clone(below));
        }
        let mut tail = self.tail.lock();
        let bytes: usize = flushed.iter().map(|memtable| memtable.bytes()).sum();
        tail.frozen_bytes = tail.frozen_bytes.saturating_sub(bytes);
        let mut tree = self.tree.write();
        let is_flushed = |m: &Arc<Memtable>| flushed.iter().any(|f| Arc::ptr_eq(f, m));
        let frozen = tree.frozen.iter().filter(|m| !is_flushed(m)).cloned().collect();
        let stays = |one: &&Arc<QueuedIngest>| one.installed.get().is_none();
        let elements = tree.queued().iter().filter(stays).cloned().collect();
        let (levels, queue) = IngestQueue::over(elements, below);
        *tree = Arc::new(Tree { frozen, levels, queue, ..Tree::clone(&tree) });
        drop(tree);
        drop(tail);
        self.pressure.relief.notify_waiters();
        self.nudges.compact.notify_one();
    }

    /// Installs other tables: those of a compaction, with the same entries, or those that came
    /// behind, with more entries. It therefore takes the commit lock: a transaction is either
    /// validated before the new entries become visible, or its validation sees them.
    pub(crate) fn install_levels(&self, below: &Arc<Levels>) {
        let _tail = self.tail.lock();
        let mut tree = self.tree.write();
        let (levels, queue) = IngestQueue::over(tree.queued().to_vec(), below);
        *tree = Arc::new(Tree { levels, queue, ..Tree::clone(&tree) });
    }

    /// The tables of `manifest`, with the handles that this process has open.
    pub(crate) fn levels_of(&self, manifest: &Manifest) -> Result<Arc<Levels>> {
        let levels = Levels::of_manifest(manifest, &self.tree().levels, &self.budget)?;
        Ok(Arc::new(levels.noticed_by(&self.nudges.pins)))
    }

    /// A pin that bounds the floor until it is released.
    pub(crate) fn hold(&self) -> Pin {
        self.held.hold(|| self.pin())
    }

    /// As [`Writer::hold`], but sees everything accepted.
    pub(crate) fn hold_accepted(&self) -> Pin {
        self.held.hold(|| self.pin_accepted())
    }

    /// The oldest sequence number at which this process may still read.
    pub(crate) fn floor(&self) -> Seq {
        self.held.floor(|| self.visible().min(self.durability.durable()))
    }

    /// Advances closing to `phase` and notifies every task.
    pub(crate) fn set_phase(&self, phase: Phase) {
        self.life.pass_to(phase);
        self.nudges.all();
        self.pressure.watch.notify_one();
    }
}
