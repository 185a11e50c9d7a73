//! The view of a transaction: its own writes over the moment of its beginning, compared with a map.

use crate::replay::Map;
use crate::{accepted, answered, commit, open, options, rows_of, runtime};
use proptest::collection::vec;
use proptest::prelude::*;
use siltstone::{Database, Isolation, ScanRange, UnixMillis};
use std::collections::BTreeMap;
use tokio::runtime::Runtime;

#[derive(Clone, Debug)]
enum Write {
    Put(u8, u8),
    /// Expired before it was written; or outliving the test.
    Expired(u8),
    Expiring(u8, u8),
    Delete(u8),
    DeleteRange(u8, u8),
    Merge(u8, u8),
}

#[derive(Clone, Debug)]
enum Op {
    Own(Write),
    Others(Write),
    Get(u8),
    GetMany(Vec<u8>),
    Scan(u8, u8, bool, Option<u64>),
    Savepoint,
    RollbackTo(usize),
    Flush,
    Compact,
}

fn writes() -> impl Strategy<Value = Write> {
    let key = || b'a'..b'm';
    prop_oneof![
        5 => (key(), any::<u8>()).prop_map(|(key, value)| Write::Put(key, value)),
        1 => key().prop_map(Write::Expired),
        1 => (key(), any::<u8>()).prop_map(|(key, value)| Write::Expiring(key, value)),
        2 => key().prop_map(Write::Delete),
        2 => (key(), key()).prop_map(|(start, end)| Write::DeleteRange(start, end)),
        3 => (key(), any::<u8>()).prop_map(|(key, operand)| Write::Merge(key, operand)),
    ]
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let key = || b'`'..b'n';
    let scan = (key(), key(), any::<bool>(), prop::option::of(0u64..5));
    let op = prop_oneof![
        8 => writes().prop_map(Op::Own),
        4 => writes().prop_map(Op::Others),
        5 => key().prop_map(Op::Get),
        3 => vec(key(), 0..15).prop_map(Op::GetMany),
        5 => scan.prop_map(|(start, end, reverse, limit)| Op::Scan(start, end, reverse, limit)),
        1 => Just(Op::Savepoint),
        1 => any::<usize>().prop_map(Op::RollbackTo),
        1 => Just(Op::Flush),
        1 => Just(Op::Compact),
    ];
    vec(op, 1..120)
}

fn apply(map: &mut Map, write: &Write) {
    match write {
        Write::Put(key, value) | Write::Expiring(key, value) => {
            map.insert(*key, vec![*value; 20]);
        }
        Write::Expired(key) | Write::Delete(key) => drop(map.remove(key)),
        Write::DeleteRange(start, end) => map.retain(|key, _| key < start || key >= end),
        Write::Merge(key, operand) => map.entry(*key).or_default().push(*operand),
    }
}

fn write_without(runtime: &Runtime, db: &Database, write: &Write) {
    let mut batch = siltstone::Batch::new();
    match write {
        Write::Put(key, value) => batch.put(&[*key], &[*value; 20], None),
        Write::Expiring(key, value) => {
            batch.put(&[*key], &[*value; 20], Some(UnixMillis(u64::MAX)))
        }
        Write::Expired(key) => batch.put(&[*key], b"gone", Some(UnixMillis(1))),
        Write::Delete(key) => batch.delete(&[*key]),
        Write::DeleteRange(start, end) if start < end => batch.delete_range(&[*start], &[*end]),
        Write::DeleteRange(..) => Ok(()),
        Write::Merge(key, operand) => batch.merge(&[*key], &[*operand], None),
    }
    .unwrap();
    accepted(runtime, || db.write(&batch));
}

struct World {
    runtime: Runtime,
    db: Database,
    transaction: siltstone::Transaction,
    /// The expected view of the transaction.
    map: Map,
    savepoints: Vec<(siltstone::Savepoint, Map)>,
}

