//! A following reader ends once its database cannot be read any more, and reports the reason.

use crate::{FAR, World, quiet, tell};
use siltstone::store::Store;
use siltstone::{Error, ErrorKind, Options, Reader, ReaderOptions, destroy};
use siltstone_base::{ObjectName, WalId};
use std::time::Duration;

fn options() -> Options {
    Options { manifest_poll_interval: Some(Duration::from_millis(50)), ..quiet() }
}

async fn follow(world: &World) -> Reader {
    let how = ReaderOptions { options: options(), ..ReaderOptions::default() };
    Reader::open(world.far.clone(), how).await.unwrap()
}

/// The error that reads raise within a minute.
async fn end_of(world: &World, reader: &Reader) -> Option<Error> {
    for _ in 0..600 {
        match reader.get(&0_u64.to_be_bytes()) {
            Err(error) => return Some(error),
            Ok(answer) => drop(answer.wait().await),
        }
        world.far.clock.sleep(Duration::from_millis(100)).await;
    }
    None
}

async fn last_wal(store: &dyn Store) -> WalId {
    let listed = store.names("wal/", None).await.unwrap();
    let ids = listed.into_iter().filter_map(|name| match name {
        ObjectName::Wal(id) => Some(id),
        _ => None,
    });
    ids.max().unwrap()
}

#[test]
fn a_hole_in_the_log_ends_a_follower() {
    tell(FAR, async |world, _| {
        let db = world.writer(&world.near).await;
        world.put(&db, 0, 1).await;
        let reader = follow(&world).await;
        world.put(&db, 1, 1).await;
        let hole = last_wal(&*world.near.store).await;
        world.near.store.delete(ObjectName::Wal(hole)).await.unwrap();
        for n in 2..6 {
            world.put(&db, n, 1).await;
        }
        let error = end_of(&world, &reader).await.expect("the reader ends");
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
        assert!(error.to_string().contains(&ObjectName::Wal(hole).to_string()), "{error}");
        assert!(reader.ended().is_some() && reader.refresh_error().is_some());
        assert!(reader.refresh().await.is_err() && reader.stats().refresh_failures >= 2);
    });
}

#[test]
fn a_database_that_is_gone_or_made_anew_ends_a_follower() {
    for anew in [false, true] {
        tell(FAR, async move |world, _| {
            let db = world.writer(&world.near).await;
            world.put(&db, 0, 1).await;
            db.close().await.unwrap();
            let reader = follow(&world).await;
            destroy(&world.near, false, crate::LIMIT).await.unwrap();
            if anew {
                let db = world.writer(&world.near).await;
                world.put(&db, 0, 1).await;
                db.close().await.unwrap();
            }
            let error = end_of(&world, &reader).await.expect("the reader ends");
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        });
    }
}

/// An idle writer sends nothing that its successor's fence could stop.
#[test]
fn an_idle_writer_learns_that_it_is_fenced() {
    tell(FAR, async |world, sim| {
        let idle = world.writer(&world.far).await;
        let db = world.writer(&world.near).await;
        world.put(&db, 0, 1).await;
        sim.sleep(Duration::from_secs(25)).await;
        assert_eq!(idle.failure().map(|error| error.kind()), Some(ErrorKind::Fenced));
        assert_eq!(idle.get(b"key").unwrap_err().kind(), ErrorKind::Fenced);
        assert!(db.failure().is_none());
    });
}

/// Temporary errors are reported in the figures, and the reader continues.
#[test]
fn a_follower_tells_how_old_its_state_is() {
    tell(FAR, async |world, sim| {
        let db = world.writer(&world.near).await;
        world.put(&db, 0, 1).await;
        let reader = follow(&world).await;
        sim.sleep(Duration::from_secs(2)).await;
        let stats = reader.stats();
        assert!(stats.staleness_seconds < 1.0 && stats.last_refresh_time > 0.0, "{stats:?}");
        assert_eq!((stats.refresh_failures, reader.refresh_error().is_none()), (0, true));
    });
}
