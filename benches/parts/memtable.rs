//! The memtable: insertion one by one and by the thousand, look-ups, scans.

use criterion::{BatchSize, Criterion, Throughput};
use siltstone_base::{Batch, Cursor, Seq, Step};
use siltstone_benches::rows::{ROW_BYTES, absent_key, shuffled_key, sorted_key, value};
use siltstone_benches::scaled;
use siltstone_memtable::Memtable;
use std::hint::black_box;
use std::sync::Arc;

/// Batches of `size` rows, `count` rows in total, with `key(n)` as the n-th key.
fn batches(count: u64, size: u64, key: impl Fn(u64) -> [u8; 16]) -> Vec<(Seq, Arc<[u8]>)> {
    let mut batches = Vec::new();
    let mut from = 0;
    while from < count {
        let mut batch = Batch::new();
        for n in from..(from + size).min(count) {
            batch.put(&key(n), &value(n), None).unwrap();
        }
        batches.push((Seq(from + 1), Arc::from(batch.as_bytes())));
        from += size;
    }
    batches
}

fn filled(batches: &[(Seq, Arc<[u8]>)]) -> Arc<Memtable> {
    let memtable = Arc::new(Memtable::new());
    for (seq, ops) in batches {
        memtable.insert_batch(*seq, ops).unwrap();
    }
    memtable
}

pub(crate) fn bench(criterion: &mut Criterion) {
    let rows = scaled(500_000);
    let mut group = criterion.benchmark_group("memtable");
    group.throughput(Throughput::Elements(rows));
    for order in ["sorted", "random"] {
        let key = |n| if order == "sorted" { sorted_key(n) } else { shuffled_key(n, rows) };
        for size in [1, 1000] {
            let batches = batches(rows, size, key);
            group.bench_function(format!("insert_{order}_by_{size}"), |bencher| {
                bencher.iter_batched(|| (), |()| filled(&batches), BatchSize::PerIteration);
            });
        }
    }
    let memtable = filled(&batches(rows, 1000, |n| shuffled_key(n, rows)));
    group.throughput(Throughput::Elements(1));
    let mut n = 0;
    group.bench_function("get_present", |bencher| {
        bencher.iter(|| {
            n += 1;
            assert!(memtable.get(&shuffled_key(n, rows), Seq::MAX).is_some());
        });
    });
    group.bench_function("get_absent", |bencher| {
        bencher.iter(|| {
            n += 1;
            let key = absent_key(n.wrapping_mul(7_368_787) % rows);
            assert!(memtable.get(&key, Seq::MAX).is_none());
        });
    });
    group.throughput(Throughput::Bytes(rows * ROW_BYTES));
    group.bench_function("scan", |bencher| {
        bencher.iter(|| {
            let mut cursor = memtable.cursor();
            let mut step = cursor.seek_first().unwrap();
            let mut met = 0;
            while step == Step::Ready {
                black_box(cursor.entry());
                met += 1;
                step = cursor.next().unwrap();
            }
            assert_eq!(met, rows);
        });
    });
    group.finish();
}
