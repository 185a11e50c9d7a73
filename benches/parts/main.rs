//! One bench per visible part. `make bench` runs them; `cargo bench -p siltstone-benches -- NAME`
//! runs those whose names contain NAME.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    missing_docs,
    reason = "a bench stops at what it did not expect"
)]

mod bloom;
mod clones;
mod compact;
mod engine;
mod load;
mod local;
mod manifest;
mod memtable;
mod merge;
mod readers;
mod schema;
mod sst;
mod wal;

use criterion::{Criterion, criterion_group, criterion_main};
use std::time::Duration;

/// Ten short samples per bench: the whole list takes about two minutes.
fn settings() -> Criterion {
    Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(1500))
        .without_plots()
}

criterion_group! {
    name = parts;
    config = settings();
    targets = memtable::bench, bloom::bench, sst::bench, merge::bench, wal::bench,
        manifest::bench, engine::bench, load::bench, local::bench, compact::bench,
        clones::bench, readers::bench, schema::bench
}
criterion_main!(parts);
