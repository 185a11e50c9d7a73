//! Reads of a single file. It is opened once, at the first read.

use super::errors::explain;
use crate::{check_range, too_short};
use bytes::Bytes;
use parking_lot::Mutex;
use siltstone_base::Result;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Reads a range that lies in the file.
pub(super) type ReadPiece = Box<dyn Fn(&File, &Range<u64>) -> io::Result<Bytes> + Send + Sync>;

/// The file at a path, and the functions that open and read it.
pub(super) struct LoneReader {
    pub(super) path: PathBuf,
    open_at: fn(&Path) -> io::Result<File>,
    read_at: ReadPiece,
    /// The open file with its length.
    open: Mutex<Option<Arc<(File, u64)>>>,
}

impl LoneReader {
    pub(super) fn new(
        path: PathBuf,
        open_at: fn(&Path) -> io::Result<File>,
        read_at: ReadPiece,
    ) -> LoneReader {
        LoneReader { path, open_at, read_at, open: Mutex::default() }
    }

    /// The open file and its length; `None` if it does not exist.
    fn opened(&self) -> Result<Option<Arc<(File, u64)>>> {
        let mut held = self.open.lock();
        if let Some(held) = &*held {
            return Ok(Some(Arc::clone(held)));
        }
        let opened = (self.open_at)(&self.path).and_then(|file| {
            let bytes = file.metadata()?.len();
            Ok((file, bytes))
        });
        match opened {
            Ok(opened) => Ok(Some(Arc::clone(held.insert(Arc::new(opened))))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(explain(error, &self.path)),
        }
    }

    /// The bytes of `range`, or of the whole file; `None` if it does not exist.
    pub(super) fn read(&self, range: Option<Range<u64>>) -> Result<Option<Bytes>> {
        check_range(range.as_ref())?;
        let Some(opened) = self.opened()? else { return Ok(None) };
        let (file, bytes) = &*opened;
        let range = range.unwrap_or(0..*bytes);
        if range.end > *bytes {
            return Err(too_short(self.path.display(), &range, *bytes));
        }
        match (self.read_at)(file, &range) {
            Ok(read) => Ok(Some(read)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(too_short(self.path.display(), &range, *bytes))
            }
            Err(error) => Err(explain(error, &self.path)),
        }
    }

    /// The length of the file; `None` if it does not exist.
    pub(super) fn length(&self) -> Result<Option<u64>> {
        Ok(self.opened()?.map(|opened| opened.1))
    }
}
