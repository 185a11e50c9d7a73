//! Making a clone (RFC 0029): pin, begin, fill, hold, end (rule K1). Each step is a commit, so the
//! same request goes on where another one stopped; what is next, the clone's manifest says.

use crate::follower::at_checkpoint::pinned_log;
use crate::gc::release_in;
use crate::io::env::Env;
use crate::manifests::client::{commit_alone, found, look, look_or_left};
use crate::manifests::missing::no_database;
use crate::manifests::new_database;
use crate::manifests::objects::Objects;
use crate::options::Options;
use crate::tables::of_log::{TableTarget, tables_of_log};
use crate::wal::walk::walk;
use siltstone_base::{
    CheckpointId, DatabaseId, Error, ErrorKind, ManifestId, RequestId, Result, SstId, TimelineId,
    UnixMillis,
};
use siltstone_bloom::key_hash;
use siltstone_manifest::clone::{
    CloneSource, begun, compose, entries, named_ancestors, next_step, pins,
};
use siltstone_manifest::compose::VisibleRange;
use siltstone_manifest::{
    Ancestor, CheckpointName, CheckpointOwner, CloneEdit, CloneStep, Edit, Manifest, NewCheckpoint,
    PinEdit,
};
use std::sync::Arc;

/// How long a pin lives that nobody has made endless yet: longer than a clone takes to be made.
const PIN_MILLIS: u64 = 60 * 60 * 1000;
/// Rounds after which a maker gives up: each but the first few means that another maker of the same
/// clone was quicker, or that pins ran out under this one.
const MOST_ROUNDS: u32 = 64;

/// A database, or a state of it, that a clone begins with.
#[derive(Clone, Debug)]
pub struct CloneParent {
    /// Where it is. It must be a place that the clone's store follows: the same bucket, a folder of
    /// the same machine, the memory of the same process.
    pub env: Env,
    /// The checkpoint to begin with; `None`: everything that is durable now.
    pub checkpoint: Option<CheckpointName>,
    /// Keys from here on; `None`: from the first.
    pub start: Option<Vec<u8>>,
    /// Keys before this; `None`: to the last.
    pub end: Option<Vec<u8>>,
}

/// Makes the database at `env` a clone of `parents`: one of its own, which begins with their tables
/// and copies none. Of the options, the deadline (of each request) and those of tables count.
///
/// Where it ends early, the same call goes on with it; so it does where another call makes the same
/// clone. One that was made and not written to yet is the answer.
///
/// # Errors
/// NotFound where a parent is none, or was destroyed; Conflict, with what stands there, where `env`
/// is another database; Expired where the checkpoint is gone; Unsupported for several parents, for
/// parts of one, and for a parent in a place that is not followed from there; Denied, Unavailable,
/// Timeout, Corruption.
pub async fn clone(env: &Env, parents: &[CloneParent], options: &Options) -> Result<()> {
    let [parent] = parents else {
        return Err(Error::unsupported("a clone of several parents is not built yet"));
    };
    let bounds = [&parent.start, &parent.end].map(|key| key.clone().map(Into::into));
    let [start, end] = bounds;
    VisibleRange { start, end }.check()?;
    let limit = options.deadline;
    let there = Objects { env: parent.env.clone(), limit };
    let location = parent.env.store.location().ok_or_else(|| {
        Error::unsupported("the parent has no place that another process could find it by")
    })?;
    // Before anything is written: the clone must find it there.
    env.store.follows(&location)?;
    let newest = look(&there, None).await?.ok_or_else(|| no_database(&parent.env))?;
    let maker = CloneMaker {
        here: Objects { env: env.clone(), limit },
        request: request(newest.database, &location, parent),
        there,
        location,
        parent,
        options,
    };
    maker.run().await.map_err(|error| error.during("clone"))
}

