//! A folder for files that do not outlive their owner: sorted runs that exceed memory.

use super::errors::explain;
use siltstone_base::Result;
use std::fs::DirBuilder;
use std::path::{Path, PathBuf};

/// A folder that is removed with its content when this is dropped. A folder of a killed process is
/// left to the cleanup of the temporary folder.
#[derive(Debug)]
pub struct ScratchFolder {
    path: PathBuf,
}

impl ScratchFolder {
    /// Creates a folder in `parent` that only this user can access. `unique` must not be used
    /// twice.
    ///
    /// # Errors
    /// Denied, Unavailable, as the file system reports.
    pub fn create(parent: &Path, unique: u128) -> Result<ScratchFolder> {
        let path = parent.join(format!("siltstone-{unique:032x}"));
        let mut builder = DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&path).map_err(|error| explain(error, &path))?;
        Ok(ScratchFolder { path })
    }

    /// Removes a file that is no longer needed. If that fails, it is removed with the folder.
    pub fn remove(&self, name: &str) {
        let _ = std::fs::remove_file(self.path.join(name));
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        // Files that cannot be removed stay; no process reads them.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
