//! The retention parameters of a flush or compaction.

use siltstone_base::{MergeOperator, RangeDelete, Seq, UnixMillis};
use std::fmt;
use std::sync::Arc;

/// What must survive, fixed when a job starts.
///
/// Snapshots cut the history into *stripes*: stripe 0 reaches up to the first snapshot, stripe 1
/// from there to the second, and the last one from the last snapshot on. A reader at a snapshot, or
/// at the head, sees the newest version of a key in its own stripe; so that is what each keeps.
#[derive(Clone, Default)]
pub struct Retention {
    /// Sequence numbers that are still read: snapshots, checkpoints, and the durable bound
    /// of readers that want nothing else. The head needs no mention. Ascending.
    pub snapshot_bounds: Vec<Seq>,
    /// Readers may read at any sequence number from this on, at which ones is unknown: every
    /// version above it is kept, each in a stripe of its own. A compactor in another process knows
    /// only this: the floor of the manifest. `None`: the snapshots are all there are.
    pub floor: Option<Seq>,
    /// Nothing older than the input can hold the input's keys, in any run, queued memtable, or
    /// pending ingest.
    pub bottom: bool,
    /// What expires at or before this has expired. Must not be ahead of any later reader's time.
    pub now: UnixMillis,
    /// Folds operands; without one they are kept as they are.
    pub operator: Option<Arc<dyn MergeOperator>>,
    /// The range deletes of the inputs. Entries that they hide are dropped; the deletes that stay
    /// are [`Retain::range_deletes`](crate::Retain::range_deletes).
    pub range_deletes: Vec<RangeDelete>,
    /// Write sequence number 0 into values at the bottom that every reader sees, so that the column
    /// becomes constant. Without effect unless `bottom`.
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
