//! The anomalies by name, one after the other in one thread, so that each certainly occurs.

use crate::{accepted, answered, commit, open, options, range, rows_of, runtime};
use siltstone::{
    Accept, Database, Error, ErrorKind, Isolation, Options, ScanRange, Transaction, Writes,
};
use tokio::runtime::Runtime;

const BOTH: [Isolation; 2] = [Isolation::Serializable, Isolation::Snapshot];

struct World {
    runtime: Runtime,
    db: Database,
}

impl World {
    fn new() -> World {
        World::with(options())
    }

    fn with(options: Options) -> World {
        let runtime = runtime();
        let db = open(&runtime, options);
        World { runtime, db }
    }

    fn put(&self, key: &[u8], value: &[u8]) {
        accepted(&self.runtime, || self.db.put(key, value, None));
    }

    fn begin(&self, isolation: Isolation) -> Transaction {
        self.db.transaction(isolation).unwrap()
    }

    fn get(&self, transaction: &Transaction, key: &[u8]) -> Option<Vec<u8>> {
        answered(&self.runtime, transaction.get(key)).map(|value| value.to_vec())
    }

    fn now(&self, key: &[u8]) -> Option<Vec<u8>> {
        answered(&self.runtime, self.db.get(key)).map(|value| value.to_vec())
    }

    fn count(&self, transaction: &Transaction, range: ScanRange) -> usize {
        rows_of(&self.runtime, transaction.scan(range).unwrap(), usize::MAX).len()
    }

    /// The key that the conflict of a commit names.
    fn conflict(&self, transaction: &Transaction) -> String {
        let error = commit(&self.runtime, transaction).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        let key = error.context().iter().find(|(name, _)| *name == "key");
        key.unwrap_or_else(|| panic!("{error} names no key")).1.clone()
    }

    fn commits(&self, transaction: &Transaction) {
        commit(&self.runtime, transaction).unwrap();
    }

    fn end(self) {
        self.runtime.block_on(self.db.close()).unwrap();
    }
}

/// Two read a counter, and both write it one higher.
#[test]
fn no_update_is_lost() {
    for isolation in BOTH {
        let world = World::new();
        world.put(b"counter", b"1");
        let (one, two) = (world.begin(isolation), world.begin(isolation));
        for transaction in [&one, &two] {
            assert_eq!(world.get(transaction, b"counter").as_deref(), Some(&b"1"[..]));
            transaction.put(b"counter", b"2", None).unwrap();
        }
        world.commits(&two);
        assert_eq!(world.conflict(&one), "counter");
        assert_eq!(world.now(b"counter").as_deref(), Some(&b"2"[..]));
        world.end();
    }
}

/// The same against a put, a merge or a delete without a transaction.
#[test]
fn writes_without_a_transaction_count() {
    for isolation in BOTH {
        let world = World::new();
        world.put(b"k", b"1");
        let writes: [&dyn Fn(); 4] = [
            &|| drop(accepted(&world.runtime, || world.db.put(b"k", b"x", None))),
            &|| drop(accepted(&world.runtime, || world.db.merge(b"k", b"x", None))),
            &|| drop(accepted(&world.runtime, || world.db.delete(b"k"))),
            &|| drop(accepted(&world.runtime, || world.db.delete_range(b"a", b"z"))),
        ];
        for write in writes {
            let transaction = world.begin(isolation);
            world.get(&transaction, b"k");
            transaction.put(b"k", b"y", None).unwrap();
            write();
            assert_eq!(world.conflict(&transaction), "k");
        }
        world.end();
    }
}

/// Two doctors are on call; each sees the other one, and goes off call.
#[test]
fn write_skew_is_for_snapshot_isolation_alone() {
    for isolation in BOTH {
        let world = World::new();
        world.put(b"call/ada", b"on");
        world.put(b"call/ben", b"on");
        let (ada, ben) = (world.begin(isolation), world.begin(isolation));
        for (transaction, own) in [(&ada, b"call/ada"), (&ben, b"call/ben")] {
            assert_eq!(world.count(transaction, ScanRange::prefix(b"call/")), 2);
            transaction.delete(own).unwrap();
        }
        world.commits(&ada);
        if isolation == Isolation::Serializable {
            assert_eq!(world.conflict(&ben), "call/ada");
        } else {
            world.commits(&ben);
        }
        world.end();
    }
}

