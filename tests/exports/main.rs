//! Export and import (RFC 0033): the content and the permitted uses of a mirror, the copies of a
//! later export, a crash at every request, and the promotion of a mirror to a normal database.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test reports, and stops at what it did not expect"
)]

mod bucket;
mod harmed;
mod mirrors;
mod refused;
mod stopped;

use siltstone::admin::{self, CloneParent, ExportPlaces, ExportReport};
use siltstone::verify::verify;
use siltstone::{
    CheckpointName, CheckpointOptions, Env, Error, ErrorKind, Progress, Reader, ReaderOptions,
    Result, ScanRange,
};
use siltstone_base::ObjectName;
use siltstone_base::name::prefix;
use siltstone_tests::gc;
use siltstone_tests::places::{
    Places, ROWS, compact, fill, key, manifest, open, options, parents_rows, read, run, text, value,
};
use siltstone_tests::scans::{Pairs, all, some};
use std::time::Duration;

pub(crate) async fn export(source: &Env, target: &Env) -> Result<ExportReport> {
    export_at(source, target, None).await
}

pub(crate) async fn export_at(
    source: &Env,
    target: &Env,
    which: Option<&CheckpointName>,
) -> Result<ExportReport> {
    let places = ExportPlaces { source, target };
    admin::export(places, which, &options(), &Progress::default()).await
}

pub(crate) async fn import(source: &Env, target: &Env) -> Result<ExportReport> {
    let places = ExportPlaces { source, target };
    admin::import(places, None, &options(), &Progress::default()).await
}

/// All objects under the root.
pub(crate) async fn names(env: &Env) -> Vec<ObjectName> {
    let mut names = Vec::new();
    let folders =
        [prefix::MANIFEST, prefix::WAL, prefix::COMPACTED, prefix::COMPACTIONS, prefix::INGEST];
    for folder in folders {
        names.extend(env.store.list(folder, None).await.unwrap().into_iter().map(|one| one.name));
    }
    names
}

/// Deletes everything, as if the store was lost.
pub(crate) async fn lose(env: &Env) {
    for name in names(env).await {
        env.store.delete(name).await.unwrap();
    }
}

/// Checks that nothing is wrong, and nothing is garbage after a collection.
pub(crate) async fn check_whole(env: &Env) {
    gc::round(env).await.unwrap();
    gc::round(env).await.unwrap();
    let report = verify(env, Duration::from_secs(10), &Progress::default()).await.unwrap();
    assert_eq!((report.problem_count, report.orphans.len()), (0, 0), "{report:?}");
}
