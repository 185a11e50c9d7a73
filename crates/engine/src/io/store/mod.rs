//! The store seam, in our own terms. A [`Store`] is bound to one database's root; names under it
//! are [`ObjectName`]s, never text. Only this folder names the `object_store` crate.
//!
//! Contract, held by the conformance suite in `tests/`: reads see completed creates
//! (read-after-write); of racing creates of one name at most one is `Created`; objects never
//! change once created; a listing that ends without error is complete up to creates that raced it.

pub mod conditional;
pub mod counting;
pub mod full;
pub mod in_use;
pub mod local;
pub mod lone_object;
pub mod memory;
pub mod options;
pub mod presence;
pub mod profile;
pub mod ranges;
mod reach;
mod remote;
pub mod retry;
pub mod sent;
pub(crate) mod troubles;
pub mod url;

use bytes::Bytes;
use futures::future::{BoxFuture, ready};
use futures::{FutureExt, StreamExt, stream};
use in_use::StoreUse;
use presence::Presence;
use profile::Profile;
use sent::SentRequests;
use siltstone_base::name::prefix;
use siltstone_base::{DatabaseId, Error, JobId, ObjectName, Result, UnixMillis};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// What the store answered to a conditional create. Not yet an outcome: see
/// [`conditional::create`], which reads back and decides.
#[derive(Clone, Debug)]
pub enum PutAnswer {
    /// It says it created the object.
    Created,
    /// It says that there was one already. Perhaps ours, perhaps nobody's (a bare 409).
    Exists,
    /// It refused before doing anything (no permission, too large).
    Refused(Error),
    /// Lost connection, time-out, 5xx: it may be stored, now or later.
    Ambiguous(Error),
}

/// One line of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The object.
    pub name: ObjectName,
    /// Its length.
    pub bytes: u64,
    /// When it was stored, by the store's clock.
    pub modified: UnixMillis,
}

/// An upload that is under way; nothing is visible under the name before `finish` succeeds.
pub trait Upload: Send {
    /// Hands over the next bytes. May wait for earlier ones to be sent (this bounds memory).
    fn write(&mut self, chunk: Bytes) -> BoxFuture<'_, Result<()>>;
    /// As [`Upload::write`], for stores that take bytes without waiting for a network (a local
    /// folder): whoever made them hands them over while they are in the caches of his core. `None`,
    /// with nothing written, where [`Upload::write`] is the way.
    fn write_now(&mut self, _chunk: &[u8]) -> Option<Result<()>> {
        None
    }
    /// What is written is not read soon, and is more than memory should hold: a store on this
    /// machine keeps no copy of it at hand. Called before the first write, if at all.
    fn passes_by(&mut self) {}
    /// Completes the object: afterwards it is durable. On an error its state is not known.
    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<()>>;
    /// Gives up and frees what was sent, as far as the store lets one.
    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>>;
}

/// Whether a store has copied an object by itself.
pub type CopyAnswer<'a> = BoxFuture<'a, Result<bool>>;

