//! Remote object stores: S3, GCS, Azure, through the `object_store` crate.
//!
//! Uses of that crate that need care:
//! - A conditional create uses a separate client that never repeats a request, because a repeated
//!   create reports a conflict with itself. Only success counts as certain.
//! - Reads check every length. The crate's own joining of ranges is not used (it panics on a
//!   truncated object), nor are ranges counted from the end (Azure has none).
//! - Listings are filtered and sorted here: stores differ in order and in what "after" means.
//! - Futures run on the runtime behind [`Spawn`](crate::env::Spawn), on any polling thread: the
//!   HTTP client needs its timer.

mod aws_profile;
mod build;
mod clients;
mod concurrency;
mod errors;
mod hedge;
mod limits;
mod object;
mod pace;
mod proof;
mod removal;
mod signed;
mod upload;

use crate::env::Effects;
use crate::options::StoreOptions;
use crate::place::Provider;
use crate::presence::{self, Presence};
use crate::profile::Profile;
use crate::supervise::caught;
use crate::{
    CopyAnswer, Listed, Neighbours, ObjectTag, Observed, Place, PutAnswer, Store, TaggedBytes,
    Upload, check_range, lies_in_folder, lies_under, not_followed, place, too_short,
};
use bytes::Bytes;
use clients::{ClientSettings, RemoteClients};
use errors::Explainer;
use futures::channel::oneshot;
use futures::future::{BoxFuture, Either, ready, select};
use futures::{FutureExt, TryStreamExt};
use object::LONE_OBJECT;
pub(crate) use object::RemoteObject;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStoreExt, PutMode, PutOptions};
use pace::StorePace;
pub(crate) use signed::{SendFailure, SignedClient};
use siltstone_base::name::prefix;
use siltstone_base::{DatabaseId, Error, JobId, ObjectName, Result, UnixMillis};
use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use tokio::sync::OnceCell;
use upload::RemoteUpload;

/// The objects of one database under a path in a bucket.
pub(crate) struct RemoteStore {
    shared: Arc<RemoteShared>,
}

struct RemoteShared {
    clients: Arc<RemoteClients>,
    /// Path of the database in the bucket, without leading and trailing slashes; empty for the
    /// bucket itself.
    root: String,
    /// Whether every name means the object at `root`, which is that of a [`RemoteObject`].
    is_lone: bool,
    /// Whether to try requests that delete many names.
    deletes_many: AtomicBool,
    /// Set once a listing came in another order than that of the names.
    lists_unordered: AtomicBool,
    /// Whether the first create of the proof has created the record, once it was answered.
    recorded: OnceCell<bool>,
    /// Set once the store was seen to honour the condition of a create.
    proven: OnceCell<()>,
    provider: Provider,
    explainer: Explainer,
    pace: Arc<StorePace>,
    effects: Effects,
}

impl RemoteStore {
    pub(crate) fn new(
        provider: Provider,
        bucket: &str,
        root: &str,
        options: &StoreOptions,
        environment: &[(String, String)],
        effects: Effects,
    ) -> Result<Arc<RemoteStore>> {
        let root = (root, false);
        let shared = RemoteShared::new(provider, bucket, root, options, environment, effects)?;
        Ok(Arc::new(RemoteStore { shared }))
    }
}

impl RemoteShared {
    fn new(
        provider: Provider,
        bucket: &str,
        (root, is_lone): (&str, bool),
        options: &StoreOptions,
        environment: &[(String, String)],
        effects: Effects,
    ) -> Result<Arc<RemoteShared>> {
        let pace = Arc::new(StorePace::new(Arc::clone(&effects.clock)));
        let settings = ClientSettings {
            provider,
            bucket: bucket.to_owned(),
            environment: environment.to_vec(),
            clock: Arc::clone(&effects.clock),
            pace: Arc::clone(&pace),
        };
        let clients = Arc::new(RemoteClients::new(settings, options)?);
        let explainer = Explainer::new(provider, bucket, &clients).with_pace(&pace);
        let shared = RemoteShared {
            clients,
            root: root.to_owned(),
            is_lone,
            deletes_many: AtomicBool::new(true),
            lists_unordered: AtomicBool::new(false),
            recorded: OnceCell::new(),
            proven: OnceCell::new(),
            provider,
            explainer,
            pace,
            effects,
        };
        // Reject a root that the store cannot have now, not at the first request.
        shared.path(ObjectName::ProbeRecord)?;
        Ok(Arc::new(shared))
    }
}

