use super::super::Listing;
use super::*;
use crate::edit::{Destroy, Edit};
use crate::state::KeptFence;
use crate::testing::{manifest, table};
use siltstone_base::{DatabaseId, Epoch, SstId, UnixMillis};
use std::collections::BTreeSet;

/// The database of `manifest()`, destroyed under its epoch by a fence at 10.
fn destroyed() -> Arc<Manifest> {
    let mut base = manifest();
    base.checkpoints.clear();
    let fence = KeptFence { id: WalId(10), epoch: Epoch(2), next_id: WalId(12) };
    let (at, now) = (UnixMillis(1_000), UnixMillis(1_000));
    let edit = Destroy { epoch: Some(Epoch(2)), at, now, soft: false, fences: vec![fence] };
    Arc::new(Edit::Destroy(edit).apply(&base).unwrap())
}

/// Names under one root; every manifest is that of the last database.
struct Place {
    names: BTreeSet<ObjectName>,
    last: Arc<Manifest>,
    marked: Option<ObjectName>,
    /// Names that cannot be deleted.
    denied: Vec<ObjectName>,
}

impl Place {
    fn new() -> Place {
        let last = destroyed();
        let names = [
            ObjectName::ManifestBoundary(ManifestId(3)),
            ObjectName::Manifest(ManifestId(3)),
            ObjectName::Manifest(ManifestId(4)),
            ObjectName::Manifest(ManifestId(5)),
            ObjectName::Manifest(last.id),
            ObjectName::WalBoundary(WalId(1)),
            ObjectName::Wal(WalId(2)),
            ObjectName::Wal(WalId(9)),
            ObjectName::Wal(WalId(10)),
            ObjectName::Wal(WalId(11)),
            ObjectName::Compacted(SstId(14)),
            ObjectName::Compactions(7),
            ObjectName::ProbeRecord,
        ];
        Place { names: names.into(), last, marked: None, denied: Vec::new() }
    }

    fn look(&self, request: &ManifestRequest) -> ManifestAnswer {
        let ids: Vec<ManifestId> = self.names.iter().filter_map(number).collect();
        let left = self.left();
        match request {
            ManifestRequest::List { after } => {
                ManifestAnswer::Listed(Listing::of(&ids, left.manifests, *after))
            }
            ManifestRequest::Read(id) if *id > self.last.id => {
                let database = DatabaseId(99);
                let other = Manifest { id: *id, database, ..Manifest::clone(&self.last) };
                ManifestAnswer::Read(Some(Arc::new(other)))
            }
            _ => ManifestAnswer::Read(Some(Arc::clone(&self.last))),
        }
    }

    fn left(&self) -> NumbersLeft {
        NumbersLeft::of(&self.names.iter().copied().collect::<Vec<_>>())
    }

    fn step(&mut self, erase: &mut Erase) -> Option<EraseReport> {
        match erase.action() {
            EraseAction::ListObjects => erase.on_objects(self.names.iter().copied().collect()),
            EraseAction::Request(request) => erase.on_answer(self.look(&request)),
            EraseAction::CreateBoundary { name, last } => {
                self.names.insert(name);
                self.marked = self.marked.or(Some(name).filter(|_| last));
                erase.on_boundary(PutOutcome::Committed);
            }
            EraseAction::Delete(names) => {
                // One at a time: the driver may delete as many as it likes.
                let name = names[0];
                let gone = !self.denied.contains(&name);
                self.names.retain(|one| !gone || *one != name);
                erase.on_deleted(&[gone]);
            }
            EraseAction::Done(report) => return Some(report),
        }
        None
    }

    fn run(&mut self, erase: &mut Erase) -> EraseReport {
        loop {
            if let Some(report) = self.step(erase) {
                return report;
            }
        }
    }

    /// Whether a look still finds the destroyed database.
    fn says_destroyed(&self) -> bool {
        let ids: Vec<ManifestId> = self.names.iter().filter_map(number).collect();
        Listing::of(&ids, self.left().manifests, ManifestId::NONE).newest == Some(self.last.id)
    }
}

fn number(name: &ObjectName) -> Option<ManifestId> {
    match name {
        ObjectName::Manifest(id) => Some(*id),
        _ => None,
    }
}

