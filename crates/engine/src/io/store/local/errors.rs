//! What the operating system's errors mean to a caller.

use crate::io::store::PutAnswer;
use siltstone_base::{Error, ErrorKind};
use std::io;
use std::path::Path;

/// What is told when the process is given no memory for what is read.
const OUT_OF_MEMORY: &str = "no memory for what is read: raise the limit of the process (`ulimit \
     -v`, spark.executor.pyspark.memory), or lower `block_cache_bytes` and `metadata_cache_bytes`";

/// The error for a failed file operation on `path`.
pub(super) fn explain(error: io::Error, path: &Path) -> Error {
    use io::ErrorKind as Io;
    let (kind, text) = match error.kind() {
        Io::PermissionDenied => (ErrorKind::Denied, "the file system refused permission"),
        Io::ReadOnlyFilesystem => (ErrorKind::Denied, "the file system is read-only"),
        Io::StorageFull => (ErrorKind::Unavailable, "no space left on the file system"),
        Io::OutOfMemory => (ErrorKind::Unavailable, OUT_OF_MEMORY),
        Io::QuotaExceeded => (ErrorKind::Unavailable, "the file system's quota is used up"),
        Io::NotADirectory | Io::IsADirectory => {
            (ErrorKind::Invalid, "the database's path leads through a file")
        }
        Io::InvalidFilename | Io::InvalidInput => {
            (ErrorKind::Invalid, "the database's path is no path here")
        }
        Io::CrossesDevices => (ErrorKind::Invalid, "the database's folder spans file systems"),
        Io::Unsupported => {
            (ErrorKind::Unsupported, "the file system has no hard links; Siltstone needs them")
        }
        _ => (ErrorKind::Unavailable, "a file operation failed"),
    };
    Error::new(kind, text).with("path", path.display()).caused_by(error)
}

/// What the failure of the linking step of a create means. Most causes are found out before
/// anything is done; after any other the name may stand or not.
pub(super) fn explain_link(error: io::Error, path: &Path) -> PutAnswer {
    use io::ErrorKind as Io;
    let certain = matches!(
        error.kind(),
        Io::PermissionDenied
            | Io::ReadOnlyFilesystem
            | Io::StorageFull
            | Io::QuotaExceeded
            | Io::NotFound
            | Io::NotADirectory
            | Io::CrossesDevices
            | Io::InvalidInput
            | Io::InvalidFilename
            | Io::Unsupported
            | Io::TooManyLinks
    );
    match error.kind() {
        Io::AlreadyExists => PutAnswer::Exists,
        _ if certain => PutAnswer::Refused(explain(error, path)),
        _ => PutAnswer::Ambiguous(explain(error, path)),
    }
}
