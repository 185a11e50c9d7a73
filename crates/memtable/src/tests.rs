//! The memtable compared with an ordered map, and under a concurrent writer and readers.

use crate::table::MemtableShape;
use crate::{MemEntry, Memtable};
use proptest::prelude::*;
use siltstone_base::{Batch, Cursor, Entry, ErrorKind, Kind, Seq, Step, UnixMillis};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

type Version = (Kind, Vec<u8>, Option<u64>);
type Model = BTreeMap<(Vec<u8>, Reverse<u64>), Version>;
type Op = (Kind, Vec<u8>, Vec<u8>, Option<u64>);

fn encode(ops: &[Op]) -> Arc<[u8]> {
    let mut batch = Batch::new();
    for (kind, key, value, expiry) in ops {
        batch.push(*kind, key, value, expiry.map(UnixMillis)).unwrap();
    }
    Arc::from(batch.as_bytes())
}

fn put(key: &[u8], value: &[u8]) -> Op {
    (Kind::Put, key.to_vec(), value.to_vec(), None)
}

type Row = (Vec<u8>, u64, Kind, Vec<u8>, Option<u64>);

fn row(entry: Entry<'_>) -> Row {
    let expiry = entry.expires_at.map(|at| at.0);
    (entry.key.to_vec(), entry.seq.0, entry.kind, entry.value.to_vec(), expiry)
}

fn model_row(
    ((key, Reverse(seq)), (kind, value, expiry)): (&(Vec<u8>, Reverse<u64>), &Version),
) -> Row {
    (key.clone(), *seq, *kind, value.clone(), *expiry)
}

/// Small shapes: sorted arrays from short batches, skip lists that fill up, and an index that
/// leaves keys out.
fn shapes() -> impl Strategy<Value = MemtableShape> {
    let probes = prop::sample::select(vec![0usize, 1, 3, crate::index::PROBES]);
    (1u32..40, 1usize..12, probes).prop_map(|(array_ops, skip_list, probes)| MemtableShape {
        array_ops,
        skip_list,
        probes,
        ..MemtableShape::default()
    })
}

/// Keys that share their first 8 bytes, keys that are a prefix of each other, keys with zeros.
fn keys() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(prop::sample::select(vec![0u8, 1, b'a', 0xff]), 1..4),
        prop::collection::vec(prop::sample::select(vec![0u8, b'b']), 1..4).prop_map(|tail| [
            b"sameeight".as_slice(),
            &tail
        ]
        .concat()),
        prop::collection::vec(any::<u8>(), 1..20),
    ]
}

fn ops() -> impl Strategy<Value = Op> {
    let kind = prop::sample::select(vec![Kind::Put, Kind::Delete, Kind::Merge]);
    let value = prop::collection::vec(any::<u8>(), 0..6);
    (kind, keys(), value, prop::option::of(any::<u64>())).prop_map(|(kind, key, value, expiry)| {
        // A tombstone has no value.
        let value = if kind == Kind::Delete { Vec::new() } else { value };
        (kind, key, value, expiry)
    })
}

fn fill(shape: &MemtableShape, batches: &[Vec<Op>], gap: u64) -> (Arc<Memtable>, Model) {
    let table = Arc::new(Memtable::with(shape));
    let mut model = Model::new();
    let mut seq = 1;
    for batch in batches {
        table.insert_batch(Seq(seq), &encode(batch)).unwrap();
        for (kind, key, value, expiry) in batch {
            model.insert((key.clone(), Reverse(seq)), (*kind, value.clone(), *expiry));
            seq += 1;
        }
        seq += gap;
    }
    (table, model)
}

