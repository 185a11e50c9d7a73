//! The possible beginnings and ends of a feed, and errors that end it.

use super::*;
use siltstone::{CheckpointName, admin};

/// Rows 0 to 9, in separate commits.
async fn filled(env: &Env) -> Result<Database> {
    let db = open(env).await?;
    for n in 0..10 {
        put(&db, n, b"first").await?;
    }
    db.flush().await?;
    Ok(db)
}

fn kind<T>(result: Result<T>) -> ErrorKind {
    result.map(drop).expect_err("it is refused").kind()
}

/// Only durable changes, and from the newest position on no earlier ones.
#[test]
fn later_changes_are_told_once_they_are_durable() {
    Place::of(1).run("one", |env| async move {
        let db = filled(&env).await?;
        let mut feed = begin(&env, ChangesFrom::Kept, None).await?;
        assert!(rest(&mut feed, 4).await?.is_empty());
        let mut whole = begin(&env, ChangesFrom::Oldest, None).await?;
        let rows = rest(&mut whole, 4).await?;
        assert_eq!(rows.iter().map(|row| row.seq).collect::<Vec<_>>(), Vec::from_iter(1..=10));
        let mut batch = Batch::new();
        (0..9).for_each(|n| batch.put(&key(n), b"second", None).unwrap());
        let commit = write(&db, &batch).await?;
        commit.wait(None).await?;
        // A commit is never split.
        let changed = feed.read(2, 1 << 20).await?.expect("rows");
        assert_eq!((changed.len(), feed.token().seq), (9, siltstone::Seq(19)));
        assert!(feed.read(2, 1 << 20).await?.is_none());
        let mut since = begin(&env, ChangesFrom::Seq(siltstone::Seq(10)), None).await?;
        assert_eq!(rest(&mut since, 100).await?, rows_of(&changed));
        db.close().await
    });
}

/// A task reads from one token to another by itself.
#[test]
fn a_range_between_tokens_is_read_by_itself() {
    Place::of(2).run("one", |env| async move {
        let db = filled(&env).await?;
        let from = begin(&env, ChangesFrom::Oldest, None).await?.token();
        db.ingest(&job_of(&env, 20..40).await?).await?.wait(None).await?;
        put(&db, 50, b"last").await?;
        db.flush().await?;
        let mut plan = begin(&env, ChangesFrom::Token(from), None).await?;
        let mut cuts = vec![from];
        while plan.read(3, 1 << 20).await?.is_some() {
            cuts.push(plan.token());
        }
        assert_eq!(changes::newest(&env, LIMIT).await?, cuts[cuts.len() - 1]);
        let mut whole = begin(&env, ChangesFrom::Token(from), None).await?;
        let whole = rest(&mut whole, 1000).await?;
        assert!(whole.len() == 31 && cuts.len() > 8);
        let mut parts = Vec::new();
        for pair in cuts.windows(2) {
            let (since, until) = (ChangesFrom::Token(pair[0]), Some(pair[1]));
            let how = ChangesOptions { since, until, consumer: None, before: None };
            let mut part = changes::changes(&env, how, LIMIT).await?;
            parts.extend(rest(&mut part, 100).await?);
            assert_eq!(part.token(), pair[1]);
        }
        assert_eq!(parts, whole);
        db.close().await
    });
}

/// W3: the changes after a snapshot, even if they are flushed and collected immediately.
#[test]
fn a_snapshot_and_what_follows_make_the_whole() {
    Place::of(3).run("one", |env| async move {
        let db = filled(&env).await?;
        let mut feed = begin(&env, ChangesFrom::Snapshot, Some("replica")).await?;
        let checkpoint = feed.checkpoint().expect("a checkpoint").clone();
        for n in 5..15 {
            put(&db, n, b"after").await?;
        }
        db.flush_memtable().await?;
        db.compact().await?;
        round(&env).await?;
        let at = siltstone::ReadAt::Checkpoint(CheckpointName::Id(checkpoint.id));
        let how = ReaderOptions { options: options(), at: Some(at), ..ReaderOptions::default() };
        let reader = Reader::open(env.clone(), how).await?;
        let base = all_of(reader.scan(ScanRange::all())?).await?;
        assert_eq!(base.len(), 10);
        let rows = rest(&mut feed, 4).await?;
        assert_eq!(replayed(base.clone(), &rows), all_of(db.scan(ScanRange::all())?).await?);
        // Any checkpoint works as well, while the log behind it exists.
        let mut again = begin(&env, ChangesFrom::Checkpoint(checkpoint.id.into()), None).await?;
        assert_eq!(rest(&mut again, 100).await?, rows);
        assert_eq!(kind(begin(&env, ChangesFrom::Snapshot, None).await), ErrorKind::Invalid);
        db.close().await
    });
}

