//! A store in the memory of this process.

use crate::presence::{Presence, WriterSeat};
use crate::profile::Profile;
use crate::task::wall_clock;
use crate::{
    Listed, LocalReads, Neighbours, ObjectTag, Place, PutAnswer, Store, TaggedBytes, Upload,
    check_range, lies_under, not_followed, too_short,
};
use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use parking_lot::Mutex;
use siltstone_base::{DatabaseId, ObjectName, Result, UnixMillis};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, LazyLock};

/// URL scheme of these stores.
const MEMORY: &str = "memory://";

/// A store in memory. It ends with the process.
pub struct MemoryStore {
    name: String,
    objects: Arc<ObjectMap>,
    writer: WriterSeat,
}

type ObjectMap = Mutex<BTreeMap<ObjectName, Object>>;

#[derive(Clone)]
struct Object {
    bytes: Bytes,
    modified: UnixMillis,
    tag: ObjectTag,
}

impl Object {
    fn new(bytes: Bytes) -> Object {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let tag = ObjectTag::numbered(NUMBER.fetch_add(1, Relaxed));
        Object { bytes, modified: wall_clock(), tag }
    }
}

/// Named stores live as long as the process, so that a closed database can be opened again.
static NAMED: LazyLock<Mutex<HashMap<String, Arc<MemoryStore>>>> = LazyLock::new(Mutex::default);

impl MemoryStore {
    /// The store of this name, the same for all callers in this process (`memory://name`).
    #[must_use]
    pub fn named(name: &str) -> Arc<MemoryStore> {
        let mut named = NAMED.lock();
        let store = named.entry(name.to_owned()).or_insert_with(|| MemoryStore::new(name));
        Arc::clone(store)
    }

    /// A separate store, which ends with its last handle.
    #[must_use]
    pub fn unnamed() -> Arc<MemoryStore> {
        MemoryStore::new("")
    }

    fn new(name: &str) -> Arc<MemoryStore> {
        Arc::new(MemoryStore {
            name: name.to_owned(),
            objects: Arc::default(),
            writer: WriterSeat::default(),
        })
    }

    fn read(&self, name: ObjectName, range: Option<Range<u64>>) -> Result<Option<Bytes>> {
        check_range(range.as_ref())?;
        let Some(object) = self.objects.lock().get(&name).cloned() else { return Ok(None) };
        let Some(range) = range else { return Ok(Some(object.bytes)) };
        if range.end > object.bytes.len() as u64 {
            return Err(too_short(name, &range, object.bytes.len() as u64));
        }
        Ok(Some(object.bytes.slice(range.start as usize..range.end as usize)))
    }

    fn create(&self, name: ObjectName, bytes: Bytes) -> PutAnswer {
        match self.objects.lock().entry(name) {
            Entry::Occupied(_) => PutAnswer::Exists,
            Entry::Vacant(free) => {
                free.insert(Object::new(bytes));
                PutAnswer::Created
            }
        }
    }

    fn neighbour_name<'a>(&self, location: &'a str) -> Result<&'a str> {
        let name = location.strip_prefix(MEMORY).filter(|name| !name.is_empty());
        name.ok_or_else(|| not_followed(self.location(), location))
    }

    fn listing(&self, prefix: &str, after: Option<ObjectName>) -> Vec<Listed> {
        let objects = self.objects.lock();
        objects
            .iter()
            .filter(|(name, _)| after.is_none_or(|after| **name > after))
            .filter(|(name, _)| lies_under(**name, prefix))
            .map(|(name, object)| Listed {
                name: *name,
                bytes: object.bytes.len() as u64,
                modified: object.modified,
                tag: Some(object.tag),
            })
            .collect()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memory://{}", self.name)
    }
}

impl Store for MemoryStore {
    fn get(
        &self,
        name: ObjectName,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'_, Result<Option<Bytes>>> {
        ready(self.read(name, range)).boxed()
    }

    fn get_tagged(&self, name: ObjectName) -> BoxFuture<'_, Result<Option<TaggedBytes>>> {
        let object = self.objects.lock().get(&name).cloned();
        let tagged = object.map(|object| (object.bytes, Some(object.tag)));
        ready(Ok(tagged)).boxed()
    }

    fn get_clamped(
        &self,
        name: ObjectName,
        range: Range<u64>,
    ) -> BoxFuture<'_, Result<Option<Bytes>>> {
        let bytes = self.objects.lock().get(&name).map(|object| object.bytes.len() as u64);
        let bytes = bytes.filter(|bytes| range.start < *bytes);
        let range = range.start..range.end.min(bytes.unwrap_or(range.end));
        ready(self.read(name, Some(range))).boxed()
    }

    fn profile(&self) -> Profile {
        Profile::MEMORY
    }

    fn put_if_absent(&self, name: ObjectName, bytes: Bytes) -> BoxFuture<'_, PutAnswer> {
        ready(self.create(name, bytes)).boxed()
    }

    fn upload(&self, name: ObjectName) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        let objects = Arc::clone(&self.objects);
        let upload: Box<dyn Upload> =
            Box::new(MemoryUpload { objects, name, bytes: BytesMut::new() });
        ready(Ok(upload)).boxed()
    }

    fn list(
        &self,
        prefix: &'static str,
        after: Option<ObjectName>,
    ) -> BoxFuture<'_, Result<Vec<Listed>>> {
        ready(Ok(self.listing(prefix, after))).boxed()
    }

    fn delete(&self, name: ObjectName) -> BoxFuture<'_, Result<()>> {
        self.objects.lock().remove(&name);
        ready(Ok(())).boxed()
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

impl LocalReads for MemoryStore {
    fn get_now(
        &self,
        name: ObjectName,
        range: Option<Range<u64>>,
    ) -> Option<Result<Option<Bytes>>> {
        Some(self.read(name, range))
    }
}

impl Place for MemoryStore {
    fn location(&self) -> Option<String> {
        (!self.name.is_empty()).then(|| format!("{MEMORY}{}", self.name))
    }

    fn occupy(&self, _: DatabaseId, take_over: bool) -> BoxFuture<'_, Result<Presence>> {
        ready(self.writer.take(take_over)).boxed()
    }
}

impl Neighbours for MemoryStore {
    fn follows(&self, location: &str) -> Result<()> {
        self.neighbour_name(location).map(drop)
    }

    fn neighbour(&self, location: &str) -> Result<Arc<dyn Store>> {
        Ok(MemoryStore::named(self.neighbour_name(location)?))
    }
}

struct MemoryUpload {
    objects: Arc<ObjectMap>,
    name: ObjectName,
    bytes: BytesMut,
}

impl Upload for MemoryUpload {
    fn write(&mut self, chunk: Bytes) -> BoxFuture<'_, Result<()>> {
        self.bytes.extend_from_slice(&chunk);
        ready(Ok(())).boxed()
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        let object = Object::new(self.bytes.freeze());
        self.objects.lock().insert(self.name, object);
        ready(Ok(())).boxed()
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        ready(Ok(())).boxed()
    }
}
