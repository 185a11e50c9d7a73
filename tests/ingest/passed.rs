//! Jobs that a later version of their application has passed: their record is gone, and they are
//! neither open, nor aborted, nor can they be requested again (rule N11).

use super::*;
use futures::channel::oneshot;
use siltstone::ingest::{forget_app, status, status_of};
use siltstone::{ErrorKind, JobStatus, gc};
use siltstone_tests::gc::AT_ONCE;

impl Place {
    fn collect(&self) {
        self.run("collector", |env| async move {
            let report = gc::once(&env, &AT_ONCE, false).await?;
            assert_eq!(report.total().failed, 0);
            Ok(())
        });
    }
}

/// A stream of versions, each of which replaces the rows of the previous one: merged tables are
/// deleted in the next round, not after their deadline.
#[test]
fn staged_tables_of_passed_versions_go_once_merged() {
    let place = Place::new();
    place.run("stream", |env| async move {
        let db = open(&env, options()).await?;
        for version in 1..=5 {
            db.ingest(&version_of(&env, version, b"x").await?).await?;
            db.flush_memtable().await?;
        }
        db.close().await
    });
    let all = place.staged();
    assert_eq!(all, 10, "a table and an object each");
    place.collect();
    assert_eq!(
        place.staged(),
        all,
        "the tables are in the tree, and the objects record their origin"
    );
    place.run("stream", |env| async move {
        let db = open(&env, options()).await?;
        db.compact().await?;
        db.close().await
    });
    place.collect();
    assert_eq!(place.staged(), 0);
    // A version that came twice under another job has no owner either.
    place.run("again", |env| async move {
        let again = version_of(&env, 5, b"again").await?;
        assert!(matches!(again.submit(&env, false, LIMIT).await?, JobStatus::Adopted(_)));
        Ok(())
    });
    assert_eq!(place.staged(), 2);
    place.collect();
    assert_eq!(place.staged(), 0);
}

/// Only its rows show that it was installed: it is not reported as aborted.
#[test]
fn a_passed_version_is_neither_open_nor_aborted() {
    let place = Place::new();
    let first = place.run("stream", |env| async move {
        let db = open(&env, options()).await?;
        let [first, second] = [version_of(&env, 1, b"1").await?, version_of(&env, 2, b"2").await?];
        assert_eq!(status(&env, first.job.id, LIMIT).await?, JobStatus::Open);
        db.ingest(&first).await?;
        db.ingest(&second).await?;
        db.flush_memtable().await?;
        let stands = [
            status(&env, first.job.id, LIMIT).await?,
            first.job.abort(&env, LIMIT).await?,
            status(&env, first.job.id, LIMIT).await?,
        ];
        assert_eq!(stands, [const { JobStatus::Forgotten }; 3]);
        assert!(matches!(status(&env, second.job.id, LIMIT).await?, JobStatus::Adopted(_)));
        db.compact().await?;
        db.close().await?;
        Ok(first)
    });
    place.collect();
    // Even after its folder is deleted: the object that an abort creates there proves nothing.
    assert_eq!(place.staged(), 0);
    let again = first.clone();
    place.run("late", |env| async move {
        assert_eq!(status_of(&env, &again.job, LIMIT).await?, JobStatus::Forgotten);
        assert_eq!(again.job.abort(&env, LIMIT).await?, JobStatus::Forgotten);
        let refused = again.submit(&env, false, LIMIT).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
        Ok(())
    });
    place.collect();
    assert_eq!(place.staged(), 0);
}

/// Jobs that began before their application was forgotten are not part of its next life: if a later
/// version had replaced the record of one, nothing else would show that it was adopted.
#[test]
fn a_forgotten_application_begins_anew_with_new_jobs() {
    let place = Place::new();
    place.run("stream", |env| async move {
        let db = open(&env, options()).await?;
        let [first, second] = [version_of(&env, 1, b"1").await?, version_of(&env, 2, b"2").await?];
        let never = version_of(&env, 3, b"3").await?;
        db.ingest(&first).await?;
        let adopted = db.ingest(&second).await?.seq();
        db.flush_memtable().await?;
        forget_app(&env, "stream", LIMIT).await?;
        for old in [&first, &never] {
            let refused = db.ingest(old).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
            assert!(refused.to_string().contains("forgotten"), "{refused}");
            assert_eq!(status(&env, old.job.id, LIMIT).await?, JobStatus::Forgotten);
        }
        assert_eq!(db.ingest(&second).await?.seq(), adopted, "its record is remembered");
        db.ingest(&version_of(&env, 1, b"anew").await?).await?;
        let expected: Pairs = (0..2).map(|n| (key(n), b"anew".to_vec())).collect();
        assert_eq!(all_of(db.scan(everything())?).await?, expected);
        // It is not answered with the same version of the new life either.
        for brings in [false, true] {
            let refused = db.ingest(&first).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
            let refused = db.ingest(&never).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
            let refused = never.submit(&env, false, LIMIT).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
            if !brings {
                db.ingest(&version_of(&env, 3, b"anew").await?).await?;
                db.flush_memtable().await?;
            }
        }
        db.compact().await?;
        assert_eq!(all_of(db.scan(everything())?).await?, expected);
        db.close().await
    });
    place.collect();
    assert_eq!(place.staged(), 0);
}

