//! Rounds over stores that refuse, and whose listings lack objects or show deleted ones.

use crate::{World, total};
use futures::future::BoxFuture;
use siltstone::gc::{GcClass, GcReport};
use siltstone::store::counting::count;
use siltstone::store::passed_on;
use siltstone::store::{Listed, Store, lies_under};
use siltstone::{Env, Error, ErrorKind, Result};
use siltstone_base::{ManifestId, ObjectName, UnixMillis};
use siltstone_tests::faults::FaultPlan;
use siltstone_tests::gc::AT_ONCE;
use siltstone_tests::reachable::Difference;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A store that refuses some deletes, and whose listings lack some objects, or show some deleted
/// ones.
#[derive(Debug)]
struct Stubborn {
    store: Arc<dyn Store>,
    refused: BTreeSet<ObjectName>,
    unlisted: BTreeSet<ObjectName>,
    gone: BTreeSet<ObjectName>,
}

impl Stubborn {
    fn over(store: &Arc<dyn Store>) -> Stubborn {
        let (refused, unlisted, gone) = Default::default();
        Stubborn { store: Arc::clone(store), refused, unlisted, gone }
    }
}

impl Store for Stubborn {
    passed_on!(store: get, put_if_absent, upload);

    fn list(
        &self,
        prefix: &'static str,
        after: Option<ObjectName>,
    ) -> BoxFuture<'_, Result<Vec<Listed>>> {
        Box::pin(async move {
            let mut listed = self.store.list(prefix, after).await?;
            listed.retain(|object| !self.unlisted.contains(&object.name));
            for name in self.gone.iter().filter(|name| lies_under(**name, prefix)) {
                listed.push(Listed { name: *name, bytes: 1, modified: UnixMillis(1), tag: None });
            }
            listed.sort_by_key(|object| object.name);
            Ok(listed)
        })
    }

    fn delete(&self, name: ObjectName) -> BoxFuture<'_, Result<()>> {
        if self.refused.contains(&name) {
            let denied = Error::new(ErrorKind::Denied, "kept by a retention rule");
            return Box::pin(std::future::ready(Err(denied)));
        }
        self.store.delete(name)
    }
}

/// A round over such a store.
fn round_over(
    world: &World,
    refused: BTreeSet<ObjectName>,
    unlisted: BTreeSet<ObjectName>,
) -> GcReport {
    world.run("collector", |env| async move {
        let store = Stubborn { refused, unlisted, ..Stubborn::over(&env.store) };
        let store = Arc::new(store);
        siltstone::gc::once(&Env { store, ..env }, &AT_ONCE, false).await
    })
}

/// G4: a denied delete stops only the deletes of higher numbers in its folder.
#[test]
fn a_denied_delete_stops_no_other() {
    let world = World::new(1, FaultPlan::none());
    world.live();
    let garbage = world.difference().garbage;
    let table = |name: &&ObjectName| matches!(name, ObjectName::Compacted(_));
    let table = *garbage.iter().find(table).expect("a dead table");
    let wal = |name: &&ObjectName| matches!(name, ObjectName::Wal(_));
    let wal = *garbage.iter().find(wal).expect("a dead WAL object");
    let report = round_over(&world, BTreeSet::from([table, wal]), BTreeSet::new());
    assert_eq!(report.total().denied, 2, "{report:?}");
    assert!(report.trouble.as_ref().is_some_and(|error| error.kind() == ErrorKind::Denied));
    assert!(report.classes[&GcClass::Tables].deleted > 0);
    let left = world.difference().garbage;
    assert!(left.contains(&table) && left.contains(&wal), "{left:?}");
    assert!(left.iter().all(|name| *name == table || matches!(name, ObjectName::Wal(_))));
    world.check();
    world.collect();
    assert_eq!(world.difference().garbage, vec![]);
}

/// Planted bug 22: a listing without the newest manifest and the newest record. Both are found by
/// reading further, and their objects stay.
#[test]
fn a_listing_that_lacks_the_newest_costs_nothing() {
    let world = World::new(1, FaultPlan::none());
    world.live();
    let names: BTreeSet<ObjectName> =
        world.bucket.objects().into_iter().map(|(name, _)| name).collect();
    let newest = |wanted: fn(&ObjectName) -> bool| names.iter().copied().filter(wanted).max();
    let unlisted = [
        newest(|name| matches!(name, ObjectName::Manifest(_))),
        newest(|name| matches!(name, ObjectName::Compactions(_))),
    ];
    let report = round_over(&world, BTreeSet::new(), unlisted.into_iter().flatten().collect());
    assert!(report.classes[&GcClass::Tables].deleted > 0, "{report:?}");
    world.check();
    world.collect();
    assert_eq!(world.difference(), Difference::default());
}

/// A listing that still shows the deleted first manifest, and not the boundary: it is repeated with
/// pauses, and no longer than the time limit of a request. Before, it was repeated without a pause
/// and without an end.
#[test]
fn a_listing_that_goes_on_to_show_what_is_gone_has_an_end() {
    let world = World::new(1, FaultPlan::none());
    world.live();
    world.collect();
    let (first, mut unlisted) = (ObjectName::Manifest(ManifestId::FIRST), BTreeSet::new());
    for (name, _) in world.bucket.objects() {
        assert_ne!(name, first, "it was freed");
        if matches!(name, ObjectName::ManifestBoundary(_)) {
            unlisted.insert(name);
        }
    }
    let (error, took, asked) = world.run("collector", |env| async move {
        let gone = BTreeSet::from([first]);
        let stale = Stubborn { unlisted, gone, ..Stubborn::over(&env.store) };
        let (env, requests) = count(Env { store: Arc::new(stale), ..env });
        let began = env.clock.monotonic();
        let error = siltstone::gc::once(&env, &AT_ONCE, false).await.expect_err("no newest");
        Ok((error, env.clock.monotonic() - began, total(&requests)))
    });
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains(&first.to_string()), "{error}");
    assert!(took >= AT_ONCE.deadline && took < 2 * AT_ONCE.deadline, "{took:?}");
    assert!(asked < 100, "{asked} requests");
    world.check();
}
