//! Names for files that are being written, and the removal of those whose writer died.
//!
//! ```text
//! .staging/<13 digits: Unix milliseconds>-<process id>-<16 hex digits>
//! ```

use super::around::Blocks;
use super::files::{Detail, Files, OpenFolder, Staged};
use crate::io::store::SweepReport;
use siltstone_base::{JobId, UnixMillis};
use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// The folder under the root. It begins with a dot, which no object's name does.
pub(super) const FOLDER: &str = ".staging";
/// The folder that folders of jobs are in.
pub(super) const JOBS: &str = "ingest";

/// What an opener leaves to dead processes: it sweeps what is older than a day, whatever grace a
/// collector gives.
pub(super) const ABANDONED_MILLIS: u64 = 24 * 60 * 60 * 1000;

/// A name that no other file has: the process id tells processes of one machine apart, the random
/// part all others.
pub(super) fn new_name(now: UnixMillis, random: u64) -> String {
    format!("{:013}-{}-{random:016x}", now.0, std::process::id())
}

/// When the file of this name was begun; `None` for a stranger's.
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
/// system's clock, and whose processes have died: those are unlocked. Where there are no locks
/// nothing tells, and files are left unless they were begun a day before the cut-off as well: were
/// such a writer alive all the same, its link or rename would fail and it would be told so.
/// Failures leave a file for the next time.
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
            // Another sweep may have been quicker.
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

/// Removes folders of jobs in `jobs` that have been empty since a day before the cut-off: object
/// stores have none. A day, since an upload has its folder made when it begins, and whoever takes
/// longer is told so. Failures leave a folder for the next time.
pub(super) fn sweep_jobs(
    files: &dyn Files,
    jobs: &OpenFolder,
    cutoff: UnixMillis,
) -> io::Result<()> {
    for entry in files.list(jobs, Detail::Stored)? {
        let is_old = entry.modified.0.saturating_add(ABANDONED_MILLIS) <= cutoff.0;
        let job = entry.name.filter(|name| JobId::parse(name).is_some());
        if let Some(name) = job.filter(|_| entry.is_folder && is_old) {
            // What is not empty stays.
            drop(files.remove_folder(jobs, OsStr::new(&name)));
        }
    }
    Ok(())
}

/// A staged file that goes away unless it got its name.
pub(super) struct StagedFile {
    files: Arc<dyn Files>,
    staged: Staged,
    has_name: bool,
    /// Whether its bytes leave the cache of pages once they are on the disk.
    passes: bool,
    /// What goes around the cache altogether.
    around: Option<Blocks>,
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
        Ok(StagedFile { files, staged, has_name: false, passes: false, around: None })
    }

    /// Goes on with the file `from` of the staging folder under the name `name`; NotFound where
    /// there is none.
    pub(super) fn taking_over(
        files: &Arc<dyn Files>,
        folder: &Arc<OpenFolder>,
        from: &str,
        name: &str,
    ) -> io::Result<StagedFile> {
        let staged = files.take_over(folder, from, name)?;
        let files = Arc::clone(files);
        Ok(StagedFile { files, staged, has_name: false, passes: false, around: None })
    }

    /// Replaces the content of a file that is at least as long.
    pub(super) fn write_over(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.files.write(&mut self.staged, bytes)?;
        self.files.cut(&self.staged, bytes.len() as u64)?;
        self.sync()
    }

    /// Its bytes, of which there are none yet, go around the cache of pages; where there is no such
    /// way they leave it once they are on the disk.
    pub(super) fn passes_by(&mut self) {
        self.passes = true;
        self.around = self.files.go_around(&self.staged).then(Blocks::new);
    }

    /// Whether what is written goes to the disk at once, and a sync on the way brings nothing.
    pub(super) fn is_around(&self) -> bool {
        self.around.is_some()
    }

    /// Appends.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (files, staged) = (&self.files, &mut self.staged);
        match &mut self.around {
            Some(around) => {
                around.write(bytes, &mut |blocks, at| files.write_blocks(staged, blocks, at))
            }
            None => files.write(staged, bytes),
        }
    }

    /// Writes what is held back of a file that goes around the cache.
    fn end(&mut self) -> io::Result<()> {
        let Some(around) = self.around.take() else { return Ok(()) };
        let (files, staged) = (&self.files, &self.staged);
        let bytes = around.end(&mut |blocks, at| files.write_blocks(staged, blocks, at))?;
        files.cut(staged, bytes)
    }

    /// Brings the bytes to the disk; there are no more. Comes before [`StagedFile::link`] and
    /// [`StagedFile::rename`]: a name must never stand for bytes that a power cut can take away.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.end()?;
        #[cfg(mutation = "local_skips_file_sync")]
        return Ok(());
        #[cfg(not(mutation = "local_skips_file_sync"))]
        self.syncing()()
    }

    /// As [`StagedFile::sync`], for what was written before this is called, from another thread
    /// while more is written.
    pub(super) fn syncing(&self) -> impl FnOnce() -> io::Result<()> + Send + 'static {
        let (files, staged, passes) = (Arc::clone(&self.files), self.staged.clone(), self.passes);
        move || {
            files.sync_file(&staged)?;
            if passes {
                files.forget(&staged);
            }
            Ok(())
        }
    }

    /// Gives the file its name where that is free; the staging name goes when this is dropped.
    pub(super) fn link(&self, folder: &OpenFolder, name: &OsStr) -> io::Result<()> {
        self.files.link(&self.staged, folder, name)
    }

    /// Gives the file its name, over what had it.
    pub(super) fn rename(&mut self, folder: &OpenFolder, name: &OsStr) -> io::Result<()> {
        self.files.rename(&self.staged, folder, name)?;
        self.has_name = true;
        Ok(())
    }

    /// The open file, if it is locked for as long as it is open.
    pub(super) fn locked(&self) -> Option<&Arc<std::fs::File>> {
        Some(&self.staged.file).filter(|_| self.staged.is_locked)
    }

    /// The folder that it is staged in.
    pub(super) fn folder(&self) -> Arc<OpenFolder> {
        Arc::clone(&self.staged.folder)
    }

    /// Where it is staged.
    pub(super) fn path(&self) -> PathBuf {
        self.staged.folder.path.join(&self.staged.name)
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        if !self.has_name {
            // What cannot be removed now is swept by a later opener.
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
        // Its name may say what it will: when it was last written counts.
        assert_eq!(sweep(1_800_000_000_000 - 1_000_000_000_000), SweepReport::default());
        assert!(folder.path().join(&ours).exists());
        assert_eq!(sweep(u64::MAX), SweepReport { uploads: 1, bytes: 1 });
        assert!(!folder.path().join(ours).exists());
        for name in strangers {
            assert!(folder.path().join(name).exists(), "{name}");
        }
    }

    /// Jobs come and go; what is empty for a day goes, and nothing else.
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

    /// A file that is being written stays, however old it is said to be.
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
        // As a killed process leaves it: unlocked, with its staging name.
        let again = folder.path().join(new_name(UnixMillis(0), 2));
        write(&again);
        assert_eq!(sweep(), SweepReport { uploads: 1, bytes: 1 });
        assert!(folder.path().join(name).exists() && !again.exists());
    }
}
