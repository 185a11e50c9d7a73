//! The one writer's shared state: what its handle, its snapshots and its background tasks hold.
//!
//! Fields are grouped by who touches them, and what belongs together has a module of its own. Lock
//! order: `tail` before `tree`, and so `held`; nothing is awaited under any of them.

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
use crate::io::env::Env;
use crate::io::store::presence::Occupancy;
use crate::io::supervise;
use crate::manifests::client::ManifestClient;
use crate::options::Options;
use crate::read::Pin;
use crate::read::queue::{IngestQueue, QueuedIngest};
use crate::read::tree::{Levels, Tree};
use futures::channel::oneshot;
use parking_lot::{Mutex, RwLock};
use siltstone_base::{Epoch, Error, Result, Seq, UnixMillis, WalId};
use siltstone_manifest::{Edit, KeptFence, Manifest, Refusal};
use siltstone_memtable::Memtable;
use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

pub(crate) struct Writer {
    // Set at open, never changed.
    pub(crate) env: Env,
    pub(crate) options: Options,
    pub(crate) epoch: Epoch,
    /// Every fence met on the walk, and our own (protocol rule F5).
    pub(crate) fences: Vec<KeptFence>,
    /// Fences that were met on the walk: lives that have left rows in the log.
    pub(crate) fences_met: usize,
    pub(crate) manifests: ManifestClient,
    pub(crate) context: ReadContext,
    pub(crate) budget: Arc<MetadataBudget>,
    /// Before `turn` of the commits; nothing else is locked while it is waited for.
    pub(crate) pins: tokio::sync::Mutex<TreePins>,

    // Everybody.
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
    /// Jobs that were taken in.
    pub(crate) taken_in: AdoptedJobs,
    /// How many loads were asked for; held by the one that is being.
    pub(crate) loads: tokio::sync::Mutex<u64>,
    pub(crate) large: LargeBatches,
}

/// What opening found out, and the writer starts from.
pub(crate) struct Start {
    pub(crate) env: Env,
    pub(crate) options: Options,
    pub(crate) occupancy: Occupancy,
    pub(crate) epoch: Epoch,
    pub(crate) fences: Vec<KeptFence>,
    pub(crate) fences_met: usize,
    pub(crate) large: LargeBatches,
    pub(crate) manifests: ManifestClient,
    pub(crate) pressure: Arc<Pressure>,
    pub(crate) garbage: Arc<Garbage>,
    pub(crate) durability: Arc<Durability>,
    pub(crate) context: ReadContext,
    pub(crate) budget: Arc<MetadataBudget>,
    /// The tables of the version that the claim's checkpoint names.
    pub(crate) levels: Arc<Levels>,
    pub(crate) pins: TreePins,
    pub(crate) pins_nudge: Arc<Notify>,
    pub(crate) ingest_nudge: Arc<Notify>,
    pub(crate) active: Arc<Memtable>,
    /// Newest first.
    pub(crate) frozen: Vec<Arc<Memtable>>,
    /// Ingests that were replayed, newest first.
    pub(crate) queued: Vec<Arc<QueuedIngest>>,
    pub(crate) first_wal: WalId,
    pub(crate) last_seq: Seq,
    pub(crate) commit_time: UnixMillis,
    pub(crate) unflushed_wal: VecDeque<UnflushedWal>,
}

impl Writer {
    pub(crate) fn new(start: Start) -> Arc<Writer> {
        let (levels, queue) = IngestQueue::over(start.queued, &start.levels);
        let tree = Tree {
            active: Arc::clone(&start.active),
            frozen: start.frozen,
            levels,
            queue,
            flushed_seq: Seq::NONE,
            frozen_until: Seq::MAX,
        };
        let frozen_bytes = tree.frozen.iter().map(|memtable| memtable.bytes()).sum();
        let nudges = Nudges::new(start.pins_nudge, start.ingest_nudge);
        let awaiting = Arc::new(CommitWaiter {
            durability: Arc::clone(&start.durability),
            wal_nudge: Arc::clone(&nudges.wal),
            env: start.env.clone(),
            requests: Arc::clone(&start.context.requests),
            deadline: start.options.deadline,
        });
        let buffer = WalBuffer::new(start.options.flush_bytes);
        let window = CommitWindow::new(start.options.writes.transaction_window_bytes);
        let last = start.last_seq;
        Arc::new(Writer {
            env: start.env,
            options: start.options,
            epoch: start.epoch,
            fences: start.fences,
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
            taken_in: AdoptedJobs::default(),
            loads: tokio::sync::Mutex::default(),
            large: start.large,
        })
    }

    /// Runs a task of the handle, whose death is the handle's.
    pub(crate) fn supervise(
        self: &Arc<Self>,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let writer = Arc::clone(self);
        self.spawn_watched(name, task, move |died| writer.die(died));
    }

