//! What a clone begins with, and what its maker does next (rules K1 to K3, RFC 0029): pure.
//!
//! A maker pins, looks at what stands in the clone's place, and asks [`next_step`]; every step is a
//! commit, so whoever makes the same request goes on where the last one stopped.

use crate::edit::{Conflict, Refusal};
use crate::state::clone::is_filled;
pub use crate::state::clone::{Composed, entries, named_ancestors, pins};
use crate::state::{Ancestor, L0Entry, Manifest, SortedRun};
use siltstone_base::sst::SstLocation;
use siltstone_base::{DatabaseId, RequestId, Seq, SstDescriptor, UnixMillis};

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

/// Composes what a clone of `sources` begins with. Of one whole source everything stays but for
/// where it lies: numbers, layers and their places.
///
/// # Errors
/// Invalid for no source, several, or a part of one.
pub fn compose(sources: &[CloneSource<'_>]) -> Result<Composed, Refusal> {
    let [source] = sources else {
        return Err(Refusal::Invalid("a clone of several parents is not built yet"));
    };
    if source.keys != (None, None) {
        return Err(Refusal::Invalid("a clone of a range of keys is not built yet"));
    }
    let state = source.state;
    let mut l0 = Vec::with_capacity(state.l0.len() + source.log.len());
    let mut order = state.last_l0_order;
    for table in source.log {
        order += 1;
        l0.push(L0Entry { order, tables: vec![table.clone()] });
    }
    l0.reverse();
    for layer in &state.l0 {
        l0.push(L0Entry { order: layer.order, tables: moved(source, &layer.tables)? });
    }
    let runs = state.runs.iter().map(|run| {
        let tables = moved(source, &run.tables)?;
        Ok(SortedRun { id: run.id, tables })
    });
    Ok(Composed {
        settings: state.settings.clone(),
        schema: state.schema.clone(),
        l0,
        last_l0_order: order,
        l0_last_compacted: state.l0_last_compacted,
        runs: runs.collect::<Result<_, Refusal>>()?,
        flushed_seq: source.last_seq.max(state.flushed_seq),
        commit_time: source.commit_time.max(state.commit_time),
    })
}

/// The same tables as the clone names them.
fn moved(
    source: &CloneSource<'_>,
    tables: &[SstDescriptor],
) -> Result<Vec<SstDescriptor>, Refusal> {
    let named = named_ancestors(source.state);
    let place = |location| match location {
        SstLocation::Own => Some(source.number),
        SstLocation::Ancestor(number) => {
            let at = named.iter().position(|entry| entry.number == number)?;
            source.number.checked_add(u32::try_from(at).ok()?)?.checked_add(1)
        }
    };
    let moved = tables.iter().map(|table| {
        let number = place(table.location);
        let number = number.ok_or(Refusal::Broken("a table lies in an ancestor unknown"))?;
        Ok(SstDescriptor { location: SstLocation::Ancestor(number), ..table.clone() })
    });
    moved.collect()
}

#[cfg(test)]
mod tests;
