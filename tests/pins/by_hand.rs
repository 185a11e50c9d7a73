//! Manual checkpoints: the state that each kind contains, from inside and from outside of the
//! writer, read after everything was overwritten, compacted and collected without a grace period
//! (RFC 0027).

use crate::{POLL, Pairs, World, expected, key, load, options, some, tell, value, work, write};
use siltstone::{
    Accept, Batch, Checkpoint, CheckpointId, CheckpointName, CheckpointOptions, CheckpointOwner,
    CheckpointScope, Database, Error, ErrorKind, KnownCheckpoint, ManifestId, Options, ReadAt,
    Reader, ReaderOptions, Result, ScanRange, admin,
};
use siltstone_tests::gc;
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(30);
const LIFE: Duration = Duration::from_secs(60);

fn named(name: &str) -> CheckpointOptions {
    CheckpointOptions { name: Some(name.to_owned()), ..CheckpointOptions::default() }
}

fn at(checkpoint: &Checkpoint) -> ReadAt {
    ReadAt::Checkpoint(checkpoint.id.into())
}

impl World {
    async fn stays(&self, at: ReadAt) -> Result<Reader> {
        let how = ReaderOptions { options: options(), at: Some(at), ..ReaderOptions::default() };
        Reader::open(self.reader_env.clone(), how).await
    }

    async fn create(&self, how: &CheckpointOptions) -> Result<Checkpoint> {
        admin::create_checkpoint(&self.env, how, DEADLINE).await
    }

    async fn by_hand(&self) -> Vec<Checkpoint> {
        let all = admin::list_checkpoints(&self.env, DEADLINE).await.unwrap();
        all.into_iter().filter(|one| one.owner == CheckpointOwner::User).collect()
    }

    /// Everything is written again, and older objects are collected.
    async fn overwrite(&self, db: &Database, round: u64) {
        load(db, round).await;
        self.rewrite().await;
        // The writer releases the tables that it has read, once it has learned of the newer ones.
        work(self, db).await;
        self.rewrite().await;
    }
}

async fn rows_of(reader: &Reader) -> Result<Pairs> {
    some(&mut reader.scan(ScanRange::prefix(b"key"))?, usize::MAX).await
}

fn put(db: &Database, key: &[u8], value: &[u8]) {
    assert!(matches!(db.put(key, value, None), Ok(Accept::Accepted(_))));
}

async fn value_of(reader: &Reader, key: &[u8]) -> Option<Vec<u8>> {
    reader.get(key).unwrap().wait().await.unwrap().map(|value| value.to_vec())
}

#[test]
fn each_scope_holds_what_it_says_for_as_long_as_it_is_there() {
    tell(async |world| {
        let slow = Options { flush_interval: POLL * 5, ..options() };
        let how = siltstone::OpenOptions { options: slow, ..siltstone::OpenOptions::default() };
        let db = Database::open(world.env.clone(), how).await.unwrap();
        load(&db, 0).await;
        let scope = |scope| CheckpointOptions { scope, ..CheckpointOptions::default() };
        put(&db, b"newest", b"1");
        let durable = db.checkpoint(&scope(CheckpointScope::Durable)).await.unwrap();
        let all = db.checkpoint(&CheckpointOptions::default()).await.unwrap();
        put(&db, b"newest", b"2");
        let before = world.env.clock.monotonic();
        let waits = scope(CheckpointScope::All { force_flush: false });
        let waited = db.checkpoint(&waits).await.unwrap();
        assert!(world.env.clock.monotonic() - before >= POLL, "by the writer's own pace");

        put(&db, b"newest", b"3");
        world.overwrite(&db, 1).await;
        world.overwrite(&db, 2).await;
        for (checkpoint, newest) in [(&durable, None), (&all, Some("1")), (&waited, Some("2"))] {
            let reader = world.stays(at(checkpoint)).await.unwrap();
            assert_eq!(rows_of(&reader).await.unwrap(), expected(0));
            assert_eq!(value_of(&reader, b"newest").await, newest.map(|text| text.into()));
            // It shows nothing newer, and writes nothing.
            reader.refresh().await.unwrap();
            assert_eq!(rows_of(&reader).await.unwrap(), expected(0));
            assert_eq!(reader.checkpoint().unwrap().checkpoint, *checkpoint);
            reader.close().await.unwrap();
        }
        assert_eq!(world.by_hand().await, [durable, all, waited]);
    });
}

