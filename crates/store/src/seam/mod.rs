//! The store seam. A [`Store`] is bound to the root of one database, and the names in it are
//! [`ObjectName`]s, never text.
//!
//! The conformance suite in `tests/` checks the contract: reads see completed creates
//! (read-after-write); of racing creates of one name at most one is `Created`; objects never change
//! once created; a listing that ends without an error is complete, except for concurrent creates.

mod table_read;

use crate::in_use::StoreUse;
use crate::presence::Presence;
use crate::profile::Profile;
use crate::sent::SentRequests;
use bytes::Bytes;
use futures::future::{BoxFuture, ready};
use futures::{FutureExt, StreamExt, stream};
use siltstone_base::WalStore;
use siltstone_base::name::prefix;
use siltstone_base::{DatabaseId, Error, JobId, ObjectName, Result, SstId, UnixMillis};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
pub use table_read::{CacheUse, DiskCacheCounts, TableRead};

/// A store's answer to a conditional create. It is not an outcome yet:
/// [`create`](crate::conditional::create) reads the object back and decides.
#[derive(Clone, Debug)]
pub enum PutAnswer {
    /// The store reports that it created the object.
    Created,
    /// The store reports that the object exists. It may be ours, or not exist at all (a bare 409).
    Exists,
    /// The store refused before it did anything (no permission, too large).
    Refused(Error),
    /// Lost connection, timeout, 5xx: the object may be stored now or later.
    Ambiguous(Error),
}

/// One line of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The name of the object.
    pub name: ObjectName,
    /// Its length.
    pub bytes: u64,
    /// When it was stored, by the store's clock.
    pub modified: UnixMillis,
}

/// An upload in progress. Nothing is visible under the name before `finish` succeeds.
pub trait Upload: Send {
    /// Hands over the next bytes. May wait until earlier ones are sent, which bounds memory.
    fn write(&mut self, chunk: Bytes) -> BoxFuture<'_, Result<()>>;
    /// As [`Upload::write`], for stores that accept bytes without waiting for a network (a local
    /// folder). The caller hands bytes over while they are in the caches of its core. `None` means
    /// that nothing was written and [`Upload::write`] has to be used.
    fn write_now(&mut self, _chunk: &[u8]) -> Option<Result<()>> {
        None
    }
    /// Tells the store that the bytes are not read soon and exceed memory, so that a store on this
    /// machine does not cache them. Called before the first write, if at all.
    fn passes_by(&mut self) {}
    /// Completes the object, which is durable then. After an error its state is unknown.
    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<()>>;
    /// Aborts the upload and frees the sent bytes, as far as the store allows.
    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>>;
}

/// A step about the identity of a separate log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogIdentityStep {
    /// Check that it is there. All uses of the log do so too.
    Check,
    /// Use the log without it, where it is missing: for a repair that continues without what is
    /// lost, and to remove a destroyed database.
    Ignore,
    /// Create it again, at the end of such a repair.
    Renew,
}

/// Whether a store has copied an object by itself.
pub type CopyAnswer<'a> = BoxFuture<'a, Result<bool>>;

/// The objects under the root of one database.
pub trait Store: Send + Sync + fmt::Debug {
    /// The bytes of `range`, or of the whole object; `None` if it does not exist. Returns exactly
    /// the requested length; Corruption if the object is shorter. An empty range is Invalid,
    /// because stores treat it differently.
    fn get(
        &self,
        name: ObjectName,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'_, Result<Option<Bytes>>>;

    /// As [`Store::get`] with a range that has to begin in the object: the answer ends with the
    /// object. For stores that other stores are built over.
    ///
    /// # Errors
    /// As [`Store::get`]; Unsupported for a store that no other one is built over.
    fn get_clamped(
        &self,
        name: ObjectName,
        _range: Range<u64>,
    ) -> BoxFuture<'_, Result<Option<Bytes>>> {
        let refused = Error::unsupported("this store reads no ranges that go beyond an object");
        Box::pin(ready(Err(refused.with("object", name))))
    }

    /// Whether the bytes below are encrypted, so that no copy of what is read here may be stored.
    fn is_encrypted(&self) -> bool {
        false
    }

