//! Reads that a store answers in the calling thread: memory, files, and mapped files.

use bytes::Bytes;
use siltstone_base::{ObjectName, Result};
use std::ops::Range;

/// Reads without waiting for a network. By default there are none, and callers use
/// [`Store::get`](super::Store::get).
///
/// A store that changes what is read must not return the facet of the store below it.
pub trait LocalReads: Send + Sync {
    /// As [`Store::get`](super::Store::get); `None` if this store cannot answer now.
    fn get_now(
        &self,
        _name: ObjectName,
        _range: Option<Range<u64>>,
    ) -> Option<Result<Option<Bytes>>> {
        None
    }

    /// As [`LocalReads::get_now`], but reads into `buffer`, whose content is then exactly the bytes
    /// of `range`. Returns whether the object exists. For stores that would copy the bytes anyway,
    /// so that repeated reads use the same memory. `None` means that [`LocalReads::get_now`] has to
    /// be used.
    fn get_now_into(
        &self,
        _name: ObjectName,
        _range: Range<u64>,
        _buffer: &mut Vec<u8>,
    ) -> Option<Result<bool>> {
        None
    }

    /// The whole object of `bytes` bytes as mapped memory: the system reads pages on access and
    /// reclaims them when it needs room. Nothing is read or copied yet. For tables only, because
    /// their bytes and length never change. While the result lives, the bytes stay, even if the
    /// object is deleted.
    ///
    /// `None` if this store has no such memory, has no room for more of it, or has no such object.
    /// [`Store::get`](super::Store::get) has to be used then, and reports errors.
    fn lend(&self, _name: ObjectName, _bytes: u64) -> Option<Bytes> {
        None
    }
}

/// A store behind a network has no local reads.
pub(super) struct NoLocalReads;

impl LocalReads for NoLocalReads {}