fn walk(table: &Arc<Memtable>, backward: bool) -> Vec<Row> {
    let mut cursor = table.cursor();
    let mut rows = Vec::new();
    let mut step = if backward { cursor.seek_last() } else { cursor.seek_first() };
    while step.unwrap() == Step::Ready {
        rows.push(row(cursor.entry().unwrap()));
        step = if backward { cursor.prev() } else { cursor.next() };
    }
    assert!(cursor.entry().is_none());
    rows
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn agrees_with_an_ordered_map(
        shape in shapes(),
        batches in prop::collection::vec(prop::collection::vec(ops(), 0..40), 0..12),
        gap in 0u64..3,
        probes in prop::collection::vec((keys(), 0u64..500), 1..40),
    ) {
        let (table, model) = fill(&shape, &batches, gap);
        let expected: Vec<Row> = model.iter().map(model_row).collect();
        prop_assert_eq!(&walk(&table, false), &expected);
        let mut reversed = walk(&table, true);
        reversed.reverse();
        prop_assert_eq!(&reversed, &expected);
        prop_assert_eq!(table.len(), model.len());
        prop_assert_eq!(table.last_seq().map(|s| s.0), model.keys().map(|(_, s)| s.0).max());
        prop_assert_eq!(table.first_seq().map(|s| s.0), model.keys().map(|(_, s)| s.0).min());
        let buffers: usize = batches.iter().map(|batch| encode(batch).len()).sum();
        prop_assert!(table.bytes() >= buffers + 48 * model.len());

        let rows: Vec<Row> = model.iter().map(model_row).collect();
        let mut cursor = table.cursor().expecting(rows.len() as u64 / 2);
        let mut at = 0;
        let mut step = cursor.seek_first().unwrap();
        while step == Step::Ready {
            let seq = Seq(rows[at].1);
            let plain = cursor.plain(seq, 5);
            let is_plain = |row: &Row| row.2 == Kind::Put && row.4.is_none() && row.1 <= seq.0;
            prop_assert!(plain > 0 || !is_plain(&rows[at]));
            for ahead in 0..plain {
                let row = &rows[at + ahead];
                prop_assert!(is_plain(row));
                let found = (cursor.plain_key(ahead), cursor.plain_value(ahead));
                prop_assert_eq!(found, (row.0.as_slice(), row.3.as_slice()));
            }
            let passed = plain.saturating_sub(1);
            cursor.pass(passed);
            at += passed + 1;
            step = cursor.next().unwrap();
        }
        prop_assert_eq!(at, rows.len());

        let own_keys = model.keys().map(|(key, Reverse(seq))| (key.clone(), *seq));
        for (key, seq) in own_keys.chain(probes) {
            let from = (key.clone(), Reverse(seq));
            let mut cursor = table.cursor();
            cursor.seek(&key, Seq(seq)).unwrap();
            let at_or_after = model.range(from.clone()..).next().map(model_row);
            prop_assert_eq!(cursor.entry().map(row), at_or_after.clone());
            cursor.seek_before(&key, Seq(seq)).unwrap();
            let before = model.range(..from).next_back().map(model_row);
            prop_assert_eq!(cursor.entry().map(row), before.clone());
            prop_assert_eq!(cursor.shared().map(|found| row(found.entry())), before);
            let newest = at_or_after.filter(|found| found.0 == key);
            prop_assert_eq!(table.get(&key, Seq(seq)).map(|found| row(found.entry())), newest);
        }
    }

    #[test]
    fn a_cursor_turns_around_anywhere(
        shape in shapes(),
        batches in prop::collection::vec(prop::collection::vec(ops(), 1..20), 1..12),
        from in keys(),
        moves in prop::collection::vec(any::<bool>(), 1..60),
    ) {
        let (table, model) = fill(&shape, &batches, 0);
        let rows: Vec<Row> = model.iter().map(model_row).collect();
        let mut at = model.range(..(from.clone(), Reverse(u64::MAX))).count();
        let mut cursor = table.cursor();
        cursor.seek(&from, Seq::MAX).unwrap();
        for forward in moves {
            prop_assert_eq!(cursor.entry().map(row), rows.get(at).cloned());
            if cursor.entry().is_none() {
                break;
            }
            if forward {
                cursor.next().unwrap();
                at += 1;
            } else {
                cursor.prev().unwrap();
                at = at.checked_sub(1).unwrap_or(usize::MAX);
            }
        }
    }

    #[test]
    fn the_next_key_is_never_passed_over(
        shape in shapes(),
        batches in prop::collection::vec(prop::collection::vec(ops(), 1..20), 1..12),
        hot in 0..200u64,
        from in keys(),
        by_key in any::<bool>(),
        moves in prop::collection::vec(0..4u8, 1..60),
    ) {
        let mut batches = batches;
        batches.extend((0..hot).map(|n| vec![put(b"a", &n.to_le_bytes())]));
        let (table, model) = fill(&shape, &batches, 0);
        let rows: Vec<Row> = model.iter().map(model_row).collect();
        let mut at = model.range(..(from.clone(), Reverse(u64::MAX))).count();
        let mut cursor = table.cursor().expecting(u64::from(moves[0]) * 5);
        if by_key {
            cursor = cursor.by_key();
        }
        cursor.seek(&from, Seq::MAX).unwrap();
        for how in moves {
            prop_assert_eq!(cursor.entry().map(row), rows.get(at).cloned());
            let Some(key) = rows.get(at).map(|row| row.0.clone()) else { break };
            match how {
                0 => {
                    cursor.prev().unwrap();
                    at = at.checked_sub(1).unwrap_or(usize::MAX);
                }
                1 => {
                    cursor.next().unwrap();
                    at += 1;
                }
                _ => {
                    // At least one entry further, at most to the first entry of another key.
                    cursor.next_key().unwrap();
                    let found = cursor.entry().map(row);
                    let most = at + rows[at..].iter().take_while(|row| row.0 == key).count();
                    let stands = (at + 1..=most).find(|at| rows.get(*at).cloned() == found);
                    prop_assert!(stands.is_some());
                    at = stands.unwrap_or(most);
                }
            }
        }
    }

    #[test]
    fn a_cursor_by_key_comes_to_each_key_once(
        shape in shapes(),
        batches in prop::collection::vec(prop::collection::vec(ops(), 1..20), 1..12),
        hot in 0..200u64,
        from in keys(),
        seq in 0..300u64,
        older in prop::option::of(0..20usize),
    ) {
        let mut batches = batches;
        batches.extend((0..hot).map(|n| vec![put(b"a", &n.to_le_bytes())]));
        let (table, model) = fill(&shape, &batches, 0);
        // The first entry at or after the target, and the newest version of every later key.
        let mut rows: Vec<Row> = Vec::new();
        for entry in model.range((from.clone(), Reverse(seq))..) {
            if rows.last().is_none_or(|last| last.0 != entry.0.0) {
                rows.push(model_row(entry));
            }
        }
        let mut cursor = table.cursor().by_key().expecting(5);
        let mut step = cursor.seek(&from, Seq(seq)).unwrap();
        for (at, expected) in rows.iter().enumerate() {
            prop_assert_eq!(step, Step::Ready);
            prop_assert_eq!(cursor.entry().map(row), Some(expected.clone()));
            if older == Some(at) {
                // From here on, with all versions.
                let target = (expected.0.clone(), Reverse(expected.1));
                let behind: Vec<Row> = model.range(target..).map(model_row).skip(1).collect();
                for expected in behind {
                    prop_assert_eq!(cursor.next().unwrap(), Step::Ready);
                    prop_assert_eq!(cursor.entry().map(row), Some(expected));
                }
                prop_assert_eq!(cursor.next().unwrap(), Step::End);
                return Ok(());
            }
            step = cursor.next_key().unwrap();
        }
        prop_assert_eq!(step, Step::End);
    }

    #[test]
    fn bad_bytes_insert_nothing(
        batch in prop::collection::vec(ops(), 1..10),
        cut in any::<prop::sample::Index>(),
        noise in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let table = Arc::new(Memtable::new());
        let whole = encode(&batch);
        // An appended tag of an unknown kind breaks the last operation only.
        let spoilt: Arc<[u8]> = whole.iter().copied().chain([0x7f]).collect();
        let error = table.insert_batch(Seq(1), &spoilt).unwrap_err();
        prop_assert_eq!(error.kind(), ErrorKind::Unsupported);
        prop_assert!(table.is_empty() && table.bytes() == 0 && table.first_seq().is_none());
        prop_assert!(walk(&table, false).is_empty());
        let cut: Arc<[u8]> = Arc::from(&whole[..cut.index(whole.len())]);
        for bytes in [cut, Arc::from(noise)] {
            let before = walk(&table, false);
            if table.insert_batch(table.last_seq().unwrap_or_default().next(), &bytes).is_err() {
                prop_assert_eq!(walk(&table, false), before);
            }
        }
    }
}

