//! Checkpoints whose manifest or tables are gone, although the database still lists them: every use
//! of them fails with the object's name, and changes nothing.

use super::*;
use siltstone::admin::ExportPlaces;
use siltstone::{CheckpointName, CheckpointOptions, Error, ErrorKind, Progress, ReadAt};
use siltstone_base::sst::SstLocation;
use siltstone_base::{ManifestId, ObjectName, SstDescriptor};
use siltstone_tests::scans::rest;
use std::collections::HashSet;

const DEADLINE: Duration = Duration::from_secs(10);
const OLD_KEY: &[u8] = b"key0045";

fn keep() -> CheckpointName {
    "keep".parse().unwrap()
}

/// Creates a checkpoint of the current state, and then replaces all rows and tables. Returns the
/// checkpoint's manifest, and the tables that only it names.
async fn replaced(env: &Env) -> (ManifestId, Vec<SstDescriptor>) {
    let how = CheckpointOptions { name: Some("keep".to_owned()), ..CheckpointOptions::default() };
    let kept = admin::create_checkpoint(env, &how, DEADLINE).await.unwrap().manifest_id;
    let before: Vec<SstDescriptor> = manifest(env).await.tables().cloned().collect();
    let db = open(env).await.unwrap();
    fill(&db, 0..ROWS, 9).await;
    db.close().await.unwrap();
    compact(env).await.unwrap();
    let now = manifest(env).await;
    let named: HashSet<ObjectName> = now.tables().map(SstDescriptor::name).collect();
    assert_ne!(now.id, kept);
    (kept, before.into_iter().filter(|table| !named.contains(&table.name())).collect())
}

fn is_lost<T: std::fmt::Debug>(ended: Result<T>, object: ObjectName, what: &str) {
    let error: Error = ended.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{what}: {error}");
    assert!(text(&error).contains(&object.to_string()), "{what}: {error}");
}

async fn reader(env: &Env) -> Result<Reader> {
    let at = Some(ReadAt::Checkpoint(keep()));
    let how = ReaderOptions { options: options(), at, ..ReaderOptions::default() };
    Reader::open(env.clone(), how).await
}

async fn restore(env: &Env) -> Result<()> {
    admin::restore(env, &keep(), &options()).await
}

/// A restore changes nothing; a read says what is gone.
#[test]
fn a_checkpoint_that_lost_a_table() {
    run("lost table", async |places| {
        for cut in [false, true] {
            let env = places.parent(&format!("{cut}")).await;
            let (_, tables) = replaced(&env).await;
            assert!(!tables.is_empty());
            let mut gets = 0;
            let expected = read(&env).await.unwrap();
            let open_before = reader(&env).await.unwrap();
            for table in &tables {
                let name = table.name();
                let whole = env.store.get(name, None).await.unwrap().unwrap();
                env.store.delete(name).await.unwrap();
                if cut {
                    env.store.put_if_absent(name, whole.slice(..whole.len() / 2)).await;
                }
                let newest = manifest(&env).await.id;
                is_lost(restore(&env).await, name, "restore");
                assert_eq!(manifest(&env).await.id, newest, "nothing was changed");
                assert_eq!(read(&env).await.unwrap(), expected);
                for reader in [&open_before, &reader(&env).await.unwrap()] {
                    // Only the oldest layer has this key, so a read of it needs that table.
                    let (first, last) = (&table.first_key[..], &table.last_key[..]);
                    if (first..=last).contains(&OLD_KEY) && table.entries == u64::from(ROWS) {
                        let got = async { reader.get(OLD_KEY)?.wait().await };
                        is_lost(got.await.map(drop), name, "get");
                        gets += 1;
                    }
                    is_lost(rest(reader.scan(ScanRange::all()).unwrap()).await, name, "scan");
                }
                env.store.delete(name).await.unwrap();
                env.store.put_if_absent(name, whole).await;
            }
            assert!(gets > 0);
            restore(&env).await.unwrap();
            assert_eq!(read(&env).await.unwrap(), parents_rows());
        }
    });
}

