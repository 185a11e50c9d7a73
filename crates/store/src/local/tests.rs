//! Tests the order of file operations, their failures, and the remains of a killed process.

mod in_use;
mod removed_folder;

use super::files::{Detail, Files, FolderEntry, Locked, OpenFolder, Staged, SystemFiles};
use super::*;
use crate::env::{Clock, Random, Spawn};
use parking_lot::Mutex;
use siltstone_base::{ErrorKind, ManifestId, SstId, UnixMillis, WalId};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::time::Duration;

/// Effects that run everything immediately, on the caller's thread.
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

pub(crate) fn effects() -> Effects {
    Effects { clock: Arc::new(Here), random: Arc::new(Here), spawn: Arc::new(Here) }
}

/// Runs the operations, records them (with paths relative to the root), and fails those that a test
/// selects.
pub(super) struct Recorder {
    root: std::path::PathBuf,
    log: Mutex<Vec<String>>,
    failing: Mutex<Option<(&'static str, io::ErrorKind)>>,
    /// Whether the file system allows bypassing the page cache.
    has_a_way: Mutex<bool>,
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

    fn record_in(&self, what: &'static str, folder: &OpenFolder, name: &OsStr) -> io::Result<()> {
        self.record(what, &folder.path.join(name))
    }

    fn record_staged(&self, what: &'static str, staged: &Staged) -> io::Result<()> {
        self.record_in(what, &staged.folder, OsStr::new(&staged.name))
    }

    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.log.lock())
    }

    pub(super) fn fail(&self, what: &'static str, kind: io::ErrorKind) {
        *self.failing.lock() = Some((what, kind));
    }

    pub(super) fn heal(&self) {
        *self.failing.lock() = None;
    }
}

