//! Explores every interleaving of two creators of one clone, with expiring pins, compaction and
//! collection in the parent and in the parent's own parent, and the clone's collector (rules K1,
//! K4, K5, RFC 0029). A second world is a union of the two databases (rule K6, RFC 0031), where one
//! parent is also an ancestor. Edits are the real ones. Commits are single steps, which
//! `tests/explorer` justifies.
//!
//! A creator that dies is one that never moves again: every state is checked, so each crash is
//! covered.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test stops at what it did not expect"
)]

#[path = "support/one_row.rs"]
mod one_row;

use one_row::one_row;
use siltstone_base::sst::SstLocation;
use siltstone_base::{
    CheckpointId, DatabaseId, RequestId, Seq, SstDescriptor, SstId, TimelineId, UnixMillis,
};
use siltstone_manifest::clone::{
    CloneSource, FIRST_ENTRY, begun, compose, entries, next_set, next_step, pins,
};
use siltstone_manifest::gc::Evidence;
use siltstone_manifest::{
    Ancestor, CheckpointOwner, CloneEdit, CloneStep, Edit, Manifest, NewCheckpoint, PinEdit,
    Settings, SortedRun,
};
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The rules that can be left out; the test must then find a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Nothing,
    /// K1: a pin never expires, from the beginning.
    Expiry,
    /// K1: a creator fills the clone with the data of its own pins, even if others are recorded.
    Recorded,
    /// K1: the clone is finished under pins that expire.
    Hold,
    /// K5: only the newest manifest decides whether an ancestor is referenced.
    All,
    /// K5: the entry is removed before the pin.
    Order,
}

const PARENT: DatabaseId = DatabaseId(1);
const GRAND: DatabaseId = DatabaseId(2);
const REQUEST: RequestId = RequestId(1);
/// Bounds of a run.
const COMPACTIONS: u8 = 2;
/// Pins of each pinned database, and number of fills.
const MOST_PINS: usize = 4;

/// A database: its manifests, the newest last, and its stored tables.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Place {
    versions: Vec<Arc<Manifest>>,
    stored: BTreeSet<SstId>,
}

impl Place {
    fn newest(&self) -> &Arc<Manifest> {
        self.versions.last().unwrap()
    }

    fn version_of(&self, pin: CheckpointId) -> Option<Arc<Manifest>> {
        let id = self.newest().checkpoint(pin)?.manifest_id;
        self.versions.iter().find(|version| version.id == id).cloned()
    }

    /// Whether the edit was committed.
    fn commit(&mut self, edit: Edit) -> bool {
        if edit.in_effect(self.newest()) {
            return true;
        }
        match edit.apply(self.newest()) {
            Ok(next) => {
                self.versions.push(Arc::new(next));
                true
            }
            Err(_) => false,
        }
    }

    /// The newest state with table `from` replaced by `to`, as by a compaction.
    fn compact(&mut self, from: SstId, to: SstId) {
        let mut next = Manifest::clone(self.newest());
        next.id = next.next_id();
        for table in next.runs.iter_mut().flat_map(|run| &mut run.tables) {
            if table.id == from {
                (table.id, table.location) = (to, SstLocation::Own);
                self.stored.insert(to);
            }
        }
        self.versions.push(Arc::new(next));
    }

    /// Revokes everything that has an expiry, at any time, and deletes unreferenced tables.
    fn collect(&mut self) {
        let newest = self.newest();
        let ids = newest.checkpoints.iter().map(|one| one.id).collect();
        let now = UnixMillis(1_000);
        self.commit(Edit::RevokeExpired { ids, now });
        let named = self.named();
        self.stored.retain(|table| named.contains(table));
    }

    fn named(&self) -> BTreeSet<SstId> {
        let newest = self.newest();
        let pinned = newest.checkpoints.iter().filter_map(|one| self.version_of(one.id));
        let states = pinned.chain([Arc::clone(newest)]);
        states.flat_map(|state| state.tables().map(|table| table.id).collect::<Vec<_>>()).collect()
    }
}

