//! Reads at a given time instead of the present: what a value was when a change was committed. Only
//! expiry depends on the time; the tables and rows are those of the reader's view.

use super::{Reader, ReaderShared};
use crate::read::answer::Answer;
use crate::read::value::LastingEntry;
use crate::read::{self, Keys, Pin};
use siltstone_base::{MergeOperator, Result, UnixMillis};
use std::sync::Arc;

impl Reader {
    /// The value of `key` at the time `at`, and the time until which it stays the same.
    ///
    /// # Errors
    /// As [`Reader::get`].
    pub(in crate::api) fn get_at(
        &self,
        key: &[u8],
        at: UnixMillis,
    ) -> Result<Answer<Option<LastingEntry>>> {
        let shared = self.shared()?;
        let pin = shared.pin_at(at);
        let levels = Arc::clone(pin.tree.below());
        let pending = match read::get_lasting(&shared.context, pin, key)? {
            Answer::Ready(found) => return Ok(Answer::Ready(found)),
            Answer::Pending(pending) => pending,
        };
        let read = |shared: &ReaderShared, (key, at): (Vec<u8>, UnixMillis)| {
            read::get_lasting(&shared.context, shared.pin_at(at), &key)
        };
        Ok(shared.repeated(levels, pending, (key.to_vec(), at), read))
    }

    /// Brings the blocks of `keys` into memory, joined in as few requests as their places allow.
    ///
    /// # Errors
    /// As [`Reader::get`].
    pub(in crate::api) async fn warm_keys(&self, keys: Keys, at: UnixMillis) -> Result<()> {
        let shared = self.shared()?;
        let keys = Arc::new(keys);
        let pin = shared.pin_at(at);
        let levels = Arc::clone(pin.tree.below());
        let pending = match read::get_many(&shared.context, pin, Arc::clone(&keys))? {
            Answer::Ready(_) => return Ok(()),
            Answer::Pending(pending) => pending,
        };
        let read = move |shared: &ReaderShared, keys: Arc<Keys>| {
            read::get_many(&shared.context, shared.pin_at(at), keys)
        };
        shared.repeated(levels, pending, keys, read).wait().await.map(drop)
    }

    /// The merge operator that reads use.
    pub(in crate::api) fn operator(&self) -> Option<Arc<dyn MergeOperator>> {
        self.inner.shared.context.operator().cloned()
    }
}

impl ReaderShared {
    fn pin_at(&self, at: UnixMillis) -> Pin {
        Pin { now: at, ..self.pin() }
    }
}
