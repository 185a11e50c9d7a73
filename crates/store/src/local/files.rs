//! The few file operations of the folder store, behind a trait, so that a test can record their
//! order and make any of them fail.
//!
//! They work relative to open folders and not along paths. A path may lead to another folder later,
//! while an open folder stays the same folder, even after it was moved or removed.

use super::direct_io;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::retry_on_intr;
use siltstone_base::UnixMillis;
use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// Number of bytes per write call. A file system allocates memory of the page cache in pieces as
/// large as the call, up to huge pages. A guest of a hypervisor commonly returns free huge pages to
/// its host, which then has to find and clear them again. Calls of 1 MiB took twice as long, and
/// calls of 2 MiB seven times as long, as calls of 64 to 512 KiB, which get memory that was in use.
const WRITE_BYTES: usize = 256 << 10;

/// Maximum number of bytes read from a locked file, which has a few lines.
const LOCKED_BYTES: u64 = 4 << 10;

/// An open folder.
#[derive(Debug)]
pub(super) struct OpenFolder {
    file: File,
    /// Its path when it was opened, for error texts and to check which folder is there now.
    pub(super) path: PathBuf,
    /// Whether it lies in a file system of this machine ([`is_of_this_machine`]).
    is_of_this_machine: bool,
}

impl OpenFolder {
    fn new(file: File, path: PathBuf) -> OpenFolder {
        let is_of_this_machine = is_of_this_machine(&file);
        OpenFolder { file, path, is_of_this_machine }
    }

    /// The identity of the folder, which distinguishes it from another one that has its path later.
    /// `None` in a network file system, because some number their files anew. The creation time is
    /// part of it, because a new folder can get the inode number of a removed one.
    pub(super) fn identity(&self) -> io::Result<Option<FolderIdentity>> {
        if !self.is_of_this_machine {
            return Ok(None);
        }
        let found = self.file.metadata()?;
        Ok(Some((found.dev(), found.ino(), found.created().ok())))
    }

    /// The length of the folder itself: its names and what the file system stores with them.
    pub(super) fn bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Whether opening a file in it takes microseconds and needs no network.
    pub(super) fn is_of_this_machine(&self) -> bool {
        self.is_of_this_machine
    }
}

/// See [`OpenFolder::identity`].
pub(super) type FolderIdentity = (u64, u64, Option<SystemTime>);

/// A file that is being written under a staging name. A clone is another handle on it.
#[derive(Clone, Debug)]
pub(super) struct Staged {
    pub(super) file: Arc<File>,
    pub(super) folder: Arc<OpenFolder>,
    pub(super) name: String,
    /// Whether it is locked. `false` if the file system has no locks.
    pub(super) is_locked: bool,
}

/// The detail that a listing of a folder reports about its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    /// Names, and which entries are folders. Needs no call per entry if the file system lists
    /// kinds.
    Names,
    /// Also lengths and times of the last write.
    Stored,
}

/// One entry of a folder. Its length and time may be zero with [`Detail::Names`].
#[derive(Debug)]
pub(super) struct FolderEntry {
    /// `None` for a name that is not UTF-8, and therefore not one of ours.
    pub(super) name: Option<String>,
    pub(super) is_folder: bool,
    pub(super) bytes: u64,
    /// When it was last written, by the file system's clock.
    pub(super) modified: UnixMillis,
}

/// The result of an attempt to lock a file.
#[derive(Debug)]
pub(super) enum Locked {
    /// The file was not locked. It is locked now, while this is open. Open for writing, unless that
    /// is forbidden.
    Here(File),
    /// Another open file holds the lock. The content of the file.
    By(String),
}

