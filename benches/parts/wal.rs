//! WAL objects: encoding by a writer, and decoding by a replay.

use criterion::{Criterion, Throughput};
use siltstone_base::{AttemptId, Batch, DatabaseId, Envelope, Epoch, ObjectId, ObjectKind, Seq};
use siltstone_base::{Result, WalId};
use siltstone_benches::rows::{ROW_BYTES, shuffled_key, value};
use siltstone_benches::scaled;
use siltstone_memtable::Memtable;
use siltstone_sst::wal::{self, CutInfo, WalBody, WalBuilder, WalRecord};
use std::sync::Arc;

fn object(batches: &[(Seq, Batch)]) -> bytes::Bytes {
    let mut builder = WalBuilder::new();
    for (seq, batch) in batches {
        builder.push_batch(*seq, batch.ops(), batch.as_bytes());
    }
    let (database, object) = (DatabaseId(1), ObjectId(2));
    let envelope = Envelope::new(ObjectKind::Wal, database, object, AttemptId(3));
    builder.finish(envelope, Epoch(1), WalId(1), CutInfo::default())
}

/// Reads an object back into a memtable, as recovery does.
fn replay(object: &bytes::Bytes) -> Result<usize> {
    let memtable = Memtable::new();
    let WalBody::Records(records) = wal::decode(object.clone(), WalId(1))?.body else {
        return Ok(0);
    };
    for record in records.iter() {
        let WalRecord::Batch { first_seq, bytes, .. } = record? else { continue };
        memtable.insert_batch(first_seq, &Arc::from(bytes.as_ref()))?;
    }
    Ok(memtable.len())
}

pub(crate) fn bench(criterion: &mut Criterion) {
    let rows = scaled(50_000);
    let batches: Vec<(Seq, Batch)> = (0..rows)
        .map(|n| {
            let mut batch = Batch::new();
            batch.put(&shuffled_key(n, rows), &value(n), None).unwrap();
            (Seq(n + 1), batch)
        })
        .collect();
    let mut group = criterion.benchmark_group("wal");
    group.throughput(Throughput::Bytes(rows * ROW_BYTES));
    group.bench_function("build", |bencher| {
        bencher.iter(|| assert!(object(&batches).len() as u64 > rows * ROW_BYTES));
    });
    let stored = object(&batches);
    group.bench_function("decode", |bencher| {
        bencher.iter(|| wal::decode(stored.clone(), WalId(1)).unwrap());
    });
    group.bench_function("replay", |bencher| {
        bencher.iter(|| assert_eq!(replay(&stored).unwrap() as u64, rows));
    });
    group.finish();
}
