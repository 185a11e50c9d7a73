//! The files of the cache. Every function blocks, and runs on a blocking thread. It removes only
//! files with names of entries, because the folder may hold files of others.

use super::entry::{EntryKey, is_place_folder, is_table_folder, part_file, part_of_file};
use super::eviction::{CachedFile, OldestFiles};
use siltstone_base::{Error, Result, UnixMillis};
use std::fs::{self, DirBuilder, DirEntry, File, FileTimes, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The folder of files that are being written.
const TEMPORARY: &str = "tmp";
const TEMPORARY_ENDING: &str = ".tmp";
/// Age from which on a temporary file belongs to a process that was killed: a live one writes it in
/// milliseconds.
const TEMPORARY_AGE: Duration = Duration::from_secs(600);
/// A use is noted if the last one was noted so long ago: one write of an inode a minute.
const USE_STEP_MS: u64 = 60_000;
/// Files take whole blocks of a file system.
const DISK_BLOCK_BYTES: u64 = 4096;

/// The result of looking for an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartLookup {
    Found,
    Missing,
    /// It was damaged or of another identity, and is removed.
    Damaged,
}

/// The content of the folder.
#[derive(Debug, Default)]
pub(super) struct Census {
    pub(super) bytes: u64,
    pub(super) oldest: OldestFiles,
}

/// Checks that a folder is, or can be made, at `path`. A condition that may pass, such as a missing
/// permission, costs requests only, and is logged when the cache is used.
///
/// # Errors
/// Invalid for the path of a file, a path that leads through one, and one that no file can have.
pub(super) fn check(path: &Path) -> Result<()> {
    let refused = |text: &str| {
        Error::invalid(text).with("option", "disk_cache_path").with("path", path.display())
    };
    match fs::metadata(path) {
        Ok(found) if !found.is_dir() => Err(refused(
            "the disk cache needs a folder, and a file is at its path: give the path \
                         of a folder, which need not exist",
        )),
        Err(error) if error.kind() == ErrorKind::NotADirectory => {
            Err(refused("the path of the disk cache leads through a file").caused_by(error))
        }
        Err(error)
            if matches!(error.kind(), ErrorKind::InvalidFilename | ErrorKind::InvalidInput) =>
        {
            Err(refused("the path of the disk cache is not valid on this system").caused_by(error))
        }
        _ => Ok(()),
    }
}

/// The folder of a cache.
#[derive(Debug)]
pub(super) struct CacheFolder {
    root: PathBuf,
}

/// The size on the disk of a file of `bytes` bytes.
pub(super) fn disk_bytes(bytes: u64) -> u64 {
    bytes.next_multiple_of(DISK_BLOCK_BYTES)
}

impl CacheFolder {
    pub(super) fn new(root: PathBuf) -> CacheFolder {
        CacheFolder { root }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Creates the folder, for this user only.
    pub(super) fn prepare(&self) -> io::Result<()> {
        create_folder(&self.root.join(TEMPORARY))
    }

    /// Reads an entry into `file`, and passes its payload to `take`. A use at `used` is noted.
    pub(super) fn read(
        &self,
        key: &EntryKey,
        used: Option<UnixMillis>,
        file: &mut Vec<u8>,
        take: impl FnOnce(&[u8]),
    ) -> io::Result<PartLookup> {
        let opened = match File::open(self.path(key)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(PartLookup::Missing),
            opened => opened?,
        };
        file.clear();
        (&opened).take(key.file_bytes() as u64 + 1).read_to_end(file)?;
        let Some(payload) = key.payload(file) else {
            self.remove(key)?;
            return Ok(PartLookup::Damaged);
        };
        take(payload);
        if let Some(used) = used
            && let Ok(metadata) = opened.metadata()
            && modified(&metadata).abs_diff(used.0) >= USE_STEP_MS
        {
            // A use that is not noted lets the entry go earlier, no more.
            let _ = opened.set_times(times(used));
        }
        Ok(PartLookup::Found)
    }

    /// Whether there is a file of the entry with its length. A use at `used` is noted. Its bytes
    /// are not checked: the next read does that.
    pub(super) fn has(&self, key: &EntryKey, used: UnixMillis) -> io::Result<bool> {
        let path = self.path(key);
        let metadata = match fs::metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            found => found?,
        };
        let is_whole = metadata.len() == key.file_bytes() as u64;
        if is_whole && modified(&metadata).abs_diff(used.0) >= USE_STEP_MS {
            let _ = File::open(&path).and_then(|file| file.set_times(times(used)));
        }
        Ok(is_whole)
    }

