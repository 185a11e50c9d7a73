//! Where a feed begins, and who holds the log for it.

use super::{Changes, newest_state};
use crate::api::db::Database;
use crate::api::reader::Reader;
use crate::feed::token::ChangeToken;
use crate::feed::walk::{FeedWalk, oldest_wal};
use crate::follower::at_checkpoint::pinned_log;
use crate::io::env::Env;
use crate::io::store::counting::{count, within};
use crate::manifests::client::commit_alone;
use crate::manifests::missing::{check_lives, check_writable};
use crate::manifests::objects::Objects;
use crate::wal::walk::walk_telling;
use futures::FutureExt;
use futures::future::BoxFuture;
use siltstone_base::{
    CheckpointId, DatabaseId, Error, ErrorKind, Result, Seq, TimelineId, UnixMillis,
};
use siltstone_manifest::edit::Conflict;
use siltstone_manifest::{
    Checkpoint, CheckpointName, Edit, Hold, HoldConflict, HoldEdit, HoldFrom, LogPlace, Manifest,
    NewCheckpoint, TakeHold,
};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// How long a consumer may be silent, where nobody says otherwise.
const LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// Bytes of log that it may keep, likewise.
const MOST_BYTES: u64 = 4 << 30;

/// Where a feed begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Since {
    /// Where its consumer stands; Expired for a name that holds nothing, which is new, or was let
    /// go. Without a consumer at the end of what is durable.
    #[default]
    Kept,
    /// At the oldest place that is still there. A consumer keeps what comes behind the replay
    /// point; what lies before that is read as well, as long as the collector has not deleted it.
    Oldest,
    /// At the end of what is durable.
    Newest,
    /// Behind a checkpoint that is made with the consumer's hold: all before is in it.
    Snapshot,
    /// Where another feed stood.
    Token(ChangeToken),
    /// Behind this sequence number.
    Seq(Seq),
    /// Behind what a checkpoint holds.
    Checkpoint(CheckpointName),
}

/// Who holds the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consumer {
    /// Its name: the newest that takes it goes on where the one before stood.
    pub name: String,
    /// For how long it may be silent; `None`: for ever.
    pub lifetime: Option<Duration>,
    /// Bytes of log beyond which it is let go; `None`: no bound.
    pub most_bytes: Option<u64>,
}

/// How to read a feed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangesOptions {
    /// Where it begins.
    pub since: Since,
    /// Where it ends; `None`: nowhere.
    pub until: Option<ChangeToken>,
    /// Who holds the log for it; `None`: nobody, and what is gone is gone.
    pub consumer: Option<Consumer>,
}

/// A hold of this process.
pub(super) struct ConsumerHold {
    pub(super) consumer: Consumer,
    pub(super) generation: u64,
    /// What was acknowledged.
    pub(super) seen: LogPlace,
    /// In which history.
    pub(super) timeline: Option<TimelineId>,
    /// When its life was counted from last.
    pub(super) since: UnixMillis,
    /// A state that has it.
    pub(super) base: Arc<Manifest>,
}

impl Consumer {
    /// One that may be silent for a day, and keep 4 GiB.
    #[must_use]
    pub fn new(name: &str) -> Consumer {
        let (lifetime, most_bytes) = (Some(LIFETIME), Some(MOST_BYTES));
        Consumer { name: name.to_owned(), lifetime, most_bytes }
    }

    /// When it may be let go that lives from `now` on.
    pub(super) fn expires_at(&self, now: UnixMillis) -> Result<Option<UnixMillis>> {
        let end = |life: Duration| {
            let millis = u64::try_from(life.as_millis()).ok().filter(|millis| *millis > 0);
            millis.and_then(|millis| now.0.checked_add(millis)).map(UnixMillis)
        };
        self.lifetime.map_or(Ok(None), |life| {
            end(life).map(Some).ok_or_else(|| {
                Error::invalid(
                    "a consumer's lifetime is at least a millisecond and below the end of time; \
                     without one it lives until it is forgotten",
                )
            })
        })
    }
}

impl ConsumerHold {
    /// Whether half its life is over.
    pub(super) fn is_due(&self, now: UnixMillis) -> bool {
        let half = self.consumer.lifetime.map(|life| life.as_millis() / 2);
        half.is_some_and(|half| u128::from(now.0.saturating_sub(self.since.0)) >= half)
    }
}

