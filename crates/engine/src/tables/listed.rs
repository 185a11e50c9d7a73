//! The tables that exist in a location, by a listing with their lengths. A listing may be stale and
//! shows no damaged byte: it never proves that a table is lost.

use crate::manifests::objects::Objects;
use siltstone_base::name::prefix;
use siltstone_base::sst::SstLocation;
use siltstone_base::{ObjectName, Result, SstDescriptor};
use siltstone_manifest::Manifest;
use std::collections::BTreeMap;

/// Existing tables and their lengths.
#[derive(Default)]
pub(crate) struct ListedTables(BTreeMap<ObjectName, u64>);

impl ListedTables {
    pub(crate) async fn list(objects: &Objects) -> Result<ListedTables> {
        let mut tables = BTreeMap::new();
        for folder in [prefix::COMPACTED, prefix::INGEST] {
            let listed = objects.list(folder).await?;
            tables.extend(listed.into_iter().map(|one| (one.name, one.bytes)));
        }
        Ok(ListedTables(tables))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ObjectName, u64)> {
        self.0.iter().map(|(name, bytes)| (*name, *bytes))
    }

    /// Whether the table exists with the length that its descriptor has.
    pub(crate) fn has(&self, table: &SstDescriptor) -> bool {
        self.0.get(&table.name()) == Some(&table.object_bytes)
    }

    /// Whether all tables of `manifest` exist. Tables of ancestors are not checked, because pins
    /// retain them there.
    pub(crate) fn has_all_of(&self, manifest: &Manifest) -> bool {
        let mut own = manifest.tables().filter(|table| table.location == SstLocation::Own);
        own.all(|table| self.has(table))
    }
}
