//! A single object by its own URL, outside of any database: a table that is written or read alone.
//!
//! It is a [`Store`] in which every name means that object, and whose listing has at most one line.
//! Code that reads tables of a database therefore reads a lone table too.

use crate::buffers::Buffers;
use crate::env::Effects;
use crate::local::lone_file::LoneFile;
use crate::local::scratch_file::{self, ScratchFile};
use crate::memory::MemoryStore;
use crate::profile::Profile;
use crate::{LONE_OBJECT, Listed, PutAnswer, Store, Upload};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use siltstone_base::name::prefix;
use siltstone_base::{ObjectName, Result};
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// An object that belongs to no database.
#[derive(Clone, Debug)]
pub struct LoneObject {
    store: Arc<dyn Store>,
}

impl LoneObject {
    /// The file at `path`. A relative path is resolved against the current working directory once.
    ///
    /// # Errors
    /// Invalid for an empty path, or if there is no working directory.
    pub fn file(path: &Path, effects: &Effects) -> Result<LoneObject> {
        Ok(LoneObject { store: Arc::new(LoneFile::new(path, effects.clone())?) })
    }

    /// A file that need not outlive this process, in a folder that no other process writes to. It
    /// is never synced, and bypasses the page cache if possible. Reads use `buffers`
    /// ([`LoneObject::scratch_buffers`]).
    pub fn scratch_file(path: &Path, effects: &Effects, buffers: &Buffers) -> LoneObject {
        LoneObject { store: Arc::new(ScratchFile::new(path, effects.clone(), buffers.clone())) }
    }

    /// Buffers for parallel reads of scratch files. At most `most` buffers are kept.
    pub fn scratch_buffers(most: usize) -> Buffers {
        scratch_file::read_buffers(most)
    }

    /// The object of this name in the memory of this process, the same for all callers. Databases
    /// in memory have a separate namespace.
    #[must_use]
    pub fn in_memory(name: &str) -> LoneObject {
        LoneObject { store: Arc::new(Renaming(MemoryStore::named(&format!("\0object {name}")))) }
    }

    /// An object with the given bytes.
    #[must_use]
    pub fn of_bytes(bytes: Bytes) -> LoneObject {
        let store = MemoryStore::unnamed();
        // A store in memory answers immediately.
        let _ = store.put_if_absent(LONE_OBJECT, bytes).now_or_never();
        LoneObject { store: Arc::new(Renaming(store)) }
    }

    /// An object of a store in which every name means it.
    pub(crate) fn in_store(store: Arc<dyn Store>) -> LoneObject {
        LoneObject { store }
    }

    /// The store in which every name means this object.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Length in bytes; `None` if the object does not exist.
    ///
    /// # Errors
    /// Unavailable, Denied, as the store reports.
    pub async fn bytes(&self) -> Result<Option<u64>> {
        Ok(self.store.list(prefix::COMPACTED, None).await?.first().map(|object| object.bytes))
    }

    /// Begins to write the object. An existing object stays until the upload is finished, and is
    /// then replaced as a whole.
    ///
    /// # Errors
    /// Denied, NotFound for a missing folder, Unavailable.
    pub async fn upload(&self) -> Result<Box<dyn Upload>> {
        self.store.upload(LONE_OBJECT).await
    }
}

/// A store in which every name means the same object.
struct Renaming(Arc<MemoryStore>);

impl fmt::Debug for Renaming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object in memory")
    }
}

impl Store for Renaming {
    fn get(
        &self,
        _: ObjectName,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'_, Result<Option<Bytes>>> {
        self.0.get(LONE_OBJECT, range)
    }

    fn get_now(&self, _: ObjectName, range: Option<Range<u64>>) -> Option<Result<Option<Bytes>>> {
        self.0.get_now(LONE_OBJECT, range)
    }

    fn profile(&self) -> Profile {
        Profile::FOLDER
    }

    fn put_if_absent(&self, _: ObjectName, bytes: Bytes) -> BoxFuture<'_, PutAnswer> {
        self.0.put_if_absent(LONE_OBJECT, bytes)
    }

    fn upload(&self, _: ObjectName) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        self.0.upload(LONE_OBJECT)
    }

    fn list(
        &self,
        prefix: &'static str,
        after: Option<ObjectName>,
    ) -> BoxFuture<'_, Result<Vec<Listed>>> {
        self.0.list(prefix, after)
    }

    fn delete(&self, _: ObjectName) -> BoxFuture<'_, Result<()>> {
        self.0.delete(LONE_OBJECT)
    }
}
