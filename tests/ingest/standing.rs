//! The fate of jobs: left for a writer elsewhere, requested twice, aborted, refused, abandoned.

use super::*;
use siltstone::ErrorKind;
use siltstone::gc::GcOptions;
use siltstone::ingest::{forget_app, status};
use siltstone::{JobStatus, admin};

/// N9, N12: the request is in the manifest, and the writer finds it within its poll interval.
#[test]
fn a_request_is_left_for_the_writer_elsewhere() {
    let place = Place::new();
    let (writer, env) = place.process("writer");
    let held = env.clone();
    let db = place.sim.block_on(writer, async move {
        let db = open(&held, options()).await?;
        put(&db, 1, b"own").await?;
        // It has learned of jobs before.
        let first = job_of(&held, rows(50..51, b"first")).await?;
        db.ingest(&first).await?.wait(None).await?;
        Ok::<_, siltstone::Error>(db)
    });
    let db = db.unwrap().unwrap();
    let standing = place.run("elsewhere", |env| async move {
        let request = job_of(&env, rows(0..5, b"bulk")).await?;
        assert_eq!(status(&env, request.job.id, LIMIT).await?, JobStatus::Open);
        let standing = request.submit(&env, true, LIMIT).await?;
        // Repeated by another process.
        assert_eq!(request.submit(&env, true, LIMIT).await?, standing);
        Ok(standing)
    });
    assert!(matches!(standing, JobStatus::Adopted(_)), "{standing:?}");
    let rows = place.sim.block_on(writer, async move {
        let rows = all_of(db.scan(everything())?).await?;
        db.close().await?;
        Ok::<_, siltstone::Error>(rows)
    });
    assert_eq!(rows.unwrap().unwrap().len(), 6);
}

/// N9: a writer that only serves reads, and never learned of a job, finds the first one.
#[test]
fn the_first_request_is_found_by_a_writer_that_does_nothing() {
    for (interval, found) in [(Some(10), true), (Some(2), true), (None, false)] {
        let place = Place::new();
        let (writer, env) = place.process("writer");
        let db = place.sim.block_on(writer, async move {
            let ingest_poll_interval = interval.map(Duration::from_secs);
            let writes = Writes { ingest_poll_interval, ..options().writes };
            let db = open(&env, Options { writes, ..options() }).await?;
            put(&db, 1, b"own").await?;
            db.flush_memtable().await?;
            env.clock.sleep(Duration::from_secs(100)).await;
            Ok::<_, siltstone::Error>(db)
        });
        let db = db.unwrap().unwrap();
        let took = place.run("elsewhere", |env| async move {
            let request = job_of(&env, rows(0..5, b"bulk")).await?;
            let began = env.clock.monotonic();
            let stood = request.submit(&env, true, LIMIT).await;
            let took = env.clock.monotonic() - began;
            Ok(matches!(stood, Ok(JobStatus::Adopted(_))).then_some(took))
        });
        assert_eq!(took.is_some(), found, "{interval:?}");
        if let (Some(took), Some(interval)) = (took, interval) {
            assert!(took <= Duration::from_secs(interval + 2), "{took:?}");
        }
        place.sim.block_on(writer, async move { db.close().await }).unwrap().unwrap();
    }
}

/// L0 is at the threshold of its compaction, and one layer below its limit. The job's layers do not
/// fit, and no compaction is due that would make room: the job is adopted nevertheless.
#[test]
fn a_job_does_not_wait_for_a_compaction_that_is_not_due() {
    let place = Place::new();
    place.run("writer", |env| async move {
        let mut options = Options { embedded_compactor: true, ..options() };
        options.compaction.l0_compaction_threshold_ssts = 4;
        options.compaction.l0_max_ssts = 5;
        let db = open(&env, options).await?;
        // One row of every table overlaps those of the job.
        for n in 0..4_u8 {
            put(&db, 2, &[n; 10]).await?;
            db.flush_memtable().await?;
        }
        assert_eq!(db.stats().l0_entries, 4);
        let job = begin(&env).await?;
        let mut parts = Vec::new();
        for value in [b"below", b"above"] {
            parts.push(stage(&env, &job, rows(0..5, value)).await?);
        }
        let request = job.commit(&env, &parts, LIMIT).await?;
        let submitted = db.ingest(&request);
        let taken = env.clock.sleep(Duration::from_secs(60));
        match futures::future::select(Box::pin(submitted), taken).await {
            futures::future::Either::Left((done, _)) => done?.wait(None).await?,
            futures::future::Either::Right(_) => panic!("it waits for ever: {:?}", db.stats()),
        }
        db.close().await
    });
}

