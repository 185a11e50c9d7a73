//! Bulk load (RFC 0039): rows of any order and size become tables of one job, within a memory
//! limit; a refusal names its row; objects of an aborted load are collected.

use super::*;
use siltstone::ErrorKind;
use siltstone::gc::{self, GcOptions};
use siltstone::tables::{LoadOptions, RowBatch};
use siltstone::{Error, LoadReport};
use siltstone_tests::gc::AT_ONCE;
use std::path::Path;

/// Rows as a list.
struct Listed(Pairs);

impl RowBatch for Listed {
    fn rows(&self) -> usize {
        self.0.len()
    }

    fn row(&self, row: usize) -> (&[u8], &[u8]) {
        let (key, value) = &self.0[row];
        (key, value)
    }

    fn bytes(&self) -> usize {
        self.0.iter().map(|(key, value)| key.len() + value.len()).sum()
    }
}

fn how(sorted: bool, duplicates: Duplicates) -> LoadOptions {
    LoadOptions {
        sorted,
        duplicates,
        memory_bytes: 64 << 20,
        scratch: std::env::temp_dir(),
        table_bytes: 1000,
    }
}

/// Loads rows, in batches of some.
async fn load(db: &Database, rows: &Pairs, how: LoadOptions, some: usize) -> Result<LoadReport> {
    let mut load = db.begin_load(how).await?;
    for batch in rows.chunks(some) {
        load.loader()?.push(Arc::new(Listed(batch.to_vec()))).await?;
    }
    load.finish().await
}

/// The same numbers each time, shuffled, some of them twice.
fn shuffled(seed: u64, rows: usize, distinct: u64) -> Pairs {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        state >> 33
    };
    let row = |at: usize| {
        let number = next() % distinct;
        // Keys of many lengths, some of them prefixes of others.
        let mut key = format!("row/{number}").into_bytes();
        key.resize(key.len() + number as usize % 5, 0);
        (key, format!("value {at}").into_bytes())
    };
    (0..rows).map(row).collect()
}

fn last_of(rows: &Pairs) -> BTreeMap<Vec<u8>, Vec<u8>> {
    rows.iter().cloned().collect()
}

/// With any amount of memory and any order of rows, the last of equal keys counts and the database
/// equals a map.
#[test]
fn a_load_is_what_a_map_would_hold() {
    for (seed, memory_bytes) in [(1, 64 << 20), (2, 30_000), (3, 3_000), (4, 0)] {
        for sorted in [false, true] {
            let place = Place::of(seed);
            place.run("all", move |env| async move {
                let db = open(&env, options()).await?;
                let before = db.put(b"row/3\0\0\0", b"before", None)?;
                drop(before);
                let mut rows = shuffled(seed, 1500, 700);
                if sorted {
                    rows.sort_by(|a, b| a.0.cmp(&b.0));
                }
                let expected = last_of(&rows);
                let how = LoadOptions { memory_bytes, ..how(sorted, Duplicates::KeepLast) };
                let report = load(&db, &rows, how, 1 + 97 * seed as usize).await?;
                assert_eq!(report.rows, expected.len() as u64, "seed {seed}, sorted {sorted}");
                assert!(report.tables > 5 && report.seq.is_some());
                let found = all_of(db.scan(everything())?).await?;
                assert_eq!(found, expected.clone().into_iter().collect::<Pairs>());
                db.flush_memtable().await?;
                db.close().await?;
                let db = open(&env, options()).await?;
                let found = all_of(db.scan(everything())?).await?;
                assert_eq!(found, expected.into_iter().collect::<Pairs>());
                db.close().await
            });
        }
    }
}

/// Names of the files in a load's folder of `scratch`.
fn spilled(scratch: &Path) -> Vec<String> {
    let folders = std::fs::read_dir(scratch).unwrap();
    let files = folders.flat_map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap());
    files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
}

