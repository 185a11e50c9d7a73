//! The checker of histories: the recorded transactions, and whether they are possible.
//!
//! One process gives every commit its position in one order, so no graph must be searched for
//! cycles: the transactions are applied again to a map, one after the other, and every read must
//! return its recorded result.

use siltstone::built_in_operator;
use siltstone::{Batch, Isolation, Seq};
use siltstone_tests::model::{Model, View};
use std::collections::BTreeMap;

/// Keys are single letters here.
pub(crate) type Map = BTreeMap<u8, Vec<u8>>;

/// One step of a transaction, with its result.
#[derive(Clone, Debug)]
pub(crate) enum Did {
    Got(u8, Option<Vec<u8>>),
    GotMany(Vec<u8>, Vec<Option<Vec<u8>>>),
    /// Rows of `[start, end)`, at most this many.
    Scanned {
        start: u8,
        end: u8,
        reverse: bool,
        most: usize,
        rows: Vec<(u8, Vec<u8>)>,
    },
    Put(u8, Vec<u8>),
    Delete(u8),
    DeleteRange(u8, u8),
    Merge(u8, Vec<u8>),
    Savepoint,
    /// To the savepoint of that number, from 0.
    RollbackTo(usize),
}

/// A transaction that ended successfully.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    pub(crate) isolation: Isolation,
    /// The number that it read at.
    pub(crate) began: Seq,
    /// The last number of its commit; `None` where nothing was written.
    pub(crate) committed: Option<Seq>,
    pub(crate) did: Vec<Did>,
}

/// The writes without those that were rolled back.
pub(crate) fn writes(did: &[Did]) -> Vec<Did> {
    let mut writes = Vec::new();
    let mut savepoints = Vec::new();
    for one in did {
        match one {
            Did::Savepoint => savepoints.push(writes.len()),
            Did::RollbackTo(to) => {
                writes.truncate(savepoints[*to]);
                savepoints.truncate(to + 1);
            }
            Did::Put(..) | Did::Delete(_) | Did::DeleteRange(..) | Did::Merge(..) => {
                writes.push(one.clone());
            }
            Did::Got(..) | Did::GotMany(..) | Did::Scanned { .. } => {}
        }
    }
    writes
}

fn write(map: &mut Map, did: &Did) {
    match did {
        Did::Put(key, value) => drop(map.insert(*key, value.clone())),
        Did::Delete(key) => drop(map.remove(key)),
        Did::DeleteRange(start, end) => map.retain(|key, _| key < start || key >= end),
        Did::Merge(key, operand) => map.entry(*key).or_default().extend_from_slice(operand),
        _ => {}
    }
}

/// Applies it again to `map`, and reports a different result.
fn again(mut map: Map, did: &[Did]) -> Result<(), String> {
    let mut savepoints: Vec<Map> = Vec::new();
    for (step, one) in did.iter().enumerate() {
        let wrong = |expected: String| Err(format!("step {step} of {did:?}: expected {expected}"));
        match one {
            Did::Got(key, answer) if map.get(key) != answer.as_ref() => {
                return wrong(format!("{:?}", map.get(key)));
            }
            Did::GotMany(keys, answers) => {
                let expected: Vec<_> = keys.iter().map(|key| map.get(key).cloned()).collect();
                if expected != *answers {
                    return wrong(format!("{expected:?}"));
                }
            }
            Did::Scanned { start, end, reverse, most, rows } => {
                let inside = map.iter().filter(|(key, _)| *start <= **key && **key < *end);
                let mut expected: Vec<_> =
                    inside.map(|(key, value)| (*key, value.clone())).collect();
                if *reverse {
                    expected.reverse();
                }
                expected.truncate(*most);
                if expected != *rows {
                    return wrong(format!("{expected:?}"));
                }
            }
            Did::Savepoint => savepoints.push(map.clone()),
            Did::RollbackTo(to) => {
                map = savepoints[*to].clone();
                savepoints.truncate(to + 1);
            }
            _ => write(&mut map, one),
        }
    }
    Ok(())
}

