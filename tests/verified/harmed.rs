//! Each object removed, and damaged.

use super::verified;
use super::world::{Objects, Pair, World, look};
use bytes::Bytes;
use siltstone::Result;
use siltstone::verify::Report;
use siltstone_base::{ManifestId, ObjectName};
use siltstone_tests::scans::Pairs;
use std::collections::BTreeMap;

/// The kind of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    Removed,
    Emptied,
    /// A flipped bit, at this percentage of the object.
    Flipped(usize),
}

const HARMS: [Harm; 7] = [
    Harm::Removed,
    Harm::Emptied,
    Harm::Flipped(0),
    Harm::Flipped(30),
    Harm::Flipped(60),
    Harm::Flipped(90),
    Harm::Flipped(100),
];

fn harm(objects: &mut Objects, name: ObjectName, how: Harm) {
    let bytes = objects.remove(&name).expect("it is there");
    let damaged = match how {
        Harm::Removed => return,
        Harm::Emptied => Bytes::new(),
        Harm::Flipped(part) => {
            let mut damaged = bytes.to_vec();
            let at = (damaged.len() - 1) * part / 100;
            damaged[at] ^= 4;
            damaged.into()
        }
    };
    objects.insert(name, damaged);
}

fn kind(name: ObjectName) -> String {
    let text = name.to_string();
    let kind = match name {
        ObjectName::IngestManifest(_) => "ingest, closed",
        _ => text.split('/').next().unwrap_or_default(),
    };
    kind.to_owned()
}

type Looked = [Vec<(&'static str, Result<Pairs>)>; 2];

/// The readers that do not read all of their data.
fn broken(
    looked: &[(&'static str, Result<Pairs>)],
    right: &[(&'static str, Result<Pairs>)],
) -> Vec<String> {
    let pairs = looked.iter().zip(right);
    let wrong = pairs.filter_map(|((who, is), (_, should))| match (is, should) {
        (Ok(is), Ok(should)) if is == should => None,
        (Ok(is), _) => Some(format!("{who}: {} rows", is.len())),
        (Err(error), _) => Some(format!("{who}: {error}")),
    });
    wrong.collect()
}

fn names(report: &Report, object: ObjectName) -> bool {
    report.problems.iter().any(|problem| problem.object == object)
}

/// If verify finds nothing wrong, every reader succeeds; and every object that a reader lacks is
/// reported.
#[test]
fn every_object_in_turn() {
    let made = World::made();
    let pair = made.objects();
    let whole = World::holding(&pair);
    for report in [
        whole.run(|parent, _| verified(parent)).unwrap(),
        whole.run(|_, clone| verified(clone)).unwrap(),
    ] {
        assert!(report.is_ok(), "{:#?}", report.problems);
        assert!(report.orphans.is_empty(), "{:#?}", report.orphans);
    }
    let right: Looked = look(&World::holding(&pair));
    for (who, found) in right.iter().flatten() {
        let found = found.as_ref().unwrap_or_else(|error| panic!("{who}: {error}"));
        assert!(!found.is_empty(), "{who}");
    }
    // Number of failures, by the kind of the object.
    let mut breaks: BTreeMap<(usize, String), u64> = BTreeMap::new();
    for (side, objects) in [&pair.parent, &pair.clone].into_iter().enumerate() {
        for name in objects.keys().copied() {
            for how in HARMS {
                let mut harmed: Pair = pair.clone();
                harm([&mut harmed.parent, &mut harmed.clone][side], name, how);
                let count = check(&harmed, &right, side, name, how);
                *breaks.entry((side, kind(name))).or_default() += count;
            }
        }
    }
    println!("{breaks:#?}");
    for kind in ["manifest", "wal", "compacted", "ingest", "ingest, closed"] {
        assert!(breaks[&(0, kind.to_owned())] > 0, "{kind}");
    }
    for kind in ["manifest", "wal", "compacted"] {
        assert!(breaks[&(1, kind.to_owned())] > 0, "{kind} of the clone");
    }
}

/// Whether the removed manifest was the newest, by the remaining objects.
fn is_newest(harmed: &Pair, side: usize, removed: ManifestId) -> bool {
    let mut left = [&harmed.parent, &harmed.clone][side].keys();
    !left.any(|name| matches!(name, ObjectName::Manifest(id) if *id > removed))
}

/// Returns how many readers do not read all of their data.
fn check(harmed: &Pair, right: &Looked, side: usize, name: ObjectName, how: Harm) -> u64 {
    let world = World::holding(harmed);
    let reports = [world.run(|parent, _| verified(parent)), world.run(|_, clone| verified(clone))];
    let looked = look(&World::holding(harmed));
    let of = ["the parent", "the clone"];
    let mut count = 0;
    for (database, report) in reports.iter().enumerate() {
        let broken = broken(&looked[database], &right[database]);
        let (of, object_of) = (of[database], of[side]);
        let what = format!("{name} of {object_of}, {how:?}: {broken:#?}");
        let report = report.as_ref().unwrap_or_else(|error| panic!("{what}: {error}"));
        if broken.is_empty() {
            continue;
        }
        count += broken.len() as u64;
        assert!(!report.is_ok(), "verify of {of} says ok: {what}");
        // A missing boundary cannot be distinguished from missing manifests, nor a missing newest
        // manifest from one that never existed: then the inconsistent objects are reported.
        let is_told = match name {
            ObjectName::ManifestBoundary(_) => true,
            ObjectName::Manifest(id) if how == Harm::Removed => is_newest(harmed, side, id),
            _ => false,
        };
        assert!(is_told || names(report, name), "{what}: {:#?}", report.problems);
    }
    count
}
