//! Brings metadata and blocks from the store into memory.

use super::ancestors::Ancestors;
use super::blocks::BlockCache;
use super::metadata::{MetadataBudget, OpenTable, TableHandle};
use crate::cache::handle_counters::HandleCounters;
use crate::manifests::client::look;
use crate::manifests::missing::{check_lives, no_database};
use crate::manifests::objects::Objects;
use crate::options::Options;
use bytes::Bytes;
use futures::future::try_join_all;
use siltstone_base::{
    BlockAddr, DatabaseId, Epoch, Error, ErrorKind, MergeOperator, Result, SstDescriptor,
    UnixMillis,
};
use siltstone_sst::{Block, Table};
use siltstone_store::counting::Requests;
use siltstone_store::env::Env;
use siltstone_store::latency::Latency;
use siltstone_store::ranges::coalesce;
use siltstone_store::retry::{limit_of, with_retries};
use siltstone_store::troubles::explained;
use siltstone_store::{CacheUse, Store, TableRead};
use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Blocks of one table closer than this are fetched together: at 50 MiB/s a stream, 256 KiB take
/// 5 ms, less than the first byte of another request.
pub(crate) const COALESCE_GAP_BYTES: u64 = 256 << 10;

/// The state that every read of one handle needs. A clone shares it.
#[derive(Clone)]
pub(crate) struct ReadContext(Arc<Needs>);

/// See [`ReadContext`].
pub(crate) struct Needs {
    pub(crate) env: Env,
    pub(crate) requests: Arc<Requests>,
    pub(crate) asked: Arc<HandleCounters>,
    pub(crate) cache: Arc<BlockCache>,
    /// The stores of tables that are not in `env`'s store.
    pub(crate) ancestors: Ancestors,
    pub(crate) operator: OperatorSlot,
    /// The latest time that a read or write of this handle took for now.
    pub(crate) latest: AtomicU64,
    pub(crate) deadline: Duration,
    /// The epoch of the writer whose reads these are; `None` for others'.
    pub(crate) writer: Option<Epoch>,
}

/// The merge operator of a handle.
pub(crate) struct OperatorSlot {
    /// The operator that was brought, or the built-in one that the database records.
    pub(crate) known: OnceLock<Arc<dyn MergeOperator>>,
    /// The recorded name of an operator that is not known, for errors.
    pub(crate) recorded: OnceLock<Arc<str>>,
}

impl From<Needs> for ReadContext {
    fn from(needs: Needs) -> Self {
        ReadContext(Arc::new(needs))
    }
}

impl Deref for ReadContext {
    type Target = Needs;

    fn deref(&self) -> &Needs {
        &self.0
    }
}

/// Whether fetched blocks stay in the caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheFill {
    /// In memory, and on the disk.
    Keep,
    /// In memory.
    KeepInMemory,
    /// In none.
    PassBy,
    /// In none, and none is asked: the bytes that came before were damaged.
    Renew,
}

impl CacheFill {
    fn on_disk(self) -> CacheUse {
        match self {
            CacheFill::Keep => CacheUse::Fill,
            CacheFill::KeepInMemory | CacheFill::PassBy => CacheUse::Look,
            CacheFill::Renew => CacheUse::Renew,
        }
    }

    fn keeps(self) -> bool {
        matches!(self, CacheFill::Keep | CacheFill::KeepInMemory)
    }
}

impl Needs {
    /// The merge operator: the one that was brought, or the built-in one that the database records.
    pub(crate) fn operator(&self) -> Option<&Arc<dyn MergeOperator>> {
        self.operator.known.get()
    }

    /// The same, for what cannot do without.
    ///
    /// # Errors
    /// Invalid where there is none.
    pub(crate) fn operator_or_invalid(&self) -> Result<&Arc<dyn MergeOperator>> {
        self.operator().ok_or_else(|| {
            let text = "the database was opened without a merge operator; bring one to open";
            match self.operator.recorded.get() {
                Some(name) => Error::invalid(text).with("merge operator", name),
                None => Error::invalid(text),
            }
        })
    }

    /// The handle has ended: memory and what the stores keep open for it are given back. Reads
    /// that are under way continue without a cache.
    pub(crate) fn end_use(&self, budget: &MetadataBudget) {
        budget.release();
        self.cache.clear();
        self.ancestors.end_use();
        self.requests.end_use();
    }

    /// Now, for expiry. It never goes back: what has ended for this handle stays ended, though the
    /// clock be set back.
    pub(crate) fn now(&self) -> UnixMillis {
        let now = self.env.clock.now();
        let latest = self.latest.load(Ordering::Relaxed);
        if now.0 > latest {
            self.latest.fetch_max(now.0, Ordering::Relaxed);
            return now;
        }
        UnixMillis(latest)
    }
}