/// What was asked for: whoever asks for the same again goes on with it.
fn request(parent: DatabaseId, location: &str, asked: &CloneParent) -> RequestId {
    let checkpoint = asked.checkpoint.as_ref().map(ToString::to_string).unwrap_or_default();
    let (parent, location) = (parent.0.to_be_bytes(), location.as_bytes());
    // A key may hold any bytes: its length comes before it.
    let bound = |key: &Option<Vec<u8>>| match key {
        None => vec![0],
        Some(key) => [&[1], (key.len() as u64).to_be_bytes().as_slice(), key].concat(),
    };
    let (start, end) = (bound(&asked.start), bound(&asked.end));
    let text = [parent.as_slice(), location, &[0], checkpoint.as_bytes(), &[0], &start, &end];
    let text = text.concat();
    let half = |which: u8| u128::from(key_hash(&[&[which], text.as_slice()].concat()));
    RequestId((half(1) << 64) | half(2))
}

/// Why a step was not taken.
enum Missed {
    /// Another maker of the same clone went on meanwhile: look again.
    Overtaken(Error),
    /// A pin that the clone records is gone: it is to be pinned anew.
    PinGone,
    /// All else.
    Failed(Error),
}

impl From<Error> for Missed {
    fn from(error: Error) -> Missed {
        Missed::Failed(error)
    }
}

/// Pins, and the state that the parent's pin names.
struct Pinned {
    entries: Vec<Ancestor>,
    state: Arc<Manifest>,
}

/// Makes one clone of one parent.
struct CloneMaker<'a> {
    here: Objects,
    there: Objects,
    /// Where the parent is.
    location: String,
    parent: &'a CloneParent,
    request: RequestId,
    options: &'a Options,
}

