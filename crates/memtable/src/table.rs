//! The memtable: insertion of batches, look-ups and sizes.

use crate::folds::Folds;
use crate::index::{self, Index};
use crate::log::{Log, NONE, Target};
use crate::order::Order;
use crate::ranges::Ranges;
use crate::record::{Place, Record};
use crate::skip_list::Finger;
use siltstone_base::{BatchOps, Cover, Entry, Error, Kind, RangeDelete, Result, Seq};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

/// Maximum number of entries of one memtable: the capacity of the index. Their records alone would
/// take 8 GiB.
pub const MAX_ENTRIES: u32 = 1 << 28;

/// The limits at which a memtable changes its structure. Tests make them small.
#[derive(Debug)]
pub(crate) struct MemtableShape {
    pub(crate) max_entries: u32,
    /// A batch of at least this many operations is sorted into its own sorted array; a smaller one
    /// is added to the skip list.
    pub(crate) array_ops: u32,
    /// Entries of a skip list.
    pub(crate) skip_list: usize,
    /// Slots of the index that a key may occupy.
    pub(crate) probes: usize,
}

impl Default for MemtableShape {
    fn default() -> Self {
        MemtableShape {
            max_entries: MAX_ENTRIES,
            array_ops: 64,
            skip_list: 1024,
            probes: index::PROBES,
        }
    }
}

/// Memory of one entry besides its bytes: its record, a position in a sorted array (12 bytes), and
/// its share of the index. That is 8 bytes per slot, of which between 5/8 and 5/16 are used, and
/// the same again for the smaller tables before.
const ENTRY_BYTES: usize = size_of::<Record>() + 12 + 36;
/// Memory of one batch besides its bytes: its slot, and the two counters of its [`Arc`].
const BUFFER_BYTES: usize = size_of::<OnceLock<Arc<[u8]>>>() + 2 * size_of::<usize>();

/// Newer versions that a look-up at an older sequence number follows, one link each, before it
/// searches the order instead: a search takes as long as some dozens of steps.
const CHAIN: usize = 64;

/// Operations whose memory is kept from batch to batch: 40 KiB.
const BATCH_KEPT: usize = 1024;

/// A sorted buffer of writes: one writer at a time, readers that never wait for it.
///
/// A reader may read at any time; it finds every entry whose insertion it has learned of. It may
/// see entries of a batch that is being inserted one by one, so readers limit their reads by a
/// sequence number that is published after the batch is complete.
pub struct Memtable {
    log: Log,
    index: Index,
    /// Replaced as a whole, under a lock that is held only to exchange a pointer.
    order: RwLock<Arc<Order>>,
    ranges: Ranges,
    folds: Folds,
    pen: Mutex<WriterSide>,
    bytes: AtomicUsize,
    len: AtomicUsize,
    first_seq: AtomicU64,
    last_seq: AtomicU64,
    /// The number of records of complete batches.
    records: AtomicU32,
    max_entries: u32,
    array_ops: u32,
}

/// The state of the writer.
struct WriterSide {
    finger: Finger,
    records: u32,
    buffers: u32,
    /// Operations of the current batch; kept for its memory.
    batch: Vec<(Place, u32)>,
    /// Its range deletes.
    ranges: Vec<RangeDelete>,
}

impl Default for Memtable {
    fn default() -> Self {
        Memtable::new()
    }
}

impl fmt::Debug for Memtable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memtable")
            .field("len", &self.len())
            .field("bytes", &self.bytes())
            .field("first_seq", &self.first_seq())
            .field("last_seq", &self.last_seq())
            .finish()
    }
}

impl Memtable {
    /// An empty memtable. About 32 KiB until the first insertion.
    #[must_use]
    pub fn new() -> Self {
        Memtable::with(&MemtableShape::default())
    }

