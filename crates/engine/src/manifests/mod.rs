//! Manifests, and the objects that the protocols speak of: the machines of the manifest crate say
//! what to ask the store for, this asks (RFC 0004).

pub(crate) mod client;
pub(crate) mod create;
pub(crate) mod creation;
pub(crate) mod gate;
pub(crate) mod missing;
pub(crate) mod now;
pub(crate) mod objects;
pub(crate) mod poll;
pub(crate) mod replay;
pub(crate) mod rules;
