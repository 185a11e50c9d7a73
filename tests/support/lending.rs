//! A store in memory that lends its tables, as a local folder lends maps, independent of the kind
//! of file system. It counts the lent objects, and can lend damaged ones.

use bytes::Bytes;
use futures::future::BoxFuture;
use siltstone::store::memory::MemoryStore;
use siltstone::store::{Listed, LocalReads, PutAnswer, Store, SweepReport, Upload};
use siltstone_base::{ObjectName, Result, UnixMillis};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// See the module documentation.
pub struct LendingStore {
    store: Arc<MemoryStore>,
    lent: Arc<AtomicUsize>,
    damages: AtomicBool,
}

/// A lent object, which counts as long as it is held.
struct Loan {
    bytes: Bytes,
    lent: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for Loan {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.lent.fetch_sub(1, Ordering::SeqCst);
    }
}

impl LendingStore {
    /// Over its own store.
    #[must_use]
    pub fn new() -> Arc<LendingStore> {
        let (lent, damages) = (Arc::default(), AtomicBool::new(false));
        Arc::new(LendingStore { store: MemoryStore::unnamed(), lent, damages })
    }

    /// Number of objects that are held now.
    #[must_use]
    pub fn lent(&self) -> usize {
        self.lent.load(Ordering::SeqCst)
    }

    /// From now on lent objects are damaged in every byte; objects that are read are not.
    pub fn lend_damaged(&self) {
        self.damages.store(true, Ordering::SeqCst);
    }
}

impl fmt::Debug for LendingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

impl Store for LendingStore {
    fn get(
        &self,
        name: ObjectName,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'_, Result<Option<Bytes>>> {
        self.store.get(name, range)
    }

    fn put_if_absent(&self, name: ObjectName, bytes: Bytes) -> BoxFuture<'_, PutAnswer> {
        self.store.put_if_absent(name, bytes)
    }

    fn upload(&self, name: ObjectName) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        self.store.upload(name)
    }

    fn list(
        &self,
        prefix: &'static str,
        after: Option<ObjectName>,
    ) -> BoxFuture<'_, Result<Vec<Listed>>> {
        self.store.list(prefix, after)
    }

    fn delete(&self, name: ObjectName) -> BoxFuture<'_, Result<()>> {
        self.store.delete(name)
    }

    fn sweep(&self, cutoff: UnixMillis) -> BoxFuture<'_, Result<SweepReport>> {
        self.store.sweep(cutoff)
    }

    fn reads(&self) -> &dyn LocalReads {
        self
    }
}

impl LocalReads for LendingStore {
    fn lend(&self, name: ObjectName, bytes: u64) -> Option<Bytes> {
        let mut found = self.store.reads().get_now(name, None)?.ok()??;
        if found.len() as u64 != bytes {
            return None;
        }
        if self.damages.load(Ordering::SeqCst) {
            found = found.iter().map(|byte| byte ^ 0x40).collect();
        }
        self.lent.fetch_add(1, Ordering::SeqCst);
        Some(Bytes::from_owner(Loan { bytes: found, lent: Arc::clone(&self.lent) }))
    }
}