/// A checkpoint of the durable data that a walk finds, beside a writer that does not know of it.
#[test]
fn one_from_outside_holds_the_log() {
    tell(async |world| {
        let db = world.open().await;
        load(&db, 0).await;
        let mut batch = Batch::new();
        batch.put(&key(0), b"in the log alone", None).unwrap();
        write(&db, &batch).await;
        let made = world.create(&named("nightly")).await.unwrap();
        assert!(made.pins_any_wal());
        for round in 1..3 {
            world.overwrite(&db, round).await;
        }
        let reader = world.stays(ReadAt::Checkpoint("nightly".parse().unwrap())).await.unwrap();
        assert_eq!(value_of(&reader, &key(0)).await.unwrap(), b"in the log alone");
        assert_eq!(rows_of(&reader).await.unwrap()[1..], expected(0)[1..]);
        // Without a writer, and of the data that it left.
        db.close().await.unwrap();
        let after = world.create(&CheckpointOptions::default()).await.unwrap();
        let reader = world.stays(at(&after)).await.unwrap();
        assert_eq!(rows_of(&reader).await.unwrap(), expected(2));
    });
}

/// The data that a reader passes to another process is sufficient for the very same state, with one
/// request if there is no log, even if the name belongs to another checkpoint by then.
#[test]
fn a_reader_that_travels_asks_for_little() {
    tell(async |world| {
        let db = world.open().await;
        load(&db, 0).await;
        let made = db.checkpoint(&named("daily")).await.unwrap();
        assert!(!made.pins_any_wal());
        let name = ReadAt::Checkpoint("daily".parse().unwrap());
        let known = world.stays(name.clone()).await.unwrap().checkpoint().unwrap().clone();
        assert_eq!(known.checkpoint, made);
        admin::delete_checkpoint(&world.env, &made.id.into(), DEADLINE).await.unwrap();
        world.overwrite(&db, 1).await;
        db.flush_memtable().await.unwrap();
        let again = db.checkpoint(&named("daily")).await.unwrap();
        assert_eq!(world.stays(name).await.unwrap().checkpoint().unwrap().checkpoint, again);
        // The old checkpoint was deleted, and the new one must not be read in its place.
        let error = world.stays(ReadAt::Known(Box::new(known))).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Expired, "{error}");

        let reader = world.stays(at(&again)).await.unwrap();
        let known = ReadAt::Known(Box::new(reader.checkpoint().unwrap().clone()));
        let mut opened = None;
        let opening = async { opened = Some(world.stays(known.clone()).await.unwrap()) };
        let cost = world.reader_requests_of(opening).await;
        assert_eq!((cost.gets, cost.puts, cost.lists), (1, 0, 0), "{cost:?}");
        assert_eq!(rows_of(&opened.unwrap()).await.unwrap(), expected(1));

        // Another object with that number is not accepted.
        let ReadAt::Known(mut other) = known else { panic!() };
        other.attempt.0 ^= 1;
        let reader = world.stays(ReadAt::Known(other)).await.unwrap();
        assert_eq!(rows_of(&reader).await.unwrap(), expected(1));
    });
}

#[test]
fn one_with_a_log_is_carried_with_its_log() {
    tell(async |world| {
        let db = world.open().await;
        load(&db, 0).await;
        let mut batch = Batch::new();
        batch.put(&key(0), b"in the log alone", None).unwrap();
        write(&db, &batch).await;
        let made = db.checkpoint(&CheckpointOptions::default()).await.unwrap();
        let known: KnownCheckpoint =
            world.stays(at(&made)).await.unwrap().checkpoint().unwrap().clone();
        world.overwrite(&db, 1).await;
        let reader = world.stays(ReadAt::Known(Box::new(known.clone()))).await.unwrap();
        assert_eq!(value_of(&reader, &key(0)).await.unwrap(), b"in the log alone");
        let unread = world.stays(ReadAt::Known(Box::new(known.clone()))).await.unwrap();
        admin::delete_checkpoint(&world.env, &made.id.into(), DEADLINE).await.unwrap();
        gc::round(&world.env).await.unwrap();
        let error = world.stays(ReadAt::Known(Box::new(known))).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Expired, "{error}");
        // A table missing for an open reader is reported in the same way.
        let error = rows_of(&unread).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Expired, "{error}");
    });
}