/// File operations. Each is one system call or a few.
pub(super) trait Files: Send + Sync {
    /// Opens a folder by its path.
    fn open_root(&self, path: &Path) -> io::Result<OpenFolder>;
    /// Opens a folder in a folder.
    fn open_folder(&self, folder: &OpenFolder, name: &OsStr) -> io::Result<OpenFolder>;
    /// Creates a folder by its path: the root, or a folder above it.
    fn create_root(&self, path: &Path) -> io::Result<()>;
    /// Creates a folder in a folder.
    fn create_folder(&self, folder: &OpenFolder, name: &OsStr) -> io::Result<()>;
    /// Removes an empty folder. Fails for one that is not empty.
    fn remove_folder(&self, folder: &OpenFolder, name: &OsStr) -> io::Result<()>;
    /// Whether the folder was removed. It has no name then, and no name can be created in it.
    fn is_gone(&self, folder: &OpenFolder) -> io::Result<bool>;
    /// Whether the path by which the folder was opened still leads to it.
    fn is_in_place(&self, folder: &OpenFolder) -> io::Result<bool>;
    /// Creates a file for writing, which must not exist. It is locked while it is open, so that
    /// other processes can tell whether its process is alive. NotFound if a sweep removed it before
    /// it was locked.
    fn create_new(&self, folder: &Arc<OpenFolder>, name: &str) -> io::Result<Staged>;
    /// Creates a file of `bytes` zeros and closes it. Fails if the name is taken.
    fn create_filled(&self, folder: &OpenFolder, name: &str, bytes: usize) -> io::Result<()>;
    /// Renames a file of [`Files::create_filled`] and opens it for writing from its beginning, as
    /// [`Files::create_new`] opens a new one.
    fn take_over(&self, folder: &Arc<OpenFolder>, from: &str, name: &str) -> io::Result<Staged>;
    /// Appends.
    fn write(&self, staged: &mut Staged, bytes: &[u8]) -> io::Result<()>;
    /// Makes later writes bypass the page cache; they must use [`Files::write_blocks`]. Returns
    /// whether the file system allows that.
    fn begin_direct(&self, staged: &Staged) -> bool;
    /// Writes whole blocks at an offset that is a multiple of the block size.
    fn write_blocks(&self, staged: &Staged, blocks: &[u8], at: u64) -> io::Result<()>;
    /// Cuts a file to `bytes`, which is at most its length.
    fn cut(&self, staged: &Staged, bytes: u64) -> io::Result<()>;
    /// Writes the file's bytes to the disk.
    fn sync_file(&self, staged: &Staged) -> io::Result<()>;
    /// Removes the file's bytes that are on the disk from the page cache, if the system can.
    fn forget(&self, staged: &Staged);
    /// Gives a file a second name. Fails if the name is taken.
    fn link(&self, from: &Staged, folder: &OpenFolder, name: &OsStr) -> io::Result<()>;
    /// Renames a file, and replaces a file that has the name.
    fn rename(&self, from: &Staged, folder: &OpenFolder, name: &OsStr) -> io::Result<()>;
    /// Removes a name.
    fn unlink(&self, folder: &OpenFolder, name: &OsStr) -> io::Result<()>;
    /// Writes a folder's names to the disk.
    fn sync_folder(&self, folder: &OpenFolder) -> io::Result<()>;
    /// Opens a file for reading. Returns it with its length.
    fn open(&self, folder: &OpenFolder, name: &OsStr) -> io::Result<(File, u64)>;
    /// Removes a file's name if the file is not locked, and returns whether it did. The system
    /// releases the locks of a process that died.
    fn unlink_unlocked(&self, folder: &OpenFolder, name: &OsStr) -> io::Result<bool>;
    /// The entries of a folder, in no order.
    fn list(&self, folder: &OpenFolder, detail: Detail) -> io::Result<Vec<FolderEntry>>;
    /// Locks the folder against other calls of this function, while the result is open. `None` if
    /// it is locked already.
    fn lock_folder(&self, folder: &OpenFolder) -> io::Result<Option<File>>;
    /// Locks the file. If it is locked already, returns its content.
    fn locked(&self, folder: &OpenFolder, name: &OsStr) -> io::Result<Locked>;
    /// Replaces the content of a locked file by `text`.
    fn rewrite(&self, file: &File, text: &str) -> io::Result<()>;
}

