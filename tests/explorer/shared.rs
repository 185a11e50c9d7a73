//! Parts of a state that successors share: cloned when changed, hashed once per change.

use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// A part of a state. Reading is free; [`Shared::edit`] clones it and leaves its hash stale until
/// [`Shared::seal`].
#[derive(Clone, Debug)]
pub(crate) struct Shared<T> {
    value: Arc<T>,
    hash: u64,
    stale: bool,
}

impl<T: Clone + Hash> Shared<T> {
    pub(crate) fn new(value: T) -> Shared<T> {
        let hash = fingerprint(&value);
        Shared { value: Arc::new(value), hash, stale: false }
    }

    /// The part, to be changed.
    pub(crate) fn edit(&mut self) -> &mut T {
        self.stale = true;
        Arc::make_mut(&mut self.value)
    }

    /// Brings the hash up to date.
    pub(crate) fn seal(&mut self) {
        if self.stale {
            self.hash = fingerprint(&*self.value);
            self.stale = false;
        }
    }

    /// The hash as of the last [`Shared::seal`].
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// 64 bits that tell values apart.
pub(crate) fn fingerprint(value: &impl Hash) -> u64 {
    let mut bytes = Gather(Vec::with_capacity(512));
    value.hash(&mut bytes);
    bytes.finish()
}

/// Collects what is hashed, so that one pass over contiguous bytes does the work.
struct Gather(Vec<u8>);

impl Hasher for Gather {
    fn finish(&self) -> u64 {
        xxh3_64(&self.0)
    }
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}