/// A feed of the database in the store of `env`; each of its calls within `limit`.
///
/// # Errors
/// NotFound without a database; Expired where the place is not kept any more; Invalid for a token
/// of another database, and for a snapshot without a consumer; those of a commit where there is a
/// consumer; Denied, Unavailable, Timeout, Corruption.
pub fn changes(env: &Env, how: ChangesOptions, limit: Duration) -> BoxFuture<'_, Result<Changes>> {
    async move {
        let ChangesOptions { since, until, consumer } = how;
        let (counted, requests) = count(env.clone());
        let objects = Objects { env: counted, limit };
        let begins = async {
            match consumer {
                None => place_of(&objects, &since).await.map(|(state, token)| (state, token, None)),
                Some(consumer) => hold(&objects, &since, consumer).await,
            }
        };
        let begun = requests.within(env, limit, "changes", begins).await;
        let (state, token, held) = begun.map_err(|error| error.during("changes"))?;
        super::check_state(&state, &token, until.as_ref())?;
        let (held, checkpoint) = held.unzip();
        let next = (!token.wal.is_none()).then_some(token.wal);
        Ok(Changes {
            walk: FeedWalk::new(&objects, next),
            objects,
            requests,
            place: token,
            until,
            met: false,
            state,
            records: VecDeque::new(),
            time: UnixMillis(0),
            originals: None,
            unfinished: None,
            held,
            checkpoint: checkpoint.flatten(),
        })
    }
    .boxed()
}

impl Database {
    /// A feed of what this database commits, as far as it is durable.
    ///
    /// # Errors
    /// As [`changes`]; Closed, Fenced.
    pub fn changes(&self, how: ChangesOptions) -> BoxFuture<'_, Result<Changes>> {
        async move {
            let writer = self.writer()?;
            changes(&writer.env, how, writer.options.deadline).await
        }
        .boxed()
    }
}

impl Reader {
    /// A feed of what the database commits that this reads, also at a checkpoint.
    ///
    /// # Errors
    /// As [`changes`]; Closed.
    pub fn changes(&self, how: ChangesOptions) -> BoxFuture<'_, Result<Changes>> {
        async move {
            let (env, limit) = self.place()?;
            changes(&env, how, limit).await
        }
        .boxed()
    }
}

/// The end of what is durable.
///
/// # Errors
/// NotFound without a database; Denied, Unavailable, Timeout, Corruption.
pub fn newest(env: &Env, limit: Duration) -> BoxFuture<'_, Result<ChangeToken>> {
    within(env, limit, "changes", move |env| async move {
        Ok(place_of(&Objects { env, limit }, &Since::Newest).await?.1)
    })
    .boxed()
}

/// Consumers that hold the log.
///
/// # Errors
/// NotFound without a database; Denied, Unavailable, Timeout, Corruption.
pub fn consumers(env: &Env, limit: Duration) -> BoxFuture<'_, Result<Vec<Hold>>> {
    within(env, limit, "consumers", move |env| async move {
        Ok(newest_state(&env, limit).await?.1.holds.clone())
    })
    .boxed()
}

/// Lets a consumer go: what only it held is collected.
///
/// # Errors
/// NotFound without a database; Expired where there is none of that name; those of a commit.
pub fn forget_consumer<'a>(
    env: &'a Env,
    name: &'a str,
    limit: Duration,
) -> BoxFuture<'a, Result<()>> {
    within(env, limit, "forget consumer", move |env| async move {
        let (objects, newest) = newest_state(&env, limit).await?;
        if newest.hold(name).is_none() {
            return Err(siltstone_manifest::Refusal::from(HoldConflict::Gone).into());
        }
        let edit = Edit::Hold(HoldEdit::Release { name: name.to_owned() });
        commit_alone(&objects, edit, newest).await.map(drop)
    })
    .boxed()
}

pub(super) fn of_another_database(token: &ChangeToken, here: DatabaseId) -> Error {
    Error::invalid(
        "the token is that of another database than stands here; a clone, or a database that was \
         made anew, has a feed of its own",
    )
    .with("of", token.database)
    .with("here", here)
}

/// The newest state, and a place in it that nobody holds.
async fn place_of(objects: &Objects, since: &Since) -> Result<(Arc<Manifest>, ChangeToken)> {
    match since {
        Since::Kept | Since::Newest => {
            let (state, place) = walked(objects).await?;
            check_lives(&state)?;
            let token = ChangeToken::of(&state, place);
            Ok((state, token))
        }
        Since::Snapshot => Err(Error::invalid(
            "a feed that goes on from a snapshot needs a consumer, which holds what comes after \
             it; name one",
        )),
        Since::Token(token) => {
            let state = newest_state(&objects.env, objects.limit).await?.1;
            check_lives(&state)?;
            Ok((state, *token))
        }
        Since::Oldest | Since::Seq(_) => {
            let state = newest_state(&objects.env, objects.limit).await?.1;
            check_lives(&state)?;
            let wal = oldest_wal(objects, &state).await?;
            let seq = if let Since::Seq(seq) = since { *seq } else { Seq::NONE };
            let token = ChangeToken::of(&state, LogPlace { seq, wal });
            Ok((state, token))
        }
        Since::Checkpoint(name) => {
            let state = newest_state(&objects.env, objects.limit).await?.1;
            check_lives(&state)?;
            let token = behind_checkpoint(objects, &state, name).await?;
            Ok((state, token))
        }
    }
}

