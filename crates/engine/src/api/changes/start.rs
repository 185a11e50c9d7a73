//! Opening a change feed: its start position, and the consumer hold that retains the log for it.
//!
//! A consumer without a hold must never begin at the end of the log by default: it would skip the
//! changes since its last read.

use super::before::{BaseOptions, BeforeImages, ImageBase};
use super::{Changes, newest_state};
use crate::api::checkpoints::make_room;
use crate::api::db::Database;
use crate::api::reader::Reader;
use crate::feed::token::ChangeToken;
use crate::feed::walk::{FeedWalk, oldest_wal};
use crate::follower::at_checkpoint::pinned_log;
use crate::manifests::client::commit_alone;
use crate::manifests::missing::{check_lives, check_writable};
use crate::manifests::objects::Objects;
use crate::wal::walk::walk_telling;
use crate::writer::commit::CommitPlace;
use futures::FutureExt;
use futures::future::BoxFuture;
use siltstone_base::{
    CheckpointId, DatabaseId, Error, ErrorKind, Result, Seq, TimelineId, UnixMillis, WalId,
};
use siltstone_manifest::edit::Conflict;
use siltstone_manifest::{
    Checkpoint, CheckpointName, Edit, Hold, HoldConflict, HoldEdit, HoldFrom, LogPlace, Manifest,
    NewCheckpoint, TakeHold,
};
use siltstone_store::counting::{count, within};
use siltstone_store::env::Env;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Default lifetime of a consumer: how long its hold lasts without a renewal.
const LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// Default maximum of log bytes that a consumer retains.
const MOST_BYTES: u64 = 4 << 30;

/// The start position of a feed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ChangesFrom {
    /// At the acknowledged position of the consumer. Expired if no consumer of that name has a
    /// hold, because it is new or was removed. Without a consumer: at the durable end of the log.
    #[default]
    Kept,
    /// At the oldest change that is still stored. A consumer's hold retains the log from the
    /// replay point on. The feed also reads older log that the collector has not deleted yet.
    Oldest,
    /// At the durable end of the log.
    Newest,
    /// After a new checkpoint, created in one commit with the consumer's hold. The checkpoint
    /// contains every change before the start position.
    Snapshot,
    /// After the token of another feed.
    Token(ChangeToken),
    /// After this sequence number of the present timeline.
    Seq(Seq),
    /// After this commit.
    Commit(CommitPlace),
    /// After the last change that this checkpoint contains.
    Checkpoint(CheckpointName),
}

/// A named consumer of the change feed, whose hold retains the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consumer {
    /// Its name. A new feed with the same name continues at the acknowledged position and fences
    /// the feed before it.
    pub name: String,
    /// How long the hold lasts without a renewal; `None`: without limit.
    pub lifetime: Option<Duration>,
    /// Bytes of retained log beyond which the consumer is removed; `None`: no limit.
    pub most_bytes: Option<u64>,
}

/// Options of a change feed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangesOptions {
    /// Start position.
    pub since: ChangesFrom,
    /// End position; `None`: the feed has no end.
    pub until: Option<ChangeToken>,
    /// The consumer whose hold retains the log. `None`: no hold, so the collector may delete log
    /// that the feed has not read.
    pub consumer: Option<Consumer>,
    /// The checkpoint from which the feed computes before-images: the value that a key had before
    /// each change. `None`: the feed has none.
    pub before: Option<ImageBase>,
}

/// The consumer hold of a feed of this process.
pub(super) struct ConsumerHold {
    pub(super) consumer: Consumer,
    pub(super) generation: u64,
    /// The acknowledged position.
    pub(super) seen: LogPlace,
    /// The timeline of the acknowledged position.
    pub(super) timeline: Option<TimelineId>,
    /// When the hold was last renewed.
    pub(super) since: UnixMillis,
    /// The manifest of the last commit of the hold.
    pub(super) base: Arc<Manifest>,
}

