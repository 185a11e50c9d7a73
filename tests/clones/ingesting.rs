//! Parents whose log has an ingest in it that is in no version yet: waited for, or refused before
//! anything is begun (RFC 0029).

use super::*;
use siltstone::admin::CloneParent;
use siltstone::ingest::{IngestJob, JOB_LIFETIME};
use siltstone::tables::{Duplicates, PartOptions};
use siltstone::{CheckpointOptions, ErrorKind, Kind};

const LIMIT: Duration = Duration::from_secs(20);

/// A writer that has taken rows 100 to 110 in, and leaves them in its log.
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
    let mut writer = job.writer(&env, how);
    for n in 100..110 {
        let _ = writer.push(Kind::Put, &key(n), &value(7), None).unwrap();
    }
    let part = IngestJob::finish(writer).await.unwrap();
    let request = job.commit(&env, &[part], LIMIT).await.unwrap();
    db.ingest(&request).await.unwrap().wait(None).await.unwrap();
    db.flush().await.unwrap();
    (env, db)
}

fn with_ingested() -> Pairs {
    let ingested = (100..110).map(|n| (key(n), value(7)));
    parents_rows().into_iter().chain(ingested).collect()
}

#[test]
fn an_ingest_on_its_way_into_a_version_is_waited_for() {
    run("ingest on its way", async |places| {
        let (parent, db) = with_ingest(&places).await;
        let env = places.env("clone");
        let installs = async {
            tokio::time::sleep(Duration::from_millis(600)).await;
            assert!(gc::newest(&env).await.unwrap().is_none(), "nothing is begun before");
            db.flush_memtable().await.unwrap();
        };
        let (cloned, ()) = tokio::join!(clone(&env, &parent), installs);
        cloned.unwrap();
        assert_eq!(read(&env).await.unwrap(), with_ingested());
        // The pins of the tries before went with them.
        assert_eq!(manifest(&parent).await.checkpoints.iter().filter(is_pin).count(), 1);
        db.close().await.unwrap();
    });
}

fn is_pin(checkpoint: &&siltstone_manifest::Checkpoint) -> bool {
    matches!(checkpoint.owner, siltstone_manifest::CheckpointOwner::Clone(_))
}

/// Neither a checkpoint changes, nor the log of a database that nobody writes to.
#[test]
fn an_ingest_that_nobody_installs_is_refused_and_nothing_is_begun() {
    run("ingest that stays", async |places| {
        let (parent, db) = with_ingest(&places).await;
        let env = places.env("clone");
        let made = admin::create_checkpoint(&parent, &CheckpointOptions::default(), LIMIT).await;
        let at = CloneParent { checkpoint: Some(made.unwrap().id.into()), ..of(&parent) };
        let short = Options { deadline: Duration::from_secs(1), ..options() };
        for asked in [at, of(&parent)] {
            let refused = admin::clone(&env, &[asked], &short).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
            assert!(gc::newest(&env).await.unwrap().is_none(), "nothing is begun");
            assert_eq!(manifest(&parent).await.checkpoints.iter().filter(is_pin).count(), 0);
        }
        std::mem::forget(db);
        let db = open(&parent).await.unwrap();
        clone(&env, &parent).await.unwrap();
        assert_eq!(read(&env).await.unwrap(), with_ingested());
        db.close().await.unwrap();
    });
}
