//! The blocking half of the folder store: objects as files under one root.
//!
//! ```text
//! create:  write to .staging/x │ sync x │ link x to name │ sync the name's folder │ unlink x
//! upload:  write to .staging/x │ sync x │ rename x to name │ sync the name's folder
//! ```
//! In this order, so that a name never stands for bytes that are not on the disk, and an answer
//! never for a name that is not. `link` fails when the name is taken: that is the conditional
//! create, and the file system decides races.

use super::errors::{explain, explain_link};
use super::files::Files;
use super::staging::{self, StagedFile};
use crate::store::{Listed, PutAnswer, Swept, check_range, too_short};
use bytes::Bytes;
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use siltstone_base::{Error, ObjectName, Result, UnixMillis};
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files kept open for reading. A process is commonly allowed 1,024.
const OPEN_FILES: usize = 256;
/// Folders below a prefix's own that a listing looks into (`ingest/<job>/`).
const LISTING_DEPTH: u32 = 1;

/// A file that is open for reading. Objects never change, so its length never does.
struct OpenFile {
    file: File,
    bytes: u64,
}

/// The objects of one database.
pub(super) struct Folder {
    root: PathBuf,
    files: Arc<dyn Files>,
    /// Tables only: their names are never used twice, so an open file never stands for another
    /// object. Numbered objects are read once, and whole.
    open: Cache<ObjectName, Arc<OpenFile>>,
    /// Folders that exist, their own names synced.
    known: Mutex<HashSet<PathBuf>>,
    /// Folders in which a name was made and could not be synced: nothing in them is believed
    /// before a sync succeeds.
    unsynced: Mutex<HashSet<PathBuf>>,
}

