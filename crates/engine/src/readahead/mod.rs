//! Tables that are read forward, once, and far enough ahead: what merges read from (RFC 0019).

pub(crate) mod inputs;
pub(crate) mod prefetch;
