//! Verification while other processes write, compact, collect, create checkpoints and write large
//! batches. A listing is not a snapshot, but no problem may be reported for a healthy database.

use super::verified;
use super::world::{LIMIT, World, ingest, large, open, options, put};
use futures::future::join;
use siltstone::{CheckpointOptions, Env, Result, admin};
use siltstone_tests::gc::round;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Writes, flushes, compacts, creates and deletes checkpoints.
async fn live(env: &Env, seed: u64) -> Result<()> {
    let db = open(env, options()).await?;
    let mut kept = Vec::new();
    for round in 0..12_u32 {
        put(&db, 0..3, format!("{seed} {round}").as_bytes()).await?;
        match round % 6 {
            1 => large(&db, 20..50, b"large").await?,
            3 => ingest(env, &db, 60..64, b"brought").await?,
            _ => {}
        }
        if round % 3 == 2 {
            kept.push(db.checkpoint(&CheckpointOptions::default()).await?.id);
        }
        if round % 2 == 0 {
            db.flush_memtable().await?;
        }
        if round % 5 == 4 {
            db.compact().await?;
            if !kept.is_empty() {
                admin::delete_checkpoint(env, &kept.remove(0).into(), LIMIT).await?;
            }
        }
    }
    db.close().await
}

/// Returns the number of verifications.
fn beside(seed: u64) -> u64 {
    let world = World::new(seed);
    let counted = world.run(move |env, _| async move {
        open(&env, options()).await?.close().await?;
        let over = AtomicBool::new(false);
        let goes_on = || !over.load(Ordering::Relaxed);
        let written = async {
            let done = live(&env, seed).await;
            over.store(true, Ordering::Relaxed);
            done
        };
        let collected = async {
            while goes_on() {
                round(&env).await?;
                env.clock.sleep(Duration::from_millis(20 + seed % 7)).await;
            }
            Ok::<_, siltstone::Error>(())
        };
        let checked = async {
            let mut times = 0;
            while goes_on() {
                let report = verified(env.clone()).await?;
                assert!(report.is_ok(), "seed {seed}: {:#?}", report.problems);
                times += 1;
            }
            Ok::<_, siltstone::Error>(times)
        };
        let ((written, collected), checked) = join(join(written, collected), checked).await;
        written?;
        collected?;
        checked
    });
    counted.unwrap()
}

#[test]
fn nothing_is_wrong_beside_a_writer_and_a_collector() {
    let times: u64 = (0..60).map(beside).sum();
    println!("verified {times} times");
    assert!(times > 200, "{times}");
}

/// Tables that a clone reads are deleted by the parent's next collection if its pin is missing.
#[test]
fn a_pin_that_is_gone_is_told_by_the_clone() {
    let (world, before) = World::made_from_saved();
    let mut pair = world.objects();
    let whole = world.run(|_, clone| verified(clone)).unwrap();
    assert!(whole.is_ok(), "{:#?}", whole.problems);
    // The parent was replaced by an old copy from before the clone.
    pair.parent = before;
    let told = World::holding(&pair).run(|_, clone| verified(clone)).unwrap();
    let [problem] = &told.problems[..] else { panic!("{:#?}", told.problems) };
    assert!(problem.what.contains("as its pin, which is gone"), "{problem}");
    assert!(problem.what.contains("export the clone"), "{problem}");
    assert!(problem.what.ends_with("(in the ancestor at sim://parent)"), "{problem}");
    // Or by nothing at all.
    pair.parent.clear();
    let told = World::holding(&pair).run(|_, clone| verified(clone)).unwrap();
    let first = &told.problems[0];
    assert!(told.problems.iter().any(|one| one.what.contains("not at its place")), "{first}");
}