    /// As [`Store::get`], for stores that answer without waiting for a network (memory, local
    /// folder); `None` if this store cannot.
    fn get_now(
        &self,
        _name: ObjectName,
        _range: Option<Range<u64>>,
    ) -> Option<Result<Option<Bytes>>> {
        None
    }

    /// As [`Store::get_now`], but reads into `buffer`, whose content is then exactly the bytes of
    /// `range`. Returns whether the object exists. For stores that would copy the bytes anyway, so
    /// that repeated reads use the same memory. `None` means that [`Store::get_now`] has to be
    /// used.
    fn get_now_into(
        &self,
        _name: ObjectName,
        _range: Range<u64>,
        _buffer: &mut Vec<u8>,
    ) -> Option<Result<bool>> {
        None
    }

    /// As [`Store::get`], for bytes of a table, which a cache below this seam may hold. They are
    /// those of the object, however damaged the cache is.
    fn get_table(&self, read: TableRead) -> BoxFuture<'_, Result<Option<Bytes>>> {
        self.get(read.name, Some(read.range))
    }

    /// The counts of the disk cache of the handle; `None` without one.
    fn disk_cache(&self) -> Option<DiskCacheCounts> {
        None
    }

    /// The whole object of `bytes` bytes as mapped memory: the system reads pages on access and
    /// reclaims them when it needs room. Nothing is read or copied yet. For tables only, because
    /// their bytes and length never change. While the result lives, the bytes stay, even if the
    /// object is deleted.
    ///
    /// `None` if this store has no such memory, has no room for more of it, or has no such object.
    /// [`Store::get`] has to be used then, and reports errors.
    fn lend(&self, _name: ObjectName, _bytes: u64) -> Option<Bytes> {
        None
    }

    /// The cost profile of the store.
    fn profile(&self) -> Profile {
        Profile::REMOTE
    }

    /// Whether the location may be emptied and get another database while handles go on writing to
    /// it. That is so for a prefix of an object store. A removed folder differs from a later one at
    /// its path, and memory ends with its process.
    fn may_be_emptied(&self) -> bool {
        false
    }

    /// The request that has waited longest for an answer, or the last one that was given up, as
    /// text. `None` if all were answered, and for stores without requests.
    fn unanswered(&self) -> Option<String> {
        None
    }

    /// Bytes of answers so far, including those in flight. A call continues past its deadline while
    /// a long object arrives. 0 for stores that do not count them.
    fn moved(&self) -> u64 {
        0
    }

    /// Whether the listings so far came in the order of the names, before this seam sorted them;
    /// `None` for stores that make their listings themselves.
    fn lists_in_order(&self) -> Option<bool> {
        None
    }

    /// Counts of the requests of its clients; `None` for stores without clients, whose requests are
    /// counted at this seam.
    fn sent(&self) -> Option<Arc<SentRequests>> {
        None
    }

    /// The URL by which another process finds this store; `None` if there is none.
    fn location(&self) -> Option<String> {
        None
    }

    /// Whether `location`, an earlier result of [`Store::location`], is the place of this store.
    fn stands_at(&self, location: &str) -> bool {
        self.location().as_deref() == Some(location)
    }

    /// Checks that the place of an ancestor, which a manifest names, may be followed from here. A
    /// manifest may come from anywhere, so the store decides: it allows places of its own kind and
    /// bucket, and those in its options.
    ///
    /// # Errors
    /// Unsupported for every other place.
    fn follows(&self, location: &str) -> Result<()> {
        Err(not_followed(self.location(), location))
    }

    /// The store of another database at `location`, with the same clients.
    ///
    /// # Errors
    /// As [`Store::follows`].
    fn neighbour(&self, location: &str) -> Result<Arc<dyn Store>> {
        Err(not_followed(self.location(), location))
    }

    /// Has the store copy an object of the database at `location` to `to`, without moving its bytes
    /// through this process. `to` is a name as for [`Store::upload`]. Returns `false` if this store
    /// cannot copy.
    fn copy_from(&self, _location: &str, _from: ObjectName, _to: ObjectName) -> CopyAnswer<'_> {
        ready(Ok(false)).boxed()
    }

    /// The kind of transactional store that commits creates (`sqlite`, `postgres`, …); `None` for a
    /// store with conditional creates of its own.
    fn records(&self) -> Option<&'static str> {
        None
    }

    /// Takes up the log of `database`, whose newest manifest has this record of a separate store of
    /// the log. Called before the log of a database is used.
    ///
    /// # Errors
    /// Unsupported if the log lies in another place than this store looks in.
    fn follow_log(&self, _: DatabaseId, recorded: Option<&WalStore>) -> Result<()> {
        let Some(recorded) = recorded else { return Ok(()) };
        let error = Error::unsupported(
            "the log of this database lies in a store of its own: give its URL as the store \
             option `wal_url`",
        );
        let place = recorded.location.as_deref();
        Err(place.into_iter().fold(error, |error, place| error.with("wal_url", place)))
    }

    /// Creates the identity of the log of a new database in the separate store of the log, and
    /// returns its record; `None` if the log lies beside the other objects. May be repeated.
    ///
    /// # Errors
    /// Unsupported if that store ignores the condition of creates; errors of the store.
    fn create_log(&self, _: DatabaseId) -> BoxFuture<'_, Result<Option<WalStore>>> {
        ready(Ok(None)).boxed()
    }

    /// Takes a step about the identity of a separate log that was taken up. Without one, does
    /// nothing.
    ///
    /// # Errors
    /// Corruption, for a check, if the log is lost, and otherwise if another object is in place of
    /// the identity; Conflict if the log belongs to a database of which this is a copy; errors of
    /// the store.
    fn log_identity(&self, _: LogIdentityStep) -> BoxFuture<'_, Result<()>> {
        ready(Ok(())).boxed()
    }

    /// The URL of the separate store of the log that was taken up; `None` without one.
    fn log_location(&self) -> Option<String> {
        None
    }

    /// As [`Store::sent`], of a separate store of the log, if they are not among those of
    /// [`Store::sent`].
    fn log_sent(&self) -> Option<Arc<SentRequests>> {
        None
    }

    /// Checks, before the first create of a handle, that the store honours the condition of
    /// creates. Stores that decide by themselves need no proof.
    ///
    /// # Errors
    /// Unsupported for a store that ignores the condition; errors of the store.
    fn ensure_conditions(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(ready(Ok(())))
    }

    /// Creates the object if the name is free. It is durable once `Created` is returned. Never
    /// retried after a failure below this seam. A short create may be hedged (`remote/hedge.rs`),
    /// with the same attempt id.
    fn put_if_absent(&self, name: ObjectName, bytes: Bytes) -> BoxFuture<'_, PutAnswer>;

    /// Begins an upload under a unique name (a fresh ULID). It is not conditional.
    fn upload(&self, name: ObjectName) -> BoxFuture<'_, Result<Box<dyn Upload>>>;

    /// All objects whose names start with `prefix` (one of [`siltstone_base::name::prefix`]) and
    /// come after `after`, in the order of [`ObjectName`]. Names that are not ours are skipped.
    fn list(
        &self,
        prefix: &'static str,
        after: Option<ObjectName>,
    ) -> BoxFuture<'_, Result<Vec<Listed>>>;

    /// As [`Store::list`], for the folder of one job. Other folders are not listed, because there
    /// may be many jobs and many ingested tables that are not merged.
    fn list_job(&self, job: JobId) -> BoxFuture<'_, Result<Vec<Listed>>> {
        let listed = self.list(prefix::INGEST, None);
        let of_job = move |object: &Listed| lies_in_folder(object.name, job);
        async move { Ok(listed.await?.into_iter().filter(of_job).collect()) }.boxed()
    }

    /// As [`Store::list`], names only: a local folder reads lengths and ages file by file.
    fn names(
        &self,
        prefix: &'static str,
        after: Option<ObjectName>,
    ) -> BoxFuture<'_, Result<Vec<ObjectName>>> {
        let listed = self.list(prefix, after);
        async move { Ok(listed.await?.into_iter().map(|object| object.name).collect()) }.boxed()
    }

    /// Deletes by name. Deleting an object that does not exist succeeds.
    fn delete(&self, name: ObjectName) -> BoxFuture<'_, Result<()>>;

    /// Deletes many objects, in any order, with as few requests as the store allows. Returns one
    /// result per name, in the order of the names. A failure does not stop the others.
    fn delete_many(&self, names: Vec<ObjectName>) -> BoxFuture<'_, Vec<Result<()>>> {
        let deletes = stream::iter(names).map(|name| self.delete(name));
        deletes.buffered(DELETES_AT_ONCE).collect().boxed()
    }

    /// Names per request of [`Store::delete_many`], as far as known.
    fn names_a_delete(&self) -> usize {
        1
    }

    /// Removes remains of unfinished uploads that no listing shows, if their process has died, or
    /// if they are older than `cutoff` by the store's clock and a day. Stores that do this by a
    /// lifecycle rule remove nothing.
    fn sweep(&self, _cutoff: UnixMillis) -> BoxFuture<'_, Result<SweepReport>> {
        ready(Ok(SweepReport::default())).boxed()
    }

    /// Begins the use of this store by a handle. While there is a use, a store may keep files and
    /// folders open between requests. After the last use has ended it keeps nothing open until
    /// another one begins; later requests, of scans that outlive their handle, open files and close
    /// them again.
    fn begin_use(&self) -> StoreUse {
        StoreUse::unknown()
    }

    /// Ends the use of the underlying store by the handle for which this store was made.
    fn end_use(&self) {}

    /// Shows other openers that a writer of `database` lives here, while the result is held. With
    /// `take_over` it ends the presence of an earlier writer. Stores that cannot know admit every
    /// writer.
    ///
    /// # Errors
    /// Conflict, with its identity, while another writer is known to be alive; not with
    /// `take_over`.
    fn occupy(&self, _: DatabaseId, _take_over: bool) -> BoxFuture<'_, Result<Presence>> {
        ready(Ok(Presence::unknown())).boxed()
    }
}

