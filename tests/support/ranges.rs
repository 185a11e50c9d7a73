//! Rewrites the newest manifest of a closed database so that its tables have visible ranges, like
//! the tables of clones by range, without a clone.

use crate::gc::{newest, newest_record};
use siltstone::store::conditional;
use siltstone::{Env, Error};
use siltstone_base::{AttemptId, ObjectId, ObjectName, PutOutcome, SstDescriptor};
use siltstone_manifest::compose::{VisibleRange, project};
use siltstone_manifest::{FinishedJob, Manifest};

/// Cuts every table in two at `key`: its two parts are side by side, and nothing is hidden.
///
/// # Errors
/// Errors of the store.
pub async fn halve(env: &Env, key: &[u8]) -> Result<(), Error> {
    let (left, right) = (range(None, Some(key)), range(Some(key), None));
    rewrite(env, |next| {
        let parts = |table: &SstDescriptor| [left.cut(table), right.cut(table)];
        let both = |tables: &mut Vec<SstDescriptor>| {
            *tables = tables.iter().flat_map(parts).flatten().collect();
        };
        next.l0.iter_mut().for_each(|entry| both(&mut entry.tables));
        next.runs.iter_mut().for_each(|run| both(&mut run.tables));
    })
    .await
}

/// Hides all keys outside of `[start, end)`.
///
/// # Errors
/// Errors of the store.
pub async fn cut(env: &Env, start: Option<&[u8]>, end: Option<&[u8]>) -> Result<(), Error> {
    rewrite(env, |next| project(next, &range(start, end)).fill(next)).await
}

fn range(start: Option<&[u8]>, end: Option<&[u8]>) -> VisibleRange {
    let [start, end] = [start, end].map(|key| key.map(|key| key.to_vec().into()));
    VisibleRange { start, end }
}

async fn rewrite(env: &Env, change: impl FnOnce(&mut Manifest)) -> Result<(), Error> {
    let none = || Error::internal("there is no database to rewrite");
    let state = newest(env).await?.ok_or_else(none)?;
    let mut next = (*state).clone();
    next.id = state.next_id();
    change(&mut next);
    // A clone has no jobs: their inputs are not the present tables.
    for job in &newest_record(env, state.database).await?.jobs {
        if next.finished_jobs.iter().all(|done| done.job != job.id) {
            next.finished_jobs.push(FinishedJob { job: job.id, epoch: state.compactor_epoch });
        }
    }
    let attempt = AttemptId(env.random_u128());
    let bytes = next.encode(ObjectId(env.random_u128()), attempt)?;
    let created = conditional::create(env, ObjectName::Manifest(next.id), bytes, attempt).await;
    match (created.outcome, created.error) {
        (PutOutcome::Committed, _) => Ok(()),
        (_, Some(error)) => Err(error),
        (_, None) => Err(Error::internal("another process committed meanwhile")),
    }
}
