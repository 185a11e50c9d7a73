//! A table in its own file, read without a manifest.

use super::view::{self, View};
use crate::cache::fetch::ReadContext;
use crate::cache::metadata::{MetadataBudget, OpenTable, TableHandle};
use crate::options::Options;
use crate::read::answer::Answer;
use crate::read::tree::{Levels, Tree};
use crate::read::value::Value;
use crate::read::{self, Keys, Pin, Scan, ScanRange};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use siltstone_base::envelope::ENVELOPE_BYTES;
use siltstone_base::{
    Envelope, Error, ErrorKind, Kind, ObjectKind, ObjectName, Result, Seq, SstDescriptor, SstId,
    UnixMillis, checksum,
};
use siltstone_bloom::key_hash;
use siltstone_memtable::Memtable;
use siltstone_sst::{Block, Table};
use siltstone_store::env::Effects;
use siltstone_store::lone_object::LoneObject;
use siltstone_store::retry::{limit_of, with_retries};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Number of bytes that are read from the end at first, which usually contain the whole tail: that
/// of a table of 3 MB, with 10 bits of filter and some bytes of index per key. A larger tail costs
/// another request. A smaller value would cost it more often, and a larger one would take longer
/// for no benefit.
const TAIL_GUESS_BYTES: u64 = 64 << 10;
/// Bytes per read of `verify`.
const VERIFY_BYTES: u64 = 4 << 20;

/// Properties of a table, from its content and its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableInfo {
    /// Its id, to which its checksums are bound.
    pub id: SstId,
    /// Number of entries, of all kinds and versions.
    pub entries: u64,
    /// Number of tombstones.
    pub tombstones: u64,
    /// Length of the file in bytes.
    pub bytes: u64,
    /// CRC32C of the whole file.
    pub checksum: u32,
    /// Smallest key.
    pub first_key: Bytes,
    /// Largest key.
    pub last_key: Bytes,
    /// Bytes of all keys.
    pub key_bytes: u64,
    /// Bytes of all values.
    pub value_bytes: u64,
    /// Smallest sequence number.
    pub min_seq: Seq,
    /// Largest sequence number.
    pub max_seq: Seq,
    /// Earliest expiry; `None` if no entry expires.
    pub min_expiry: Option<UnixMillis>,
    /// Latest expiry; `None` if an entry never expires.
    pub max_expiry: Option<UnixMillis>,
}

impl TableInfo {
    /// From the table's descriptor, and the bytes of its keys and values.
    pub(super) fn new(table: &SstDescriptor, key_bytes: u64, value_bytes: u64) -> TableInfo {
        TableInfo {
            id: table.id,
            entries: table.entries,
            tombstones: table.tombstones,
            bytes: table.object_bytes,
            checksum: table.checksum,
            first_key: table.first_key.clone(),
            last_key: table.last_key.clone(),
            key_bytes,
            value_bytes,
            min_seq: table.min_seq,
            max_seq: table.max_seq,
            min_expiry: table.min_expiry,
            max_expiry: table.max_expiry,
        }
    }
}

/// A standalone table, open for reading.
#[derive(Clone)]
pub struct TableFile {
    context: ReadContext,
    tree: Arc<Tree>,
    table: Arc<Table>,
}

impl TableFile {
    /// Whether it has range deletes.
    pub(super) fn has_range_deletes(&self) -> bool {
        !self.table.range_deletes().is_empty()
    }

