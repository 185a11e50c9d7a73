//! Buckets that can reach each other, as prefixes of one bucket can: a clone follows its parents.

use super::bucket::Bucket;
use super::plan::FaultPlan;
use crate::sim::SimHandle;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

/// The scheme of URLs of such buckets.
const SCHEME: &str = "sim://";

/// The buckets of one world by name. They live as long as this value.
#[derive(Default)]
pub struct Places(Mutex<BTreeMap<String, Arc<Bucket>>>);

/// The location of a bucket, and its neighbours.
pub(super) struct Place {
    name: String,
    others: Weak<Places>,
}

impl Places {
    /// The bucket with that name; an empty one under `plan` if there was none.
    #[must_use]
    pub fn bucket(self: &Arc<Self>, sim: &SimHandle, name: &str, plan: FaultPlan) -> Arc<Bucket> {
        if let Some(known) = self.0.lock().get(name) {
            return Arc::clone(known);
        }
        let place = Place { name: name.to_owned(), others: Arc::downgrade(self) };
        let made = Bucket::at(sim, plan, Some(place));
        self.0.lock().insert(name.to_owned(), Arc::clone(&made));
        made
    }

    /// All of them, by name.
    #[must_use]
    pub fn all(&self) -> Vec<(String, Arc<Bucket>)> {
        self.0.lock().iter().map(|(name, one)| (name.clone(), Arc::clone(one))).collect()
    }

    /// [`Bucket::heal`] for all of them.
    pub fn heal(&self) {
        self.all().into_iter().for_each(|(_, bucket)| bucket.heal());
    }
}

impl Place {
    pub(super) fn location(&self) -> String {
        format!("{SCHEME}{}", self.name)
    }

    /// The bucket at `location`, if it exists.
    pub(super) fn neighbour(&self, location: &str) -> Option<Arc<Bucket>> {
        let name = location.strip_prefix(SCHEME)?;
        self.others.upgrade()?.0.lock().get(name).cloned()
    }
}