/// Without a hold: missing changes raise an error, and the oldest position is another one.
#[test]
fn unheld_changes_are_expired_once_collected() {
    Place::of(4).run("one", |env| async move {
        let db = filled(&env).await?;
        let mut feed = begin(&env, ChangesFrom::Oldest, None).await?;
        let token = feed.token();
        db.ingest(&job_of(&env, 20..40).await?).await?.wait(None).await?;
        let before = changes::newest(&env, LIMIT).await?;
        put(&db, 1, b"x").await?;
        db.flush_memtable().await?;
        db.compact().await?;
        round(&env).await?;
        // The feed has read the object of its first change to know its position.
        assert_eq!(feed.read(10, 1 << 20).await?.map(|rows| rows.len()), Some(10));
        assert_eq!(kind(feed.read(10, 1 << 20).await), ErrorKind::Expired);
        assert_eq!(
            kind(begin(&env, ChangesFrom::Token(token), Some("late")).await),
            ErrorKind::Expired
        );
        let mut seq = begin(&env, ChangesFrom::Seq(siltstone::Seq(3)), None).await?;
        put(&db, 2, b"y").await?;
        db.flush().await?;
        assert_eq!(kind(seq.read(10, 1 << 20).await), ErrorKind::Expired);
        let mut oldest = begin(&env, ChangesFrom::Oldest, None).await?;
        assert_eq!(
            rest(&mut oldest, 10).await?.last().map(|row| row.value.clone()),
            Some(b"y".to_vec())
        );
        assert!(before.seq.get() > 10);
        db.close().await
    });
}

/// A consumer does not change the readable changes: flushed and uncollected ones come first.
#[test]
fn a_consumer_from_the_oldest_place_reads_what_a_feed_without_one_reads() {
    Place::of(6).run("one", |env| async move {
        let db = filled(&env).await?;
        db.flush_memtable().await?;
        put(&db, 20, b"later").await?;
        db.flush().await?;
        let mut without = begin(&env, ChangesFrom::Oldest, None).await?;
        let without = rest(&mut without, 3).await?;
        let mut held = begin(&env, ChangesFrom::Oldest, Some("index")).await?;
        assert_eq!((rest(&mut held, 3).await?, without.len()), (without, 11));
        held.acknowledge(None).await?;
        // Changes before the hold are not kept; later ones are.
        db.compact().await?;
        round(&env).await?;
        put(&db, 21, b"last").await?;
        db.flush_memtable().await?;
        round(&env).await?;
        let mut again = begin(&env, ChangesFrom::Kept, Some("index")).await?;
        assert_eq!(rest(&mut again, 3).await?.len(), 1);
        db.close().await
    });
}

