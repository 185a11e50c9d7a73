//! Whether a store is full.

use siltstone_base::Error;
use std::error::Error as _;
use std::io;

/// Whether `error` is, or was caused by, a lack of space on the disk or in a quota. Deleting
/// objects helps then; waiting alone does not.
#[must_use]
pub fn is_full(error: &Error) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        if matches!(kind, Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)) {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use siltstone_base::ErrorKind;

    #[test]
    fn a_full_disk_is_recognised_at_any_depth() {
        let full =
            Error::unavailable("no space").caused_by(io::Error::from(io::ErrorKind::StorageFull));
        assert!(is_full(&full));
        assert!(is_full(&Error::new(ErrorKind::Timeout, "the deadline passed").caused_by(full)));
        assert!(!is_full(&Error::unavailable("no answer")));
    }
}
