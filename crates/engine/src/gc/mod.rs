//! The garbage collector (RFC 0020): deletes unreferenced objects. `siltstone_manifest::{gc,
//! protocol::Collect}` decides which objects are dead, and the order of requests and deletes. This
//! module sends the requests to the store and never decides on its own.
//!
//! | module | holds |
//! | --- | --- |
//! | [`round`] | one round: the driver of the `Collect` state machine |
//! | [`boundary`] | creation of boundary objects |
//! | [`report`] | reports of rounds and dry runs |
//! | [`due`] | whether another round could find anything |
//! | [`erase`], [`destroyed`] | removal of a destroyed database |
//! | [`garbage`] | garbage that this process knows of without requests |
//! | [`embedded`] | rounds of the writer's process |
//! | [`serve`] | rounds over many databases, without a writer |

mod boundary;
mod deletes;
mod destroyed;
mod detach;
mod due;
mod erase;
mod garbage;
mod report;
mod round;
mod serve;

pub(crate) use detach::release_in;
pub(crate) use erase::{both_clocks, erase, release_last_pins};
pub(crate) use garbage::Garbage;
#[cfg(test)]
pub(crate) use garbage::testing::no_garbage;
pub use report::{Collected, GcClass, GcObject, GcReport, RetainedObjects};
pub(crate) use round::Collector;
pub use serve::{EndReason, GcEvent, run};

use crate::manifests::missing::no_database;
use crate::manifests::objects::Objects;
use futures::FutureExt;
use futures::future::BoxFuture;
use siltstone_base::Result;
use siltstone_store::env::Env;
use siltstone_store::progress::Progress;
use std::sync::Arc;
use std::time::Duration;

/// Options of a collector without a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcOptions {
    /// Minimum age, by the store's clock. Younger objects are retained.
    pub min_age: Duration,
    /// Time for which a softly destroyed database is left unchanged.
    pub db_delete_grace: Duration,
    /// Time between two rounds over one database.
    pub interval: Duration,
    /// Maximum duration of one request, including retries.
    pub deadline: Duration,
}

/// Returns `pause` with jitter, two thirds to four thirds of it, so that many collectors do not
/// run in step.
pub(crate) fn around(env: &Env, pause: Duration) -> Duration {
    env.jittered(pause / 3 * 2)
}

/// Runs one round. With `dry`, the round changes nothing and the report lists the objects that a
/// round would delete, with reasons. A dry round uses this machine's clock, since reading the
/// store's clock creates an object.
///
/// # Errors
/// NotFound where there is no database; Denied when boundaries cannot be written; Unavailable,
/// Timeout, Corruption. Objects deleted before an error were permanently dead. A failed delete is
/// not an error: the report counts it.
pub fn once<'a>(
    env: &'a Env,
    options: &'a GcOptions,
    dry: bool,
) -> BoxFuture<'a, Result<GcReport>> {
    async move { once_watched(env, options, dry, &Arc::default()).await }.boxed()
}

/// [`once`], which also updates `progress`: the number of attempted deletes, including failed
/// ones, out of the number of objects to delete.
///
/// # Errors
/// As [`once`].
pub fn once_watched<'a>(
    env: &'a Env,
    options: &'a GcOptions,
    dry: bool,
    progress: &'a Arc<Progress>,
) -> BoxFuture<'a, Result<GcReport>> {
    async move {
        let objects = Objects { env: env.clone(), limit: options.deadline };
        let mut collector = Collector::new(objects, options.min_age, options.db_delete_grace);
        collector = collector.told_to(progress);
        let newest = collector.look().await?.ok_or_else(|| no_database(env))?;
        if dry { collector.dry_round(&newest).await } else { collector.round(newest, None).await }
    }
    .boxed()
}
