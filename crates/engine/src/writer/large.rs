//! Large batches (RFC 0044, rule N15). The writer uploads a batch of at least `skip_memtable_bytes`
//! as a table before it accepts the batch. The log names the table, and no memtable holds its rows.

use super::commit::Commit;
use super::flush::{Plan, build, new_names};
use super::state::Writer;
use super::transaction::footprint::touched;
use crate::wal::replay::tables_at;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use siltstone_base::batch::BatchOps;
use siltstone_base::{AttemptId, Batch, Error, Kind, Result, Seq, SstDescriptor, SstId, WalId};
use siltstone_manifest::batch::encode_tables;
use siltstone_manifest::compaction::filter_bits_of_flush;
use siltstone_manifest::{Edit, KeptFence, ReserveBatch, to_let_go};
use siltstone_memtable::Memtable;
use siltstone_sst::wal::{WalIngest, WalIngestContent};
use siltstone_store::retry::{limit_of, with_retries};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The write of a large batch. Await it to get the commit.
pub type LargeWrite = BoxFuture<'static, Result<Commit>>;

/// Names that one commit reserves. One commit therefore serves this many batches.
const NAMES_AT_ONCE: usize = 4;

/// The state of a writer's large batches.
#[derive(Debug)]
pub(crate) struct LargeBatches {
    /// Reserved names that are not used yet. A write of a large batch holds the lock, so there is
    /// one at a time and only one batch is in memory twice.
    names: tokio::sync::Mutex<Vec<SstId>>,
    /// Names of failed batches. The log names none of them, and the next commit releases them.
    failed: Mutex<Vec<SstId>>,
    /// Names that older writers left, until the replay point has passed this writer's fence.
    left: Mutex<Vec<SstId>>,
    fence: KeptFence,
    pub(crate) count: AtomicU64,
    pub(crate) bytes: AtomicU64,
}