/// No writer is open: the next one adopts pending jobs.
#[test]
fn the_next_writer_takes_in_what_waits() {
    let place = Place::new();
    place.run("all", |env| async move {
        open(&env, options()).await?.close().await?;
        let request = job_of(&env, rows(0..5, b"bulk")).await?;
        assert_eq!(request.submit(&env, false, LIMIT).await?, JobStatus::Pending);
        let waited = request.submit(&env, true, Duration::from_secs(1)).await;
        assert_eq!(waited.unwrap_err().kind(), ErrorKind::Timeout);
        let db = open(&env, options()).await?;
        db.ingest(&request).await?.wait(None).await?;
        assert_eq!(all_of(db.scan(everything())?).await?.len(), 5);
        db.close().await?;
        let JobStatus::Adopted(seq) = status(&env, request.job.id, LIMIT).await? else {
            panic!("adopted")
        };
        assert_eq!(seq.get(), 1);
        Ok(())
    });
}

#[test]
fn two_drivers_close_one_job() {
    let place = Place::new();
    place.run("all", |env| async move {
        let db = open(&env, options()).await?;
        let job = begin(&env).await?;
        let first = stage(&env, &job, rows(0..3, b"first")).await?;
        let second = stage(&env, &job, rows(3..9, b"second")).await?;
        let one = job.commit(&env, std::slice::from_ref(&first), LIMIT).await?;
        let other = job.commit(&env, &[first.clone(), second], LIMIT).await?;
        assert_eq!((one.attempt, other.rows), (other.attempt, 3));
        db.ingest(&other).await?;
        db.ingest(&one).await?;
        assert_eq!(all_of(db.scan(everything())?).await?.len(), 3);
        // Input that cannot be a job's.
        let none = job.commit(&env, &[], LIMIT).await.unwrap_err();
        let twice = job.commit(&env, &[first.clone(), first], LIMIT).await.unwrap_err();
        assert_eq!([none.kind(), twice.kind()], [ErrorKind::Invalid; 2]);
        db.close().await
    });
}

/// A closing object that was damaged in transit is read once more: the stored object is intact.
#[test]
fn a_repeated_close_sees_through_a_damaged_read() {
    for seed in 1..=12 {
        let place = Place::of(seed);
        let bucket = Arc::clone(&place.bucket);
        place.run("all", |env| async move {
            open(&env, options()).await?.close().await?;
            let [job, given_up] = [begin(&env).await?, begin(&env).await?];
            let part = stage(&env, &job, rows(0..3, b"first")).await?;
            let other = stage(&env, &job, rows(3..9, b"second")).await?;
            let first = job.commit(&env, &[part], LIMIT).await?;
            assert_eq!(given_up.abort(&env, LIMIT).await?, JobStatus::Withdrawn);
            // A read after a damaged one is correct.
            bucket.set_plan(FaultPlan::none().with(Fault::GetFlippedBit, 1000));
            let again = job.commit(&env, &[other], LIMIT).await?;
            assert_eq!((again.attempt, again.rows), (first.attempt, 3));
            assert_eq!(given_up.abort(&env, LIMIT).await?, JobStatus::Withdrawn);
            assert_eq!(job.abort(&env, LIMIT).await?, JobStatus::Withdrawn);
            bucket.heal();
            Ok(())
        });
    }
}

/// The later part's row counts if keys are equal, and within a part the last row.
#[test]
fn parts_that_share_keys_lie_above_each_other() {
    let place = Place::new();
    place.run("all", |env| async move {
        let db = open(&env, options()).await?;
        let job = begin(&env).await?;
        let mut parts = Vec::new();
        for (keys, value) in [(0..9, b"1"), (4..12, b"2"), (2..6, b"3")] {
            let twice = rows(keys.clone(), b"old").into_iter().chain(rows(keys, value));
            parts.push(stage(&env, &job, twice).await?);
        }
        let request = job.commit(&env, &parts, LIMIT).await?;
        let commit = db.ingest(&request).await?;
        let expected = |n: u32| match n {
            2..6 => b"3",
            6..12 => b"2",
            _ => b"1",
        };
        let expected: Pairs = (0..12).map(|n| (key(n), expected(n).to_vec())).collect();
        assert!(commit.seq().get() >= 3);
        assert_eq!(all_of(db.scan(everything())?).await?, expected);
        db.flush_memtable().await?;
        assert_eq!(all_of(db.scan(everything())?).await?, expected);
        db.compact().await?;
        assert_eq!(all_of(db.scan(everything())?).await?, expected);
        db.close().await
    });
}