/// A consumer that ends before it has acknowledged flushed changes gets them again, or hears that
/// they are gone; they are not taken for acknowledged because the hold cannot retain them.
#[test]
fn changes_before_the_hold_are_acknowledged_like_any_others() {
    Place::of(9).run("one", |env| async move {
        let db = filled(&env).await?;
        db.flush_memtable().await?;
        put(&db, 20, b"later").await?;
        db.flush().await?;
        let mut first = begin(&env, ChangesFrom::Oldest, Some("index")).await?;
        let all = rest(&mut first, 3).await?;
        assert_eq!(all.len(), 11);
        // Nothing was acknowledged, then four changes, then all of the flushed ones.
        for acknowledged in [0, 4, 10] {
            let mut feed = begin(&env, ChangesFrom::Kept, Some("index")).await?;
            let mut seen = Vec::new();
            while seen.len() < acknowledged && feed.token().seq.get() < acknowledged as u64 {
                seen.extend(rows_of(&feed.read(1, 1 << 20).await?.expect("a change")));
                feed.acknowledge(None).await?;
            }
            let held = changes::consumers(&env, LIMIT).await?;
            assert_eq!(held[0].acknowledged().seq.get(), acknowledged as u64);
            drop(feed);
            let mut feed = begin(&env, ChangesFrom::Kept, Some("index")).await?;
            assert_eq!(rest(&mut feed, 3).await?, all[acknowledged..]);
        }
        // A second consumer has acknowledged none of them when they are collected.
        drop(begin(&env, ChangesFrom::Oldest, Some("slow")).await?);
        db.compact().await?;
        round(&env).await?;
        let slow = begin(&env, ChangesFrom::Kept, Some("slow")).await;
        assert_eq!(kind(slow), ErrorKind::Expired);
        let mut index = begin(&env, ChangesFrom::Kept, Some("index")).await?;
        assert_eq!(rest(&mut index, 3).await?, all[10..]);
        db.close().await
    });
}

/// The position of an empty database is one: rows that were not logged follow it. Before, the
/// number 0 meant that a feed has no position, and the feed skipped them.
#[test]
fn rows_after_the_start_of_an_empty_database_are_not_skipped() {
    Place::of(8).run("one", |env| async move {
        open(&env).await?.close().await?;
        let start = changes::newest(&env, LIMIT).await?;
        let mut unlogged = options();
        unlogged.writes.wal_enabled = false;
        let how = OpenOptions { options: unlogged, ..OpenOptions::default() };
        let db = Database::open(env.clone(), how).await?;
        put(&db, 1, b"not logged").await?;
        db.close().await?;
        let db = open(&env).await?;
        put(&db, 2, b"logged").await?;
        db.flush().await?;
        let token = begin(&env, ChangesFrom::Token(start), None).await;
        assert_eq!(kind(token), ErrorKind::Expired);
        let mut oldest = begin(&env, ChangesFrom::Oldest, None).await?;
        assert_eq!(rest(&mut oldest, 10).await?.len(), 1);
        db.close().await
    });
}

/// After a commit whose successors are gone, nothing can be read: this differs from "nothing new".
#[test]
fn a_commit_whose_successors_are_collected_is_expired() {
    Place::of(7).run("one", |env| async move {
        let db = filled(&env).await?;
        db.flush_memtable().await?;
        round(&env).await?;
        for since in [1, 9] {
            let mut feed = begin(&env, ChangesFrom::Seq(siltstone::Seq(since)), None).await?;
            assert_eq!(kind(feed.read(10, 1 << 20).await), ErrorKind::Expired, "since {since}");
        }
        let mut newest = begin(&env, ChangesFrom::Seq(siltstone::Seq(10)), None).await?;
        assert!(newest.read(10, 1 << 20).await?.is_none());
        put(&db, 1, b"new").await?;
        db.flush().await?;
        assert_eq!(rest(&mut newest, 10).await?.len(), 1);
        db.close().await
    });
}

/// W5: tables of ingests count if only the consumer keeps them.
#[test]
fn ingested_tables_count_as_kept() {
    Place::of(8).run("one", |env| async move {
        let db = filled(&env).await?;
        let small = Consumer { most_bytes: Some(4000), ..Consumer::new("small") };
        let how = ChangesOptions {
            since: ChangesFrom::Newest,
            consumer: Some(small),
            until: None,
            before: None,
        };
        drop(changes::changes(&env, how, LIMIT).await?);
        drop(begin(&env, ChangesFrom::Newest, Some("large")).await?);
        for _ in 0..5 {
            // Each replaces the previous one, so that its tables leave the tree.
            let job = job_with(&env, 100..120, &[7; 200], None).await?;
            db.ingest(&job).await?.wait(None).await?;
        }
        db.compact().await?;
        round(&env).await?;
        let holds = changes::consumers(&env, LIMIT).await?;
        let names: Vec<_> = holds.iter().map(|hold| hold.name.as_str()).collect();
        assert_eq!(names, ["large"]);
        db.close().await
    });
}

