//! The tables of one run below a scan. A scan of a few rows enters one or two of thousands, so a
//! table gets its cursor when the scan enters it.

use super::scan_blocks::ScanBlocks;
use super::scan_table::ScanTable;
use super::tree::{Levels, TableRun};
use crate::cache::metadata::TableHandle;
use siltstone_merge::RunTables;
use std::ops::Range;
use std::sync::Arc;

/// Tables of a run, of which at most one has a cursor.
pub(super) struct ScanRun {
    levels: Arc<Levels>,
    /// The number of the run.
    run: usize,
    /// The numbers of the tables that overlap the scan's range.
    within: Range<usize>,
    /// The table that was entered last, counted from the start of `within`, and its cursor.
    current: Option<(usize, ScanTable)>,
    blocks: Arc<ScanBlocks>,
}

impl ScanRun {
    /// The tables number `within` of a run. `first` is the table number, in the run, of a cursor
    /// that is there already.
    pub(super) fn new(
        levels: &Arc<Levels>,
        (run, within): (usize, Range<usize>),
        first: (usize, ScanTable),
        blocks: &Arc<ScanBlocks>,
    ) -> ScanRun {
        let current = first.0.checked_sub(within.start).map(|at| (at, first.1));
        let (levels, blocks) = (Arc::clone(levels), Arc::clone(blocks));
        ScanRun { levels, run, within, current, blocks }
    }

    fn handle(&self, at: usize) -> Option<&Arc<TableHandle>> {
        let run: &TableRun = self.levels.runs.get(self.run)?;
        run.tables.get(self.within.clone())?.get(at)
    }
}

impl RunTables for ScanRun {
    type Cursor = ScanTable;

    fn count(&self) -> usize {
        self.within.len()
    }

    fn is_below(&self, at: usize, key: &[u8]) -> bool {
        self.handle(at).is_some_and(|table| table.descriptor.ends_below(key))
    }

    fn begins_by(&self, at: usize, key: &[u8]) -> bool {
        self.handle(at).is_some_and(|table| table.descriptor.first_visible().as_ref() <= key)
    }

    #[inline(always)]
    fn current(&self, at: usize) -> Option<&ScanTable> {
        self.current.as_ref().filter(|(entered, _)| *entered == at).map(|(_, cursor)| cursor)
    }

    #[inline(always)]
    fn enter(&mut self, at: usize) -> Option<&mut ScanTable> {
        if !matches!(&self.current, Some((entered, _)) if *entered == at) {
            let handle = Arc::clone(self.handle(at)?);
            if let Some((left, _)) = self.current.take()
                && let Some(left) = self.handle(left)
                && left.descriptor.id != handle.descriptor.id
            {
                self.blocks.leaves(left);
            }
            self.current = Some((at, ScanTable::Closed(handle, Arc::clone(&self.blocks))));
        }
        self.current.as_mut().map(|(_, cursor)| cursor)
    }
}
