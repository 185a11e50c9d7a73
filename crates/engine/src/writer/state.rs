//! The one writer's shared state: what its handle, its snapshots and its background tasks hold.
//!
//! Fields are grouped by who touches them. Lock order: `tail` before `tree`; nothing is awaited
//! under either.

use super::buffer::WalBuffer;
use super::checkpoint::TreePins;
use super::close::Closing;
use super::collector::Embedded;
use super::commit::{Awaiting, Tail};
use super::durability::Durability;
use super::pressure::Pressure;
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
use crate::read::tree::{Levels, Tree};
use parking_lot::{Mutex, RwLock};
use siltstone_base::{Epoch, Error, Result, Seq, UnixMillis, WalId};
use siltstone_manifest::KeptFence;
use siltstone_memtable::Memtable;
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::Notify;

pub(crate) struct Writer {
    // Set at open, never changed.
    pub(crate) env: Env,
    pub(crate) options: Options,
    pub(crate) epoch: Epoch,
    /// What tells others that this writer lives; gone once it takes no more writes.
    occupancy: Occupancy,
    /// Every fence met on the walk, and our own (protocol rule F5).
    pub(crate) fences: Vec<KeptFence>,
    pub(crate) manifests: ManifestClient,
    pub(crate) context: ReadContext,
    pub(crate) budget: Arc<MetadataBudget>,
    /// Before `turn` of the commits; nothing else is locked while it is waited for.
    pub(crate) pins: tokio::sync::Mutex<TreePins>,
    /// Heard by the task that keeps the checkpoints: a newer manifest, a version unread, an end.
    pub(crate) pins_nudge: Arc<Notify>,

    // Writing threads.
    pub(crate) tail: Mutex<Tail>,
    pub(crate) durability: Arc<Durability>,
    pub(crate) wal_nudge: Arc<Notify>,
    pub(crate) awaiting: Arc<Awaiting>,
    pub(crate) pressure: Arc<Pressure>,

    // Reading threads.
    tree: RwLock<Arc<Tree>>,
    visible: AtomicU64,
    pinned: Mutex<BTreeMap<Seq, usize>>,
    /// Whether the handle is open and alive, in one look: every call asks.
    usable: AtomicBool,

    // Background tasks.
    pub(crate) compactor: Compactor,
    pub(crate) collector: Embedded,
    /// Heard by the task that compacts: a flush has changed the tree, an end.
    pub(crate) compact_nudge: Notify,
    committed_wal: AtomicU64,
    /// The last commit time that was given.
    commit_time: AtomicU64,
    pub(crate) flushed: Flushed,
    /// What somebody asked to have flushed, however full L0 is.
    flush_asked: AtomicU64,
    pub(crate) flush_nudge: Notify,
    /// WAL objects that are durable and not yet wholly in tables, in id order.
    pub(crate) unflushed_wal: Mutex<VecDeque<UnflushedWal>>,
    pub(crate) closing: Mutex<Closing>,
    phase: Mutex<Phase>,
    pub(crate) phase_changed: Notify,
}

/// What flushes have written.
#[derive(Debug, Default)]
pub(crate) struct Flushed {
    pub(crate) tables: AtomicU64,
    pub(crate) bytes: AtomicU64,
}

impl Flushed {
    /// A table of `bytes` was flushed, and the manifest names it.
    pub(crate) fn add(&self, bytes: u64) {
        self.tables.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// A WAL object that recovery would still read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnflushedWal {
    /// Its last sequence number; `NONE` for a fence.
    pub(crate) last_seq: Seq,
    /// Where recovery would start if everything up to this object were in tables: the id after
    /// it, and never inside a fence's gap.
    pub(crate) next: WalId,
}

/// How far closing has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Open.
    Open,
    /// No new writes; the WAL task sends what is buffered, then ends.
    DrainWal,
    /// The WAL is done; the flush task flushes what is left, then ends.
    DrainFlush,
    /// Both tasks have ended.
    Done,
    /// Closing has ended, well or not.
    Closed,
}

