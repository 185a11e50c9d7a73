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
        let [.., delete, say_again, four, five, six, after] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!(delete.kind, Kind::RangeDelete);
        assert_eq!((&delete.key, &delete.value), (&key(3), &key(8)));
        // A table has an entry: in a table with only a range delete it repeats the delete of the
        // first key.
        assert_eq!((say_again.kind, &say_again.key), (Kind::Delete, &key(3)));
        assert_eq!(say_again.seq, delete.seq);
        for (row, n) in [(four, 4), (five, 5), (six, 6)] {
            assert_eq!(
                (row.kind, &row.key, row.value.as_slice()),
                (Kind::Put, &key(n), &b"bulk"[..])
            );
            assert_eq!((row.seq, row.at), (delete.seq + 1, delete.at));
        }
        assert_eq!((after.seq, after.value.as_slice()), (four.seq + 1, &b"after"[..]));
        assert_eq!(rows.len(), 16);
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

/// Up to the greatest key: a range delete ends before it, and a delete removes it.
#[test]
fn an_open_end_is_told_as_a_delete_of_the_greatest_key_too() {
    Place::of(12).run("one", |env| async move {
        let db = overwritten(&env, range(4, None)).await?;
        let mut feed = begin(&env, ChangesFrom::Kept, Some("witness")).await?;
        let rows = rest(&mut feed, 100).await?;
        let of_the_range: Vec<&Row> = rows.iter().filter(|row| row.kind != Kind::Put).collect();
        let [delete, last] = &of_the_range[..] else { panic!("{of_the_range:?}") };
        assert_eq!((delete.kind, &delete.key), (Kind::RangeDelete, &key(4)));
        assert_eq!((last.kind, &last.key), (Kind::Delete, &delete.value));
        assert_eq!(last.key.len(), 65_535);
        assert_eq!(replayed(Vec::new(), &rows), all_of(db.scan(ScanRange::all())?).await?);
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
        assert!(rows[2..].iter().all(|row| row.seq == 3 && row.kind != Kind::Put), "{rows:?}");
        db.close().await
    });
}
