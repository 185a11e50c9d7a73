//! Explores every interleaving of two exporters into one mirror with the mirror's collector, whose
//! deletes land late (rule X2, RFC 0033). The source contains a table, then another, then the first
//! again. Edits, plans and the collector's rule are the real ones. Commits are single steps, which
//! `tests/explorer` justifies.
//!
//! An exporter that dies is one that never moves again: every state is checked, so each crash is
//! covered. An upload that was sent lands at any time, since the exporter may sleep before it.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test reports, and stops at what it did not expect"
)]

#[path = "support/one_row.rs"]
mod one_row;

use one_row::one_row;
use siltstone_base::sst::SstLocation;
use siltstone_base::{
    AttemptId, DatabaseId, JobId, ManifestId, ObjectName, Seq, SstId, TimelineId, UnixMillis,
};
use siltstone_manifest::gc::{Evidence, ListedObject, dead};
use siltstone_manifest::mirror::{ExportPlan, LogWritten, begun};
use siltstone_manifest::{
    Edit, Manifest, Mirror, MirrorEdit, NewHead, Rule, Rules, Settings, SortedRun,
};
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

const SOURCE: DatabaseId = DatabaseId(1);
const MIRROR: DatabaseId = DatabaseId(2);
/// Bounds of a run.
const EXPORTS: u8 = 4;
const ROUNDS: u8 = 2;

#[derive(Clone, PartialEq, Eq, Hash)]
enum Exporter {
    Idle,
    /// Claimed, with the objects still to be uploaded, and the head that follows.
    Copies(Vec<ObjectName>, Box<NewHead>),
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct World {
    /// The mirror; every older version is behind the boundary.
    newest: Arc<Manifest>,
    stored: BTreeSet<ObjectName>,
    exporters: [Exporter; 2],
    /// The collector's listing, once it has listed.
    listed: Option<BTreeSet<ObjectName>>,
    /// Deletes that were sent.
    doomed: BTreeSet<ObjectName>,
    exports: u8,
    rounds: u8,
    /// The source's manifests that became heads.
    heads: Vec<ManifestId>,
}

/// The source: state 0 contains table 10, state 1 table 20.
fn source(state: usize) -> Manifest {
    let (id, key) = [(10, b"a"), (20, b"b")][state];
    let table = one_row(id, SstLocation::Own, key);
    Manifest {
        id: ManifestId(state as u64 + 5),
        flushed_seq: Seq(1),
        runs: vec![SortedRun { id: 0, tables: vec![table] }],
        ..Manifest::new_database(SOURCE, Settings::default())
    }
}

fn folder(name: &ObjectName) -> Option<(JobId, SstId)> {
    match name {
        ObjectName::IngestSst(job, id) => Some((*job, *id)),
        _ => None,
    }
}

impl World {
    fn new() -> World {
        let mirror = Mirror {
            source: SOURCE,
            location: String::new(),
            is_import: false,
            claim: AttemptId(100),
            job: Some(JobId::of_an_export(100)),
            head: None,
        };
        World {
            newest: Arc::new(begun(ManifestId(1), MIRROR, &source(0), mirror)),
            stored: BTreeSet::new(),
            exporters: [Exporter::Idle, Exporter::Idle],
            listed: None,
            doomed: BTreeSet::new(),
            exports: 0,
            rounds: 0,
            heads: Vec::new(),
        }
    }

    fn commit(&mut self, edit: MirrorEdit, rules: Rules) -> bool {
        let next = Edit::Mirror(edit).apply_with(&self.newest, rules);
        next.map(|next| self.newest = Arc::new(next)).is_ok()
    }

    fn next(&self, rules: Rules) -> Vec<World> {
        let mut all = Vec::new();
        for which in 0..self.exporters.len() {
            all.extend(self.exporter_moves(which, rules));
        }
        all.extend(self.collector_moves(rules));
        for name in &self.doomed {
            let mut next = self.clone();
            next.doomed.remove(name);
            next.stored.remove(name);
            all.push(next);
        }
        all
    }

    fn exporter_moves(&self, which: usize, rules: Rules) -> Vec<World> {
        let set = |mut next: World, to: Exporter| {
            next.exporters[which] = to;
            next
        };
        match &self.exporters[which] {
            Exporter::Idle if self.exports == EXPORTS => Vec::new(),
            Exporter::Idle => (0..2).map(|state| self.claim(which, state, rules)).collect(),
            Exporter::Copies(left, head) => match left.split_first() {
                Some((name, rest)) => {
                    let mut next = self.clone();
                    next.stored.insert(*name);
                    vec![set(next, Exporter::Copies(rest.to_vec(), head.clone()))]
                }
                None => {
                    let mut next = self.clone();
                    // Refused: it was overtaken, and ends.
                    if next.commit(MirrorEdit::Head(head.clone()), rules) {
                        next.heads.push(head.head.manifest);
                    }
                    vec![set(next, Exporter::Idle)]
                }
            },
        }
    }