/// The newest state, and the place behind all that is durable.
async fn walked(objects: &Objects) -> Result<(Arc<Manifest>, LogPlace)> {
    let mut last = Seq::NONE;
    let (state, wal) = walk_telling(objects, |object| last = last.max(object.last_seq)).await?;
    let place = LogPlace { seq: last.max(state.flushed_seq), wal: wal.next() };
    Ok((state, place))
}

/// The place behind what a checkpoint holds, in the history that it is of.
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

/// A generation above that of `before`, and nobody else's: the lower half is random.
fn generation(env: &Env, before: Option<&Hold>) -> u64 {
    let count = before.map_or(0, |hold| hold.generation >> 32) + 1;
    (count << 32) | u64::from(env.random_u128() as u32)
}

/// What is held, and the checkpoint that was made with it.
type AcquiredHold = (ConsumerHold, Option<Checkpoint>);

/// Takes a hold, and says where it begins.
async fn hold(
    objects: &Objects,
    since: &Since,
    consumer: Consumer,
) -> Result<(Arc<Manifest>, ChangeToken, Option<AcquiredHold>)> {
    let (_, seen) = newest_state(&objects.env, objects.limit).await?;
    check_writable(&seen)?;
    let (base, from, token) = begins(objects, since, seen, &consumer.name).await?;
    if let Some(token) = &token {
        super::check_state(&base, token, None)?;
    }
    let now = objects.env.clock.now();
    let expires_at = consumer.expires_at(now)?;
    let generation = generation(&objects.env, base.hold(&consumer.name));
    let checkpoint = match (since, from) {
        (Since::Snapshot, HoldFrom::Walked(place)) => Some(NewCheckpoint {
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
        (Some(token), _) => token.timeline,
        (None, HoldFrom::At(place)) => base.history_behind(place.seq),
        (None, _) => None,
    };
    let take = TakeHold { name, generation, from, timeline, expires_at, most_bytes, checkpoint };
    let state = commit_alone(objects, Edit::Hold(HoldEdit::Take(Box::new(take))), base).await?;
    let own = state.hold(&consumer.name).filter(|hold| hold.generation == generation);
    let own = own.ok_or_else(|| {
        Error::from(siltstone_manifest::Refusal::from(Conflict::Hold(HoldConflict::Overtaken)))
    })?;
    let checkpoint = id.and_then(|id| state.checkpoint(id)).cloned();
    let place = own.place();
    // What of an ingest was passed on is known to the token alone.
    let token = match (token, since) {
        (Some(token), _) => token,
        (None, Since::Oldest) => from_the_oldest(objects, &state, place).await?,
        (None, _) => ChangeToken::of(&state, place),
    };
    let (timeline, base) = (token.timeline, Arc::clone(&state));
    let held = ConsumerHold { consumer, generation, seen: place, timeline, since: now, base };
    Ok((state, token, Some((held, checkpoint))))
}

/// Where the feed of a consumer begins that asks for the oldest change: what is flushed and not yet
/// deleted comes before what its hold, from `held` on, keeps for certain.
async fn from_the_oldest(
    objects: &Objects,
    state: &Manifest,
    held: LogPlace,
) -> Result<ChangeToken> {
    let wal = oldest_wal(objects, state).await?;
    let place = match wal < held.wal {
        true => LogPlace { seq: Seq::NONE, wal },
        false => held,
    };
    Ok(ChangeToken::of(state, place))
}

/// A state, where the hold begins, and the token that was given.
async fn begins(
    objects: &Objects,
    since: &Since,
    seen: Arc<Manifest>,
    name: &str,
) -> Result<(Arc<Manifest>, HoldFrom, Option<ChangeToken>)> {
    let certain = seen.oldest_certain();
    match since {
        Since::Kept if seen.hold(name).is_some() => Ok((seen, HoldFrom::Kept, None)),
        // A follower that begins again would pass over what it has missed.
        Since::Kept => Err(Error::new(
            ErrorKind::Expired,
            "no consumer of this name holds the log: it is new, or it was let go, and what came \
             since is not kept; say where it begins: since=\"snapshot\", \"oldest\" or \"latest\"",
        )
        .with("consumer", name)),
        Since::Newest | Since::Snapshot => {
            let (state, place) = walked(objects).await?;
            Ok((state, HoldFrom::Walked(place), None))
        }
        Since::Oldest => Ok((seen, HoldFrom::At(certain), None)),
        Since::Token(token) => Ok((seen, HoldFrom::At(token.place()), Some(*token))),
        Since::Seq(seq) => {
            let place = LogPlace { seq: *seq, wal: certain.wal };
            Ok((seen, HoldFrom::At(place), None))
        }
        Since::Checkpoint(checkpoint) => {
            let token = behind_checkpoint(objects, &seen, checkpoint).await?;
            Ok((seen, HoldFrom::At(token.place()), Some(token)))
        }
    }
}
