//! The size of log objects, and the time limit of requests for them.

use crate::{Ask, DEADLINE, Refusal, get, options, put, tell};
use siltstone::{ErrorKind, Options};
use siltstone_base::ObjectName;
use siltstone_base::name::prefix;
use std::time::Duration;

/// Objects of the log that contain rows, and their lengths.
async fn log(store: &crate::Shaped) -> Vec<u64> {
    let listed = store.lengths(prefix::WAL).await;
    let objects = listed.into_iter().filter(|(name, _)| matches!(name, ObjectName::Wal(_)));
    objects.map(|(_, bytes)| bytes).collect()
}

/// The store answers no create for a while, and writes continue: the collected batches are sent as
/// objects of bounded size, no batch is split, and none is lost.
#[test]
fn an_object_of_the_log_has_a_largest_size() {
    const FLUSH_BYTES: usize = 10_000;
    tell(async |world| {
        let small = Options { flush_bytes: FLUSH_BYTES, ..options() };
        let db = world.open(small.clone()).await.unwrap();
        world.refuse(Ask::Put, "wal/", Refusal::Plain(crate::full()));
        for number in 0..1000 {
            put(&db, &format!("k{number:04}"), &[7; 500]).unwrap();
        }
        // A single batch may be larger, and gets its own object.
        let large = put(&db, "large", &vec![8; 5 * FLUSH_BYTES]).unwrap();
        let last = put(&db, "last", b"9").unwrap();
        world.sim.sleep(Duration::from_secs(2)).await;
        world.store.heal();
        large.wait(None).await.unwrap();
        last.wait(None).await.unwrap();
        let lengths = log(&world.store).await;
        let most = 4 * FLUSH_BYTES as u64;
        let over: Vec<_> = lengths.iter().filter(|bytes| **bytes > most).collect();
        assert_eq!(over.len(), 1, "{lengths:?}");
        assert!(*over[0] < most + 2 * FLUSH_BYTES as u64, "{lengths:?}");
        // Four were sent small, before they were refused; the others are as large as permitted.
        assert!(lengths.len() < 5 + 520_000 / (3 * FLUSH_BYTES) + 4, "{lengths:?}");
        // Killed here: everything acknowledged is in the log.
        let db = world.open(small).await.unwrap();
        for number in 0..1000 {
            assert!(get(&db, &format!("k{number:04}")).await.is_some(), "{number}");
        }
        assert_eq!(get(&db, "large").await.map(|value| value.len()), Some(5 * FLUSH_BYTES));
        assert_eq!(get(&db, "last").await.as_deref(), Some(&b"9"[..]));
    });
}

/// Closing sends every collected piece.
#[test]
fn closing_sends_every_piece() {
    tell(async |world| {
        let db = world.open(Options { flush_bytes: 1000, ..options() }).await.unwrap();
        for number in 0..300 {
            put(&db, &format!("k{number:04}"), &[7; 400]).unwrap();
        }
        db.close().await.unwrap();
        let db = world.open(options()).await.unwrap();
        for number in 0..300 {
            assert!(get(&db, &format!("k{number:04}")).await.is_some(), "{number}");
        }
    });
}

/// An object of the log takes longer to read than a request without bytes may take: it is read
/// once, and the database opens.
#[test]
fn a_long_object_has_the_time_of_its_bytes() {
    const BYTES: usize = 3 << 20;
    tell(async |world| {
        let db = world.open(options()).await.unwrap();
        put(&db, "large", &vec![8; BYTES]).unwrap().wait(None).await.unwrap();
        drop(db);
        // 15 s of reading; the deadline is 5 s.
        world.store.set_bandwidth(200 << 10);
        let (began, moved) = (world.now(), world.store.bytes_moved());
        let db = world.open(options()).await.unwrap();
        let took = world.now() - began;
        assert!((3 * DEADLINE..4 * DEADLINE).contains(&took), "{took:?}");
        let moved = world.store.bytes_moved() - moved;
        assert!(moved < 2 * BYTES as u64, "it was read again and again: {moved} bytes");
        assert_eq!(get(&db, "large").await.map(|value| value.len()), Some(BYTES));
    });
}

/// A store that answers nothing ends every call as early as before.
#[test]
fn silence_ends_by_the_deadline() {
    tell(async |world| {
        let db = world.open(options()).await.unwrap();
        put(&db, "large", &vec![8; 3 << 20]).unwrap().wait(None).await.unwrap();
        drop(db);
        world.store.refuse(|ask, name| {
            let log = name.starts_with("wal/");
            (log && matches!(ask, Ask::Get | Ask::List)).then_some(Refusal::Silence)
        });
        let began = world.now();
        let error = world.open(options()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        let took = world.now() - began;
        assert!(took < DEADLINE + Duration::from_secs(1), "{took:?}");
    });
}
