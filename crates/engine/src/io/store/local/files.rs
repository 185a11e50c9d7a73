//! The few file operations that the folder store is made of, behind a trait, so that a test can
//! record their order and let any of them fail.
//!
//! They work relative to open folders and not along paths: a path may lead to another folder by
//! now, while an open folder is itself as long as it is open, also once it was moved or removed.

use super::around;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::retry_on_intr;
use siltstone_base::UnixMillis;
use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of one system call that writes. A file system takes memory of the page cache in pieces as
/// large as the call, up to huge pages, and those a guest of a hypervisor has commonly given back
/// while they were free: its host finds and clears them again. Calls of 1 MiB took twice and of
/// 2 MiB seven times as long as calls of 64 to 512 KiB, which are given memory that was in use.
const WRITE_BYTES: usize = 256 << 10;

/// Of a locked file, bytes that are read: a few lines.
const LOCKED_BYTES: u64 = 4 << 10;

/// A folder that is open.
#[derive(Debug)]
pub(super) struct OpenFolder {
    file: File,
    /// Where it was when it was opened: for texts, and to tell what stands there now.
    pub(super) path: PathBuf,
    /// Whether it lies in a file system of this machine ([`is_of_this_machine`]).
    is_of_this_machine: bool,
}

impl OpenFolder {
    fn new(file: File, path: PathBuf) -> OpenFolder {
        let is_of_this_machine = is_of_this_machine(&file);
        OpenFolder { file, path, is_of_this_machine }
    }

    /// How long it is itself, its names and what the file system keeps with them.
    pub(super) fn bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Whether to open a file in it is a matter of microseconds, and of no network.
    pub(super) fn is_of_this_machine(&self) -> bool {
        self.is_of_this_machine
    }
}

/// A file that is being written under a staging name. A clone is another handle on it.
#[derive(Clone, Debug)]
pub(super) struct Staged {
    pub(super) file: Arc<File>,
    pub(super) folder: Arc<OpenFolder>,
    pub(super) name: String,
    /// Whether it is locked; not where the file system has no locks.
    pub(super) is_locked: bool,
}

/// What a listing of a folder tells of its lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    /// Names, and which are folders: no call for each, where the file system lists kinds.
    Names,
    /// Lengths and ages as well.
    Stored,
}

/// One line of a folder. Its length and its age are zero where names were asked for.
#[derive(Debug)]
pub(super) struct FolderEntry {
    /// Text, or `None` for a name that is no UTF-8 and so none of ours.
    pub(super) name: Option<String>,
    pub(super) is_folder: bool,
    pub(super) bytes: u64,
    /// When it was last written, by the file system's clock.
    pub(super) modified: UnixMillis,
}

/// Who has a file locked.
#[derive(Debug)]
pub(super) enum Locked {
    /// Nobody had: it is now, for as long as this is open. Open for writing, unless that is
    /// forbidden.
    Here(File),
    /// Somebody has. What stands in the file.
    By(String),
}

/// File operations. Each is one system call or a few.
pub(super) trait Files: Send + Sync {
    /// Opens a folder by its path.
    fn open_root(&self, path: &Path) -> io::Result<OpenFolder>;
    /// Opens a folder in a folder.
    fn open_folder(&self, folder: &OpenFolder, name: &OsStr) -> io::Result<OpenFolder>;
    /// A new folder by its path: the root, and those above it.
    fn create_root(&self, path: &Path) -> io::Result<()>;
    /// A new folder in a folder.
    fn create_folder(&self, folder: &OpenFolder, name: &OsStr) -> io::Result<()>;
    /// Takes an empty folder's name away; fails for one that is not empty.
    fn remove_folder(&self, folder: &OpenFolder, name: &OsStr) -> io::Result<()>;
    /// Whether the folder was removed: it has no name any more, and takes none.
    fn is_gone(&self, folder: &OpenFolder) -> io::Result<bool>;
    /// Whether the path that the folder was opened by leads to it still.
    fn is_in_place(&self, folder: &OpenFolder) -> io::Result<bool>;
    /// A new file for writing; it must not exist. Locked for as long as it is open, so that others
    /// can tell whether its process lives. NotFound when a sweep was quicker than the lock.
    fn create_new(&self, folder: &Arc<OpenFolder>, name: &str) -> io::Result<Staged>;
    /// A new file of `bytes` zeros that no process has open; fails when the name is taken.
    fn create_filled(&self, folder: &OpenFolder, name: &str, bytes: usize) -> io::Result<()>;
    /// Renames a file of [`Files::create_filled`] and opens it for writing from its beginning, as
    /// [`Files::create_new`] does with a new one.
    fn take_over(&self, folder: &Arc<OpenFolder>, from: &str, name: &str) -> io::Result<Staged>;
    /// Appends.
    fn write(&self, staged: &mut Staged, bytes: &[u8]) -> io::Result<()>;
    /// From now on writes go around the cache of pages, by [`Files::write_blocks`] alone; not where
    /// there is no such way, and the answer says so.
    fn go_around(&self, staged: &Staged) -> bool;
    /// Writes whole blocks at a block's place.
    fn write_blocks(&self, staged: &Staged, blocks: &[u8], at: u64) -> io::Result<()>;
    /// Cuts a file that is so long or longer.
    fn cut(&self, staged: &Staged, bytes: u64) -> io::Result<()>;
    /// Brings the file's bytes to the disk.
    fn sync_file(&self, staged: &Staged) -> io::Result<()>;
    /// Takes what is on the disk of the file out of the cache of pages, where there is a way.
    fn forget(&self, staged: &Staged);
    /// A second name for a file; fails when the name is taken.
    fn link(&self, from: &Staged, folder: &OpenFolder, name: &OsStr) -> io::Result<()>;
    /// Another name for a file, over what had it.
    fn rename(&self, from: &Staged, folder: &OpenFolder, name: &OsStr) -> io::Result<()>;
    /// Takes a name away.
    fn unlink(&self, folder: &OpenFolder, name: &OsStr) -> io::Result<()>;
    /// Brings a folder's names to the disk.
    fn sync_folder(&self, folder: &OpenFolder) -> io::Result<()>;
    /// A file for reading, and its length.
    fn open(&self, folder: &OpenFolder, name: &OsStr) -> io::Result<(File, u64)>;
    /// Takes a file's name away if nobody has it open for writing; whether it did. The lock of a
    /// process that died is the system's to release.
    fn unlink_unlocked(&self, folder: &OpenFolder, name: &OsStr) -> io::Result<bool>;
    /// What stands in a folder, in no order.
    fn list(&self, folder: &OpenFolder, detail: Detail) -> io::Result<Vec<FolderEntry>>;
    /// Locks the folder against others who do the same, for as long as the answer is open; `None`
    /// while somebody else has done so.
    fn lock_folder(&self, folder: &OpenFolder) -> io::Result<Option<File>>;
    /// Locks the file, unless somebody else has; then, what stands in it.
    fn locked(&self, folder: &OpenFolder, name: &OsStr) -> io::Result<Locked>;
    /// Has `text` stand in a locked file, in place of what does.
    fn rewrite(&self, file: &File, text: &str) -> io::Result<()>;
}

