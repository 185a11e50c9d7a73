//! The blocking half of the folder store: objects as files under one root.
//!
//! ```text
//! create:  write to .staging/x │ sync x │ link x to name │ sync the name's folder │ unlink x
//! upload:  write to .staging/x │ sync x │ rename x to name │ sync the name's folder
//! ```
//! This order ensures that a name never stands for bytes that are not on the disk, and that no
//! answer reports a name that is not on the disk. `link` fails if the name is taken, which makes a
//! create conditional; the file system decides races.
//!
//! All operations are relative to the root and its parts, which are opened once (`parts`, rule E2).

use super::errors::{explain, explain_link};
use super::files::{Detail, Files};
use super::map::Maps;
use super::parts::{FolderParts, Part};
use super::reserve::Reserve;
use super::staging::{self, StagedFile};
use crate::{Listed, PutAnswer, SweepReport, check_range, too_short};
use bytes::Bytes;
use quick_cache::sync::Cache;
use siltstone_base::{Error, JobId, ObjectName, Result, UnixMillis};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Number of files kept open for reading. A process may commonly open 1,024.
const OPEN_FILES: usize = 256;
/// Maximum length of a read on the calling thread. From the page cache it takes two microseconds. A
/// manifest of twenty layers is as long.
const SHORT_READ: u64 = 16 << 10;
/// Maximum length of a folder that the calling thread lists: the length of its block or of its
/// names. That is some hundred names, and ten microseconds.
const SHORT_FOLDER: u64 = 4 << 10;
/// Levels of folders below that of a prefix which a listing includes (`ingest/<job>/`).
const LISTING_DEPTH: u32 = 1;

/// A file that is open for reading. Objects never change, so its length is fixed.
struct OpenFile {
    file: File,
    bytes: u64,
}

/// The objects of one database.
pub(super) struct Folder {
    pub(super) parts: FolderParts,
    pub(super) files: Arc<dyn Files>,
    /// Tables only. Their names are never used twice, so an open file never stands for another
    /// object. Numbered objects are read once, and whole.
    open: Cache<ObjectName, Arc<OpenFile>>,
    maps: Maps,
    pub(super) reserve: Reserve,
}

/// Splits an object's name into the part that contains it and its own name there.
fn split(name: &str) -> (&str, &OsStr) {
    let (part, own) = name.rsplit_once('/').unwrap_or(("", name));
    (part, OsStr::new(own))
}

impl Folder {
    pub(super) fn new(root: PathBuf, files: Arc<dyn Files>) -> Folder {
        let parts = FolderParts::new(root, Arc::clone(&files));
        let (open, maps, reserve) = (Cache::new(OPEN_FILES), Maps::default(), Reserve::default());
        Folder { parts, files, open, maps, reserve }
    }

    pub(super) fn root(&self) -> &Path {
        self.parts.root()
    }

    /// Begins the use by a handle. Files and folders stay open for it.
    pub(super) fn begin_use(&self) {
        self.parts.begin_use();
    }

    /// Ends the use by a handle. After the last one, all files and folders are closed.
    pub(super) fn end_use(&self) {
        if self.parts.end_use() {
            self.open.clear();
        }
    }

    /// Keeps a table's file open, unless the last handle has ended.
    fn keep(&self, name: ObjectName, open: &Arc<OpenFile>) {
        if self.parts.is_at_rest() {
            return;
        }
        self.open.insert(name, Arc::clone(open));
        // The last use may have ended in between.
        if self.parts.is_at_rest() {
            self.open.remove(&name);
        }
    }

    /// The error for a failed operation on `name` in `part`. If a folder was removed, it reports
    /// that.
    fn explain(&self, error: io::Error, part: Option<&Part>, name: &str) -> Error {
        let gone = self.parts.gone(&error, part);
        gone.unwrap_or_else(|| explain(error, &self.root().join(name)))
    }

