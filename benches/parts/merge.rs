//! The merge of eight inputs: alone, for a reader, and for a compaction; and a key with very many
//! versions.

use criterion::{Criterion, Throughput};
use siltstone_base::{Cursor, Seq, Step, UnixMillis};
use siltstone_benches::rows::ROW_BYTES;
use siltstone_benches::scaled;
use siltstone_benches::tables::{Loaded, Made, Strided, envelope};
use siltstone_merge::{Direction, Merge, ReadView, Retain, Retention, Visible};
use siltstone_sst::{BlockSource, TableBuilder, TableCursor, TableOptions};
use std::hint::black_box;

const INPUTS: u64 = 8;

fn inputs(rows: u64) -> Vec<Loaded> {
    let strided = |first| Strided { first, step: INPUTS, count: rows / INPUTS };
    let made = |n| Made::new(strided(n), Seq(INPUTS - n));
    (0..INPUTS).map(|n| Loaded::new(u128::from(n) + 1, &made(n)).unwrap()).collect()
}

fn merged<'a, S: BlockSource>(
    tables: &'a [Loaded],
    blocks: impl Fn(usize) -> S + 'a,
) -> Merge<TableCursor<S>> {
    let cursor = |(n, input): (usize, &Loaded)| TableCursor::new(input.table.clone(), blocks(n));
    Merge::new(tables.iter().enumerate().map(cursor).collect(), Direction::Forward)
}

fn view() -> ReadView {
    ReadView { seq: Seq::MAX, now: UnixMillis(0), operator: None, recorded_operator: None }
}

/// Merges, drops hidden entries, builds a table: a compaction without the store.
fn compact(tables: &[Loaded]) -> u64 {
    let retention = Retention {
        range_deletes: Vec::new(),
        snapshot_bounds: Vec::new(),
        floor: None,
        bottom: true,
        now: UnixMillis(0),
        operator: None,
        zero_seqs: true,
    };
    let mut kept = Retain::new(merged(tables, |n| &tables[n]), retention);
    let mut builder = TableBuilder::new(TableOptions::default(), envelope(99));
    while kept.advance().unwrap() == Step::Ready {
        builder.add(&kept.entry().unwrap()).unwrap();
        builder.take_chunk(1 << 20);
    }
    builder.finish().unwrap().1.entries
}

pub(crate) fn bench(criterion: &mut Criterion) {
    let rows = scaled(800_000) / INPUTS * INPUTS;
    let tables = inputs(rows);
    let warm: Vec<_> = tables.iter().map(Loaded::decoded).collect();
    let mut group = criterion.benchmark_group("merge");
    group.throughput(Throughput::Bytes(rows * ROW_BYTES));
    group.bench_function("eight_decoded", |bencher| {
        bencher.iter(|| {
            let mut merge = merged(&tables, |n| &warm[n]);
            let mut met = 0;
            let mut step = merge.seek_first().unwrap();
            while step == Step::Ready {
                black_box(merge.entry());
                met += 1;
                step = merge.advance().unwrap();
            }
            assert_eq!(met, rows);
        });
    });
    group.bench_function("eight_stored", |bencher| {
        bencher.iter(|| {
            let mut merge = merged(&tables, |n| &tables[n]);
            let mut met = 0;
            let mut step = merge.seek_first().unwrap();
            while step == Step::Ready {
                black_box(merge.entry());
                met += 1;
                step = merge.advance().unwrap();
            }
            assert_eq!(met, rows);
        });
    });
    group.bench_function("eight_visible", |bencher| {
        bencher.iter(|| {
            let merge = merged(&tables, |n| &warm[n]);
            let mut visible = Visible::new(merge, view(), Direction::Forward, None, None);
            let mut met = 0;
            while visible.advance().unwrap() == Step::Ready {
                black_box(visible.item());
                met += 1;
            }
            assert_eq!(met, rows);
        });
    });
    group.bench_function("eight_compacted", |bencher| {
        bencher.iter(|| assert_eq!(compact(&tables), rows));
    });
    group.finish();
}