/// The same with keys alone: each reads the key that the other one writes.
#[test]
fn write_skew_between_two_keys() {
    for isolation in BOTH {
        let world = World::new();
        let (one, two) = (world.begin(isolation), world.begin(isolation));
        assert_eq!((world.get(&one, b"x"), world.get(&two, b"y")), (None, None));
        one.put(b"y", b"1", None).unwrap();
        two.put(b"x", b"1", None).unwrap();
        world.commits(&one);
        if isolation == Isolation::Serializable {
            assert_eq!(world.conflict(&two), "y");
        } else {
            world.commits(&two);
        }
        world.end();
    }
}

/// Overtaken by a commit that touched the scanned range, in a gap, at its ends, or not.
#[test]
fn phantoms_are_conflicts() {
    let world = World::new();
    for key in [b"b", b"d", b"f"] {
        world.put(key, b"1");
    }
    world.runtime.block_on(world.db.flush_memtable()).unwrap();
    let scans = |reverse, limit| ScanRange { reverse, limit, ..range(b"a", b"h") };
    // The scanned range, the key that is written meanwhile, and whether that is a conflict.
    let cases: [(ScanRange, &[u8], bool); 14] = [
        (scans(false, None), b"c", true),
        (scans(false, None), b"a", true),
        (scans(false, None), b"g", true),
        (scans(false, None), b"h", false),
        (scans(false, None), b"0", false),
        (scans(false, Some(1)), b"a", true),
        (scans(false, Some(1)), b"b", true),
        (scans(false, Some(1)), b"b\0", false),
        (scans(true, Some(1)), b"g", true),
        (scans(true, Some(1)), b"f", true),
        (scans(true, Some(1)), b"e", false),
        (range(b"x", b"y"), b"xx", true),
        (ScanRange::all(), b"zz", true),
        (scans(false, Some(0)), b"c", false),
    ];
    for (scanned, key, conflicts) in cases {
        // Restores the keys deleted by the previous case.
        [b"b", b"d", b"f"].iter().for_each(|key| world.put(*key, b"1"));
        let transaction = world.begin(Isolation::Serializable);
        world.count(&transaction, scanned.clone());
        transaction.put(b"result", b"1", None).unwrap();
        // A delete of a missing key is a phantom as well: the key may be created.
        accepted(&world.runtime, || world.db.delete(key));
        let text = format!("{scanned:?}, {}", key.escape_ascii());
        match commit(&world.runtime, &transaction) {
            Ok(_) => assert!(!conflicts, "{text}: no conflict"),
            Err(error) => {
                assert!(conflicts && error.kind() == ErrorKind::Conflict, "{text}: {error}");
                assert_eq!(error.context()[0], ("key", key.escape_ascii().to_string()));
            }
        }
    }
    world.end();
}

/// A dropped scan counts up to its last returned row.
#[test]
fn rows_past_the_end_of_a_scan_were_not_read() {
    let world = World::new();
    for key in [b"b", b"d", b"f"] {
        world.put(key, b"1");
    }
    for (most, written, conflicts) in [(2, b"c", true), (2, b"e", false), (0, b"a", false)] {
        let transaction = world.begin(Isolation::Serializable);
        let scan = transaction.scan(ScanRange::all()).unwrap();
        assert_eq!(rows_of(&world.runtime, scan, most).len(), most);
        transaction.put(b"z", b"1", None).unwrap();
        world.put(written, b"2");
        assert_eq!(commit(&world.runtime, &transaction).is_err(), conflicts, "{most}");
        accepted(&world.runtime, || world.db.delete(written));
        world.put(b"d", b"1");
    }
    world.end();
}

/// Range deletes conflict with keys that are absent, and with ranges, by range.
#[test]
fn range_deletes_conflict_by_range() {
    let world = World::new();
    let cases: [(&[u8], &[u8], bool); 3] =
        [(b"a", b"n", true), (b"m", b"x", true), (b"n", b"x", false)];
    for (start, end, conflicts) in cases {
        let by_key = world.begin(Isolation::Serializable);
        assert_eq!(world.get(&by_key, b"m"), None);
        let by_range = world.begin(Isolation::Serializable);
        assert_eq!(world.count(&by_range, range(b"m", b"n")), 0);
        let by_write = world.begin(Isolation::Snapshot);
        by_write.delete_range(b"m", b"mm").unwrap();
        accepted(&world.runtime, || world.db.delete_range(start, end));
        for (own, transaction) in [b"x1", b"x2", b"x3"].iter().zip([by_key, by_range, by_write]) {
            transaction.put(*own, b"1", None).unwrap();
            let text = format!("{transaction:?}, from {}", start.escape_ascii());
            assert_eq!(commit(&world.runtime, &transaction).is_err(), conflicts, "{text}");
        }
    }
    world.end();
}

