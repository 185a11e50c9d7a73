//! Filters over small tables: the keys that they accept, and the filters that the budget clears.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use super::{FilterAnswer, KeyFilters, RUNS_AT_ONCE};
use crate::cache::metadata::{MetadataBudget, OpenTable, TableHandle};
use bytes::Bytes;
use siltstone_base::{
    AttemptId, DatabaseId, Entry, Envelope, Kind, ObjectId, ObjectKind, RangeDelete, Seq,
};
use siltstone_bloom::{Marks, key_hash};
use siltstone_sst::{Table, TableBuilder, TableOptions};
use std::sync::Arc;

/// An open table with these keys.
fn table(id: u128, keys: &[&[u8]], deleted: Option<(&'static [u8], &'static [u8])>) -> OpenTable {
    let envelope =
        Envelope::new(ObjectKind::Table, DatabaseId(1), ObjectId(id), AttemptId(id + 100));
    let mut builder = TableBuilder::new(TableOptions::default(), envelope);
    if let Some((start, end)) = deleted {
        let range = RangeDelete {
            start: Bytes::from_static(start),
            end: Bytes::from_static(end),
            seq: Seq(9),
        };
        builder.add_range_deletes(&[range]).unwrap();
    }
    for key in keys {
        let seq = Seq(5);
        let entry = Entry { key, seq, kind: Kind::Put, expires_at: None, value: b"value" };
        builder.add(&entry).unwrap();
    }
    let (bytes, descriptor) = builder.finish().unwrap();
    let tail = bytes.slice(descriptor.tail_offset as usize..);
    OpenTable::new(Table::open(descriptor, tail).unwrap())
}

fn handle(open: &OpenTable, budget: &Arc<MetadataBudget>) -> Arc<TableHandle> {
    TableHandle::new(open.descriptor().clone(), budget)
}

/// One table per run.
fn filters(handles: &[Arc<TableHandle>]) -> Arc<KeyFilters> {
    KeyFilters::new(handles.chunks(1))
}

fn asked(filters: &KeyFilters, from: usize, key: &[u8]) -> Vec<usize> {
    let sought = filters.bounds().seek(key).unwrap();
    filters.ask(from, &sought, &mut Marks::new(key_hash(key))).tables().map(|(at, _)| at).collect()
}

/// The tables whose flag is true.
fn known(filters: &KeyFilters, key: &[u8]) -> Vec<usize> {
    let sought = filters.bounds().seek(key).unwrap();
    let asked = filters.ask(0, &sought, &mut Marks::new(key_hash(key)));
    asked.tables().filter(|(_, known)| *known).map(|(at, _)| at).collect()
}

fn says(filters: &KeyFilters, table: usize, key: &[u8]) -> FilterAnswer {
    filters.look().says(table, |filter| filter.may_contain(key_hash(key)))
}

#[test]
fn filters_count_from_when_the_metadata_is_in_memory() {
    let budget = MetadataBudget::new(usize::MAX);
    let opens = [table(1, &[b"a", b"x"], None), table(2, &[b"a", b"k", b"z"], None)];
    let handles = opens.each_ref().map(|open| handle(open, &budget));
    let filters = filters(&handles);
    assert_eq!(asked(&filters, 0, b"k"), [0, 1], "nothing is known");
    for (handle, open) in handles.iter().zip(opens) {
        handle.install(Arc::new(open));
    }
    assert_eq!(known(&filters, b"k"), [0; 0], "nothing was known when it was asked");
    assert_eq!(asked(&filters, 0, b"k"), [1]);
    assert_eq!(asked(&filters, 0, b"a"), [0, 1]);
    assert_eq!(known(&filters, b"a"), [0, 1]);
    assert_eq!(asked(&filters, 0, b"y"), [0; 0], "beyond the first, not in the second");
    assert_eq!(asked(&filters, 1, b"x"), [0; 0], "the first is not asked");
}

#[test]
fn a_table_with_range_deletes_is_asked_despite_its_filter() {
    let budget = MetadataBudget::new(usize::MAX);
    let open = table(1, &[b"b"], Some((b"a", b"g")));
    let handle = handle(&open, &budget);
    handle.install(Arc::new(open));
    let filters = filters(&[handle]);
    for _ in 0..2 {
        assert_eq!(asked(&filters, 0, b"c"), [0]);
        assert_eq!(known(&filters, b"b"), [0; 0], "its range deletes are to be asked");
    }
    assert_eq!(says(&filters, 0, b"c"), FilterAnswer::Asks);
    assert_eq!(asked(&filters, 0, b"h"), [0; 0]);
}

