//! Parts of a state that successors share: cloned when changed, hashed once per change, and stored
//! once. Different paths lead to the same part again and again, a hundred states share one, and
//! memory is the limit of a search.

use std::any::{Any, TypeId};
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::ops::Deref;
use std::sync::{Arc, Weak};
use xxhash_rust::xxh3::xxh3_64;

/// A part of a state. Reading is free; [`Shared::edit`] clones it and leaves its hash stale until
/// [`Shared::seal`].
#[derive(Clone, Debug)]
pub(crate) struct Shared<T> {
    value: Arc<T>,
    hash: u64,
    stale: bool,
}

impl<T: Clone + Hash + 'static> Shared<T> {
    pub(crate) fn new(value: T) -> Shared<T> {
        let hash = fingerprint(&value);
        Shared { value: Arc::new(value), hash, stale: false }
    }

    /// The part, for a change.
    pub(crate) fn edit(&mut self) -> &mut T {
        self.stale = true;
        Arc::make_mut(&mut self.value)
    }

    /// Updates the hash; if another state has the same part, both share it from now on.
    pub(crate) fn seal(&mut self) {
        if self.stale {
            self.hash = fingerprint(&*self.value);
            self.stale = false;
            keep_once(self.hash, &mut self.value);
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

/// Parts of one kind in existing states, by their hash.
struct Parts<T> {
    known: HashMap<u64, Weak<T>, BuildHasherDefault<Identity>>,
    /// At this number of entries, those that no state has any more are removed.
    sweep_at: usize,
}

/// Number of entries below which a sweep is not worth it.
const FEW: usize = 1 << 16;

thread_local! {
    /// The [`Parts`] of every kind in this thread's search.
    static KEPT: RefCell<HashMap<TypeId, Box<dyn Any>>> = RefCell::default();
}

/// Replaces `value` by the known part with this hash, or makes `value` known.
fn keep_once<T: 'static>(hash: u64, value: &mut Arc<T>) {
    KEPT.with_borrow_mut(|kept| {
        let none = || Box::new(Parts::<T> { known: HashMap::default(), sweep_at: FEW });
        let parts = kept.entry(TypeId::of::<T>()).or_insert_with(|| none());
        let Some(parts) = parts.downcast_mut::<Parts<T>>() else { return };
        if let Some(same) = parts.known.get(&hash).and_then(Weak::upgrade) {
            *value = same;
            return;
        }
        parts.known.insert(hash, Arc::downgrade(value));
        if parts.known.len() >= parts.sweep_at {
            parts.known.retain(|_, part| part.strong_count() > 0);
            parts.sweep_at = FEW.max(2 * parts.known.len());
        }
    });
}

/// 64 bits that distinguish values.
pub(crate) fn fingerprint(value: &impl Hash) -> u64 {
    let mut bytes = Gather(Vec::with_capacity(512));
    value.hash(&mut bytes);
    bytes.finish()
}

/// Collects the hashed bytes, so that one pass over contiguous bytes does the work.
struct Gather(Vec<u8>);

impl Hasher for Gather {
    fn finish(&self) -> u64 {
        xxh3_64(&self.0)
    }
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}

/// Fingerprints are uniform already: no second hash.
#[derive(Default)]
pub(crate) struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}
