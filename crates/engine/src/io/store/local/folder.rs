//! The blocking half of the folder store: objects as files under one root.
//!
//! ```text
//! create:  write to .staging/x │ sync x │ link x to name │ sync the name's folder │ unlink x
//! upload:  write to .staging/x │ sync x │ rename x to name │ sync the name's folder
//! ```
//! In this order, so that a name never stands for bytes that are not on the disk, and an answer
//! never for a name that is not. `link` fails when the name is taken: that is the conditional
//! create, and the file system decides races.
//!
//! All of it happens relative to the root and its parts, each opened once (`parts`, rule E2).

use super::errors::{explain, explain_link};
use super::files::{Detail, Files};
use super::map::Maps;
use super::parts::{FolderParts, Part};
use super::reserve::Reserve;
use super::staging::{self, StagedFile};
use crate::io::store::{Listed, PutAnswer, SweepReport, check_range, too_short};
use bytes::Bytes;
use quick_cache::sync::Cache;
use siltstone_base::{Error, JobId, ObjectName, Result, UnixMillis};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files kept open for reading. A process is commonly allowed 1,024.
const OPEN_FILES: usize = 256;
/// Most bytes that are read where they are asked for. Out of the page cache that takes two
/// microseconds; a manifest of twenty layers has as many.
const SHORT_READ: u64 = 16 << 10;
/// Bytes of the longest folder that is listed where its names are asked for: by its block's
/// length or its names', some hundred names, and ten microseconds.
const SHORT_FOLDER: u64 = 4 << 10;
/// Folders below a prefix's own that a listing looks into (`ingest/<job>/`).
const LISTING_DEPTH: u32 = 1;

/// A file that is open for reading. Objects never change, so its length never does.
struct OpenFile {
    file: File,
    bytes: u64,
}

/// The objects of one database.
pub(super) struct Folder {
    pub(super) parts: FolderParts,
    pub(super) files: Arc<dyn Files>,
    /// Tables only: their names are never used twice, so an open file never stands for another
    /// object. Numbered objects are read once, and whole.
    open: Cache<ObjectName, Arc<OpenFile>>,
    maps: Maps,
    pub(super) reserve: Reserve,
}

/// An object's name in two: the part that it is in, and its own name there.
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

    /// A handle begins to work here: files and folders stay open for it.
    pub(super) fn begin_use(&self) {
        self.parts.begin_use();
    }

    /// A handle has ended; with the last one everything is closed that is kept open.
    pub(super) fn end_use(&self) {
        if self.parts.end_use() {
            self.open.clear();
        }
    }

    /// Keeps a table's file open, unless nobody works here any more.
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

    /// The error for a failed operation on `name`, which happened in `part`: whether the folder is
    /// gone comes first.
    fn explain(&self, error: io::Error, part: Option<&Part>, name: &str) -> Error {
        let gone = self.parts.gone(&error, part);
        gone.unwrap_or_else(|| explain(error, &self.root().join(name)))
    }

    /// Removes what dead processes left behind, if it was last written at or before `cutoff`, and
    /// folders of jobs that are empty.
    pub(super) fn sweep(&self, cutoff: UnixMillis) -> Result<SweepReport> {
        if let Ok(Some(jobs)) = self.parts.find(staging::JOBS) {
            // What is left costs a listing a little.
            drop(staging::sweep_jobs(&*self.files, &jobs.folder, cutoff));
        }
        let part = self.parts.find(staging::FOLDER);
        let swept = part.and_then(|part| match part {
            Some(part) => staging::sweep(&*self.files, &part.folder, cutoff),
            None => Ok(SweepReport::default()),
        });
        swept.map_err(|error| self.explain(error, None, staging::FOLDER))
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

    /// As [`Folder::read`], where handing it to another thread would cost more than it does (two
    /// threads woken, some 40 us; opening a database asks for ten names that are not there): what
    /// is short, or missing, in a folder that is open and lies on this machine. `None` for the
    /// rest, that of a part which waits to be synced included.
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

    /// The whole of a table, mapped; `None` where it is not `bytes` bytes long, or cannot be.
    pub(super) fn map(&self, name: ObjectName, bytes: u64) -> Option<Bytes> {
        // Numbered objects are read once, and whole.
        let is_table = matches!(name, ObjectName::Compacted(_) | ObjectName::IngestSst(..));
        // A map outlives the request, and so would stay with a handle that has ended.
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

    /// `None` where there is no such object, in a folder that there is or that was never made.
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

    /// Begins a staged file, in folders that exist; and the part that it is for.
    pub(super) fn stage(&self, relative: &str, staged: &str) -> Result<(StagedFile, Arc<Part>)> {
        let begin = || {
            let staging = self.parts.made_for_now(staging::FOLDER)?;
            let part = self.parts.made(relative)?;
            let begin = || StagedFile::begin(&self.files, &staging.folder, staged);
            // A sweep may have been quicker than the lock; not twice.
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

    /// A whole staged file, on the disk; and the part that it is for.
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

    /// What lies in the folder of one job.
    pub(super) fn list_job(&self, job: JobId) -> Result<Vec<Listed>> {
        let (mut listed, folder) = (Vec::new(), format!("{}/{job}", staging::JOBS));
        self.walk(&folder, 0, Detail::Stored, &mut listed)?;
        listed.sort_unstable_by_key(|object| object.name);
        Ok(listed)
    }

    /// The names of [`Folder::list`] alone.
    pub(super) fn names(&self, prefix: &str, after: Option<ObjectName>) -> Result<Vec<ObjectName>> {
        let listed = self.listed(prefix, after, Detail::Names)?;
        Ok(listed.into_iter().map(|object| object.name).collect())
    }

    /// As [`Folder::names`], where handing it to another thread would cost more, as for
    /// [`Folder::read_here`]: names in a short folder. Those of jobs have folders of their own.
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
            // What a removed folder lists: not the end of a log, but of the database.
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
                listed.push(Listed { name, bytes: entry.bytes, modified: entry.modified });
            }
        }
        Ok(())
    }

    /// Removes a name. Not synced: a dead object that a power cut brings back is deleted again.
    pub(super) fn delete(&self, name: ObjectName) -> Result<()> {
        self.open.remove(&name);
        let text = name.to_string();
        let (relative, own) = split(&text);
        let deleted = self.parts.find(relative).and_then(|part| match part {
            Some(part) => self.files.unlink(&part.folder, own),
            None => Ok(()),
        });
        match deleted {
            // Of a folder that was removed, too: there is no such object.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            deleted => deleted.map_err(|error| self.explain(error, None, &text)),
        }
    }
}

/// Exactly the bytes of `range`, which lies in the file, without moving any cursor.
pub(super) fn read_at(file: &File, range: &Range<u64>) -> io::Result<Vec<u8>> {
    let wanted = length(range)?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(wanted).map_err(|_| io::ErrorKind::OutOfMemory)?;
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
