//! Many readers of one database: they share leases (RFC 0028); a reader's memory for the log; and
//! maximum staleness.

use crate::trouble::{Way, behind_a_door};
use crate::{POLL, World, expected, key, load, options, some, tell, value, write};
use futures::future::join_all;
use siltstone::{
    Batch, Database, Error, ErrorKind, Options, ReadAt, Reader, ReaderOptions, Readers, ScanRange,
};
use siltstone_base::name::prefix;
use siltstone_base::{CheckpointId, ObjectName};
use siltstone_manifest::{Edit, Manifest, NewCheckpoint};
use siltstone_tests::{compact, gc};
use std::time::Duration;

const LIFETIME: Duration = Duration::from_secs(600);

async fn open(world: &World, options: Options) -> Result<Reader, Error> {
    let how = ReaderOptions { options, ..ReaderOptions::default() };
    Reader::open(world.reader_env.clone(), how).await
}

async fn put(db: &Database, key: &[u8], value: &[u8]) {
    let mut batch = Batch::new();
    batch.put(key, value, None).unwrap();
    write(db, &batch).await;
}

async fn get(reader: &Reader, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
    let found = reader.get(key)?.wait().await?;
    Ok(found.map(|value| value.to_vec()))
}

/// All existing manifests, in order.
async fn chain(world: &World) -> Vec<Manifest> {
    let mut chain = Vec::new();
    for object in world.env.store.list(prefix::MANIFEST, None).await.unwrap() {
        if matches!(object.name, ObjectName::Manifest(_)) {
            let bytes = world.env.store.get(object.name, None).await.unwrap().unwrap();
            chain.push(Manifest::decode(&bytes).unwrap().1);
        }
    }
    chain
}

/// The leases of the fleet: the number of commits that changed them, and the maximum number of
/// records in a manifest.
fn commits_and_records(chain: &[Manifest]) -> (usize, usize) {
    let changed = chain.windows(2).filter(|pair| pair[0].leases != pair[1].leases).count();
    (changed, chain.iter().map(|state| state.leases.len()).max().unwrap_or_default())
}

/// A thousand readers beside a writer that changes tables a hundred times: at most three commits
/// per change for all of them together, and at most 32 records.
#[test]
fn a_thousand_readers_commit_as_one() {
    tell(async |world| {
        let db = world.open().await;
        put(&db, b"n", b"0").await;
        db.flush_memtable().await.unwrap();
        let lasting = || Options {
            readers: Readers { checkpoint_lifetime: LIFETIME, ..Readers::default() },
            ..options()
        };
        let mut fleet = vec![open(&world, lasting()).await.unwrap()];
        let before = world.manifest().await.id;
        let opening = async {
            for _ in 0..27 {
                let readers = (0..37).map(|_| open(&world, lasting()));
                fleet.extend(join_all(readers).await.into_iter().map(Result::unwrap));
            }
        };
        let opened = world.reader_requests_of(opening).await;
        assert_eq!(fleet.len(), 1000);
        assert_eq!((opened.puts, world.manifest().await.id), (0, before), "they joined");

        for n in 1..=100u64 {
            put(&db, b"n", n.to_string().as_bytes()).await;
            db.flush_memtable().await.unwrap();
            if n % 10 == 0 {
                compact::everything(&world.env).await.unwrap();
            }
            world.pause(Duration::from_millis(1700)).await;
        }
        world.pause(POLL * 4).await;
        for reader in &fleet {
            assert_eq!(get(reader, b"n").await.unwrap().unwrap(), b"100");
        }
        // A compaction is a change too.
        let (commits, records) = commits_and_records(&chain(&world).await);
        println!("{commits} commits for 110 changes, {records} records");
        assert!(commits <= 3 * 110, "{commits} commits for 110 changes");
        assert!(records <= 32, "{records} records");

        let closing = async {
            for reader in &fleet {
                reader.close().await.unwrap();
            }
        };
        assert_eq!(world.reader_requests_of(closing).await.puts, 0);
    });
}

/// L3: an idle database under a point lease: the tables of a compaction need no immediate commit,
/// and the older tables can still be read.
#[test]
fn a_compaction_is_taken_up_when_it_suits() {
    tell(async |world| {
        let db = world.open().await;
        load(&db, 0).await;
        let options = Options {
            readers: Readers { checkpoint_lifetime: LIFETIME, ..Readers::default() },
            ..options()
        };
        let reader = open(&world, options.clone()).await.unwrap();
        world.pause(LIFETIME / 4).await;
        assert_eq!(world.manifest().await.leased_versions(), 1);
        compact::everything(&world.env).await.unwrap();
        put(&db, b"zz", b"in the log").await;
        let soon = world.reader_requests_of(world.pause(POLL * 10)).await;
        assert_eq!(soon.puts, 0, "{soon:?}");
        assert_eq!(get(&reader, b"zz").await.unwrap().unwrap(), b"in the log");
        gc::round(&world.env).await.unwrap();
        let mut scan = reader.scan(ScanRange::prefix(b"key")).unwrap();
        assert_eq!(some(&mut scan, usize::MAX).await.unwrap(), expected(0));
        // A sixteenth of a lifetime: a since-lease, which may be renewed once by then.
        let later = world.reader_requests_of(world.pause(LIFETIME / 16 + POLL)).await;
        assert!((1..=2).contains(&later.puts), "{later:?}");
        // Another reader that finds it leased by then writes nothing.
        let joining = async { drop(open(&world, options).await.unwrap()) };
        assert_eq!(world.reader_requests_of(joining).await.puts, 0);
    });
}