#[test]
fn keys_that_are_read_often_are_laid_together() {
    let fill = |value: usize| {
        let table = Arc::new(Memtable::new());
        let ops: Vec<Op> = (0..64u8).map(|n| put(&[n], &vec![n; value])).collect();
        table.insert_batch(Seq(1), &encode(&ops)).unwrap();
        table
    };
    let table = fill(10);
    let rows = walk(&table, false);
    assert_eq!(walk(&table, false), rows);
    // 64 keys of one byte, values of ten bytes, and their positions.
    let laid = table.laid_bytes();
    assert!((64 * 11..64 * 64).contains(&laid), "{laid}");
    assert!(laid <= table.bytes());
    assert_eq!(walk(&table, true), rows.into_iter().rev().collect::<Vec<_>>());

    let once = fill(10);
    let mut cursor = once.cursor().passing_once();
    let mut step = cursor.seek_first();
    while step.unwrap() == Step::Ready {
        step = cursor.next();
    }
    assert_eq!(once.laid_bytes(), 0);

    let large = fill(2048);
    (0..3).for_each(|_| assert_eq!(walk(&large, false).len(), 64));
    assert_eq!(large.laid_bytes(), 0);
}

#[test]
fn sorted_and_reversed_batches_keep_order() {
    for descending in [false, true] {
        let mut ops: Vec<Op> =
            (0..20_000u32).map(|n| put(&n.to_be_bytes(), &n.to_le_bytes())).collect();
        if descending {
            ops.reverse();
        }
        let (table, model) = fill(&MemtableShape::default(), &[ops], 0);
        assert_eq!(walk(&table, false), model.iter().map(model_row).collect::<Vec<_>>());
    }
}

