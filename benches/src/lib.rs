//! Inputs that the benches share: rows of 16 bytes of key and 100 bytes of value, tables of them in
//! memory, and how large an input is.

#![forbid(unsafe_code)]

pub mod rows;
pub mod tables;

/// Whether this run measures (`cargo bench` says so in the arguments). Otherwise it is a test, and
/// every body runs once on the smallest input that means anything.
#[must_use]
pub fn is_measured() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}

/// `full` rows where this run measures, and a few where it does not.
#[must_use]
pub fn scaled(full: u64) -> u64 {
    if is_measured() { full } else { full.min(300) }
}