fn small() -> Options {
    Options {
        max_memtable_bytes: 64 << 10,
        l0_sst_size_bytes: 64 << 10,
        max_batch_bytes: 4 << 10,
        ..options()
    }
}

/// About this many KiB in the log, in separate objects.
async fn fill(db: &Database, kibibytes: u64, round: u64) {
    for n in 0..kibibytes {
        put(db, &key(n), &[&value(n, round)[..], &[b'f'; 1000]].concat()).await;
    }
}

fn names_the_option(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("max_memtable_bytes"), "{error}");
}

/// More data in the log than the reader may hold: it gets an error when it opens; while it follows
/// it stops with a complete state, and continues once tables contain more.
#[test]
fn the_log_in_memory_is_bounded() {
    tell(async |world| {
        let db = world.open().await;
        fill(&db, 30, 0).await;
        let reader = open(&world, small()).await.unwrap();
        fill(&db, 200, 1).await;
        names_the_option(&reader.refresh().await.unwrap_err());
        let held = reader.stats().memtable_bytes;
        assert!(held < 80 << 10, "{held} bytes of 64 KiB");
        let before = reader.seq();
        // Its rows are from one moment: round 1 up to some key, round 0 beyond.
        let rows = some(&mut reader.scan(ScanRange::all()).unwrap(), usize::MAX).await.unwrap();
        let rounds: Vec<u8> = rows.iter().map(|(_, value)| value[0]).collect();
        let turn = rounds.iter().filter(|round| **round == b'1').count();
        assert!(turn > 0 && rounds[..turn].iter().all(|round| *round == b'1'), "{rounds:?}");
        names_the_option(&open(&world, small()).await.map(|_| ()).unwrap_err());

        db.flush_memtable().await.unwrap();
        reader.refresh().await.unwrap();
        assert!(reader.seq() > before);
        let last = get(&reader, &key(199)).await.unwrap().unwrap();
        assert!(last.starts_with(&value(199, 1)));
        fill(&db, 20, 2).await;
        reader.refresh().await.unwrap();
        open(&world, small()).await.unwrap();
    });
}

/// At a checkpoint a part of the log is not sufficient.
#[test]
fn a_checkpoint_with_more_than_may_be_held_is_refused() {
    tell(async |world| {
        let db = world.open().await;
        fill(&db, 200, 0).await;
        let id = CheckpointId(77);
        let wal_id_last_seen = world.last_of_the_log().await;
        let new = NewCheckpoint { id, wal_id_last_seen, ..NewCheckpoint::default() };
        gc::commit(&world.env, Edit::AddCheckpoint(new), world.manifest().await).await.unwrap();
        let at = |options| {
            let at = Some(ReadAt::Checkpoint(id.into()));
            let how = ReaderOptions { options, at, ..ReaderOptions::default() };
            Reader::open(world.reader_env.clone(), how)
        };
        names_the_option(&at(small()).await.map(|_| ()).unwrap_err());
        let whole = at(options()).await.unwrap();
        let rows = some(&mut whole.scan(ScanRange::all()).unwrap(), usize::MAX).await.unwrap();
        assert_eq!(rows.len(), 200);
    });
}

/// A read is no older than requested, or raises the reason.
#[test]
fn reads_are_no_staler_than_the_bound() {
    tell(async |world| {
        let db = world.open().await;
        load(&db, 0).await;
        let hour = Duration::from_secs(3600);
        let bounded = Options {
            manifest_poll_interval: Some(hour),
            readers: Readers {
                checkpoint_lifetime: hour * 24,
                max_staleness: Some(Duration::from_secs(10)),
                ..Readers::default()
            },
            deadline: Duration::from_secs(5),
            ..options()
        };
        let (env, door) = behind_a_door(&world);
        let how = ReaderOptions { options: bounded, ..ReaderOptions::default() };
        let reader = Reader::open(env, how).await.unwrap();
        put(&db, b"n", b"1").await;
        let soon = world.reader_requests_of(async {
            assert_eq!(get(&reader, b"n").await.unwrap(), None, "within the bound");
        });
        assert_eq!(soon.await.lists, 0);
        world.pause(Duration::from_secs(11)).await;
        assert!(matches!(reader.fresh(), Ok(siltstone::Answer::Pending(_))));
        let error = reader.scan(ScanRange::all()).map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert_eq!(get(&reader, b"n").await.unwrap().unwrap(), b"1");
        // One look serves all reads in the next ten seconds.
        let again = world.reader_requests_of(async {
            reader.get_many(vec![b"n".to_vec()]).unwrap().wait().await.unwrap();
            reader.approximate_size(ScanRange::all()).unwrap().wait().await.unwrap();
            assert!(reader.scan(ScanRange::all()).is_ok());
        });
        assert_eq!(again.await.lists, 0);

        world.pause(Duration::from_secs(11)).await;
        put(&db, b"n", b"2").await;
        let many = join_all((0..20).map(|_| get(&reader, b"n")));
        let mut found = Vec::new();
        let looked = world.reader_requests_of(async { found = many.await }).await;
        assert!(found.into_iter().all(|found| found.unwrap().unwrap() == b"2"));
        assert!(looked.lists <= 3, "one look for all: {looked:?}");

        // The store cannot be reached: an error is raised.
        world.pause(Duration::from_secs(11)).await;
        door.set(Way::Down);
        let error = get(&reader, b"n").await.unwrap_err();
        assert!(error.kind().may_pass(), "{error}");
        assert!(error.to_string().contains("max_staleness"), "{error}");
        door.set(Way::Open);
        assert_eq!(get(&reader, b"n").await.unwrap().unwrap(), b"2");
    });
}