#[test]
fn many_sizes_of_batches_keep_order_and_versions() {
    // Keys with a long common prefix first, then others, so that the window moves more than once.
    let mut batches = Vec::new();
    let mut n = 0u64;
    for size in [1u64, 900, 1, 63, 64, 3, 1024, 1, 5_000, 17].into_iter().cycle().take(40) {
        let batch = (0..size).map(|_| {
            n += 1;
            let scattered = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 30_000;
            let place = if n < 8_000 { "orders/2026" } else { "orders" };
            put(format!("{place}/{scattered:08}").as_bytes(), &n.to_le_bytes())
        });
        batches.push(batch.collect());
    }
    let (table, model) = fill(&MemtableShape::default(), &batches, 0);
    assert_eq!(walk(&table, false), model.iter().map(model_row).collect::<Vec<_>>());
    assert_eq!(walk(&table, true), model.iter().rev().map(model_row).collect::<Vec<_>>());
    for (key, Reverse(seq)) in model.keys().step_by(7) {
        let found = table.get(key, Seq(*seq)).map(|found| found.entry().seq);
        assert_eq!(found, Some(Seq(*seq)));
    }
}

#[test]
fn a_key_of_any_number_of_versions_is_passed_in_a_few_moves() {
    let hot = (0..10_000u64).map(|n| vec![put(b"hot", &n.to_le_bytes())]);
    let batches: Vec<_> = hot.chain([vec![put(b"later", b"")]]).collect();
    let (table, _) = fill(&MemtableShape::default(), &batches, 0);
    let mut cursor = table.cursor();
    cursor.seek(b"hot", Seq::MAX).unwrap();
    let mut moves = 0;
    while cursor.user_key() == Some(b"hot") {
        cursor.next_key().unwrap();
        moves += 1;
    }
    assert_eq!(cursor.user_key(), Some(b"later".as_slice()));
    assert!(moves <= 3, "{moves} moves");
}

#[test]
fn a_value_is_handed_out_without_a_copy() {
    let table = Memtable::new();
    let bytes = encode(&[put(b"key", b"value")]);
    table.insert_batch(Seq(3), &bytes).unwrap();
    let found: MemEntry = table.get(b"key", Seq::MAX).unwrap();
    drop(table);
    assert!(Arc::ptr_eq(found.buffer(), &bytes));
    assert_eq!(&found.buffer()[found.value_range()], b"value");
}

#[test]
fn limits_are_errors() {
    let table = Memtable::with(&MemtableShape { max_entries: 2, ..MemtableShape::default() });
    let insert = |seq, ops: &[Op]| table.insert_batch(seq, &encode(ops)).map_err(|e| e.kind());
    let one = [put(b"a", b"")];
    assert_eq!(insert(Seq(0), &one), Err(ErrorKind::Internal), "0 means none");
    assert_eq!(insert(Seq(5), &one), Ok(()));
    assert_eq!(insert(Seq(5), &one), Err(ErrorKind::Internal));
    assert_eq!(insert(Seq(6), &[put(b"b", b""), put(b"c", b"")]), Err(ErrorKind::Invalid));
    assert_eq!(insert(Seq(Seq::MAX.0 + 1), &one), Err(ErrorKind::Invalid));
    assert_eq!(insert(Seq(1), &[]), Ok(()), "an empty batch needs no number");
    assert_eq!(table.len(), 1);
    assert_eq!(insert(Seq::MAX, &one), Ok(()));
    assert_eq!(table.last_seq(), Some(Seq::MAX));
}