/// The last rows need no file if they fit into memory. They are merged with the rows in files, and
/// for a key in both the last row counts. Files are deleted once they are merged.
#[test]
fn rows_in_files_and_rows_in_memory_are_one() {
    for seed in 1..=12 {
        let place = Place::of(seed);
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().to_owned();
        place.run("all", move |env| async move {
            let db = open(&env, options()).await?;
            let mut rows = shuffled(seed, 1200 + 100 * seed as usize, 500);
            // The last rows repeat the first ones: they are in files and in memory.
            let again = rows.iter().take(60).map(|(key, _)| (key.clone(), b"again".to_vec()));
            rows.extend(again.collect::<Pairs>());
            let expected = last_of(&rows);
            let memory_bytes = 24_000 + 2_000 * seed as usize;
            let how = how(false, Duplicates::KeepLast);
            let how = LoadOptions { memory_bytes, scratch: folder.clone(), ..how };
            let mut load = db.begin_load(how).await?;
            for batch in rows.chunks(20 + 7 * seed as usize) {
                load.loader()?.push(Arc::new(Listed(batch.to_vec()))).await?;
            }
            // All but four heaps; those that are being written may have files by now.
            assert!(spilled(&folder).len() > 4, "{:?}", spilled(&folder));
            let report = load.finish().await?;
            assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "seed {seed}");
            assert_eq!(report.rows, expected.len() as u64, "seed {seed}");
            let found = all_of(db.scan(everything())?).await?;
            assert_eq!(found, expected.into_iter().collect::<Pairs>(), "seed {seed}");
            db.close().await
        });
    }
}

/// Equal keys are refused for any location of their rows: in two files, in a file and in memory, in
/// two heaps in memory, in one heap. The folder is empty afterwards.
#[test]
fn equal_keys_are_refused_in_files_and_in_memory() {
    // Rows of 47 bytes of memory: a heap has 10 of them, and those from 30 on are in memory, in two
    // heaps.
    for (first, second) in [(0, 1), (0, 15), (3, 44), (25, 35), (31, 32), (35, 42), (43, 44)] {
        let place = Place::new();
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().to_owned();
        place.run("all", move |env| async move {
            let db = open(&env, options()).await?;
            // Shuffled: 37 shares no divisor with 100.
            let key = |at: usize| format!("row/{:03}", at * 37 % 100).into_bytes();
            let mut rows: Pairs = (0..45).map(|at| (key(at), b"12345678".to_vec())).collect();
            rows[second].0 = key(first);
            let how = how(false, Duplicates::Refuse);
            let how = LoadOptions { memory_bytes: 6 * 470, scratch: folder.clone(), ..how };
            let error = load(&db, &rows, how, 1).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            let (text, key) = (error.to_string(), String::from_utf8(key(first)).unwrap());
            let told =
                [format!("key: {key}"), format!("row: {first},"), format!("other row: {second}")];
            assert!(told.iter().all(|told| text.contains(told.as_str())), "{text}");
            // Running work ends by itself.
            env.clock.sleep(Duration::from_secs(1)).await;
            assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "{first} {second}");
            db.close().await
        });
    }
}

/// A load that is dropped with rows in files leaves none.
#[test]
fn files_of_a_dropped_load_go() {
    let place = Place::new();
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().to_owned();
    place.run("all", move |env| async move {
        let db = open(&env, options()).await?;
        let how = how(false, Duplicates::KeepLast);
        let how = LoadOptions { memory_bytes: 24_000, scratch: folder.clone(), ..how };
        let mut load = db.begin_load(how).await?;
        for batch in shuffled(5, 1500, 700).chunks(50) {
            load.loader()?.push(Arc::new(Listed(batch.to_vec()))).await?;
        }
        assert!(!spilled(&folder).is_empty());
        drop(load);
        env.clock.sleep(Duration::from_secs(1)).await;
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        db.close().await
    });
}

/// The error of a load of these rows.
fn refused(sorted: bool, memory_bytes: usize, rows: &[(&[u8], &str)]) -> Error {
    let rows: Pairs =
        rows.iter().map(|(key, value)| (key.to_vec(), value.as_bytes().to_vec())).collect();
    let place = Place::new();
    place.run("all", move |env| async move {
        let db = open(&env, options()).await?;
        let how = LoadOptions { memory_bytes, ..how(sorted, Duplicates::Refuse) };
        let how = LoadOptions { table_bytes: 8, ..how };
        let refused = load(&db, &rows, how, 2).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
        assert!(all_of(db.scan(everything())?).await?.is_empty());
        // The handle continues to work.
        put(&db, 1, b"after").await?;
        db.close().await?;
        Ok(refused)
    })
}

