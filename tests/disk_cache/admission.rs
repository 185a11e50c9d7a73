//! Admission: point reads and short scans fill the cache, long scans and compactions only use it.

use crate::{MIB, disk_bytes, key, pause, put, tell, written};
use siltstone::{FillOutcome, Rows, Scan, ScanRange};

async fn rows_of(mut scan: Scan) -> usize {
    let (mut rows, mut count) = (Rows::new(), 0);
    loop {
        let fill = scan.fill(&mut rows, 1000, usize::MAX).unwrap();
        count += rows.len();
        rows.clear();
        match fill {
            FillOutcome::NeedsBlocks => scan.fetch().await.unwrap(),
            FillOutcome::End => return count,
            FillOutcome::Full => {}
        }
    }
}

#[test]
fn a_full_scan_does_not_flush_the_cache() {
    tell("scan", async |world| {
        world.filled(12_000).await;
        let reader = world.reader(world.options(4 * MIB)).await;
        world.warm(&reader, 3000..5500).await;
        let before = disk_bytes(&world.folder());
        for _ in 0..3 {
            assert_eq!(rows_of(reader.scan(ScanRange::all()).unwrap()).await, 12_000);
        }
        written(&world.folder()).await;
        assert!(disk_bytes(&world.folder()) <= before + MIB);
        assert_eq!(world.gets(&reader, 3000..5500).await, 0);
    });
}

/// A long scan finds parts on the disk.
#[test]
fn a_scan_uses_the_cache() {
    tell("scan-uses", async |world| {
        world.filled(4000).await;
        let reader = world.reader(world.options(64 * MIB)).await;
        world.warm(&reader, 0..4000).await;
        let before = world.requests.totals().gets;
        assert_eq!(rows_of(reader.scan(ScanRange::all()).unwrap()).await, 4000);
        assert_eq!(world.requests.totals().gets, before);
    });
}

#[test]
fn a_short_scan_fills_the_cache() {
    tell("scan-fills", async |world| {
        world.filled(4000).await;
        let reader = world.reader(world.options(64 * MIB)).await;
        let ten = || ScanRange { start: Some(key(2000)), limit: Some(10), ..ScanRange::all() };
        let mut requests = u64::MAX;
        for _ in 0..100 {
            let before = world.requests.totals().gets;
            assert_eq!(rows_of(reader.scan(ten()).unwrap()).await, 10);
            requests = world.requests.totals().gets - before;
            if requests == 0 {
                break;
            }
            pause().await;
        }
        assert_eq!(requests, 0);
    });
}

#[test]
fn a_compaction_uses_the_cache_and_does_not_fill_it() {
    tell("compaction", async |world| {
        let db = world.writer(world.options(64 * MIB)).await;
        for layer in 0..3 {
            put(&db, layer * 2000..layer * 2000 + 2000).await;
            put(&db, layer * 2000..layer * 2000 + 2000).await;
        }
        // One layer is there.
        for _ in 0..200 {
            let before = world.requests.totals().gets;
            for n in 0..2000 {
                assert!(db.get(&key(n)).unwrap().wait().await.unwrap().is_some());
            }
            if world.requests.totals().gets == before {
                break;
            }
            pause().await;
        }
        written(&world.folder()).await;
        let (disk, before) = (disk_bytes(&world.folder()), world.requests.totals());
        assert!(disk > MIB, "{disk}");
        let tables = db.stats().table_bytes;
        assert!(db.compact().await.unwrap());
        written(&world.folder()).await;
        let read = world.requests.totals().bytes_read - before.bytes_read;
        assert!(read + MIB < tables, "{read} bytes read of {tables}");
        assert_eq!(disk_bytes(&world.folder()), disk);
        db.close().await.unwrap();
    });
}
