//! The in-memory index of all tables of a tree, which rejects most tables for a key: first by
//! bounds, then by filters, for many runs together.
//!
//! ```text
//! bounds   run ─► the one table of it that may hold the key      numbers in a row
//! filters    table ─► where its filter's blocks lie, how many      one entry of an array
//! filter   ─► one line of 64 bytes                               waits for memory
//! ```
//! If a key is in one table of fourteen, or in none, the filters of the other tables reject it.
//! Each rejection reads one line that is in no CPU cache. So all of these lines are loaded before
//! the first is tested, and the loads wait together. This path must not take a lock, update a
//! counter or follow a pointer per table.
//!
//! Each entry shares the filter of the table's metadata. The budget for metadata releases both
//! together ([`MetadataBudget`]).

use super::bounds::{Bounds, PreparedKey};
use super::metadata::{MetadataBudget, TableHandle};
use parking_lot::{RwLock, RwLockReadGuard};
use siltstone_bloom::{Bloom, Marks};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Runs that are tested together: their loads are in flight together, and one bit per run fits into
/// a register.
pub(crate) const RUNS_AT_ONCE: usize = 32;

/// The filters of a tree's tables.
#[derive(Debug, Default)]
pub(crate) struct KeyFilters {
    bounds: Bounds,
    filters: RwLock<Box<[KeyFilter]>>,
    /// Counts the time for the choice of the metadata that was unused for longest.
    budget: Option<Arc<MetadataBudget>>,
}

/// The filter of one table.
#[derive(Debug, Default)]
struct KeyFilter {
    filter: FilterState,
    /// The budget's tick at the last use.
    used: AtomicU64,
}

#[derive(Debug, Default)]
enum FilterState {
    /// The metadata was not in memory at the last attempt to fill the entry.
    #[default]
    Nothing,
    /// The table must be read in spite of its filter, because it has range deletes.
    Asks,
    Filter(Bloom),
}

/// The tables of some runs that may contain a key.
pub(crate) struct KeyCandidates {
    /// Bit n: table n of `tables` may contain the key.
    left: u32,
    /// Bit n: the filter of table n accepts the key.
    known: u32,
    /// The candidate table of each run.
    tables: [usize; RUNS_AT_ONCE],
}

impl KeyCandidates {
    /// The numbers of the tables among all tables, newest first, each with a flag. The flag is true
    /// if the filter accepts the key and the table has no range deletes. Otherwise the reader must
    /// test the filter once the metadata is in memory.
    #[inline]
    pub(crate) fn tables(&self) -> impl Iterator<Item = (usize, bool)> {
        let mut left = self.left;
        std::iter::from_fn(move || {
            // 32 if no bit is set, which is outside the array.
            let next = left.trailing_zeros();
            left &= left.wrapping_sub(1);
            let at = *self.tables.get(next as usize)?;
            Some((at, self.known & (1 << next) != 0))
        })
    }
}

