//! The explored models, and the check that dropping each rule is detected.

use super::*;
use crate::search::search;

fn model(rules: Rules) -> Ingesting {
    let (drivers, writers, late, rounds) = (1, 1, 0, 1);
    let (aborts, compactor, looks) = (false, false, true);
    let (replaces, together) = (false, true);
    let (restores, lets_go, passes, forgets) = (false, false, false, false);
    Ingesting {
        rules,
        drivers,
        writers,
        aborts,
        compactor,
        restores,
        lets_go,
        passes,
        forgets,
        rounds,
        late,
        looks,
        replaces,
        together,
    }
}

#[test]
fn a_job_is_taken_in_once_and_nothing_of_it_is_lost() {
    let base = || model(Rules::ALL);
    let restored = || Ingesting { restores: true, drivers: 0, ..base() };
    let forgotten = || Ingesting { passes: true, forgets: true, drivers: 2, ..base() };
    let all = [
        ("repeated", Ingesting { drivers: 2, compactor: true, rounds: 2, ..base() }),
        ("two writers", Ingesting { writers: 2, late: 1, ..base() }),
        ("aborted", Ingesting { aborts: true, late: 1, compactor: true, ..base() }),
        ("late", Ingesting { drivers: 2, late: 2, compactor: true, ..base() }),
        ("replaces", Ingesting { replaces: true, drivers: 2, compactor: true, ..base() }),
        ("restored", Ingesting { compactor: true, ..restored() }),
        ("restored late", Ingesting { late: 1, rounds: 0, ..restored() }),
        ("restored and repeated", Ingesting { drivers: 1, rounds: 0, ..restored() }),
        ("restored beside two", Ingesting { writers: 2, rounds: 0, ..restored() }),
        ("let go of", Ingesting { lets_go: true, ..restored() }),
        ("passed", Ingesting { passes: true, drivers: 2, compactor: true, rounds: 2, ..base() }),
        ("passed, aborted", Ingesting { passes: true, aborts: true, compactor: true, ..base() }),
        ("passed late", Ingesting { passes: true, late: 1, writers: 2, ..base() }),
        ("forgotten", Ingesting { compactor: true, ..forgotten() }),
        ("forgotten, aborted", Ingesting { aborts: true, drivers: 1, ..forgotten() }),
        ("replaced by two", Ingesting { replaces: true, writers: 2, late: 1, ..base() }),
    ];
    for (name, model) in all {
        let report = search(&model, 400_000);
        let stopped = if report.complete { "" } else { " (stopped)" };
        println!("ingest, {name}: {} states, depth {}{stopped}", report.states, report.depth);
        if let Some(violation) = report.violation {
            panic!("{name}: {}\n{}", violation.what, violation.trace.join("\n"));
        }
    }
}

#[test]
fn each_rule_of_ingest_dropped_is_found_out() {
    for rule in DROPPED {
        let base = model(Rules::ALL.without(rule));
        let model = match rule {
            Rule::RememberIngests => Ingesting { drivers: 2, compactor: true, rounds: 0, ..base },
            Rule::RequestAboveHorizon => Ingesting { drivers: 2, compactor: true, ..base },
            Rule::WithdrawUnrequested => Ingesting { aborts: true, rounds: 0, ..base },
            Rule::WithdrawUnpassed => Ingesting { passes: true, aborts: true, rounds: 0, ..base },
            Rule::RefuseForgotten => {
                Ingesting { passes: true, forgets: true, drivers: 2, rounds: 0, ..base }
            }
            Rule::OriginStays => Ingesting { passes: true, compactor: true, ..base },
            Rule::AdoptOnce => Ingesting { rounds: 0, ..base },
            Rule::TakeIngestsOver => Ingesting { restores: true, drivers: 0, rounds: 0, ..base },
            _ => base,
        };
        let found = search(&model, 2_000_000).violation;
        let found = found.unwrap_or_else(|| panic!("{rule:?} dropped and not found out"));
        println!("{rule:?}: trace of {}: {}", found.trace.len(), found.what);
    }
}

/// P5: the delete in V, the rows in V+1: V reads empty.
#[test]
fn a_delete_ahead_of_what_replaces_it_is_found_out() {
    let model = Ingesting { replaces: true, together: false, rounds: 0, ..model(Rules::ALL) };
    let found = search(&model, 2_000_000).violation.expect("found out");
    assert!(found.what.starts_with("P5"), "{}", found.what);
}

/// N8: J is adopted, its object is collected; the object of a sleeping abort lands there.
#[test]
fn an_abort_that_does_not_look_is_found_out() {
    let model = Ingesting { aborts: true, looks: false, compactor: true, ..model(Rules::ALL) };
    let found = search(&model, 2_000_000).violation.expect("found out");
    assert!(found.what.starts_with("N8"), "{}", found.what);
}
