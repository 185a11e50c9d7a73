//! The result of `verify` is correct: if it finds nothing wrong, every open, replay, reader,
//! checkpoint, consumer of the change feed and clone can read all of its data (RFC 0050).
//!
//! A parent and a clone of it have one of everything. Each object of both is removed, and damaged
//! at several places, in a separate world; then all of them read.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test reports, and stops at what it did not expect"
)]

mod harmed;
mod meanwhile;
mod world;

use siltstone::verify::{Report, verify};
use siltstone::{Env, Progress, Result};
use std::time::Duration;

pub(crate) const LIMIT: Duration = Duration::from_secs(5);

pub(crate) async fn verified(env: Env) -> Result<Report> {
    verify(&env, LIMIT, &Progress::default()).await
}
