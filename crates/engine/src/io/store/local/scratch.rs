//! A folder for files that do not outlive their owner: sorted runs that were too large for memory.

use super::errors::explain;
use siltstone_base::Result;
use std::fs::DirBuilder;
use std::path::{Path, PathBuf};

/// A folder that goes away, with all that is in it, when this is dropped. One that a killed process
/// left behind is whoever clears the temporary folder's.
#[derive(Debug)]
pub(crate) struct ScratchFolder {
    path: PathBuf,
}

impl ScratchFolder {
    /// A new folder in `parent`, for this user alone. `unique` is not used twice.
    ///
    /// # Errors
    /// Denied, Unavailable, as the file system says.
    pub(crate) fn create(parent: &Path, unique: u128) -> Result<ScratchFolder> {
        let path = parent.join(format!("siltstone-{unique:032x}"));
        let mut builder = DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&path).map_err(|error| explain(error, &path))?;
        Ok(ScratchFolder { path })
    }

    /// Removes a file of it, of which nobody has need any more. Where that fails it goes with the
    /// folder.
    pub(crate) fn remove(&self, name: &str) {
        let _ = std::fs::remove_file(self.path.join(name));
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        // What cannot be removed now stays; nobody reads it.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
