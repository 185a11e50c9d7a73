//! Full disks: a limit on the bytes of all objects, for a while.

use siltstone_base::Error;
use std::time::Duration;

/// The limit, and bytes besides objects.
#[derive(Default)]
pub(super) struct Quota {
    /// The limit, and until when it applies: then space is freed.
    bound: Option<(u64, Duration)>,
    /// Parts of unfinished uploads.
    staged: u64,
}

impl Quota {
    pub(super) fn is_set(&self, now: Duration) -> bool {
        self.bound.is_some_and(|(_, until)| now < until)
    }

    /// Leaves room for `spare` more bytes, until the given time.
    pub(super) fn set(&mut self, stored: u64, spare: u64, until: Duration) {
        self.bound = Some((stored + self.staged + spare, until));
    }

    pub(super) fn lift(&mut self) {
        self.bound = None;
    }

    /// Checks that `bytes` more still fit.
    ///
    /// # Errors
    /// Unavailable if they do not.
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