    pub(crate) fn with(shape: &MemtableShape) -> Self {
        let pen = WriterSide {
            finger: Finger::new(),
            records: 0,
            buffers: 0,
            batch: Vec::new(),
            ranges: Vec::new(),
        };
        Memtable {
            log: Log::new(),
            index: Index::new(shape.probes),
            order: RwLock::new(Arc::new(Order::new(shape.skip_list))),
            ranges: Ranges::default(),
            folds: Folds::default(),
            pen: Mutex::new(pen),
            bytes: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            first_seq: AtomicU64::new(0),
            last_seq: AtomicU64::new(0),
            records: AtomicU32::new(0),
            max_entries: shape.max_entries,
            array_ops: shape.array_ops,
        }
    }

    /// Inserts the operations of a batch ([`siltstone_base::Batch`]'s encoding); the n-th, from 0,
    /// gets sequence number `first_seq + n`. The bytes are shared, not copied, and live as long as
    /// the table. A batch without operations changes nothing.
    ///
    /// # Errors
    /// On an error nothing is inserted. Corruption for bytes that are not a batch; Invalid if the
    /// table has no numbers left ([`MAX_ENTRIES`], 4 GiB per batch) or the sequence numbers would
    /// pass [`Seq::MAX`]; Internal if `first_seq` is not above [`Memtable::last_seq`], or an
    /// earlier insertion panicked.
    pub fn insert_batch(&self, first_seq: Seq, ops: &Arc<[u8]>) -> Result<()> {
        let mut pen = self.pen.lock().map_err(|_| {
            Error::internal("an insertion into this memtable panicked; open the database anew")
        })?;
        let count = self.validate(&mut pen, first_seq, ops)?;
        if count == 0 {
            return Ok(());
        }
        self.ranges.add(std::mem::take(&mut pen.ranges));
        if !pen.batch.is_empty() {
            self.insert_entries(&mut pen, ops);
        }
        let added = ops.len() + BUFFER_BYTES + count as usize * ENTRY_BYTES;
        // The sum cannot overflow: every counted byte is allocated, except for the averages.
        self.bytes.fetch_add(added, Relaxed);
        let _ = self.first_seq.compare_exchange(0, first_seq.0, Release, Relaxed);
        self.records.store(pen.records, Release);
        self.last_seq.store(first_seq.0 + u64::from(count) - 1, Release);
        self.len.fetch_add(count as usize, Release);
        Ok(())
    }

    /// Inserts the entries in `pen`, whose bytes are `ops`.
    fn insert_entries(&self, pen: &mut WriterSide, ops: &Arc<[u8]>) {
        self.log.keep_buffer(pen.buffers, ops);
        pen.buffers += 1;
        // At most the number of operations in a batch, which fits 32 bits.
        let count = pen.batch.len() as u32;
        let first = pen.records + 1;
        let last = pen.records + count;
        for (number, (place, hash)) in (first..=last).zip(&pen.batch) {
            self.log.append(number, *place, *hash);
            self.index.insert(&self.log, number);
        }
        pen.records = last;
        if pen.batch.capacity() > BATCH_KEPT {
            pen.batch = Vec::new();
        }
        if count >= self.array_ops {
            self.replace_order(pen, |order| order.with_batch(&self.log, first, last));
        } else {
            (first..=last).for_each(|number| self.insert_one(pen, number));
        }
    }

    /// Adds one record, which is in the log, to the skip list.
    fn insert_one(&self, pen: &mut WriterSide, number: u32) {
        let mut order = self.order.read().unwrap_or_else(PoisonError::into_inner);
        if pen.finger.len() == order.skip_list.capacity() {
            drop(order);
            self.replace_order(pen, |order| order.sealed(&self.log));
            order = self.order.read().unwrap_or_else(PoisonError::into_inner);
        }
        let (key, seq) = (self.log.key(number), self.log.record(number).seq());
        let target = Target::new(&order.window, key, seq);
        order.skip_list.insert(&self.log, &mut pen.finger, &target, number);
    }