impl RemoteStore {
    /// The path of a database in the same bucket.
    fn neighbour_root(&self, location: &str) -> Result<String> {
        let shared = &self.shared;
        let same = |(provider, bucket, root): (Provider, &str, String)| {
            let same = provider == shared.provider && bucket == shared.explainer.bucket();
            same.then_some(root)
        };
        let root = place::in_bucket(location).and_then(same);
        root.ok_or_else(|| not_followed(self.location(), location))
    }
}

impl fmt::Debug for RemoteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.shared.explainer.place(), self.shared.root)
    }
}

impl RemoteShared {
    fn below_root(&self, relative: &str) -> Result<Path> {
        below(&self.root, relative)
    }

    fn path(&self, name: ObjectName) -> Result<Path> {
        if self.is_lone { parse_path(&self.root) } else { self.below_root(&name.to_string()) }
    }

    /// Starts `work` on the runtime. Dropping the returned future cancels the work.
    fn start<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = Result<T>> + Send + 'static {
        let (mut answer, answered) = oneshot::channel();
        let (clients, effects) = (Arc::clone(&self.clients), self.effects.clone());
        let work = async move {
            clients.refresh(&effects).await;
            work.await
        };
        let task = async move {
            let done = match select(pin!(caught(name, work)), pin!(answer.cancellation())).await {
                Either::Left((done, _)) => Some(done),
                Either::Right(_) => None,
            };
            // If the caller is gone, the result is dropped.
            let _ = done.map(|done| answer.send(done));
        };
        self.effects.spawn.spawn(name, task.boxed());
        answered.map(|answer| {
            let gone = || Error::unavailable("the runtime has ended before the store answered");
            answer.unwrap_or_else(|_| Err(gone()))
        })
    }

    async fn read(
        self: Arc<Self>,
        name: ObjectName,
        range: Option<Range<u64>>,
    ) -> Result<Option<TaggedBytes>> {
        check_range(range.as_ref())?;
        let path = self.path(name)?;
        let mut read_before = false;
        loop {
            match self.read_once(name, &path, range.clone()).await? {
                Read::Absent => return Ok(None),
                Read::Whole(bytes, tag) => return Ok(Some((bytes, tag))),
                Read::Short(_) if !read_before => read_before = true,
                Read::Short(bytes) => {
                    return Err(Error::corruption("the store sent fewer bytes than it announced")
                        .with("object", name)
                        .with("bytes", bytes));
                }
            }
        }
    }

    /// Reads the part of a range that lies in the object.
    async fn read_clamped(
        self: Arc<Self>,
        name: ObjectName,
        range: Range<u64>,
    ) -> Result<Option<Bytes>> {
        check_range(Some(&range))?;
        let path = self.path(name)?;
        let bounded = Some(GetRange::Bounded(range.clone()));
        let options = GetOptions { range: bounded, ..GetOptions::default() };
        let found = match self.clients.repeating().get_opts(&path, options).await {
            Ok(found) => found,
            Err(object_store::Error::NotFound { source, .. }) => {
                return self.explainer.absent(&*source).map(|()| None);
            }
            Err(error) => {
                return match self.unsatisfiable(name, &path, Some(range), error).await? {
                    Read::Whole(bytes, _) => Ok(Some(bytes)),
                    Read::Absent | Read::Short(_) => Ok(None),
                };
            }
        };
        let wanted = range.start..range.end.min(found.meta.size);
        let bytes = found.bytes().await.map_err(|error| self.explainer.explain(&error))?;
        if bytes.len() as u64 == wanted.end.saturating_sub(wanted.start) {
            return Ok(Some(bytes));
        }
        Err(Error::corruption("the store sent fewer bytes than it announced")
            .with("object", name)
            .with("bytes", bytes.len()))
    }

    async fn read_once(
        &self,
        name: ObjectName,
        path: &Path,
        range: Option<Range<u64>>,
    ) -> Result<Read> {
        let options =
            GetOptions { range: range.clone().map(GetRange::Bounded), ..GetOptions::default() };
        let found = match self.clients.repeating().get_opts(path, options).await {
            Ok(found) => found,
            Err(object_store::Error::NotFound { source, .. }) => {
                return self.explainer.absent(&*source).map(|()| Read::Absent);
            }
            Err(error) => return self.unsatisfiable(name, path, range, error).await,
        };
        let (size, sent, tag) = (found.meta.size, found.range.clone(), tag(&found.meta));
        let wanted = range.unwrap_or(0..size);
        if wanted.end > size {
            return Err(too_short(name, &wanted, size));
        }
        let bytes = found.bytes().await.map_err(|error| self.explainer.explain(&error))?;
        if sent == wanted && bytes.len() as u64 == wanted.end - wanted.start {
            return Ok(Read::Whole(bytes, tag));
        }
        Ok(Read::Short(bytes.len()))
    }

    /// Handles a failed read. The error for a range that begins at or past the end of the object
    /// differs from others only in its text, so the object's length is requested to prove it.
    async fn unsatisfiable(
        &self,
        name: ObjectName,
        path: &Path,
        range: Option<Range<u64>>,
        error: object_store::Error,
    ) -> Result<Read> {
        let explained = self.explainer.explain(&error);
        if let Some(range) = range
            && errors::may_be_past_the_end(&error.to_string())
            && let Ok(ObjectMeta { size, .. }) = self.clients.repeating().head(path).await
            && size < range.end
        {
            return Err(too_short(name, &range, size));
        }
        Err(explained)
    }

    async fn create(self: Arc<Self>, name: ObjectName, bytes: Bytes) -> PutAnswer {
        self.create_once(name, bytes).await
    }

    async fn create_once(&self, name: ObjectName, bytes: Bytes) -> PutAnswer {
        let path = match self.path(name) {
            Ok(path) => path,
            Err(error) => return PutAnswer::Refused(error),
        };
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        match self.clients.once().put_opts(&path, bytes.into(), options).await {
            Ok(_) => PutAnswer::Created,
            Err(error) => self.explainer.explain_create(&error),
        }
    }

    /// Copies from `root` in the same bucket. The target name is unique, so a repeated copy does no
    /// harm.
    async fn copy(self: Arc<Self>, root: String, from: ObjectName, to: ObjectName) -> Result<()> {
        let (source, to) = (below(&root, &from.to_string())?, self.path(to)?);
        match self.clients.repeating().copy(&source, &to).await {
            Err(object_store::Error::NotFound { source: cause, .. }) => {
                Err(self.explainer.no_source(&*cause).with("source", source))
            }
            copied => copied.map_err(|error| self.explainer.explain(&error)),
        }
    }

    async fn listing(
        self: Arc<Self>,
        prefix: &'static str,
        after: Option<ObjectName>,
    ) -> Result<Vec<Listed>> {
        let mut listed = self.folder(prefix.trim_end_matches('/'), after).await?;
        listed.retain(|object| {
            lies_under(object.name, prefix) && after.is_none_or(|after| object.name > after)
        });
        Ok(listed)
    }

    async fn listing_of(self: Arc<Self>, job: JobId) -> Result<Vec<Listed>> {
        let folder = format!("{}{job}", prefix::INGEST);
        let mut listed = self.folder(&folder, None).await?;
        listed.retain(|object| lies_in_folder(object.name, job));
        Ok(listed)
    }

    /// The objects in a folder below the root, in order; at least those after `after`.
    async fn folder(&self, relative: &str, after: Option<ObjectName>) -> Result<Vec<Listed>> {
        let folder = self.below_root(relative)?;
        let stream = match after.filter(|after| is_in_text_order(*after)) {
            Some(after) => {
                self.clients.repeating().list_with_offset(Some(&folder), &self.path(after)?)
            }
            None => self.clients.repeating().list(Some(&folder)),
        };
        let objects: Vec<ObjectMeta> =
            stream.try_collect().await.map_err(|error| self.explainer.explain(&error))?;
        let is_ordered = objects.is_sorted_by(|left, right| left.location < right.location);
        let mut listed: Vec<Listed> =
            objects.iter().filter_map(|object| self.listed(object)).collect();
        if !is_ordered {
            self.lists_unordered.store(true, Relaxed);
            // A tag proves a manifest only if its boundaries are listed after it.
            listed.iter_mut().for_each(|object| object.tag = None);
        }
        listed.sort_unstable_by_key(|object| object.name);
        listed.dedup_by_key(|object| object.name);
        Ok(listed)
    }

    /// The length of a single object.
    async fn length(&self) -> Result<Option<u64>> {
        match self.clients.repeating().head(&self.path(LONE_OBJECT)?).await {
            Ok(object) => Ok(Some(object.size)),
            Err(object_store::Error::NotFound { source, .. }) => {
                self.explainer.absent(&*source).map(|()| None)
            }
            Err(error) => Err(self.explainer.explain(&error)),
        }
    }

    fn listed(&self, object: &ObjectMeta) -> Option<Listed> {
        let path = object.location.as_ref();
        let relative = match self.root.as_str() {
            "" => path,
            root => path.strip_prefix(root)?.strip_prefix('/')?,
        };
        Some(line(ObjectName::parse(relative)?, object))
    }
}