/// What opening found out, and the writer starts from.
pub(crate) struct Start {
    pub(crate) env: Env,
    pub(crate) options: Options,
    pub(crate) occupancy: Occupancy,
    pub(crate) epoch: Epoch,
    pub(crate) fences: Vec<KeptFence>,
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
    pub(crate) active: Arc<Memtable>,
    /// Newest first.
    pub(crate) frozen: Vec<Arc<Memtable>>,
    pub(crate) first_wal: WalId,
    pub(crate) last_seq: Seq,
    pub(crate) commit_time: UnixMillis,
    pub(crate) unflushed_wal: VecDeque<UnflushedWal>,
}

impl Writer {
    pub(crate) fn new(start: Start) -> Arc<Writer> {
        let tree = Tree {
            active: Arc::clone(&start.active),
            frozen: start.frozen,
            levels: start.levels,
            flushed_seq: Seq::NONE,
        };
        let frozen_bytes = tree.frozen.iter().map(|memtable| memtable.bytes()).sum();
        let wal_nudge = Arc::new(Notify::new());
        let awaiting = Arc::new(Awaiting {
            durability: Arc::clone(&start.durability),
            wal_nudge: Arc::clone(&wal_nudge),
            env: start.env.clone(),
            requests: Arc::clone(&start.context.requests),
            deadline: start.options.deadline,
        });
        let buffer = WalBuffer::new(start.options.flush_bytes);
        let last = start.last_seq;
        Arc::new(Writer {
            env: start.env,
            options: start.options,
            occupancy: start.occupancy,
            epoch: start.epoch,
            fences: start.fences,
            manifests: start.manifests,
            context: start.context,
            budget: start.budget,
            pins: tokio::sync::Mutex::new(start.pins),
            pins_nudge: start.pins_nudge,
            tail: Mutex::new(Tail::new(last.next(), buffer, (start.active, frozen_bytes))),
            durability: start.durability,
            wal_nudge,
            awaiting,
            pressure: start.pressure,
            tree: RwLock::new(Arc::new(tree)),
            visible: AtomicU64::new(last.0),
            pinned: Mutex::new(BTreeMap::new()),
            usable: AtomicBool::new(true),
            compactor: Compactor::default(),
            collector: Embedded::new(start.garbage),
            compact_nudge: Notify::new(),
            committed_wal: AtomicU64::new(start.first_wal.minus(1).0),
            commit_time: AtomicU64::new(start.commit_time.0),
            flushed: Flushed::default(),
            flush_asked: AtomicU64::new(0),
            flush_nudge: Notify::new(),
            unflushed_wal: Mutex::new(start.unflushed_wal),
            closing: Mutex::default(),
            phase: Mutex::new(Phase::Open),
            phase_changed: Notify::new(),
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
        let now = self.context.now();
        let tree = self.tree.read();
        let visible = self.visible();
        let seq = if self.options.read_durable_only && !cfg!(mutation = "bound_ignored") {
            visible.min(self.durability.durable())
        } else {
            visible
        };
        Pin { tree: Arc::clone(&tree), seq, now }
    }

    /// The last commit time that was given.
    pub(crate) fn commit_time(&self) -> UnixMillis {
        UnixMillis(self.commit_time.load(Ordering::Acquire))
    }

    /// The commit time of what is cut now: whatever the clock says, no earlier than any before.
    pub(crate) fn next_commit_time(&self) -> UnixMillis {
        let now = self.env.clock.now().0;
        UnixMillis(self.commit_time.fetch_max(now, Ordering::AcqRel).max(now))
    }

    /// The last WAL object that is acknowledged.
    pub(crate) fn last_committed_wal(&self) -> WalId {
        WalId(self.committed_wal.load(Ordering::Acquire))
    }

    /// The WAL object `id`, which ends with `last_seq`, is durable, and so is all before it.
    pub(crate) fn acknowledge(&self, id: WalId, last_seq: Seq) {
        self.committed_wal.store(id.0, Ordering::Release);
        let object = UnflushedWal { last_seq, next: id.next() };
        self.unflushed_wal.lock().push_back(object);
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
        let mut tree = self.tree.write();
        let mut frozen = Vec::with_capacity(tree.frozen.len() + 1);
        frozen.push(full);
        frozen.extend(tree.frozen.iter().cloned());
        *tree = Arc::new(Tree {
            active: Arc::clone(&tail.active),
            frozen,
            levels: Arc::clone(&tree.levels),
            flushed_seq: Seq::NONE,
        });
        drop(tree);
        self.flush_nudge.notify_one();
    }

    /// What is flushed however full L0 is: everything up to here.
    pub(crate) fn flush_asked(&self) -> Seq {
        Seq(self.flush_asked.load(Ordering::Acquire))
    }

    /// Everything up to `seq` is to be flushed however full L0 is.
    pub(crate) fn ask_flush(&self, seq: Seq) {
        self.flush_asked.fetch_max(seq.0, Ordering::AcqRel);
        self.flush_nudge.notify_one();
    }

    /// Replaces flushed memtables by the tables that now hold them.
    pub(crate) fn install_flush(&self, flushed: &[Arc<Memtable>], levels: Arc<Levels>) {
        let mut tail = self.tail.lock();
        let bytes: usize = flushed.iter().map(|memtable| memtable.bytes()).sum();
        tail.frozen_bytes = tail.frozen_bytes.saturating_sub(bytes);
        let mut tree = self.tree.write();
        let is_flushed = |m: &Arc<Memtable>| flushed.iter().any(|f| Arc::ptr_eq(f, m));
        let frozen = tree.frozen.iter().filter(|m| !is_flushed(m)).cloned().collect();
        *tree = Arc::new(Tree {
            active: Arc::clone(&tree.active),
            frozen,
            levels,
            flushed_seq: Seq::NONE,
        });
        drop(tree);
        drop(tail);
        self.pressure.relief.notify_waiters();
        self.compact_nudge.notify_one();
    }

    /// Other tables with the same entries: a compaction made them.
    pub(crate) fn install_levels(&self, levels: Arc<Levels>) {
        let mut tree = self.tree.write();
        *tree = Arc::new(Tree { levels, ..Tree::clone(&tree) });
    }

    /// Tables of `manifest`, with this process's handles.
    pub(crate) fn levels_of(&self, manifest: &siltstone_manifest::Manifest) -> Result<Arc<Levels>> {
        let levels = Levels::of_manifest(manifest, &self.tree().levels, &self.budget)?;
        Ok(Arc::new(levels.noticed_by(&self.pins_nudge)))
    }

    /// A pin that counts for the floor until it is released. Under the lock of the count, so that
    /// no floor is published between taking the moment and counting it.
    pub(crate) fn hold(&self) -> Pin {
        let mut pinned = self.pinned.lock();
        let pin = self.pin();
        *pinned.entry(pin.seq).or_insert(0) += 1;
        pin
    }

    pub(crate) fn release(&self, seq: Seq) {
        let mut pinned = self.pinned.lock();
        if let Some(count) = pinned.get_mut(&seq) {
            *count -= 1;
            if *count == 0 {
                pinned.remove(&seq);
            }
        }
    }

    /// The oldest sequence number that somebody in this process may still read at.
    pub(crate) fn floor(&self) -> Seq {
        let pinned = self.pinned.lock();
        let next = self.visible().min(self.durability.durable());
        pinned.keys().next().copied().unwrap_or(next).min(next)
    }

    /// The sequence numbers that somebody in this process may read at below the newest one that is
    /// flushed, ascending.
    pub(crate) fn held_seqs(&self) -> Vec<Seq> {
        self.pinned.lock().keys().copied().collect()
    }

    pub(crate) fn snapshots(&self) -> usize {
        self.pinned.lock().values().sum()
    }

    /// Whether calls may go on; `false` for good once the handle ends or begins to close.
    pub(crate) fn is_usable(&self) -> bool {
        self.usable.load(Ordering::Acquire)
    }

    /// Ends [`Writer::is_usable`].
    pub(crate) fn refuse(&self) {
        self.usable.store(false, Ordering::Release);
    }

    /// Others may open the database now: this writer takes no more writes, for good.
    pub(crate) fn leave(&self) {
        self.occupancy.end();
    }

    pub(crate) fn phase(&self) -> Phase {
        *self.phase.lock()
    }

    pub(crate) fn set_phase(&self, phase: Phase) {
        let mut current = self.phase.lock();
        *current = phase.max(*current);
        drop(current);
        if phase > Phase::Open {
            self.refuse();
        }
        self.phase_changed.notify_waiters();
        self.wal_nudge.notify_one();
        self.flush_nudge.notify_one();
        self.pins_nudge.notify_one();
        self.compact_nudge.notify_one();
        self.pressure.watch.notify_one();
    }
}
