//! A single object outside of any database.

use crate::Upload;
use crate::profile::Profile;
use bytes::Bytes;
use futures::future::BoxFuture;
use siltstone_base::Result;
use std::fmt;
use std::ops::Range;

/// One object: a file, or what a URL names. It is read, and replaced as a whole.
pub trait SingleObject: Send + Sync + fmt::Debug {
    /// The bytes of `range`, or of the whole object; `None` if it does not exist. Ranges are as for
    /// [`Store::get`](super::Store::get).
    fn get(&self, range: Option<Range<u64>>) -> BoxFuture<'_, Result<Option<Bytes>>>;

    /// As [`SingleObject::get`], for objects that are read without waiting for a network.
    fn get_now(&self, _range: Option<Range<u64>>) -> Option<Result<Option<Bytes>>> {
        None
    }

    /// The cost profile of reads and writes.
    fn profile(&self) -> Profile;

    /// The length; `None` if the object does not exist.
    fn length(&self) -> BoxFuture<'_, Result<Option<u64>>>;

    /// Begins to write the object. An existing object stays until the upload is finished, and is
    /// then replaced as a whole.
    fn upload(&self) -> BoxFuture<'_, Result<Box<dyn Upload>>>;
}
