//! A single file by its own path.
//!
//! ```text
//! upload:  write to .NAME.x beside it │ sync it │ rename to NAME │ sync the folder
//! ```
//! A reader keeps the first file that it opened, so a later rename over it does not affect the
//! reader.

use super::errors::explain;
use super::files::{Files, OpenFolder, SystemFiles};
use super::folder::read_at;
use super::lone_reader::LoneReader;
use super::staging::{self, StagedFile};
use crate::env::Effects;
use crate::profile::Profile;
use crate::{SingleObject, Upload};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use siltstone_base::{Error, ErrorKind, Result};
use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The file at a path.
pub(crate) struct LoneFile {
    shared: Arc<LoneShared>,
    effects: Effects,
}

struct LoneShared {
    reader: LoneReader,
    files: Arc<dyn Files>,
}

impl LoneFile {
    pub(crate) fn new(path: &Path, effects: Effects) -> Result<LoneFile> {
        let absolute = std::path::absolute(path).map_err(|error| {
            Error::invalid("the file's path is empty or cannot be made absolute")
                .with("path", path.display())
                .caused_by(error)
        })?;
        // Open it by its path, because a user that may read the file may lack access to the folder.
        let open = |path: &Path| File::open(path);
        let read = |file: &File, range: &Range<u64>| read_at(file, range).map(Bytes::from);
        let reader = LoneReader::new(absolute, open, Box::new(read));
        Ok(LoneFile {
            shared: Arc::new(LoneShared { reader, files: Arc::new(SystemFiles) }),
            effects,
        })
    }
}

impl fmt::Debug for LoneFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file://{}", self.shared.reader.path.display())
    }
}

impl LoneShared {
    /// The folder of the file.
    fn folder(&self) -> io::Result<Arc<OpenFolder>> {
        let folder = self.reader.path.parent().unwrap_or(&self.reader.path);
        Ok(Arc::new(self.files.open_root(folder)?))
    }

    /// The name of the file; empty for a path without one, which is not a file.
    fn name(&self) -> &OsStr {
        self.reader.path.file_name().unwrap_or_default()
    }

    fn stage(&self, unique: &str) -> Result<StagedFile> {
        if self.name().is_empty() || self.reader.path.is_dir() {
            return Err(Error::invalid("the path names a folder, not a file")
                .with("path", self.reader.path.display()));
        }
        let staged = format!(".{}.{unique}", self.name().to_string_lossy());
        let begun =
            self.folder().and_then(|folder| StagedFile::begin(&self.files, &folder, &staged));
        begun.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                Error::new(ErrorKind::NotFound, "the folder of the file does not exist")
                    .with("path", self.reader.path.display())
            }
            _ => explain(error, &self.reader.path.with_file_name(staged)),
        })
    }

    fn complete(&self, mut file: StagedFile) -> Result<()> {
        let steps = || {
            let folder = file.folder();
            file.sync()?;
            file.rename(&folder, self.name())?;
            self.files.sync_folder(&folder)
        };
        let completed: io::Result<()> = { steps }();
        completed.map_err(|error| explain(error, &self.reader.path))
    }
}

impl SingleObject for LoneFile {
    fn get(&self, range: Option<Range<u64>>) -> BoxFuture<'_, Result<Option<Bytes>>> {
        let shared = Arc::clone(&self.shared);
        async move { self.effects.blocking("read", move || shared.reader.read(range)).await? }
            .boxed()
    }

    fn get_now(&self, range: Option<Range<u64>>) -> Option<Result<Option<Bytes>>> {
        Some(self.shared.reader.read(range))
    }

    fn profile(&self) -> Profile {
        Profile::FOLDER
    }

    fn length(&self) -> BoxFuture<'_, Result<Option<u64>>> {
        let shared = Arc::clone(&self.shared);
        async move { self.effects.blocking("look", move || shared.reader.length()).await? }.boxed()
    }

    fn upload(&self) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        let unique = staging::new_name(self.effects.clock.now(), self.effects.random.next_u64());
        let (shared, effects) = (Arc::clone(&self.shared), self.effects.clone());
        async move {
            let begin = {
                let shared = Arc::clone(&shared);
                move || shared.stage(&unique)
            };
            let file = Some(effects.blocking("stage", begin).await??);
            let upload: Box<dyn Upload> = Box::new(LoneUpload { shared, effects, file });
            Ok(upload)
        }
        .boxed()
    }
}

struct LoneUpload {
    shared: Arc<LoneShared>,
    effects: Effects,
    /// `None` once a write has failed or was cancelled.
    file: Option<StagedFile>,
}

impl LoneUpload {
    fn take(&mut self) -> Result<StagedFile> {
        self.file.take().ok_or_else(|| Error::internal("an upload continues after a failed write"))
    }
}

impl Upload for LoneUpload {
    fn write(&mut self, chunk: Bytes) -> BoxFuture<'_, Result<()>> {
        async move {
            let mut file = self.take()?;
            let write = move || {
                let written = file.write(&chunk);
                (written.map_err(|error| explain(error, &file.path())), file)
            };
            let (written, file) = self.effects.blocking("write", write).await?;
            written?;
            self.file = Some(file);
            Ok(())
        }
        .boxed()
    }

    fn finish(mut self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        async move {
            let (file, shared) = (self.take()?, Arc::clone(&self.shared));
            self.effects.blocking("complete", move || shared.complete(file)).await?
        }
        .boxed()
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        async move {
            let effects = self.effects.clone();
            effects.blocking("abort", move || drop(self.file)).await
        }
        .boxed()
    }
}
