//! Clones and their parents: the pins and their duration, the rows of a part, and the blocks in a
//! shared cache.

use crate::place::{Place, options, reader};
use siltstone::admin::{self, CloneParent};
use siltstone::{
    Accept, CheckpointOwner, Database, Env, FillOutcome, OpenOptions, Options, Reader,
    ReaderOptions, Result, Rows, ScanRange,
};
use siltstone_manifest::Manifest;
use siltstone_tests::faults::{FaultPlan, Places};
use siltstone_tests::gc;
use siltstone_tests::sim::Sim;
use std::sync::Arc;
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(30);

/// A world with several places.
struct Family {
    sim: Sim,
    places: Arc<Places>,
}

impl Family {
    fn new() -> Family {
        Family { sim: Sim::new(11), places: Arc::default() }
    }

    fn env(&self, place: &str) -> Env {
        let process = self.sim.process("process", 0);
        let bucket = self.places.bucket(&self.sim, place, FaultPlan::none());
        self.sim.env(process, bucket.store(process))
    }

    fn run<T: Send + 'static>(&self, work: impl Future<Output = Result<T>> + Send + 'static) -> T {
        let process = self.sim.process("worker", 0);
        self.sim.block_on(process, work).expect("it ends").expect("a healthy store")
    }

    /// Keys, each its own value, in a table; and others only in the log.
    fn writes(&self, place: &str, tables: &'static [&'static str], log: &'static [&'static str]) {
        let env = self.env(place);
        self.run(async move {
            let db = open(&env).await?;
            tables.iter().for_each(|key| put(&db, key));
            if !tables.is_empty() {
                db.flush_memtable().await?;
            }
            log.iter().for_each(|key| put(&db, key));
            db.flush().await?;
            // Killed: a clean close would make tables of the log.
            std::mem::forget(db);
            Ok(())
        });
    }

    fn clones(&self, place: &str, parent: &str, start: Option<&str>, end: Option<&str>) {
        let (env, parent) = (self.env(place), self.env(parent));
        let [start, end] = [start, end].map(|key| key.map(|key| key.as_bytes().to_vec()));
        let parent = CloneParent { env: parent, checkpoint: None, start, end };
        self.run(async move { admin::clone(&env, &[parent], &by_hand()).await });
    }

    fn keys(&self, place: &str) -> Vec<String> {
        let env = self.env(place);
        self.run(async move { keys(&env).await })
    }

    fn manifest(&self, place: &str) -> Arc<Manifest> {
        let env = self.env(place);
        self.run(async move { Ok(gc::newest(&env).await?.expect("a database")) })
    }

    /// Everything is merged, and collected without a grace period.
    fn rewrites(&self, place: &str) {
        let env = self.env(place);
        self.run(async move {
            let db = open(&env).await?;
            db.compact().await?;
            db.close().await?;
            gc::round(&env).await?;
            gc::round(&env).await
        });
    }

    fn collects(&self, place: &str) {
        let env = self.env(place);
        self.run(async move { gc::round(&env).await });
    }

    /// Number of checkpoints of the clone in an ancestor.
    fn pins(&self, ancestor: &str, clone: &str) -> usize {
        let owner = CheckpointOwner::Clone(self.manifest(clone).database);
        self.manifest(ancestor).checkpoints.iter().filter(|one| one.owner == owner).count()
    }
}

/// Layers move only by explicit calls.
fn by_hand() -> Options {
    Options { embedded_compactor: false, embedded_gc: false, ..options() }
}

async fn open(env: &Env) -> Result<Database> {
    let how = OpenOptions { options: by_hand(), ..OpenOptions::default() };
    Database::open(env.clone(), how).await
}

fn put(db: &Database, key: &str) {
    assert!(matches!(db.put(key.as_bytes(), key.as_bytes(), None), Ok(Accept::Accepted(_))));
}

