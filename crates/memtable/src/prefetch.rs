//! Prefetching for many look-ups in parallel.
//!
//! ```text
//! slot of the index ─► record ─► address of its buffer ─► head of the buffer, key and value
//! ```
//! Each step loads from an address returned by the previous one. The first step is made for all
//! keys, then the second for all keys, with the results kept in between, so that the loads of
//! different keys overlap ([`siltstone_base::prefetch`]).

use crate::Memtable;
use crate::index::part_of;
use crate::log::NONE;
use siltstone_base::prefetch::prefetch;
use std::hint::black_box;
use std::sync::Arc;

/// Keys that make their steps together: some five lines each are to stay in a first-level cache.
const TOGETHER: usize = 32;

impl Memtable {
    /// Prefetches the loads of look-ups of keys with these hashes ([`Memtable::get_hashed`]). Using
    /// the result keeps the compiler from removing the loads.
    #[must_use]
    pub fn prefetch(&self, hashes: &[u64]) -> u64 {
        hashes.chunks(TOGETHER).fold(0, |sum, hashes| sum ^ together(self, hashes))
    }
}

fn together(memtable: &Memtable, hashes: &[u64]) -> u64 {
    let (index, log) = (memtable.index(), memtable.log());
    black_box(index.prefetch(hashes));
    let mut numbers = [NONE; TOGETHER];
    let mut found = 0;
    for hash in hashes {
        let number = index.probable(part_of(*hash));
        if let Some(place) = numbers.get_mut(found) {
            *place = number;
        }
        // No branch: the processor cannot predict whether a key is here.
        found += usize::from(number != NONE);
    }
    let numbers = numbers.get(..found).unwrap_or_default();
    black_box(numbers.iter().fold(0, |sum, number| sum ^ log.record(*number).seq().get()));
    let mut places = [None; TOGETHER];
    for (place, number) in places.iter_mut().zip(numbers) {
        let at = log.record(*number).place();
        *place = Some((log.buffer(at.buffer), at));
    }
    let mut bytes = [&[][..]; TOGETHER];
    for (bytes, (buffer, place)) in bytes.iter_mut().zip(places.iter().flatten()) {
        *bytes = buffer.get(place.range()).unwrap_or_default();
    }
    let heads = places.iter().flatten().fold(0, |sum, (buffer, _)| sum ^ Arc::strong_count(buffer));
    bytes.iter().fold(heads as u64, |sum, bytes| sum ^ prefetch(bytes))
}
