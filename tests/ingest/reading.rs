//! Jobs of other processes in an open writer: all kinds of reads, before and after the install.

use super::*;
use siltstone::{CheckpointOptions, CheckpointScope, ReadAt, Reader, ReaderOptions, admin};

/// Two tasks of other processes stage parts; the writer adopts them between its own puts, and
/// neither its reads nor its log wait for a flush.
#[test]
fn a_job_becomes_visible_whole_between_two_puts() {
    let place = Place::new();
    place.run("maker", |env| async move { open(&env, options()).await?.close().await });
    let job = place.run("driver", |env| async move { begin(&env).await });
    let parts: Vec<StagedPart> = [0..40, 40..80]
        .into_iter()
        .map(|keys| {
            let job = job.clone();
            place.run("task", |env| async move { stage(&env, &job, rows(keys, b"bulk")).await })
        })
        .collect();
    assert!(parts.iter().all(|part| part.tables() > 1 && part.rows() == 40));
    let request = place.run("driver", |env| async move { job.commit(&env, &parts, LIMIT).await });
    assert_eq!((request.rows, request.tables > 2), (80, true));
    place.run("writer", |env| async move {
        let db = open(&env, options()).await?;
        put(&db, 10, b"before").await?;
        put(&db, 90, b"before").await?;
        let before = db.snapshot()?;
        let commit = db.ingest(&request).await?;
        put(&db, 20, b"after").await?;
        let among = db.snapshot()?;
        let mut model: BTreeMap<u32, Vec<u8>> = (0..80).map(|n| (n, b"bulk".to_vec())).collect();
        model.extend([(20, b"after".to_vec()), (90, b"before".to_vec())]);
        let expected = pairs(&model);
        assert_eq!(all_of(among.scan(everything())).await?, expected);
        let old: Pairs = [10, 90].map(|n| (key(n), b"before".to_vec())).to_vec();
        assert_eq!(all_of(before.scan(everything())).await?, old);
        // A repeated request gets the same answer.
        assert_eq!(db.ingest(&request).await?.seq(), commit.seq());
        commit.wait(None).await?;
        db.flush_memtable().await?;
        assert_eq!(db.ingest(&request).await?.seq(), commit.seq());
        // After compaction and collection, tables pinned in the queue are still read (Q3).
        db.compact().await?;
        siltstone_tests::gc::round(&env).await?;
        assert_eq!(all_of(among.scan(everything())).await?, expected);
        assert_eq!(all_of(before.scan(everything())).await?, old);
        for (n, value) in &model {
            let found = among.get(&key(*n))?.wait().await?;
            assert_eq!(found.as_deref(), Some(value.as_slice()));
        }
        drop((before, among));
        db.close().await?;
        let db = open(&env, options()).await?;
        assert_eq!(all_of(db.scan(everything())?).await?, expected);
        db.close().await
    });
}

/// A table, a memtable, an ingest over it, and a memtable over that; nothing more is flushed.
async fn queued(env: &Env) -> Result<(Database, BTreeMap<u32, Vec<u8>>)> {
    let db = open(env, slow()).await?;
    for n in 0..10 {
        put(&db, n, b"table").await?;
    }
    db.flush_memtable().await?;
    for n in 3..13 {
        put(&db, n, b"old memtable").await?;
    }
    let mut staged = rows(6..20, b"ingested");
    staged.push((4, None));
    let request = job_of(env, staged).await?;
    let commit = db.ingest(&request).await?;
    for n in 9..11 {
        put(&db, n, b"new memtable").await?;
    }
    let _ = db.delete_range(&key(12), &key(14))?;
    commit.wait(None).await?;
    db.flush().await?;
    let mut model = BTreeMap::new();
    let mut set = |keys: std::ops::Range<u32>, value: &[u8]| {
        model.extend(keys.map(|n| (n, value.to_vec())));
    };
    set(0..10, b"table");
    set(3..13, b"old memtable");
    set(6..20, b"ingested");
    set(9..11, b"new memtable");
    model.retain(|n, _| ![4, 12, 13].contains(n));
    Ok((db, model))
}

