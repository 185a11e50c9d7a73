//! Random transactions of several threads over hot keys; the checker is in [`crate::replay`].

use crate::replay::{Did, Done, check, writes};
use crate::{accepted, answered, commit, open, options, rows_of, runtime};
use siltstone::{Database, ErrorKind, Isolation, ScanRange, Seq, Transaction};
use std::sync::Arc;
use std::thread;
use tokio::runtime::Runtime;

/// So few that transactions overlap.
const KEYS: std::ops::Range<u8> = b'a'..b'm';

/// A repeatable sequence of numbers (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    fn key(&mut self) -> u8 {
        KEYS.start + self.below(KEYS.len() as u64) as u8
    }

    fn value(&mut self) -> Vec<u8> {
        self.below(u64::MAX).to_le_bytes()[..3].to_vec()
    }

    fn span(&mut self) -> (u8, u8) {
        let start = self.key();
        (start, start + 1 + self.below(5) as u8)
    }
}

/// One step of a transaction.
fn step(
    runtime: &Runtime,
    transaction: &Transaction,
    numbers: &mut Numbers,
    savepoints: &mut Vec<siltstone::Savepoint>,
) -> Did {
    match numbers.below(20) {
        0..=4 => {
            let key = numbers.key();
            let value = answered(runtime, transaction.get(&[key]));
            Did::Got(key, value.map(|value| value.to_vec()))
        }
        5 => {
            let keys: Vec<u8> = (0..numbers.below(5)).map(|_| numbers.key()).collect();
            let asked = keys.iter().map(|key| [*key]).collect::<Vec<_>>();
            let values = answered(runtime, transaction.get_many(asked));
            Did::GotMany(
                keys,
                values.iter().map(|one| one.as_deref().map(<[u8]>::to_vec)).collect(),
            )
        }
        6..=9 => {
            let ((start, end), reverse) = (numbers.span(), numbers.below(2) == 0);
            let most = if numbers.below(2) == 0 { 1 + numbers.below(3) as usize } else { 99 };
            // Half of the interrupted ones have a limit, and the others are dropped.
            let limit = (most < 99 && numbers.below(2) == 0).then_some(most as u64);
            let range =
                ScanRange { start: Some(vec![start]), end: Some(vec![end]), reverse, limit };
            let rows = rows_of(runtime, transaction.scan(range).unwrap(), most);
            let rows = rows.into_iter().map(|(key, value)| (key[0], value)).collect();
            Did::Scanned { start, end, reverse, most, rows }
        }
        10..=14 => {
            let (key, value) = (numbers.key(), numbers.value());
            transaction.put(&[key], &value, None).unwrap();
            Did::Put(key, value)
        }
        15 => {
            let key = numbers.key();
            transaction.delete(&[key]).unwrap();
            Did::Delete(key)
        }
        16 => {
            let (start, end) = numbers.span();
            transaction.delete_range(&[start], &[end]).unwrap();
            Did::DeleteRange(start, end)
        }
        17 => {
            let (key, operand) = (numbers.key(), vec![b'+']);
            transaction.merge(&[key], &operand, None).unwrap();
            Did::Merge(key, operand)
        }
        18 => {
            savepoints.push(transaction.savepoint().unwrap());
            Did::Savepoint
        }
        _ if savepoints.is_empty() => {
            savepoints.push(transaction.savepoint().unwrap());
            Did::Savepoint
        }
        _ => {
            let to = numbers.below(savepoints.len() as u64) as usize;
            transaction.rollback_to(&savepoints[to]).unwrap();
            savepoints.truncate(to + 1);
            Did::RollbackTo(to)
        }
    }
}

/// One transaction; `None` if it was overtaken.
fn transact(
    runtime: &Runtime,
    db: &Database,
    numbers: &mut Numbers,
    isolation: Isolation,
) -> Option<Done> {
    let transaction = db.transaction(isolation).unwrap();
    let (began, mut did, mut savepoints) = (transaction.seq(), Vec::new(), Vec::new());
    for _ in 0..=numbers.below(6) {
        did.push(step(runtime, &transaction, numbers, &mut savepoints));
        if numbers.below(3) == 0 {
            thread::yield_now();
        }
    }
    match commit(runtime, &transaction) {
        Ok(committed) => {
            let committed = committed.map(|commit| commit.seq());
            assert_eq!(committed.is_some(), !writes(&did).is_empty());
            Some(Done { isolation, began, committed, did })
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
            assert!(error.context().iter().any(|(name, _)| *name == "key"), "{error}");
            None
        }
    }
}

/// A write without a transaction, which depends on nothing.
fn plain(runtime: &Runtime, db: &Database, numbers: &mut Numbers) -> Done {
    let (key, value) = (numbers.key(), numbers.value());
    let commit = accepted(runtime, || db.put(&[key], &value, None));
    let isolation = Isolation::Serializable;
    let did = vec![Did::Put(key, value)];
    Done { isolation, began: Seq(0), committed: Some(commit.seq()), did }
}

/// Runs this many transactions in four threads and checks their results. `isolation` is called for
/// each.
fn run(transactions: u64, seed: u64, isolation: fn(u64) -> Isolation) {
    let runtime = Arc::new(runtime());
    let db = open(&runtime, options());
    let threads = 4;
    let each = transactions / threads;
    let workers: Vec<_> = (0..threads)
        .map(|number| {
            let (runtime, db) = (Arc::clone(&runtime), db.clone());
            thread::spawn(move || {
                let mut numbers = Numbers(seed ^ (number << 32));
                let mut done = Vec::new();
                for _ in 0..each {
                    let isolation = isolation(numbers.below(2));
                    done.extend(transact(&runtime, &db, &mut numbers, isolation));
                    if numbers.below(10) == 0 {
                        done.push(plain(&runtime, &db, &mut numbers));
                    }
                }
                done
            })
        })
        .collect();
    let history: Vec<Done> = workers.into_iter().flat_map(|one| one.join().unwrap()).collect();
    let committed = history.iter().filter(|done| done.committed.is_some()).count();
    println!("{} of {transactions} well, {committed} of them wrote", history.len());
    // Without overlapping transactions the test would prove nothing.
    assert!(history.len() < transactions as usize * 11 / 10 && committed > 0);
    check(history, KEYS).unwrap();
    runtime.block_on(db.close()).unwrap();
}

/// The number: 100,000, or the value in the environment.
fn many() -> u64 {
    std::env::var("TRANSACTIONS").ok().and_then(|many| many.parse().ok()).unwrap_or(100_000)
}

#[test]
fn serializable_histories_have_no_anomaly() {
    run(many(), 1, |_| Isolation::Serializable);
}

#[test]
fn histories_of_snapshot_isolation_have_write_skew_at_most() {
    run(many() / 4, 2, |_| Isolation::Snapshot);
}

#[test]
fn both_may_be_mixed() {
    run(
        many() / 4,
        3,
        |coin| if coin == 0 { Isolation::Serializable } else { Isolation::Snapshot },
    );
}
