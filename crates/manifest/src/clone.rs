//! The initial state of a clone, and the steps of its creation (rules K1 to K3, RFC 0029), as pure
//! functions.
//!
//! The creator adds pins, reads the state of the clone, and calls [`next_step`]. Every step is a
//! commit, so a process that repeats the request continues where the last one stopped.

use crate::compose::{
    Composition, Part, VisibleRange, check_alike, check_apart, check_objects, project, unite,
};
use crate::edit::{Conflict, Refusal};
use crate::features::{Features, INGEST_BEHIND};
use crate::span::Span;
use crate::state::clone::is_filled;
pub use crate::state::clone::{Composed, FIRST_ENTRY, entries, named_ancestors, next_set, pins};
use crate::state::{Ancestor, Manifest};
use bytes::Bytes;
use siltstone_base::sst::SstLocation;
use siltstone_base::{DatabaseId, Error, RequestId, Seq, SstDescriptor, UnixMillis};
use std::collections::HashMap;

/// The next step for a clone whose creation has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloneStep {
    /// Record its tables.
    Fill,
    /// Make its pins permanent; then it is complete.
    Hold,
    /// It is complete.
    Done,
}

/// The next step for the database with `state`, for the creator of `request`.
///
/// # Errors
/// Conflict if the database was not created by this request, or is in use.
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

/// The first manifest of a clone: it is being created and contains its pins. `sources` are the
/// states that it begins with, each with its name for error texts; `place` is the URL of the clone.
///
/// # Errors
/// Invalid without a source, and if the settings of two sources differ, with both names.
pub fn begun(
    database: DatabaseId,
    request: RequestId,
    sources: &[(&str, &Manifest)],
    entries: Vec<Ancestor>,
    place: Option<&str>,
) -> Result<Manifest, Error> {
    let settings = check_alike(sources.iter().copied())?;
    let all = sources.iter().map(|(_, source)| &source.features);
    let features = all.fold(Features::default(), |all, one| all.joined(one));
    let first = Manifest::new_database(database, settings);
    // The runs of a union are numbered from 0, and its parents may have dropped tombstones at the
    // bottom, so it accepts no jobs behind all other data.
    let (first, mut features) = match sources {
        [(_, source)] => (first.behind_as(source), features),
        _ => (first, features.unnamed(INGEST_BEHIND)),
    };
    features.place_clone(place);
    Ok(Manifest {
        initialized: false,
        request: Some(request),
        features,
        schema: sources.iter().find_map(|(_, source)| source.schema.clone()),
        last_ancestor: entries.iter().map(|entry| entry.number).max().unwrap_or_default(),
        ancestors: entries,
        ..first
    })
}

/// A state that a clone takes over.
#[derive(Clone, Copy, Debug)]
pub struct CloneSource<'a> {
    /// Its name in error texts: its location.
    pub name: &'a str,
    /// The pinned state.
    pub state: &'a Manifest,
    /// Number of the entry of that database in the clone. The entries of the ancestors that it
    /// references in `keys` ([`named_within`]) follow it, in their order.
    pub number: u32,
    /// The data in the pinned part of the log, as layers of the clone, oldest first: tables of the
    /// clone with its rows, and tables of its ingests, which are in the location of the source's
    /// own tables.
    pub log: &'a [Vec<SstDescriptor>],
    /// The largest sequence number in `state` and in those rows.
    pub last_seq: Seq,
    /// The latest commit time of both.
    pub commit_time: UnixMillis,
    /// The keys that are taken over: from the first one, before the second one; `None`: no bound.
    pub keys: (Option<&'a [u8]>, Option<&'a [u8]>),
}

/// The ancestors that contain tables of `state` with visible keys in `keys`, in ascending order of
/// number: a clone of that range needs them too (rule K7).
#[must_use]
pub fn named_within<'a>(state: &'a Manifest, keys: &VisibleRange) -> Vec<&'a Ancestor> {
    let places = project(state, keys).places();
    let named = |entry: &&Ancestor| places.contains(&SstLocation::Ancestor(entry.number));
    state.ancestors.iter().filter(named).collect()
}

