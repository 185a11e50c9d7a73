//! Reading a long log: many requests in flight, and no additional request at its end.

use crate::{Cost, FAR, LIMIT, quiet, tell};
use siltstone::changes::{self, ChangesFrom, ChangesOptions};
use siltstone::{CheckpointName, CheckpointOptions, ReadAt, Reader, ReaderOptions, admin};
use std::sync::Arc;
use std::time::Duration;

fn assert_ahead(what: &str, cost: &Cost) {
    assert!(cost.most_in_flight >= 16, "{what}: {cost:?}");
    assert!(cost.took <= Duration::from_secs(2), "{what}: {cost:?}");
    assert!(cost.gets <= 2_020, "{what}: {cost:?}");
    // One for each 64 objects would take time quadratic in the log.
    assert!(cost.log_lists <= 5, "{what}: {cost:?}");
}

#[test]
fn two_thousand_objects_are_opened_within_two_seconds() {
    tell(FAR, async |world, _| {
        world.crashed(2_000, 10).await;
        let (reader, cost) = world.measured(world.reader()).await;
        assert_ahead("a reader", &cost);
        let name = CheckpointOptions::default();
        let (made, cost) = world.measured(admin::create_checkpoint(&world.far, &name, LIMIT)).await;
        assert_ahead("a checkpoint", &cost);
        let at = Some(ReadAt::Checkpoint(CheckpointName::from(made.unwrap().id)));
        let how = ReaderOptions { options: quiet(), at, ..ReaderOptions::default() };
        let (pinned, cost) = world.measured(Reader::open(world.far.clone(), how)).await;
        assert_ahead("a reader at a checkpoint", &cost);
        let (db, cost) = world.measured(world.writer(&world.far)).await;
        assert_ahead("a writer", &cost);
        let last = 1_999_u64.to_be_bytes();
        let answers = [
            reader.get(&last).unwrap().wait().await.unwrap(),
            pinned.unwrap().get(&last).unwrap().wait().await.unwrap(),
            db.get(&last).unwrap().wait().await.unwrap(),
        ];
        assert!(answers.iter().all(Option::is_some));
    });
}

#[test]
fn a_feed_and_a_refresh_read_ahead() {
    tell(FAR, async |world, _| {
        let db = world.writer(&world.near).await;
        let how = ChangesOptions {
            since: ChangesFrom::Oldest,
            consumer: None,
            until: None,
            before: None,
        };
        world.put(&db, 0, 10).await;
        let reader = world.reader().await;
        for n in 0..1_000 {
            world.put(&db, n, 10).await;
        }
        let (refreshed, cost) = world.measured(reader.refresh()).await;
        refreshed.unwrap();
        assert_ahead("a refresh", &cost);
        // In tables, and retained in the log nevertheless.
        db.flush_memtable().await.unwrap();
        for n in 0..1_000 {
            world.put(&db, n, 10).await;
        }
        let feed = async {
            let mut feed = changes::changes(&world.far, how, LIMIT).await.unwrap();
            let mut rows = 0;
            while let Some(read) = feed.read(1_000, 1 << 20).await.unwrap() {
                rows += read.len();
            }
            rows
        };
        let (rows, cost) = world.measured(feed).await;
        assert_eq!(rows, 2_001);
        assert_ahead("a feed", &cost);
    });
}

/// A reader that finds nothing, or one object at a time, sends the same requests as without
/// read-ahead.
#[test]
fn a_poll_that_finds_little_costs_no_request_more() {
    tell(FAR, async |world, _| {
        let db = world.writer(&world.near).await;
        for n in 0..100 {
            world.put(&db, n, 10).await;
        }
        let reader = world.reader().await;
        for n in 0..3 {
            let (refreshed, cost) = world.measured(reader.refresh()).await;
            refreshed.unwrap();
            assert_eq!((cost.gets, cost.most_in_flight), (1, 1), "nothing new");
            world.put(&db, n, 10).await;
            let (refreshed, cost) = world.measured(reader.refresh()).await;
            refreshed.unwrap();
            assert_eq!((cost.gets, cost.most_in_flight), (2, 1), "one object");
        }
    });
}

/// Objects of 3 MiB: read-ahead is limited by bytes.
#[test]
fn large_objects_are_few_at_a_time() {
    tell(FAR, async |world, _| {
        world.crashed(12, 3 << 20).await;
        let (_reader, cost) = world.measured(world.reader()).await;
        assert!((2..=6).contains(&cost.most_in_flight), "{cost:?}");
    });
}

/// An object that was missing in the read-ahead and arrives before its turn is read.
#[test]
fn objects_that_land_while_a_walk_reads_ahead_are_met() {
    tell(FAR, async |world, sim| {
        let db = world.writer(&world.near).await;
        for n in 0..15 {
            world.put(&db, n, 10).await;
        }
        let reads = Arc::clone(&world);
        let opened = async move {
            let mut seen = Vec::new();
            for _ in 0..20 {
                let reader = reads.reader().await;
                seen.push(reader.seq().get());
            }
            seen
        };
        let clock = Arc::clone(&world.near.clock);
        let writes = async {
            for n in 15..215 {
                clock.sleep(Duration::from_millis(7)).await;
                world.put(&db, n, 10).await;
            }
        };
        let (seen, ()) = futures::join!(opened, writes);
        assert!(seen.is_sorted() && *seen.first().unwrap() >= 15, "{seen:?}");
        drop(sim);
    });
}
