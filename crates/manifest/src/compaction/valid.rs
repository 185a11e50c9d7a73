//! Which plans may run. RFC 0018 contains the rule and its proof.
//!
//! A read searches the layers for a key from newest to oldest and stops at the first entry. So a
//! row may sink from its layer to the destination only if no table that stays in between, including
//! the destination, may hold its key. If all layers span the same keys, this means: consecutive
//! sources, and the destination is the last of them or directly below. If they do not, the rule
//! permits more: sources that are not neighbours, some tables of a run, and a destination run that
//! keeps other tables.

use super::plan::{Pick, Plan, Source};
use crate::layer::Layer;
use crate::span::{Span, first_passed};
use crate::state::Manifest;
use siltstone_base::{Error, JobId, SstDescriptor, SstId, TablePart};
use std::collections::HashSet;
use std::fmt;

/// A running job, as far as it restricts other plans.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Running {
    /// The job; [`JobId::NONE`] for a plan that is to start.
    pub job: JobId,
    /// The tables that it takes by layer, newest first: all parts of each table in its layer.
    pub inputs: Vec<(Layer, Vec<SstId>)>,
    /// The run that receives its result.
    pub destination: u32,
}

impl Running {
    /// Whether it takes a table from `layer`.
    #[must_use]
    pub fn takes_from(&self, layer: Layer) -> bool {
        self.inputs.iter().any(|(taken, _)| *taken == layer)
    }
}

/// The tables that a plan takes from one layer of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// The layer.
    pub layer: Layer,
    /// The tables, in ascending key order; at least one.
    pub tables: Vec<SstDescriptor>,
}

/// The reason why a plan may not run. The text says what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PlanRefusal {
    /// The plan has no sources.
    Empty,
    /// A source layer does not exist.
    NoSuchLayer {
        /// The layer.
        layer: Layer,
    },
    /// A table is not in its layer.
    NoSuchTable {
        /// The layer.
        layer: Layer,
        /// The table.
        table: SstId,
    },
    /// The sources are not given newest first, or a source is given twice.
    NotNewestFirst {
        /// The source that comes too early.
        older: Layer,
        /// The source after it.
        newer: Layer,
    },
    /// The destination is newer than a source.
    DestinationNewer {
        /// The source.
        source: Layer,
        /// The destination.
        destination: u32,
    },
    /// Rows of the plan would pass a table that stays and may hold their keys.
    Passed {
        /// Its layer.
        layer: Layer,
        /// The table.
        table: SstId,
    },
    /// Another job takes the table.
    Busy {
        /// The table.
        table: SstId,
        /// The other job.
        job: JobId,
    },
    /// Another job writes to the destination.
    SameDestination {
        /// The destination.
        destination: u32,
        /// The other job.
        job: JobId,
    },
    /// Rows of this plan and of another job would pass each other.
    Crosses {
        /// The other job.
        job: JobId,
    },
}

impl fmt::Display for PlanRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanRefusal::Empty => f.write_str("a plan needs at least one source"),
            PlanRefusal::NoSuchLayer { layer } => {
                write!(f, "there is no {layer} now; plan again on the newest state")
            }
            PlanRefusal::NoSuchTable { layer, table } => {
                write!(f, "{layer} has no table {table} now; plan again on the newest state")
            }
            PlanRefusal::NotNewestFirst { older, newer } => {
                write!(f, "{older} stands before {newer}; give sources newest first, each once")
            }
            PlanRefusal::DestinationNewer { source, destination } => write!(
                f,
                "destination {destination} is newer than source {source}; \
                 choose the id of the oldest source or a smaller one"
            ),
            PlanRefusal::Passed { layer, table } => write!(
                f,
                "table {table} of {layer} stays and may hold keys that would pass it; \
                 add {layer} to the sources, or choose a destination above it"
            ),
            PlanRefusal::Busy { table, job } => {
                write!(f, "job {job} takes table {table}; wait until it ends")
            }
            PlanRefusal::SameDestination { destination, job } => write!(
                f,
                "job {job} writes to run {destination}; \
                 wait until it ends or choose another destination"
            ),
            PlanRefusal::Crosses { job } => write!(
                f,
                "rows of this plan and of job {job} would pass each other; wait until it ends"
            ),
        }
    }
}

impl From<PlanRefusal> for Error {
    fn from(refusal: PlanRefusal) -> Error {
        Error::invalid(refusal.to_string())
    }
}

