//! Reads the log ahead of a walk. A walk requests one id after another, and each request to an
//! object store costs a round trip.
//!
//! Read-ahead must never decide the result of a walk. The walk takes only existing objects from it:
//! an object never changes, and the walk confirms each object after it has read it. If an early
//! read found no object or failed, the walk reads the id again at its turn.
//!
//! ```text
//! hits in a row:   1     2 ...             16                  up to the last name listed
//! in flight:       1     2 ... 8, blindly  one listing, then   80 of those that were listed
//! ```
//! A reader that finds no object, or one per poll, sends no more requests than without read-ahead.

use crate::manifests::objects::Objects;
use futures::future::{BoxFuture, poll_fn};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;
use siltstone_base::{ObjectName, Result, WalId};
use siltstone_sst::wal::WalObject;
use siltstone_store::Listed;
use std::collections::{BTreeMap, VecDeque};
use std::task::{Context, Poll};

/// Maximum number of listed objects in flight or waiting for their turn. It exceeds
/// [`WALK_LIMIT`](siltstone_manifest::protocol::WALK_LIMIT), so that the next objects arrive while
/// a walk confirms that many.
const MOST_OBJECTS: usize = 80;
/// Maximum number of such objects whose existence and length are a guess.
const MOST_UNLISTED: usize = 8;
/// Maximum bytes of such objects.
const MOST_BYTES: u64 = 16 << 20;
/// Hits in a row after which a listing is worth its request.
const LIST_AFTER: usize = 16;

/// The read-ahead of one walk.
pub(crate) struct WalReadahead {
    objects: Objects,
    /// Ids above this one are requested only at their turn.
    end: WalId,
    /// Requests in flight. The mutex is never locked: it makes a value that can be sent to another
    /// thread also shareable.
    under_way: Mutex<FuturesUnordered<BoxFuture<'static, ReadaheadAnswer>>>,
    /// Requested objects that the walk has not taken: the length, as listed or guessed, and the
    /// object once it has arrived.
    asked: BTreeMap<WalId, (u64, Option<EarlyRead>)>,
    /// Listed ids and lengths that are not requested yet, ascending; and the last listed id.
    listed: VecDeque<(WalId, u64)>,
    listed_to: WalId,
    is_listing: bool,
    /// The id after the last one that was read.
    next: WalId,
    /// Consecutive hits above the last listed id.
    hits: usize,
    /// Bytes of the largest object since the walk began.
    largest: u64,
}

/// An object that was read early; `None` if the walk must read it at its turn.
type EarlyRead = Option<WalObject>;

/// The answer to a request.
enum ReadaheadAnswer {
    Object(WalId, EarlyRead),
    Listing(Vec<Listed>),
}

impl WalReadahead {
    pub(crate) fn new(objects: &Objects) -> WalReadahead {
        WalReadahead::up_to(objects, WalId(u64::MAX))
    }

    /// Read-ahead for a walk that ends at `end`.
    pub(crate) fn up_to(objects: &Objects, end: WalId) -> WalReadahead {
        WalReadahead {
            objects: objects.clone(),
            end,
            under_way: Mutex::default(),
            asked: BTreeMap::new(),
            listed: VecDeque::new(),
            listed_to: WalId::NONE,
            is_listing: false,
            next: WalId::NONE,
            hits: 0,
            largest: 0,
        }
    }

    /// The object `id`, as [`Objects::wal`] reads it; `None` only if it is missing now.
    ///
    /// # Errors
    /// As [`Objects::wal`].
    pub(crate) async fn read(&mut self, id: WalId) -> Result<Option<WalObject>> {
        if !self.objects.is_distant() {
            return self.objects.wal(id).await;
        }
        if id < self.next {
            // The walk begins again at an earlier id.
            self.stop();
        }
        // Drop the ids that the walk jumps over.
        self.asked = self.asked.split_off(&id);
        self.ask_beyond(id);
        let early = poll_fn(|context| self.poll_early(id, context)).await;
        let found = match early {
            Some(object) => Some(object),
            None => self.objects.wal(id).await?,
        };
        self.next = id.next();
        match &found {
            Some(object) => {
                self.largest = self.largest.max(object.record_bytes() as u64);
                self.hits += usize::from(id > self.listed_to);
            }
            None => self.stop(),
        }
        Ok(found)
    }

