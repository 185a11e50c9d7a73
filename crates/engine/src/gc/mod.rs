//! The garbage collector (RFC 0020): deletes what nobody names. What is dead, and in which order
//! things are asked and done, is decided by `siltstone_manifest::{gc, protocol::Collect}`; here the
//! store is asked.
//!
//! | module | holds |
//! | --- | --- |
//! | [`round`] | one round: the machine driven over a store |
//! | [`boundary`] | the making of boundaries |
//! | [`report`] | what a round did, and what a dry one would do |
//! | [`due`] | whether another round could find anything |
//! | [`erase`], [`destroyed`] | the end of a destroyed database |
//! | [`garbage`] | garbage that this process knows of, without asking |
//! | [`embedded`] | rounds of the writer's process |
//! | [`serve`] | rounds over many databases, without a writer |

mod boundary;
mod destroyed;
mod detach;
mod due;
mod erase;
mod garbage;
mod report;
mod round;
mod serve;

pub(crate) use detach::release_in;
pub(crate) use erase::{both_clocks, erase, let_go};
pub(crate) use garbage::Garbage;
pub use report::{Collected, GcClass, GcObject, GcReport, RetainedObjects};
pub(crate) use round::Collector;
pub use serve::{EndReason, GcEvent, run};

use crate::io::env::Env;
use crate::io::progress::Progress;
use crate::manifests::missing::no_database;
use crate::manifests::objects::Objects;
use futures::FutureExt;
use futures::future::BoxFuture;
use siltstone_base::Result;
use std::sync::Arc;
use std::time::Duration;

/// How a collector without a writer works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcOptions {
    /// What is younger, by the store's clock, stays.
    pub min_age: Duration,
    /// For so long a database that was destroyed softly is left as it is.
    pub db_delete_grace: Duration,
    /// Time between two rounds over one database.
    pub interval: Duration,
    /// Longest time one request may take, repetitions included.
    pub deadline: Duration,
}

/// Around `pause`, so that many collectors do not stay in step: two thirds to four thirds of it.
pub(crate) fn around(env: &Env, pause: Duration) -> Duration {
    env.jittered(pause / 3 * 2)
}

/// One round. `dry` changes nothing: the report lists what would go, and why. It goes by this
/// machine's clock then, since asking the store's takes an object.
///
/// # Errors
/// NotFound where there is no database; Denied when boundaries cannot be written; Unavailable,
/// Timeout, Corruption. What was deleted before an error was dead for good. A delete that fails is
/// no error: it stands in the report.
pub fn once<'a>(
    env: &'a Env,
    options: &'a GcOptions,
    dry: bool,
) -> BoxFuture<'a, Result<GcReport>> {
    async move { once_watched(env, options, dry, &Arc::default()).await }.boxed()
}

/// [`once`], with `progress` kept up to date for whoever looks at it: objects that were deleted,
/// those included whose delete failed, of those that go.
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