    fn replace_order(&self, pen: &mut WriterSide, change: impl FnOnce(&Order) -> Order) {
        // Only the writer replaces it, so nothing is lost between the read and the exchange.
        let before = self.order();
        let after = Arc::new(change(&before));
        if !Arc::ptr_eq(&before.skip_list, &after.skip_list) {
            pen.finger = Finger::new();
        }
        *self.order.write().unwrap_or_else(PoisonError::into_inner) = after;
    }

    pub(crate) fn order(&self) -> Arc<Order> {
        // A panic cannot leave a partial exchange behind.
        Arc::clone(&self.order.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Decodes all operations into `pen` and returns their number.
    fn validate(&self, pen: &mut WriterSide, first_seq: Seq, ops: &[u8]) -> Result<u32> {
        let room = self.max_entries - pen.records;
        let mut count = 0u32;
        pen.batch.clear();
        pen.ranges.clear();
        for op in BatchOps::new(ops) {
            let op = op?;
            if count == room {
                let full = Error::invalid("the memtable has no room for the batch: flush it first");
                return Err(full.with("max_entries", self.max_entries));
            }
            let seq = first_seq.plus(u64::from(count));
            if op.kind == Kind::RangeDelete {
                pen.ranges.push(RangeDelete::new(op.key, op.value, seq));
            } else {
                let place = Place::of(&op, pen.buffers, seq)?;
                pen.batch.push((place, index::hash(op.key)));
            }
            count += 1;
        }
        if count == 0 {
            return Ok(0);
        }
        if first_seq.0 <= self.last_seq.load(Relaxed) {
            return Err(Error::internal("sequence numbers of a memtable only grow")
                .with("first_seq", first_seq)
                .with("last_seq", self.last_seq.load(Relaxed)));
        }
        if first_seq.plus(u64::from(count) - 1) > Seq::MAX {
            return Err(Error::invalid("no sequence numbers are left")
                .with("first_seq", first_seq)
                .with("operations", count));
        }
        Ok(count)
    }

    /// The newest version of `key` with a sequence number of at most `seq`, of any kind,
    /// expired or not. Allocates nothing.
    #[must_use]
    pub fn get(&self, key: &[u8], seq: Seq) -> Option<MemEntry> {
        self.find(key, index::hash(key), seq)
    }

    /// As [`Memtable::get`]; `hash` is XXH3 of the key, 64 bits, seed 0.
    #[must_use]
    pub fn get_hashed(&self, key: &[u8], hash: u64, seq: Seq) -> Option<MemEntry> {
        self.find(key, index::part_of(hash), seq)
    }

    /// The record of the newest version of `key` at or below `seq`, or [`NONE`]; `hash` as for
    /// [`Memtable::get_hashed`].
    pub(crate) fn newest_record(&self, key: &[u8], hash: u64, seq: Seq) -> u32 {
        self.find_number(key, index::part_of(hash), seq)
    }

    fn find(&self, key: &[u8], hash: u32, seq: Seq) -> Option<MemEntry> {
        let record = self.find_number(key, hash, seq);
        (record != NONE).then(|| self.shared(self.log.record(record).place()))
    }

    /// The record of the newest version at or below `seq`, or [`NONE`].
    fn find_number(&self, key: &[u8], hash: u32, seq: Seq) -> u32 {
        let mut record = self.index.find(&self.log, hash, key);
        let mut walked = 0;
        while record != NONE && self.log.record(record).seq() > seq {
            if walked == CHAIN {
                return self.order().find(&self.log, key, seq);
            }
            walked += 1;
            record = self.log.record(record).older();
        }
        if record == NONE && self.index.is_partial() {
            record = self.order().find(&self.log, key, seq);
        }
        record
    }

    /// The record of the same key before `record`, or [`NONE`].
    pub(crate) fn older(&self, key: &[u8], record: u32) -> u32 {
        let before = self.log.record(record).older();
        if before != NONE || !self.index.is_partial() {
            return before;
        }
        // A version that was left out of the index has no link to an older one.
        match self.log.record(record).seq() {
            Seq(0 | 1) => NONE,
            seq => self.order().find(&self.log, key, seq.minus(1)),
        }
    }

    pub(crate) fn folds(&self) -> &Folds {
        &self.folds
    }

    /// Whether it contains range deletes. Look-ups and cursors do not return them: a reader gets
    /// them separately.
    #[must_use]
    #[inline]
    pub fn has_range_deletes(&self) -> bool {
        !self.ranges.is_empty()
    }

    /// The newest range delete at or below `seq` that deletes `key`; [`Seq::NONE`] for none. It
    /// hides older entries.
    #[must_use]
    pub fn deleted_at(&self, key: &[u8], seq: Seq) -> Seq {
        self.ranges.at(key, seq)
    }

    /// The range deletes, in no particular order.
    #[must_use]
    pub fn range_deletes(&self) -> Vec<RangeDelete> {
        self.ranges.list()
    }

    /// The range deletes as covers for scans: each contains some of them.
    #[must_use]
    pub fn range_covers(&self) -> Arc<Vec<Arc<Cover>>> {
        self.ranges.covers()
    }

    /// The greatest key of its entries; `None` if there are none. Range deletes are not entries.
    #[must_use]
    pub fn greatest_key(&self) -> Option<Vec<u8>> {
        self.order().greatest_key(&self.log).map(<[u8]>::to_vec)
    }

    /// Bytes of memory in use: the batches' buffers, the records, and the structures that point to
    /// them.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Bytes of copies, besides [`Memtable::bytes`], of entries that scans read often: at most the
    /// same amount again. Counted in the call.
    #[must_use]
    pub fn laid_bytes(&self) -> usize {
        self.order().arrays.iter().map(|array| array.laid_bytes()).sum()
    }

    /// Entries of every kind, including range deletes; a batch counts once it is complete.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len.load(Acquire)
    }

    /// The number of different keys among the entries; slightly less if keys collide in the index,
    /// or during an insertion.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.index.keys()
    }

