//! The descriptor of a table: the properties that the manifest stores, so that opening a table
//! needs no request for its footer.

use crate::entry::UnixMillis;
use crate::id::{JobId, Seq, SstId};
use crate::name::ObjectName;
use bytes::Bytes;

/// The database that contains a table's object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SstLocation {
    /// This database.
    #[default]
    Own,
    /// The ancestor with this number in the manifest's list (clones).
    Ancestor(u32),
}

/// An order-independent sum over the entries of a table: it compares the input and the output of a
/// compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EntrySum {
    /// The kind of sum; never 0. A program preserves a kind that it does not know.
    pub kind: u8,
    /// The sum.
    pub bits: u128,
}

/// One table, as recorded in the manifest. It contains everything that a reader needs before its
/// first request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SstDescriptor {
    /// Its name in its folder, and the object id in its envelope.
    pub id: SstId,
    /// The database that contains the object.
    pub location: SstLocation,
    /// The ingest job in whose folder the object is; `None`: in `compacted/`.
    pub job: Option<JobId>,
    /// Length of the whole object, in bytes.
    pub object_bytes: u64,
    /// CRC32C of the whole object.
    pub checksum: u32,
    /// Offset of the tail (filter, index, properties, footer), which reaches to the end: one ranged
    /// GET from here opens the table.
    pub tail_offset: u64,
    /// Smallest user key.
    pub first_key: Bytes,
    /// Largest user key.
    pub last_key: Bytes,
    /// Keys below this are not part of the database (clones by range). `None`: no bound.
    pub visible_start: Option<Bytes>,
    /// Keys from this one on are not part of the database. `None`: no bound.
    pub visible_end: Option<Bytes>,
    /// If set, every entry counts with this sequence number instead of its own (ingested tables).
    pub seq_override: Option<Seq>,
    /// Entries of all kinds.
    pub entries: u64,
    /// Point tombstones among them.
    pub tombstones: u64,
    /// Smallest sequence number.
    pub min_seq: Seq,
    /// Largest sequence number.
    pub max_seq: Seq,
    /// Earliest expiry of any entry; `None` if none expires.
    pub min_expiry: Option<UnixMillis>,
    /// Latest expiry; `None` if an entry never expires.
    pub max_expiry: Option<UnixMillis>,
    /// Offset and length of the section of range deletes; `None` if there is none.
    pub range_deletes: Option<(u64, u64)>,
    /// Sum over the entries; `None` if there is none.
    pub sum: Option<EntrySum>,
}

/// Identifies a table in a state: an object may occur there more than once, each time with other
/// visible keys (RFC 0031).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TablePart {
    /// The table.
    pub id: SstId,
    /// The start of its visible keys; `None`: its first key.
    pub visible_start: Option<Bytes>,
}

impl From<SstId> for TablePart {
    /// A table whose first keys are not hidden.
    fn from(id: SstId) -> TablePart {
        TablePart { id, visible_start: None }
    }
}

impl SstDescriptor {
    /// The name of its object, under the root of the database that contains it.
    #[must_use]
    pub fn name(&self) -> ObjectName {
        match self.job {
            None => ObjectName::Compacted(self.id),
            Some(job) => ObjectName::IngestSst(job, self.id),
        }
    }

    /// The number of the ancestor that contains it; `None`: this database does.
    #[must_use]
    pub fn ancestor(&self) -> Option<u32> {
        match self.location {
            SstLocation::Own => None,
            SstLocation::Ancestor(number) => Some(number),
        }
    }

    /// Its identity in a state.
    #[must_use]
    pub fn part(&self) -> TablePart {
        TablePart { id: self.id, visible_start: self.visible_start.clone() }
    }

    /// Whether both name the same part of the same object.
    #[must_use]
    pub fn is_part(&self, other: &SstDescriptor) -> bool {
        self.id == other.id && self.visible_start == other.visible_start
    }

    /// Whether it has a visible range: some of its keys may be hidden.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.visible_start.is_some() || self.visible_end.is_some()
    }

    /// The same object with all its keys visible.
    #[must_use]
    pub fn whole(&self) -> SstDescriptor {
        SstDescriptor { visible_start: None, visible_end: None, ..self.clone() }
    }

    /// The smallest key that may be visible.
    #[must_use]
    pub fn first_visible(&self) -> &Bytes {
        self.visible_start.as_ref().map_or(&self.first_key, |start| start.max(&self.first_key))
    }

    /// A key at or above every visible one: it may be the end of the visible range, which is not
    /// visible.
    #[must_use]
    pub fn last_visible(&self) -> &Bytes {
        self.visible_end.as_ref().map_or(&self.last_key, |end| end.min(&self.last_key))
    }

    /// Whether every visible key is below `key`.
    #[must_use]
    pub fn ends_below(&self, key: &[u8]) -> bool {
        self.last_key.as_ref() < key
            || self.visible_end.as_ref().is_some_and(|end| end.as_ref() <= key)
    }

    /// The visible part of `[start, end)` (`None`: unbounded).
    #[must_use]
    pub fn in_sight<'a>(
        &'a self,
        start: Option<&'a [u8]>,
        end: Option<&'a [u8]>,
    ) -> (Option<&'a [u8]>, Option<&'a [u8]>) {
        let start = start.max(self.visible_start.as_deref());
        let end = match (end, self.visible_end.as_deref()) {
            (Some(end), Some(visible)) => Some(end.min(visible)),
            (end, visible) => end.or(visible),
        };
        (start, end)
    }

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
