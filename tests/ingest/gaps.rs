//! Loads into the gaps of a compaction's inputs (rule P3): its outputs are cut around the tables
//! placed there, so it ends, for any number of loads.

use super::*;
use siltstone::{CompactorOptions, CompactorProcess, admin};

async fn load(env: &Env, db: &Database, rows: Vec<(u32, Option<Vec<u8>>)>) -> Result<()> {
    db.ingest(&job_of(env, rows).await?).await?.wait(None).await
}

/// Four rows, and a delete that makes reading the table worthwhile.
fn worth_reading(first: u32) -> Vec<(u32, Option<Vec<u8>>)> {
    let mut staged = rows(first..first + 4, b"edge");
    staged.push((first + 4, None));
    staged
}

async fn compactor(env: &Env) -> Result<CompactorProcess> {
    let how = CompactorOptions { options: options(), ..CompactorOptions::default() };
    CompactorProcess::open(env.clone(), how, |_| {}).await
}

#[test]
fn loads_into_gaps_starve_no_compaction() {
    let place = Place::new();
    let (_, other) = place.process("compactor");
    place.run("writer", |env| async move {
        // Only the call compacts.
        let alone = Options { embedded_compactor: false, ..options() };
        let db = open(&env, alone).await?;
        load(&env, &db, worth_reading(0)).await?;
        load(&env, &db, worth_reading(900)).await?;
        db.flush_memtable().await?;
        let plan = compactor(&other).await?.plan(1 << 20).await?;
        let units = plan.units().await?;
        let [unit] = units.as_slice() else { panic!("{} units", units.len()) };
        let made = compactor(&other).await?.run_unit(unit).await?;
        // One output from key 0 to key 903, and eight tables in its middle.
        for n in 10..18 {
            load(&env, &db, rows(10 * n..10 * n + 2, b"between")).await?;
        }
        db.flush_memtable().await?;
        // Before outputs were cut, this was aborted with Conflict.
        assert!(plan.commit(&[made]).await?);
        plan.close().await;
        let state = admin::manifest(&env, None, LIMIT).await?;
        assert_eq!(state.tables().filter(|table| table.is_cut()).count(), 9);
        assert_eq!((state.runs.len(), state.tables().count()), (1, 9 + 8));
        let found = all_of(db.scan(everything())?).await?;
        assert_eq!(found.len(), 8 + 16);
        db.close().await?;
        let report =
            siltstone::verify::verify(&env, LIMIT, &siltstone::Progress::default()).await?;
        assert!(report.is_ok(), "{report:?}");
        // A table with several visible parts is read like the rest, and is whole after the next
        // compaction.
        let db = open(&env, options()).await?;
        db.compact().await?;
        let state = admin::manifest(&env, None, LIMIT).await?;
        assert!(state.tables().all(|table| !table.is_cut()));
        assert_eq!(all_of(db.scan(everything())?).await?, found);
        db.close().await
    });
}