#[test]
fn all_versions_of_a_key_come_in_one_pass() {
    for probes in [0, 1, crate::index::PROBES] {
        let table =
            Memtable::with(&MemtableShape { probes, skip_list: 7, ..MemtableShape::default() });
        for n in 1..=300u64 {
            let key: &[u8] = if n % 3 == 0 { b"other" } else { b"key" };
            table.insert_batch(Seq(n), &encode(&[put(key, &n.to_be_bytes())])).unwrap();
        }
        let hash = xxhash_rust::xxh3::xxh3_64(b"key");
        for seq in [1, 2, 3, 150, 299, 300, u64::MAX >> 8] {
            let found: Vec<u64> =
                table.versions(b"key", hash, Seq(seq)).map(|one| one.entry().seq.0).collect();
            let all: Vec<u64> = (1..=seq.min(300)).rev().filter(|n| n % 3 != 0).collect();
            assert_eq!(found, all, "{probes} probes, at {seq}");
        }
    }
}

#[test]
fn a_fold_stands_for_its_operands_alone() {
    let table = Memtable::new();
    let merge: Op = (Kind::Merge, b"key".to_vec(), b"x".to_vec(), None);
    for n in 1..=10u64 {
        table.insert_batch(Seq(n), &encode(std::slice::from_ref(&merge))).unwrap();
    }
    let hash = xxhash_rust::xxh3::xxh3_64(b"key");
    let all: Vec<_> = table.versions(b"key", hash, Seq(8)).collect();
    let versions = table.versions(b"key", hash, Seq(8));
    assert!(versions.kept_fold(Seq::NONE).is_none());
    versions.note_fold(&all[0], &all[5], b"eight to three");
    assert!(versions.kept_fold(Seq(3)).is_none(), "a part of a fold is not used");

    let mut versions = table.versions(b"key", hash, Seq::MAX);
    let fold = versions.kept_fold(Seq(2)).unwrap();
    let above: Vec<_> = versions.by_ref().take_while(|one| !one.begins(&fold)).collect();
    assert_eq!((above.len(), fold.operand()), (2, &b"eight to three"[..]));
    assert_eq!(versions.skip_fold(&fold).entry().seq, Seq(3));
    let below: Vec<u64> = versions.map(|one| one.entry().seq.0).collect();
    assert_eq!(below, [2, 1]);
    // A fold that reaches less far up, of a reader that came late, is not kept.
    let late = table.versions(b"key", hash, Seq(5));
    late.note_fold(&all[3], &all[5], b"five to three");
    assert!(all[0].begins(&late.kept_fold(Seq::NONE).unwrap()));
}

fn delete_range(start: &[u8], end: &[u8]) -> Op {
    (Kind::RangeDelete, start.to_vec(), end.to_vec(), None)
}

#[test]
fn range_deletes_stand_beside_the_entries() {
    let table = Arc::new(Memtable::new());
    assert!(!table.has_range_deletes());
    table.insert_batch(Seq(1), &encode(&[delete_range(b"a", b"c")])).unwrap();
    assert_eq!((table.len(), table.first_seq(), table.last_seq()), (1, Some(Seq(1)), Some(Seq(1))));
    assert!(table.has_range_deletes() && walk(&table, false).is_empty());
    let mixed = [put(b"b", b"1"), delete_range(b"b", b"d"), put(b"b", b"2"), put(b"c", b"3")];
    table.insert_batch(Seq(2), &encode(&mixed)).unwrap();
    assert_eq!((table.len(), table.last_seq()), (5, Some(Seq(5))));
    assert_eq!(table.get(b"b", Seq(3)).unwrap().entry().seq, Seq(2));
    assert_eq!(table.get(b"b", Seq(9)).unwrap().entry().seq, Seq(4));
    assert_eq!(table.deleted_at(b"b", Seq(9)), Seq(3));
    assert_eq!(table.deleted_at(b"b", Seq(2)), Seq(1));
    assert_eq!(table.deleted_at(b"d", Seq(9)), Seq::NONE);
    assert_eq!(table.range_deletes().len(), 2);
}

