//! Names of files that are being written, and the removal of files whose process has died.
//!
//! ```text
//! .staging/<13 digits: Unix milliseconds>-<process id>-<16 hex digits>
//! ```

use super::direct_io::Blocks;
use super::files::{Detail, Files, OpenFolder, Staged};
use crate::SweepReport;
use siltstone_base::{JobId, UnixMillis};
use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// The folder below the root. No object's name begins with a dot.
pub(super) const FOLDER: &str = ".staging";
/// The folder that contains the folders of jobs.
pub(super) const JOBS: &str = "ingest";

/// Minimum age of the files that an opener sweeps: one day, regardless of the grace period of a
/// collector.
pub(super) const ABANDONED_MILLIS: u64 = 24 * 60 * 60 * 1000;

/// A name that no other file has. The process id distinguishes processes of one machine, and the
/// random part distinguishes all others.
pub(super) fn new_name(now: UnixMillis, random: u64) -> String {
    format!("{:013}-{}-{random:016x}", now.0, std::process::id())
}

/// When the file of this name was begun; `None` if the name is not one of ours.
fn begun(name: &str) -> Option<u64> {
    let mut parts = name.split('-');
    let (millis, process, random) = (parts.next()?, parts.next()?, parts.next()?);
    let all = |text: &str, digit: fn(&u8) -> bool| text.as_bytes().iter().all(digit);
    let ours = parts.next().is_none()
        && millis.len() >= 13
        && all(millis, u8::is_ascii_digit)
        && all(process, u8::is_ascii_digit)
        && random.len() == 16
        && all(random, u8::is_ascii_hexdigit);
    if ours { millis.parse().ok() } else { None }
}

/// Removes files of ours in `folder` that were last written at or before `cutoff`, by the file
/// system's clock, and whose processes have died. A file of a dead process is not locked. If the
/// file system has no locks, a file is removed only if it was also begun more than a day before
/// `cutoff`; a writer that is alive nevertheless gets an error from its link or rename. Files that
/// cannot be removed are left for the next sweep.
pub(super) fn sweep(
    files: &dyn Files,
    folder: &OpenFolder,
    cutoff: UnixMillis,
) -> io::Result<SweepReport> {
    let mut swept = SweepReport::default();
    for entry in files.list(folder, Detail::Stored)? {
        let Some(name) = &entry.name else { continue };
        let Some(begun) = begun(name).filter(|_| entry.modified <= cutoff) else { continue };
        let name = OsStr::new(name);
        let removed = match files.unlink_unlocked(folder, name) {
            Ok(removed) => removed,
            // Another sweep may have removed it first.
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(_) if begun.saturating_add(ABANDONED_MILLIS) < cutoff.0 => {
                files.unlink(folder, name).is_ok()
            }
            Err(_) => false,
        };
        if removed {
            swept.uploads += 1;
            swept.bytes += entry.bytes;
        }
    }
    Ok(swept)
}

/// Removes folders of jobs in `jobs` that have been empty since a day before `cutoff`, because
/// object stores have no empty folders. An upload creates its folder when it begins; an upload that
/// takes longer than a day may fail with an error. Folders that cannot be removed are left for the
/// next sweep.
pub(super) fn sweep_jobs(
    files: &dyn Files,
    jobs: &OpenFolder,
    cutoff: UnixMillis,
) -> io::Result<()> {
    for entry in files.list(jobs, Detail::Stored)? {
        let is_old = entry.modified.0.saturating_add(ABANDONED_MILLIS) <= cutoff.0;
        let job = entry.name.filter(|name| JobId::parse(name).is_some());
        if let Some(name) = job.filter(|_| entry.is_folder && is_old) {
            // This fails for a folder that is not empty.
            drop(files.remove_folder(jobs, OsStr::new(&name)));
        }
    }
    Ok(())
}

/// A staged file. Dropping it removes the file unless it was renamed to its final name.
pub(super) struct StagedFile {
    files: Arc<dyn Files>,
    staged: Staged,
    has_name: bool,
    /// Whether its bytes are removed from the page cache once they are on the disk.
    no_cache: bool,
    /// The buffer of direct I/O; `None` for a file that uses the page cache.
    direct: Option<Blocks>,
}

impl StagedFile {
    /// Begins a file in the staging folder.
    pub(super) fn begin(
        files: &Arc<dyn Files>,
        folder: &Arc<OpenFolder>,
        name: &str,
    ) -> io::Result<StagedFile> {
        let staged = files.create_new(folder, name)?;
        let files = Arc::clone(files);
        Ok(StagedFile { files, staged, has_name: false, no_cache: false, direct: None })
    }

    /// Continues with the file `from` of the staging folder under the name `name`. NotFound if
    /// there is no such file.
    pub(super) fn taking_over(
        files: &Arc<dyn Files>,
        folder: &Arc<OpenFolder>,
        from: &str,
        name: &str,
    ) -> io::Result<StagedFile> {
        let staged = files.take_over(folder, from, name)?;
        let files = Arc::clone(files);
        Ok(StagedFile { files, staged, has_name: false, no_cache: false, direct: None })
    }

    /// Replaces the content of a file that is at least as long as `bytes`, and syncs it.
    pub(super) fn write_over(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.files.write(&mut self.staged, bytes)?;
        self.files.cut(&self.staged, bytes.len() as u64)?;
        self.sync()
    }

    /// Makes the file, which is still empty, bypass the page cache. If the file system does not
    /// allow that, its bytes are removed from the cache once they are on the disk.
    pub(super) fn hint_no_cache(&mut self) {
        self.no_cache = true;
        self.direct = self.files.begin_direct(&self.staged).then(Blocks::new);
    }