#[test]
fn a_source_is_what_the_new_one_holds() {
    tell(async |world| {
        let db = world.open().await;
        load(&db, 0).await;
        let life = CheckpointOptions { lifetime: Some(LIFE), ..named("short") };
        let short = db.checkpoint(&life).await.unwrap();
        world.overwrite(&db, 1).await;
        let source: CheckpointName = "short".parse().unwrap();
        let lasting = CheckpointOptions { source: Some(source.clone()), ..named("lasting") };
        let lasting = world.create(&lasting).await.unwrap();
        assert_eq!((lasting.source, lasting.expires_at), (Some(short.id), None));
        assert_eq!(lasting.manifest_id, short.manifest_id);
        let of_writer = CheckpointOptions { source: Some(source.clone()), ..Default::default() };
        let from_inside = db.checkpoint(&of_writer).await.unwrap();
        assert_eq!(from_inside.manifest_id, short.manifest_id);

        // It has expired: still present, and no valid source any more.
        world.pause(LIFE).await;
        for made in [world.create(&of_writer).await, db.checkpoint(&of_writer).await] {
            assert_eq!(made.unwrap_err().kind(), ErrorKind::Expired);
        }
        let reader = world.stays(at(&short)).await.unwrap();
        assert_eq!(rows_of(&reader).await.unwrap(), expected(0));
        gc::round(&world.env).await.unwrap();
        assert_eq!(world.by_hand().await, [lasting.clone(), from_inside.clone()]);
        admin::delete_checkpoint(&world.env, &from_inside.id.into(), DEADLINE).await.unwrap();
        world.overwrite(&db, 2).await;
        let reader = world.stays(at(&lasting)).await.unwrap();
        assert_eq!(rows_of(&reader).await.unwrap(), expected(0));
    });
}

/// 1,024 checkpoints, all expired: the next one drops them.
#[test]
fn expired_checkpoints_make_room() {
    tell(async |world| {
        let db = world.open().await;
        load(&db, 0).await;
        // Longer than the time to create them.
        let life = LIFE * 10;
        let brief = CheckpointOptions { lifetime: Some(life), ..CheckpointOptions::default() };
        for _ in 0..1024 {
            world.create(&brief).await.unwrap();
        }
        let full = world.create(&brief).await.unwrap_err();
        assert!(full.to_string().contains("not expired"), "{full}");
        assert_eq!(db.checkpoint(&brief).await.unwrap_err().kind(), ErrorKind::Invalid);
        world.pause(life).await;
        let made = db.checkpoint(&brief).await.unwrap();
        assert_eq!(world.by_hand().await, [made]);
    });
}

#[test]
fn a_life_is_moved_and_ended() {
    tell(async |world| {
        let db = world.open().await;
        load(&db, 0).await;
        let life = CheckpointOptions { lifetime: Some(LIFE), ..named("short") };
        let made = db.checkpoint(&life).await.unwrap();
        assert_eq!(made.expires_at.unwrap().0, made.created_at.0 + 60_000);
        let short: CheckpointName = "short".parse().unwrap();
        world.pause(LIFE * 2).await;
        // It has expired, and was not collected.
        let moved = admin::refresh_checkpoint(&world.env, &short, Some(LIFE), DEADLINE).await;
        assert!(moved.unwrap().expires_at > made.expires_at);
        gc::round(&world.env).await.unwrap();
        let moved = admin::refresh_checkpoint(&world.env, &made.id.into(), None, DEADLINE).await;
        assert_eq!(moved.unwrap().expires_at, None);
        world.pause(LIFE * 2).await;
        gc::round(&world.env).await.unwrap();
        assert_eq!(world.by_hand().await.len(), 1);

        admin::delete_checkpoint(&world.env, &short, DEADLINE).await.unwrap();
        let gone = [
            admin::delete_checkpoint(&world.env, &short, DEADLINE).await.unwrap_err(),
            admin::delete_checkpoint(&world.env, &made.id.into(), DEADLINE).await.unwrap_err(),
            admin::refresh_checkpoint(&world.env, &short, None, DEADLINE).await.unwrap_err(),
            world.stays(ReadAt::Checkpoint(short)).await.unwrap_err(),
        ];
        for error in gone {
            assert_eq!(error.kind(), ErrorKind::Expired, "{error}");
        }
    });
}

