//! Tests which files stay open, and for how long: until the last handle ends.

use super::*;

#[test]
fn the_end_of_the_last_use_closes_everything() {
    let scene = scene();
    scene.put(WAL, b"one");
    scene.upload(TABLE, b"table").unwrap();
    let (first, second) = (scene.store.begin_use(), scene.store.begin_use());
    let opens = |times: usize| {
        scene.recorder.take();
        for _ in 0..3 {
            assert_eq!(scene.get(TABLE).unwrap().as_deref(), Some(&b"table"[..]));
        }
        assert_eq!(scene.recorder.take().len(), times);
    };
    opens(1);
    drop(first);
    opens(0);
    assert!(scene.store.folder.parts.settled("compacted").is_some());
    drop(second);
    // Reads still work, and leave nothing open.
    opens(3);
    assert!(scene.store.folder.parts.settled("compacted").is_none());
    assert!(scene.store.lend(TABLE, 5).is_none());
    let third = scene.store.begin_use();
    opens(1);
    opens(0);
    drop(third);
}

/// Names that a failed sync has left in doubt are remembered after the last use.
#[test]
fn an_untrusted_mark_stays_known() {
    let scene = scene();
    scene.upload(TABLE, b"table").unwrap();
    let in_use = scene.store.begin_use();
    scene.put(WAL, b"one");
    scene.recorder.fail("sync-folder", io::ErrorKind::StorageFull);
    let next = ObjectName::Wal(WalId(2));
    assert!(matches!(scene.put(next, b"two"), PutAnswer::Ambiguous(_)));
    drop(in_use);
    assert!(scene.get(next).is_err());
    scene.recorder.heal();
    assert_eq!(scene.get(next).unwrap().as_deref(), Some(&b"two"[..]));
}
