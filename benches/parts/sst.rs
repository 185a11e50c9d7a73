//! Tables: building, decoding a block, seeking in one, scanning a table.

use criterion::{Criterion, Throughput};
use siltstone_base::{Cursor, Seq, Step};
use siltstone_benches::rows::{ROW_BYTES, mixed, sorted_key};
use siltstone_benches::scaled;
use siltstone_benches::tables::{Loaded, Made, Strided, build};
use siltstone_sst::{BlockSource, Codec, TableCursor, TableOptions};
use std::hint::black_box;

/// Reads every entry and returns their number.
fn walk(table: &Loaded, blocks: impl BlockSource) -> u64 {
    let mut cursor = TableCursor::new(table.table.clone(), blocks);
    let mut step = cursor.seek_first().unwrap();
    let mut met = 0;
    while step == Step::Ready {
        black_box(cursor.entry());
        met += 1;
        step = cursor.next().unwrap();
    }
    met
}

pub(crate) fn bench(criterion: &mut Criterion) {
    let rows = scaled(500_000);
    let made = Made::new(Strided { first: 0, step: 1, count: rows }, Seq(9));
    let mut group = criterion.benchmark_group("sst");
    group.throughput(Throughput::Bytes(rows * ROW_BYTES));
    for (name, codec) in [("none", Codec::None), ("lz4", Codec::Lz4)] {
        let options = TableOptions { codec, ..TableOptions::default() };
        group.bench_function(format!("build_{name}"), |bencher| {
            bencher.iter(|| assert!(build(&made, options).unwrap() > rows * 90));
        });
    }
    let table = Loaded::new(1, &made).unwrap();
    let warm = table.decoded();
    group.bench_function("scan_decoded", |bencher| {
        bencher.iter(|| assert_eq!(walk(&table, &warm), rows));
    });
    group.bench_function("scan_stored", |bencher| {
        bencher.iter(|| assert_eq!(walk(&table, &table), rows));
    });
    let blocks = table.table.block_count();
    let mut n = 0;
    group.throughput(Throughput::Bytes(TableOptions::default().block_bytes as u64));
    group.bench_function("decode_block", |bencher| {
        bencher.iter(|| {
            n += 1;
            black_box(table.decode((mixed(n) % u64::from(blocks)) as u32).unwrap())
        });
    });
    let block = table.decode(blocks / 2).unwrap();
    let (first, entries) = (block.entry(0).unwrap(), block.len() as u64);
    let first: u64 = std::str::from_utf8(first.key).unwrap().parse().unwrap();
    group.throughput(Throughput::Elements(1));
    group.bench_function("seek_in_block", |bencher| {
        bencher.iter(|| {
            n += 1;
            let position = mixed(n) % entries;
            let found = block.lower_bound(&sorted_key(first + position), Seq::MAX);
            assert_eq!(found as u64, position);
        });
    });
    group.bench_function("find_block", |bencher| {
        bencher.iter(|| {
            n += 1;
            let found = table.table.find_block(&sorted_key(mixed(n) % rows), Seq::MAX);
            assert!(found.is_some());
        });
    });
    group.finish();
}
