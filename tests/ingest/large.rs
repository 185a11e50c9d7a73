//! Large batches (RFC 0044): written as tables before they are accepted, read everywhere, replayed,
//! with a crash at every request.

use super::*;
use parking_lot::Mutex;
use siltstone::changes::{self, ChangesFrom, ChangesOptions};
use siltstone::{Batch, Reader, ReaderOptions};
use siltstone_tests::faults::CrashPoint;
use siltstone_tests::sim::Stopped;

/// The size from which on a batch of these tests skips the memtable.
pub(crate) const LARGE_BYTES: usize = 200;

/// A batch: `None` deletes.
pub(crate) fn batch_of(rows: &[(u32, Option<Vec<u8>>)]) -> Result<Batch> {
    let mut batch = Batch::new();
    for (n, value) in rows {
        match value {
            Some(value) => batch.put(&key(*n), value, None)?,
            None => batch.delete(&key(*n))?,
        }
    }
    Ok(batch)
}

/// Writes a batch either way; returns whether it skipped the memtable.
pub(crate) async fn write(db: &Database, batch: &Batch) -> Result<bool> {
    match db.write_large(batch)? {
        Some(large) => large.await.map(|_| true),
        None => accepted(|| db.write(batch)).await.map(|()| false),
    }
}

/// Many rows, among them two with one key, of which the last counts.
fn many() -> Result<Batch> {
    let mut all = rows(3..40, b"bulk");
    all.insert(0, (5, Some(b"overwritten".to_vec())));
    all.push((4, None));
    batch_of(&all)
}

/// The writes that the writer acknowledged before it died.
type Acknowledged = Arc<Mutex<usize>>;

async fn dying(env: Env, acknowledged: Acknowledged) -> Result<()> {
    let db = open(&env, options()).await?;
    for n in 0..6 {
        put(&db, n, b"before").await?;
    }
    db.flush().await?;
    *acknowledged.lock() = 6;
    let Some(large) = db.write_large(&many()?)? else { panic!("it is large") };
    large.await?.wait(None).await?;
    *acknowledged.lock() = 7;
    put(&db, 3, b"after").await?;
    db.flush().await?;
    *acknowledged.lock() = 8;
    db.flush_memtable().await?;
    db.compact().await?;
    db.close().await
}

/// The possible states for a prefix of the history.
fn prefixes() -> Vec<Pairs> {
    let mut model = BTreeMap::new();
    let mut all = vec![Pairs::new()];
    for n in 0..6 {
        model.insert(n, b"before".to_vec());
        all.push(pairs(&model));
    }
    model.extend((3..40).map(|n| (n, b"bulk".to_vec())));
    model.remove(&4);
    all.push(pairs(&model));
    model.insert(3, b"after".to_vec());
    all.push(pairs(&model));
    all
}

/// Returns the number of operations of the dying process.
fn run(place: &Place, crash: Option<(u64, CrashPoint)>, faults: Option<FaultPlan>) -> u64 {
    place.run("maker", |env| async move { open(&env, options()).await?.close().await });
    let (process, env) = place.process("dying");
    if let Some((operation, point)) = crash {
        place.bucket.crash_at(process, operation, point);
    }
    let healthy = faults.is_none();
    faults.into_iter().for_each(|plan| place.bucket.set_plan(plan));
    let acknowledged = Acknowledged::default();
    match place.sim.block_on(process, dying(env, Arc::clone(&acknowledged))) {
        Ok(Ok(())) | Err(Stopped::Killed) => {}
        Ok(Err(error)) => assert!(!healthy, "crash {crash:?}: {error}"),
        Err(stopped) => panic!("crash {crash:?}: it hangs: {stopped:?}"),
    }
    let operations = place.bucket.operations(process);
    place.sim.kill(process);
    place.bucket.heal();
    let least = *acknowledged.lock();
    let told = format!("seed {}, crash {crash:?}, {least} acknowledged", place.sim.seed());
    place.run("collector", |env| async move { siltstone_tests::gc::round(&env).await });
    // One successor that dies after its replay, and one that continues, with a collector after
    // each.
    for last in [false, true] {
        let told = told.clone();
        place.run("next", |env| async move {
            let db = open(&env, options()).await?;
            let found = all_of(db.scan(everything())?).await?;
            let state = prefixes().iter().position(|state| *state == found);
            assert!(state.is_some_and(|state| state >= least), "{told}: {found:?}");
            siltstone_tests::gc::round(&env).await?;
            if !last {
                std::mem::forget(db);
                return Ok(());
            }
            db.flush_memtable().await?;
            siltstone_tests::gc::round(&env).await?;
            assert_eq!(all_of(db.scan(everything())?).await?, found, "{told}");
            db.close().await
        });
    }
    place.run("verifier", |env| async move {
        let report =
            siltstone::verify::verify(&env, LIMIT, &siltstone::Progress::default()).await?;
        assert!(report.is_ok(), "{told}: {report:?}");
        Ok(())
    });
    operations
}

