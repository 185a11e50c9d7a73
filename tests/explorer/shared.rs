//! Parts of a state that successors share: cloned when changed, hashed once per change, and kept
//! once: different ways lead to the same part again and again, a hundred states share one, and
//! memory is what bounds a search.

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

    /// The part, to be changed.
    pub(crate) fn edit(&mut self) -> &mut T {
        self.stale = true;
        Arc::make_mut(&mut self.value)
    }

    /// Brings the hash up to date; where another state has the same part, it is that one from now
    /// on.
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

/// Parts of one kind that some state holds, by their hash.
struct Parts<T> {
    known: HashMap<u64, Weak<T>, BuildHasherDefault<Identity>>,
    /// When it has so many entries, those that no state holds any more are forgotten.
    sweep_at: usize,
}

/// Entries that are not worth a sweep.
const FEW: usize = 1 << 16;

thread_local! {
    /// The [`Parts`] of every kind that this thread's search has.
    static KEPT: RefCell<HashMap<TypeId, Box<dyn Any>>> = RefCell::default();
}

/// Puts the part of this hash that is known in the place of `value`, or makes that known.
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
