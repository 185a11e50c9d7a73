//! Exhaustive exploration of the protocols (RFC 0004): every interleaving of writers, readers,
//! compactors and collectors, with crashes, lost answers and requests that land late, breadth
//! first, over the real step functions and a model of the store.
//!
//! | module | holds |
//! | --- | --- |
//! | `search` | breadth-first search, fingerprints, shortest traces |
//! | `world` | one state: store, network, processes, truth |
//! | `ghost` | the truth and the invariants that need it |
//! | `actor` | common parts of processes: requests, conditional creates, crashes |
//! | `writer`, `reader`, `pinner`, `leaser`, `compactor`, `worker`, `collector` | the processes |
//! | `unit` | a task of a cluster that merges a range for a driver |
//! | `jobs` | compaction jobs and their record, for `compactor` and `worker` |
//! | `model` | steps and invariants combined |
//! | `configs`, `drops` | the explored configurations; each rule left out in turn |
//! | `remaking` | a separate world: a database is destroyed, and another one created at its place |
//! | `restoring` | a separate world: a checkpoint becomes the current state again |
//! | `repairing` | a separate world: unreadable objects are skipped |
//! | `ingesting` | a separate world: a job is requested, adopted, installed, collected, and
//! restored |
//! | `batching` | a separate world: a large batch is uploaded, replayed by others and installed |
//! | `feeding` | a separate world: consumers of a change feed hold the log, and a collector frees
//! it |

#![cfg(test)]
#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::panic,
    reason = "a test that measures itself, reports, and stops at what it did not expect"
)]

mod actor;
mod batching;
mod chain;
mod collector;
mod compactor;
mod configs;
mod drops;
mod feeding;
mod ghost;
mod ingesting;
mod jobs;
mod leaser;
mod model;
mod pinner;
mod reader;
mod remaking;
mod repairing;
mod restoring;
mod search;
mod shared;
mod step;
mod unit;
mod worker;
mod world;
mod writer;

use configs::Size;
use model::{Config, Told};
use search::{Report, search};
use siltstone_manifest::Rule;
use std::time::Instant;
use world::Tags;

/// Maximum number of states in the search for the effect of a dropped rule.
const DROP_LIMIT: usize = 4_000_000;
/// Maximum number of states of a large configuration: breadth first, so every shorter path was
/// explored. Half a GiB and a minute or two; `EXPLORE_STATES` sets another number.
const LARGE_LIMIT: usize = 6_000_000;
/// Maximum number of states of the same configuration with the rule in force.
const CONTROL_LIMIT: usize = 200_000;

/// Explores and reports the extent.
fn explore(config: &Config, limit: usize) -> Report {
    let start = Instant::now();
    let report = search(config, limit);
    println!(
        "{:<44} {:>9} states {:>10} steps  depth {:>3}  {:>6.1} s{}",
        config.name,
        report.states,
        report.steps,
        report.depth,
        start.elapsed().as_secs_f64(),
        if report.complete { "" } else { "  (stopped)" }
    );
    report
}

/// Every state of every configuration keeps every invariant. `EXPLORE=full` adds the large ones;
/// any other value explores only those whose name contains it. `EXPLORE_STATES` sets the limit of
/// the large ones.
#[test]
fn every_rule_in_force_keeps_every_invariant() {
    let asked = std::env::var("EXPLORE").ok();
    let (full, part) = match asked.as_deref() {
        Some("full") => (true, None),
        part => (part.is_some(), part),
    };
    let given = std::env::var("EXPLORE_STATES").ok().and_then(|given| given.parse().ok());
    let (mut states, mut broken) = (0, Vec::new());
    for (config, size) in configs::all() {
        if (size == Size::Large && !full) || part.is_some_and(|part| !config.name.contains(part)) {
            continue;
        }
        let large = given.unwrap_or(LARGE_LIMIT);
        let limit = if size == Size::Large { large } else { usize::MAX };
        let report = explore(&config, limit);
        if let Some(violation) = report.violation {
            let trace = violation.trace.join("\n");
            broken.push(format!("{}: {}\n{trace}", config.name, violation.what));
        }
        states += report.states;
    }
    println!("{states} states in all");
    assert!(broken.is_empty(), "{}", broken.join("\n\n"));
}