impl Files for Recorder {
    fn open_root(&self, path: &Path) -> io::Result<OpenFolder> {
        SystemFiles.open_root(path)
    }
    fn open_folder(&self, folder: &OpenFolder, name: &OsStr) -> io::Result<OpenFolder> {
        SystemFiles.open_folder(folder, name)
    }
    fn create_root(&self, path: &Path) -> io::Result<()> {
        self.record("folder", path)?;
        SystemFiles.create_root(path)
    }
    fn create_folder(&self, folder: &OpenFolder, name: &OsStr) -> io::Result<()> {
        self.record_in("folder", folder, name)?;
        SystemFiles.create_folder(folder, name)
    }
    fn remove_folder(&self, folder: &OpenFolder, name: &OsStr) -> io::Result<()> {
        self.record_in("remove", folder, name)?;
        SystemFiles.remove_folder(folder, name)
    }
    fn is_gone(&self, folder: &OpenFolder) -> io::Result<bool> {
        SystemFiles.is_gone(folder)
    }
    fn is_in_place(&self, folder: &OpenFolder) -> io::Result<bool> {
        SystemFiles.is_in_place(folder)
    }
    fn create_new(&self, folder: &Arc<OpenFolder>, name: &str) -> io::Result<Staged> {
        self.record_in("create", folder, OsStr::new(name))?;
        SystemFiles.create_new(folder, name)
    }
    fn create_filled(&self, folder: &OpenFolder, name: &str, bytes: usize) -> io::Result<()> {
        self.record_in("fill", folder, OsStr::new(name))?;
        SystemFiles.create_filled(folder, name, bytes)
    }
    fn take_over(&self, folder: &Arc<OpenFolder>, from: &str, name: &str) -> io::Result<Staged> {
        self.record_in("take", folder, OsStr::new(from))?;
        SystemFiles.take_over(folder, from, name)
    }
    fn write(&self, staged: &mut Staged, bytes: &[u8]) -> io::Result<()> {
        self.record_staged("write", staged)?;
        SystemFiles.write(staged, bytes)
    }
    fn begin_direct(&self, staged: &Staged) -> bool {
        let has_a_way = *self.has_a_way.lock();
        if has_a_way {
            // If this file system does not allow it, blocks go through the cache.
            SystemFiles.begin_direct(staged);
        }
        has_a_way
    }
    fn write_blocks(&self, staged: &Staged, blocks: &[u8], at: u64) -> io::Result<()> {
        self.record_staged("write", staged)?;
        SystemFiles.write_blocks(staged, blocks, at)
    }
    fn cut(&self, staged: &Staged, bytes: u64) -> io::Result<()> {
        self.record_staged("cut", staged)?;
        SystemFiles.cut(staged, bytes)
    }
    fn sync_file(&self, staged: &Staged) -> io::Result<()> {
        self.record_staged("sync", staged)?;
        SystemFiles.sync_file(staged)
    }
    fn forget(&self, staged: &Staged) {
        self.record_staged("forget", staged).unwrap();
        SystemFiles.forget(staged);
    }
    fn link(&self, from: &Staged, folder: &OpenFolder, name: &OsStr) -> io::Result<()> {
        self.record_in("link", folder, name)?;
        SystemFiles.link(from, folder, name)
    }
    fn rename(&self, from: &Staged, folder: &OpenFolder, name: &OsStr) -> io::Result<()> {
        self.record_in("rename", folder, name)?;
        SystemFiles.rename(from, folder, name)
    }
    fn unlink(&self, folder: &OpenFolder, name: &OsStr) -> io::Result<()> {
        self.record_in("unlink", folder, name)?;
        SystemFiles.unlink(folder, name)
    }
    fn sync_folder(&self, folder: &OpenFolder) -> io::Result<()> {
        self.record("sync-folder", &folder.path)?;
        SystemFiles.sync_folder(folder)
    }
    fn open(&self, folder: &OpenFolder, name: &OsStr) -> io::Result<(File, u64)> {
        self.record_in("open", folder, name)?;
        SystemFiles.open(folder, name)
    }
    fn unlink_unlocked(&self, folder: &OpenFolder, name: &OsStr) -> io::Result<bool> {
        self.record_in("sweep", folder, name)?;
        SystemFiles.unlink_unlocked(folder, name)
    }
    fn list(&self, folder: &OpenFolder, detail: Detail) -> io::Result<Vec<FolderEntry>> {
        SystemFiles.list(folder, detail)
    }
    fn lock_folder(&self, folder: &OpenFolder) -> io::Result<Option<File>> {
        self.record("lock", &folder.path)?;
        SystemFiles.lock_folder(folder)
    }
    fn locked(&self, folder: &OpenFolder, name: &OsStr) -> io::Result<Locked> {
        SystemFiles.locked(folder, name)
    }
    fn rewrite(&self, file: &File, text: &str) -> io::Result<()> {
        SystemFiles.rewrite(file, text)
    }
}

pub(super) struct Scene {
    pub(super) folder: tempfile::TempDir,
    pub(super) recorder: Arc<Recorder>,
    pub(super) store: Arc<LocalStore>,
}

pub(super) const WAL: ObjectName = ObjectName::Wal(WalId(1));
pub(super) const TABLE: ObjectName = ObjectName::Compacted(SstId(1));
const TABLE_PATH: &str = "compacted/00000000000000000000000001.sst";

pub(super) fn scene() -> Scene {
    let folder = tempfile::tempdir().unwrap();
    let (recorder, store) = over(&folder.path().join("deep").join("db"));
    Scene { folder, recorder, store }
}

fn over(root: &Path) -> (Arc<Recorder>, Arc<LocalStore>) {
    let (log, failing, has_a_way) = (Mutex::default(), Mutex::default(), Mutex::default());
    let recorder = Arc::new(Recorder { root: root.to_owned(), log, failing, has_a_way });
    let store = LocalStore::over(root, effects(), recorder.clone()).unwrap();
    (recorder, store)
}

impl Scene {
    pub(super) fn put(&self, name: ObjectName, bytes: &'static [u8]) -> PutAnswer {
        self.store.put_if_absent(name, Bytes::from_static(bytes)).now_or_never().unwrap()
    }

    pub(super) fn get(&self, name: ObjectName) -> Result<Option<Bytes>> {
        self.store.get(name, None).now_or_never().unwrap()
    }

    pub(super) fn upload(&self, name: ObjectName, bytes: &'static [u8]) -> Result<()> {
        let mut upload = self.store.upload(name).now_or_never().unwrap()?;
        upload.write(Bytes::from_static(bytes)).now_or_never().unwrap()?;
        upload.finish().now_or_never().unwrap()
    }

