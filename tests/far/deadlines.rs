//! Calls with many requests end by their deadline, even if each request is slow.

use crate::{HOUR, LIMIT, World, quiet, tell};
use siltstone::changes::{self, ChangesFrom, ChangesOptions};
use siltstone::{
    CheckpointName, CheckpointOptions, Database, ErrorKind, OpenOptions, Options, Reader,
    ReaderOptions, Result, admin, destroy,
};
use siltstone_tests::latency::{Latencies, Latency};
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(1);

/// Every request takes this long.
fn slowly(each: Duration) -> Latencies {
    let each = Latency::fixed(each);
    Latencies { get: each, put: each, list: each, bandwidth: false }
}

fn options() -> Options {
    Options { deadline: DEADLINE, ..quiet() }
}

async fn ends<T>(world: &World, what: &str, call: impl Future<Output = Result<T>>) {
    let (done, cost) = world.measured(call).await;
    if let Err(error) = &done {
        assert_eq!(error.kind(), ErrorKind::Timeout, "{what}: {error}");
    }
    assert!(cost.took <= DEADLINE * 2, "{what}: {cost:?}");
}

#[test]
fn calls_end_by_their_deadline_on_a_slow_store() {
    for millis in [500, 900, 5_000] {
        tell(slowly(Duration::from_millis(millis)), async |world, _| {
            world.crashed(20, 10).await;
            let name = CheckpointOptions::default();
            let made = admin::create_checkpoint(&world.near, &name, LIMIT).await.unwrap();
            let far = &world.far;
            let how = || OpenOptions {
                options: options(),
                take_over: Some(true),
                ..OpenOptions::default()
            };
            ends(&world, "open", Database::open(far.clone(), how())).await;
            let how = ReaderOptions { options: options(), ..ReaderOptions::default() };
            ends(&world, "open_reader", Reader::open(far.clone(), how)).await;
            let how = ChangesOptions {
                since: ChangesFrom::Oldest,
                consumer: None,
                until: None,
                before: None,
            };
            ends(&world, "changes", changes::changes(far, how, DEADLINE)).await;
            ends(&world, "newest", changes::newest(far, DEADLINE)).await;
            ends(&world, "consumers", changes::consumers(far, DEADLINE)).await;
            ends(&world, "versions", admin::versions(far, DEADLINE)).await;
            ends(&world, "manifest", admin::manifest(far, None, DEADLINE)).await;
            let (which, options) = (CheckpointName::from(made.id), options());
            ends(&world, "restore", admin::restore(far, &which, &options)).await;
            ends(&world, "destroy", destroy(far, true, DEADLINE)).await;
        });
    }
}

/// A writer that was opened near is closed far away.
#[test]
fn a_close_ends_by_its_deadline() {
    tell(slowly(Duration::from_millis(400)), async |world, _| {
        let patient = Options { deadline: HOUR, ..quiet() };
        let how = OpenOptions { options: patient, ..OpenOptions::default() };
        Database::open(world.far.clone(), how).await.unwrap().close().await.unwrap();
        let how = OpenOptions {
            options: Options { deadline: Duration::from_secs(12), ..quiet() },
            ..OpenOptions::default()
        };
        let db = Database::open(world.far.clone(), how).await.unwrap();
        for n in 0..10 {
            world.put(&db, n, 10).await;
        }
        let (closed, cost) = world.measured(db.close()).await;
        assert!(cost.took <= Duration::from_secs(13), "{closed:?}: {cost:?}");
    });
}

/// The deadline grows with bytes: a long log over a slow link is opened although that takes longer.
#[test]
fn a_long_log_is_opened_past_the_deadline() {
    let link = Latencies { bandwidth: true, ..slowly(Duration::from_millis(10)) };
    tell(link, async |world, _| {
        world.crashed(60, 1 << 20).await;
        let options = Options { deadline: Duration::from_millis(150), ..quiet() };
        let how = ReaderOptions { options, ..ReaderOptions::default() };
        let (opened, cost) = world.measured(Reader::open(world.far.clone(), how)).await;
        opened.unwrap();
        assert!(cost.took > Duration::from_millis(150), "{cost:?}");
    });
}