    /// Removes files of dead processes that were last written at or before `cutoff`, and empty
    /// folders of jobs.
    pub(super) fn sweep(&self, cutoff: UnixMillis) -> Result<SweepReport> {
        if let Ok(Some(jobs)) = self.parts.find(staging::JOBS) {
            // Folders that stay make a listing slightly slower.
            drop(staging::sweep_jobs(&*self.files, &jobs.folder, cutoff));
        }
        let part = self.parts.find(staging::FOLDER);
        let swept = part.and_then(|part| match part {
            Some(part) => staging::sweep(&*self.files, &part.folder, cutoff),
            None => Ok(SweepReport::default()),
        });
        swept.or_else(|error| match error.kind() {
            // The folder was removed, with all that was in it.
            io::ErrorKind::NotFound => Ok(SweepReport::default()),
            _ => Err(self.explain(error, None, staging::FOLDER)),
        })
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

    /// As [`Folder::read`], of the part of `range` that lies in the object.
    pub(super) fn read_clamped(
        &self,
        name: ObjectName,
        range: Range<u64>,
    ) -> Result<Option<Bytes>> {
        let clamped = |bytes: u64| match range.start < bytes {
            true => range.start..range.end.min(bytes),
            // Past the end, which is an error of the read.
            false => range,
        };
        let read = self.read_by(name, clamped, |file, range| read_at(file, &range))?;
        Ok(read.map(Bytes::from))
    }

    /// As [`Folder::read`], on the calling thread, for short or missing objects in an open folder
    /// on this machine. Another thread would cost more than such a read: two threads have to wake,
    /// some 40 us, and opening a database reads ten names that do not exist. `None` for all other
    /// reads, and for those in a part that has to be synced first.
    pub(super) fn read_here(
        &self,
        name: ObjectName,
        range: Option<&Range<u64>>,
    ) -> Option<Result<Option<Bytes>>> {
        let text = name.to_string();
        let part = self.parts.settled(split(&text).0)?;
        if !part.folder.is_of_this_machine() {
            return None;
        }
        let read = || {
            check_range(range)?;
            let Some(open) = self.opened(name)? else { return Ok(Some(None)) };
            let range = range.map_or(0..open.bytes, Range::clone);
            if range.end - range.start > SHORT_READ {
                return Ok(None);
            }
            let read = self.read_open(name, &open, range, |file, range| read_at(file, &range))?;
            Ok(Some(Some(Bytes::from(read))))
        };
        read().transpose()
    }

    /// As [`Folder::read`], into `buffer`, whose content is replaced. Returns whether the object
    /// exists.
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

    /// Reads the range that `range` derives from the object's length.
    fn read_by<T>(
        &self,
        name: ObjectName,
        range: impl FnOnce(u64) -> Range<u64>,
        read: impl FnOnce(&File, Range<u64>) -> io::Result<T>,
    ) -> Result<Option<T>> {
        let Some(open) = self.opened(name)? else { return Ok(None) };
        let range = range(open.bytes);
        self.read_open(name, &open, range, read).map(Some)
    }

    fn read_open<T>(
        &self,
        name: ObjectName,
        open: &OpenFile,
        range: Range<u64>,
        read: impl FnOnce(&File, Range<u64>) -> io::Result<T>,
    ) -> Result<T> {
        if range.end > open.bytes {
            return Err(too_short(name, &range, open.bytes));
        }
        match read(&open.file, range.clone()) {
            Ok(read) => Ok(read),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(too_short(name, &range, open.bytes))
            }
            Err(error) => Err(self.explain(error, None, &name.to_string())),
        }
    }

    /// Maps a whole table. `None` if it is not `bytes` bytes long or cannot be mapped.
    pub(super) fn map(&self, name: ObjectName, bytes: u64) -> Option<Bytes> {
        // Numbered objects are read once, and whole.
        let is_table = matches!(name, ObjectName::Compacted(_) | ObjectName::IngestSst(..));
        // A map outlives the request, so it would stay after the last handle has ended.
        if !is_table || self.parts.is_at_rest() {
            return None;
        }
        let open = self.opened(name).ok()??;
        self.maps.map(&open.file, bytes)
    }

    fn opened(&self, name: ObjectName) -> Result<Option<Arc<OpenFile>>> {
        match self.open.get(&name) {
            Some(open) => Ok(Some(open)),
            None => self.open_file(name),
        }
    }

