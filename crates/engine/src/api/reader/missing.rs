//! Reads that find a table gone: decides whether that is damage, or a version that is no longer
//! kept.

use super::ReaderShared;
use crate::cache::ancestors::{is_lost_parent, naming};
use crate::follower::at_checkpoint::ReadAt;
use crate::follower::following::Follower;
use crate::manifests::client::look;
use crate::manifests::missing::{check_lives, no_database};
use crate::manifests::objects::Objects;
use crate::read::answer::Answer;
use crate::read::scan::{Judged, MissingTables};
use crate::read::tree::Levels;
use futures::future::BoxFuture;
use siltstone_base::{DatabaseId, Error, ErrorKind, Result};
use siltstone_manifest::edit::Conflict;
use siltstone_manifest::{Manifest, Refusal};
use std::sync::Arc;

impl ReaderShared {
    /// Returns the result of `pending`, a read of `levels`. If a table of `levels` is gone,
    /// refreshes and returns the result of `read`: without a lease, or after it was revoked, a
    /// table may be deleted during a read.
    pub(super) fn repeated<W: Clone + Send + 'static, T: Send + 'static>(
        self: &Arc<Self>,
        mut levels: Arc<Levels>,
        pending: BoxFuture<'static, Result<T>>,
        what: W,
        read: impl Fn(&ReaderShared, W) -> Result<Answer<T>> + Send + 'static,
    ) -> Answer<T> {
        let shared = Arc::clone(self);
        Answer::Pending(Box::pin(async move {
            let mut answer = pending.await;
            while let Err(missing) = &answer
                && missing.kind() == ErrorKind::NotFound
                && !is_lost_parent(missing)
            {
                let began = shared.reposition(&levels, missing).await?;
                levels = Arc::clone(shared.view.read().tree.below());
                answer = read(&shared, what.clone())?.wait().await;
                if began {
                    return answer.map_err(dangling);
                }
                // Another call had begun again, which may be a while ago.
            }
            answer
        }))
    }

    /// A table of `levels` was gone, as `missing` says: look, and start from the newest manifest.
    /// `false` where another call has done so since.
    async fn reposition(&self, levels: &Arc<Levels>, missing: &Error) -> Result<bool> {
        let Some(follower) = &self.follower else { return Err(self.lost_or_gone(missing).await) };
        let work = async {
            let mut follower = follower.lock().await;
            self.health.check_open()?;
            let shows_newer = !Arc::ptr_eq(self.view.read().tree.below(), levels);
            if shows_newer {
                // A follower that restarted has no record of earlier leases.
                if follower.leases(levels) {
                    self.whole(self.judge_missing(&follower, levels)).await?;
                }
                return Ok(false);
            }
            self.whole(self.start_again(&mut follower, levels)).await.map(|()| true)
        };
        let moved = self.context.deadline(self.options.deadline, "refresh", work).await;
        moved.map_err(|error| match error.kind() {
            ErrorKind::Corruption => naming(error, missing),
            _ => error,
        })
    }

    /// The error for a table that is missing in a fixed state: Corruption while the database keeps
    /// that state, because a checkpoint or a lease pins it or it is the newest; otherwise a
    /// collector may have deleted the table.
    async fn lost_or_gone(&self, missing: &Error) -> Error {
        let (id, database) = {
            let view = self.view.read();
            (view.manifest.id, view.manifest.database)
        };
        let objects = Objects { env: self.context.env.clone(), limit: self.options.deadline };
        let keeps =
            |newest: &Manifest| newest.database == database && (newest.pins(id) || newest.id == id);
        match look(&objects, None).await {
            Ok(Some(newest)) if keeps(&newest) => {
                let text = "a table that a kept version of the database names is gone: something \
                            other than Siltstone deleted it";
                naming(Error::corruption(text).with("version", id), missing)
            }
            Ok(Some(_)) => naming(self.gone(), missing),
            Ok(None) => no_database(&self.context.env),
            Err(error) => error,
        }
    }

    /// The error for a missing table that only a checkpoint could keep.
    fn gone(&self) -> Error {
        let gone = || Error::internal("a reader neither follows nor stays");
        self.at.as_ref().map_or_else(gone, ReadAt::gone)
    }

    async fn start_again(&self, follower: &mut Follower, levels: &Arc<Levels>) -> Result<()> {
        self.judge_missing(follower, levels).await?;
        self.restart(follower).await
    }

    /// Another database stands in the place of the one that was read: reads go on in none but that.
    ///
    /// # Errors
    /// NotFound, which ends the reader.
    pub(super) fn check_same(&self, database: DatabaseId) -> Result<()> {
        if self.view.read().manifest.database == database {
            return Ok(());
        }
        let error = Refusal::from(Conflict::OtherDatabase).into();
        self.health.end(&error);
        Err(error)
    }

    /// A table of `levels` is missing.
    ///
    /// # Errors
    /// NotFound where the database is gone, or another one stands in its place; Corruption where a
    /// lease still covers the table, as a look has it that comes after (rule L5).
    async fn judge_missing(&self, follower: &Follower, levels: &Arc<Levels>) -> Result<()> {
        let looked = follower.look_up().await?.ok_or_else(|| no_database(&self.context.env))?;
        self.check_same(looked.database)?;
        check_lives(&looked)?;
        if follower.is_corrupt(levels, &looked) {
            return Err(Error::corruption("a table that a reader's lease covers is gone"));
        }
        Ok(())
    }
}

impl MissingTables for ReaderShared {
    fn judge<'a>(&'a self, levels: &'a Arc<Levels>, missing: &'a Error) -> Judged<'a> {
        Box::pin(async move {
            if is_lost_parent(missing) {
                return Ok(());
            }
            let judged = match &self.follower {
                Some(follower) => self.judge_missing(&*follower.lock().await, levels).await,
                None => match self.lost_or_gone(missing).await {
                    gone if gone.kind() == ErrorKind::Expired => Ok(()),
                    error => Err(error),
                },
            };
            judged.map_err(|error| match error.kind() {
                ErrorKind::Corruption => naming(error, missing).caused_by(missing.clone()),
                _ => error,
            })
        })
    }
}

fn dangling(error: Error) -> Error {
    if error.kind() != ErrorKind::NotFound || is_lost_parent(&error) {
        return error;
    }
    let dangling = Error::corruption("a table that the newest manifest names is gone");
    naming(dangling, &error).caused_by(error)
}