    /// Adds the object `id`, which was read before the walk begins.
    pub(crate) fn bring(&mut self, id: WalId, object: WalObject) {
        self.asked.insert(id, (object.record_bytes() as u64, Some(Some(object))));
    }

    /// Drops everything that was read ahead, because the walk has ended.
    pub(crate) fn stop(&mut self) {
        *self.under_way.get_mut() = FuturesUnordered::new();
        self.asked.clear();
        self.listed.clear();
        (self.listed_to, self.is_listing) = (WalId::NONE, false);
        (self.hits, self.largest) = (0, 0);
    }

    /// The early read of `id`, once it has arrived; `None` if it was not requested. The first poll
    /// starts new requests.
    fn poll_early(&mut self, id: WalId, context: &mut Context<'_>) -> Poll<EarlyRead> {
        while let Poll::Ready(Some(arrival)) = self.under_way.get_mut().poll_next_unpin(context) {
            match arrival {
                ReadaheadAnswer::Object(id, object) => {
                    if let Some((_, arrived)) = self.asked.get_mut(&id) {
                        *arrived = Some(object);
                    }
                }
                ReadaheadAnswer::Listing(listed) => self.take_listing(listed),
            }
        }
        match self.asked.get(&id) {
            Some((_, None)) => Poll::Pending,
            Some((_, Some(_))) => {
                Poll::Ready(self.asked.remove(&id).and_then(|(_, object)| object).flatten())
            }
            None => Poll::Ready(None),
        }
    }

    /// Requests the objects that follow `id`.
    fn ask_beyond(&mut self, id: WalId) {
        let mut last = self.asked.keys().last().copied().unwrap_or(id);
        let mut held: u64 = self.asked.values().map(|(bytes, _)| bytes).sum();
        // The object `id` counts as in flight, whether it was requested early or is requested now.
        let mut count = self.asked.len() + usize::from(!self.asked.contains_key(&id));
        while self.listed.front().is_some_and(|(listed, _)| *listed <= last) {
            self.listed.pop_front();
        }
        while count < MOST_OBJECTS
            && let Some((next, bytes)) = self.listed.front().copied()
            && held + bytes <= MOST_BYTES
        {
            self.listed.pop_front();
            (held, count) = (held + bytes, count + 1);
            self.ask(next, bytes);
        }
        if !self.listed.is_empty() || self.is_listing || id <= self.listed_to {
            return;
        }
        if self.hits >= LIST_AFTER {
            return self.list(last);
        }
        while count < self.hits.min(MOST_UNLISTED) && held + self.largest <= MOST_BYTES {
            last = last.next();
            (held, count) = (held + self.largest, count + 1);
            self.ask(last, self.largest);
        }
    }

    fn ask(&mut self, id: WalId, bytes: u64) {
        if id > self.end {
            return;
        }
        let objects = self.objects.clone();
        let read = async move { ReadaheadAnswer::Object(id, objects.wal(id).await.ok().flatten()) };
        self.under_way.get_mut().push(read.boxed());
        self.asked.insert(id, (bytes, None));
    }

    fn list(&mut self, after: WalId) {
        let objects = self.objects.clone();
        // If this listing fails, the next one may succeed.
        let list = async move {
            ReadaheadAnswer::Listing(objects.list_wal_lengths(after).await.unwrap_or_default())
        };
        self.under_way.get_mut().push(list.boxed());
        self.is_listing = true;
    }

    fn take_listing(&mut self, listed: Vec<Listed>) {
        let lengths = listed.into_iter().filter_map(|object| match object.name {
            ObjectName::Wal(id) => Some((id, object.bytes)),
            _ => None,
        });
        self.listed = lengths.collect();
        self.listed_to = self.listed.back().map_or(WalId::NONE, |(id, _)| *id);
        (self.is_listing, self.hits) = (false, 0);
    }
}
