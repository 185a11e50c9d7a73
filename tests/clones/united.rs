//! Several parents (rules K6 and K7, RFC 0031): databases are split and combined in any way, and
//! must equal a plain map.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use siltstone::verify::verify;
use siltstone::{CheckpointName, CheckpointOptions, CheckpointOwner, ErrorKind, Progress};
use siltstone::{UnixMillis, built_in_operator};
use siltstone_base::sst::SstLocation;
use siltstone_manifest::clone::named_ancestors;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const DEADLINE: Duration = Duration::from_secs(9);
const KEYS: u8 = 16;

pub(crate) fn part(env: &Env, start: Option<Vec<u8>>, end: Option<Vec<u8>>) -> CloneParent {
    CloneParent { start, end, ..of(env) }
}

async fn unite(env: &Env, parents: &[CloneParent]) -> Result<()> {
    admin::clone(env, parents, &options()).await
}

/// Two halves of [`Places::parent`], each with its own writer, which has written since.
async fn halves(places: &Places) -> (Env, Env, Pairs) {
    let parent = places.parent("parent").await;
    let (left, right) = (places.env("left"), places.env("right"));
    unite(&left, &[part(&parent, None, Some(key(30)))]).await.unwrap();
    unite(&right, &[part(&parent, Some(key(30)), None)]).await.unwrap();
    let mut rows = parents_rows();
    for (env, row, round) in [(&left, 7, 50), (&right, 40, 51)] {
        let db = open(env).await.unwrap();
        fill(&db, row..row + 1, round).await;
        rows[row as usize].1 = value(round);
        db.flush().await.unwrap();
        std::mem::forget(db);
    }
    (left, right, rows)
}

#[test]
fn split_databases_are_joined() {
    run("joined", async |places| {
        let (left, right, mut rows) = halves(&places).await;
        let env = places.env("whole");
        unite(&env, &[of(&right), of(&left)]).await.unwrap();
        assert_eq!(read(&env).await.unwrap(), rows);
        let made = manifest(&env).await;
        let theirs = [&left, &right].map(async |one| manifest(one).await);
        let [left_is, right_is] = futures::future::join_all(theirs).await.try_into().unwrap();
        assert!(made.flushed_seq > left_is.flushed_seq.max(right_is.flushed_seq));
        assert_eq!(made.floor, made.flushed_seq);
        // One entry per pin: for each half, and for the tables that each has of the split database.
        let of_parent = |one: &Manifest| one.ancestors[0].database;
        let expected = |one: &Manifest| vec![one.database, of_parent(one)];
        let found: Vec<_> = made.ancestors.iter().map(|entry| entry.database).collect();
        let (one, other) = (expected(&left_is), expected(&right_is));
        assert!(found == [one.clone(), other.clone()].concat() || found == [other, one].concat());

        // It continues independently, is cloned, and needs no other database any more.
        let db = open(&env).await.unwrap();
        forget(&db, 20..35);
        rows.retain(|(at, _)| !(key(20)..key(35)).contains(at));
        db.flush().await.unwrap();
        let again = places.env("again");
        clone(&again, &env).await.unwrap();
        db.close().await.unwrap();
        for env in [&again, &env] {
            rewrite(env).await;
            assert_eq!(manifest(env).await.ancestors, []);
        }
        for parent in [&left, &right] {
            let pins = manifest(parent).await;
            let ours = CheckpointOwner::Clone(made.database);
            assert!(pins.checkpoints.iter().all(|one| one.owner != ours));
            let db = open(parent).await.unwrap();
            forget(&db, 0..ROWS);
            db.close().await.unwrap();
            rewrite(parent).await;
        }
        for env in [&env, &again] {
            assert_eq!(read(env).await.unwrap(), rows);
            let report = verify(env, DEADLINE, &Progress::default()).await.unwrap();
            assert_eq!(report.problems, []);
        }
    });
}

