//! The order of file operations, their failures, and what a killed process leaves.

use super::files::{Files, FolderEntry, Staged, SystemFiles};
use super::*;
use crate::env::{Clock, Random, Spawn};
use parking_lot::Mutex;
use siltstone_base::{ErrorKind, SstId, UnixMillis, WalId};
use std::fs::File;
use std::io;
use std::time::Duration;

/// Everything at once, on the caller's thread.
struct Here;

impl Clock for Here {
    fn now(&self) -> UnixMillis {
        UnixMillis(1_700_000_000_000)
    }
    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
    fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
        futures::future::ready(()).boxed()
    }
}

impl Random for Here {
    fn next_u64(&self) -> u64 {
        7
    }
}

impl Spawn for Here {
    fn spawn(&self, _: &'static str, task: BoxFuture<'static, ()>) {
        assert!(task.now_or_never().is_some());
    }
    fn spawn_blocking(&self, _: &'static str, work: Box<dyn FnOnce() + Send>) {
        work();
    }
}

fn effects() -> Effects {
    Effects { clock: Arc::new(Here), random: Arc::new(Here), spawn: Arc::new(Here) }
}

/// Does the operations, writes them down (paths relative to the root), and fails the ones it is
/// told to fail.
struct Recorder {
    root: std::path::PathBuf,
    log: Mutex<Vec<String>>,
    failing: Mutex<Option<(&'static str, io::ErrorKind)>>,
}

impl Recorder {
    fn record(&self, what: &'static str, path: &Path) -> io::Result<()> {
        let shown = match path.strip_prefix(&self.root) {
            Ok(path) if path.as_os_str().is_empty() => "root".to_owned(),
            Ok(path) if path.starts_with(".staging") && path != Path::new(".staging") => {
                "staged".to_owned()
            }
            Ok(path) => path.display().to_string(),
            Err(_) => "above".to_owned(),
        };
        self.log.lock().push(format!("{what} {shown}"));
        match *self.failing.lock() {
            Some((failing, kind)) if failing == what => Err(kind.into()),
            _ => Ok(()),
        }
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.log.lock())
    }

    fn fail(&self, what: &'static str, kind: io::ErrorKind) {
        *self.failing.lock() = Some((what, kind));
    }

    fn heal(&self) {
        *self.failing.lock() = None;
    }
}

