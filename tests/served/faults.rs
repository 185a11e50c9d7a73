//! The plan: every fault that a correct store shows, each with its probability. Stores that break
//! conditions (`ignore-conditions`, `late-write`) or lose objects (`missing` for the log or a
//! manifest) are refused or unsupported, and are not here.

use siltstone_test_server::fault::Rule;

const RULES: [&str; 30] = [
    "refuse=503:SlowDown probability=0.02",
    "refuse=429:SlowDown probability=0.005",
    "refuse=500:InternalError probability=0.01",
    "refuse=409:ConditionalRequestConflict on=put probability=0.02",
    "refuse=409:OperationAborted on=complete probability=0.02",
    "apply-then-refuse=500:InternalError probability=0.02",
    "apply-then-refuse=503:SlowDown on=put probability=0.02",
    "apply-then-refuse=408:RequestTimeout on=put probability=0.01",
    "apply-then-refuse=404:NoSuchKey on=delete probability=0.02",
    "reset-before probability=0.01",
    "reset-after probability=0.02",
    "hang-before=3000 probability=0.002",
    "hang-after=3000 probability=0.002",
    "hang-before=300 probability=0.01",
    "hang-after=300 probability=0.01",
    "land-late=200 on=put probability=0.02",
    "land-late=1500 on=put probability=0.01",
    "twice on=put probability=0.02",
    "twice on=delete-many probability=0.02",
    "reset-in-body probability=0.02",
    "stall-in-body=300 on=get probability=0.005",
    "trickle=200000 on=get probability=0.005",
    "short-body probability=0.01",
    "wrong-bytes probability=0.01",
    "whole-for-range probability=0.005",
    "wrong-range probability=0.005",
    "wrong-etag probability=0.02",
    "stale-list=2 probability=0.05",
    "messy-list probability=0.1",
    "web-page probability=0.005",
];

/// The rules of the plan.
pub(crate) fn plan() -> Vec<Rule> {
    let more = ["partly-failed-delete probability=0.2", "error-in-success probability=0.005"];
    let missing = "missing on=get key=*/compacted/* probability=0.002";
    let rules = RULES.into_iter().chain(more).chain([missing]);
    rules.map(|rule| Rule::parse(rule).unwrap()).collect()
}
