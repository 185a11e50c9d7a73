//! The descriptor of a table: what the manifest stores about it, so that opening a table never
//! needs a footer request.

use crate::entry::UnixMillis;
use crate::id::{JobId, Seq, SstId};
use bytes::Bytes;

/// Which database holds a table's object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SstLocation {
    /// This one.
    #[default]
    Own,
    /// The ancestor with this number in the manifest's list (clones).
    Ancestor(u32),
}

/// An order-free sum over the entries of a table: what goes into a compaction and what comes out
/// are compared by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EntrySum {
    /// What is added up, and how; never 0. A kind that a program does not know is carried on.
    pub kind: u8,
    /// The sum.
    pub bits: u128,
}

/// One table, as the manifest names it. Everything a reader needs before its first request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SstDescriptor {
    /// Its name in its folder, and the object id in its envelope.
    pub id: SstId,
    /// Which database holds the object.
    pub location: SstLocation,
    /// The ingest job in whose folder the object lies; `None`: in `compacted/`.
    pub job: Option<JobId>,
    /// Length of the whole object, in bytes.
    pub object_bytes: u64,
    /// CRC32C of the whole object.
    pub checksum: u32,
    /// Offset of the tail (filter, index, properties, footer), which runs to the end: one ranged
    /// GET from here opens the table.
    pub tail_offset: u64,
    /// Smallest user key.
    pub first_key: Bytes,
    /// Largest user key.
    pub last_key: Bytes,
    /// Keys below this are not part of the database (clones by range). `None`: no bound.
    pub visible_start: Option<Bytes>,
    /// Keys from this on are not part of the database. `None`: no bound.
    pub visible_end: Option<Bytes>,
    /// When set, every entry counts as written at this sequence number, whatever its bytes say
    /// (ingested tables).
    pub seq_override: Option<Seq>,
    /// Entries of all kinds.
    pub entries: u64,
    /// Point tombstones among them.
    pub tombstones: u64,
    /// Smallest sequence number.
    pub min_seq: Seq,
    /// Largest sequence number.
    pub max_seq: Seq,
    /// Earliest expiry of any entry; `None` when none expires.
    pub min_expiry: Option<UnixMillis>,
    /// Latest expiry; `None` when an entry never expires.
    pub max_expiry: Option<UnixMillis>,
    /// Offset and length of the range deletes' section; `None` when there is none.
    pub range_deletes: Option<(u64, u64)>,
    /// Sum over the entries; `None` when there is none.
    pub sum: Option<EntrySum>,
}

impl SstDescriptor {
    /// Whether `key` may be in the table, by its bounds.
    #[must_use]
    pub fn covers(&self, key: &[u8]) -> bool {
        self.first_key.as_ref() <= key
            && key <= self.last_key.as_ref()
            && self.visible_start.as_ref().is_none_or(|start| start.as_ref() <= key)
            && self.visible_end.as_ref().is_none_or(|end| key < end.as_ref())
    }

    /// Whether any key of `[start, end)` may be in the table (`None`: unbounded).
    #[must_use]
    pub fn overlaps(&self, start: Option<&[u8]>, end: Option<&[u8]>) -> bool {
        start.is_none_or(|start| start <= self.last_key.as_ref())
            && end.is_none_or(|end| self.first_key.as_ref() < end)
            && match (end, &self.visible_start) {
                (Some(end), Some(visible)) => visible.as_ref() < end,
                _ => true,
            }
            && match (start, &self.visible_end) {
                (Some(start), Some(visible)) => start < visible.as_ref(),
                _ => true,
            }
    }
}
