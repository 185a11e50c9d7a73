//! Tables as mapped memory. This is the only module of the engine with unsafe code.
//!
//! A slice of mapped memory promises that its bytes do not change while it lives. No compiler can
//! check that, because another process may write to the file or truncate it. The rules of the
//! database, not this module, exclude it: a table is written under a staging name, synced and
//! renamed. After that it is only read and finally unlinked, and an unlinked file keeps its bytes
//! while it is mapped. A process that breaks this rule breaks the database:
//!
//! ```text
//! bytes changed before they were read first    the block's checksum fails: Corruption
//! bytes changed after that                     wrong bytes may be returned, as from a cache
//! cut short before it was mapped               not mapped; a read reports Corruption
//! cut short while it is mapped, or the disk    the system ends the process (SIGBUS), because a
//! fails to bring a page                        load cannot fail in any other way
//! ```
//! Because of the last case only tables on file systems of this machine are mapped. On a network
//! file system another machine may cause it at any time, by a delete that our own rules allow.

#![allow(unsafe_code, reason = "the map itself; everything over it is safe code")]

use super::address_space::AddressSpace;
use bytes::Bytes;
use memmap2::{Mmap, MmapOptions};
use parking_lot::Mutex;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Maximum number of maps of one folder. A system commonly allows 65,530 per process, of which
/// allocators and threads take some. Further tables are read as from any other store.
const MAPS: usize = 8192;

/// The maps of one folder.
#[derive(Debug, Default)]
pub(super) struct Maps(Arc<AtomicUsize>);

/// If the address space has a limit, maps are made one at a time, so that each check of the free
/// space sees the maps before it.
static TURN: Mutex<()> = Mutex::new(());
/// A turn takes microseconds. After a fork the child may find it taken for ever, and then reads
/// without maps.
const LONGEST_TURN: Duration = Duration::from_millis(50);

/// A mapped file, which is counted while it lives.
struct Mapped {
    map: Mmap,
    count: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        &self.map
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Maps {
    /// Maps all of `file`. `None` if it is not `bytes` long, lies on a network file system, or if
    /// the number of maps or the limit of the address space leaves no room.
    pub(super) fn map(&self, file: &File, bytes: u64) -> Option<Bytes> {
        // A 32-bit machine has no addresses to spare.
        if size_of::<usize>() < size_of::<u64>() || !is_of_this_machine(file) {
            return None;
        }
        if file.metadata().ok()?.len() != bytes {
            return None;
        }
        let length = usize::try_from(bytes).ok()?;
        let space = AddressSpace::limited();
        let _turn = match &space {
            Some(_) => Some(TURN.try_lock_for(LONGEST_TURN)?),
            None => None,
        };
        if space.is_some_and(|space| !space.has_room(bytes)) {
            return None;
        }
        let count = &self.0;
        let room = |maps| (maps < MAPS).then_some(maps + 1);
        count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).ok()?;
        // SAFETY: no process changes the bytes or the length of a table once it has its name. The
        // head of this module describes the consequences of a violation.
        let map = unsafe { MmapOptions::new().len(length).map(file) };
        match map {
            Ok(map) => Some(Bytes::from_owner(Mapped { map, count: Arc::clone(count) })),
            Err(_) => {
                count.fetch_sub(1, Ordering::Relaxed);
                None
            }
        }
    }
}

/// File systems that only this machine changes, by their Linux magic numbers. Files on others are
/// not mapped: a missing entry costs speed, and a wrong one could end a process.
#[cfg(target_os = "linux")]
fn is_of_this_machine(file: &File) -> bool {
    const EXT: u64 = 0xef53;
    const XFS: u64 = 0x5846_5342;
    const BTRFS: u64 = 0x9123_683e;
    const F2FS: u64 = 0xf2f5_2010;
    const ZFS: u64 = 0x2fc1_2fc1;
    const BCACHEFS: u64 = 0xca45_1a4e;
    const TMPFS: u64 = 0x0102_1994;
    const OVERLAY: u64 = 0x794c_7630;
    let known = [EXT, XFS, BTRFS, F2FS, ZFS, BCACHEFS, TMPFS, OVERLAY];
    let found = rustix::fs::fstatfs(file);
    #[allow(clippy::cast_sign_loss, clippy::unnecessary_cast, reason = "its type differs")]
    found.is_ok_and(|found| known.contains(&(found.f_type as u64 & 0xffff_ffff)))
}

/// Maps were not measured on other systems.
#[cfg(not(target_os = "linux"))]
fn is_of_this_machine(_: &File) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn a_map_is_the_whole_file_and_counts_while_it_lives() {
        let (maps, file) = (Maps::default(), file(b"layers of stone"));
        let Some(map) = maps.map(&file, 15) else {
            // Temporary files may lie on a file system that is not in the list.
            assert!(!is_of_this_machine(&file));
            return;
        };
        let slice = map.slice(10..15);
        drop((map, file));
        assert_eq!((&*slice, maps.0.load(Ordering::Relaxed)), (&b"stone"[..], 1));
        drop(slice);
        assert_eq!(maps.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_file_of_another_length_is_not_mapped() {
        let (maps, file) = (Maps::default(), file(b"layers of stone"));
        for bytes in [0, 14, 16, u64::MAX] {
            assert!(maps.map(&file, bytes).is_none(), "{bytes}");
        }
        assert_eq!(maps.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn there_are_so_many_maps_and_no_more() {
        let (maps, file) = (Maps::default(), file(b"stone"));
        if !is_of_this_machine(&file) {
            return;
        }
        maps.0.store(MAPS - 1, Ordering::Relaxed);
        let last = maps.map(&file, 5);
        assert!(last.is_some() && maps.map(&file, 5).is_none());
        drop(last);
        assert!(maps.map(&file, 5).is_some());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn files_of_unknown_file_systems_are_not_mapped() {
        let file = File::open("/proc/self/maps").unwrap();
        assert!(!is_of_this_machine(&file));
        assert!(Maps::default().map(&file, 0).is_none());
    }
}
