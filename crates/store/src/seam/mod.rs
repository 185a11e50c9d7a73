//! The store seam. A [`Store`] is bound to the root of one database, and the names in it are
//! [`ObjectName`]s, never text.
//!
//! A store has to implement five methods. The other methods about objects answer from these five by
//! default; a store overrides them to send fewer requests. Everything else is a *facet*: a trait
//! with defaults for a store that knows nothing of it, or a value. A store over another one returns
//! that store's facet unless it changes it ([`passed_on!`](crate::passed_on)).
//!
//! The conformance suite in `tests/` checks the contract: reads see completed creates
//! (read-after-write); of racing creates of one name at most one is `Created`; objects never change
//! once created; a listing that ends without an error is complete, except for concurrent creates.

mod local_reads;
mod log_store;
mod observed;
mod passed_on;
mod place;
mod single_object;
mod table_read;

use crate::profile::Profile;
use bytes::Bytes;
use futures::future::{BoxFuture, ready};
use futures::{FutureExt, StreamExt, stream};
pub use local_reads::LocalReads;
use local_reads::NoLocalReads;
use log_store::LogBeside;
pub use log_store::{LogIdentityStep, LogStore};
pub use observed::Observed;
use place::Nowhere;
pub(crate) use place::not_followed;
pub use place::{CopyAnswer, Neighbours, Place};
use siltstone_base::name::prefix;
use siltstone_base::{Error, JobId, ObjectName, Result, UnixMillis};
pub use single_object::SingleObject;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
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
    /// Its tag, if the store's listings have tags.
    pub tag: Option<ObjectTag>,
}

/// Tells an object from others that had the same name earlier or later: the entity tag of an object
/// store. Equal tags of one name mean the same object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectTag(u64);

impl ObjectTag {
    /// The tag that the store names `text`.
    #[must_use]
    pub fn of(text: &str) -> ObjectTag {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        ObjectTag(hasher.finish())
    }

    /// The tag of the object that its store has given this number.
    #[must_use]
    pub const fn numbered(number: u64) -> ObjectTag {
        ObjectTag(number)
    }
}

/// A whole object, and its tag if the store sends tags.
pub type TaggedBytes = (Bytes, Option<ObjectTag>);

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
    fn hint_no_cache(&mut self) {}
    /// Completes the object, which is durable then. After an error its state is unknown.
    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<()>>;
    /// Aborts the upload and frees the sent bytes, as far as the store allows.
    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>>;
}

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

    /// As [`Store::get`], the whole object with its tag, if the store sends tags.
    fn get_tagged(&self, name: ObjectName) -> BoxFuture<'_, Result<Option<TaggedBytes>>> {
        let get = self.get(name, None);
        async move { Ok(get.await?.map(|bytes| (bytes, None))) }.boxed()
    }

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

    /// As [`Store::get`], for bytes of a table, which a cache below this seam may hold. They are
    /// those of the object, however damaged the cache is.
    fn get_table(&self, read: TableRead) -> BoxFuture<'_, Result<Option<Bytes>>> {
        self.get(read.name, Some(read.range))
    }

    /// The cost profile of the store.
    fn profile(&self) -> Profile {
        Profile::REMOTE
    }

    /// The request that has waited longest for an answer, or the last one that was given up or
    /// refused, as text. `None` if all succeeded, and for stores without requests.
    fn unanswered(&self) -> Option<String> {
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

    /// Sends the first request of [`Store::ensure_conditions`], if it was not sent before. Returns
    /// whether that request has created the record of the proof just now: its date is then the
    /// store's time.
    ///
    /// # Errors
    /// Errors of the store; the proof repeats the request.
    fn begin_proof(&self) -> BoxFuture<'_, Result<bool>> {
        Box::pin(ready(Ok(false)))
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

    /// Waits for the work that this store has begun in the background, such as the copies of
    /// creates that it has answered, but not for work that begins later. A closed handle then
    /// changes nothing any more. Work that fails is left to the next process.
    fn at_rest(&self) -> BoxFuture<'_, ()> {
        ready(()).boxed()
    }

    /// The observations of this store so far.
    fn observed(&self) -> Observed {
        Observed::default()
    }

    /// Reads that need no network. Only a store that changes nothing about reads returns those of
    /// the store below it.
    fn reads(&self) -> &dyn LocalReads {
        &NoLocalReads
    }

    /// The place of this store.
    fn place(&self) -> &dyn Place {
        &Nowhere
    }

    /// Stores of other databases that are reached from here.
    fn neighbours(&self) -> &dyn Neighbours {
        &Nowhere
    }

    /// The place of the log of the database.
    fn log(&self) -> &dyn LogStore {
        &LogBeside
    }
}

/// Number of parallel deletes, if each is a request.
pub(crate) const DELETES_AT_ONCE: usize = 16;

/// The objects that a sweep has removed.
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
        | ObjectName::DamagedTable(..)
        | ObjectName::DamagedCompactions(..) => &[prefix::DAMAGED],
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
pub(crate) fn too_short(object: impl fmt::Display, range: &Range<u64>, bytes: u64) -> Error {
    Error::corruption("the object is shorter than the requested range")
        .with("object", object)
        .with("range", span(range))
        .with("bytes", bytes)
}
