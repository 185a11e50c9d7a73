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
        _ => (ErrorKind::Unavailable, unnamed(&error)),
    };
    Error::new(kind, text).with("path", path.display()).caused_by(error)
}

/// The text for an error without a kind of its own, with the remedy if it is a limit of the
/// process. Such an error may pass: other handles of the process close files.
fn unnamed(error: &io::Error) -> &'static str {
    let is = |errno: Errno| error.raw_os_error() == Some(errno.raw_os_error());
    if is(Errno::MFILE) {
        "the process has too many open files: raise the limit (`ulimit -n`), or keep fewer handles \
         open, which take up to 5 files each"
    } else if is(Errno::NFILE) {
        "the system has too many open files: raise its limit (`fs.file-max`), or end other programs"
    } else if is(Errno::FBIG) {
        "the file would exceed the largest size: raise the limit of the process (`ulimit -f`), or \
         use another file system"
    } else {
        "a file operation failed"
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_of_a_process_are_told_with_their_remedy() {
        let limits = [
            (Errno::MFILE, "`ulimit -n`"),
            (Errno::NFILE, "`fs.file-max`"),
            (Errno::FBIG, "`ulimit -f`"),
        ];
        for (errno, remedy) in limits {
            let failed = io::Error::from_raw_os_error(errno.raw_os_error());
            let error = explain(failed, Path::new("db"));
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(error.to_string().contains(remedy), "{error}");
        }
    }
}