impl Files for Recorder {
    fn create_new(&self, path: &Path) -> io::Result<Staged> {
        self.record("create", path)?;
        SystemFiles.create_new(path)
    }
    fn write(&self, staged: &mut Staged, bytes: &[u8]) -> io::Result<()> {
        self.record("write", &staged.path)?;
        SystemFiles.write(staged, bytes)
    }
    fn sync_file(&self, staged: &Staged) -> io::Result<()> {
        self.record("sync", &staged.path)?;
        SystemFiles.sync_file(staged)
    }
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.record("link", to)?;
        SystemFiles.link(from, to)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.record("rename", to)?;
        SystemFiles.rename(from, to)
    }
    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.record("unlink", path)?;
        SystemFiles.unlink(path)
    }
    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.record("sync-folder", path)?;
        SystemFiles.sync_folder(path)
    }
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.record("folder", path)?;
        SystemFiles.create_folder(path)
    }
    fn open(&self, path: &Path) -> io::Result<(File, u64)> {
        self.record("open", path)?;
        SystemFiles.open(path)
    }
    fn unlink_unlocked(&self, path: &Path) -> io::Result<bool> {
        self.record("sweep", path)?;
        SystemFiles.unlink_unlocked(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<FolderEntry>> {
        SystemFiles.list(path)
    }
}

struct Scene {
    folder: tempfile::TempDir,
    recorder: Arc<Recorder>,
    store: Arc<LocalStore>,
}

const WAL: ObjectName = ObjectName::Wal(WalId(1));
const TABLE: ObjectName = ObjectName::Compacted(SstId(1));
const TABLE_PATH: &str = "compacted/00000000000000000000000001.sst";

fn scene() -> Scene {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("deep").join("db");
    let recorder =
        Arc::new(Recorder { root: root.clone(), log: Mutex::default(), failing: Mutex::default() });
    let store = LocalStore::over(&root, effects(), recorder.clone()).unwrap();
    Scene { folder, recorder, store }
}

impl Scene {
    fn put(&self, name: ObjectName, bytes: &'static [u8]) -> PutAnswer {
        self.store.put_if_absent(name, Bytes::from_static(bytes)).now_or_never().unwrap()
    }

    fn get(&self, name: ObjectName) -> Result<Option<Bytes>> {
        self.store.get(name, None).now_or_never().unwrap()
    }

    fn upload(&self, name: ObjectName, bytes: &'static [u8]) -> Result<()> {
        let mut upload = self.store.upload(name).now_or_never().unwrap()?;
        upload.write(Bytes::from_static(bytes)).now_or_never().unwrap()?;
        upload.finish().now_or_never().unwrap()
    }

    fn staged(&self) -> usize {
        let folder = self.folder.path().join("deep/db/.staging");
        std::fs::read_dir(folder).map_or(0, |entries| entries.count())
    }
}

#[test]
fn the_first_create_syncs_every_name_on_its_way() {
    let scene = scene();
    assert!(matches!(scene.put(WAL, b"one"), PutAnswer::Created));
    let expected = [
        // The staging folder is asked for first; the root and what is above it are missing.
        "folder .staging",
        "folder root",
        "folder above",
        "sync-folder above",
        "folder root",
        "sync-folder above",
        "folder .staging",
        "sync-folder root",
        "folder wal",
        "sync-folder root",
        "create staged",
        "write staged",
        "sync staged",
        "link wal/00000000000000000001.sst",
        "sync-folder wal",
        "unlink staged",
    ];
    assert_eq!(scene.recorder.take(), expected);
}

#[test]
fn data_is_synced_before_the_link_and_the_folder_before_the_answer() {
    let scene = scene();
    scene.put(ObjectName::Wal(WalId(9)), b"folders exist now");
    scene.recorder.take();
    assert!(matches!(scene.put(WAL, b"one"), PutAnswer::Created));
    let expected = [
        "create staged",
        "write staged",
        "sync staged",
        "link wal/00000000000000000001.sst",
        "sync-folder wal",
        "unlink staged",
    ];
    assert_eq!(scene.recorder.take(), expected);
    assert!(matches!(scene.put(WAL, b"two"), PutAnswer::Exists));
    assert_eq!(scene.get(WAL).unwrap().as_deref(), Some(&b"one"[..]));
    assert_eq!(scene.staged(), 0);
}

#[test]
fn an_upload_is_synced_before_its_name_and_its_folder_before_the_answer() {
    let scene = scene();
    scene.upload(ObjectName::Compacted(SstId(9)), b"folders exist now").unwrap();
    scene.recorder.take();
    scene.upload(TABLE, b"table").unwrap();
    let expected = [
        "create staged".to_owned(),
        "write staged".to_owned(),
        "sync staged".to_owned(),
        format!("rename {TABLE_PATH}"),
        "sync-folder compacted".to_owned(),
    ];
    assert_eq!(scene.recorder.take(), expected);
    assert_eq!(scene.staged(), 0);
}

#[test]
fn a_long_upload_is_synced_while_it_is_written() {
    type Write = fn(&mut Box<dyn Upload>, &Bytes) -> Result<()>;
    let ways: [Write; 2] = [
        |upload, bytes| upload.write(bytes.clone()).now_or_never().unwrap(),
        |upload, bytes| upload.write_now(bytes).unwrap(),
    ];
    for write in ways {
        let scene = scene();
        scene.upload(ObjectName::Compacted(SstId(9)), b"folders exist now").unwrap();
        let begin = || scene.store.upload(TABLE).now_or_never().unwrap().unwrap();
        let long = Bytes::from(vec![7; SYNC_BYTES]);
        let mut upload = begin();
        write(&mut upload, &long).unwrap();
        write(&mut upload, &Bytes::from_static(b"rest")).unwrap();
        scene.recorder.take();
        write(&mut upload, &long).unwrap();
        upload.finish().now_or_never().unwrap().unwrap();
        let steps = ["write staged", "sync staged", "sync staged"];
        assert_eq!(scene.recorder.take()[..3], steps);
        let expected = [&long[..], b"rest", &long[..]].concat();
        assert_eq!(scene.get(TABLE).unwrap().as_deref(), Some(&expected[..]));

        // What the system tells a sync beside the writing, no later sync hears again.
        let mut upload = begin();
        scene.recorder.fail("sync", io::ErrorKind::StorageFull);
        write(&mut upload, &long).unwrap();
        scene.recorder.heal();
        upload.finish().now_or_never().unwrap().unwrap_err();
        let mut upload = begin();
        scene.recorder.fail("sync", io::ErrorKind::StorageFull);
        write(&mut upload, &long).unwrap();
        scene.recorder.heal();
        write(&mut upload, &long).unwrap_err();
        drop(upload);
        assert_eq!(scene.staged(), 0);

        // After a write that failed nothing goes on, and nothing is left.
        let mut upload = begin();
        scene.recorder.fail("write", io::ErrorKind::StorageFull);
        let failed = write(&mut upload, &long).unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::Unavailable);
        scene.recorder.heal();
        assert_eq!(write(&mut upload, &long).unwrap_err().kind(), ErrorKind::Internal);
        upload.finish().now_or_never().unwrap().unwrap_err();
        assert_eq!(scene.staged(), 0);
    }
}

#[test]
fn failures_before_the_link_are_certain_and_leave_nothing() {
    let cases = [
        ("write", io::ErrorKind::StorageFull, ErrorKind::Unavailable),
        ("sync", io::ErrorKind::Other, ErrorKind::Unavailable),
        ("create", io::ErrorKind::PermissionDenied, ErrorKind::Denied),
        ("link", io::ErrorKind::StorageFull, ErrorKind::Unavailable),
        ("link", io::ErrorKind::ReadOnlyFilesystem, ErrorKind::Denied),
    ];
    for (step, kind, expected) in cases {
        let scene = scene();
        scene.recorder.fail(step, kind);
        let answer = scene.put(WAL, b"one");
        assert!(
            matches!(&answer, PutAnswer::Refused(error) if error.kind() == expected),
            "{step} {kind}: {answer:?}"
        );
        scene.recorder.heal();
        assert_eq!(scene.get(WAL).unwrap(), None, "{step}");
        assert_eq!(scene.staged(), 0, "{step}");
        assert!(matches!(scene.put(WAL, b"one"), PutAnswer::Created), "{step}");
    }
}

