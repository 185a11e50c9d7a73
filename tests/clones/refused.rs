//! Refusals, and their texts.

use super::*;
use siltstone::{CheckpointId, CheckpointName, ErrorKind};
use siltstone_base::{DatabaseId, RequestId, UnixMillis};
use siltstone_manifest::clone::begun;
use siltstone_manifest::protocol::{Commit, CommitAction};
use siltstone_manifest::{Ancestor, Rules};

#[test]
fn a_place_that_is_taken_is_told() {
    run("taken", async |places| {
        let (parent, other) = (places.parent("parent").await, places.parent("other").await);
        let env = places.env("clone");
        clone(&env, &parent).await.unwrap();
        // The same request is answered with the existing clone, until it is written to.
        clone(&env, &parent).await.unwrap();
        let another = clone(&env, &other).await.unwrap_err();
        assert_eq!(another.kind(), ErrorKind::Conflict);
        let database = manifest(&env).await.database.to_string();
        assert!(text(&another).contains(&database), "{another}");
        open(&env).await.unwrap().close().await.unwrap();
        let used = clone(&env, &parent).await.unwrap_err();
        assert!(used.kind() == ErrorKind::Conflict && text(&used).contains("written to"), "{used}");
        let database = clone(&other, &parent).await.unwrap_err();
        assert_eq!(database.kind(), ErrorKind::Conflict);
    });
}

#[test]
fn an_invalid_parent_is_told() {
    run("no parent", async |places| {
        let (parent, nowhere) = (places.parent("parent").await, places.env("nowhere"));
        let env = places.env("clone");
        let missing = clone(&env, &nowhere).await.unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        let checkpoint = Some(CheckpointName::Id(CheckpointId(77)));
        let asked = CloneParent { checkpoint, ..of(&parent) };
        let gone = admin::clone(&env, &[asked], &options()).await.unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::Expired);
        let part = CloneParent { start: Some(key(3)), end: Some(key(3)), ..of(&parent) };
        let nothing = admin::clone(&env, &[part], &options()).await.unwrap_err();
        assert_eq!(nothing.kind(), ErrorKind::Invalid, "{nothing}");
        let both = [of(&parent), of(&nowhere)];
        let missing = admin::clone(&env, &both, &options()).await.unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        let none = admin::clone(&env, &[], &options()).await.unwrap_err();
        assert_eq!(none.kind(), ErrorKind::Invalid);
        assert!(gc::newest(&env).await.unwrap().is_none(), "nothing was made");
        let far = Env { store: MemoryStore::unnamed(), ..env.clone() };
        let unnamed = clone(&env, &far).await.unwrap_err();
        assert_eq!(unnamed.kind(), ErrorKind::Unsupported);
    });
}

/// A clone whose creation has stopped: every call reports that, and the collector leaves it alone.
#[test]
fn a_clone_in_the_making_is_not_usable_yet() {
    run("being made", async |places| {
        let (parent, env) = (places.parent("parent").await, places.env("clone"));
        let source = manifest(&parent).await;
        let entry = Ancestor {
            number: 1,
            database: source.database,
            location: parent.store.place().location().unwrap(),
            checkpoint: CheckpointId(5),
        };
        let sources = [("parent", &*source)];
        let state = begun(DatabaseId(9), RequestId(1), &sources, vec![entry], None).unwrap();
        let mut machine = Commit::found(state, Rules::ALL);
        while let CommitAction::Request(request) = machine.action() {
            machine.on_answer(gc::perform(&env, request).await.unwrap());
        }
        let opened = open(&env).await.map(drop).unwrap_err();
        let reading = read(&env).await.map(drop).unwrap_err();
        let collected = siltstone::gc::once(&env, &gc::AT_ONCE, false).await.map(drop).unwrap_err();
        let cloned = clone(&env, &parent).await.unwrap_err();
        let onto = clone(&places.env("grandchild"), &env).await.unwrap_err();
        for refused in [opened, reading, collected, cloned, onto] {
            assert!(text(&refused).contains("being made"), "{refused}");
        }
        assert!(!manifest(&env).await.initialized);
    });
}

/// A destroyed parent, and a destroyed place.
#[test]
fn a_destroyed_database_is_told() {
    run("destroyed", async |places| {
        let (parent, env) = (places.parent("parent").await, places.env("clone"));
        let newest = manifest(&parent).await;
        let mut gone = Manifest::clone(&newest);
        (gone.id, gone.destroyed_at) = (newest.next_id(), Some(UnixMillis(1)));
        let bytes = gone.encode(siltstone_base::ObjectId(1), siltstone_base::AttemptId(1)).unwrap();
        let name = siltstone_base::ObjectName::Manifest(gone.id);
        drop(parent.store.put_if_absent(name, bytes).await);
        let refused = clone(&env, &parent).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NotFound);
        assert!(text(&refused).contains("destroyed"), "{refused}");
    });
}
