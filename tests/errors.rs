//! Bad stores and bad bytes, through the whole engine: each gives a typed error that names the
//! cause and the remedy, immediately, and nothing is lost.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test stops at what it did not expect"
)]

use bytes::Bytes;
use siltstone::{
    Accept, Database, Env, Error, ErrorKind, FillOutcome, OpenOptions, Options, Progress, Reader,
    ReaderOptions, Result, Rows, ScanRange,
};
use siltstone_base::ObjectName;
use siltstone_base::checksum::crc32c;
use siltstone_manifest::Manifest;
use siltstone_tests::faults::{Bucket, FaultPlan};
use siltstone_tests::sim::{ProcessId, Sim};
use std::sync::Arc;
use std::time::Duration;

struct Place {
    sim: Sim,
    bucket: Arc<Bucket>,
    process: ProcessId,
}

impl Place {
    fn new() -> Place {
        let sim = Sim::new(3);
        let bucket = Bucket::new(&sim, FaultPlan::none());
        let process = sim.process("process", 0);
        Place { sim, bucket, process }
    }

    fn env(&self) -> Env {
        self.sim.env(self.process, self.bucket.store(self.process))
    }

    fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.sim.block_on(self.process, work).expect("it ends")
    }

    /// Two keys in a table, one in the WAL, not closed: every kind of object exists.
    fn filled() -> Place {
        let place = Place::new();
        let env = place.env();
        place
            .run(async move {
                let db = open(env).await?;
                put(&db, "a").await?;
                put(&db, "b").await?;
                db.flush_memtable().await?;
                put(&db, "c").await
            })
            .expect("a healthy store");
        place
    }

    /// Opens for writing and reads everything.
    fn read_all(&self) -> Result<usize> {
        let env = self.env();
        self.run(async move {
            let db = open(env).await?;
            let mut scan = db.scan(ScanRange::all())?;
            let mut rows = Rows::new();
            while scan.fill(&mut rows, 100, 1 << 20)? == FillOutcome::NeedsBlocks {
                scan.fetch().await?;
            }
            Ok(rows.len())
        })
    }
}

async fn open(env: Env) -> Result<Database> {
    let options = Options { deadline: Duration::from_secs(5), ..Options::default() };
    Database::open(env, OpenOptions { options, ..OpenOptions::default() }).await
}

async fn put(db: &Database, key: &str) -> Result<()> {
    match db.put(key.as_bytes(), b"value", None)? {
        Accept::Accepted(commit) => commit.wait(None).await,
        Accept::Pressure(_) => Err(Error::internal("pressure in a small test")),
    }
}

