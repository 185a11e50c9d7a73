//! Walks the WAL objects from a position on for the change feed (rule W1).
//!
//! Up to the replay point the walk reads the objects that are stored; after it the walk proceeds as
//! a following reader does. It must never return an object before it has seen the WAL boundary
//! below that object.

use crate::manifests::client::{ManifestRequests, absent};
use crate::manifests::objects::{Objects, seen};
use crate::manifests::poll::LIST_EVERY;
use crate::manifests::rules;
use crate::wal::readahead::WalReadahead;
use siltstone_base::{Error, ErrorKind, ObjectName, Result, WalId};
use siltstone_manifest::Manifest;
use siltstone_manifest::protocol::{Follow, FollowAction, FollowEvent, WALK_LIMIT, WalSeen};
use siltstone_sst::wal::WalObject;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Maximum bytes of objects that the walk buffers before it confirms and returns them.
const MOST_UNDER_WAY_BYTES: usize = 16 << 20;

/// A check of each newer manifest, which runs before the walk reads log after it.
pub(crate) type CheckState<'a> = &'a (dyn Fn(&Manifest) -> Result<()> + Send + Sync);

/// A walk over the log, and its position.
pub(crate) struct FeedWalk {
    objects: Objects,
    requests: ManifestRequests,
    log: WalReadahead,
    machine: Follow,
    bodies: BTreeMap<WalId, WalObject>,
    /// Objects that are confirmed and not returned yet.
    ready: VecDeque<WalObject>,
    /// The next id to read. All objects below it were returned or are ready. `None`: begin with the
    /// oldest object.
    next: WalId,
    known: Option<Arc<Manifest>>,
}

impl FeedWalk {
    /// A walk that begins at `next`, or with the oldest stored object.
    pub(crate) fn new(objects: &Objects, next: Option<WalId>) -> FeedWalk {
        let next = next.unwrap_or(WalId::NONE);
        FeedWalk {
            objects: objects.clone(),
            requests: ManifestRequests::new(objects),
            log: WalReadahead::new(objects),
            machine: Follow::behind(next, LIST_EVERY, rules::in_force()),
            bodies: BTreeMap::new(),
            ready: VecDeque::new(),
            next,
            known: None,
        }
    }

    /// The newest manifest that the walk has read; `None` before the first read.
    pub(crate) fn known(&self) -> Option<&Arc<Manifest>> {
        self.known.as_ref()
    }

    /// Removes and returns the next ready object.
    pub(crate) fn pop(&mut self) -> Option<WalObject> {
        self.ready.pop_front()
    }

    /// Whether the next read has to look for new objects in the store.
    pub(crate) fn is_idle(&self) -> bool {
        self.ready.is_empty() && self.machine.action() == FollowAction::Idle
    }

    /// Reads until objects are ready, or everything that was durable before the call was read.
    /// Returns whether objects are ready. Calls `check` with every newer manifest first.
    ///
    /// # Errors
    /// Errors of `check`; Expired if the next object is no longer retained; Corruption for a gap in
    /// the log; NotFound if there is no database; errors of the store.
    pub(crate) async fn fill(&mut self, check: CheckState<'_>) -> Result<bool> {
        let filled = self.advance(check).await;
        if !matches!(filled, Ok(true)) {
            self.log.stop();
        }
        if filled.is_err() {
            // The error may be temporary: the next call begins a new walk at this position.
            self.machine = Follow::behind(self.next, LIST_EVERY, rules::in_force());
            self.bodies.clear();
            self.known = None;
        }
        filled
    }

    async fn advance(&mut self, check: CheckState<'_>) -> Result<bool> {
        let mut looked = self.machine.action() != FollowAction::Idle;
        loop {
            if !self.ready.is_empty() {
                return Ok(true);
            }
            if let Some(state) = self.known.clone().filter(|state| self.next < state.replay_from) {
                self.read_settled(&state).await?;
                continue;
            }
            self.objects.follow_log_for(&self.machine)?;
            let events = match self.machine.action() {
                FollowAction::Failed(failure) => return Err(failure.into()),
                FollowAction::Idle if looked && self.known.is_none() => {
                    return Err(absent(&self.objects).await?);
                }
                FollowAction::Idle if looked => return Ok(false),
                FollowAction::Idle => {
                    looked = true;
                    self.machine.poll_thoroughly();
                    Vec::new()
                }
                FollowAction::Request(request) => {
                    let answer = self.requests.perform(request).await?;
                    self.machine.on_answer(answer)
                }
                FollowAction::ReadWal(id) => self.read(id).await?,
                FollowAction::ListWal(after) => {
                    let listing = self.objects.list_wal(after).await?;
                    self.machine.on_wal_listing(listing)
                }
                FollowAction::ReadWalBoundary => {
                    let boundary = self.objects.wal_boundary().await?;
                    self.machine.on_wal_boundary(boundary)
                }
            };
            for event in events {
                self.take(event, check).await?;
            }
        }
    }

