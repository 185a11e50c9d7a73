//! What a user holds.

pub mod admin;
pub(crate) mod checkpoints;
pub(crate) mod clone;
pub(crate) mod db;
pub(crate) mod reader;
pub(crate) mod stats;
mod transactions;
