//! Loads into the gaps of a compaction's inputs (rule P3): its outputs are cut around what was
//! slotted in, so it ends, however many come.

use super::*;
use siltstone::admin;

/// Rows `first`, `first + 1` and so on, to before `end`.
async fn load(env: &Env, db: &Database, first: u32, end: u32, value: &'static [u8]) -> Result<()> {
    let request = job_of(env, rows(first..end, value)).await?;
    db.ingest(&request).await?.wait(None).await
}

async fn starving(env: Env) -> Result<usize> {
    // Nobody compacts but the call.
    let alone = Options {
        embedded_compactor: false,
        compaction: CompactionOptions { target_sst_bytes: 1 << 20, ..options().compaction },
        ..options()
    };
    let db = open(&env, alone).await?;
    let mut cut = 0;
    for round in 0..4 {
        load(&env, &db, 0, 4, b"low").await?;
        load(&env, &db, 900, 904, b"high").await?;
        db.flush_memtable().await?;
        let loads = async {
            for n in 0..8 {
                let first = 100 * (1 + round) + 10 * n;
                load(&env, &db, first, first + 2, b"between").await?;
            }
            Ok(())
        };
        // A job that met a load was given up, with Conflict.
        let (compacted, loaded) = futures::future::join(db.compact(), loads).await;
        loaded.and(compacted)?;
        let state = admin::manifest(&env, None, LIMIT).await?;
        cut += state.tables().filter(|table| table.is_cut()).count();
        let found = all_of(db.scan(everything())?).await?;
        assert_eq!(found.len(), 8 + 16 * (1 + round as usize), "round {round}");
    }
    // What is seen in parts is read like the rest, and whole after the next.
    db.compact().await?;
    let state = admin::manifest(&env, None, LIMIT).await?;
    assert!(state.tables().all(|table| !table.is_cut()));
    assert_eq!(all_of(db.scan(everything())?).await?.len(), 8 + 16 * 4);
    db.close().await?;
    let report = siltstone::verify::verify(&env, LIMIT, &siltstone::Progress::default()).await?;
    assert!(report.is_ok(), "{report:?}");
    Ok(cut)
}

#[test]
fn loads_into_gaps_starve_no_compaction() {
    let cut: usize = (1..=6).map(|seed| Place::of(seed).run("writer", starving)).sum();
    assert!(cut > 0, "no output was ever cut");
}
