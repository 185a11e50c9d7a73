//! Buckets that know of each other, as prefixes of one bucket do: a clone follows its parents.

use super::bucket::Bucket;
use super::plan::FaultPlan;
use crate::sim::SimHandle;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

/// What URLs of such buckets begin with.
const SCHEME: &str = "sim://";

/// The buckets of one world by name. They live as long as this does.
#[derive(Default)]
pub struct Places(Mutex<BTreeMap<String, Arc<Bucket>>>);

/// Where a bucket is, and who is beside it.
pub(super) struct Place {
    name: String,
    others: Weak<Places>,
}

impl Places {
    /// The bucket of that name; an empty one under `plan` where there was none.
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

    /// The bucket at `location`, where there is one.
    pub(super) fn neighbour(&self, location: &str) -> Option<Arc<Bucket>> {
        let name = location.strip_prefix(SCHEME)?;
        self.others.upgrade()?.0.lock().get(name).cloned()
    }
}
