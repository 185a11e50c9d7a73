//! Destroying a database (RFC 0030).
//!
//! A destroy must never delete an object that a checkpoint or a clone needs, and must never delete
//! an object before the database is marked as destroyed.

use crate::api::clone::with_clone;
use crate::gc::{both_clocks, erase, release_last_pins};
use crate::manifests::client::{commit_alone, look, newest};
use crate::manifests::gate;
use crate::manifests::objects::Objects;
use crate::writer::opening::Opening;
use futures::FutureExt;
use futures::future::BoxFuture;
use siltstone_base::{AttemptId, Epoch, Error, ErrorKind, Result, UnixMillis};
use siltstone_manifest::protocol::WriterOptions;
use siltstone_manifest::{
    Checkpoint, CheckpointOwner, Destroy, Edit, KeptFence, Manifest, bars_destroy,
};
use siltstone_store::counting::count;
use siltstone_store::env::Env;
use siltstone_store::full::is_full;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of checkpoints that an error lists.
const MOST_NAMED: usize = 8;

/// Destroys the database. Fences its writer first.
///
/// Without `soft` all objects are deleted at once, and the location can be used again. With `soft`
/// a collector deletes them once `gc.db_delete_grace` has passed and no checkpoint and no lease is
/// left. A database that was destroyed softly can be destroyed again without `soft`. A later call
/// continues a destroy that was interrupted.
///
/// # Errors
/// NotFound if there is no database; without `soft` Conflict if clones or checkpoints need its
/// objects, with a list of them; Fenced if it was opened for writing meanwhile; Denied,
/// Unavailable, Corruption, Unsupported; Timeout. `deadline` bounds the call until the database is
/// marked as destroyed, and each single request after that.
pub fn destroy(env: &Env, soft: bool, deadline: Duration) -> BoxFuture<'_, Result<()>> {
    async move {
        let (env, requests) = &count(env.clone());
        let objects = Objects { env: env.clone(), limit: deadline };
        let marks = async {
            let newest = newest(&objects).await?;
            gate::check_changes(&newest)?;
            if newest.destroyed_at.is_some() {
                objects.give_up_lost_log().await?;
            }
            let clocks = both_clocks(&objects, &newest).await?;
            if !soft {
                refuse_pinned(&newest, clocks.0)?;
            }
            Ok((mark(&objects, newest, soft, clocks).await?, clocks))
        };
        let marked = requests.within(env, deadline, "destroy", marks).await;
        let (marked, clocks) = marked.map_err(no_room)?;
        let Some(last) = marked else { return Ok(()) };
        if soft {
            return Ok(());
        }
        refuse_pinned(&last, clocks.0)?;
        let last = release_last_pins(&objects, last, clocks).await?;
        let (ended, report) = erase(&objects, last, None).await?;
        match report.trouble {
            Some(trouble) if !ended.finished => {
                Err(trouble.during("destroy").with("left to delete", ended.failed))
            }
            _ => Ok(()),
        }
    }
    .boxed()
}

/// Marks the database as destroyed and returns its newest manifest; `None` if another process has
/// removed the database meanwhile.
async fn mark(
    objects: &Objects,
    newest: Arc<Manifest>,
    soft: bool,
    clocks: (UnixMillis, UnixMillis),
) -> Result<Option<Arc<Manifest>>> {
    if newest.destroyed_at.is_some() {
        return Ok(Some(newest));
    }
    let database = newest.database;
    let ended = if newest.initialized && newest.mirror.is_none() {
        end_initialized(objects, newest, soft, clocks).await
    } else {
        commit(objects, newest, (None, Vec::new()), soft, clocks).await
    };
    let error = match ended {
        Ok(state) => return Ok(Some(state)),
        Err(error) => error,
    };
    // Another process may have marked or removed the database first.
    match look(objects, None).await? {
        Some(state) if state.database != database => Ok(None),
        Some(state) if state.destroyed_at.is_some() => Ok(Some(state)),
        Some(_) => Err(error),
        None => Ok(None),
    }
}

/// Takes over as a writer does (claim, walk, fence, confirm), and then commits the destroy under
/// its own epoch (rule D1).
async fn end_initialized(
    objects: &Objects,
    newest: Arc<Manifest>,
    soft: bool,
    clocks: (UnixMillis, UnixMillis),
) -> Result<Arc<Manifest>> {
    let env = &objects.env;
    // Marks the database as in use, so that a handle of this process that is fenced now does not
    // keep later openers out.
    let _presence = env.store.place().occupy(newest.database, true).await?;
    let options = WriterOptions {
        claim: AttemptId(env.random_u128()),
        max_parallel_writes: 1,
        take_over: true,
        ..WriterOptions::default()
    };
    let (recovered, _) = Opening::new(objects, newest, options).drive().await?;
    let fenced = (Some(recovered.epoch), recovered.fences());
    commit(objects, recovered.manifest, fenced, soft, clocks).await
}

async fn commit(
    objects: &Objects,
    newest: Arc<Manifest>,
    (epoch, fences): (Option<Epoch>, Vec<KeptFence>),
    soft: bool,
    (now, at): (UnixMillis, UnixMillis),
) -> Result<Arc<Manifest>> {
    let edit = Edit::Destroy(Destroy { epoch, at, now, soft, fences });
    commit_alone(objects, edit, newest).await
}

/// The error of a destroy, with a remedy if the store is full: a destroy first writes some small
/// objects.
fn no_room(error: Error) -> Error {
    if !is_full(&error) {
        return error;
    }
    let text = "the store has no room for the small objects that mark a database as destroyed; \
                free some space and repeat the destroy, or delete the folder if no process uses it";
    Error::new(error.kind(), text).caused_by(error)
}

/// Fails with Conflict if checkpoints or clones need objects of the database, and lists them.
fn refuse_pinned(state: &Manifest, now: UnixMillis) -> Result<()> {
    let bars: Vec<&Checkpoint> = bars_destroy(state, now).collect();
    if bars.is_empty() {
        return Ok(());
    }
    let error = Error::new(
        ErrorKind::Conflict,
        "checkpoints or clones need objects of the database: delete the checkpoints, destroy the \
         clones first, or destroy it softly, which waits for them; release the pins of clones that \
         no longer exist with release_clone",
    );
    let error = error.with("checkpoints", bars.len());
    Err(bars.into_iter().take(MOST_NAMED).fold(error, |error, one| match one.owner {
        CheckpointOwner::Clone(_) => with_clone(error, one),
        _ => match &one.name {
            Some(name) => error.with("checkpoint", format_args!("{} ({name})", one.id)),
            None => error.with("checkpoint", one.id),
        },
    }))
}
