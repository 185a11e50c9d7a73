//! Tests the removal of a database's folder while it is open (rule E2).

use super::*;
use std::path::PathBuf;

impl Scene {
    fn root(&self) -> PathBuf {
        self.folder.path().join("deep/db")
    }

    fn list(&self) -> Result<Vec<Listed>> {
        self.store.list("wal/", None).now_or_never().unwrap()
    }

    /// Checks that everything that would write, or rely on a listing, fails with this text.
    fn expect_gone(&self, text: &str) {
        let answer = self.put(ObjectName::Wal(WalId(2)), b"lost");
        let PutAnswer::Refused(refused) = answer else { panic!("{answer:?}") };
        let upload = self.upload(TABLE, b"lost").unwrap_err();
        // The read must not return `None`, which would mean the end of the log.
        let read = self.get(ObjectName::Wal(WalId(2))).unwrap_err();
        for error in [refused, upload, read, self.list().unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
            assert!(error.to_string().contains(text), "{error}");
            assert!(error.to_string().contains("open the database again"), "{error}");
        }
        self.store.delete(WAL).now_or_never().unwrap().unwrap();
        self.store.sweep(UnixMillis(u64::MAX)).now_or_never().unwrap().unwrap();
    }
}

#[test]
fn a_removed_folder_stays_removed() {
    let scene = scene();
    assert!(matches!(scene.put(WAL, b"one"), PutAnswer::Created));
    scene.upload(TABLE, b"table").unwrap();
    assert_eq!(scene.get(TABLE).unwrap().as_deref(), Some(&b"table"[..]));
    std::fs::remove_dir_all(scene.root()).unwrap();
    scene.expect_gone("was removed while it was open; open");
    assert!(!scene.root().exists());
    // Open files stay readable after their removal.
    assert_eq!(scene.get(TABLE).unwrap().as_deref(), Some(&b"table"[..]));
}

#[test]
fn another_folder_at_the_path_is_another_one() {
    let scene = scene();
    assert!(matches!(scene.put(WAL, b"one"), PutAnswer::Created));
    std::fs::remove_dir_all(scene.root()).unwrap();
    let other = LocalStore::new(&scene.root(), effects()).unwrap();
    let name = ObjectName::Wal(WalId(7));
    let answer = other.put_if_absent(name, Bytes::from_static(b"other")).now_or_never().unwrap();
    assert!(matches!(answer, PutAnswer::Created), "{answer:?}");
    scene.expect_gone("another one is in its place");
    // The store must neither remove nor add names in the folder of another database.
    scene.store.delete(name).now_or_never().unwrap().unwrap();
    let names: Vec<_> = std::fs::read_dir(scene.root().join("wal")).unwrap().collect();
    assert_eq!(names.len(), 1);
    let listed = other.list("wal/", None).now_or_never().unwrap().unwrap();
    assert_eq!(listed.iter().map(|object| object.name).collect::<Vec<_>>(), [name]);
}

/// A create that waits for its turn can outlive its handle, whose end closes the root.
#[test]
fn a_request_after_the_last_use_meets_no_other_folder() {
    let scene = scene();
    assert!(matches!(scene.put(WAL, b"one"), PutAnswer::Created));
    let in_use = scene.store.begin_use();
    std::fs::remove_dir_all(scene.root()).unwrap();
    let other = LocalStore::new(&scene.root(), effects()).unwrap();
    let name = ObjectName::Wal(WalId(7));
    let answer = other.put_if_absent(name, Bytes::from_static(b"other")).now_or_never().unwrap();
    assert!(matches!(answer, PutAnswer::Created), "{answer:?}");
    drop(in_use);
    scene.expect_gone("another one is in its place");
    scene.store.delete(name).now_or_never().unwrap().unwrap();
    let names: Vec<_> = std::fs::read_dir(scene.root().join("wal")).unwrap().collect();
    assert_eq!(names.len(), 1);
    // Nor is a root that was removed created again.
    std::fs::remove_dir_all(scene.root()).unwrap();
    scene.expect_gone("was removed while it was open; open");
    assert!(!scene.root().exists());
}

/// Also covers an upload that had begun, and a part that was never open.
#[test]
fn requests_under_way_end_as_well() {
    let scene = scene();
    assert!(matches!(scene.put(WAL, b"one"), PutAnswer::Created));
    let mut upload = scene.store.upload(TABLE).now_or_never().unwrap().unwrap();
    upload.write(Bytes::from_static(b"half")).now_or_never().unwrap().unwrap();
    std::fs::remove_dir_all(scene.root()).unwrap();
    std::fs::create_dir_all(scene.root().join("compacted")).unwrap();
    let error = upload.finish().now_or_never().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    let never_open = scene.store.list("manifest/", None).now_or_never().unwrap().unwrap_err();
    assert_eq!(never_open.kind(), ErrorKind::NotFound, "{never_open}");
    assert_eq!(std::fs::read_dir(scene.root().join("compacted")).unwrap().count(), 0);
}

#[test]
fn a_part_that_was_removed_is_not_made_again() {
    let scene = scene();
    assert!(matches!(scene.put(WAL, b"one"), PutAnswer::Created));
    std::fs::remove_dir_all(scene.root().join("wal")).unwrap();
    for make in [false, true] {
        if make {
            std::fs::create_dir(scene.root().join("wal")).unwrap();
        }
        let answer = scene.put(WAL, b"two");
        let PutAnswer::Refused(error) = answer else { panic!("{answer:?}") };
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert!(error.to_string().contains("a part of"), "{error}");
        assert_eq!(scene.list().unwrap_err().kind(), ErrorKind::NotFound);
        // Other parts are not affected.
        assert_eq!(scene.get(TABLE).unwrap(), None);
    }
    assert_eq!(std::fs::read_dir(scene.root().join("wal")).unwrap().count(), 0);
}

/// A folder is identified by its descriptor: writes follow a folder that was moved.
#[test]
fn a_moved_folder_is_written_where_it_is() {
    let scene = scene();
    assert!(matches!(scene.put(WAL, b"one"), PutAnswer::Created));
    let moved = scene.folder.path().join("moved");
    std::fs::rename(scene.root(), &moved).unwrap();
    assert!(matches!(scene.put(ObjectName::Wal(WalId(2)), b"two"), PutAnswer::Created));
    assert!(!scene.root().exists());
    assert_eq!(std::fs::read_dir(moved.join("wal")).unwrap().count(), 2);
    assert_eq!(scene.list().unwrap().len(), 2);
}

/// Before anything was open there is no database, and missing folders are created.
#[test]
fn a_folder_that_was_never_open_is_made_when_needed() {
    let scene = scene();
    assert_eq!(scene.get(WAL).unwrap(), None);
    assert_eq!(scene.list().unwrap(), []);
    assert!(!scene.root().exists());
    assert!(matches!(scene.put(WAL, b"one"), PutAnswer::Created));
    // An empty folder is not a removed one.
    scene.store.delete(WAL).now_or_never().unwrap().unwrap();
    assert_eq!(scene.list().unwrap(), []);
    assert_eq!(scene.get(WAL).unwrap(), None);
}