    /// Whether nothing was inserted yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The smallest sequence number; `None` while empty.
    #[must_use]
    pub fn first_seq(&self) -> Option<Seq> {
        Some(Seq(self.first_seq.load(Acquire))).filter(|seq| !seq.is_none())
    }

    /// The largest sequence number of a complete batch; `None` while empty.
    #[must_use]
    pub fn last_seq(&self) -> Option<Seq> {
        Some(Seq(self.last_seq.load(Acquire))).filter(|seq| !seq.is_none())
    }

    /// The number of records that readers may name.
    pub(crate) fn records(&self) -> u32 {
        self.records.load(Acquire)
    }

    #[cfg(test)]
    pub(crate) fn index_is_partial(&self) -> bool {
        self.index.is_partial()
    }

    pub(crate) fn index(&self) -> &Index {
        &self.index
    }

    pub(crate) fn log(&self) -> &Log {
        &self.log
    }

    /// The entry at `place`, with a share of its buffer.
    pub(crate) fn shared(&self, place: Place) -> MemEntry {
        MemEntry { buffer: Arc::clone(self.log.buffer(place.buffer)), place }
    }
}

/// An entry found by a look-up. It shares the batch's buffer, so it may outlive the memtable.
#[derive(Clone, Debug)]
pub struct MemEntry {
    buffer: Arc<[u8]>,
    place: Place,
}

impl MemEntry {
    /// The entry.
    #[must_use]
    pub fn entry(&self) -> Entry<'_> {
        self.place.read(&self.buffer)
    }

    /// The buffer that contains the entry.
    #[must_use]
    pub fn buffer(&self) -> &Arc<[u8]> {
        &self.buffer
    }

    /// The position of the value or operand in [`MemEntry::buffer`]: with both, a caller can return
    /// it without a copy.
    #[must_use]
    pub fn value_range(&self) -> Range<usize> {
        self.place.value_range()
    }
}
