//! Invalid bytes for every decoder and for the whole engine (RFC 0015): the result is correct, or a
//! typed refusal; never a panic, a hang, or an allocation by an unchecked length.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test reports, and stops at what it did not expect"
)]

mod corpus;
mod damage;
mod database;
mod decoders;
mod lies;
mod texts;

use parking_lot::{Mutex, MutexGuard};
use peak_alloc::PeakAlloc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// The memory that a decoder may use for any input.
const SMALL_CHANGE: usize = 1 << 20;

/// The allocator counts the whole process: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock()
}

/// Runs `work`, and returns how many bytes more than before were allocated at its peak.
fn peak<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let done = work();
    (done, ALLOCATOR.peak_usage().saturating_sub(before))
}

/// Fails if `work` takes longer than a limit that shows a hang.
fn within(limit: Duration, what: &str, work: impl FnOnce() + Send + 'static) {
    let (ended, end) = channel();
    let thread = std::thread::spawn(move || {
        work();
        let _ = ended.send(());
    });
    match end.recv_timeout(limit) {
        Ok(()) | Err(RecvTimeoutError::Disconnected) => thread.join().unwrap(),
        Err(RecvTimeoutError::Timeout) => panic!("{what}: not done after {limit:?}"),
    }
}