impl Consumer {
    /// A consumer with a lifetime of 24 hours that retains at most 4 GiB of log.
    #[must_use]
    pub fn new(name: &str) -> Consumer {
        let (lifetime, most_bytes) = (Some(LIFETIME), Some(MOST_BYTES));
        Consumer { name: name.to_owned(), lifetime, most_bytes }
    }

    /// When the hold expires if it is renewed at `now`; `None` without a lifetime.
    pub(super) fn expires_at(&self, now: UnixMillis) -> Result<Option<UnixMillis>> {
        let end = |life: Duration| {
            let millis = u64::try_from(life.as_millis()).ok().filter(|millis| *millis > 0);
            millis.and_then(|millis| now.0.checked_add(millis)).map(UnixMillis)
        };
        self.lifetime.map_or(Ok(None), |life| {
            end(life).map(Some).ok_or_else(|| {
                Error::invalid(
                    "the consumer's lifetime is out of range: it must be at least 1 ms and end \
                     before the last representable time",
                )
            })
        })
    }
}

impl ConsumerHold {
    /// Whether the acknowledged position is that before the oldest change, wherever it is.
    fn begins_anywhere(&self) -> bool {
        let own = self.base.hold(&self.consumer.name);
        own.and_then(|own| own.unretained).is_some_and(|place| place.seq.is_none())
    }

    /// Whether half of the lifetime has passed, so that the hold is to be renewed.
    pub(super) fn is_due(&self, now: UnixMillis) -> bool {
        let half = self.consumer.lifetime.map(|life| life.as_millis() / 2);
        half.is_some_and(|half| u128::from(now.0.saturating_sub(self.since.0)) >= half)
    }
}

/// Opens a change feed of the database in the store of `env`. `limit` bounds the time of each call.
/// Before-images of merges need an operator that is built in; a feed of a handle uses its operator.
///
/// # Errors
/// NotFound if there is no database; Expired if the start position or the checkpoint for
/// before-images is no longer retained; Invalid for a token of another database, for a snapshot
/// without a consumer, and for before-images without a checkpoint at or before the start; with a
/// consumer the errors of a manifest commit; Denied, Unavailable, Timeout, Corruption.
pub fn changes(env: &Env, how: ChangesOptions, limit: Duration) -> BoxFuture<'_, Result<Changes>> {
    begin(env, how, limit, BaseOptions::default())
}

/// As [`changes`]; `base` says how to read the checkpoint for before-images.
fn begin(
    env: &Env,
    how: ChangesOptions,
    limit: Duration,
    base: BaseOptions,
) -> BoxFuture<'_, Result<Changes>> {
    async move {
        let ChangesOptions { since, until, consumer, before } = how;
        let (counted, requests) = count(env.clone());
        let objects = Objects { env: counted, limit };
        let begins = async {
            let named = before.as_ref().map(|before| named_base(before, &since)).transpose()?;
            let mut images = match named.flatten() {
                Some(name) => Some(images_of(&objects, name, base.clone()).await?),
                None => None,
            };
            let (state, token, held) = match consumer {
                None => {
                    let (state, token) = place_of(&objects, &since).await?;
                    (state, token, None)
                }
                Some(consumer) => hold(&objects, &since, consumer).await?,
            };
            let made = held.as_ref().and_then(|(_, checkpoint)| checkpoint.as_ref());
            if let Some(made) = made.filter(|_| before == Some(ImageBase::Start)) {
                images = Some(images_of(&objects, made.id.into(), base).await?);
            }
            Ok((state, token, held, images))
        };
        let begun = requests.within(env, limit, "changes", begins).await;
        let (state, token, held, images) = begun.map_err(|error| error.during("changes"))?;
        super::check_state(&state, &token, until.as_ref())?;
        let begins_anywhere = token.seq.is_none()
            && match &held {
                Some((hold, _)) => hold.begins_anywhere(),
                None => since == ChangesFrom::Oldest,
            };
        if !begins_anywhere {
            super::check_logged(&state, token.seq)?;
        }
        let (held, checkpoint) = held.unzip();
        let mut changes = Changes {
            walk: FeedWalk::new(&objects, None),
            objects,
            requests,
            place: token,
            begins_anywhere,
            until,
            met: false,
            state,
            records: VecDeque::new(),
            time: UnixMillis(0),
            originals: None,
            unfinished: None,
            held,
            lost: None,
            checkpoint: checkpoint.flatten(),
            before: images,
        };
        changes.place_at(env, token).await?;
        Ok(changes)
    }
    .boxed()
}

