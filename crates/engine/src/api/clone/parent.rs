//! The parent of a new clone: finding it, pinning a state of it, and reading the pinned state.
//!
//! A pin expires by default, so that an interrupted clone never retains the parent's tables for
//! ever. The last steps of a clone make its pins permanent.

use super::{counted, owned};
use crate::follower::at_checkpoint::{pinned_manifest, pinned_to_take};
use crate::manifests::client::{commit_alone, look, newest};
use crate::manifests::missing::{check_lives, no_database};
use crate::manifests::objects::Objects;
use crate::tables::log_to_tables::TakenLog;
use crate::wal::walk::walk;
use siltstone_base::{CheckpointId, DatabaseId, Error, ErrorKind, Result, UnixMillis};
use siltstone_manifest::clone::named_within;
use siltstone_manifest::compose::VisibleRange;
use siltstone_manifest::{
    Ancestor, CLONE_AT, CheckpointName, CheckpointOwner, Edit, Manifest, NewCheckpoint,
};
use siltstone_store::env::Env;
use std::sync::Arc;
use std::time::Duration;

/// Lifetime of a pin before the clone makes it permanent, in milliseconds. Creating a clone takes
/// less time.
const PIN_MILLIS: u64 = 60 * 60 * 1000;

/// A database or a checkpoint of it with which a clone begins.
#[derive(Clone, Debug)]
pub struct CloneParent {
    /// The environment of the parent. The clone's store must be able to access its location: the
    /// same bucket, a folder of the same machine, the memory of the same process, or a location
    /// that the store options allow.
    pub env: Env,
    /// The checkpoint to begin with; `None`: the current durable state.
    pub checkpoint: Option<CheckpointName>,
    /// First key of the range to clone, inclusive; `None`: no lower bound.
    pub start: Option<Vec<u8>>,
    /// End of the range to clone, exclusive; `None`: no upper bound.
    pub end: Option<Vec<u8>>,
}

/// A parent that was found in its store.
pub(super) struct FoundParent<'a> {
    pub(super) there: Objects,
    /// The parent's location as the clone records it.
    pub(super) location: String,
    /// The key range of the parent that the clone contains.
    pub(super) keys: VisibleRange,
    asked: &'a CloneParent,
    database: DatabaseId,
}

/// The pinned state of a parent.
pub(super) struct ParentRows {
    pub(super) state: Arc<Manifest>,
    /// The pinned part of the log.
    pub(super) log: TakenLog,
}

