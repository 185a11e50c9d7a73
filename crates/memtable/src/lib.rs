//! The memtable: a sorted in-memory buffer of writes with one writer at a time and readers that
//! never wait for it (RFC 0012).
//!
//! ```text
//! batch --> buffer + records (log)      every entry, numbered in the order of writing
//!              |          |
//!              |          +--> index            hash of a key -> its newest record: look-ups
//!              +--> skip list, sorted arrays    the order: scans and flushes
//! ```
//!
//! | module | holds |
//! | --- | --- |
//! | [`Memtable`] (`table`) | insertion, look-up, sizes |
//! | `log`, `record`, `chunked` | records in append-only arrays that readers index as they grow |
//! | `index` | a hash table from keys to newest records |
//! | `versions` | the versions of one key in one pass |
//! | `folds` | operands of a key that a read folded into one, for the next read |
//! | `prefetch` | prefetching for many look-ups in parallel |
//! | `skip_list` | a small skip list that takes single writes |
//! | `sorted_array` | immutable sorted arrays, and the merge of two |
//! | `stretch` | 256 entries of a sorted array, stored together once they are read often |
//! | `window` | the eight bytes of a key that are compared as a number first |
//! | `order` | skip list and sorted arrays together: when they are sealed and merged |
//! | `extent` | the part of a table in a range |
//! | `values_after` | the values that were written after a sequence number |
//! | `ranges` | range deletes, beside the entries |
//! | `heads` | the merge of an order's parts |
//! | [`MemCursor`] (`cursor`) | ordered movement in both directions, slightly ahead of its reader |
//!
//! Entries are not copied: a record points into the shared buffer of its batch
//! ([`siltstone_base::batch`] describes the encoding), and so does the result of a look-up. Memory
//! is never freed under a reader: it lives as long as the table or the reader's reference.

#![forbid(unsafe_code)]

mod chunked;
mod cursor;
mod extent;
mod folds;
mod heads;
mod index;
mod log;
mod order;
mod prefetch;
mod ranges;
mod record;
mod skip_list;
mod sorted_array;
mod stretch;
mod table;
mod values_after;
mod versions;
mod window;

#[cfg(test)]
mod tests;

pub use cursor::MemCursor;
pub use folds::OperandFold;
pub use table::{MAX_ENTRIES, MemEntry, Memtable};
pub use versions::{MemVersion, Versions};