#[test]
fn an_abort_ends_only_unrequested_jobs() {
    let place = Place::new();
    place.run("all", |env| async move {
        let db = open(&env, options()).await?;
        let open_job = begin(&env).await?;
        let part = stage(&env, &open_job, rows(0..3, b"x")).await?;
        assert_eq!(open_job.abort(&env, LIMIT).await?, JobStatus::Withdrawn);
        let closed = open_job.commit(&env, &[part], LIMIT).await.unwrap_err();
        assert_eq!(closed.kind(), ErrorKind::Conflict);
        let request = job_of(&env, rows(0..3, b"x")).await?;
        assert_eq!(request.job.abort(&env, LIMIT).await?, JobStatus::Withdrawn);
        assert_eq!(db.ingest(&request).await.unwrap_err().kind(), ErrorKind::Conflict);
        let request = job_of(&env, rows(0..3, b"x")).await?;
        let commit = db.ingest(&request).await?;
        db.flush_memtable().await?;
        assert_eq!(request.job.abort(&env, LIMIT).await?, JobStatus::Adopted(commit.seq()));
        assert_eq!(all_of(db.scan(everything())?).await?.len(), 3);
        db.close().await
    });
}

/// The writer continues, and reports the missing object.
#[test]
fn a_job_with_a_missing_table_is_refused() {
    let place = Place::new();
    let (process, env) = place.process("writer");
    let bucket = Arc::clone(&place.bucket);
    let done = place.sim.block_on(process, async move {
        let db = open(&env, options()).await?;
        let request = job_of(&env, rows(0..30, b"x")).await?;
        let staged = bucket.objects().into_iter().map(|(name, _)| name);
        let table = staged.filter(|name| name.to_string().starts_with("ingest/")).max();
        bucket.remove(table.expect("staged"));
        let error = db.ingest(&request).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("is missing"), "{error}");
        let again = db.ingest(&request).await.unwrap_err();
        assert!(again.to_string().contains("is missing"), "{again}");
        put(&db, 1, b"goes on").await?;
        assert_eq!(all_of(db.scan(everything())?).await?.len(), 1);
        db.close().await
    });
    done.unwrap().unwrap();
}

/// N11: a restarted stream stages its batch under a new job; it is adopted once, permanently.
#[test]
fn a_version_of_an_application_is_taken_in_once() {
    let place = Place::new();
    place.run("all", |env| async move {
        let db = open(&env, options()).await?;
        let of = |version, value: &'static [u8]| version_of(&env, version, value);
        let seven = db.ingest(&of(7, b"7").await?).await?;
        let again = db.ingest(&of(7, b"again").await?).await?;
        assert_eq!(again.seq(), seven.seq());
        db.flush_memtable().await?;
        let again = of(7, b"again").await?.submit(&env, true, LIMIT).await?;
        assert_eq!(again, JobStatus::Adopted(seven.seq()));
        let lower = db.ingest(&of(6, b"6").await?).await.unwrap_err();
        assert_eq!(lower.kind(), ErrorKind::Conflict, "{lower}");
        db.ingest(&of(8, b"8").await?).await?;
        let expected: Pairs = (0..2).map(|n| (key(n), b"8".to_vec())).collect();
        assert_eq!(all_of(db.scan(everything())?).await?, expected);
        db.flush_memtable().await?;
        forget_app(&env, "stream", LIMIT).await?;
        db.ingest(&of(1, b"1").await?).await?;
        db.close().await
    });
}

/// An abort is remembered: staged objects are deleted in the next round, and a process that closes
/// the job after all of it is gone requests in vain.
#[test]
fn tables_of_an_aborted_job_are_collected_at_once() {
    let place = Place::new();
    let (job, part) = place.run("maker", |env| async move {
        open(&env, options()).await?.close().await?;
        let job = begin(&env).await?;
        let part = stage(&env, &job, rows(0..3, b"x")).await?;
        assert_eq!(job.abort(&env, LIMIT).await?, JobStatus::Withdrawn);
        assert_eq!(status(&env, job.id, LIMIT).await?, JobStatus::Withdrawn);
        Ok((job, part))
    });
    assert_eq!(place.staged(), 2, "a table, and the object that closed the job");
    place.run("collector", |env| async move {
        siltstone::gc::once(&env, &siltstone_tests::gc::AT_ONCE, false).await.map(drop)
    });
    assert_eq!(place.staged(), 0);
    place.run("late", |env| async move {
        let late = job.commit(&env, &[part], LIMIT).await?;
        let refused = late.submit(&env, false, LIMIT).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
        assert_eq!(job.abort(&env, LIMIT).await?, JobStatus::Withdrawn);
        Ok(())
    });
}

