//! Making a database that does not open openable again (RFC 0034): telling what bars it and what
//! would be lost; and, when asked, copying that aside and going on without it. Nothing is deleted.
//!
//! ```text
//! manifests ─► log ─► told ─► copies aside ─► void manifests, boundary ─► claim, walk to the cut,
//!   fence behind everything, confirm ─► rows before the cut as tables ─► one commit
//! ```
//! A crash between two of these leaves a database that either opens, or is repaired by the same
//! again: what bars opening stays until the commit that ends a step.

mod aside;
mod chain;
mod cutting;
mod giving_up;
mod log;
mod report;
mod void;

pub use giving_up::{GiveUpReport, give_up_table, table_named};
pub use report::{Damage, RepairReport};

use crate::io::env::Env;
use crate::manifests::client::{commit_alone, newest};
use crate::manifests::gate;
use crate::manifests::missing::check_lives;
use crate::manifests::objects::Objects;
use crate::options::Options;
use chain::{ManifestChain, Remedy};
use futures::FutureExt;
use futures::future::BoxFuture;
use log::Log;
use siltstone_base::{Error, ErrorKind, JobId, Result};
use siltstone_manifest::Edit;
use std::time::Duration;

/// What a repair may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepairOptions {
    /// Only tell.
    pub dry_run: bool,
    /// Also where a writer is known to be alive: it is fenced.
    pub take_over: bool,
}

/// Tells what bars opening the database and what would be lost by going on without it, and goes on
/// without it unless that is a `dry_run`. What cannot be read is copied under `damaged/` before,
/// where no collector looks. Tables are not looked at: `verify` reads them.
///
/// # Errors
/// NotFound without a database; Conflict where nothing bars opening (not in a dry run), where a
/// writer is alive, or where somebody else changes the database meanwhile: look again; Corruption
/// where no manifest is left to go on from; Fenced, Denied, Unavailable, Timeout (of one request:
/// what was begun may be repeated), Unsupported.
pub fn repair<'a>(
    env: &'a Env,
    how: RepairOptions,
    options: &'a Options,
) -> BoxFuture<'a, Result<RepairReport>> {
    async move {
    let objects = Objects { env: env.clone(), limit: options.deadline };
    let (chain, log) = inspect(&objects).await?;
    let mut report = report::of(&chain, &log);
    if how.dry_run {
        return Ok(report);
    }
    if !report.needed {
        return Err(Error::new(
            ErrorKind::Conflict,
            "nothing bars opening this database: there is nothing to repair (`siltstone verify` \
             reads every byte of it)",
        ));
    }
    // It keeps nobody out who is let in by the rules; it only asks whether one is alive.
    let _presence = env.store.occupy(chain.base.database, how.take_over).await?;
    let repair = JobId(env.new_ulid());
    report.aside = aside::copy(&objects, repair, &chain, &log).await?;
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
    }
    report.done = true;
    Ok(report)
}.boxed()
}

/// What bars opening, if anything does.
async fn inspect(objects: &Objects) -> Result<(ManifestChain, Log)> {
    let mut chain = chain::inspect(objects).await?;
    check_lives(&chain.base)?;
    gate::check_changes(&chain.base)?;
    let log = log::inspect(objects, &chain).await?;
    if matches!(chain.remedy, Remedy::None) && (log.cut.is_some() || log.knows_more(&chain.base)) {
        // A writer may have gone on, and a collector may have freed what was walked.
        let now = newest(objects).await?;
        let place = |state: &siltstone_manifest::Manifest| (state.writer_epoch, state.replay_from);
        if now.database != chain.base.database || place(&now) != place(&chain.base) {
            return Err(Error::new(
                ErrorKind::Conflict,
                "somebody writes to the database while it is looked at: stop that writer, and \
                 look again",
            ));
        }
        if log.knows_more(&now) {
            chain.lost_newest(now);
        }
    }
    Ok((chain, log))
}

/// Lets the collector take tables that nobody names, which it leaves alone since a repair went on
/// from an older manifest: once nothing more is to be saved from them.
///
/// # Errors
/// NotFound without a database; those of a commit.
pub fn collect_after(env: &Env, deadline: Duration) -> BoxFuture<'_, Result<()>> {
    async move {
        let objects = Objects { env: env.clone(), limit: deadline };
        let newest = newest(&objects).await?;
        check_lives(&newest)?;
        commit_alone(&objects, Edit::CollectTables, newest).await.map(drop)
    }
    .boxed()
}
