//! What a clone begins with, and what its maker does next (rules K1 to K3, RFC 0029): pure.
//!
//! A maker pins, looks at what stands in the clone's place, and asks [`next_step`]; every step is a
//! commit, so whoever makes the same request goes on where the last one stopped.

use crate::compose::{Composition, Part, VisibleRange, check_alike, project, unite};
use crate::edit::{Conflict, Refusal};
use crate::state::clone::is_filled;
pub use crate::state::clone::{Composed, entries, named_ancestors, pins};
use crate::state::{Ancestor, Manifest};
use bytes::Bytes;
use siltstone_base::sst::SstLocation;
use siltstone_base::{DatabaseId, Error, RequestId, Seq, SstDescriptor, UnixMillis};
use std::collections::HashMap;

/// What its maker does next about a clone that was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloneStep {
    /// Its tables are to be recorded.
    Fill,
    /// Its pins are to be made endless; then it is finished.
    Hold,
    /// It is made.
    Done,
}

/// What is next about the database that `state` describes, for whoever made `request`.
///
/// # Errors
/// Conflict, with what stands there: a database that is none of this request's, or is in use.
pub fn next_step(state: &Manifest, request: RequestId) -> Result<CloneStep, Refusal> {
    let database = state.database;
    if state.destroyed_at.is_some() {
        return Err(Conflict::Destroyed.into());
    }
    if state.request != Some(request) {
        let being_made = !state.initialized;
        return Err(Conflict::PlaceTaken { database, being_made }.into());
    }
    if !state.initialized {
        return Ok(if is_filled(state) { CloneStep::Hold } else { CloneStep::Fill });
    }
    if state.writer_epoch.is_none() {
        return Ok(CloneStep::Done);
    }
    Err(Conflict::CloneInUse { database }.into())
}

/// The first manifest of a clone: it is being made, and names its pins.
#[must_use]
pub fn begun(
    database: DatabaseId,
    request: RequestId,
    source: &Manifest,
    entries: Vec<Ancestor>,
) -> Manifest {
    Manifest {
        initialized: false,
        request: Some(request),
        features: source.features.clone(),
        schema: source.schema.clone(),
        last_ancestor: entries.iter().map(|entry| entry.number).max().unwrap_or_default(),
        ancestors: entries,
        ..Manifest::new_database(database, source.settings.clone())
    }
}

/// A state that a clone takes over.
#[derive(Clone, Copy, Debug)]
pub struct CloneSource<'a> {
    /// What the pin pins.
    pub state: &'a Manifest,
    /// Number of the clone's entry of that database. Those of its [`named_ancestors`] follow it, in
    /// their order.
    pub number: u32,
    /// Tables of the clone that hold the rows of the log that the pin covers: each a layer, the
    /// oldest first.
    pub log: &'a [SstDescriptor],
    /// The largest number of `state` and of those rows.
    pub last_seq: Seq,
    /// The latest commit time of both.
    pub commit_time: UnixMillis,
    /// The keys that are taken over, from the first to before the second; `None`: without a bound.
    pub keys: (Option<&'a [u8]>, Option<&'a [u8]>),
}

/// Composes what a clone of `sources` begins with: each cut to its keys, side by side (RFC 0031).
/// Of one whole source everything stays but for where it lies: numbers, layers and their places.
///
/// # Errors
/// Invalid for no source, for keys whose start is not below their end, and for sources whose
/// keys meet or whose settings differ, naming both; Corruption where two have tables of one name.
pub fn compose(sources: &[CloneSource<'_>]) -> Result<Composed, Error> {
    let Some(first) = sources.first() else {
        return Err(Error::invalid("a clone needs a parent"));
    };
    let names: Vec<String> = sources.iter().map(|one| one.state.database.to_string()).collect();
    check_alike(names.iter().map(String::as_str).zip(sources.iter().map(|one| one.state)))?;
    let (mut parts, mut databases) = (Vec::with_capacity(sources.len()), HashMap::new());
    for (source, name) in sources.iter().zip(&names) {
        let places = places_of(source);
        for (number, database) in places.values() {
            databases.insert(SstLocation::Ancestor(*number), *database);
        }
        let number_of = |place| places.get(&place).map(|(number, _)| *number);
        parts.push(Part { name: name.clone(), tables: taken_over(source, number_of)? });
    }
    let tables = unite(parts, |place| databases.get(&place).copied())?;
    let alone = sources.len() == 1;
    Ok(Composed {
        settings: first.state.settings.clone(),
        schema: first.state.schema.clone(),
        l0: tables.l0,
        last_l0_order: tables.last_l0_order,
        l0_last_compacted: first.state.l0_last_compacted.filter(|_| alone),
        runs: tables.runs,
        flushed_seq: tables.flushed_seq,
        commit_time: tables.commit_time,
    })
}

/// What a clone has of one source: the layers of its log above its own, cut to its keys.
fn taken_over(
    source: &CloneSource<'_>,
    number_of: impl Fn(SstLocation) -> Option<u32>,
) -> Result<Composition, Error> {
    let [start, end] = [source.keys.0, source.keys.1].map(|key| key.map(Bytes::copy_from_slice));
    let keys = VisibleRange { start, end };
    keys.check()?;
    let mut tables = project(source.state, &VisibleRange::default()).located(number_of)?;
    for table in source.log {
        tables = tables.topped(vec![table.clone()], source.last_seq);
    }
    tables.flushed_seq = tables.flushed_seq.max(source.last_seq);
    tables.commit_time = tables.commit_time.max(source.commit_time);
    Ok(tables.cut(&keys))
}

/// The places that tables of a source lie in: of each the number of the clone's entry, and the
/// database.
fn places_of(source: &CloneSource<'_>) -> HashMap<SstLocation, (u32, DatabaseId)> {
    let named = named_ancestors(source.state).into_iter();
    let named = named.map(|entry| (SstLocation::Ancestor(entry.number), entry.database));
    let all = std::iter::once((SstLocation::Own, source.state.database)).chain(named);
    let numbered = all.zip(source.number..);
    numbered.map(|((place, database), number)| (place, (number, database))).collect()
}

#[cfg(test)]
mod tests;
