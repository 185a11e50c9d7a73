//! A store that answers as one over a network does: never at once. It can damage what it sends.

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use siltstone::store::memory::MemoryStore;
use siltstone::store::{Listed, Neighbours, Place, PutAnswer, Store, Upload};
use siltstone_base::{ObjectName, Result};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
pub(crate) struct FarStore {
    store: Arc<dyn Store>,
    /// Reads of tables whose bytes are damaged on their way, from now on.
    pub(crate) damages: AtomicU64,
}

pub(crate) fn far(name: &str) -> Arc<FarStore> {
    let store: Arc<dyn Store> = MemoryStore::named(name);
    Arc::new(FarStore { store, damages: AtomicU64::new(0) })
}

impl FarStore {
    fn damages(&self, name: ObjectName) -> bool {
        let one_less = |left: u64| left.checked_sub(1);
        matches!(name, ObjectName::Compacted(_))
            && self.damages.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
    }
}

impl Store for FarStore {
    fn get(
        &self,
        name: ObjectName,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'_, Result<Option<Bytes>>> {
        async move {
            tokio::task::yield_now().await;
            let found = self.store.get(name, range).await;
            match found {
                Ok(Some(bytes)) if self.damages(name) => {
                    let damaged: Vec<u8> = bytes.iter().map(|byte| byte ^ 1).collect();
                    Ok(Some(damaged.into()))
                }
                found => found,
            }
        }
        .boxed()
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

    fn place(&self) -> &dyn Place {
        self
    }

    fn neighbours(&self) -> &dyn Neighbours {
        self
    }
}

impl Place for FarStore {
    fn location(&self) -> Option<String> {
        self.store.place().location()
    }
}

impl Neighbours for FarStore {
    fn follows(&self, location: &str) -> Result<()> {
        self.store.neighbours().follows(location)
    }

    fn neighbour(&self, location: &str) -> Result<Arc<dyn Store>> {
        let store = self.store.neighbours().neighbour(location)?;
        Ok(Arc::new(FarStore { store, damages: AtomicU64::new(0) }))
    }
}
