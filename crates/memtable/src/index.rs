//! From a key to its newest record: an open-addressing hash table that grows under its readers.
//!
//! ```text
//! slot  := hash, 32 bits | record number, 32 bits     0: free
//! place := the hash's low bits, then the next slots (linear probing)
//! ```
//! A key takes one slot. Its newest record stands there and names the one before it, so a look-up
//! at an older sequence number walks from version to version. Slots are stored with release and
//! loaded with acquire, and a slot once taken keeps its key. The table doubles at 5/8: a new one is
//! filled and then published; the old one stays for those who are reading it, which at most doubles
//! the memory.
//!
//! Keys may be chosen to share a hash. A key is therefore looked for in [`PROBES`] slots and no
//! more; one that finds no room is left out, and from then on a miss proves nothing
//! ([`Index::is_partial`]): the caller searches the order instead.

use crate::log::{Log, NONE};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

/// log2 of the first table's slots.
const FIRST_BITS: u32 = 8;
/// The largest table has 2^29 slots: room for 2^28 keys under 5/8.
const TABLES: usize = 22;
/// Slots that are looked at before a key counts as left out. At 5/8 full a run of 64 taken slots
/// has a chance of about 10^-9 with random hashes.
pub(crate) const PROBES: usize = 64;

type Table = Box<[AtomicU64]>;

/// The index. One writer at a time; readers without locks.
pub(crate) struct Index {
    tables: [OnceLock<Table>; TABLES],
    /// Which table is in use.
    current: AtomicUsize,
    partial: AtomicBool,
    /// Keys in the table; the writer's.
    keys: AtomicUsize,
    probes: usize,
}

/// The part of a key's hash that the index works with.
pub(crate) fn hash(key: &[u8]) -> u32 {
    (xxhash_rust::xxh3::xxh3_64(key) >> 32) as u32
}

impl Index {
    /// One that leaves a key out which finds no room in `probes` slots.
    pub(crate) fn new(probes: usize) -> Self {
        Index {
            tables: [const { OnceLock::new() }; TABLES],
            current: AtomicUsize::new(0),
            partial: AtomicBool::new(false),
            keys: AtomicUsize::new(0),
            probes,
        }
    }

    /// Whether some key was left out: then a miss proves nothing.
    pub(crate) fn is_partial(&self) -> bool {
        self.partial.load(Acquire)
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

    /// Makes record `number`, which is in the log and nobody can find yet, the newest of its key.
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

    /// Makes the first table, or the next one where the current one is 5/8 full.
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

/// The slots in which a key of this hash may stand, in order. Tables have a power of two of slots.
fn probe(table: &Table, hash: u32, probes: usize) -> impl Iterator<Item = &AtomicU64> {
    let from = hash as usize & (table.len() - 1);
    let (wrapped, first) = table.split_at(from);
    first.iter().chain(wrapped).take(probes)
}
