//! Requests for manifests and the other objects of the protocols (RFC 0004). The state machines of
//! the manifest crate choose the requests; this module sends them to the store.

pub(crate) mod ahead;
pub(crate) mod client;
pub(crate) mod conditional_create;
pub(crate) mod gate;
pub(crate) mod lost_clones;
pub(crate) mod missing;
pub(crate) mod new_database;
pub(crate) mod objects;
pub(crate) mod poll;
pub(crate) mod rules;
pub(crate) mod store_time;
