//! The versions that survive flushes and compactions, and their visibility.

use crate::place::{Place, options};
use siltstone::{
    Accept, Answer, Database, FillOutcome, OpenOptions, Options, Result, Rows, ScanRange, Snapshot,
    Value, built_in_operator,
};
use siltstone_tests::sim::ProcessId;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A database in one process, written and compacted by explicit calls.
struct Store {
    place: Place,
    process: ProcessId,
    db: Database,
}

const TTL: Option<Duration> = Some(Duration::from_secs(10));

impl Store {
    fn new(options: Options) -> Store {
        let place = Place::new(|plan| plan);
        let (process, env) = place.process();
        let merge_operator = built_in_operator("append");
        let how = OpenOptions { options, merge_operator, ..OpenOptions::default() };
        let db = place.run(process, Database::open(env, how)).expect("opens");
        Store { place, process, db }
    }

    /// A database whose layers move only by explicit calls.
    fn by_hand() -> Store {
        Store::new(Options { embedded_compactor: false, embedded_gc: false, ..options() })
    }

    fn put(&self, key: &str, value: &str, ttl: Option<Duration>) {
        accepted(self.db.put(key.as_bytes(), value.as_bytes(), ttl));
    }

    fn add(&self, key: &str, operand: &str, ttl: Option<Duration>) {
        accepted(self.db.merge(key.as_bytes(), operand.as_bytes(), ttl));
    }

    fn flush(&self) {
        let db = self.db.clone();
        self.run(async move { db.flush_memtable().await });
    }

    /// Everything into run 0.
    fn compact(&self) {
        let db = self.db.clone();
        self.run(async move { db.compact().await });
    }

    /// All of L0 into a run above all others.
    fn compact_l0(&self) {
        let state = self.place.newest();
        let sources: Vec<_> = state.l0.iter().map(|entry| format!("L0:{}", entry.order)).collect();
        let run = state.runs.first().map_or(0, |run| run.id + 1);
        let (db, plan) = (self.db.clone(), format!("{} -> {run}", sources.join(", ")));
        self.run(async move { db.submit(&plan).await });
    }

    fn run<T: Send + 'static>(&self, work: impl Future<Output = Result<T>> + Send + 'static) -> T {
        self.place.run(self.process, work).expect("a healthy store")
    }

    fn answer(&self, answer: Result<Answer<Option<Value>>>) -> Option<String> {
        let value = match answer.expect("open") {
            Answer::Ready(value) => value,
            Answer::Pending(pending) => self.run(pending),
        };
        value.map(|value| String::from_utf8_lossy(value.as_ref()).into_owned())
    }

    fn get(&self, key: &str) -> Option<String> {
        self.answer(self.db.get(key.as_bytes()))
    }

    fn get_at(&self, snapshot: &Snapshot, key: &str) -> Option<String> {
        self.answer(snapshot.get(key.as_bytes()))
    }

    /// Entries in all tables.
    fn entries(&self) -> u64 {
        self.place.newest().tables().map(|table| table.entries).sum()
    }

    /// Keys and values, forward or backward.
    fn scan(&self, reverse: bool) -> Vec<(String, String)> {
        let range = ScanRange { start: None, end: None, reverse, limit: None };
        let mut scan = self.db.scan(range).expect("open");
        self.run(async move {
            let mut rows = Rows::new();
            while scan.fill(&mut rows, 100, 1 << 20)? == FillOutcome::NeedsBlocks {
                scan.fetch().await?;
            }
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let row = |at| rows.row(at).map(|(key, value)| (text(key), text(value)));
            Ok((0..rows.len()).filter_map(row).collect())
        })
    }

    /// Checks the value of the only key, `k`, by every kind of read.
    fn sees(&self, value: Option<&str>, told: &str) {
        assert_eq!(self.get("k").as_deref(), value, "get, {told}");
        let rows: Vec<_> =
            value.map(|value| ("k".to_owned(), value.to_owned())).into_iter().collect();
        assert_eq!(self.scan(false), rows, "scan, {told}");
        assert_eq!(self.scan(true), rows, "scan backward, {told}");
    }
}

fn accepted(answer: Result<Accept>) {
    assert!(matches!(answer, Ok(Accept::Accepted(_))), "not accepted");
}

/// 11, and a peer's 37 and 38: an expired entry hides older ones, wherever either is, for reads and
/// for the entries kept by flushes and compactions.
#[test]
fn bug_11_expired_rows_revive_nothing() {
    for steps in 0..4 {
        let store = Store::by_hand();
        store.put("k", "old", None);
        store.flush();
        store.compact();
        store.put("k", "new", TTL);
        if steps > 0 {
            store.flush();
        }
        store.sees(Some("new"), "before it expires");
        store.place.pass(20);
        store.sees(None, "expired where it was");
        store.flush();
        store.sees(None, "expired, in a table");
        if steps > 1 {
            store.compact_l0();
            store.sees(None, "in a run above the older one");
        }
        if steps > 2 {
            store.compact();
            store.sees(None, "merged with the older one");
        }
    }
}

/// A tombstone, and a range delete, may be dropped only if no older entry is left below.
#[test]
fn bug_11_deletes_stay_above_what_they_hide() {
    for ranged in [false, true] {
        let store = Store::by_hand();
        store.put("k", "old", None);
        store.flush();
        store.compact();
        match ranged {
            true => accepted(store.db.delete_range(b"a", b"z")),
            false => accepted(store.db.delete(b"k")),
        }
        store.flush();
        store.put("kk", "other", None);
        store.flush();
        store.compact_l0();
        assert_eq!(store.get("k"), None, "ranged: {ranged}");
        accepted(store.db.delete(b"kk"));
        store.flush();
        store.compact_l0();
        store.sees(None, "above the last run");
        store.compact();
        store.sees(None, "in the last run");
        assert_eq!(store.place.newest().tables().count(), 0, "ranged: {ranged}");
    }
}

