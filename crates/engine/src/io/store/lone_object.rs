//! One object by its own URL, outside of any database: a table that was written alone, or that is
//! looked at alone.
//!
//! Below is a [`Store`] in which every name means that one object, and whose listing has at most
//! one line. So everything that reads tables of a database reads a lone one with the same code.

use super::local::lone_file::LoneFile;
use super::local::scratch_file::{self, ScratchFile};
use super::memory::MemoryStore;
use super::{Listed, PutAnswer, Store, Upload};
use crate::io::buffers::Buffers;
use crate::io::env::Effects;
use crate::io::store::profile::Profile;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use siltstone_base::name::prefix;
use siltstone_base::{ObjectName, Result, SstId};
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The name that a lone object is asked for by; it means nothing.
pub(super) const NAME: ObjectName = ObjectName::Compacted(SstId::NONE);

/// An object that belongs to no database.
#[derive(Clone, Debug)]
pub struct LoneObject {
    store: Arc<dyn Store>,
}

impl LoneObject {
    /// The file at `path`; a relative path is taken from the present working directory once and
    /// for all.
    ///
    /// # Errors
    /// Invalid for an empty path, or where there is no working directory.
    pub fn file(path: &Path, effects: &Effects) -> Result<LoneObject> {
        Ok(LoneObject { store: Arc::new(LoneFile::new(path, effects.clone())?) })
    }

    /// A file that need not outlive this process, in a folder that nobody else writes to: never
    /// synced, and around the cache of pages where that can be; read into such buffers
    /// ([`LoneObject::scratch_buffers`]).
    pub(crate) fn scratch_file(path: &Path, effects: &Effects, buffers: &Buffers) -> LoneObject {
        LoneObject { store: Arc::new(ScratchFile::new(path, effects.clone(), buffers.clone())) }
    }

    /// Memory for what is read of scratch files side by side, of which so many pieces are kept.
    pub(crate) fn scratch_buffers(most: usize) -> Buffers {
        scratch_file::read_buffers(most)
    }

    /// The object of this name in the memory of this process, the same one for everybody in it.
    /// Databases in memory have names of their own.
    #[must_use]
    pub fn in_memory(name: &str) -> LoneObject {
        LoneObject { store: Arc::new(Renaming(MemoryStore::named(&format!("\0object {name}")))) }
    }

    /// Bytes that are at hand.
    #[must_use]
    pub fn of_bytes(bytes: Bytes) -> LoneObject {
        let store = MemoryStore::unnamed();
        // Memory answers at once.
        let _ = store.put_if_absent(NAME, bytes).now_or_never();
        LoneObject { store: Arc::new(Renaming(store)) }
    }

    /// The object of a store in which every name means it.
    pub(super) fn in_store(store: Arc<dyn Store>) -> LoneObject {
        LoneObject { store }
    }

    /// The store in which every name means this object.
    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Length in bytes; `None` when there is no such object.
    ///
    /// # Errors
    /// Unavailable, Denied, as the store says.
    pub async fn bytes(&self) -> Result<Option<u64>> {
        Ok(self.store.list(prefix::COMPACTED, None).await?.first().map(|object| object.bytes))
    }

    /// Begins to write it. What is there stays until the upload is finished, and is replaced whole.
    ///
    /// # Errors
    /// Denied, NotFound for a missing folder, Unavailable.
    pub async fn upload(&self) -> Result<Box<dyn Upload>> {
        self.store.upload(NAME).await
    }
}

/// A store whose names all mean one.
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
        self.0.get(NAME, range)
    }

    fn get_now(&self, _: ObjectName, range: Option<Range<u64>>) -> Option<Result<Option<Bytes>>> {
        self.0.get_now(NAME, range)
    }

    fn profile(&self) -> Profile {
        Profile::FOLDER
    }

    fn put_if_absent(&self, _: ObjectName, bytes: Bytes) -> BoxFuture<'_, PutAnswer> {
        self.0.put_if_absent(NAME, bytes)
    }

    fn upload(&self, _: ObjectName) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        self.0.upload(NAME)
    }

    fn list(
        &self,
        prefix: &'static str,
        after: Option<ObjectName>,
    ) -> BoxFuture<'_, Result<Vec<Listed>>> {
        self.0.list(prefix, after)
    }

    fn delete(&self, _: ObjectName) -> BoxFuture<'_, Result<()>> {
        self.0.delete(NAME)
    }
}
