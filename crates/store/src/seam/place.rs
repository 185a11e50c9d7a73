//! Where the objects of a database lie, which handles use them there, and which other places are
//! reached from there.

use crate::Store;
use crate::in_use::StoreUse;
use crate::presence::Presence;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use siltstone_base::{DatabaseId, Error, ObjectName, Result};
use std::sync::Arc;

/// Whether a store has copied an object by itself.
pub type CopyAnswer<'a> = BoxFuture<'a, Result<bool>>;

/// The place of a store. By default it has no URL, admits every writer, and keeps nothing open.
pub trait Place: Send + Sync {
    /// The URL by which another process finds this store; `None` if there is none.
    fn location(&self) -> Option<String> {
        None
    }

    /// Whether `location`, an earlier result of [`Place::location`], is this place.
    fn stands_at(&self, location: &str) -> bool {
        self.location().as_deref() == Some(location)
    }

    /// Shows other openers that a writer of `database` lives here, while the result is held. With
    /// `take_over` it ends the presence of an earlier writer. Stores that cannot know admit every
    /// writer.
    ///
    /// # Errors
    /// Conflict, with its identity, while another writer is known to be alive; not with
    /// `take_over`.
    fn occupy(&self, _: DatabaseId, _take_over: bool) -> BoxFuture<'_, Result<Presence>> {
        ready(Ok(Presence::unknown())).boxed()
    }

    /// Begins the use of this store by a handle. While there is a use, a store may keep files and
    /// folders open between requests. After the last use has ended it keeps nothing open until
    /// another one begins; later requests, of scans that outlive their handle, open files and close
    /// them again.
    fn begin_use(&self) -> StoreUse {
        StoreUse::unknown()
    }
}

/// Stores of other databases, reached from one store: the ancestors of a clone. By default there
/// are none.
pub trait Neighbours: Send + Sync {
    /// Checks that the place of an ancestor, which a manifest names, may be followed from here. A
    /// manifest may come from anywhere, so the store decides: it allows places of its own kind and
    /// bucket, and those in its options.
    ///
    /// # Errors
    /// Unsupported for every other place.
    fn follows(&self, location: &str) -> Result<()> {
        Err(not_followed(None, location))
    }

    /// The store of another database at `location`, with the same clients.
    ///
    /// # Errors
    /// As [`Neighbours::follows`].
    fn neighbour(&self, location: &str) -> Result<Arc<dyn Store>> {
        Err(not_followed(None, location))
    }

    /// Has the store copy an object of the database at `location` to `to`, without moving its bytes
    /// through this process. `to` is a name as for [`Store::upload`]. Returns `false` if this store
    /// cannot copy.
    fn copy_from(&self, _location: &str, _from: ObjectName, _to: ObjectName) -> CopyAnswer<'_> {
        ready(Ok(false)).boxed()
    }
}

/// The place of a store that has none, and no neighbours.
pub(super) struct Nowhere;

impl Place for Nowhere {}

impl Neighbours for Nowhere {}

/// The error for an ancestor at a place that a store at `here` does not follow.
pub(crate) fn not_followed(here: Option<String>, location: &str) -> Error {
    Error::unsupported(
        "tables of a clone lie at a place that is not followed from here: a clone and its parents \
         must lie in one bucket, in folders of one machine, or in the memory of one process, \
         unless the store option `clone_parents` names other places, as in \
         clone_parents=s3://bucket/path",
    )
    .with("ancestor", location)
    .with("here", here.unwrap_or_else(|| "nowhere".to_owned()))
}