fn below(root: &str, relative: &str) -> Result<Path> {
    let path = match root {
        "" => relative.to_owned(),
        root => format!("{root}/{relative}"),
    };
    parse_path(&path)
}

fn parse_path(path: &str) -> Result<Path> {
    Path::parse(path).map_err(|error| {
        Error::invalid("the store cannot have this path").with("path", path).caused_by(error)
    })
}

fn line(name: ObjectName, object: &ObjectMeta) -> Listed {
    let millis = object.last_modified.timestamp_millis();
    let modified = UnixMillis(u64::try_from(millis).unwrap_or(0));
    Listed { name, bytes: object.size, modified, tag: tag(object) }
}

/// The tag of an object. Listings of some stores have it without quotes. A weak one says only that
/// two objects are alike.
fn tag(object: &ObjectMeta) -> Option<ObjectTag> {
    let text = object.e_tag.as_deref()?;
    let text = text.trim_matches('"');
    (!text.is_empty() && !text.starts_with("W/")).then(|| ObjectTag::of(text))
}

/// The result of one read request.
enum Read {
    Absent,
    Whole(Bytes, Option<ObjectTag>),
    /// A different number of bytes than requested.
    Short(usize),
}

/// Whether the store's textual order agrees with that of [`ObjectName`] for all names that are
/// listed together with this one, so that the store may skip names before it.
fn is_in_text_order(name: ObjectName) -> bool {
    !matches!(
        name,
        ObjectName::IngestManifest(_)
            | ObjectName::IngestSst(..)
            | ObjectName::ProbeRecord
            | ObjectName::ProbeScratch(_)
            | ObjectName::DamagedManifest(..)
            | ObjectName::DamagedWal(..)
            | ObjectName::DamagedTable(..)
            | ObjectName::DamagedCompactions(..)
            | ObjectName::TwoPhaseNamespace
            | ObjectName::TwoPhaseSource(..)
    )
}