/// The place of an operator that was brought, or is still to be found by its recorded name.
pub(crate) fn brought(operator: Option<Arc<dyn MergeOperator>>) -> OperatorSlot {
    let known = operator.map(OnceLock::from).unwrap_or_default();
    OperatorSlot { known, recorded: OnceLock::default() }
}

impl ReadContext {
    /// The context of reads by the writer of `epoch`.
    pub(crate) fn of_writer(
        env: &Env,
        requests: &Arc<Requests>,
        options: &Options,
        operator: OperatorSlot,
        epoch: Epoch,
    ) -> ReadContext {
        ReadContext::from(Needs {
            env: env.clone(),
            requests: Arc::clone(requests),
            asked: Arc::new(HandleCounters::since(env.clock.monotonic())),
            cache: BlockCache::of_handle(options.block_cache_bytes, options.block_bytes),
            ancestors: Ancestors::default(),
            operator,
            latest: AtomicU64::default(),
            deadline: options.deadline,
            writer: Some(epoch),
        })
    }

    /// Notes what has taken since `began`.
    #[cold]
    pub(crate) fn note(&self, latency: &Latency, began: Duration) {
        latency.note(self.env.clock.monotonic().saturating_sub(began));
    }

    /// `work`, or Timeout after `limit`, caused by what the store refused meanwhile.
    ///
    /// # Errors
    /// Those of `work`; Timeout.
    pub(crate) async fn deadline<T>(
        &self,
        limit: Duration,
        operation: &'static str,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let troubles = self.requests.troubles();
        let began = troubles.moment();
        let done = self.env.deadline(limit, operation, work).await;
        done.map_err(|error| explained(error, troubles.since(began)))
    }

    /// The bytes of `range` of a table, whole.
    ///
    /// # Errors
    /// Corruption for a range outside the object; why a table is gone; the store's.
    pub(crate) async fn read(
        &self,
        descriptor: &SstDescriptor,
        range: Range<u64>,
        cached: CacheUse,
    ) -> Result<Bytes> {
        let name = descriptor.name();
        if range.start >= range.end || range.end > descriptor.object_bytes {
            return Err(Error::corruption("a block lies outside its table").with("table", name));
        }
        let store = self.ancestors.store_of(&self.env.store, descriptor)?;
        let (object_bytes, wanted) = (descriptor.object_bytes, &range);
        let get =
            || store.get_table(TableRead { name, object_bytes, range: wanted.clone(), cached });
        let found = match store.reads().get_now(name, Some(range.clone())) {
            Some(Ok(found)) => found,
            _ => {
                let limit = limit_of(self.deadline, range.end - range.start);
                with_retries(&self.env, limit, "read table", get).await?
            }
        };
        match found {
            Some(bytes) => Ok(bytes),
            None => Err(self.missing(&store, descriptor).await),
        }
    }

    /// Why a table is missing in `store`.
    async fn missing(&self, store: &Arc<dyn Store>, descriptor: &SstDescriptor) -> Error {
        let error = match self.ancestors.parent_of(descriptor) {
            Some(parent) if !self.is_at(store, parent.database).await => parent.lost(),
            _ => self.ancestors.placed(self.gone().await, descriptor),
        };
        error.with("object", descriptor.name())
    }

    /// Whether the database is in that store; also when the store does not say.
    async fn is_at(&self, store: &Arc<dyn Store>, database: DatabaseId) -> bool {
        let env = Env { store: Arc::clone(store), ..self.env.clone() };
        let newest = look(&Objects { env, limit: self.deadline }, None).await;
        newest.map_or(true, |found| found.is_some_and(|newest| newest.database == database))
    }

    /// Why a table is gone. In a reader, whose view may be old, NotFound. In the writer, whose
    /// checkpoint keeps what it reads, Corruption; but its checkpoint goes with its close and with
    /// the next writer's claim, while its scans may live on: one look tells.
    async fn gone(&self) -> Error {
        let Some(epoch) = self.writer else {
            return Error::new(ErrorKind::NotFound, "a table that the manifest names is gone");
        };
        let objects = Objects { env: self.env.clone(), limit: self.deadline };
        let looked = look(&objects, None).await;
        if let Ok(Some(newest)) = &looked
            && let Err(destroyed) = check_lives(newest)
        {
            return destroyed;
        }
        match looked {
            Ok(Some(newest)) if newest.writer_epoch == epoch && !newest.closed_cleanly() => {
                Error::corruption("a table that the manifest names is gone")
            }
            Ok(Some(newest)) if newest.writer_epoch != epoch => Error::new(
                ErrorKind::Fenced,
                "a newer writer has taken over, and a table that this read needs was collected",
            )
            .with("by epoch", newest.writer_epoch),
            Ok(None) => no_database(&self.env),
            Ok(_) => Error::new(
                ErrorKind::Expired,
                "the handle was closed, and a table that this read needs was collected; open the \
                 database again",
            ),
            Err(error) => error,
        }
    }