/// A scan reads the tables of four databases while each of them rewrites and collects.
#[test]
fn a_paused_scan_outlives_all_sides() {
    run("all sides", async |places| {
        let (left, right, rows) = halves(&places).await;
        let env = places.env("whole");
        unite(&env, &[of(&left), of(&right)]).await.unwrap();
        let db = open(&env).await.unwrap();
        let mut scan = db.scan(ScanRange::all()).unwrap();
        let mut seen = some(&mut scan, 3).await.unwrap();
        fill(&db, 0..ROWS, 60).await;
        db.flush_memtable().await.unwrap();
        for env in [&env, &left, &right, &places.env("parent")] {
            rewrite(env).await;
        }
        seen.extend(some(&mut scan, usize::MAX).await.unwrap());
        assert_eq!(seen, rows);
        drop(scan);
        db.close().await.unwrap();
    });
}

#[test]
fn parents_that_overlap_are_refused_before_anything_is_made() {
    run("overlap", async |places| {
        let (left, right, _) = halves(&places).await;
        let env = places.env("whole");
        let db = open(&left).await.unwrap();
        for in_tables in [false, true] {
            // One row beyond the cut: first in the log, then in a table.
            fill(&db, 45..46, 70).await;
            if in_tables {
                db.flush_memtable().await.unwrap();
            }
            let refused = unite(&env, &[of(&left), of(&right)]).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
            for said in ["overlap/left", "overlap/right", "key0045", "key0030"] {
                assert!(text(&refused).contains(said), "{refused}");
            }
            assert!(gc::newest(&env).await.unwrap().is_none(), "nothing was begun");
            for parent in [&left, &right] {
                let pinned = manifest(parent).await;
                let is_pin = |one: &CheckpointOwner| matches!(one, CheckpointOwner::Clone(_));
                assert!(!pinned.checkpoints.iter().any(|one| is_pin(&one.owner)));
            }
        }
        db.close().await.unwrap();
        let cut = [part(&left, None, Some(key(30))), of(&right)];
        unite(&env, &cut).await.unwrap();
        assert_eq!(read(&env).await.unwrap().len(), parents_rows().len());
    });
}

/// The order of the parents does not matter in a request; every other part of it does.
#[test]
fn the_same_parents_in_any_order_are_the_same_request() {
    run("request", async |places| {
        let (left, right, rows) = halves(&places).await;
        let env = places.env("whole");
        unite(&env, &[of(&left), of(&right)]).await.unwrap();
        unite(&env, &[of(&right), of(&left)]).await.unwrap();
        let named = CloneParent { checkpoint: Some(CheckpointName::Name("x".into())), ..of(&left) };
        for other in [
            vec![of(&left)],
            vec![of(&left), part(&right, Some(key(30)), None)],
            vec![named, of(&right)],
            vec![of(&left), of(&right), part(&right, Some(key(90)), None)],
        ] {
            let refused = unite(&env, &other).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
        }
        assert_eq!(read(&env).await.unwrap(), rows);
    });
}

/// A parent that is also an ancestor of the other one: yesterday's state for some keys.
#[test]
fn a_clone_and_its_parent_are_united() {
    run("both", async |places| {
        let old = places.parent("old").await;
        let how = CheckpointOptions { name: Some("then".to_owned()), ..Default::default() };
        admin::create_checkpoint(&old, &how, DEADLINE).await.unwrap();
        let new = places.env("new");
        clone(&new, &old).await.unwrap();
        for (env, round) in [(&new, 80), (&old, 81)] {
            let db = open(env).await.unwrap();
            fill(&db, 0..ROWS, round).await;
            db.close().await.unwrap();
        }
        let env = places.env("some of each");
        let then = Some(CheckpointName::Name("then".to_owned()));
        let (head, tail) = (part(&new, None, Some(key(10))), part(&old, Some(key(10)), None));
        unite(&env, &[CloneParent { checkpoint: then, ..tail }, head]).await.unwrap();
        let mut expected = parents_rows();
        expected[..10].iter_mut().for_each(|row| row.1 = value(80));
        assert_eq!(read(&env).await.unwrap(), expected);
        rewrite(&env).await;
        assert_eq!(
            (read(&env).await.unwrap(), manifest(&env).await.ancestors.len()),
            (expected, 0)
        );
    });
}