/// A peer's 32: a snapshot reads the same rows after any compaction.
#[test]
fn peer_32_compaction_minds_snapshots() {
    for ranged in [false, true] {
        let store = Store::by_hand();
        store.put("k", "first", None);
        store.flush();
        store.compact();
        let snapshot = store.db.snapshot().expect("open");
        match ranged {
            true => accepted(store.db.delete_range(b"a", b"z")),
            false => store.put("k", "second", None),
        }
        store.flush();
        store.compact();
        assert_eq!(store.get_at(&snapshot, "k").as_deref(), Some("first"), "ranged: {ranged}");
        // It reads its own tables; its versions are in the new ones as well.
        assert_eq!(store.entries(), if ranged { 1 } else { 2 }, "ranged: {ranged}");
        store.sees((!ranged).then_some("second"), "beside a snapshot");
        drop(snapshot);
        store.put("x", "", None);
        store.flush();
        store.compact();
        assert_eq!(store.get("k").is_none(), ranged);
    }
}

/// A peer's 33: operands on both sides of a snapshot stay on their sides.
#[test]
fn peer_33_operands_are_not_folded_across_a_snapshot() {
    let store = Store::by_hand();
    store.put("k", "a", None);
    store.add("k", "b", None);
    store.flush();
    let snapshot = store.db.snapshot().expect("open");
    store.add("k", "c", None);
    store.flush();
    store.compact();
    assert_eq!(store.get_at(&snapshot, "k").as_deref(), Some("ab"));
    assert_eq!(store.entries(), 2, "what it reads, and the operand above that");
    store.sees(Some("abc"), "beside a snapshot");
    drop(snapshot);
    store.add("k", "d", None);
    store.flush();
    store.compact();
    store.sees(Some("abcd"), "without it");
}

/// A peer's 33 too: only reads fold an operand onto a value that expires earlier. Otherwise the
/// value below it would survive its expiry.
#[test]
fn peer_33_an_operand_outlives_what_it_stands_on() {
    let store = Store::by_hand();
    store.put("k", "base", TTL);
    store.flush();
    store.add("k", "+", None);
    store.flush();
    store.compact();
    store.sees(Some("base+"), "before the base expires");
    store.place.pass(20);
    store.sees(Some("+"), "the base has expired");
    store.put("x", "", None);
    store.flush();
    store.compact();
    assert_eq!(store.get("k").as_deref(), Some("+"));
}

/// A peer's 34: a reader of durable data continues to see the older version while the newer one is
/// flushed, for any duration; and a snapshot from that time does so permanently.
#[test]
fn peer_34_a_flush_keeps_what_durable_reads_need() {
    let store = Store::new(Options {
        read_durable_only: true,
        embedded_compactor: false,
        embedded_gc: false,
        ..options()
    });
    store.put("k", "1", None);
    let db = store.db.clone();
    store.run(async move { db.flush().await });
    store.put("k", "2", None);
    let snapshot = store.db.snapshot().expect("open");
    // The log cannot be written, and therefore neither can the table.
    store.place.bucket.break_for(Duration::from_secs(1));
    let (db, flushed) = (store.db.clone(), Arc::new(AtomicBool::new(false)));
    let done = Arc::clone(&flushed);
    store.place.sim.spawn(store.process, "flush", async move {
        db.flush_memtable().await.expect("the store comes back");
        done.store(true, Ordering::Relaxed);
    });
    for _ in 0..19 {
        store.place.sim.run_for(Duration::from_millis(50)).expect("time goes on");
        store.sees(Some("1"), "while the newer one cannot become durable");
    }
    let mut seen = 0;
    while !flushed.load(Ordering::Relaxed) {
        store.place.sim.run_for(Duration::from_millis(1)).expect("time goes on");
        let now: u32 = store.get("k").expect("one of both").parse().expect("a number");
        assert!(now >= seen, "{now} after {seen}");
        seen = now;
    }
    store.sees(Some("2"), "flushed");
    for told in ["flushed", "beside a third", "compacted"] {
        assert_eq!(store.get_at(&snapshot, "k").as_deref(), Some("1"), "a snapshot, {told}");
        match told {
            "flushed" => {
                store.put("k", "3", None);
                store.flush();
            }
            _ => store.compact(),
        }
    }
    assert_eq!(store.get_at(&snapshot, "k").as_deref(), Some("1"), "a snapshot, in the end");
}

/// A peer's 35: a reader of durable data sees nothing else, by any call.
#[test]
fn peer_35_every_read_minds_the_durable_bound() {
    let store = Store::new(Options { read_durable_only: true, ..options() });
    store.put("k", "durable", None);
    let db = store.db.clone();
    store.run(async move { db.flush().await });
    store.put("k", "not yet", None);
    store.sees(Some("durable"), "while a newer one is on its way");
    let db = store.db.clone();
    store.run(async move { db.flush().await });
    store.sees(Some("not yet"), "once it is durable");
}

/// A peer's 36: in backward scans the newest version of a key counts too.
#[test]
fn peer_36_backward_the_newest_version_wins() {
    let store = Store::by_hand();
    let _snapshots = ["1", "2", "3"].map(|value| {
        store.put("k", value, None);
        store.db.snapshot().expect("open")
    });
    store.sees(Some("3"), "in the memtable");
    store.flush();
    store.sees(Some("3"), "in a table");
    store.compact();
    store.sees(Some("3"), "in a run");
}