#[test]
fn more_runs_than_a_wave_are_asked_in_their_order() {
    let budget = MetadataBudget::new(usize::MAX);
    let runs = RUNS_AT_ONCE + 3;
    let handles: Vec<_> = (0..runs)
        .map(|n| {
            let keys: &[&[u8]] = if n % 2 == 0 { &[b"a", b"k", b"z"] } else { &[b"a", b"z"] };
            let open = table(n as u128 + 1, keys, None);
            let handle = handle(&open, &budget);
            handle.install(Arc::new(open));
            handle
        })
        .collect();
    let filters = filters(&handles);
    let all = || [asked(&filters, 0, b"k"), asked(&filters, RUNS_AT_ONCE, b"k")].concat();
    assert_eq!(all(), (0..runs).collect::<Vec<_>>());
    assert_eq!(all(), (0..runs).step_by(2).collect::<Vec<_>>());
    assert_eq!(asked(&filters, runs, b"k"), [0; 0]);
}

#[test]
fn the_budget_takes_filters_back_and_spares_those_in_use() {
    let opens = [&b"z"[..], b"c", b"z", b"z"].map(|last| table(1, &[b"a", last], None));
    let budget = MetadataBudget::new(opens[0].memory_bytes() * 7 / 2);
    let handles = opens.each_ref().map(|open| handle(open, &budget));
    let filters = filters(&handles);
    let [first, second, third, fourth] = opens.map(Arc::new);
    handles[0].install(first);
    handles[1].install(second);
    assert_eq!(asked(&filters, 0, b"b"), [0, 1, 2, 3], "nothing is known");
    handles[2].install(third);
    // Only the first table was used since: its filter rejected a key.
    assert_eq!(says(&filters, 0, b"k"), FilterAnswer::No);
    handles[3].install(fourth);
    assert!(handles[0].table().is_some() && handles[1].table().is_none());
    assert_eq!(
        [says(&filters, 0, b"b"), says(&filters, 1, b"b")],
        [FilterAnswer::No, FilterAnswer::Nothing]
    );
}

/// Tables that other threads use at the same time may have a later use than the table that is
/// loaded.
#[test]
fn the_budget_holds_though_the_newest_was_not_the_last_in_use() {
    let opens = [1, 2, 3].map(|id| Arc::new(table(id, &[b"a", b"z"], None)));
    let budget = MetadataBudget::new(opens[0].memory_bytes() * 3 / 2);
    let handles = opens.each_ref().map(|open| handle(open, &budget));
    for (handle, open) in handles.iter().zip(&opens) {
        handle.install(Arc::clone(open));
        handle.used_at(1000);
    }
    let held = handles.each_ref().map(|handle| handle.table().is_some());
    assert_eq!(held, [false, false, true]);
    assert_eq!(budget.used(), opens[2].memory_bytes());
}

/// The locks of filters, handles and budget are taken in one order.
#[test]
fn asking_and_taking_back_do_not_wait_for_each_other() {
    let opens = [1, 2, 3, 4].map(|id| Arc::new(table(id, &[b"a", b"z"], None)));
    let budget = MetadataBudget::new(opens[0].memory_bytes() * 5 / 2);
    let handles = opens.each_ref().map(|open| handle(open, &budget));
    let filters = filters(&handles);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..20_000 {
                assert!(asked(&filters, 0, b"a").len() == handles.len(), "each has the key");
            }
        });
        for n in 0..20_000 {
            handles[n % 4].install(Arc::clone(&opens[n % 4]));
        }
    });
    let held = handles.iter().filter(|handle| handle.table().is_some()).count();
    assert!((1..=2).contains(&held), "{held}");
}

/// Before, the list of a handle whose metadata fits its budget only grew.
#[test]
fn tables_that_are_dropped_leave_the_list_of_the_budget() {
    let budget = MetadataBudget::new(usize::MAX);
    let open = Arc::new(table(1, &[b"a", b"z"], None));
    let kept: Vec<_> = (0..100).map(|_| handle(&open, &budget)).collect();
    kept.iter().for_each(|handle| handle.install(Arc::clone(&open)));
    for _ in 0..10_000 {
        handle(&open, &budget).install(Arc::clone(&open));
    }
    assert!(budget.listed() <= 4 * kept.len(), "{}", budget.listed());
    assert_eq!(budget.used(), kept.len() * open.memory_bytes());
}
