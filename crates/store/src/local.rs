//! Objects as files in a local folder.
//!
//! This is our own store and not a general one over a file system, for three reasons. An
//! acknowledged object must survive a power failure, so its file and folder are synced before the
//! answer. A cold read must cost one system call, so files stay open and are read at offsets. A
//! process that dies must not leave anything that another process takes for an object, so files are
//! written under a staging name. `folder` has the order of the steps. The file system must support
//! hard links, and one machine must decide name clashes among them. Local disks meet this; on a
//! network file system the server has to guarantee it.
//!
//! A database is identified by the first opened folder, not by its path (`parts`, rule E2).

mod address_space;
mod direct_io;
mod errors;
mod files;
mod folder;
pub(crate) mod lone_file;
mod lone_reader;
mod map;
mod mark;
mod parts;
mod reserve;
pub mod scratch;
pub(crate) mod scratch_file;
mod staging;
#[cfg(test)]
pub(crate) mod tests;

use crate::background::Background;
use crate::env::Effects;
use crate::in_use::StoreUse;
use crate::presence::{Occupant, Presence};
use crate::profile::Profile;
use crate::{
    Listed, LocalReads, Neighbours, Place, PutAnswer, Store, SweepReport, Upload, not_followed,
    place,
};
use bytes::Bytes;
use files::{Files, SystemFiles};
use folder::Folder;
use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::BoxFuture;
use mark::MarkAttempt;
use siltstone_base::{DatabaseId, Error, JobId, ObjectName, Result, UnixMillis};
use staging::StagedFile;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Number of bytes of an upload after which a sync begins beside the writing. The disk works while
/// a table is made, and the sync of the rest at the end takes some 10 ms. A smaller number would
/// cost more commits of the file system's journal.
const SYNC_BYTES: usize = 16 << 20;

/// Maximum number of pauses in which an opener waits for its turn, and their length. Openers of one
/// folder check one at a time whether a writer is alive, which takes a few system calls. An opener
/// that holds its turn for two seconds was stopped in the middle, and is a writer or was about to
/// become one.
const TURNS: u32 = 400;
const TURN: Duration = Duration::from_millis(5);

/// Number of pauses in which an opener waits for a handle of its own process. After a caller gave
/// up an opening, another thread may still be setting or releasing its mark.
const LEAVING: u32 = 20;

/// A store in a local folder, which need not exist before the first write.
pub struct LocalStore {
    folder: Arc<Folder>,
    effects: Effects,
    background: Background,
}

impl LocalStore {
    /// The store in `root`. A relative path is resolved once, against the current working
    /// directory. Removes, in the background, staged files that killed processes left behind.
    ///
    /// # Errors
    /// Invalid if the path is empty, or if there is no working directory.
    pub fn new(root: &Path, effects: Effects) -> Result<Arc<LocalStore>> {
        LocalStore::over(root, effects, Arc::new(SystemFiles))
    }

    fn over(root: &Path, effects: Effects, files: Arc<dyn Files>) -> Result<Arc<LocalStore>> {
        let root = std::path::absolute(root).map_err(|error| {
            Error::invalid("the database's path is empty or cannot be made absolute")
                .with("path", root.display())
                .caused_by(error)
        })?;
        let folder = Arc::new(Folder::new(root, files));
        let (sweeping, now) = (Arc::clone(&folder), effects.clock.now());
        let cutoff = UnixMillis(now.0.saturating_sub(staging::ABANDONED_MILLIS));
        // The next opener removes files that cannot be removed now.
        let sweep = move || drop(sweeping.sweep(cutoff));
        let store = LocalStore { folder, effects, background: Background::default() };
        store.in_background("sweep staging", sweep);
        Ok(Arc::new(store))
    }

    /// Starts work on the folder that [`Store::at_rest`] waits for.
    fn in_background(&self, name: &'static str, work: impl FnOnce() + Send + 'static) {
        let under_way = self.background.begin();
        let work = move || {
            work();
            drop(under_way);
        };
        self.effects.spawn.spawn_blocking(name, Box::new(work));
    }

    fn staged_name(&self) -> String {
        staging::new_name(self.effects.clock.now(), self.effects.random.next_u64())
    }
}

impl fmt::Debug for LocalStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file://{}", self.folder.root().display())
    }
}

impl Store for LocalStore {
    fn get(
        &self,
        name: ObjectName,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'_, Result<Option<Bytes>>> {
        let folder = Arc::clone(&self.folder);
        async move {
            match folder.read_here(name, range.as_ref()) {
                Some(read) => read,
                None => self.effects.blocking("read", move || folder.read(name, range)).await?,
            }
        }
        .boxed()
    }

