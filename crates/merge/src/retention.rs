//! The retention parameters of a flush or compaction.

use siltstone_base::{MergeOperator, RangeDelete, Seq, UnixMillis};
use std::fmt;
use std::sync::Arc;

/// The versions that must survive, fixed when a job starts.
///
/// Snapshots divide the history into *stripes*: stripe 0 reaches up to the first snapshot, stripe 1
/// from there to the second, and the last one from the last snapshot on. A reader at a snapshot, or
/// at the head, sees the newest version of a key in its own stripe, so each stripe keeps its newest
/// version.
#[derive(Clone, Default)]
pub struct Retention {
    /// Sequence numbers that are still read: snapshots, checkpoints, and the bound of readers that
    /// read only durable data. The head is implied. Ascending.
    pub snapshot_bounds: Vec<Seq>,
    /// Readers may read at any sequence number from this one on: every version above it is kept,
    /// each in its own stripe. A compactor in another process knows only this number, the floor of
    /// the manifest. `None`: the snapshots are complete.
    pub floor: Option<Seq>,
    /// No data older than the input can contain the input's keys, in any run, queued memtable, or
    /// pending ingest.
    pub bottom: bool,
    /// Entries that expire at or before this time have expired. Never later than the time of any
    /// later reader.
    pub now: UnixMillis,
    /// Folds operands; without one they are kept unchanged.
    pub operator: Option<Arc<dyn MergeOperator>>,
    /// The range deletes of the inputs. Entries that they hide are dropped; the range deletes to
    /// keep are [`Retain::range_deletes`](crate::Retain::range_deletes).
    pub range_deletes: Vec<RangeDelete>,
    /// Writes sequence number 0 into values at the bottom that every reader sees, so that the
    /// column becomes constant. No effect unless `bottom` is set.
    pub zero_seqs: bool,
}

impl fmt::Debug for Retention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retention")
            .field("snapshot_bounds", &self.snapshot_bounds)
            .field("floor", &self.floor)
            .field("bottom", &self.bottom)
            .field("now", &self.now)
            .field("operator", &self.operator.as_ref().map(|operator| operator.name()))
            .field("range_deletes", &self.range_deletes.len())
            .field("zero_seqs", &self.zero_seqs)
            .finish()
    }
}
