//! `disk_cache_mirror`: whole tables in the folder before any read of them.

use crate::{
    MIB, World, cache_in, disk_bytes, entries, key, pause, plain, put, tell, until, written,
};
use siltstone::{DiskCacheOptions, MirroredKeys, Options, Reader};
use std::time::Duration;

/// Options with a mirror of the keys of these rows.
fn mirroring(world: &World, bytes: u64, rows: Option<std::ops::Range<u32>>) -> Options {
    let bound = |row: u32| Some(key(row));
    let span = rows.map_or_else(MirroredKeys::default, |rows| MirroredKeys {
        start: bound(rows.start),
        end: bound(rows.end),
    });
    let disk_cache = DiskCacheOptions { mirror: Some(span), ..cache_in(&world.folder(), bytes) };
    Options { disk_cache, ..plain() }
}

/// Waits until the mirror has fetched so many bytes, and all of them are written.
async fn mirrored(world: &World, reader: &Reader, least: u64) {
    let has_all = || {
        let stats = reader.stats();
        let missing = stats.disk_cache_mirror_missing_bytes;
        missing == 0 && stats.disk_cache_mirror_bytes >= least
    };
    until("all tables are mirrored", has_all).await;
    written(&world.folder()).await;
}

#[test]
fn a_mirror_has_every_table_before_it_is_read() {
    tell("mirror", async |world| {
        world.filled(12_000).await;
        let options = mirroring(&world, 64 * MIB, None);
        let reader = world.reader(options.clone()).await;
        mirrored(&world, &reader, 12 * 1_000_000).await;
        assert_eq!(world.gets(&reader, (0..12_000).step_by(11)).await, 0);
        let stats = reader.stats();
        assert_eq!(stats.disk_cache_mirror_bytes, stats.table_bytes, "{stats:?}");
        assert_eq!((stats.disk_cache_mirror_errors, stats.disk_cache_errors), (0, 0));

        // New tables, and those of a compaction, follow.
        let db = world.writer(plain()).await;
        put(&db, 12_000..15_000).await;
        db.compact().await.unwrap();
        db.close().await.unwrap();
        reader.refresh().await.unwrap();
        mirrored(&world, &reader, 15 * 1_000_000).await;
        assert_eq!(world.gets(&reader, (0..15_000).step_by(11)).await, 0);
        reader.close().await.unwrap();

        // Parts in the cache are not fetched again.
        let again = world.reader(options).await;
        let before = world.requests.totals().gets;
        mirrored(&world, &again, 15 * 1_000_000).await;
        assert_eq!(world.requests.totals().gets, before);
        again.close().await.unwrap();
    });
}

#[test]
fn a_writer_mirrors_what_it_flushes() {
    tell("mirror-writer", async |world| {
        let db = world.writer(mirroring(&world, 64 * MIB, None)).await;
        put(&db, 0..3000).await;
        until("the table is mirrored", || db.stats().disk_cache_mirror_bytes >= 3_000_000).await;
        written(&world.folder()).await;
        let before = world.requests.totals().gets;
        for row in (0..3000).step_by(13) {
            assert!(db.get(&key(row)).unwrap().wait().await.unwrap().is_some());
        }
        assert_eq!(world.requests.totals().gets, before);
        db.close().await.unwrap();
    });
}

#[test]
fn a_mirror_of_a_range_has_its_tables_alone() {
    tell("mirror-range", async |world| {
        let db = world.writer(plain()).await;
        for part in 0..4 {
            put(&db, part * 2000..(part + 1) * 2000).await;
        }
        db.close().await.unwrap();
        let reader = world.reader(mirroring(&world, 64 * MIB, Some(2500..5000))).await;
        mirrored(&world, &reader, 4_000_000).await;
        let bytes = reader.stats().disk_cache_mirror_bytes;
        assert!(bytes < 5_000_000, "{bytes} bytes");
        assert_eq!(world.gets(&reader, (2000..6000).step_by(17)).await, 0);
        assert!(world.gets(&reader, 0..1).await > 0);
        reader.close().await.unwrap();
    });
}

/// The newest tables that fit are mirrored, and nothing is fetched again and again.
#[test]
fn a_mirror_stays_within_the_size_of_the_cache() {
    tell("mirror-large", async |world| {
        let db = world.writer(plain()).await;
        for part in 0..6 {
            put(&db, part * 2000..(part + 1) * 2000).await;
        }
        db.close().await.unwrap();
        let size = 8 * MIB;
        let reader = world.reader(mirroring(&world, size, None)).await;
        until("three tables are mirrored", || {
            reader.stats().disk_cache_mirror_bytes >= 3 * 2_000_000
        })
        .await;
        written(&world.folder()).await;
        let (stats, gets) = (reader.stats(), world.requests.totals().gets);
        assert!(stats.disk_cache_mirror_missing_bytes >= 2 * 2_000_000, "{stats:?}");
        assert!(disk_bytes(&world.folder()) <= size);
        let files = entries(&world.folder()).len();
        for _ in 0..100 {
            pause().await;
        }
        assert_eq!(world.requests.totals().gets, gets);
        assert_eq!(entries(&world.folder()).len(), files);
        // The newest rows are there.
        assert_eq!(world.gets(&reader, (8000..12_000).step_by(19)).await, 0);
        reader.close().await.unwrap();
    });
}

/// The task ends with its handle.
#[test]
fn a_closed_handle_mirrors_nothing() {
    tell("mirror-closed", async |world| {
        world.filled(3000).await;
        let reader = world.reader(mirroring(&world, 64 * MIB, None)).await;
        reader.close().await.unwrap();
        drop(reader);
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let before = world.requests.totals().gets;
        let db = world.writer(plain()).await;
        put(&db, 3000..4000).await;
        let opened = world.requests.totals().gets;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert_eq!(world.requests.totals().gets, opened, "{before}");
        db.close().await.unwrap();
    });
}
