//! Databases whose log lies in a store of its own (RFC 0055).

use crate::contract;
use siltstone::admin::{self, CloneParent, ExportPlaces};
use siltstone::changes::{ChangesFrom, ChangesOptions, Consumer, changes};
use siltstone::gc::GcOptions;
use siltstone::repair::{RepairOptions, repair};
use siltstone::store::memory::MemoryStore;
use siltstone::store::{Store, url};
use siltstone::task::{tokio_effects, tokio_env};
use siltstone::verify::{Report, verify};
use siltstone::{
    CheckpointName, CheckpointOptions, CheckpointOwner, Env, ErrorKind, Progress, ReadAt, Reader,
    ReaderOptions, Result, ScanRange,
};
use siltstone_base::name::prefix;
use siltstone_base::{DatabaseId, ObjectName};
use siltstone_tests::gc;
use siltstone_tests::places::{
    Places, ROWS, compact, fill, key, manifest, open, options, parents_rows, read, run, text,
};
use siltstone_tests::scans::rest;
use std::sync::Arc;
use std::time::Duration;

/// Databases in memory with separate logs.
struct Separate {
    test: &'static str,
    runtime: tokio::runtime::Handle,
}

impl Separate {
    fn of(places: &Places, test: &'static str) -> Separate {
        Separate { test, runtime: places.runtime.clone() }
    }

    /// The place `name`, whose log lies in `logs`, if there is one.
    fn at(&self, name: &str, logs: Option<&str>) -> Env {
        let place = |name: &str| format!("memory://{}/{name}", self.test);
        let logs = logs.map(|logs| ("wal_url".to_owned(), place(logs)));
        let effects = tokio_effects(self.runtime.clone());
        let options = logs.into_iter().collect();
        let store = url::parse(&place(name), &options, [], &effects).unwrap();
        tokio_env(self.runtime.clone(), store)
    }

    fn db(&self) -> Env {
        self.at("db", Some("logs"))
    }

    /// The store of the log of the database in `env`.
    async fn log_of(&self, env: &Env) -> Arc<MemoryStore> {
        let id = manifest(env).await.database;
        MemoryStore::named(&format!("{}/logs/{:032x}", self.test, id.0))
    }

    /// As [`Places::parent`].
    async fn filled(&self) -> Env {
        let env = self.db();
        let db = open(&env).await.unwrap();
        fill(&db, 0..ROWS, 1).await;
        db.flush_memtable().await.unwrap();
        compact(&env).await.unwrap();
        fill(&db, 0..ROWS / 2, 2).await;
        db.flush_memtable().await.unwrap();
        fill(&db, 0..ROWS / 4, 3).await;
        siltstone_tests::places::forget(&db, 50..52);
        db.flush().await.unwrap();
        std::mem::forget(db);
        env
    }
}

const FOLDERS: [&str; 3] = [prefix::WAL, prefix::LOG, prefix::DAMAGED];