    /// Runs a task that the handle can live without; `died` hears of its death.
    pub(crate) fn spawn_watched(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
        died: impl FnOnce(&Error) + Send + 'static,
    ) {
        self.env.spawn.spawn(name, supervise::watched(name, task, died));
    }

    /// Does `work` as a task of its own. Whoever called may give up waiting, or poll no longer for
    /// a while: commits of the process go one after another, and none is to wait for that.
    ///
    /// # Errors
    /// Those of `work`; Closed where its runtime has ended.
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

    /// Commits `edit`, [`Writer::apart`].
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

    /// Ends the handle because of what died.
    pub(crate) fn die(&self, died: &Error) {
        self.end(&supervise::ends_the_handle(died));
    }

    /// Makes everything up to `seq` visible to reads; under the commit lock.
    pub(crate) fn publish(&self, seq: Seq) {
        self.visible.store(seq.0, Ordering::Release);
    }

    /// The newest visible sequence number.
    pub(crate) fn visible(&self) -> Seq {
        Seq(self.visible.load(Ordering::Acquire))
    }

    /// A consistent moment: a tree, and a sequence number that is wholly in it. Taken under the
    /// tree's lock, since between loading one and the other a flush could drop versions that the
    /// older number still needs.
    pub(crate) fn pin(&self) -> Pin {
        let pin = self.pin_accepted();
        if self.options.read_durable_only && !cfg!(mutation = "bound_ignored") {
            return Pin { seq: pin.seq.min(self.durability.durable()), ..pin };
        }
        pin
    }

    /// As [`Writer::pin`], of everything accepted.
    pub(crate) fn pin_accepted(&self) -> Pin {
        let now = self.context.now();
        let tree = self.tree.read();
        Pin { seq: self.visible(), tree: Arc::clone(&tree), now }
    }

    /// The WAL object `id`, which ends with `last_seq`, is durable, and so is all before it.
    pub(crate) fn acknowledge(&self, id: WalId, last_seq: Seq) {
        self.log.commit(id, last_seq);
        self.durability.advance(last_seq);
    }

    pub(crate) fn tree(&self) -> Arc<Tree> {
        Arc::clone(&self.tree.read())
    }

    /// Freezes the active memtable; under the commit lock, so that no write slips between.
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

    /// Everything up to `seq` is to be flushed however full L0 is.
    pub(crate) fn ask_flush(&self, seq: Seq) {
        self.flushes.ask(seq);
        self.nudges.flush.notify_one();
    }

    /// Puts an ingest on top of all that was accepted; under the commit lock, right after the
    /// memtable was frozen.
    pub(crate) fn queue(&self, ingest: Arc<QueuedIngest>) {
        let mut tree = self.tree.write();
        let elements = std::iter::once(ingest).chain(tree.queued().iter().cloned()).collect();
        let (levels, queue) = IngestQueue::over(elements, tree.below());
        *tree = Arc::new(Tree { levels, queue, ..Tree::clone(&tree) });
        drop(tree);
        self.nudges.flush.notify_one();
    }

    /// Replaces flushed memtables, and ingests that were installed, by the tables of the version
    /// that has them now.
    pub(crate) fn install_flush(
        &self,
        flushed: &[Arc<Memtable>],
        ingests: &[Arc<QueuedIngest>],
        below: &Arc<Levels>,
    ) {
        for ingest in ingests {
            // Set once: an element leaves once.
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

    /// Other tables with the same entries, which a compaction made, or with more, behind them: that
    /// is why the commit lock is held. A transaction is validated before it shows, or minds it.
    pub(crate) fn install_levels(&self, below: &Arc<Levels>) {
        let _tail = self.tail.lock();
        let mut tree = self.tree.write();
        let (levels, queue) = IngestQueue::over(tree.queued().to_vec(), below);
        *tree = Arc::new(Tree { levels, queue, ..Tree::clone(&tree) });
    }

    /// Tables of `manifest`, with this process's handles.
    pub(crate) fn levels_of(&self, manifest: &Manifest) -> Result<Arc<Levels>> {
        let levels = Levels::of_manifest(manifest, &self.tree().levels, &self.budget)?;
        Ok(Arc::new(levels.noticed_by(&self.nudges.pins)))
    }

    /// A pin that counts for the floor until it is released.
    pub(crate) fn hold(&self) -> Pin {
        self.held.hold(|| self.pin())
    }

    /// As [`Writer::hold`], of everything accepted.
    pub(crate) fn hold_accepted(&self) -> Pin {
        self.held.hold(|| self.pin_accepted())
    }

    /// The oldest sequence number that somebody in this process may still read at.
    pub(crate) fn floor(&self) -> Seq {
        self.held.floor(|| self.visible().min(self.durability.durable()))
    }

    /// Closing has come to `phase`: every task hears.
    pub(crate) fn set_phase(&self, phase: Phase) {
        self.life.pass_to(phase);
        self.nudges.all();
        self.pressure.watch.notify_one();
    }
}