    /// Opens the table in `object` with a request for its length, one for its end, and another one
    /// if filter and index exceed 64 KiB. Only those `options` about reading matter.
    ///
    /// # Errors
    /// NotFound; Corruption for an object that is not a table or is damaged; Unsupported for a
    /// table of a newer version; Unavailable, Timeout, Denied, as the store reports.
    pub fn open<'a>(
        effects: Effects,
        object: &'a LoneObject,
        options: &'a Options,
    ) -> BoxFuture<'a, Result<TableFile>> {
        async move {
            let env = effects.with_store(object.read_only());
            let context = view::context(env, options, options.block_cache_bytes);
            let table = match open(&context, object).await {
                // Bytes may be damaged in transit and not only in the store.
                Err(error) if error.kind() == ErrorKind::Corruption => {
                    open(&context, object).await?
                }
                opened => opened?,
            };
            let open = OpenTable::new(table);
            let table = Arc::clone(&open.table);
            // The table is held as long as the file, so no budget could evict it.
            let handle =
                TableHandle::new(table.descriptor().clone(), &MetadataBudget::new(usize::MAX));
            handle.install(Arc::new(open));
            let levels = Levels::of_table(handle);
            let tree = Tree {
                active: Arc::new(Memtable::new()),
                frozen: Vec::new(),
                levels: Arc::new(levels),
                flushed_seq: Seq::NONE,
                queue: None,
                own: None,
            };
            Ok(TableFile { context, tree: Arc::new(tree), table })
        }
        .boxed()
    }

    /// The properties of the table.
    #[must_use]
    pub fn info(&self) -> TableInfo {
        let properties = self.table.properties();
        let descriptor = self.table.descriptor();
        TableInfo::new(descriptor, properties.key_bytes, properties.value_bytes)
    }

    /// The newest version of all keys.
    #[must_use]
    pub fn view(&self) -> View {
        View::new(&self.context, self.pin())
    }

    fn pin(&self) -> Pin {
        let expires = self.table.properties().min_expiry.is_some();
        // If no entry expires, the time does not matter.
        let now = if expires { self.context.env.clock.now() } else { UnixMillis(0) };
        Pin { tree: Arc::clone(&self.tree), seq: Seq::MAX, now }
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// Invalid for a bad key; Corruption, and what the store says.
    pub fn get(&self, key: &[u8]) -> Result<Answer<Option<Value>>> {
        read::get(&self.context, self.pin(), key)
    }

    /// The values of `keys`, in their order.
    ///
    /// # Errors
    /// As [`TableFile::get`].
    pub fn get_many(&self, keys: impl Into<Keys>) -> Result<Answer<Vec<Option<Value>>>> {
        read::get_many(&self.context, self.pin(), Arc::new(keys.into()))
    }

    /// Iterates over a range.
    #[must_use]
    pub fn scan(&self, range: ScanRange) -> Scan {
        self.view().scan(range)
    }

    pub(super) fn table(&self) -> &Arc<Table> {
        &self.table
    }

    pub(super) fn context(&self) -> &ReadContext {
        &self.context
    }

    /// Reads and checks every byte: the checksum of the file and those of its parts, the order and
    /// number of the entries, and that the filter denies no key. Returns the number of bytes read.
    ///
    /// # Errors
    /// Corruption, with the reason; errors of the store.
    pub fn verify(&self) -> BoxFuture<'_, Result<u64>> {
        async move {
            let store = &self.context.env.store;
            let read = self.read_all().await;
            read.map_err(|error| error.with("file", format_args!("{store:?}")))
        }
        .boxed()
    }

    async fn read_all(&self) -> Result<u64> {
        let descriptor = self.table.descriptor();
        let head = self.read(0..ENVELOPE_BYTES as u64).await?;
        if Envelope::decode(&head, ObjectKind::Table)? != *self.table.envelope() {
            return Err(Error::corruption(
                "the envelopes at both ends of the table differ; copy the file again",
            ));
        }
        let mut found = BlockTotals { checksum: checksum::crc32c(&head), ..BlockTotals::default() };
        let mut offset = ENVELOPE_BYTES as u64;
        let mut block = 0;
        while let Some(group) = self.group(block, offset)? {
            let bytes = self.read(offset..group.end).await?;
            found.checksum = checksum::extend(found.checksum, &bytes);
            while let Some(range) = self.table.block_range(block).filter(|r| r.end <= group.end) {
                let (from, to) = (range.start - offset, range.end - offset);
                let part = bytes.slice(from as usize..to as usize);
                found.block(&self.table, &self.table.decode_block(block, part)?)?;
                block += 1;
            }
            offset = group.end;
        }
        let tail = self.read(offset..descriptor.object_bytes).await?;
        found.checksum = checksum::extend(found.checksum, &tail);
        found.compare(descriptor)?;
        Ok(descriptor.object_bytes)
    }

    /// The range of the blocks from number `first` on, which begins at `offset`, up to about
    /// [`VERIFY_BYTES`]; `None` at the end.
    fn group(&self, first: u32, offset: u64) -> Result<Option<Range<u64>>> {
        let mut group = offset..offset;
        let mut block = first;
        while group.end - group.start < VERIFY_BYTES {
            let Some(range) = self.table.block_range(block) else { break };
            if range.start != group.end {
                return Err(Error::corruption(
                    "blocks of the table do not follow one another; copy the file again",
                ));
            }
            group.end = range.end;
            block += 1;
        }
        if group.is_empty() && offset != self.table.descriptor().tail_offset {
            return Err(Error::corruption(
                "there are bytes between the blocks and the tail; copy the file again",
            ));
        }
        Ok((!group.is_empty()).then_some(group))
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        read(&self.context, range).await?.ok_or_else(missing)
    }
}

impl fmt::Debug for TableFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableFile").field("store", &self.context.env.store).finish_non_exhaustive()
    }
}

fn missing() -> Error {
    Error::new(ErrorKind::NotFound, "there is no such file")
}

async fn read(context: &ReadContext, range: Range<u64>) -> Result<Option<Bytes>> {
    let name = ObjectName::Compacted(SstId::NONE);
    let get = || context.env.store.get(name, Some(range.clone()));
    let limit = limit_of(context.deadline, range.end.saturating_sub(range.start));
    with_retries(&context.env, limit, "read table", get).await
}

async fn open(context: &ReadContext, object: &LoneObject) -> Result<Table> {
    let length = || object.bytes();
    let bytes = with_retries(&context.env, context.deadline, "look at table", length).await?;
    let bytes = bytes.ok_or_else(missing)?;
    Table::footer_range(bytes)?;
    let from = bytes.saturating_sub(TAIL_GUESS_BYTES);
    let end = read(context, from..bytes).await?.ok_or_else(missing)?;
    let tail = Table::tail_range_of_footer(bytes, &end)?;
    let tail = match tail.start.checked_sub(from) {
        Some(skipped) => end.slice(skipped as usize..),
        None => read(context, tail).await?.ok_or_else(missing)?,
    };
    Table::open_alone(bytes, tail)
}

/// Totals of all blocks.
#[derive(Default)]
struct BlockTotals {
    checksum: u32,
    entries: u64,
    tombstones: u64,
}

impl BlockTotals {
    fn block(&mut self, table: &Table, block: &Block) -> Result<()> {
        for entry in (0..block.len()).filter_map(|position| block.entry(position)) {
            self.entries += 1;
            self.tombstones += u64::from(entry.kind == Kind::Delete);
            if !table.may_contain(key_hash(entry.key)) {
                return Err(Error::corruption(
                    "the filter of the table denies a key that exists; copy the file again",
                ));
            }
        }
        Ok(())
    }

    fn compare(&self, said: &SstDescriptor) -> Result<()> {
        if self.checksum != said.checksum {
            return Err(Error::corruption(
                "the checksum of the whole table does not match; copy the file again",
            ));
        }
        if (self.entries, self.tombstones) != (said.entries, said.tombstones) {
            return Err(Error::corruption(
                "the counts of the table do not match its entries; copy the file again",
            ));
        }
        Ok(())
    }
}