impl Changes {
    /// Goes to the position at which a new feed begins.
    async fn place_at(&mut self, env: &Env, token: ChangeToken) -> Result<()> {
        if !self.begins_anywhere {
            return self.go_to_start(token);
        }
        self.go_back(token);
        let (limit, requests) = (self.objects.limit, Arc::clone(&self.requests));
        requests.within(env, limit, "changes", self.find_start()).await?;
        match self.before.is_some() {
            true => self.go_to_start(self.place),
            false => Ok(()),
        }
    }
}

/// The checkpoint of the before-images of a feed that begins at `since`; `None` if the start makes
/// it.
///
/// # Errors
/// Invalid if there is none.
fn named_base(before: &ImageBase, since: &ChangesFrom) -> Result<Option<CheckpointName>> {
    match (before, since) {
        (ImageBase::Checkpoint(name), _) | (ImageBase::Start, ChangesFrom::Checkpoint(name)) => {
            Ok(Some(name.clone()))
        }
        (ImageBase::Start, ChangesFrom::Snapshot) => Ok(None),
        (ImageBase::Start, _) => Err(Error::invalid(
            "before-images need the state at the start of the feed: create a checkpoint and begin \
             at it (since=checkpoint), or pass one at or before the start (before=checkpoint)",
        )),
    }
}

/// The before-images on top of the checkpoint `name`.
async fn images_of(
    objects: &Objects,
    name: CheckpointName,
    how: BaseOptions,
) -> Result<BeforeImages> {
    let state = newest_state(&objects.env, objects.limit).await?.1;
    let place = behind_checkpoint(objects, &state, &name).await?;
    BeforeImages::open(objects, name, place, how).await
}

impl Database {
    /// Opens a change feed of this database. The feed returns durable commits only.
    ///
    /// # Errors
    /// As [`changes`]; Closed, Fenced.
    pub fn changes(&self, how: ChangesOptions) -> BoxFuture<'_, Result<Changes>> {
        async move {
            let writer = self.writer()?;
            let operator = writer.context.operator().cloned();
            let base = BaseOptions { options: writer.options.clone(), operator };
            begin(&writer.env, how, writer.options.deadline, base).await
        }
        .boxed()
    }
}

impl Reader {
    /// Opens a change feed of the database of this reader. A reader at a checkpoint opens the same
    /// feed.
    ///
    /// # Errors
    /// As [`changes`]; Closed.
    pub fn changes(&self, how: ChangesOptions) -> BoxFuture<'_, Result<Changes>> {
        async move {
            let (env, limit) = self.place()?;
            let base = BaseOptions { options: self.options().clone(), operator: self.operator() };
            begin(&env, how, limit, base).await
        }
        .boxed()
    }
}

/// The token of the durable end of the log.
///
/// # Errors
/// NotFound if there is no database; Denied, Unavailable, Timeout, Corruption.
pub fn newest(env: &Env, limit: Duration) -> BoxFuture<'_, Result<ChangeToken>> {
    within(env, limit, "changes", move |env| async move {
        Ok(place_of(&Objects { env, limit }, &ChangesFrom::Newest).await?.1)
    })
    .boxed()
}

/// Lists the consumer holds that the newest manifest records.
///
/// # Errors
/// NotFound if there is no database; Denied, Unavailable, Timeout, Corruption.
pub fn consumers(env: &Env, limit: Duration) -> BoxFuture<'_, Result<Vec<Hold>>> {
    within(env, limit, "consumers", move |env| async move {
        Ok(newest_state(&env, limit).await?.1.holds.clone())
    })
    .boxed()
}

