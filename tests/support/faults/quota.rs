//! Full disks: a bound on the bytes of all objects, for a while.

use siltstone_base::Error;
use std::time::Duration;

/// The bound, and what counts besides objects.
#[derive(Default)]
pub(super) struct Quota {
    /// So many bytes, until then: somebody makes room in the end.
    bound: Option<(u64, Duration)>,
    /// Parts of uploads that are not finished.
    staged: u64,
}

impl Quota {
    pub(super) fn is_set(&self, now: Duration) -> bool {
        self.bound.is_some_and(|(_, until)| now < until)
    }

    /// Leaves room for `spare` bytes more, until then.
    pub(super) fn set(&mut self, stored: u64, spare: u64, until: Duration) {
        self.bound = Some((stored + self.staged + spare, until));
    }

    pub(super) fn lift(&mut self) {
        self.bound = None;
    }

    /// Whether `bytes` more still fit.
    ///
    /// # Errors
    /// Unavailable when they do not.
    pub(super) fn check(&self, stored: u64, bytes: u64, now: Duration) -> Result<(), Error> {
        match self.bound {
            Some((bound, until)) if now < until && stored + self.staged + bytes > bound => {
                Err(Error::unavailable("no space left on the device"))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn stage(&mut self, bytes: u64) {
        self.staged += bytes;
    }

    pub(super) fn unstage(&mut self, bytes: u64) {
        self.staged = self.staged.saturating_sub(bytes);
    }
}