    /// The number of staged files; those of the reserve are none.
    fn staged(&self) -> usize {
        let folder = self.folder.path().join("deep/db/.staging");
        let is_staged = |name: &OsStr| !name.to_string_lossy().starts_with("reserve-");
        std::fs::read_dir(folder).map_or(0, |entries| {
            entries.filter(|entry| is_staged(&entry.as_ref().unwrap().file_name())).count()
        })
    }
}

#[test]
fn the_first_create_syncs_every_name_on_its_way() {
    let scene = scene();
    assert!(matches!(scene.put(WAL, b"one"), PutAnswer::Created));
    let expected = [
        // The root and its parents are missing.
        "folder root",
        "folder above",
        "sync-folder above",
        "folder root",
        "sync-folder above",
        "folder .staging",
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

/// The process that created the parts may not have synced their names: one sync covers all of them.
#[test]
fn one_sync_names_all_parts_that_are_there() {
    let scene = scene();
    scene.put(WAL, b"one");
    scene.upload(TABLE, b"table").unwrap();
    let (recorder, next) = over(&scene.folder.path().join("deep/db"));
    let create = |name| next.put_if_absent(name, Bytes::from_static(b"two")).now_or_never();
    recorder.take();
    assert!(matches!(create(ObjectName::Wal(WalId(2))), Some(PutAnswer::Created)));
    assert!(matches!(create(ObjectName::Compacted(SstId(7))), Some(PutAnswer::Created)));
    let synced = recorder.take().into_iter().filter(|line| line.starts_with("sync-folder"));
    // A part that does not exist yet is synced once it is created.
    let expected = ["sync-folder root", "sync-folder wal", "sync-folder compacted"];
    assert_eq!(synced.collect::<Vec<_>>(), expected);
    assert!(matches!(create(ObjectName::Manifest(ManifestId(1))), Some(PutAnswer::Created)));
    let synced = recorder.take().into_iter().filter(|line| line.starts_with("sync-folder"));
    assert_eq!(synced.collect::<Vec<_>>(), ["sync-folder root", "sync-folder manifest"]);
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

        // If a sync during the writing fails, later syncs do not report the error again.
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

        // After a failed write the upload fails, and no file is left.
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

/// An upload that bypasses the page cache writes whole blocks, cuts the last one, and syncs once.
#[test]
fn direct_uploads_bypass_the_page_cache() {
    let scene = scene();
    *scene.recorder.has_a_way.lock() = true;
    for (at, length) in
        [0, 1, 4096, 100_001, (1 << 20) + 4097, SYNC_BYTES + 5].into_iter().enumerate()
    {
        let table = ObjectName::Compacted(SstId(100 + at as u128));
        let bytes: Vec<u8> = (0..length).map(|at| (at * 31 % 251) as u8).collect();
        let mut upload = scene.store.upload(table).now_or_never().unwrap().unwrap();
        upload.hint_no_cache();
        scene.recorder.take();
        for chunk in bytes.chunks(70_001) {
            upload.write_now(chunk).unwrap().unwrap();
        }
        upload.finish().now_or_never().unwrap().unwrap();
        let writes = vec!["write staged"; length.div_ceil(1 << 20)];
        let steps = [&writes[..], &["cut staged", "sync staged", "forget staged"]].concat();
        assert_eq!(scene.recorder.take()[..steps.len()], steps, "{length}");
        assert_eq!(scene.get(table).unwrap().as_deref(), Some(&bytes[..]), "{length}");
    }
    // The disk may be full for the bytes that are written at the end.
    for step in ["write", "cut", "sync"] {
        let mut upload = scene.store.upload(TABLE).now_or_never().unwrap().unwrap();
        upload.hint_no_cache();
        upload.write_now(b"held back").unwrap().unwrap();
        scene.recorder.fail(step, io::ErrorKind::StorageFull);
        let failed = upload.finish().now_or_never().unwrap().unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::Unavailable, "{step}");
        scene.recorder.heal();
        assert_eq!(scene.staged(), 0, "{step}");
    }
}

/// The file system does not allow bypassing the page cache.
#[test]
fn uncached_uploads_leave_the_page_cache_once_on_the_disk() {
    let scene = scene();
    let bytes = Bytes::from(vec![7; SYNC_BYTES + 5]);
    let mut upload = scene.store.upload(TABLE).now_or_never().unwrap().unwrap();
    upload.hint_no_cache();
    scene.recorder.take();
    upload.write(bytes.clone()).now_or_never().unwrap().unwrap();
    upload.finish().now_or_never().unwrap().unwrap();
    let steps = ["write staged", "sync staged", "forget staged", "sync staged", "forget staged"];
    assert_eq!(scene.recorder.take()[..5], steps);
    assert_eq!(scene.get(TABLE).unwrap(), Some(bytes));
    // Other files stay in the cache.
    scene.upload(ObjectName::Compacted(SstId(9)), b"read soon").unwrap();
    let steps = scene.recorder.take();
    assert!(steps.iter().all(|step| !step.starts_with("forget")), "{steps:?}");
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
    // The file exists. Relying on it could lose an acknowledged write in a power failure.
    assert_eq!(scene.get(WAL).unwrap_err().kind(), ErrorKind::Unavailable);
    let listed = scene.store.list("wal/", None).now_or_never().unwrap();
    assert_eq!(listed.unwrap_err().kind(), ErrorKind::Unavailable);
    scene.recorder.heal();
    scene.recorder.take();
    assert_eq!(scene.get(WAL).unwrap().as_deref(), Some(&b"one"[..]));
    let expected = ["sync-folder wal", "open wal/00000000000000000001.sst"];
    assert_eq!(scene.recorder.take(), expected);
}

/// The object is larger than one write call, and not a multiple of its size.
#[test]
fn a_long_object_comes_back_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    let bytes: Vec<u8> = (0..700_001u32).map(|n| (n >> 8 ^ n) as u8).collect();
    let open = Arc::new(SystemFiles.open_root(folder.path()).unwrap());
    let mut staged = SystemFiles.create_new(&open, "x").unwrap();
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

/// A range that exceeds memory returns an error that names the settings, and does not abort.
#[test]
fn a_read_that_is_given_no_memory_names_the_settings() {
    let file = tempfile::tempfile().unwrap();
    let error = folder::read_at(&file, &(0..1 << 60)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
    let told = errors::explain(error, Path::new("table"));
    assert_eq!(told.kind(), ErrorKind::Unavailable);
    for name in ["ulimit -v", "spark.executor.pyspark.memory", "block_cache_bytes"] {
        assert!(told.to_string().contains(name), "{told}");
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

const DATABASE: DatabaseId = DatabaseId(1);

impl Scene {
    fn another(&self) -> Arc<LocalStore> {
        LocalStore::new(&self.folder.path().join("deep/db"), effects()).unwrap()
    }
}

fn occupy(store: &LocalStore, take_over: bool) -> Result<Presence> {
    store.occupy(DATABASE, take_over).now_or_never().unwrap()
}

#[test]
fn one_writer_at_a_time_marks_a_folder() {
    let scene = scene();
    scene.put(WAL, b"one");
    let first = occupy(&scene.store, false).unwrap();
    // Also through another path to the same folder.
    let other = scene.folder.path().join("other");
    std::os::unix::fs::symlink(scene.folder.path().join("deep"), &other).unwrap();
    let other = LocalStore::new(&other.join("db"), effects()).unwrap();
    for store in [&scene.store, &scene.another(), &other] {
        let error = occupy(store, false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        for words in ["this process", "open_reader", "take_over=True"] {
            assert!(error.to_string().contains(words), "{error}");
        }
    }
    assert_eq!(scene.staged(), 0);
    // The end of a handle that was taken over frees nothing; the end of the handle that took over
    // does.
    let second = occupy(&other, true).unwrap();
    drop(first);
    assert!(occupy(&scene.store, false).is_err());
    drop(second);
    drop(occupy(&scene.store, false).unwrap());
    // The mark is not an object, and no listing shows it.
    let listed = scene.store.list("wal/", None).now_or_never().unwrap().unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(ObjectName::parse(mark::NAME), None);
}

/// The remains of an opener that was stopped while it wrote the mark, and a mark that cannot be
/// decoded.
#[test]
fn an_unknown_holder_is_not_named() {
    let scene = scene();
    scene.put(WAL, b"one");
    let root = scene.folder.path().join("deep/db");
    let turn = File::open(root.join(".staging")).unwrap();
    turn.lock().unwrap();
    let error = occupy(&scene.store, false).unwrap_err();
    assert!(error.to_string().contains("another process"), "{error}");
    drop(occupy(&scene.store, true).unwrap());
    turn.unlock().unwrap();
    std::fs::write(root.join(mark::NAME), "scribble").unwrap();
    let scribble = File::open(root.join(mark::NAME)).unwrap();
    scribble.lock().unwrap();
    assert!(occupy(&scene.store, false).unwrap_err().to_string().contains("another process"));
    drop(scribble);
    drop(occupy(&scene.store, false).unwrap());
}

/// A folder that cannot be marked is opened anyway: fences keep it safe.
#[test]
fn a_folder_without_marks_admits_every_process() {
    for step in ["create", "write", "lock", "rename"] {
        let scene = scene();
        scene.put(WAL, b"one");
        scene.recorder.fail(step, io::ErrorKind::PermissionDenied);
        let held = [occupy(&scene.store, false).unwrap(), occupy(&scene.store, false).unwrap()];
        assert_eq!(format!("{held:?}"), "[Presence(false), Presence(false)]", "{step}");
    }
}

/// On a file system that answers immediately, the calling thread reads short objects itself, with
/// the same results as other threads.
#[test]
fn short_requests_are_answered_on_the_callers_thread() {
    let scene = scene();
    let folder = &scene.store.folder;
    let (manifest, next) = (ObjectName::Manifest(ManifestId(1)), ManifestId(2));
    let (next, boundary) =
        (ObjectName::Manifest(next), ObjectName::ManifestBoundary(ManifestId(0)));
    // Nothing is open yet, and opening may wait for the disk.
    assert!(folder.read_here(manifest, None).is_none());
    assert!(folder.names_here("manifest/", None).is_none());
    scene.put(manifest, b"short");
    scene.put(boundary, b"one below");
    let near = folder.parts.find("manifest").unwrap().unwrap().folder.is_of_this_machine();
    let read = |name, range: Option<Range<u64>>| {
        let here = folder.read_here(name, range.as_ref());
        here.map(|read| read.unwrap().map(|bytes| bytes.to_vec()))
    };
    let answer = |bytes: Option<&[u8]>| near.then(|| bytes.map(<[u8]>::to_vec));
    assert_eq!(read(manifest, None), answer(Some(b"short")));
    assert_eq!(read(manifest, Some(1..3)), answer(Some(b"ho")));
    assert_eq!(read(next, None), answer(None));
    let beyond = folder.read_here(manifest, Some(&(1..6)));
    assert!(beyond.is_none_or(|read| read.unwrap_err().kind() == ErrorKind::Corruption));
    // Another thread reads long objects, which may wait.
    scene.put(WAL, &[7; 20_000]);
    assert_eq!(read(WAL, None), None);
    assert_eq!(read(WAL, Some(9..11)), answer(Some(b"\x07\x07")));

    let listed = |after| {
        let listed = scene.store.list("manifest/", after).now_or_never().unwrap().unwrap();
        listed.into_iter().map(|object| object.name).collect::<Vec<_>>()
    };
    for after in [None, Some(manifest)] {
        let names = scene.store.names("manifest/", after).now_or_never().unwrap().unwrap();
        assert_eq!(names, listed(after));
        let here = folder.names_here("manifest/", after).map(Result::unwrap);
        assert_eq!(here, near.then(|| listed(after)));
    }
    // Names that a failed sync left in doubt are synced first, which takes time.
    scene.recorder.fail("sync-folder", io::ErrorKind::StorageFull);
    scene.put(next, b"in doubt");
    scene.recorder.heal();
    assert_eq!((read(manifest, None), read(next, None)), (None, None));
    assert!(folder.names_here("manifest/", None).is_none());
    assert_eq!(scene.get(next).unwrap().as_deref(), Some(&b"in doubt"[..]));
    assert_eq!(read(next, None), answer(Some(b"in doubt")));
}
