//! Major compactions through the whole executor, in a local folder: eight layers of L0 with the
//! same key range, 16 B + 100 B rows, merged as one range and as two concurrent ones, uncompressed
//! and with either codec (half of a value is compressible then). Bytes are those of the rows.

#![allow(clippy::disallowed_methods, reason = "a bench reads the clock")]

use criterion::{BenchmarkId, Criterion, Throughput};
use siltstone::store::local::LocalStore;
use siltstone::{Accept, Batch, Codec, CompactionOptions, Database, OpenOptions, Options, task};
use siltstone_benches::rows::{ROW_BYTES, VALUE_BYTES, shuffled_key, value};
use siltstone_benches::scaled;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, io};
use tokio::runtime::Runtime;

const LAYERS: u64 = 8;
const RANGES: [u64; 2] = [1, 2];

fn open(runtime: &Runtime, path: &Path, codec: Codec, ranges: u64) -> Database {
    let effects = task::tokio_effects(runtime.handle().clone());
    let store = LocalStore::new(path, effects.clone()).unwrap();
    let compaction =
        CompactionOptions { compaction_ranges: Some(ranges), ..CompactionOptions::default() };
    let options = Options {
        embedded_compactor: false,
        compression: Some(codec),
        compaction,
        ..Options::default()
    };
    let how = OpenOptions { options, ..OpenOptions::default() };
    runtime.block_on(Database::open(effects.with_store(store), how)).unwrap()
}

/// A value that a codec compresses by half.
fn row_value(n: u64, codec: Codec) -> [u8; VALUE_BYTES] {
    let mut value = value(n);
    if codec != Codec::None {
        value[VALUE_BYTES / 2..].fill(b'v');
    }
    value
}

/// A closed database of eight layers, none of them compacted.
fn prepare(runtime: &Runtime, path: &Path, codec: Codec, rows: u64) {
    let db = open(runtime, path, codec, 1);
    let each = rows / LAYERS;
    for layer in 0..LAYERS {
        for from in (0..each).step_by(1000) {
            let mut batch = Batch::new();
            for n in from..(from + 1000).min(each) {
                let n = layer * each + n;
                batch.put(&shuffled_key(n, rows), &row_value(n, codec), None).unwrap();
            }
            while let Accept::Pressure(stall) = db.write(&batch).unwrap() {
                runtime.block_on(stall).unwrap();
            }
        }
        runtime.block_on(db.flush_memtable()).unwrap();
    }
    runtime.block_on(db.close()).unwrap();
}

/// Links the same objects into another folder: they never change, so a hard link is a copy.
fn link(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            link(&entry.path(), &target)?;
        } else {
            fs::hard_link(entry.path(), target)?;
        }
    }
    Ok(())
}

pub(crate) fn bench(criterion: &mut Criterion) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let rows = scaled(1_000_000);
    let mut group = criterion.benchmark_group("compact");
    group.throughput(Throughput::Bytes(rows * ROW_BYTES));
    for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let made = folder.path().join("made");
        for ranges in RANGES {
            let name = BenchmarkId::new(codec.as_str(), format!("{ranges} at once"));
            group.bench_function(name, |bencher| {
                if !made.exists() {
                    prepare(&runtime, &made, codec, rows);
                }
                bencher.iter_custom(|times| {
                    let mut spent = Duration::ZERO;
                    for _ in 0..times {
                        let copy = folder.path().join("copy");
                        link(&made, &copy).unwrap();
                        let db = open(&runtime, &copy, codec, ranges);
                        let begun = Instant::now();
                        assert!(runtime.block_on(db.compact()).unwrap());
                        spent += begun.elapsed();
                        runtime.block_on(db.close()).unwrap();
                        fs::remove_dir_all(copy).unwrap();
                    }
                    spent
                });
            });
        }
    }
    group.finish();
}
