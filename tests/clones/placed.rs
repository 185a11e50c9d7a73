//! Clones and their places (rule K8): a copy of a clone is refused, and the pin of a clone that was
//! removed by hand is released.

use super::*;
use siltstone::{CheckpointName, ErrorKind};
use siltstone_base::name::prefix;
use siltstone_base::{ObjectName, UnixMillis};

const DEADLINE: Duration = Duration::from_secs(9);

async fn objects(env: &Env) -> Vec<ObjectName> {
    let mut names = Vec::new();
    for folder in [prefix::MANIFEST, prefix::WAL, prefix::COMPACTED, prefix::COMPACTIONS] {
        names.extend(env.store.names(folder, None).await.unwrap());
    }
    names
}

async fn copy(from: &Env, to: &Env) {
    for name in objects(from).await {
        let bytes = from.store.get(name, None).await.unwrap().unwrap();
        drop(to.store.put_if_absent(name, bytes).await);
    }
}

#[test]
fn a_copy_of_a_clone_is_refused_before_it_lets_go_of_anything() {
    run("copied", async |places| {
        let (parent, env) = (places.parent("parent").await, places.env("clone"));
        clone(&env, &parent).await.unwrap();
        let other = places.env("copy");
        copy(&env, &other).await;
        let refused = [
            open(&other).await.map(drop).unwrap_err(),
            read(&other).await.map(drop).unwrap_err(),
            siltstone::destroy(&other, false, DEADLINE).await.unwrap_err(),
            clone(&places.env("more"), &other).await.unwrap_err(),
        ];
        for error in refused {
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
            for place in ["clone", "copy", "parent"] {
                assert!(text(&error).contains(&format!("memory://copied/{place}")), "{error}");
            }
        }
        rewrite(&parent).await;
        assert_eq!(read(&env).await.unwrap(), parents_rows());
        // Without ancestors it may be anywhere.
        rewrite(&env).await;
        let free = places.env("free");
        copy(&env, &free).await;
        assert_eq!(read(&free).await.unwrap(), parents_rows());
    });
}

#[test]
fn the_pin_of_a_clone_that_is_gone_is_released() {
    run("removed", async |places| {
        let (parent, env) = (places.parent("parent").await, places.env("clone"));
        clone(&env, &parent).await.unwrap();
        let pin = manifest(&env).await.ancestors[0].checkpoint;
        let by_place: CheckpointName = "memory://removed/clone".parse().unwrap();
        let kept = admin::release_clone(&parent, &by_place, false, DEADLINE).await.unwrap_err();
        assert_eq!(kept.kind(), ErrorKind::Conflict, "{kept}");
        assert!(text(&kept).contains("memory://removed/clone"), "{kept}");
        for name in objects(&env).await {
            env.store.delete(name).await.unwrap();
        }
        let barred = siltstone::destroy(&parent, false, DEADLINE).await.unwrap_err();
        assert!(text(&barred).contains("memory://removed/clone"), "{barred}");
        let released = admin::release_clone(&parent, &by_place, false, DEADLINE).await.unwrap();
        assert_eq!(released.iter().map(|one| one.id).collect::<Vec<_>>(), [pin]);
        let gone = admin::release_clone(&parent, &pin.into(), false, DEADLINE).await.unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::NotFound, "{gone}");
        siltstone::destroy(&parent, false, DEADLINE).await.unwrap();
    });
}

/// A pin of version 0.1 names no place.
#[test]
fn a_pin_without_a_place_is_released_by_force_alone() {
    run("placeless", async |places| {
        let (parent, state) = (places.parent("parent").await, "a clone of version 0.1");
        let (id, database) = (siltstone::CheckpointId(5), siltstone_base::DatabaseId(6));
        let new = siltstone_manifest::NewCheckpoint {
            id,
            owner: siltstone::CheckpointOwner::Clone(database),
            expires_at: Some(UnixMillis(u64::MAX)),
            ..Default::default()
        };
        let add = siltstone_manifest::Edit::AddCheckpoint(new);
        gc::commit(&parent, add, manifest(&parent).await).await.unwrap();
        let which = CheckpointName::Id(siltstone::CheckpointId(6));
        let kept = admin::release_clone(&parent, &which, false, DEADLINE).await.unwrap_err();
        assert_eq!(kept.kind(), ErrorKind::Conflict, "{state}: {kept}");
        assert!(text(&kept).contains("does not say"), "{state}: {kept}");
        let released = admin::release_clone(&parent, &which, true, DEADLINE).await.unwrap();
        assert_eq!(released[0].id, id, "{state}");
    });
}
