//! Manifests, and the objects that the protocols speak of: the machines of the manifest crate say
//! what to ask the store for, this asks (RFC 0004).

pub(crate) mod client;
pub(crate) mod conditional_create;
pub(crate) mod gate;
pub(crate) mod missing;
pub(crate) mod new_database;
pub(crate) mod objects;
pub(crate) mod poll;
pub(crate) mod rules;
pub(crate) mod store_time;
