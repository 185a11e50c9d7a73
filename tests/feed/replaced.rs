//! The changes for a job that replaced a range (RFC 0035, rule P5).

use super::*;

/// Rows 0 to 9, a job that replaces the range `over` by rows 4 to 6, and a later row.
async fn overwritten(env: &Env, over: ReplacedRange) -> Result<Database> {
    let db = open(env).await?;
    drop(begin(env, ChangesFrom::Newest, Some("witness")).await?);
    for n in 0..10 {
        put(&db, n, b"first").await?;
    }
    db.ingest(&job_over(env, 4..7, Some(over)).await?).await?.wait(None).await?;
    put(&db, 5, b"after").await?;
    db.flush_memtable().await?;
    Ok(db)
}

/// First the delete of the range, with its own number, then the rows: applying them gives the rows
/// of the database, from every position in the ingest on.
#[test]
fn a_job_that_replaced_tells_the_delete_before_its_rows() {
    Place::of(11).run("one", |env| async move {
        let db = overwritten(&env, range(3, Some(8))).await?;
        // Compaction changes the tables.
        db.compact().await?;
        round(&env).await?;
        let mut feed = begin(&env, ChangesFrom::Kept, Some("witness")).await?;
        let from = feed.token();
        let rows = rest(&mut feed, 100).await?;
        let [.., delete, four, five, six, after] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!(delete.kind, Kind::RangeDelete);
        assert_eq!((&delete.key, &delete.value), (&key(3), &key(8)));
        for (row, n) in [(four, 4), (five, 5), (six, 6)] {
            assert_eq!(
                (row.kind, &row.key, row.value.as_slice()),
                (Kind::Put, &key(n), &b"bulk"[..])
            );
            assert_eq!((row.seq, row.at), (delete.seq + 1, delete.at));
        }
        assert_eq!((after.seq, after.value.as_slice()), (four.seq + 1, &b"after"[..]));
        // The table of the range delete has an entry, because every table has one. No delete was
        // made, and the feed returns none.
        assert_eq!(rows.len(), 15);
        let state = all_of(db.scan(ScanRange::all())?).await?;
        assert_eq!(replayed(Vec::new(), &rows), state);
        assert_eq!(state.len(), 8, "rows 3 and 7 were replaced by none");

        // Row by row, and again from the token after each.
        let mut slow = begin(&env, ChangesFrom::Token(from), None).await?;
        let (mut told, mut tokens) = (0, vec![(0, from)]);
        while let Some(changed) = slow.read(1, 1 << 20).await? {
            told += changed.len();
            tokens.push((told, slow.token()));
        }
        assert!(tokens.len() > 14, "an ingest is told in parts: {}", tokens.len());
        for (told, token) in tokens {
            let token: ChangeToken = token.to_string().parse()?;
            let mut again = begin(&env, ChangesFrom::Token(token), None).await?;
            assert_eq!(rest(&mut again, 2).await?, rows[told..], "behind {told} rows");
        }
        db.close().await
    });
}

/// The entry that the feed leaves out counts in positions, so tokens of versions that returned it
/// stand where they stood.
#[test]
fn positions_count_the_entry_that_is_left_out() {
    Place::of(14).run("one", |env| async move {
        let db = overwritten(&env, range(3, Some(8))).await?;
        let mut feed = begin(&env, ChangesFrom::Kept, Some("witness")).await?;
        let rows = rest(&mut feed, 100).await?;
        let mut feed = begin(&env, ChangesFrom::Kept, Some("witness")).await?;
        feed.read(10, 1 << 20).await?;
        let before = feed.token();
        assert_eq!(rows_of(&feed.read(1, 1 << 20).await?.expect("the delete")), rows[10..11]);
        let behind = feed.token();
        assert_eq!((behind.seq, behind.table, behind.row), (before.seq, 0, 1));
        let old = ChangeToken { row: 2, ..behind };
        let next = ChangeToken { table: 1, row: 0, ..behind };
        for token in [behind, old, next] {
            let mut again = begin(&env, ChangesFrom::Token(token), None).await?;
            assert_eq!(rest(&mut again, 1).await?, rows[11..], "{token:?}");
        }
        for (since, until, told) in [
            (before, behind, 1),
            (before, old, 1),
            (before, next, 1),
            (behind, old, 0),
            (behind, next, 0),
            (old, next, 0),
        ] {
            let how = ChangesOptions {
                since: ChangesFrom::Token(since),
                until: Some(until),
                consumer: None,
                before: None,
            };
            let mut part = changes::changes(&env, how, LIMIT).await?;
            assert_eq!(rest(&mut part, 1).await?, rows[10..10 + told], "{since:?} to {until:?}");
            assert_eq!(part.token(), until);
        }
        db.close().await
    });
}

/// Up to the greatest key: a range delete ends before it, and a delete in the table completes it.
/// The feed returns the two as one range delete.
#[test]
fn an_open_end_is_one_range_delete() {
    let whole = || ReplacedRange::new(None, None).expect("a range");
    for (seed, over) in [(12, range(4, None)), (15, whole())] {
        Place::of(seed).run("one", |env| async move {
            let start = over.start().to_vec();
            let db = overwritten(&env, over).await?;
            let mut feed = begin(&env, ChangesFrom::Kept, Some("witness")).await?;
            let rows = rest(&mut feed, 100).await?;
            let of_the_range: Vec<&Row> = rows.iter().filter(|row| row.kind != Kind::Put).collect();
            let [delete] = &of_the_range[..] else { panic!("{of_the_range:?}") };
            assert_eq!((delete.kind, &delete.key), (Kind::RangeDelete, &start));
            assert_eq!(delete.value, [0xff; 65_535]);
            assert_eq!(rows.len(), 15);
            assert_eq!(replayed(Vec::new(), &rows), all_of(db.scan(ScanRange::all())?).await?);
            db.close().await
        });
    }
}