impl Folder {
    pub(super) fn new(root: PathBuf, files: Arc<dyn Files>) -> Folder {
        Folder {
            root,
            files,
            open: Cache::new(OPEN_FILES),
            known: Mutex::default(),
            unsynced: Mutex::default(),
        }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    fn path(&self, name: ObjectName) -> PathBuf {
        self.root.join(name.to_string())
    }

    /// Removes what dead processes left behind, if it was last written at or before `cutoff`.
    pub(super) fn sweep(&self, cutoff: UnixMillis) -> Result<Swept> {
        let folder = self.root.join(staging::FOLDER);
        let swept = staging::sweep(&*self.files, &folder, cutoff);
        swept.map_err(|error| explain(error, &folder))
    }

    pub(super) fn read(
        &self,
        name: ObjectName,
        range: Option<Range<u64>>,
    ) -> Result<Option<Bytes>> {
        check_range(range.as_ref())?;
        let range = |bytes| range.unwrap_or(0..bytes);
        let read = self.read_by(name, range, |file, range| read_at(file, &range))?;
        Ok(read.map(Bytes::from))
    }

    /// As [`Folder::read`], over what `buffer` holds; whether there is such an object.
    pub(super) fn read_into(
        &self,
        name: ObjectName,
        range: Range<u64>,
        buffer: &mut Vec<u8>,
    ) -> Result<bool> {
        check_range(Some(&range))?;
        let fill = |file: &File, range| read_over(file, &range, buffer);
        Ok(self.read_by(name, |_| range, fill)?.is_some())
    }

    /// Reads the range that its length asks for.
    fn read_by<T>(
        &self,
        name: ObjectName,
        range: impl FnOnce(u64) -> Range<u64>,
        read: impl FnOnce(&File, Range<u64>) -> io::Result<T>,
    ) -> Result<Option<T>> {
        let path = self.path(name);
        let open = match self.open_file(name, &path) {
            Ok(open) => open,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(explain(error, &path)),
        };
        let range = range(open.bytes);
        if range.end > open.bytes {
            return Err(too_short(name, &range, open.bytes));
        }
        match read(&open.file, range.clone()) {
            Ok(read) => Ok(Some(read)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(too_short(name, &range, open.bytes))
            }
            Err(error) => Err(explain(error, &path)),
        }
    }

    fn open_file(&self, name: ObjectName, path: &Path) -> io::Result<Arc<OpenFile>> {
        if let Some(open) = self.open.get(&name) {
            return Ok(open);
        }
        self.settle(path)?;
        let (file, bytes) = self.files.open(path)?;
        let open = Arc::new(OpenFile { file, bytes });
        if matches!(name, ObjectName::Compacted(_) | ObjectName::IngestSst(..)) {
            self.open.insert(name, Arc::clone(&open));
        }
        Ok(open)
    }

    /// Before anything in a folder is believed: syncs it when the last sync there failed.
    fn settle(&self, path: &Path) -> io::Result<()> {
        let Some(folder) = path.parent() else { return Ok(()) };
        if self.unsynced.lock().contains(folder) {
            self.files.sync_folder(folder)?;
            self.unsynced.lock().remove(folder);
        }
        Ok(())
    }

    /// Brings the name at `path` to the disk, after it was made.
    fn sync_name(&self, path: &Path) -> io::Result<()> {
        #[cfg(mutation = "local_skips_folder_sync")]
        return Ok(());
        #[cfg(not(mutation = "local_skips_folder_sync"))]
        {
            let Some(folder) = path.parent() else { return Ok(()) };
            self.files.sync_folder(folder).inspect_err(|_| {
                self.unsynced.lock().insert(folder.to_owned());
            })
        }
    }

    /// Makes `folder` where it is missing, and those above it, and syncs their names.
    fn ensure_folder(&self, folder: &Path) -> io::Result<()> {
        if self.known.lock().contains(folder) {
            return Ok(());
        }
        let made = match self.files.create_folder(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                match folder.parent() {
                    Some(parent) if !parent.as_os_str().is_empty() => self.ensure_folder(parent)?,
                    _ => return Err(error),
                }
                self.files.create_folder(folder)
            }
            made => made,
        };
        match made {
            Ok(()) => self.sync_name(folder)?,
            // Whoever made it may not have synced it yet. What lies above the root is the user's.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if folder != self.root && folder.starts_with(&self.root) {
                    self.sync_name(folder)?;
                }
            }
            Err(error) => return Err(error),
        }
        self.known.lock().insert(folder.to_owned());
        Ok(())
    }

    /// Begins a staged file, in folders that exist.
    pub(super) fn stage(&self, name: ObjectName, staged: &str) -> Result<StagedFile> {
        let folder = self.root.join(staging::FOLDER);
        let path = folder.join(staged);
        let target = self.path(name);
        let begin = || {
            self.ensure_folder(&folder)?;
            self.ensure_folder(target.parent().unwrap_or(&self.root))?;
            StagedFile::begin(&self.files, &path)
        };
        let begun = begin().or_else(|error| {
            // Somebody removed a folder that was known.
            if error.kind() == io::ErrorKind::NotFound {
                self.known.lock().clear();
                return begin();
            }
            Err(error)
        });
        begun.map_err(|error| explain(error, &path))
    }

    pub(super) fn create(&self, name: ObjectName, bytes: &[u8], staged: &str) -> PutAnswer {
        let mut file = match self.stage(name, staged) {
            Ok(file) => file,
            Err(error) => return PutAnswer::Refused(error),
        };
        if let Err(error) = file.write(bytes).and_then(|()| file.sync()) {
            return PutAnswer::Refused(explain(error, &file.path()));
        }
        let path = self.path(name);
        if let Err(error) = file.link(&path) {
            if error.kind() == io::ErrorKind::NotFound {
                self.known.lock().clear();
            }
            return explain_link(error, &path);
        }
        match self.sync_name(&path) {
            Ok(()) => PutAnswer::Created,
            Err(error) => PutAnswer::Ambiguous(explain(error, &path)),
        }
    }

    /// Gives an uploaded file its name.
    pub(super) fn complete(&self, name: ObjectName, mut file: StagedFile) -> Result<()> {
        let path = self.path(name);
        let completed =
            file.sync().and_then(|()| file.rename(&path)).and_then(|()| self.sync_name(&path));
        completed.map_err(|error| explain(error, &path))
    }

    pub(super) fn list(&self, prefix: &str, after: Option<ObjectName>) -> Result<Vec<Listed>> {
        let mut listed = Vec::new();
        let folder = prefix.trim_end_matches('/');
        self.walk(folder, LISTING_DEPTH, &mut listed)?;
        listed.retain(|object| after.is_none_or(|after| object.name > after));
        listed.sort_unstable_by_key(|object| object.name);
        Ok(listed)
    }

    fn walk(&self, relative: &str, depth: u32, listed: &mut Vec<Listed>) -> Result<()> {
        let path = self.root.join(relative);
        let entries = match self.settle(&path.join("x")).and_then(|()| self.files.list(&path)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(|error| explain(error, &path))?,
        };
        for entry in entries {
            let Some(file) = &entry.name else { continue };
            let relative = format!("{relative}/{file}");
            if entry.is_folder {
                if depth > 0 {
                    self.walk(&relative, depth - 1, listed)?;
                }
            } else if let Some(name) = ObjectName::parse(&relative) {
                listed.push(Listed { name, bytes: entry.bytes, modified: entry.modified() });
            }
        }
        Ok(())
    }

    /// Removes a name. Not synced: a dead object that a power cut brings back is deleted again.
    pub(super) fn delete(&self, name: ObjectName) -> Result<()> {
        self.open.remove(&name);
        let path = self.path(name);
        match self.files.unlink(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(|error: io::Error| -> Error { explain(error, &path) }),
        }
    }
}

/// Exactly the bytes of `range`, which lies in the file, without moving any cursor.
pub(super) fn read_at(file: &File, range: &Range<u64>) -> io::Result<Vec<u8>> {
    let wanted = length(range)?;
    let mut bytes = Vec::with_capacity(wanted);
    while bytes.len() < wanted {
        let offset = range.start + bytes.len() as u64;
        // The spare capacity may be larger than asked for; what is too much is cut below.
        let read = rustix::io::retry_on_intr(|| {
            rustix::io::pread(file, rustix::buffer::spare_capacity(&mut bytes), offset)
        })?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    bytes.truncate(wanted);
    Ok(bytes)
}

/// As [`read_at`], over what `buffer` holds. Bytes that it held need not be cleared before.
fn read_over(file: &File, range: &Range<u64>, buffer: &mut Vec<u8>) -> io::Result<()> {
    buffer.resize(length(range)?, 0);
    let (mut rest, mut offset) = (buffer.as_mut_slice(), range.start);
    while !rest.is_empty() {
        let read = rustix::io::retry_on_intr(|| rustix::io::pread(file, &mut *rest, offset))?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        rest = rest.get_mut(read..).unwrap_or_default();
        offset += read as u64;
    }
    Ok(())
}

fn length(range: &Range<u64>) -> io::Result<usize> {
    usize::try_from(range.end - range.start).map_err(|_| io::ErrorKind::OutOfMemory.into())
}