/// Q1 to Q5: while it is queued, look-ups of every kind, readers that follow, readers at a
/// checkpoint, and processes that replay the log.
#[test]
fn queued_ingests_read_alike_everywhere() {
    let place = Place::new();
    place.run("all", |env| async move {
        let (db, model) = queued(&env).await?;
        let expected = pairs(&model);
        assert_eq!(db.stats().frozen_memtables, 1, "it was flushed");
        let told = siltstone::verify::verify(&env, LIMIT, &siltstone::Progress::default()).await?;
        assert!(told.problems.is_empty(), "{:?}", told.problems);
        assert_eq!(all_of(db.scan(everything())?).await?, expected);
        let keys: Vec<Vec<u8>> = (0..22).map(key).collect();
        let found = db.get_many(keys)?.wait().await?;
        for n in 0..22u32 {
            let expected = model.get(&n).map(Vec::as_slice);
            assert_eq!(db.get(&key(n))?.wait().await?.as_deref(), expected, "{n}");
            assert_eq!(found[n as usize].as_deref(), expected, "{n}");
        }
        let mut back = all_of(db.scan(ScanRange { reverse: true, ..everything() })?).await?;
        back.reverse();
        assert_eq!(back, expected);
        let how = ReaderOptions { options: options(), ..ReaderOptions::default() };
        let reader = Reader::open(env.clone(), how.clone()).await?;
        assert_eq!(all_of(reader.scan(everything())?).await?, expected);
        // Created from outside it contains the log as it is.
        let made = CheckpointOptions::default();
        let checkpoint = admin::create_checkpoint(&env, &made, LIMIT).await?;
        let at = ReadAt::Checkpoint(checkpoint.id.into());
        let pinned = Reader::open(env.clone(), ReaderOptions { at: Some(at), ..how }).await?;
        assert_eq!(all_of(pinned.scan(everything())?).await?, expected);
        for n in 0..22u32 {
            let expected = model.get(&n).map(Vec::as_slice);
            assert_eq!(reader.get(&key(n))?.wait().await?.as_deref(), expected, "{n}");
        }
        std::mem::forget(db);
        // The next writer finds it in its log, and installs it.
        let db = open(&env, options()).await?;
        assert_eq!(all_of(db.scan(everything())?).await?, expected);
        db.flush_memtable().await?;
        assert_eq!(all_of(db.scan(everything())?).await?, expected);
        db.compact().await?;
        siltstone_tests::gc::round(&env).await?;
        assert_eq!(all_of(db.scan(everything())?).await?, expected);
        // Objects that the checkpoint's log names are kept for it (N14).
        let at = ReadAt::Checkpoint(checkpoint.id.into());
        let how = ReaderOptions { options: options(), ..ReaderOptions::default() };
        let pinned = Reader::open(env.clone(), ReaderOptions { at: Some(at), ..how }).await?;
        assert_eq!(all_of(pinned.scan(everything())?).await?, expected);
        db.close().await
    });
}

/// A checkpoint contains the log as it is, and waits for no flush: a queued job is part of it, and
/// is restored with it (rule N14).
#[test]
fn a_checkpoint_holds_what_is_queued() {
    for scope in [CheckpointScope::Durable, CheckpointScope::default()] {
        let place = Place::new();
        place.run("all", move |env| async move {
            let (db, model) = queued(&env).await?;
            db.flush().await?;
            let how = CheckpointOptions { scope, ..CheckpointOptions::default() };
            let outside = admin::create_checkpoint(&env, &how, LIMIT).await?;
            let made = db.checkpoint(&how).await?;
            assert_eq!(db.stats().frozen_memtables, 1, "it is queued still");
            let _ = db.delete_range(&key(0), &key(30))?;
            db.close().await?;
            for checkpoint in [made, outside] {
                admin::restore(&env, &checkpoint.id.into(), &options()).await?;
                let db = open(&env, options()).await?;
                assert_eq!(all_of(db.scan(everything())?).await?, pairs(&model));
                let _ = db.delete_range(&key(0), &key(30))?;
                db.close().await?;
            }
            Ok(())
        });
    }
}

/// A reader with a lease on a state before the request moves to a version that shows it.
#[test]
fn a_reader_that_follows_comes_to_it() {
    let place = Place::new();
    place.run("all", |env| async move {
        let db = open(&env, slow()).await?;
        put(&db, 1, b"table").await?;
        db.flush_memtable().await?;
        let how = ReaderOptions { options: options(), ..ReaderOptions::default() };
        let reader = Reader::open(env.clone(), how).await?;
        let request = job_of(&env, rows(0..3, b"ingested")).await?;
        db.ingest(&request).await?.wait(None).await?;
        put(&db, 2, b"later").await?;
        db.flush().await?;
        reader.refresh().await?;
        let expected = [(0, b"ingested".as_slice()), (1, b"ingested"), (2, b"later")];
        let expected: Pairs = expected.map(|(n, value)| (key(n), value.to_vec())).to_vec();
        assert_eq!(all_of(reader.scan(everything())?).await?, expected);
        db.close().await?;
        reader.refresh().await?;
        assert_eq!(all_of(reader.scan(everything())?).await?, expected);
        Ok(())
    });
}
