//! The manifest of a database with many tables: one edit, encoding and decoding.

use criterion::Criterion;
use siltstone_base::sst::SstLocation;
use siltstone_base::{AttemptId, DatabaseId, Epoch, ObjectId, Seq, SstDescriptor, SstId};
use siltstone_benches::rows::sorted_key;
use siltstone_benches::scaled;
use siltstone_manifest::{Edit, FlushL0, Manifest, Settings, SortedRun, WriterRecord};

fn table(n: u64, seqs: (u64, u64)) -> SstDescriptor {
    SstDescriptor {
        id: SstId(u128::from(n) + 1),
        location: SstLocation::Own,
        job: None,
        object_bytes: 64 << 20,
        checksum: 7,
        tail_offset: 63 << 20,
        first_key: sorted_key(n * 10).to_vec().into(),
        last_key: sorted_key(n * 10 + 9).to_vec().into(),
        visible_start: None,
        visible_end: None,
        seq_override: None,
        entries: 500_000,
        tombstones: 0,
        min_seq: Seq(seqs.0),
        max_seq: Seq(seqs.1),
        min_expiry: None,
        max_expiry: None,
        range_deletes: None,
        sum: None,
    }
}

/// One run of `tables` tables: 1,000 tables of 64 MiB are 64 GB.
fn manifest(tables: u64) -> Manifest {
    let mut state = Manifest::new_database(DatabaseId(77), Settings::default());
    state.writer_epoch = Epoch(1);
    state.writers = vec![WriterRecord {
        epoch: Epoch(1),
        claim: AttemptId(101),
        max_parallel_writes: 4,
        clean_close: false,
        transient: false,
    }];
    state.widest_window = 4;
    state.flushed_seq = Seq(10);
    state.floor = Seq(10);
    state.reserved = vec![SstId(u128::from(tables) + 1)];
    let tables = (0..tables).map(|n| table(n, (1, 10))).collect();
    state.runs = vec![SortedRun { id: 1, tables }];
    state
}

pub(crate) fn bench(criterion: &mut Criterion) {
    let tables = scaled(1_000);
    let state = manifest(tables);
    let flush = Edit::FlushL0(FlushL0 {
        layers: vec![vec![table(tables, (11, 20))]],
        flushed_seq: Seq(20),
        floor: Seq(20),
        reserve: vec![SstId(u128::from(tables) + 2)],
        ..FlushL0::nothing(Epoch(1), &state)
    });
    let mut group = criterion.benchmark_group("manifest");
    group.bench_function("apply_flush", |bencher| {
        bencher.iter(|| assert_eq!(flush.apply(&state).unwrap().l0.len(), 1));
    });
    group.bench_function("encode", |bencher| {
        bencher.iter(|| state.encode(ObjectId(1), AttemptId(2)).unwrap());
    });
    let stored = state.encode(ObjectId(1), AttemptId(2)).unwrap();
    group.bench_function("decode", |bencher| {
        bencher.iter(|| Manifest::decode(&stored).unwrap());
    });
    group.finish();
}