#[test]
fn a_refusal_names_its_row() {
    let told = |error: &Error, texts: &[&str]| {
        let text = error.to_string();
        assert!(texts.iter().all(|part| text.contains(part)), "{text}");
    };
    let unsorted: &[(&[u8], &str)] = &[(b"a", "1"), (b"b", "2"), (b"d", "3"), (b"c", "4")];
    told(&refused(true, 1 << 20, unsorted), &["ascending", "row: 3", "key: c"]);
    // Between two tables.
    let unsorted: &[(&[u8], &str)] = &[(b"a", "12345678"), (b"c", "12345678"), (b"b", "3")];
    told(&refused(true, 1 << 20, unsorted), &["ascending", "row: 2", "key: b"]);
    let equal: &[(&[u8], &str)] = &[(b"a", "1"), (b"b", "2"), (b"b", "3")];
    told(&refused(true, 1 << 20, equal), &["same key", "key: b", "row: 1", "other row: 2"]);
    let equal: &[(&[u8], &str)] = &[(b"b", "1"), (b"c", "2"), (b"a", "3"), (b"b", "4")];
    for memory_bytes in [1 << 20, 0] {
        let texts = ["same key", "key: b", "row: 0", "other row: 3"];
        told(&refused(false, memory_bytes, equal), &texts);
    }
    let empty: &[(&[u8], &str)] = &[(b"a", "1"), (b"", "2")];
    for sorted in [false, true] {
        told(&refused(sorted, 1 << 20, empty), &["row: 1"]);
    }
}

/// A load without rows creates no job.
#[test]
fn nothing_is_loaded_where_there_are_no_rows() {
    let place = Place::new();
    place.run("all", |env| async move {
        let db = open(&env, options()).await?;
        for sorted in [false, true] {
            let report = load(&db, &Vec::new(), how(sorted, Duplicates::Refuse), 1).await?;
            assert_eq!((report.rows, report.tables, report.seq), (0, 0, None));
        }
        db.close().await
    });
    assert_eq!(place.staged(), 0);
}

/// Objects uploaded by an aborted load are deleted in the collector's next rounds, long before its
/// job's deadline.
#[test]
fn tables_of_an_abandoned_load_are_collected() {
    let place = Place::new();
    place.run("all", |env| async move {
        let db = open(&env, options()).await?;
        let mut load = db.begin_load(how(true, Duplicates::Refuse)).await?;
        let mut rows = shuffled(9, 2000, 100_000);
        rows.sort();
        rows.dedup_by(|a, b| a.0 == b.0);
        load.loader()?.push(Arc::new(Listed(rows))).await?;
        drop(load);
        env.clock.sleep(Duration::from_secs(5)).await;
        db.close().await
    });
    assert!(place.staged() > 0, "tables were uploaded");
    place.run("gc", |env| async move {
        for _ in 0..3 {
            let grace = GcOptions { min_age: Duration::from_secs(60), ..AT_ONCE };
            env.clock.sleep(Duration::from_secs(120)).await;
            gc::once(&env, &grace, false).await?;
        }
        Ok(())
    });
    assert_eq!(place.staged(), 0);
}

/// An ingest of 1,000 tables into a live database costs five PUTs besides the tables, and no table
/// is written twice if nothing else is in its range.
#[test]
fn a_thousand_tables_cost_five_puts() {
    let place = Place::new();
    let bucket = Arc::clone(&place.bucket);
    place.run("all", |env| async move {
        let db = open(&env, options()).await?;
        put(&db, 1, b"before").await?;
        db.flush_memtable().await?;
        let names = || -> Vec<String> {
            bucket.objects().iter().map(|(name, _)| name.to_string()).collect()
        };
        let before = names();
        let rows: Pairs =
            (0..4000u32).map(|n| (format!("load/{n:08}").into_bytes(), vec![b'v'; 87])).collect();
        let how = LoadOptions { table_bytes: 400, ..how(true, Duplicates::Refuse) };
        let report = load(&db, &rows, how, 500).await?;
        assert_eq!(report.tables, 1000);
        db.flush_memtable().await?;
        let made = names().into_iter().filter(|name| !before.contains(name));
        let (tables, others): (Vec<String>, Vec<String>) =
            made.partition(|name| name.starts_with("ingest/") && name.ends_with(".sst"));
        assert_eq!(tables.len(), 1000, "each table is written once");
        assert!(others.len() <= 5, "{others:?}");
        db.close().await
    });
}