/// A process that waits for a version while later ones are installed learns that it was adopted.
#[test]
fn a_wait_for_a_version_ends_when_a_later_one_came() {
    let place = Place::new();
    place.run("maker", |env| async move { open(&env, options()).await?.close().await });
    let (driver, env) = place.process("driver");
    let (told, answer) = oneshot::channel();
    place.sim.spawn(driver, "driver", async move {
        let waits = async {
            let [first, second] =
                [version_of(&env, 1, b"1").await?, version_of(&env, 2, b"2").await?];
            first.submit(&env, false, LIMIT).await?;
            second.submit(&env, false, LIMIT).await?;
            first.submit(&env, true, LIMIT).await
        };
        drop(told.send(waits.await));
    });
    let stood = place.run("writer", |env| async move {
        env.clock.sleep(Duration::from_secs(5)).await;
        let db = open(&env, options()).await?;
        // It adopts and installs both between two looks of the waiting process.
        env.clock.sleep(Duration::from_secs(5)).await;
        db.flush_memtable().await?;
        db.close().await?;
        answer.await.expect("it ends")
    });
    assert!(matches!(stood, JobStatus::AdoptedBefore(_)), "{stood:?}");
}

/// The closing object of a job records its version; it cannot be requested as another.
#[test]
fn a_job_is_asked_for_as_what_it_was_closed_as() {
    let place = Place::new();
    place.run("all", |env| async move {
        let db = open(&env, options()).await?;
        let request = version_of(&env, 1, b"1").await?;
        for app in [None, Some(("stream".to_owned(), 2)), Some(("other".to_owned(), 1))] {
            let job = IngestJob { app, ..request.job.clone() };
            let part = stage(&env, &job, rows(5..6, b"x")).await?;
            let refused = job.commit(&env, &[part], LIMIT).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
            assert!(refused.to_string().contains("closed as"), "{refused}");
            // A request that was forged by hand: the writer detects it.
            let forged = IngestRequest { job, ..request.clone() };
            if forged.job.app.is_some() {
                continue;
            }
            let refused = db.ingest(&forged).await.unwrap_err();
            assert!(refused.to_string().contains("another version"), "{refused}");
        }
        db.close().await
    });
}

/// Independent producers request one version, each with its own job: one is adopted, and all are
/// answered with it. Before, producers that lost the race for the manifest got Conflict.
#[test]
fn one_version_from_many_at_once_is_one() {
    let place = Place::new();
    place.run("stream", |env| async move {
        let db = open(&env, options()).await?;
        db.close().await?;
        let mut all = Vec::new();
        for _ in 0..6 {
            all.push(version_of(&env, 7, b"x").await?);
        }
        let asked = all.iter().map(|one| one.submit(&env, false, LIMIT));
        for stands in futures::future::join_all(asked).await {
            assert_eq!(stands?, JobStatus::Pending);
        }
        for one in &all {
            assert_eq!(status_of(&env, &one.job, LIMIT).await?, JobStatus::Pending);
        }
        let db = open(&env, options()).await?;
        let seq = db.ingest(&all[3]).await?.seq();
        db.flush_memtable().await?;
        for one in &all {
            assert_eq!(status_of(&env, &one.job, LIMIT).await?, JobStatus::Adopted(seq));
            assert_eq!(one.submit(&env, true, LIMIT).await?, JobStatus::Adopted(seq));
        }
        db.close().await
    });
    // A request to another database.
    let other = Place::of(8);
    let job = place.run("late", |env| async move { Ok(version_of(&env, 9, b"y").await?.job) });
    let refused = other.run("elsewhere", |env| async move {
        open(&env, options()).await?.close().await?;
        Ok(status_of(&env, &job, LIMIT).await.unwrap_err())
    });
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
}
