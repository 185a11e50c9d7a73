//! What a user holds.
//!
//! What does a whole operation is no `async fn` but gives a boxed future. The code of an `async fn`
//! is made wherever it is awaited: the binding, and each of some thirty test programs, compiled all
//! of the engine below it once more, which took most of the tests' build. What a warm get or put
//! runs through has no box.

pub mod admin;
pub mod changes;
pub(crate) mod checkpoints;
pub(crate) mod clone;
pub(crate) mod db;
pub(crate) mod destroy;
pub(crate) mod export;
pub(crate) mod history;
pub mod ingest;
pub(crate) mod load;
pub(crate) mod reader;
pub(crate) mod restore;
pub(crate) mod schema;
pub(crate) mod shared_pins;
pub(crate) mod staging;
pub(crate) mod stats;
mod transactions;