fn stays() -> BTreeSet<ObjectName> {
    let names = [
        ObjectName::ManifestBoundary(ManifestId(6)),
        ObjectName::WalBoundary(WalId(11)),
        ObjectName::Wal(WalId(2)),
        ObjectName::Wal(WalId(10)),
        ObjectName::CompactionsBoundary(7),
    ];
    names.into()
}

#[test]
fn boundaries_and_fences_stay_and_nothing_else() {
    let mut place = Place::new();
    let mut erase = Erase::new(Arc::clone(&place.last), Rules::ALL);
    let report = place.run(&mut erase);
    assert!(report.finished && report.failed == 0);
    assert_eq!(place.names, stays());
    assert_eq!(place.marked, Some(ObjectName::ManifestBoundary(ManifestId(6))));
}

/// The removal is killed after each step and repeated by another process: the result is the same,
/// and until the last boundary exists every process learns that the database is destroyed.
#[test]
fn it_is_resumed_after_every_step() {
    for steps in 0.. {
        let mut place = Place::new();
        let mut first = Erase::new(Arc::clone(&place.last), Rules::ALL);
        let ended = (0..steps).any(|_| place.step(&mut first).is_some());
        let marked = place.marked.is_some();
        assert_eq!(place.says_destroyed(), !marked, "after {steps} steps");
        if marked {
            // The database is no longer visible; any remaining objects are at or below boundaries.
            place.names.remove(&ObjectName::Manifest(place.last.id));
            let boundaries = |name: &ObjectName| place.left().passed(*name);
            let rest: Vec<_> = place.names.iter().copied().filter(|one| !boundaries(one)).collect();
            assert_eq!(rest, stays().into_iter().collect::<Vec<_>>());
        } else {
            let report = place.run(&mut Erase::new(Arc::clone(&place.last), Rules::ALL));
            assert!(report.finished);
            assert_eq!(place.names, stays(), "after {steps} steps");
        }
        if ended {
            return;
        }
    }
}

#[test]
fn undeletable_objects_keep_the_place_destroyed() {
    for denied in [ObjectName::Compacted(SstId(14)), ObjectName::Manifest(ManifestId(4))] {
        let mut place = Place::new();
        place.denied = vec![denied];
        let report = place.run(&mut Erase::new(Arc::clone(&place.last), Rules::ALL));
        assert!(!report.finished && report.failed == 1, "{denied}");
        assert!(place.says_destroyed() && place.marked.is_none());
        place.denied.clear();
        assert!(place.run(&mut Erase::new(Arc::clone(&place.last), Rules::ALL)).finished);
        assert_eq!(place.names, stays());
    }
}

/// D3: a removal that slept before it listed deletes nothing of a newer database.
#[test]
fn a_destroyer_that_slept_leaves_the_next_database_alone() {
    for rule in [true, false] {
        let rules = if rule { Rules::ALL } else { Rules::ALL.without(Rule::LookAfterListing) };
        let mut place = Place::new();
        let mut slept = Erase::new(Arc::clone(&place.last), rules);
        place.run(&mut Erase::new(Arc::clone(&place.last), Rules::ALL));
        let new = ObjectName::Compacted(SstId(99));
        place.names.extend([ObjectName::Manifest(ManifestId(7)), new]);
        place.run(&mut slept);
        assert_eq!(place.names.contains(&new), rule);
    }
}

#[test]
fn a_database_that_lives_or_is_pinned_is_left_alone() {
    let pinned = Manifest { checkpoints: manifest().checkpoints, ..Manifest::clone(&destroyed()) };
    for state in [manifest(), pinned] {
        let erase = Erase::new(Arc::new(state), Rules::ALL);
        assert_eq!(erase.action(), EraseAction::Done(EraseReport::default()));
    }
}

#[test]
fn numbers_go_on_above_all_that_was_here() {
    let left = NumbersLeft { manifests: ManifestId(9), wal: WalId(5_000), records: 3 };
    assert_eq!(left.first_number(0, Rules::ALL), 3 * NUMBERS_A_MILLI);
    let now = 77 * NUMBERS_A_MILLI;
    assert_eq!(left.first_number(now, Rules::ALL), now);
    assert_eq!(left.first_number(0, Rules::ALL.without(Rule::NumbersGoOn)), 0);
}

/// Tables of the last manifest are deleted as well: no process reads them.
#[test]
fn a_table_that_the_last_manifest_names_goes() {
    let last = destroyed();
    assert!(last.tables().any(|one| one.id == table(SstId(14), b"a", b"z", 51, 60).id));
}
