//! Handles that use a store. A store may keep files and folders open for them. It closes these when
//! the last handle ends, so a closed handle releases its descriptors even while the handle or a
//! scan of it still exists.

use std::fmt;

/// The use of a store by one handle, from [`Place::begin_use`](crate::Place::begin_use). Dropping
/// it ends the use.
pub struct StoreUse {
    end: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl StoreUse {
    /// A use that runs `end` when it ends.
    #[must_use]
    pub fn ending(end: impl FnOnce() + Send + Sync + 'static) -> StoreUse {
        StoreUse { end: Some(Box::new(end)) }
    }

    /// A use of a store that keeps nothing open for its handles.
    #[must_use]
    pub fn unknown() -> StoreUse {
        StoreUse { end: None }
    }
}

impl Drop for StoreUse {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            end();
        }
    }
}

impl fmt::Debug for StoreUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreUse").finish_non_exhaustive()
    }
}