/// The error for an ancestor at a place that a store at `here` does not follow.
pub(crate) fn not_followed(here: Option<String>, location: &str) -> Error {
    Error::unsupported(
        "tables of a clone lie at a place that is not followed from here: a clone and its parents \
         must lie in one bucket, in folders of one machine, or in the memory of one process, \
         unless the store option `clone_parents` names other places, as in \
         clone_parents=s3://bucket/path",
    )
    .with("ancestor", location)
    .with("here", here.unwrap_or_else(|| "nowhere".to_owned()))
}

/// Number of parallel deletes, if each is a request.
pub(crate) const DELETES_AT_ONCE: usize = 16;

/// What a sweep has removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Unfinished uploads.
    pub uploads: u64,
    /// Bytes that they had sent.
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
        ObjectName::TwoPhaseNamespace | ObjectName::TwoPhaseSource(..) => &[prefix::TWO_PHASE],
        ObjectName::EncryptionKey(_) => &[prefix::ENCRYPTION],
        ObjectName::LogIdentity => &[prefix::LOG],
    };
    folders.contains(&prefix)
}

/// A byte range as text.
pub fn span(range: &Range<u64>) -> String {
    format!("bytes {} to {}", range.start, range.end)
}

/// Refuses an empty range.
pub(crate) fn check_range(range: Option<&Range<u64>>) -> Result<()> {
    match range {
        Some(range) if range.start >= range.end => {
            Err(Error::invalid("an empty range was requested").with("range", span(range)))
        }
        _ => Ok(()),
    }
}

/// The error of a read of a range that ends after the object.
pub(crate) fn too_short(name: ObjectName, range: &Range<u64>, bytes: u64) -> Error {
    Error::corruption("the object is shorter than the requested range")
        .with("object", name)
        .with("range", span(range))
        .with("bytes", bytes)
}

/// The name with which the object of a store that has only one is requested. It has no meaning.
pub(crate) const LONE_OBJECT: ObjectName = ObjectName::Compacted(SstId::NONE);
