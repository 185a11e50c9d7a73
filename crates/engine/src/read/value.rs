//! A value handed out without a copy: a view into the memtable's buffer or into a cached block.

use siltstone_base::{Seq, UnixMillis};
use siltstone_memtable::MemEntry;
use siltstone_sst::Block;
use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// A value. Keeps what it lies in alive; copy it out (`to_vec`) to keep it for long.
#[derive(Clone)]
pub struct Value(ValuePlace);

/// A value, and what is known of it.
#[derive(Clone, Debug)]
pub struct KeyEntry {
    /// The value.
    pub value: Value,
    /// When it ends.
    pub expires_at: Option<UnixMillis>,
    /// The number of the write that it is of, of several operands of the newest one; `None` where a
    /// compaction has found that nobody needs it any more.
    pub seq: Option<Seq>,
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

    /// Bytes of a block that it keeps alive besides its own.
    pub(crate) fn bytes_beside(&self) -> usize {
        match &self.0 {
            ValuePlace::Block(block, range) => block.memory_bytes().saturating_sub(range.len()),
            ValuePlace::Memtable(_) | ValuePlace::Owned(_) => 0,
        }
    }

    /// Copies it out of its block.
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
            ValuePlace::Memtable(entry) => entry.entry().value,
            // The range came from this very block, whose structure was checked when decoded.
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
