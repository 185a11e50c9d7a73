//! The filter: building, and look-ups of present and absent keys.

use criterion::{Criterion, Throughput};
use siltstone_benches::rows::{absent_key, sorted_key};
use siltstone_benches::scaled;
use siltstone_bloom::{Bloom, BloomBuilder, key_hash};
use std::hint::black_box;

const BITS_PER_KEY: u32 = 10;

fn encoded(hashes: &[u64]) -> Vec<u8> {
    let mut builder = BloomBuilder::new(BITS_PER_KEY);
    hashes.iter().for_each(|hash| builder.add(*hash));
    builder.finish()
}

pub(crate) fn bench(criterion: &mut Criterion) {
    let keys = scaled(1_000_000);
    let mut group = criterion.benchmark_group("bloom");
    let hashes: Vec<u64> = (0..keys).map(|n| key_hash(&sorted_key(n))).collect();
    group.throughput(Throughput::Elements(keys));
    group.bench_function("build", |bencher| bencher.iter(|| black_box(encoded(&hashes))));
    let filter = Bloom::decode(&encoded(&hashes)).unwrap();
    let mut n = 0;
    group.throughput(Throughput::Elements(1));
    group.bench_function("hash", |bencher| {
        bencher.iter(|| {
            n += 1;
            black_box(key_hash(&sorted_key(n)))
        });
    });
    group.bench_function("probe_present", |bencher| {
        bencher.iter(|| {
            n = n.wrapping_add(7_368_787);
            assert!(filter.may_contain(hashes[(n % keys) as usize]));
        });
    });
    let absent: Vec<u64> = (0..keys).map(|n| key_hash(&absent_key(n))).collect();
    group.bench_function("probe_absent", |bencher| {
        bencher.iter(|| {
            n = n.wrapping_add(7_368_787);
            black_box(filter.may_contain(absent[(n % keys) as usize]))
        });
    });
    group.finish();
}
