//! Inputs shared by the benches: rows with keys of 16 bytes and values of 100 bytes, tables of them
//! in memory, and the size of an input.

#![forbid(unsafe_code)]

pub mod rows;
pub mod tables;

/// Whether this run measures (`cargo bench` passes this as an argument). Otherwise it is a test,
/// and every body runs once on the smallest meaningful input.
#[must_use]
pub fn is_measured() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}

/// `full` rows if this run measures, otherwise a few.
#[must_use]
pub fn scaled(full: u64) -> u64 {
    if is_measured() { full } else { full.min(300) }
}
