//! A database is destroyed and another one created at its place (RFC 0030, rules D1, D3, D4): every
//! interleaving of a live writer with a window of two, an opener that slept, destroyers, and the
//! creator of the next database, with creates and deletes that land late.

use crate::chain::{self, Chain};
use crate::search::Model;
use siltstone_base::{
    AttemptId, CheckpointId, DatabaseId, Epoch, ManifestId, ObjectName, PutOutcome, SstId,
};
use siltstone_base::{UnixMillis, WalId};
use siltstone_manifest::edit::{NewCheckpoint, is_let_go};
use siltstone_manifest::protocol::{
    Commit, CommitAction, Erase, EraseAction, Listing, Look, LookAction, ManifestAnswer,
    ManifestRequest, NumbersLeft, OpenAction, OpenWriter, WalListing, WalSeen, WalWindow,
    WindowEvent, WriterOptions,
};
use siltstone_manifest::{Destroy, Edit, KeptFence, Manifest, Rule, Rules, Settings};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

const OLD: DatabaseId = DatabaseId(1);
/// A table that the next database has uploaded.
const NEW_TABLE: SstId = SstId(99);
const WIDTH: u64 = 2;
/// Objects that the live writer sends, and that the next one sends.
const OLD_OBJECTS: u64 = 3;
const NEW_OBJECTS: u64 = 3;

/// The rules that this model tests.
pub(crate) const DROPPED: [Rule; 4] =
    [Rule::FenceBeforeDestroy, Rule::LookAfterListing, Rule::LastBoundary, Rule::NumbersGoOn];

