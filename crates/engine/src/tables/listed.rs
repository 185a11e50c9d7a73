//! The tables that exist in a location, by a listing with their lengths. A listing may be stale and
//! shows no damaged byte: before a table counts as lost, [`ListedTables::check_all_of`] reads it.

use crate::cache::ancestors::Ancestors;
use crate::manifests::client::look;
use crate::manifests::objects::Objects;
use siltstone_base::name::prefix;
use siltstone_base::sst::SstLocation;
use siltstone_base::{Error, ErrorKind, ObjectName, Result, SstDescriptor};
use siltstone_manifest::Manifest;
use siltstone_store::env::Env;
use siltstone_store::retry::with_retries;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

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

/// Checks that every table of `state` exists with its length, those of ancestors in their places.
/// Costs two listings for the database and for each ancestor, and a read for each lost table.
///
/// # Errors
/// Corruption for a table that is gone or has another length; NotFound if a parent is not at its
/// place; errors of the store.
pub(crate) async fn check_tables_of(objects: &Objects, state: &Manifest) -> Result<()> {
    let ancestors = Ancestors::default();
    ancestors.learn(state);
    let mut listed: BTreeMap<Option<u32>, (Objects, ListedTables)> = BTreeMap::new();
    for table in state.tables() {
        let place = match table.location {
            SstLocation::Own => None,
            SstLocation::Ancestor(number) => Some(number),
        };
        let (there, tables) = match listed.entry(place) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                let env = &objects.env;
                let store = ancestors.store_of(&env.store, table)?;
                let there = Objects { env: Env { store, ..env.clone() }, limit: objects.limit };
                let tables = ListedTables::list(&there).await?;
                unknown.insert((there, tables))
            }
        };
        if !tables.has(table) {
            check_table(there, &ancestors, table).await?;
        }
    }
    Ok(())
}

/// Checks a table that a listing lacks, or shows with another length, by a read of its last byte.
async fn check_table(there: &Objects, ancestors: &Ancestors, table: &SstDescriptor) -> Result<()> {
    let (name, end) = (table.name(), table.object_bytes);
    let get = || there.env.store.get(name, Some(end.saturating_sub(1)..end));
    let shorter = "a table is shorter than its manifest says";
    let text = match with_retries(&there.env, there.limit, "read table", get).await {
        Ok(Some(last)) if last.len() == 1 => return Ok(()),
        Ok(None) => "a table that the manifest names is gone",
        Ok(Some(_)) => shorter,
        Err(error) if error.kind() == ErrorKind::Corruption => shorter,
        Err(error) => return Err(error),
    };
    if let Some(parent) = ancestors.parent_of(table) {
        let newest = look(there, None).await?;
        if newest.is_none_or(|newest| newest.database != parent.database) {
            return Err(parent.lost().with("object", name));
        }
    }
    Err(ancestors.placed(Error::corruption(text).with("object", name), table))
}