/// The next action of a creator.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Maker {
    Pin,
    /// These pins exist; next, the others.
    PinMore(Vec<CheckpointId>),
    /// All pins exist: begin with them, or replace the recorded ones.
    Record(Vec<CheckpointId>, Option<Vec<CheckpointId>>),
    Look,
    /// The tables are read; next, they are recorded.
    Fill(CloneEdit),
    /// This number of pins is permanent.
    Held(Vec<CheckpointId>, usize),
    Done,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct World {
    parent: Place,
    grand: Place,
    clone: Option<Place>,
    makers: Vec<(Maker, Vec<CheckpointId>)>,
    /// The pinned databases, in order: the parent; its own parent, by the parent's pin there; and,
    /// for a union, its own parent as a parent.
    pinned: &'static [DatabaseId],
    /// A state of the clone that a reader has pinned.
    read: Option<CheckpointId>,
    compactions: u8,
    ids: u128,
    /// The detach of this entry is half done.
    detaching: Option<Ancestor>,
    rewritten: bool,
}

fn database(id: DatabaseId, tables: Vec<SstDescriptor>) -> Manifest {
    Manifest {
        flushed_seq: Seq(1),
        runs: vec![SortedRun { id: 0, tables }],
        ..Manifest::new_database(id, Settings::default())
    }
}

fn ancestor(number: u32, database: DatabaseId, checkpoint: CheckpointId) -> Ancestor {
    let location = if database == PARENT { "parent" } else { "grand" };
    Ancestor { number, database, location: location.to_owned(), checkpoint }
}

impl World {
    fn new(makers: usize) -> World {
        World::of(makers, &[PARENT, GRAND])
    }

    /// A union of the keys below c of the parent, and of those from c on of the parent's own
    /// parent.
    fn of_both(makers: usize) -> World {
        World::of(makers, &[PARENT, GRAND, GRAND])
    }

    fn of(makers: usize, pinned: &'static [DatabaseId]) -> World {
        // The parent is a clone of its own parent, and uses table 20 there by pin 900.
        let mut tables = vec![one_row(20, SstLocation::Own, b"b")];
        if pinned.len() > 2 {
            tables.push(one_row(40, SstLocation::Own, b"c"));
        }
        let stored = tables.iter().map(|table| table.id).collect();
        let grand = database(GRAND, tables);
        let mut grand = Place { versions: vec![Arc::new(grand)], stored };
        let pin = CheckpointId(900);
        let owner = CheckpointOwner::Clone(PARENT);
        let new = NewCheckpoint { id: pin, owner, ..expiring() };
        assert!(grand.commit(Edit::AddCheckpoint(new)));
        assert!(grand.commit(Edit::Pin(PinEdit::Hold { pin, clone: PARENT })));
        let tables =
            vec![one_row(10, SstLocation::Own, b"a"), one_row(20, SstLocation::Ancestor(1), b"b")];
        let mut parent = database(PARENT, tables);
        (parent.ancestors, parent.last_ancestor) = (vec![ancestor(1, GRAND, pin)], 1);
        let parent = Place { versions: vec![Arc::new(parent)], stored: [SstId(10)].into() };
        World {
            parent,
            grand,
            clone: None,
            makers: vec![(Maker::Pin, Vec::new()); makers],
            pinned,
            read: None,
            compactions: 0,
            ids: 0,
            detaching: None,
            rewritten: false,
        }
    }

    fn id(&mut self) -> CheckpointId {
        self.ids += 1;
        CheckpointId(self.ids)
    }

    fn place(&mut self, database: DatabaseId) -> &mut Place {
        if database == PARENT { &mut self.parent } else { &mut self.grand }
    }

    /// The identity that a creator gives to the clone.
    fn identity(&self, maker: usize) -> DatabaseId {
        let made = self.clone.as_ref().map(|clone| clone.newest().database);
        made.unwrap_or(DatabaseId(100 + maker as u128))
    }

    /// Every world that is one step away.
    fn next(&self, without: Without) -> Vec<World> {
        let mut all = Vec::new();
        for maker in 0..self.makers.len() {
            let mut next = self.clone();
            if next.make(maker, without) {
                all.push(next);
            }
        }
        if self.compactions < COMPACTIONS {
            let mut next = self.clone();
            next.compact();
            all.push(next);
        }
        for database in [PARENT, GRAND] {
            let mut next = self.clone();
            next.place(database).collect();
            all.push(next);
        }
        all.extend(self.clones_own(without));
        all.retain(|next| next != self);
        all
    }

    /// A compaction in the parent, and one in the parent's own parent.
    fn compact(&mut self) {
        let from = 10 + u128::from(self.compactions);
        self.compactions += 1;
        self.parent.compact(SstId(from), SstId(from + 1));
        self.parent.compact(SstId(20), SstId(30));
        self.grand.compact(SstId(20), SstId(21));
        if self.pinned.len() > 2 {
            self.grand.compact(SstId(40), SstId(41));
        }
    }