/// K7: the half that references nothing of its parent's own parent pins nothing there.
#[test]
fn only_what_is_still_named_is_pinned() {
    run("named", async |places| {
        let parent = places.parent("parent").await;
        let child = places.env("child");
        unite(&child, &[part(&parent, None, Some(key(30)))]).await.unwrap();
        let db = open(&child).await.unwrap();
        fill(&db, 40..44, 9).await;
        db.close().await.unwrap();
        for (name, start, entries) in [("whole", None, 2), ("upper", Some(key(40)), 1)] {
            let env = places.env(name);
            unite(&env, &[part(&child, start, None)]).await.unwrap();
            let made = manifest(&env).await;
            assert_eq!(made.ancestors.len(), entries, "{name}");
            let named = |table: &siltstone_base::SstDescriptor| table.location;
            assert!(made.tables().map(named).all(|place| match place {
                SstLocation::Own => true,
                SstLocation::Ancestor(number) => made.ancestor(number).is_some(),
            }));
            assert_eq!(read(&env).await.unwrap().len(), if entries == 1 { 4 } else { 34 });
        }
    });
}

/// Merge operands of one parent, and a parent without an operator.
#[test]
fn the_operator_of_one_is_that_of_all() {
    run("operator", async |places| {
        let (plain, summed) = (places.env("plain"), places.env("summed"));
        let db = open(&plain).await.unwrap();
        fill(&db, 0..5, 1).await;
        db.close().await.unwrap();
        let db = Handle::open(&summed).await;
        db.accepted(db.db.merge(&key(7), b"a", None));
        db.accepted(db.db.merge(&key(7), b"b", None));
        db.db.close().await.unwrap();
        let env = places.env("both");
        unite(&env, &[of(&plain), of(&summed)]).await.unwrap();
        assert_eq!(manifest(&env).await.settings.merge_operator.as_deref(), Some("append"));
        assert_eq!(rows(&env).await[&key(7)], b"ab");
    });
}

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Debug)]
enum Event {
    Put(u8, u8),
    /// With an expiry that has passed, or one that is never reached.
    Expiring(u8, u8, bool),
    Delete(u8),
    Merge(u8, u8),
    DeleteRange(u8, u8),
    Flush(u8),
    Compact(u8),
    Split(u8),
    Join(u8),
}

fn event() -> impl Strategy<Value = Event> {
    let n = 0..KEYS;
    prop_oneof![
        8 => (n.clone(), any::<u8>()).prop_map(|(n, v)| Event::Put(n, v)),
        2 => (n.clone(), any::<u8>(), any::<bool>()).prop_map(|(n, v, p)| Event::Expiring(n, v, p)),
        2 => n.clone().prop_map(Event::Delete),
        3 => (n.clone(), any::<u8>()).prop_map(|(n, v)| Event::Merge(n, v)),
        2 => (n, 1u8..9).prop_map(|(from, length)| Event::DeleteRange(from, length)),
        3 => any::<u8>().prop_map(Event::Flush),
        1 => any::<u8>().prop_map(Event::Compact),
        2 => (1..KEYS).prop_map(Event::Split),
        2 => any::<u8>().prop_map(Event::Join),
    ]
}

/// A database with its writer, which is never closed: unflushed rows are in the log.
struct Handle {
    env: Env,
    db: Database,
}

impl Handle {
    async fn open(env: &Env) -> Handle {
        let merge_operator = built_in_operator("append");
        let how = OpenOptions { options: options(), merge_operator, ..OpenOptions::default() };
        let how = OpenOptions { take_over: Some(true), ..how };
        Handle { env: env.clone(), db: Database::open(env.clone(), how).await.unwrap() }
    }

