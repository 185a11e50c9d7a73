//! The order of eviction: the files of the cache that were used longest ago. Pure.

use std::collections::BinaryHeap;
use std::path::Path;
use std::rc::Rc;

/// Files that one pass over the folder remembers, which bounds its memory to some 12 MB however
/// large the cache is: the oldest 32 GiB of parts. A pass that has to free more is repeated.
const MOST_FILES: usize = 1 << 18;

/// A file of the cache. The order is that of their last use.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CachedFile {
    /// When it was last used, in milliseconds since 1970, to a minute.
    pub(super) used: u64,
    /// The folder of its table.
    pub(super) table: Rc<Path>,
    pub(super) part: u64,
    /// Its size on the disk.
    pub(super) bytes: u64,
}

/// The files that were used longest ago, of all that were offered.
#[derive(Debug)]
pub(super) struct OldestFiles {
    newest_first: BinaryHeap<CachedFile>,
    most: usize,
}

impl Default for OldestFiles {
    fn default() -> OldestFiles {
        OldestFiles::of(MOST_FILES)
    }
}

impl OldestFiles {
    fn of(most: usize) -> OldestFiles {
        OldestFiles { newest_first: BinaryHeap::new(), most }
    }

    /// Takes note of a file.
    pub(super) fn offer(&mut self, file: CachedFile) {
        self.newest_first.push(file);
        if self.newest_first.len() > self.most {
            self.newest_first.pop();
        }
    }

    /// The files, that of the oldest use first.
    pub(super) fn into_order(self) -> Vec<CachedFile> {
        self.newest_first.into_sorted_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_kept_in_order() {
        let table: Rc<Path> = Rc::from(Path::new("t"));
        for most in [1, 3, 10, 100] {
            let mut oldest = OldestFiles::of(most);
            for n in 0..50 {
                let used = (n * 37) % 50;
                oldest.offer(CachedFile { used, bytes: 1, table: Rc::clone(&table), part: n });
            }
            let order: Vec<u64> = oldest.into_order().iter().map(|file| file.used).collect();
            let expected: Vec<u64> = (0..50).take(most).collect();
            assert_eq!(order, expected);
        }
    }
}
