//! The state of the server: buckets, their objects, and uploads that are not complete.

use bytes::Bytes;
use std::collections::BTreeMap;

/// An object. Its bytes never change; a PUT exchanges the object.
#[derive(Clone, Debug)]
pub(crate) struct StoredObject {
    pub(crate) bytes: Bytes,
    /// In quotes.
    pub(crate) etag: String,
    /// Milliseconds since 1970.
    pub(crate) modified: u64,
    /// The headers of the PUT that a GET returns.
    pub(crate) attributes: Vec<(String, String)>,
    /// The order in which objects were stored.
    pub(crate) number: u64,
}

/// Parts that wait for their completion.
#[derive(Debug)]
pub(crate) struct PendingUpload {
    pub(crate) bucket: String,
    pub(crate) key: String,
    pub(crate) attributes: Vec<(String, String)>,
    /// By number: the ETag and the bytes.
    pub(crate) parts: BTreeMap<u32, (String, Bytes)>,
    pub(crate) begun: u64,
}

/// Deleted objects that a disturbed listing may show.
const REMEMBERED: usize = 32;

#[derive(Debug, Default)]
pub(crate) struct BucketState {
    pub(crate) objects: BTreeMap<String, StoredObject>,
    pub(crate) deleted: Vec<(String, StoredObject)>,
    /// Times of the last write by key, if the server limits them.
    pub(crate) written: BTreeMap<String, u64>,
}

impl BucketState {
    pub(crate) fn remove(&mut self, key: &str) {
        let Some(object) = self.objects.remove(key) else { return };
        if self.deleted.len() >= REMEMBERED {
            self.deleted.remove(0);
        }
        self.deleted.push((key.to_owned(), object));
    }
}

#[derive(Debug, Default)]
pub(crate) struct ServerState {
    pub(crate) buckets: BTreeMap<String, BucketState>,
    pub(crate) uploads: BTreeMap<String, PendingUpload>,
    numbers: u64,
}

impl ServerState {
    pub(crate) fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }
}

/// An ETag for an object or a part. It depends on the bytes alone, as MD5 does on a standard
/// bucket. Clients must not compute it: it is no MD5 for encrypted objects or S3 Express.
pub(crate) fn etag(bytes: &[u8]) -> String {
    format!("\"{:032x}\"", xxhash_rust::xxh3::xxh3_128(bytes))
}
