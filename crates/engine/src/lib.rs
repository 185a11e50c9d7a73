//! Siltstone: an embedded, ordered key-value store that lives in an object store.
#![forbid(unsafe_code)]

pub mod env;
pub mod store;