/// Objects under one database's root.
pub trait Store: Send + Sync + fmt::Debug {
    /// The bytes of `range` (all when `None`), `None` when there is no such object. Exactly the
    /// length asked for, unless the object is shorter: then Corruption. An empty range is Invalid:
    /// stores differ in what they make of it.
    fn get(
        &self,
        name: ObjectName,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'_, Result<Option<Bytes>>>;

    /// As [`Store::get`], for stores that can answer without waiting for a network (memory, local
    /// folder); `None` when this store cannot.
    fn get_now(
        &self,
        _name: ObjectName,
        _range: Option<Range<u64>>,
    ) -> Option<Result<Option<Bytes>>> {
        None
    }

    /// As [`Store::get_now`]: `buffer` holds exactly the bytes of `range` then, whatever it held
    /// before; whether there is such an object. For stores that would copy the bytes anyway:
    /// whoever reads on and on takes the same memory each time. `None` where [`Store::get_now`]
    /// is the way.
    fn get_now_into(
        &self,
        _name: ObjectName,
        _range: Range<u64>,
        _buffer: &mut Vec<u8>,
    ) -> Option<Result<bool>> {
        None
    }

    /// The whole object of `bytes` bytes, as memory that the system fills from it when it is read
    /// and takes back when it needs room: nothing is read yet, nothing is copied, and none of it is
    /// this process's own. For tables alone, which never change and never change their length. As
    /// long as the answer lives the object's bytes are there, whatever becomes of its name.
    ///
    /// `None` where this store has no such memory, has no more of it to give, or has no such
    /// object: [`Store::get`] is the way, and tells what is wrong.
    fn lend(&self, _name: ObjectName, _bytes: u64) -> Option<Bytes> {
        None
    }

    /// How it is best worked with.
    fn profile(&self) -> Profile {
        Profile::REMOTE
    }

    /// Whether somebody may empty the place, and make another database there, under handles that go
    /// on writing to it: so it is with a prefix of an object store. A folder that was removed is
    /// another one than what stands at its path later, and memory goes with its process.
    fn may_be_emptied(&self) -> bool {
        false
    }

    /// The request that waits longest for an answer, or the last one that was given up, in words
    /// for a person; `None` where all were answered, and for stores without requests.
    fn unanswered(&self) -> Option<String> {
        None
    }

    /// Bytes of answers that have come so far, those of answers that are still under way included:
    /// a call goes on beyond its deadline while a long object comes. 0 for stores that do not tell.
    fn moved(&self) -> u64 {
        0
    }

    /// Whether the listings so far came in the order of the names, before this seam sorted them;
    /// `None` for stores that make their listings themselves.
    fn lists_in_order(&self) -> Option<bool> {
        None
    }

    /// What its clients have sent; `None` for stores without clients, whose requests are counted
    /// at this seam.
    fn sent(&self) -> Option<Arc<SentRequests>> {
        None
    }

    /// Where this is, as a URL by which another process finds it; `None` where none does.
    fn location(&self) -> Option<String> {
        None
    }

    /// Whether `location`, as [`Store::location`] gave it once, is the place where this is.
    fn stands_at(&self, location: &str) -> bool {
        self.location().as_deref() == Some(location)
    }

    /// Whether the place of an ancestor, which a manifest names, is followed from here. A manifest
    /// may come from anywhere, so this store says which places are: those of its own kind, and of
    /// its own bucket; and those that its options allow.
    ///
    /// # Errors
    /// Unsupported for every other place.
    fn follows(&self, location: &str) -> Result<()> {
        Err(not_followed(self.location(), location))
    }

    /// The store of another database at `location`, by the same clients.
    ///
    /// # Errors
    /// As [`Store::follows`].
    fn neighbour(&self, location: &str) -> Result<Arc<dyn Store>> {
        Err(not_followed(self.location(), location))
    }

    /// Copies an object of the database at `location` to `to` by itself: its bytes never come here.
    /// `to` is a name as for [`Store::upload`]. `false` where this store cannot.
    fn copy_from(&self, _location: &str, _from: ObjectName, _to: ObjectName) -> CopyAnswer<'_> {
        ready(Ok(false)).boxed()
    }

    /// Finds out, before the first create of a handle, that the store honours the condition of
    /// creates. Stores that decide by themselves need no proof.
    ///
    /// # Errors
    /// Unsupported for a store that ignores the condition; those of the store.
    fn ensure_conditions(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(ready(Ok(())))
    }

    /// Creates the object if the name is free; durable once `Created` is answered. Never retried
    /// below this seam.
    fn put_if_absent(&self, name: ObjectName, bytes: Bytes) -> BoxFuture<'_, PutAnswer>;

    /// Begins an upload under a name that nobody else uses (a fresh ULID); not conditional.
    fn upload(&self, name: ObjectName) -> BoxFuture<'_, Result<Box<dyn Upload>>>;

    /// Every object whose name starts with `prefix` (one of [`siltstone_base::name::prefix`]) and
    /// sorts after `after`, sorted, both by the order of [`ObjectName`]. Strangers' names are left
    /// out.
    fn list(
        &self,
        prefix: &'static str,
        after: Option<ObjectName>,
    ) -> BoxFuture<'_, Result<Vec<Listed>>>;

