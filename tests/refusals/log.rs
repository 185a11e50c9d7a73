//! The log is refused: permanently, temporarily, or without an answer.

use crate::{
    Ask, DEADLINE, FOR_GOOD, Refusal, WORDS, denied, full, get, options, put, small, tell,
};
use siltstone::{Accept, Error, ErrorKind};
use std::time::Duration;

/// A permanent refusal ends the handle immediately; waiting callers get the store's error text, and
/// no error claims that a write is certainly not stored.
#[test]
fn a_permanent_refusal_ends_the_handle_at_once() {
    for kind in FOR_GOOD {
        tell(async move |world| {
            let db = world.open(options()).await.unwrap();
            world.refuse(Ask::Put, "wal/", Refusal::Plain(Error::new(kind, WORDS)));
            let (began, puts) = (world.now(), world.store.asked(Ask::Put));
            let waiter = put(&db, "a", b"1").unwrap();
            let other = world.beside(waiter.wait(None));
            for waited in [waiter.wait(None).await, other.await] {
                let error = waited.unwrap_err();
                assert_eq!(error.kind(), kind, "{error}");
                let text = error.to_string();
                assert!(text.contains(WORDS) && text.contains("may or may not"), "{text}");
            }
            assert!(world.now() - began < Duration::from_secs(1), "{kind:?}");
            assert_eq!(world.store.asked(Ask::Put), puts + 1, "{kind:?}");
            assert_eq!(put(&db, "b", b"2").unwrap_err().kind(), kind);
            assert_eq!(db.close().await.unwrap_err().kind(), kind);
        });
    }
}

/// The first answer was lost and the object exists; a later refusal does not prove the contrary.
#[test]
fn a_refusal_after_a_lost_answer_claims_nothing() {
    tell(async |world| {
        let db = world.open(options()).await.unwrap();
        // The object lands, it cannot be read back, and the next try is permanently refused.
        let tries = std::sync::atomic::AtomicU64::new(0);
        world.store.refuse(move |ask, name| match ask {
            Ask::Get if name.starts_with("wal/") => Some(Refusal::Plain(full())),
            Ask::Put if name.starts_with("wal/") => {
                let first = tries.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
                let gone = Error::invalid(WORDS);
                Some(if first { Refusal::AnswerLost(full()) } else { Refusal::Plain(gone) })
            }
            _ => None,
        });
        let error = put(&db, "a", b"1").unwrap().wait(None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("may or may not be stored"), "{error}");
        world.store.heal();
        let db = world.open(options()).await.unwrap();
        assert_eq!(get(&db, "a").await.as_deref(), Some(&b"1"[..]));
    });
}

/// A temporary refusal is retried until it passes, and is the cause of every deadline that passes
/// meanwhile.
#[test]
fn a_temporary_refusal_is_the_cause_of_every_deadline() {
    tell(async |world| {
        let db = world.open(small()).await.unwrap();
        world.refuse(Ask::Put, "", Refusal::Plain(full()));
        let commit = put(&db, "a", b"1").unwrap();
        let mut told = Vec::new();
        // Also shorter than the pause between two tries.
        for limit in [Duration::from_millis(100), DEADLINE] {
            let began = world.now();
            told.push(commit.wait(Some(limit)).await.unwrap_err());
            assert_eq!(world.now() - began, limit);
        }
        told.push(db.flush().await.unwrap_err());
        told.push(db.flush_memtable().await.unwrap_err());
        let mut number = 0;
        told.push(loop {
            match db.put(format!("k{number}").as_bytes(), &[7; 1000], None).unwrap() {
                Accept::Accepted(_) => number += 1,
                Accept::Pressure(room) => {
                    if let Err(error) = room.await {
                        break error;
                    }
                }
            }
            assert!(number < 100, "nothing stops the writes");
        });
        for error in &told {
            assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
            assert!(error.to_string().contains(WORDS), "{error}");
        }
        // There is room again: everything continues, and nothing was lost.
        world.store.heal();
        commit.wait(None).await.unwrap();
        db.flush_memtable().await.unwrap();
        db.close().await.unwrap();
        let db = world.open(options()).await.unwrap();
        assert_eq!(get(&db, "a").await.as_deref(), Some(&b"1"[..]));
        for number in 0..number {
            assert!(get(&db, &format!("k{number}")).await.is_some(), "{number}");
        }
        world.refuse(Ask::Put, "", Refusal::Plain(full()));
        put(&db, "b", b"2").unwrap();
        let error = db.close().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        assert!(error.to_string().contains(WORDS), "{error}");
    });
}

/// A refused request that has succeeded since explains nothing.
#[test]
fn a_cause_is_forgotten_when_it_is_over() {
    tell(async |world| {
        let db = world.open(options()).await.unwrap();
        world.refuse(Ask::Put, "wal/", Refusal::Plain(full()));
        let commit = put(&db, "a", b"1").unwrap();
        commit.wait(Some(Duration::from_secs(1))).await.unwrap_err();
        world.store.heal();
        commit.wait(None).await.unwrap();
        world.refuse(Ask::Put, "wal/", Refusal::Silence);
        let error = put(&db, "b", b"2").unwrap().wait(None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        assert!(!error.to_string().contains(WORDS), "{error}");
    });
}

/// An impossible bucket, a database without write permission: `open` does not wait.
#[test]
fn open_on_what_is_refused_for_good_fails_at_once() {
    for kind in FOR_GOOD.into_iter().chain([ErrorKind::Denied]) {
        for (ask, names) in [(Ask::List, ""), (Ask::Put, "manifest/"), (Ask::Put, "wal/")] {
            tell(async move |world| {
                world.refuse(ask, names, Refusal::Plain(Error::new(kind, WORDS)));
                let error = world.open(options()).await.unwrap_err();
                assert_eq!(error.kind(), kind, "{error}");
                assert!(error.to_string().contains(WORDS), "{error}");
                assert!(world.now() < Duration::from_secs(1), "{kind:?} {ask:?} {names}");
            });
        }
    }
}

/// The answer of a create was lost, it was sent again, and the listing that would tell whether its
/// slot was freed meanwhile is denied: it is repeated with pauses, not as fast as it is denied.
#[test]
fn a_denied_boundary_is_asked_with_pauses() {
    tell(async |world| {
        let db = world.open(options()).await.unwrap();
        let lost = std::sync::atomic::AtomicBool::new(false);
        world.store.refuse(move |ask, name| match ask {
            Ask::Put if name.starts_with("wal/") => {
                let again = lost.swap(true, std::sync::atomic::Ordering::Relaxed);
                (!again).then(|| Refusal::Plain(full()))
            }
            Ask::Get if name.starts_with("wal/") => Some(Refusal::Plain(full())),
            Ask::List if name.starts_with("wal/") => Some(Refusal::Plain(denied())),
            _ => None,
        });
        let lists = world.store.asked(Ask::List);
        let commit = put(&db, "a", b"1").unwrap();
        let error = commit.wait(None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        world.sim.sleep(Duration::from_secs(60)).await;
        let asked = world.store.asked(Ask::List) - lists;
        // Ten pauses up to a second, and then one a second, slightly less because of the jitter.
        assert!((20..=80).contains(&asked), "{asked} listings in a minute");
        world.store.heal();
        commit.wait(None).await.unwrap();
        assert_eq!(get(&db, "a").await.as_deref(), Some(&b"1"[..]));
    });
}