/// Keys that a serializable transaction only writes cannot be overtaken.
#[test]
fn blind_writes_and_operands_never_conflict() {
    let world = World::new();
    let transaction = world.begin(Isolation::Serializable);
    transaction.merge(b"sum", b"a", None).unwrap();
    transaction.put(b"k", b"mine", None).unwrap();
    // Nor can its own writes that it reads.
    assert_eq!(world.get(&transaction, b"k").as_deref(), Some(&b"mine"[..]));
    accepted(&world.runtime, || world.db.merge(b"sum", b"b", None));
    world.put(b"k", b"theirs");
    world.commits(&transaction);
    assert_eq!(world.now(b"k").as_deref(), Some(&b"mine"[..]));
    assert_eq!(world.now(b"sum").as_deref(), Some(&b"ba"[..]));
    // Reading an operand is a read of the value below it.
    let transaction = world.begin(Isolation::Serializable);
    transaction.merge(b"sum", b"c", None).unwrap();
    assert_eq!(world.get(&transaction, b"sum").as_deref(), Some(&b"bac"[..]));
    world.put(b"sum", b"");
    assert_eq!(world.conflict(&transaction), "sum");
    world.end();
}

#[test]
fn savepoints_undo_writes_and_never_reads() {
    let world = World::new();
    world.put(b"k", b"0");
    let transaction = world.begin(Isolation::Serializable);
    transaction.put(b"a", b"1", None).unwrap();
    let first = transaction.savepoint().unwrap();
    transaction.put(b"a", b"2", None).unwrap();
    let second = transaction.savepoint().unwrap();
    transaction.delete_range(b"a", b"z").unwrap();
    assert_eq!((world.get(&transaction, b"a"), world.get(&transaction, b"k")), (None, None));
    transaction.rollback_to(&second).unwrap();
    assert_eq!(world.get(&transaction, b"a").as_deref(), Some(&b"2"[..]));
    assert_eq!(world.get(&transaction, b"k").as_deref(), Some(&b"0"[..]));
    transaction.rollback_to(&first).unwrap();
    assert_eq!(world.get(&transaction, b"a").as_deref(), Some(&b"1"[..]));
    // It stays, and the later one ended with the rollback to the earlier one.
    transaction.rollback_to(&first).unwrap();
    assert_eq!(transaction.rollback_to(&second).unwrap_err().kind(), ErrorKind::Invalid);
    let other = world.begin(Isolation::Serializable);
    assert_eq!(other.rollback_to(&first).unwrap_err().kind(), ErrorKind::Invalid);
    world.put(b"k", b"1");
    assert_eq!(world.conflict(&transaction), "k");
    world.end();
}

#[test]
fn an_end_is_an_end() {
    let world = World::new();
    let closed = |error: Error, how: &str| {
        assert_eq!(error.kind(), ErrorKind::Closed);
        assert!(error.to_string().contains(how), "{error}");
    };
    let transaction = world.begin(Isolation::Serializable);
    transaction.put(b"k", b"1", None).unwrap();
    world.commits(&transaction);
    closed(transaction.commit().unwrap_err(), "committed");
    closed(transaction.get(b"k").unwrap_err(), "committed");
    let transaction = world.begin(Isolation::Serializable);
    transaction.put(b"k", b"2", None).unwrap();
    transaction.rollback();
    transaction.rollback();
    closed(transaction.put(b"k", b"3", None).unwrap_err(), "rolled back");
    let transaction = world.begin(Isolation::Serializable);
    world.get(&transaction, b"k");
    transaction.put(b"k", b"4", None).unwrap();
    world.put(b"k", b"5");
    assert_eq!(world.conflict(&transaction), "k");
    closed(transaction.commit().unwrap_err(), "conflict");
    drop(world.begin(Isolation::Serializable));
    assert_eq!(world.now(b"k").as_deref(), Some(&b"5"[..]));
    world.end();
}