    /// Whether writes bypass the page cache, so that a sync before the end gains nothing.
    pub(super) fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Appends.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (files, staged) = (&self.files, &mut self.staged);
        match &mut self.direct {
            Some(direct) => {
                direct.write(bytes, &mut |blocks, at| files.write_blocks(staged, blocks, at))
            }
            None => files.write(staged, bytes),
        }
    }

    /// Writes the buffered rest of a file that bypasses the page cache.
    fn end(&mut self) -> io::Result<()> {
        let Some(direct) = self.direct.take() else { return Ok(()) };
        let (files, staged) = (&self.files, &self.staged);
        let bytes = direct.end(&mut |blocks, at| files.write_blocks(staged, blocks, at))?;
        files.cut(staged, bytes)
    }

    /// Writes all bytes to the disk. No write may follow. Must precede [`StagedFile::link`] and
    /// [`StagedFile::rename`], because a name must never stand for bytes that a power failure can
    /// lose.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.end()?;
        self.syncing()()
    }

    /// As [`StagedFile::sync`], for the bytes that were written before this call. Another thread
    /// can run the result while more bytes are written.
    pub(super) fn syncing(&self) -> impl FnOnce() -> io::Result<()> + Send + 'static {
        let (files, staged, no_cache) =
            (Arc::clone(&self.files), self.staged.clone(), self.no_cache);
        move || {
            files.sync_file(&staged)?;
            if no_cache {
                files.forget(&staged);
            }
            Ok(())
        }
    }

    /// Gives the file its name if that is free. Dropping this removes the staging name.
    pub(super) fn link(&self, folder: &OpenFolder, name: &OsStr) -> io::Result<()> {
        self.files.link(&self.staged, folder, name)
    }

    /// Gives the file its name, and replaces a file that has it.
    pub(super) fn rename(&mut self, folder: &OpenFolder, name: &OsStr) -> io::Result<()> {
        self.files.rename(&self.staged, folder, name)?;
        self.has_name = true;
        Ok(())
    }

    /// The open file, if it is locked while it is open.
    pub(super) fn locked(&self) -> Option<&Arc<std::fs::File>> {
        Some(&self.staged.file).filter(|_| self.staged.is_locked)
    }

    /// The folder in which it is staged.
    pub(super) fn folder(&self) -> Arc<OpenFolder> {
        Arc::clone(&self.staged.folder)
    }

    /// The path at which it is staged.
    pub(super) fn path(&self) -> PathBuf {
        self.staged.folder.path.join(&self.staged.name)
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        if !self.has_name {
            // A later opener sweeps a file that cannot be removed now.
            let _ = self.files.unlink(&self.staged.folder, OsStr::new(&self.staged.name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::files::SystemFiles;
    use super::*;
    use std::path::Path;

    fn write(path: &Path) {
        std::fs::write(path, b"x").unwrap();
    }

    fn open(folder: &Path) -> Arc<OpenFolder> {
        Arc::new(SystemFiles.open_root(folder).unwrap())
    }

    #[test]
    fn only_old_files_of_ours_are_swept() {
        let folder = tempfile::tempdir().unwrap();
        let ours = new_name(UnixMillis(1_700_000_000_000), 1);
        let strangers = ["notes.txt", "0-0-0", "0000000000000-1-zzzzzzzzzzzzzzzz", "1-2-3-4"];
        for name in strangers.iter().copied().chain([ours.as_str()]) {
            write(&folder.path().join(name));
        }
        let open = open(folder.path());
        let sweep = |cutoff| sweep(&SystemFiles, &open, UnixMillis(cutoff)).unwrap();
        // The time of the last write counts, not the time in the name.
        assert_eq!(sweep(1_800_000_000_000 - 1_000_000_000_000), SweepReport::default());
        assert!(folder.path().join(&ours).exists());
        assert_eq!(sweep(u64::MAX), SweepReport { uploads: 1, bytes: 1 });
        assert!(!folder.path().join(ours).exists());
        for name in strangers {
            assert!(folder.path().join(name).exists(), "{name}");
        }
    }

    /// Only job folders that have been empty for a day are removed.
    #[test]
    fn empty_folders_of_jobs_are_swept() {
        let folder = tempfile::tempdir().unwrap();
        let job = |number| folder.path().join(JobId::of_an_export(number).to_string());
        for made in [job(1), job(2), folder.path().join("notes")] {
            std::fs::create_dir(made).unwrap();
        }
        write(&job(2).join("table.sst"));
        let open = open(folder.path());
        let sweep = |cutoff| sweep_jobs(&SystemFiles, &open, UnixMillis(cutoff)).unwrap();
        sweep(ABANDONED_MILLIS);
        assert!(job(1).exists());
        sweep(u64::MAX);
        assert!(!job(1).exists() && job(2).exists() && folder.path().join("notes").exists());
    }

    /// A file that is being written is kept, regardless of the age in its name.
    #[test]
    fn files_of_live_processes_are_not_swept() {
        let folder = tempfile::tempdir().unwrap();
        let files: Arc<dyn Files> = Arc::new(SystemFiles);
        let open = open(folder.path());
        let name = new_name(UnixMillis(0), 1);
        let file = StagedFile::begin(&files, &open, &name).unwrap();
        let sweep = || sweep(&*files, &open, UnixMillis(u64::MAX)).unwrap();
        assert_eq!(sweep(), SweepReport::default());
        file.link(&open, OsStr::new("name")).unwrap();
        // A killed process leaves an unlocked file with its staging name.
        let again = folder.path().join(new_name(UnixMillis(0), 2));
        write(&again);
        assert_eq!(sweep(), SweepReport { uploads: 1, bytes: 1 });
        assert!(folder.path().join(name).exists() && !again.exists());
    }
}
