//! Examines a store: whether it has the properties that a database relies on (RFC 0051).
//!
//! The probe creates objects with fresh names below `probe/`, which no database reads, and deletes
//! all of them. It must never touch another object. It cannot prove that creates are atomic; it
//! finds the stores that ignore or break the condition.

mod checks;
mod race;
mod report;
mod scratch;
#[cfg(test)]
mod tests;

pub use report::{ClockOffset, PropertyFinding, PropertyResult, StoreProperty, StoreReport};

use crate::env::Env;
use crate::progress::Progress;
use checks::StoreChecks;
use futures::FutureExt;
use futures::future::BoxFuture;
use scratch::ScratchObjects;
use siltstone_base::{Error, Result};
use std::time::Duration;

/// The scope of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeOptions {
    /// Rounds of racing creates, at least one.
    pub rounds: u32,
    /// Size in bytes of the largest object that is stored, at least 1 KiB.
    pub largest_object: u64,
    /// Maximum duration of one request of a small object; a large object has longer.
    pub deadline: Duration,
}

impl ProbeOptions {
    /// Smallest [`ProbeOptions::largest_object`].
    pub const LEAST_LARGEST_OBJECT: u64 = 1 << 10;
    /// Largest [`ProbeOptions::largest_object`]: the probe holds the object in memory.
    pub const MOST_LARGEST_OBJECT: u64 = 1 << 30;

    fn check(&self) -> Result<()> {
        if self.rounds == 0 {
            return Err(Error::invalid("rounds must be at least 1"));
        }
        let sizes = ProbeOptions::LEAST_LARGEST_OBJECT..=ProbeOptions::MOST_LARGEST_OBJECT;
        if !sizes.contains(&self.largest_object) {
            return Err(Error::invalid("largest_object must be 1 KiB to 1 GiB")
                .with("largest_object", self.largest_object));
        }
        Ok(())
    }
}

/// Examines the store of `env` and deletes every object that the examination created. `progress`
/// counts the steps.
///
/// A property that the store does not have is no error: the report names it. Beside a collector
/// with a grace period of zero, which deletes objects of others below `probe/`, the report can be
/// wrong.
///
/// # Errors
/// Invalid for options out of range; Denied, Unavailable, Timeout, NotFound if the store cannot be
/// listed or refuses the first create.
pub fn probe<'a>(
    env: &'a Env,
    options: &'a ProbeOptions,
    progress: &'a Progress,
) -> BoxFuture<'a, Result<StoreReport>> {
    async move {
        options.check()?;
        let _in_use = env.store.place().begin_use();
        let mut checks = StoreChecks::new(env, *options, progress);
        let reached = checks.reach().await;
        if reached.is_ok() {
            checks.run().await;
        }
        let (findings, scratch) = checks.end();
        let (left, samples, requests) = ScratchObjects::clean_up(scratch).await;
        reached?;
        Ok(StoreReport {
            store: format!("{:?}", env.store),
            properties: findings.properties,
            clock: findings.clock,
            largest_object: findings.largest_object,
            latency: report::medians(samples),
            requests,
            left,
        })
    }
    .boxed()
}