    /// `None` if the object does not exist, and its folder exists or was never created.
    fn open_file(&self, name: ObjectName) -> Result<Option<Arc<OpenFile>>> {
        let text = name.to_string();
        let (relative, own) = split(&text);
        let found = self.parts.find(relative);
        let Some(part) = found.map_err(|error| self.explain(error, None, &text))? else {
            return Ok(None);
        };
        let opened = self.parts.settle(&part).and_then(|()| self.files.open(&part.folder, own));
        match opened {
            Ok((file, bytes)) => {
                let open = Arc::new(OpenFile { file, bytes });
                if matches!(name, ObjectName::Compacted(_) | ObjectName::IngestSst(..)) {
                    self.keep(name, &open);
                }
                Ok(Some(open))
            }
            Err(error) => match self.parts.gone(&error, Some(&part)) {
                Some(gone) => Err(gone),
                None if error.kind() == io::ErrorKind::NotFound => Ok(None),
                None => Err(explain(error, &self.root().join(text))),
            },
        }
    }

    /// Begins a staged file, and creates missing folders. Returns it with the part of its object.
    pub(super) fn stage(&self, relative: &str, staged: &str) -> Result<(StagedFile, Arc<Part>)> {
        let begin = || {
            let staging = self.parts.made_for_now(staging::FOLDER)?;
            let part = self.parts.made(relative)?;
            let begin = || StagedFile::begin(&self.files, &staging.folder, staged);
            // A sweep may have removed the file before it was locked, but not twice.
            let begun = begin().or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => begin(),
                _ => Err(error),
            });
            Ok((begun?, part))
        };
        begin().map_err(|error| self.explain(error, None, &format!("{}/{staged}", staging::FOLDER)))
    }

    pub(super) fn create(&self, name: ObjectName, bytes: &[u8], staged: &str) -> PutAnswer {
        let text = name.to_string();
        let (relative, own) = split(&text);
        let written = self.write_staged(relative, bytes, staged);
        let place = |file| {
            let part = self.parts.made(relative);
            Ok((file, part.map_err(|error| self.explain(error, None, &text))?))
        };
        let (file, part) = match self.or_reserved(written, name, bytes, staged, place) {
            Ok(written) => written,
            Err(error) => return PutAnswer::Refused(error),
        };
        if let Err(error) = file.link(&part.folder, own) {
            return match self.parts.gone(&error, Some(&part)) {
                Some(gone) => PutAnswer::Refused(gone),
                None => explain_link(error, &self.root().join(text)),
            };
        }
        match self.parts.sync_names(&part) {
            Ok(()) => PutAnswer::Created,
            Err(error) => PutAnswer::Ambiguous(self.explain(error, Some(&part), &text)),
        }
    }

    /// Writes and syncs a whole staged file. Returns it with the part of its object.
    fn write_staged(
        &self,
        relative: &str,
        bytes: &[u8],
        staged: &str,
    ) -> Result<(StagedFile, Arc<Part>)> {
        let (mut file, part) = self.stage(relative, staged)?;
        let written = file.write(bytes).and_then(|()| file.sync());
        written.map_err(|error| explain(error, &file.path()))?;
        Ok((file, part))
    }

    /// Begins an upload.
    pub(super) fn begin(&self, name: ObjectName, staged: &str) -> Result<StagedFile> {
        let text = name.to_string();
        Ok(self.stage(split(&text).0, staged)?.0)
    }

    /// Gives an uploaded file its name.
    pub(super) fn complete(&self, name: ObjectName, mut file: StagedFile) -> Result<()> {
        let text = name.to_string();
        let (relative, own) = split(&text);
        let part = self.parts.made(relative);
        let part = part.map_err(|error| self.explain(error, None, &text))?;
        let completed = file
            .sync()
            .and_then(|()| file.rename(&part.folder, own))
            .and_then(|()| self.parts.sync_names(&part));
        completed.map_err(|error| self.explain(error, Some(&part), &text))
    }

    pub(super) fn list(&self, prefix: &str, after: Option<ObjectName>) -> Result<Vec<Listed>> {
        self.listed(prefix, after, Detail::Stored)
    }

    /// The objects in the folder of one job.
    pub(super) fn list_job(&self, job: JobId) -> Result<Vec<Listed>> {
        let (mut listed, folder) = (Vec::new(), format!("{}/{job}", staging::JOBS));
        self.walk(&folder, 0, Detail::Stored, &mut listed)?;
        listed.sort_unstable_by_key(|object| object.name);
        Ok(listed)
    }

    /// As [`Folder::list`], with names only.
    pub(super) fn names(&self, prefix: &str, after: Option<ObjectName>) -> Result<Vec<ObjectName>> {
        let listed = self.listed(prefix, after, Detail::Names)?;
        Ok(listed.into_iter().map(|object| object.name).collect())
    }

    /// As [`Folder::names`], on the calling thread, for names in a short folder
    /// ([`Folder::read_here`] has the reason). Names of jobs are excluded, because each job has a
    /// folder of its own.
    pub(super) fn names_here(
        &self,
        prefix: &str,
        after: Option<ObjectName>,
    ) -> Option<Result<Vec<ObjectName>>> {
        let relative = prefix.trim_end_matches('/');
        let part = self.parts.settled(relative).filter(|_| relative != staging::JOBS)?;
        let is_short = part.folder.is_of_this_machine()
            && part.folder.bytes().is_ok_and(|bytes| bytes <= SHORT_FOLDER);
        is_short.then(|| self.names(prefix, after))
    }

    fn listed(
        &self,
        prefix: &str,
        after: Option<ObjectName>,
        detail: Detail,
    ) -> Result<Vec<Listed>> {
        let mut listed = Vec::new();
        let folder = prefix.trim_end_matches('/');
        self.walk(folder, LISTING_DEPTH, detail, &mut listed)?;
        listed.retain(|object| after.is_none_or(|after| object.name > after));
        listed.sort_unstable_by_key(|object| object.name);
        Ok(listed)
    }

    fn walk(
        &self,
        relative: &str,
        depth: u32,
        detail: Detail,
        listed: &mut Vec<Listed>,
    ) -> Result<()> {
        let found = self.parts.find(relative);
        let found = found.map_err(|error| self.explain(error, None, relative))?;
        let Some(part) = found else { return Ok(()) };
        let list = || {
            self.parts.settle(&part)?;
            let entries = self.files.list(&part.folder, detail)?;
            // A removed folder lists nothing. That must not be taken for the end of a log.
            if entries.is_empty() && self.files.is_gone(&part.folder)? {
                return Err(io::ErrorKind::NotFound.into());
            }
            Ok(entries)
        };
        let entries = list().map_err(|error| self.explain(error, Some(&part), relative))?;
        for entry in entries {
            let Some(file) = &entry.name else { continue };
            let relative = format!("{relative}/{file}");
            if entry.is_folder {
                if depth > 0 {
                    self.walk(&relative, depth - 1, detail, listed)?;
                }
            } else if let Some(name) = ObjectName::parse(&relative) {
                listed.push(Listed {
                    name,
                    bytes: entry.bytes,
                    modified: entry.modified,
                    tag: None,
                });
            }
        }
        Ok(())
    }

    /// Removes a name without a sync. If a power failure restores the dead object, it is deleted
    /// again.
    pub(super) fn delete(&self, name: ObjectName) -> Result<()> {
        self.open.remove(&name);
        let text = name.to_string();
        let (relative, own) = split(&text);
        let deleted = self.parts.find(relative).and_then(|part| match part {
            Some(part) => self.files.unlink(&part.folder, own),
            None => Ok(()),
        });
        match deleted {
            // Also if the folder was removed: the object does not exist.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            deleted => deleted.map_err(|error| self.explain(error, None, &text)),
        }
    }
}

/// Exactly the bytes of `range`, which lies in the file. Does not move a file cursor.
pub(super) fn read_at(file: &File, range: &Range<u64>) -> io::Result<Vec<u8>> {
    let wanted = length(range)?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(wanted).map_err(|_| io::ErrorKind::OutOfMemory)?;
    while bytes.len() < wanted {
        let offset = range.start + bytes.len() as u64;
        // The spare capacity may be larger than requested. Surplus bytes are cut below.
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

/// As [`read_at`], into `buffer`, whose content is replaced. Its old bytes need not be cleared.
fn read_over(file: &File, range: &Range<u64>, buffer: &mut Vec<u8>) -> io::Result<()> {
    let wanted = length(range)?;
    let more = wanted.saturating_sub(buffer.len());
    buffer.try_reserve(more).map_err(|_| io::ErrorKind::OutOfMemory)?;
    buffer.resize(wanted, 0);
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
