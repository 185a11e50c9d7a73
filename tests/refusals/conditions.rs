//! A store without conditional writes.

use crate::{Ask, Refusal, get, options, put, tell};
use siltstone::ErrorKind;

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