impl LargeBatches {
    /// For a writer that found the names `left` and created `fence`.
    pub(crate) fn new(left: Vec<SstId>, fence: KeptFence) -> LargeBatches {
        LargeBatches {
            names: tokio::sync::Mutex::default(),
            failed: Mutex::default(),
            left: Mutex::new(left),
            fence,
            count: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// The names that a commit releases if it moves the replay point to `replay_from`.
    pub(crate) fn to_let_go(&self, replay_from: WalId) -> Vec<SstId> {
        let rules = crate::manifests::rules::in_force();
        let mut gone = to_let_go(&self.left.lock(), &self.fence, replay_from, rules);
        gone.extend(self.failed.lock().iter());
        gone
    }

    /// Whether there are names to release.
    pub(crate) fn has_unreleased(&self) -> bool {
        !self.failed.lock().is_empty() || !self.left.lock().is_empty()
    }

    /// The first id of this writer's log.
    pub(crate) fn begins(&self) -> WalId {
        self.fence.next_id
    }

    /// Records that a commit has released these names.
    pub(crate) fn mark_released(&self, gone: &[SstId]) {
        self.failed.lock().retain(|name| !gone.contains(name));
        self.left.lock().retain(|name| !gone.contains(name));
    }
}

/// Names that are being reserved or used. If they are dropped before [`PendingNames::into_names`],
/// they count as names of a failed batch.
struct PendingNames {
    names: Vec<SstId>,
    of: Arc<Writer>,
}

impl PendingNames {
    /// Takes the names out: they are reserved, or their batch has succeeded.
    fn into_names(mut self) -> Vec<SstId> {
        std::mem::take(&mut self.names)
    }
}

impl Drop for PendingNames {
    fn drop(&mut self) {
        self.of.large.failed.lock().append(&mut self.names);
    }
}

impl Writer {
    /// Whether `batch` bypasses the memtable. Batches with operands or range deletes do not:
    /// operands need the entries below them, and range deletes need an order among the rows, which
    /// one sequence number does not give.
    pub(crate) fn skips_memtable(&self, batch: &Batch) -> bool {
        let bytes = batch.as_bytes();
        let large =
            self.options.writes.skip_memtable_bytes.is_some_and(|bound| bytes.len() >= bound);
        let plain = |op| matches!(op, Kind::Put | Kind::Delete);
        large
            && self.options.writes.wal_enabled
            && !batch.is_empty()
            && batch.operands() == 0
            && BatchOps::new(bytes).all(|op| op.is_ok_and(|op| plain(op.kind)))
    }

    /// Accepts a batch for which [`Writer::skips_memtable`] holds, once it is uploaded.
    ///
    /// # Errors
    /// Invalid if the batch exceeds `max_batch_bytes`. The future returns Timeout, Fenced, Closed
    /// and errors of the store; nothing was written then.
    pub(crate) fn accept_large(self: &Arc<Self>, batch: &Batch) -> Result<LargeWrite> {
        self.check_size(batch.as_bytes())?;
        let bytes: Arc<[u8]> = Arc::from(batch.as_bytes());
        let writer = Arc::clone(self);
        let limit = limit_of(self.options.deadline, bytes.len() as u64);
        Ok(Box::pin(async move {
            let work = writer.write_large(&bytes);
            writer.context.deadline(limit, "write a large batch", work).await
        }))
    }

    async fn write_large(self: &Arc<Self>, bytes: &Arc<[u8]>) -> Result<Commit> {
        let mut names = self.large.names.lock().await;
        // Wait before the batch has a sequence number; otherwise every put would wait behind it
        // (rule Q4).
        self.wait_for_room(&[]).await?;
        if names.is_empty() {
            names.extend(self.reserve_for_batches().await?);
        }
        let Some(name) = names.pop() else {
            return Err(Error::internal("names of batches ran out"));
        };
        let used = PendingNames { names: vec![name], of: Arc::clone(self) };
        let table = self.upload_batch(name, bytes).await?;
        let size = table.object_bytes;
        let seq = self.accept_table(table, bytes)?;
        drop(used.into_names());
        self.large.count.fetch_add(1, Ordering::Relaxed);
        self.large.bytes.fetch_add(size, Ordering::Relaxed);
        Ok(self.commit_at(seq))
    }

    /// Reserves names before anything is uploaded under them (rule R1).
    async fn reserve_for_batches(self: &Arc<Self>) -> Result<Vec<SstId>> {
        let writer = Arc::clone(self);
        let reserve = async move {
            let let_go = writer.large.failed.lock().clone();
            // A commit may land even if its caller gave up.
            let names = new_names(&writer.env, NAMES_AT_ONCE);
            let under_way = PendingNames { names: names.clone(), of: Arc::clone(&writer) };
            let reserve = ReserveBatch { epoch: writer.epoch, names, let_go: let_go.clone() };
            writer.manifests.commit(Edit::ReserveBatch(reserve)).await?;
            writer.large.mark_released(&let_go);
            Ok(under_way)
        };
        self.apart(reserve).await.map(PendingNames::into_names)
    }

    /// Uploads the rows as a table with one entry per key. A repeated upload has the same bytes.
    async fn upload_batch(&self, name: SstId, bytes: &Arc<[u8]>) -> Result<SstDescriptor> {
        let memtable = Arc::new(Memtable::new());
        // Any sequence numbers do: the table counts at the number of the batch (rule P4).
        memtable.insert_batch(Seq(1), bytes)?;
        let newest = self.manifests.newest_known();
        let bits = self.options.filter_bits_per_key;
        let plan = Plan {
            last_seq: memtable.last_seq().unwrap_or_default(),
            filter_bits_per_key: filter_bits_of_flush(&newest, memtable.bytes() as u64, bits),
            memtable,
            name,
            attempt: AttemptId(self.env.random_u128()),
            now: self.env.clock.now(),
            built: None,
        };
        let limit = limit_of(self.options.deadline, bytes.len() as u64);
        with_retries(&self.env, limit, "write table", || build(self, &plan)).await
    }

    /// Gives the table its sequence number and its place in the log, above everything accepted
    /// before.
    fn accept_table(&self, table: SstDescriptor, bytes: &[u8]) -> Result<Seq> {
        let mut tail = self.tail.lock();
        if let Some(ended) = &tail.ended {
            return Err(ended.clone());
        }
        let first_seq = tail.next_seq;
        let content = WalIngestContent::Tables(encode_tables(std::slice::from_ref(&table)));
        let ingest = WalIngest { first_seq, numbers: 1, content };
        let layers = vec![tables_at(first_seq, vec![table])];
        // No step may fail after the log has the table, because the name of a failed batch is
        // released.
        if tail.window.is_on() {
            for one in touched(bytes) {
                tail.window.note(first_seq, one?);
            }
        }
        let last = self.append_ingest(&mut tail, ingest, layers)?;
        self.publish(last);
        drop(tail);
        self.nudges.wal.notify_one();
        self.nudges.flush.notify_one();
        Ok(last)
    }
}