impl CloneMaker<'_> {
    async fn run(&self) -> Result<()> {
        let mut overtaken = None;
        for _ in 0..MOST_ROUNDS {
            let state = match look_or_left(&self.here).await? {
                Ok(state) => state,
                Err(left) => {
                    let first = left.1.next();
                    let database = new_database::identity(&self.here, left).await?;
                    self.begin(database, first).await?
                }
            };
            let step = next_step(&state, self.request)?;
            let taken = match step {
                CloneStep::Done => return Ok(()),
                CloneStep::Fill => self.fill(&state).await,
                CloneStep::Hold => self.hold_and_finish(&state).await,
            };
            match taken {
                Ok(()) => {}
                Err(Missed::PinGone) => self.repin(&state).await?,
                Err(Missed::Overtaken(by)) => overtaken = Some(by),
                Err(Missed::Failed(error)) => return Err(error),
            }
        }
        let error = Error::unavailable("other makers of the same clone go on again and again");
        Err(overtaken.into_iter().fold(error, Error::caused_by))
    }

    /// Steps 1 and 2: pins, and the clone's first manifest; somebody else's when that came first.
    async fn begin(&self, database: DatabaseId, first: ManifestId) -> Result<Arc<Manifest>> {
        let pinned = self.pin(database, 1).await?;
        let entries = pinned.entries.clone();
        let begun = begun(database, self.request, &pinned.state, entries);
        // Where a database was destroyed its numbers go on (RFC 0030, rule D4).
        let initial = Manifest { id: first, ..begun };
        let state = found(&self.here, initial).await?;
        if state.database != database {
            self.let_go(database, &pinned.entries).await;
        }
        Ok(state)
    }

    /// Adds pins, each new, in the parent and in every ancestor that its state names. They expire
    /// until they are held: their maker may end before anybody knows of them.
    async fn pin(&self, clone: DatabaseId, first: u32) -> Result<Pinned> {
        let (newest, new) = match &self.parent.checkpoint {
            Some(name) => {
                let newest = look(&self.there, None).await?;
                let newest = newest.ok_or_else(|| no_database(&self.there.env))?;
                let source = Some(name.find(&newest)?.id);
                (newest, NewCheckpoint { source, ..self.new_pin(clone) })
            }
            None => {
                let (newest, walked) = walk(&self.there).await?;
                (newest, NewCheckpoint { wal_id_last_seen: Some(walked), ..self.new_pin(clone) })
            }
        };
        let pin = new.id;
        let committed = commit_alone(&self.there, Edit::AddCheckpoint(new), newest).await;
        let committed = committed.map_err(|error| error.with("parent", &self.location))?;
        let state = self.pinned(&committed, pin).await?;
        let state = state.ok_or_else(|| Error::internal("a pin that was just made is gone"))?;
        let mut entries = vec![Ancestor {
            number: first,
            database: committed.database,
            location: self.location.clone(),
            checkpoint: pin,
        }];
        for (number, ancestor) in (first + 1..).zip(named_ancestors(&state)) {
            entries.push(self.pin_ancestor(clone, number, ancestor).await?);
        }
        Ok(Pinned { entries, state })
    }

    /// A pin in an ancestor of the parent, of what the parent's own pin there keeps.
    async fn pin_ancestor(
        &self,
        clone: DatabaseId,
        number: u32,
        ancestor: &Ancestor,
    ) -> Result<Ancestor> {
        let there = self.objects_of(&ancestor.location)?;
        let placed = |error: Error| error.with("ancestor", &ancestor.location);
        let newest = look(&there, None).await?;
        let newest = newest.filter(|newest| newest.database == ancestor.database);
        let newest = newest.ok_or_else(|| placed(no_database(&there.env)))?;
        let new = NewCheckpoint { source: Some(ancestor.checkpoint), ..self.new_pin(clone) };
        let checkpoint = new.id;
        let committed = commit_alone(&there, Edit::AddCheckpoint(new), newest).await;
        committed.map_err(placed)?;
        Ok(Ancestor { number, checkpoint, ..ancestor.clone() })
    }

    fn new_pin(&self, clone: DatabaseId) -> NewCheckpoint {
        let created_at = self.here.env.clock.now();
        NewCheckpoint {
            id: CheckpointId::random(self.here.env.random_u128()),
            created_at,
            expires_at: Some(UnixMillis(created_at.0.saturating_add(PIN_MILLIS))),
            owner: CheckpointOwner::Clone(clone),
            ..NewCheckpoint::default()
        }
    }

    /// The state that the parent's pin names, as the parent's `newest` has it; `None` where either
    /// is gone.
    async fn pinned(
        &self,
        newest: &Arc<Manifest>,
        pin: CheckpointId,
    ) -> Result<Option<Arc<Manifest>>> {
        match newest.checkpoint(pin).map(|one| one.manifest_id) {
            None => Ok(None),
            Some(id) if id == newest.id => Ok(Some(Arc::clone(newest))),
            Some(id) => self.there.manifest(id).await,
        }
    }

    /// Step 3: the tables of what is pinned, and of the rows of the log that are pinned with it.
    async fn fill(&self, state: &Arc<Manifest>) -> std::result::Result<(), Missed> {
        let Some(entry) = entries(state).first() else {
            return Err(Error::internal("a clone without a parent").into());
        };
        let newest = self.parent_of(entry).await?;
        let pin = newest.checkpoint(entry.checkpoint).ok_or(Missed::PinGone)?;
        let pinned = self.pinned(&newest, entry.checkpoint).await?.ok_or(Missed::PinGone)?;
        let log = match pinned_log(&self.there, pin, newest.database).await {
            Ok(log) => log,
            Err(error) if error.kind() == ErrorKind::Expired => return Err(Missed::PinGone),
            Err(error) => return Err(self.unless_overtaken(state, error).await?),
        };
        let env = &self.here.env;
        let target =
            TableTarget { env, database: state.database, job: None, options: self.options };
        let mut names = std::iter::repeat_with(|| SstId(env.new_ulid()));
        let log = tables_of_log(&log, pinned.flushed_seq, &target, &mut names).await?;
        let source = CloneSource {
            state: &pinned,
            number: entry.number,
            log: &log.tables,
            last_seq: log.last_seq,
            commit_time: log.commit_time,
            keys: (self.parent.start.as_deref(), self.parent.end.as_deref()),
        };
        #[cfg(mutation = "part_uncut")]
        let source = CloneSource { keys: (None, None), ..source };
        let tables = compose(&[source])?;
        let fill = CloneEdit::Fill {
            pins: pins(state),
            timeline: TimelineId(env.random_u128()),
            began_at: env.clock.now(),
            tables: Box::new(tables),
        };
        self.commit(state, fill).await
    }

    /// Why reading the log failed. Another maker that has filled the clone, and held its pins, has
    /// let go of the log meanwhile: what is missing then is no hole.
    async fn unless_overtaken(&self, state: &Manifest, error: Error) -> Result<Missed> {
        let now = look(&self.here, None).await?;
        let stands = now.is_some_and(|now| now.id == state.id);
        Ok(if stands { Missed::Failed(error) } else { Missed::Overtaken(error) })
    }

    /// Steps 4 and 5: every pin endless, then the end.
    async fn hold_and_finish(&self, state: &Arc<Manifest>) -> std::result::Result<(), Missed> {
        // The first of them is the parent itself.
        let forgotten = usize::from(cfg!(mutation = "source_unheld"));
        for entry in entries(state).iter().skip(forgotten) {
            let there = self.objects_of(&entry.location)?;
            let newest = owned(&there, entry).await?;
            let hold = PinEdit::Hold { pin: entry.checkpoint, clone: state.database };
            match commit_alone(&there, Edit::Pin(hold), newest).await {
                Err(error) if error.kind() == ErrorKind::Expired => return Err(Missed::PinGone),
                held => held.map_err(|error| error.with("ancestor", &entry.location))?,
            };
        }
        self.commit(state, CloneEdit::Finish { pins: pins(state) }).await
    }

    /// New pins in place of those that the clone records, some of which are gone.
    async fn repin(&self, state: &Arc<Manifest>) -> Result<()> {
        let pinned = self.pin(state.database, state.last_ancestor + 1).await?;
        let entries = pinned.entries.clone();
        let repin = CloneEdit::Repin { recorded: pins(state), entries };
        match self.commit(state, repin).await {
            Ok(()) => Ok(()),
            Err(Missed::Failed(error)) => Err(error),
            Err(Missed::Overtaken(_) | Missed::PinGone) => {
                self.let_go(state.database, &pinned.entries).await;
                Ok(())
            }
        }
    }

    async fn commit(
        &self,
        state: &Arc<Manifest>,
        edit: CloneEdit,
    ) -> std::result::Result<(), Missed> {
        match commit_alone(&self.here, Edit::Clone(edit), Arc::clone(state)).await {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::Conflict => Err(Missed::Overtaken(error)),
            Err(error) => Err(Missed::Failed(error)),
        }
    }

    /// Removes pins that nothing records. What cannot be removed now expires.
    async fn let_go(&self, clone: DatabaseId, entries: &[Ancestor]) {
        for entry in entries {
            let Ok(there) = self.objects_of(&entry.location) else { continue };
            drop(release_in(&there, clone, entry).await);
        }
    }

    /// The newest state of the parent, if it is the one that the clone was begun with.
    async fn parent_of(&self, entry: &Ancestor) -> Result<Arc<Manifest>> {
        owned(&self.there, entry).await
    }

    fn objects_of(&self, location: &str) -> Result<Objects> {
        if location == self.location {
            return Ok(self.there.clone());
        }
        self.here.neighbour(location)
    }
}

/// The newest state of the database that `entry` names.
///
/// # Errors
/// NotFound where there is none, or another.
async fn owned(there: &Objects, entry: &Ancestor) -> Result<Arc<Manifest>> {
    let newest = look(there, None).await?;
    let newest = newest.filter(|newest| newest.database == entry.database);
    newest.ok_or_else(|| no_database(&there.env).with("ancestor", &entry.location))
}
