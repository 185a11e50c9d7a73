//! Writes on a condition (RFC 0025, O6).

use crate::{accepted, answered, open, options, runtime};
use siltstone::{Answer, Condition, Database, Error, ErrorKind, Result};
use std::sync::Arc;
use std::thread;
use tokio::runtime::Runtime;

fn failed<T>(runtime: &Runtime, answer: Result<Answer<T>>) -> Error {
    let answer = match answer {
        Ok(Answer::Ready(_)) => panic!("the condition held"),
        Ok(Answer::Pending(future)) => runtime.block_on(future).map(drop).unwrap_err(),
        Err(error) => error,
    };
    assert_eq!(answer.kind(), ErrorKind::Conflict, "{answer}");
    assert_eq!(answer.context()[0].0, "key");
    answer
}

fn value(runtime: &Runtime, db: &Database, key: &[u8]) -> Option<Vec<u8>> {
    answered(runtime, db.get(key)).map(|value| value.to_vec())
}

#[test]
fn a_condition_holds_or_is_a_conflict() {
    let runtime = runtime();
    let db = open(&runtime, options());
    let is = |value: &[u8]| Condition::Value(value.to_vec());
    for flushed in [false, true] {
        let put_if = |value: &[u8], condition: Condition| db.put_if(b"k", value, None, condition);
        let settle = || {
            if flushed {
                runtime.block_on(db.flush_memtable()).unwrap();
            }
        };
        failed(&runtime, put_if(b"x", is(b"1")));
        answered(&runtime, put_if(b"1", Condition::Absent));
        settle();
        failed(&runtime, put_if(b"2", Condition::Absent));
        failed(&runtime, put_if(b"2", is(b"0")));
        answered(&runtime, put_if(b"2", is(b"1")));
        settle();
        assert_eq!(value(&runtime, &db, b"k").as_deref(), Some(&b"2"[..]));
        failed(&runtime, db.delete_if(b"k", is(b"1")));
        answered(&runtime, db.delete_if(b"k", is(b"2")));
        settle();
        assert_eq!(value(&runtime, &db, b"k"), None);
        accepted(&runtime, || db.put(b"k", b"3", None));
        // A caller that has no memory for the value keeps it.
        let full = |_| Err(Error::unavailable("no memory"));
        let kept = runtime.block_on(async { db.pop(b"k", full)?.wait().await.map(drop) });
        assert_eq!(kept.unwrap_err().kind(), ErrorKind::Unavailable);
        let (popped, commit) = answered(&runtime, db.pop(b"k", |_| Ok(()))).unwrap();
        assert_eq!((&*popped, commit.seq()), (&b"3"[..], db.snapshot().unwrap().seq()));
        settle();
        let before = db.snapshot().unwrap().seq();
        assert!(answered(&runtime, db.pop(b"k", |_| Ok(()))).is_none());
        assert_eq!(db.snapshot().unwrap().seq(), before);
    }
    assert_eq!(db.pop(b"", |_| Ok(())).unwrap_err().kind(), ErrorKind::Invalid);
    runtime.block_on(db.close()).unwrap();
    assert_eq!(db.pop(b"k", |_| Ok(())).unwrap_err().kind(), ErrorKind::Closed);
}

/// One of all concurrent callers wins, and each value is taken by one caller only.
#[test]
fn one_of_several_at_once_wins() {
    let runtime = Arc::new(runtime());
    let db = open(&runtime, options());
    let rounds = 2_000u32;
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let (runtime, db) = (Arc::clone(&runtime), db.clone());
            thread::spawn(move || {
                let mut won = 0;
                for round in 0..rounds {
                    let key = round.to_be_bytes();
                    let answer = match db.put_if(&key, b"", None, Condition::Absent) {
                        Ok(Answer::Ready(_)) => Ok(()),
                        Ok(Answer::Pending(future)) => runtime.block_on(future).map(drop),
                        Err(error) => Err(error),
                    };
                    won += u32::from(answer.is_ok());
                    // A counter without a transaction.
                    loop {
                        let was = value(&runtime, &db, b"counter");
                        let condition = was.clone().map_or(Condition::Absent, Condition::Value);
                        let count =
                            was.map_or(0, |was| u32::from_be_bytes(was.try_into().unwrap()));
                        let next = (count + 1).to_be_bytes();
                        let answer = match db.put_if(b"counter", &next, None, condition) {
                            Ok(Answer::Ready(_)) => Ok(()),
                            Ok(Answer::Pending(future)) => runtime.block_on(future).map(drop),
                            Err(error) => Err(error),
                        };
                        match answer {
                            Ok(()) => break,
                            Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error}"),
                        }
                    }
                }
                won
            })
        })
        .collect();
    let won: u32 = workers.into_iter().map(|one| one.join().unwrap()).sum();
    assert_eq!(won, rounds);
    let count = value(&runtime, &db, b"counter").unwrap();
    assert_eq!(count, (4 * rounds).to_be_bytes());
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let (runtime, db) = (Arc::clone(&runtime), db.clone());
            thread::spawn(move || {
                let pops = (0..rounds).map(|round| db.pop(&round.to_be_bytes(), |_| Ok(())));
                pops.filter_map(|answer| answered(&runtime, answer)).count()
            })
        })
        .collect();
    let popped: usize = workers.into_iter().map(|one| one.join().unwrap()).sum();
    assert_eq!(popped, rounds as usize);
    runtime.block_on(db.close()).unwrap();
}