    /// A reader of the clone, its compaction, its collector.
    fn clones_own(&self, without: Without) -> Vec<World> {
        let mut all = Vec::new();
        let made = self.clone.as_ref().filter(|clone| clone.newest().initialized);
        let Some(clone) = made else { return all };
        if self.read.is_none() && !self.rewritten {
            let mut next = self.clone();
            let id = CheckpointId(800);
            let pin = NewCheckpoint { id, ..NewCheckpoint::default() };
            assert!(next.clone.as_mut().unwrap().commit(Edit::AddCheckpoint(pin)));
            next.read = Some(id);
            all.push(next);
        }
        if !self.rewritten {
            let mut next = self.clone();
            next.rewritten = true;
            let tables: Vec<SstId> = clone.newest().tables().map(|table| table.id).collect();
            for (number, id) in (500..).zip(tables) {
                next.clone.as_mut().unwrap().compact(id, SstId(number));
            }
            all.push(next);
        }
        all.extend(self.detach(clone, without));
        all
    }

    fn detach(&self, clone: &Place, without: Without) -> Option<World> {
        let mut next = self.clone();
        let newest = clone.newest();
        let order = without == Without::Order;
        if let Some(entry) = next.detaching.take() {
            let (pin, database) = (entry.checkpoint, newest.database);
            if order {
                next.place(entry.database)
                    .commit(Edit::Pin(PinEdit::Release { pin, clone: database }));
            } else {
                let forget = CloneEdit::Detach { number: entry.number };
                assert!(next.clone.as_mut().unwrap().commit(Edit::Clone(forget)));
            }
            return Some(next);
        }
        // A round without a grace period: the boundary is directly below the newest manifest.
        let mut evidence = Evidence { newest: Some(Arc::clone(newest)), ..Evidence::default() };
        if without != Without::All {
            let pins = newest.checkpoints.iter().filter_map(|one| clone.version_of(one.id));
            pins.for_each(|pinned| evidence.pinned.note(&pinned));
        }
        evidence.note(newest);
        let number = *evidence.detachable(newest.id.minus(1)).first()?;
        let entry = newest.ancestor(number).unwrap().clone();
        let (pin, database) = (entry.checkpoint, newest.database);
        if order {
            let forget = CloneEdit::Detach { number };
            assert!(next.clone.as_mut().unwrap().commit(Edit::Clone(forget)));
        } else {
            let release = Edit::Pin(PinEdit::Release { pin, clone: database });
            assert!(next.place(entry.database).commit(release));
        }
        next.detaching = Some(entry);
        Some(next)
    }

    /// One step of a creator; returns whether there was one.
    fn make(&mut self, who: usize, without: Without) -> bool {
        let (maker, own) = self.makers[who].clone();
        let next = match maker {
            Maker::Done => return false,
            Maker::Pin => self.pin(who, Vec::new(), without),
            Maker::PinMore(pins) => self.pin(who, pins, without),
            Maker::Record(pins, recorded) => self.record(who, &pins, recorded),
            Maker::Look => self.look(&own, without),
            Maker::Fill(fill) => {
                let place = self.clone.as_mut().unwrap();
                let fill = match (without, fill) {
                    (Without::Recorded, CloneEdit::Fill { timeline, began_at, tables, .. }) => {
                        let pins = pins(place.newest());
                        CloneEdit::Fill { pins, timeline, began_at, tables }
                    }
                    (_, fill) => fill,
                };
                place.commit(Edit::Clone(fill));
                Some(Maker::Look)
            }
            Maker::Held(pins, held) => self.hold(pins, held, without),
        };
        let Some(next) = next else { return false };
        let own = match &next {
            Maker::Record(pins, ..) => pins.clone(),
            _ => own,
        };
        self.makers[who] = (next, own);
        true
    }

    fn new_pin(&mut self, who: usize, without: Without) -> Option<NewCheckpoint> {
        if self.ids >= (MOST_PINS * self.pinned.len()) as u128 {
            return None;
        }
        let owner = CheckpointOwner::Clone(self.identity(who));
        let plain = expiring();
        let expires_at = match without {
            Without::Expiry => Some(UnixMillis(u64::MAX)),
            _ => plain.expires_at,
        };
        Some(NewCheckpoint { id: self.id(), owner, expires_at, ..plain })
    }

