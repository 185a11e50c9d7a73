//! Exports to a mirror that lost tables, or whose tables are damaged.

use super::*;
use bytes::Bytes;
use siltstone_base::SstDescriptor;

/// Kinds of damage to a table of a mirror.
#[derive(Clone, Copy, Debug)]
enum Harm {
    Gone,
    Short,
    Empty,
}

const EVERY: [Harm; 3] = [Harm::Gone, Harm::Short, Harm::Empty];

async fn replace(env: &Env, name: ObjectName, bytes: Bytes) {
    env.store.delete(name).await.unwrap();
    env.store.put_if_absent(name, bytes).await;
}

async fn harm(env: &Env, table: &SstDescriptor, harm: Harm) {
    let whole = env.store.get(table.name(), None).await.unwrap().unwrap();
    match harm {
        Harm::Gone => env.store.delete(table.name()).await.unwrap(),
        Harm::Short => replace(env, table.name(), whole.slice(..whole.len() - 10)).await,
        Harm::Empty => replace(env, table.name(), Bytes::new()).await,
    }
}

async fn tables(env: &Env) -> Vec<SstDescriptor> {
    manifest(env).await.tables().cloned().collect()
}

/// A source with tables and rows of the log, and a mirror of it.
async fn mirrored(places: &Places, name: &str) -> (Env, Env) {
    let source = places.parent(&format!("source {name}")).await;
    let target = places.env(&format!("mirror {name}"));
    let db = open(&source).await.unwrap();
    fill(&db, 0..9, 7).await;
    std::mem::forget(db);
    export(&source, &target).await.unwrap();
    (source, target)
}

/// Every table that the mirror shares is looked for, also those with rows of the log.
#[test]
fn a_table_that_the_mirror_lost_is_copied_again() {
    run("lost", async |places| {
        for (kind, name) in EVERY.into_iter().zip(["gone", "short", "empty"]) {
            let count = tables(&mirrored(&places, &format!("of {name}")).await.1).await.len();
            assert!(count > 1);
            for at in 0..count {
                let (source, target) = mirrored(&places, &format!("{name} {at}")).await;
                harm(&target, &tables(&target).await[at], kind).await;
                let report = export(&source, &target).await.unwrap();
                assert!(report.tables_moved > 0 && report.bytes > 0, "{name} {at}: {report:?}");
                let expected = read(&source).await.unwrap();
                assert_eq!(read(&target).await.unwrap(), expected, "{name} {at}");
                check_whole(&target).await;
                assert_eq!(read(&target).await.unwrap(), expected, "{name} {at}");
                // Undamaged tables are not copied again.
                assert_eq!(export(&source, &target).await.unwrap().tables_moved, 0);
            }
        }
    });
}

/// A listing does not show a flipped bit: `verify` names the table and the way on.
#[test]
fn a_table_that_verify_names_is_deleted_and_copied_again() {
    run("flipped", async |places| {
        let (source, target) = mirrored(&places, "flipped").await;
        let table = tables(&target).await.remove(0);
        let mut bytes = target.store.get(table.name(), None).await.unwrap().unwrap().to_vec();
        bytes[100] ^= 1;
        replace(&target, table.name(), bytes.into()).await;
        assert_eq!(export(&source, &target).await.unwrap().tables_moved, 0);
        let report = verify(&target, Duration::from_secs(10), &Progress::default()).await.unwrap();
        let problem = &report.problems[0];
        assert_eq!(problem.object, table.name());
        assert!(problem.what.contains("repeat the export"), "{problem}");
        target.store.delete(table.name()).await.unwrap();
        assert!(export(&source, &target).await.unwrap().tables_moved > 0);
        check_whole(&target).await;
        assert_eq!(read(&target).await.unwrap(), read(&source).await.unwrap());
    });
}

/// Neither `open` nor a reader accepts a mirror without a head, so it is no sound database.
#[test]
fn a_mirror_without_a_head_is_a_problem() {
    run("no head", async |places| {
        let (source, target) = (places.parent("source").await, places.env("mirror"));
        let table = manifest(&source).await.tables().next().unwrap().clone();
        let whole = source.store.get(table.name(), None).await.unwrap().unwrap();
        replace(&source, table.name(), whole.slice(..whole.len() / 2)).await;
        export(&source, &target).await.unwrap_err();
        assert_eq!(read(&target).await.unwrap_err().kind(), ErrorKind::Conflict);
        let deadline = Duration::from_secs(10);
        let report = verify(&target, deadline, &Progress::default()).await.unwrap();
        let told = report.problems.iter().any(|one| one.what.contains("repeat the same"));
        assert!(!report.is_ok() && told, "{:?}", report.problems);
        replace(&source, table.name(), whole).await;
        export(&source, &target).await.unwrap();
        let report = verify(&target, deadline, &Progress::default()).await.unwrap();
        assert!(report.is_ok(), "{:?}", report.problems);
    });
}
