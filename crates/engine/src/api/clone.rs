//! Creating a clone (RFC 0029) in the steps pin, begin, fill, hold, end (rule K1).
//!
//! Each step is a commit, and the clone's manifest records which step is next, so a repeated
//! request continues an interrupted one. A clone must never name a table before a pin retains it.

mod parent;
mod release;

use crate::gc::release_in;
use crate::manifests::ahead::CommitAfter;
use crate::manifests::client::{ManifestRequests, commit_alone, found, look, look_or_left};
use crate::manifests::missing::no_database;
use crate::manifests::new_database;
use crate::manifests::objects::Objects;
use crate::options::Options;
use crate::tables::log_to_tables::{TableTarget, TakenLog, spans_of_log, tables_of_log};
use futures::FutureExt;
use futures::future::BoxFuture;
pub use parent::CloneParent;
use parent::{FoundParent, ParentRows, new_pin};
pub use release::release_clone;
pub(super) use release::with_clone;
use siltstone_base::sst::SstLocation;
use siltstone_base::{
    DatabaseId, Error, ErrorKind, ManifestId, RequestId, Result, SstDescriptor, SstId, TimelineId,
};
use siltstone_bloom::key_hash;
use siltstone_manifest::clone::{
    CloneRows, CloneSource, FIRST_ENTRY, begun, check_sources, compose, entries, named_within,
    next_set, next_step, pins,
};
use siltstone_manifest::{Ancestor, CloneEdit, CloneStep, Edit, Manifest, PinEdit};
use siltstone_store::counting::within;
use siltstone_store::env::Env;
use std::sync::Arc;

/// Maximum number of rounds. Each round after the first few means that another process advanced the
/// same clone, or that pins of this one expired.
const MOST_ROUNDS: u32 = 64;

/// Creates a clone of `parents` at `env`: a database of its own that begins with the parents'
/// tables and copies none of them. Several parents must have disjoint key ranges (RFC 0031); the
/// clone contains all of them. Only the deadline and the table options of `options` apply.
///
/// A repeated call continues a clone that was interrupted, or that another process is creating. It
/// succeeds if the clone exists and was not written to yet. The order of `parents` has no effect.
///
/// # Errors
/// NotFound if a parent is not a database or was destroyed; Conflict if `env` has another database,
/// with its description; Expired if a checkpoint was deleted or has expired; Invalid without
/// parents, and for parents whose keys overlap or whose settings differ, with both names;
/// Unsupported for a parent in a location that the clone's store cannot access; Denied,
/// Unavailable, Timeout, Corruption.
pub fn clone<'a>(
    env: &'a Env,
    parents: &'a [CloneParent],
    options: &'a Options,
) -> BoxFuture<'a, Result<()>> {
    async move {
        if parents.is_empty() {
            return Err(Error::invalid("a clone needs a parent"));
        }
        let limit = options.deadline;
        let made = within(env, limit, "clone", |env| async move {
            let mut found = Vec::with_capacity(parents.len());
            for parent in parents {
                let parent = FoundParent::find(&env, parent, limit).await?;
                found.push((parent.request(), parent));
            }
            found.sort_by(|left, right| left.0.cmp(&right.0));
            let (asked, parents): (Vec<_>, Vec<_>) = found.into_iter().unzip();
            let here = Objects { env, limit };
            let maker = CloneMaker { here, parents, request: request(&asked), options };
            maker.run().await
        });
        made.await.map_err(|error| error.during("clone"))
    }
    .boxed()
}

/// The id of a request, a hash of its parts. A repeated request has the same id, and so continues
/// the clone.
pub(super) fn request(parts: &[Vec<u8>]) -> RequestId {
    let text: Vec<u8> = parts.iter().flat_map(|one| counted(one)).collect();
    let half = |which: u8| u128::from(key_hash(&[&[which], text.as_slice()].concat()));
    RequestId((half(1) << 64) | half(2))
}

/// `bytes` with a length prefix, so that concatenated parts are unambiguous.
fn counted(bytes: &[u8]) -> Vec<u8> {
    [(bytes.len() as u64).to_be_bytes().as_slice(), bytes].concat()
}

/// The reason for which a step was refused.
enum CloneStepRefusal {
    /// Another process advanced the same clone meanwhile. Read the manifest again.
    Overtaken(Error),
    /// A pin that the clone records no longer exists. Pin the parent again.
    PinGone,
    /// Any other error.
    Failed(Error),
}

impl From<Error> for CloneStepRefusal {
    fn from(error: Error) -> CloneStepRefusal {
        CloneStepRefusal::Failed(error)
    }
}

/// The pins of all parents: for each parent its manifest entry in the clone, and the pinned state.
#[derive(Default)]
struct ParentPins {
    entries: Vec<Ancestor>,
    states: Vec<Arc<Manifest>>,
}

