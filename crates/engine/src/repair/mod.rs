//! Repair of a database that cannot be opened or compacted (RFC 0034). A repair reports the damage
//! and the losses. Unless it is a dry run, it copies the damaged objects aside and continues
//! without them. It must never delete an object (rule Y1).
//!
//! ```text
//! manifests ─► log ─► told ─► copies aside ─► void manifests, boundary ─► claim, walk to the cut,
//!   fence behind everything, confirm ─► rows before the cut as tables ─► one commit ─► job record
//! ```
//! A crash between two steps leaves a database that either opens or can be repaired by another run:
//! the damage that prevents opening remains until the commit that ends a step.

mod aside;
mod chain;
mod cutting;
mod giving_up;
mod jobs;
mod log;
mod report;
mod void;

pub use giving_up::{GiveUpReport, give_up_table, table_named};
pub use report::{Damage, RepairReport};

use crate::manifests::client::{commit_alone, newest};
use crate::manifests::gate;
use crate::manifests::missing::check_lives;
use crate::manifests::objects::Objects;
use crate::options::Options;
use chain::{ManifestChain, Remedy};
use futures::FutureExt;
use futures::future::BoxFuture;
use log::Log;
use siltstone_base::{Error, ErrorKind, JobId, ObjectName, Result};
use siltstone_manifest::Edit;
use siltstone_store::LogIdentityStep;
use siltstone_store::env::Env;
use siltstone_store::retry::with_retries;
use std::time::Duration;

/// Options of a repair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepairOptions {
    /// Only report the damage and the losses.
    pub dry_run: bool,
    /// Repair even if a writer is known to be alive. The repair fences that writer.
    pub take_over: bool,
}

/// Reports the damage that prevents opening or compacting the database and the data that a repair
/// loses. Unless `dry_run` is set, it first copies the unreadable objects under `damaged/`, where
/// no collector looks, and then continues without them. It does not check tables: `verify` reads
/// them.
///
/// # Errors
/// NotFound without a database; Conflict if no damage prevents either (not in a dry run), if a
/// writer is alive, or if another process changes the database meanwhile (inspect it again);
/// Corruption if no manifest is left to continue from; Fenced, Denied, Unavailable, Timeout
/// (of one request: the caller may run the repair again), Unsupported.
pub fn repair<'a>(
    env: &'a Env,
    how: RepairOptions,
    options: &'a Options,
) -> BoxFuture<'a, Result<RepairReport>> {
    async move {
        let objects = Objects { env: env.clone(), limit: options.deadline };
        let (chain, log) = inspect(&objects).await?;
        let record = jobs::inspect(&objects, &chain.base).await?;
        let mut report = report::of(&chain, &log, record.as_ref());
        if how.dry_run {
            return Ok(report);
        }
        if !report.needed {
            return Err(Error::new(
                ErrorKind::Conflict,
                "nothing prevents opening or compacting this database: there is nothing to \
                 repair (`siltstone verify` reads every byte of it)",
            ));
        }
        // This call excludes no writer that the protocol admits. It only asks whether one is alive.
        // A repair of job records alone ends no writer.
        let ends_writers = log.cut.is_some() || !matches!(chain.remedy, Remedy::None);
        let _presence = match ends_writers {
            true => Some(env.store.place().occupy(chain.base.database, how.take_over).await?),
            false => None,
        };
        let repair = JobId(env.new_ulid());
        report.aside = aside::copy(&objects, repair, &chain, &log, record.as_ref()).await?;
        let newest = match &chain.remedy {
            Remedy::None => chain.base.clone(),
            Remedy::Boundary(boundary) => {
                void::boundary(&objects, chain.base.database, *boundary).await?;
                newest(&objects).await?
            }
            Remedy::Void(last) => {
                let (state, gone) = void::go_on(&objects, &chain, &log, *last).await?;
                (report.manifest_id, report.checkpoints_dropped) = (state.id, gone);
                report.tables_stay = true;
                state
            }
        };
        if let Some(cut) = &log.cut {
            let done = cutting::cut(&objects, newest, cut.at, &log, options).await?;
            done.into_report(&mut report);
            // At the end, so that a repair that was interrupted is still needed.
            let renew = || env.store.log().identity(LogIdentityStep::Renew);
            with_retries(env, objects.limit, "renew the log", renew).await?;
        }
        if let Some(damaged) = &record {
            jobs::go_on(&objects, damaged).await?;
        }
        report.done = true;
        Ok(report)
    }
    .boxed()
}

/// The damage of a separate store of the log that was emptied or replaced; the log is then used
/// without its identity.
async fn lost_log(objects: &Objects, chain: &ManifestChain) -> Result<Option<Damage>> {
    objects.follow_log(&chain.base)?;
    let lost = objects.give_up_lost_log().await?;
    Ok(lost.map(|error| Damage::new(ObjectName::LogIdentity, error)))
}

/// Finds the damage that prevents opening, if any.
async fn inspect(objects: &Objects) -> Result<(ManifestChain, Log)> {
    let mut chain = chain::inspect(objects).await?;
    check_lives(&chain.base)?;
    gate::check_changes(&chain.base)?;
    let lost = lost_log(objects, &chain).await?;
    let mut log = log::inspect(objects, &chain).await?;
    if let Some(damage) = lost {
        log.lost_identity(damage);
    }
    if matches!(chain.remedy, Remedy::None) && (log.cut.is_some() || log.knows_more(&chain.base)) {
        // A writer may have continued, and a collector may have freed objects that the walk read.
        let now = newest(objects).await?;
        let place = |state: &siltstone_manifest::Manifest| (state.writer_epoch, state.replay_from);
        if now.database != chain.base.database || place(&now) != place(&chain.base) {
            return Err(Error::new(
                ErrorKind::Conflict,
                "another process writes to the database while it is inspected: stop that \
                 writer, and try again",
            ));
        }
        if log.knows_more(&now) {
            chain.lost_newest(now);
        }
    }
    Ok((chain, log))
}

/// Allows the collector to delete unreferenced tables. It retains them after a repair that
/// continued from an older manifest. Call this once no more data is to be recovered from them.
///
/// # Errors
/// NotFound without a database; errors of a commit.
pub fn collect_after(env: &Env, deadline: Duration) -> BoxFuture<'_, Result<()>> {
    async move {
        let objects = Objects { env: env.clone(), limit: deadline };
        let newest = newest(&objects).await?;
        check_lives(&newest)?;
        commit_alone(&objects, Edit::CollectTables, newest).await.map(drop)
    }
    .boxed()
}
