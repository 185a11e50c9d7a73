//! A plan: the tables that a compaction merges, and the destination.
//!
//! The text form is `L0:4, L0:3, 7, 2{01ARZ…, 01BX5…} -> 2`: layers newest first, L0 by order and
//! runs by id; table ids in braces if only some tables of a layer are taken.

use crate::layer::Layer;
use siltstone_base::{Error, Result, SstId};
use std::fmt;
use std::str::FromStr;

/// The tables of a layer that a plan takes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Pick {
    /// All tables of the layer when the job starts.
    Whole,
    /// These tables; at least one.
    Tables(Vec<SstId>),
}

/// One source of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    /// The layer.
    pub layer: Layer,
    /// The tables of it.
    pub pick: Pick,
}

impl Source {
    /// All tables of `layer`.
    #[must_use]
    pub fn whole(layer: Layer) -> Source {
        Source { layer, pick: Pick::Whole }
    }
}

/// The reason for a plan: shown in the compaction log, and used for the priority of jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PlanReason {
    /// L0 has more layers than its threshold.
    L0Count,
    /// A level has more runs than its threshold.
    LevelRuns,
    /// There are more runs than the limit.
    TotalRuns,
    /// The layers above the last one are large compared to it.
    SpaceAmplification,
    /// Tombstones that no longer hide anything.
    Tombstones,
    /// Some tables contain only expired entries, or only keys below the retained windows.
    Expired,
    /// A time window is complete.
    Window,
    /// A user requested a compaction of the whole database.
    Major,
    /// A user wrote the plan.
    #[default]
    Manual,
}

impl PlanReason {
    /// All reasons, in the order of their stored numbers.
    pub const ALL: [PlanReason; 9] = [
        PlanReason::L0Count,
        PlanReason::LevelRuns,
        PlanReason::TotalRuns,
        PlanReason::SpaceAmplification,
        PlanReason::Tombstones,
        PlanReason::Expired,
        PlanReason::Window,
        PlanReason::Major,
        PlanReason::Manual,
    ];

    /// The name in logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            PlanReason::L0Count => "l0 count",
            PlanReason::LevelRuns => "runs of a level",
            PlanReason::TotalRuns => "total runs",
            PlanReason::SpaceAmplification => "space amplification",
            PlanReason::Tombstones => "tombstones",
            PlanReason::Expired => "expired",
            PlanReason::Window => "window",
            PlanReason::Major => "major",
            PlanReason::Manual => "manual",
        }
    }
}

/// The tables that a compaction merges, and the destination. [`validate`](super::validate) checks
/// whether it may run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    /// The sources, newest layer first.
    pub sources: Vec<Source>,
    /// The run that receives the result: a new or an existing one.
    pub destination: u32,
    /// The reason.
    pub reason: PlanReason,
    /// Whether a table that could be moved is read if this may free any space: because of the first
    /// tombstone, expired entry or range delete, not only if there are many.
    pub thorough: bool,
    /// A table ends where this many first bytes of the key change; 0: no such limit.
    pub cut_prefix_bytes: u16,
}

impl Plan {
    /// A plan that takes whole layers, newest first, to a run.
    #[must_use]
    pub fn whole(
        layers: impl IntoIterator<Item = Layer>,
        destination: u32,
        reason: PlanReason,
    ) -> Plan {
        let sources = layers.into_iter().map(Source::whole).collect();
        Plan { sources, destination, reason, thorough: false, cut_prefix_bytes: 0 }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.layer {
            Layer::Run(id) => write!(f, "{id}")?,
            Layer::L0(order) => write!(f, "L0:{order}")?,
        }
        let Pick::Tables(tables) = &self.pick else { return Ok(()) };
        f.write_str("{")?;
        for (at, table) in tables.iter().enumerate() {
            write!(f, "{}{table}", if at == 0 { "" } else { " " })?;
        }
        f.write_str("}")
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, source) in self.sources.iter().enumerate() {
            write!(f, "{}{source}", if at == 0 { "" } else { ", " })?;
        }
        write!(f, " -> {}", self.destination)
    }
}

impl FromStr for Plan {
    type Err = Error;

    /// Parses a plan from its text form.
    fn from_str(text: &str) -> Result<Plan> {
        let wrong = |part: &str| {
            Error::invalid("a plan is written `L0:4, L0:3, 7 -> 7`, newest source first")
                .with("not understood", part.trim())
        };
        let (sources, destination) = text.rsplit_once("->").ok_or_else(|| wrong(text))?;
        let destination = destination.trim().parse().map_err(|_| wrong(destination))?;
        let sources = sources.split(',').map(|part| source(part.trim()).ok_or_else(|| wrong(part)));
        Ok(Plan {
            sources: sources.collect::<Result<_>>()?,
            destination,
            reason: PlanReason::Manual,
            thorough: false,
            cut_prefix_bytes: 0,
        })
    }
}

fn source(text: &str) -> Option<Source> {
    let (layer, pick) = match text.split_once('{') {
        None => (text, Pick::Whole),
        Some((layer, names)) => {
            let names = names.strip_suffix('}')?.split_whitespace().map(SstId::parse);
            let names: Vec<SstId> = names.collect::<Option<_>>()?;
            (layer.trim(), Pick::Tables((!names.is_empty()).then_some(names)?))
        }
    };
    let layer = match layer.strip_prefix("L0:") {
        Some(order) => Layer::L0(order.parse().ok()?),
        None => Layer::Run(layer.parse().ok()?),
    };
    Some(Source { layer, pick })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_ordered_by_age() {
        let newest_first = [Layer::L0(9), Layer::L0(1), Layer::Run(u32::MAX), Layer::Run(0)];
        assert!(newest_first.is_sorted_by(|newer, older| newer > older));
    }

    #[test]
    fn a_plan_is_read_back_from_its_text() {
        let mut plan =
            Plan::whole([Layer::L0(4), Layer::L0(3), Layer::Run(7)], 2, PlanReason::Manual);
        let some = Pick::Tables(vec![SstId(1 << 90), SstId(7)]);
        plan.sources.push(Source { layer: Layer::Run(2), pick: some });
        assert_eq!(plan.to_string().parse::<Plan>().unwrap(), plan);
    }

    #[test]
    fn other_texts_are_refused_by_the_part_that_is_wrong() {
        for (text, part) in [
            ("L0:4, L0:3", "L0:4, L0:3"),
            ("L0:4, l0:3 -> 7", "l0:3"),
            ("L0:4 -> 4294967296", "4294967296"),
            ("7{} -> 7", "7{}"),
            ("-> 7", ""),
        ] {
            let error = text.parse::<Plan>().unwrap_err().to_string();
            assert!(error.contains(&format!("not understood: {part}")), "{text}: {error}");
        }
    }
}