#[test]
fn arguments_out_of_range_are_refused_and_leave_nothing() {
    tell(async |world| {
        let db = world.open().await;
        db.checkpoint(&named("taken")).await.unwrap();
        let fact = |bytes: usize| ("fact".to_owned(), "x".repeat(bytes));
        let facts = |metadata| CheckpointOptions { metadata, ..CheckpointOptions::default() };
        let refused = [
            (named("taken"), ErrorKind::Conflict),
            (named(""), ErrorKind::Invalid),
            (named("a\nb"), ErrorKind::Invalid),
            (named(&"x".repeat(256)), ErrorKind::Invalid),
            (named(&CheckpointId(7).to_string()), ErrorKind::Invalid),
            (facts(vec![fact(4096)]), ErrorKind::Invalid),
            (facts(vec![fact(1); 65]), ErrorKind::Invalid),
            (
                CheckpointOptions { lifetime: Some(Duration::ZERO), ..Default::default() },
                ErrorKind::Invalid,
            ),
            (
                CheckpointOptions { lifetime: Some(Duration::MAX), ..Default::default() },
                ErrorKind::Invalid,
            ),
            (
                CheckpointOptions { source: Some("none".parse().unwrap()), ..Default::default() },
                ErrorKind::Expired,
            ),
        ];
        for (how, kind) in refused {
            for made in [db.checkpoint(&how).await, world.create(&how).await] {
                assert_eq!(made.unwrap_err().kind(), kind, "{how:?}");
            }
        }
        assert_eq!(world.by_hand().await.len(), 1);
        let nowhere = siltstone::store::memory::MemoryStore::unnamed();
        let nowhere = siltstone::Env { store: nowhere, ..world.env.clone() };
        let made = admin::create_checkpoint(&nowhere, &named("x"), DEADLINE).await;
        assert_eq!(made.unwrap_err().kind(), ErrorKind::NotFound);
        // A writer's own checkpoint belongs to the writer.
        let all = admin::list_checkpoints(&world.env, DEADLINE).await.unwrap();
        let writers = all.iter().find(|one| one.owner != CheckpointOwner::User).unwrap().id;
        let error: Error =
            admin::delete_checkpoint(&world.env, &writers.into(), DEADLINE).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
    });
}

/// One manifest commit (a create, and a listing that counts), for any content of the log.
#[test]
fn the_cost_of_a_checkpoint() {
    tell(async |world| {
        let db = world.open().await;
        load(&db, 0).await;
        world.pause(POLL * 5).await;
        let durable =
            CheckpointOptions { scope: CheckpointScope::Durable, ..CheckpointOptions::default() };
        let cost = world.requests_of(async { drop(db.checkpoint(&durable).await.unwrap()) }).await;
        assert_eq!((cost.puts, cost.lists), (1, 1), "{cost:?}");
        assert!(cost.gets <= 2, "{cost:?}");
        let cost = world.requests_of(async { drop(world.create(&durable).await.unwrap()) }).await;
        assert_eq!(cost.puts, 1, "{cost:?}");
        assert!(cost.gets + cost.lists <= 9, "{cost:?}");
    });
}