impl<'a> FoundParent<'a> {
    /// Finds the parent, and checks that a clone at `here` can access it and all locations that its
    /// manifest names.
    pub(super) async fn find(
        here: &Env,
        asked: &'a CloneParent,
        limit: Duration,
    ) -> Result<FoundParent<'a>> {
        let [start, end] = [&asked.start, &asked.end].map(|key| key.clone().map(Into::into));
        let keys = VisibleRange { start, end };
        keys.check()?;
        let location = asked.env.store.place().location().ok_or_else(|| {
            Error::unsupported(
                "the parent's store has no location that another process could access; clone \
                 from a database in a folder or a bucket",
            )
        })?;
        here.store.neighbours().follows(&location)?;
        let there = Objects { env: asked.env.clone(), limit };
        let newest = newest(&there).await.map_err(|error| log_elsewhere(error, &location))?;
        let named = named_within(&newest, &keys);
        named.iter().try_for_each(|entry| here.store.neighbours().follows(&entry.location))?;
        Ok(FoundParent { there, location, keys, asked, database: newest.database })
    }

    /// The parent's name in error texts.
    pub(super) fn name(&self) -> &str {
        &self.location
    }

    /// The parent's part of the clone request: database id, location, checkpoint, and key range.
    pub(super) fn request(&self) -> Vec<u8> {
        let checkpoint = self.asked.checkpoint.as_ref().map(ToString::to_string);
        let bound = |key: &Option<Vec<u8>>| match key {
            None => vec![0],
            Some(key) => [&[1], counted(key).as_slice()].concat(),
        };
        [
            self.database.0.to_be_bytes().to_vec(),
            counted(self.location.as_bytes()),
            counted(checkpoint.unwrap_or_default().as_bytes()),
            bound(&self.asked.start),
            bound(&self.asked.end),
        ]
        .concat()
    }

    /// Adds a pin of the requested state, and its entry. A pin of the current durable state also
    /// retains the log. Returns the newest manifest, which contains the pin.
    pub(super) async fn pin(
        &self,
        here: &Objects,
        clone: DatabaseId,
        entries: &mut Vec<Ancestor>,
        first: u32,
    ) -> Result<Arc<Manifest>> {
        let new = new_pin(&here.env, clone);
        let (newest, new) = match &self.asked.checkpoint {
            Some(name) => {
                let newest = newest(&self.there).await?;
                let source = Some(name.find(&newest)?.id);
                (newest, NewCheckpoint { source, ..new })
            }
            None => {
                let (newest, walked) = walk(&self.there).await?;
                (newest, NewCheckpoint { wal_id_last_seen: Some(walked), ..new })
            }
        };
        check_lives(&newest).map_err(|error| error.with("parent", &self.location))?;
        let checkpoint = new.id;
        // Before the commit: one that ends without an answer may have been made.
        let (database, location) = (newest.database, self.location.clone());
        entries.push(Ancestor { number: next(entries, first), database, location, checkpoint });
        let committed = commit_alone(&self.there, Edit::AddCheckpoint(new), newest).await;
        committed.map_err(|error| error.with("parent", &self.location))
    }

    /// The state that the pin of `entry` names, as the parent's `newest` has it; `None` where
    /// either is gone.
    pub(super) async fn pinned(
        &self,
        newest: &Arc<Manifest>,
        entry: &Ancestor,
    ) -> Result<Option<Arc<Manifest>>> {
        match newest.checkpoint(entry.checkpoint) {
            None => Ok(None),
            Some(pin) if pin.manifest_id == newest.id => Ok(Some(Arc::clone(newest))),
            Some(pin) => match pinned_manifest(&self.there, pin).await {
                Err(error) if error.kind() == ErrorKind::Expired => Ok(None),
                pinned => pinned.map(Some),
            },
        }
    }

    /// The part of the log that the pin of `entry` covers, whose state is `state`; `None` where it
    /// is gone.
    pub(super) async fn log(
        &self,
        newest: &Manifest,
        state: &Manifest,
        entry: &Ancestor,
    ) -> Result<Option<TakenLog>> {
        let Some(pin) = newest.checkpoint(entry.checkpoint) else { return Ok(None) };
        match pinned_to_take(&self.there, pin, state).await {
            Ok(log) => Ok(Some(log)),
            Err(error) if error.kind() == ErrorKind::Expired => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The state that the pin of `entry` pins; `None` if the pin no longer exists.
    pub(super) async fn rows(&self, entry: &Ancestor) -> Result<Option<ParentRows>> {
        let newest = owned(&self.there, entry).await?;
        let Some(state) = self.pinned(&newest, entry).await? else { return Ok(None) };
        let log = self.log(&newest, &state, entry).await?;
        Ok(log.map(|log| ParentRows { state, log }))
    }
}

/// Adds the pin `new` in an ancestor of a parent, of what the parent's own pin there keeps, and its
/// entry.
pub(super) async fn pin_ancestor(
    there: &Objects,
    new: NewCheckpoint,
    ancestor: &Ancestor,
    entries: &mut Vec<Ancestor>,
    first: u32,
) -> Result<()> {
    let placed = |error: Error| error.with("ancestor", &ancestor.location);
    let newest = look(there, None).await?;
    let newest = newest.filter(|newest| newest.database == ancestor.database);
    let newest = newest.ok_or_else(|| placed(no_database(&there.env)))?;
    let new = NewCheckpoint { source: Some(ancestor.checkpoint), ..new };
    let (number, checkpoint) = (next(entries, first), new.id);
    entries.push(Ancestor { number, checkpoint, ..ancestor.clone() });
    commit_alone(there, Edit::AddCheckpoint(new), newest).await.map_err(placed)?;
    Ok(())
}

/// The number of the entry behind `entries`, which begin with `first`.
fn next(entries: &[Ancestor], first: u32) -> u32 {
    entries.last().map_or(first, |last| last.number.saturating_add(1))
}

/// A pin of the clone that is made at `here`, which says so (rule K8).
pub(super) fn new_pin(here: &Env, clone: DatabaseId) -> NewCheckpoint {
    let created_at = here.clock.now();
    let place = here.store.place().location();
    NewCheckpoint {
        id: CheckpointId::random(here.random_u128()),
        created_at,
        expires_at: Some(UnixMillis(created_at.0.saturating_add(PIN_MILLIS))),
        owner: CheckpointOwner::Clone(clone),
        metadata: place.into_iter().map(|place| (CLONE_AT.to_owned(), place)).collect(),
        ..NewCheckpoint::default()
    }
}

/// The error of a parent that was read, with a remedy if its log lies in a store of its own. A
/// clone reads the log beside the parent's tables only.
fn log_elsewhere(error: Error, location: &str) -> Error {
    if error.kind() != ErrorKind::Unsupported || !error.to_string().contains("wal_url") {
        return error;
    }
    let text = "the parent's log lies in a store of its own, which a clone does not read; import \
                the parent into a place without the store option `wal_url`, and clone the import";
    Error::unsupported(text).with("parent", location)
}
