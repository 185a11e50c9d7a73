//! Values that are returned without a copy: views into a memtable's buffer or a cached block.

use siltstone_base::{Seq, UnixMillis};
use siltstone_memtable::MemEntry;
use siltstone_sst::Block;
use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// A value. It keeps the memtable buffer or block that contains it alive. Copy it with `to_vec` to
/// keep it for long.
#[derive(Clone)]
pub struct Value(ValuePlace);

/// A value with its expiry time and sequence number.
#[derive(Clone, Debug)]
pub struct KeyEntry {
    /// The value.
    pub value: Value,
    /// When it expires; `None`: it does not expire.
    pub expires_at: Option<UnixMillis>,
    /// The sequence number of its write; for several merge operands, that of the newest. `None` if
    /// a compaction has removed the number because no reader needed it.
    pub seq: Option<Seq>,
}

/// An entry with the time until which its value stays the same; `None`: forever.
#[derive(Clone, Debug)]
pub(crate) struct LastingEntry {
    pub(crate) entry: KeyEntry,
    pub(crate) lasts_until: Option<UnixMillis>,
}

#[derive(Clone)]
enum ValuePlace {
    Memtable(MemEntry),
    Block(Arc<Block>, Range<usize>),
    Owned(Arc<[u8]>),
}

impl Value {
    pub(crate) fn of_memtable(entry: MemEntry) -> Self {
        Value(ValuePlace::Memtable(entry))
    }

    pub(crate) fn of_block(block: Arc<Block>, range: Range<usize>) -> Self {
        Value(ValuePlace::Block(block, range))
    }

    /// Bytes of its block that it keeps alive in addition to its own bytes.
    pub(crate) fn bytes_beside(&self) -> usize {
        match &self.0 {
            ValuePlace::Block(block, range) => block.memory_bytes().saturating_sub(range.len()),
            ValuePlace::Memtable(_) | ValuePlace::Owned(_) => 0,
        }
    }

    /// Copies the value out of its block.
    pub(crate) fn own(&mut self) {
        if let ValuePlace::Block(..) = self.0 {
            *self = Value::of_bytes(self);
        }
    }

    /// The same, copied out where the head of a block that is read where it lies would take more
    /// memory than the value does.
    pub(crate) fn compact(mut self) -> Self {
        if let ValuePlace::Block(block, range) = &self.0
            && block.is_lent()
            && range.len() < block.memory_bytes()
        {
            self.own();
        }
        self
    }

    pub(crate) fn of_bytes(bytes: &[u8]) -> Self {
        Value(ValuePlace::Owned(Arc::from(bytes)))
    }
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            // Both ranges came from these very bytes, whose structure was checked when decoded.
            ValuePlace::Memtable(entry) => {
                entry.buffer().get(entry.value_range()).unwrap_or_default()
            }
            ValuePlace::Block(block, range) => block.bytes().get(range.clone()).unwrap_or_default(),
            ValuePlace::Owned(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Value({} bytes)", self.len())
    }
}

impl PartialEq<[u8]> for Value {
    fn eq(&self, other: &[u8]) -> bool {
        **self == *other
    }
}