impl World {
    fn write(&mut self, write: &Write) {
        let own = &self.transaction;
        match write {
            Write::Put(key, value) => own.put(&[*key], &[*value; 20], None),
            Write::Expiring(key, value) => {
                own.put(&[*key], &[*value; 20], Some(UnixMillis(u64::MAX)))
            }
            Write::Expired(key) => own.put(&[*key], b"gone", Some(UnixMillis(1))),
            Write::Delete(key) => own.delete(&[*key]),
            Write::DeleteRange(start, end) if start < end => own.delete_range(&[*start], &[*end]),
            Write::DeleteRange(..) => Ok(()),
            Write::Merge(key, operand) => own.merge(&[*key], &[*operand], None),
        }
        .unwrap();
        apply(&mut self.map, write);
    }

    fn run(&mut self, op: &Op) {
        match op {
            Op::Own(write) => self.write(write),
            Op::Others(write) => write_without(&self.runtime, &self.db, write),
            Op::Get(key) => {
                let got = answered(&self.runtime, self.transaction.get(&[*key]));
                assert_eq!(got.as_deref(), self.map.get(key).map(Vec::as_slice), "{key}");
            }
            Op::GetMany(keys) => {
                let asked: Vec<_> = keys.iter().map(|key| [*key]).collect();
                let got = answered(&self.runtime, self.transaction.get_many(asked));
                let got: Vec<_> = got.iter().map(|value| value.as_deref()).collect();
                let want: Vec<_> =
                    keys.iter().map(|key| self.map.get(key).map(Vec::as_slice)).collect();
                assert_eq!(got, want);
            }
            Op::Scan(start, end, reverse, limit) => {
                let range = ScanRange {
                    start: Some(vec![*start]),
                    end: Some(vec![*end]),
                    reverse: *reverse,
                    limit: *limit,
                };
                let scan = self.transaction.scan(range).unwrap();
                let got = rows_of(&self.runtime, scan, usize::MAX);
                let inside = |key: &u8| start <= key && key < end;
                let mut want: Vec<_> = self.map.iter().filter(|(key, _)| inside(key)).collect();
                if *reverse {
                    want.reverse();
                }
                want.truncate(limit.map_or(usize::MAX, |limit| limit as usize));
                let got: Vec<_> = got.iter().map(|(key, value)| (&key[0], value)).collect();
                assert_eq!(got, want);
            }
            Op::Savepoint => {
                let savepoint = self.transaction.savepoint().unwrap();
                self.savepoints.push((savepoint, self.map.clone()));
            }
            Op::RollbackTo(to) if !self.savepoints.is_empty() => {
                let to = to % self.savepoints.len();
                self.transaction.rollback_to(&self.savepoints[to].0).unwrap();
                self.map = self.savepoints[to].1.clone();
                self.savepoints.truncate(to + 1);
            }
            Op::RollbackTo(_) => {}
            Op::Flush => self.runtime.block_on(self.db.flush_memtable()).unwrap(),
            Op::Compact => drop(self.runtime.block_on(self.db.compact()).unwrap()),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn a_transaction_sees_its_writes_over_its_beginning(
        before in vec(writes(), 0..40),
        flush_at in 0usize..40,
        ops in ops(),
    ) {
        let runtime = runtime();
        let db = open(&runtime, options());
        let mut map: Map = BTreeMap::new();
        for (at, write) in before.iter().enumerate() {
            write_without(&runtime, &db, write);
            apply(&mut map, write);
            if at == flush_at {
                runtime.block_on(db.flush_memtable()).unwrap();
            }
        }
        let transaction = db.transaction(Isolation::Snapshot).unwrap();
        let mut world = World { runtime, db, transaction, map, savepoints: vec![] };
        for op in &ops {
            world.run(op);
        }
        for key in b'a'..b'n' {
            world.run(&Op::Get(key));
        }
        world.run(&Op::Scan(b'a', b'z', false, None));
        world.run(&Op::Scan(b'a', b'z', true, None));
        let alone = !ops.iter().any(|op| matches!(op, Op::Others(_)));
        let committed = commit(&world.runtime, &world.transaction);
        if alone {
            // There was no other writer: its view is the present state.
            committed.unwrap();
            let scan = world.db.scan(ScanRange::all()).unwrap();
            let rows = rows_of(&world.runtime, scan, usize::MAX);
            let rows: Map = rows.into_iter().map(|(key, value)| (key[0], value)).collect();
            assert_eq!(rows, world.map);
        }
        world.runtime.block_on(world.db.close()).unwrap();
    }
}