/// It sees the moment of its beginning, after any commit, and its own scans see their own moment.
#[test]
fn a_transaction_sees_one_state() {
    for isolation in BOTH {
        let world = World::new();
        world.put(b"a", b"1");
        let transaction = world.begin(isolation);
        transaction.put(b"b", b"own", None).unwrap();
        let before = transaction.scan(ScanRange::all()).unwrap();
        transaction.put(b"c", b"own", None).unwrap();
        for n in 0..200u32 {
            // The same keys repeatedly, and a flush or two.
            world.put(b"a", &n.to_be_bytes());
            world.put(b"bb", &[7; 400]);
        }
        world.runtime.block_on(world.db.flush_memtable()).unwrap();
        world.runtime.block_on(world.db.compact()).unwrap();
        let keys = |rows: Vec<crate::Row>| rows.into_iter().map(|(key, _)| key).collect::<Vec<_>>();
        assert_eq!(keys(rows_of(&world.runtime, before, 9)), [b"a", b"b"]);
        for reverse in [false, true] {
            let scan = transaction.scan(ScanRange { reverse, ..ScanRange::all() }).unwrap();
            let mut rows = rows_of(&world.runtime, scan, 9);
            if reverse {
                rows.reverse();
            }
            assert_eq!(rows[0], (b"a".to_vec(), b"1".to_vec()));
            assert_eq!(keys(rows), [b"a", b"b", b"c"]);
        }
        assert_eq!(world.get(&transaction, b"a").as_deref(), Some(&b"1"[..]));
        world.end();
    }
}

/// A read-only transaction costs nothing at its end, after any commits.
#[test]
fn a_read_only_transaction_never_conflicts() {
    let world = World::new();
    let transaction = world.begin(Isolation::Serializable);
    world.get(&transaction, b"k");
    assert_eq!(world.count(&transaction, ScanRange::all()), 0);
    world.put(b"k", b"1");
    assert!(commit(&world.runtime, &transaction).unwrap().is_none());
    world.end();
}

/// More commits than are remembered: a writing transaction gets an error, a read-only one need not
/// know.
#[test]
fn forgotten_keys_are_a_conflict_that_says_so() {
    let window = Options {
        writes: Writes { transaction_window_bytes: 262_144, ..Writes::default() },
        ..options()
    };
    let world = World::with(window);
    let (writes, reads) =
        (world.begin(Isolation::Serializable), world.begin(Isolation::Serializable));
    world.get(&writes, b"k");
    world.get(&reads, b"k");
    for n in 0..20_000u32 {
        world.put(&n.to_be_bytes(), b"");
    }
    writes.put(b"k", b"1", None).unwrap();
    let error = commit(&world.runtime, &writes).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("transaction_window_bytes"), "{error}");
    assert!(commit(&world.runtime, &reads).unwrap().is_none());
    world.end();
}

/// The comparison of a long transaction outside of the lock takes place.
#[test]
fn a_long_one_is_compared_in_rounds() {
    let world = World::new();
    for overtaken in [false, true] {
        let transaction = world.begin(Isolation::Serializable);
        world.get(&transaction, b"k");
        transaction.put(b"other", b"1", None).unwrap();
        for n in 0..20_000u32 {
            world.put(&n.to_be_bytes(), b"");
        }
        if overtaken {
            world.put(b"k", b"1");
            assert_eq!(world.conflict(&transaction), "k");
        } else {
            world.commits(&transaction);
        }
    }
    world.end();
}

/// A commit that must wait for room has done nothing, and is compared again.
#[test]
fn a_commit_that_waited_for_room_is_compared_anew() {
    let full = Options { max_memtable_bytes: 64 << 10, l0_sst_size_bytes: 64 << 10, ..options() };
    let world = World::with(full);
    let transaction = world.begin(Isolation::Serializable);
    world.get(&transaction, b"k");
    transaction.put(b"k", b"mine", None).unwrap();
    // At some time there is no room, whether or not a flush runs meanwhile.
    let room = loop {
        match world.db.put(b"filler", &[7; 8 << 10], None).unwrap() {
            Accept::Accepted(_) => {}
            Accept::Pressure(room) => break room,
        }
    };
    let held_up = matches!(transaction.commit(), Ok(Some(Accept::Pressure(_))));
    world.runtime.block_on(room).unwrap();
    if held_up {
        world.put(b"k", b"theirs");
        assert_eq!(world.conflict(&transaction), "k");
        assert_eq!(world.now(b"k").as_deref(), Some(&b"theirs"[..]));
    }
    world.end();
}

/// After the handle is closed, reads continue and commits raise the reason.
#[test]
fn a_closed_handle_commits_nothing() {
    let world = World::new();
    world.put(b"k", b"1");
    let transaction = world.begin(Isolation::Serializable);
    transaction.put(b"l", b"1", None).unwrap();
    world.runtime.block_on(world.db.close()).unwrap();
    assert_eq!(world.get(&transaction, b"k").as_deref(), Some(&b"1"[..]));
    assert_eq!(transaction.commit().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(world.db.transaction(Isolation::Snapshot).unwrap_err().kind(), ErrorKind::Closed);
}