#[test]
fn many_range_deletes_are_found_at_every_number() {
    let table = Memtable::new();
    let bounds = |n: u64| (n * 37 % 200, n * 37 % 200 + 1 + n % 60);
    let key = |n: u64| (n as u16).to_be_bytes();
    for n in 1..=300 {
        let (start, end) = bounds(n);
        let one = delete_range(&key(start), &key(end));
        table.insert_batch(Seq(n), &encode(&[one])).unwrap();
    }
    for seq in (0..=301).step_by(7) {
        for at in 0..270 {
            let covers = |n: &u64| (bounds(*n).0..bounds(*n).1).contains(&at);
            let newest = (1..=seq.min(300)).rev().find(covers).unwrap_or(0);
            assert_eq!(table.deleted_at(&key(at), Seq(seq)), Seq(newest), "key {at} at {seq}");
        }
    }
}

#[test]
fn a_cursor_moved_from_nowhere_says_so() {
    let mut cursor = Arc::new(Memtable::new()).cursor();
    assert_eq!(cursor.next().unwrap_err().kind(), ErrorKind::Internal);
    assert_eq!(cursor.prev().unwrap_err().kind(), ErrorKind::Internal);
    assert_eq!(cursor.seek_first().unwrap(), Step::End);
}

/// Entry number `n` of the concurrent test: entries that are neighbours in time are far apart in
/// order, and every key gets several versions.
fn scattered(n: u64) -> Op {
    let key = (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52).to_be_bytes();
    put(&key, &n.to_le_bytes())
}

#[test]
fn readers_find_what_was_published() {
    // Batches for the skip list, then for sorted arrays; a small skip list is sealed often.
    published_is_found(6, MemtableShape::default());
    published_is_found(6, MemtableShape { skip_list: 16, ..MemtableShape::default() });
    published_is_found(150, MemtableShape::default());
    // Look-ups through the order, since the index takes few keys.
    published_is_found(50, MemtableShape { array_ops: 30, probes: 1, ..MemtableShape::default() });
}

#[allow(clippy::disallowed_methods, reason = "the test is about threads")]
fn published_is_found(batch: u64, shape: MemtableShape) {
    const ENTRIES: u64 = 30_000;
    let table = Arc::new(Memtable::with(&shape));
    let published = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for first in (1..=ENTRIES).step_by(batch as usize) {
                let ops: Vec<Op> = (first..first + batch).map(scattered).collect();
                table.insert_batch(Seq(first), &encode(&ops)).unwrap();
                published.store(first + batch - 1, Ordering::Release);
            }
        });
        for reader in 0..2u64 {
            let (table, published) = (&table, &published);
            scope.spawn(move || {
                let mut turn = reader;
                loop {
                    let seen = published.load(Ordering::Acquire);
                    turn += 1;
                    if seen > 0 {
                        look_up(table, seen, turn.wrapping_mul(0x2545_f491) % seen + 1);
                    }
                    if turn.is_multiple_of(64) {
                        scan(table, seen, turn.is_multiple_of(128));
                    }
                    if seen == ENTRIES {
                        break;
                    }
                }
            });
        }
    });
    assert_eq!(table.len() as u64, ENTRIES);
}

/// Entry number `n`, once published, is found at its own sequence number, and an entry at least as
/// new at the published one.
fn look_up(table: &Memtable, seen: u64, n: u64) {
    let (_, key, value, _) = scattered(n);
    let exact = table.get(&key, Seq(n)).expect("published entries are found");
    assert_eq!((exact.entry().seq, exact.entry().value), (Seq(n), value.as_slice()));
    let newest = table.get(&key, Seq(seen)).expect("a newer bound finds at least as much");
    assert!(newest.entry().seq >= Seq(n) && newest.entry().seq <= Seq(seen));
}

/// A scan is in strict order, in both directions, and contains every entry published before it
/// began.
fn scan(table: &Arc<Memtable>, seen: u64, backward: bool) {
    let mut rows = walk(table, backward);
    if backward {
        rows.reverse();
    }
    let ordered = rows
        .windows(2)
        .all(|pair| (&pair[0].0, Reverse(pair[0].1)) < (&pair[1].0, Reverse(pair[1].1)));
    assert!(ordered);
    assert_eq!(rows.iter().filter(|row| row.1 <= seen).count() as u64, seen);
    assert!(rows.iter().all(|row| row.3 == row.1.to_le_bytes()), "each holds its own value");
}
