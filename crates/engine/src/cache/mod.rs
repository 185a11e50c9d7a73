//! In-memory caches of table contents (blocks, metadata, key filters, bounds of runs), and the
//! reads that fill them (RFC 0006).

pub(crate) mod ancestors;
pub(crate) mod blocks;
pub(crate) mod bounds;
pub(crate) mod fetch;
pub(crate) mod filters;
pub(crate) mod handle_counters;
pub(crate) mod lent_table;
pub(crate) mod metadata;
pub(crate) mod slots;