#[test]
fn a_link_that_fails_oddly_is_ambiguous() {
    let scene = scene();
    scene.recorder.fail("link", io::ErrorKind::TimedOut);
    assert!(matches!(scene.put(WAL, b"one"), PutAnswer::Ambiguous(_)));
}

#[test]
fn nothing_is_believed_in_a_folder_that_could_not_be_synced() {
    let scene = scene();
    scene.put(ObjectName::Wal(WalId(9)), b"folders exist now");
    scene.recorder.fail("sync-folder", io::ErrorKind::Other);
    let answer = scene.put(WAL, b"one");
    assert!(matches!(&answer, PutAnswer::Ambiguous(_)), "{answer:?}");
    // The file is there. Were it believed, an acknowledged write could vanish in a power cut.
    assert_eq!(scene.get(WAL).unwrap_err().kind(), ErrorKind::Unavailable);
    let listed = scene.store.list("wal/", None).now_or_never().unwrap();
    assert_eq!(listed.unwrap_err().kind(), ErrorKind::Unavailable);
    scene.recorder.heal();
    scene.recorder.take();
    assert_eq!(scene.get(WAL).unwrap().as_deref(), Some(&b"one"[..]));
    let expected = ["sync-folder wal", "open wal/00000000000000000001.sst"];
    assert_eq!(scene.recorder.take(), expected);
}

/// Larger than a call that writes, and no multiple of it.
#[test]
fn a_long_object_comes_back_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    let bytes: Vec<u8> = (0..700_001u32).map(|n| (n >> 8 ^ n) as u8).collect();
    let mut staged = SystemFiles.create_new(&path).unwrap();
    SystemFiles.write(&mut staged, &bytes).unwrap();
    SystemFiles.write(&mut staged, &bytes[..5]).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), [&bytes[..], &bytes[..5]].concat());
}

#[test]
fn tables_stay_open_and_numbered_objects_do_not() {
    let scene = scene();
    scene.upload(TABLE, b"table").unwrap();
    scene.put(WAL, b"one");
    scene.recorder.take();
    for _ in 0..3 {
        let found = scene.store.get_now(TABLE, Some(1..4)).unwrap().unwrap();
        assert_eq!(found.as_deref(), Some(&b"abl"[..]));
        scene.get(WAL).unwrap();
    }
    let wal = "open wal/00000000000000000001.sst".to_owned();
    let table = format!("open {TABLE_PATH}");
    assert_eq!(scene.recorder.take(), [table, wal.clone(), wal.clone(), wal]);
    scene.store.delete(TABLE).now_or_never().unwrap().unwrap();
    assert_eq!(scene.get(TABLE).unwrap(), None);
}

#[test]
fn a_read_past_the_end_is_corruption_before_anything_is_allocated() {
    let scene = scene();
    scene.upload(TABLE, b"table").unwrap();
    for range in [0..6, 5..6, 0..u64::MAX] {
        let error = scene.store.get_now(TABLE, Some(range)).unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption);
    }
}

#[test]
fn an_upload_that_is_dropped_or_aborted_leaves_nothing() {
    let scene = scene();
    let mut upload = scene.store.upload(TABLE).now_or_never().unwrap().unwrap();
    upload.write(Bytes::from_static(b"half")).now_or_never().unwrap().unwrap();
    assert_eq!(scene.staged(), 1);
    drop(upload);
    assert_eq!(scene.staged(), 0);
    let upload = scene.store.upload(TABLE).now_or_never().unwrap().unwrap();
    upload.abort().now_or_never().unwrap().unwrap();
    assert_eq!(scene.staged(), 0);
    assert_eq!(scene.get(TABLE).unwrap(), None);
}

#[test]
fn a_folder_that_vanishes_is_made_anew() {
    let scene = scene();
    scene.put(WAL, b"one");
    std::fs::remove_dir_all(scene.folder.path().join("deep")).unwrap();
    assert_eq!(scene.get(WAL).unwrap(), None);
    assert!(matches!(scene.put(WAL, b"two"), PutAnswer::Created));
    assert_eq!(scene.get(WAL).unwrap().as_deref(), Some(&b"two"[..]));
}

#[test]
fn a_path_through_a_file_is_named_as_the_mistake() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, b"not a folder").unwrap();
    let store = LocalStore::new(&file.join("db"), effects()).unwrap();
    let answer = store.put_if_absent(WAL, Bytes::new()).now_or_never().unwrap();
    let PutAnswer::Refused(error) = answer else { panic!("{answer:?}") };
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("through a file"), "{error}");
    let error = store.get(WAL, None).now_or_never().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(LocalStore::new(Path::new(""), effects()).is_err());
}