#[test]
fn a_writer_of_large_batches_may_die_at_any_request() {
    let operations = run(&Place::new(), None, None);
    assert!(operations > 20, "{operations}");
    for operation in 1..=operations {
        for point in [CrashPoint::Before, CrashPoint::AnswerLost, CrashPoint::After] {
            run(&Place::new(), Some((operation, point)), None);
        }
    }
    println!("{operations} operations");
}

#[test]
fn a_writer_of_large_batches_may_die_beside_a_store_that_fails() {
    let seeds = std::env::var("INGEST_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    for seed in 1..=seeds.unwrap_or(40u64) {
        let place = Place::of(seed);
        let mut rng = place.sim.split_rng();
        let plan = FaultPlan::random(&mut rng);
        let point = match rng.below(3) {
            0 => CrashPoint::Before,
            1 => CrashPoint::AnswerLost,
            _ => CrashPoint::After,
        };
        run(&place, Some((1 + rng.below(60), point)), Some(plan));
    }
}

/// Visible when it is accepted, in the order of other writes, before and after its install; an
/// existing reader sees it too, and a feed has each key once.
#[test]
fn a_large_batch_is_read_everywhere() {
    let place = Place::new();
    place.run("writer", |env| async move {
        let db = open(&env, slow()).await?;
        put(&db, 1, b"before").await?;
        db.flush_memtable().await?;
        let how = ReaderOptions { options: options(), ..ReaderOptions::default() };
        let reader = Reader::open(env.clone(), how).await?;
        put(&db, 3, b"before").await?;
        let before = db.snapshot()?;
        assert!(write(&db, &many()?).await?);
        put(&db, 7, b"after").await?;
        let mut model: BTreeMap<u32, Vec<u8>> = (3..40).map(|n| (n, b"bulk".to_vec())).collect();
        model.extend([(1, b"before".to_vec()), (7, b"after".to_vec())]);
        model.remove(&4);
        let expected = pairs(&model);
        assert_eq!(all_of(db.scan(everything())?).await?, expected);
        let old: Pairs = [1, 3].map(|n| (key(n), b"before".to_vec())).to_vec();
        assert_eq!(all_of(before.scan(everything())).await?, old);
        db.flush().await?;
        // Neither the memtable nor the log contains its rows.
        let stats = db.stats();
        assert_eq!((stats.large_batches, stats.large_batch_bytes > 0), (1, true));
        reader.refresh().await?;
        assert_eq!(all_of(reader.scan(everything())?).await?, expected);
        let mut feed = changes::changes(
            &env,
            ChangesOptions {
                since: ChangesFrom::Oldest,
                consumer: None,
                until: None,
                before: None,
            },
            LIMIT,
        )
        .await?;
        let mut told = 0;
        while let Some(rows) = feed.read(1_000, 1 << 20).await? {
            told += rows.len();
        }
        assert_eq!(told, 2 + 37 + 1);
        drop(before);
        reader.close().await?;
        db.close().await?;
        let db = open(&env, options()).await?;
        let before = db.snapshot()?;
        db.compact().await?;
        siltstone_tests::gc::round(&env).await?;
        assert_eq!(all_of(before.scan(everything())).await?, expected);
        assert_eq!(all_of(db.scan(everything())?).await?, expected);
        drop(before);
        db.close().await
    });
}

