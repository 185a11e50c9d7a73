//! Clones (RFC 0029, RFC 0031): their initial state, their readers, the pins that keep their
//! tables, several parents, parents elsewhere, places of clones, a crash at every request of their
//! creation, and the release of their parents.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test reports, and stops at what it did not expect"
)]

mod ingesting;
mod kept;
mod lost;
mod made;
mod placed;
mod refused;
mod stopped;
mod two_buckets;
mod united;

use siltstone::admin::{self, CloneParent};
use siltstone::store::counting::RequestTotals;
use siltstone::store::memory::MemoryStore;
use siltstone::{
    Accept, CompactorOptions, CompactorProcess, Database, Env, OpenOptions, Options, Reader,
    ReaderOptions, Result, ScanRange,
};
use siltstone_manifest::Manifest;
use siltstone_tests::gc;
use siltstone_tests::places::{
    Places, ROWS, compact, fill, forget, key, manifest, open, options, parents_rows, read, run,
    text, value,
};
use siltstone_tests::scans::{Pairs, all, some};
use std::time::Duration;

pub(crate) fn of(env: &Env) -> CloneParent {
    CloneParent { env: env.clone(), checkpoint: None, start: None, end: None }
}

pub(crate) async fn clone(env: &Env, parent: &Env) -> Result<()> {
    admin::clone(env, &[of(parent)], &options()).await
}

/// Rewrites everything there and collects without a grace period, twice.
pub(crate) async fn rewrite(env: &Env) {
    for _ in 0..2 {
        compact(env).await.unwrap();
        gc::round(env).await.unwrap();
    }
}

pub(crate) fn total(requests: RequestTotals) -> u64 {
    requests.gets + requests.puts + requests.lists + requests.deletes
}