/// The tables that the plan takes, newest layer first, if it may run on `state` beside the jobs
/// `running`.
///
/// # Errors
/// The reason why it may not run.
pub fn validate(
    state: &Manifest,
    running: &[Running],
    plan: &Plan,
) -> Result<Vec<Input>, PlanRefusal> {
    in_order(&plan.sources)?;
    let oldest = plan.sources.last().ok_or(PlanRefusal::Empty)?.layer;
    let destination = Layer::Run(plan.destination);
    if destination > oldest {
        let destination = plan.destination;
        return Err(PlanRefusal::DestinationNewer { source: oldest, destination });
    }
    let inputs: Vec<Input> =
        plan.sources.iter().map(|source| find(state, source)).collect::<Result<_, _>>()?;
    let tables = inputs.iter().flat_map(|input| &input.tables);
    let going: HashSet<TablePart> = tables.map(SstDescriptor::part).collect();
    if let Some((layer, table)) = first_passed(state, &going, destination) {
        return Err(PlanRefusal::Passed { layer, table });
    }
    // Compared by id alone: records of jobs name a table by layer and id, which means all its parts
    // there. So no other job may take a part of the table or move one into that layer (rule K6).
    let going: HashSet<SstId> = going.iter().map(|part| part.id).collect();
    for other in running {
        beside(state, plan.destination, &inputs, &going, other)?;
    }
    Ok(inputs)
}

fn in_order(sources: &[Source]) -> Result<(), PlanRefusal> {
    let mut pairs = sources.iter().zip(sources.iter().skip(1));
    match pairs.find(|(newer, older)| newer.layer <= older.layer) {
        None => Ok(()),
        Some((first, second)) => {
            Err(PlanRefusal::NotNewestFirst { older: first.layer, newer: second.layer })
        }
    }
}

fn find(state: &Manifest, source: &Source) -> Result<Input, PlanRefusal> {
    let layer = source.layer;
    let tables = state.layer(layer).ok_or(PlanRefusal::NoSuchLayer { layer })?;
    let tables = match &source.pick {
        Pick::Whole => tables.to_vec(),
        Pick::Tables(names) => {
            let wanted: HashSet<SstId> = names.iter().copied().collect();
            let there: HashSet<SstId> = tables.iter().map(|table| table.id).collect();
            if let Some(table) = names.iter().find(|name| !there.contains(name)).copied() {
                return Err(PlanRefusal::NoSuchTable { layer, table });
            }
            tables.iter().filter(|table| wanted.contains(&table.id)).cloned().collect()
        }
    };
    if tables.is_empty() { Err(PlanRefusal::Empty) } else { Ok(Input { layer, tables }) }
}

/// Whether the plan may run at the same time as `other`, in either order of their commits.
fn beside(
    state: &Manifest,
    destination: u32,
    inputs: &[Input],
    going: &HashSet<SstId>,
    other: &Running,
) -> Result<(), PlanRefusal> {
    let job = other.job;
    let mut taken = other.inputs.iter().flat_map(|(_, tables)| tables);
    if let Some(table) = taken.find(|table| going.contains(table)).copied() {
        return Err(PlanRefusal::Busy { table, job });
    }
    if other.destination == destination {
        return Err(PlanRefusal::SameDestination { destination, job });
    }
    let theirs: Vec<Input> = other
        .inputs
        .iter()
        .filter_map(|(layer, names)| {
            let pick = Pick::Tables(names.clone());
            find(state, &Source { layer: *layer, pick }).ok()
        })
        .collect();
    let crosses = sinks_through(inputs, destination, &theirs, other.destination)
        || sinks_through(&theirs, other.destination, inputs, destination);
    if crosses { Err(PlanRefusal::Crosses { job }) } else { Ok(()) }
}

/// Whether the tables of `inputs`, on their way to `destination`, may overlap the output of a job
/// over `others` at `landing`. An output may span the gap between two inputs, so the hull of all
/// inputs is compared.
fn sinks_through(inputs: &[Input], destination: u32, others: &[Input], landing: u32) -> bool {
    let landing = Layer::Run(landing);
    let spans = others.iter().flat_map(|input| &input.tables).map(Span::of);
    let Some(hull) = Span::hull(spans.filter(|span| !span.is_empty())) else { return false };
    let through =
        inputs.iter().filter(|input| Layer::Run(destination) <= landing && landing <= input.layer);
    through.flat_map(|input| &input.tables).any(|table| Span::of(table).meets(&hull))
}

#[cfg(test)]
mod tests;
