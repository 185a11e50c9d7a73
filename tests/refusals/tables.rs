//! Tables and manifests are refused, while the log is accepted.

use crate::{
    Ask, DEADLINE, FOR_GOOD, Refusal, WORDS, denied, full, get, options, put, small, tell,
};
use siltstone::{Accept, Error, ErrorKind};
use std::time::Duration;

/// A permanent refusal ends the handle: no caller waits for an impossible flush.
#[test]
fn a_flush_that_cannot_be_ends_the_handle() {
    for kind in FOR_GOOD {
        for (ask, names) in [
            (Ask::Begin, "compacted/"),
            (Ask::Part, "compacted/"),
            (Ask::Finish, "compacted/"),
            (Ask::Put, "manifest/"),
        ] {
            tell(async move |world| {
                let db = world.open(options()).await.unwrap();
                put(&db, "a", b"1").unwrap().wait(None).await.unwrap();
                world.refuse(ask, names, Refusal::Plain(Error::new(kind, WORDS)));
                let began = world.now();
                let error = db.flush_memtable().await.unwrap_err();
                assert_eq!(error.kind(), kind, "{ask:?}: {error}");
                assert!(error.to_string().contains(WORDS), "{error}");
                assert!(world.now() - began < Duration::from_secs(1), "{kind:?} {ask:?}");
                assert_eq!(put(&db, "b", b"2").unwrap_err().kind(), kind);
                // Acknowledged rows exist.
                world.store.heal();
                let db = world.open(options()).await.unwrap();
                assert_eq!(get(&db, "a").await.as_deref(), Some(&b"1"[..]));
            });
        }
    }
}

/// A missing permission is reported immediately to callers that wait for a flush, or for room; the
/// writes stay, and succeed when the permission is given.
#[test]
fn a_denied_flush_is_told_at_once_and_goes_on_later() {
    for (ask, names) in [(Ask::Begin, "compacted/"), (Ask::Put, "manifest/")] {
        tell(async move |world| {
            let db = world.open(small()).await.unwrap();
            world.refuse(ask, names, Refusal::Plain(denied()));
            put(&db, "a", b"1").unwrap().wait(None).await.unwrap();
            let began = world.now();
            let error = db.flush_memtable().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
            let mut number = 0;
            let error = loop {
                match db.put(format!("k{number}").as_bytes(), &[7; 1000], None).unwrap() {
                    Accept::Accepted(_) => number += 1,
                    Accept::Pressure(room) => {
                        if let Err(error) = room.await {
                            break error;
                        }
                    }
                }
                assert!(number < 100, "nothing stops the writes");
            };
            assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
            assert!(error.to_string().contains(WORDS), "{error}");
            let took = world.now() - began;
            assert!(took < DEADLINE, "{took:?}");
            world.store.heal();
            db.flush_memtable().await.unwrap();
            assert_eq!(get(&db, "a").await.as_deref(), Some(&b"1"[..]));
            db.close().await.unwrap();
        });
    }
}

/// The sent parts of a failed upload are freed: a store bills invisible parts.
#[test]
fn an_upload_that_fails_is_aborted() {
    tell(async |world| {
        let db = world.open(options()).await.unwrap();
        put(&db, "a", b"1").unwrap().wait(None).await.unwrap();
        world.refuse(Ask::Part, "compacted/", Refusal::Plain(full()));
        let error = db.flush_memtable().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        assert!(error.to_string().contains(WORDS), "{error}");
        world.store.heal();
        db.flush_memtable().await.unwrap();
        let (begun, aborted) = (world.store.asked(Ask::Begin), world.store.asked(Ask::Abort));
        assert!(begun > 2, "{begun}");
        assert_eq!(aborted, begun - 1, "all but the one that was finished");
        assert_eq!(get(&db, "a").await.as_deref(), Some(&b"1"[..]));
    });
}

/// Without a WAL the flush decides what is acknowledged.
#[test]
fn without_a_log_a_write_whose_flush_is_refused_is_not_acknowledged() {
    for kind in FOR_GOOD.into_iter().chain([ErrorKind::Denied]) {
        for (ask, names) in [(Ask::Finish, "compacted/"), (Ask::Put, "manifest/")] {
            tell(async move |world| {
                let mut unlogged = options();
                unlogged.writes.wal_enabled = false;
                let db = world.open(unlogged).await.unwrap();
                put(&db, "a", b"1").unwrap().wait(None).await.unwrap();
                world.refuse(ask, names, Refusal::Plain(Error::new(kind, WORDS)));
                let (began, commit) = (world.now(), put(&db, "b", b"2").unwrap());
                let error = commit.wait(None).await.unwrap_err();
                assert_eq!(error.kind(), kind, "{ask:?}: {error}");
                assert!(error.to_string().contains(WORDS), "{error}");
                assert!(world.now() - began < Duration::from_secs(1), "{kind:?} {ask:?}");
                assert!(!commit.is_durable());
                world.store.heal();
                let goes_on = kind == ErrorKind::Denied;
                if goes_on {
                    commit.wait(None).await.unwrap();
                    db.close().await.unwrap();
                }
                let db = world.open(options()).await.unwrap();
                assert_eq!(get(&db, "a").await.as_deref(), Some(&b"1"[..]));
                assert_eq!(get(&db, "b").await.is_some(), goes_on);
            });
        }
    }
}
