//! The memtable: batches in, entries out, sizes.

use crate::cursor::MemCursor;
use crate::list::{Finger, List, MAX_HEIGHT, NONE, Target};
use crate::node::{INLINE_LINKS, Node, Place};
use siltstone_base::{BatchOps, Entry, Error, Kind, Result, Seq};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};

/// Most entries of one memtable. Links are numbered in 32 bits, and a node has at most 9 of them
/// outside of itself: 2^28 * 9 < 2^32, so no number wraps whatever heights are drawn. Their nodes
/// alone would take 12 GiB.
pub const MAX_ENTRIES: u32 = 1 << 28;
const _: () = assert!(MAX_ENTRIES as u64 * ((MAX_HEIGHT - INLINE_LINKS) as u64) < u32::MAX as u64);

/// What one entry costs beside its bytes: its node, and 4 bytes for each link outside of it, of
/// which there is one to 48 nodes (1/64 + 1/256 + ...): a byte is more than that. Slack in the last
/// chunk, at most as much again, is not counted.
const NODE_BYTES: usize = size_of::<Node>() + 1;
/// What one batch costs beside its bytes: its slot, and the two counters of its [`Arc`].
const BUFFER_BYTES: usize = size_of::<std::sync::OnceLock<Arc<[u8]>>>() + 2 * size_of::<usize>();

/// A sorted buffer of writes: one writer at a time, readers without locks.
///
/// A reader may look at any time; it finds every entry whose insertion it has learned of. Entries
/// of a batch that is being inserted may be met one by one, so readers bound what they see by a
/// sequence number that is published once the batch is in.
pub struct Memtable {
    list: List,
    finger: Mutex<Finger>,
    bytes: AtomicUsize,
    len: AtomicUsize,
    first_seq: AtomicU64,
    last_seq: AtomicU64,
    max_entries: u32,
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
    /// An empty one. Allocates nothing until the first insertion.
    #[must_use]
    pub fn new() -> Self {
        Memtable::with_max_entries(MAX_ENTRIES)
    }

    pub(crate) fn with_max_entries(max_entries: u32) -> Self {
        Memtable {
            list: List::new(),
            finger: Mutex::new(Finger::new()),
            bytes: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            first_seq: AtomicU64::new(0),
            last_seq: AtomicU64::new(0),
            max_entries,
        }
    }

    /// Inserts the operations of a batch ([`siltstone_base::Batch`]'s encoding); the n-th, from 0,
    /// gets sequence number `first_seq + n`. The bytes are shared, not copied, and live as long as
    /// the table. A batch without operations changes nothing.
    ///
    /// # Errors
    /// Nothing is inserted then. Corruption for bytes that are no batch; Unsupported for a range
    /// delete; Invalid when the table has no numbers left ([`MAX_ENTRIES`], 4 GiB a batch) or the
    /// sequence numbers would pass [`Seq::MAX`]; Internal when `first_seq` is not above
    /// [`Memtable::last_seq`], or an earlier insertion panicked.
    pub fn insert_batch(&self, first_seq: Seq, ops: &Arc<[u8]>) -> Result<()> {
        let mut finger = self.finger.lock().map_err(|_| {
            Error::internal("an insertion into this memtable panicked; open the database anew")
        })?;
        let count = self.validate(&finger, first_seq, ops)?;
        if count == 0 {
            return Ok(());
        }
        let buffer = self.list.keep_buffer(&mut finger, ops);
        let mut seq = first_seq;
        for op in BatchOps::new(ops) {
            let op = op?;
            self.list.insert(&mut finger, op.key, Place::of(&op, buffer, seq)?);
            seq = seq.next();
        }
        let added = ops.len() + BUFFER_BYTES + count as usize * NODE_BYTES;
        // Memory itself bounds the sum: every counted byte is allocated, but for the averages.
        self.bytes.fetch_add(added, Relaxed);
        let _ = self.first_seq.compare_exchange(0, first_seq.0, Release, Relaxed);
        self.last_seq.store(first_seq.0 + u64::from(count) - 1, Release);
        self.len.fetch_add(count as usize, Release);
        Ok(())
    }

    /// Decodes everything once and answers how many operations there are.
    fn validate(&self, finger: &Finger, first_seq: Seq, ops: &[u8]) -> Result<u32> {
        let room = self.max_entries - finger.nodes;
        let mut count = 0u32;
        for op in BatchOps::new(ops) {
            let op = op?;
            if op.kind == Kind::RangeDelete {
                return Err(Error::unsupported("a memtable takes no range deletes yet"));
            }
            if count == room {
                let full = Error::invalid("the memtable has no room for the batch: flush it first");
                return Err(full.with("max_entries", self.max_entries));
            }
            Place::of(&op, finger.buffers, first_seq)?;
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

    /// The newest version of `key` with a sequence number of at most `seq`, of whatever kind,
    /// expired or not. Allocates nothing.
    #[must_use]
    pub fn get(&self, key: &[u8], seq: Seq) -> Option<MemEntry> {
        let (_, found) = self.list.search(Target::new(key, seq));
        if found == NONE {
            return None;
        }
        let place = self.list.place(found);
        let buffer = self.list.buffer(place.buffer);
        // The first entry at or after (key, seq) may be of a later key.
        (buffer.get(place.key_range()) == Some(key))
            .then(|| MemEntry { buffer: Arc::clone(buffer), place })
    }

    /// A cursor over all entries, standing nowhere. It keeps the table alive and may be used while
    /// the writer inserts.
    #[must_use]
    pub fn cursor(self: &Arc<Self>) -> MemCursor {
        MemCursor::new(Arc::clone(self))
    }

    /// Bytes of memory in use: the batches' buffers, the nodes, and what points at them.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Entries of every kind; a batch counts once it is in whole.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len.load(Acquire)
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

    /// The largest sequence number of a batch that is in whole; `None` while empty.
    #[must_use]
    pub fn last_seq(&self) -> Option<Seq> {
        Some(Seq(self.last_seq.load(Acquire))).filter(|seq| !seq.is_none())
    }

    pub(crate) fn list(&self) -> &List {
        &self.list
    }
}

/// An entry found by a look-up. Holds the batch's buffer, so it outlives the memtable.
#[derive(Clone, Debug)]
pub struct MemEntry {
    buffer: Arc<[u8]>,
    place: Place,
}

impl MemEntry {
    pub(crate) fn new(buffer: Arc<[u8]>, place: Place) -> Self {
        MemEntry { buffer, place }
    }

    /// The entry.
    #[must_use]
    pub fn entry(&self) -> Entry<'_> {
        self.place.read(&self.buffer)
    }

    /// The buffer that the entry lies in.
    #[must_use]
    pub fn buffer(&self) -> &Arc<[u8]> {
        &self.buffer
    }

    /// Where in [`MemEntry::buffer`] the value or operand lies: the two together hand it out
    /// without a copy.
    #[must_use]
    pub fn value_range(&self) -> Range<usize> {
        self.place.value_range()
    }
}