    /// One more pin: the second one covers the tables that the parent's own pin keeps there.
    fn pin(
        &mut self,
        who: usize,
        mut pinned: Vec<CheckpointId>,
        without: Without,
    ) -> Option<Maker> {
        let database = self.pinned[pinned.len()];
        let new = self.new_pin(who, without)?;
        let source = (pinned.len() == 1).then_some(CheckpointId(900));
        pinned.push(new.id);
        assert!(self.place(database).commit(Edit::AddCheckpoint(NewCheckpoint { source, ..new })));
        if pinned.len() < self.pinned.len() {
            return Some(Maker::PinMore(pinned));
        }
        let state = self.clone.as_ref().map(|clone| clone.newest());
        Some(Maker::Record(pinned, state.map(|state| pins(state))))
    }

    fn record(
        &mut self,
        who: usize,
        pinned: &[CheckpointId],
        recorded: Option<Vec<CheckpointId>>,
    ) -> Option<Maker> {
        let of = self.pinned;
        let all = |first| {
            let each = (first..).zip(of).zip(pinned);
            each.map(|((number, database), pin)| ancestor(number, *database, *pin)).collect()
        };
        match (&mut self.clone, recorded) {
            (None, _) => {
                let identity = DatabaseId(100 + who as u128);
                let source = Arc::clone(self.parent.newest());
                let sources = [("parent", &*source)];
                let first = begun(identity, REQUEST, &sources, all(FIRST_ENTRY), None).unwrap();
                self.clone = Some(Place {
                    versions: vec![Arc::new(first)],
                    stored: (500..510).map(SstId).collect(),
                });
            }
            (Some(clone), Some(recorded)) => {
                let entries = all(next_set(clone.newest()));
                clone.commit(Edit::Clone(CloneEdit::Repin { recorded, entries }));
            }
            // Another process began it.
            (Some(_), None) => {}
        }
        Some(Maker::Look)
    }

    fn look(&mut self, own: &[CheckpointId], without: Without) -> Option<Maker> {
        let state = Arc::clone(self.clone.as_ref().unwrap().newest());
        match next_step(&state, REQUEST).unwrap_or(CloneStep::Done) {
            CloneStep::Done => Some(Maker::Done),
            CloneStep::Hold if without == Without::Hold => {
                let finish = CloneEdit::Finish { pins: pins(&state) };
                self.clone.as_mut().unwrap().commit(Edit::Clone(finish));
                Some(Maker::Look)
            }
            CloneStep::Hold => Some(Maker::Held(pins(&state), 0)),
            CloneStep::Fill => Some(self.fill(&state, own, without).unwrap_or(Maker::Pin)),
        }
    }

    /// The tables of the pinned states; `None` if a pin is gone.
    fn fill(&mut self, state: &Manifest, own: &[CheckpointId], without: Without) -> Option<Maker> {
        let entries = entries(state);
        assert_eq!(entries.len(), self.pinned.len());
        let union = self.pinned.len() > 2;
        let cut = union.then_some(b"c".as_slice());
        let parts = [(0, (None, cut)), (2, (cut, None))];
        let mut read = Vec::new();
        for (at, keys) in parts.into_iter().take(if union { 2 } else { 1 }) {
            let pin = match without {
                Without::Recorded => own.get(at).copied().unwrap_or(entries[at].checkpoint),
                _ => entries[at].checkpoint,
            };
            read.push((at, keys, self.place(self.pinned[at]).version_of(pin)?));
        }
        let sources = read.iter().map(|(at, keys, pinned)| CloneSource {
            name: "parent",
            state: pinned,
            number: entries[*at].number,
            log: &[],
            last_seq: Seq(1),
            commit_time: UnixMillis(1),
            keys: *keys,
        });
        let tables = Box::new(compose(&sources.collect::<Vec<_>>()).unwrap());
        let timeline = TimelineId(self.id().0 + 1_000);
        let began_at = UnixMillis(1);
        Some(Maker::Fill(CloneEdit::Fill { pins: pins(state), timeline, began_at, tables }))
    }

    fn hold(&mut self, held: Vec<CheckpointId>, done: usize, _: Without) -> Option<Maker> {
        let state = Arc::clone(self.clone.as_ref().unwrap().newest());
        let clone = state.database;
        let Some(pin) = held.get(done).copied() else {
            let finish = CloneEdit::Finish { pins: held };
            self.clone.as_mut().unwrap().commit(Edit::Clone(finish));
            return Some(Maker::Look);
        };
        let database = self.pinned[done];
        if self.place(database).commit(Edit::Pin(PinEdit::Hold { pin, clone })) {
            return Some(Maker::Held(held, done + 1));
        }
        // The pin is gone. New pins replace the recorded ones, unless another creator was faster.
        Some(if pins(&state) == held && !state.initialized { Maker::Pin } else { Maker::Look })
    }