/// The file operations of the operating system.
#[derive(Debug)]
pub(super) struct SystemFiles;

/// Opens a folder for reading, which suffices for a sync and a listing.
fn open_folder_at(folder: impl rustix::fd::AsFd, name: &OsStr) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(retry_on_intr(|| rustix::fs::openat(&folder, name, flags, Mode::empty()))?.into())
}

/// Whether the folder lies in a known file system of this machine: ext2 to ext4, XFS, Btrfs, F2FS
/// or tmpfs, by their Linux magic numbers. There the number of links of a folder becomes zero when
/// it is removed, and opening a file waits for no network. Overlays (which always report one link),
/// network file systems and file systems of other systems are excluded. Opening a database looks up
/// some twenty names that do not exist, and each lookup checks whether two folders were removed.
/// Here such a check takes one call in place of five.
#[cfg(target_os = "linux")]
fn is_of_this_machine(folder: &File) -> bool {
    const KINDS: [i64; 5] = [0xEF53, 0x5846_5342, 0x9123_683E, 0xF2F5_2010, 0x0102_1994];
    #[allow(clippy::useless_conversion, reason = "its width differs between machines")]
    let kind = |found: rustix::fs::StatFs| i64::from(found.f_type);
    rustix::fs::fstatfs(folder).map(kind).is_ok_and(|kind| KINDS.contains(&kind))
}

#[cfg(not(target_os = "linux"))]
fn is_of_this_machine(_folder: &File) -> bool {
    false
}

fn open_file_at(folder: &OpenFolder, name: &OsStr, flags: OFlags) -> io::Result<File> {
    // The mode with which the standard library creates files. The user's mask restricts it.
    let mode = Mode::from_raw_mode(0o666);
    let open = || rustix::fs::openat(&folder.file, name, flags | OFlags::CLOEXEC, mode);
    Ok(retry_on_intr(open)?.into())
}

/// Locks a file that was opened for writing, while it is open. NotFound if a sweep removed its name
/// before it was locked.
fn staged(file: File, folder: &Arc<OpenFolder>, name: &str) -> io::Result<Staged> {
    // If the file system has no locks, a sweep decides by age alone.
    let is_locked = file.lock().is_ok();
    if is_locked && file.metadata()?.nlink() == 0 {
        return Err(io::ErrorKind::NotFound.into());
    }
    let (folder, name) = (Arc::clone(folder), name.to_owned());
    Ok(Staged { file: Arc::new(file), folder, name, is_locked })
}

impl SystemFiles {
    /// `is_gone` for file systems on which a removed folder may keep its number of links. A removed
    /// folder lists nothing, not even itself. On a few file systems an existing folder does so too,
    /// so the path decides then.
    fn is_gone_by_listing(&self, folder: &OpenFolder) -> io::Result<bool> {
        match Dir::read_from(&folder.file)?.next() {
            Some(_) => Ok(false),
            None => self.is_in_place(folder).map(|is_in_place| !is_in_place),
        }
    }
}

impl Files for SystemFiles {
    fn open_root(&self, path: &Path) -> io::Result<OpenFolder> {
        let file = open_folder_at(CWD, path.as_os_str())?;
        Ok(OpenFolder::new(file, path.to_owned()))
    }

    fn open_folder(&self, folder: &OpenFolder, name: &OsStr) -> io::Result<OpenFolder> {
        let file = open_folder_at(&folder.file, name)?;
        Ok(OpenFolder::new(file, folder.path.join(name)))
    }

    fn create_root(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn create_folder(&self, folder: &OpenFolder, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::mkdirat(&folder.file, name, Mode::from_raw_mode(0o777))?)
    }