    /// What [`Store::list`] has of one job's folder: of many jobs, and of tables that were ingested
    /// and not merged, no others are asked for.
    fn list_job(&self, job: JobId) -> BoxFuture<'_, Result<Vec<Listed>>> {
        let listed = self.list(prefix::INGEST, None);
        let of_job = move |object: &Listed| lies_in_folder(object.name, job);
        async move { Ok(listed.await?.into_iter().filter(of_job).collect()) }.boxed()
    }

    /// The names of [`Store::list`] alone: a local folder reads lengths and ages file by file.
    fn names(
        &self,
        prefix: &'static str,
        after: Option<ObjectName>,
    ) -> BoxFuture<'_, Result<Vec<ObjectName>>> {
        let listed = self.list(prefix, after);
        async move { Ok(listed.await?.into_iter().map(|object| object.name).collect()) }.boxed()
    }

    /// Deletes by name; deleting what is not there succeeds.
    fn delete(&self, name: ObjectName) -> BoxFuture<'_, Result<()>>;

    /// Deletes many, in no certain order, with as few requests as the store has for it. One answer
    /// a name, in their order; one that fails stops none of the others.
    fn delete_many(&self, names: Vec<ObjectName>) -> BoxFuture<'_, Vec<Result<()>>> {
        let deletes = stream::iter(names).map(|name| self.delete(name));
        deletes.buffered(DELETES_AT_ONCE).collect().boxed()
    }

    /// Names that one request of [`Store::delete_many`] takes, as far as is known by now.
    fn names_a_delete(&self) -> usize {
        1
    }

    /// Removes what uploads that will never be finished have left where no listing shows it, when
    /// their processes have died, or when it is as old as `cutoff` by the store's clock and a day
    /// besides. Stores that do this by a rule of their own remove nothing.
    fn sweep(&self, _cutoff: UnixMillis) -> BoxFuture<'_, Result<SweepReport>> {
        ready(Ok(SweepReport::default())).boxed()
    }

    /// A handle begins to work here. While at least one does, a store may keep files and folders
    /// open between requests. Once the last use has ended the store keeps nothing open, until
    /// another one begins: requests that come meanwhile, of scans that outlive their handle, open
    /// what they need and close it again.
    fn begin_use(&self) -> StoreUse {
        StoreUse::unknown()
    }

    /// The handle that this store was made for ends: its own use of the store below ends too.
    fn end_use(&self) {}

    /// Tells others that a writer of `database` lives here, for as long as the answer is held, and
    /// ends what an earlier one told if `take_over`. Stores that know nothing of writers let
    /// everybody in.
    ///
    /// # Errors
    /// Conflict while another writer is known to be alive, with who it is; not if `take_over`.
    fn occupy(&self, _: DatabaseId, _take_over: bool) -> BoxFuture<'_, Result<Presence>> {
        ready(Ok(Presence::unknown())).boxed()
    }
}

/// The place of an ancestor that a store at `here` does not follow.
pub(crate) fn not_followed(here: Option<String>, location: &str) -> Error {
    Error::unsupported(
        "tables of a clone lie in a place that is not followed from here: a clone and its parents \
         lie in one bucket, in folders of one machine, or in the memory of one process, unless the \
         store option `clone_parents` names the others, as in clone_parents=s3://bucket/path",
    )
    .with("ancestor", location)
    .with("here", here.unwrap_or_else(|| "nowhere".to_owned()))
}

/// Deletes on their way at a time, where each is a request.
const DELETES_AT_ONCE: usize = 16;

/// What a sweep removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Uploads that were never finished.
    pub uploads: u64,
    /// What they had sent.
    pub bytes: u64,
}

/// Whether `name` lies in the folder of an ingest job.
#[must_use]
pub fn lies_in_folder(name: ObjectName, job: JobId) -> bool {
    match name {
        ObjectName::IngestManifest(of) | ObjectName::IngestSst(of, _) => of == job,
        _ => false,
    }
}

/// Whether `name` lies under `prefix`, one of [`siltstone_base::name::prefix`].
#[must_use]
pub fn lies_under(name: ObjectName, prefix: &str) -> bool {
    let folders: &[&str] = match name {
        ObjectName::Manifest(_) => &[prefix::MANIFEST],
        ObjectName::ManifestBoundary(_) => &[prefix::MANIFEST, prefix::MANIFEST_BOUNDARY],
        ObjectName::Wal(_) => &[prefix::WAL],
        ObjectName::WalBoundary(_) => &[prefix::WAL, prefix::WAL_BOUNDARY],
        ObjectName::Compacted(_) => &[prefix::COMPACTED],
        ObjectName::Compactions(_) | ObjectName::CompactionsBoundary(_) => &[prefix::COMPACTIONS],
        ObjectName::IngestManifest(_) | ObjectName::IngestSst(..) => &[prefix::INGEST],
        ObjectName::ProbeRecord | ObjectName::ProbeScratch(_) => &[prefix::PROBE],
        ObjectName::DamagedManifest(..)
        | ObjectName::DamagedWal(..)
        | ObjectName::DamagedTable(..) => &[prefix::DAMAGED],
    };
    folders.contains(&prefix)
}

/// A range of bytes, for people.
pub(crate) fn span(range: &Range<u64>) -> String {
    format!("bytes {} to {}", range.start, range.end)
}

/// Refuses a range that asks for nothing.
pub(crate) fn check_range(range: Option<&Range<u64>>) -> Result<()> {
    match range {
        Some(range) if range.start >= range.end => {
            Err(Error::invalid("an empty range was asked for").with("range", span(range)))
        }
        _ => Ok(()),
    }
}

/// What a read answers when the object ends before the range does.
pub(crate) fn too_short(name: ObjectName, range: &Range<u64>, bytes: u64) -> Error {
    Error::corruption("the object is shorter than what is asked of it")
        .with("object", name)
        .with("range", span(range))
        .with("bytes", bytes)
}