/// Creates one clone.
struct CloneMaker<'a> {
    here: Objects,
    /// Sorted by request, so that every process that creates the clone has the same order.
    parents: Vec<FoundParent<'a>>,
    request: RequestId,
    options: &'a Options,
}

impl CloneMaker<'_> {
    async fn run(&self) -> Result<()> {
        let mut overtaken = None;
        for _ in 0..MOST_ROUNDS {
            let state = match look_or_left(
                &self.here,
                &mut ManifestRequests::before(&self.here, CommitAfter::Edit),
            )
            .await?
            {
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
                Err(CloneStepRefusal::PinGone) => self.repin(&state).await?,
                Err(CloneStepRefusal::Overtaken(by)) => overtaken = Some(by),
                Err(CloneStepRefusal::Failed(error)) => return Err(error),
            }
        }
        let error = Error::unavailable(
            "other processes that create the same clone have overtaken this one again and again; \
             try again",
        );
        Err(overtaken.into_iter().fold(error, Error::caused_by))
    }

    /// Steps 1 and 2: pins the parents and creates the clone's first manifest. If another process
    /// created it first, returns that one.
    async fn begin(&self, database: DatabaseId, first: ManifestId) -> Result<Arc<Manifest>> {
        let pinned = self.pin(database, FIRST_ENTRY).await?;
        let sources: Vec<(&str, &Manifest)> =
            self.parents.iter().map(FoundParent::name).zip(pinned.states()).collect();
        let begun = begun(
            database,
            self.request,
            &sources,
            pinned.entries.clone(),
            self.here.env.store.place().location().as_deref(),
        )?;
        // If a database was destroyed at the place, its numbers continue (RFC 0030, rule D4).
        let initial = Manifest { id: first, ..begun };
        let mut requests = ManifestRequests::new(&self.here);
        let state = found(&self.here, &mut requests, initial).await?;
        if state.database != database {
            self.release_pins(database, &pinned.entries).await;
        }
        Ok(state)
    }

    /// Adds pins, each new, in the parents and in every ancestor that their states name within the
    /// keys asked for (rule K7). They expire until they are held: their maker may end before
    /// another process knows of them.
    ///
    /// # Errors
    /// Also Invalid, where what is pinned can be no database: nothing may be begun then, or put in
    /// the place of what was.
    async fn pin(&self, clone: DatabaseId, first: u32) -> Result<ParentPins> {
        let mut pinned = ParentPins::default();
        match self.pin_all(clone, first, &mut pinned).await {
            Ok(()) => Ok(pinned),
            Err(error) => {
                self.release_pins(clone, &pinned.entries).await;
                Err(error)
            }
        }
    }

    async fn pin_all(&self, clone: DatabaseId, first: u32, pinned: &mut ParentPins) -> Result<()> {
        let mut logs = Vec::with_capacity(self.parents.len());
        for parent in &self.parents {
            let newest = parent.pin(&self.here, clone, &mut pinned.entries, first).await?;
            let entry = pinned.entries.last().cloned();
            let entry = entry.ok_or_else(|| Error::internal("a pin without an entry"))?;
            let gone = || Error::internal("a pin that was just made is gone");
            let state = parent.pinned(&newest, &entry).await?.ok_or_else(gone)?;
            for ancestor in named_within(&state, &parent.keys) {
                let there = self.objects_of(&ancestor.location)?;
                let new = new_pin(&self.here.env, clone);
                parent::pin_ancestor(&there, new, ancestor, &mut pinned.entries, first).await?;
            }
            // A single parent cannot overlap with another.
            let log = match self.parents.len() {
                1 => TakenLog::default(),
                _ => parent.log(&newest, &state, &entry).await?.ok_or_else(gone)?,
            };
            logs.push(spans_of_log(&log, state.flushed_seq, self.options)?);
            pinned.states.push(state);
        }
        let parents = self.parents.iter().zip(pinned.states());
        let rows = parents.zip(logs).map(|((parent, state), log)| CloneRows {
            name: parent.name(),
            state,
            keys: &parent.keys,
            log,
        });
        check_sources(&rows.collect::<Vec<_>>())
    }

    /// Step 3: adds the pinned tables, and builds tables of the pinned rows of the log.
    async fn fill(&self, state: &Arc<Manifest>) -> std::result::Result<(), CloneStepRefusal> {
        let (env, others) = (&self.here.env, "a clone has other entries than its parents need");
        let (mut left, mut read) = (entries(state), Vec::new());
        for parent in &self.parents {
            let (entry, after) = left.split_first().ok_or_else(|| Error::internal(others))?;
            let rows = match parent.rows(entry).await {
                Ok(rows) => rows.ok_or(CloneStepRefusal::PinGone)?,
                Err(error) => return Err(self.unless_overtaken(state, error).await?),
            };
            let named = named_within(&rows.state, &parent.keys).len();
            left = after.get(named..).ok_or_else(|| Error::internal(others))?;
            let target =
                TableTarget { env, database: state.database, job: None, options: self.options };
            let mut names = std::iter::repeat_with(|| SstId(env.new_ulid()));
            let ParentRows { state, log } = rows;
            let log = tables_of_log(&log, state.flushed_seq, &target, &mut names).await?;
            // Tables of an ingest lie in the same location as the parent's own tables.
            let place = SstLocation::Ancestor(entry.number);
            let layers = log.layers(|table| SstDescriptor { location: place, ..table.clone() });
            read.push((parent, entry.number, state, log, layers));
        }
        if !left.is_empty() {
            return Err(Error::internal(others).into());
        }
        let sources = read.iter().map(|(parent, number, pinned, log, layers)| CloneSource {
            name: parent.name(),
            state: pinned,
            number: *number,
            log: layers,
            last_seq: log.last_seq,
            commit_time: log.commit_time,
            keys: (parent.keys.start.as_deref(), parent.keys.end.as_deref()),
        });
        let tables = compose(&sources.collect::<Vec<_>>())?;
        let fill = CloneEdit::Fill {
            pins: pins(state),
            timeline: TimelineId(env.random_u128()),
            began_at: env.clock.now(),
            tables: Box::new(tables),
        };
        self.commit(state, fill).await
    }

    /// Classifies an error of reading a parent. If another process has filled the clone and made
    /// its pins permanent, it has released the log, so a missing log object is not a gap.
    async fn unless_overtaken(&self, state: &Manifest, error: Error) -> Result<CloneStepRefusal> {
        let now = look(&self.here, None).await?;
        let stands = now.is_some_and(|now| now.id == state.id);
        Ok(if stands {
            CloneStepRefusal::Failed(error)
        } else {
            CloneStepRefusal::Overtaken(error)
        })
    }

    /// Steps 4 and 5: makes every pin permanent, then completes the clone.
    async fn hold_and_finish(
        &self,
        state: &Arc<Manifest>,
    ) -> std::result::Result<(), CloneStepRefusal> {
        // The first of them is the parent itself.
        for entry in entries(state) {
            let there = self.objects_of(&entry.location)?;
            let newest = owned(&there, entry).await?;
            let hold = PinEdit::Hold { pin: entry.checkpoint, clone: state.database };
            match commit_alone(&there, Edit::Pin(hold), newest).await {
                Err(error) if error.kind() == ErrorKind::Expired => {
                    return Err(CloneStepRefusal::PinGone);
                }
                held => held.map_err(|error| error.with("ancestor", &entry.location))?,
            };
        }
        self.commit(state, CloneEdit::Finish { pins: pins(state) }).await
    }

    /// Replaces the pins that the clone records by new ones, because some no longer exist.
    async fn repin(&self, state: &Arc<Manifest>) -> Result<()> {
        let pinned = self.pin(state.database, next_set(state)).await?;
        let entries = pinned.entries.clone();
        let repin = CloneEdit::Repin { recorded: pins(state), entries };
        match self.commit(state, repin).await {
            Ok(()) => Ok(()),
            Err(CloneStepRefusal::Failed(error)) => Err(error),
            Err(CloneStepRefusal::Overtaken(_) | CloneStepRefusal::PinGone) => {
                self.release_pins(state.database, &pinned.entries).await;
                Ok(())
            }
        }
    }

    async fn commit(
        &self,
        state: &Arc<Manifest>,
        edit: CloneEdit,
    ) -> std::result::Result<(), CloneStepRefusal> {
        match commit_alone(&self.here, Edit::Clone(edit), Arc::clone(state)).await {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::Conflict => {
                Err(CloneStepRefusal::Overtaken(error))
            }
            Err(error) => Err(CloneStepRefusal::Failed(error)),
        }
    }

    /// Removes pins that the clone does not record. A pin that cannot be removed now expires later.
    async fn release_pins(&self, clone: DatabaseId, entries: &[Ancestor]) {
        for entry in entries {
            let Ok(there) = self.objects_of(&entry.location) else { continue };
            drop(release_in(&there, clone, entry).await);
        }
    }

    fn objects_of(&self, location: &str) -> Result<Objects> {
        match self.parents.iter().find(|parent| parent.location == location) {
            Some(parent) => Ok(parent.there.clone()),
            None => self.here.neighbour(location),
        }
    }
}

impl ParentPins {
    fn states(&self) -> impl Iterator<Item = &Manifest> {
        self.states.iter().map(|state| &**state)
    }
}

/// The newest manifest of the database that `entry` names.
///
/// # Errors
/// NotFound if there is no database, or another database, in that location.
async fn owned(there: &Objects, entry: &Ancestor) -> Result<Arc<Manifest>> {
    let newest = look(there, None).await?;
    let newest = newest.filter(|newest| newest.database == entry.database);
    newest.ok_or_else(|| no_database(&there.env).with("ancestor", &entry.location))
}