async fn names(store: &dyn Store, folders: &[&'static str]) -> Vec<ObjectName> {
    let mut all = Vec::new();
    for folder in folders {
        all.extend(store.names(folder, None).await.unwrap());
    }
    all
}

fn is_wal(name: &ObjectName) -> bool {
    matches!(name, ObjectName::Wal(_))
}

async fn verified(env: &Env) -> Result<Report> {
    verify(env, Duration::from_secs(5), &Progress::default()).await
}

/// The results of everything that uses a database.
async fn uses(env: &Env) -> Vec<(&'static str, Result<()>)> {
    let limit = Duration::from_secs(5);
    let gc = GcOptions {
        min_age: Duration::ZERO,
        db_delete_grace: Duration::ZERO,
        interval: Duration::from_secs(1),
        deadline: limit,
    };
    let feed = ChangesOptions { since: ChangesFrom::Oldest, ..ChangesOptions::default() };
    let fed = async {
        let mut feed = changes(env, feed, limit).await?;
        while feed.read(100, 1 << 20).await?.is_some() {}
        Ok(())
    };
    let checkpoint = CheckpointOptions::default();
    vec![
        ("writer", open(env).await.map(drop)),
        ("reader", read(env).await.map(drop)),
        ("collector", siltstone::gc::once(env, &gc, false).await.map(drop)),
        ("feed", fed.await),
        ("checkpoint", admin::create_checkpoint(env, &checkpoint, limit).await.map(drop)),
        ("destroy", siltstone::destroy(env, false, limit).await),
    ]
}

#[test]
fn the_store_keeps_the_contract() {
    run("separate/contract", |places| async move {
        let env = Separate::of(&places, "separate/contract").db();
        env.store.log().create(DatabaseId(7)).await.unwrap().unwrap();
        contract::check(env.store).await;
    });
}

#[test]
fn only_the_log_lies_in_the_other_store() {
    run("separate/routed", |places| async move {
        let here = Separate::of(&places, "separate/routed");
        let env = here.filled().await;
        let (main, log) = (MemoryStore::named("separate/routed/db"), here.log_of(&env).await);
        assert_eq!(names(&*main, &FOLDERS).await, []);
        assert!(names(&*log, &FOLDERS).await.iter().filter(|name| is_wal(name)).count() > 1);
        assert!(names(&*log, &[prefix::LOG]).await.contains(&ObjectName::LogIdentity));
        let others = [prefix::MANIFEST, prefix::COMPACTED, prefix::COMPACTIONS, prefix::PROBE];
        assert_eq!(names(&*log, &others).await, []);
        let record = manifest(&env).await.wal_store.clone().unwrap();
        assert_eq!(record.location.as_deref(), Some("memory://separate/routed/logs"));
        // Every process works with the option alone.
        assert_eq!(read(&here.db()).await.unwrap(), parents_rows());
        let db = open(&here.db()).await.unwrap();
        fill(&db, 0..ROWS, 4).await;
        db.flush_memtable().await.unwrap();
        db.close().await.unwrap();
        assert!(verified(&here.db()).await.unwrap().is_ok());
        gc::round(&here.db()).await.unwrap();
        gc::round(&here.db()).await.unwrap();
        let wal = names(&*log, &[prefix::WAL]).await;
        assert!(wal.iter().any(|name| matches!(name, ObjectName::WalBoundary(_))), "{wal:?}");
        assert_eq!(names(&*main, &[prefix::PROBE]).await, []);
        assert_eq!(names(&*log, &[prefix::PROBE]).await, []);
        assert_eq!(read(&here.db()).await.unwrap().len(), ROWS as usize);
        assert!(verified(&here.db()).await.unwrap().is_ok());
    });
}

#[test]
fn two_databases_share_a_place_for_logs() {
    run("separate/shared", |places| async move {
        let here = Separate::of(&places, "separate/shared");
        let both = ["one", "other"].map(|name| here.at(name, Some("logs")));
        for (env, round) in both.iter().zip(1..) {
            let db = open(env).await.unwrap();
            fill(&db, 0..3, round).await;
            std::mem::forget(db);
        }
        for (env, round) in both.iter().zip(1..) {
            let rows = read(env).await.unwrap();
            assert_eq!((rows.len(), rows[0].1[0]), (3, round));
        }
    });
}

#[test]
fn every_use_without_the_right_option_is_refused_and_changes_nothing() {
    run("separate/refused", |places| async move {
        let here = Separate::of(&places, "separate/refused");
        here.filled().await;
        let beside = here.at("beside", None);
        fill(&open(&beside).await.unwrap(), 0..3, 1).await;
        let cases = [
            (here.at("db", None), "memory://separate/refused/logs"),
            (here.at("db", Some("elsewhere")), "memory://separate/refused/elsewhere"),
            (here.at("beside", Some("logs")), "beside its other objects"),
        ];
        for (env, word) in cases {
            let before = manifest(&env).await.id;
            let mut ended = uses(&env).await;
            ended.push(("verify", verified(&env).await.map(drop)));
            for (name, ended) in ended {
                let error = ended.expect_err(name);
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{name}: {error}");
                let told = text(&error);
                assert!(told.contains("`wal_url`") && told.contains(word), "{name}: {told}");
            }
            assert_eq!(manifest(&env).await.id, before);
        }
        assert_eq!(read(&here.db()).await.unwrap(), parents_rows());
    });
}

/// A log that is gone is not an empty log: acknowledged writes would vanish in silence.
#[test]
fn an_emptied_log_is_damage_until_a_repair_gives_it_up() {
    run("separate/emptied", |places| async move {
        let here = Separate::of(&places, "separate/emptied");
        let env = here.filled().await;
        let log = here.log_of(&env).await;
        for name in names(&*log, &FOLDERS).await {
            log.delete(name).await.unwrap();
        }
        let epoch = manifest(&env).await.writer_epoch;
        assert!(open(&here.db()).await.is_err());
        assert_eq!(manifest(&env).await.writer_epoch, epoch, "the refusal ends no writer");
        let mut ended = uses(&here.db()).await;
        ended.truncate(4);
        for (name, ended) in ended {
            let error = ended.expect_err(name);
            assert_eq!(error.kind(), ErrorKind::Corruption, "{name}: {error}");
            let told = text(&error);
            assert!(told.contains("log/identity"), "{name}: {told}");
            assert!(told.contains("memory://separate/emptied/logs/"), "{name}: {told}");
        }
        let report = verified(&here.db()).await.unwrap();
        assert_eq!(report.problems[0].object, ObjectName::LogIdentity, "{report:?}");
        let dry = RepairOptions { dry_run: true, take_over: true };
        let told = repair(&here.db(), dry, &options()).await.unwrap();
        assert_eq!(told.damage[0].object, ObjectName::LogIdentity, "{told:?}");
        assert!(told.needed && !told.done);
        assert_eq!(names(&*log, &FOLDERS).await, []);
        let how = RepairOptions { take_over: true, ..RepairOptions::default() };
        let done = repair(&here.db(), how, &options()).await.unwrap();
        assert!(done.done);
        let report = verified(&here.db()).await.unwrap();
        assert!(report.is_ok(), "{report:?}");
        // Flushed rows are left.
        let db = open(&here.db()).await.unwrap();
        let rows = read(&here.db()).await.unwrap();
        assert_eq!((rows.len(), rows[0].1[0]), (ROWS as usize, 2));
        fill(&db, 0..1, 9).await;
        db.close().await.unwrap();
        assert_eq!(read(&here.db()).await.unwrap()[0].1[0], 9);
    });
}

/// The identity alone is lost: a repair keeps the log.
#[test]
fn a_repair_keeps_a_log_without_identity() {
    run("separate/nameless", |places| async move {
        let here = Separate::of(&places, "separate/nameless");
        let env = here.filled().await;
        let log = here.log_of(&env).await;
        log.delete(ObjectName::LogIdentity).await.unwrap();
        assert_eq!(read(&here.db()).await.unwrap_err().kind(), ErrorKind::Corruption);
        let how = RepairOptions { take_over: true, ..RepairOptions::default() };
        assert!(repair(&here.db(), how, &options()).await.unwrap().done);
        assert_eq!(read(&here.db()).await.unwrap(), parents_rows());
    });
}

#[test]
fn another_log_in_the_place_is_told() {
    run("separate/replaced", |places| async move {
        let here = Separate::of(&places, "separate/replaced");
        let env = here.filled().await;
        let log = here.log_of(&env).await;
        let own = log.get(ObjectName::LogIdentity, None).await.unwrap().unwrap();
        let own = std::str::from_utf8(&own).unwrap();
        let (first, rest) = own.split_once('\n').unwrap();
        let another = format!("log {:032x}\n{rest}", 7);
        assert!(first.starts_with("log "));
        for (bytes, word) in [(another.as_str(), "replaced"), ("", "not the identity")] {
            log.delete(ObjectName::LogIdentity).await.unwrap();
            let bytes = bytes.as_bytes().to_vec().into();
            drop(log.put_if_absent(ObjectName::LogIdentity, bytes).await);
            let error = read(&here.db()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption);
            assert!(text(&error).contains(word), "{error}");
        }
    });
}

/// Both would write to one log, and each would recover the rows of the other.
#[test]
fn a_copy_of_the_main_store_is_refused_and_the_original_goes_on() {
    run("separate/copied", |places| async move {
        let here = Separate::of(&places, "separate/copied");
        let env = here.filled().await;
        let [from, to] =
            ["db", "copy"].map(|name| MemoryStore::named(&format!("separate/copied/{name}")));
        for name in names(&*from, &[prefix::MANIFEST, prefix::COMPACTED]).await {
            let bytes = from.get(name, None).await.unwrap().unwrap();
            drop(to.put_if_absent(name, bytes).await);
        }
        let log = here.log_of(&env).await;
        let before = names(&*log, &FOLDERS).await;
        let copy = here.at("copy", Some("logs"));
        for (name, ended) in uses(&copy).await {
            let error = ended.expect_err(name);
            assert_eq!(error.kind(), ErrorKind::Conflict, "{name}: {error}");
            assert!(text(&error).contains("memory://separate/copied/db"), "{name}: {error}");
        }
        let how = RepairOptions { take_over: true, ..RepairOptions::default() };
        let error = repair(&copy, how, &options()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert_eq!(names(&*log, &FOLDERS).await, before);
        assert_eq!(read(&here.db()).await.unwrap(), parents_rows());
        open(&here.db()).await.unwrap().close().await.unwrap();
    });
}

/// The manifest of a known checkpoint is read without a look for the newest one.
#[test]
fn a_known_checkpoint_reads_its_rows_in_the_log() {
    run("separate/known", |places| async move {
        let here = Separate::of(&places, "separate/known");
        let source = here.filled().await;
        let how = CheckpointOptions { name: Some("then".to_owned()), ..Default::default() };
        let limit = Duration::from_secs(5);
        admin::create_checkpoint(&source, &how, limit).await.unwrap();
        let at = |at| ReaderOptions { at: Some(at), options: options(), merge_operator: None };
        let name = ReadAt::Checkpoint(CheckpointName::Name("then".to_owned()));
        let first = Reader::open(here.db(), at(name)).await.unwrap();
        let known = first.checkpoint().unwrap().clone();
        assert!(known.checkpoint.pins_any_wal());
        let known = || at(ReadAt::Known(Box::new(known.clone())));
        let second = Reader::open(here.db(), known()).await.unwrap();
        let rows = rest(second.scan(ScanRange::all()).unwrap()).await.unwrap();
        assert_eq!(rows, parents_rows());
        let error = Reader::open(here.at("db", None), known()).await.map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    });
}

/// A repair deletes nothing, so it does not begin where it could not end.
#[test]
fn a_repair_refuses_a_log_with_another_identity_before_it_changes_anything() {
    run("separate/occupied", |places| async move {
        let here = Separate::of(&places, "separate/occupied");
        let env = here.filled().await;
        let (log, before) = (here.log_of(&env).await, manifest(&env).await.id);
        log.delete(ObjectName::LogIdentity).await.unwrap();
        drop(log.put_if_absent(ObjectName::LogIdentity, vec![7; 9].into()).await);
        for dry_run in [true, false] {
            let how = RepairOptions { dry_run, take_over: true };
            let error = repair(&here.db(), how, &options()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption);
            assert!(text(&error).contains("delete that object"), "{error}");
        }
        assert_eq!(manifest(&env).await.id, before);
        log.delete(ObjectName::LogIdentity).await.unwrap();
        let how = RepairOptions { take_over: true, ..RepairOptions::default() };
        assert!(repair(&here.db(), how, &options()).await.unwrap().done);
        assert_eq!(read(&here.db()).await.unwrap(), parents_rows());
    });
}

/// A late manifest of a deleted database does not count, whether or not its log was deleted too.
#[test]
fn remains_of_a_deleted_database_are_looked_for_in_its_log() {
    run("separate/left", |places| async move {
        let here = Separate::of(&places, "separate/left");
        let db = open(&here.db()).await.unwrap();
        fill(&db, 0..3, 1).await;
        std::mem::forget(db);
        // Commits, so that the number of the newest manifest is beyond those of a new database.
        for _ in 0..6 {
            let (how, limit) = (CheckpointOptions::default(), Duration::from_secs(5));
            admin::create_checkpoint(&here.db(), &how, limit).await.unwrap();
        }
        let (main, log) = (MemoryStore::named("separate/left/db"), here.log_of(&here.db()).await);
        let newest = ObjectName::Manifest(manifest(&here.db()).await.id);
        for name in names(&*main, &[prefix::MANIFEST]).await {
            if name != newest {
                main.delete(name).await.unwrap();
            }
        }
        let error = open(&here.db()).await.map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
        assert!(text(&error).contains("what is left of a database"), "{error}");
        assert!(!verified(&here.db()).await.unwrap().is_ok());
        for name in names(&*log, &FOLDERS).await {
            log.delete(name).await.unwrap();
        }
        fill(&open(&here.db()).await.unwrap(), 0..2, 2).await;
        assert_eq!(read(&here.db()).await.unwrap().len(), 2);
    });
}

#[test]
fn damage_of_the_log_is_told_with_its_place() {
    run("separate/damaged", |places| async move {
        let here = Separate::of(&places, "separate/damaged");
        let env = here.filled().await;
        let log = here.log_of(&env).await;
        let last = names(&*log, &[prefix::WAL]).await.into_iter().rfind(is_wal).unwrap();
        log.delete(last).await.unwrap();
        drop(log.put_if_absent(last, vec![7; 50].into()).await);
        let place = log.place().location().unwrap();
        let error = open(&here.db()).await.map(drop).unwrap_err();
        assert!(text(&error).contains(&place), "{error}");
        let report = verified(&here.db()).await.unwrap();
        assert!(report.problems.iter().any(|one| one.object == last && one.what.contains(&place)));
    });
}

#[test]
fn a_clone_has_a_log_of_its_own() {
    run("separate/clones", |places| async move {
        let here = Separate::of(&places, "separate/clones");
        let parent = here.filled().await;
        let of =
            |env: &Env| CloneParent { env: env.clone(), checkpoint: None, start: None, end: None };
        // One with a separate log, and one without.
        for (name, logs) in [("clone", Some("logs")), ("plain", None)] {
            let clone = here.at(name, logs);
            admin::clone(&clone, &[of(&parent)], &options()).await.unwrap();
            assert_eq!(manifest(&clone).await.wal_store.is_some(), logs.is_some());
            let db = open(&clone).await.unwrap();
            fill(&db, 0..1, 8).await;
            db.close().await.unwrap();
            let rows = read(&here.at(name, logs)).await.unwrap();
            assert_eq!((rows.len(), rows[0].1[0]), (parents_rows().len(), 8));
            // The clone releases its parent, whose log it does not read.
            for _ in 0..2 {
                compact(&clone).await.unwrap();
                gc::round(&clone).await.unwrap();
            }
            assert!(verified(&clone).await.unwrap().is_ok());
            assert!(manifest(&clone).await.ancestors.is_empty(), "{name}");
        }
        let pins = manifest(&parent).await;
        assert!(
            !pins.checkpoints.iter().any(|one| matches!(one.owner, CheckpointOwner::Clone(_))),
            "{pins:?}"
        );
        assert_eq!(read(&here.db()).await.unwrap(), parents_rows());
    });
}

#[test]
fn exports_and_checkpoints_read_the_log_where_it_lies() {
    run("separate/exports", |places| async move {
        let here = Separate::of(&places, "separate/exports");
        let source = here.filled().await;
        let limit = Duration::from_secs(5);
        let checkpoint = CheckpointOptions { name: Some("then".to_owned()), ..Default::default() };
        admin::create_checkpoint(&source, &checkpoint, limit).await.unwrap();
        for (name, logs) in [("moved", None), ("back", Some("logs"))] {
            let target = here.at(name, logs);
            let places = ExportPlaces { source: &source, target: &target };
            let progress = Progress::default();
            admin::import(places, None, &options(), &progress).await.unwrap();
            assert_eq!(manifest(&target).await.wal_store.is_some(), logs.is_some());
            assert_eq!(read(&here.at(name, logs)).await.unwrap(), parents_rows());
            open(&target).await.unwrap().close().await.unwrap();
        }
        let db = open(&source).await.unwrap();
        fill(&db, 0..ROWS, 6).await;
        db.close().await.unwrap();
        let then = CheckpointName::Name("then".to_owned());
        admin::restore(&here.db(), &then, &options()).await.unwrap();
        assert_eq!(read(&here.db()).await.unwrap(), parents_rows());
    });
}

#[test]
fn a_consumer_keeps_the_log_in_its_store() {
    run("separate/feed", |places| async move {
        let here = Separate::of(&places, "separate/feed");
        let db = open(&here.db()).await.unwrap();
        let limit = Duration::from_secs(5);
        let how = |since| ChangesOptions {
            since,
            consumer: Some(Consumer::new("c")),
            ..ChangesOptions::default()
        };
        drop(changes(&here.db(), how(ChangesFrom::Newest), limit).await.unwrap());
        for round in 0..3 {
            fill(&db, 0..5, round).await;
            db.flush_memtable().await.unwrap();
        }
        db.close().await.unwrap();
        gc::round(&here.db()).await.unwrap();
        let mut feed = changes(&here.db(), how(ChangesFrom::Kept), limit).await.unwrap();
        let mut rows = 0;
        while let Some(read) = feed.read(100, 1 << 20).await.unwrap() {
            rows += read.len();
        }
        assert_eq!(rows, 15);
    });
}

#[test]
fn a_destroyed_database_leaves_fences_alone_in_both_stores() {
    run("separate/destroyed", |places| async move {
        let here = Separate::of(&places, "separate/destroyed");
        for soft in [false, true] {
            let env = here.filled().await;
            let log = here.log_of(&env).await;
            let limit = Duration::from_secs(5);
            siltstone::destroy(&here.db(), soft, limit).await.unwrap();
            if soft {
                assert!(read(&here.db()).await.is_err());
                // Nothing of its log is needed any more.
                for name in names(&*log, &FOLDERS).await {
                    log.delete(name).await.unwrap();
                }
                siltstone::destroy(&here.db(), false, limit).await.unwrap();
            }
            let left = names(&*log, &[prefix::WAL]).await;
            let wal = left.iter().filter(|name| is_wal(name)).count();
            assert!(wal <= 2 && left.len() <= wal + 1, "{left:?}");
            assert_eq!(read(&here.db()).await.unwrap_err().kind(), ErrorKind::NotFound);
            // The next database has another log.
        }
        let env = here.filled().await;
        assert_eq!(read(&here.db()).await.unwrap(), parents_rows());
        let rows = read(&env).await.unwrap();
        assert!(rows.iter().any(|(name, _)| *name == key(0)));
    });
}