/// Flushed log that is still there is in the feed of a consumer at each of its tokens, as it is in
/// the feed without a consumer.
#[test]
fn a_consumer_begins_at_its_tokens_before_what_a_hold_retains() {
    Place::of(9).run("one", |env| async move {
        let db = filled(&env).await?;
        db.close().await?;
        let all = rest(&mut begin(&env, ChangesFrom::Oldest, None).await?, 1).await?;
        assert_eq!(all.len(), 10);
        let mut feed = begin(&env, ChangesFrom::Oldest, Some("c")).await?;
        let mut found = Vec::new();
        while let Some(rows) = feed.read(1, 1).await? {
            found.extend(rows_of(&rows));
            feed = begin(&env, ChangesFrom::Token(feed.token()), Some("c")).await?;
        }
        assert_eq!(found, all);
        // A new consumer begins at an old number, and continues at what it has acknowledged.
        let seq = ChangesFrom::Seq(siltstone::Seq(5));
        let plain = rest(&mut begin(&env, seq.clone(), None).await?, 1).await?;
        assert_eq!(plain, all[5..]);
        let mut feed = begin(&env, seq, Some("d")).await?;
        let mut both = feed.read(1, 1).await?.map(|rows| rows_of(&rows)).unwrap_or_default();
        feed.acknowledge(None).await?;
        let mut feed = begin(&env, ChangesFrom::Kept, Some("d")).await?;
        both.extend(rest(&mut feed, 1).await?);
        assert_eq!(both, plain);
        Ok(())
    });
}