    /// The failure in this state, if there is one.
    fn wrong(&self, without: Without) -> Option<&'static str> {
        let newest = self.clone.as_ref().map(|clone| clone.newest());
        let recorded = |id| {
            let half = self.detaching.as_ref().is_some_and(|entry| entry.checkpoint == id);
            let half = half && without != Without::Order;
            let mut entries = newest.iter().flat_map(|state| &state.ancestors);
            half || entries.any(|entry| entry.checkpoint == id)
        };
        for place in [&self.parent, &self.grand] {
            for one in &place.newest().checkpoints {
                let endless = one.expires_at.is_none_or(|at| at == UnixMillis(u64::MAX));
                if endless && one.id != CheckpointId(900) && !recorded(one.id) {
                    return Some("an endless pin without a record");
                }
            }
        }
        let clone = self.clone.as_ref().filter(|clone| clone.newest().initialized)?;
        let read = self.read.and_then(|id| clone.version_of(id));
        for state in read.iter().chain([clone.newest()]) {
            for table in state.tables() {
                let stored = match table.location {
                    SstLocation::Own => &clone.stored,
                    SstLocation::Ancestor(number) => match state.ancestor(number) {
                        Some(entry) if entry.database == PARENT => &self.parent.stored,
                        Some(_) => &self.grand.stored,
                        None => return Some("a table in an ancestor that is not there"),
                    },
                };
                if !stored.contains(&table.id) {
                    return Some("a table of the clone is gone");
                }
            }
        }
        None
    }
}

/// A pin with an expiry: at any collection it may have expired.
fn expiring() -> NewCheckpoint {
    NewCheckpoint { expires_at: Some(UnixMillis(500)), ..NewCheckpoint::default() }
}

fn hash(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.hash(&mut hasher);
    hasher.finish()
}

/// One creator has pinned, another one has pinned a later state, and the first one has begun.
fn begun_by_another(mut world: World, without: Without) -> World {
    let pins = world.pinned.len();
    for who in [vec![0; pins], vec![1; pins], vec![0]].concat() {
        if who == 1 && world.compactions == 0 {
            world.compact();
        }
        assert!(world.make(who, without));
    }
    world.compact();
    world
}

/// Number of explored worlds, and the failure in one of them. Breadth first, up to a limit.
fn explore(first: World, without: Without, most: usize) -> (usize, bool, Option<&'static str>) {
    let mut seen = HashSet::from([hash(&first)]);
    let (mut todo, mut finished) = (VecDeque::from([first]), false);
    while let Some(world) = todo.pop_front() {
        if let Some(wrong) = world.wrong(without) {
            return (seen.len(), finished, Some(wrong));
        }
        finished |= world
            .clone
            .as_ref()
            .is_some_and(|clone| clone.newest().initialized && clone.newest().ancestors.is_empty());
        if seen.len() >= most {
            continue;
        }
        for next in world.next(without) {
            if seen.insert(hash(&next)) {
                todo.push_back(next);
            }
        }
    }
    (seen.len(), finished, None)
}

#[test]
fn no_order_of_things_loses_a_table_or_keeps_a_pin() {
    for of in [World::new, World::of_both] {
        let (worlds, finished, wrong) = explore(of(2), Without::Nothing, 100_000);
        assert_eq!(wrong, None, "after {worlds} worlds");
        assert!(worlds > 10_000, "{worlds} worlds");
        let begun = begun_by_another(of(2), Without::Nothing);
        let (worlds, _, wrong) = explore(begun, Without::Nothing, 100_000);
        assert_eq!(wrong, None, "after {worlds} worlds");
        let (worlds, alone, wrong) = explore(of(1), Without::Nothing, 100_000);
        assert_eq!(wrong, None, "after {worlds} worlds");
        assert!(finished || alone, "no clone ever released its parents");
    }
}

#[test]
fn each_rule_left_out_is_found() {
    let pin = "an endless pin without a record";
    let gone = "a table of the clone is gone";
    for of in [World::new, World::of_both] {
        let alone = of(1);
        for (without, first, told) in [
            (Without::Expiry, alone.clone(), pin),
            (Without::Recorded, begun_by_another(of(2), Without::Recorded), gone),
            (Without::Hold, alone.clone(), gone),
            (Without::All, alone.clone(), gone),
            (Without::Order, alone, pin),
        ] {
            let (worlds, _, wrong) = explore(first, without, 200_000);
            assert_eq!(wrong, Some(told), "without {without:?}, after {worlds} worlds");
        }
    }
}