/// Removes a consumer and its hold. The collector deletes log that only this hold retained.
///
/// # Errors
/// NotFound if there is no database; Expired if there is no consumer of that name; the errors of a
/// manifest commit.
pub fn forget_consumer<'a>(
    env: &'a Env,
    name: &'a str,
    limit: Duration,
) -> BoxFuture<'a, Result<()>> {
    within(env, limit, "forget consumer", move |env| async move {
        let (objects, newest) = newest_state(&env, limit).await?;
        if newest.hold(name).is_none() {
            return Err(no_consumer(name, &newest));
        }
        let edit = Edit::Hold(HoldEdit::Release { name: name.to_owned() });
        commit_alone(&objects, edit, newest).await.map(drop)
    })
    .boxed()
}

/// The error for a name without a consumer, with those that there are.
fn no_consumer(name: &str, newest: &Manifest) -> Error {
    let names: Vec<&str> = newest.holds.iter().map(|hold| hold.name.as_str()).collect();
    let text = match names.is_empty() {
        true => "the database has no consumer, so there is none to remove",
        false => "no consumer has that name: it was never used, or it was removed already",
    };
    let error = Error::new(ErrorKind::Expired, text).with("consumer", name);
    if names.is_empty() { error } else { error.with("consumers", names.join(", ")) }
}

pub(super) fn of_another_database(token: &ChangeToken, here: DatabaseId) -> Error {
    Error::invalid(
        "the token or commit belongs to another database; a clone, or a database that was created \
         again in the same place, has its own feed: begin without it",
    )
    .with("of", token.database)
    .with("here", here)
}

/// The token of the position after a commit, in log that begins at `wal`.
fn after_commit(commit: CommitPlace, wal: WalId) -> ChangeToken {
    let CommitPlace { database, timeline, seq } = commit;
    ChangeToken { database, timeline, seq, wal, table: 0, row: 0 }
}

/// The newest manifest, and the start token of a feed without a consumer.
async fn place_of(objects: &Objects, since: &ChangesFrom) -> Result<(Arc<Manifest>, ChangeToken)> {
    match since {
        ChangesFrom::Kept | ChangesFrom::Newest => {
            let (state, place) = walked(objects).await?;
            check_lives(&state)?;
            let token = ChangeToken::of(&state, place);
            Ok((state, token))
        }
        ChangesFrom::Snapshot => Err(Error::invalid(
            "a feed that begins with a snapshot needs a consumer, whose hold retains the changes \
             after the snapshot; name a consumer",
        )),
        ChangesFrom::Token(token) => {
            let state = newest_state(&objects.env, objects.limit).await?.1;
            check_lives(&state)?;
            Ok((state, *token))
        }
        ChangesFrom::Oldest | ChangesFrom::Seq(_) | ChangesFrom::Commit(_) => {
            let state = newest_state(&objects.env, objects.limit).await?.1;
            check_lives(&state)?;
            let wal = oldest_wal(objects, &state).await?;
            let token = match since {
                ChangesFrom::Commit(commit) => after_commit(*commit, wal),
                ChangesFrom::Seq(seq) => ChangeToken::of(&state, LogPlace { seq: *seq, wal }),
                _ => ChangeToken::of(&state, LogPlace { seq: Seq::NONE, wal }),
            };
            Ok((state, token))
        }
        ChangesFrom::Checkpoint(name) => {
            let state = newest_state(&objects.env, objects.limit).await?.1;
            check_lives(&state)?;
            let token = behind_checkpoint(objects, &state, name).await?;
            Ok((state, token))
        }
    }
}

/// The newest manifest, and the position after the last durable commit.
async fn walked(objects: &Objects) -> Result<(Arc<Manifest>, LogPlace)> {
    let mut last = Seq::NONE;
    let (state, wal) = walk_telling(objects, |object| last = last.max(object.last_seq)).await?;
    let place = LogPlace { seq: last.max(state.flushed_seq), wal: wal.next() };
    Ok((state, place))
}

