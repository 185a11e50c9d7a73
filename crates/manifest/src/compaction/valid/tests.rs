use super::*;
use crate::compaction::plan::PlanReason;
use crate::edit::{Edit, Refusal};
use crate::state::{L0Entry, SortedRun};
use crate::testing::{empty, table};
use proptest::prelude::*;
use siltstone_base::{AttemptId, Epoch, ManifestId, Seq};

/// L0 layers 4 to 1 over runs 100, 50, 3, 1 and 0. Every table spans all keys; L0 layer n is table
/// n, run n is table 1000 + n.
fn nine_layers() -> Manifest {
    let mut state = empty();
    let l0 = |order: u64| L0Entry {
        order,
        tables: vec![table(SstId(order.into()), b"a", b"z", 100 + order, 100 + order)],
    };
    state.l0 = (1..=4).rev().map(l0).collect();
    let run = |id: u32| SortedRun {
        id,
        tables: vec![table(SstId(1000 + u128::from(id)), b"a", b"z", 1, 50)],
    };
    state.runs = [100, 50, 3, 1, 0].map(run).to_vec();
    state.last_l0_order = 4;
    state.flushed_seq = Seq(200);
    state.compactor_epoch = Epoch(1);
    state.compactor_claim = AttemptId(1);
    state
}

#[test]
fn a_plan_takes_something() {
    let none = Plan::whole([], 0, PlanReason::Manual);
    assert_eq!(validate(&nine_layers(), &[], &none), Err(PlanRefusal::Empty));
}

#[test]
fn every_refusal_says_what_would_help() {
    let (layer, table, job) = (Layer::Run(3), SstId(5), JobId(6));
    let refusals = [
        (PlanRefusal::Empty, "at least one source"),
        (PlanRefusal::NoSuchLayer { layer }, "plan again"),
        (PlanRefusal::NoSuchTable { layer, table }, "plan again"),
        (PlanRefusal::NotNewestFirst { older: layer, newer: layer }, "newest first"),
        (PlanRefusal::DestinationNewer { source: layer, destination: 4 }, "choose the id"),
        (PlanRefusal::Passed { layer, table }, "add run 3 to the sources"),
        (PlanRefusal::Busy { table, job }, "wait until it ends"),
        (PlanRefusal::SameDestination { destination: 3, job }, "choose another"),
        (PlanRefusal::Crosses { job }, "wait until it ends"),
    ];
    for (refusal, help) in refusals {
        let text = Error::from(refusal).to_string();
        assert!(text.contains(help), "{text}");
    }
}

/// The rule of neighbours, literally, for layers that all span the same keys: consecutive sources,
/// and a destination that is the last source, a run, or a new run directly below it.
fn neighbours_permit(state: &Manifest, plan: &Plan) -> bool {
    let layers: Vec<Layer> = state.layers().map(|(layer, _)| layer).collect();
    let sources: Vec<Layer> = plan.sources.iter().map(|source| source.layer).collect();
    let consecutive =
        layers.windows(sources.len().max(1)).find(|window| *window == sources.as_slice());
    let Some(last) = consecutive.and_then(|window| window.last()) else { return false };
    let next = layers.iter().find(|layer| *layer < last).copied();
    let destination = Layer::Run(plan.destination);
    destination == *last || (destination < *last && next.is_none_or(|next| next < destination))
}

proptest! {
    /// If all layers span the same keys, the rule is that of neighbours.
    #[test]
    fn over_all_keys_the_rule_is_that_of_neighbours(
        picked in prop::collection::vec(0usize..9, 1..6), destination in 0u32..110,
    ) {
        let state = nine_layers();
        let layers: Vec<Layer> = state.layers().map(|(layer, _)| layer).collect();
        let mut picked = picked;
        picked.sort_unstable();
        let sources = picked.iter().map(|at| layers[*at]);
        let plan = Plan::whole(sources, destination, PlanReason::Manual);
        let answer = validate(&state, &[], &plan);
        prop_assert_eq!(answer.is_ok(), neighbours_permit(&state, &plan), "{} {:?}", plan, answer);
    }

    /// A commit accepts exactly the plans that were accepted, if nothing else has changed.
    #[test]
    fn the_commit_agrees(
        bounds in prop::collection::vec((b'a'..b'm', 0u8..6), 9),
        picked in prop::collection::vec(0usize..9, 1..5), destination in 0u32..110,
    ) {
        let mut state = nine_layers();
        let tables = state.l0.iter_mut().map(|entry| &mut entry.tables[0]);
        let tables = tables.chain(state.runs.iter_mut().map(|run| &mut run.tables[0]));
        for (table, (first, length)) in tables.zip(bounds) {
            table.first_key = vec![first].into();
            table.last_key = vec![first + length].into();
        }
        let layers: Vec<Layer> = state.layers().map(|(layer, _)| layer).collect();
        let mut picked = picked;
        picked.sort_unstable();
        picked.dedup();
        let sources = picked.iter().map(|at| layers[*at]);
        let plan = Plan::whole(sources, destination, PlanReason::Manual);
        let names = |input: &Input| input.tables[0].id;
        let going: Vec<SstId> = match validate(&state, &[], &plan) {
            Ok(inputs) => inputs.iter().map(names).collect(),
            Err(_) => picked.iter().map(|at| state.layer(layers[*at]).unwrap()[0].id).collect(),
        };
        let finish = Edit::FinishCompaction(crate::FinishCompaction {
            epoch: Epoch(1),
            job: JobId(1),
            planned_on: ManifestId::FIRST,
            remove: going.into_iter().map(Into::into).collect(),
            add: Vec::new(),
            destination,
            retire: Vec::new(),
        });
        let commit = finish.apply(&state);
        let refused = validate(&state, &[], &plan).is_err();
        prop_assert_eq!(refused, commit.is_err(), "{} {:?}", plan, commit);
        prop_assert!(!matches!(commit, Err(Refusal::Broken(_))));
    }
}