/// The newest manifest, the table, and the WAL object with the last write.
fn objects(place: &Place) -> Vec<(ObjectName, Bytes)> {
    let all = place.bucket.objects();
    let newest = |is: fn(&ObjectName) -> bool| {
        all.iter().filter(|(name, _)| is(name)).max_by_key(|(name, _)| *name).cloned()
    };
    [
        newest(|name| matches!(name, ObjectName::Manifest(_))),
        newest(|name| matches!(name, ObjectName::Wal(_))),
        newest(|name| matches!(name, ObjectName::Compacted(_))),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[test]
fn damaged_objects_are_corruption_by_name() {
    let objects = objects(&Place::filled());
    assert_eq!(objects.len(), 3);
    for (name, bytes) in objects {
        let mut flipped = bytes.to_vec();
        let middle = flipped.len() / 2;
        flipped[middle] ^= 1;
        let truncated = bytes.slice(..bytes.len() - 5);
        for damaged in [Bytes::from(flipped), truncated, Bytes::new()] {
            let place = Place::filled();
            // Names of tables are equal in all runs: one trace per seed.
            place.bucket.insert(name, damaged);
            let error = place.read_all().expect_err("damage is found");
            assert_eq!(error.kind(), ErrorKind::Corruption, "{name}: {error}");
            assert!(error.to_string().contains(&name.to_string()), "{name}: {error}");
        }
    }
}

#[test]
fn newer_formats_are_refused_with_the_way_out() {
    for (name, bytes) in objects(&Place::filled()) {
        if matches!(name, ObjectName::Compacted(_)) {
            // A table's version is read in its tail; the sst crate tests it.
            continue;
        }
        let mut newer = bytes.to_vec();
        newer[10] = 9;
        let crc = crc32c(&newer[..68]).to_le_bytes();
        newer[68..72].copy_from_slice(&crc);
        let place = Place::filled();
        place.bucket.insert(name, Bytes::from(newer));
        let error = place.read_all().expect_err("a newer format is refused");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{name}: {error}");
        assert!(error.to_string().contains("upgrade"), "{name}: {error}");
    }
}

#[test]
fn a_table_that_is_gone_is_corruption_for_the_writer() {
    let place = Place::filled();
    let (table, _) = objects(&place).pop().expect("a table");
    assert!(place.bucket.remove(table));
    let error = place.read_all().expect_err("it is missed");
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    assert!(error.to_string().contains(&table.to_string()), "{error}");
}

/// The manifest knows a WAL object that no table contains, and an outsider deletes it: neither a
/// writer nor a reader takes the hole for the end of the log.
#[test]
fn a_wal_object_that_is_gone_is_corruption_and_no_end() {
    let place = Place::new();
    let env = place.env();
    place
        .run(async move {
            let db = open(env).await?;
            put(&db, "table").await?;
            // The first freezes the memtable; the second lands before the manifest is written.
            let flushing = db.clone();
            let flush = async move { flushing.flush_memtable().await };
            let log = async {
                put(&db, "log").await?;
                put(&db, "more").await
            };
            futures::future::try_join(flush, log).await.map(|_| ())
        })
        .expect("a healthy store");
    let all = objects(&place);
    let (_, manifest) = Manifest::decode(&all[0].1).expect("a manifest");
    assert!(manifest.replay_from <= manifest.wal_id_last_seen, "{manifest:?}");
    let name = ObjectName::Wal(manifest.wal_id_last_seen);
    let bytes = place.bucket.objects().into_iter().find(|(is, _)| *is == name).expect("there").1;
    assert!(place.bucket.remove(name));
    let read = || {
        let env = place.env();
        place.run(async move { Reader::open(env, ReaderOptions::default()).await.map(|r| r.seq()) })
    };
    for error in [place.read_all().expect_err("missed"), read().expect_err("missed")] {
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
        for told in [&name.to_string(), "wal_id_last_seen", "put it back"] {
            assert!(error.to_string().contains(told), "{told}: {error}");
        }
    }
    // The remedy.
    place.bucket.insert(name, bytes);
    assert_eq!(read().expect("reads").get(), 3);
    assert_eq!(place.read_all().expect("reads"), 3);
}

/// Each of three puts is awaited, with room for four objects at a time: the last object proves that
/// the one before it existed, which the number of objects in flight would not show.
#[test]
fn acknowledged_writes_before_a_cut_object_are_missed() {
    let place = Place::new();
    let env = place.env();
    place
        .run(async move {
            let db = open(env).await?;
            put(&db, "a").await?;
            put(&db, "b").await?;
            put(&db, "c").await
        })
        .expect("a healthy store");
    let all = place.bucket.objects();
    let log = all.iter().filter(|(name, _)| matches!(name, ObjectName::Wal(_)));
    let mut log: Vec<ObjectName> = log.map(|(name, _)| *name).collect();
    let (_, missing) = (log.pop(), log.pop().expect("two objects"));
    assert!(place.bucket.remove(missing));
    let env = place.env();
    let reader = Reader::open(env, ReaderOptions::default());
    let reader = place.run(async move { reader.await.map(drop) }).expect_err("told");
    for error in [reader, place.read_all().expect_err("told")] {
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
        assert!(error.to_string().contains(&missing.to_string()), "{error}");
    }
    let env = place.env();
    let deadline = Duration::from_secs(5);
    let verify =
        async move { siltstone::verify::verify(&env, deadline, &Progress::default()).await };
    let report = place.run(verify).expect("it reads");
    assert!(report.problems.iter().any(|problem| problem.object == missing), "{report:?}");
}

/// Offsets of the first and last sequence number in a WAL object with one record, and of the
/// record's.
const SEQS: [usize; 3] = [96, 104, 172];

/// WAL objects that are intact individually, with correct checksums: repeated or missing sequence
/// numbers are detected from one object to the next.
#[test]
fn wal_objects_that_do_not_follow_each_other_are_corruption() {
    for shift in [-1, 1] {
        let place = Place::filled();
        let env = place.env();
        // The log contains c of the first writer, d and e of the second.
        let filled = async move {
            let db = open(env).await?;
            put(&db, "d").await?;
            put(&db, "e").await
        };
        place.run(filled).expect("a healthy store");
        let (name, bytes) = objects(&place).swap_remove(1);
        let mut moved = bytes.to_vec();
        for at in SEQS {
            assert_eq!(moved[at], 5, "{name}");
            moved[at] = moved[at].wrapping_add_signed(shift);
        }
        siltstone_fuzz::seal::wal(&mut moved);
        place.bucket.insert(name, Bytes::from(moved));
        let env = place.env();
        let reader = Reader::open(env, ReaderOptions::default());
        let reader = place.run(async move { reader.await.map(|_| ()) }).expect_err("found");
        for error in [place.read_all().expect_err("found"), reader] {
            assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
            assert!(error.to_string().contains(&name.to_string()), "{error}");
        }
    }
}

#[test]
fn refused_credentials_are_told_at_once_and_nothing_is_lost() {
    let place = Place::new();
    place.bucket.set_denied(true);
    let began = place.sim.elapsed();
    let env = place.env();
    let error = place.run(open(env)).expect_err("denied");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    // The listing, and the read of the first manifest beside it.
    assert_eq!(place.bucket.operations(place.process), 2, "no retries");
    assert!(place.sim.elapsed() - began < Duration::from_secs(1));

    // Revoked in between: the waiter gets an error, the write stays and succeeds later.
    place.bucket.set_denied(false);
    let env = place.env();
    let db = place.run(open(env)).expect("opens");
    place.bucket.set_denied(true);
    let writing = db.clone();
    let began = place.sim.elapsed();
    let error = place.run(async move { put(&writing, "kept").await }).expect_err("denied");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(place.sim.elapsed() - began < Duration::from_secs(1));
    place.bucket.set_denied(false);
    place.run(async move { db.flush().await }).expect("it goes through");
    assert_eq!(place.read_all().expect("reads"), 1);
}

#[test]
fn a_path_without_a_database_says_so() {
    let place = Place::new();
    let env = place.env();
    let how = OpenOptions { create: false, ..OpenOptions::default() };
    let error = place.run(Database::open(env, how)).expect_err("nothing here");
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert!(error.to_string().contains("create"), "{error}");
    let env = place.env();
    let error = place.run(Reader::open(env, ReaderOptions::default())).expect_err("nothing here");
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert!(place.bucket.objects().is_empty(), "looking made something");
}

#[test]
fn a_dead_store_ends_every_call_by_its_deadline() {
    let place = Place::filled();
    place.bucket.break_for(Duration::from_secs(10_000));
    let began = place.sim.elapsed();
    let error = place.read_all().expect_err("no store");
    assert!(error.kind().is_transient(), "{error}");
    assert!(place.sim.elapsed() - began < Duration::from_secs(20), "{error}");
}

#[test]
fn a_writer_that_may_be_alive_is_fenced_only_when_asked() {
    let place = Place::filled();
    let env = place.env();
    let how = OpenOptions { take_over: Some(false), ..OpenOptions::default() };
    let error = place.run(Database::open(env, how.clone())).expect_err("it may be alive");
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(error.to_string().contains("epoch 1"), "{error}");
    let env = place.env();
    place.run(async move { open(env).await?.close().await }).expect("takes over");
    let env = place.env();
    place.run(Database::open(env, how)).expect("it closed cleanly");
}
