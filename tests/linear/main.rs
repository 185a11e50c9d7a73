//! Histories of single keys, recorded while several tasks of one handle get, put, delete and write
//! on a condition, and checked for linearizability by the checker `stateright` (RFC 0036).
//!
//! Within one handle an operation takes effect when it is accepted, before its call returns:
//! `threads`. Across writers only durable operations count: `takeover`, in the simulation.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test reports, and stops at what it did not expect"
)]

mod checker;
mod takeover;
mod threads;

use checker::{Op, Ret};
use siltstone::{CompactionOptions, Condition, Options};
use siltstone_tests::sim::Rng;
use std::time::Duration;

/// Small sizes: rows are in memtables, in L0 and in runs, and move while they are read.
pub(crate) fn options() -> Options {
    Options {
        l0_sst_size_bytes: 2048,
        block_bytes: 128,
        block_cache_bytes: 4096,
        flush_interval: Duration::from_millis(2),
        l0_manifest_commit_interval: Duration::ZERO,
        manifest_poll_interval: Some(Duration::from_millis(50)),
        embedded_gc: false,
        deadline: Duration::from_secs(20),
        compaction: CompactionOptions {
            l0_compaction_threshold_ssts: 2,
            target_sst_bytes: 1024,
            min_move_bytes: 0,
            ..CompactionOptions::default()
        },
        ..Options::default()
    }
}

/// One of few expected values of a key; every written value is new.
pub(crate) fn draw(rng: &mut Rng, seen: Option<u64>, next: impl FnOnce() -> u64) -> Op {
    match rng.below(10) {
        0..4 => Op::Get,
        4..6 => Op::Put(next()),
        6 => Op::Delete,
        7 => Op::PutIfAbsent(next()),
        8 => Op::DeleteIf(seen),
        _ => Op::PutIf(seen, next()),
    }
}

/// A value as it is stored.
pub(crate) fn stored(value: u64) -> Vec<u8> {
    format!("{value:<60}").into_bytes()
}

pub(crate) fn number_in(value: &[u8]) -> u64 {
    std::str::from_utf8(value).expect("text").trim_end().parse().expect("a number")
}

/// The condition for `expected`.
pub(crate) fn condition(expected: Option<u64>) -> Condition {
    expected.map_or(Condition::Absent, |value| Condition::Value(stored(value)))
}

pub(crate) fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The value that a client saw last, which its next condition names.
pub(crate) fn seen_in(op: &Op, ret: &Ret, before: Option<u64>) -> Option<u64> {
    match (op, ret) {
        (_, Ret::Value(value)) => *value,
        (Op::Put(value) | Op::PutIfAbsent(value) | Op::PutIf(_, value), Ret::Done) => Some(*value),
        (Op::Delete | Op::DeleteIf(_), Ret::Done) => None,
        _ => before,
    }
}