    /// Writes an entry, through a temporary file with a `unique` number, so that no reader sees a
    /// part of it. Returns what it takes of the disk. It is not synchronised: a checksum finds what
    /// a crash of the machine leaves.
    pub(super) fn write(
        &self,
        key: &EntryKey,
        payload: &[u8],
        now: UnixMillis,
        unique: u64,
    ) -> io::Result<u64> {
        let name = format!("{unique:016x}{TEMPORARY_ENDING}");
        let temporary = self.root.join(TEMPORARY).join(name);
        let head = key.head(payload);
        let written = self
            .write_temporary(&temporary, &head, payload, now)
            .and_then(|()| self.put_in_place(&temporary, key));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written.map(|()| disk_bytes((head.len() + payload.len()) as u64))
    }

    fn write_temporary(
        &self,
        path: &Path,
        head: &[u8],
        payload: &[u8],
        now: UnixMillis,
    ) -> io::Result<()> {
        let create = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let mut file = match create() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.prepare()?;
                create()?
            }
            created => created?,
        };
        file.write_all(head)?;
        file.write_all(payload)?;
        file.set_times(times(now))
    }

    fn put_in_place(&self, temporary: &Path, key: &EntryKey) -> io::Result<()> {
        let path = self.path(key);
        match fs::rename(temporary, &path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                create_folder(path.parent().unwrap_or(&self.root))?;
                fs::rename(temporary, &path)
            }
            renamed => renamed,
        }
    }

    /// Removes an entry.
    pub(super) fn remove(&self, key: &EntryKey) -> io::Result<()> {
        remove_file(&self.path(key))
    }

    /// Removes a file of a census, and the folder of its table if that is empty now.
    pub(super) fn evict(&self, file: &CachedFile) -> io::Result<()> {
        remove_file(&file.table.join(part_file(file.part)))?;
        let _ = fs::remove_dir(&file.table);
        Ok(())
    }

    /// Counts what the folder holds, and removes temporary files of killed processes.
    pub(super) fn census(&self, now: UnixMillis) -> io::Result<Census> {
        let mut census = Census::default();
        for entry in entries(&self.root)? {
            let (entry, name) = named(entry?);
            if name == TEMPORARY {
                census.bytes += sweep(&entry.path(), now)?;
            } else if is_place_folder(&name) {
                for table in entries(&entry.path())? {
                    let (table, name) = named(table?);
                    if is_table_folder(&name) {
                        count(&table.path(), &mut census)?;
                    }
                }
                // Only an empty folder goes.
                let _ = fs::remove_dir(entry.path());
            }
        }
        Ok(census)
    }

    fn path(&self, key: &EntryKey) -> PathBuf {
        let mut path = self.root.clone();
        path.extend(key.path());
        path
    }
}

/// Removes old temporary files. Returns what the others take.
fn sweep(folder: &Path, now: UnixMillis) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in entries(folder)? {
        let (entry, name) = named(entry?);
        let is_own = name.strip_suffix(TEMPORARY_ENDING).is_some_and(is_place_folder);
        let Some(metadata) = file(&entry).filter(|_| is_own) else { continue };
        if u128::from(modified(&metadata)) + TEMPORARY_AGE.as_millis() <= u128::from(now.0) {
            remove_file(&entry.path())?;
        } else {
            bytes += disk_bytes(metadata.len());
        }
    }
    Ok(bytes)
}

fn count(folder: &Path, census: &mut Census) -> io::Result<()> {
    let table: Rc<Path> = Rc::from(folder);
    for entry in entries(folder)? {
        let (entry, name) = named(entry?);
        let Some((part, metadata)) = part_of_file(&name).zip(file(&entry)) else { continue };
        let (used, bytes) = (modified(&metadata), disk_bytes(metadata.len()));
        census.bytes += bytes;
        census.oldest.offer(CachedFile { used, table: Rc::clone(&table), part, bytes });
    }
    Ok(())
}

/// The entries of a folder; none if there is no such folder.
fn entries(folder: &Path) -> io::Result<impl Iterator<Item = io::Result<DirEntry>>> {
    match fs::read_dir(folder) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None.into_iter().flatten())
        }
        entries => Ok(Some(entries?).into_iter().flatten()),
    }
}

/// An entry with its name, which is empty if it is not text.
fn named(entry: DirEntry) -> (DirEntry, String) {
    let name = entry.file_name().into_string().unwrap_or_default();
    (entry, name)
}

/// The metadata of a regular file; `None` for others, and if another process has removed it.
fn file(entry: &DirEntry) -> Option<fs::Metadata> {
    entry.metadata().ok().filter(fs::Metadata::is_file)
}

fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn create_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn modified(metadata: &fs::Metadata) -> u64 {
    let since = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

fn times(now: UnixMillis) -> FileTimes {
    let time: SystemTime =
        UNIX_EPOCH.checked_add(Duration::from_millis(now.0)).unwrap_or(UNIX_EPOCH);
    FileTimes::new().set_modified(time)
}