/// The position after the last change that a checkpoint contains, on the checkpoint's timeline.
async fn behind_checkpoint(
    objects: &Objects,
    state: &Manifest,
    name: &CheckpointName,
) -> Result<ChangeToken> {
    let found = name.find(state)?;
    let pinned = objects.manifest(found.manifest_id).await?;
    let pinned = pinned.ok_or_else(|| siltstone_manifest::naming::gone(found.id))?;
    let mut place = LogPlace { seq: pinned.flushed_seq, wal: found.replay_from };
    if found.pins_any_wal() {
        let log = pinned_log(objects, found, state.database).await?;
        place.wal = found.wal_id_last_seen.next();
        place.seq = log.iter().map(|object| object.last_seq).fold(place.seq, Seq::max);
    }
    Ok(ChangeToken::of(&pinned, place))
}

/// A generation above that of `before`. The lower 32 bits are random, so that two processes that
/// take the hold at the same time get different generations.
fn generation(env: &Env, before: Option<&Hold>) -> u64 {
    let count = before.map_or(0, |hold| hold.generation >> 32) + 1;
    (count << 32) | u64::from(env.random_u128() as u32)
}

/// A hold, and the checkpoint that was created in the same commit.
type AcquiredHold = (ConsumerHold, Option<Checkpoint>);

/// The manifest, the start token, and the hold of a feed with a consumer.
type HeldStart = (Arc<Manifest>, ChangeToken, Option<AcquiredHold>);

/// How often a hold is tried beside commits that move what a hold can retain.
const HOLD_TRIES: u32 = 8;

/// Commits a hold for `consumer`. A flush that commits between the look at the manifest and the
/// commit of the hold moves the position from which a hold can retain the log. The commit then
/// refuses a position that a second look finds retained by no hold, and still there.
async fn hold(objects: &Objects, since: &ChangesFrom, consumer: Consumer) -> Result<HeldStart> {
    let mut seen = newest_state(&objects.env, objects.limit).await?.1;
    for _ in 1..HOLD_TRIES {
        let taken = hold_from(objects, since, consumer.clone(), Arc::clone(&seen)).await;
        match &taken {
            Err(error) if error.kind() == ErrorKind::Expired => {}
            _ => return taken,
        }
        let newest = newest_state(&objects.env, objects.limit).await?.1;
        if newest.id == seen.id {
            return taken;
        }
        seen = newest;
    }
    hold_from(objects, since, consumer, seen).await
}

/// Commits a hold for `consumer`, after a look at `seen`.
async fn hold_from(
    objects: &Objects,
    since: &ChangesFrom,
    consumer: Consumer,
    mut seen: Arc<Manifest>,
) -> Result<HeldStart> {
    check_writable(&seen)?;
    if !seen.has_room_for_hold(&consumer.name) {
        seen = make_room(objects).await?;
    }
    let (base, from, token) = begins(objects, since, seen, &consumer.name).await?;
    if let Some(token) = &token {
        super::check_state(&base, token, None)?;
        super::check_logged(&base, token.seq)?;
    }
    let (from, unretained) = retainable(objects, since, &base, from).await?;
    let now = objects.env.clock.now();
    let expires_at = consumer.expires_at(now)?;
    let generation = generation(&objects.env, base.hold(&consumer.name));
    let checkpoint = match (since, from) {
        (ChangesFrom::Snapshot, HoldFrom::Walked(place)) => Some(NewCheckpoint {
            id: CheckpointId::random(objects.env.random_u128()),
            created_at: now,
            expires_at,
            wal_id_last_seen: Some(place.wal.minus(1)),
            ..NewCheckpoint::default()
        }),
        _ => None,
    };
    let id = checkpoint.as_ref().map(|new| new.id);
    let (name, most_bytes) = (consumer.name.clone(), consumer.most_bytes);
    let timeline = match (&token, from) {
        (Some(token), _) if unretained.is_none() => token.timeline,
        (_, HoldFrom::At(place)) => base.history_behind(place.seq),
        _ => None,
    };
    let take = TakeHold {
        name,
        generation,
        from,
        timeline,
        expires_at,
        most_bytes,
        checkpoint,
        unretained,
    };
    let state = commit_alone(objects, Edit::Hold(HoldEdit::Take(Box::new(take))), base).await?;
    let own = state.hold(&consumer.name).filter(|hold| hold.generation == generation);
    let own = own.ok_or_else(|| {
        Error::from(siltstone_manifest::Refusal::from(Conflict::Hold(HoldConflict::Overtaken)))
    })?;
    let checkpoint = id.and_then(|id| state.checkpoint(id)).cloned();
    let place = own.acknowledged();
    // Only a token records a position inside an ingest; a hold does not.
    let token = token.unwrap_or_else(|| ChangeToken::of(&state, place));
    let (timeline, base) = (token.timeline, Arc::clone(&state));
    let held = ConsumerHold { consumer, generation, seen: place, timeline, since: now, base };
    Ok((state, token, Some((held, checkpoint))))
}