    fn get_clamped(
        &self,
        name: ObjectName,
        range: Range<u64>,
    ) -> BoxFuture<'_, Result<Option<Bytes>>> {
        let folder = Arc::clone(&self.folder);
        async move {
            self.effects.blocking("read", move || folder.read_clamped(name, range)).await?
        }
        .boxed()
    }

    fn profile(&self) -> Profile {
        Profile::FOLDER
    }

    fn put_if_absent(&self, name: ObjectName, bytes: Bytes) -> BoxFuture<'_, PutAnswer> {
        let (folder, staged) = (Arc::clone(&self.folder), self.staged_name());
        async move {
            let create = move || folder.create(name, &bytes, &staged);
            let answer = self.effects.blocking("create", create).await;
            answer.unwrap_or_else(PutAnswer::Ambiguous)
        }
        .boxed()
    }

    fn upload(&self, name: ObjectName) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        let (folder, staged) = (Arc::clone(&self.folder), self.staged_name());
        async move {
            let stage = move || folder.begin(name, &staged);
            let file = Some(self.effects.blocking("stage", stage).await??);
            let upload: Box<dyn Upload> = Box::new(LocalUpload {
                folder: Arc::clone(&self.folder),
                effects: self.effects.clone(),
                name,
                file,
                unsynced: 0,
                syncing: None,
            });
            Ok(upload)
        }
        .boxed()
    }

    fn list(
        &self,
        prefix: &'static str,
        after: Option<ObjectName>,
    ) -> BoxFuture<'_, Result<Vec<Listed>>> {
        let folder = Arc::clone(&self.folder);
        async move { self.effects.blocking("list", move || folder.list(prefix, after)).await? }
            .boxed()
    }

    fn list_job(&self, job: JobId) -> BoxFuture<'_, Result<Vec<Listed>>> {
        let folder = Arc::clone(&self.folder);
        async move { self.effects.blocking("list", move || folder.list_job(job)).await? }.boxed()
    }

    fn names(
        &self,
        prefix: &'static str,
        after: Option<ObjectName>,
    ) -> BoxFuture<'_, Result<Vec<ObjectName>>> {
        let folder = Arc::clone(&self.folder);
        async move {
            match folder.names_here(prefix, after) {
                Some(names) => names,
                None => self.effects.blocking("list", move || folder.names(prefix, after)).await?,
            }
        }
        .boxed()
    }

    fn delete(&self, name: ObjectName) -> BoxFuture<'_, Result<()>> {
        let folder = Arc::clone(&self.folder);
        let delete = move || folder.delete(name).inspect(|()| folder.refill_reserve());
        async move { self.effects.blocking("delete", delete).await? }.boxed()
    }

    fn delete_many(&self, names: Vec<ObjectName>) -> BoxFuture<'_, Vec<Result<()>>> {
        let (folder, count) = (Arc::clone(&self.folder), names.len());
        let delete = move || {
            let deleted = names.into_iter().map(|name| folder.delete(name)).collect();
            folder.refill_reserve();
            deleted
        };
        async move {
            let answers = self.effects.blocking("delete many", delete).await;
            answers.unwrap_or_else(|died| vec![Err(died); count])
        }
        .boxed()
    }

    fn at_rest(&self) -> BoxFuture<'_, ()> {
        self.background.at_rest().boxed()
    }

    fn sweep(&self, cutoff: UnixMillis) -> BoxFuture<'_, Result<SweepReport>> {
        let folder = Arc::clone(&self.folder);
        async move { self.effects.blocking("sweep", move || folder.sweep(cutoff)).await? }.boxed()
    }

    fn reads(&self) -> &dyn LocalReads {
        self
    }

    fn place(&self) -> &dyn Place {
        self
    }

    fn neighbours(&self) -> &dyn Neighbours {
        self
    }
}

impl LocalReads for LocalStore {
    fn get_now(
        &self,
        name: ObjectName,
        range: Option<Range<u64>>,
    ) -> Option<Result<Option<Bytes>>> {
        Some(self.folder.read(name, range))
    }

    fn get_now_into(
        &self,
        name: ObjectName,
        range: Range<u64>,
        buffer: &mut Vec<u8>,
    ) -> Option<Result<bool>> {
        Some(self.folder.read_into(name, range, buffer))
    }

    fn lend(&self, name: ObjectName, bytes: u64) -> Option<Bytes> {
        self.folder.map(name, bytes)
    }
}

impl Place for LocalStore {
    fn location(&self) -> Option<String> {
        place::of_folder(self.folder.root())
    }

    /// Also if `location` is another path to the folder, through a symbolic link.
    fn stands_at(&self, location: &str) -> bool {
        if self.location().as_deref() == Some(location) {
            return true;
        }
        let Some(path) = place::folder(location) else { return false };
        let real = [path.as_path(), self.folder.root()].map(Path::canonicalize);
        matches!(real, [Ok(there), Ok(here)] if there == here)
    }

    fn begin_use(&self) -> StoreUse {
        let folder = Arc::clone(&self.folder);
        folder.begin_use();
        StoreUse::ending(move || folder.end_use())
    }

