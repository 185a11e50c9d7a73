//! Blocks set aside for the collector, so that it can always free a full file system.
//!
//! A collector stores a scratch object to learn the store's time, and a boundary before it deletes
//! the garbage below. Without a free block these creates fail, nothing is deleted, and no block
//! ever becomes free. So a writer keeps four files of one block each, and an object of the
//! collector that finds no space is written into one of them:
//!
//! ```text
//! .staging/reserve-0 … reserve-3
//! rename reserve-i to .staging/x │ write over it, cut │ sync x │ link x to name │ …
//! ```
//! The rename decides races between processes. None of these steps allocates a block of data.

use super::folder::Folder;
use super::staging::{self, StagedFile};
use crate::full::is_full;
use siltstone_base::{ObjectName, Result};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// A round of the collector creates at most three boundaries (of manifests, of the log, and of
/// compaction records) and one scratch object.
const FILES: [&str; 4] = ["reserve-0", "reserve-1", "reserve-2", "reserve-3"];
/// Length of each: a block of common file systems. A boundary takes about 100 bytes.
const BYTES: usize = 4 << 10;

/// Whether this process has taken files of the reserve that it has not replaced yet.
#[derive(Default)]
pub(super) struct Reserve {
    is_short: AtomicBool,
}

/// Whether the collector creates objects of this name.
fn is_of_collector(name: ObjectName) -> bool {
    use ObjectName::{CompactionsBoundary, ManifestBoundary, ProbeScratch, WalBoundary};
    matches!(name, ManifestBoundary(_) | WalBoundary(_) | CompactionsBoundary(_) | ProbeScratch(_))
}

impl Folder {
    /// Creates the files of the reserve that are missing. Without space some stay missing.
    pub(super) fn fill_reserve(&self) {
        let fill = || {
            let staging = self.parts.made_for_now(staging::FOLDER)?;
            for name in FILES {
                match self.files.create_filled(&staging.folder, name, BYTES) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                        return Err(error);
                    }
                    _ => {}
                }
            }
            Ok(())
        };
        // A folder that takes no files has no use for a reserve, and a full disk gets one with the
        // next objects that are deleted.
        self.reserve.is_short.store(fill().is_err(), Ordering::Release);
    }

    /// After objects were deleted: replaces the files that this process has taken.
    pub(super) fn refill_reserve(&self) {
        if self.reserve.is_short.load(Ordering::Acquire) {
            self.fill_reserve();
        }
    }

    /// Writes an object of the collector that found no space into a file of the reserve. `written`
    /// is the outcome without it, and stands for other objects, for other errors and where no file
    /// is left.
    pub(super) fn or_reserved<T>(
        &self,
        written: Result<T>,
        name: ObjectName,
        bytes: &[u8],
        staged: &str,
        place: impl FnOnce(StagedFile) -> Result<T>,
    ) -> Result<T> {
        let is_refused = |error: &siltstone_base::Error| is_full(error) && bytes.len() <= BYTES;
        match &written {
            Err(error) if is_refused(error) && is_of_collector(name) => {}
            _ => return written,
        }
        match self.take_reserved(bytes, staged) {
            Ok(file) => place(file),
            Err(_) => written,
        }
    }

    fn take_reserved(&self, bytes: &[u8], staged: &str) -> io::Result<StagedFile> {
        let staging = self.parts.find(staging::FOLDER)?.ok_or(io::ErrorKind::NotFound)?;
        self.reserve.is_short.store(true, Ordering::Release);
        let mut taken = Err(io::ErrorKind::NotFound.into());
        for name in FILES {
            taken = StagedFile::taking_over(&self.files, &staging.folder, name, staged);
            if taken.is_ok() {
                break;
            }
        }
        let mut file = taken?;
        file.write_over(bytes)?;
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Scene, WAL, scene};
    use super::*;
    use crate::{PutAnswer, Store};
    use futures::FutureExt;
    use siltstone_base::{ManifestId, WalId};

    use ObjectName::{CompactionsBoundary, ManifestBoundary, WalBoundary};

    const BOUNDARIES: [ObjectName; 3] =
        [ManifestBoundary(ManifestId(3)), WalBoundary(WalId(3)), CompactionsBoundary(3)];

    fn files(scene: &Scene) -> Vec<String> {
        let staging = scene.folder.path().join("deep/db/.staging");
        let mut names: Vec<_> = std::fs::read_dir(staging)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn boundaries_and_nothing_else_are_written_into_the_reserve() {
        let scene = scene();
        assert!(matches!(scene.put(WAL, b"one"), PutAnswer::Created));
        scene.store.folder.fill_reserve();
        assert_eq!(files(&scene), FILES);
        scene.recorder.fail("create", io::ErrorKind::StorageFull);
        assert!(matches!(scene.put(ObjectName::Wal(WalId(2)), b"two"), PutAnswer::Refused(_)));
        for (at, name) in BOUNDARIES.into_iter().enumerate() {
            assert!(matches!(scene.put(name, b"boundary"), PutAnswer::Created), "{name}");
            assert_eq!(scene.get(name).unwrap().as_deref(), Some(&b"boundary"[..]));
            assert_eq!(files(&scene), FILES[at + 1..]);
        }
        // A name that is taken stays taken; the last file is spent on the attempt.
        assert!(matches!(scene.put(BOUNDARIES[0], b"another"), PutAnswer::Exists));
        assert_eq!(scene.get(BOUNDARIES[0]).unwrap().as_deref(), Some(&b"boundary"[..]));
        assert_eq!(files(&scene), [""; 0]);
        assert!(matches!(scene.put(ManifestBoundary(ManifestId(4)), b""), PutAnswer::Refused(_)));

        let deleted = scene.store.delete_many(vec![WAL]).now_or_never().unwrap();
        assert!(deleted.iter().all(Result::is_ok));
        assert_eq!(files(&scene), FILES);
    }

    #[test]
    fn a_reserve_that_finds_no_space_is_filled_after_a_delete() {
        let scene = scene();
        assert!(matches!(scene.put(WAL, b"one"), PutAnswer::Created));
        scene.recorder.fail("fill", io::ErrorKind::StorageFull);
        scene.store.folder.fill_reserve();
        scene.recorder.heal();
        assert_eq!(files(&scene), [""; 0]);
        scene.store.delete_many(vec![WAL]).now_or_never().unwrap();
        assert_eq!(files(&scene), FILES);
        // Nothing is missing any more.
        scene.recorder.take();
        scene.store.delete_many(vec![WAL]).now_or_never().unwrap();
        assert!(scene.recorder.take().iter().all(|step| !step.starts_with("fill")));
    }
}