impl Store for RemoteStore {
    fn profile(&self) -> Profile {
        Profile { may_be_emptied: true, ..Profile::REMOTE }
    }

    fn observed(&self) -> Observed {
        let sent = self.shared.pace.sent();
        Observed {
            moved: sent.bytes_came(),
            lists_in_order: Some(!self.shared.lists_unordered.load(Relaxed)),
            sent: Some(sent),
            disk_cache: None,
        }
    }

    fn unanswered(&self) -> Option<String> {
        self.shared.clients.unanswered().or_else(|| self.shared.pace.unanswered())
    }

    fn get(
        &self,
        name: ObjectName,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'_, Result<Option<Bytes>>> {
        let read = Arc::clone(&self.shared).read(name, range);
        let read = self.shared.start("get", read);
        async move { Ok(read.await??.map(|(bytes, _)| bytes)) }.boxed()
    }

    fn get_tagged(&self, name: ObjectName) -> BoxFuture<'_, Result<Option<TaggedBytes>>> {
        let read = Arc::clone(&self.shared).read(name, None);
        let read = self.shared.start("get", read);
        async move { read.await? }.boxed()
    }

    fn get_clamped(
        &self,
        name: ObjectName,
        range: Range<u64>,
    ) -> BoxFuture<'_, Result<Option<Bytes>>> {
        let read = Arc::clone(&self.shared).read_clamped(name, range);
        let read = self.shared.start("get", read);
        async move { read.await? }.boxed()
    }

    fn ensure_conditions(&self) -> BoxFuture<'_, Result<()>> {
        if self.shared.proven.initialized() {
            return ready(Ok(())).boxed();
        }
        let shared = Arc::clone(&self.shared);
        let proof = self.shared.start("prove", async move { shared.ensure_conditions().await });
        async move { proof.await? }.boxed()
    }

    fn begin_proof(&self) -> BoxFuture<'_, Result<bool>> {
        let shared = Arc::clone(&self.shared);
        let begun = self.shared.start("prove", async move { shared.begin_proof().await });
        async move { begun.await? }.boxed()
    }

    fn put_if_absent(&self, name: ObjectName, bytes: Bytes) -> BoxFuture<'_, PutAnswer> {
        let create = Arc::clone(&self.shared).create(name, bytes);
        let create = self.shared.start("put", create);
        async move { create.await.unwrap_or_else(PutAnswer::Ambiguous) }.boxed()
    }

    fn upload(&self, name: ObjectName) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        let upload = RemoteUpload::new(Arc::clone(&self.shared), name);
        async move {
            let upload: Box<dyn Upload> = Box::new(upload?);
            Ok(upload)
        }
        .boxed()
    }

    fn list(
        &self,
        prefix: &'static str,
        after: Option<ObjectName>,
    ) -> BoxFuture<'_, Result<Vec<Listed>>> {
        let listing = Arc::clone(&self.shared).listing(prefix, after);
        let listing = self.shared.start("list", listing);
        async move { listing.await? }.boxed()
    }

    fn list_job(&self, job: JobId) -> BoxFuture<'_, Result<Vec<Listed>>> {
        let listing = Arc::clone(&self.shared).listing_of(job);
        let listing = self.shared.start("list", listing);
        async move { listing.await? }.boxed()
    }

    fn delete_many(&self, names: Vec<ObjectName>) -> BoxFuture<'_, Vec<Result<()>>> {
        let count = names.len();
        let remove = Arc::clone(&self.shared).remove_many(names);
        let remove = self.shared.start("delete many", remove);
        async move { remove.await.unwrap_or_else(|over| vec![Err(over); count]) }.boxed()
    }

    fn names_a_delete(&self) -> usize {
        self.shared.names_a_delete()
    }

    fn delete(&self, name: ObjectName) -> BoxFuture<'_, Result<()>> {
        let remove = Arc::clone(&self.shared).remove(name);
        let remove = self.shared.start("delete", remove);
        async move { remove.await? }.boxed()
    }

    fn place(&self) -> &dyn Place {
        self
    }

    fn neighbours(&self) -> &dyn Neighbours {
        self
    }
}

