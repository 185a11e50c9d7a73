use super::*;
use crate::compaction::plan::Why;
use crate::edit::{Edit, Refusal};
use crate::state::{L0Entry, SortedRun};
use crate::testing::{empty, table};
use bytes::Bytes;
use proptest::prelude::*;
use siltstone_base::{AttemptId, Epoch, Seq};

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

fn check(text: &str) -> Result<Vec<Input>, PlanRefusal> {
    validate(&nine_layers(), &[], &text.parse().unwrap())
}

#[test]
fn the_examples_of_the_nine_layers() {
    for valid in [
        "L0:2, L0:1 -> 101",
        "L0:1, 100 -> 100",
        "L0:4, L0:3, L0:2, L0:1, 100, 50, 3, 1, 0 -> 0",
        "100, 50 -> 4",
        "100 -> 51",
    ] {
        assert!(check(valid).is_ok(), "{valid}");
    }
    let passed = |layer, table| Err(PlanRefusal::Passed { layer, table: SstId(table) });
    assert_eq!(check("L0:4, L0:3 -> 101"), passed(Layer::L0(2), 2));
    assert_eq!(check("100, 50 -> 2"), passed(Layer::Run(3), 1003));
    assert_eq!(check("100, 50 -> 3"), passed(Layer::Run(3), 1003));
    assert_eq!(check("100, 3 -> 3"), passed(Layer::Run(50), 1050));
}

#[test]
fn what_cannot_be_a_plan_is_refused_by_name() {
    let gone = PlanRefusal::NoSuchLayer { layer: Layer::Run(7) };
    assert_eq!(check("100, 50, 7 -> 7"), Err(gone));
    let twice = PlanRefusal::NotNewestFirst { older: Layer::Run(3), newer: Layer::Run(3) };
    assert_eq!(check("3, 3 -> 3"), Err(twice));
    let turned = PlanRefusal::NotNewestFirst { older: Layer::Run(50), newer: Layer::Run(100) };
    assert_eq!(check("50, 100 -> 50"), Err(turned));
    let newer = PlanRefusal::DestinationNewer { source: Layer::Run(50), destination: 60 };
    assert_eq!(check("100, 50 -> 60"), Err(newer));
    let none = Plan::whole([], 0, Why::Manual);
    assert_eq!(validate(&nine_layers(), &[], &none), Err(PlanRefusal::Empty));
    let table = SstId(5);
    let other = PlanRefusal::NoSuchTable { layer: Layer::Run(3), table };
    assert_eq!(check(&format!("3{{{table}}} -> 3")), Err(other));
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

fn running(text: &str, job: u128) -> Running {
    let plan: Plan = text.parse().unwrap();
    let names = |input: Input| (input.layer, input.tables.iter().map(|one| one.id).collect());
    let inputs = validate(&nine_layers(), &[], &plan).unwrap();
    Running {
        job: JobId(job),
        inputs: inputs.into_iter().map(names).collect(),
        destination: plan.destination,
    }
}

#[test]
fn jobs_beside_each_other() {
    let l0 = running("L0:2, L0:1 -> 101", 1);
    let deep = running("3, 1, 0 -> 0", 2);
    let beside =
        |text: &str| validate(&nine_layers(), &[l0.clone(), deep.clone()], &text.parse().unwrap());
    assert!(beside("100, 50 -> 50").is_ok());
    let (table, job) = (SstId(1), JobId(1));
    // The newer layers would have to pass what job 1 has not taken away yet.
    let older = PlanRefusal::Passed { layer: Layer::L0(2), table: SstId(2) };
    assert_eq!(beside("L0:4, L0:3 -> 102"), Err(older));
    assert_eq!(beside("L0:1 -> 102"), Err(PlanRefusal::Busy { table, job }));
    let same = PlanRefusal::SameDestination { destination: 0, job: JobId(2) };
    let mut disjoint = nine_layers();
    disjoint.runs[0].tables[0].last_key = b"b".as_slice().into();
    for run in &mut disjoint.runs[1..] {
        run.tables[0].first_key = b"c".as_slice().into();
    }
    let plan: Plan = "100 -> 0".parse().unwrap();
    assert_eq!(validate(&disjoint, std::slice::from_ref(&deep), &plan), Err(same));
}

/// What a job leaves may reach over a gap between its inputs: nothing may sink through there.
#[test]
fn jobs_do_not_cross() {
    let mut state = nine_layers();
    state.l0.clear();
    let bounds: [(&[u8], &[u8]); 5] =
        [(b"a", b"c"), (b"m", b"n"), (b"x", b"z"), (b"a", b"c"), (b"x", b"z")];
    for (run, (first, last)) in state.runs.iter_mut().zip(bounds) {
        run.tables[0].first_key = Bytes::copy_from_slice(first);
        run.tables[0].last_key = Bytes::copy_from_slice(last);
    }
    // Runs 100 (a-c), 50 (m-n), 3 (x-z), 1 (a-c), 0 (x-z). The job makes one table a-z of run 3
    // and run 1, at 1; run 50 would sink through it.
    let plan: Plan = "3, 1 -> 1".parse().unwrap();
    let names = |input: Input| (input.layer, input.tables.iter().map(|one| one.id).collect());
    let inputs = validate(&state, &[], &plan).unwrap();
    let inputs = inputs.into_iter().map(names).collect();
    let job = [Running { job: JobId(9), inputs, destination: 1 }];
    let through: Plan = "50 -> 0".parse().unwrap();
    assert!(validate(&state, &[], &through).is_ok());
    assert_eq!(validate(&state, &job, &through), Err(PlanRefusal::Crosses { job: JobId(9) }));
    // The other way round: the job under way sinks through where this plan leaves its result.
    let inputs = vec![(Layer::Run(50), vec![SstId(1050)])];
    let job = [Running { job: JobId(8), inputs, destination: 0 }];
    assert_eq!(validate(&state, &job, &plan), Err(PlanRefusal::Crosses { job: JobId(8) }));
}

/// The rule of neighbours, word by word, for layers that all span the same keys: sources consecutive, and
/// a destination that is the last source, a run, or a new run right below it.
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
    /// Where all layers span the same keys the rule is that of neighbours.
    #[test]
    fn over_all_keys_the_rule_is_that_of_neighbours(
        picked in prop::collection::vec(0usize..9, 1..6), destination in 0u32..110,
    ) {
        let state = nine_layers();
        let layers: Vec<Layer> = state.layers().map(|(layer, _)| layer).collect();
        let mut picked = picked;
        picked.sort_unstable();
        let sources = picked.iter().map(|at| layers[*at]);
        let plan = Plan::whole(sources, destination, Why::Manual);
        let answer = validate(&state, &[], &plan);
        prop_assert_eq!(answer.is_ok(), neighbours_permit(&state, &plan), "{} {:?}", plan, answer);
    }

    /// A commit judges as the plan was judged, while nothing else has changed.
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
        let plan = Plan::whole(sources, destination, Why::Manual);
        let names = |input: &Input| input.tables[0].id;
        let going: Vec<SstId> = match validate(&state, &[], &plan) {
            Ok(inputs) => inputs.iter().map(names).collect(),
            Err(_) => picked.iter().map(|at| state.layer(layers[*at]).unwrap()[0].id).collect(),
        };
        let finish = Edit::FinishCompaction(crate::FinishCompaction {
            epoch: Epoch(1),
            job: JobId(1),
            remove: going,
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
