//! The public API: handles, and operations on a whole database.
//!
//! A function that performs a whole operation returns a boxed future instead of being an
//! `async fn`. The code of an `async fn` is generated in every crate that awaits it: the Python
//! binding and each of some thirty test programs would compile the whole engine once more, which
//! took most of the tests' build time. The path of a warm get or put must not allocate a box.

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
