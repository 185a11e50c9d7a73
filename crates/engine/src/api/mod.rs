//! What a user holds.

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
pub(crate) mod stats;
mod transactions;