/// The explored model.
pub(crate) struct Remaking {
    pub(crate) rules: Rules,
    pub(crate) destroyers: usize,
    pub(crate) opener: bool,
    /// Processes that commit an edit of the old database, such as compactors and collectors. With
    /// any, the story begins where the database was just marked as destroyed, without a writer.
    pub(crate) committers: usize,
    /// Requests that may land after their sender died.
    pub(crate) late: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Late {
    Wal(WalId, DatabaseId, WalSeen),
    Manifest(Arc<Manifest>),
    Delete(ObjectName),
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Actor {
    Writer { window: WalWindow, sent: u64, under_way: Vec<WalId> },
    Opener(OpenWriter),
    Destroyer(Destroying),
    Committer(Commit),
    Maker(Making),
    Gone,
}

#[derive(Clone, PartialEq, Eq, Hash)]
#[expect(clippy::large_enum_variant, reason = "a process has one, and opens but once")]
enum Destroying {
    Look(Look),
    Open(OpenWriter),
    Commit(Commit),
    Erase(Erase),
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Making {
    Look(Look),
    Found(Commit),
    Upload(Arc<Manifest>),
    Write(Arc<Manifest>, u64),
    Done(Arc<Manifest>),
}

/// One state.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    manifests: Chain,
    wal: BTreeMap<WalId, (DatabaseId, WalSeen)>,
    /// Boundaries and tables.
    objects: BTreeSet<ObjectName>,
    /// The boundaries that record that their database is gone.
    marked: BTreeSet<ObjectName>,
    actors: Vec<Arc<Actor>>,
    network: Vec<Late>,
    late: u8,
    broken: Option<&'static str>,
}

impl Place {
    fn names(&self) -> Vec<ObjectName> {
        let manifests = self.manifests.keys().map(|id| ObjectName::Manifest(*id));
        let wal = self.wal.keys().map(|id| ObjectName::Wal(*id));
        manifests.chain(wal).chain(self.objects.iter().copied()).collect()
    }

    fn left(&self) -> NumbersLeft {
        NumbersLeft::of(&self.objects.iter().copied().collect::<Vec<_>>())
    }

    fn destroyed(&self) -> bool {
        let newest = self.manifests.values().rfind(|one| one.database == OLD);
        newest.is_none_or(|one| one.destroyed_at.is_some())
    }

    fn serve(&mut self, request: ManifestRequest) -> ManifestAnswer {
        let freed = self.left().manifests;
        chain::serve(&mut self.manifests, freed, request)
    }

    fn read_wal(&self, id: WalId, database: DatabaseId) -> WalSeen {
        match self.wal.get(&id) {
            Some((owner, seen)) if *owner == database => *seen,
            Some(_) => WalSeen::Foreign,
            None => WalSeen::Absent,
        }
    }

    fn create_wal(
        &mut self,
        id: WalId,
        database: DatabaseId,
        object: WalSeen,
    ) -> PutOutcome<WalSeen> {
        let own = (database, object);
        match self.wal.get(&id) {
            Some(there) if *there == own => PutOutcome::Committed,
            Some(_) => PutOutcome::Lost(self.read_wal(id, database)),
            None => {
                self.wal.insert(id, own);
                PutOutcome::Committed
            }
        }
    }

    fn delete(&mut self, name: ObjectName) {
        match name {
            ObjectName::Manifest(id) => drop(self.manifests.remove(&id)),
            ObjectName::Wal(id) => drop(self.wal.remove(&id)),
            other => drop(self.objects.remove(&other)),
        }
    }

    fn land(&mut self, late: Late) {
        match late {
            Late::Wal(id, database, seen) => drop(self.create_wal(id, database, seen)),
            Late::Manifest(manifest) => drop(self.serve(ManifestRequest::Create(manifest))),
            Late::Delete(name) => self.delete(name),
        }
    }

    fn list_wal(&self, after: WalId) -> WalListing {
        let later = self.wal.keys().copied().filter(|id| *id > after).collect();
        WalListing { boundary: self.left().wal, later }
    }

    fn breaks(&mut self, what: &'static str) {
        self.broken.get_or_insert(what);
    }

    /// One request of an opening; `true` once it has ended, with or without success.
    fn step_open(&mut self, open: &mut OpenWriter) -> bool {
        match open.action() {
            OpenAction::Request(request) => open.on_answer(self.serve(request)),
            OpenAction::ReadWal(id) | OpenAction::ReadCutOff(id) => {
                open.on_wal(self.read_wal(id, OLD));
            }
            OpenAction::ListWal(id) => open.on_wal_listing(&self.list_wal(id)),
            OpenAction::CreateFence(fence) => {
                let outcome = self.create_wal(fence.id, OLD, fence_object(fence));
                open.on_fence(outcome);
            }
            OpenAction::Done(_) | OpenAction::Failed(_) => {}
        }
        matches!(open.action(), OpenAction::Done(_) | OpenAction::Failed(_))
    }
}

fn fence_object(fence: KeptFence) -> WalSeen {
    WalSeen::Fence { epoch: fence.epoch, next_id: fence.next_id }
}

/// The request of an actor that is in flight, if its death leaves it to land late.
fn under_way(actor: &Actor) -> Option<Late> {
    let manifest = |request: ManifestRequest| match request {
        ManifestRequest::Create(manifest) => Some(Late::Manifest(manifest)),
        _ => None,
    };
    let open = |open: &OpenWriter| match open.action() {
        OpenAction::Request(request) => manifest(request),
        OpenAction::CreateFence(fence) => Some(Late::Wal(fence.id, OLD, fence_object(fence))),
        _ => None,
    };
    match actor {
        Actor::Opener(one) | Actor::Destroyer(Destroying::Open(one)) => open(one),
        Actor::Committer(commit) | Actor::Destroyer(Destroying::Commit(commit)) => {
            match commit.action() {
                CommitAction::Request(request) => manifest(request),
                _ => None,
            }
        }
        Actor::Destroyer(Destroying::Erase(erase)) => match erase.action() {
            EraseAction::Delete(names) => names.first().copied().map(Late::Delete),
            _ => None,
        },
        _ => None,
    }
}

impl Remaking {
    fn options(claim: u128) -> WriterOptions {
        WriterOptions {
            claim: AttemptId(claim),
            max_parallel_writes: WIDTH,
            take_over: true,
            ..WriterOptions::default()
        }
    }

    fn step(&self, place: &mut Place, me: usize, actor: Actor) -> Actor {
        match actor {
            Actor::Opener(mut open) => match place.step_open(&mut open) {
                false => Actor::Opener(open),
                true => {
                    if matches!(open.action(), OpenAction::Done(_)) && place.destroyed() {
                        place.breaks("D1: a destroyed database was opened");
                    }
                    Actor::Gone
                }
            },
            Actor::Destroyer(destroying) => self.destroy(place, me, destroying),
            Actor::Committer(mut commit) => match commit.action() {
                CommitAction::Request(request) => {
                    commit.on_answer(place.serve(request));
                    Actor::Committer(commit)
                }
                CommitAction::Done(_) | CommitAction::Failed(_) => Actor::Gone,
            },
            Actor::Maker(making) => Actor::Maker(self.make(place, making)),
            other => other,
        }
    }

    fn look(&self) -> Look {
        Look::new(None, self.rules)
    }

    fn destroy(&self, place: &mut Place, me: usize, destroying: Destroying) -> Actor {
        let next = match destroying {
            Destroying::Look(mut look) => match look.action() {
                LookAction::Request(request) => {
                    look.on_answer(place.serve(request));
                    Destroying::Look(look)
                }
                LookAction::Done(Some(newest)) if newest.database == OLD => self.begin(me, newest),
                LookAction::Done(_) => return Actor::Gone,
            },
            Destroying::Open(mut open) => match place.step_open(&mut open) {
                false => Destroying::Open(open),
                true => match open.action() {
                    OpenAction::Done(recovered) => {
                        let fences = recovered.fences();
                        let edit = destroy(Some(recovered.epoch), fences);
                        Destroying::Commit(Commit::new(edit, recovered.manifest, self.rules))
                    }
                    _ => Destroying::Look(self.look()),
                },
            },
            Destroying::Commit(mut commit) => match commit.action() {
                CommitAction::Request(request) => {
                    commit.on_answer(place.serve(request));
                    Destroying::Commit(commit)
                }
                CommitAction::Done(last) => Destroying::Erase(Erase::new(last, self.rules)),
                CommitAction::Failed(_) => Destroying::Look(self.look()),
            },
            Destroying::Erase(mut erase) => {
                match erase.action() {
                    EraseAction::ListObjects => erase.on_objects(place.names()),
                    EraseAction::Request(request) => erase.on_answer(place.serve(request)),
                    EraseAction::CreateBoundary { name, last } => {
                        place.objects.insert(name);
                        if last {
                            place.marked.insert(name);
                        }
                        erase.on_boundary(PutOutcome::Committed);
                    }
                    EraseAction::Delete(names) => {
                        names.iter().take(1).for_each(|name| place.delete(*name));
                        erase.on_deleted(&[true]);
                    }
                    EraseAction::Done(_) => return Actor::Gone,
                }
                Destroying::Erase(erase)
            }
        };
        Actor::Destroyer(next)
    }

    /// The steps after the look.
    fn begin(&self, me: usize, newest: Arc<Manifest>) -> Destroying {
        if newest.destroyed_at.is_some() && is_let_go(&newest) {
            return Destroying::Erase(Erase::new(newest, self.rules));
        }
        if !self.rules.has(Rule::FenceBeforeDestroy) {
            let edit = destroy(None, Vec::new());
            return Destroying::Commit(Commit::new(edit, newest, self.rules));
        }
        let options = Remaking::options(200 + me as u128);
        Destroying::Open(OpenWriter::new(options, newest, self.rules))
    }

    fn make(&self, place: &mut Place, making: Making) -> Making {
        match making {
            Making::Look(mut look) => match look.action() {
                LookAction::Request(request) => {
                    look.on_answer(place.serve(request));
                    Making::Look(look)
                }
                LookAction::Done(Some(_)) => Making::Look(self.look()),
                LookAction::Done(None) => {
                    let left = place.left();
                    let boundary = ObjectName::ManifestBoundary(left.manifests);
                    if !place.marked.contains(&boundary) || !place.objects.contains(&boundary) {
                        place.breaks("D3: no process can tell that the place may be used again");
                        return Making::Look(self.look());
                    }
                    let first = left.first_number(0, self.rules);
                    let database = DatabaseId::counting_from(first, 7);
                    let settings = Settings::default();
                    let new = Manifest::new_database_behind(left.manifests, database, settings);
                    Making::Found(Commit::found(new, self.rules))
                }
            },
            Making::Found(mut commit) => match commit.action() {
                CommitAction::Request(request) => {
                    commit.on_answer(place.serve(request));
                    Making::Found(commit)
                }
                CommitAction::Done(first) => Making::Upload(first),
                CommitAction::Failed(_) => Making::Look(self.look()),
            },
            Making::Upload(first) => {
                place.objects.insert(ObjectName::Compacted(NEW_TABLE));
                Making::Write(first, 0)
            }
            Making::Write(first, written) if written == NEW_OBJECTS => Making::Done(first),
            Making::Write(first, written) => {
                let id = first.replay_from.plus(written);
                let data = WalSeen::Data { epoch: Epoch(1), durable: id.minus(1) };
                let outcome = place.create_wal(id, first.database, data);
                if outcome != PutOutcome::Committed {
                    place.breaks("D4: the new log meets what the old one sent");
                }
                Making::Write(first, written + 1)
            }
            Making::Done(first) => Making::Done(first),
        }
    }

    /// Steps of the live writer: it sends objects, which arrive in any order.
    fn write(
        place: &Place,
        me: usize,
        (window, sent, under_way): (&WalWindow, u64, &[WalId]),
        out: &mut Vec<(String, Place)>,
    ) {
        let mut sending = window.clone();
        if let Some(id) = (sent < OLD_OBJECTS).then(|| sending.send()).flatten() {
            let mut next = place.clone();
            let under_way = under_way.iter().copied().chain([id]).collect();
            let writer = Actor::Writer { window: sending, sent: sent + 1, under_way };
            set(&mut next, me, writer);
            out.push((format!("{me}: writer sends {id}"), next));
        }
        for id in under_way {
            let (mut next, mut window) = (place.clone(), window.clone());
            let ended = next.destroyed();
            let data =
                WalSeen::Data { epoch: Epoch(1), durable: WalId(id.get().saturating_sub(2)) };
            let outcome = next.create_wal(*id, OLD, data);
            let mut events = window.on_outcome(*id, outcome);
            while let Some(event) = events.pop() {
                match event {
                    WindowEvent::Acknowledged(id) if ended => {
                        // An object that was committed earlier, and waited for a smaller id, does
                        // not count.
                        let _ = id;
                        next.breaks("D1: the writer acknowledges on");
                    }
                    WindowEvent::CheckBoundary(id) => {
                        let boundary = next.left().wal;
                        events.extend(window.on_boundary(id, boundary));
                    }
                    _ => {}
                }
            }
            let under_way = under_way.iter().copied().filter(|one| one != id).collect();
            set(&mut next, me, Actor::Writer { window, sent, under_way });
            out.push((format!("{me}: the writer's {id} lands"), next));
        }
    }
}

fn destroy(epoch: Option<Epoch>, fences: Vec<KeptFence>) -> Edit {
    let (at, now) = (UnixMillis(1), UnixMillis(1));
    Edit::Destroy(Destroy { epoch, at, now, soft: false, fences })
}

fn set(place: &mut Place, me: usize, actor: Actor) {
    if let Some(slot) = place.actors.get_mut(me) {
        *slot = Arc::new(actor);
    }
}

impl Model for Remaking {
    type State = Place;
    type Step = String;

    fn initial(&self) -> Place {
        let first = Arc::new(Manifest::new_database(OLD, Settings::default()));
        let mut place = Place {
            manifests: BTreeMap::from([(first.id, Arc::clone(&first))]),
            wal: BTreeMap::new(),
            objects: BTreeSet::from([ObjectName::Compacted(SstId(14))]),
            marked: BTreeSet::new(),
            actors: Vec::new(),
            network: Vec::new(),
            late: self.late,
            broken: None,
        };
        let mut open = OpenWriter::new(Remaking::options(100), Arc::clone(&first), self.rules);
        while !place.step_open(&mut open) {}
        let OpenAction::Done(recovered) = open.action() else { panic!("the writer opens") };
        let window = WalWindow::new(recovered.epoch, recovered.fence.next_id, WIDTH, self.rules);
        let mut actors = match self.committers {
            0 => vec![Actor::Writer { window, sent: 0, under_way: Vec::new() }],
            _ => Vec::new(),
        };
        for me in 0..self.destroyers {
            let mut destroyer = Actor::Destroyer(Destroying::Look(self.look()));
            while self.committers > 0
                && !matches!(destroyer, Actor::Destroyer(Destroying::Erase(_)))
            {
                destroyer = self.step(&mut place, me, destroyer);
            }
            actors.push(destroyer);
        }
        if self.opener {
            let options = Remaking::options(300);
            let opener = OpenWriter::new(options, Arc::clone(&recovered.manifest), self.rules);
            actors.push(Actor::Opener(opener));
        }
        for id in 1..=self.committers as u128 {
            let id = CheckpointId(id);
            let expires_at = Some(UnixMillis(1));
            let edit = Edit::AddCheckpoint(NewCheckpoint { id, expires_at, ..Default::default() });
            // They know the newest state that was not destroyed.
            let known = place.manifests.values().rfind(|one| one.destroyed_at.is_none());
            let known = Arc::clone(known.expect("a state before the end"));
            actors.push(Actor::Committer(Commit::new(edit, known, self.rules)));
        }
        actors.push(Actor::Maker(Making::Look(self.look())));
        place.actors = actors.into_iter().map(Arc::new).collect();
        place
    }

    fn fingerprint(&self, state: &Place) -> u64 {
        let mut hasher = DefaultHasher::new();
        state.hash(&mut hasher);
        hasher.finish()
    }

    fn steps(&self, state: &Place, out: &mut Vec<(String, Place)>) {
        for (me, actor) in state.actors.iter().enumerate() {
            match &**actor {
                Actor::Gone | Actor::Maker(Making::Done(_)) => continue,
                Actor::Writer { window, sent, under_way } => {
                    Remaking::write(state, me, (window, *sent, under_way), out);
                    continue;
                }
                _ => {}
            }
            let mut next = state.clone();
            let stepped = self.step(&mut next, me, Actor::clone(actor));
            set(&mut next, me, stepped);
            if next != *state {
                out.push((format!("{me}: {}", told(actor)), next));
            }
            if let Some(late) = under_way(actor).filter(|_| state.late > 0) {
                let mut next = state.clone();
                next.late -= 1;
                next.network.push(late);
                set(&mut next, me, Actor::Gone);
                out.push((format!("{me}: dies, {} still under way", told(actor)), next));
            }
        }
        for at in 0..state.network.len() {
            let mut next = state.clone();
            let late = next.network.remove(at);
            let told = format!("late: {late:?}");
            next.land(late);
            out.push((told.chars().take(80).collect(), next));
        }
    }

    fn violation(&self, state: &Place) -> Option<String> {
        if let Some(broken) = state.broken {
            return Some(broken.to_owned());
        }
        if returned(state) {
            return Some("D3: the old database stands again behind its last boundary".to_owned());
        }
        state.actors.iter().find_map(|actor| match &**actor {
            Actor::Maker(Making::Upload(first)) => lost(state, first, 0, false),
            Actor::Maker(Making::Write(first, written)) => lost(state, first, *written, true),
            Actor::Maker(Making::Done(first)) => lost(state, first, NEW_OBJECTS, true),
            _ => None,
        })
    }
}

/// Whether a look would find a manifest of the old database behind the boundary that ended it.
fn returned(place: &Place) -> bool {
    let last = place.marked.iter().filter_map(|name| match name {
        ObjectName::ManifestBoundary(id) => Some(*id),
        _ => None,
    });
    let Some(last) = last.max() else { return false };
    let lives = |one: &Manifest| one.database == OLD && one.destroyed_at.is_none();
    place.manifests.values().any(|one| lives(one) && one.id > last)
}

/// The loss of the new database, if there is one.
fn lost(place: &Place, first: &Arc<Manifest>, written: u64, uploaded: bool) -> Option<String> {
    if place.manifests.get(&first.id) != Some(first) {
        return Some("D4: the new database's first manifest is gone".to_owned());
    }
    let ids: Vec<ManifestId> = place.manifests.keys().copied().collect();
    let listing = Listing::of(&ids, place.left().manifests, ManifestId::NONE);
    if listing.newest != Some(first.id) {
        return Some("D4: the new database is not what a look finds".to_owned());
    }
    if uploaded && !place.objects.contains(&ObjectName::Compacted(NEW_TABLE)) {
        return Some("D3: a table of the new database is gone".to_owned());
    }
    let owns = |at: u64| {
        let there = place.wal.get(&first.replay_from.plus(at));
        there.is_some_and(|(owner, _)| *owner == first.database)
    };
    (!(0..written).all(owns)).then(|| "D4: an object of the new log is gone".to_owned())
}

fn told(actor: &Actor) -> &'static str {
    match actor {
        Actor::Writer { .. } => "writer",
        Actor::Opener(_) => "opener",
        Actor::Destroyer(Destroying::Look(_)) => "destroyer looks",
        Actor::Destroyer(Destroying::Open(_)) => "destroyer opens",
        Actor::Destroyer(Destroying::Commit(_)) => "destroyer commits",
        Actor::Destroyer(Destroying::Erase(_)) => "destroyer removes",
        Actor::Committer(_) => "committer",
        Actor::Maker(_) => "maker",
        Actor::Gone => "an ended process",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::search;

    fn model(rules: Rules, destroyers: usize, late: u8) -> Remaking {
        Remaking { rules, destroyers, opener: false, committers: 0, late }
    }

    fn committers(rules: Rules, committers: usize) -> Remaking {
        Remaking { committers, ..model(rules, 1, 0) }
    }

    /// All rules in force: no late object of the old database affects the new one, regardless of
    /// the process that dies.
    #[test]
    fn a_place_is_used_again_without_harm() {
        let opener = Remaking { opener: true, ..model(Rules::ALL, 1, 0) };
        let models = [
            ("one destroyer, two committers", committers(Rules::ALL, 2)),
            ("one destroyer, three committers", committers(Rules::ALL, 3)),
            ("one destroyer", model(Rules::ALL, 1, 1)),
            ("one destroyer, an opener", opener),
            ("two destroyers", model(Rules::ALL, 2, 0)),
            ("two destroyers, one late", model(Rules::ALL, 2, 1)),
        ];
        for (name, model) in models {
            let report = search(&model, 600_000);
            let stopped = if report.complete { "" } else { " (stopped)" };
            println!("{name}: {} states, depth {}{stopped}", report.states, report.depth);
            if let Some(violation) = report.violation {
                panic!("{name}: {}\n{}", violation.what, violation.trace.join("\n"));
            }
        }
    }

    /// M3: nothing is created on a manifest that was read and not proven.
    #[test]
    fn a_destroyed_database_returns_by_a_base_that_is_not_proven() {
        let rules = Rules::ALL.without(Rule::VerifyBeforeBelieving);
        let found = search(&committers(rules, 2), 100_000).violation.expect("it returns");
        assert!(found.what.contains("stands again"), "{}", found.what);
    }

    #[test]
    fn each_rule_of_the_end_dropped_is_found_out() {
        for rule in DROPPED {
            let found = [0, 1].into_iter().find_map(|late| {
                search(&model(Rules::ALL.without(rule), 2, late), 2_000_000).violation
            });
            let found = found.unwrap_or_else(|| panic!("{rule:?} dropped and not found out"));
            println!("{rule:?}: trace of {}: {}", found.trace.len(), found.what);
        }
    }
}
