//! A store without conditional writes, and one that refuses creates for a while.

use crate::{Ask, Refusal, get, options, put, tell};
use siltstone::gc::GcOptions;
use siltstone::{Error, ErrorKind};
use siltstone_tests::gc::AT_ONCE;
use std::time::Duration;

/// It answers every create with "created". An opener detects this before anything is acknowledged,
/// and does no harm to existing objects.
#[test]
fn a_store_that_ignores_the_condition_is_refused() {
    tell(async |world| {
        let db = world.open(options()).await.unwrap();
        put(&db, "a", b"1").unwrap().wait(None).await.unwrap();
        db.close().await.unwrap();

        world.store.refuse(|ask, _| (ask == Ask::Put).then_some(Refusal::ConditionIgnored));
        let error = world.open(options()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("If-None-Match"), "{error}");

        world.store.heal();
        let db = world.open(options()).await.unwrap();
        assert_eq!(get(&db, "a").await.as_deref(), Some(&b"1"[..]));
    });
}

/// A store that refuses creates for a while. A collection, which creates an object to read the
/// store's clock, waits for it as long as other calls do. Before the fix it gave up after eight
/// tries, which take less than three seconds.
#[test]
fn a_collection_outlives_refused_creates_within_its_deadline() {
    tell(async |world| {
        world.open(options()).await.unwrap().close().await.unwrap();
        let patient = GcOptions { deadline: Duration::from_secs(30), ..AT_ONCE };
        let (sim, ends) = (world.sim.clone(), world.now() + Duration::from_secs(20));
        world.store.refuse(move |ask, _| {
            let refused = ask == Ask::Put && sim.elapsed() < ends;
            refused.then(|| Refusal::Plain(Error::unavailable("slow down")))
        });
        siltstone::gc::once(&world.env, &patient, false).await.unwrap();
        assert!(world.now() >= ends);
        // One that refuses on is reported after the time of one request.
        world.store.refuse(|ask, _| {
            (ask == Ask::Put).then(|| Refusal::Plain(Error::unavailable("slow down")))
        });
        let began = world.now();
        let error = siltstone::gc::once(&world.env, &patient, false).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        assert!(error.to_string().contains("slow down"), "{error}");
        assert!(world.now() - began < Duration::from_secs(35));
    });
}
