//! Maps a key to its newest record: an open-addressing hash table that grows while readers use it.
//!
//! ```text
//! slot  := hash, 32 bits | record number, 32 bits     0: free
//! place := the hash's low bits, then the next slots (linear probing)
//! ```
//! A key takes one slot. The slot contains its newest record, which points to the previous one, so
//! a look-up at an older sequence number walks from version to version. Slots are stored with
//! release and loaded with acquire, and a used slot keeps its key. The table doubles when it is 5/8
//! full: a new one is filled and then published. The old one is kept for its readers, which at most
//! doubles the memory.
//!
//! Keys may be chosen to have the same hash. A key is therefore searched in at most [`PROBES`]
//! slots. A key that finds no free slot is left out, and from then on a miss proves nothing
//! ([`Index::is_partial`]): the caller searches the order instead.

use crate::log::{Log, NONE};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

/// log2 of the first table's slots.
const FIRST_BITS: u32 = 8;
/// The largest table has 2^29 slots: room for 2^28 keys under 5/8.
const TABLES: usize = 22;
/// Slots that are probed before a key is left out. With random hashes the probability that a key is
/// displaced by d slots falls as exp(-d (a - 1 - ln a)) at a load of a, that is exp(-0.095 d) at
/// 5/8 (Pittel, Linear probing: the probable largest search time grows logarithmically with the
/// number of records, 1987). One key in a million is displaced by about 145 slots; a displacement
/// of 256 occurs in one memtable of 40,000.
pub(crate) const PROBES: usize = 256;

type Table = Box<[AtomicU64]>;

/// The index. One writer at a time; readers without locks.
pub(crate) struct Index {
    tables: [OnceLock<Table>; TABLES],
    /// The table that is in use.
    current: AtomicUsize,
    partial: AtomicBool,
    /// Keys in the table; only the writer uses it.
    keys: AtomicUsize,
    probes: usize,
}

/// The part of a key's hash that the index uses.
pub(crate) fn hash(key: &[u8]) -> u32 {
    part_of(xxhash_rust::xxh3::xxh3_64(key))
}

/// The part of XXH3's 64 bits that the index uses.
pub(crate) fn part_of(hash: u64) -> u32 {
    (hash >> 32) as u32
}

impl Index {
    /// An index that leaves out a key if it finds no free slot in `probes` slots.
    pub(crate) fn new(probes: usize) -> Self {
        Index {
            tables: [const { OnceLock::new() }; TABLES],
            current: AtomicUsize::new(0),
            partial: AtomicBool::new(false),
            keys: AtomicUsize::new(0),
            probes,
        }
    }

    /// Whether a key was left out: then a miss proves nothing.
    pub(crate) fn is_partial(&self) -> bool {
        self.partial.load(Acquire)
    }

    /// The number of keys that have a slot.
    pub(crate) fn keys(&self) -> usize {
        self.keys.load(Relaxed)
    }

    /// The newest record of `key`, or [`NONE`].
    pub(crate) fn find(&self, log: &Log, hash: u32, key: &[u8]) -> u32 {
        let Some(table) = self.table(self.current.load(Acquire)) else { return NONE };
        for slot in probe(table, hash, self.probes) {
            let found = slot.load(Acquire);
            if found == 0 {
                return NONE;
            }
            let number = found as u32;
            if (found >> 32) as u32 == hash && log.key(number) == key {
                return number;
            }
        }
        NONE
    }

    /// Loads the first slots for look-ups of these hashes. Using the result keeps the compiler from
    /// removing the loads.
    pub(crate) fn prefetch(&self, hashes: &[u64]) -> u64 {
        let Some(table) = self.table(self.current.load(Acquire)) else { return 0 };
        let slots = hashes.iter().filter_map(|hash| {
            let slot = table.get(part_of(*hash) as usize & (table.len() - 1));
            slot.map(|slot| slot.load(Relaxed))
        });
        slots.fold(0, |sum, slot| sum ^ slot)
    }

    /// A record that is probably the newest of its key: one with that hash, in the first slots. Key
    /// bytes are not compared.
    pub(crate) fn probable(&self, hash: u32) -> u32 {
        let Some(table) = self.table(self.current.load(Acquire)) else { return NONE };
        probe(table, hash, self.probes)
            .map(|slot| slot.load(Acquire))
            .take_while(|slot| *slot != 0)
            .find(|slot| (slot >> 32) as u32 == hash)
            .map_or(NONE, |slot| slot as u32)
    }

    /// Makes record `number`, which is in the log but not visible yet, the newest of its key.
    pub(crate) fn insert(&self, log: &Log, number: u32) {
        self.make_room();
        let record = log.record(number);
        let hash = record.hash();
        let Some(table) = self.table(self.current.load(Relaxed)) else { return };
        for slot in probe(table, hash, self.probes) {
            let found = slot.load(Relaxed);
            if found == 0 {
                self.keys.store(self.keys.load(Relaxed) + 1, Relaxed);
                slot.store(pack(hash, number), Release);
                return;
            }
            if (found >> 32) as u32 == hash && log.key(found as u32) == log.key(number) {
                record.set_older(found as u32);
                slot.store(pack(hash, number), Release);
                return;
            }
        }
        self.partial.store(true, Release);
    }

    fn table(&self, which: usize) -> Option<&Table> {
        self.tables.get(which)?.get()
    }

    /// Makes the first table, or the next one if the current one is 5/8 full.
    fn make_room(&self) {
        let current = self.current.load(Relaxed);
        let Some(old) = self.table(current) else {
            if let Some(first) = self.tables.first() {
                first.get_or_init(|| empty(FIRST_BITS));
            }
            return;
        };
        if self.keys.load(Relaxed) * 8 < old.len() * 5 {
            return;
        }
        let Some(next) = self.tables.get(current + 1) else { return };
        let new = next.get_or_init(|| empty(FIRST_BITS + current as u32 + 1));
        for taken in old.iter().map(|slot| slot.load(Relaxed)).filter(|slot| *slot != 0) {
            let mut slots = probe(new, (taken >> 32) as u32, self.probes);
            match slots.find(|slot| slot.load(Relaxed) == 0) {
                Some(slot) => slot.store(taken, Relaxed),
                None => self.partial.store(true, Release),
            }
        }
        self.current.store(current + 1, Release);
    }
}

fn pack(hash: u32, number: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(number)
}

fn empty(bits: u32) -> Table {
    (0..1usize << bits).map(|_| AtomicU64::new(0)).collect()
}

/// The slots that a key with this hash may occupy, in order. Tables have a power of two of slots.
fn probe(table: &Table, hash: u32, probes: usize) -> impl Iterator<Item = &AtomicU64> {
    let from = hash as usize & (table.len() - 1);
    let (wrapped, first) = table.split_at(from);
    first.iter().chain(wrapped).take(probes)
}

#[cfg(test)]
mod tests {
    use crate::Memtable;
    use siltstone_base::{Batch, Seq};
    use std::sync::Arc;

    /// With 64 slots per key a large memtable left some keys out, and every miss searched the
    /// order.
    #[test]
    fn random_keys_all_find_room() {
        let memtable = Memtable::new();
        let mut seq = Seq(1);
        let mut key = 0u64;
        for _ in 0..330 {
            let mut batch = Batch::new();
            for _ in 0..1000 {
                key = key.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                batch.put(&key.to_be_bytes(), b"", None).unwrap();
            }
            let ops: Arc<[u8]> = Arc::from(batch.as_bytes());
            memtable.insert_batch(seq, &ops).unwrap();
            seq = seq.plus(1000);
        }
        assert!(!memtable.index_is_partial());
    }
}