/// The operating system's.
#[derive(Debug)]
pub(super) struct SystemFiles;

/// How a folder is opened. Reading it is what a sync and a listing take.
fn open_folder_at(folder: impl rustix::fd::AsFd, name: &OsStr) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(retry_on_intr(|| rustix::fs::openat(&folder, name, flags, Mode::empty()))?.into())
}

/// Whether the folder lies in a file system of this machine that is known well: ext2 to ext4, XFS,
/// Btrfs, F2FS and tmpfs, by the codes that Linux has for them. A removed folder's number of links
/// is zero there at once, and opening a file waits for no network. Overlays (one link, whatever
/// happens), network file systems and those of other systems are not among them. Opening a
/// database meets some twenty names that are not there, and each asks of two folders whether they
/// are: one call in place of five.
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
    // As the standard library makes files; the user's mask takes away what he does not want.
    let mode = Mode::from_raw_mode(0o666);
    let open = || rustix::fs::openat(&folder.file, name, flags | OFlags::CLOEXEC, mode);
    Ok(retry_on_intr(open)?.into())
}

/// A file that was opened for writing, locked while it is open. NotFound when a sweep removed its
/// name before the lock.
fn staged(file: File, folder: &Arc<OpenFolder>, name: &str) -> io::Result<Staged> {
    // Where the file system has no locks, age alone decides what a sweep takes away.
    let is_locked = file.lock().is_ok();
    if is_locked && file.metadata()?.nlink() == 0 {
        return Err(io::ErrorKind::NotFound.into());
    }
    let (folder, name) = (Arc::clone(folder), name.to_owned());
    Ok(Staged { file: Arc::new(file), folder, name, is_locked })
}

impl SystemFiles {
    /// `is_gone`, where a removed folder may keep its number of links. It lists nothing, not even
    /// itself, and so do living ones of few file systems: there the path decides.
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
        // While it is open no other folder gets its number.
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
            // An empty file would stand for blocks that there are not.
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

    fn go_around(&self, staged: &Staged) -> bool {
        around::begin(&staged.file)
    }

    fn write_blocks(&self, staged: &Staged, blocks: &[u8], at: u64) -> io::Result<()> {
        around::write_at(&staged.file, blocks, at)
    }

    fn cut(&self, staged: &Staged, bytes: u64) -> io::Result<()> {
        staged.file.set_len(bytes)
    }

    fn sync_file(&self, staged: &Staged) -> io::Result<()> {
        staged.file.sync_data()
    }

    fn forget(&self, staged: &Staged) {
        // A hint: what stays in the cache is the system's to take out.
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
            // The lock is held until the name is gone: who waits for it finds that out.
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
            // Gone between the two calls: it was not there.
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
        // Some network file systems lock only what may be written.
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
        // Of this very process, mostly: then nothing is written. What cannot be read is not it.
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

    /// Each way to tell says the same of a folder that lives, one that was moved, and one that was
    /// removed; also where something else stands in its place.
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
