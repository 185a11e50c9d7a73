//! A single object by its own URL, outside of any database: a table that is written or read alone.
//!
//! It is a [`SingleObject`], which knows reads, its length and uploads. Code that reads tables of a
//! database reads it through a [`Store`] in which every name means it.

use crate::buffers::Buffers;
use crate::env::Effects;
use crate::local::lone_file::LoneFile;
use crate::local::scratch_file::{self, ScratchFile};
use crate::memory::MemoryStore;
use crate::profile::Profile;
use crate::{Listed, LocalReads, PutAnswer, SingleObject, Store, Upload};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use siltstone_base::name::prefix;
use siltstone_base::{Error, ObjectName, Result, SstId};
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// An object that belongs to no database.
#[derive(Clone, Debug)]
pub struct LoneObject {
    object: Arc<dyn SingleObject>,
}

impl LoneObject {
    /// The file at `path`. A relative path is resolved against the current working directory once.
    ///
    /// # Errors
    /// Invalid for an empty path, or if there is no working directory.
    pub fn file(path: &Path, effects: &Effects) -> Result<LoneObject> {
        Ok(LoneObject { object: Arc::new(LoneFile::new(path, effects.clone())?) })
    }

    /// A file that need not outlive this process, in a folder that no other process writes to. It
    /// is never synced, and bypasses the page cache if possible. Reads use `buffers`
    /// ([`LoneObject::scratch_buffers`]).
    pub fn scratch_file(path: &Path, effects: &Effects, buffers: &Buffers) -> LoneObject {
        LoneObject { object: Arc::new(ScratchFile::new(path, effects.clone(), buffers.clone())) }
    }

    /// Buffers for parallel reads of scratch files. At most `most` buffers are kept.
    pub fn scratch_buffers(most: usize) -> Buffers {
        scratch_file::read_buffers(most)
    }

    /// The object of this name in the memory of this process, the same for all callers. Databases
    /// in memory have a separate namespace.
    #[must_use]
    pub fn in_memory(name: &str) -> LoneObject {
        LoneObject {
            object: Arc::new(MemoryObject(MemoryStore::named(&format!("\0object {name}")))),
        }
    }

    /// An object with the given bytes.
    #[must_use]
    pub fn of_bytes(bytes: Bytes) -> LoneObject {
        let store = MemoryStore::unnamed();
        // A store in memory answers immediately.
        let _ = store.put_if_absent(NAME, bytes).now_or_never();
        LoneObject { object: Arc::new(MemoryObject(store)) }
    }

    /// The object that a URL names.
    pub(crate) fn of(object: impl SingleObject + 'static) -> LoneObject {
        LoneObject { object: Arc::new(object) }
    }

    /// A store for reads, in which every name means this object.
    #[must_use]
    pub fn read_only(&self) -> Arc<dyn Store> {
        Arc::new(ReadOnly(Arc::clone(&self.object)))
    }

    /// Length in bytes; `None` if the object does not exist.
    ///
    /// # Errors
    /// Unavailable, Denied, as the store reports.
    pub async fn bytes(&self) -> Result<Option<u64>> {
        self.object.length().await
    }

    /// Begins to write the object. An existing object stays until the upload is finished, and is
    /// then replaced as a whole.
    ///
    /// # Errors
    /// Denied, NotFound for a missing folder, Unavailable.
    pub async fn upload(&self) -> Result<Box<dyn Upload>> {
        self.object.upload().await
    }
}

/// An object in memory, under one name of a store of its own.
struct MemoryObject(Arc<MemoryStore>);

/// The name of that object. It has no meaning.
const NAME: ObjectName = ObjectName::Compacted(SstId::NONE);

impl fmt::Debug for MemoryObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object in memory")
    }
}

impl SingleObject for MemoryObject {
    fn get(&self, range: Option<Range<u64>>) -> BoxFuture<'_, Result<Option<Bytes>>> {
        self.0.get(NAME, range)
    }

    fn get_now(&self, range: Option<Range<u64>>) -> Option<Result<Option<Bytes>>> {
        self.0.reads().get_now(NAME, range)
    }

    fn profile(&self) -> Profile {
        Profile::FOLDER
    }

    fn length(&self) -> BoxFuture<'_, Result<Option<u64>>> {
        let listed = self.0.list(prefix::COMPACTED, None);
        async move { Ok(listed.await?.first().map(|object| object.bytes)) }.boxed()
    }

    fn upload(&self) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        self.0.upload(NAME)
    }
}

/// The store through which code that reads tables of a database reads a single table: every name
/// means the object. Only reads reach it.
#[derive(Debug)]
struct ReadOnly(Arc<dyn SingleObject>);

fn refused() -> Error {
    Error::internal("a single object is only read as a store")
}

impl Store for ReadOnly {
    fn get(
        &self,
        _: ObjectName,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'_, Result<Option<Bytes>>> {
        self.0.get(range)
    }

    fn put_if_absent(&self, _: ObjectName, _: Bytes) -> BoxFuture<'_, PutAnswer> {
        ready(PutAnswer::Refused(refused())).boxed()
    }

    fn upload(&self, _: ObjectName) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        ready(Err(refused())).boxed()
    }

    fn list(&self, _: &'static str, _: Option<ObjectName>) -> BoxFuture<'_, Result<Vec<Listed>>> {
        ready(Err(refused())).boxed()
    }

    fn delete(&self, _: ObjectName) -> BoxFuture<'_, Result<()>> {
        ready(Err(refused())).boxed()
    }

    fn profile(&self) -> Profile {
        self.0.profile()
    }

    fn reads(&self) -> &dyn LocalReads {
        self
    }
}

impl LocalReads for ReadOnly {
    fn get_now(&self, _: ObjectName, range: Option<Range<u64>>) -> Option<Result<Option<Bytes>>> {
        self.0.get_now(range)
    }
}
