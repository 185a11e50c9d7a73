//! The few file operations that the folder store is made of, behind a trait, so that a test can
//! record their order and let any of them fail.

use siltstone_base::UnixMillis;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes of one system call that writes. A file system takes memory of the page cache in pieces as
/// large as the call, up to huge pages, and those a guest of a hypervisor has commonly given back
/// while they were free: its host finds and clears them again. Calls of 1 MiB took twice and of
/// 2 MiB seven times as long as calls of 64 to 512 KiB, which are given memory that was in use.
const WRITE_BYTES: usize = 256 << 10;

/// A file that is being written under a staging name. A clone is another handle on it.
#[derive(Clone, Debug)]
pub(super) struct Staged {
    pub(super) file: Arc<File>,
    pub(super) path: PathBuf,
}

/// One line of a folder.
#[derive(Debug)]
pub(super) struct FolderEntry {
    /// Text, or `None` for a name that is no UTF-8 and so none of ours.
    pub(super) name: Option<String>,
    pub(super) is_folder: bool,
    pub(super) bytes: u64,
    pub(super) modified: SystemTime,
}

impl FolderEntry {
    /// When it was last written, by the file system's clock.
    pub(super) fn modified(&self) -> UnixMillis {
        let since = self.modified.duration_since(UNIX_EPOCH).unwrap_or_default();
        UnixMillis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

/// File operations. Each is one system call or a few.
pub(super) trait Files: Send + Sync {
    /// A new file for writing; it must not exist. Locked for as long as it is open, so that others
    /// can tell whether its process lives. NotFound when a sweep was quicker than the lock.
    fn create_new(&self, path: &Path) -> io::Result<Staged>;
    /// Appends.
    fn write(&self, staged: &mut Staged, bytes: &[u8]) -> io::Result<()>;
    /// Brings the file's bytes to the disk.
    fn sync_file(&self, staged: &Staged) -> io::Result<()>;
    /// A second name for a file; fails when the name is taken.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Another name for a file, over what had it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Takes a name away.
    fn unlink(&self, path: &Path) -> io::Result<()>;
    /// Brings a folder's names to the disk.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;
    /// A new folder.
    fn create_folder(&self, path: &Path) -> io::Result<()>;
    /// A file for reading, and its length.
    fn open(&self, path: &Path) -> io::Result<(File, u64)>;
    /// Takes a file's name away if nobody has it open for writing; whether it did. The lock of a
    /// process that died is the system's to release.
    fn unlink_unlocked(&self, path: &Path) -> io::Result<bool>;
    /// What stands in a folder, in no order.
    fn list(&self, path: &Path) -> io::Result<Vec<FolderEntry>>;
}

/// The operating system's.
#[derive(Debug)]
pub(super) struct SystemFiles;

impl Files for SystemFiles {
    fn create_new(&self, path: &Path) -> io::Result<Staged> {
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        // Where the file system has no locks, age alone decides what a sweep takes away.
        let locked = file.lock().is_ok();
        if locked && is_unlinked(&file)? {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Staged { file: Arc::new(file), path: path.to_owned() })
    }

    fn write(&self, staged: &mut Staged, bytes: &[u8]) -> io::Result<()> {
        bytes.chunks(WRITE_BYTES).try_for_each(|piece| (&*staged.file).write_all(piece))
    }

    fn sync_file(&self, staged: &Staged) -> io::Result<()> {
        staged.file.sync_data()
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn open(&self, path: &Path) -> io::Result<(File, u64)> {
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        Ok((file, bytes))
    }

    fn unlink_unlocked(&self, path: &Path) -> io::Result<bool> {
        let file = File::open(path)?;
        match file.try_lock() {
            // The lock is held until the name is gone: who waits for it finds that out.
            Ok(()) => fs::remove_file(path).map(|()| true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn list(&self, path: &Path) -> io::Result<Vec<FolderEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            // Gone between the two calls: it was not there.
            let metadata = match entry.metadata() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                metadata => metadata?,
            };
            entries.push(FolderEntry {
                name: entry.file_name().into_string().ok(),
                is_folder: metadata.is_dir(),
                bytes: metadata.len(),
                modified: metadata.modified()?,
            });
        }
        Ok(entries)
    }
}

/// Whether the open file has no name any more.
#[cfg(unix)]
fn is_unlinked(file: &File) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    Ok(file.metadata()?.nlink() == 0)
}

/// Elsewhere an open file keeps its name.
#[cfg(not(unix))]
fn is_unlinked(_: &File) -> io::Result<bool> {
    Ok(false)
}
