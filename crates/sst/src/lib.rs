//! Tables and WAL objects: bytes in, bytes out.
//!
//! This crate has no clock, no randomness, no I/O and no async. It says which bytes of an object
//! are needed and what is in them; somebody else fetches them. Anything that was not written here
//! is answered with Corruption or Unsupported, never with a panic, and nothing is allocated on the
//! word of a length that was not checked.
//!
//! | module | holds |
//! | --- | --- |
//! | [`builder`] | [`TableBuilder`]: sorted entries in, an object out, streamed while it grows |
//! | [`table`] | [`Table`]: index, filter and properties of one table, opened by one request |
//! | [`block`] | [`Block`]: decoded entries, searched by key alone |
//! | [`cursor`] | [`TableCursor`] over the blocks that a [`BlockSource`] has |
//! | [`wal`] | the WAL object: batches in commit order, and fences |
//! | [`codec`] | [`Codec`]: how blocks are compressed |
//!
//! The rest of this page is the format, byte by byte.
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