/// W5: a hold ends by a newer consumer with its name; by silence; by bytes; by command.
#[test]
fn a_hold_ends_by_a_successor_by_silence_by_bytes_and_by_command() {
    Place::of(5).run("one", |env| async move {
        let db = filled(&env).await?;
        let mut first = begin(&env, ChangesFrom::Oldest, Some("a")).await?;
        rest(&mut first, 3).await?;
        let mut second = begin(&env, ChangesFrom::Kept, Some("a")).await?;
        assert_eq!(kind(first.read(1, 1).await), ErrorKind::Fenced);
        assert_eq!(kind(first.acknowledge(None).await), ErrorKind::Fenced);
        assert_eq!(rest(&mut second, 3).await?.len(), 10);
        let [hold] = &changes::consumers(&env, LIMIT).await?[..] else { panic!("one hold") };
        assert_eq!((hold.name.as_str(), hold.seq.get()), ("a", 0));
        // Changes that it has read ahead are not returned after it has lost its consumer.
        let mut ahead = begin(&env, ChangesFrom::Oldest, Some("ahead")).await?;
        assert_eq!(ahead.read(1, 1).await?.map(|rows| rows.len()), Some(1));
        changes::forget_consumer(&env, "ahead", LIMIT).await?;
        assert_eq!(ahead.read(1, 1).await?.map(|rows| rows.len()), Some(1));
        assert_eq!(kind(ahead.acknowledge(None).await), ErrorKind::Expired);
        assert_eq!(kind(ahead.read(1, 1).await), ErrorKind::Expired);
        // It stays alive by reading.
        let life = Duration::from_secs(10);
        let consumer = Consumer { lifetime: Some(life), ..Consumer::new("b") };
        let how = |consumer| ChangesOptions {
            since: ChangesFrom::Newest,
            consumer: Some(consumer),
            until: None,
            before: None,
        };
        let mut brief = changes::changes(&env, how(consumer), LIMIT).await?;
        for _ in 0..4 {
            env.clock.sleep(life / 2).await;
            assert!(brief.read(1, 1).await?.is_none());
            round(&env).await?;
        }
        env.clock.sleep(life * 2).await;
        round(&env).await?;
        let gone = loop {
            match brief.read(1, 1).await {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert_eq!(gone.kind(), ErrorKind::Expired);
        let small = Consumer { most_bytes: Some(100), ..Consumer::new("c") };
        drop(changes::changes(&env, how(small), LIMIT).await?);
        for n in 0..20 {
            put(&db, n, &[7; 50]).await?;
        }
        db.flush().await?;
        round(&env).await?;
        let names =
            |holds: Vec<changes::Hold>| holds.into_iter().map(|hold| hold.name).collect::<Vec<_>>();
        assert_eq!(names(changes::consumers(&env, LIMIT).await?), ["a"]);
        changes::forget_consumer(&env, "a", LIMIT).await?;
        assert!(changes::consumers(&env, LIMIT).await?.is_empty());
        assert_eq!(kind(changes::forget_consumer(&env, "a", LIMIT).await), ErrorKind::Expired);
        assert_eq!(kind(second.acknowledge(None).await), ErrorKind::Expired);
        db.close().await
    });
}

/// A dropped read has returned nothing: the token is unchanged, and is what is acknowledged.
#[test]
fn a_read_that_is_dropped_has_passed_nothing_on() {
    let mut dropped = 0;
    for after in (10..400).step_by(10) {
        dropped += Place::of(14).run("one", move |env| async move {
            let db = open(&env).await?;
            let mut feed = begin(&env, ChangesFrom::Newest, Some("one")).await?;
            for n in 0..200 {
                put(&db, n % 10, b"row").await?;
                db.flush().await?;
            }
            let began = feed.token();
            let patience = env.clock.sleep(Duration::from_millis(after));
            let ended = futures::future::select(feed.read(1000, 1 << 20), patience).await;
            if matches!(ended, futures::future::Either::Left(_)) {
                return Ok(0);
            }
            drop(ended);
            assert_eq!(feed.token(), began, "after {after} ms");
            feed.acknowledge(None).await?;
            let mut next = begin(&env, ChangesFrom::Kept, Some("one")).await?;
            assert_eq!(rest(&mut next, 50).await?.len(), 200, "after {after} ms");
            db.close().await.map(|()| 1)
        });
    }
    assert!(dropped > 10, "{dropped} reads were dropped");
}

/// The same at the oldest position of a log whose beginning is gone: the next read begins there
/// again. Before, it raised Corruption permanently: "sequence numbers do not follow each other".
#[test]
fn a_read_from_the_oldest_place_that_is_dropped_begins_again() {
    const ROWS: u32 = 400;
    let mut dropped = 0;
    for after in (10..400).step_by(10) {
        dropped += Place::of(15).run("one", move |env| async move {
            let db = filled(&env).await?;
            db.flush_memtable().await?;
            db.compact().await?;
            round(&env).await?;
            for n in 0..ROWS {
                put(&db, n % 10, b"row").await?;
                db.flush().await?;
            }
            let mut feed = begin(&env, ChangesFrom::Oldest, None).await?;
            let patience = env.clock.sleep(Duration::from_millis(after));
            let ended = futures::future::select(feed.read(1000, 1 << 20), patience).await;
            if matches!(ended, futures::future::Either::Left(_)) {
                return Ok(0);
            }
            drop(ended);
            let rows = rest(&mut feed, 50).await?;
            let first = rows.first().map(|row| row.seq);
            assert!(first > Some(1), "the beginning is gone: {first:?}");
            assert!(rows.len() >= ROWS as usize, "after {after} ms: {} rows", rows.len());
            db.close().await.map(|()| 1)
        });
    }
    assert!(dropped > 10, "{dropped} reads were dropped");
}

/// A store that fails within a long log loses no row that was read before.
#[test]
fn changes_read_before_a_trouble_are_passed_on() {
    const ROWS: u64 = 400;
    let mut troubled = 0;
    for after in (20..1000).step_by(20) {
        let place = Place::of(13);
        place.run("writer", |env| async move {
            let db = open(&env).await?;
            // One object each, and more of them than a feed reads at once.
            for n in 0..ROWS as u32 {
                put(&db, n % 10, b"row").await?;
                db.flush().await?;
            }
            db.close().await
        });
        let (breaker, env) = place.process("breaker");
        let bucket = Arc::clone(&place.bucket);
        place.sim.spawn(breaker, "breaker", async move {
            env.clock.sleep(Duration::from_millis(after)).await;
            bucket.break_for(LIMIT * 2);
        });
        let (seqs, troubles) = place.run("consumer", |env| async move {
            let (mut seqs, mut troubles) = (Vec::new(), 0);
            let mut feed = loop {
                match begin(&env, ChangesFrom::Oldest, None).await {
                    Err(error) if error.kind().is_transient() => {}
                    begun => break begun?,
                }
            };
            loop {
                match feed.read(1000, 1 << 20).await {
                    Ok(Some(changed)) => seqs.extend(changed.seqs.iter().map(|seq| seq.get())),
                    Ok(None) => return Ok((seqs, troubles)),
                    Err(error) if error.kind().is_transient() => troubles += 1,
                    Err(error) => return Err(error),
                }
            }
        });
        troubled += troubles;
        assert_eq!(seqs, (1..=ROWS).collect::<Vec<_>>(), "after {after} ms");
    }
    assert!(troubled > 3, "{troubled} troubles");
}

/// W6: consumers that have seen undone changes get an error; others are not affected.
#[test]
fn a_restore_is_jumped_or_told() {
    Place::of(6).run("one", |env| async move {
        open(&env).await?.close().await?;
        drop(begin(&env, ChangesFrom::Newest, Some("witness")).await?);
        filled(&env).await?.close().await?;
        let before = begin(&env, ChangesFrom::Oldest, None).await?.token();
        let how = siltstone::CheckpointOptions {
            name: Some("kept".to_owned()),
            ..siltstone::CheckpointOptions::default()
        };
        admin::create_checkpoint(&env, &how, LIMIT).await?;
        let at_cut = changes::newest(&env, LIMIT).await?;
        let db = open(&env).await?;
        for n in 0..5 {
            put(&db, n, b"undone").await?;
        }
        db.close().await?;
        let beyond = changes::newest(&env, LIMIT).await?;
        let mut told = begin(&env, ChangesFrom::Newest, Some("told")).await?;
        admin::restore(&env, &"kept".parse().expect("a name"), &options()).await?;
        let db = open(&env).await?;
        put(&db, 7, b"again").await?;
        db.flush().await?;
        for from in [before, at_cut] {
            let mut feed = begin(&env, ChangesFrom::Token(from), None).await?;
            let rows = rest(&mut feed, 4).await?;
            assert!(rows.iter().all(|row| row.value != b"undone"), "{rows:?}");
            assert_eq!(rows.last().map(|row| row.value.clone()), Some(b"again".to_vec()));
        }
        let refused = begin(&env, ChangesFrom::Token(beyond), None).await.expect_err("undone");
        assert_eq!(refused.kind(), ErrorKind::Expired);
        assert!(refused.to_string().contains("restored"), "{refused}");
        assert_eq!(kind(told.acknowledge(None).await), ErrorKind::Expired);
        let mut witness = begin(&env, ChangesFrom::Kept, Some("witness")).await?;
        let rows = rest(&mut witness, 4).await?;
        assert_eq!(replayed(Vec::new(), &rows), all_of(db.scan(ScanRange::all())?).await?);
        db.close().await
    });
}

/// W6: another database's token, and a position in a missing database.
#[test]
fn a_token_is_of_one_database() {
    let place = Place::of(8);
    let token = place.run("one", |env| async move {
        filled(&env).await?.close().await?;
        changes::newest(&env, LIMIT).await
    });
    Place::of(9).run("other", |env| async move {
        assert_eq!(kind(changes::newest(&env, LIMIT).await), ErrorKind::NotFound);
        filled(&env).await?.close().await?;
        let refused: Error =
            begin(&env, ChangesFrom::Token(token), None).await.expect_err("another");
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        Ok(())
    });
}