async fn keys(env: &Env) -> Result<Vec<String>> {
    let options = Options { reader_lease: false, ..by_hand() };
    let how = ReaderOptions { options, ..ReaderOptions::default() };
    let reader = Reader::open(env.clone(), how).await?;
    rows(&reader).await.map(|rows| rows.into_iter().map(|(key, _)| key).collect())
}

async fn rows(reader: &Reader) -> Result<Vec<(String, String)>> {
    let (mut scan, mut rows) = (reader.scan(ScanRange::all())?, Rows::new());
    while scan.fill(&mut rows, 1000, 1 << 20)? == FillOutcome::NeedsBlocks {
        scan.fetch().await?;
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let row = |at| rows.row(at).map(|(key, value)| (text(key), text(value)));
    Ok((0..rows.len()).filter_map(row).collect())
}

/// A peer's 42: tables of two databases have one name, and halves of one table are two databases. A
/// process that reads both gets each database's own rows, from the store and from memory.
#[test]
fn peer_42_a_cache_is_of_one_database() {
    let options = Options { embedded_compactor: false, embedded_gc: false, ..options() };
    let worlds = ["one", "two"].map(|value| {
        // Equal seeds draw equal names.
        let place = Place::new(|plan| plan);
        let (process, env) = place.process();
        let how = OpenOptions { options: options.clone(), ..OpenOptions::default() };
        let written = place.run(process, async move {
            let db = Database::open(env, how).await?;
            for key in ["a", "b", "c"] {
                let put = db.put(key.as_bytes(), value.as_bytes(), None)?;
                assert!(matches!(put, Accept::Accepted(_)));
            }
            db.flush_memtable().await?;
            db.close().await
        });
        written.expect("a healthy store");
        let (process, env) = place.process();
        let reader = place.run(process, reader(env, 3600)).expect("opens");
        (place, process, reader, value)
    });
    let [one, two] = [&worlds[0], &worlds[1]]
        .map(|(place, ..)| place.newest().tables().map(|table| table.id).collect::<Vec<_>>());
    assert_eq!(one, two, "this is about tables of one name");
    for _ in 0..2 {
        for (place, process, reader, value) in &worlds {
            let shared = reader.clone();
            let found = place.run(*process, async move { rows(&shared).await });
            let found = found.expect("a healthy store");
            assert_eq!(found.len(), 3);
            assert!(found.iter().all(|(_, found)| found == value), "{value}: {found:?}");
        }
    }

    let family = Family::new();
    family.writes("parent", &["a", "b", "c", "d"], &[]);
    family.clones("left", "parent", None, Some("c"));
    family.clones("right", "parent", Some("c"), None);
    for _ in 0..2 {
        assert_eq!(family.keys("left"), ["a", "b"]);
        assert_eq!(family.keys("right"), ["c", "d"]);
        assert_eq!(family.keys("parent"), ["a", "b", "c", "d"]);
    }
}

/// A peer's 43: a clone pins its parent as well as the parent's own ancestors, for longer than its
/// creation takes, independent of the other processes.
#[test]
fn peer_43_the_source_itself_is_pinned() {
    let family = Family::new();
    family.writes("first", &["a", "b"], &[]);
    family.clones("second", "first", None, None);
    family.writes("second", &["c"], &["d"]);
    family.clones("third", "second", None, None);
    assert_eq!((family.pins("first", "third"), family.pins("second", "third")), (1, 1));
    // Longer than the lifetime of a pin that was not made permanent.
    family.sim.run_for(Duration::from_secs(3 * 3600)).expect("time goes on");
    for ancestor in ["second", "first"] {
        let env = family.env(ancestor);
        family.run(async move {
            let db = open(&env).await?;
            assert!(matches!(db.delete_range(b"a", b"z"), Ok(Accept::Accepted(_))));
            db.flush_memtable().await?;
            db.close().await
        });
        family.rewrites(ancestor);
        assert_eq!(family.keys(ancestor), Vec::<String>::new());
        assert_eq!(family.keys("third"), ["a", "b", "c", "d"], "without {ancestor}");
    }
    family.rewrites("third");
    assert_eq!(family.keys("third"), ["a", "b", "c", "d"]);
}

/// A peer's 44: tables that a part of a database does not reference are not pinned for it, once its
/// collector has run; and none are, once it has its own tables.
#[test]
fn peer_44_a_part_lets_go_of_what_it_does_not_name() {
    let family = Family::new();
    family.writes("first", &["a", "b"], &[]);
    family.clones("second", "first", None, None);
    family.writes("second", &["p", "q"], &[]);
    family.clones("third", "second", Some("m"), None);
    assert_eq!(family.keys("third"), ["p", "q"]);
    family.collects("third");
    assert_eq!((family.pins("first", "third"), family.pins("second", "third")), (0, 1));
    assert_eq!(family.manifest("third").ancestors.len(), 1);
    // Two tables that overlap: neither is moved unchanged.
    family.writes("third", &["p", "q1"], &[]);
    family.rewrites("third");
    assert_eq!(family.pins("second", "third"), 0);
    assert_eq!(family.manifest("third").ancestors, []);
    // So everything before it may end.
    family.rewrites("second");
    for place in ["second", "first"] {
        let env = family.env(place);
        family.run(async move { siltstone::destroy(&env, false, DEADLINE).await });
    }
    assert_eq!(family.keys("third"), ["p", "q", "q1"]);
}

/// A peer's 45: rows that are only in the log are cut to the range too, and so are range deletes
/// there, in every form in the clone.
#[test]
fn peer_45_rows_of_the_log_are_cut_to_the_range() {
    let family = Family::new();
    family.writes("parent", &["a", "c1", "c2", "e"], &["b", "c3", "d", "f"]);
    let env = family.env("parent");
    family.run(async move {
        let db = open(&env).await?;
        // From the left part into the right one.
        assert!(matches!(db.delete_range(b"c2", b"d0"), Ok(Accept::Accepted(_))));
        db.flush().await?;
        std::mem::forget(db);
        Ok(())
    });
    family.clones("left", "parent", None, Some("c3"));
    family.clones("right", "parent", Some("c3"), Some("f"));
    for _ in 0..2 {
        assert_eq!(family.keys("left"), ["a", "b", "c1"]);
        assert_eq!(family.keys("right"), ["e"]);
        for place in ["left", "right"] {
            family.rewrites(place);
        }
    }
    // A key outside of a part's range is as good a place for a new row as any other.
    family.writes("right", &["c2"], &["d"]);
    assert_eq!(family.keys("right"), ["c2", "d", "e"]);
}

/// A peer's 45 as well: a range delete that reaches beyond its part ends where the part ends, so it
/// hides no row of the other database in a union, whose numbers are smaller.
#[test]
fn peer_45_a_delete_ends_with_its_part() {
    let family = Family::new();
    family.writes("one", &["a", "c1", "c2", "e"], &[]);
    let env = family.env("one");
    family.run(async move {
        let db = open(&env).await?;
        // In a table, whose bounds reach equally far; and in the log.
        assert!(matches!(db.delete_range(b"c2", b"d0"), Ok(Accept::Accepted(_))));
        db.flush_memtable().await?;
        assert!(matches!(db.delete_range(b"b", b"d5"), Ok(Accept::Accepted(_))));
        db.flush().await?;
        std::mem::forget(db);
        Ok(())
    });
    family.writes("other", &["c4", "d1", "z"], &[]);
    let env = family.env("both");
    let part = |of: &str, start: Option<&[u8]>, end: Option<&[u8]>| CloneParent {
        env: family.env(of),
        checkpoint: None,
        start: start.map(<[u8]>::to_vec),
        end: end.map(<[u8]>::to_vec),
    };
    let parts = [part("one", None, Some(b"c3")), part("other", Some(b"c3"), None)];
    family.run(async move { admin::clone(&env, &parts, &by_hand()).await });
    for _ in 0..2 {
        assert_eq!(family.keys("both"), ["a", "c4", "d1", "z"]);
        family.rewrites("both");
    }
}
