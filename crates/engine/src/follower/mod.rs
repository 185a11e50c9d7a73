//! Following: a reader finds what is newer, keeps what it reads alive by a lease, or reads what a
//! checkpoint names (RFC 0017).

pub(crate) mod at_checkpoint;
pub(crate) mod following;
pub(crate) mod lease;
pub(crate) mod rows;
