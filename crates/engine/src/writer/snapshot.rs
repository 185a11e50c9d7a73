//! A fixed view of a writer's database.

use super::state::Writer;
use crate::read::answer::Answer;
use crate::read::value::{KeyEntry, Value};
use crate::read::{Keys, Pin, Scan, ScanRange, Size, approximate_size, get, get_entry, get_many};
use siltstone_base::{Result, Seq};
use std::fmt;
use std::sync::Arc;

/// The database as it was when the snapshot was created. The snapshot holds the memtables and
/// tables that it may read, and stays usable after the handle is closed.
#[derive(Clone)]
pub struct Snapshot(Arc<PinnedWriter>);

struct PinnedWriter {
    writer: Arc<Writer>,
    pin: Pin,
}

impl Drop for PinnedWriter {
    fn drop(&mut self) {
        self.writer.held.release(self.pin.seq);
    }
}

impl Snapshot {
    pub(crate) fn of(writer: &Arc<Writer>) -> Snapshot {
        Snapshot(Arc::new(PinnedWriter { writer: Arc::clone(writer), pin: writer.hold() }))
    }

    /// Sees everything accepted, regardless of `read_durable_only`.
    pub(crate) fn of_accepted(writer: &Arc<Writer>) -> Snapshot {
        Snapshot(Arc::new(PinnedWriter { writer: Arc::clone(writer), pin: writer.hold_accepted() }))
    }

    pub(crate) fn writer(&self) -> &Arc<Writer> {
        &self.0.writer
    }

    pub(crate) fn pin(&self) -> &Pin {
        &self.0.pin
    }

    /// The last sequence number that the snapshot sees.
    #[must_use]
    pub fn seq(&self) -> Seq {
        self.0.pin.seq
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// Those of the awaited part.
    pub fn get(&self, key: &[u8]) -> Result<Answer<Option<Value>>> {
        get(&self.0.writer.context, self.0.pin.clone(), key)
    }

    /// The value of `key`, its expiry time, and the sequence number of its write if known.
    ///
    /// # Errors
    /// Those of the awaited part.
    pub fn get_entry(&self, key: &[u8]) -> Result<Answer<Option<KeyEntry>>> {
        get_entry(&self.0.writer.context, self.0.pin.clone(), key)
    }

    /// The values of `keys`, in their order.
    ///
    /// # Errors
    /// Those of the awaited part.
    pub fn get_many(&self, keys: impl Into<Keys>) -> Result<Answer<Vec<Option<Value>>>> {
        get_many(&self.0.writer.context, self.0.pin.clone(), Arc::new(keys.into()))
    }

    /// Approximate size of a range, computed from metadata alone.
    ///
    /// # Errors
    /// Those of the awaited part.
    pub fn approximate_size(&self, range: ScanRange) -> Result<Answer<Size>> {
        Ok(approximate_size(&self.0.writer.context, &self.0.pin, range))
    }

    /// Iterates over a range.
    #[must_use]
    pub fn scan(&self, range: ScanRange) -> Scan {
        Scan::new(
            self.0.writer.context.clone(),
            self.0.pin.clone(),
            range,
            Some(Arc::new(self.clone())),
        )
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("seq", &self.seq()).finish_non_exhaustive()
    }
}
