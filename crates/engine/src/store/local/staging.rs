//! Names for files that are being written, and the removal of those whose writer died.
//!
//! ```text
//! .staging/<13 digits: Unix milliseconds>-<process id>-<16 hex digits>
//! ```

use super::files::{Files, Staged};
use siltstone_base::UnixMillis;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The folder under the root. It begins with a dot, which no object's name does.
pub(super) const FOLDER: &str = ".staging";

/// A staged file older than this belongs to nobody: nothing is written for a day. Were its writer
/// alive all the same, its link or rename would fail and it would be told so.
const ABANDONED_MILLIS: u64 = 24 * 60 * 60 * 1000;

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

/// Removes what dead processes left in `folder`. Failures leave a file for the next time.
pub(super) fn sweep(files: &dyn Files, folder: &Path, now: UnixMillis) {
    let Ok(entries) = files.list(folder) else { return };
    for name in entries.into_iter().filter_map(|entry| entry.name) {
        let abandoned = |begun: u64| begun.saturating_add(ABANDONED_MILLIS) < now.0;
        if begun(&name).is_some_and(abandoned) {
            // Another opener may have been quicker.
            let _ = files.unlink(&folder.join(name));
        }
    }
}

/// A staged file that goes away unless it got its name.
pub(super) struct StagedFile {
    files: Arc<dyn Files>,
    staged: Staged,
    has_name: bool,
}

impl StagedFile {
    /// Begins a file at `path`.
    pub(super) fn begin(files: &Arc<dyn Files>, path: &Path) -> io::Result<StagedFile> {
        let staged = files.create_new(path)?;
        Ok(StagedFile { files: Arc::clone(files), staged, has_name: false })
    }

    /// Appends.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.files.write(&mut self.staged, bytes)
    }

    /// Brings the bytes to the disk. Comes before [`StagedFile::link`] and
    /// [`StagedFile::rename`]: a name must never stand for bytes that a power cut can take away.
    pub(super) fn sync(&self) -> io::Result<()> {
        #[cfg(mutation = "local_skips_file_sync")]
        return Ok(());
        #[cfg(not(mutation = "local_skips_file_sync"))]
        self.files.sync_file(&self.staged)
    }

    /// Gives the file its name where that is free; the staging name goes when this is dropped.
    pub(super) fn link(&self, to: &Path) -> io::Result<()> {
        self.files.link(&self.staged.path, to)
    }

    /// Gives the file its name, over what had it.
    pub(super) fn rename(&mut self, to: &Path) -> io::Result<()> {
        self.files.rename(&self.staged.path, to)?;
        self.has_name = true;
        Ok(())
    }

    /// Where it is staged.
    pub(super) fn path(&self) -> PathBuf {
        self.staged.path.clone()
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        if !self.has_name {
            // What cannot be removed now is swept by a later opener.
            let _ = self.files.unlink(&self.staged.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::files::SystemFiles;
    use super::*;

    #[test]
    fn only_old_files_of_ours_are_swept() {
        let folder = tempfile::tempdir().unwrap();
        let now = 1_700_000_000_000;
        let old = new_name(UnixMillis(now - ABANDONED_MILLIS - 1), 1);
        let young = new_name(UnixMillis(now - ABANDONED_MILLIS + 1), 2);
        let strangers = ["notes.txt", "0-0-0", "0000000000000-1-zzzzzzzzzzzzzzzz", "1-2-3-4"];
        for name in strangers.iter().copied().chain([old.as_str(), young.as_str()]) {
            std::fs::write(folder.path().join(name), b"x").unwrap();
        }
        sweep(&SystemFiles, folder.path(), UnixMillis(now));
        assert!(!folder.path().join(old).exists());
        for name in strangers.iter().copied().chain([young.as_str()]) {
            assert!(folder.path().join(name).exists(), "{name}");
        }
        sweep(&SystemFiles, &folder.path().join("missing"), UnixMillis(now));
    }
}
