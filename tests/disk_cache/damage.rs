//! Folders that are damaged, deleted or unusable: requests are lost, answers are not.

use crate::{MIB, cache_in, entries, plain, tell, until};
use siltstone::{ErrorKind, Options, Reader, ReaderOptions};
use std::fs::{self, File, FileTimes};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

/// Makes each entry bad in another way.
fn spoil(folder: &Path) -> usize {
    let entries = entries(folder);
    for (at, path) in entries.iter().enumerate() {
        let bytes = fs::read(path).unwrap();
        let mut flipped = bytes.clone();
        let middle = flipped.len() / 2;
        flipped[middle] ^= 1;
        let spoilt = match at % 5 {
            0 => flipped,
            1 => bytes[..bytes.len() - 1].to_vec(),
            2 => Vec::new(),
            3 => [bytes.as_slice(), b"more"].concat(),
            // The content of another part.
            _ => fs::read(&entries[(at + 5) % entries.len()]).unwrap(),
        };
        fs::write(path, spoilt).unwrap();
    }
    entries.len()
}

#[test]
fn a_bad_entry_costs_a_request_and_is_replaced() {
    tell("spoilt", async |world| {
        world.filled(3000).await;
        let reader = world.reader(world.options(64 * MIB)).await;
        let rows = (0..3000).step_by(5);
        world.warm(&reader, rows.clone()).await;
        let spoilt = spoil(&world.folder());
        assert!(spoilt > 20, "{spoilt}");
        assert!(world.gets(&reader, rows.clone()).await > 0);
        world.warm(&reader, rows).await;
        // The metadata is in memory: its parts are not read again.
        assert!(reader.stats().disk_cache_errors >= spoilt as u64 - 3, "{:?}", reader.stats());
    });
}

/// Bytes that the store damages on their way get into the cache; a block's own checksum finds
/// them, and the cache is not asked again.
#[test]
fn bytes_that_arrive_damaged_are_read_anew() {
    tell("arriving", async |world| {
        world.filled(3000).await;
        let reader = world.reader(world.options(64 * MIB)).await;
        for n in (0..3000).step_by(150) {
            world.store.damages.store(1, Ordering::Relaxed);
            world.gets(&reader, n..=n).await;
        }
        world.store.damages.store(0, Ordering::Relaxed);
        world.warm(&reader, (0..3000).step_by(5)).await;
    });
}

#[test]
fn a_folder_may_be_deleted_under_a_reader() {
    tell("deleted", async |world| {
        world.filled(2000).await;
        let reader = world.reader(world.options(64 * MIB)).await;
        let rows = (0..2000).step_by(5);
        for _ in 0..3 {
            world.warm(&reader, rows.clone()).await;
            fs::remove_dir_all(world.folder()).unwrap();
            assert!(world.gets(&reader, rows.clone()).await > 0);
        }
        world.warm(&reader, rows).await;
    });
}

/// Neither a folder nor a place for one: a file stands there.
#[test]
fn a_folder_that_cannot_be_used_costs_requests_only() {
    tell("unusable", async |world| {
        world.filled(500).await;
        let in_the_way = world.folder();
        for folder in [in_the_way.clone(), in_the_way.join("deeper")] {
            let options = Options { disk_cache: cache_in(&folder, 64 * MIB), ..plain() };
            let reader = world.reader(options.clone()).await;
            until("the folder is made", || folder.join("tmp").is_dir()).await;
            fs::remove_dir_all(&in_the_way).unwrap();
            fs::write(&in_the_way, b"a file").unwrap();
            for _ in 0..2 {
                assert!(world.gets(&reader, (0..500).step_by(50)).await > 0);
            }
            until("the failure counts", || reader.stats().disk_cache_errors > 0).await;
            reader.close().await.unwrap();
            // A file that is there when the handle is opened is refused.
            let how = ReaderOptions { options, ..ReaderOptions::default() };
            let error = Reader::open(world.env.clone(), how).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            assert_eq!(fs::read(&in_the_way).unwrap(), b"a file");
            fs::remove_file(&in_the_way).unwrap();
        }
    });
}

/// Old temporary files go. Young ones may be another process's, and other names are a user's.
#[test]
fn files_of_killed_processes_go() {
    tell("killed", async |world| {
        world.filled(10).await;
        let temporary = world.folder().join("tmp");
        fs::create_dir_all(&temporary).unwrap();
        let file = |name: &str, age: u64| {
            let path = temporary.join(name);
            let time = SystemTime::now() - Duration::from_secs(age);
            let file = File::create(&path).unwrap();
            file.set_times(FileTimes::new().set_modified(time)).unwrap();
            path
        };
        let old = file("0123456789abcdef.tmp", 3600);
        let others = [file("0123456789abcde0.tmp", 5), file("notes.tmp", 3600), file("x", 3600)];
        let reader = world.reader(world.options(64 * MIB)).await;
        until("the old file goes", || !old.exists()).await;
        reader.close().await.unwrap();
        assert!(others.iter().all(|path| path.exists()));
    });
}