impl KeyFilters {
    /// The filters of the tables of these runs, newest first.
    pub(crate) fn new<'a>(runs: impl Iterator<Item = &'a [Arc<TableHandle>]>) -> Arc<Self> {
        let bounds = Bounds::new(runs);
        let tables = bounds.tables();
        let budget = tables.first().map(|table| Arc::clone(table.budget()));
        let filters = RwLock::new(tables.iter().map(|_| KeyFilter::default()).collect());
        let filters = Arc::new(KeyFilters { filters, budget, bounds });
        if let Some(budget) = &filters.budget {
            budget.shares_with(&filters);
        }
        filters
    }

    /// The bounds of the tables.
    #[inline]
    pub(crate) fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// One of the tables.
    #[inline]
    pub(crate) fn table(&self, at: usize) -> Option<&Arc<TableHandle>> {
        self.bounds.tables().get(at)
    }

    /// Tests at most [`RUNS_AT_ONCE`] runs from `from` on. Returns the tables whose bounds contain
    /// the key and whose filter accepts it, is not in memory, or does not decide because the table
    /// has range deletes.
    pub(crate) fn ask(
        &self,
        from: usize,
        sought: &PreparedKey<'_>,
        marks: &mut Marks,
    ) -> KeyCandidates {
        let mut asked = KeyCandidates { left: 0, known: 0, tables: [0; RUNS_AT_ONCE] };
        let runs = from..self.bounds.runs().min(from + RUNS_AT_ONCE);
        let candidates = runs.filter_map(|run| self.bounds.candidate(run, sought));
        let mut count = 0;
        for (at, place) in candidates.zip(&mut asked.tables) {
            *place = at;
            asked.left |= 1 << count;
            count += 1;
        }
        let candidates = asked.tables.get(..count).unwrap_or_default();
        let look = self.look();
        look.prefetch(candidates.iter().map(|at| (*at, marks.hash())));
        let mut unknown = false;
        for (n, at) in candidates.iter().enumerate() {
            match look.says(*at, |filter| filter.may_contain_marked(marks)) {
                FilterAnswer::No => asked.left &= !(1 << n),
                FilterAnswer::Perhaps => asked.known |= 1 << n,
                FilterAnswer::Asks => {}
                FilterAnswer::Nothing => unknown = true,
            }
        }
        if unknown {
            drop(look);
            self.fill(asked.tables().map(|(at, _)| at));
        }
        asked
    }

    /// Read access to all filters. Hold it briefly, because filling a filter waits for it.
    pub(crate) fn look(&self) -> FiltersGuard<'_> {
        let tick = self.budget.as_ref().map_or(0, |budget| budget.tick());
        FiltersGuard { filters: self.filters.read_recursive(), tick }
    }

    /// Fills the filters of those `tables` whose metadata is in memory now.
    #[cold]
    pub(crate) fn fill(&self, tables: impl Iterator<Item = usize>) {
        let mut filters = self.filters.write();
        for at in tables {
            // Under the lock: if the budget releases the metadata after this, it also clears the
            // filter.
            let open = self.table(at).and_then(|handle| handle.table());
            let (Some(row), Some(open)) = (filters.get_mut(at), open) else { continue };
            row.filter = if open.range_deletes().is_empty() {
                FilterState::Filter(open.filter().clone())
            } else {
                FilterState::Asks
            };
        }
    }

    /// Passes the times of the last use on to the tables.
    pub(crate) fn report_use(&self) {
        for (row, handle) in self.filters.read().iter().zip(self.bounds.tables()) {
            handle.used_at(row.used.load(Relaxed));
        }
    }

    /// Clears the filter of a table.
    pub(crate) fn forget(&self, handle: &Arc<TableHandle>) {
        let at = self.bounds.tables().iter().position(|table| Arc::ptr_eq(table, handle));
        let mut filters = self.filters.write();
        if let Some(row) = at.and_then(|at| filters.get_mut(at)) {
            row.filter = FilterState::Nothing;
        }
    }
}

/// The answer of a filter about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FilterAnswer {
    /// The key is not in the table.
    No,
    /// The key may be in the table.
    Perhaps,
    /// The table has range deletes: it must be read, and its own filter decides about the key.
    Asks,
    /// The filter is not filled; fill it.
    Nothing,
}

/// All filters of a tree.
pub(crate) struct FiltersGuard<'a> {
    filters: RwLockReadGuard<'a, Box<[KeyFilter]>>,
    tick: u64,
}

impl FiltersGuard<'_> {
    /// Loads the memory that [`FiltersGuard::says`] reads for each of these tables and hashes. The
    /// loads are in a short loop of their own, because they wait together only within the
    /// instructions that the processor looks ahead, about two hundred.
    #[inline]
    pub(crate) fn prefetch(&self, asked: impl Iterator<Item = (usize, u64)>) {
        let line =
            |(table, hash): (usize, u64)| match self.filters.get(table).map(|row| &row.filter) {
                Some(FilterState::Filter(filter)) => filter.prefetch(hash),
                _ => 0,
            };
        // The sum has no use. Without it the compiler would remove the loads.
        black_box(asked.fold(0, |sum, one| sum ^ line(one)));
    }

    /// The answer of the filter of a table; `knows` tests the filter.
    #[inline]
    pub(crate) fn says(&self, table: usize, knows: impl FnOnce(&Bloom) -> bool) -> FilterAnswer {
        let Some(row) = self.filters.get(table) else { return FilterAnswer::Nothing };
        // Written at most once per tick, because all readers wait for a cache line that each of
        // them writes.
        if row.used.load(Relaxed) != self.tick {
            row.used.store(self.tick, Relaxed);
        }
        match &row.filter {
            FilterState::Filter(filter) if knows(filter) => FilterAnswer::Perhaps,
            FilterState::Filter(_) => FilterAnswer::No,
            FilterState::Asks => FilterAnswer::Asks,
            FilterState::Nothing => FilterAnswer::Nothing,
        }
    }
}

#[cfg(test)]
mod tests;