    fn occupy(&self, _: DatabaseId, take_over: bool) -> BoxFuture<'_, Result<Presence>> {
        async move {
            for turn in 0..TURNS {
                let (folder, staged) = (Arc::clone(&self.folder), self.staged_name());
                let mark = move || folder.mark(&staged, take_over);
                match self.effects.blocking("mark", mark).await? {
                    Ok(MarkAttempt::Set(mark)) => {
                        let folder = Arc::clone(&self.folder);
                        self.in_background("fill the reserve", move || folder.fill_reserve());
                        return Ok(Presence::held(mark));
                    }
                    Ok(MarkAttempt::Occupied(Occupant::Here)) if turn < LEAVING => {
                        self.effects.clock.sleep(TURN).await;
                    }
                    Ok(MarkAttempt::Occupied(occupant)) => return Err(occupant.refusal()),
                    Ok(MarkAttempt::Busy) => self.effects.clock.sleep(TURN).await,
                    // If the folder refuses writes, the writer's claim, which follows, reports the
                    // error.
                    Err(_) => return Ok(Presence::unknown()),
                }
            }
            if take_over { Ok(Presence::unknown()) } else { Err(Occupant::Unknown.refusal()) }
        }
        .boxed()
    }
}

impl Neighbours for LocalStore {
    fn follows(&self, location: &str) -> Result<()> {
        let followed = place::folder(location).map(drop);
        followed.ok_or_else(|| not_followed(self.location(), location))
    }

    fn neighbour(&self, location: &str) -> Result<Arc<dyn Store>> {
        let path = place::folder(location);
        let path = path.ok_or_else(|| not_followed(self.location(), location))?;
        Ok(LocalStore::new(&path, self.effects.clone())?)
    }
}

struct LocalUpload {
    folder: Arc<Folder>,
    effects: Effects,
    name: ObjectName,
    /// `None` once a write has failed or was cancelled.
    file: Option<StagedFile>,
    /// Number of bytes written since the last sync began.
    unsynced: usize,
    /// Receives the result of a sync that runs beside the writing.
    syncing: Option<oneshot::Receiver<io::Result<()>>>,
}

impl LocalUpload {
    fn take(&mut self) -> Result<StagedFile> {
        self.file.take().ok_or_else(|| {
            Error::internal("an upload continues after a failed write").with("object", self.name)
        })
    }

    /// Continues with `file` after `bytes` bytes were written to it.
    fn go_on(&mut self, file: StagedFile, bytes: usize) -> Result<()> {
        self.unsynced += bytes;
        if self.unsynced >= SYNC_BYTES && !file.is_direct() {
            self.sync_beside(&file)?;
        }
        self.file = Some(file);
        Ok(())
    }

    /// Begins to sync the written bytes, unless a sync is running.
    fn sync_beside(&mut self, file: &StagedFile) -> Result<()> {
        if let Some(syncing) = &mut self.syncing {
            match syncing.try_recv() {
                Ok(None) => return Ok(()),
                Ok(Some(synced)) => {
                    synced.map_err(|error| errors::explain(error, &file.path()))?;
                }
                Err(_) => return Err(Error::internal("a sync task ended without a result")),
            }
        }
        let (answer, answered) = oneshot::channel();
        let sync = file.syncing();
        self.effects.spawn.spawn_blocking("sync", Box::new(move || drop(answer.send(sync()))));
        (self.syncing, self.unsynced) = (Some(answered), 0);
        Ok(())
    }
}

impl Upload for LocalUpload {
    fn write(&mut self, chunk: Bytes) -> BoxFuture<'_, Result<()>> {
        async move {
            let mut file = self.take()?;
            let bytes = chunk.len();
            let write = move || {
                let written = file.write(&chunk);
                (written.map_err(|error| errors::explain(error, &file.path())), file)
            };
            let (written, file) = self.effects.blocking("write", write).await?;
            written?;
            self.go_on(file, bytes)
        }
        .boxed()
    }

    fn write_now(&mut self, chunk: &[u8]) -> Option<Result<()>> {
        let mut write = || {
            let mut file = self.take()?;
            file.write(chunk).map_err(|error| errors::explain(error, &file.path()))?;
            self.go_on(file, chunk.len())
        };
        Some(write())
    }

    fn hint_no_cache(&mut self) {
        if let Some(file) = &mut self.file {
            file.hint_no_cache();
        }
    }

    fn finish(mut self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        async move {
            let (file, folder, name) = (self.take()?, Arc::clone(&self.folder), self.name);
            if let Some(syncing) = self.syncing.take() {
                // A system reports only once that it could not write bytes, so the result of this
                // sync must not be dropped.
                let synced = syncing
                    .await
                    .map_err(|_| Error::internal("a sync task ended without a result"))?;
                synced.map_err(|error| errors::explain(error, &file.path()))?;
            }
            let complete = move || folder.complete(name, file);
            self.effects.blocking("complete", complete).await?
        }
        .boxed()
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        async move {
            let effects = self.effects.clone();
            effects.blocking("abort", move || drop(self.file)).await
        }
        .boxed()
    }
}