/// A state that a clone will take over, before the rows of its log are written to tables.
#[derive(Clone, Debug)]
pub struct CloneRows<'a> {
    /// As in [`CloneSource`].
    pub name: &'a str,
    /// The pinned state.
    pub state: &'a Manifest,
    /// The keys that are taken over.
    pub keys: &'a VisibleRange,
    /// The spans of the tables of its log.
    pub log: Vec<Span>,
}

/// Checks that a clone can be composed of `sources`.
///
/// # Errors
/// Invalid, as [`compose`].
pub fn check_sources(sources: &[CloneRows<'_>]) -> Result<(), Error> {
    check_alike(sources.iter().map(|one| (one.name, one.state)))?;
    if sources.len() > 1 {
        let taken = |one: &CloneRows<'_>| project(one.state, one.keys);
        let states = sources.iter().map(|one| (one.name, one.state, taken(one)));
        check_objects(&states.collect::<Vec<_>>())?;
    }
    let hulls = sources.iter().map(|one| {
        let (start, end) = (one.keys.start.as_ref(), one.keys.end.as_ref());
        let tables = project(one.state, one.keys).hull();
        let rows = one.log.iter().filter_map(|span| span.within(start, end));
        (Span::hull(tables.into_iter().chain(rows)), one.name)
    });
    check_apart(hulls.collect())
}

/// Composes the initial state of a clone of `sources`: each is cut to its keys, and they are
/// combined (RFC 0031). A single source with all keys keeps everything except the location of its
/// tables: numbers, layers and their order.
///
/// # Errors
/// Invalid without a source, if the start of a key range is not below its end, and if the keys of
/// sources overlap or their settings differ, with both names; Corruption if two sources have
/// different tables with the same name.
pub fn compose(sources: &[CloneSource<'_>]) -> Result<Composed, Error> {
    let settings = check_alike(sources.iter().map(|one| (one.name, one.state)))?;
    let (mut parts, mut databases) = (Vec::with_capacity(sources.len()), HashMap::new());
    for source in sources {
        let keys = keys_of(source);
        keys.check()?;
        let places = places_of(source, &keys);
        for (number, database) in places.values() {
            databases.insert(SstLocation::Ancestor(*number), *database);
        }
        let number_of = |place| places.get(&place).map(|(number, _)| *number);
        let tables = taken_over(source, &keys, number_of)?;
        parts.push(Part { name: source.name.to_owned(), tables });
    }
    let tables = unite(parts, |place| databases.get(&place).copied())?;
    // Several histories have no common newest table.
    let compacted = match sources {
        [alone] => alone.state.l0_last_compacted,
        _ => None,
    };
    Ok(Composed {
        settings,
        schema: sources.iter().find_map(|source| source.state.schema.clone()),
        l0: tables.l0,
        last_l0_order: tables.last_l0_order,
        l0_last_compacted: compacted,
        runs: tables.runs,
        flushed_seq: tables.flushed_seq,
        commit_time: tables.commit_time,
    })
}

fn keys_of(source: &CloneSource<'_>) -> VisibleRange {
    let (start, end) = source.keys;
    let [start, end] = [start, end].map(|key| key.map(Bytes::copy_from_slice));
    VisibleRange { start, end }
}

/// The part of one source that the clone takes over: the layers of its log above its own layers,
/// cut to its keys.
fn taken_over(
    source: &CloneSource<'_>,
    keys: &VisibleRange,
    number_of: impl Fn(SstLocation) -> Option<u32>,
) -> Result<Composition, Error> {
    let mut tables = project(source.state, keys).located(number_of)?;
    for layer in source.log {
        tables = tables.topped(layer.clone(), source.last_seq);
    }
    tables.flushed_seq = tables.flushed_seq.max(source.last_seq);
    tables.commit_time = tables.commit_time.max(source.commit_time);
    Ok(tables.cut(keys))
}

/// The locations of the visible tables of a source: for each the number of the entry in the clone,
/// and the database.
fn places_of(
    source: &CloneSource<'_>,
    keys: &VisibleRange,
) -> HashMap<SstLocation, (u32, DatabaseId)> {
    let named = named_within(source.state, keys).into_iter();
    let named = named.map(|entry| (SstLocation::Ancestor(entry.number), entry.database));
    let all = std::iter::once((SstLocation::Own, source.state.database)).chain(named);
    let numbered = all.zip(source.number..);
    numbered.map(|((place, database), number)| (place, (number, database))).collect()
}

#[cfg(test)]
mod tests;
