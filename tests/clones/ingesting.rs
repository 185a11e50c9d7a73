//! Parents with an ingest in their log that is in no version yet (rule N14, RFC 0029).

use super::*;
use siltstone::admin::CloneParent;
use siltstone::ingest::{IngestJob, JOB_LIFETIME};
use siltstone::tables::{Duplicates, PartOptions};
use siltstone::{CheckpointOptions, ErrorKind, Kind};

const LIMIT: Duration = Duration::from_secs(20);

/// A writer that has adopted rows 100 to 110, and leaves them in its log.
async fn with_ingest(places: &Places) -> (Env, Database) {
    let env = places.parent("parent").await;
    let slow = Options { l0_manifest_commit_interval: Duration::from_secs(3600), ..options() };
    let how = OpenOptions { options: slow, take_over: Some(true), ..OpenOptions::default() };
    let db = Database::open(env.clone(), how).await.unwrap();
    db.flush_memtable().await.unwrap();
    let job = IngestJob::begin(&env, JOB_LIFETIME, None, LIMIT).await.unwrap();
    let how = PartOptions {
        options: options(),
        duplicates: Duplicates::Refuse,
        sort_memory_bytes: 1 << 20,
        scratch: std::env::temp_dir(),
        table_bytes: 1 << 20,
    };
    let mut writer = job.writer(&env, how).unwrap();
    for n in 100..110 {
        let _ = writer.push(Kind::Put, &key(n), &value(7), None).unwrap();
    }
    let part = writer.finish().await.unwrap();
    let request = job.commit(&env, &[part], LIMIT).await.unwrap();
    db.ingest(&request).await.unwrap().wait(None).await.unwrap();
    db.flush().await.unwrap();
    (env, db)
}

fn with_ingested() -> Pairs {
    let ingested = (100..110).map(|n| (key(n), value(7)));
    parents_rows().into_iter().chain(ingested).collect()
}

/// Clones of the newest state, of a checkpoint, and of a range combined with another database: no
/// clone waits, and the parent's writer installs the ingest, or never does.
#[test]
fn an_ingest_on_its_way_into_a_version_comes_along() {
    run("ingest on its way", async |places| {
        let (parent, db) = with_ingest(&places).await;
        let made = admin::create_checkpoint(&parent, &CheckpointOptions::default(), LIMIT).await;
        let at = CloneParent { checkpoint: Some(made.unwrap().id.into()), ..of(&parent) };
        let (first, second) = (places.env("clone"), places.env("another"));
        admin::clone(&first, &[at], &options()).await.unwrap();
        clone(&second, &parent).await.unwrap();
        let other = places.env("beside");
        let beside = open(&other).await.unwrap();
        fill(&beside, 200..210, 3).await;
        beside.close().await.unwrap();
        let third = places.env("union");
        let part = CloneParent { end: Some(key(105)), ..of(&parent) };
        admin::clone(&third, &[part, of(&other)], &options()).await.unwrap();
        db.flush_memtable().await.unwrap();
        db.close().await.unwrap();
        rewrite(&parent).await;
        for env in [&first, &second, &parent] {
            assert_eq!(read(env).await.unwrap(), with_ingested());
            rewrite(env).await;
            assert_eq!(read(env).await.unwrap(), with_ingested());
        }
        let mut expected = with_ingested();
        expected.retain(|(found, _)| *found < key(105));
        expected.extend((200..210).map(|n| (key(n), value(3))));
        assert_eq!(read(&third).await.unwrap(), expected);
    });
}

/// Keys of an ingest overlap another parent's: refused before anything is begun.
#[test]
fn an_ingest_that_meets_another_parent_is_refused() {
    run("ingest in the way", async |places| {
        let (parent, db) = with_ingest(&places).await;
        let other = places.env("beside");
        let beside = open(&other).await.unwrap();
        fill(&beside, 105..106, 3).await;
        beside.close().await.unwrap();
        let env = places.env("clone");
        let parents = [of(&parent), of(&other)];
        let refused = admin::clone(&env, &parents, &options()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
        assert!(gc::newest(&env).await.unwrap().is_none(), "nothing is begun");
        db.close().await.unwrap();
    });
}
