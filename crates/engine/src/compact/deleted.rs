//! Range deletes, which make it unnecessary to read some tables.

use super::host::Host;
use crate::cache::metadata::MetadataBudget;
use siltstone_base::{Cover, Result, Seq, SstDescriptor};
use siltstone_manifest::Manifest;
use siltstone_manifest::compaction::Facts;

/// `facts` with the range deletes of all tables of `state`, except those above the oldest number
/// that is still read: what the others cover is hidden from all readers. Costs one request for each
/// table with range deletes whose metadata is not in memory, and none if no table has any.
///
/// # Errors
/// Errors of the store; Corruption.
pub(super) async fn with_deleted(
    host: &dyn Host,
    facts: &Facts,
    state: &Manifest,
) -> Result<Facts> {
    let mut facts = facts.clone();
    let ranged = |table: &&SstDescriptor| table.range_deletes.is_some();
    if !state.tables().any(|table| ranged(&table)) {
        return Ok(facts);
    }
    let oldest = match host.retention(state) {
        (_, Some(read_at)) => read_at.into_iter().min().unwrap_or(Seq::MAX),
        (floor, None) => floor,
    };
    let known = host.known_tables();
    let mut deleted = Vec::new();
    for descriptor in state.tables().filter(ranged) {
        let budget = MetadataBudget::new(usize::MAX);
        let table = host.context().table_once(&known.handle(descriptor, &budget)).await?;
        let list = table.range_deletes().list().iter();
        deleted.extend(list.filter(|one| one.seq <= oldest).cloned());
    }
    facts.deleted = Cover::of(deleted);
    Ok(facts)
}