    fn accepted(&self, accept: Result<Accept>) {
        assert!(matches!(accept.unwrap(), Accept::Accepted(_)), "pressure in a small test");
    }
}

async fn rows(env: &Env) -> Map {
    let options = Options { reader_lease: false, ..options() };
    let merge_operator = built_in_operator("append");
    let how = ReaderOptions { options, merge_operator, ..ReaderOptions::default() };
    let reader = Reader::open(env.clone(), how).await.unwrap();
    let rows = some(&mut reader.scan(ScanRange::all()).unwrap(), usize::MAX).await.unwrap();
    reader.close().await.unwrap();
    rows.into_iter().collect()
}

async fn major(env: &Env) {
    let merge_operator = built_in_operator("append");
    let how = CompactorOptions { options: options(), workers: 0, merge_operator };
    CompactorProcess::open(env.clone(), how, |_| {}).await.unwrap().compact().await.unwrap();
}

/// Databases with disjoint ranges.
struct Shelf<'a> {
    places: &'a Places,
    databases: Vec<(Handle, u8, u8)>,
    truth: Map,
}

impl Shelf<'_> {
    /// A place that no other history uses.
    fn place(&self) -> Env {
        static MADE: AtomicU64 = AtomicU64::new(0);
        self.places.env(&MADE.fetch_add(1, Relaxed).to_string())
    }

    fn holding(&self, n: u8) -> &Handle {
        let holds = |(_, from, to): &&(Handle, u8, u8)| (*from..*to).contains(&n);
        &self.databases.iter().find(holds).unwrap().0
    }

    async fn happen(&mut self, event: &Event) {
        let (count, append) = (self.databases.len() as u8, |old: Option<Vec<u8>>, v| {
            [old.unwrap_or_default(), vec![v]].concat()
        });
        let at = |n: &u8| key(u32::from(*n));
        match event {
            Event::Put(n, v) => {
                let db = self.holding(*n);
                db.accepted(db.db.put(&at(n), &[*v], None));
                self.truth.insert(at(n), vec![*v]);
            }
            Event::Expiring(n, v, past) => {
                let db = self.holding(*n);
                let end = if *past { 1 } else { u64::from(u32::MAX) * 4_000 };
                db.accepted(db.db.put_until(&at(n), &[*v], Some(UnixMillis(end))));
                self.truth.insert(at(n), vec![*v]);
                if *past {
                    self.truth.remove(&at(n));
                }
            }
            Event::Delete(n) => {
                let db = self.holding(*n);
                db.accepted(db.db.delete(&at(n)));
                self.truth.remove(&at(n));
            }
            Event::Merge(n, v) => {
                let db = self.holding(*n);
                db.accepted(db.db.merge(&at(n), &[*v], None));
                let old = self.truth.remove(&at(n));
                self.truth.insert(at(n), append(old, *v));
            }
            Event::DeleteRange(from, length) => {
                let to = from.saturating_add(*length).min(KEYS);
                for (db, first, end) in &self.databases {
                    // A user who writes only within the range of the database.
                    let (from, to) = ((*from).max(*first), to.min(*end));
                    if from < to {
                        db.accepted(db.db.delete_range(&at(&from), &at(&to)));
                    }
                }
                self.truth.retain(|key, _| !(at(from)..at(&to)).contains(key));
            }
            Event::Flush(n) => {
                let db = &self.databases[usize::from(n % count)].0.db;
                db.flush_memtable().await.unwrap();
            }
            Event::Compact(n) => major(&self.databases[usize::from(n % count)].0.env).await,
            Event::Split(n) => self.split(*n).await,
            Event::Join(n) => self.join(usize::from(n % count)).await,
        }
    }

    async fn split(&mut self, n: u8) {
        let inside = |(_, from, to): &(Handle, u8, u8)| *from < n && n < *to;
        let Some(at) = self.databases.iter().position(inside) else { return };
        let (whole, from, to) = self.databases.remove(at);
        whole.db.flush().await.unwrap();
        for (from, to) in [(n, to), (from, n)] {
            let env = self.place();
            let keys = (Some(key(u32::from(from))), Some(key(u32::from(to))));
            unite(&env, &[part(&whole.env, keys.0, keys.1)]).await.unwrap();
            self.databases.insert(at, (Handle::open(&env).await, from, to));
        }
        std::mem::forget(whole);
    }

    /// Those at `at` and behind it, up to three.
    async fn join(&mut self, at: usize) {
        let until = (at + 3).min(self.databases.len());
        if until - at < 2 {
            return;
        }
        let (mut parents, mut old) = (Vec::new(), Vec::new());
        for (handle, from, to) in self.databases.drain(at..until) {
            handle.db.flush().await.unwrap();
            // A range delete up to the next part's first key extends to it, by the recorded bounds.
            parents.push(part(&handle.env, None, Some(key(u32::from(to)))));
            old.push((handle, from, to));
        }
        let env = self.place();
        unite(&env, &parents).await.unwrap();
        let (from, to) = (old[0].1, old[old.len() - 1].2);
        self.databases.insert(at, (Handle::open(&env).await, from, to));
        std::mem::forget(old);
    }

    async fn check(&self) {
        let mut seen = Map::new();
        for (handle, ..) in &self.databases {
            handle.db.flush().await.unwrap();
            seen.extend(rows(&handle.env).await);
        }
        assert_eq!(seen, self.truth);
    }
}

