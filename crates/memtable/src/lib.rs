//! The memtable: a sorted in-memory buffer of writes with one writer at a time and readers that
//! take no lock.
//!
//! It is a skip list (Pugh, "Skip lists: a probabilistic alternative to balanced trees", 1990)
//! whose nodes are numbered and live in append-only arrays, so that links are plain 32-bit numbers
//! in atomics and no pointer is ever freed under a reader. The crate needs no `unsafe` and no
//! epochs: a node lives as long as its table, and a table as long as anybody holds its
//! [`std::sync::Arc`].
//!
//! | module | holds |
//! | --- | --- |
//! | [`Memtable`] (`table`) | insertion, look-up, sizes |
//! | `list` | the skip list: order, search, the writer's finger |
//! | `chunked` | append-only arrays that readers index while they grow |
//! | `node` | what a node stores, packed into four words |
//! | [`MemCursor`] (`cursor`) | ordered movement, both ways |
//!
//! Entries are not copied: a node points into the batch's shared buffer
//! ([`siltstone_base::batch`] has the encoding), and so does what a look-up hands out.

#![forbid(unsafe_code)]

mod chunked;
mod cursor;
mod list;
mod node;
mod table;

#[cfg(test)]
mod tests;

pub use cursor::MemCursor;
pub use table::{MAX_ENTRIES, MemEntry, Memtable};
