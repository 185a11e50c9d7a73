//! Holds of consumers, and tokens, if a database is cloned, exported or promoted: they belong to
//! one database, and work on other databases neither ends them nor takes them over (rule W6).

use super::*;
use siltstone::Progress;
use siltstone::admin::{self, CloneParent, ExportPlaces};
use siltstone_tests::places::{self, fill, manifest};

fn whole(env: &Env) -> CloneParent {
    CloneParent { env: env.clone(), checkpoint: None, start: None, end: None }
}

async fn holds(env: &Env) -> Vec<(String, u64)> {
    let holds = changes::consumers(env, LIMIT).await.unwrap();
    holds.into_iter().map(|hold| (hold.name, hold.seq.get())).collect()
}

/// A consumer that has read and acknowledged five of ten rows, of a writer that continues.
async fn consumed(env: &Env) -> (Database, ChangeToken) {
    let db = places::open(env).await.unwrap();
    drop(begin(env, ChangesFrom::Newest, Some("worker")).await.unwrap());
    fill(&db, 0..5, 1).await;
    let mut feed = begin(env, ChangesFrom::Kept, Some("worker")).await.unwrap();
    assert_eq!(rest(&mut feed, 100).await.unwrap().len(), 5);
    feed.acknowledge(None).await.unwrap();
    let token = feed.token();
    fill(&db, 5..10, 2).await;
    (db, token)
}

/// The worker receives the changes after its acknowledged position: rows 5 to 9, and later ones.
async fn goes_on(env: &Env, more: usize) {
    assert_eq!(holds(env).await, [("worker".to_owned(), 5)]);
    let mut feed = begin(env, ChangesFrom::Kept, Some("worker")).await.unwrap();
    let rows = rest(&mut feed, 3).await.unwrap();
    let seqs: Vec<u64> = rows.iter().map(|row| row.seq).collect();
    assert_eq!(seqs, Vec::from_iter(6..=10 + more as u64));
}

fn kind<T>(result: Result<T>) -> ErrorKind {
    result.map(drop).expect_err("it is refused").kind()
}

#[test]
fn a_clone_takes_no_holds_and_refuses_its_parents_tokens() {
    places::run("feed/clone", async |places| {
        let (parent, clone) = (places.env("parent"), places.env("clone"));
        let (db, token) = consumed(&parent).await;
        admin::clone(&clone, &[whole(&parent)], &places::options()).await.unwrap();
        let state = manifest(&clone).await;
        assert!(state.holds.is_empty() && state.fed.is_empty());
        assert_eq!(kind(begin(&clone, ChangesFrom::Token(token), None).await), ErrorKind::Invalid);
        assert_eq!(
            kind(changes::forget_consumer(&clone, "worker", LIMIT).await),
            ErrorKind::Expired
        );

        // A consumer of the same name in the clone is a different one, and receives the clone's
        // changes.
        let of_clone = places::open(&clone).await.unwrap();
        drop(begin(&clone, ChangesFrom::Newest, Some("worker")).await.unwrap());
        fill(&of_clone, 20..22, 9).await;
        let mut feed = begin(&clone, ChangesFrom::Kept, Some("worker")).await.unwrap();
        let told = rest(&mut feed, 10).await.unwrap();
        let keys: Vec<&[u8]> = told.iter().map(|row| row.key.as_slice()).collect();
        assert_eq!(keys, [places::key(20), places::key(21)]);
        feed.acknowledge(None).await.unwrap();
        let of_clone_token = feed.token();
        of_clone.close().await.unwrap();

        // The parent's consumer holds its log, independent of both.
        db.flush_memtable().await.unwrap();
        places::compact(&parent).await.unwrap();
        round(&parent).await.unwrap();
        siltstone::destroy(&clone, false, LIMIT).await.unwrap();
        round(&parent).await.unwrap();
        assert_eq!(
            kind(begin(&parent, ChangesFrom::Token(of_clone_token), None).await),
            ErrorKind::Invalid
        );
        fill(&db, 30..31, 3).await;
        goes_on(&parent, 1).await;
        db.close().await.unwrap();
    });
}

#[test]
fn an_export_leaves_holds_where_they_are() {
    places::run("feed/export", async |places| {
        let (source, mirror) = (places.env("source"), places.env("mirror"));
        let (db, token) = consumed(&source).await;
        let export = async || {
            let places = ExportPlaces { source: &source, target: &mirror };
            admin::export(places, None, &places::options(), &Progress::default()).await.unwrap();
        };
        export().await;
        db.flush_memtable().await.unwrap();
        places::compact(&source).await.unwrap();
        round(&source).await.unwrap();
        export().await;
        round(&mirror).await.unwrap();
        assert!(manifest(&mirror).await.holds.is_empty());
        // A mirror accepts no writes, not even of consumers; and the source's tokens belong to the
        // source.
        assert_eq!(
            kind(begin(&mirror, ChangesFrom::Newest, Some("worker")).await),
            ErrorKind::Conflict
        );
        assert_eq!(kind(begin(&mirror, ChangesFrom::Token(token), None).await), ErrorKind::Invalid);

        admin::promote(&mirror, LIMIT).await.unwrap();
        let promoted = places::open(&mirror).await.unwrap();
        drop(begin(&mirror, ChangesFrom::Newest, Some("worker")).await.unwrap());
        fill(&promoted, 40..43, 7).await;
        let mut feed = begin(&mirror, ChangesFrom::Kept, Some("worker")).await.unwrap();
        assert_eq!(rest(&mut feed, 10).await.unwrap().len(), 3);
        assert_eq!(kind(begin(&mirror, ChangesFrom::Token(token), None).await), ErrorKind::Invalid);
        promoted.close().await.unwrap();
        fill(&db, 30..32, 3).await;
        goes_on(&source, 2).await;
        db.close().await.unwrap();
    });
}
