//! A thousand readers of one checkpoint, opened like the tasks of a job: each carries its identity
//! (RFC 0027), and their requests are counted.

use crate::{World, expected, key, load, options, some, tell, write};
use futures::future::join_all;
use siltstone::store::counting::RequestTotals;
use siltstone::{
    Batch, CheckpointOptions, Database, KnownCheckpoint, ReadAt, Reader, ReaderOptions, ScanRange,
};

const READERS: usize = 1_000;
/// This many open at the same time.
const AT_ONCE: usize = 40;
/// The requests of the look that checks whether a checkpoint is still present (RFC 0027): the
/// newest manifest and the next number after a listing, which proves the manifest by its tag.
const LOOK_GETS: u64 = 2;
const LOOK_LISTS: u64 = 1;
/// Objects of the log that the second checkpoint covers.
const OBJECTS: u64 = 5;

/// The data that is passed on, as the first of them finds it.
async fn known(world: &World, db: &Database) -> KnownCheckpoint {
    let made = db.checkpoint(&CheckpointOptions::default()).await.unwrap();
    let first = open(world, ReadAt::Checkpoint(made.id.into())).await;
    let known = first.checkpoint().unwrap().clone();
    first.close().await.unwrap();
    known
}

async fn open(world: &World, at: ReadAt) -> Reader {
    let how = ReaderOptions { options: options(), at: Some(at), ..ReaderOptions::default() };
    Reader::open(world.reader_env.clone(), how).await.unwrap()
}

/// Opens them all, and returns their total requests.
async fn open_all(world: &World, known: &KnownCheckpoint) -> (Vec<Reader>, RequestTotals) {
    let mut fleet = Vec::with_capacity(READERS);
    let opening = async {
        for _ in 0..READERS / AT_ONCE {
            let readers = (0..AT_ONCE).map(|_| open(world, ReadAt::Known(Box::new(known.clone()))));
            fleet.extend(join_all(readers).await);
        }
    };
    let cost = world.reader_requests_of(opening).await;
    assert_eq!(fleet.len(), READERS);
    (fleet, cost)
}

/// Reads a row through each, closes them, and returns their total requests.
async fn read_and_close(world: &World, fleet: Vec<Reader>, wanted: &[u8]) -> RequestTotals {
    let reading = async {
        for reader in fleet {
            let found = reader.get(&key(0)).unwrap().wait().await.unwrap().unwrap();
            assert_eq!(found.as_ref(), wanted);
            reader.close().await.unwrap();
        }
    };
    world.reader_requests_of(reading).await
}

/// One GET each before the tables are read, and no write or listing.
#[test]
fn a_thousand_readers_of_a_checkpoint_ask_for_its_manifest_alone() {
    tell(async |world| {
        let db = world.open().await;
        load(&db, 0).await;
        let known = known(&world, &db).await;
        assert!(!known.checkpoint.pins_any_wal());
        db.close().await.unwrap();
        let before = world.manifest().await.id;

        let (fleet, opening) = open_all(&world, &known).await;
        let counts = (opening.gets, opening.puts, opening.lists);
        assert_eq!(counts, (READERS as u64, 0, 0), "{opening:?}");
        let whole = some(&mut fleet[0].scan(ScanRange::all()).unwrap(), usize::MAX).await;
        assert_eq!(whole.unwrap(), expected(0));
        // The metadata and a block of the one table that may contain the key: neither is cached.
        let row = expected(0).swap_remove(0).1;
        let reading = read_and_close(&world, fleet, &row).await;
        assert_eq!((reading.puts, reading.lists), (0, 0), "{reading:?}");
        assert!(reading.gets <= 2 * READERS as u64, "{reading:?}");
        assert_eq!(world.manifest().await.id, before, "no manifest was written");
    });
}

/// A GET for each object of the log, and the look that checks that the checkpoint is still present.
#[test]
fn a_log_costs_each_of_them_its_objects_and_a_look() {
    tell(async |world| {
        let db = world.open().await;
        load(&db, 0).await;
        for n in 0..OBJECTS {
            let mut batch = Batch::new();
            batch.put(&key(0), format!("in object {n}").as_bytes(), None).unwrap();
            write(&db, &batch).await;
        }
        let known = known(&world, &db).await;
        let pinned =
            known.checkpoint.wal_id_last_seen.get() - known.checkpoint.replay_from.get() + 1;
        assert!(pinned >= OBJECTS, "{pinned}");
        std::mem::forget(db);
        let before = world.manifest().await.id;

        let (fleet, opening) = open_all(&world, &known).await;
        let readers = READERS as u64;
        assert_eq!(opening.puts, 0, "{opening:?}");
        assert_eq!(opening.gets, readers * (1 + pinned + LOOK_GETS), "{opening:?}");
        assert_eq!(opening.lists, readers * LOOK_LISTS, "{opening:?}");
        let row = format!("in object {}", OBJECTS - 1);
        let reading = read_and_close(&world, fleet, row.as_bytes()).await;
        assert_eq!((reading.gets, reading.puts, reading.lists), (0, 0, 0), "it is in memory");
        assert_eq!(world.manifest().await.id, before, "no manifest was written");
    });
}