/// The tables of a manifest, as long as both are kept.
#[test]
fn a_version_is_its_tables() {
    tell(async |world| {
        let db = world.open().await;
        load(&db, 0).await;
        let mut batch = Batch::new();
        batch.put(&key(0), b"in the log alone", None).unwrap();
        write(&db, &batch).await;
        let version = world.manifest().await.id;
        let reader = world.stays(ReadAt::Version(version)).await.unwrap();
        assert_eq!(value_of(&reader, &key(0)).await.unwrap(), value(0, 0));
        assert!(reader.checkpoint().is_none());
        // Only a checkpoint keeps it.
        let kept = db.checkpoint(&CheckpointOptions::default()).await.unwrap();
        world.overwrite(&db, 1).await;
        let error = match world.stays(ReadAt::Version(version)).await {
            Ok(reader) => rows_of(&reader).await.unwrap_err(),
            Err(error) => error,
        };
        assert!(matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Expired), "{error}");
        let pinned = world.stays(ReadAt::Version(kept.manifest_id)).await.unwrap();
        assert_eq!(rows_of(&pinned).await.unwrap(), expected(0));
        // It may still have data that it has read.
        let unread = world.stays(ReadAt::Version(kept.manifest_id)).await.unwrap();
        admin::delete_checkpoint(&world.env, &kept.id.into(), DEADLINE).await.unwrap();
        world.rewrite().await;
        println!(
            "{:?} {:?} {:?}",
            world.unnamed_tables().await,
            world.manifest().await.checkpoints,
            kept
        );
        let error = rows_of(&unread).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Expired, "{error}");
        let error = unread.get(&key(1)).unwrap().wait().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Expired, "{error}");
        assert!(error.to_string().contains("make one of"), "{error}");
        for never in [ManifestId::NONE, ManifestId(u64::MAX)] {
            let error = world.stays(ReadAt::Version(never)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        }
    });
}

fn holder(name: &str) -> Vec<(String, String)> {
    vec![("driver".to_owned(), name.to_owned())]
}

/// Before, a short pin after 16 long ones was the first to go, and the call returned it all the
/// same.
#[test]
fn a_short_pin_lives_beside_many_long_ones() {
    tell(async |world| {
        let db = world.open().await;
        let holder = holder("one");
        for round in 0..16 {
            load(&db, round).await;
            let pin = admin::pin_shared(&world.env, &holder, None, LIFE * 24, DEADLINE);
            pin.await.unwrap();
        }
        load(&db, 16).await;
        let short = admin::pin_shared(&world.env, &holder, None, LIFE, DEADLINE).await.unwrap();
        let reader = world.stays(at(&short)).await.unwrap();
        assert_eq!(rows_of(&reader).await.unwrap(), expected(16));
        db.close().await.unwrap();
    });
}

/// Jobs of one holder share a checkpoint per state, have at most 16 in total, and do not prevent a
/// destroy.
#[test]
fn jobs_of_one_holder_share_a_few_checkpoints() {
    tell(async |world| {
        let db = world.open().await;
        load(&db, 0).await;
        let (one, other) = (holder("one"), holder("other"));
        let pin = async |holder: &[(String, String)]| {
            admin::pin_shared(&world.env, holder, None, LIFE, DEADLINE).await.unwrap()
        };
        let first = pin(&one).await;
        assert_eq!((pin(&one).await, pin(&one).await), (first.clone(), first.clone()));
        assert_ne!(pin(&other).await.id, first.id);
        world.pause(LIFE * 3 / 4).await;
        let renewed = pin(&one).await;
        assert_eq!(renewed.id, first.id);
        assert!(renewed.expires_at > first.expires_at);

        // The state of a user's checkpoint is pinned as well, once.
        let kept = world.create(&named("kept")).await.unwrap();
        let source = CheckpointName::Id(kept.id);
        let again = admin::pin_shared(&world.env, &one, Some(&source), LIFE, DEADLINE);
        let again = again.await.unwrap();
        let name = CheckpointName::Id(again.id);
        let more = admin::pin_shared(&world.env, &one, Some(&name), LIFE, DEADLINE);
        assert_eq!(more.await.unwrap(), again);
        admin::delete_checkpoint(&world.env, &source, DEADLINE).await.unwrap();
        let reader = world.stays(at(&again)).await.unwrap();
        assert_eq!(rows_of(&reader).await.unwrap(), expected(0));

        // Data only in the log is a separate state.
        put(&db, b"zz", b"in the log");
        db.flush().await.unwrap();
        let logged = pin(&one).await;
        assert_ne!(logged.id, first.id);
        for round in 1..40 {
            load(&db, round).await;
            let reader = world.stays(at(&pin(&one).await)).await.unwrap();
            assert_eq!(rows_of(&reader).await.unwrap(), expected(round));
            let held = world.manifest().await;
            let held = held.checkpoints.iter().filter(|kept| kept.metadata == one);
            assert!(held.count() <= admin::MOST_SHARED_PINS);
        }
        assert_eq!(world.by_hand().await, []);
    });
}
