//! Writing: the commit in the caller's thread, the WAL behind it, and how far it is durable
//! (RFC 0003).

pub(crate) mod buffer;
pub(crate) mod commit;
pub(crate) mod durability;
pub(crate) mod pressure;
pub(crate) mod room;
pub(crate) mod wal;

pub use commit::Commit;
