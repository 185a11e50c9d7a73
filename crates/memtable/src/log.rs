//! The entries in order of insertion: numbered records, and the buffers that they point into.
//!
//! Records count from 1, so that 0 can mean "none". A record never changes or moves: a reader that
//! knows its number may read it as long as the log lives.

use crate::chunked::Chunked;
use crate::record::{Place, Record};
use crate::window::Window;
use siltstone_base::{Entry, Seq};
use std::cmp::Ordering;
use std::sync::{Arc, OnceLock};

/// The number that means "no record".
pub(crate) const NONE: u32 = 0;

/// The part of the entries that readers share; only the writer counts.
pub(crate) struct Log {
    records: Chunked<Record>,
    buffers: Chunked<OnceLock<Arc<[u8]>>>,
}

impl Log {
    pub(crate) fn new() -> Self {
        Log { records: Chunked::new(), buffers: Chunked::new() }
    }

    /// Keeps `buffer` under `number`, the writer's next, for as long as the log lives.
    pub(crate) fn keep_buffer(&self, number: u32, buffer: &Arc<[u8]>) {
        // The slot is new: only the writer counts, and it never reuses a number.
        let _ = self.buffers.make(number).set(Arc::clone(buffer));
    }

    /// Makes record `number`, the writer's next.
    pub(crate) fn append(&self, number: u32, place: Place, hash: u32) {
        self.records.make(number).fill(place, hash);
    }

    pub(crate) fn record(&self, number: u32) -> &Record {
        self.records.get(number)
    }

    pub(crate) fn buffer(&self, number: u32) -> &Arc<[u8]> {
        match self.buffers.get(number).get() {
            Some(buffer) => buffer,
            None => unreachable!("a record was named before its buffer was kept"),
        }
    }

    #[expect(clippy::indexing_slicing, reason = "the range was decoded from this very buffer")]
    pub(crate) fn key(&self, number: u32) -> &[u8] {
        let place = self.record(number).place();
        &self.buffer(place.buffer)[place.key_range()]
    }

    pub(crate) fn entry(&self, number: u32) -> Entry<'_> {
        let place = self.record(number).place();
        place.read(self.buffer(place.buffer))
    }

    /// Order of two records: key ascending, sequence number descending. Sequence numbers grow with
    /// record numbers, so of one key the larger number comes first.
    pub(crate) fn compare(&self, a: u32, b: u32) -> Ordering {
        self.key(a).cmp(self.key(b)).then_with(|| b.cmp(&a))
    }

    /// Order of a record against an internal key.
    pub(crate) fn compare_to(&self, number: u32, key: &[u8], seq: Seq) -> Ordering {
        self.key(number).cmp(key).then_with(|| seq.cmp(&self.record(number).seq()))
    }
}

/// The target of a search: an internal key and the prefix of its user key.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) prefix: u64,
    pub(crate) key: &'a [u8],
    pub(crate) seq: Seq,
}

impl<'a> Target<'a> {
    pub(crate) fn new(window: &Window, key: &'a [u8], seq: Seq) -> Self {
        Target { prefix: window.prefix(key), key, seq }
    }

    /// Order of a record, whose key has `prefix`, compared with the target. Reads the key's bytes
    /// only if the prefixes are equal.
    pub(crate) fn compare(&self, log: &Log, prefix: u64, number: u32) -> Ordering {
        prefix.cmp(&self.prefix).then_with(|| log.compare_to(number, self.key, self.seq))
    }
}
