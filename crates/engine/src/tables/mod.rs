//! The parts of the engine, each usable alone (RFC 0014): a memtable, a table in its own file, the
//! writer and the sorter of such files, filters, and a merge over all of these. They run the same
//! code as a database; this module provides what that code needs without a database.

pub(crate) mod flush;
pub(crate) mod listed;
mod load;
pub(crate) mod log_to_tables;
mod merge;
mod replaced;
pub(crate) mod restack;
mod sorter;
mod spare;
mod staged;
mod standalone_memtable;
mod table;
mod view;
mod writer;

pub use load::{LEAST_LOAD_BYTES, LoadOptions, LoadPhases, Loader, RowBatch};
pub use merge::{MergeInput, Merged};
pub use replaced::ReplacedRange;
pub use siltstone_bloom::{Bloom, BloomBuilder, key_hash};
pub(crate) use staged::Operands;
pub use staged::{PartOptions, PartWriter, StagedPart};
pub use standalone_memtable::MemoryTable;
pub use table::{TableFile, TableInfo};
pub use view::View;
pub use writer::{Duplicates, PushResult, TableWriter, TableWriterOptions};