    fn remove_folder(&self, folder: &OpenFolder, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&folder.file, name, AtFlags::REMOVEDIR)?)
    }

    fn is_gone(&self, folder: &OpenFolder) -> io::Result<bool> {
        if folder.file.metadata()?.nlink() == 0 {
            return Ok(true);
        }
        if folder.is_of_this_machine {
            return Ok(false);
        }
        self.is_gone_by_listing(folder)
    }

    fn is_in_place(&self, folder: &OpenFolder) -> io::Result<bool> {
        // No other folder gets its inode number while it is open.
        let own = folder.file.metadata()?;
        match fs::metadata(&folder.path) {
            Ok(there) => Ok((own.dev(), own.ino()) == (there.dev(), there.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn create_new(&self, folder: &Arc<OpenFolder>, name: &str) -> io::Result<Staged> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        staged(open_file_at(folder, OsStr::new(name), flags)?, folder, name)
    }

    fn create_filled(&self, folder: &OpenFolder, name: &str, bytes: usize) -> io::Result<()> {
        let name = OsStr::new(name);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let mut file = open_file_at(folder, name, flags)?;
        file.write_all(&vec![0; bytes]).inspect_err(|_| {
            // An empty file would stand for a block that it does not have.
            let _ = self.unlink(folder, name);
        })
    }

    fn take_over(&self, folder: &Arc<OpenFolder>, from: &str, name: &str) -> io::Result<Staged> {
        rustix::fs::renameat(&folder.file, from, &folder.file, name)?;
        staged(open_file_at(folder, OsStr::new(name), OFlags::WRONLY)?, folder, name)
    }

    fn write(&self, staged: &mut Staged, bytes: &[u8]) -> io::Result<()> {
        bytes.chunks(WRITE_BYTES).try_for_each(|piece| (&*staged.file).write_all(piece))
    }

    fn begin_direct(&self, staged: &Staged) -> bool {
        direct_io::begin(&staged.file)
    }

    fn write_blocks(&self, staged: &Staged, blocks: &[u8], at: u64) -> io::Result<()> {
        direct_io::write_at(&staged.file, blocks, at)
    }

    fn cut(&self, staged: &Staged, bytes: u64) -> io::Result<()> {
        staged.file.set_len(bytes)
    }

    fn sync_file(&self, staged: &Staged) -> io::Result<()> {
        staged.file.sync_data()
    }

    fn forget(&self, staged: &Staged) {
        // This is a hint, and the system may keep the bytes in the cache.
        #[cfg(target_os = "linux")]
        let _ = rustix::fs::fadvise(&staged.file, 0, None, rustix::fs::Advice::DontNeed);
        #[cfg(not(target_os = "linux"))]
        let _ = staged;
    }

    fn link(&self, from: &Staged, folder: &OpenFolder, name: &OsStr) -> io::Result<()> {
        let (staging, flags) = (&from.folder.file, AtFlags::empty());
        Ok(rustix::fs::linkat(staging, from.name.as_str(), &folder.file, name, flags)?)
    }

    fn rename(&self, from: &Staged, folder: &OpenFolder, name: &OsStr) -> io::Result<()> {
        let staging = &from.folder.file;
        Ok(rustix::fs::renameat(staging, from.name.as_str(), &folder.file, name)?)
    }

    fn unlink(&self, folder: &OpenFolder, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&folder.file, name, AtFlags::empty())?)
    }

    fn sync_folder(&self, folder: &OpenFolder) -> io::Result<()> {
        folder.file.sync_all()
    }

    fn open(&self, folder: &OpenFolder, name: &OsStr) -> io::Result<(File, u64)> {
        let file = open_file_at(folder, name, OFlags::RDONLY)?;
        let bytes = file.metadata()?.len();
        Ok((file, bytes))
    }

    fn unlink_unlocked(&self, folder: &OpenFolder, name: &OsStr) -> io::Result<bool> {
        let file = open_file_at(folder, name, OFlags::RDONLY)?;
        match file.try_lock() {
            // The lock is held until the name is removed. A process that waits for the lock then
            // detects the removal.
            Ok(()) => self.unlink(folder, name).map(|()| true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn list(&self, folder: &OpenFolder, detail: Detail) -> io::Result<Vec<FolderEntry>> {
        let mut entries = Vec::new();
        for entry in Dir::read_from(&folder.file)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let kind = entry.file_type();
            if detail == Detail::Names && kind != FileType::Unknown {
                entries.push(FolderEntry {
                    name: name.to_str().ok().map(str::to_owned),
                    is_folder: kind.is_dir(),
                    bytes: 0,
                    modified: UnixMillis(0),
                });
                continue;
            }
            let found = rustix::fs::statat(&folder.file, name, AtFlags::SYMLINK_NOFOLLOW);
            // It was removed between the two calls, so it is not listed.
            let found = match found {
                Err(rustix::io::Errno::NOENT) => continue,
                found => found?,
            };
            let seconds = u64::try_from(found.st_mtime).unwrap_or(0);
            #[allow(clippy::unnecessary_cast, reason = "its width differs between systems")]
            let nanos = found.st_mtime_nsec as u64;
            let modified = seconds.saturating_mul(1000).saturating_add(nanos / 1_000_000);
            entries.push(FolderEntry {
                name: name.to_str().ok().map(str::to_owned),
                is_folder: FileType::from_raw_mode(found.st_mode).is_dir(),
                bytes: u64::try_from(found.st_size).unwrap_or(0),
                modified: UnixMillis(modified),
            });
        }
        Ok(entries)
    }

    fn lock_folder(&self, folder: &OpenFolder) -> io::Result<Option<File>> {
        let file = open_folder_at(&folder.file, OsStr::new("."))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn locked(&self, folder: &OpenFolder, name: &OsStr) -> io::Result<Locked> {
        // Some network file systems lock only files that are open for writing.
        let file = match open_file_at(folder, name, OFlags::RDWR) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                open_file_at(folder, name, OFlags::RDONLY)?
            }
            file => file?,
        };
        match file.try_lock() {
            Ok(()) => Ok(Locked::Here(file)),
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                file.take(LOCKED_BYTES).read_to_string(&mut text)?;
                Ok(Locked::By(text))
            }
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn rewrite(&self, mut file: &File, text: &str) -> io::Result<()> {
        let mut found = String::new();
        // Mostly it is the mark of this process, and nothing is written. An unreadable one is
        // replaced.
        let _ = file.take(LOCKED_BYTES).read_to_string(&mut found);
        if found == text {
            return Ok(());
        }
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both ways to detect a removal agree on a folder that exists, one that was moved, and one
    /// that was removed, also if another folder is in its place.
    #[test]
    fn links_and_listing_tell_of_the_same_folders() {
        let outer = tempfile::tempdir().unwrap();
        let expect = |name: &str, is_gone: bool, change: &dyn Fn(&Path)| {
            let path = outer.path().join(name);
            fs::create_dir(&path).unwrap();
            let folder = SystemFiles.open_root(&path).unwrap();
            change(&path);
            assert_eq!(SystemFiles.is_gone(&folder).unwrap(), is_gone, "{name}");
            assert_eq!(SystemFiles.is_gone_by_listing(&folder).unwrap(), is_gone, "{name}");
        };
        expect("alive", false, &|_| ());
        expect("full", false, &|path| fs::write(path.join("file"), b"x").unwrap());
        expect("moved", false, &|path| fs::rename(path, outer.path().join("elsewhere")).unwrap());
        expect("removed", true, &|path| fs::remove_dir(path).unwrap());
        expect("replaced", true, &|path| {
            fs::remove_dir(path).unwrap();
            fs::create_dir(path).unwrap();
        });
    }
}