    /// Claims, and plans on the state at that time.
    fn claim(&self, which: usize, state: usize, rules: Rules) -> World {
        let mut next = self.clone();
        next.exports += 1;
        let number = u128::from(next.exports);
        let claim = MirrorEdit::Claim {
            source: SOURCE,
            location: String::new(),
            is_import: false,
            claim: AttemptId(number),
            job: JobId::of_an_export(number),
        };
        assert!(next.commit(claim, rules), "the same source");
        let pinned = source(state);
        let plan =
            ExportPlan::new(&pinned, (Seq(1), std::iter::empty()), &next.newest, &HashSet::new())
                .unwrap();
        let log = LogWritten { last_seq: Seq(1), ..LogWritten::default() };
        let names: Vec<ObjectName> = plan.moves.iter().map(|(_, to)| to.name()).collect();
        // Objects that are in the folder already are not copied again.
        let mut left: Vec<ObjectName> =
            names.into_iter().filter(|name| !next.stored.contains(name)).collect();
        let mut head = plan.head(&pinned, log, TimelineId(number), UnixMillis(0));
        if !rules.has(Rule::ExportSharesHead) {
            // Every table in the folder counts as uploaded.
            for table in head.tables.runs.iter_mut().flat_map(|run| &mut run.tables) {
                let lies = next.stored.iter().filter_map(folder).find(|(_, id)| *id == table.id);
                if let Some((job, _)) = lies {
                    table.job = Some(job);
                    left.clear();
                }
            }
        }
        next.exporters[which] = Exporter::Copies(left, Box::new(head));
        next
    }

    fn collector_moves(&self, rules: Rules) -> Vec<World> {
        let mut next = self.clone();
        match &self.listed {
            None if self.rounds == ROUNDS => return Vec::new(),
            None => {
                next.listed = Some(self.stored.clone());
                next.rounds += 1;
            }
            Some(listed) => {
                let one = |name: &ObjectName| ListedObject {
                    name: *name,
                    modified: UnixMillis(0),
                    bytes: 100,
                };
                let mut evidence = Evidence {
                    listed: listed.iter().map(one).collect(),
                    newest: Some(Arc::clone(&self.newest)),
                    cutoff: UnixMillis(1000),
                    ..Evidence::default()
                };
                evidence.note(&self.newest);
                next.listed = None;
                // The collector ignores a database that is being created.
                if self.newest.initialized {
                    next.doomed.extend(dead(&evidence, rules).deletes);
                }
            }
        }
        vec![next]
    }

    /// Whether every table of the head exists.
    fn is_whole(&self) -> bool {
        self.newest.tables().all(|table| self.stored.contains(&table.name()))
    }
}

struct Found {
    states: usize,
    broken: bool,
    /// Whether a run had heads of both states of the source, and then of the first again.
    returned: bool,
}

fn explore(rules: Rules) -> Found {
    let mut seen: HashSet<u64> = HashSet::new();
    let mut queue = VecDeque::from([World::new()]);
    let mut returned = false;
    while let Some(world) = queue.pop_front() {
        if !world.is_whole() {
            return Found { states: seen.len(), broken: true, returned };
        }
        returned |= world.heads.ends_with(&[ManifestId(5), ManifestId(6), ManifestId(5)]);
        for next in world.next(rules) {
            let mut hasher = DefaultHasher::new();
            next.hash(&mut hasher);
            if seen.insert(hasher.finish()) {
                queue.push_back(next);
            }
        }
        assert!(seen.len() < 3_000_000, "too many states");
    }
    Found { states: seen.len(), broken: false, returned }
}

#[test]
fn no_head_names_a_table_that_is_not_there() {
    let found = explore(Rules::ALL);
    println!("{} states", found.states);
    assert!(!found.broken && found.returned && found.states > 1000);
}

#[test]
fn each_rule_that_is_dropped_is_found() {
    for rule in [
        Rule::HonourExportJob,
        Rule::ExportByClaim,
        Rule::ExportSharesHead,
        Rule::ExportFreshFolder,
    ] {
        let found = explore(Rules::ALL.without(rule));
        assert!(found.broken, "{rule:?}");
        println!("without {rule:?}: found among {} states", found.states);
    }
}
