//! Encoding and decoding of tables and WAL objects.
//!
//! This crate has no clock, no randomness, no I/O and no async. It says which bytes of an object
//! are needed and decodes them; the caller fetches them. Bytes that were not written by this crate
//! give Corruption or Unsupported, never a panic, and no allocation is based on an unchecked
//! length.
//!
//! | module | holds |
//! | --- | --- |
//! | [`builder`] | [`TableBuilder`]: writes an object from sorted entries, streamed while it grows
//! |
//! | [`table`] | [`Table`]: index, filter and properties of a table, opened with one request |
//! | [`block`] | [`Block`]: decoded entries, searched by key |
//! | [`cursor`] | [`TableCursor`] over the blocks in a [`BlockSource`] |
//! | [`wal`] | the WAL object: batches in commit order, and fences |
//! | [`codec`] | [`Codec`]: compression of blocks |
//!
//! The rest of this page is the byte format.
#![doc = include_str!("../FORMAT.md")]
#![forbid(unsafe_code)]

pub mod block;
pub mod builder;
pub mod codec;
pub mod cursor;
mod footer;
mod index;
mod options;
mod packed;
mod properties;
mod ranges;
mod section;
pub mod table;
pub mod wal;

pub use block::Block;
pub use builder::{FinishedTable, TableBuilder, TableScratch};
pub use codec::Codec;
pub use cursor::{BlockSource, TableCursor};
pub use footer::FOOTER_BYTES;
pub use options::TableOptions;
pub use properties::Properties;
pub use table::Table;
