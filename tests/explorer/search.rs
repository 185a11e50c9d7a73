//! Breadth-first search over every state that a model can reach.
//!
//! Only fingerprints of visited states are kept (64 bits each: with 20 million states the
//! probability that any two are equal is n^2 / 2^65, about one in 90,000); whole states are kept
//! only for the current level and the next. A parent link per state leads from a violation back to
//! the start; the trace is then run again, choosing at each level the successor with the wanted
//! fingerprint.

use crate::shared::Identity;
use std::collections::HashSet;
use std::fmt::Display;
use std::hash::BuildHasherDefault;

/// A system to explore.
pub(crate) trait Model {
    /// One state. Cheap to clone: share what a step does not change.
    type State: Clone;
    /// One step, with a text.
    type Step: Display;

    /// The initial state.
    fn initial(&self) -> Self::State;
    /// Equal states have equal fingerprints; data that only the text of a trace needs is excluded.
    fn fingerprint(&self, state: &Self::State) -> u64;
    /// Appends every possible step from `state` and its result.
    fn steps(&self, state: &Self::State, out: &mut Vec<(Self::Step, Self::State)>);
    /// The broken invariant, as a text.
    fn violation(&self, state: &Self::State) -> Option<String>;
}

/// The result of a search.
#[derive(Debug)]
pub(crate) struct Report {
    /// Different states reached.
    pub(crate) states: usize,
    /// Steps tried.
    pub(crate) steps: usize,
    /// Length of the longest shortest path.
    pub(crate) depth: usize,
    /// Whether every reachable state was reached (else the limit stopped the search).
    pub(crate) complete: bool,
    /// The first violation on a shortest path.
    pub(crate) violation: Option<Violation>,
}

/// A broken invariant and a shortest path to it.
#[derive(Debug)]
pub(crate) struct Violation {
    /// The broken invariant.
    pub(crate) what: String,
    /// The steps from the start.
    pub(crate) trace: Vec<String>,
}

/// Every state seen, in order of discovery.
#[derive(Default)]
struct Visited {
    known: HashSet<u64, BuildHasherDefault<Identity>>,
    fingerprints: Vec<u64>,
    parents: Vec<u32>,
}

impl Visited {
    /// The state's number, `None` if it was seen before.
    fn insert(&mut self, fingerprint: u64, parent: u32) -> Option<u32> {
        if !self.known.insert(fingerprint) {
            return None;
        }
        let number = u32::try_from(self.fingerprints.len()).ok()?;
        self.fingerprints.push(fingerprint);
        self.parents.push(parent);
        Some(number)
    }

    /// Fingerprints from the start (excluded) to state `number`.
    fn way_to(&self, mut number: u32) -> Vec<u64> {
        let mut way = Vec::new();
        while number != 0 {
            way.extend(self.fingerprints.get(number as usize));
            number = self.parents.get(number as usize).copied().unwrap_or(0);
        }
        way.reverse();
        way
    }
}

/// Explores `model` until a violation, until nothing is left, or until `limit` states were seen.
pub(crate) fn search<M: Model>(model: &M, limit: usize) -> Report {
    let mut visited = Visited::default();
    let mut report = Report { states: 0, steps: 0, depth: 0, complete: true, violation: None };
    let start = model.initial();
    let mut level = Vec::new();
    level.extend(visited.insert(model.fingerprint(&start), 0).map(|number| (number, start)));
    let mut steps = Vec::new();
    while !level.is_empty() {
        let mut next = Vec::new();
        for (number, state) in level.drain(..) {
            model.steps(&state, &mut steps);
            report.steps += steps.len();
            for (_, successor) in steps.drain(..) {
                let fingerprint = model.fingerprint(&successor);
                let Some(found) = visited.insert(fingerprint, number) else { continue };
                if let Some(what) = model.violation(&successor) {
                    let trace = retell(model, &visited.way_to(found));
                    report.states = visited.fingerprints.len();
                    report.depth += 1;
                    report.complete = false;
                    report.violation = Some(Violation { what, trace });
                    return report;
                }
                next.push((found, successor));
            }
            if visited.fingerprints.len() >= limit {
                report.complete = false;
                report.states = visited.fingerprints.len();
                return report;
            }
        }
        report.depth += usize::from(!next.is_empty());
        level = next;
    }
    report.states = visited.fingerprints.len();
    report
}

/// Runs the path again and returns its steps.
fn retell<M: Model>(model: &M, way: &[u64]) -> Vec<String> {
    let mut told = Vec::with_capacity(way.len());
    let mut state = model.initial();
    let mut steps = Vec::new();
    for fingerprint in way {
        model.steps(&state, &mut steps);
        let chosen = steps.drain(..).find(|(_, to)| model.fingerprint(to) == *fingerprint);
        let Some((step, to)) = chosen else {
            told.push("(the way back is lost: two states share a fingerprint)".to_owned());
            return told;
        };
        told.push(step.to_string());
        state = to;
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two jugs of 3 and 5 litres; 4 litres in the second count as the violation.
    struct Jugs;

    impl Model for Jugs {
        type State = (u64, u64);
        type Step = &'static str;

        fn initial(&self) -> (u64, u64) {
            (0, 0)
        }
        fn fingerprint(&self, (small, large): &(u64, u64)) -> u64 {
            small * 8 + large
        }
        fn steps(&self, &(small, large): &(u64, u64), out: &mut Vec<(&'static str, (u64, u64))>) {
            let over = small.min(5 - large);
            let back = large.min(3 - small);
            out.push(("fill small", (3, large)));
            out.push(("fill large", (small, 5)));
            out.push(("empty small", (0, large)));
            out.push(("empty large", (small, 0)));
            out.push(("small into large", (small - over, large + over)));
            out.push(("large into small", (small + back, large - back)));
        }
        fn violation(&self, (_, large): &(u64, u64)) -> Option<String> {
            (*large == 4).then(|| "four litres".to_owned())
        }
    }

    #[test]
    fn the_shortest_way_is_found_and_told() {
        let report = search(&Jugs, usize::MAX);
        let violation = report.violation.expect("the jugs can measure four litres");
        assert_eq!(violation.trace.len(), 6, "{:?}", violation.trace);
        assert_eq!(violation.trace.first().map(String::as_str), Some("fill large"));
    }
}
