//! The size of the folder, and which parts leave it.

use crate::{MIB, World, disk_bytes, entries, key, pause, tell, until, written};
use std::fs::{File, FileTimes};
use std::time::{Duration, SystemTime};

/// The most that the folder takes while rows are read.
async fn largest(world: &World, bytes: u64, rows: u32) -> u64 {
    let reader = world.reader(world.options(bytes)).await;
    let mut largest = 0;
    for round in 0..3 {
        for n in (0..rows).step_by(40) {
            let n = n.wrapping_mul(7919 + round) % rows;
            reader.get(&key(n)).unwrap().wait().await.unwrap();
            largest = largest.max(disk_bytes(&world.folder()));
        }
        pause().await;
    }
    reader.close().await.unwrap();
    largest
}

#[test]
fn one_process_never_exceeds_the_size() {
    tell("size", async |world| {
        world.filled(12_000).await;
        let largest = largest(&world, 4 * MIB, 12_000).await;
        assert!(largest <= 4 * MIB, "{largest}");
        assert!(largest > 3 * MIB, "{largest}: the cache is hardly used");
    });
}

/// Two sizes are two users of one folder, as two processes are: the smaller size is kept but for
/// a step of the other.
#[test]
fn a_smaller_size_takes_effect() {
    tell("smaller", async |world| {
        world.filled(12_000).await;
        let large = world.reader(world.options(64 * MIB)).await;
        world.warm(&large, (0..12_000).step_by(20)).await;
        assert!(disk_bytes(&world.folder()) > 11 * MIB);
        let small = world.reader(world.options(4 * MIB)).await;
        until("the folder shrinks", || disk_bytes(&world.folder()) <= 4 * MIB).await;
        assert!(small.stats().disk_cache_bytes <= 4 * MIB);
    });
}

/// Several handles write to one folder of one size.
#[test]
fn handles_share_a_folder_and_its_size() {
    tell("shared", async |world| {
        world.filled(12_000).await;
        let mut readers = Vec::new();
        for _ in 0..4 {
            readers.push(world.reader(world.options(4 * MIB)).await);
        }
        let reads = readers.iter().enumerate().map(|(at, reader)| {
            let (world, first) = (&world, 3000 * at as u32);
            async move { world.gets(reader, (first..first + 3000).step_by(25)).await }
        });
        futures::future::join_all(reads).await;
        written(&world.folder()).await;
        assert!(disk_bytes(&world.folder()) > 2 * MIB);
        assert!(disk_bytes(&world.folder()) <= 4 * MIB);
        let shown: Vec<u64> = readers.iter().map(|one| one.stats().disk_cache_bytes).collect();
        assert!(shown.iter().all(|bytes| *bytes == shown[0] && *bytes <= 4 * MIB), "{shown:?}");
    });
}

/// Uses are kept in the files: those that a restart finds unused for longest go first.
#[test]
fn the_parts_that_were_used_longest_ago_go_first() {
    tell("order", async |world| {
        world.filled(12_000).await;
        let reader = world.reader(world.options(4 * MIB)).await;
        world.warm(&reader, 0..2000).await;
        reader.close().await.unwrap();
        let hour_ago = SystemTime::now() - Duration::from_secs(3600);
        for path in entries(&world.folder()) {
            let file = File::options().write(true).open(path).unwrap();
            file.set_times(FileTimes::new().set_modified(hour_ago)).unwrap();
        }
        // Rows below 1000 are used again, by a process that did not write them.
        let reader = world.reader(world.options(4 * MIB)).await;
        assert_eq!(world.gets(&reader, 0..1000).await, 0);
        world.warm(&reader, 9000..10_900).await;
        assert_eq!(world.gets(&reader, 0..1000).await, 0, "what was used again is there");
        assert!(world.gets(&reader, 1200..2000).await > 0, "what was not used is gone");
    });
}

/// Parts of a second database count against the same size, and are told apart.
#[test]
fn databases_share_a_folder() {
    tell("two", async |world| {
        world.filled(2000).await;
        let first = world.reader(world.options(4 * MIB)).await;
        world.warm(&first, 0..2000).await;
        let other = world.beside("two-of-two");
        other.filled(6000).await;
        let second = other.reader(world.options(4 * MIB)).await;
        other.gets(&second, (0..6000).step_by(10)).await;
        written(&world.folder()).await;
        assert!(disk_bytes(&world.folder()) > 2 * MIB);
        assert!(disk_bytes(&world.folder()) <= 4 * MIB);
        world.gets(&first, 0..2000).await;
    });
}