async fn split_and_joined(places: Places, events: Vec<Event>) {
    let mut shelf = Shelf { places: &places, databases: vec![], truth: Map::new() };
    let env = shelf.place();
    shelf.databases.push((Handle::open(&env).await, 0, KEYS));
    for event in &events {
        shelf.happen(event).await;
        if matches!(event, Event::Split(_) | Event::Join(_) | Event::Compact(_)) {
            shelf.check().await;
        }
    }
    while shelf.databases.len() > 1 {
        shelf.join(0).await;
    }
    shelf.check().await;
    let (last, ..) = shelf.databases.remove(0);
    last.db.flush_memtable().await.unwrap();
    last.db.close().await.unwrap();
    for _ in 0..2 {
        major(&last.env).await;
        gc::round(&last.env).await.unwrap();
    }
    assert_eq!(rows(&last.env).await, shelf.truth);
    let made = manifest(&last.env).await;
    assert!(made.tables().all(|table| !table.is_cut()));
    // A whole table at its destination is moved unchanged: its ancestor stays, no other does.
    let left: Vec<u32> = made.ancestors.iter().map(|entry| entry.number).collect();
    let named: Vec<u32> = named_ancestors(&made).iter().map(|entry| entry.number).collect();
    assert_eq!(left, named);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn however_databases_are_split_and_joined_they_hold_the_same(
        events in vec(event(), 1..60),
    ) {
        run("split and joined", async |places| split_and_joined(places, events).await);
    }
}

/// Parts of one table in two runs: as one run leaves its part, the other waits for a block of its
/// own. Found by the test above.
#[test]
fn a_scan_reads_two_parts_of_one_table_at_once() {
    let expiring = |n| Event::Expiring(n, 0, false);
    let events = vec![
        Event::Put(0, 0),
        Event::DeleteRange(3, 5),
        expiring(2),
        Event::Put(0, 0),
        expiring(0),
        expiring(0),
        Event::Split(9),
        expiring(9),
        Event::Merge(9, 0),
        Event::Join(32),
        Event::DeleteRange(2, 6),
        Event::Split(3),
        Event::Split(1),
        Event::Put(3, 0),
        Event::Split(10),
    ];
    run("two parts", async |places| split_and_joined(places, events.clone()).await);
}