/// N10: objects of an unrequested job are deleted after its deadline, and not before; those of a
/// requested one never are.
#[test]
fn tables_of_an_abandoned_job_are_collected() {
    let place = Place::new();
    let grace = |hours: u64| GcOptions {
        min_age: Duration::from_secs(3600 * hours),
        ..siltstone_tests::gc::AT_ONCE
    };
    place.run("maker", |env| async move {
        let db = open(&env, options()).await?;
        let short = Duration::from_secs(3600);
        let given_up = IngestJob::begin(&env, short, None, LIMIT).await?;
        stage(&env, &given_up, rows(0..3, b"x")).await?;
        let closed = IngestJob::begin(&env, short, None, LIMIT).await?;
        let part = stage(&env, &closed, rows(3..6, b"x")).await?;
        closed.commit(&env, &[part], LIMIT).await?;
        let kept = IngestJob::begin(&env, short, None, LIMIT).await?;
        let part = stage(&env, &kept, rows(6..9, b"kept")).await?;
        let request = kept.commit(&env, &[part], LIMIT).await?;
        db.ingest(&request).await?.wait(None).await?;
        db.close().await
    });
    let before = place.staged();
    let collect = |hours| {
        place.run("collector", |env| async move {
            siltstone::gc::once(&env, &grace(hours), false).await.map(drop)
        });
    };
    collect(0);
    // The closing object of the adopted job.
    assert_eq!(place.staged(), before - 1);
    place.sim.run_for(Duration::from_secs(2 * 3600)).expect("nothing happens");
    collect(2);
    assert_eq!(place.staged(), before - 1, "its deadline is over for less than the grace");
    collect(0);
    assert_eq!(place.staged(), 1, "a table of the job that was asked for");
    place.run("reader", |env| async move {
        let newest = admin::manifest(&env, None, LIMIT).await?;
        assert!(newest.ingest_horizon.0 > 0 && newest.remembered_ingests.is_empty());
        let db = open(&env, options()).await?;
        assert_eq!(all_of(db.scan(everything())?).await?.len(), 3);
        db.close().await
    });
}

/// A job that was staged for an undone state is not adopted.
#[test]
fn a_restore_ends_jobs_of_before() {
    let place = Place::new();
    place.run("all", |env| async move {
        let db = open(&env, options()).await?;
        put(&db, 1, b"kept").await?;
        db.flush_memtable().await?;
        let checkpoint = db.checkpoint(&siltstone::CheckpointOptions::default()).await?;
        let request = job_of(&env, rows(0..3, b"x")).await?;
        db.close().await?;
        admin::restore(&env, &checkpoint.id.into(), &options()).await?;
        let error = request.submit(&env, false, LIMIT).await.unwrap_err();
        assert!(error.to_string().contains("restored"), "{error}");
        Ok(())
    });
}

/// A close beside a job succeeds: the job is adopted by then, or waits for the next writer.
#[test]
fn a_close_beside_a_job_ends_well() {
    let place = Place::new();
    place.run("all", |env| async move {
        open(&env, options()).await?.close().await?;
        let mut left = 0;
        for millis in 0..40u64 {
            let db = open(&env, options()).await?;
            put(&db, 1, b"x").await?;
            let request = job_of(&env, rows(0..3, b"x")).await?;
            let pause = env.clock.sleep(Duration::from_millis(millis));
            let closes = async {
                pause.await;
                db.close().await
            };
            let (taken, closed) = futures::join!(db.ingest(&request), closes);
            closed?;
            let stands = status(&env, request.job.id, LIMIT).await?;
            left += usize::from(stands == JobStatus::Pending);
            match stands {
                JobStatus::Open | JobStatus::Pending => assert!(taken.is_err(), "{millis}"),
                JobStatus::Adopted(_) => {}
                other => panic!("{millis}: {other:?}"),
            }
            let db = open(&env, options()).await?;
            db.ingest(&request).await?.wait(None).await?;
            db.close().await?;
        }
        assert!(left > 0, "no close came in between");
        Ok(())
    });
}
