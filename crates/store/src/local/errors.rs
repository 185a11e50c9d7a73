//! Translates errors of the operating system.

use crate::PutAnswer;
use rustix::io::Errno;
use siltstone_base::{Error, ErrorKind};
use std::io;
use std::path::Path;

/// The error of a failed file operation on `path`.
pub(super) fn explain(error: io::Error, path: &Path) -> Error {
    use io::ErrorKind as Io;
    let (kind, text) = match error.kind() {
        Io::PermissionDenied => (ErrorKind::Denied, "the file system refused permission"),
        Io::ReadOnlyFilesystem => (ErrorKind::Denied, "the file system is read-only"),
        Io::StorageFull => (ErrorKind::Unavailable, "no space left on the file system"),
        Io::OutOfMemory => return Error::no_memory("a read").with("path", path.display()),
        Io::QuotaExceeded => (ErrorKind::Unavailable, "the file system's quota is used up"),
        Io::NotADirectory | Io::IsADirectory => {
            (ErrorKind::Invalid, "the database's path leads through a file")
        }
        Io::InvalidFilename | Io::InvalidInput => {
            (ErrorKind::Invalid, "the database's path is not valid on this system")
        }
        Io::CrossesDevices => (ErrorKind::Invalid, "the database's folder spans file systems"),
        Io::Unsupported => {
            (ErrorKind::Unsupported, "the file system has no hard links; Siltstone needs them")
        }
        _ if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            (ErrorKind::Invalid, "the database's path has a loop of symbolic links")
        }
        _ => (ErrorKind::Unavailable, "a file operation failed"),
    };
    Error::new(kind, text).with("path", path.display()).caused_by(error)
}

/// The answer for a failure of the linking step of a create. Most causes are detected before
/// anything is done; after any other the name may exist or not.
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