impl Place for RemoteStore {
    fn location(&self) -> Option<String> {
        let shared = &self.shared;
        Some(format!("{}/{}", shared.explainer.place(), shared.root))
    }

    /// Writers of other processes cannot be seen.
    fn occupy(&self, database: DatabaseId, take_over: bool) -> BoxFuture<'_, Result<Presence>> {
        let seat = presence::seat(format!("{self:?}"), database);
        ready(seat.take(take_over)).boxed()
    }
}

impl Neighbours for RemoteStore {
    fn follows(&self, location: &str) -> Result<()> {
        self.neighbour_root(location).map(drop)
    }

    fn neighbour(&self, location: &str) -> Result<Arc<dyn Store>> {
        let (shared, root) = (&self.shared, self.neighbour_root(location)?);
        let shared = RemoteShared {
            clients: Arc::clone(&shared.clients),
            root,
            is_lone: false,
            deletes_many: AtomicBool::new(true),
            lists_unordered: AtomicBool::new(false),
            recorded: OnceCell::new(),
            proven: OnceCell::new(),
            provider: shared.provider,
            explainer: shared.explainer.clone(),
            pace: Arc::clone(&shared.pace),
            effects: shared.effects.clone(),
        };
        Ok(Arc::new(RemoteStore { shared: Arc::new(shared) }))
    }

    fn copy_from(&self, location: &str, from: ObjectName, to: ObjectName) -> CopyAnswer<'_> {
        let Ok(root) = self.neighbour_root(location) else { return ready(Ok(false)).boxed() };
        let copy = Arc::clone(&self.shared).copy(root, from, to);
        let copy = self.shared.start("copy", copy);
        async move { copy.await?.map(|()| true) }.boxed()
    }
}