/// Every rule is needed: without it the explorer finds an invariant broken.
#[test]
fn every_rule_dropped_is_found_out() {
    let mut missed = Vec::new();
    for drop in drops::all() {
        let start = Instant::now();
        let report = search(&drop.config(), DROP_LIMIT);
        let seconds = start.elapsed().as_secs_f64();
        let told = match &report.violation {
            Some(violation) => format!("trace of {:>2}: {}", violation.trace.len(), violation.what),
            None => {
                missed.push(drop.rule);
                format!("NOT FOUND at depth {}", report.depth)
            }
        };
        let rule = format!("{:?}", drop.rule);
        println!("{rule:<24} {:>8} states {seconds:>5.1} s  {told}", report.states);
        if let (true, Some(violation)) = (std::env::var("EXPLORE_TRACES").is_ok(), report.violation)
        {
            println!("    {}", violation.trace.join("\n    "));
        }
    }
    assert!(missed.is_empty(), "dropped and not found out: {missed:?}");
}

/// Every rule has a proof that it is needed.
#[test]
fn every_rule_is_among_those_that_are_dropped() {
    let mut dropped: Vec<Rule> = drops::all().iter().map(|drop| drop.rule).collect();
    dropped.extend(remaking::DROPPED);
    dropped.extend(restoring::DROPPED);
    dropped.extend(repairing::DROPPED);
    dropped.extend(ingesting::DROPPED);
    dropped.extend(batching::DROPPED);
    dropped.extend(feeding::DROPPED);
    // Detected by random histories (`crates/manifest/tests/placement.rs`).
    dropped.extend([Rule::PlaceBelowNothingNewer, Rule::CutAroundSlotted]);
    dropped.extend([Rule::CoverWhatIsGivenUp, Rule::CoverBetween]);
    // Detected in the same way (`placement_behind.rs`).
    dropped.extend([Rule::BehindCountsDown, Rule::BehindBelowAll, Rule::BehindNoBottom]);
    // Detected by the edit's own tests (`edit/tests/restore.rs`): it needs a plan that depends on
    // facts that no table shows.
    dropped.push(Rule::RestoreVoidsPlans);
    // Detected in the same way, and by random histories of restores (`tests/feed/restored.rs`).
    dropped.extend([Rule::RestoreTakesHistory, Rule::HoldInHistory]);
    // Detected in `crates/manifest/tests/exports.rs`, with exporters and a collector.
    dropped.extend([
        Rule::HonourExportJob,
        Rule::ExportByClaim,
        Rule::ExportSharesHead,
        Rule::ExportFreshFolder,
    ]);
    // Detected by the collector's own tests (`gc/tests.rs`): it needs a restore that voids a job,
    // or a feed without a hold.
    dropped.push(Rule::ManifestsKeepPending);
    // Detected by the edit's own tests (`edit/tests/ingest.rs`): it needs 4,096 ended jobs.
    dropped.push(Rule::ForgetBelowHorizon);
    // Only repairs read the kept object (`tests/repair/manifests.rs`, `gc/tests.rs`).
    dropped.push(Rule::KeepManifestBefore);
    let kept: Vec<&Rule> = Rule::EVERY.iter().filter(|rule| !dropped.contains(rule)).collect();
    assert!(kept.is_empty(), "never dropped: {kept:?}");
}

/// Objects that an outsider deletes do not only cause no wrong answer: openers and readers report
/// the missing object.
#[test]
fn objects_that_an_outsider_deletes_are_told() {
    let mut outsiders = 0;
    for (config, _) in configs::all() {
        if config.faults.destroyed > 0 {
            outsiders += 1;
            let report = search(&Told(&config), usize::MAX);
            let violation = report.violation.expect("the hole is reported");
            println!("{}: {}\n    {}", config.name, violation.what, violation.trace.join("\n    "));
        }
    }
    assert!(outsiders > 0);
}

/// The same configurations keep every invariant with the rule in force: this rule makes the
/// difference, even if it is a second line and the rules before it are dropped.
#[test]
fn every_rule_holds_where_its_absence_is_found_out() {
    for drop in drops::all() {
        let report = search(&drop.control(), CONTROL_LIMIT);
        if let Some(violation) = report.violation {
            let trace = violation.trace.join("\n");
            panic!("{:?} does not hold: {}\n{trace}", drop.rule, violation.what);
        }
    }
}

/// M3: a listing proves a manifest if its tag is that of the object that was read. A tag that does
/// not tell two objects of one name apart proves nothing.
#[test]
fn a_listing_proves_the_object_with_its_tag() {
    let exact = search(&drops::listed_and_freed(Tags::Exact), usize::MAX);
    let blind = search(&drops::listed_and_freed(Tags::Blind), usize::MAX);
    println!("exact: {} states, blind: {} states", exact.states, blind.states);
    assert!(exact.violation.is_none(), "{:?}", exact.violation);
    let found = blind.violation.expect("another object is believed");
    println!("{}\n    {}", found.what, found.trace.join("\n    "));
}
