//! Reads the log ahead of a walk: a walk asks for one id after another, and on an object store each
//! one costs a round trip.
//!
//! Read-ahead never decides what a walk finds. Only an object that is there is taken from it: an
//! object never changes, and a walk confirms what it met when it has met it. An id that was read
//! early and held nothing, or failed, is read again at its turn.
//!
//! ```text
//! hits in a row:   1     2 ...             16                  up to the last name listed
//! in flight:       1     2 ... 8, blindly  one listing, then   80 of those that were listed
//! ```
//! A reader that finds nothing, or one object a poll, sends no request more than without this.

use crate::io::store::Listed;
use crate::manifests::objects::Objects;
use futures::future::{BoxFuture, poll_fn};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;
use siltstone_base::{ObjectName, Result, WalId};
use siltstone_sst::wal::WalObject;
use std::collections::{BTreeMap, VecDeque};
use std::task::{Context, Poll};

/// Objects in flight or waiting for their turn, where a listing has shown them. More than
/// [`WALK_LIMIT`](siltstone_manifest::protocol::WALK_LIMIT): while a walk confirms so many, the
/// next ones arrive.
const MOST_OBJECTS: usize = 80;
/// The same where their existence and length are a guess.
const MOST_UNLISTED: usize = 8;
/// Bytes of those.
const MOST_BYTES: u64 = 16 << 20;
/// Hits in a row after which a listing is worth its request.
const LIST_AFTER: usize = 16;

/// What is read of the log ahead of one walk.
pub(crate) struct WalReadahead {
    objects: Objects,
    /// No id behind this one is asked for before its turn.
    end: WalId,
    /// Requests under way. Never locked: behind a lock, what can be sent to another thread can be
    /// shared too.
    under_way: Mutex<FuturesUnordered<BoxFuture<'static, ReadaheadAnswer>>>,
    /// What was asked for and not taken: its length, as listed or guessed, and, once it has
    /// arrived, what it is.
    asked: BTreeMap<WalId, (u64, Option<EarlyRead>)>,
    /// Names and lengths that were listed and not asked for yet, ascending; and the last of all.
    listed: VecDeque<(WalId, u64)>,
    listed_to: WalId,
    is_listing: bool,
    /// The id after the last one that was read.
    next: WalId,
    /// Hits in a row behind what was listed.
    hits: usize,
    /// Bytes of the largest object since the walk began.
    largest: u64,
}

/// An object that was read early; `None` where it has to be read at its turn.
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

    /// For a walk that ends with `end`.
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
        if self.objects.env.store.profile().answers_at_once {
            return self.objects.wal(id).await;
        }
        if id < self.next {
            // The walk goes back, and begins anew.
            self.stop();
        }
        // Ids that the walk jumps over.
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

    /// Forgets what was read ahead: the walk has ended.
    pub(crate) fn stop(&mut self) {
        *self.under_way.get_mut() = FuturesUnordered::new();
        self.asked.clear();
        self.listed.clear();
        (self.listed_to, self.is_listing) = (WalId::NONE, false);
        (self.hits, self.largest) = (0, 0);
    }

    /// What was read early under `id`, once it has arrived; `None` where it was not asked for.
    /// Requests that are new begin with this.
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

    /// Asks for what follows `id`.
    fn ask_beyond(&mut self, id: WalId) {
        let mut last = self.asked.keys().last().copied().unwrap_or(id);
        let mut held: u64 = self.asked.values().map(|(bytes, _)| bytes).sum();
        // The object `id` is one of those in flight, whether it was asked for early or is now.
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
        // Where it fails the next one may succeed.
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