/// Operands and range deletes go through the memtable, and so do small batches.
#[test]
fn batches_that_one_table_cannot_hold_use_the_memtable() {
    let place = Place::new();
    place.run("writer", |env| async move {
        let db = open(&env, options()).await?;
        let mut deletes = many()?;
        deletes.delete_range(&key(10), &key(20))?;
        assert!(!write(&db, &deletes).await?);
        assert!(!write(&db, &batch_of(&rows(0..2, b"small"))?).await?);
        let mut operands = many()?;
        operands.merge(b"sum", b"1", None)?;
        assert!(db.write_large(&operands)?.is_none());
        assert_eq!(db.stats().large_batches, 0);
        let found = all_of(db.scan(everything())?).await?;
        let keys: Vec<u32> = (0..10).chain(20..40).filter(|n| *n != 2 && *n != 4).collect();
        assert_eq!(found.len(), keys.len());
        db.close().await
    });
}

/// A caller that gives up during the upload has written nothing, and the next one continues.
#[test]
fn a_large_batch_that_is_given_up_is_not_there() {
    let place = Place::new();
    place.run("writer", |env| async move {
        let db = open(&env, options()).await?;
        for millis in (0..240).step_by(6) {
            let Some(large) = db.write_large(&many()?)? else { panic!("it is large") };
            let pause = env.clock.sleep(Duration::from_millis(millis));
            let ended = futures::future::select(large, pause).await;
            let is_there = matches!(ended, futures::future::Either::Left(_));
            drop(ended);
            let found = all_of(db.scan(everything())?).await?;
            assert_eq!(found.len(), if is_there { 36 } else { 0 }, "{millis} ms");
            if is_there {
                accepted(|| db.delete_range(&key(0), &key(99))).await?;
            }
        }
        assert!(db.stats().large_batches > 0);
        db.flush_memtable().await?;
        siltstone_tests::gc::round(&env).await?;
        db.close().await?;
        let report =
            siltstone::verify::verify(&env, LIMIT, &siltstone::Progress::default()).await?;
        assert!(report.is_ok(), "{report:?}");
        Ok(())
    });
}

/// Uploaded tables of a dead writer that no log contains are released once its successor has
/// closed, even if that one wrote and flushed nothing. Before, they stayed until another flush.
#[test]
fn tables_of_a_dead_writer_go_with_a_close() {
    let mut left = 0;
    for millis in (0..400).step_by(10) {
        let place = Place::new();
        let (writer, env) = place.process("writer");
        let lived = place.sim.block_on(writer, async move {
            let db = open(&env, options()).await?;
            put(&db, 1, b"before").await?;
            db.flush_memtable().await?;
            let Some(large) = db.write_large(&many()?)? else { panic!("it is large") };
            let pause = env.clock.sleep(Duration::from_millis(millis));
            drop(futures::future::select(large, pause).await);
            std::mem::forget(db);
            Ok::<_, siltstone::Error>(())
        });
        lived.expect("it ends").expect("a healthy store");
        place.sim.kill(writer);
        let names = place.run("successor", |env| async move {
            let names = |state: Option<Arc<siltstone_manifest::Manifest>>| {
                state.map_or(0, |state| state.left.len())
            };
            let before = names(siltstone_tests::gc::newest(&env).await?);
            open(&env, options()).await?.close().await?;
            Ok((before, names(siltstone_tests::gc::newest(&env).await?)))
        });
        left += usize::from(names.0 > 0);
        assert_eq!(names.1, 0, "after {millis} ms: of {} names some are left", names.0);
    }
    assert!(left > 10, "names were left in {left} of 40");
}