    /// The metadata of a table: one GET when it is not in memory.
    pub(crate) async fn table(&self, handle: &Arc<TableHandle>) -> Result<Arc<OpenTable>> {
        self.open_table(handle, CacheUse::Fill).await
    }

    /// As [`ReadContext::table`], for a table that a compaction replaces: the disk cache does not
    /// keep it.
    pub(crate) async fn table_once(&self, handle: &Arc<TableHandle>) -> Result<Arc<OpenTable>> {
        self.open_table(handle, CacheUse::Look).await
    }

    async fn open_table(
        &self,
        handle: &Arc<TableHandle>,
        cached: CacheUse,
    ) -> Result<Arc<OpenTable>> {
        if let Some(table) = handle.table() {
            return Ok(table);
        }
        let range = Table::tail_range(&handle.descriptor);
        let open = |tail| Table::open(handle.descriptor.clone(), tail);
        let read = |cached| self.read(&handle.descriptor, range.clone(), cached);
        let table = match open(read(cached).await?) {
            // One re-read: bytes may be damaged on the way, not only at rest.
            Err(error) if error.kind() == ErrorKind::Corruption => {
                open(read(CacheUse::Renew).await?)
                    .map_err(|error| error.with("object", handle.descriptor.name()))?
            }
            opened => opened?,
        };
        self.ancestors.check(&table)?;
        let table = Arc::new(OpenTable::new(table));
        handle.install(Arc::clone(&table));
        Ok(table)
    }

    /// A block, when memory has it: in the block cache, or where it lies in a table that the store
    /// lends. As long as the cache has room blocks are copied into it, which is for the caller to
    /// see to: there they lie in memory of our own, in larger pages, and in no risk of being taken
    /// back.
    pub(crate) fn block(&self, table: &OpenTable, block: u32) -> Option<Arc<Block>> {
        if let Some(found) = self.cache.get(table, block) {
            return Some(found);
        }
        let range = table.block_range(block)?;
        if self.cache.has_room(range.end.saturating_sub(range.start)) {
            return None;
        }
        let store = self.ancestors.store_of(&self.env.store, table.descriptor()).ok()?;
        table.block_in_place(&self.cache, &*store, block)
    }

    /// Blocks of one table, in ascending order, neighbours in one request, requests in parallel.
    pub(crate) async fn blocks(
        &self,
        table: &Arc<Table>,
        blocks: &[u32],
        fill: CacheFill,
    ) -> Result<Vec<(BlockAddr, Arc<Block>)>> {
        let outside = || Error::corruption("no such block in the table");
        let ranges = blocks
            .iter()
            .map(|block| table.block_range(*block).ok_or_else(outside))
            .collect::<Result<Vec<_>>>()?;
        let groups = coalesce(&ranges, COALESCE_GAP_BYTES);
        let fetched = groups.iter().map(|group| async {
            let range = group.range.clone();
            let bytes = self.read(table.descriptor(), range, fill.on_disk()).await?;
            let mut decoded = Vec::with_capacity(group.members.len());
            for member in group.members.clone() {
                let (Some(block), Some(range)) = (blocks.get(member), ranges.get(member)) else {
                    return Err(outside());
                };
                let part = group.slice(&bytes, range)?;
                let part = if fill.keeps() { own(part, &bytes) } else { part };
                decoded.push(self.decode(table, *block, part, range, fill).await?);
            }
            Ok(decoded)
        });
        Ok(try_join_all(fetched).await?.into_iter().flatten().collect())
    }

    async fn decode(
        &self,
        table: &Arc<Table>,
        block: u32,
        bytes: Bytes,
        range: &Range<u64>,
        fill: CacheFill,
    ) -> Result<(BlockAddr, Arc<Block>)> {
        let addr = BlockAddr { sst: table.descriptor().id, block };
        let decoded = match table.decode_block(block, bytes) {
            Err(error) if error.kind() == ErrorKind::Corruption => {
                let again = self.read(table.descriptor(), range.clone(), CacheUse::Renew).await?;
                table.decode_block(block, again).map_err(|error| {
                    error.with("object", table.descriptor().name()).with("offset", range.start)
                })?
            }
            decoded => decoded?,
        };
        let decoded = Arc::new(decoded);
        if fill.keeps() {
            self.cache.insert(addr, Arc::clone(&decoded));
        }
        Ok((addr, decoded))
    }
}

/// A part of a joined read to keep: a block may live in the cache for long, and as a slice would
/// keep all of the read alive.
fn own(part: Bytes, read: &Bytes) -> Bytes {
    if part.len() < read.len() { Bytes::copy_from_slice(&part) } else { part }
}