#[test]
fn a_checkpoint_that_lost_its_manifest() {
    run("lost manifest", async |places| {
        let env = places.parent("parent").await;
        let (kept, _) = replaced(&env).await;
        let expected = read(&env).await.unwrap();
        let name = ObjectName::Manifest(kept);
        // A collector has freed the manifests before the newest, except those that are pinned.
        gc::round(&env).await.unwrap();
        env.store.delete(name).await.unwrap();
        is_lost(restore(&env).await, name, "restore");
        is_lost(reader(&env).await.map(drop), name, "reader");
        let parent = CloneParent { checkpoint: Some(keep()), ..of(&env) };
        let cloned = admin::clone(&places.env("clone"), &[parent], &options()).await;
        is_lost(cloned, name, "clone");
        let into = ExportPlaces { source: &env, target: &places.env("mirror") };
        let exported = admin::export(into, Some(&keep()), &options(), &Progress::default()).await;
        is_lost(exported, name, "export");
        assert_eq!(read(&env).await.unwrap(), expected);
    });
}

/// A deleted checkpoint is Expired, also once a collector has deleted its tables.
#[test]
fn a_deleted_checkpoint_is_expired() {
    run("deleted", async |places| {
        let env = places.parent("parent").await;
        replaced(&env).await;
        let reader = reader(&env).await.unwrap();
        admin::delete_checkpoint(&env, &keep(), DEADLINE).await.unwrap();
        rewrite(&env).await;
        let scanned = rest(reader.scan(ScanRange::all()).unwrap()).await;
        assert_eq!(scanned.unwrap_err().kind(), ErrorKind::Expired);
        assert_eq!(restore(&env).await.unwrap_err().kind(), ErrorKind::Expired);
    });
}

/// The tables of a clone lie in its parent.
#[test]
fn a_clone_whose_parent_lost_a_table() {
    run("lost by a parent", async |places| {
        let (parent, env) = (places.parent("parent").await, places.env("clone"));
        clone(&env, &parent).await.unwrap();
        let how =
            CheckpointOptions { name: Some("keep".to_owned()), ..CheckpointOptions::default() };
        admin::create_checkpoint(&env, &how, DEADLINE).await.unwrap();
        let newest = manifest(&env).await;
        let mut tables = newest.tables().filter(|table| table.location != SstLocation::Own);
        let name = tables.next().unwrap().name();
        let whole = parent.store.get(name, None).await.unwrap().unwrap();
        parent.store.delete(name).await.unwrap();
        is_lost(restore(&env).await, name, "restore");
        assert_eq!(manifest(&env).await.id, newest.id, "nothing was changed");
        parent.store.put_if_absent(name, whole).await;
        restore(&env).await.unwrap();
        assert_eq!(read(&env).await.unwrap(), parents_rows());
    });
}

/// Neither `open` nor a reader accepts a clone that is not complete, so it is no sound database.
#[test]
fn an_interrupted_clone_is_a_problem() {
    run("interrupted", async |places| {
        let (parent, env) = (places.parent("parent").await, places.env("clone"));
        clone(&env, &parent).await.unwrap();
        env.store.delete(ObjectName::Manifest(manifest(&env).await.id)).await.unwrap();
        assert_eq!(read(&env).await.unwrap_err().kind(), ErrorKind::Conflict);
        let verify = || async {
            siltstone::verify::verify(&env, DEADLINE, &Progress::default()).await.unwrap()
        };
        let report = verify().await;
        let told = report.problems.iter().any(|one| one.what.contains("repeat the same clone"));
        assert!(!report.is_ok() && told, "{:?}", report.problems);
        clone(&env, &parent).await.unwrap();
        let report = verify().await;
        assert!(report.is_ok(), "{:?}", report.problems);
    });
}