    async fn read(&mut self, id: WalId) -> Result<Vec<FollowEvent>> {
        let database = self.machine.manifest().map(|state| state.database).unwrap_or_default();
        let mut found = WalSeen::Absent;
        if let Some(object) = self.log.read(id).await? {
            found = seen(&object, database);
            self.bodies.insert(id, object);
        }
        let mut events = self.machine.on_wal(found);
        let held: usize = self.bodies.values().map(WalObject::record_bytes).sum();
        if held >= MOST_UNDER_WAY_BYTES {
            events.extend(self.machine.hand_out_now());
        }
        Ok(events)
    }

    async fn take(&mut self, event: FollowEvent, check: CheckState<'_>) -> Result<()> {
        match event {
            FollowEvent::StartAgain(state) => {
                self.bodies.clear();
                self.meet(state, check).await
            }
            FollowEvent::Newer(state) => self.meet(state, check).await,
            FollowEvent::Apply(ids) => {
                for id in ids {
                    let object = self.bodies.remove(&id);
                    if let Some(object) = object.filter(|_| id >= self.next) {
                        self.next = id.next();
                        self.ready.push_back(object);
                    }
                }
                self.bodies.clear();
                Ok(())
            }
        }
    }

    async fn meet(&mut self, state: Arc<Manifest>, check: CheckState<'_>) -> Result<()> {
        check(&state)?;
        if self.next.is_none() {
            self.next = oldest_wal(&self.objects, &state).await?;
        }
        self.known = Some(state);
        Ok(())
    }

    /// Reads objects below the replay point. No writer adds to that part of the log, so the stored
    /// objects are the log, provided that none was deleted during the read.
    async fn read_settled(&mut self, state: &Manifest) -> Result<()> {
        self.objects.follow_log(state)?;
        let first = self.next;
        let (mut at, mut bytes) = (first, 0);
        let mut met = Vec::new();
        while at < state.replay_from && met.len() < WALK_LIMIT && bytes < MOST_UNDER_WAY_BYTES {
            if let Some(fence) = state.kept_fences.iter().find(|fence| fence.skips(at)) {
                at = fence.next_id;
                continue;
            }
            let Some(object) = self.log.read(at).await? else {
                return Err(self.absent(at).await?);
            };
            at = match seen(&object, state.database) {
                WalSeen::Fence { next_id, .. } => next_id,
                WalSeen::Data { .. } => {
                    bytes += object.record_bytes();
                    met.push(object);
                    at.next()
                }
                WalSeen::Foreign | WalSeen::Absent | WalSeen::Vanished => {
                    return Err(self.absent(at).await?);
                }
            };
        }
        if self.objects.wal_boundary().await? >= first {
            return Err(expired(first));
        }
        self.ready.extend(met);
        self.next = at;
        Ok(())
    }

    /// The error of an absent object at `at`: Expired if it was deleted by the collector,
    /// Corruption otherwise.
    async fn absent(&self, at: WalId) -> Result<Error> {
        if self.objects.wal_boundary().await? >= at {
            return Ok(expired(at));
        }
        Ok(Error::corruption("an object of the log is missing and was not collected")
            .with("object", ObjectName::Wal(at)))
    }
}

/// The WAL id from which the stored log has no gap: the lowest stored id above the boundary, or the
/// replay point if that is lower. Ids that a kept fence skips do not count.
pub(crate) async fn oldest_wal(objects: &Objects, state: &Manifest) -> Result<WalId> {
    let listing = objects.list_wal(WalId::NONE).await?;
    let there = |id: &WalId| {
        *id > listing.boundary && !state.kept_fences.iter().any(|fence| fence.skips(*id))
    };
    let oldest = listing.later.iter().copied().filter(there).min();
    Ok(oldest.map_or(state.replay_from, |id| id.min(state.replay_from)))
}

fn expired(at: WalId) -> Error {
    Error::new(
        ErrorKind::Expired,
        "the next changes of the feed are no longer retained: only a consumer that holds the log \
         retains them; begin again from a snapshot, or at the oldest retained change",
    )
    .with("object", ObjectName::Wal(at))
}