/// Whether the history is permitted by the transactions' isolation. It must contain every write of
/// the database.
///
/// # Errors
/// The first impossible transaction.
pub(crate) fn check(mut history: Vec<Done>, letters: std::ops::Range<u8>) -> Result<(), String> {
    // A read-only transaction follows the commit at which it reads.
    history.sort_by_key(|done| (done.committed.unwrap_or(done.began), done.committed.is_none()));
    let operator = built_in_operator("append").unwrap();
    let mut model = Model::default();
    let mut touched: BTreeMap<u8, Seq> = BTreeMap::new();
    let mut next = Seq(1);
    for done in &history {
        let written = writes(&done.did);
        let first = done.committed.map(|last| last.minus(written.len() as u64 - 1));
        if let Some(first) = first
            && first != next
        {
            return Err(format!(
                "{done:?} begins at {first}, and the commit before ends at {next}"
            ));
        }
        // A serializable transaction takes place at its commit, every other at its beginning.
        let at = match (done.isolation, first) {
            (Isolation::Serializable, Some(first)) => first.minus(1),
            _ => done.began,
        };
        let view = View { operator: Some(&*operator), ..View::at(at) };
        let rows = model.scan(None, None, false, view).unwrap();
        let map = rows.into_iter().map(|(key, value)| (key[0], value)).collect();
        again(map, &done.did).map_err(|wrong| format!("{:?} at {at}: {wrong}", done.isolation))?;
        let Some(last) = done.committed else { continue };
        let mut batch = Batch::new();
        for one in &written {
            let keys = match one {
                Did::Put(key, value) => batch.put(&[*key], value, None).map(|()| *key..*key + 1),
                Did::Delete(key) => batch.delete(&[*key]).map(|()| *key..*key + 1),
                Did::Merge(key, operand) => {
                    batch.merge(&[*key], operand, None).map(|()| *key..*key + 1)
                }
                Did::DeleteRange(start, end) => {
                    batch.delete_range(&[*start], &[*end]).map(|()| *start..*end)
                }
                _ => continue,
            };
            for key in keys.unwrap().filter(|key| letters.contains(key)) {
                let before = touched.insert(key, last).filter(|before| *before != last);
                if done.isolation == Isolation::Snapshot
                    && before.is_some_and(|before| before > done.began)
                {
                    return Err(format!("{done:?}: {key} was written since, a lost update"));
                }
            }
        }
        model.apply(next, batch.as_bytes()).unwrap();
        next = last.next();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(isolation: Isolation, began: u64, committed: Option<u64>, did: Vec<Did>) -> Done {
        Done { isolation, began: Seq(began), committed: committed.map(Seq), did }
    }

    fn put(key: u8) -> Did {
        Did::Put(key, vec![key])
    }

    /// The checker itself must detect violations.
    #[test]
    fn the_checker_finds_each_anomaly() {
        use Isolation::{Serializable, Snapshot};
        let all = 0..10;
        let start = done(Serializable, 0, Some(2), vec![put(1), put(2)]);
        let skew = |isolation| {
            let one = done(isolation, 2, Some(3), vec![Did::Got(1, Some(vec![1])), Did::Delete(2)]);
            let two = done(isolation, 2, Some(4), vec![Did::Got(2, Some(vec![2])), Did::Delete(1)]);
            check(vec![two, start.clone(), one], all.clone())
        };
        assert!(skew(Serializable).is_err());
        assert!(skew(Snapshot).is_ok());
        let lost = |isolation| {
            let one = done(isolation, 2, Some(3), vec![Did::Got(1, Some(vec![1])), put(1)]);
            let two = done(isolation, 2, Some(4), vec![Did::Got(1, Some(vec![1])), put(1)]);
            check(vec![start.clone(), one, two], all.clone())
        };
        // The value is the same, so it is no anomaly of reads; but the second was not the first.
        assert!(lost(Serializable).is_ok());
        assert!(lost(Snapshot).is_err());
        let rows = vec![(1, vec![1]), (2, vec![2])];
        let scanned = Did::Scanned { start: 0, end: 9, reverse: false, most: 9, rows };
        let phantom = vec![
            start.clone(),
            done(Serializable, 2, Some(3), vec![put(3)]),
            done(Serializable, 2, Some(4), vec![scanned.clone(), put(4)]),
        ];
        assert!(check(phantom, all.clone()).is_err());
        let torn = vec![start.clone(), done(Serializable, 3, None, vec![scanned.clone()])];
        assert!(check(torn, all.clone()).is_ok());
        let unknown = vec![start, done(Serializable, 3, Some(9), vec![put(1)])];
        assert!(check(unknown, all).is_err());
    }
}
