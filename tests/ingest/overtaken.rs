//! Writers that are overtaken without knowing it, and their answers about jobs.

use super::*;
use parking_lot::Mutex;
use siltstone::ErrorKind;
use siltstone_tests::gc;

/// A handle whose successor adopted a job does not report that it shows the job.
#[test]
fn an_overtaken_writer_does_not_claim_the_job_of_its_successor() {
    let place = Place::new();
    let (slept, env) = place.process("slept");
    let held = env.clone();
    let db = place.sim.block_on(slept, async move {
        let db = open(&held, options()).await?;
        put(&db, 1, b"own").await?;
        db.flush_memtable().await?;
        Ok::<_, siltstone::Error>(db)
    });
    let db = db.unwrap().unwrap();
    place.sim.pause(slept);
    let request = place.run("successor", |env| async move {
        let db = open(&env, options()).await?;
        let request = job_of(&env, rows(3..9, b"bulk")).await?;
        db.ingest(&request).await?.wait(None).await?;
        db.flush_memtable().await?;
        db.close().await?;
        Ok(request)
    });
    place.sim.resume(slept);
    let asked = place.sim.block_on(slept, async move {
        let asked = db.ingest(&request).await.map(|commit| commit.seq());
        (asked, db.snapshot().map(|snapshot| snapshot.seq()))
    });
    let (asked, shown) = asked.unwrap();
    let error = asked.expect_err(&format!("it shows up to {shown:?}"));
    assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
}

/// A writer that is overtaken between its claim and its replay may find the tables of an adopted
/// job collected: its successor has installed it. That is not damage.
#[test]
fn a_writer_that_is_overtaken_while_it_opens_finds_no_damage() {
    let mut fenced = 0;
    for millis in (0..300).step_by(2) {
        let place = Place::of(millis);
        let (first, env) = place.process("first");
        let held = env.clone();
        let queued = place.sim.block_on(first, async move {
            let db = open(&held, slow()).await?;
            put(&db, 1, b"own").await?;
            db.flush_memtable().await?;
            let request = job_of(&held, rows(3..9, b"bulk")).await?;
            db.ingest(&request).await?.wait(None).await
        });
        queued.unwrap().unwrap();
        place.sim.kill(first);
        let (opener, env) = place.process("opener");
        let opened = Arc::new(Mutex::new(None));
        let found = Arc::clone(&opened);
        place.sim.spawn(opener, "opener", async move {
            let db = open(&env, options()).await;
            *found.lock() = Some(db.map(drop));
        });
        place.sim.run_for(Duration::from_millis(millis)).expect("time goes on");
        place.sim.pause(opener);
        place.run("successor", |env| async move {
            let db = open(&env, options()).await?;
            db.flush_memtable().await?;
            db.close().await
        });
        place.run("collector", |env| async move { gc::round(&env).await });
        place.sim.resume(opener);
        place.sim.run_for(Duration::from_secs(60)).expect("time goes on");
        let opened = opened.lock().take().expect("it ends");
        if let Err(error) = opened {
            assert_eq!(error.kind(), ErrorKind::Fenced, "paused after {millis} ms: {error}");
            fenced += 1;
        }
    }
    assert!(fenced > 0, "no writer was overtaken");
}
