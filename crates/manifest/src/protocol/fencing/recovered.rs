//! The result of an opening.

use crate::edit::Edit;
use crate::protocol::CutOff;
use crate::state::{KeptFence, Manifest};
use siltstone_base::{Epoch, WalId};
use std::sync::Arc;

/// A writer that may begin.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Recovered {
    /// The newest state, with the epoch of this writer.
    pub manifest: Arc<Manifest>,
    /// Its epoch.
    pub epoch: Epoch,
    /// WAL objects to replay, in this order, with their epochs. Their bodies are those read on
    /// the walk; rows at or below `flushed_seq` are skipped (rule N4).
    pub replay: Vec<(WalId, Epoch)>,
    /// Its own fence. Its first WAL object is `fence.next_id`.
    pub fence: KeptFence,
    /// Fences that must be in the manifest no later than the commit that moves the replay point
    /// past them: the fences met, except those of writers that closed cleanly after a writer that
    /// had closed cleanly; and its own fence, unless the fenced writer had closed cleanly (rule
    /// F5).
    pub keep: Vec<KeptFence>,
    /// Fences met that need not be in the manifest.
    pub waived: Vec<KeptFence>,
    /// The part of the log that was cut off, for a repair.
    pub cut_off: Option<CutOff>,
}

impl Recovered {
    /// The edit of a clean close of a writer that wrote nothing. Only a writer that was opened
    /// completely has it (rule F4).
    #[must_use]
    pub fn close(&self) -> Edit {
        Edit::CloseClean { epoch: self.epoch, wal_id_last_seen: self.fence.id }
    }

    /// All fences met on the walk and its own fence, for [`replay_point`](crate::replay_point).
    #[must_use]
    pub fn fences(&self) -> Vec<KeptFence> {
        let mut fences: Vec<_> = self.keep.iter().chain(&self.waived).copied().collect();
        if !fences.contains(&self.fence) {
            fences.push(self.fence);
        }
        fences
    }
}