/// The position at which a hold can begin for a feed that begins at `from`, and the position of the
/// feed if that is earlier. Log before what a hold can retain is in the feed as long as it is
/// there, as it is for a feed without a consumer.
async fn retainable(
    objects: &Objects,
    since: &ChangesFrom,
    base: &Manifest,
    from: HoldFrom,
) -> Result<(HoldFrom, Option<LogPlace>)> {
    let HoldFrom::At(place) = from else { return Ok((from, None)) };
    let is_oldest = *since == ChangesFrom::Oldest;
    if !is_oldest && base.keeps_all_after(place) {
        return Ok((from, None));
    }
    let (wal, certain) = (oldest_wal(objects, base).await?, base.oldest_certain());
    let before = match since {
        ChangesFrom::Oldest => (wal < certain.wal).then_some(LogPlace { seq: Seq::NONE, wal }),
        ChangesFrom::Seq(_) | ChangesFrom::Commit(_) => Some(LogPlace { wal, ..place }),
        // The commit refuses a position whose log is gone already.
        _ if place.wal < wal => return Ok((from, None)),
        _ => Some(place),
    };
    Ok((HoldFrom::At(certain), before))
}

/// A manifest, the position at which the hold begins, and the start token where `since` determines
/// one.
async fn begins(
    objects: &Objects,
    since: &ChangesFrom,
    seen: Arc<Manifest>,
    name: &str,
) -> Result<(Arc<Manifest>, HoldFrom, Option<ChangeToken>)> {
    let certain = seen.oldest_certain();
    match since {
        ChangesFrom::Kept if seen.hold(name).is_some() => Ok((seen, HoldFrom::Kept, None)),
        // Beginning at the end of the log would skip the changes since the consumer was removed.
        ChangesFrom::Kept => Err(Error::new(
            ErrorKind::Expired,
            "no consumer of this name has a hold on the log: it is new, or it was removed and \
             later changes are not retained; choose where to begin: since=\"snapshot\", \
             \"oldest\" or \"latest\"",
        )
        .with("consumer", name)),
        ChangesFrom::Newest | ChangesFrom::Snapshot => {
            let (state, place) = walked(objects).await?;
            Ok((state, HoldFrom::Walked(place), None))
        }
        ChangesFrom::Oldest => Ok((seen, HoldFrom::At(certain), None)),
        ChangesFrom::Token(token) => Ok((seen, HoldFrom::At(token.place()), Some(*token))),
        ChangesFrom::Seq(seq) => {
            let place = LogPlace { seq: *seq, wal: certain.wal };
            Ok((seen, HoldFrom::At(place), None))
        }
        ChangesFrom::Commit(commit) => {
            let token = after_commit(*commit, certain.wal);
            Ok((seen, HoldFrom::At(token.place()), Some(token)))
        }
        ChangesFrom::Checkpoint(checkpoint) => {
            let token = behind_checkpoint(objects, &seen, checkpoint).await?;
            Ok((seen, HoldFrom::At(token.place()), Some(token)))
        }
    }
}
