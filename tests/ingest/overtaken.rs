//! Writers that are overtaken by another one while they know nothing of it, and what they say of
//! jobs then.

use super::*;
use siltstone::ErrorKind;

/// A handle whose successor took a job in does not say that it shows it.
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