/// The range of the greatest key alone has no range delete: the delete of the key is the change.
#[test]
fn the_delete_of_the_greatest_key_alone_is_told() {
    Place::of(16).run("one", |env| async move {
        let db = open(&env).await?;
        drop(begin(&env, ChangesFrom::Newest, Some("witness")).await?);
        let greatest = [0xff; 65_535];
        let mut batch = Batch::new();
        batch.put(&greatest, b"x", None)?;
        write(&db, &batch).await?;
        let job = IngestJob::begin(&env, JOB_LIFETIME, None, LIMIT).await?;
        let job = job.replacing(ReplacedRange::new(Some(&greatest), None)?);
        db.ingest(&job.commit(&env, &[], LIMIT).await?).await?.wait(None).await?;
        let mut feed = begin(&env, ChangesFrom::Kept, Some("witness")).await?;
        let rows = rest(&mut feed, 100).await?;
        let kinds: Vec<(Kind, usize)> = rows.iter().map(|row| (row.kind, row.key.len())).collect();
        assert_eq!(kinds, [(Kind::Put, 65_535), (Kind::Delete, 65_535)]);
        db.close().await
    });
}

/// Deletes that a job or a batch makes are changes, also at the bounds of a range.
#[test]
fn deletes_of_rows_are_told() {
    Place::of(17).run("one", |env| async move {
        let mut options = options();
        options.writes.skip_memtable_bytes = Some(400);
        let how = OpenOptions { options, take_over: Some(true), ..OpenOptions::default() };
        let db = Database::open(env.clone(), how).await?;
        drop(begin(&env, ChangesFrom::Newest, Some("witness")).await?);
        let job = IngestJob::begin(&env, JOB_LIFETIME, None, LIMIT).await?;
        let job = job.replacing(range(3, Some(8)));
        let mut writer = job.writer(
            &env,
            PartOptions {
                options: super::options(),
                duplicates: Duplicates::KeepLast,
                sort_memory_bytes: 1 << 20,
                scratch: std::env::temp_dir(),
                table_bytes: 200,
            },
        )?;
        for n in [3, 5, 7] {
            assert_ne!(writer.push(Kind::Delete, &key(n), b"", None)?, PushResult::Full);
        }
        let part = writer.finish().await?;
        db.ingest(&job.commit(&env, &[part], LIMIT).await?).await?.wait(None).await?;
        // A batch that becomes a table, and one of range deletes, which stays in the log.
        let mut large = Batch::new();
        large.delete(&key(8))?;
        large.put(&key(9), &[b'v'; 400], None)?;
        db.write_large(&large)?.expect("a large batch").await?;
        let mut ranges = Batch::new();
        for n in 0..40 {
            ranges.delete_range(&key(n), &key(n + 2))?;
        }
        assert!(db.write_large(&ranges)?.is_none());
        write(&db, &ranges).await?;
        db.flush_memtable().await?;
        let mut feed = begin(&env, ChangesFrom::Kept, Some("witness")).await?;
        let rows = rest(&mut feed, 100).await?;
        let told: Vec<(Kind, Vec<u8>)> =
            rows.iter().map(|row| (row.kind, row.key.clone())).collect();
        let mut expected = vec![(Kind::RangeDelete, key(3))];
        expected.extend([3, 5, 7, 8].map(|n| (Kind::Delete, key(n))));
        expected.push((Kind::Put, key(9)));
        expected.extend((0..40).map(|n| (Kind::RangeDelete, key(n))));
        assert_eq!(told, expected);
        db.close().await
    });
}

/// A job without rows is only the delete of its range.
#[test]
fn a_job_of_no_rows_tells_its_delete() {
    Place::of(13).run("one", |env| async move {
        let db = open(&env).await?;
        drop(begin(&env, ChangesFrom::Newest, Some("witness")).await?);
        put(&db, 1, b"x").await?;
        put(&db, 5, b"y").await?;
        let job = IngestJob::begin(&env, JOB_LIFETIME, None, LIMIT).await?;
        let request = job.replacing(range(0, Some(3))).commit(&env, &[], LIMIT).await?;
        db.ingest(&request).await?.wait(None).await?;
        let mut feed = begin(&env, ChangesFrom::Kept, Some("witness")).await?;
        let rows = rest(&mut feed, 100).await?;
        assert_eq!(replayed(Vec::new(), &rows), [(key(5), b"y".to_vec())]);
        let [_, _, delete] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!((delete.seq, delete.kind), (3, Kind::RangeDelete));
        // The last read of a consumer may stand before the entry that is left out.
        let mut slow = begin(&env, ChangesFrom::Kept, Some("witness")).await?;
        assert_eq!(rest(&mut slow, 1).await?, rows);
        assert_eq!(slow.token(), feed.token());
        db.close().await
    });
}
