//! The record of a separate store of the log, which the manifest keeps and the store checks.

use crate::id::StoreId;

/// The store of a WAL that is not in the store of the other objects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WalStore {
    /// Identity of the store.
    pub id: StoreId,
    /// Its location as a URL; `None` if every opener must name the store itself.
    pub location: Option<String>,
}
