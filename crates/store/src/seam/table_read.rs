//! A read of a table, for caches between a handle and its store, and the counts of such a cache.

use siltstone_base::ObjectName;
use std::ops::Range;

/// A read of bytes of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableRead {
    /// The table.
    pub name: ObjectName,
    /// The length of its object.
    pub object_bytes: u64,
    /// The bytes that are wanted.
    pub range: Range<u64>,
    /// The use of caches below the store seam.
    pub cached: CacheUse,
}

/// The use of caches below the store seam by a read of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheUse {
    /// Looks there, and leaves what it fetches there: point reads, short scans, metadata.
    Fill,
    /// Looks there, and leaves nothing: long scans and merges, which would push everything out.
    Look,
    /// Fetches what is not there, waits until it can be written, and returns no bytes: a mirror.
    Mirror,
    /// Reads around it and removes what it has, because bytes were found to be damaged.
    Renew,
}

/// Counts of a disk cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCacheCounts {
    /// Parts that reads which fill the cache found there.
    pub hits: u64,
    /// Parts that those reads did not find.
    pub misses: u64,
    /// Bytes of the folder, as far as this process knows.
    pub bytes: u64,
    /// Maximum bytes of the folder.
    pub capacity: u64,
    /// Failed operations on its files, and damaged entries.
    pub errors: u64,
}
